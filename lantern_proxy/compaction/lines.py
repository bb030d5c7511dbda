"""Does a text stand within a longer one that was composed of many, allowing for small changes by the client?

A history written into one text names the speakers: in front of each text, or after the orders with which the first one
began. What followed the last text may be missing there.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from lantern_proxy.analyze.spoken import STAMP
from lantern_proxy.history.containment import Haystack
from lantern_proxy.history.embedded import SPEAKER
from lantern_proxy.turn import plain

_LEAST_CHARS = 8
"""Lines with fewer characters together prove nothing: they may stand anywhere."""
_NAME_CHARS = 40
"""Most characters between two lines of a text within another one: the speaker's name, or nothing."""
_PLACES, _LINE_CHARS = 100, 64
"""Most places at which the first line is looked for; and the cost, in characters, of a following line that leads
nowhere."""

_TIMED = re.compile(rf"(?:\A|^[^\w\n]{{0,8}}\w[^\n:>\]]{{0,30}}[:>\]])[ \t]{{0,8}}{STAMP}", re.M)


def untimed(text: str) -> str:
    """`text` without the time at its beginning, and without times and names at the beginnings of its lines: clients
    write these anew with every request."""
    return _TIMED.sub("\n", text)


def stands_in(whole: Haystack, text: str, *, notes: bool) -> bool:
    """Does `text` stand in `whole`, in one piece or line by line, with only names in between?

    notes: its client may have removed what it had put after the first lines
    """
    if plain(text) in whole:
        return True
    lines = _lines(text)
    for at in islice(whole.places(lines[0]), _PLACES) if lines else ():
        count, end = _run(whole.text, lines, at)
        if end - at >= _LEAST_CHARS and (count == len(lines) or (notes and not _is_spoken(lines, count))):
            return True
        whole.spend(_LINE_CHARS * count)
    return False


def _is_spoken(lines: Sequence[str], at: int) -> bool:
    """Does the line at `at` begin with the name of one who speaks in an earlier one? Then it is no note."""
    named = SPEAKER.match(lines[at])
    return named is not None and any(line.startswith(named[0]) for line in lines[:at])


def is_made_of(whole: str, texts: Iterable[str]) -> bool:
    """Does `whole` consist of these texts in order, with only names around them?"""
    lines = [line for text in texts for line in _lines(text)]
    at = whole.find(lines[0], 0, _NAME_CHARS + len(lines[0])) if lines else -1
    if at < 0:
        return False
    count, end = _run(whole, lines, at)
    return count == len(lines) and len(whole) - end <= _NAME_CHARS


def _lines(text: str) -> list[str]:
    return [line for line in map(plain, text.splitlines()) if line]


def _run(whole: str, lines: Sequence[str], at: int) -> tuple[int, int]:
    """(how many of `lines` follow each other in `whole`, the first of them at `at`; where they end)"""
    end = at + len(lines[0])
    for n, line in enumerate(lines[1:], start=1):
        following = whole.find(line, end, end + _NAME_CHARS + len(line))
        if following < 0:
            return n, end
        end = following + len(line)
    return len(lines), end
