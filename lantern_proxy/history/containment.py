"""Does a long text hold another? For thousands of them, in time that does not grow with both."""

from collections.abc import Collection, Iterable, Iterator

_DIRECT_CHARS = 4_096
"""In a text of up to so many characters others are simply searched for."""
_DIRECT, _PLACES = 32, 100
"""Up to so many texts are simply searched for. More are looked up by their beginnings, unless the text has more than
_PLACES times as many places as there are texts."""
_GRAM, _FEW = 8, 4
_NEAR_CHARS = 200
"""The next text is first looked for within so many characters behind the last one that was found."""
_TIMES, _LEAST_CHARS = 64, 4_000_000
"""How often a text may be read to its end, all searches together, and how many characters may be read in any case. When
that is used up, it is said to hold nothing more."""


_START_CHARS = 20
"""Characters of the beginning by which one of many texts is looked up."""


class Needles:
    """(text, who) of some texts that may stand in others. Where they are many they are looked up by their
    beginnings."""

    def __init__(self, said: Collection[tuple[str, str]]) -> None:
        self.said = said
        self._by_start: dict[str, list[tuple[str, str]]] = {}
        for each in said if len(said) > _DIRECT else ():
            self._by_start.setdefault(each[0][:_START_CHARS], []).append(each)

    def within(self, text: str) -> Iterable[tuple[str, str]]:
        """Those that may stand in `text`. Each of them has to have at least _START_CHARS characters."""
        if not self._by_start or len(text) > _PLACES * len(self.said):
            return self.said
        begun = (text[at : at + _START_CHARS] for at in range(len(text) - _START_CHARS + 1))
        return [each for start in {*filter(self._by_start.__contains__, begun)} for each in self._by_start[start]]


def haystack_of(text: str) -> "str | Haystack":
    """`text` in the form in which it costs least to ask whether it holds many others."""
    return text if len(text) <= _DIRECT_CHARS else Haystack(text)


class Haystack:
    """A text, to be asked whether it holds others. It is searched from where the last one was found: texts that a
    client put together stand in it in their order, and are found at once."""

    def __init__(self, text: str, times: int = _TIMES) -> None:
        self.text = text
        self._at = self._end = 0
        self._left_chars = max(_LEAST_CHARS, times * len(text))
        self._asked = 0
        self._grams = frozenset[str]()

    def __contains__(self, part: str) -> bool:
        return self._follows(part) or (self._may_hold(part) and next(self.places(part), -1) >= 0)

    def _follows(self, part: str) -> bool:
        """Does `part` stand right behind what was found last, as the next line of a history does?"""
        near = self._between(part, self._end, min(len(self.text), self._end + _NEAR_CHARS + len(part)))
        return next(near, -1) >= 0

    def places(self, part: str) -> Iterator[int]:
        """The places at which `part` stands: first those behind what was found last, then those in front of it."""
        begun = self._at
        yield from self._between(part, begun, len(self.text))
        yield from self._between(part, 0, min(len(self.text), begun + len(part) - 1))

    def spend(self, chars: int) -> None:
        """Count as if so many characters had been read."""
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
        """False when the text does not hold `part`; True when it may. All stretches of 8 characters that begin at a
        multiple of 8 are known; a part that stands in the text consists of such stretches, but for its ends."""
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
