"""The passages of a scope, read from the archive when they are looked at, with what is computed of each once."""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, overload

import numpy as np

from lantern_proxy.analyze import sequence, terms, terms_of_parts
from lantern_proxy.archive import TenantArchive
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore.kept import Kept, KeptPieces
from lantern_proxy.restore.lines import Line, flat, lines
from lantern_proxy.signals import speaker_name
from lantern_proxy.signals.alike import Lists, Pieces
from lantern_proxy.signals.dates import Span, day_of, spans
from lantern_proxy.signals.form import TRAITS, Form, asks_and_tells, form_of, traits
from lantern_proxy.signals.words import count
from lantern_proxy.turn import Passage

T = TypeVar("T")
Split = Callable[[str], Pieces]
"""A text into its word pieces."""

STEP = 500
"""Passages read from the archive between two looks at the clock: about 5 ms."""
SMALL = 2_000
"""Passages of a scope that are all read when one is looked at."""
MOST_READ = 10_000
"""Passages of a scope that stay in memory with what was computed of them, 4 KB each; of a large one those read last."""
MOST_TOLD = 20_000
"""Passages of a scope of which it stays in memory what is told of them, 600 to 1,200 bytes each."""


@dataclass(slots=True)
class ReadPassage:
    """A passage as a scope holds it, with what is computed once."""

    passage: Passage
    """Without its terms, which are in the index."""
    _flat: str | None = None
    _lines: tuple[Line, ...] | None = None
    _words: frozenset[str] | None = None
    _tag_terms: frozenset[str] | None = None
    _sequence: str | None = None

    @property
    def flat(self) -> str:
        """Its text with white space collapsed."""
        if self._flat is None:
            self._flat = flat(self.passage.text)
        return self._flat

    @property
    def lines(self) -> tuple[Line, ...]:
        if self._lines is None:
            self._lines = lines(self.passage)
        return self._lines

    @property
    def words(self) -> frozenset[str]:
        """Its index terms."""
        if self._words is None:
            self._words = frozenset(terms(self.passage.text))
        return self._words

    @property
    def tag_terms(self) -> frozenset[str]:
        """Index terms of its tags and tool names."""
        if self._tag_terms is None:
            self._tag_terms = frozenset(terms(" ".join((*self.passage.tags, *self.passage.tools))))
        return self._tag_terms

    @property
    def sequence(self) -> str:
        """Its index terms in order, a line break around each."""
        if self._sequence is None:
            self._sequence = sequence(self.passage.text)
        return self._sequence


class Voice(NamedTuple):
    """Who says a passage."""

    speaker: str
    name: str
    """The name that its text begins with, as an index term; or ""."""


class Days(NamedTuple):
    """The days of a passage, as signals/dates.py counts them."""

    named: tuple[Span, ...]
    """Those that its text names."""
    said: int
    """The one on which it was said."""


Tags = tuple[str, ...]
"""Index terms of a passage's tags and tool names, each once."""


class Numbered(Generic[T]):
    """Values, each once, numbered as they come: many passages have the same."""

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
    """A value of each of n passages, where many have the same."""

    def __init__(self, numbers: Ints, values: Sequence[T]) -> None:
        """numbers: (n,) places in `values`"""
        counts = np.bincount(numbers)
        self._numbers, self._there = numbers, np.flatnonzero(counts)
        self.values = [values[n] for n in self._there.tolist()]
        """Each once."""
        self.counts: Ints = counts[self._there]
        """How many passages have each."""

    def each(self, of_values: Sequence[float] | Floats) -> Floats:
        """(n,) for each passage the number of its value. of_values: one for each of `values`"""
        found = np.zeros(len(self._there) and int(self._there[-1]) + 1)
        found[self._there] = of_values
        return found[self._numbers]


class Common:
    """What passages have in common, as it was told of them."""

    def __init__(self) -> None:
        self.voices, self.days, self.tags = Numbered[Voice](), Numbered[Days](), Numbered[Tags]()


@dataclass(frozen=True, slots=True)
class Told:
    """What questions ask of n passages. It stays when the texts are let go of."""

    _numbers: Floats
    """(n, TOLD) by `tell`"""
    _common: Common

    @property
    def forms(self) -> Floats:
        """(n, 6) the numbers of each one's Form."""
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


TOLD = 4 + len(Form._fields)


def tell(passages: Sequence[Passage], common: Common) -> list[tuple[float, ...]]:
    """TOLD numbers of each. Costs 0.06 ms a passage of 650 characters: keep it. common: grows"""
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


