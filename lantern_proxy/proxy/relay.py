"""Relays one answer to the client: bytes as they arrive, and the copy that is archived.

Only the last bytes are held until the turn is archived, so that an answer a client saw completely is never lost.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from msgspec import Struct, field
from starlette.types import Message, Receive, Send

from lantern_proxy.proxy import Proxy
from lantern_proxy.proxy.exchange import Exchange, settled
from lantern_proxy.proxy.gate import INLINE_BYTES
from lantern_proxy.upstream import Upstream, UpstreamAnswer, UpstreamError
from lantern_proxy.upstream.http1 import Pieces
from lantern_proxy.wire.http import Arrival, Header, answer_json, decoded, failure, outgoing, returning
from lantern_proxy.wire.json import WireError
from lantern_proxy.wire.sse import FULL, Ending, is_stream

log = logging.getLogger("lantern.proxy")

_KEPT_BYTES = 64 * 1024 * 1024
"""Most bytes of an answer that are archived; the client gets the whole answer."""
_UNWATCHED_S = 0.01
"""Seconds after which Lantern starts to watch whether the client hangs up; most requests that are worth cancelling take
longer."""
_REFUSALS: Mapping[int, tuple[bytes, ...]] = {
    400: (), 403: (), 413: (), 422: (), 429: (b"too large",), 500: (b"roles", b"template")
}  # fmt: skip
"""Status -> what must be said with it, if our blocks may be why. OpenAI says 429 of one request that exceeds the tokens
of a minute by itself; servers of local models say 500 where a chat template takes no two messages of a user in a
row."""
_STARTING_S = 2.0
"""Most seconds for which the first events of OpenAI's Responses are held back, since a refusal may follow them."""
_STARTING = frozenset({b"response.created", b"response.queued", b"response.in_progress"})
_REFUSING = frozenset({b"response.failed", b"error"})
_EVENT = re.compile(rb"(?:^|[\r\n])event: ?([\w.]+)(?=[\r\n])")


class ClientLeft(Exception):
    """The client hung up before it had sent its whole request."""


