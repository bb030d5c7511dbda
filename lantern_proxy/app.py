"""Routes, streaming, and the door: an ASGI application around one Proxy.

    POST .../chat/completions (and the other memory paths)   prepare, forward, relay, archive
    /lantern/...                                             ours: health, metrics, admin API
    everything else, any method                              passed through as it came

An answer's bytes go to the client as they arrive. Only the last ones are held until the turn is on disk, so that what a
client saw to its end is never lost (DESIGN section 2, durability).
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from lantern_proxy import admin
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder, available
from lantern_proxy.proxy import Exchange, Proxy
from lantern_proxy.upstream import Upstream, UpstreamAnswer, UpstreamError
from lantern_proxy.wire import protocol_of
from lantern_proxy.wire.http import Arrival, decoded, outgoing, returning
from lantern_proxy.wire.json import WireError
from lantern_proxy.wire.sse import TERMINAL_BYTES, is_terminal

log = logging.getLogger("lantern.app")

_KEPT_BYTES = 64 * 1024 * 1024
"""Most of an answer that is kept for the archive; the client gets all of it."""
_TOO_LONG = (
    "context_length", "context length", "context window", "maximum context", "prompt is too long", "too many tokens",
    "input is too long", "max_tokens", "token limit", "tokens > ",
)  # fmt: skip
"""How upstreams say that a request does not fit its model's window."""


def create(config: Config) -> Starlette:
    """The application; everything it owns lives from its start-up to its shutdown."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        embedder = _embedder(config)
        async with Upstream(config.upstream) as upstream:
            proxy = Proxy(config, embedder)
            app.state.proxy, app.state.upstream, app.state.started_at = proxy, upstream, time.time()
            if embedder is not None:
                embedder.start()
            try:
                yield
            finally:
                await asyncio.to_thread(proxy.close)

    routes = [Mount("/lantern", routes=admin.routes(config)), Route("/{path:path}", Door(), methods=None)]
    return Starlette(routes=routes, lifespan=lifespan)


def _embedder(config: Config) -> Embedder | None:
    wanted = config.embed.enabled == "on" or (config.embed.enabled == "auto" and available())
    return Embedder(config.embed.model, config.embed.cache_dir, config.embed.threads) if wanted else None


class Door:
    """Every path that is not ours. An ASGI application, since what passes here must not be wrapped or buffered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["app"].state
        arrival = _arrival(scope, b"")
        if arrival.header("upgrade").lower() == "websocket":
            await _answer(
                send,
                426,
                {"error": {"message": "lantern speaks HTTP here, no WebSocket; use POST"}},
                [(b"upgrade", b"HTTP/1.1")],
            )
            return
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        arrival = _arrival(scope, body)
        memory = scope["method"] == "POST" and protocol_of(arrival.path) is not None
        exchange = await state.proxy.prepare(arrival) if memory else None
        await _Relay(state.proxy, state.upstream, arrival, exchange, send).run(receive)


def _arrival(scope: Scope, body: bytes) -> Arrival:
    path = scope.get("raw_path", b"").split(b"?")[0].decode("latin-1") or scope["path"]
    return Arrival(
        method=scope["method"], path=path, query=scope["query_string"], headers=tuple(scope["headers"]), body=body
    )


@dataclass(slots=True)
class _Relay:
    """One answer on its way to the client. `exchange` is None where memory is off."""

    proxy: Proxy
    upstream: Upstream
    arrival: Arrival
    exchange: Exchange | None
    send: Send
    status: int = 0
    streamed: bool = False
    encoding: str = ""
    kept: bytearray = field(default_factory=bytearray)
    complete: bool = False
    archived: bool = False
    error: str = ""

    async def run(self, receive: Receive) -> None:
        """Forward and relay; a client that hangs up ends the upstream's work at once, and what came is archived."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, receive, tasks.cancel_scope)
                await self._forward()
                tasks.cancel_scope.cancel()
        finally:
            if self.exchange is not None and not self.archived:
                with anyio.CancelScope(shield=True):
                    await self._archive()

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.error = "the client hung up"
        scope.cancel()

    async def _forward(self) -> None:
        try:
            answer = await self._call()
        except UpstreamError as error:
            self.error, self.status = str(error), error.status
            told = self.exchange.told() if self.exchange else []
            await _answer(
                self.send, error.status, {"error": {"message": f"lantern: {error}", "type": "upstream_error"}}, told
            )
            return
        try:
            await self._relay(answer)
        finally:
            with anyio.CancelScope(shield=True):
                await answer.close()

    async def _call(self) -> UpstreamAnswer:
        """The upstream's answer; asked once more without our blocks when it refuses the request for its length."""
        arrival, exchange = self.arrival, self.exchange
        url = self.upstream.url(arrival.path, arrival.query, arrival.headers)
        if exchange is None:
            return await self.upstream.send(arrival.method, url, outgoing(arrival.headers), arrival.body)
        answer = await self.upstream.send(arrival.method, url, exchange.headers, exchange.body)
        if answer.status in (400, 413, 422) and exchange.inserts:
            body = b"".join([chunk async for chunk in answer.chunks])
            if any(words in body.lower().decode("utf-8", "replace") for words in _TOO_LONG):
                await answer.close()
                self.proxy.take_back(exchange, "restore:length")
                return await self.upstream.send(arrival.method, url, exchange.headers, exchange.body)
            return UpstreamAnswer(answer.status, answer.headers, _again(body), answer.response)
        return answer

    async def _relay(self, answer: UpstreamAnswer) -> None:
        self.status, self.encoding = answer.status, answer.header("content-encoding")
        self.streamed = answer.header("content-type").startswith("text/event-stream")
        headers = returning(list(answer.headers)) + (self.exchange.told() if self.exchange else [])
        await self.send({"type": "http.response.start", "status": answer.status, "headers": headers})
        length = int(answer.header("content-length") or -1)
        try:
            async for chunk in answer.chunks:
                await self._pass_on(chunk, length)
        except UpstreamError as error:
            self.error = str(error)
            raise _BrokenOff(str(error)) from error
        self.complete = True
        await self._archive()
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pass_on(self, chunk: bytes, length: int) -> None:
        """Give the client its bytes; before the last ones the turn is archived."""
        if self.exchange is not None and not self.archived:
            if len(self.kept) < _KEPT_BYTES:
                self.kept += chunk
            if (self.streamed and is_terminal(bytes(self.kept[-len(chunk) - TERMINAL_BYTES :]))) or len(
                self.kept
            ) == length:
                self.complete = True
                await self._archive()
        await self.send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _archive(self) -> None:
        """Archive once; wait for the disk, but not longer than a person would not notice."""
        if self.exchange is None or self.archived:
            return
        self.archived = True
        try:
            body = decoded(bytes(self.kept), self.encoding)
        except WireError:
            body = b""
            self.proxy.degraded["answer:encoding"] += 1
        writing = asyncio.ensure_future(
            self.proxy.finish(
                self.exchange, self.status, body, streamed=self.streamed, complete=self.complete, error=self.error
            )
        )
        done, _ = await asyncio.wait([writing], timeout=self.proxy.config.archive.hold_ms / 1000)
        if not done:
            self.proxy.degraded["archive:slow"] += 1


class _BrokenOff(Exception):
    """The upstream broke off mid-answer: the server closes the connection, so that the client sees it as broken too."""


async def _again(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


async def _answer(send: Send, status: int, body: object, headers: list[tuple[bytes, bytes]]) -> None:
    data = json.dumps(body).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": data})
