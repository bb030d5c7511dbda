"""Several workers on one archive: all requests of a tenant are served by the same one.

A tenant's sessions, blocks and limits are in a worker's memory, so two workers must not serve the same tenant. A
connection may reach any worker: a request of another worker's tenant is forwarded to that worker over loopback
unchanged, and its answer is passed back unchanged. The worker follows from the tenant's name alone, so no agreement is
needed. Requests for a worker that died wait for its restart, since its listener is kept open (cli/workers.py).
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping

from starlette.types import Receive, Scope, Send

from lantern_proxy.access import FROM_WORKER, AccessControl
from lantern_proxy.app_place import WorkerPlace
from lantern_proxy.config import Config
from lantern_proxy.proxy.relay import Relay, Upload, whole_body
from lantern_proxy.proxy.tenants import Tenants
from lantern_proxy.upstream.errors import RemoteProtocolError, TransportError
from lantern_proxy.upstream.http1 import Http1, Origin
from lantern_proxy.wire.http import HOP_BY_HOP, Arrival, Header, answer_json, connection_headers, failure

_SECRET, _CLIENT = b"x-lantern-worker", b"x-lantern-worker-client"
_FRAMING = HOP_BY_HOP | {b"content-length", b"expect"}
_MORE_S = 60.0
"""Seconds that one worker waits for another beyond the latter's own timeout for its upstream."""
_STATUS_S = 1.5
"""Most seconds to wait for another worker's health or metrics."""
STREAMED_BYTES = 1_048_576
"""Longer bodies, and those of unknown length, are forwarded as they arrive, unless they must be read here first."""


class Peers:
    """The connections to and from the other workers. Must be closed."""

    def __init__(self, place: WorkerPlace, config: Config) -> None:
        self.number = place.number
        self._place = place
        self._http1 = Http1(
            connect_s=config.upstream.connect_timeout_s, silence_s=config.upstream.read_timeout_s + _MORE_S,
            connections=config.upstream.max_connections, stale_s=0.0,
        )  # fmt: skip

    async def aclose(self) -> None:
        await self._http1.aclose()

    def _origin(self, number: int) -> Origin:
        return Origin("http", "127.0.0.1", self._place.ports[number])

    # --- from another worker ---------------------------------------------------------------------------------------

    def original_scope(self, scope: Scope) -> Scope | None:
        """The scope as the client sent it, also if another worker forwarded it; None for a stranger at our own port."""
        if scope["server"][1] != self._place.ports[self.number]:
            return scope
        headers = dict(scope["headers"])
        if not hmac.compare_digest(headers.get(_SECRET, b""), self._place.secret.encode()):
            return None
        kept = [pair for pair in scope["headers"] if pair[0] not in (_SECRET, _CLIENT)]
        return {**scope, "headers": kept, "client": (headers.get(_CLIENT, b"").decode(), 0), FROM_WORKER: True}

    # --- to another worker -----------------------------------------------------------------------------------------

    def owner(self, arrival: Arrival, access: AccessControl, tenants: Tenants) -> int:
        """The number of the worker that serves the request. An upgrade stays here: every worker refuses it alike."""
        if arrival.header("upgrade"):
            return self.number
        credential = arrival.credential()
        name = access.tenant_of(arrival) or tenants.named(credential) or credential
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest) % len(self._place.ports)

    async def forward(self, owner: int, scope: Scope, arrival: Arrival, receive: Receive, send: Send) -> None:
        """Forward the request to its worker."""
        length = arrival.header("content-length")
        body = Upload(receive) if arrival.may_exceed(STREAMED_BYTES) else await whole_body(receive, send)
        if body is None:
            return
        headers = self._headers(scope, arrival.headers)
        if length and isinstance(body, Upload):
            headers.append((b"content-length", length.encode()))
        state = scope["app"].state
        call = _ForwardedCall(
            state.proxy, state.upstream, arrival, None, send, body,
            origin=self._origin(owner), http1=self._http1, headers=headers,
        )  # fmt: skip
        await call.run(receive)

    def _headers(self, scope: Scope, headers: tuple[Header, ...] | list[Header]) -> list[Header]:
        client = scope["client"][0] if scope["client"] else ""
        drop = _FRAMING | connection_headers(headers) | {_SECRET, _CLIENT}
        kept = [pair for pair in headers if pair[0] not in drop]
        return [*kept, (_SECRET, self._place.secret.encode()), (_CLIENT, client.encode())]

    async def answers(self, scope: Scope) -> Mapping[int, bytes]:
        """Worker -> its answer to this request (a GET for /lantern/...); those that do not answer are left out."""

        async def ask(number: int) -> bytes | None:
            try:
                async with asyncio.timeout(_STATUS_S):
                    return b"".join([piece async for piece in self.stream(number, scope)])
            except (TimeoutError, TransportError):
                return None

        numbers = [n for n in range(len(self._place.ports)) if n != self.number]
        bodies = await asyncio.gather(*map(ask, numbers))
        return {n: body for n, body in zip(numbers, bodies, strict=True) if body is not None}

    @property
    def numbers(self) -> range:
        """The numbers of all workers."""
        return range(len(self._place.ports))

    async def stream(self, number: int, scope: Scope) -> AsyncIterator[bytes]:
        """The body of another worker's answer to this request, as it arrives. Raises TransportError."""
        target = scope["raw_path"].split(b"?")[0] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        headers = self._headers(scope, scope["headers"])
        answer = await self._http1.ask(self._origin(number), b"GET", target, headers, b"")
        try:
            if answer.status != 200:
                raise RemoteProtocolError(f"worker {number} answers {answer.status}")
            async for piece in answer:
                yield piece
        finally:
            answer.close()


class _ForwardedCall(Relay, kw_only=True):
    """One request forwarded to its worker, and the answer passed back."""

    origin: Origin
    """The address where that worker listens for the others."""
    http1: Http1
    headers: list[Header]
    """The client's headers, and those that identify this worker."""

    async def _forward(self) -> None:
        arrival = self.arrival
        target = arrival.path.encode("latin-1") + (b"?" + arrival.query if arrival.query else b"")
        try:
            answer = await self.http1.ask(self.origin, arrival.method.encode(), target, self.headers, self.body)
        except TransportError as error:
            message = f"lantern: the worker of this request ended ({error or type(error).__name__}); send it again"
            await answer_json(self.send, 502, failure("upstream_error", message))
            return
        closing = [pair for pair in answer.headers if pair[0].lower() == b"connection" and pair[1] == b"close"]
        headers = [pair for pair in answer.headers if pair[0].lower() not in HOP_BY_HOP]
        self.status = answer.status
        try:
            await self.send({"type": "http.response.start", "status": answer.status, "headers": headers + closing})
            async for chunk in answer:
                await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TransportError:
            return  # incomplete: the client's connection is broken off, too
        finally:
            answer.close()
        self.over = True
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})
