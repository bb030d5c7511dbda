"""Chooses what to put back into a request that lacks part of its session's history.

    at_compaction  no question is known: cover what was lost, with most specific terms per character (loss block)
    for_question   a question is known: rank what was lost by BM25, vectors, keywords and neighbours, and restore it if
                   the evidence is good (question block)

Both are synchronous and may be called from several threads. They raise errors; the caller then forwards the request
unchanged.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress

from lantern_proxy import pack, reinforce
from lantern_proxy.archive import Archive
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder
from lantern_proxy.rank import Ints
from lantern_proxy.rerank.light import LightError
from lantern_proxy.restore.answer import find_answers, pick_answers
from lantern_proxy.restore.ask import Ask, looking_s
from lantern_proxy.restore.block import Picked, fit
from lantern_proxy.restore.candidates import Source
from lantern_proxy.restore.context import Contexts
from lantern_proxy.restore.dense import Dense
from lantern_proxy.restore.light import Light, open_light
from lantern_proxy.restore.loss import POOL_TIMES, pick_lost
from lantern_proxy.restore.paper import pick_turns, rank_turns
from lantern_proxy.restore.passages import Passages
from lantern_proxy.restore.present import Late, Present
from lantern_proxy.restore.question import fit_to_scope, parse_question, without_speaker
from lantern_proxy.restore.rerank import Rerankers
from lantern_proxy.restore.routes import mixture, threshold
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.scopes import Scopes, large_scopes, open_ahead, that_fit
from lantern_proxy.restore.signals import gather, precompute
from lantern_proxy.restore.used import Learnt, Used
from lantern_proxy.restore.word_table import load_tables
from lantern_proxy.turn import BlockKind, Restored

WARM = 32
"""Passages prepared in one step for a future loss block: about 5 ms."""


class Restorer:
    """Chooses what to restore. Owns the open indexes; close it."""

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
        """The loss block; None if nothing worth restoring is lost, or nothing fits."""
        return ask.passed.finish("loss", _in_time(self._at_compaction, ask))

    def for_question(self, ask: Ask) -> Restored | None:
        """The question block; None if the evidence is not good enough (config: restore.admission)."""
        return ask.passed.finish("question", _in_time(self._for_question, ask))

    def _at_compaction(self, ask: Ask) -> Restored | None:
        if self._config.restore.recipe == "lantern":
            return self._paper(ask)
        started = time.perf_counter()
        room = ask.budget_chars - pack.WRAPPER_CHARS
        if room <= 0:
            return None
        with self._scope(ask) as scope:
            if scope is None:
                return None
            present = Present(ask.present, ask.late)
            picked = pick_lost(self._source, scope, present, room, ask)
        return self._block(ask, picked, present, started)

    def _for_question(self, ask: Ask) -> Restored | None:
        if self._config.restore.recipe == "lantern":
            return None
        started = time.perf_counter()
        question = parse_question(ask.question)
        if ask.budget_chars <= pack.WRAPPER_CHARS or not question.terms:
            return None
        with self._scope(ask) as scope:
            if scope is None or not len(scope):
                return None
            self._scopes.prepare(scope, self._precompute)
            question = fit_to_scope(question, ask.question, scope)
            if not question.terms:
                return None
            present = Present(ask.present, ask.late)
            if self._light_fault:
                ask.degraded.append("light:unusable")
            reorder = self._light.best_of_both if self._light else None
            settings = self._config
            evidence = gather(scope, question, ask, self._dense, settings.restore, settings.retrieval, reorder)
            found = find_answers(self._source, scope, question, evidence, present, ask)
        if found is None:
            return None
        picked = pick_answers(found, question, ask, self._config.restore, self.rerankers)
        return self._block(ask, picked, present, started)

    def expect(self, question: str) -> None:
        """Announce a question block: start embedding the question, unless BM25 alone may be confident enough."""
        asked = without_speaker(parse_question(question), question)
        always = self._light is not None or threshold(mixture(asked.text, self._config.retrieval)) >= 1
        if self._config.restore.recipe == "default" and asked.terms and always:
            self._dense.read_ahead(asked)

    def settle(self, tenant: str, restored: Mapping[int, BlockKind], answer: str, now: float) -> Learnt:
        """Update the passages of blocks after the answer to their request: see used.Used.settle."""
        return self._used.settle(tenant, restored, answer, now)

    def judge(self, confidence: float, success: float, useful: bool) -> tuple[float, float]:
        """(confidence, success) of a passage after a person's verdict, at the configured rates."""
        return reinforce.settle(confidence, success, useful, self._rates)

    def warm(self, tenant: str, project: str, session: str, *, wait: bool = False) -> None:
        """Open the index that a restore of this session will use, about 10 us a passage, and read the passages that a
        loss block considers first, sentence by sentence; without a deadline. What questions compare passages by is then
        computed in the background, 0.2 ms a passage, with pauses three times as long.

        Call it from a worker thread when a compaction is near, so that the first block does not have to wait. It yields
        the scope to restores every few milliseconds.

        wait: return only when the background work is done
        """
        ask = Ask(tenant=tenant, project=project, session=session)
        self._warm_loss(ask)
        if self._config.restore.recipe == "default":
            load_tables()
        with self._scope(ask) as scope:
            asks = scope is not None and self._config.restore.recipe == "default"
            preparing = self._scopes.prepare(scope, self._precompute, least=1) if scope is not None and asks else None
        if wait and preparing is not None:
            preparing.join()

    def _precompute(self, passages: Passages, rows: Ints) -> None:
        """Compute what questions need of the passages at `rows`."""
        precompute(passages, rows, vectors=self._embedder is not None, reorders=self._light is not None)

    def _warm_loss(self, ask: Ask) -> None:
        """Read as much text as a loss block considers, WARM passages at a time."""
        at, left = 0, POOL_TIMES * self._config.restore.budget_chars if self._config.restore.recipe == "default" else 0
        while left >= 0:
            with self._scope(ask) as scope:
                rows = [] if scope is None else scope.richest(math.inf)[at : at + WARM].tolist()
                if scope is None or not rows:
                    return
                left -= scope.read_for_loss(rows)
                contexts = Contexts(scope)
                contexts.read_around(rows)
                for row in rows:
                    contexts.of(row)
                at += WARM

    def open_large(self, progress: Callable[[int], AbstractContextManager[Callable[[int], None]]]) -> None:
        """Open the large scopes before any request. Takes seconds; run it in a thread of its own.

        progress: takes the total number of passages, and gives a function that takes how many more are done
        """
        chosen = that_fit(large_scopes(self._archive, self._config.restore.scope))
        if not chosen:
            return
        with progress(sum(n for _, n in chosen)) as advance:
            for key, _ in chosen:
                open_ahead(self._scopes, key, self._archive, advance)

    def forget(self) -> None:
        """Close everything that is open, since the archive may have forgotten some of it. It is read again when
        needed."""
        self._scopes.close()
        self._used.forget()

    def rest(self, unused_s: float) -> None:
        """No requests are arriving: free what is quickly read again, and close indexes unused for `unused_s`."""
        self._scopes.rest(unused_s)

    @property
    def index_bytes(self) -> int:
        """Memory held by the open BM25 indexes."""
        return self._scopes.index_bytes

    def close(self) -> None:
        """Save large indexes for the next start, and close everything. The archive must still be open."""
        self._scopes.keep(self._archive)
        self._scopes.close()
        self._dense.close()
        self.rerankers.close()

    # the scope

    @contextmanager
    def _scope(self, ask: Ask, unit: str = "passage") -> Iterator[Scope | None]:
        """The locked, up-to-date scope of the request; None if the deadline comes before anything is read."""
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
                if "restore:opening" not in ask.degraded:
                    ask.degraded.append("restore:opening")
            yield scope
        except Late:  # the request was too long to be read in time; the scope is sound
            raise
        except BaseException:
            self._scopes.forget(key)
            raise
        finally:
            scope.release()

    # the recipe of the paper

    def _paper(self, ask: Ask) -> Restored | None:
        """LANTERN as published: see restore/paper.py."""
        started = time.perf_counter()
        if ask.budget_chars <= pack.WRAPPER_CHARS:
            return None
        with self._scope(ask, "turn") as scope:
            if scope is None or not len(scope):
                return None
            present = Present(ask.present, ask.late)
            ranked = rank_turns(scope, present, ask, self._dense, self._config)
        picked = pick_turns(ranked, self._source, ask, self.rerankers)
        return self._block(ask, picked, present, started)

    # the block

    def _block(self, ask: Ask, picked: Picked, present: Present, started: float) -> Restored | None:
        """The part of `picked` that fits, rendered; None if nothing fits. started: time.perf_counter() value"""
        text, placed = fit(picked, ask, self._config.restore.untrusted)
        if not placed:
            return None
        with suppress(Late):  # then all terms of the passages count as their own when the answer is judged
            self._used.remember(ask.tenant, placed, present)
        return Restored(
            kind=picked.kind,
            text=text,
            placed=placed,
            considered=picked.considered,
            ms=(time.perf_counter() - started) * 1_000,
            degraded=tuple(ask.degraded),
        )


def _in_time(choose: Callable[[Ask], Restored | None], ask: Ask) -> Restored | None:
    """`choose(ask)`; None if the request is too long to be read by the deadline (noted in ask.degraded)."""
    try:
        return choose(ask)
    except Late:
        return None


def _open_light(path: str) -> tuple[Light | None, str]:
    """(the configured light reranker, ""), or (None, the reason): an unusable file only costs the reordering."""
    try:
        return open_light(path), ""
    except LightError as error:
        logging.getLogger(__name__).warning("rerank.light: %s", error)
        return None, str(error)