class Relay(Struct):
    """Forwards one request and relays its answer. `exchange` is None if memory is off."""

    proxy: Proxy
    upstream: Upstream
    arrival: Arrival
    exchange: Exchange | None
    send: Send
    body: "bytes | Upload | Pieces" = b""
    """What is sent upstream if memory is off. A body that is still arriving is forwarded as it arrives."""
    status: int = 0
    """The status that the client gets; 0 before there is one."""
    head: Message | None = None
    """The head of the answer, until it is sent."""
    streamed: bool = False
    """Does its content-type announce an event stream?"""
    encoding: str = ""
    """The content-encoding of the answer."""
    length: int = -1
    """The content-length of the answer; -1 if it has none."""
    passed: int = 0
    """How many bytes of the answer have arrived."""
    ending: Ending = field(default_factory=Ending)
    """Finds the end of an answer that is an event stream."""
    kept: bytearray = field(default_factory=bytearray)
    """The copy that is archived."""
    complete: bool = False
    """Did the answer arrive completely?"""
    archived: bool = False
    """Was the copy handed to the writer?"""
    over: bool = False
    """Has everything been sent to the client? Then it may hang up."""
    client_left: bool = False
    error: str = ""
    """Why the answer is incomplete, for the archive."""
    watching: "asyncio.Task[None] | None" = None
    """The task that notices when the client hangs up."""

    async def run(self, receive: Receive) -> None:
        """Forward and relay. If the client hangs up, the upstream is stopped at once, and what came is archived."""
        relaying = asyncio.current_task()
        assert relaying is not None
        watch = partial(self._start_watching, receive, relaying)
        timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, watch)
        try:
            await self._forward()
        except ClientLeft:
            self.client_left = True
        except asyncio.CancelledError:
            relaying.uncancel()
            if not self.client_left:
                await self._stop()
        finally:
            self.over = True
            timer.cancel()
            watching, self.watching = self.watching, None  # its traceback would keep this object alive, body and all
            if watching is not None:
                watching.cancel()
            with suppress(asyncio.CancelledError):  # the server stops: submitted records are written nevertheless
                await self._archive(at_once=True)

    async def _stop(self) -> None:
        """The server stops and has waited long enough. An answer that has begun is cut off, which its client sees."""
        self.error = "lantern was stopped"
        if self.head is not None or not self.status:
            self.head, self.status = None, 503
            await _answer_stopped(self.send, self._told())

    def _start_watching(self, receive: Receive, relaying: "asyncio.Task[None]") -> None:
        self.watching = asyncio.get_running_loop().create_task(self._watch(receive, relaying))

    async def _watch(self, receive: Receive, relaying: "asyncio.Task[None]") -> None:
        if isinstance(self.body, Upload):
            await self.body.done.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
        if not self.over:
            self.client_left, self.error = True, "the client hung up"
            relaying.cancel()

    async def _forward(self) -> None:
        upload, answer = self.body if isinstance(self.body, Upload) else None, None
        try:
            answer = await self._call()
            if self.exchange is not None:
                self.exchange.lap("upstream")
        except UpstreamError as error:
            self.error, self.status = str(error), error.status
            log.warning("%s; %s gets %d", error, self._named(), error.status)
            await answer_json(self.send, error.status, failure("upstream_error", f"lantern: {error}"), self._told())
            return
        finally:
            if upload is not None and not (answer is not None and answer.is_sending):
                upload.done.set()  # the rest is for nobody: _watch discards it
        if answer.status >= 500:
            log.warning("upstream answered %d to %s", answer.status, self._named())
        try:
            await self._relay(answer)
        finally:
            await answer.close()

    def _told(self) -> list[Header]:
        """Headers of an answer of our own, in place of the upstream's."""
        return [*(self.exchange.lantern_headers() if self.exchange else []), *self.arrival.for_page]

    def _named(self) -> str:
        """The request for the log, without its query, since some clients put their key there."""
        shown = ascii(f"{self.arrival.method} {self.arrival.path}")[1:-1]
        return f"{shown} ({self.exchange.id})" if self.exchange else shown

    async def _call(self) -> UpstreamAnswer:
        """The upstream's answer. If it refuses a request with our blocks, and they may be why, the request is sent
        again as it came."""
        arrival, exchange = self.arrival, self.exchange
        if exchange is None:
            headers = outgoing(arrival.headers)
            if isinstance(self.body, Upload) and (length := arrival.header("content-length")):
                headers.append((b"content-length", length.encode()))
            return await self._ask(headers, self.body)
        answer = await self._ask(exchange.headers, exchange.body)
        if exchange.inserts and (await _may_be_for_blocks(answer) or await self._is_full(answer)):
            await answer.close()
            return await self._without_blocks(exchange, answer)
        return answer

    async def _without_blocks(self, exchange: Exchange, refused: UpstreamAnswer) -> UpstreamAnswer:
        """The answer to the request as it came. If that is refused as well, our blocks are not why, and stay."""
        try:
            answer = await self._ask(exchange.own_headers, exchange.arrival.body)
        except UpstreamError:
            return refused
        if answer.status not in _REFUSALS and not await self._is_full(answer):
            self.proxy.take_back(exchange)
        return answer

    async def _is_full(self, answer: UpstreamAnswer) -> bool:
        """Does the upstream say, behind the first events of a stream of OpenAI's Responses, that the request is too
        long?"""
        request, kind = self.exchange.request if self.exchange else None, answer.header(b"content-type")
        readable = kind.startswith("text/event-stream") and not answer.header(b"content-encoding")
        if request is None or request.api != "responses" or not readable:
            return False
        return FULL in await answer.begin(_is_decided, _STARTING_S)

    async def _ask(self, headers: list[Header], body: "bytes | Upload | Pieces") -> UpstreamAnswer:
        arrival, request = self.arrival, self.exchange.request if self.exchange else None
        model = request.model if request else ""
        return await self.upstream.send(arrival.method, arrival.path, arrival.query, headers, body, model=model)

    async def _relay(self, answer: UpstreamAnswer) -> None:
        self.status, self.encoding = answer.status, answer.header(b"content-encoding")
        self.streamed = answer.header(b"content-type").startswith("text/event-stream")
        length = answer.header(b"content-length")
        self.length = int(length) if length.isdigit() else -1
        headers = returning(answer.headers, answer.status) + (self.exchange.lantern_headers() if self.exchange else [])
        self.head = {"type": "http.response.start", "status": answer.status, "headers": headers}
        if not answer.is_here:  # else the head waits, to be sent together with its body
            await self._begin()
        try:
            while chunk := await answer.chunk():
                last = answer.is_here
                if self.exchange is not None and not self.archived:
                    await self._keep(chunk, last)
                await self._begin()
                self.over = last
                await self.send({"type": "http.response.body", "body": chunk, "more_body": not last})
        except UpstreamError as error:
            self.error = str(error)
            log.warning("%s; the client of %s is broken off, too", error, self._named())
            return  # incomplete, so that the server closes the connection and the client sees that it is broken
        if not self.over:
            self.complete = True
            await self._archive()
            await self._begin()
            self.over = True
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self) -> None:
        """Send the head of the answer, unless it was sent."""
        head, self.head = self.head, None
        if head is not None:
            await self.send(head)

    async def _keep(self, chunk: bytes, last: bool) -> None:
        """Keep a copy of the answer; before its last bytes go on, the turn is archived."""
        self.passed += len(chunk)
        if len(self.kept) < _KEPT_BYTES:
            self.kept += chunk
        if last or (self.streamed and self.ending.is_in(chunk)) or self.passed == self.length:
            self.complete = True
            await self._archive()

    async def _archive(self, *, at_once: bool = False) -> None:
        """Archive once, and wait for it, but no longer than Proxy.hold_s.

        at_once: without waiting for others first, if a client that hangs up would cancel the record
        """
        if self.exchange is None or self.archived:
            return
        if not at_once:
            await self.proxy.gate.enter()
        self.archived = True
        filing = self._file(self.exchange)
        is_short = len(self.kept) <= INLINE_BYTES and not self.encoding
        # short ones are filed at once; filing others is shielded from a client that hangs up meanwhile
        writing = await (filing if is_short else asyncio.shield(asyncio.ensure_future(filing)))
        if writing is not None and not await settled(writing, self.proxy.hold_s):
            self.proxy.degraded["archive:slow"] += 1

    async def _file(self, exchange: Exchange) -> "Future[bool] | None":
        body = bytes(self.kept)
        if self.encoding:
            body = await self.proxy.unpacked(body, self.encoding)
        streamed = self.streamed or is_stream(body)  # some servers send another content-type for events, or none
        done = self.complete or self.ending.has_begun or (streamed and Ending().is_in(body))
        return await self.proxy.file(exchange, self.status, body, streamed=streamed, complete=done, error=self.error)


