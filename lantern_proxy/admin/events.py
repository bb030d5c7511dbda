"""GET /lantern/api/events: what happens, live, as server-sent events.

    event: request        each answered request: {"id", "session", "event", "restored", "chars", "ms", "status", ...}
    event: compaction     the same, if the request lacks part of what its session held
    event: restore        the same, if it brought new blocks
    event: change         somebody judged, pinned, corrected or removed something: {"what", ...}

Each reader has its own queue. One that falls behind is disconnected; its browser reconnects and reloads the page.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from lantern_proxy.access import FROM_WORKER
from lantern_proxy.turn import LOSSES

log = logging.getLogger("lantern.admin")

MAX_QUEUED = 256
"""Most events queued for one reader."""
MAX_READERS = 64
_KEEPALIVE_S = 15.0
"""A comment is sent after this long without an event, so that a dead connection is noticed."""
_END = b""


class Events:
    """The readers of the event stream. Used in the event loop; `stop` may be called from any thread."""

    def __init__(self) -> None:
        self._readers: set[asyncio.Queue[bytes]] = set()
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._readers)

    def on_request(self, exchange: Any, status: int) -> None:
        """Send a finished request to the readers. One of proxy.Proxy.listeners."""
        if not self._readers:
            return
        request = exchange.request
        fields = {
            "id": exchange.id, "tenant": exchange.tenant, "session": exchange.session, "event": exchange.event,
            "restored": exchange.restored, "chars": exchange.chars, "ms": round(exchange.ms, 2), "status": status,
            "at": exchange.at, "size": len(exchange.plain), "model": request.model if request else "",
            "degraded": list(dict.fromkeys(exchange.degraded)),
        }  # fmt: skip
        self.send("request", fields)
        if exchange.event in LOSSES:
            self.send("compaction", fields)
        if exchange.blocks:
            self.send("restore", fields)

    def send(self, kind: str, fields: dict[str, Any]) -> None:
        """Send an event to all readers; those with MAX_QUEUED unread events are disconnected."""
        frame = f"event: {kind}\ndata: {json.dumps(fields)}\n\n".encode()
        for queue in list(self._readers):
            try:
                queue.put_nowait(frame)
            except asyncio.QueueFull:
                self._disconnect(queue)

    def stop(self) -> None:
        """End all streams, so that a stopping server need not wait for open pages."""
        self._loop.call_soon_threadsafe(self._disconnect_all)

    def _disconnect_all(self) -> None:
        for queue in list(self._readers):
            self._disconnect(queue)

    def _disconnect(self, queue: "asyncio.Queue[bytes]") -> None:
        self._readers.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(_END)

    async def stream(self, peers: Sequence[AsyncIterator[bytes]] = ()) -> AsyncIterator[bytes]:
        """The events of one reader as they come, until it is disconnected.

        peers: such streams of other workers, whose events are merged into this one
        """
        queue: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED)
        self._readers.add(queue)
        relaying = [asyncio.create_task(self._relay(each, queue)) for each in peers]
        try:
            yield b"retry: 2000\n: lantern\n\n"
            while True:
                try:
                    frame = await asyncio.wait_for(queue.get(), _KEEPALIVE_S)
                except TimeoutError:
                    frame = b": still here\n\n"
                if frame == _END:
                    return
                yield frame
        finally:
            self._readers.discard(queue)
            for task in relaying:
                task.cancel()

    async def _relay(self, other: AsyncIterator[bytes], queue: "asyncio.Queue[bytes]") -> None:
        """Whole frames of another worker's stream; when that ends, the reader is disconnected and reconnects."""
        left = b""
        try:
            async for piece in other:
                *frames, left = (left + piece).split(b"\n\n")
                for frame in frames:
                    if frame.startswith(b"event:"):
                        queue.put_nowait(frame + b"\n\n")
        except Exception as error:  # that worker ended, or this reader is too slow
            log.debug("a worker's events end: %s", error)
        self._disconnect(queue)


async def events(request: Request) -> Response:
    """The stream; 503 if there are too many readers."""
    live: Events = request.app.state.events
    if len(live) >= MAX_READERS:
        message = f"{MAX_READERS} pages listen already; close one"
        return JSONResponse({"error": {"message": message}}, 503, {"retry-after": "5"})
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    peers, streams = request.app.state.peers, []
    if peers is not None and not request.scope.get(FROM_WORKER):
        streams = [peers.stream(number, request.scope) for number in peers.numbers if number != peers.number]
    return StreamingResponse(live.stream(streams), media_type="text/event-stream", headers=headers)
