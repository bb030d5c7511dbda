"""The dense channel of a restore: is it there, is it needed, is it healthy?"""

import time
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from lantern_proxy.archive import Archive, ArchiveError
from lantern_proxy.embed import Embedder, EmbedError
from lantern_proxy.rank import Floats
from lantern_proxy.restore_question import Question, coverage, masses
from lantern_proxy.restore_scope import Scope
from lantern_proxy.route import lexical_is_sure

if TYPE_CHECKING:
    from lantern_proxy.restore import Ask

TAU = 0.5
"""Of AgentIR's cascade; 1 would always look at vectors."""


@dataclass(slots=True)
class Breaker:
    """Keeps a sick channel off: after `limit` failures in a row, for `rest_s` seconds. Thread-safe."""

    limit: int = 3
    rest_s: float = 30.0
    _failures: int = 0
    _until: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def open(self, now: float) -> bool:
        """Is the channel off? now: time.monotonic()"""
        with self._lock:
            return now < self._until

    def record(self, ok: bool, now: float) -> None:
        with self._lock:
            self._failures = 0 if ok else self._failures + 1
            if self._failures >= self.limit:
                self._until, self._failures = now + self.rest_s, 0


class Dense:
    """Cosines of a question with the passages of a scope."""

    def __init__(self, archive: Archive, embedder: Embedder | None, *, wanted: bool) -> None:
        """wanted: whether the config asks for vectors, so that their absence is worth telling"""
        self._archive, self._embedder, self._wanted = archive, embedder, wanted
        self.breaker = Breaker()

    def cosines(self, scope: Scope, question: Question, lexical: Floats, ask: "Ask") -> Floats | None:
        """(n,) cosine of each entry; those without a vector, or far away, get the lowest. None: skipped, see ask.notes.

        lexical: BM25 scores; when they are sure the channel is not needed (AgentIR's cascade). Empty: always look.
        """
        if _sure(scope, lexical, question):
            return None
        reason = self._unready()
        if reason:
            ask.notes.append(reason)
            return None
        try:
            found = self._cosines(scope, question.text)
        except (EmbedError, ArchiveError):
            self.breaker.record(False, time.monotonic())
            ask.notes.append("dense:failed")
            return None
        now = time.monotonic()
        self.breaker.record(now < ask.deadline, now)
        return found

    def _unready(self) -> str:
        """Why there are no vectors now; empty when there are, or when nobody wants them."""
        if self._embedder is None:
            return "dense:off" if self._wanted else ""
        if self._embedder.state != "ready":
            return f"dense:{self._embedder.state}"
        if not self._archive.vectors:
            return "dense:no-vectors"
        return "dense:breaker" if self.breaker.open(time.monotonic()) else ""

    def _cosines(self, scope: Scope, text: str) -> Floats | None:
        if self._embedder is None:
            return None
        model = self._archive.model
        if model is None:
            return None
        if model[0] != self._embedder.name:
            raise EmbedError(f"vectors are of {model[0]}, the embedder is {self._embedder.name}; run `lantern reindex`")
        return scope.cosines(self._archive, self._embedder.embed([text])[0])


def _sure(scope: Scope, lexical: Floats, question: Question) -> bool:
    """Is one passage far ahead, and does it hold most of what is asked for? One rare word alone proves little."""
    if len(question.terms) < 2 or len(lexical) < 2:
        return False
    first, second = np.argsort(-lexical, kind="stable")[:2].tolist()
    return (
        lexical_is_sure([lexical[first], lexical[second]], tau=TAU)
        and coverage(masses(scope, question), scope.entries[first].words) >= 0.8
    )
