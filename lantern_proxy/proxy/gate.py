"""Where long work runs: in the event loop, one request at a time so that streams go on, or in threads.

Requests that come at the same moment, as parallel agents send them, and answers that end at the same moment would
otherwise be parsed back to back, half a millisecond each, while the chunks of all streams wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from lantern_proxy.wire.http import TooLarge

INLINE_BYTES = 262_144
"""Larger bodies and answers (decoded) are parsed in a thread, so that other streams go on."""
_LARGE_BYTES = 8 << 20
"""Bodies and answers larger than this are parsed one at a time: each takes several times its size in memory."""

T = TypeVar("T")


class Gate:
    """Admits one piece of long work per round of the event loop, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def enter(self) -> None:
        """Wait for admission: not at all if nobody else entered since the event loop last polled its sockets, else one
        round of the loop for each one that came before. The work is what follows, up to the next `await` that
        suspends."""
        loop = asyncio.get_running_loop()
        if self._taken:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiter)
            await waiter
        else:
            self._taken = True
            loop.call_soon(self._open, loop)

    def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Admit the next one, which continues in the next round of the loop, after the loop has polled its sockets. Not
        later, since in every round other threads may take the interpreter."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else it was cancelled: its client is gone
                waiter.set_result(None)
                loop.call_soon(self._open, loop)
                return
        self._taken = False


class BodyReader:
    """Parses bodies and answers: small ones in the event loop, larger ones in threads, very large ones one at a
    time."""

    def __init__(self) -> None:
        self._large = asyncio.Lock()

    async def read(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Run `work`. size_bytes: how much it has to parse"""
        if size_bytes <= INLINE_BYTES:
            return work()
        if size_bytes <= _LARGE_BYTES:
            return await asyncio.to_thread(work)
        async with self._large:
            return await asyncio.to_thread(work)

    async def unpack(self, most_bytes: int, work: Callable[[int], T]) -> T:
        """Run `work(limit)`, which decodes something and raises TooLarge if the result grows beyond the limit.

        The decoded size is not known in advance: `work` is tried with small limits first, and with `most_bytes` last.
        """
        for limit in (INLINE_BYTES, _LARGE_BYTES):
            if limit < most_bytes:
                with suppress(TooLarge):
                    return await self.read(limit, partial(work, limit))
        return await self.read(most_bytes, partial(work, most_bytes))
