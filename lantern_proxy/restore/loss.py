"""Builds the loss block: no question is known, so it covers what was lost, with most specific terms per character."""

import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import dropwhile

from msgspec.structs import replace

from lantern_proxy import pack
from lantern_proxy.analyze import ends_asking, terms
from lantern_proxy.history.summaries import SUMMED_UP
from lantern_proxy.rank import overlap
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.block import Picked
from lantern_proxy.restore.candidates import (
    Source,
    candidates_of,
    check_presence,
    choice_of,
    text_of,
    without_superseded,
)
from lantern_proxy.restore.companions import Companions
from lantern_proxy.restore.context import Contexts
from lantern_proxy.restore.cover import Chosen, Cost, Room, complete_messages, cover
from lantern_proxy.restore.filling import NUMBER, fill_room
from lantern_proxy.restore.lines import flattened, rows_after
from lantern_proxy.restore.offers import PINNED, surroundings_of
from lantern_proxy.restore.parts import EXCLUDED_SORTS, Candidate, Part, is_group_chat, parts_of
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.passed_over import note_cover
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.supplements import Supplements
from lantern_proxy.turn import CLIENT

POOL_TIMES = 8
"""A loss block reads this many times its budget in text, sentence by sentence."""
GATHER_SHARE = 0.6
"""Share of the remaining time that one step of reading passages may take; the rest is for selecting."""
BATCH = 128
"""Passages read at once."""
LINES_POWER = 0.3
"""Added to `restore.length_power`. Single sentences are short, so here the room they take matters more."""
LEAST_SUMMARY = 60
"""A shorter text that also stands in the summary is a common phrase, not the answer that became the summary."""
ANSWERS = 1.0
"""Least salience of a short message ("teal") that is restored together with its context ("Which colour?")."""
SHARES = {"tool": 0.15, CLIENT: 0.1}
"""Speaker -> the largest share of a loss block that the speaker's passages may take. Tool results and text that clients
wrap around user messages are full of specific terms that nobody asks for."""


def pick_lost(source: Source, scope: Scope, present: Present, room: int, ask: Ask) -> Picked:
    """Select the lost passages, and of each the sentences, that fill `room` characters best.

    After the deadline it selects from what was read by then. The caller holds the lock of `scope`.
    """
    candidates, chosen, n_checked = _chosen(source, scope, present, room, ask)
    taken: dict[int, list[Chosen]] = {}
    for each in chosen:
        taken.setdefault(each.part.candidate, []).append(each)
    choices = [choice_of(candidates, [each.part for each in some]) for some in taken.values()]
    totals = {candidates[c].passage.id: sum(each.gain for each in some) for c, some in taken.items()}
    signals = {id_: {"salience": total} for id_, total in totals.items()}
    return Picked("loss", choices, totals, signals, considered=n_checked)


def _chosen(
    source: Source, scope: Scope, present: Present, room: int, ask: Ask
) -> tuple[list[Candidate], list[Chosen], int]:
    """(candidates, the parts chosen for the block, number of passages checked)"""
    gathering = _gathering_ask(ask)
    rows, n_checked = _pool(source, scope, present, gathering)
    contexts = Contexts(scope)
    gathered = _candidates(source, scope, rows, present, gathering)
    people = is_group_chat([candidate.passage for candidate in gathered])
    gathered = gathered if people else _with_context(gathered, contexts, gathering)
    candidates, later = without_superseded(gathered, _gathering_ask(ask))
    cost = _cost_of(candidates, ask.session)
    chosen = _cover(source, scope, candidates, present, cost, room, ask, people=people)
    if not people:
        gathering = _gathering_ask(ask)
        supplements = Supplements(source, scope, present, {}, gathering, contexts)
        later_rows = {at: candidates[c].row for at, c in later.items() if candidates[c].lost}
        at = {candidate.row: c for c, candidate in enumerate(candidates)}
        chosen = Companions(candidates, supplements, at, later_rows).add_to(chosen, cost, room)
    filling = fill_room(candidates, chosen, Room(room, cost, chosen), present, scope, ask)
    return candidates, filling, n_checked


def _pool(source: Source, scope: Scope, present: Present, ask: Ask) -> tuple[list[int], int]:
    """(rows of passages that the request lacks at least in part, number of rows checked).

    Pinned passages come first, then the richest, until their text is POOL_TIMES the budget.
    """
    kept: list[int] = []
    left, n_checked = POOL_TIMES * ask.budget_chars, 0
    for rows in _batches(scope, source.archive.of(ask.tenant).pinned(ask.session), ask.deadline):
        scope.passages.read(rows)
        for row, read, reason in check_presence(scope, rows, present, ask):
            n_checked += 1
            if reason:
                ask.passed.add(read.passage, reason)
                continue
            left -= len(read.passage.text)
            if left < 0:
                return kept, n_checked
            kept.append(row)
        if ask.late():
            break
    return kept, n_checked


def _candidates(source: Source, scope: Scope, rows: Sequence[int], present: Present, ask: Ask) -> list[Candidate]:
    """The passages at `rows` as candidates, in that order, as many as there is time to read."""
    scope.passages.read(sorted({*rows, *scope.previous(rows)}))
    summary = flattened(ask.summary)
    readable: list[tuple[int, ReadPassage]] = []
    for n, row in enumerate(rows):
        if n and ask.late():
            break
        read = scope.passages[row]
        if read.lines and not (summary and _is_summary_prompt(summary, scope, row)):
            readable.append((row, read))
    found = [_without_continued_rows(scope, candidate) for candidate in candidates_of(readable, present, ask)]
    return source.still_allowed(
        ask, [each._replace(surroundings=surroundings_of(scope, each.row)) for each in found if each.lost]
    )


