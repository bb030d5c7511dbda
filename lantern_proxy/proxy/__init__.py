"""The course of one request: read it, find its session, restore what was lost, forward it, archive request and answer.

    exchange = await proxy.prepare(arrival)          # exchange.body is what goes upstream; never raises
    ...the answer passes through proxy/relay.py...
    filed = await proxy.file(exchange, status, answer, streamed=True, complete=True)
                                                     # a future, true when the turn is archived; never raises

A failure in here costs the restore or the record, never the answer: `degraded` reports it.
"""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lantern_proxy import history, turn_memo
from lantern_proxy.bm25_kernel import best_kernel
from lantern_proxy.config import Config
from lantern_proxy.follow import Step, follow, reply
from lantern_proxy.history import answered as after_answer
from lantern_proxy.history import shared_prefix
from lantern_proxy.history.transcript import with_transcript_as_user_text
from lantern_proxy.proxy.exchange import Exchange, FailingOpen, Once, Tallies
from lantern_proxy.proxy.gate import INLINE_BYTES, BodyReader, Gate
from lantern_proxy.proxy.lazy_restorer import MakeRestorer, make_restorer
from lantern_proxy.proxy.preview import preview_of
from lantern_proxy.proxy.record import Answered, Privacy, record_of, record_of_main
from lantern_proxy.proxy.restore import Restoring
from lantern_proxy.proxy.restore_state import REFUSED
from lantern_proxy.proxy.stored_answers import AnswerCopy, Awaited
from lantern_proxy.proxy.tenants import Tenants
from lantern_proxy.proxy.writer import Job, Writer
from lantern_proxy.turn import Answer, Preview, Request
from lantern_proxy.wire import Protocol, incremental, protocol_of, protocols_at, read_answer, read_request
from lantern_proxy.wire.headers import brief, identity, telling, typed
from lantern_proxy.wire.http import (
    MAX_DECODED_BYTES,
    Arrival,
    EncodingError,
    TooLarge,
    accept_readable,
    decoded,
    outgoing,
)  # fmt: skip
from lantern_proxy.wire.json import WireError
from lantern_proxy.wire.sse import FULL, is_stream

if TYPE_CHECKING:
    from lantern_proxy.embed import Embedder

log = logging.getLogger("lantern.proxy")

_LOOK_S = 0.1
"""Most seconds that a request waits for a new archive file when the old one was deleted."""
_DOOR_S = 0.1
"""Seconds within which a starting proxy accepts requests: background work waits until then."""
_NOT_LET_IN = (401, 403)
"""Status codes by which upstreams reject an API key."""
_WRONG_KEY = (b"api_key_invalid", b"api key not valid", b"invalid api key", b"invalid_api_key")
"""Parts of the answer of an upstream that rejects a key with status 400, as Google's do."""


