"""One connection to an upstream: an asyncio.Protocol that sends a request and parses its answer with httptools.

    connection.start(b"POST", head, body)
    await connection.head()                   # status, headers
    while chunk := await connection.read(): ...

It fails with a TransportError, or with Stale if the connection ended before any byte of an answer.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterable, Sequence
from contextlib import suppress
from typing import cast

import httptools

from lantern_proxy.upstream.errors import (
    ReadError,
    ReadTimeout,
    RemoteProtocolError,
    TransportError,
    WriteError,
    WriteTimeout,
)

_HIGH_BYTES = 256 * 1024
"""Bytes of an answer that may wait for a slow reader; beyond them reading from the upstream pauses."""
_ONE_WRITE_BYTES = 65_536
"""A body up to this size is sent together with its head, in one write."""

_ONE_READ_BYTES = 65_536

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class Stale(Exception):
    """The connection was closed before any byte of an answer. error: what to raise if there is no retry."""

    def __init__(self, error: TransportError) -> None:
        super().__init__(str(error))
        self.error = error


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, silence_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s
        self.is_closed, self.idle_since, self.uses = False, 0.0, 0
        self._method = b""
        self._error: Exception | None = None
        self._sending: asyncio.Task[None] | None = None
        """Sends a body that is still arriving. It continues after an early answer's head."""
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None
        """Set when the transport's buffer has room again; None while it has room."""
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._chunks: deque[bytes] = deque()
        self._begin(b"")
        self.complete = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    # --- a request ---

    def _begin(self, method: bytes) -> None:
        self._method = method
        self._parser = _parser(self)
        self.status, self.headers = 0, cast("list[tuple[bytes, bytes]]", [])
        self.head_done = self.complete = self.reusable = False
        self._seen = False
        """Did any byte of an answer arrive?"""
        self._to_the_end = False
        """Does the body end with its connection, since its head gives no length?"""
        self._mixed = self._closing = False
        """Does the head give both a length and chunks, or announce a close? Then the connection is not reused."""
        self._paused = False
        """Is reading from the transport paused, since the reader is slow?"""
        self._waiting_bytes, self._sent_all = 0, False
        self._chunks.clear()

    def start(self, method: bytes, head: bytes, body: list[bytes]) -> None:
        """Send a request whose body is complete. Raises Stale."""
        self._begin_use(method)
        self._touch()
        self._sent_all = True
        if sum(map(len, body)) <= _ONE_WRITE_BYTES:
            self._write(b"".join((head, *body)))
            return
        self._write(head)
        for piece in body:
            self._write(piece)

    async def upload(self, method: bytes, head: bytes, body: AsyncIterable[bytes], *, chunked: bool) -> None:
        """Send a request whose body is still arriving. Returns when it is sent, an answer began earlier, or the
        upstream closed.

        After an early answer the rest of the body is still sent until the answer is complete, unless that is a
        refusal. Raises Stale, and any error of `body`, as `read` does later.
        """
        self._begin_use(method)
        self._write(head)
        sending = self._sending = self._loop.create_task(self._send(body, chunked=chunked))
        sending.add_done_callback(self._sending_ended)
        try:
            while not (sending.done() or self._error is not None or self.head_done):
                await self._wait()
            if sending.done() and not sending.cancelled():
                sending.result()
        finally:
            if not self.head_done or self.status >= 400:
                sending.cancel()

    @property
    def is_sending(self) -> bool:
        """Is the body still arriving?"""
        return self._sending is not None and not self._sending.done()

    def _sending_ended(self, sending: "asyncio.Task[None]") -> None:
        """The body is sent, or no longer wanted: the silence timeout starts now."""
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, Exception):
            self._fail(error)
        self._wake()
        if not (self.complete or self.is_closed):
            self._touch()

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self, body: AsyncIterable[bytes], *, chunked: bool) -> None:
        """Send a whole body as fast as the transport takes it. A task of its own, since the client may stall."""
        async for piece in body:
            if piece:
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if self._room is not None:
                self._touch()
                await self._room.wait()
        self._sent_all = True
        if chunked:
            self._write(b"0\r\n\r\n")

    def _begin_use(self, method: bytes) -> None:
        if self.is_closed:  # by a server that accepted the connection and ended
            raise Stale(ReadError("the server closed the connection at once"))
        self._begin(method)
        self.uses += 1

    def _write(self, data: bytes) -> None:
        """Write, unless the connection has ended: connection_lost has reported why."""
        if not self.is_closed:
            self.transport.write(data)

    async def head(self) -> None:
        """Wait for status and headers. Raises Stale or a TransportError."""
        while not self.head_done:
            if self._error is not None:
                if isinstance(self._error, TransportError) and not self._seen:
                    raise Stale(self._error)
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """The part of the body that arrived and was not read yet, as soon as there is some; empty at its end."""
        while not self._chunks:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        data = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._waiting_bytes = 0
        self._read_on()
        return data

    def _read_on(self) -> None:
        """Read from the transport again, if that was paused."""
        if self._paused:
            self._paused = False
            self._touch()
            if not self.is_closed:
                self.transport.resume_reading()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Close the connection, whatever it is doing."""
        if not self.is_closed:
            self.is_closed = True
            self.transport.abort()
        self._fail(ReadError("connection closed"))

    def _fail(self, error: Exception) -> None:
        if self._error is None and not self.complete:
            self._error = error
        self._wake()

    # --- timeouts ---

    def _touch(self) -> None:
        """Restart the silence timeout. One timer serves many of these calls."""
        self._deadline = self._loop.time() + self._silence_s
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.complete or self.is_closed or self._paused:
            return
        if self.is_sending and self._room is None:  # the client is silent, not the upstream
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._on_time)
            return
        if self._room is not None:
            self._fail(WriteTimeout("the upstream does not take what is sent"))
        else:
            self._fail(ReadTimeout("the upstream sends nothing"))
        self.close()

    # --- callbacks of the transport ---

    def pause_writing(self) -> None:
        self._room = asyncio.Event()

    def resume_writing(self) -> None:
        self._deadline = self._loop.time() + self._silence_s
        if self._room is not None:
            self._room.set()
            self._room = None

    def data_received(self, data: bytes) -> None:
        if self.complete:  # data after the answer belongs to no request
            self.close()
            return
        self._seen = True
        self._deadline = self._loop.time() + self._silence_s
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(RemoteProtocolError("the upstream switched protocols, which nobody asked for"))
            self.close()
        except httptools.HttpParserError as error:
            if self.complete:  # a complete answer with something invalid after it: the answer counts
                self.reusable = False
            else:
                self._fail(RemoteProtocolError(f"it answered what is not HTTP ({error or type(error).__name__})"))
            self.close()
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        if exc is not None and self._error is None and not self.complete:
            self._read_remaining()
        self.reusable = False
        self._stop_sending()
        if self._timer is not None:
            self._timer.cancel()
        if self._to_the_end and exc is None and self._error is None:
            self.complete = True
        elif exc is not None and not isinstance(exc, ConnectionResetError) and self._room is not None:
            self._fail(WriteError(str(exc)))
        elif exc is not None:
            self._fail(ReadError(str(exc)))
        elif not self._seen:
            self._fail(RemoteProtocolError("Server disconnected without sending a response."))
        else:
            self._fail(RemoteProtocolError("peer closed connection without sending complete message body"))
        self._wake()

    def _read_remaining(self) -> None:
        """Read what arrived before the connection broke: an upstream that refuses a body without reading it resets the
        connection, and our write fails before its refusal is read. With TLS it stays unread."""
        sock = self.transport.get_extra_info("socket")
        if sock is None or self.transport.get_extra_info("sslcontext") is not None:
            return
        with suppress(OSError), sock.dup() as rest:
            while not (self.complete or self._error) and (data := rest.recv(_ONE_READ_BYTES)):
                self.data_received(data)

    # --- callbacks of the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_done:  # else it is a trailer, which is not forwarded
            self.headers.append((name.lower(), _CONTROL.sub(b" ", value)))  # RFC 9110, section 5.5

    def on_headers_complete(self) -> None:
        if self.complete:  # a second answer, without a request
            self.reusable = False
            return
        self.status = self._parser.get_status_code()
        if 100 <= self.status < 200:
            return
        self.head_done = True
        fields = dict(self.headers)  # one value per name is enough to see whether there is any
        chunked = b"transfer-encoding" in fields and _is_chunked(self.headers)
        self._mixed = chunked and b"content-length" in fields
        if self._mixed:
            self.headers = without_invalid_length(self.headers)
        headers = self.headers if b"connection" in fields else []
        ends = [value.lower() for name, value in headers if name == b"connection"]
        self._closing = any(b"close" in value for value in ends)
        bare = self._method == b"HEAD" or self.status in (204, 304)
        self._to_the_end = not (bare or chunked or b"content-length" in fields)
        if self._method == b"HEAD":  # the parser does not know that there is no body
            self._end()

    def on_body(self, body: bytes) -> None:
        if self.complete:
            self.reusable = False
            return
        self._chunks.append(body)
        self._waiting_bytes += len(body)
        if self._waiting_bytes > _HIGH_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.complete:
            return
        if 100 <= self.status < 200:
            self.status, self.headers = 0, []
        else:
            self._end()

    def _end(self) -> None:
        self.complete = True
        self._read_on()  # the reader may leave before it has read all: the next request would get no answer
        keep = self._method == b"HEAD" or self._parser.should_keep_alive()
        self._stop_sending()
        whole = self._sent_all and self._room is None and not (self._to_the_end or self._mixed)
        self.reusable = bool(keep) and not self._closing and whole


def without_invalid_length(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """An answer's headers, in lower case, without a length beside chunked encoding: the chunks count, and the length
    must not be forwarded (RFC 9112, section 6.3)."""
    return [pair for pair in headers if pair[0] != b"content-length"] if _is_chunked(headers) else headers


def _is_chunked(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(name == b"transfer-encoding" and b"chunked" in value.lower() for name, value in headers)


def _parser(connection: Connection) -> httptools.HttpResponseParser:
    """A parser as lenient as the HTTP clients of Python: no answer is lost for its form."""
    parser = httptools.HttpResponseParser(connection)
    parser.set_dangerous_leniencies(
        lenient_headers=True, lenient_chunked_length=True, lenient_optional_cr_before_lf=True,
        lenient_spaces_after_chunk_size=True,
    )  # fmt: skip
    return parser
