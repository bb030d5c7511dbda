"""The restorer of an archive, created on first use.

Its imports take a tenth of a second and 15 MB, which a proxy that has nothing to restore yet can do without.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Protocol

from lantern_proxy.archive import Archive
from lantern_proxy.config import Config
from lantern_proxy.restore.budget import warm

if TYPE_CHECKING:
    from lantern_proxy.embed import Embedder
    from lantern_proxy.restore.restorer import Restorer
    from lantern_proxy.upstream.model_call import ModelCall

AGAIN_S = 30.0
"""Seconds until another attempt at creating a restorer that failed, as for other failing channels."""
MADE_S = 5.0
"""Most seconds that a start, or the writer, waits for it; a slower one is ready for a later request."""


class MakeRestorer(Protocol):
    """The constructor of Restorer, or a replacement of it."""

    def __call__(self, archive: Archive, config: Config, embedder: "Embedder | None") -> "Restorer": ...


def make_restorer(archive: Archive, config: Config, embedder: "Embedder | None") -> "Restorer":
    from lantern_proxy.restore.restorer import Restorer

    if config.restore.window_share:
        warm()
    return Restorer(archive, config, embedder)


def model_call(config: Config) -> "ModelCall":
    from lantern_proxy.upstream.model_call import ModelCall

    return ModelCall(config.rerank)


class LazyRestorer:
    """Creates one restorer, in a thread of its own, and tries again if that fails. Close it while the archive is open;
    afterwards there is none.

    make: None while there is no archive
    """

    def __init__(self, make: "Callable[[], Restorer] | None" = None) -> None:
        self._make = make
        self._lock = Lock()
        self._failed_at = 0.0
        self.made: Future[Restorer] | None = None
        """The last attempt; None before the first. It raises what creating it raised, always an Exception."""

    def want(self) -> "Future[Restorer] | None":
        """Start creating the restorer if needed. Returns the attempt, or the result; None if there can be none."""
        with self._lock:
            make = self._make
            if make is None:
                return None
            if self.made is None or (self._has_failed and time.monotonic() - self._failed_at >= AGAIN_S):
                made: Future[Restorer] = Future()
                made.set_running_or_notify_cancel()  # a caller that stops waiting must not cancel it for the others
                Thread(target=self._run, args=(make, made), name="lantern-restorer", daemon=True).start()
                self.made = made
            return self.made

    def _run(self, make: "Callable[[], Restorer]", made: "Future[Restorer]") -> None:
        try:
            made.set_result(make())
        except BaseException as error:  # a panic of native code, too: a waiting request must not end by it
            self._failed_at = time.monotonic()
            made.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    @property
    def _has_failed(self) -> bool:
        made = self.made
        return made is not None and made.done() and made.exception() is not None

    @property
    def ready(self) -> "Restorer | None":
        """The restorer; None until it is created."""
        made = self.made
        return made.result() if made is not None and made.done() and made.exception() is None else None

    def close(self, timeout_s: float = MADE_S) -> None:
        """Close the restorer, after waiting for an attempt in progress; a slower one is closed when it is created."""
        with self._lock:
            self._make, made, self.made = None, self.made, None
        if made is not None:
            wait([made], timeout_s)
            made.add_done_callback(_close)


def _close(made: "Future[Restorer]") -> None:
    with suppress(Exception):
        made.result().close()