class Proxy:
    """Every tenant's sessions, the ledgers and the one writer. Must be closed.

    embedder, make_restorer: replace what the config asks for. The embedder must have been started; closing the proxy
                             closes it.
    keeper:                  as in Writer
    """

    def __init__(
        self, config: Config, embedder: "Embedder | None" = None, *, make_restorer: MakeRestorer = make_restorer,
        keeper: bool = True,
    ) -> None:  # fmt: skip
        self.config = config
        self.embedder = embedder or _embedder(config)
        self.tallies = Tallies()
        self.privacy = Privacy(config.privacy)
        self.kernel = best_kernel()
        self.listeners: list[Callable[[Exchange, int], None]] = []
        """Called with each exchange and its status once its answer has been relayed; they must not block."""
        self._failing_open = partial(FailingOpen, Once(log))
        self._random = _endless()
        """Random parts of ids; for the event loop alone."""
        self.gate = Gate()
        """Enter it before parsing a request or an answer in the event loop."""
        self._reader = BodyReader()
        self._most_bytes = min(MAX_DECODED_BYTES, config.access.max_body_mb * 1_000_000)
        """Longer bodies and answers, once decoded, are not parsed."""
        self.rereads = incremental.Rereads()
        self._awaited = Awaited()
        self._file = (0, 0)
        """(Opened.file, Keeper.forgets) of what is in memory; when it changes, memory is cleared."""
        self.came_at = time.monotonic()
        """time.monotonic() of the last request."""
        self.writer = Writer(config, self.embedder, make_restorer, keeper=keeper)
        self.tenants = Tenants(config, self.writer.opened)
        self._restoring = Restoring(config, self.writer, self._failing_open)
        if self.embedder is not None and embedder is None:
            self.embedder.start(after_s=_DOOR_S)

    def close(self) -> None:
        """Stop, after writing everything that is queued."""
        self.writer.close()
        self._restoring.close()
        if self.embedder is not None:
            self.embedder.close()

    @property
    def degraded(self) -> Counter[str]:
        """What was skipped and why (`dense:warming`) -> how often."""
        return self.tallies.degraded

    @property
    def hold_s(self) -> float:
        """How long the last bytes of an answer are held until their turn is archived; 0 when the writer is stuck."""
        hold_s = self.config.archive.hold_ms / 1000
        return 0.0 if self.writer.is_stuck(hold_s) else hold_s

    # --- before the upstream ---------------------------------------------------------------------------------------

    async def prepare(self, arrival: Arrival) -> Exchange:
        """Everything that happens to a request before it goes upstream. Never raises."""
        started = self.came_at = time.monotonic()
        exchange = Exchange(
            id=f"req_{next(self._random)}", arrival=arrival, body=arrival.body, at=time.time(),
            headers=accept_readable(outgoing(arrival.headers)),
        )  # fmt: skip
        with self._failing_open(exchange, "session"):
            await self._understand(exchange)
        exchange.lap("session")
        step, request = exchange.step, exchange.request
        if step is not None and request is not None and self.config.restore.enabled and exchange.event != "side":
            with self._failing_open(exchange, "restore"):
                deadline = started + self.config.restore.deadline_ms / 1000
                if arrival.is_off("x-lantern-restore") or arrival.is_digested:
                    await self._restoring.leave_out(exchange, request, step)
                    if arrival.is_digested and (step.verdict.is_loss or step.session.lost):
                        exchange.degraded.append("restore:digest")
                else:
                    await self._restoring.put_back(exchange, request, step, deadline)
            exchange.lap("restore")
        exchange.ms = (time.monotonic() - started) * 1000
        self.tallies.count(exchange)
        return exchange

    async def _understand(self, exchange: Exchange) -> None:
        """Read the request and find its session."""
        arrival = exchange.arrival
        exchange.wire = protocol_of(arrival.path)
        if exchange.wire is None:
            return
        await self._look_at_the_archive(exchange)
        exchange.tenant = arrival.tenant or self.tenants.of(arrival.credential())
        exchange.plain = arrival.body
        await self.gate.enter()
        request = exchange.request = with_transcript_as_user_text(await self._request(exchange, exchange.wire))
        exchange.project = brief(typed(arrival.header("x-lantern-project")))
        who = identity(telling(arrival.headers))
        index, found = await self.tenants.locate((exchange.tenant, exchange.project), request, who, exchange.at)
        step = follow(index, request, who, now=exchange.at, new_id=lambda: f"ses_{next(self._random)}", found=found)
        exchange.step, exchange.event, exchange.session = step, step.event, step.session.id
        if step.main is not None:  # at once: its client may go on with it before the side call is answered
            shown = partial(record_of_main, exchange, step, step.main, self.config, self.privacy)
            self.writer.submit(Job(build=shown, file=exchange.file))

    async def _request(self, exchange: Exchange, wire: Protocol) -> Request:
        """The parsed body. Sets exchange.plain to the body without its content-encoding, and exchange.wire to the
        protocol that it is in. Raises WireError."""
        body, encoding = exchange.arrival.body, exchange.arrival.header("content-encoding")
        for each in () if encoding else protocols_at(wire):
            if (found := self.rereads.read(exchange.tenant, each.read, body)) is not None:
                exchange.wire = each
                return found
        if not encoding:
            exchange.wire, request, seen = await self._reader.read(len(body), partial(_read_to_keep, wire, body))
            self.rereads.keep(exchange.tenant, seen)
            return request
        try:
            unpacking = self._reader.unpack(self._most_bytes, partial(_unpack, wire, body, encoding))
            exchange.plain, (exchange.wire, request) = await unpacking
        except TooLarge:
            exchange.degraded.append("request:too_large")
            raise
        except EncodingError:
            exchange.degraded.append("request:encoding")
            raise
        return request

    async def _look_at_the_archive(self, exchange: Exchange) -> None:
        """Check that the archive's file still exists. If not, a new one is created before the request is parsed, so
        that the whole request is archived in it."""
        writer, opened = self.writer, self.writer.opened
        if opened.is_gone() or opened.archive is None:
            patience_s = _LOOK_S if opened.archive or opened.is_opening else 0
            await asyncio.wait([asyncio.wrap_future(writer.look())], timeout=patience_s)
        if opened.archive is None or opened.problem:
            exchange.degraded.append("archive:unavailable")
        known = opened.file, writer.keeper.forgets
        if known != self._file:  # the file lacks what is in memory: clients' histories are archived again
            self._file = known
            self._restoring.forget_all()
            self.tenants.forget_all()
            self._awaited.clear()
            self.let_go_of_texts()
        exchange.file = opened.file if opened.archive is not None else -1

    def let_go_of_texts(self) -> None:
        """Clear the caches of recently parsed texts."""
        self.rereads.clear()
        shared_prefix.forget_all()
        turn_memo.forget_all()

    async def preview(self, body: bytes, **asked: str) -> Preview:
        """What would be restored for a request; see preview.py."""
        return await preview_of(self, body, **asked)

    # --- after the answer ------------------------------------------------------------------------------------------

    def take_back(self, exchange: Exchange) -> None:
        """The upstream refused the request for its blocks: send it as it came, and drop its new blocks from the
        ledger."""
        self._restoring.strike(exchange)
        exchange.drop_blocks(REFUSED)
        self.degraded[REFUSED] += 1

    async def file(
        self, exchange: Exchange, status: int, body: bytes, *, streamed: bool, complete: bool, error: str = ""
    ) -> "Future[bool] | None":
        """Archive the exchange. The future is True once it is archived, False if that is delayed; None if there is
        nothing to archive.

        body: the answer, decoded, as far as it came
        Never raises. Waits only if the answer is so long that it is parsed in a thread.
        """
        exchange.lap("answer")
        exchange.answered = body
        if exchange.inserts and 200 <= status < 300:
            if streamed and FULL in body[-INLINE_BYTES:]:
                self.take_back(exchange)
            else:
                self._restoring.accept(exchange)
        asyncio.get_running_loop().call_soon(self._tell, exchange, status)
        with self._failing_open(exchange, "record"):
            if exchange.step is None or exchange.wire is None:
                return None
            if _is_of_wrong_key(status, body) and _is_first(exchange.step):
                self.tenants.let_go(exchange.tenant, exchange.project, exchange.session)
                return None
            answer = Answer(messages=())
            with self._failing_open(exchange, "answer"):  # the request is archived even if its answer is not understood
                if 200 <= status < 300 and body:
                    reading = partial(read_answer, exchange.wire, body, streamed=streamed, complete=complete)
                    answer = await self._reader.read(len(body), reading)
                    self._awaited.note(exchange, answer)
            if "answer:error" in exchange.degraded:  # the answer's headers went out before
                self.degraded["answer:error"] += 1
            return self._submit(exchange, exchange.step, answer, status, error)
        self.degraded["record:error"] += 1
        lost: Future[bool] = Future()
        lost.set_result(False)
        return lost

    def awaiting(self, arrival: Arrival) -> Exchange | None:
        """The request whose answer a later one fetches (GET /v1/responses/{id}); None for any other request."""
        if not self._awaited or arrival.is_off("x-lantern-archive"):
            return None
        return self._awaited.asked_by(arrival, arrival.tenant or self.tenants.of(arrival.credential()))

    async def file_fetched(self, exchange: Exchange, copy: AnswerCopy) -> None:
        """Archive an answer that was fetched after its request, unless it is unfinished. Never raises."""
        with self._failing_open(exchange, "answer"):
            await self.gate.enter()
            body, encoding = bytes(copy.body), copy.headers.get(b"content-encoding", b"").decode("latin-1")
            body = await self.unpacked(body, encoding) if encoding else body
            if exchange.wire is None or exchange.step is None:
                return
            reading = partial(read_answer, exchange.wire, body, streamed=is_stream(body), complete=True)
            answer = await self._reader.read(len(body), reading)
            if answer.messages and answer.complete:
                self._awaited.note(exchange, answer)
                self._submit(exchange, replace(exchange.step, filed=()), answer, 200, "")

    async def unpacked(self, answer: bytes, encoding: str) -> bytes:
        """An answer without its content-encoding, as far as it came; empty, and counted, if it cannot be decoded."""
        try:
            return await self._reader.unpack(self._most_bytes, partial(_decoded, answer, encoding))
        except WireError as error:
            self.degraded["answer:too_large" if isinstance(error, TooLarge) else "answer:encoding"] += 1
            return b""

    def _tell(self, exchange: Exchange, status: int) -> None:
        with self._failing_open(exchange, "listen"):
            self.tallies.settle(exchange)
            for listen in self.listeners:
                listen(exchange, status)

    def _submit(self, exchange: Exchange, step: Step, answer: Answer, status: int, error: str) -> "Future[bool]":
        index = self.tenants.index_of((exchange.tenant, exchange.project))
        session, filed = reply(index, step.session, answer, now=time.time()) if index else (None, ())
        if session is None:  # dropped from memory while the answer came, since something was forgotten
            session, filed = after_answer(step.session, answer, now=time.time())
        main = index.sessions.get(session.parent) if index and session is not None and session.side else session
        answered = Answered(step, session or step.session, answer, filed, status, error)
        job = Job(
            build=partial(record_of, exchange, answered, self.config, self.privacy),
            file=exchange.file, answer=answer.text, at=exchange.at,
            restored={p.passage.id: block.restored.kind for block in exchange.blocks for p in block.restored.placed},
        )  # fmt: skip
        submitted = time.monotonic()
        writing = self.writer.submit(job)

        def written(_: object) -> None:  # on the writer's thread, which alone times this stage and warms sessions
            self.tallies.stages["archive"].add(time.monotonic() - submitted)
            if session is not None:
                self._restoring.warm(exchange, session, main or session)

        writing.add_done_callback(written)
        return writing


