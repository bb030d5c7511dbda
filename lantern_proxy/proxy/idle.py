"""What a proxy frees when no requests come: caches, which later requests fill again."""

import asyncio
import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lantern_proxy.proxy import Proxy

QUIET_S = 60.0
"""Without a request for so long, texts that were read are let go of."""
UNUSED_S = 3_600.0
"""Indexes that no restore has used for so long are closed."""


async def watch(proxy: "Proxy") -> None:
    """Rest whenever nobody asks; for a task of its own."""
    rested = 0.0
    while True:
        await asyncio.sleep(QUIET_S)
        now = time.monotonic()
        if proxy.came_at > rested and now - proxy.came_at >= QUIET_S:
            rested = now
            await rest(proxy)


async def rest(proxy: "Proxy", *, unused_s: float = UNUSED_S) -> None:
    """Let go now of texts, of sessions, and of indexes that were not used for `unused_s`; give the memory back."""
    proxy.let_go_of_texts()
    proxy.tenants.rest(time.time())
    restorer = proxy.writer.opened.restorer.ready
    if restorer is not None:
        await asyncio.to_thread(restorer.rest, unused_s)
    await asyncio.to_thread(_give_back)


def _give_back() -> None:
    """Give what is free to the system. glibc only: others do so by themselves."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).malloc_trim(0)
