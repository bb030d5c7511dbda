"""Opens the large indexes of a starting server before they are needed, with a progress bar on a terminal."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lantern_proxy.app import App
    from lantern_proxy.restore.restorer import Restorer

log = logging.getLogger("lantern.serve")

_WAIT_S = 30.0
"""Longest wait for the archive to be open."""


def open_in_background(app: "App") -> None:
    """Open the large indexes of a starting server. Requests do not wait for it."""
    threading.Thread(target=_open, args=(app,), name="lantern-ahead", daemon=True).start()


def _open(app: "App") -> None:
    try:
        restorer = _restorer(app)
        if restorer is not None:
            restorer.open_large(_bar)
    except Exception as error:  # this thread has no caller; what is not open is opened by the restore that needs it
        log.debug("large indexes are not open yet: %s", error)


def _restorer(app: "App") -> "Restorer | None":
    """The restorer, once there is one; None if nothing restorable is archived, or if it takes too long."""
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        proxy = getattr(app.state, "proxy", None)
        if proxy is not None and proxy.writer.opened.archive is not None:
            made = proxy.writer.opened.restorer.made
            return made.result(_WAIT_S) if made else None
        time.sleep(0.1)
    return None


def _bar(total: int) -> AbstractContextManager[Callable[[int], None]]:
    if not sys.stderr.isatty():
        return contextlib.nullcontext(lambda _: None)
    from lantern_proxy.cli.render import counting

    return counting("opening indexes", total)
