"""The restorer of an archive, created on first use.

What it needs is imported in a tenth of a second and takes 15 MB, which a proxy that has nothing to restore yet can do
without.
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
"""Seconds after which a restorer that could not be made is tried again, as other sick channels are."""
MADE_S = 5.0
"""Most seconds that a start, or the writer, waits for it; a slower one is there for a later request."""


class MakeRestorer(Protocol):
    """Restorer itself, or what stands in for it."""

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
    """Makes one restorer, in a thread of its own; another attempt when it could not be made. Close it while the archive
    is open: then there is none.

    make: None while there is no archive, either
    """

    def __init__(self, make: "Callable[[], Restorer] | None" = None) -> None:
        self._make = make
        self._lock = Lock()
        self._failed_at = 0.0
        self.made: Future[Restorer] | None = None
        """The last attempt; None while nobody wants one. It raises what making it raised, always an Exception."""

    def want(self) -> "Future[Restorer] | None":
        """Have it made, unless it is there: the restorer, or the attempt at one; None when there is none to be had."""
        with self._lock:
            make = self._make
            if make is None:
                return None
            if self.made is None or (self._has_failed and time.monotonic() - self._failed_at >= AGAIN_S):
                made: Future[Restorer] = Future()
                made.set_running_or_notify_cancel()  # one who no longer waits for it does not cancel it for the others
                Thread(target=self._run, args=(make, made), name="lantern-restorer", daemon=True).start()
                self.made = made
            return self.made

    def _run(self, make: "Callable[[], Restorer]", made: "Future[Restorer]") -> None:
        try:
            made.set_result(make())
        except BaseException as error:  # a panic of native code, too: who waits is a request, which must not end by it
            self._failed_at = time.monotonic()
            made.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    @property
    def _has_failed(self) -> bool:
        made = self.made
        return made is not None and made.done() and made.exception() is not None

    @property
    def ready(self) -> "Restorer | None":
        """The restorer; None while it is not made, or nobody wants one."""
        made = self.made
        return made.result() if made is not None and made.done() and made.exception() is None else None

    def close(self, timeout_s: float = MADE_S) -> None:
        """Waits for one that is being made; one that takes longer is closed when it is there."""
        with self._lock:
            self._make, made, self.made = None, self.made, None
        if made is not None:
            wait([made], timeout_s)
            made.add_done_callback(_close)


def _close(made: "Future[Restorer]") -> None:
    with suppress(Exception):
        made.result().close()
