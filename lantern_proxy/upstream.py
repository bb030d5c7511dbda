"""Everything that goes out: one pooled httpx client, and which upstream a path belongs to.

    async with Upstream(config) as upstream:
        answer = await upstream.send("POST", upstream.url("/v1/chat/completions", b"", headers), headers, body)
        async for chunk in answer.chunks: ...
        await answer.close()

Headers and bytes go out as they are given; redirects are not followed; nothing is decoded.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from types import TracebackType

import httpx

from lantern_proxy.config import UpstreamConfig

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
    """The upstream could not be reached or broke off. `status` is what the client is told: 502, or 504 for a timeout."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """An answer whose head has come and whose body is still on its way."""

    status: int
    headers: Headers
    chunks: AsyncGenerator[bytes, None]
    """Bytes as they arrive, still encoded. Raises UpstreamError when the upstream breaks off."""
    response: httpx.Response

    def header(self, name: str) -> str:
        """Value of a header by its lower-case name, or empty."""
        return str(self.response.headers.get(name, ""))

    async def close(self) -> None:
        """Gives the connection back, or ends it when the body has not been read to its end."""
        await self.response.aclose()


class Upstream:
    """Owns the connections: use it in an `async with`."""

    def __init__(self, config: UpstreamConfig) -> None:
        self._config = config
        limits = httpx.Limits(
            max_connections=config.max_connections, max_keepalive_connections=256, keepalive_expiry=60
        )
        timeout = httpx.Timeout(config.read_timeout_s, connect=config.connect_timeout_s, pool=None)
        self._client = httpx.AsyncClient(timeout=timeout, limits=limits, http2=config.http2, follow_redirects=False)

    async def __aenter__(self) -> "Upstream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    def url(self, path: str, query: bytes, headers: Headers) -> httpx.URL:
        """Where a request for `path` goes. path: as the client sent it, percent-encoding kept.

        /v1/messages*, and everything an Anthropic SDK sends, belongs to Anthropic; all else to OpenAI.
        """
        plain = path.removeprefix("/v1")
        first = plain.strip("/").split("/", 1)[0]
        anthropic = first == "messages" or any(name.lower() == b"anthropic-version" for name, _ in headers)
        base = self._config.anthropic + "/v1" if anthropic else self._config.openai
        if not (path.startswith("/v1/") or first in _API or first == "messages"):
            base, plain = base.removesuffix("/v1"), path  # a path of the user's own: the upstream's root
        return httpx.URL(base + plain, query=query) if query else httpx.URL(base + plain)

    async def send(self, method: str, url: httpx.URL, headers: Headers, body: bytes) -> UpstreamAnswer:
        """The answer's head; its body follows in `chunks`. Raises UpstreamError when none comes."""
        request = httpx.Request(method, url, headers=[*headers], content=body or None)
        try:
            response = await self._client.send(request, stream=True)
        except httpx.TimeoutException as error:
            raise UpstreamError(f"upstream {url.host} did not answer in time: {type(error).__name__}", 504) from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise UpstreamError(
                f"upstream {url.host} cannot be reached: {error or type(error).__name__}", 502
            ) from error
        return UpstreamAnswer(response.status_code, response.headers.raw, _chunks(response), response)


async def _chunks(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise UpstreamError(f"upstream broke off its answer: {error or type(error).__name__}", 502) from error
