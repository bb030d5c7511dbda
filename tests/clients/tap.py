"""A relay that records: what a client really sent, and what it really got back, headers and all.

    client -> tap -> Lantern -> scripted upstream        and, for comparison,        client -> tap -> scripted upstream

It numbers each request in the header x-tap, by which the upstream's record of it is found.
"""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.types import Receive, Scope, Send

_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"host", b"content-length"}


@dataclass(slots=True)
class Call:
    """One request of the client and its answer, both as bytes."""

    number: str
    method: str
    path: str
    asked: dict[str, str]
    """Headers of the request, names in lower case."""
    body: bytes
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """Of the answer, names in lower case."""
    answer: bytearray = field(default_factory=bytearray)
    ended: bool = False
    """The client was given the whole answer."""


class Tap:
    """An ASGI application in front of `target`. Close it."""

    def __init__(self, target: str) -> None:
        self.calls: list[Call] = []
        self._target = target
        self._numbers = itertools.count(1)
        self._http: httpx.AsyncClient | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        body = await _body(receive)
        headers = [(k, v) for k, v in scope["headers"] if k not in _HOP]
        asked = {k.decode(): v.decode("latin-1") for k, v in headers}
        call = Call(str(next(self._numbers)), scope["method"], scope["raw_path"].decode(), asked, body)
        self.calls.append(call)
        await self._relay(scope, call, [*headers, (b"x-tap", call.number.encode())], send)

    async def _relay(self, scope: Scope, call: Call, headers: list[tuple[bytes, bytes]], send: Send) -> None:
        assert self._http is not None
        query = scope["query_string"].decode()
        url = self._target + call.path + (f"?{query}" if query else "")
        async with self._http.stream(call.method, url, headers=headers, content=call.body or None) as answer:
            call.status, call.headers = answer.status_code, {k.lower(): v for k, v in answer.headers.items()}
            back = [(k, v) for k, v in answer.headers.raw if k.lower() not in _HOP - {b"content-length"}]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": back})
            async for piece in answer.aiter_raw():
                call.answer += piece
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        call.ended = True

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._http = httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=64))
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._http is not None:
                    await self._http.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _body(receive: Receive) -> bytes:
    return b"".join([piece async for piece in _pieces(receive)])


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message: Any = await receive()
        more = message["type"] == "http.request" and message.get("more_body", False)
        yield message.get("body", b"")
