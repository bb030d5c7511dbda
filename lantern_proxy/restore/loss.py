"""What the loss block takes: no question is known, so cover what was lost, most specific terms per character."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from lantern_proxy import pack
from lantern_proxy.analyze import ends_asking, terms
from lantern_proxy.history.summaries import SUMMED_UP
from lantern_proxy.rank import overlap
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.beside import Beside
from lantern_proxy.restore.block import Picked
from lantern_proxy.restore.candidates import Source, candidate_of, choice_of, looked_at, newest
from lantern_proxy.restore.context import Contexts
from lantern_proxy.restore.cover import (
    GROUP_CHARS,
    LEAST_CHARS,
    UNASKED,
    Candidate,
    Chosen,
    Cost,
    Part,
    among_people,
    completed,
    cover,
    is_agents,
    parts,
    unweighed,
)
from lantern_proxy.restore.lines import Line, beside_rows, flat, is_filler, stands_under
from lantern_proxy.restore.offers import PINNED, around
from lantern_proxy.restore.passed_over import note_cover
from lantern_proxy.restore.present import Present, never
from lantern_proxy.restore.salience import SAYS, content
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.weak import echoes
from lantern_proxy.turn import CLIENT

POOL_TIMES = 8
"""How much text a loss block reads sentence by sentence, as a multiple of the budget."""
GATHER_SHARE = 0.6
"""Share of the time that is left which one step of reading passages may take; the rest is for choosing from them."""
BATCH = 128
"""Passages read at once for a loss block."""
LINES_POWER = 0.3
"""Added to `restore.length_power`, since single sentences are packed here: they are short, and it is room that
counts."""
LEAST_SUMMARY = 60
"""A text of fewer characters that stands in a summary is a phrase, and no answer that became the summary."""
ANSWERS = 1.0
"""Least salience of a short message ("teal") that goes in with what it belongs to ("Which colour?")."""
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)+|\d\d+")
SHARES = {"tool": 0.15, CLIENT: 0.1}
"""Speaker -> share of a loss block that what it says may take at most. Results of tools, and what clients write around
their users' words, are full of specific terms that nobody asks for."""


def pick_lost(source: Source, scope: Scope, present: Present, room: int, ask: Ask) -> Picked:
    """What of the lost passages fills `room` characters best: of each the sentences that were chosen.

    Past the deadline: the same of what was read by then. Hold the lock of `scope`.
    """
    candidates, chosen, n_looked_at = _chosen(source, scope, present, room, ask)
    taken: dict[int, list[Chosen]] = {}
    for each in chosen:
        taken.setdefault(each.part.candidate, []).append(each)
    choices = [choice_of(candidates, [each.part for each in some]) for some in taken.values()]
    totals = {candidates[c].passage.id: sum(each.gain for each in some) for c, some in taken.items()}
    signals = {id_: {"salience": total} for id_, total in totals.items()}
    return Picked("loss", choices, totals, signals, considered=n_looked_at)


def _chosen(
    source: Source, scope: Scope, present: Present, room: int, ask: Ask
) -> tuple[list[Candidate], list[Chosen], int]:
    """Candidates, what of them goes into the block, and how many passages were looked at."""
    soon = _hurried(ask)
    rows, n_looked_at = _pool(source, scope, present, soon)
    contexts = Contexts(scope)
    found = _in_context(_candidates(source, scope, rows, present, soon), contexts, soon)
    candidates, later = newest(found, _hurried(ask))
    cost = _cost_of(candidates, ask.session)
    chosen = _cover(source, scope, candidates, present, cost, room, ask)
    if not among_people([candidate.passage for candidate in candidates]):
        soon = _hurried(ask)
        beside = Beside(source, scope, present, {}, soon, contexts)
        later_rows = {at: candidates[c].row for at, c in later.items() if candidates[c].lost}
        at = {candidate.row: c for c, candidate in enumerate(candidates)}
        chosen = _Companions(candidates, beside, at, later_rows).add_to(chosen, cost, room)
    return candidates, _filled(candidates, chosen, cost, room, present, scope, ask), n_looked_at


