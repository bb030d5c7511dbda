"""HTTP/1.1 from clients at the lowest cost: replaces uvicorn's own protocol.

    uvicorn.Config(app, http=ClientConnection, ...)

Requests of a connection are parsed with httptools and passed to the application (ASGI), one after another. Everything
that it answers within one step is sent in one write, so that a waiting client wakes up once. There is one timer per
connection, not one per request.

A refusal may be sent while its request is still arriving. Closing the connection then would reset it, which can discard
the answer before the client reads it; so the rest of the request is read and dropped for a while first (RFC 9112,
section 9.6). A request without exactly one Host header is answered with 400 (section 3.2).

Two old kinds of clients are supported. HTTP/1.0 has no chunks: an answer without a length ends with its connection (RFC
9112, section 6.3). And a client may close its sending side and still wait for the answer (section 9.6), as `nc` does.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from lantern_proxy.app_http1_call import CONTINUE, Call
from lantern_proxy.wire.http import Header, answer_json, failure

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

log = logging.getLogger("lantern.http")

_PROBE_AFTER_S = (0.05, 0.1, 1.0)
"""Seconds after a client's half-close: the first probe makes a dead peer reply, the second notices its reply."""
_LINGER_S = 5.0
"""Seconds for which the rest of an answered request is read before its connection is closed."""
_MOST_HEAD_BYTES = 1 << 20
"""A longer head, with what came with it, is refused: it could grow until memory is full."""
_REFUSED = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nInvalid HTTP request received."
)
_HOST = re.compile(rb"[\w.~!$&'()*+,;=%:\[\]-]*")
"""Characters of a host with its port (RFC 3986, section 3.2.2)."""


