"""The passages of a scope, read from the archive on demand, and cached values computed from them."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import overload

import numpy as np
from msgspec import Struct

from lantern_proxy.analyze import sequence, terms
from lantern_proxy.archive import TenantArchive
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore.facets import FACETS, Common, Facets, facets_of
from lantern_proxy.restore.lines import Line, flattened, lines
from lantern_proxy.restore.row_cache import PieceCache, RowCache
from lantern_proxy.restore.superseded import stating
from lantern_proxy.signals.form import TEXT_FEATURES, questions_and_statements, text_features
from lantern_proxy.signals.word_similarity import PieceLists, Pieces
from lantern_proxy.signals.words import count
from lantern_proxy.turn import Passage

Split = Callable[[str], Pieces]
"""Splits a text into its word pieces."""

STEP = 500
"""Passages read from the archive between two checks of the deadline: about 5 ms."""
SMALL = 2_000
"""A scope of at most this many passages is read completely when one is needed."""
MOST_READ = 10_000
"""Most passages of a scope that stay in memory with what was computed from them, 4 KB each: the latest read."""
MOST_PREPARED = 20_000
"""Most passages of a scope whose `Facets`, word pieces and traits stay in memory, 600 to 1,200 bytes each."""


class ReadPassage(Struct):
    """A passage in a scope, with values that are computed on first access."""

    passage: Passage
    """Its `terms` are empty: the index holds them."""
    _flat: str | None = None
    _lines: tuple[Line, ...] | None = None
    _stating: tuple[int, ...] | None = None
    _words: frozenset[str] | None = None
    _tag_terms: frozenset[str] | None = None
    _sequence: str | None = None

    @property
    def flat(self) -> str:
        """The text with white space collapsed."""
        if self._flat is None:
            self._flat = flattened(self.passage.text)
        return self._flat

    @property
    def lines(self) -> tuple[Line, ...]:
        if self._lines is None:
            self._lines = lines(self.passage)
        return self._lines

    @property
    def stating(self) -> tuple[int, ...]:
        """Lines that state something that a later statement may replace."""
        if self._stating is None:
            self._stating = stating(self.passage, self.lines)
        return self._stating

    @property
    def words(self) -> frozenset[str]:
        """The index terms of the text."""
        if self._words is None:
            self._words = frozenset(terms(self.passage.text))
        return self._words

    @property
    def tag_terms(self) -> frozenset[str]:
        """Index terms of the tags and tool names."""
        if self._tag_terms is None:
            self._tag_terms = frozenset(terms(" ".join((*self.passage.tags, *self.passage.tools))))
        return self._tag_terms

    @property
    def sequence(self) -> str:
        """The index terms of the text in order, with a line break before and after each."""
        if self._sequence is None:
            self._sequence = sequence(self.passage.text)
        return self._sequence


class Passages(Sequence[ReadPassage]):
    """The passages of a scope by id, each read from the archive on first access.

    One that was pruned meanwhile has no text. Raises ArchiveError.
    """

    def __init__(self) -> None:
        self.ids = array("q")
        self.own: TenantArchive | None = None
        """Where the passages are read; None before the scope is first updated from the archive."""
        self._read: dict[int, ReadPassage] = {}
        self._pieces, self._parts = PieceCache(1), PieceCache(2)
        self._traits = RowCache(len(TEXT_FEATURES))
        self._facets, self._common = RowCache(FACETS, self.forget_prepared), Common()
        self._prepared_to = 0

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
            row = range(len(self))[row]
            self.read((row,))
            read = self._read[row]
        return read

    def __iter__(self) -> Iterator[ReadPassage]:
        for first in range(0, len(self), STEP):
            rows = range(first, min(first + STEP, len(self)))
            self.read(rows)
            yield from [self._read[row] for row in rows]

    def of(self, rows: Sequence[int]) -> list[ReadPassage]:
        """The passages at `rows`, in that order, all read at once."""
        with suppress(KeyError):
            return [*map(self._read.__getitem__, rows)]
        self.read(rows)
        return [self._read[row] for row in rows]

    def forget(self, row: int) -> None:
        """Drop everything cached for the passage at `row`, which was corrected; it is read again when needed."""
        self._read.pop(row, None)
        for cache in (self._facets, self._pieces, self._parts, self._traits):
            cache.forget(row)
        self._prepared_to = min(self._prepared_to, row)

    def facets(self, rows: Ints) -> Facets:
        """The facets of the passages at `rows`, in that order. Texts that are read for this are not kept."""

        def made(missing: list[int]) -> list[tuple[float, ...]]:
            return facets_of(self._passages(missing), self._common)

        return Facets(self._facets.of(rows, made, most=MOST_PREPARED), self._common)

    def pieces(self, rows: Ints, split: Split) -> PieceLists:
        """The word pieces of the passages at `rows`, as made by `split`. Costs 0.05 ms for 650 characters, and 200
        bytes to keep."""

        def made(missing: list[int]) -> list[tuple[Pieces]]:
            return [(split(each.text),) for each in self._passages(missing)]

        return self._pieces.lists_of(rows, made, most=MOST_PREPARED)[0]

    def parts(self, rows: Ints, split: Split) -> tuple[PieceLists, PieceLists]:
        """The word pieces of each passage's questions, and of its statements, without the speaker's name.

        rows: of any shape, -1 for no passage
        """

        def made(missing: list[int]) -> list[tuple[Pieces, Pieces]]:
            both = (questions_and_statements(each.text) for each in self._passages(missing))
            return [(split(asks), split(tells)) for asks, tells in both]

        asks, tells = self._parts.lists_of(rows, made, most=MOST_PREPARED)
        return asks, tells

    def traits(self, rows: Ints) -> Floats:
        """(len(rows), len(TEXT_FEATURES)) what kind of text each passage is; zeros for a row of -1."""

        def made(missing: list[int]) -> list[tuple[float, ...]]:
            texts = [each.text for each in self._passages(missing)]
            return [*map(text_features, texts, count(texts))]

        return self._traits.of(rows, made, most=MOST_PREPARED)

    def _passages(self, rows: Sequence[int]) -> list[Passage]:
        """The passages at `rows`, from memory if they were read before; others are read and not kept."""
        unread = [self.ids[row] for row in rows if row not in self._read]
        found = self.own.plain_passages(unread) if unread and self.own is not None else {}
        return [
            self._read[row].passage if row in self._read else found.get(self.ids[row]) or _gone(self.ids[row])
            for row in rows
        ]

    @property
    def unprepared(self) -> range:
        """The rows still to be processed by prepare_ahead(): of the newest passages, half as many as MOST_PREPARED."""
        return range(max(self._prepared_to, len(self) - MOST_PREPARED // 2), len(self))

    def prepare_ahead(self, most: int, make: "Precompute") -> None:
        """Compute what questions need for the next `most` of the `unprepared`, before one asks for it."""
        ahead = self.unprepared[:most]
        make(self, np.arange(ahead.start, ahead.stop))
        self._prepared_to = max(self._prepared_to, ahead.stop)

    @property
    def facets_count(self) -> int:
        """How many passages have their facets in memory."""
        return len(self._facets)

    def forget_prepared(self) -> None:
        """Release facets, word pieces and traits; they are computed again when needed."""
        for cache in (self._facets, self._pieces, self._parts, self._traits):
            cache.clear()
        self._common, self._prepared_to = Common(), 0

    def read(self, rows: Iterable[int]) -> None:
        """Read all `rows` at once: a tenth of the cost of reading one by one. A small scope is read completely if one
        of these is missing."""
        wanted = list(rows)
        missing = [row for row in wanted if row not in self._read]
        if not missing or self.own is None:
            return
        if len(self) <= SMALL:
            wanted = [*range(len(self))]
            missing = [row for row in wanted if row not in self._read]
        if len(self._read) + len(missing) > MOST_READ:
            self._make_room(set(wanted), len(missing))
        found = self.own.plain_passages([self.ids[row] for row in missing])
        for row in missing:
            passage = found.get(self.ids[row])
            self._read[row] = ReadPassage(_gone(self.ids[row]) if passage is None else passage)

    @property
    def read_count(self) -> int:
        """How many passages are in memory."""
        return len(self._read)

    def let_go(self) -> None:
        """Release all texts; they are read again when needed. Facets, word pieces and traits stay."""
        self._read = {}

    def _make_room(self, wanted: set[int], more: int) -> None:
        """Release the passages read first, until a quarter of MOST_READ is free beyond the `more` to come. Those at the
        rows `wanted` stay."""
        keep = max(0, MOST_READ * 3 // 4 - more)
        others = [row for row in self._read if row not in wanted]
        for row in others[: max(0, len(others) - keep)]:
            del self._read[row]


Precompute = Callable[[Passages, Ints], None]
"""Computes what stays in memory for questions of the passages at some rows: facets, and other features."""


def _gone(passage_id: int) -> Passage:
    return Passage(id=passage_id, session="", message="", position=0, part=0, turn=0, speaker="", text="")
