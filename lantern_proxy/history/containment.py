"""Does a long text hold another? For thousands of them, in time that does not grow with both."""

from collections.abc import Collection, Iterable, Iterator

_DIRECT_CHARS = 4_096
"""In a text of at most this many characters others are searched for directly."""
_DIRECT, _PLACES = 32, 100
"""Up to this many texts are searched for directly. More are looked up by their beginnings, unless the text has more
than _PLACES times as many places as there are texts."""
_GRAM, _FEW = 8, 4
_NEAR_CHARS = 200
"""The next text is first looked for within this many characters after the last match."""
_TIMES, _LEAST_CHARS = 64, 4_000_000
"""How often a text may be read to its end, all searches together, and how many characters may be read in any case.
After that it counts as holding nothing more."""


_START_CHARS = 20
"""Characters of the beginning by which one of many texts is looked up."""


class Needles:
    """(text, who) pairs that may stand in other texts; if there are many, looked up by their beginnings."""

    def __init__(self, said: Collection[tuple[str, str]]) -> None:
        self.said = said
        self._by_start: dict[str, list[tuple[str, str]]] = {}
        for each in said if len(said) > _DIRECT else ():
            self._by_start.setdefault(each[0][:_START_CHARS], []).append(each)

    def within(self, text: str) -> Iterable[tuple[str, str]]:
        """The pairs that may stand in `text`. Each text must have at least _START_CHARS characters."""
        if not self._by_start or len(text) > _PLACES * len(self.said):
            return self.said
        begun = (text[at : at + _START_CHARS] for at in range(len(text) - _START_CHARS + 1))
        return [each for start in {*filter(self._by_start.__contains__, begun)} for each in self._by_start[start]]


def haystack_of(text: str) -> "str | Haystack":
    """`text` in the form in which it is cheapest to ask whether it holds many others."""
    return text if len(text) <= _DIRECT_CHARS else Haystack(text)


class Haystack:
    """A text that is asked whether it holds others. Each search starts at the last match: texts that a client joined
    stand in it in order, and are found at once."""

    def __init__(self, text: str, times: int = _TIMES) -> None:
        self.text = text
        self._at = self._end = 0
        self._left_chars = max(_LEAST_CHARS, times * len(text))
        self._asked = 0
        self._grams = frozenset[str]()

    def __contains__(self, part: str) -> bool:
        return self._follows(part) or (self._may_hold(part) and next(self.places(part), -1) >= 0)

    def _follows(self, part: str) -> bool:
        """Does `part` stand right after the last match, like the next line of a history?"""
        near = self._between(part, self._end, min(len(self.text), self._end + _NEAR_CHARS + len(part)))
        return next(near, -1) >= 0

    def places(self, part: str) -> Iterator[int]:
        """The places of `part`: first those after the last match, then those before it."""
        begun = self._at
        yield from self._between(part, begun, len(self.text))
        yield from self._between(part, 0, min(len(self.text), begun + len(part) - 1))

    def spend(self, chars: int) -> None:
        """Count this many characters as read."""
        self._left_chars -= chars

    def _between(self, part: str, at: int, end: int) -> Iterator[int]:
        while self._left_chars > 0:
            found = self.text.find(part, at, end)
            self.spend((found if found >= 0 else end) - at + len(part))
            if found < 0:
                return
            self._at, self._end = found, found + len(part)
            yield found
            at = found + 1

    def _may_hold(self, part: str) -> bool:
        """False if the text does not hold `part`; True if it may. All stretches of 8 characters at multiples of 8 are
        known; a part that stands in the text consists of such stretches, except at its ends."""
        if len(part) > len(self.text):
            return False
        self._asked += 1
        if self._asked <= _FEW or len(self.text) <= _DIRECT_CHARS or len(part) < 2 * _GRAM - 1:
            return True
        if not self._grams:
            self._grams = frozenset(self.text[at : at + _GRAM] for at in range(0, len(self.text), _GRAM))
        last = len(part) - _GRAM + 1
        return any(
            all(part[at : at + _GRAM] in self._grams for at in range(first, last, _GRAM)) for first in range(_GRAM)
        )
