"""Does a long text hold another? For thousands of them, in time that does not grow with both."""

from collections.abc import Collection, Iterable, Iterator

_DIRECT_CHARS = 4_096
"""In a text of so many signs one is looked for as it stands."""
_DIRECT, _PLACES = 32, 100
"""So many texts are looked for as they stand, and more in a text of so many times as many places."""
_GRAM, _FEW = 8, 4
_NEAR_CHARS = 200
"""So far behind what was found last the next one is looked for at once."""
_TIMES, _LEAST_CHARS = 64, 4_000_000
"""So many times at most a text is read to its end, and so many signs of it in any case, by all who ask of it; then it
holds no more of theirs."""


_START_CHARS = 20
"""By so much of its beginning one of many texts is looked for."""


class Sought:
    """Some texts with who said each, any of which may stand in other texts: many are looked for by how they begin."""

    def __init__(self, said: Collection[tuple[str, str]]) -> None:
        self.said = said
        self._by_start: dict[str, list[tuple[str, str]]] = {}
        for each in said if len(said) > _DIRECT else ():
            self._by_start.setdefault(each[0][:_START_CHARS], []).append(each)

    def within(self, text: str) -> Iterable[tuple[str, str]]:
        """Those that may stand in `text`, none of which is shorter than what is looked for of it."""
        if not self._by_start or len(text) > _PLACES * len(self.said):
            return self.said
        begun = (text[at : at + _START_CHARS] for at in range(len(text) - _START_CHARS + 1))
        return [each for start in {*filter(self._by_start.__contains__, begun)} for each in self._by_start[start]]


def whole_of(text: str) -> "str | Whole":
    """`text`, as it is asked for many others at the least cost."""
    return text if len(text) <= _DIRECT_CHARS else Whole(text)


class Whole:
    """A text that is asked for others. It is read from where the last one was found on: texts that were put together
    stand in it in their order, and are found at once."""

    def __init__(self, text: str, times: int = _TIMES) -> None:
        self.text = text
        self._at = self._end = 0
        self._left_chars = max(_LEAST_CHARS, times * len(text))
        self._asked = 0
        self._grams = frozenset[str]()

    def __contains__(self, part: str) -> bool:
        return self._follows(part) or (self._may_hold(part) and next(self.places(part), -1) >= 0)

    def _follows(self, part: str) -> bool:
        """Does it stand right behind what was found last, as the next line of a history does?"""
        near = self._between(part, self._end, min(len(self.text), self._end + _NEAR_CHARS + len(part)))
        return next(near, -1) >= 0

    def places(self, part: str) -> Iterator[int]:
        """Where `part` stands: behind what was found last, and then in front of it."""
        begun = self._at
        yield from self._between(part, begun, len(self.text))
        yield from self._between(part, 0, min(len(self.text), begun + len(part) - 1))

    def spend(self, chars: int) -> None:
        """As if so many signs of it had been read."""
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
        """False: it does not. All stretches of 8 signs that begin at a multiple of 8 are known; a part that stands in
        the text has those that it would cover there."""
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
