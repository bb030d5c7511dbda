"""What a proxy frees when no requests come: caches, which later requests fill again."""

import asyncio
import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lantern_proxy.proxy import Proxy

QUIET_S = 60.0
"""Caches are cleared after so many seconds without a request."""
UNUSED_S = 3_600.0
"""Indexes that no restore used for so many seconds are closed."""


async def watch(proxy: "Proxy") -> None:
    """Call rest() whenever no requests come; run it as a task."""
    rested = 0.0
    while True:
        await asyncio.sleep(QUIET_S)
        now = time.monotonic()
        if proxy.came_at > rested and now - proxy.came_at >= QUIET_S:
            rested = now
            await rest(proxy)


async def rest(proxy: "Proxy", *, unused_s: float = UNUSED_S) -> None:
    """Drop cached texts, idle sessions, and indexes that were not used for `unused_s`; return the memory to the
    system."""
    proxy.let_go_of_texts()
    proxy.tenants.rest(time.time())
    restorer = proxy.writer.opened.restorer.ready
    if restorer is not None:
        await asyncio.to_thread(restorer.rest, unused_s)
    await asyncio.to_thread(_give_back)


def _give_back() -> None:
    """Return free memory to the system. Only glibc needs this; other allocators do so by themselves."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).malloc_trim(0)
