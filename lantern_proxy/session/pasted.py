"""Does one text contain texts of both speakers of a session? Then a client pasted them there, for a side call."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from lantern_proxy.analyze.starts import Starts
from lantern_proxy.history.text import shared_front
from lantern_proxy.session.index import PROBE_CHARS, ends_of

PROBE_TEXT_CHARS = 400
"""Characters of a text that are compared where its beginning was found."""
_LABEL = re.compile(r"\[[^\[\]\n]{1,60}\] ")
"""What some clients write in front of a message, and omit where they paste it: "[Mon 11:30 UTC] "."""
_NAME = re.compile(r"[^\w\s]{0,8}\s?\w{1,30}[:>\]]{1,8}[*\s]{0,8}")
"""The speaker's name in front of a line of a transcript: "USER: ", "<user>", "**User:** ", "## User:"."""
_NEXT_NAME = re.compile(rf"\s{{0,8}}{_NAME.pattern}")
_NAMED = re.compile(rf"(?:^|\s|>){_NAME.pattern}$")
"""A speaker's name directly in front of a text."""
_SIGNS = re.compile(r"\A[\W_]+|[\W_]+\Z")
_BETWEEN_CHARS = 80
"""Most characters between two pasted answers: the question to the second one, and two names."""
_MOST_LOOKS = 60_000
"""Most comparisons of a text with a place in a request, for all texts of a session together."""


class _Pieces:
    """Texts with one beginning, each cut to PROBE_TEXT_CHARS: which of them stands at a given place?"""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = sorted(texts)
        first, last = self.texts[0], self.texts[-1]
        self.front = first[: shared_front(first, last)]
        """The beginning that all have in common."""

    def longest_here(self, text: str, looks: Iterator[int]) -> int:
        """Length of the longest piece with which `text` begins; 0: none. looks: one is taken per comparison

        In sorted order, a piece with which `text` begins precedes it, and is nearer than pieces that share less with
        it.
        """
        n = bisect_right(self.texts, text)
        while n and next(looks, None) is not None:
            piece = self.texts[n - 1]
            if text.startswith(piece):
                return len(piece)
            text = text[: shared_front(piece, text)]
            n = bisect_right(self.texts, text, 0, n - 1)
        return 0


def is_pasted(said: Mapping[str, str], texts: Iterable[str], *, labelled: bool = False, apart: bool = False) -> bool:
    """Do texts of two speakers of a session stand together in one of `texts`?

    labelled: also look for them without a bracketed label at their beginning, such as a time
    apart:    what begins within words of another speaker does not count: a user's message may hold a summary
    """
    found: Iterable[tuple[str, str]] = said.items()
    if labelled:
        found = [*found, *((text[len(label[0]) :], who) for text, who in found if (label := _LABEL.match(text)))]
    pieces, looks = _by_start(found), iter(range(_MOST_LOOKS))
    starts, short = _starts_of(pieces), _short(said)
    long = (text for text in texts if len(text) > 2 * PROBE_CHARS)
    return any(len(_speakers(pieces, text, looks, starts, short, apart)) >= 2 for text in long)


def quotes_exchange(exchanges: Sequence[tuple[str, str]], texts: Iterable[str]) -> bool:
    """Do both texts of an exchange, however short, follow each other in one of `texts`, each after a name?"""
    return any(_is_told(asked, answer, text) for text in texts for asked, answer in exchanges)


def _is_told(asked: str, answer: str, text: str) -> bool:
    text = ends_of(text)
    for at in _places(asked, text) if asked and answer else ():
        name = _NEXT_NAME.match(text, at + len(asked))
        if name and text.startswith(answer, name.end()) and _NAMED.search(text[max(0, at - _BETWEEN_CHARS) : at]):
            return True
    return False


def _short(said: Mapping[str, str]) -> dict[str, set[str]]:
    """Speaker -> their texts, unpunctuated, that are too short to be searched for alone, such as "Yes."."""
    found: dict[str, set[str]] = {}
    for text, who in said.items():
        if who != "side" and 0 < len(text) < PROBE_CHARS:
            found.setdefault(who, set()).add(_unpunctuated(text))
    return found


def _by_start(said: Iterable[tuple[str, str]]) -> dict[str, dict[str, _Pieces]]:
    """Beginning of PROBE_CHARS -> speaker -> their different texts with that beginning: one template makes many."""
    found: dict[str, dict[str, set[str]]] = {}
    for text, who in said:
        if who != "side":
            found.setdefault(text[:PROBE_CHARS], {}).setdefault(who, set()).add(text[:PROBE_TEXT_CHARS])
    return {start: {who: _Pieces(some) for who, some in voices.items()} for start, voices in found.items()}


def _starts_of(pieces: Iterable[str]) -> Starts:
    return Starts([start for start in pieces if len(start) == PROBE_CHARS])


def _speakers(
    pieces: Mapping[str, Mapping[str, _Pieces]], text: str, looks: Iterator[int], starts: Starts,
    short: Mapping[str, Collection[str]], apart: bool = False,
) -> set[str]:  # fmt: skip
    """Whose texts stand in `text`. A match within a longer match of another speaker does not count: a title repeats
    words of what it names.

    pieces: see _by_start(); starts: see _starts_of() them
    looks:  see _Pieces.longest_here()
    short:  see _short(); these count only between two pieces
    apart:  nor does what begins within a match of another speaker
    """
    text = ends_of(text)
    found = [
        (at, at + chars, who)
        for at, start in starts.within(text, pieces)
        for who, some in pieces[start].items()
        if text.startswith(some.front, at) and (chars := some.longest_here(text[at : at + PROBE_TEXT_CHARS], looks))
    ]
    speakers, reach = set[str](), dict[str, int]()  # reach: how far what each said goes, of all that begins before here
    spans = groupby(sorted(found, key=lambda span: (span[0], -span[1])), key=lambda span: span[:2])
    for (start, end), same in spans:
        voices, free = {who for _, _, who in same}, start + 1 if apart else end
        reach |= {who: max(end, reach.get(who, 0)) for who in voices}
        speakers |= {who for who in voices if all(far < free for other, far in reach.items() if other != who)}
    between = [text[a[1] : b[0]] for a, b in pairwise(sorted(found)) if 0 < b[0] - a[1] <= _BETWEEN_CHARS]
    lines = {_unpunctuated(line) for gap in between for line in _NAME.split(gap)}
    return speakers and speakers | {who for who, some in short.items() if not lines.isdisjoint(some)}


def _unpunctuated(text: str) -> str:
    """A text without the signs at its ends: its last one may seem to belong to the name behind it. A text of nothing
    but signs keeps them."""
    return _SIGNS.sub("", text) or text.strip()


def _places(start: str, text: str) -> Iterator[int]:
    """The places at which `start` stands in `text`, except within a word."""
    at = text.find(start)
    while at >= 0:
        if not text[at - 1 : at].isalnum():
            yield at
        at = text.find(start, at + 1)
