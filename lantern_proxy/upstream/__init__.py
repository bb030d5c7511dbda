"""All outgoing requests, and which upstream a path belongs to.

    async with Upstream(config) as upstream:
        answer = await upstream.send("POST", "/v1/chat/completions", b"", headers, body)
        while chunk := await answer.chunk(): ...
        await answer.close()

Path, query, headers and bytes go out as they are given; nothing is decoded, no cookie is kept. Redirects are passed to
the client; one to a URL below the upstream's is rewritten, so that the client follows it through Lantern.
Requests go out by our own transport (upstream/http1.py), or by httpx where that lacks what is needed: a proxy named by
the environment, HTTP/2, credentials in the URL.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

from lantern_proxy.config import RouteConfig, UpstreamConfig
from lantern_proxy.upstream.connection import without_invalid_length
from lantern_proxy.upstream.errors import ConnectTimeout, RemoteProtocolError, TimeoutException, TransportError
from lantern_proxy.upstream.http1 import Answer, Body, Http1, Origin, host_of
from lantern_proxy.wire.http import first_segment, is_anthropics

if TYPE_CHECKING:
    import httpx

Headers = Sequence[tuple[bytes, bytes]]

_SAFE = "/%:?#[]@!$&'()*+,;=~"
"""Characters that stay unescaped in a URL's path (RFC 3986)."""
_API = frozenset(
    {
        "assistants", "audio", "batches", "chat", "completions", "containers", "conversations", "edits", "embeddings",
        "engines", "evals", "files", "fine_tuning", "images", "messages", "models", "moderations", "organization",
        "realtime", "responses", "skills", "threads", "uploads", "vector_stores", "videos",
    }
)  # fmt: skip
"""First segments of paths that clients also send without /v1."""


class UpstreamError(RuntimeError):
    """The upstream could not be reached, or its answer broke off. status: for the client, 502, or 504 for a timeout."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class UpstreamAnswer(Struct):
    """An answer whose head has arrived and whose body may still be on its way."""

    status: int
    headers: Headers
    """Names in lower case."""
    read_on: Callable[[], Awaitable[bytes]]
    """The part of the body that arrived since the last call, as soon as there is some; empty at its end."""
    end: Callable[[], object]
    """Returns the connection to the pool, or closes it if the body was not read to its end."""
    sent: Answer | None = None
    """The answer of our own transport; None if httpx made the call."""
    _again: list[bytes] | None = None
    """What was read ahead, until chunk() returns it; then empty until the next one."""

    def header(self, name: bytes) -> str:
        """The first value of a header by its lower-case name; "" if there is none."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""

    @property
    def is_here(self) -> bool:
        """Has the whole answer arrived? Then the next chunk, or the one just returned, is the last. False: unknown."""
        return self.sent is not None and self._again is None and self.sent.is_here

    @property
    def is_sending(self) -> bool:
        """Did the answer begin before its request was complete, and is the rest of that still being sent?"""
        return self.sent is not None and self.sent.is_sending

    async def read(self) -> bytes:
        """The whole body, still encoded, at once; `chunk()` returns it again. Raises UpstreamError.

        The connection is returned to the pool: an answer that was read need not be closed.
        """
        pieces = []
        try:
            while chunk := await self.chunk():
                pieces.append(chunk)
        finally:
            await self.close()
        body = b"".join(pieces)
        self._again, self.read_on = [body], _at_end  # another request may have its connection by now
        return body

    async def begin(self, is_enough: Callable[[bytes], bool], within_s: float) -> bytes:
        """The beginning of the body, until it is enough, the time is over or the body ends; `chunk()` returns it again.

        Empty if httpx made the call, which cannot be interrupted.
        """
        begun = b""
        try:
            async with asyncio.timeout(within_s):
                while self.sent is not None and not is_enough(begun) and (chunk := await self.chunk()):
                    begun += chunk
        except (TimeoutError, UpstreamError):  # the next chunk() raises it again
            pass
        except BaseException:
            await self.close()
            raise
        self._again = [begun] if begun else None
        return begun

    async def chunk(self) -> bytes:
        """The next bytes as they arrive, still encoded; empty at the end. Raises UpstreamError if the upstream breaks
        off. Not a generator: creating one for each answer costs more than calling this."""
        if self._again is not None:
            if self._again:
                return self._again.pop()
            self._again = None
        try:
            return await self.read_on()
        except TimeoutException as error:
            raise UpstreamError(f"upstream fell silent: {type(error).__name__}", 504) from error
        except TransportError as error:
            raise UpstreamError(f"upstream broke off its answer: {error or type(error).__name__}", 502) from error

    async def close(self) -> None:
        ended = self.end()
        if ended is not None:
            await cast(Awaitable[None], ended)