class Upload:
    """The body of a request, piece by piece as the client sends it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.done = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in pieces(self._receive):
                yield piece
        finally:
            self.done.set()


async def whole_body(receive: Receive, send: Send) -> Pieces | None:
    """The whole body of a request; None if it does not come: the client left, or was told that the server stops."""
    come: list[bytes] = []
    try:
        while (message := await receive())["type"] != "http.disconnect":
            come.append(message.get("body", b""))
            if not message.get("more_body", False):
                return come
    except asyncio.CancelledError:  # the server stops, and has waited long enough
        await _answer_stopped(send)
    return None


async def pieces(receive: Receive) -> AsyncIterator[bytes]:
    """The body of a request as it arrives. Raises ClientLeft if it ends early."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        if piece := message.get("body", b""):
            yield piece
        if not message.get("more_body", False):
            return


async def _may_be_for_blocks(answer: UpstreamAnswer) -> bool:
    """Was the request refused, so that it might be accepted without our blocks? Reads the body of a refusal, which can
    still be relayed."""
    if answer.status not in _REFUSALS:
        return False
    body, said = await answer.read(), _REFUSALS[answer.status]
    try:  # a longer body is no short refusal
        plain = decoded(body, answer.header(b"content-encoding"), most_bytes=INLINE_BYTES).lower() if said else b""
    except WireError:
        return False
    return not said or any(words in plain for words in said)


def _is_decided(begun: bytes) -> bool:
    """Is it known of a stream that begins so whether it answers the request or refuses it?"""
    events = _EVENT.findall(begun)
    if not events:
        return len(begun.splitlines()) > 1  # no stream of OpenAI's
    if events[-1] in _STARTING:
        return False
    return events[-1] not in _REFUSING or begun.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))


async def _answer_stopped(send: Send, told: Sequence[Header] = ()) -> None:
    """Answer that the server stops; nothing of the answer was sent yet."""
    body = failure("api_error", "lantern is being stopped; send the request again")
    await answer_json(send, 503, body, [(b"retry-after", b"1"), (b"connection", b"close"), *told])