class Passages(Sequence[ReadPassage]):
    """The passages of a scope in order of id, each read from the archive when it is first looked at.

    One that was pruned since has no text. Raises ArchiveError.
    """

    def __init__(self) -> None:
        self.ids = array("q")
        self.own: TenantArchive | None = None
        """Where to read them."""
        self._read: dict[int, ReadPassage] = {}
        self._pieces, self._parts = KeptPieces(1), KeptPieces(2)
        self._traits = Kept(len(TRAITS))
        self._told, self._common = Kept(TOLD, self.forget_told), Common()
        self._told_to = 0

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, row: int) -> ReadPassage: ...
    @overload
    def __getitem__(self, row: slice) -> list[ReadPassage]: ...
    def __getitem__(self, row: int | slice) -> ReadPassage | list[ReadPassage]:
        if isinstance(row, slice):
            return [self[i] for i in range(len(self))[row]]
        read = self._read.get(row)
        if read is None:
            self.read(range(len(self)) if len(self) <= SMALL else (range(len(self))[row],))
            read = self._read[range(len(self))[row]]
        return read

    def __iter__(self) -> Iterator[ReadPassage]:
        for first in range(0, len(self), STEP):
            rows = range(first, min(first + STEP, len(self)))
            self.read(rows)
            yield from [self._read[row] for row in rows]

    def of(self, rows: Sequence[int]) -> list[ReadPassage]:
        """Those at `rows`, in their order, all read at once."""
        with suppress(KeyError):
            return [*map(self._read.__getitem__, rows)]
        self.read(range(len(self)) if len(self) <= SMALL else rows)
        return [self._read[row] for row in rows]

    def forget(self, row: int) -> None:
        """Read this one anew when it is looked at again."""
        self._read.pop(row, None)
        for kept in (self._told, self._pieces, self._parts, self._traits):
            kept.forget(row)
        self._told_to = min(self._told_to, row)

    def told(self, rows: Ints) -> Told:
        """What questions ask of those at `rows`, in their order. Their texts do not stay."""
        numbers = self._told.of(rows, lambda missing: tell(self._passages(missing), self._common), most=MOST_TOLD)
        return Told(numbers, self._common)

    def pieces(self, rows: Ints, split: Split) -> Lists:
        """The word pieces of those at `rows`, as `split` makes them of a text. Costs 0.05 ms a passage of 650
        characters, and 200 bytes to keep."""

        def made(missing: list[int]) -> list[tuple[Pieces]]:
            return [(split(each.text),) for each in self._passages(missing)]

        return self._pieces.lists_of(rows, made, most=MOST_TOLD)[0]

    def parts(self, rows: Ints, split: Split) -> tuple[Lists, Lists]:
        """The same of the sentences of each that ask, and of those that tell; without the speaker's name. rows: of any
        shape, -1 where there is none"""

        def made(missing: list[int]) -> list[tuple[Pieces, Pieces]]:
            both = (asks_and_tells(each.text) for each in self._passages(missing))
            return [(split(asks), split(tells)) for asks, tells in both]

        asks, tells = self._parts.lists_of(rows, made, most=MOST_TOLD)
        return asks, tells

    def traits(self, rows: Ints) -> Floats:
        """(len(rows), len(TRAITS)) what kind of text each is; zeros for a row of -1."""

        def made(missing: list[int]) -> list[tuple[float, ...]]:
            texts = [each.text for each in self._passages(missing)]
            return [*map(traits, texts, count(texts))]

        return self._traits.of(rows, made, most=MOST_TOLD)

    def _passages(self, rows: Sequence[int]) -> list[Passage]:
        """Those at `rows`; of texts in memory as they are there."""
        unread = [self.ids[row] for row in rows if row not in self._read]
        found = self.own.plain_passages(unread) if unread and self.own is not None else {}
        return [
            self._read[row].passage if row in self._read else found.get(self.ids[row]) or _gone(self.ids[row])
            for row in rows
        ]

    @property
    def untold(self) -> range:
        """The rows of the newest half of MOST_TOLD that `tell_ahead` has not come to."""
        return range(max(self._told_to, len(self) - MOST_TOLD // 2), len(self))

    def tell_ahead(self, most: int, split: Split | None = None) -> None:
        """Of the next few, what questions may ask of them; with `split` their word pieces, too."""
        ahead = self.untold[:most]
        rows = np.arange(ahead.start, ahead.stop)
        self.told(rows)
        if split is not None:
            self.pieces(rows, split)
        self._told_to = max(self._told_to, ahead.stop)

    @property
    def told_count(self) -> int:
        """Of how many it is in memory what is told of them."""
        return len(self._told)

    def forget_told(self) -> None:
        """Tell it anew of all of them."""
        for kept in (self._told, self._pieces, self._parts, self._traits):
            kept.clear()
        self._common, self._told_to = Common(), 0

    def read(self, rows: Iterable[int]) -> None:
        """Read all of `rows` at once: a tenth of what they cost one by one."""
        wanted = list(rows)
        missing = [row for row in wanted if row not in self._read]
        if not missing or self.own is None:
            return
        if len(self._read) + len(missing) > MOST_READ:
            self._make_room(set(wanted), len(missing))
        found = self.own.plain_passages([self.ids[row] for row in missing])
        for row in missing:
            passage = found.get(self.ids[row])
            self._read[row] = ReadPassage(_gone(self.ids[row]) if passage is None else passage)

    @property
    def read_count(self) -> int:
        """How many are in memory."""
        return len(self._read)

    def let_go(self) -> None:
        """Read all of them anew when they are looked at again. What is told of them stays."""
        self._read = {}

    def _make_room(self, wanted: set[int], more: int) -> None:
        """Let go of those read first, a quarter beyond what is needed, but for `wanted`."""
        keep = max(0, MOST_READ * 3 // 4 - more)
        others = [row for row in self._read if row not in wanted]
        for row in others[: max(0, len(others) - keep)]:
            del self._read[row]


def _gone(passage_id: int) -> Passage:
    return Passage(id=passage_id, session="", message="", position=0, part=0, turn=0, speaker="", text="")
