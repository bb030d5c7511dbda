"""Counts the words of each category in a text in one pass, to tell what kind of text it is. Pure.

native/facts.c gives the same result where it is available; the reference is here.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lantern_proxy.analyze import folded, native

_FIRST = frozenset(["i", "my", "me", "mine", "we", "our", "us", "myself"])
_SECOND = frozenset(["you", "your", "yours"])
_TIME = frozenset(
    """
    yesterday today tonight tomorrow last ago recently since next week weeks month months year years weekend
    monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
    october november december
    """.split()  # noqa: SIM905 - a list of quotes reads worse
) | frozenset(map(str, range(1900, 2100)))
_DAYS = frozenset(
    """
    jan january feb february mar march apr april may jun june jul july aug august sep sept september oct october nov
    november dec december monday tuesday wednesday thursday friday saturday sunday yesterday today tonight tomorrow
    morning night weekend week month year ago
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
"""Every named day contains one of these words, except days with a year in figures."""

_RUN = re.compile(r"\w+")
_ENDS = re.compile(r"[.!?\u2026\n]+")
_TIMES = re.compile(r":\d|-\d|this [ms]")


class Counts(NamedTuple):
    """Number of words of each category in one text, in the order of facts_counts in native/facts.h."""

    first: int
    second: int
    """Words of the first and of the second person."""
    time: int
    """Words for a time."""
    days: int
    """Every named day contains one of these words, or counts in `years`."""
    years: int
    """Words of four digits."""
    ends: int
    """Possible ends of a sentence: runs of full stops and the like, or of line breaks."""
    asking: int
    """How many of `ends` have a question mark."""
    times: int
    """Places that look like a time in figures; if 0, only words tell a time."""


@lru_cache(maxsize=1)
def _native_words() -> Any:
    return native.lexicon(zip((1, 2, 4, 8), (_FIRST, _SECOND, _TIME, _DAYS), strict=True))


def count(texts: Sequence[str]) -> list[Counts]:
    """The Counts of each text. A large batch costs half as much per text."""
    found = native.counts(texts, _native_words()) if native.AVAILABLE else None
    return [*map(count_in_python, texts)] if found is None else [*map(Counts._make, found)]


def count_in_python(text: str) -> Counts:
    """The Counts of one text, without C."""
    low, ends = folded(text), _ENDS.findall(text)
    words = _RUN.findall(low)
    first, second, time, days = (sum(word in sort for word in words) for sort in (_FIRST, _SECOND, _TIME, _DAYS))
    return Counts(
        first=first,
        second=second,
        time=time,
        days=days,
        years=sum(len(word) == 4 and word.isdecimal() for word in words),
        ends=len(ends),
        asking=sum("?" in end for end in ends),
        times=len(_TIMES.findall(low)),
    )
