"""Everything that goes out: one pooled httpx client, and which upstream a path belongs to.

    async with Upstream(config) as upstream:
        answer = await upstream.send("POST", "/v1/chat/completions", b"", headers, body)
        async for chunk in answer.chunks(): ...
        await answer.close()

Path, query, headers and bytes go out as they are given; redirects are not followed; nothing is decoded, no cookie kept.
"""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType

import httpx

from lantern_proxy.config import RouteConfig, UpstreamConfig
from lantern_proxy.upstream_litellm import LitellmTransport

Headers = Sequence[tuple[bytes, bytes]]

_API = frozenset(
    {
        "assistants", "audio", "batches", "chat", "completions", "containers", "conversations", "edits", "embeddings",
        "engines", "evals", "files", "fine_tuning", "images", "models", "moderations", "organization", "realtime",
        "responses", "skills", "threads", "uploads", "vector_stores", "videos",
    }
)  # fmt: skip
"""First segments of OpenAI's paths, which clients also send without /v1."""


class UpstreamError(RuntimeError):
    """The upstream could not be reached or broke off. status: what the client is told, 502, or 504 for a timeout."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """An answer whose head has come and whose body is still on its way."""

    status: int
    headers: Headers
    response: httpx.Response
    _again: list[bytes] = field(default_factory=list)

    def header(self, name: str) -> str:
        """Value of a header by its lower-case name, or empty."""
        return str(self.response.headers.get(name, ""))

    async def read(self) -> bytes:
        """The whole body, still encoded, at once; `chunks()` gives it again. Raises UpstreamError."""
        body = b"".join([chunk async for chunk in self.chunks()])
        self._again.append(body)
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        """Bytes as they arrive, still encoded. Raises UpstreamError when the upstream breaks off."""
        if self._again:
            yield self._again[0]
            return
        try:
            async for chunk in self.response.aiter_raw():
                yield chunk
        except httpx.TimeoutException as error:
            raise UpstreamError(f"upstream fell silent: {type(error).__name__}", 504) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise UpstreamError(f"upstream broke off its answer: {error or type(error).__name__}", 502) from error

    async def close(self) -> None:
        """Gives the connection back, or ends it when the body has not been read to its end."""
        await self.response.aclose()


class Upstream:
    """Owns the connections: use it in an `async with`."""

    def __init__(self, config: UpstreamConfig) -> None:
        self._openai, self._anthropic = httpx.URL(config.openai), httpx.URL(f"{config.anthropic}/v1")
        self._limits = httpx.Limits(
            max_connections=config.max_connections, max_keepalive_connections=256, keepalive_expiry=60
        )
        self._timeout = httpx.Timeout(config.read_timeout_s, connect=config.connect_timeout_s, pool=None)
        self._client = self._new_client(None, http2=config.http2)
        self._routes = [(route, self._client_of(route)) for route in config.routes]

    def _client_of(self, route: RouteConfig) -> httpx.AsyncClient:
        if route.kind != "litellm":
            return self._client
        base = {"api_base": route.url} if route.url else {}
        return self._new_client(LitellmTransport(route.target, {**base, **route.params}))

    def _new_client(self, transport: httpx.AsyncBaseTransport | None, *, http2: bool = False) -> httpx.AsyncClient:
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        return httpx.AsyncClient(
            transport=transport, timeout=self._timeout, limits=self._limits, http2=http2, follow_redirects=False,
            cookies=no_cookies,
        )  # fmt: skip

    async def __aenter__(self) -> "Upstream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in {self._client, *(client for _, client in self._routes)}:
            await client.aclose()

    def target(
        self, path: str, query: bytes, headers: Headers, route: RouteConfig | None = None
    ) -> tuple[httpx.URL, bytes]:
        """Whom a request for `path` goes to, and the path and query to ask there. path: as sent, percent-encoding kept.

        /v1/messages*, and everything an Anthropic SDK sends, belongs to Anthropic; all else to OpenAI. A path that is
        neither below /v1 nor one of OpenAI's is asked at the upstream's root.
        """
        below_v1 = path.startswith("/v1/")
        plain = path[3:] if below_v1 else path
        first = plain.strip("/").split("/", 1)[0]
        anthropic = first == "messages" or any(name == b"anthropic-version" for name, _ in headers)
        base = httpx.URL(route.url) if route and route.url else self._anthropic if anthropic else self._openai
        prefix = base.raw_path.decode("ascii").rstrip("/")
        if not (below_v1 or first in _API or first == "messages"):
            prefix = prefix.removesuffix("/v1")
        wanted = (prefix + plain).encode("latin-1")
        return base, wanted + b"?" + query if query else wanted

    def route(self, path: str, model: str) -> tuple[RouteConfig | None, httpx.AsyncClient]:
        """The first of `upstream.routes` that fits, and who calls it; None and the ordinary client when none does."""
        for route, client in self._routes:
            if fnmatchcase(path, route.path) and fnmatchcase(model, route.model):
                return route, client
        return None, self._client

    async def send(
        self, method: str, path: str, query: bytes, headers: Headers, body: bytes | AsyncIterable[bytes],
        *, model: str = "",
    ) -> UpstreamAnswer:  # fmt: skip
        """The answer's head; its body follows in `chunks()`. Raises UpstreamError when none comes.

        headers: names in lower case. A body that is still coming goes on as it comes, in chunks.
        model:   as the request names it, for `upstream.routes`; empty where it names none or was not read
        """
        route, client = self.route(path, model)
        if route is not None and route.kind == "litellm":
            base, extensions = httpx.URL(scheme="http", host="litellm", path=path), {}
        else:
            base, target = self.target(path, query, headers, route)
            extensions = {"target": target}
        request = httpx.Request(method, base, headers=[*headers], content=body or None, extensions=extensions)
        try:
            response = await client.send(request, stream=True)
        except httpx.TimeoutException as error:
            raise UpstreamError(f"upstream {base.host} did not answer in time: {type(error).__name__}", 504) from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            reason = str(error) or type(error).__name__
            raise UpstreamError(f"upstream {base.host} cannot be reached: {reason}", 502) from error
        return UpstreamAnswer(response.status_code, response.headers.raw, response)
