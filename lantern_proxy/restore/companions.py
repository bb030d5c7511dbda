"""Adds to a loss block what its parts need, though it has too little content to be selected by itself."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from lantern_proxy.restore.candidates import text_of
from lantern_proxy.restore.cover import Chosen, Cost, Room
from lantern_proxy.restore.headings import needed_headings
from lantern_proxy.restore.parts import Candidate, Part, unscored_part
from lantern_proxy.restore.supplements import Supplements


class Companions(Struct, frozen=True):
    """Adds later updates of the selected parts, the context of short messages, and the headings of lines."""

    candidates: list[Candidate]
    """All of the block; grows by those that are only added as companions."""
    supplements: Supplements
    at: dict[int, int]
    """Row in the scope -> index in `candidates`."""
    later: Mapping[tuple[int, int], int]
    """(candidate, line) -> row of a later user statement that replaces a part of that line."""
    update_rows: dict[tuple[int, ...], list[int]] = {}
    """(candidate, *lines) of a part -> rows of its updates. Cached, since parts are visited repeatedly."""
    headings_of: dict[int, list[list[int]]] = {}
    """Candidate -> for each of its lines the headings above it. Cached as well."""

    def add_to(self, chosen: Sequence[Chosen], cost: Cost, room: int) -> list[Chosen]:
        """`chosen` with its companions. If they do not fit into `room` characters, those of `chosen` are removed that
        add least for their size."""
        kept = [*chosen]
        while True:
            updates = [row for each in kept for row in self._updates_of(each.part) if row in self.at]
            companions = self._going_with(kept, updates)
            over = -Room(room, cost, [*companions, *kept]).chars
            if over <= 0 or not kept:
                return [*companions, *kept]
            needed = {self.at[row] for row in updates}
            kept.sort(key=lambda each: (each.part.candidate not in needed, -each.gain / cost(each.part, frozenset())))
            while kept and over > 0:
                over -= cost(kept.pop().part, frozenset())

    def _going_with(self, kept: Sequence[Chosen], updates: Sequence[int]) -> list[Chosen]:
        """The companions of `kept` and of its updates at the rows `updates`, these included."""
        in_block = {(each.part.candidate, i) for each in kept for i in each.part.lines}
        short = dict.fromkeys([*updates, *(self.candidates[c].row for c, _ in sorted(in_block))])
        more = [self._part(row, None, in_block) for row in updates]
        shown = [each for row in short if not self.supplements.ask.late() for each in self.supplements.context_of(row)]
        self._add_candidates([row for row, _ in shown])
        more += [self._part(row, lines, in_block) for row, lines in shown]
        more += [
            self._part(self.candidates[c].row, self._headings_above(c, i), in_block, held=True)
            for c, i in sorted(in_block)
        ]
        return [Chosen(part, 0.0) for part in more if part]

    def _updates_of(self, part: Part) -> list[int]:
        """Rows of later messages that update what a part states."""
        known = part.candidate, *part.lines
        if known not in self.update_rows:
            seen = part.speaker == "user" and not self.supplements.ask.late()
            candidate = self.candidates[part.candidate]
            row, text = candidate.row, text_of(candidate, part.lines)
            updates = self.supplements.updates_of(row, text) if seen else []
            later = [self.later[part.candidate, i] for i in part.lines if (part.candidate, i) in self.later]
            self.update_rows[known] = [*dict.fromkeys([*later, *updates])]
        return self.update_rows[known]

    def _headings_above(self, c: int, i: int) -> list[int]:
        """The headings of line `i` of candidate `c`, and its table's header."""
        if c not in self.headings_of:
            candidate = self.candidates[c]
            self.headings_of[c] = needed_headings(candidate.passage, candidate.lines)
        return self.headings_of[c][i]

    def _add_candidates(self, rows: Sequence[int]) -> None:
        """Add the passages at `rows` to the candidates if they are new and the request lacks some of them."""
        unknown = [row for row in dict.fromkeys(rows) if row not in self.at]
        for candidate in self.supplements.lost_candidates(unknown) if unknown else ():
            self.at[candidate.row] = len(self.candidates)
            self.candidates.append(candidate)

    def _part(
        self, row: int, lines: Sequence[int] | None, in_block: set[tuple[int, int]], *, held: bool = False
    ) -> Part | None:
        """A part of those `lines` (None: all) of the passage at `row` that are not in the block yet; None if there are
        none.

        in_block: (candidate, line) of everything in the block; this part is added to it
        held: include lines that the request has
        """
        if row not in self.at:
            return None
        c = self.at[row]
        lost, passage = self.candidates[c].lost, self.candidates[c].passage
        some = sorted(lines or ()) if held else [i for i in lost if lines is None or i in lines]
        rest = tuple(i for i in some if (c, i) not in in_block)
        in_block.update((c, i) for i in rest)
        return unscored_part(c, rest, passage) if rest else None
