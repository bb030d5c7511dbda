"""One client request and its answer as HTTP/1.1 on the wire, for the connection in app_http1.py.

An invalid answer is not sent as a valid one: a head with a line break in a header becomes a 500, and a body shorter or
longer than announced is broken off.
"""

import asyncio
import logging
import re
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Scope

if TYPE_CHECKING:
    from lantern_proxy.app_http1 import ClientConnection

log = logging.getLogger("lantern.http")

_HIGH_BYTES = 256 * 1024
"""Bytes of a body that may wait for the application; beyond them reading from the client pauses."""
_ONE_WRITE_BYTES = 65_536
"""A piece of a body up to this size is sent in one write with what precedes it."""
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BODILESS = (204, 304)
"""Answers that have no body, whatever their headers say."""
_FAILED = (b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21"), (b"connection", b"close")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""An interim response: the client may send the body."""


class Call:
    """One request and its answer: the `receive` and `send` of an application."""

    __slots__ = (
        "_app", "_chunked", "_complete", "_connection", "_ended", "_expects", "_gone", "_head", "_left", "_pieces",
        "_scope", "_size", "_told_end", "_waiter", "keep_alive", "started",
    )  # fmt: skip

    def __init__(self, connection: "ClientConnection", app: ASGIApp, scope: Scope, keep_alive: bool) -> None:
        self._connection, self._app, self._scope, self.keep_alive = connection, app, scope, keep_alive
        asks = dict(scope["headers"]).get(b"expect", b"").lower() == b"100-continue"
        self._expects = asks and self.version != "1.0"  # which has no interim responses (RFC 9110, section 10.1.1)
        self._pieces: deque[bytes] = deque()
        """Parts of the body that arrived and were not asked for yet."""
        self._size = 0
        self._ended = self._told_end = self._gone = False
        self._waiter: asyncio.Future[None] | None = None
        self.started = self._complete = self._chunked = False
        self._head = b""
        """Sent together with the first part of the body if that follows at once, else alone."""
        self._left: int | None = 0
        """Bytes of the body still to come by its content-length; None: it ends with its connection."""

    @property
    def version(self) -> str:
        return str(self._scope["http_version"])

    @property
    def is_sending_unframed(self) -> bool:
        return self.started and not self._left

    # what the client sends

    def take(self, body: bytes) -> None:
        if self._complete:
            return
        self._pieces.append(body)
        self._size += len(body)
        if self._waiter is not None:
            self._wake()
        elif self._size > _HIGH_BYTES:
            self._connection.pause_reading()

    def end(self) -> None:
        """Note that the whole body has arrived."""
        self._ended = True
        self._wake()

    def leave(self) -> None:
        """Note that the client has disconnected."""
        self._gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._waiter = None

    async def receive(self) -> Message:
        if self._expects:
            self._expects = False
            if not (self.started or self._gone or self._connection.transport.is_closing()):
                self._connection.transport.write(CONTINUE)
        while not (self._gone or self._complete or self._pieces or self._ended > self._told_end):
            self._connection.resume_reading()
            self._waiter = self._connection.loop.create_future()
            await self._waiter
        if self._gone or self._complete:
            return {"type": "http.disconnect"}
        body = self._pieces.popleft() if self._pieces else b""
        self._size -= len(body)
        self._told_end = self._ended and not self._pieces
        return {"type": "http.request", "body": body, "more_body": not self._told_end}

    # what the application answers

    async def run(self) -> None:
        try:
            await self._app(self._scope, self.receive, self.send)
            if not self._complete and not self._gone:  # a broken upstream has been reported already
                log.log(
                    logging.DEBUG if self.started else logging.ERROR,
                    "%s %s was not answered to its end",
                    self._scope["method"],
                    self._scope["path"],
                )
                await self._fail()
        except asyncio.CancelledError:  # the server stops, and has waited long enough
            log.warning("%s %s was cut off by the stop", self._scope["method"], self._scope["path"])
            await self._fail()
        except BaseException:
            log.exception("%s %s failed", self._scope["method"], self._scope["path"])
            await self._fail()

    async def _fail(self) -> None:
        if self.started and not self._complete:
            self._connection.transport.close()  # incomplete, so that the client sees that it is broken
        elif not self.started:
            await self.send({"type": "http.response.start", "status": 500, "headers": _FAILED})
            await self.send({"type": "http.response.body", "body": b"Internal Server Error"})

    async def send(self, message: Message) -> None:
        """ASGI's send. RuntimeError for an invalid answer: an incomplete one is better than a wrong one."""
        while self._connection.room is not None and not self._gone:
            await self._connection.room.wait()
        if self._gone:
            return
        if not self.started:
            self._start(message["status"], message["headers"])
        elif self._complete or message["type"] != "http.response.body":
            raise RuntimeError(f"{message['type']} amid an answer, or behind its end")
        else:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        bare = self._scope["method"] == "HEAD" or status in _BODILESS
        framed = closing = self._chunked = False
        for name, value in headers:
            lower = name.lower()
            if lower == b"content-length":
                self._left, framed = int(value), True
            elif lower == b"transfer-encoding":
                self._chunked = framed = True
            elif lower == b"connection" and b"close" in value.lower():
                self.keep_alive, closing = False, True
            lines.append(b"%b: %b\r\n" % (lower, value))
        if bare:
            self._left, self._chunked = 0, False
        if not self.keep_alive and not closing:
            lines.append(b"connection: close\r\n")
        if not bare and not framed and self.version == "1.0":
            self._left = None
        elif not bare and not framed:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or _CONTROL.search(head):
            raise RuntimeError("a header of the answer holds a line break or another control character")
        self.started, self._head = True, head + b"\r\n"
        self._connection.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send the head alone: no part of the body followed at once."""
        if self._head and not self._gone:
            self._connection.transport.write(self._head)
            self._head = b""

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._chunked:
            end = b"" if more else b"0\r\n\r\n"
            data = b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
        elif self._scope["method"] == "HEAD":
            data = b""
        else:
            data = body
            self._count(len(body))
        if len(data) <= _ONE_WRITE_BYTES:
            data = self._head + data
        else:
            self._flush()
        self._head = b""
        if data:
            self._connection.transport.write(data)
        if not more:
            self._finish()

    def _count(self, size: int) -> None:
        if self._left is None:
            return
        self._left -= size
        if self._left < 0:
            self._flush()
            raise RuntimeError("more of a body than its content-length")

    def _finish(self) -> None:
        if self._left:
            raise RuntimeError(f"{self._left} bytes less of a body than its content-length")
        self._complete = True
        self._wake()
        self._connection.finished(self)