async def _at_end() -> bytes:
    return b""


class _BaseUrl(Struct, frozen=True):
    """An upstream's URL, parsed."""

    url: str
    name: str
    """Its host, and its port if the URL has one, for messages; also the proxy on the way to it."""
    origin: Origin
    host: bytes
    prefix: str
    root: str
    """The prefix without /v1."""

    @classmethod
    def of(cls, url: str) -> "_BaseUrl":
        parts, origin = urlsplit(url), Origin.of(url)
        name = parts.netloc.rpartition("@")[2]  # without credentials
        if proxy := proxy_of(origin):
            name += f" (by the proxy {proxy.partition('://')[2]} of the environment)"
        prefix = quote(f"{parts.path}?{parts.query}" if parts.query else parts.path, safe=_SAFE).rstrip("/")
        return cls(url, name, origin, host_of(origin), prefix, prefix.removesuffix("/v1"))

    @property
    def is_plain(self) -> bool:
        """Can our own transport make requests to it?"""
        return not ("@" in urlsplit(self.url).netloc or proxy_of(self.origin))


class Upstream:
    """Owns the connections: use it in an `async with`."""

    def __init__(self, config: UpstreamConfig) -> None:
        self._config = config
        self._openai, self._anthropic = (
            _BaseUrl.of(config.openai),
            _BaseUrl.of(f"{config.anthropic.rstrip('/').removesuffix('/v1')}/v1"),
        )
        urls = [route.url for route in config.routes if route.url and route.kind != "litellm"]
        self._bases = {url: _BaseUrl.of(url) for url in urls}
        self._litellm = {
            at: _litellm(config, route) for at, route in enumerate(config.routes) if route.kind == "litellm"
        }
        self._http1 = Http1(
            connect_s=config.connect_timeout_s, silence_s=config.read_timeout_s, connections=config.max_connections
        )
        known = (self._openai, self._anthropic, *self._bases.values())
        self._direct = frozenset() if config.http2 else frozenset(base.origin for base in known if base.is_plain)

    @cached_property
    def _client(self) -> "httpx.AsyncClient":
        from lantern_proxy.upstream import via_httpx

        return via_httpx.client(self._config)

    async def __aenter__(self) -> "Upstream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http1.aclose()
        made = [self._client] if "_client" in self.__dict__ else []
        for client in (*made, *self._litellm.values()):
            await client.aclose()

    def target(
        self, path: str, query: bytes, headers: Headers, route: RouteConfig | None = None
    ) -> tuple[_BaseUrl, bytes]:
        """The upstream for `path`, and the path and query to request there. path: as sent, percent-encoding kept.

        A path that is neither below /v1 nor part of the upstream's API is requested at its root.
        """
        below_v1 = path.startswith("/v1/")
        plain = path[3:] if below_v1 else path
        ours = self._anthropic if is_anthropics(path, headers) else self._openai
        base = self._bases[route.url] if route and route.url else ours
        known = below_v1 or first_segment(path) in _API
        wanted = ((base.prefix if known else base.root) + plain).encode("latin-1")
        return base, wanted + b"?" + query if query else wanted

    def route(self, path: str, model: str) -> int | None:
        """Index of the first of `upstream.routes` that fits; None if none does."""
        for at, route in enumerate(self._config.routes):
            if fnmatchcase(path, route.path) and fnmatchcase(model, route.model):
                return at
        return None

    async def send(
        self, method: str, path: str, query: bytes, headers: Headers, body: Body, *, model: str = ""
    ) -> UpstreamAnswer:
        """The answer's head; its body follows in `chunk()`. Raises UpstreamError if there is no answer.

        headers: names in lower case. A body that is still arriving is forwarded as it arrives, in chunks.
        model:   as the request names it, for `upstream.routes`; empty if it names none or was not read
        """
        at = self.route(path, model)
        host = "litellm"
        try:
            if at in self._litellm:
                return await _send_by_httpx(self._litellm[at], method, f"http://{host}{path}", None, headers, body)
            route = None if at is None else self._config.routes[at]
            base, target = self.target(path, query, headers, route)
            host = base.name
            if base.origin not in self._direct:
                answer = await _send_by_httpx(self._client, method, base.url, target, headers, body)
            else:
                sent = await self._http1.ask(base.origin, method.encode(), target, headers, body, host=base.host)
                answer = UpstreamAnswer(sent.status, sent.headers, sent.read, sent.close, sent)
        except TimeoutException as error:
            why = f"{type(error).__name__}, upstream.{self._exceeded_limit(error, at)}"
            raise UpstreamError(f"upstream {host} did not answer in time ({why})", 504) from error
        except TransportError as error:
            what = "failed" if isinstance(error, RemoteProtocolError) else "cannot be reached"
            raise UpstreamError(f"upstream {host} {what}: {error or type(error).__name__}", 502) from error
        location = answer.header(b"location") if 300 <= answer.status < 400 else ""
        if location and (redirect := self._redirect_path(location, base, target, path, headers, route)):
            forwarded = ((name, redirect if name == b"location" else value) for name, value in answer.headers)
            answer.headers = [*forwarded]
        return answer

    def _exceeded_limit(self, error: TimeoutException, at: int | None) -> str:
        """The setting that was exceeded, with its value, for the error message."""
        if at is not None and "timeout" in (params := self._config.routes[at].params):
            return f"routes[{at}].params.timeout is {params['timeout']}"
        is_connecting = isinstance(error, ConnectTimeout) and at not in self._litellm  # litellm has one timeout for all
        limit = "connect_timeout_s" if is_connecting else "read_timeout_s"
        return f"{limit} is {getattr(self._config, limit):g}"

    def _redirect_path(
        self, location: str, base: _BaseUrl, target: bytes, path: str, headers: Headers, route: RouteConfig | None
    ) -> bytes:
        """The path for a redirect to a URL below the upstream's, as the client has to request it from us; else "".

        A client that followed the original would miss the upstream's key, or repeat the prefix.
        """
        try:
            there = urlsplit(urljoin(base.url, urljoin(target.decode("latin-1"), location)))
            if Origin.of(there.geturl()) != base.origin or not there.path.startswith(f"{base.prefix}/"):
                return b""
        except ValueError:  # not a URL
            return b""
        below = there.path.removeprefix(base.prefix)
        paths = (f"/v1{below}", below) if path.startswith("/v1/") else (below, f"/v1{below}")
        found = next((p for p in paths if self.target(p, b"", headers, route)[1].decode("latin-1") == there.path), "")
        return (f"{found}?{there.query}" if found and there.query else found).encode("latin-1")


