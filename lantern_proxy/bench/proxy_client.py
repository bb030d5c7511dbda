"""A client that costs less than what it measures: one connection, one request at a time, asyncio and httptools.

connection = await dial("http://127.0.0.1:8484")
reply = await connection.post("/v1/chat/completions", body)
"""

import asyncio
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

_STAMP = re.compile(rb"@(\d{6,})@")


@dataclass(slots=True)
class Reply:
    """One answer. Times are time.monotonic_ns values."""

    status: int = 0
    begun: int = 0
    first: int = 0
    """When its first body bytes arrived."""
    done: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    """(when, bytes)"""

    @property
    def ms(self) -> float:
        return (self.done - self.begun) / 1e6

    @property
    def first_ms(self) -> float:
        return (self.first - self.begun) / 1e6

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def delays_ms(self) -> list[float]:
        """Delay from sending to receiving each event, for events with their time in them."""
        return [(at - int(stamp)) / 1e6 for at, piece in self.pieces for stamp in _STAMP.findall(piece)]


class Connection(asyncio.Protocol):
    """A keep-alive connection. Raises ConnectionError if the other side closes it during an answer."""

    def __init__(self, host: str, headers: Iterable[str] = ()) -> None:
        self._fixed = "".join(
            f"{line}\r\n"
            for line in (f"host: {host}", "content-type: application/json", "authorization: Bearer sk-bench", *headers)
        )
        self._waiting: asyncio.Future[Reply] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another base

    def post(self, path: str, body: bytes, *headers: str) -> "asyncio.Future[Reply]":
        more = "".join(f"{line}\r\n" for line in headers)
        head = f"POST {path} HTTP/1.1\r\n{self._fixed}{more}content-length: {len(body)}\r\n\r\n".encode("latin-1")
        self._parser = httptools.HttpResponseParser(self)
        self._waiting = asyncio.get_running_loop().create_future()
        self._reply = Reply(begun=time.monotonic_ns())
        if self._transport.is_closing():
            self._waiting.set_exception(ConnectionError("closed before the request"))
            return self._waiting
        self._transport.write(head + body if len(body) < 65_536 else head)
        if len(body) >= 65_536:
            self._transport.write(body)
        return self._waiting

    def data_received(self, data: bytes) -> None:
        self._now = time.monotonic_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.connection_lost(ConnectionError(str(error)))

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.startswith(b"x-lantern-"):
            self._reply.headers[name] = value

    def on_body(self, body: bytes) -> None:
        self._reply.first = self._reply.first or self._now
        self._reply.pieces.append((self._now, body))

    def on_message_complete(self) -> None:
        self._reply.status, self._reply.done = self._parser.get_status_code(), self._now
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(self._reply)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(f"closed within an answer: {exc}"))

    def close(self) -> None:
        self._transport.close()


async def dial(url: str, headers: Iterable[str] = ()) -> Connection:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(parts.netloc, headers), parts.hostname or "", parts.port or 80
    )
    return connection
