"""What a question compares passages by besides their words: speaker, date, the days named, tags, form."""

import sys
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from lantern_proxy.analyze import terms_of_parts
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.signals import speaker_name
from lantern_proxy.signals.dates import Span, day_of, spans
from lantern_proxy.signals.form import Form, form_of
from lantern_proxy.signals.words import count
from lantern_proxy.turn import Passage

T = TypeVar("T")


class Voice(NamedTuple):
    """The author of a passage."""

    speaker: str
    name: str
    """The name at the start of its text, as an index term; or "" if there is none."""


class Days(NamedTuple):
    """The days of a passage, as signals/dates.py counts them."""

    named: tuple[Span, ...]
    """The days that its text names."""
    said: int
    """The day on which it was said."""


Tags = tuple[str, ...]
"""Index terms of a passage's tags and tool names, each once."""


class Numbered(Generic[T]):
    """Numbers distinct values in order of appearance, since many passages have the same value."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def number(self, value: T) -> int:
        found = self._numbers.setdefault(value, len(self._values))
        if found == len(self._values):
            self._values.append(value)
        return found

    def of(self, numbers: Floats) -> "Shared[T]":
        return Shared(numbers.astype(np.int64), self._values)


class Shared(Generic[T]):
    """One value for each of n passages, stored once per distinct value."""

    def __init__(self, numbers: Ints, values: Sequence[T]) -> None:
        """numbers: (n,) places in `values`"""
        counts = np.bincount(numbers)
        """How many passages have each of `values`."""
        self._numbers, self._there = numbers, np.flatnonzero(counts)
        self.values = [values[n] for n in self._there.tolist()]
        """The distinct values."""
        self.counts: Ints = counts[self._there]
        """How many passages have each of `values`."""

    def each(self, of_values: Sequence[float] | Floats) -> Floats:
        """(n,) the number of each passage's value. of_values: a number for each of `values`"""
        found = np.zeros(len(self._there) and int(self._there[-1]) + 1)
        found[self._there] = of_values
        return found[self._numbers]


class Common:
    """The distinct values that the `Facets` of a scope share: authors, days, tags."""

    def __init__(self) -> None:
        self.voices, self.days, self.tags = Numbered[Voice](), Numbered[Days](), Numbered[Tags]()


class Facets(Struct, frozen=True):
    """What a question compares n passages by besides their words: time, author, the days named, tags, form. Stays in
    memory when the texts are released."""

    _numbers: Floats
    """(n, FACETS) as facets_of() gives them."""
    _common: Common

    @property
    def forms(self) -> Floats:
        """(n, 6) the fields of each passage's Form."""
        return self._numbers[:, 4:]

    @property
    def created_at(self) -> Floats:
        """(n,) Unix seconds."""
        return self._numbers[:, 0]

    @property
    def voices(self) -> Shared[Voice]:
        return self._common.voices.of(self._numbers[:, 1])

    @property
    def days(self) -> Shared[Days]:
        return self._common.days.of(self._numbers[:, 2])

    @property
    def tags(self) -> Shared[Tags]:
        return self._common.tags.of(self._numbers[:, 3])


FACETS = 4 + len(Form._fields)
"""Numbers that facets_of() makes of a passage."""


def facets_of(passages: Sequence[Passage], common: Common) -> list[tuple[float, ...]]:
    """The FACETS numbers that `Facets` keeps of each passage. Costs 0.06 ms for 650 characters, so cache them.

    common: assigns each author, pair of days and list of tags a number, and keeps it
    """
    tagged = terms_of_parts([" ".join((*p.tags, *p.tools)) for p in passages])
    counted = count([p.text for p in passages])
    return [
        (
            p.created_at,
            common.voices.number(Voice(sys.intern(p.speaker), speaker_name(p.text))),
            common.days.number(Days(tuple(spans(p.text, p.created_at, counts)), day_of(p.created_at))),
            common.tags.number(tuple(dict.fromkeys(map(sys.intern, of_tags)))),
            *form_of(p.text, p.speaker, counts),
        )
        for p, of_tags, counts in zip(passages, tagged, counted, strict=True)
    ]
