"""The passages of a scope, read from the archive when they are looked at, with what is computed of each once."""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np

from lantern_proxy.analyze import sequence, terms, terms_of_parts
from lantern_proxy.archive import TenantArchive
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore.kept import Kept
from lantern_proxy.restore.lines import Line, flat, lines
from lantern_proxy.signals import speaker_name
from lantern_proxy.signals.alike import Pieces
from lantern_proxy.signals.dates import Span, spans
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
"""Passages of a scope of which it stays in memory what is told of them, 600 to 900 bytes each."""


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


@dataclass(frozen=True, slots=True)
class Told:
    """What a question asks of one passage, in about 600 bytes: it stays when the texts are let go of."""

    speaker: str
    created_at: float
    name: str
    """The name that its text begins with, as an index term; or ""."""
    numbers: bytes
    """Those of its Form, each as a float64: those of many passages are joined in one step."""
    days: tuple[Span, ...]
    """The days that its text names."""
    tags: str
    """Index terms of its tags and tool names, one a line."""


def tell(passages: Sequence[Passage]) -> list[Told]:
    """Costs 0.06 ms a passage of 650 characters: keep it."""
    tagged = terms_of_parts([" ".join((*p.tags, *p.tools)) for p in passages])
    counted = count([p.text for p in passages])
    return [
        Told(
            sys.intern(p.speaker),
            p.created_at,
            sys.intern(speaker_name(p.text)),
            array("d", form_of(p.text, p.speaker, counts)).tobytes(),
            tuple(spans(p.text, p.created_at, counts)),
            "\n".join(dict.fromkeys(of_tags)),
        )
        for p, of_tags, counts in zip(passages, tagged, counted, strict=True)
    ]


def forms(told: Sequence[Told]) -> Floats:
    """(n, 6) the numbers of each one's Form."""
    return np.frombuffer(b"".join([each.numbers for each in told])).reshape(-1, len(Form._fields))


class Passages(Sequence[ReadPassage]):
    """The passages of a scope in order of id, each read from the archive when it is first looked at.

    One that was pruned since has no text. Raises ArchiveError.
    """

    def __init__(self) -> None:
        self.ids = array("q")
        self.own: TenantArchive | None = None
        """Where to read them."""
        self._read: dict[int, ReadPassage] = {}
        self._told: dict[int, Told] = {}
        self._told_to = 0
        self._pieces: dict[int, Pieces] = {}
        self._parts: dict[int, tuple[Pieces, Pieces]] = {}
        self._traits = Kept(len(TRAITS))

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
        self._told.pop(row, None)
        self._pieces.pop(row, None)
        self._parts.pop(row, None)
        self._traits.forget(row)
        self._told_to = min(self._told_to, row)

    def told(self, rows: Sequence[int]) -> list[Told]:
        """What questions ask of those at `rows`, in their order. Their texts do not stay."""
        return self._kept(self._told, rows, tell, self.forget_told)

    def pieces(self, rows: Sequence[int], split: Split) -> list[Pieces]:
        """The word pieces of those at `rows`, in their order, as `split` makes them of a text. Costs 0.05 ms a passage
        of 650 characters, and 300 bytes to keep."""
        return self._kept(self._pieces, rows, lambda found: [split(each.text) for each in found], self._pieces.clear)

    def parts(self, rows: Sequence[int], split: Split) -> list[tuple[Pieces, Pieces]]:
        """The same of the sentences of each that ask, and of those that tell; without the speaker's name."""

        def made(found: list[Passage]) -> list[tuple[Pieces, Pieces]]:
            both = (asks_and_tells(each.text) for each in found)
            return [(split(asks), split(tells)) for asks, tells in both]

        return self._kept(self._parts, rows, made, self._parts.clear)

    def traits(self, rows: Ints) -> Floats:
        """(len(rows), len(TRAITS)) what kind of text each is; zeros for a row of -1."""

        def made(missing: list[int]) -> list[tuple[float, ...]]:
            texts = [each.text for each in self._passages(missing)]
            return [*map(traits, texts, count(texts))]

        return self._traits.of(rows, made, most=MOST_TOLD)

    def _kept(
        self, kept: dict[int, T], rows: Sequence[int], make: Callable[[list[Passage]], list[T]],
        clear: Callable[[], None],
    ) -> list[T]:  # fmt: skip
        """What is kept of those at `rows`, in their order; what is not is made, after `clear` if there is no room."""
        with suppress(KeyError):
            return [*map(kept.__getitem__, rows)]
        missing = [row for row in rows if row not in kept]
        if len(kept) + len(missing) > MOST_TOLD:
            clear()
            missing = list(rows)
        kept.update(zip(missing, make(self._passages(missing)), strict=True))
        return [kept[row] for row in rows]

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
        rows = self.untold[:most]
        self.told(rows)
        if split is not None:
            self.pieces(rows, split)
        self._told_to = max(self._told_to, rows.stop)

    @property
    def told_count(self) -> int:
        """Of how many it is in memory what is told of them."""
        return len(self._told)

    def forget_told(self) -> None:
        """Tell it anew of all of them."""
        self._told.clear()
        self._pieces.clear()
        self._parts.clear()
        self._traits.clear()
        self._told_to = 0

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
