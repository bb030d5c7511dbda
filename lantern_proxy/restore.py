"""Gather, rank, pack: what to put back into a request that lacks part of what its session held.

    at_compaction  no question is known: cover what was lost, most specific terms per character (loss block)
    for_question   a question is known: BM25, vectors, keywords, neighbours, if the evidence is good (question block)

Both are synchronous and may be called from several threads. Errors rise: the caller forwards the request as it came.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

import numpy as np

from lantern_proxy import pack, reinforce
from lantern_proxy.analyze import key as term_key
from lantern_proxy.archive import Archive
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder
from lantern_proxy.rank import Floats, overlap, smooth, zsum
from lantern_proxy.restore_cover import Candidate, Chosen, cover
from lantern_proxy.restore_dense import Dense
from lantern_proxy.restore_lines import Present, lost
from lantern_proxy.restore_paper import rank_turns
from lantern_proxy.restore_question import (
    Evidence,
    Question,
    best_quality,
    coverage,
    is_answered,
    lexical_trust,
    masses,
    read_question,
    sentence_worth,
)
from lantern_proxy.restore_scope import Entry, Key, Scope, Scopes
from lantern_proxy.turn import Passage, Placed, Restored

POOL = 400
"""Passages that are looked at, when a question is known."""
POOL_TIMES = 6
"""Text that is looked at sentence by sentence when no question is known, as a multiple of the budget."""
OFFERS = 40
"""Passages that the packer chooses from, when a question is known."""
WEIGHTS: Mapping[str, float] = {"bm25": 1.0, "vector": 0.8, "keywords": 0.05}
"""Of the z-scores in the default recipe; `restore.weights` overrides."""
LINES_POWER = 0.3
"""Added to `restore.length_power` where single sentences are packed: they are short, and the room is what counts."""
TOOL_SHARE = 0.35
"""Most of a loss block that results of tools may take: they are full of specific terms that nobody asks for."""
FILLER = 0.1
"""Sentences of at most this salience say nothing ("You're welcome!")."""
NEIGHBOURS = 0.3
"""How much of its neighbours' cosines flows into a passage, against all of it for BM25: vectors already see context."""
REMEMBERED = 10_000
"""Restored passages whose own terms are kept until their answer is known."""

