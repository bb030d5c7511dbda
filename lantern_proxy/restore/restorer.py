"""Gather, rank, pack: what to put back into a request that lacks part of what its session held.

    at_compaction  no question is known: cover what was lost, most specific terms per character (loss block)
    for_question   a question is known: BM25, vectors, keywords, neighbours, if the evidence is good (question block)

Both are synchronous and may be called from several threads. Errors rise: the caller forwards the request as it came.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace

from lantern_proxy import pack, reinforce, trust
from lantern_proxy.archive import Archive
from lantern_proxy.config import Config, RestoreConfig
from lantern_proxy.embed import Embedder
from lantern_proxy.rank import best, overlap
from lantern_proxy.rerank.light import LightError
from lantern_proxy.restore.alike import read_tables, shipped
from lantern_proxy.restore.ask import Ask, looking_s
from lantern_proxy.restore.beside import Beside
from lantern_proxy.restore.candidates import BY_REQUEST, Source, choice_of
from lantern_proxy.restore.context import Contexts
from lantern_proxy.restore.cover import Candidate, Chosen, among_people
from lantern_proxy.restore.dense import Dense
from lantern_proxy.restore.light import Light, open_light
from lantern_proxy.restore.loss import POOL_TIMES, cover_lost
from lantern_proxy.restore.named import first_of, listed, naming
from lantern_proxy.restore.offers import SHARPNESS, offers
from lantern_proxy.restore.paper import rank_turns
from lantern_proxy.restore.passages import Split
from lantern_proxy.restore.passed_over import note_greedy
from lantern_proxy.restore.present import Late, Present
from lantern_proxy.restore.question import Evidence, Question, best_quality, is_answered, masses, read_question
from lantern_proxy.restore.rerank import Rerankers, promoted
from lantern_proxy.restore.routes import mixture, threshold
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.scopes import Scopes, large_scopes, open_ahead, that_fit
from lantern_proxy.restore.signals import POOL, gather
from lantern_proxy.restore.used import Learnt, Used
from lantern_proxy.restore.weak import strong, without_echoes
from lantern_proxy.turn import BlockKind, Placed, Restored

WARM = 32
"""Passages prepared at once for a loss block to come: about 5 ms."""


class Restorer:
    """Chooses what to restore. Owns the open indexes: close it."""

    def __init__(self, archive: Archive, config: Config, embedder: Embedder | None) -> None:
        self._archive, self._config = archive, config
        self.rerankers = Rerankers(config)
        self._dense = Dense(
            archive, embedder, wanted=config.embed.enabled != "off", slow_s=looking_s(config.restore) / 2
        )
        self._embedder = embedder
        self._light, self._light_fault = _open_light(config.rerank.light)
        self._scopes = Scopes()
        self._rates = reinforce.Rates.of(config.reinforce)
        self._used = Used(archive, self._rates)
        self._source = Source(archive, config.restore, self._rates)

    def at_compaction(self, ask: Ask) -> Restored | None:
        """The loss block, or None when nothing of worth is lost or fits."""
        return ask.passed.finish("loss", _in_time(self._at_compaction, ask))

    def for_question(self, ask: Ask) -> Restored | None:
        """The question block, or None when the evidence is not good enough (config: restore.admission)."""
        return ask.passed.finish("question", _in_time(self._for_question, ask))

    def _at_compaction(self, ask: Ask) -> Restored | None:
        if self._config.restore.recipe == "lantern":
            return self._paper(ask, "loss")
        started = time.perf_counter()
        room = ask.budget_chars - pack.WRAPPER_CHARS
        if room <= 0:
            return None
        with self._scope(ask) as scope:
            if scope is None:
                return None
            present = Present(ask.present, ask.late)
            candidates, chosen, looked_at = cover_lost(self._source, scope, present, room, ask)
        return self._block(ask, _of_loss(candidates, chosen, looked_at), present, started)

    def _for_question(self, ask: Ask) -> Restored | None:
        if self._config.restore.recipe == "lantern":
            return None
        started = time.perf_counter()
        question = read_question(ask.question)
        if ask.budget_chars <= pack.WRAPPER_CHARS or not question.terms:
            return None
        with self._scope(ask) as scope:
            if scope is None or not len(scope):
                return None
            self._scopes.tell(scope, self._split())
            present = Present(ask.present, ask.late)
            found = self._found(scope, question, present, ask)
        if found is None:
            return None
        if self.rerankers.on:
            order, offered = promoted(found.offered, self.rerankers, ask, question.text)
        else:
            order = sorted(range(len(found.offered)), key=lambda n: -found.offered[n].score)
            offered = [found.offered[n] for n in order]
        candidates = [found.candidates[n] for n in order]
        picked = _of_question(ask, candidates, offered, found.beside, self._config.restore)
        scores = {id_: found.evidence.of(found.rows_of[id_]) for id_ in picked.totals}
        return self._block(ask, replace(picked, scores=scores, considered=len(found.rows_of)), present, started)

    def _found(self, scope: Scope, question: Question, present: Present, ask: Ask) -> "_Found | None":
        """What a question block may be made of; None where nothing is good enough."""
        if self._light_fault:
            ask.notes.append("light:unusable")
        reorder = self._light.either if self._light else None
        evidence = gather(scope, question, ask, self._dense, self._config.restore, self._config.retrieval, reorder)
        order, mass = best(evidence.fused, POOL).tolist(), masses(scope, question)
        people = among_people([each.passage for each in scope.passages.of(order)])
        lost = self._source.lost_of(scope, order, present, mass, ask)
        lost = without_echoes(lost, scope, ask) if ask.shown and not people else lost
        ask.passed.weigh(evidence.score, evidence.of)
        rows = [candidate.row for candidate in lost]
        each = listed(self._source, scope, question, present, evidence, order, ask) if question.items else []
        beside = Beside(self._source, scope, present, mass, ask, Contexts(scope))
        since = beside.since(order[0], people=people) if question.asks and order[0] not in rows else []
        quality = best_quality(scope, evidence, question, rows)
        poor = quality < self._config.restore.admission
        is_listed = bool(each) and (question.asks or question.looks_back)
        good = is_listed or not (poor or is_answered(scope, evidence, mass, order[0], rows))
        if good:
            candidates = strong(lost, scope, evidence, mass, order, ask, people=people)
        else:
            candidates = naming(lost, scope, question, present)
        came = {candidate.row: candidate for candidate in since}
        if not (good or candidates):
            left = [candidate for candidate in lost if candidate.row not in came]
            ask.passed.all(left, "admission" if poor else "answered", value=quality)
            if not since:
                return None
        known = {candidate.row for candidate in candidates}
        more = came | {candidate.row: candidate for candidate in each}
        candidates = [*candidates, *(candidate for row, candidate in more.items() if row not in known)]
        offered = offers(candidates, scope, evidence, mass, ask)
        offered = first_of({candidate.row for candidate in each}, candidates, offered)
        if not question.asks and all(offer.mark == BY_REQUEST for offer in offered):
            ask.passed.all(candidates, "superseded")
            return None
        stands = beside.of(candidates, offered)
        ids = [offer.passage.id for some in stands.values() for offer in some]
        rows_of = {id_: row for id_ in ids if (row := scope.row(id_)) is not None}
        rows_of |= {candidate.passage.id: candidate.row for candidate in candidates}
        return _Found(evidence, candidates, offered, stands, rows_of)

    def expect(self, question: str) -> None:
        """A question block will be wanted when other things are done: embed this question meanwhile, unless words may
        turn out to be sure of it."""
        asked = read_question(question)
        always = self._light is not None or threshold(mixture(asked.text, self._config.retrieval)) >= 1
        if self._config.restore.recipe == "default" and asked.terms and always:
            self._dense.read_ahead(asked)

    def settle(self, tenant: str, restored: Mapping[int, BlockKind], answer: str, now: float) -> Learnt:
        """What the answer taught about the passages of its blocks: see used.Used.settle."""
        return self._used.settle(tenant, restored, answer, now)

    def judge(self, confidence: float, success: float, useful: bool) -> tuple[float, float]:
        """(confidence, success) of a passage after a person's verdict, at the configured rates."""
        return reinforce.settle(confidence, success, useful, self._rates)

    def warm(self, tenant: str, project: str, session: str, *, wait: bool = False) -> None:
        """Open the index that a restore of this session will use, about 10 us a passage, and read the passages that a
        loss block would look at first, sentence by sentence; without a deadline. What questions ask of all others is
        then told in the background, 0.2 ms a passage and three times as long at rest.

        Call it from a worker thread when a compaction is near, so that the first block need not wait for it. The scope
        is free for a restore every few milliseconds.

        wait: return when the background is done, too
        """
        ask = Ask(
            tenant=tenant, project=project, session=session, present="", budget_chars=0, now=0.0, deadline=math.inf
        )
        self._warm_loss(ask)
        if self._config.restore.recipe == "default":
            read_tables()
        split = self._split()
        with self._scope(ask) as scope:
            asks = scope is not None and self._config.restore.recipe == "default"
            telling = self._scopes.tell(scope, split, least=1) if scope is not None and asks else None
        if wait and telling is not None:
            telling.join()

    def _split(self) -> Split | None:
        """How texts are split where words are compared by the shipped table."""
        table = shipped() if self._light is not None or self._embedder is None else None
        return None if table is None else table.pieces

    def _warm_loss(self, ask: Ask) -> None:
        at, left = 0, POOL_TIMES * self._config.restore.budget_chars if self._config.restore.recipe == "default" else 0
        while left >= 0:
            with self._scope(ask) as scope:
                rows = [] if scope is None else scope.richest(math.inf)[at : at + WARM].tolist()
                if scope is None or not rows:
                    return
                left -= scope.prepare(rows)
                contexts = Contexts(scope)
                contexts.read_around(rows)
                for row in rows:
                    contexts.of(row)
                at += WARM

    def open_large(self, progress: Callable[[int], AbstractContextManager[Callable[[int], None]]]) -> None:
        """Open the large scopes before somebody asks for them. Takes seconds; for a thread of its own.

        progress: is told how many passages there are, and gives a function to be told of each few that are done
        """
        chosen = that_fit(large_scopes(self._archive, self._config.restore.scope))
        if not chosen:
            return
        with progress(sum(n for _, n in chosen)) as advance:
            for key, _ in chosen:
                open_ahead(self._scopes, key, self._archive, advance)

    def forget(self) -> None:
        """Let go of everything that is held open: some of it may have been forgotten. It is read again when needed."""
        self._scopes.close()
        self._used.forget()

    def rest(self, unused_s: float) -> None:
        """Nobody asks for a while: let go of what is quickly read again, and of indexes that were not used for long."""
        self._scopes.rest(unused_s)

    @property
    def index_bytes(self) -> int:
        """What the open BM25 indexes hold in memory."""
        return self._scopes.index_bytes

    def close(self) -> None:
        """Large indexes are kept for the next start. The archive must still be open."""
        self._scopes.keep(self._archive)
        self._scopes.close()
        self._dense.close()
        self.rerankers.close()

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
                self._scopes.finish(scope, self._archive)
                if "restore:opening" not in ask.notes:
                    ask.notes.append("restore:opening")
            yield scope
        except Late:  # the request was too long to be read in time; the scope is sound
            raise
        except BaseException:
            self._scopes.forget(key)
            raise
        finally:
            scope.release()

    # the recipe of the paper

    def _paper(self, ask: Ask, kind: BlockKind) -> Restored | None:
        """LANTERN as published: see restore/paper.py."""
        started = time.perf_counter()
        if ask.budget_chars <= pack.WRAPPER_CHARS:
            return None
        with self._scope(ask, "turn") as scope:
            if scope is None or not len(scope):
                return None
            present = Present(ask.present, ask.late)
            ranked = rank_turns(scope, present, ask, self._dense, self._config)
            rows = {scope.passages[row].passage.id: row for row in ranked.order}
            now = self._archive.of(ask.tenant).passages_by_id([*rows])
        alive = []
        for passage in (now[id_] for id_ in rows if id_ in now):
            reason = self._source.refused(passage)
            ask.passed.add(passage, reason or "budget", value=passage.confidence, row=rows[passage.id])
            alive += [] if reason else [passage]
        ask.passed.weigh(ranked.fused.__getitem__, ranked.of)
        if self.rerankers.on:
            alive = [alive[i] for i in self.rerankers.order(ask, ask.question or ask.summary, alive)]
        choices = pack.whole(alive, ask.budget_chars, ask.session)
        totals = {p.id: ranked.fused[rows[p.id]] for p in alive}
        picked = _Picked(kind, choices, totals, {p.id: ranked.of(rows[p.id]) for p in alive}, ranked.considered)
        return self._block(ask, picked, present, started)

    # the block

    def _block(self, ask: Ask, picked: "_Picked", present: Present, started: float) -> Restored | None:
        """What of `picked` fits, rendered; None: nothing. started: time.perf_counter() value"""
        told = [replace(c, passage=trust.marked(c.passage, self._config.restore.untrusted)) for c in picked.choices]
        text, kept = pack.fit(told, ask.budget_chars, ask.session)
        for choice in picked.choices[len(kept) :]:
            ask.passed.add(choice.passage, "budget")
        if not kept:
            return None
        placed = tuple(
            Placed(
                passage=choice.passage,
                text=choice.text,
                rank=rank,
                score=round(picked.totals[choice.passage.id], 6),
                signals={name: round(value, 6) for name, value in picked.scores[choice.passage.id].items()},
            )
            for rank, choice in enumerate(kept, start=1)
        )
        with suppress(Late):  # what the answer teaches then counts all that the passages name
            self._used.remember(ask.tenant, placed, present)
        ms = (time.perf_counter() - started) * 1_000
        return Restored(
            kind=picked.kind, text=text, placed=placed, considered=picked.considered, ms=ms, degraded=tuple(ask.notes)
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """What a question block may be made of."""

    evidence: Evidence
    candidates: Sequence[Candidate]
    offered: Sequence[pack.Offer]
    """Of each candidate."""
    beside: Mapping[int, Sequence[pack.Offer]]
    """Passage -> what goes in with it."""
    rows_of: Mapping[int, int]
    """Passage -> row, of all these."""


@dataclass(frozen=True, slots=True)
class _Picked:
    """What a block is made of, best first."""

    kind: BlockKind
    choices: Sequence[pack.Choice]
    totals: Mapping[int, float]
    """Passage -> its score."""
    scores: Mapping[int, dict[str, float]]
    """Passage -> its score in each signal."""
    considered: int
    """Passages that were looked at."""


def _in_time(choose: Callable[[Ask], Restored | None], ask: Ask) -> Restored | None:
    """Nothing where the request is so long that it was not read by the deadline, which is noted."""
    try:
        return choose(ask)
    except Late:
        return None


def _of_loss(candidates: Sequence[Candidate], chosen: Sequence[Chosen], considered: int) -> _Picked:
    """No question is known: the sentences of each passage that were chosen."""
    taken: dict[int, list[Chosen]] = {}
    for choice in chosen:
        taken.setdefault(choice.part.candidate, []).append(choice)
    choices = [choice_of(candidates, [each.part for each in some]) for some in taken.values()]
    totals = {candidates[c].passage.id: sum(each.gain for each in some) for c, some in taken.items()}
    return _Picked("loss", choices, totals, {id_: {"salience": total} for id_, total in totals.items()}, considered)


def _of_question(
    ask: Ask, candidates: Sequence[Candidate], offered: Sequence[pack.Offer],
    beside: Mapping[int, Sequence[pack.Offer]], restore: RestoreConfig,
) -> _Picked:  # fmt: skip
    """A question is known: of what is offered, the best for each character, and what belongs beside it.

    offered: those of `candidates`
    """
    behind = dict[int, int]()
    picked = pack.greedy(
        offered,
        ask.budget_chars - pack.WRAPPER_CHARS,
        power=restore.length_power,
        lam=restore.mmr_lambda,
        similarity=overlap,
        session=ask.session,
        behind=behind,
        beside=beside,
    )
    note_greedy(ask.passed, candidates, picked, behind)
    totals = {choice.passage.id: math.log(offered[n].score) / SHARPNESS for n, choice in picked}
    return _Picked("question", [choice for _, choice in picked], totals, {}, len(candidates))


def _open_light(path: str) -> tuple[Light | None, str]:
    """The light reranker of the config, or why there is none: a file that cannot be used costs its order only."""
    try:
        return open_light(path), ""
    except LightError as error:
        logging.getLogger(__name__).warning("rerank.light: %s", error)
        return None, str(error)