def _is_of_wrong_key(status: int, body: bytes) -> bool:
    return status in _NOT_LET_IN or (status == 400 and any(words in body.lower() for words in _WRONG_KEY))


def _is_first(step: Step) -> bool:
    """Does this request begin a conversation of which nothing is archived?

    Such a request under a rejected key is not archived: anybody who reaches the proxy could otherwise fill the archive
    with tenants. If the key is valid after all, the client sends the same again.
    """
    return step.link.session is None and not step.session.parent


def _endless() -> Iterator[str]:
    """16 random hex digits at a time. Drawn in bulk, since each system call gives the interpreter to other threads."""
    while True:
        drawn = secrets.token_hex(512)
        yield from (drawn[at : at + 16] for at in range(0, len(drawn), 16))


def _read(wire: Protocol, plain: bytes) -> tuple[Protocol, Request]:
    wire, request = read_request(wire, plain)
    if len(plain) > INLINE_BYTES:
        history.prepare(request)  # in this thread, not in the event loop
    return wire, request


def _read_to_keep(wire: Protocol, plain: bytes) -> tuple[Protocol, Request, incremental.Seen | None]:
    wire, request = _read(wire, plain)
    keep = len(plain) >= incremental.LEAST_BYTES
    return wire, request, incremental.seen(wire.read, wire.key, plain, request) if keep else None


def _unpack(wire: Protocol, body: bytes, encoding: str, most_bytes: int) -> tuple[bytes, tuple[Protocol, Request]]:
    plain = decoded(body, encoding, most_bytes=most_bytes)
    return plain, _read(wire, plain)


def _decoded(answer: bytes, encoding: str, most_bytes: int) -> bytes:
    return decoded(answer, encoding, whole=False, most_bytes=most_bytes)


def _embedder(config: Config) -> "Embedder | None":
    enabled = config.embed.enabled
    if enabled == "off":
        return None
    from lantern_proxy.compiled import available

    if enabled == "auto" and not available():
        return None
    from lantern_proxy.embed import Embedder

    return Embedder.of(config.embed)
