"""The passages of a scope, read from the archive when they are looked at, with what is computed of each once."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from lantern_proxy.analyze import sequence, terms
from lantern_proxy.archive import TenantArchive
from lantern_proxy.restore_lines import Line, flat, lines
from lantern_proxy.signals import speaker_name
from lantern_proxy.signals_dates import Span, spans
from lantern_proxy.signals_form import Form, form_of, traits
from lantern_proxy.turn import Passage

STEP = 500
"""Passages read from the archive between two looks at the clock: about 5 ms."""
SMALL = 2_000
"""Passages of a scope that are all read when one is looked at."""
MOST_READ = 10_000
"""Passages of a scope that stay in memory with what was computed of them, 4 KB each; of a large one those read last."""


@dataclass(slots=True)
class Entry:
    """A passage as a scope holds it, with what is computed once."""

    passage: Passage
    """Without its terms, which are in the index."""
    _flat: str | None = None
    _lines: tuple[Line, ...] | None = None
    _words: frozenset[str] | None = None
    _tag_terms: frozenset[str] | None = None
    _sequence: str | None = None
    _traits: bytes | None = None
    _name: str | None = None
    _form: Form | None = None
    _days: tuple[Span, ...] | None = None

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
    def speaker_name(self) -> str:
        """The name that its text begins with, as an index term; or ""."""
        if self._name is None:
            self._name = speaker_name(self.passage.text)
        return self._name

    @property
    def form(self) -> Form:
        if self._form is None:
            self._form = form_of(self.passage.text, self.passage.speaker)
        return self._form

    @property
    def sequence(self) -> str:
        """Its index terms in order, a line break around each."""
        if self._sequence is None:
            self._sequence = sequence(self.passage.text)
        return self._sequence

    @property
    def traits(self) -> bytes:
        """One float64 for each of signals_form.TRAITS, as bytes: those of many passages are joined in one step."""
        if self._traits is None:
            self._traits = array("d", traits(self.passage.text)).tobytes()
        return self._traits

    @property
    def days(self) -> tuple[Span, ...]:
        """The days that its text names."""
        if self._days is None:
            self._days = tuple(spans(self.passage.text, self.passage.created_at))
        return self._days

    @property
    def tag_terms(self) -> frozenset[str]:
        """Index terms of its tags and tool names."""
        if self._tag_terms is None:
            self._tag_terms = frozenset(terms(" ".join((*self.passage.tags, *self.passage.tools))))
        return self._tag_terms


class Entries(Sequence[Entry]):
    """The passages of a scope in order of id, each read from the archive when it is first looked at.

    One that was pruned since has no text. Raises ArchiveError.
    """

    def __init__(self) -> None:
        self.ids = array("q")
        self.own: TenantArchive | None = None
        """Where to read them."""
        self._read: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, row: int) -> Entry: ...
    @overload
    def __getitem__(self, row: slice) -> list[Entry]: ...
    def __getitem__(self, row: int | slice) -> Entry | list[Entry]:
        if isinstance(row, slice):
            return [self[i] for i in range(len(self))[row]]
        entry = self._read.get(row)
        if entry is None:
            self.read(range(len(self)) if len(self) <= SMALL else (range(len(self))[row],))
            entry = self._read[range(len(self))[row]]
        return entry

    def __iter__(self) -> Iterator[Entry]:
        for first in range(0, len(self), STEP):
            rows = range(first, min(first + STEP, len(self)))
            self.read(rows)
            yield from [self._read[row] for row in rows]

    def of(self, rows: Sequence[int]) -> list[Entry]:
        """Those at `rows`, in their order, all read at once."""
        self.read(rows)
        return [self._read[row] for row in rows]

    def forget(self, row: int) -> None:
        """Read this one anew when it is looked at again."""
        self._read.pop(row, None)

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
            self._read[row] = Entry(_gone(self.ids[row]) if passage is None else passage)

    @property
    def read_count(self) -> int:
        """How many are in memory."""
        return len(self._read)

    def let_go(self) -> None:
        """Read all of them anew when they are looked at again."""
        self._read = {}

    def _make_room(self, wanted: set[int], more: int) -> None:
        """Let go of those read first, a quarter beyond what is needed, but for `wanted`."""
        keep = max(0, MOST_READ * 3 // 4 - more)
        others = [row for row in self._read if row not in wanted]
        for row in others[: max(0, len(others) - keep)]:
            del self._read[row]


def _gone(passage_id: int) -> Passage:
    return Passage(id=passage_id, session="", message="", position=0, part=0, turn=0, speaker="", text="")