class ClientConnection(asyncio.Protocol):
    """One connection of a client; its requests are answered in order, also if they are pipelined."""

    def __init__(
        self, config: "Config", server_state: "ServerState", app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        if not config.loaded:
            config.load()
        self.loop = _loop or asyncio.get_running_loop()
        self._app = cast(ASGIApp, config.loaded_app)
        self._server, self._app_state = server_state, app_state
        self._connections: set[Any] = server_state.connections
        self._idle_s, self._idle_since = config.timeout_keep_alive, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._asgi = {"version": config.asgi_version, "spec_version": "2.3"}
        self._parser = self._new_parser()
        self._headers: list[tuple[bytes, bytes]] = []
        self._upgrade_headers: list[tuple[bytes, bytes]] = []
        """The headers of a request with an upgrade, until it is parsed again without that."""
        self._calls: deque[Call] = deque()
        """Unanswered requests; the first is being answered."""
        self._receiving: Call | None = None
        """The request whose body is still arriving."""
        self._paused = self._refused = self._stopping = False
        self._lingering = False
        """Is the last answer written, so that all further input is dropped?"""
        self._unread_bytes = 0
        """Bytes received since the last complete head or piece of a body: part of a head, or of chunk framing."""
        self.room: asyncio.Event | None = None
        """Set when the transport's buffer has room again; None while it has room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self._ends = get_local_addr(self.transport), get_remote_addr(self.transport)
        self._scheme = "https" if is_ssl(self.transport) else "http"
        self._start_idle_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        for call in self._calls:
            call.leave()
        self._calls.clear()
        self._receiving = None
        del self._parser  # a reference cycle that also holds parts of bodies: collecting it may take minutes

    def eof_received(self) -> bool:
        """True leaves our side open. With TLS there is no half-close; and during an answer of unknown length, which may
        take minutes, it means that the client has left."""
        call = self._calls[-1] if self._calls else None
        if call is None or call is self._receiving or self._scheme == "https" or call.is_sending_unframed:
            return False
        call.keep_alive = False
        if call.version != "1.0":  # which has no interim responses
            for after_s in _PROBE_AFTER_S:
                self.loop.call_later(after_s, self._probe, call)
        return True

    def _probe(self, call: "Call") -> None:
        """Probe whether the client is still there. A peer that has closed its socket resets the connection, which ends
        the request; for one that waits an interim response changes nothing (RFC 9110, section 15.2)."""
        if self._calls and call is self._calls[0] and not call.started and not self.transport.is_closing():
            self.transport.write(CONTINUE)

    def shutdown(self) -> None:
        """The server stops: close the connection as soon as no request is open."""
        self._stopping = True
        if not self._calls:
            self.transport.close()
        for call in self._calls:
            call.keep_alive = False

    # --- a request ---

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # data after the last request is not read
        return parser

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unread_bytes += len(data)
        try:
            rest: bytes | memoryview = data
            while rest:
                rest = self._parse(rest)
        except httptools.HttpParserError:
            self._refuse()
            return
        if self._unread_bytes > _MOST_HEAD_BYTES:
            self._refuse()

    def _parse(self, data: bytes | memoryview) -> bytes | memoryview:
        """Parse input. Returns what follows a head with an upgrade. Raises HttpParserError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            self._parse_without_upgrade()
            return memoryview(data)[wish.args[0] :]
        return b""

    def _parse_without_upgrade(self) -> None:
        """Parse a head again without its upgrade. Nothing is upgraded here, so a body or another request follows (RFC
        9110, section 7.8), which the parser would take for another protocol, or a body for the next request."""
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        if method == b"CONNECT":
            self._refuse()
            return
        lines = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        self._upgrade_headers, self._parser = self._headers, self._new_parser()
        self._parser.feed_data(b"%b %b HTTP/%b\r\n%b\r\n" % (method, self._url, version, b"".join(lines)))

    def _refuse(self) -> None:
        """Refuse input that is not HTTP. Not within an answer: earlier requests are answered first."""
        self._refused = True
        if self._lingering:
            return
        log.warning("a request that is not HTTP, or whose head never ends, is refused")
        if self._receiving is not None and len(self._calls) > 1:
            self._calls.pop()  # its body is not HTTP, and it had not been started
            self._receiving = None
        first = self._calls[0] if self._calls else None
        if first is not None and first is not self._receiving:
            self._calls[-1].keep_alive = False
            return
        if first is None or not first.started:
            self.transport.write(_REFUSED)
            self._hang_up()
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade() or self._lingering:
            return
        self._unread_bytes = 0
        self._headers, self._upgrade_headers = self._upgrade_headers or self._headers, []
        version = self._parser.get_http_version()
        fault = _host_error(self._headers, version)
        app = partial(_refuse_host, fault) if fault else self._app
        call = Call(self, app, self._scope(version), version != "1.0" and self._parser.should_keep_alive())
        self._headers = []  # what follows are trailers, which are dropped
        self._receiving = call
        self._calls.append(call)
        if len(self._calls) == 1:
            self._begin(call)
        else:
            self.pause_reading()

    def _scope(self, version: str) -> Scope:
        raw, _, query = self._url.partition(b"?")
        if raw[:1] != b"/" or b"#" in self._url:
            parsed = httptools.parse_url(self._url)
            raw, query = parsed.path or b"/", parsed.query or b""
        path, (server, client) = raw.decode("ascii"), self._ends
        return {
            "type": "http", "asgi": self._asgi, "http_version": version, "server": server, "client": client,
            "scheme": self._scheme, "root_path": "", "headers": self._headers, "state": self._app_state.copy(),
            "method": self._parser.get_method().decode("ascii"), "path": unquote(path) if "%" in path else path,
            "raw_path": raw, "query_string": query,
        }  # fmt: skip

    def _begin(self, call: "Call") -> None:
        task = self.loop.create_task(call.run())
        task.add_done_callback(self._server.tasks.discard)
        self._server.tasks.add(task)

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        if self._receiving is not None:
            self._receiving.take(body)

    def on_message_complete(self) -> None:
        self._unread_bytes = 0
        if self._receiving is not None:
            self._receiving.end()
            self._receiving = None
        if self._lingering:
            self.transport.close()

    def finished(self, call: "Call") -> None:
        """The first request is answered: start the next one, or wait for the client."""
        self._server.total_requests += 1
        self._calls.popleft()
        if not call.keep_alive:
            self._hang_up()
            return
        if self.transport.is_closing():
            return
        if self._calls:
            self._begin(self._calls[0])
            return
        self.resume_reading()
        self._start_idle_timer()

    def _hang_up(self) -> None:
        """The last answer is written. Close the connection when the request has arrived completely, its client leaves,
        or time is up; at once if nothing is arriving or the server stops."""
        ended = not self._refused and self._receiving is None
        if ended or self._stopping or self.transport.is_closing():
            self.transport.close()
            return
        self._lingering = True
        for call in self._calls:
            call.leave()
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_LINGER_S, self.transport.close)
        if self.transport.can_write_eof():  # impossible with TLS
            self.transport.write_eof()
        self.resume_reading()

    def _start_idle_timer(self) -> None:
        """No request is open: start the keep-alive timeout."""
        self._idle_since = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(self._idle_s, self._on_time)

    def _on_time(self) -> None:
        """Close the connection if it was idle for so long."""
        self._timer = None
        left_s = self._idle_since + self._idle_s - self.loop.time()
        if not self._calls and left_s > 0:
            self._timer = self.loop.call_later(left_s, self._on_time)
        elif not self._calls:
            self.transport.close()

    # --- flow ---

    def pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.room = asyncio.Event()

    def resume_writing(self) -> None:
        if self.room is not None:
            self.room.set()
            self.room = None


def _host_error(headers: Sequence[Header], version: str) -> str:
    """Why RFC 9112, section 3.2, requires a server to refuse a request, and the way out; "" if it does not.

    headers: names in lower case
    """
    hosts = [value for name, value in headers if name == b"host"]
    if not hosts:
        way_out = 'send one, as "Host: 127.0.0.1:8484"'
        return "" if version == "1.0" else f"this HTTP/{version} request has no Host header; {way_out}"
    if len(hosts) > 1:
        listed = ", ".join(repr(host.decode("latin-1")) for host in hosts)
        return f"this request has {len(hosts)} Host headers ({listed}); send one of them"
    if not _HOST.fullmatch(hosts[0]):
        return f"the Host header {hosts[0].decode('latin-1')!r} is no host; send its name and its port alone"
    return ""


async def _refuse_host(fault: str, _scope: Scope, _receive: Receive, send: Send) -> None:
    await answer_json(send, 400, failure("invalid_request_error", f"lantern: {fault}"), [(b"connection", b"close")])