def _is_summary_prompt(summary: str, scope: Scope, row: int) -> bool:
    """Is this user message the prompt with which a client asked for `summary`? Such a prompt mentions a summary,
    contains no number, and its answer makes up most of the summary.

    An answer that is merely quoted in the summary proves nothing: then the message before it is the user's own.
    """
    prompt, answered = scope.passages[row].passage, 0
    if prompt.speaker != "user" or not SUMMED_UP.search(prompt.text) or NUMBER.search(prompt.text):
        return False
    pieces = (scope.passages[at] for at in scope.beside(row, 1))
    for piece in dropwhile(lambda piece: piece.passage.speaker == CLIENT, pieces):
        if piece.passage.speaker != "assistant" or piece.flat not in summary:
            break
        answered += len(piece.flat)
    return answered >= max(LEAST_SUMMARY, len(summary) // 2)


def _without_continued_rows(scope: Scope, candidate: Candidate) -> Candidate:
    """`candidate` without table rows that continue the previous passage of the same tool result: this passage alone
    does not show that they are rows."""
    passage = candidate.passage
    if passage.speaker != "tool" or not passage.part:
        return candidate
    not_printed = [i for i in candidate.lost if candidate.lines[i].sort != "printed"]
    before = scope.passages[candidate.row - 1].passage if candidate.row else passage
    if not not_printed or before.message != passage.message:
        return candidate
    is_row = rows_after(passage, candidate.lines, before.text)
    return candidate._replace(lost=tuple(i for i in candidate.lost if not is_row[i]))


def _cover(
    source: Source, scope: Scope, candidates: Sequence[Candidate], present: Present, cost: Cost, room: int, ask: Ask,
    *, people: bool,
) -> list[Chosen]:  # fmt: skip
    """Select the parts for the block, with relaxed filters if nothing is selected otherwise."""
    summary_terms = frozenset(terms(ask.summary))
    prior = [_prior(candidate, summary_terms) for candidate in candidates]
    gathering, idf = _gathering_ask(ask), scope.rarities.__getitem__
    offered, chosen = list[Part](), list[Chosen]()
    # if no message fits whole, its best part; if nothing else was lost, printed output, too
    for excluded, whole in ((EXCLUDED_SORTS, True), (EXCLUDED_SORTS, False), (EXCLUDED_SORTS - {"printed"}, True)):
        offered = parts_of(
            candidates, present, idf, prior, gathering.late, people=people, excluded=excluded, whole=whole
        )
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
    return complete_messages(chosen, candidates, cost, room)


def _prior(candidate: Candidate, summary_terms: frozenset[str]) -> float:
    """The factor of a candidate's worth: its confidence, pins, and nearness to the summary."""
    prior = (0.75 + 0.5 * candidate.passage.confidence) * (PINNED if candidate.passage.pinned else 1.0)
    if not summary_terms:
        return prior
    return prior * (1 + 0.1 * overlap(summary_terms, frozenset().union(*[line.words for line in candidate.lines])))


def _with_context(candidates: Sequence[Candidate], contexts: Contexts, ask: Ask) -> list[Candidate]:
    """`candidates` with each short user message linked to its context, since "teal" only means something together with
    its question. Not for chats between people, where the preceding messages give the context."""
    contexts.read_around([candidate.row for candidate in candidates])
    found = []
    for candidate in candidates:
        only_asks = all(ends_asking(candidate.lines[i].flat) for i in candidate.lost)
        context = None if only_asks or ask.late() else contexts.of(candidate.row)
        if context and context.shown:
            lines = [
                replace(e, salience=max(e.salience, ANSWERS)) if e.words or e.digits else e for e in candidate.lines
            ]
            candidate = candidate._replace(lines=tuple(lines), within=context.words)
        found.append(candidate)
    return found


def _cost_of(candidates: Sequence[Candidate], session: str) -> Cost:
    """The cost function of the parts in a session's block, see cover.Cost. Computed sizes are cached."""
    heads: dict[tuple[int, bool], int] = {}
    sizes: dict[tuple[int, tuple[int, ...]], tuple[int, str, str]] = {}

    def cost(part: Part, opened: AbstractSet[str]) -> int:
        key = part.candidate, part.lines
        known = sizes.get(key)
        if known is None:
            candidate = candidates[part.candidate]
            passage, size = candidate.passage, len(pack.escape(text_of(candidate, part.lines))) + 1
            known = sizes[key] = size, pack.entry_of(passage), pack.day(passage)
        size, entry, day = known
        if entry in opened:
            return size + len(pack.GAP)
        head = part.candidate, day in opened
        if head not in heads:
            heads[head] = len(pack.header(candidates[head[0]].passage, session, same_day=head[1]))
        return size + heads[head]

    return cost


def _gathering_ask(ask: Ask) -> Ask:
    """`ask` with GATHER_SHARE of the remaining time; the rest is for selecting from what was gathered."""
    now = time.monotonic()
    return replace(ask, deadline=now + GATHER_SHARE * max(0.0, ask.deadline - now))


def _batches(scope: Scope, pinned: AbstractSet[int], deadline: float) -> Iterator[list[int]]:
    """All rows of the scope in batches: pinned passages first, then the richest."""
    order = scope.richest(deadline)
    first = [row for id_ in pinned if (row := scope.row(id_)) is not None]
    if first:
        yield sorted(first)
    for at in range(0, len(order), BATCH):
        yield [row for row in order[at : at + BATCH].tolist() if row not in first]