def _pool(source: Source, scope: Scope, present: Present, ask: Ask) -> tuple[list[int], int]:
    """Rows of passages that the request lacks, at least in part, and how many rows were looked at for them.

    Pinned passages come first, then the richest, until their text is POOL_TIMES the budget.
    """
    kept: list[int] = []
    left, n_looked_at = POOL_TIMES * ask.budget_chars, 0
    for rows in _batches(scope, source.archive.of(ask.tenant).pinned(ask.session), ask.deadline):
        scope.passages.read(rows)
        for row, read, reason in looked_at(scope, rows, present, ask):
            n_looked_at += 1
            if reason:
                ask.passed.add(read.passage, reason)
                continue
            left -= len(read.passage.text)
            if left < 0:
                return kept, n_looked_at
            kept.append(row)
        if ask.late():
            break
    return kept, n_looked_at


def _candidates(source: Source, scope: Scope, rows: Sequence[int], present: Present, ask: Ask) -> list[Candidate]:
    """The passages at `rows` as candidates, in that order, as many as there is time to read."""
    found: list[Candidate] = []
    scope.passages.read(sorted({max(0, row - by) for row in rows for by in (0, 1)}))
    summary = flat(ask.summary)
    for n, row in enumerate(rows):
        if n and ask.late():
            break
        if summary and _is_summary_prompt(summary, scope, row):
            continue
        candidate = _without_rows_of_before(scope, candidate_of(row, scope.passages[row], present, ask))
        if candidate.lost:
            found.append(replace(candidate, around=around(scope, row)))
    return source.alive(ask, found)


