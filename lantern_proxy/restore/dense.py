"""The dense channel of a restore: whether it is available, needed and healthy."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.analyze import informative, query_terms
from lantern_proxy.archive import Archive, ArchiveError
from lantern_proxy.embed import Embedder, ModelError
from lantern_proxy.rank import Floats
from lantern_proxy.restore.breaker import Breaker, Breakers
from lantern_proxy.restore.question import Question
from lantern_proxy.restore.scope import Scope
from lantern_proxy.signals.late import QuestionTokens, best_matches
from lantern_proxy.signals.word_similarity import Numbers

if TYPE_CHECKING:
    from lantern_proxy.restore.ask import Ask

Vector = npt.NDArray[np.float32]
MOST_PENDING = 16
"""Questions that are embedded ahead and not asked yet: those of requests under way."""

MOST_WORDS = 4_096
"""Cached words of questions with their index terms, the most recent ones."""

Embedded = tuple[Vector, QuestionTokens | None, float]
"""A question's vector, its token vectors, and the seconds that embedding took."""


class Meaning(Struct, frozen=True):
    """What vectors say about one question."""

    cosines: Floats
    """(n,) cosine of each passage; passages without a vector get the mean."""
    asked: QuestionTokens | None
    """The question's token vectors; None without late interaction."""


class Matches(Struct, frozen=True):
    """The result of late interaction with the passages that were compared."""

    best: Floats
    """(t, passages) highest cosine of each word that counts."""
    weights: Floats
    """(t,) idf of each word, above 0."""
    words: tuple[str, ...]
    """(t,) the words as written."""
    pieces: Numbers | None = None
    """(t,) as the shipped table has them; None if vectors were compared."""


class Dense:
    """Semantic similarity of a question and the passages of a scope."""

    def __init__(self, archive: Archive, embedder: Embedder | None, *, wanted: bool, slow_s: float = math.inf) -> None:
        """wanted: does the config ask for vectors? Then their absence is reported
        slow_s: an embedder that takes longer for a question, so that a restore is late, counts as a failure"""
        self._archive, self._embedder, self._wanted, self._slow_s = archive, embedder, wanted, slow_s
        self._breaker = Breaker()
        """For the embedder, which all tenants share."""
        self._breakers = Breakers()
        """For the vectors of each scope."""
        self._pending: dict[str, Future[Embedded]] = {}
        self._threads = ThreadPoolExecutor(2, "lantern-question")
        self._lock = Lock()

    def read_ahead(self, question: Question) -> None:
        """Embed the question in the background, so that a later compare() need not wait for all of it."""
        if self._embedder is None or self._unready():
            return
        with self._lock, suppress(RuntimeError):  # closed meanwhile
            if question.subject not in self._pending:
                while len(self._pending) >= MOST_PENDING:
                    self._pending.pop(next(iter(self._pending)))
                self._pending[question.subject] = self._threads.submit(self._embed, self._embedder, question.subject)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    @property
    def has_word_vectors(self) -> bool:
        """Does the embedder, ready or not, make word vectors that are comparable with the shipped ones? Then the
        passages' vectors are usable even if the question is not embedded."""
        return self._embedder is not None and not self._embedder.adapted and bool(self._embedder.recipe)

    def begin(self, scope: Scope, question: Question, ask: "Ask", *, skip: bool = False) -> bool:
        """Have the question embedded, so that compare() may be called. False if there is no embedder, if it is not
        ready or its circuit breaker is open (see ask.degraded), or if `skip`.

        skip: BM25 is confident enough that vectors are not needed (AgentIR's cascade)
        """
        reason = self._unready() or ("dense:breaker" if self._breakers.open(scope.key, time.monotonic()) else "")
        if reason:
            ask.degraded.append(reason)
        if self._embedder is None or reason or skip:
            return False
        self.read_ahead(question)
        return True

    def compare(self, scope: Scope, question: Question, ask: "Ask") -> Meaning | None:
        """Compare the question with every passage. None if there is nothing to compare, or on failure, see
        ask.degraded."""
        try:
            embedded = self._embedded(question.subject)
        except (ModelError, ArchiveError):
            self._breaker.record(False, time.monotonic())
            ask.degraded.append("dense:failed")
            return None
        if embedded is None:
            return None
        vector, asked, took_s = embedded
        began = time.monotonic()
        self._breaker.record(took_s <= self._slow_s or began < ask.deadline, began)
        try:
            cosines = scope.cosines(self._archive, vector)
        except ArchiveError:
            self._breakers.record(scope.key, False, time.monotonic())
            ask.degraded.append("dense:failed")
            return None
        now = time.monotonic()
        self._breakers.record(scope.key, now < ask.deadline or began >= ask.deadline, now)
        return None if cosines is None else Meaning(cosines, asked)

    def compare_words(self, scope: Scope, asked: QuestionTokens, rows: Sequence[int], ask: "Ask") -> Matches | None:
        """Match the question word by word with the passages at `rows`. None if there is nothing to compare, or on
        failure, see ask.degraded."""
        weights = np.array([rarity(scope, word) for word in asked.words])
        used = weights > 0
        if self._embedder is None or not used.any():
            return None
        try:
            passages = scope.tokens(self._archive, rows, self._embedder.recipe)
        except ArchiveError:
            ask.degraded.append("late:failed")
            return None
        if not any(map(len, passages)):
            return None
        words = tuple(word for word, counts in zip(asked.words, used.tolist(), strict=True) if counts)
        return Matches(best_matches(asked.vectors[used], passages), weights[used], words)

    @property
    def ready(self) -> bool:
        """Are vectors available now?"""
        return self._embedder is not None and not self._unready()

    def _unready(self) -> str:
        """Why vectors are not available now; empty if they are, or if the config does not ask for them."""
        if self._embedder is None:
            return "dense:off" if self._wanted else ""
        if self._embedder.state != "ready":
            return f"dense:{self._embedder.state}"
        if not self._archive.vectors:
            return "dense:no-vectors"
        return "dense:breaker" if self._breaker.open(time.monotonic()) else ""

    def _embedded(self, text: str) -> Embedded | None:
        """The embedded question; None if the archive has no vectors to compare it with."""
        model = self._archive.model
        if self._embedder is None or model is None:
            return None
        if model[0] != self._embedder.name:
            wrong = f"vectors are of {model[0]}, the embedder is {self._embedder.name}"
            raise ModelError(f"{wrong}; run `lantern reindex --vectors`")
        with self._lock:
            begun = self._pending.pop(text, None)
        return begun.result() if begun else self._embed(self._embedder, text)

    def _embed(self, embedder: Embedder, text: str) -> Embedded:
        began = time.monotonic()
        return *embedder.embed_question(text), time.monotonic() - began


def rarity(scope: Scope, word: str) -> float:
    """The idf of a question word; 0 for stop words and for words that steer a chat."""
    return max(map(scope.idf, _terms_of(word)), default=0.0)


@lru_cache(MOST_WORDS)
def _terms_of(word: str) -> tuple[str, ...]:
    return tuple(informative(query_terms(word)))
