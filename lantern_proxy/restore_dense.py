"""The dense channel of a restore: is it there, is it needed, is it healthy?"""

import time
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from lantern_proxy.archive import Archive, ArchiveError
from lantern_proxy.embed import Embedder, EmbedError
from lantern_proxy.rank import Floats
from lantern_proxy.restore_question import Question
from lantern_proxy.restore_scope import Scope
from lantern_proxy.route import lexical_is_sure

if TYPE_CHECKING:
    from lantern_proxy.restore import Ask

NEAREST = 512
"""Vectors looked at in scopes that hold more."""


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
        if _sure(lexical, question):
            return None
        reason = self._unready()
        if reason:
            ask.notes.append(reason)
            return None
        started = time.monotonic()
        try:
            near = self._nearest(scope, question.text)
        except (EmbedError, ArchiveError):
            self.breaker.record(False, time.monotonic())
            ask.notes.append("dense:failed")
            return None
        now = time.monotonic()
        self.breaker.record(now < max(ask.deadline, started), now)
        if not near:
            return None
        return scope.scatter(near, missing=min(score for _, score in near))

    def _unready(self) -> str:
        """Why there are no vectors now; empty when there are, or when nobody wants them."""
        if self._embedder is None:
            return "dense:off" if self._wanted else ""
        if self._embedder.state != "ready":
            return f"dense:{self._embedder.state}"
        if not self._archive.vectors:
            return "dense:no-vectors"
        return "dense:breaker" if self.breaker.open(time.monotonic()) else ""

    def _nearest(self, scope: Scope, text: str) -> list[tuple[int, float]]:
        if self._embedder is None:
            return []
        vector = self._embedder.embed([text])[0]
        own, key = self._archive.of(scope.key.tenant), scope.key
        ids = None if key.project is None else [entry.passage.id for entry in scope.entries]
        return list(own.nearest(vector, NEAREST, ids=ids, session=key.session, unit=key.unit))


def _sure(lexical: Floats, question: Question) -> bool:
    if len(question.terms) < 2 or len(lexical) < 2:
        return False
    top = sorted(lexical.tolist(), reverse=True)[:2]
    return lexical_is_sure(top, tau=0.6)