BlockKind = Literal["loss", "question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a restore needs to know of one request."""

    tenant: str
    project: str
    session: str
    present: str
    """Canonical text of everything the request holds, replayed blocks included."""
    shown: frozenset[int] = frozenset()
    """Passage ids in replayed blocks."""
    left: frozenset[str] = frozenset()
    """Keys of messages of branches that the client left: what was taken back is not restored."""
    question: str = ""
    """Text of the last user message."""
    summary: str = ""
    """Text that stands for what was lost, if there is any."""
    budget_chars: int
    now: float
    """Unix seconds."""
    deadline: float
    """time.monotonic() value; past it, what there is by then is returned."""
    notes: list[str] = field(default_factory=list, compare=False)
    """Filled by the restore: what was skipped and why, also when there is nothing to put back."""

    def late(self) -> bool:
        if time.monotonic() < self.deadline:
            return False
        if "restore:deadline" not in self.notes:
            self.notes.append("restore:deadline")
        return True


class Restorer:
    """Chooses what to restore. Owns the open indexes: close it."""

    def __init__(self, archive: Archive, config: Config, embedder: Embedder | None) -> None:
        self._archive, self._config = archive, config
        self._dense = Dense(archive, embedder, wanted=config.embed.enabled != "off")
        self._scopes = Scopes()
        self._own: OrderedDict[tuple[str, int], frozenset[str]] = OrderedDict()
        self._lock = Lock()
        self._rates = reinforce.Rates(
            gain=config.reinforce.gain,
            loss=config.reinforce.loss,
            floor=config.reinforce.floor,
            minimum=config.reinforce.minimum,
            ema=config.reinforce.ema,
        )

    def learn(self, tenant: str, project: str, passages: Sequence[Passage]) -> None:
        """Newly archived passages join the open indexes at the next restore. Called by the writer; never waits."""
        self._scopes.learn(tenant, project, passages)

    def at_compaction(self, ask: Ask) -> Restored | None:
        """The loss block, or None when nothing of worth is lost or fits."""
        if self._config.restore.recipe == "lantern":
            return self._paper(ask, "loss")
        started = time.perf_counter()
        room = ask.budget_chars - pack.WRAPPER_CHARS
        if room <= 0:
            return None
        with self._scope(ask) as scope:
            if scope is None:
                return None
            present = Present(ask.present)
            rows = self._lost_rows(scope, present, ask)
            candidates = self._candidates(scope, _richest(scope, rows, POOL_TIMES * ask.budget_chars), present, ask)
            chosen = self._cover(scope, candidates, present, room, ask)
        return self._loss_block(ask, candidates, chosen, present, len(rows), started)

    def for_question(self, ask: Ask) -> Restored | None:
        """The question block, or None when the evidence is not good enough (config: restore.admission)."""
        if self._config.restore.recipe == "lantern":
            return None
        started = time.perf_counter()
        question = read_question(ask.question)
        if ask.budget_chars <= pack.WRAPPER_CHARS or not question.terms:
            return None
        with self._scope(ask) as scope:
            if scope is None or not len(scope):
                return None
            evidence = self._gather(scope, question, ask)
            present = Present(ask.present)
            order = np.argsort(-evidence.fused, kind="stable")[:POOL].tolist()
            candidates, rows = self._lost_of(scope, order, present, ask, limit=OFFERS)
            if best_quality(scope, evidence, question, rows) < self._config.restore.admission:
                return None
            mass = masses(scope, question)
            if is_answered(scope, evidence, mass, order[0], rows):
                return None
            offers = [_offer(c, scope, evidence, mass, row) for c, row in zip(candidates, rows, strict=True)]
        return self._question_block(ask, candidates, rows, offers, evidence, present, started)

    def settle(
        self, tenant: str, passage_ids: Sequence[int], answer: str, now: float
    ) -> Mapping[int, tuple[float, float, int, float]]:
        """Updates for TenantArchive.reinforce() after the answer to a request into which passages were restored: id ->
        (confidence, success, accesses, accessed_at). Call it once a block, not again when the block is replayed."""
        said = term_key(answer)
        updates = {}
        for passage_id, passage in self._archive.of(tenant).passages_by_id(passage_ids).items():
            with self._lock:
                own = self._own.pop((tenant, passage_id), None)
            terms_own = own if own is not None else frozenset(map(term_key, passage.tags))
            was_used = reinforce.used(terms_own, said)
            confidence, success = reinforce.settle(passage.confidence, passage.success, was_used, self._rates)
            updates[passage_id] = (confidence, success, passage.accesses + 1, now)
        return updates

    def warm(self, tenant: str, project: str, session: str) -> None:
        """Open the index that a restore of this session will use; about 40 us a passage, without a deadline.

        Call it from a worker thread when a compaction is near, so that the first block need not wait for it.
        """
        ask = Ask(
            tenant=tenant, project=project, session=session, present="", budget_chars=0, now=0.0, deadline=math.inf
        )
        with self._scope(ask):
            pass

    def close(self) -> None:
        self._scopes.close()

    # what there is

    @contextmanager
    def _scope(self, ask: Ask, unit: str = "passage") -> Iterator[Scope | None]:
        """The locked, up-to-date scope of the request; None when the deadline comes before anything is read."""
        reach = self._config.restore.scope
        key = Key(
            ask.tenant,
            ask.project if reach == "project" else None,
            ask.session if reach == "session" else None,
            unit,
        )
        scope = self._scopes.use(key, min(60.0, max(0.0, ask.deadline - time.monotonic())))
        if scope is None:
            ask.late()
            yield None
            return
        try:
            if not scope.catch_up(self._archive, ask.deadline):
                ask.late()
            yield scope
        except BaseException:
            self._scopes.forget(key)
            raise
        finally:
            scope.release()

    def _lost_rows(self, scope: Scope, present: Present, ask: Ask) -> list[int]:
        """Rows of the passages that the request does not hold whole."""
        rows: list[int] = []
        for row, entry in enumerate(scope.entries):
            if entry.passage.message not in ask.left and not present.holds(entry.flat, entry.anchor):
                rows.append(row)
            if not row % 256 and ask.late():
                break
        return rows

    def _lost_of(
        self, scope: Scope, order: Sequence[int], present: Present, ask: Ask, limit: int
    ) -> tuple[list[Candidate], list[int]]:
        """The first `limit` of `order` that the request lacks, wholly or in part, and their rows."""
        candidates: list[Candidate] = []
        rows: list[int] = []
        for row in order:
            if len(rows) >= limit or ask.late():
                break
            entry = scope.entries[row]
            if entry.passage.message in ask.left or present.holds(entry.flat, entry.anchor):
                continue
            candidate = _candidate(entry, present, ask)
            if any(entry.lines[i].salience > FILLER for i in candidate.lost):
                candidates.append(candidate)
                rows.append(row)
        return self._alive(ask, candidates, rows)

    def _candidates(self, scope: Scope, rows: Sequence[int], present: Present, ask: Ask) -> list[Candidate]:
        candidates: list[Candidate] = []
        for n, row in enumerate(rows):
            if not n % 32 and ask.late():
                break
            candidate = _candidate(scope.entries[row], present, ask)
            if candidate.lost:
                candidates.append(candidate)
        return self._alive(ask, candidates, rows)[0]

    def _alive(
        self, ask: Ask, candidates: Sequence[Candidate], rows: Sequence[int]
    ) -> tuple[list[Candidate], list[int]]:
        """Without what was pruned since or has too little confidence; as the archive has it now."""
        now = self._archive.of(ask.tenant).passages_by_id([c.passage.id for c in candidates])
        alive, kept = [], []
        for candidate, row in zip(candidates, rows, strict=False):
            passage = now.get(candidate.passage.id)
            if passage is not None and reinforce.retrievable(passage.confidence, self._rates):
                alive.append(Candidate(passage, candidate.lines, candidate.lost))
                kept.append(row)
        return alive, kept

    # no question known

    def _cover(
        self, scope: Scope, candidates: Sequence[Candidate], present: Present, room: int, ask: Ask
    ) -> list[Chosen]:
        near = frozenset(Present(ask.summary).stems) if ask.summary else frozenset()
        prior = [
            (0.75 + 0.5 * c.passage.confidence)
            * (1 + 0.1 * overlap(near, frozenset().union(*(line.words for line in c.lines))))
            for c in candidates
        ]
        sizes: dict[tuple[int, int], int] = {}
        headers = [len(pack.header(c.passage, ask.session)) for c in candidates]

        def cost(c: int, i: int, opened: bool) -> int:
            size = sizes.get((c, i))
            if size is None:
                line = candidates[c].lines[i]
                size = sizes[c, i] = len(pack.escape(candidates[c].passage.text[line.start : line.end])) + len(pack.GAP)
            return size if opened else size + 1 + headers[c]

        return cover(
            candidates,
            present,
            scope.idf,
            cost,
            room,
            power=min(1.0, self._config.restore.length_power + LINES_POWER),
            prior=prior,
            shares={"tool": int(TOOL_SHARE * room)},
        )

    def _loss_block(
        self,
        ask: Ask,
        candidates: Sequence[Candidate],
        chosen: Sequence[Chosen],
        present: Present,
        considered: int,
        started: float,
    ) -> Restored | None:
        picked: dict[int, list[Chosen]] = {}
        for choice in chosen:
            picked.setdefault(choice.candidate, []).append(choice)
        choices, scores = [], {}
        for c, parts in picked.items():
            spans = [candidates[c].lines[i] for i in sorted(part.line for part in parts)]
            choices.append(pack.Choice(candidates[c].passage, tuple((line.start, line.end) for line in spans)))
            scores[candidates[c].passage.id] = {"salience": sum(part.gain for part in parts)}
        totals = {i: s["salience"] for i, s in scores.items()}
        return self._block(ask, "loss", choices, totals, scores, present, considered, started)

    # a question known

    def _gather(self, scope: Scope, question: Question, ask: Ask) -> Evidence:
        """Every signal over the whole scope, and their fusion."""
        lexical = scope.lexical(question.terms)
        signals: dict[str, Floats] = {"bm25": smooth(lexical, scope.places)}
        cosines = None
        if not ask.late():
            cosines = self._dense.cosines(scope, question, lexical, ask)
        if cosines is not None:
            raised = cosines - float(cosines.min())
            signals["vector"] = raised + NEIGHBOURS * (smooth(raised, scope.places) - raised)
        wanted = frozenset(question.terms)
        matched = np.flatnonzero(lexical)
        if len(matched) and self._weight("keywords"):
            tagged = np.zeros(len(scope))
            for row in matched[np.argsort(-lexical[matched])[:POOL]].tolist():
                tagged[row] = len(wanted & scope.entries[row].tag_terms) / len(wanted)
            signals["keywords"] = tagged
        weights = {name: self._weight(name) for name in signals}
        if cosines is not None:
            weights["bm25"] *= lexical_trust(scope, lexical, masses(scope, question))
        return Evidence(lexical, cosines, zsum(signals, weights), signals)

    def _weight(self, signal: str) -> float:
        return float(dict(self._config.restore.weights).get(signal, WEIGHTS.get(signal, 0.0)))  # type: ignore[call-overload]

    def _question_block(
        self,
        ask: Ask,
        candidates: Sequence[Candidate],
        rows: Sequence[int],
        offers: Sequence[pack.Offer],
        evidence: Evidence,
        present: Present,
        started: float,
    ) -> Restored | None:
        restore = self._config.restore
        picked = pack.greedy(
            offers,
            ask.budget_chars - pack.WRAPPER_CHARS,
            power=restore.length_power,
            lam=restore.mmr_lambda,
            similarity=overlap,
            session=ask.session,
        )
        scores = {candidates[n].passage.id: evidence.of(rows[n]) for n, _ in picked}
        totals = {candidates[n].passage.id: offers[n].score for n, _ in picked}
        return self._block(ask, "question", [c for _, c in picked], totals, scores, present, len(candidates), started)

    # the recipe of the paper

    def _paper(self, ask: Ask, kind: BlockKind) -> Restored | None:
        """LANTERN as published: see restore_paper.py."""
        started = time.perf_counter()
        if ask.budget_chars <= pack.WRAPPER_CHARS:
            return None
        with self._scope(ask, "turn") as scope:
            if scope is None or not len(scope):
                return None
            present = Present(ask.present)
            ranked = rank_turns(scope, present, ask, self._dense, self._config)
            now = self._archive.of(ask.tenant).passages_by_id([scope.entries[row].passage.id for row in ranked.order])
        alive = [(row, now[i]) for row in ranked.order if (i := scope.entries[row].passage.id) in now]
        alive = [(row, p) for row, p in alive if reinforce.retrievable(p.confidence, self._rates)]
        choices = pack.whole([p for _, p in alive], ask.budget_chars, ask.session)
        totals = {p.id: ranked.fused[row] for row, p in alive}
        scores = {p.id: {name: float(values[row]) for name, values in ranked.signals.items()} for row, p in alive}
        return self._block(ask, kind, choices, totals, scores, present, ranked.considered, started)

    # the block

    def _block(
        self,
        ask: Ask,
        kind: BlockKind,
        choices: Sequence[pack.Choice],
        totals: Mapping[int, float],
        scores: Mapping[int, dict[str, float]],
        present: Present,
        considered: int,
        started: float,
    ) -> Restored | None:
        text, kept = pack.fit(choices, ask.budget_chars, ask.session)
        if not kept:
            return None
        placed = tuple(
            Placed(
                passage=choice.passage,
                text=choice.text,
                rank=rank,
                score=round(totals[choice.passage.id], 6),
                signals={name: round(value, 6) for name, value in scores[choice.passage.id].items()},
            )
            for rank, choice in enumerate(kept, start=1)
        )
        self._remember(ask.tenant, placed, present)
        ms = (time.perf_counter() - started) * 1_000
        return Restored(kind=kind, text=text, placed=placed, considered=considered, ms=ms, degraded=tuple(ask.notes))

    def _remember(self, tenant: str, placed: Sequence[Placed], present: Present) -> None:
        """Keep the terms that only these passages can give to the answer, for settle()."""
        own = {
            p.passage.id: frozenset(
                k for tag in p.passage.tags if tag in p.text and not present.may_hold(k := term_key(tag))
            )
            for p in placed
        }
        with self._lock:
            for passage_id, terms_own in own.items():
                self._own[tenant, passage_id] = terms_own
                self._own.move_to_end((tenant, passage_id))
            while len(self._own) > REMEMBERED:
                self._own.popitem(last=False)


def _candidate(entry: Entry, present: Present, ask: Ask) -> Candidate:
    """A passage with the lines that the request lacks; none when a replayed block shows it in other words."""
    gone = lost(entry.passage, entry.lines, present)
    if entry.passage.id in ask.shown and len(gone) == len(entry.lines):
        gone = ()
    return Candidate(entry.passage, entry.lines, gone)


def _richest(scope: Scope, rows: Sequence[int], most_chars: int) -> list[int]:
    """As many of `rows` as `most_chars` hold: those with the most specific terms for their length, in their order."""

    kept = []
    for row in sorted(rows, key=lambda row: (-scope.entries[row].richness, row)):
        most_chars -= len(scope.entries[row].passage.text)
        if most_chars < 0:
            break
        kept.append(row)
    return sorted(kept)


def _offer(candidate: Candidate, scope: Scope, evidence: Evidence, mass: Mapping[str, float], row: int) -> pack.Offer:
    """What the packer may take: lost sentences without filler, weighed by what of the question they hold."""
    kept = [candidate.lines[i] for i in candidate.lost]
    told = [line for line in kept if line.salience > FILLER or coverage(mass, line.words)] or kept
    return pack.Offer(
        candidate.passage,
        tuple((line.start, line.end) for line in told),
        max(1e-6, evidence.score(row)),
        tuple(sentence_worth(line, mass) for line in told),
        scope.entries[row].words,
    )
