"""The ASGI application around one Proxy: which requests are for an upstream, and which for Lantern itself.

POST .../chat/completions (and the other memory paths)   prepare, forward, relay, archive
/lantern/...                                             ours: health, metrics, admin API
everything else, any method                              passed through unchanged

The pages and the API below /lantern use starlette, which is imported when one of them is first requested.
/lantern/health does not need it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from lantern_proxy.access import FROM_WORKER, AccessControl
from lantern_proxy.access_admin import AdminAccess
from lantern_proxy.admin.health import health
from lantern_proxy.app_place import WorkerPlace
from lantern_proxy.app_workers import STREAMED_BYTES, Peers
from lantern_proxy.config import Config
from lantern_proxy.proxy import Proxy
from lantern_proxy.proxy.idle import watch
from lantern_proxy.proxy.lazy_restorer import MakeRestorer, make_restorer
from lantern_proxy.proxy.relay import Relay, Upload, whole_body
from lantern_proxy.proxy.stored_answers import AnswerCopy
from lantern_proxy.trace import Tracer, is_on
from lantern_proxy.upstream import Upstream
from lantern_proxy.wire import protocol_of
from lantern_proxy.wire.http import Arrival, answer_json, failure

if TYPE_CHECKING:
    from lantern_proxy.embed import Embedder

_NOT_A_WORKER = failure("permission_error", "this port is for lantern's own workers; use the one it serves on")
_NO_WEBSOCKET = failure("upgrade_required", "lantern: no WebSocket here; use POST, or call the provider itself")


class App:
    """The ASGI application. Requests for an upstream go straight to `_serve_proxied`, without middleware or routing."""

    def __init__(self, config: Config, lifespan: "Callable[[App], AbstractAsyncContextManager[None]]") -> None:
        self.state = SimpleNamespace(peers=None)
        """State for endpoints: proxy, upstream, access, peers, started_at; and events, after the first request for a
        page."""
        self._config, self.lifespan = config, lifespan
        self.failure: Exception | None = None
        """The exception that kept it from starting, for whoever runs the server to raise."""
        self._health = AdminAccess(config, health)
        self._pages: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] == "http" and scope["path"].startswith("/lantern"):
            await self._ours(scope, receive, send)
            return
        peers: Peers | None = self.state.peers
        if peers is not None:
            entered = peers.original_scope(scope)
            if entered is None:
                await answer_json(send, 403, _NOT_A_WORKER, [(b"connection", b"close")])
                return
            scope = entered
        await _serve_proxied(scope, receive, send)

    async def _ours(self, scope: Scope, receive: Receive, send: Send) -> None:
        peers: Peers | None = self.state.peers
        if peers is not None:
            scope = peers.original_scope(scope) or scope  # AdminAccess refuses strangers, here as elsewhere
        if scope["path"] == "/lantern/health":
            await self._health(scope, receive, send)
            return
        if self._pages is None:
            await asyncio.to_thread(import_module, "lantern_proxy.admin.routes")  # in a thread: streams go on meanwhile
        if self._pages is None:
            self._pages = _pages(self._config, self.state)
        await self._pages(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """ASGI's lifespan protocol. Errors at start-up and shutdown are raised, and reported by the server."""
        await receive()
        async with AsyncExitStack() as life:
            try:
                await life.enter_async_context(self.lifespan(self))
            except Exception as error:
                self.failure = error
                await send({"type": "lifespan.startup.failed", "message": f"startup failed: {error}"})
                raise
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def _pages(config: Config, state: SimpleNamespace) -> ASGIApp:
    """The application for everything below /lantern. Call it in the event loop."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    from lantern_proxy.admin.endpoint import any_path
    from lantern_proxy.admin.routes import attach, method_not_allowed, not_found, router

    attach(state)
    inside = any_path(Mount("/lantern", app=AdminAccess(config, router())))
    app = Starlette(routes=[Route("/lantern", not_found), inside], exception_handlers={405: method_not_allowed})
    app.state = state  # type: ignore[assignment]
    app.router.default, app.router.redirect_slashes = _serve_proxied, False
    return app


def create(
    config: Config, *, embedder: "Embedder | None" = None, make_restorer: MakeRestorer = make_restorer,
    place: WorkerPlace | None = None,
) -> App:  # fmt: skip
    """The application. Everything it owns lives from its start-up to its shutdown.

    embedder, make_restorer: as in Proxy
    place:                   which worker this is, if there are several
    """

    access = AccessControl(config)

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with AsyncExitStack() as owned:  # closed in reverse order, also if creating a later one fails
            state, state.access, state.started_at = app.state, access, time.time()
            state.upstream = await owned.enter_async_context(Upstream(config.upstream))
            tracer = Tracer(config.trace) if is_on(config.trace) else None
            if tracer is not None:
                owned.push_async_callback(asyncio.to_thread, tracer.close)
            keeper = place is None or place.number == 0
            state.proxy = proxy = Proxy(config, embedder=embedder, make_restorer=make_restorer, keeper=keeper)
            owned.push_async_callback(asyncio.to_thread, proxy.close)
            if tracer is not None:
                proxy.listeners.append(tracer.on_request)
            if place is not None:
                state.peers = Peers(place, config)
                owned.push_async_callback(state.peers.aclose)
            owned.callback(asyncio.create_task(watch(proxy)).cancel)
            yield

    return App(config, lifespan)


async def _serve_proxied(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a path that is not below /lantern: admit the request, find its session if it has one, relay the answer."""
    if scope["type"] != "http":
        return
    state, arrival = scope["app"].state, _arrival(scope)
    peers: Peers | None = state.peers
    if peers is not None and not scope.get(FROM_WORKER):
        owner = peers.owner(arrival, state.access, state.proxy.tenants)
        if owner != peers.number:
            await peers.forward(owner, scope, arrival, receive, send)
            return
    refused = state.access.admit(arrival, scope["client"][0] if scope["client"] else "")
    if refused is not None:
        await refused.send(send, arrival.for_page)
        return
    receive, send = state.access.measured(arrival, receive, send)
    if arrival.header("upgrade").lower() == "websocket":
        await answer_json(send, 426, _NO_WEBSOCKET, [(b"upgrade", b"HTTP/1.1"), (b"connection", b"close")])
        return
    memory = arrival.method == "POST" and protocol_of(arrival.path) is not None
    is_long = not memory and arrival.may_exceed(STREAMED_BYTES)
    body = Upload(receive) if is_long else await whole_body(receive, send)
    if body is None:
        return
    exchange = None
    if memory and not isinstance(body, Upload):
        arrival.body, body = b"".join(body), []
        exchange = await state.proxy.prepare(arrival)
    awaiting = None if memory else state.proxy.awaiting(arrival)
    if awaiting is None:
        await Relay(state.proxy, state.upstream, arrival, exchange, send, body).run(receive)
        return
    copy = AnswerCopy(send)
    await Relay(state.proxy, state.upstream, arrival, None, copy.send, body).run(receive)
    if copy.is_whole:
        await state.proxy.file_fetched(awaiting, copy)


def _arrival(scope: Scope) -> Arrival:
    path = scope.get("raw_path", b"").split(b"?")[0].decode("latin-1") or scope["path"]
    headers = tuple(scope["headers"])
    return Arrival(method=scope["method"], path=path, query=scope["query_string"], headers=headers, body=b"")
