"""Where long work runs: in the event loop, one request at a time so that streams go on, or in threads.

Clients that ask at the same moment, as agents with several hands do, and answers that end at the same moment would
otherwise be read one after another, half a millisecond each, while the pieces of all streams wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from lantern_proxy.wire.http import TooLarge

INLINE_BYTES = 262_144
"""Bodies and answers of more bytes, once they are decoded, are read in a thread: other streams go on meanwhile."""
_LARGE_BYTES = 8 << 20
"""Bodies and answers of more bytes are read one at a time: each takes several times its length in memory."""

T = TypeVar("T")


class Gate:
    """Lets one piece of long work into the event loop at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def enter(self) -> None:
        """Wait for a turn: not at all where nobody else entered since the event loop last looked at its sockets, else
        one round of the loop for each who came before. The work is what follows up to the next `await` that waits."""
        loop = asyncio.get_running_loop()
        if self._taken:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiter)
            await waiter
        else:
            self._taken = True
            loop.call_soon(self._open, loop)

    def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the next one in: it goes on in the next round of the loop, after the loop has looked at the sockets. Only
        one round lies between two: in each, other threads may take the interpreter."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else it was cancelled: its client is gone
                waiter.set_result(None)
                loop.call_soon(self._open, loop)
                return
        self._taken = False


class BodyReader:
    """Reads bodies and answers: short ones in the event loop, long ones in threads, large ones one after the other."""

    def __init__(self) -> None:
        self._large = asyncio.Lock()

    async def read(self, size_bytes: int, work: Callable[[], T]) -> T:
        """What `work` returns. size_bytes: how much it has to read"""
        if size_bytes <= INLINE_BYTES:
            return work()
        if size_bytes <= _LARGE_BYTES:
            return await asyncio.to_thread(work)
        async with self._large:
            return await asyncio.to_thread(work)

    async def unpack(self, most_bytes: int, work: Callable[[int], T]) -> T:
        """What `work(limit)` returns, which decodes something and raises TooLarge when that grows beyond the limit.

        How long it becomes is not known before: `work` is tried with small limits first, and with `most_bytes` last.
        """
        for limit in (INLINE_BYTES, _LARGE_BYTES):
            if limit < most_bytes:
                with suppress(TooLarge):
                    return await self.read(limit, partial(work, limit))
        return await self.read(most_bytes, partial(work, most_bytes))
