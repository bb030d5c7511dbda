"""The question block: lost passages that answer the question, and what has to be added to them."""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from lantern_proxy import pack
from lantern_proxy.config import RestoreConfig
from lantern_proxy.rank import best, overlap
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.block import Picked
from lantern_proxy.restore.candidates import BY_REQUEST, Source
from lantern_proxy.restore.context import Contexts
from lantern_proxy.restore.named_items import about_named, best_row_of_items, raise_items
from lantern_proxy.restore.offers import SHARPNESS, offers_of
from lantern_proxy.restore.parts import Candidate, is_group_chat
from lantern_proxy.restore.passed_over import note_greedy
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import LEAST_ITEMS, Evidence, Question, evidence_quality, idf_mass, is_answered
from lantern_proxy.restore.rerank import Rerankers, promoted
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.signals import POOL
from lantern_proxy.restore.supplements import Supplements
from lantern_proxy.restore.weak import without_echoes, without_weak


class Found(Struct, frozen=True):
    """What a question block may be made of."""

    evidence: Evidence
    candidates: Sequence[Candidate]
    offered: Sequence[pack.Offer]
    """One per candidate, in their order: what the packer may take of it."""
    companions: Mapping[int, Sequence[pack.Offer]]
    """Passage id -> what is added to the block along with that passage."""
    rows_of: Mapping[int, int]
    """Passage id -> row in the scope, for candidates and companions."""


def find_answers(
    source: Source, scope: Scope, question: Question, evidence: Evidence, present: Present, ask: Ask
) -> Found | None:
    """The material for a question block; None if no lost passage is good enough. Hold the lock of `scope`."""
    search = _Search(source, scope, question, evidence, present, ask)
    lost = search.lost()
    ask.passed.weigh(evidence.score, evidence.of)
    items = search.items()
    updates = search.updates_of_best(lost)
    candidates = search.chosen(lost, items, updates)
    if candidates is None:
        return None
    offered = offers_of(candidates, scope, evidence, search.mass, ask)
    offered = raise_items({item.row for item in items}, candidates, offered)
    if not question.asks and all(offer.mark == BY_REQUEST for offer in offered):
        ask.passed.all(candidates, "superseded")  # the message itself states the current values
        return None
    companions = search.supplements.of(candidates, offered)
    ids = [offer.passage.id for some in companions.values() for offer in some]
    rows_of = {id_: row for id_ in ids if (row := scope.row(id_)) is not None}
    rows_of |= {candidate.passage.id: candidate.row for candidate in candidates}
    return Found(evidence, candidates, offered, companions, rows_of)


class _Search:
    """Finds the lost passages for a question block, in a scope that is ranked for the question."""

    def __init__(
        self, source: Source, scope: Scope, question: Question, evidence: Evidence, present: Present, ask: Ask
    ) -> None:
        self._source, self._scope, self._question, self._evidence = source, scope, question, evidence
        self._present, self._ask = present, ask
        self.order = best(evidence.fused, POOL).tolist()
        """The best rows in order, lost or not."""
        self.mass = idf_mass(scope, question)
        passages = [read.passage for read in scope.passages.of(self.order)]
        self._people = is_group_chat(passages)
        """Is it a chat between people?"""
        self._people_only = self._people and all(passage.speaker != "assistant" for passage in passages)
        """And without an assistant?"""
        self.supplements = Supplements(source, scope, present, self.mass, ask, Contexts(scope))

    def lost(self) -> list[Candidate]:
        """The best passages that the request lacks; if an assistant takes part, without those that only repeat what a
        block of the request shows."""
        found = self._lost_of(self.order)
        if not self._ask.shown or self._people:
            return found
        return without_echoes(found, self._scope, self.mass, self._ask)

    def items(self) -> list[Candidate]:
        """The best lost passage for each item that the question lists; empty if there are fewer than LEAST_ITEMS, or if
        more than half of the items have none."""
        rows = best_row_of_items(self._scope, self._question, self._evidence, self.order)
        found = self._lost_of([*dict.fromkeys(rows)])
        return found if 2 * len(rows) >= len(self._question.items) and len(found) >= LEAST_ITEMS else []

    def _lost_of(self, rows: Sequence[int]) -> list[Candidate]:
        return self._source.lost_passages(self._scope, rows, self._present, self.mass, self._ask)

    def updates_of_best(self, lost: Sequence[Candidate]) -> list[Candidate]:
        """If the request has the best passage itself: later messages that state something else about the same."""
        is_held = self.order[0] not in [candidate.row for candidate in lost]
        return (
            self.supplements.updates_of_present(self.order[0], people=self._people)
            if self._question.asks and is_held
            else []
        )

    def chosen(
        self, lost: Sequence[Candidate], items: Sequence[Candidate], updates: Sequence[Candidate]
    ) -> list[Candidate] | None:
        """Those of `lost` that say enough, then `updates` and `items`; None if nothing is good enough for a block.

        If the evidence is too weak, or the request has the answer, only passages about what the user names.

        items:   the best passage for each item that the question lists
        updates: of a passage that the request has
        """
        question, scope, rows = self._question, self._scope, [candidate.row for candidate in lost]
        quality = evidence_quality(scope, self._evidence, question, rows)
        if question.alone is not None and not self._people:  # between people, the other sentences are what it is about
            quality = max(quality, evidence_quality(scope, self._evidence, question.alone, rows))
        is_poor = quality < self._source.restore.admission
        is_list = bool(items) and (question.asks or question.looks_back)
        is_good = is_list or not (is_poor or is_answered(scope, self._evidence, self.mass, self.order[0], rows))
        if is_good:
            found = without_weak(lost, scope, self._evidence, self.mass, self.order, self._ask, people=self._people)
        else:
            # between people, a message without a question is a statement, not an order
            is_told = self._people_only and not question.asks
            found = [] if is_told else about_named(lost, scope, question, self._present)
        more = {candidate.row: candidate for candidate in updates}
        if not (is_good or found):
            left = [candidate for candidate in lost if candidate.row not in more]
            self._ask.passed.all(left, "admission" if is_poor else "answered", value=quality)
            if not updates:
                return None
        known = {candidate.row for candidate in found}
        more |= {item.row: item for item in items}
        return [*found, *(candidate for row, candidate in more.items() if row not in known)]


def pick_answers(found: Found, question: Question, ask: Ask, restore: RestoreConfig, rerankers: Rerankers) -> Picked:
    """What is worth most per character of what was found, with its companions."""
    if rerankers.on:
        order, offered = promoted(found.offered, rerankers, ask, question.text)
    else:
        order = sorted(range(len(found.offered)), key=lambda n: -found.offered[n].score)
        offered = [found.offered[n] for n in order]
    displaced = dict[int, int]()
    mmr = pack.Mmr(lam=restore.mmr_lambda, power=restore.length_power, similarity=overlap)
    room_chars = ask.budget_chars - pack.WRAPPER_CHARS
    picked = pack.greedy(
        offered, room_chars, mmr, session=ask.session, companions=found.companions, displaced=displaced
    )
    note_greedy(ask.passed, [found.candidates[n] for n in order], picked, displaced)
    totals = {choice.passage.id: math.log(offered[n].score) / SHARPNESS for n, choice in picked}
    signals = {id_: found.evidence.of(found.rows_of[id_]) for id_ in totals}
    return Picked("question", [choice for _, choice in picked], totals, signals, considered=len(found.rows_of))