def _is_summary_prompt(summary: str, scope: Scope, row: int) -> bool:
    """Is the passage the prompt with which a client asked for `summary`, though it stands there as a user's message?
    Such a prompt speaks of a summary and tells no figure, and its answer is most of the summary.

    An answer that is only quoted in the summary proves nothing: what stands before it was said by the user.
    """
    told, answered = scope.passages[row].passage, 0
    if told.speaker != "user" or not SUMMED_UP.search(told.text) or _NUMBER.search(told.text):
        return False
    for at in range(row + 1, len(scope)):
        piece = scope.passages[at]
        answer = piece.passage
        if (answer.session, answer.speaker) != (told.session, "assistant") or piece.flat not in summary:
            break
        answered += len(piece.flat)
    return answered >= max(LEAST_SUMMARY, len(summary) // 2)


def _without_rows_of_before(scope: Scope, candidate: Candidate) -> Candidate:
    """`candidate` without rows of a tool's result that began in the passage before: alone this passage does not show
    that they are rows."""
    passage = candidate.passage
    said = [i for i in candidate.lost if candidate.lines[i].sort != "printed"]
    before = scope.passages[candidate.row - 1].passage if candidate.row else passage
    if not said or passage.speaker != "tool" or not passage.part or before.message != passage.message:
        return candidate
    is_row = beside_rows(passage, candidate.lines, before.text)
    return replace(candidate, lost=tuple(i for i in candidate.lost if not is_row[i]))


def _cover(
    source: Source, scope: Scope, candidates: Sequence[Candidate], present: Present, cost: Cost, room: int, ask: Ask
) -> list[Chosen]:
    near = frozenset(terms(ask.summary))
    prior = [
        (0.75 + 0.5 * c.passage.confidence)
        * (PINNED if c.passage.pinned else 1.0)
        * (1 + 0.1 * overlap(near, frozenset().union(*(line.words for line in c.lines))))
        for c in candidates
    ]
    soon = _hurried(ask)
    offered, chosen = list[Part](), list[Chosen]()
    # where nothing fits whole, what says most of it; where nothing else was lost, what was printed is all there is
    for unasked, whole in ((UNASKED, True), (UNASKED, False), (UNASKED - {"printed"}, True)):
        offered = parts(candidates, present, scope.idf, prior, soon.late, unasked=unasked, whole=whole)
        chosen = cover(
            offered,
            cost,
            room,
            power=min(1.0, source.restore.length_power + LINES_POWER),
            shares={speaker: int(share * room) for speaker, share in SHARES.items()},
            late=ask.late,
        )
        if chosen:
            break
    note_cover(ask.passed, candidates, offered, chosen)
    return completed(chosen, candidates, cost, room)


def _in_context(candidates: Sequence[Candidate], contexts: Contexts, ask: Ask) -> list[Candidate]:
    """`candidates`; those that are short messages of a user count together with what they belong to, with which "teal"
    says something. Where people talk to each other they stay as they are: what was said before stands above them."""
    if among_people([candidate.passage for candidate in candidates]):
        return [*candidates]
    contexts.read_around([candidate.row for candidate in candidates])
    found = []
    for candidate in candidates:
        context = None if ask.late() else contexts.of(candidate.row)
        if context and context.shown:
            lines = [
                replace(e, salience=max(e.salience, ANSWERS)) if e.words or e.digits else e for e in candidate.lines
            ]
            candidate = replace(candidate, lines=tuple(lines), within=context.words)
        found.append(candidate)
    return found


@dataclass(frozen=True, slots=True)
class _Companions:
    """What goes into the block with the parts that were chosen, though it says too little to be chosen by itself: what
    came of them later, what short messages belong to, and the heads that say what a line is about."""

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
            over = _chars([*news, *kept], cost) - room
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
            row, text = self.candidates[part.candidate].row, choice_of(self.candidates, [part]).text
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


def _filled(
    candidates: Sequence[Candidate], chosen: Sequence[Chosen], cost: Cost, room: int, present: Present, scope: Scope,
    ask: Ask,
) -> list[Chosen]:  # fmt: skip
    """`chosen`, and what fills the room that is left, the newest first:

    1. what else users said,
    2. sentences of answers with a number that stands nowhere else; of a short answer all of them,
    3. short answers that do not only repeat a message of a block.

    Nobody misses what greets, agrees or only asks.
    """
    told = {(each.part.candidate, i) for each in chosen for i in each.part.lines}
    lost = [c.lines[i] for c in candidates for i in c.lost]
    held = present.specific_terms({term for line in lost for term in (*line.keys, *_numbers(line))})
    known = {number for c, i in told for number in _numbers(candidates[c].lines[i])}
    known.update(number for term in held for number in _NUMBER.findall(term))
    filling = _Filling(candidates, cost, scope, [*chosen], told, known, scope.rows(sorted(ask.shown)), room)
    filling.put("user")
    if not is_agents([candidate.passage for candidate in candidates]):
        filling.put("assistant", filling.has_number, ask.late)
        filling.put("assistant", filling.says_more, ask.late)
    return filling.chosen


class _Filling:
    """Fills the room that is left in a block beside what was chosen."""

    def __init__(
        self, candidates: Sequence[Candidate], cost: Cost, scope: Scope, chosen: list[Chosen],
        told: set[tuple[int, int]], known: set[str], in_blocks: Sequence[int], room: int,
    ) -> None:  # fmt: skip
        """told:      (candidate, line) of all that was chosen
        known:     numbers that stand in what was chosen, or in the request
        in_blocks: rows of passages that other blocks of the request show
        room:      characters of the whole block, `chosen` included
        """
        self._candidates, self._cost, self._scope, self.chosen = candidates, cost, scope, chosen
        self._told, self._known, self._in_blocks = told, known, in_blocks
        self._begun = {each.part.candidate for each in chosen}
        self._newest = sorted(range(len(candidates)), key=lambda c: -candidates[c].passage.position)
        self._opened = set[str]()
        self._room = room
        for each in chosen:
            self._room -= cost(each.part, self._opened)
            self._opened |= each.part.opens

    def put(
        self, speaker: str, is_new: Callable[[int, Sequence[int]], bool] | None = None, late: Callable[[], bool] = never
    ) -> None:
        """Put in what `speaker` said and somebody may miss, the newest first, while there is room.

        is_new: (candidate, lines) -> do these lines tell something new? Asked of short messages of which nothing is in
                the block yet: of one that has begun, the rest goes in. Of long messages only lines with new numbers do.
        """
        for c in self._newest:
            candidate = self._candidates[c]
            passage = candidate.passage
            if passage.speaker != speaker or passage.tools:
                continue
            if self._room < LEAST_CHARS or late():
                return
            left = (i for i in candidate.lost if (c, i) not in self._told)
            rest = [i for i in left if _is_missed(candidate.lines[i], speaker)]
            if is_new and len(passage.text) > GROUP_CHARS["user"]:
                rest = [i for i in rest if self.has_number(c, (i,))]
            elif is_new and c not in self._begun and not is_new(c, rest):
                continue
            self._put(unweighed(c, rest, passage))

    def _put(self, part: Part) -> None:
        if not part.lines or (chars := self._cost(part, self._opened)) > self._room:
            return
        self._room -= chars
        self._opened |= part.opens
        self.chosen.append(Chosen(part, 0.0))
        lines = self._candidates[part.candidate].lines
        self._known |= {number for i in part.lines for number in _numbers(lines[i])}
        self._told.update((part.candidate, i) for i in part.lines)

    def has_number(self, c: int, some: Sequence[int]) -> bool:
        """Does one of these lines have a number that stands nowhere else?"""
        return any(not _numbers(self._candidates[c].lines[i]) <= self._known for i in some)

    def says_more(self, c: int, some: Sequence[int]) -> bool:
        """Do these lines say something, and not again what a message of a block says?"""
        said = [self._candidates[c].lines[i] for i in some]
        rows = {self._candidates[each].row for each, _ in self._told}.union(self._in_blocks)
        shown = [self._scope.passages[row].words for row in rows]
        return len(content(said)[0]) >= SAYS and not all(echoes(line, shown, self._scope) for line in said)


def _numbers(line: Line) -> set[str]:
    """The numbers in a line's specific terms, only their figures: "55192" of "CS-55192", "88" of "88 mg", since another
    text may name them otherwise. A single figure says too little to count."""
    return {number for key in line.keys for number in _NUMBER.findall(key)}


def _is_missed(line: Line, speaker: str) -> bool:
    """Would somebody miss this line: does it say something, and not only greet, agree or ask?"""
    told = line.digits or bool(line.words) or speaker == "assistant"  # "No, you don't." at the head of an answer
    said = told and line.sort not in UNASKED and line.sort != "code"
    return said and not is_filler(line, speaker) and not ends_asking(line.flat)


def _chars(chosen: Sequence[Chosen], cost: Cost) -> int:
    """Characters that all of `chosen` take together."""
    opened, chars = set[str](), 0
    for each in chosen:
        chars += cost(each.part, opened)
        opened |= each.part.opens
    return chars


def _cost_of(candidates: Sequence[Candidate], session: str) -> Cost:
    """The cost of a part in the block of a session, see cover.Cost. Sizes that were computed once are kept."""
    heads: dict[tuple[int, bool], int] = {}
    sizes: dict[tuple[int, tuple[int, ...]], tuple[int, str, str]] = {}

    def cost(part: Part, opened: AbstractSet[str]) -> int:
        told = part.candidate, part.lines
        known = sizes.get(told)
        if known is None:
            passage = candidates[part.candidate].passage
            size = len(pack.escape(choice_of(candidates, [part]).text)) + 1
            known = sizes[told] = size, pack.entry_of(passage), pack.day(passage)
        size, entry, day = known
        if entry in opened:
            return size + len(pack.GAP)
        head = part.candidate, day in opened
        if head not in heads:
            heads[head] = len(pack.header(candidates[head[0]].passage, session, same_day=head[1]))
        return size + heads[head]

    return cost


def _hurried(ask: Ask) -> Ask:
    """The same ask with GATHER_SHARE of the time that is left: the rest is for choosing from what was gathered."""
    now = time.monotonic()
    return replace(ask, deadline=now + GATHER_SHARE * max(0.0, ask.deadline - now))


def _batches(scope: Scope, pinned: AbstractSet[int], deadline: float) -> Iterator[list[int]]:
    """All rows of the scope, those of pinned passages first, then the richest first, in batches that are read at
    once."""
    order = scope.richest(deadline)
    first = [row for id_ in pinned if (row := scope.row(id_)) is not None]
    if first:
        yield sorted(first)
    for at in range(0, len(order), BATCH):
        yield [row for row in order[at : at + BATCH].tolist() if row not in first]
