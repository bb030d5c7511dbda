"""What goes into a loss block along with a chosen part, though it says too little to be chosen by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lantern_proxy.restore.beside import Beside
from lantern_proxy.restore.candidates import text_of
from lantern_proxy.restore.cover import Chosen, Cost, Room
from lantern_proxy.restore.lines import stands_under
from lantern_proxy.restore.parts import Candidate, Part, unweighed


@dataclass(frozen=True, slots=True)
class Companions:
    """What came later of the parts that were chosen, what short messages belong to, and the heads that say what a line
    is about."""

    candidates: list[Candidate]
    """All of the block; grows by those that only go in with others."""
    beside: Beside
    at: dict[int, int]
    """Row of the scope -> index in `candidates`."""
    later: Mapping[tuple[int, int], int]
    """(candidate, line) -> row of what a user said later, which replaces a part of that line."""
    rows_of: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    """(candidate, *lines) of a part -> rows of what came of it. Kept, since parts are looked at again and again."""
    above_of: dict[int, list[list[int]]] = field(default_factory=dict)
    """Candidate -> for each of its lines the lines above that say what it is about. Kept likewise."""

    def add_to(self, chosen: Sequence[Chosen], cost: Cost, room: int) -> list[Chosen]:
        """`chosen`, and what goes in with it. Where that is too much for `room` characters, those of `chosen` go that
        add least for their size."""
        kept = [*chosen]
        while True:
            came = [row for each in kept for row in self._came_of(each.part) if row in self.at]
            news = self._going_with(kept, came)
            over = -Room(room, cost, [*news, *kept]).chars
            if over <= 0 or not kept:
                return [*news, *kept]
            needed = {self.at[row] for row in came}
            kept.sort(key=lambda each: (each.part.candidate not in needed, -each.gain / cost(each.part, frozenset())))
            while kept and over > 0:
                over -= cost(kept.pop().part, frozenset())

    def _going_with(self, kept: Sequence[Chosen], came: Sequence[int]) -> list[Chosen]:
        """What goes in with `kept` and with what came of it, at the rows `came`; these among it."""
        told = {(each.part.candidate, i) for each in kept for i in each.part.lines}
        short = dict.fromkeys([*came, *(self.candidates[c].row for c, _ in sorted(told))])
        more = [self._part(row, None, told) for row in came]
        shown = [each for row in short if not self.beside.ask.late() for each in self.beside.shown(row)]
        self._open([row for row, _ in shown])
        more += [self._part(row, lines, told) for row, lines in shown]
        more += [self._part(self.candidates[c].row, self._above(c, i), told, held=True) for c, i in sorted(told)]
        return [Chosen(part, 0.0) for part in more if part]

    def _came_of(self, part: Part) -> list[int]:
        """Rows of what came later of what a part says."""
        known = part.candidate, *part.lines
        if known not in self.rows_of:
            seen = part.speaker == "user" and not self.beside.ask.late()
            candidate = self.candidates[part.candidate]
            row, text = candidate.row, text_of(candidate, part.lines)
            came = self.beside.came_of(row, text) if seen else []
            later = [self.later[part.candidate, i] for i in part.lines if (part.candidate, i) in self.later]
            self.rows_of[known] = [*dict.fromkeys([*later, *came])]
        return self.rows_of[known]

    def _above(self, c: int, i: int) -> list[int]:
        """Line `i` of candidate `c` -> the lines that are its heads, and the header of its table."""
        if c not in self.above_of:
            candidate = self.candidates[c]
            self.above_of[c] = stands_under(candidate.passage, candidate.lines)
        return self.above_of[c][i]

    def _open(self, rows: Sequence[int]) -> None:
        """Make candidates of the passages at `rows` that are none yet, and that the request lacks, at least in part."""
        unknown = [row for row in dict.fromkeys(rows) if row not in self.at]
        for candidate in self.beside.lost_of(unknown) if unknown else ():
            self.at[candidate.row] = len(self.candidates)
            self.candidates.append(candidate)

    def _part(
        self, row: int, lines: Sequence[int] | None, told: set[tuple[int, int]], *, held: bool = False
    ) -> Part | None:
        """A part of those `lines` (None: all) of the passage at `row` that are not in `told` yet; None when there are
        none.

        told: (candidate, line) of all that is in the block; grows by this part
        held: take lines that the request holds, too
        """
        if row not in self.at:
            return None
        c = self.at[row]
        lost, passage = self.candidates[c].lost, self.candidates[c].passage
        some = sorted(lines or ()) if held else [i for i in lost if lines is None or i in lines]
        rest = tuple(i for i in some if (c, i) not in told)
        told.update((c, i) for i in rest)
        return unweighed(c, rest, passage) if rest else None
