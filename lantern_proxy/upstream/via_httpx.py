"""Requests that httpx itself sends: through a proxy, over HTTP/2, with credentials in the URL, to litellm."""

import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from lantern_proxy.config import RouteConfig, UpstreamConfig
from lantern_proxy.upstream import errors
from lantern_proxy.upstream.dial import tls_context
from lantern_proxy.upstream.http1 import STALE_S, Headers, is_repeatable
from lantern_proxy.upstream.litellm import LitellmTransport


def client(config: UpstreamConfig) -> httpx.AsyncClient:
    """A client of httpx. Raises ConnectError if the environment names an unusable proxy or certificates."""
    return _client(config, None)


def litellm_client(config: UpstreamConfig, route: RouteConfig) -> httpx.AsyncClient:
    base = {"api_base": route.url} if route.url else {}
    return _client(config, LitellmTransport(route.target, {"timeout": config.read_timeout_s, **base, **route.params}))


def _client(config: UpstreamConfig, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    limits = httpx.Limits(max_connections=config.max_connections, max_keepalive_connections=256, keepalive_expiry=60)
    try:
        return httpx.AsyncClient(
            transport=transport, limits=limits, http2=config.http2 and transport is None, follow_redirects=False,
            timeout=httpx.Timeout(config.read_timeout_s, connect=config.connect_timeout_s, pool=None),
            cookies=no_cookies, verify=tls_context() if transport is None else True,
        )  # fmt: skip
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        lacks = isinstance(error, ImportError)  # only the extra for SOCKS can be missing
        reason = "it speaks SOCKS, and socksio is not installed" if lacks else error
        problem = f"the proxy that the environment names cannot be used ({reason})"
        remedy = "correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, or unset them"
        remedy = 'pip install "httpx[socks]>=0.28"' if lacks else remedy  # the first version with socks5h://
        raise errors.ConnectError(f"{problem}; {remedy}") from error


async def ask(
    client: httpx.AsyncClient, method: str, url: str, target: bytes | None, headers: Headers,
    body: bytes | AsyncIterable[bytes],
) -> httpx.Response:  # fmt: skip
    """The answer's head; its body follows in `reader()`. Raises the same errors as our own transport, and sends a
    request once more in the same cases.

    target: path and query to request, instead of the URL's
    """
    steps: list[str] = []

    async def note(step: str, _: Any) -> None:
        steps.append(step)

    with _errors_as_ours():
        request = httpx.Request(method, url, headers=[*headers], content=body or None, extensions={"trace": note})
        if target is not None:
            request.url = _RawUrl(url, target)
        while True:
            begun = time.monotonic()
            try:
                return await client.send(request, stream=True)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                was_idle = steps and not any("connect_tcp" in step for step in steps)  # none: litellm
                may_repeat = time.monotonic() - begun < STALE_S or is_repeatable(method.encode())
                if not (was_idle and may_repeat and isinstance(body, bytes)):
                    raise
            steps.clear()


class _RawUrl(httpx.URL):
    """A URL whose path and query are sent unchanged, without httpx's own quoting.

    The extension `target` of httpcore does the same, but would also change what a proxy is asked: CONNECT needs a host.
    """

    def __init__(self, url: str, target: bytes) -> None:
        super().__init__(url)
        self._target = target

    @property
    def raw_path(self) -> bytes:
        return self._target


def reader(response: httpx.Response) -> Callable[[], Awaitable[bytes]]:
    """A function that returns the body, still encoded, piece by piece, and b"" at its end."""
    return partial(anext, _raw(response), b"")


async def _raw(response: httpx.Response) -> AsyncIterator[bytes]:
    with _errors_as_ours():
        async for chunk in response.aiter_raw():
            if chunk:
                yield chunk


@contextmanager
def _errors_as_ours() -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        late = isinstance(error, httpx.TimeoutException)
        otherwise = errors.TimeoutException if late else errors.TransportError
        ours = getattr(errors, type(error).__name__, otherwise)
        raise ours(str(error) or type(error).__name__) from error
