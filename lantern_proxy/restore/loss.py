"""The loss block: no question is known, so cover what was lost, with most specific terms per character."""

import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from lantern_proxy import pack
from lantern_proxy.analyze import terms
from lantern_proxy.history.summaries import SUMMED_UP
from lantern_proxy.rank import overlap
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.beside import Beside
from lantern_proxy.restore.block import Picked
from lantern_proxy.restore.candidates import Source, candidates_of, choice_of, looked_at, newest, text_of
from lantern_proxy.restore.companions import Companions
from lantern_proxy.restore.context import Contexts
from lantern_proxy.restore.cover import Chosen, Cost, Room, completed, cover
from lantern_proxy.restore.filling import NUMBER, filled
from lantern_proxy.restore.lines import beside_rows, flat
from lantern_proxy.restore.offers import PINNED, around
from lantern_proxy.restore.parts import UNASKED, Candidate, Part, among_people, parts_of
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.passed_over import note_cover
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.scope import Scope
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
    found = _candidates(source, scope, rows, present, soon)
    people = among_people([candidate.passage for candidate in found])
    found = found if people else _in_context(found, contexts, soon)
    candidates, later = newest(found, _hurried(ask))
    cost = _cost_of(candidates, ask.session)
    chosen = _cover(source, scope, candidates, present, cost, room, ask, people=people)
    if not people:
        soon = _hurried(ask)
        beside = Beside(source, scope, present, {}, soon, contexts)
        later_rows = {at: candidates[c].row for at, c in later.items() if candidates[c].lost}
        at = {candidate.row: c for c, candidate in enumerate(candidates)}
        chosen = Companions(candidates, beside, at, later_rows).add_to(chosen, cost, room)
    filling = filled(candidates, chosen, Room(room, cost, chosen), present, scope, ask)
    return candidates, filling, n_looked_at


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
    scope.passages.read(sorted({max(0, row - by) for row in rows for by in (0, 1)}))
    summary = flat(ask.summary)
    told: list[tuple[int, ReadPassage]] = []
    for n, row in enumerate(rows):
        if n and ask.late():
            break
        read = scope.passages[row]
        if read.lines and not (summary and _is_summary_prompt(summary, scope, row)):
            told.append((row, read))
    found = [_without_rows_of_before(scope, candidate) for candidate in candidates_of(told, present, ask)]
    return source.alive(ask, [each._replace(around=around(scope, each.row)) for each in found if each.lost])


def _is_summary_prompt(summary: str, scope: Scope, row: int) -> bool:
    """Is the passage the prompt with which a client asked for `summary`, though it stands there as a user's message?
    Such a prompt speaks of a summary and tells no figure, and its answer is most of the summary.

    An answer that is only quoted in the summary proves nothing: what stands before it was said by the user.
    """
    told, answered = scope.passages[row].passage, 0
    if told.speaker != "user" or not SUMMED_UP.search(told.text) or NUMBER.search(told.text):
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
    if passage.speaker != "tool" or not passage.part:
        return candidate
    said = [i for i in candidate.lost if candidate.lines[i].sort != "printed"]
    before = scope.passages[candidate.row - 1].passage if candidate.row else passage
    if not said or before.message != passage.message:
        return candidate
    is_row = beside_rows(passage, candidate.lines, before.text)
    return candidate._replace(lost=tuple(i for i in candidate.lost if not is_row[i]))


def _cover(
    source: Source, scope: Scope, candidates: Sequence[Candidate], present: Present, cost: Cost, room: int, ask: Ask,
    *, people: bool,
) -> list[Chosen]:  # fmt: skip
    near = frozenset(terms(ask.summary))
    prior = [
        (0.75 + 0.5 * c.passage.confidence)
        * (PINNED if c.passage.pinned else 1.0)
        * (1 + 0.1 * overlap(near, frozenset().union(*[line.words for line in c.lines])) if near else 1.0)
        for c in candidates
    ]
    soon, idf = _hurried(ask), scope.rarities.__getitem__
    offered, chosen = list[Part](), list[Chosen]()
    # where nothing fits whole, what says most of it; where nothing else was lost, what was printed is all there is
    for unasked, whole in ((UNASKED, True), (UNASKED, False), (UNASKED - {"printed"}, True)):
        offered = parts_of(candidates, present, idf, prior, soon.late, people=people, unasked=unasked, whole=whole)
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
    says something. Not for where people talk to each other: there, what was said before stands above them."""
    contexts.read_around([candidate.row for candidate in candidates])
    found = []
    for candidate in candidates:
        context = None if ask.late() else contexts.of(candidate.row)
        if context and context.shown:
            lines = [
                replace(e, salience=max(e.salience, ANSWERS)) if e.words or e.digits else e for e in candidate.lines
            ]
            candidate = candidate._replace(lines=tuple(lines), within=context.words)
        found.append(candidate)
    return found


def _cost_of(candidates: Sequence[Candidate], session: str) -> Cost:
    """The cost of a part in the block of a session, see cover.Cost. Sizes that were computed once are kept."""
    heads: dict[tuple[int, bool], int] = {}
    sizes: dict[tuple[int, tuple[int, ...]], tuple[int, str, str]] = {}

    def cost(part: Part, opened: AbstractSet[str]) -> int:
        told = part.candidate, part.lines
        known = sizes.get(told)
        if known is None:
            candidate = candidates[part.candidate]
            passage, size = candidate.passage, len(pack.escape(text_of(candidate, part.lines))) + 1
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