def _proxies() -> dict[str, str]:
    """Scheme -> proxy, from the environment, or from the system on Windows and macOS."""
    if sys.platform.startswith("linux") and not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}  # without importing urllib.request, which imports http.client and email
    from urllib.request import getproxies

    return getproxies()


def proxy_of(origin: Origin) -> str:
    """URL of the proxy for requests to `origin`, without its user and password; "" if there is none."""
    proxies = _proxies()
    proxy = proxies.get(origin.scheme) or proxies.get("all")
    if not proxy:
        return ""
    from urllib.request import proxy_bypass

    # not urlsplit: it may not be a URL, which is reported when it is used
    scheme, _, rest = (proxy if "://" in proxy else f"http://{proxy}").partition("://")
    by = f"{scheme}://{rest.rpartition('@')[2].partition('/')[0]}"
    return "" if proxy_bypass(f"{origin.host}:{origin.port}") else by


async def _send_by_httpx(
    client: "httpx.AsyncClient", method: str, url: str, target: bytes | None, headers: Headers, body: Body
) -> UpstreamAnswer:
    """The same as send(), by httpx."""
    from lantern_proxy.upstream import via_httpx

    sent = b"".join(body) if isinstance(body, list) else body
    response = await via_httpx.ask(client, method, url, target, headers, sent)
    headers_in = without_invalid_length([(name.lower(), value) for name, value in response.headers.raw])
    return UpstreamAnswer(response.status_code, headers_in, via_httpx.reader(response), response.aclose)


def _litellm(config: UpstreamConfig, route: RouteConfig) -> "httpx.AsyncClient":
    from lantern_proxy.upstream import via_httpx

    return via_httpx.litellm_client(config, route)
