"""The restorer of an archive, made when it is first wanted: what it needs is imported in a tenth of a second and takes
15 MB, which a proxy that has nothing to restore yet can do without."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Protocol

from lantern_proxy.archive import Archive
from lantern_proxy.config import Config
from lantern_proxy.restore_budget import warm

if TYPE_CHECKING:
    from lantern_proxy.embed import Embedder
    from lantern_proxy.restore import Restorer


class MakeRestorer(Protocol):
    """Restorer itself, or what stands in for it."""

    def __call__(self, archive: Archive, config: Config, embedder: "Embedder | None") -> "Restorer": ...


def make_restorer(archive: Archive, config: Config, embedder: "Embedder | None") -> "Restorer":
    from lantern_proxy.restore import Restorer

    if config.restore.window_share:
        warm()
    return Restorer(archive, config, embedder)


class LateRestorer:
    """Makes one restorer, in a thread of its own. Close it while the archive is open."""

    def __init__(self, make: "Callable[[], Restorer]") -> None:
        self._make = make
        self._lock = Lock()
        self.made: Future[Restorer] | None = None
        """None while nobody wants one. It raises what making it raised."""

    def want(self) -> "Future[Restorer]":
        with self._lock:
            if self.made is None:
                made: Future[Restorer] = Future()
                made.set_running_or_notify_cancel()  # one who no longer waits for it does not cancel it for the others
                Thread(target=self._run, args=(made,), name="lantern-restorer", daemon=True).start()
                self.made = made
        return self.made

    def _run(self, made: "Future[Restorer]") -> None:
        try:
            made.set_result(self._make())
        except BaseException as error:
            made.set_exception(error)

    @property
    def ready(self) -> "Restorer | None":
        """None while it is not made."""
        made = self.made
        return made.result() if made is not None and made.done() and made.exception() is None else None

    def close(self) -> None:
        """Waits for one that is being made."""
        if self.made is not None:
            with suppress(Exception):
                self.made.result().close()
