"""Long work of the event loop, one request's at a time, so that streams go on between two of them.

Clients that ask at the same moment, as agents with several hands do, and answers that end at the same moment would
otherwise be read one after another, half a millisecond each, while the pieces of all streams wait.
"""

import asyncio
from collections import deque


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
        """Let the next one in: its step comes with the next round of the loop, after a look at the sockets. More than
        one round between two is not worth it: each is a chance for other threads to take the interpreter."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else it was cancelled: its client is gone
                waiter.set_result(None)
                loop.call_soon(self._open, loop)
                return
        self._taken = False
