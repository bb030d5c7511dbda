"""One request's story: read it, find its session, put back what was lost, forward it, archive what came.

    exchange = await proxy.prepare(arrival)          # exchange.body is what goes upstream; never raises
    ...the answer passes through proxy_relay.py...
    await proxy.finish(exchange, status, answer)     # true when the turn is on disk; never raises

Whatever fails in here costs the restore or the record, never the answer: it is told in `degraded`.
"""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeVar

from lantern_proxy import bm25
from lantern_proxy.compaction import place, question, shown_to_model
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder, available
from lantern_proxy.follow import Step, follow, reply
from lantern_proxy.history import Session
from lantern_proxy.proxy_exchange import Exchange, Once, Tallies
from lantern_proxy.proxy_ledger import Key, Ledgers, entry, replay
from lantern_proxy.proxy_record import record_of
from lantern_proxy.proxy_tenants import Tenants
from lantern_proxy.proxy_writer import Job, MakeRestorer, Writer
from lantern_proxy.restore import Ask, Restorer
from lantern_proxy.restore_dense import Breaker
from lantern_proxy.turn import Answer, Block, Request, canonical
from lantern_proxy.wire import Protocol, protocol_of
from lantern_proxy.wire.headers import identity
from lantern_proxy.wire.http import Arrival, accept_readable, decoded, outgoing
from lantern_proxy.wire.json import Insert, Place, WireError

log = logging.getLogger("lantern.proxy")

_INLINE_BYTES = 262_144
"""Bodies and answers beyond this, and compressed ones beyond an eighth, are read in a thread: other streams go on."""
_LOOK_S = 0.1
"""Most seconds that a request waits for a new archive when the old one was deleted."""
_LOOKING = 0.6
"""Share of the deadline in which a restore looks for passages; the rest is for packing what it has by then."""
_WARM_MESSAGES, _WARM_SESSIONS = 24, 64
"""From how many messages on a session's index is opened before it is needed, and of how many sessions."""

Kind = Literal["loss", "question"]
T = TypeVar("T")


class Proxy:
    """What is known of every tenant's sessions, the ledgers and the one writer. Close it.

    embedder, make_restorer: other ones than the config's; these are the seams for whoever embeds or restores in another
                             way. An embedder that is given has been started, and is closed with the proxy.
    """

    def __init__(
        self, config: Config, embedder: Embedder | None = None, *, make_restorer: MakeRestorer = Restorer
    ) -> None:
        self.config = config
        self.embedder = embedder or _embedder(config)
        self.tallies = Tallies()
        self.kernel = bm25.best_kernel()
        self.breaker = Breaker()
        self._once = Once(log)
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="lantern-restore")
        self._ledgers = Ledgers(self._read_ledger)
        self._owed: dict[Key, None] = {}
        """Sessions whose loss block was late: they get it with their next question."""
        self._warmed: dict[Key, None] = {}
        self._file = 0
        self.tenants = Tenants(config)
        self.writer = Writer(config, self.embedder, make_restorer)
        self.tenants.writer = self.writer
        if self.embedder is not None and embedder is None:
            self.embedder.start()

    def close(self) -> None:
        """Writes what waits; takes as long as that."""
        self.writer.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self.embedder is not None:
            self.embedder.close()

    @property
    def degraded(self) -> Counter[str]:
        """What was skipped and why -> how often."""
        return self.tallies.degraded

    @property
    def hold_s(self) -> float:
        """How long the last bytes of an answer wait for their turn to be on disk; not at all when that is no use."""
        hold_s = self.config.archive.hold_ms / 1000
        return 0.0 if self.writer.is_stuck(hold_s) else hold_s

    def _read_ledger(self, key: Key) -> list[Block]:
        archive = self.writer.archive
        return archive.of(key[0]).blocks(key[1]) if archive else []

    @contextmanager
    def _failing_open(self, exchange: Exchange, stage: str) -> Iterator[None]:
        """What fails in this block costs its own work, never the answer: counted, told, logged once."""
        try:
            yield
        except WireError as error:  # not what its path promises: the upstream may say so
            log.info("%s passes through as it came: %s", exchange.id, error)
        except Exception as error:
            exchange.degraded.append(f"{stage}:error")
            self._once.tell(stage, "%s: %s failed; the request goes on without it", exchange.id, stage, error=error)

    # --- before the upstream ---------------------------------------------------------------------------------------

    async def prepare(self, arrival: Arrival) -> Exchange:
        """Everything up to the moment when the request goes out. Never raises."""
        started = time.monotonic()
        exchange = Exchange(
            id=f"req_{secrets.token_hex(8)}", arrival=arrival, body=arrival.body, at=time.time(),
            headers=accept_readable(outgoing(arrival.headers)),
        )  # fmt: skip
        with self._failing_open(exchange, "session"):
            await self._understand(exchange)
        step, request = exchange.step, exchange.request
        if step is not None and request is not None and self._may_restore(exchange):
            with self._failing_open(exchange, "restore"):
                deadline = started + self.config.restore.deadline_ms / 1000
                await self._restore(exchange, request, step, deadline)
        exchange.ms = (time.monotonic() - started) * 1000
        self.tallies.count(exchange)
        return exchange

    def _may_restore(self, exchange: Exchange) -> bool:
        wanted = exchange.arrival.header("x-lantern-restore").strip().lower() != "off"
        return self.config.restore.enabled and wanted and exchange.event != "side"

    async def _understand(self, exchange: Exchange) -> None:
        """Read the request and find its session."""
        arrival = exchange.arrival
        exchange.wire = protocol_of(arrival.path)
        if exchange.wire is None:
            return
        await self._look_at_the_archive(exchange)
        encoding = arrival.header("content-encoding")
        exchange.plain, request = await _aside(
            len(arrival.body) * (8 if encoding else 1), partial(_read, exchange.wire, arrival.body, encoding)
        )
        exchange.request = request
        exchange.tenant = self.tenants.of(arrival.credential())
        exchange.project = arrival.header("x-lantern-project")[:200]
        who = identity({name.decode("latin-1"): value.decode("latin-1") for name, value in arrival.headers})
        known, found = await self.tenants.known((exchange.tenant, exchange.project), request, who, exchange.at)
        step = follow(known, request, who, now=exchange.at, new_id=lambda: f"ses_{secrets.token_hex(8)}", found=found)
        exchange.step, exchange.event, exchange.session = step, step.event, step.session.id

    async def _look_at_the_archive(self, exchange: Exchange) -> None:
        """Is it still there? A new file is made before the request is read, so that all of it is filed there."""
        writer = self.writer
        if writer.is_gone() or writer.archive is None:
            await asyncio.wait([asyncio.wrap_future(writer.look())], timeout=_LOOK_S if writer.archive else 0)
        if writer.archive is None or writer.problem:
            exchange.degraded.append("archive:unavailable")
        if writer.file != self._file:  # what is remembered is not in this file: all that comes is filed anew
            self._file = writer.file
            self._ledgers.forget_all()
            self.tenants.forget_all()
        exchange.file = writer.file if writer.archive is not None else -1

    async def _restore(self, exchange: Exchange, request: Request, step: Step, deadline: float) -> None:
        """Replay the ledger, add to it what this request needs, and write both into the request."""
        async with self._ledgers.of((exchange.tenant, exchange.session), new=step.event == "new") as ledger:
            again = replay(ledger, request)
            exchange.inserts = [insert for _, insert in again]
            exchange.shown = [block.restored for block, _ in again]
            if self.writer.restorer is not None and (step.verdict.is_loss or step.session.lost):
                with self._failing_open(exchange, "restore"):  # what is replayed stays
                    await self._add_blocks(exchange, self.writer.restorer, request, step, deadline)
            if exchange.inserts:
                self._write_blocks(exchange)
            ledger += exchange.blocks

    def _write_blocks(self, exchange: Exchange) -> None:
        assert exchange.wire is not None
        try:
            exchange.body = exchange.wire.inject(exchange.plain, exchange.inserts)
            exchange.headers = [h for h in exchange.headers if h[0] != b"content-encoding"]
        except WireError:
            exchange.drop_blocks("restore:place")
            raise

    async def _add_blocks(
        self, exchange: Exchange, restorer: Restorer, request: Request, step: Step, deadline: float
    ) -> None:
        """The loss block where the history was lost, and the question block in the text that waits for an answer."""
        if self.breaker.open(time.monotonic()):
            exchange.degraded.append("restore:resting")
            return
        config, verdict = self.config.restore, step.verdict
        asked = question(request)
        asked_text = request.messages[asked].text if asked is not None else ""
        is_new = asked is not None and verdict.kept[asked] is None and exchange.event != "retry"
        key = (exchange.tenant, exchange.session)
        spot = place(request, verdict.anchor) if verdict.is_loss and verdict.anchor is not None else None
        if spot is None and is_new and asked is not None and key in self._owed:
            spot = asked, "inside"  # the prompt's beginning is cached by now: what is late goes where it ends
        if spot is not None:
            summary = request.messages[verdict.anchor or 0].text if exchange.event == "compacted" else ""
            ask = self._ask(exchange, request, step, config.budget_chars, deadline, asked_text, summary)
            self._owed.pop(key, None)
            if not await self._add(exchange, restorer, request, spot[0], spot[1], ask, "loss", deadline):
                self._owed[key] = None
        if asked is not None and is_new:
            ask = self._ask(exchange, request, step, config.question_chars, deadline, asked_text, "")
            await self._add(exchange, restorer, request, asked, "inside", ask, "question", deadline)

    def _ask(
        self, exchange: Exchange, request: Request, step: Step, budget: int, deadline: float, asked: str, summary: str
    ) -> Ask:
        held = [canonical(i.text) for m in shown_to_model(request) for i in m.items]
        packing_s = (1 - _LOOKING) * self.config.restore.deadline_ms / 1000
        return Ask(
            tenant=exchange.tenant, project=exchange.project, session=exchange.session,
            present="\n".join([*held, *(insert.text for insert in exchange.inserts)]),
            shown=frozenset(p.passage.id for restored in exchange.shown for p in restored.placed),
            left=step.session.abandoned, question=asked, summary=summary, budget_chars=budget, now=exchange.at,
            deadline=deadline - packing_s,
        )  # fmt: skip

    async def _add(
        self, exchange: Exchange, restorer: Restorer, request: Request, at: int, how: Place, ask: Ask, kind: Kind,
        deadline: float,
    ) -> bool:  # fmt: skip
        """Choose one block and enter it into the ledger; False when the deadline came first."""
        choose = restorer.at_compaction if kind == "loss" else restorer.for_question
        work = asyncio.get_running_loop().run_in_executor(self._threads, choose, ask)
        healthy = False
        try:
            restored = await asyncio.wait_for(work, max(0.001, deadline - time.monotonic()))
            healthy = True
        except TimeoutError:
            exchange.degraded.append("restore:deadline")
            return False
        finally:
            self.breaker.record(healthy, time.monotonic())
        exchange.degraded += ask.notes
        if restored is not None and exchange.wire is not None:
            spot = exchange.wire.settle_place(request, at, how)
            exchange.blocks.append(entry(ask.session, request, at, spot, restored, by=exchange.id, now=exchange.at))
            exchange.inserts.append(Insert(at, spot, restored.text))
            exchange.shown.append(restored)
        return True

    def _warm(self, exchange: Exchange, session: Session) -> None:
        """Open the index of a session that may be compacted soon, in a thread, so that its first block is not late."""
        key, restorer = (exchange.tenant, session.parent or session.id), self.writer.restorer
        if restorer is None or key in self._warmed or (session.position < _WARM_MESSAGES and not session.side):
            return
        while len(self._warmed) >= _WARM_SESSIONS:
            self._warmed.pop(next(iter(self._warmed)))
        self._warmed[key] = None
        self._threads.submit(restorer.warm, exchange.tenant, exchange.project, key[1])

    # --- after the answer ------------------------------------------------------------------------------------------

    def take_back(self, exchange: Exchange, why: str) -> None:
        """The upstream refused the request for its length: let it go as it came, and do not repeat what was new."""
        self._ledgers.strike((exchange.tenant, exchange.session), exchange.blocks)
        exchange.drop_blocks(why)
        self.degraded[why] += 1

    async def finish(
        self, exchange: Exchange, status: int, body: bytes, *, streamed: bool, complete: bool, error: str = ""
    ) -> bool:
        """Archive the exchange; true when it is on disk, false when it must wait. Never raises.

        body: the answer, decoded, as far as it came
        """
        with self._failing_open(exchange, "record"):
            return await self._finish(exchange, status, body, streamed=streamed, complete=complete, error=error)
        self.degraded["record:error"] += 1
        return False

    async def _finish(
        self, exchange: Exchange, status: int, body: bytes, *, streamed: bool, complete: bool, error: str
    ) -> bool:
        if exchange.step is None or exchange.wire is None:
            return True
        answer = Answer(messages=())
        with self._failing_open(exchange, "answer"):  # what was asked is kept whatever the answer is
            if 200 <= status < 300 and body:
                read = partial(exchange.wire.read_answer, body, streamed=streamed, complete=complete)
                answer = await _aside(len(body), read)
        known = self.tenants.remembered((exchange.tenant, exchange.project))
        session, filed = reply(known, exchange.session, answer, now=time.time()) if known else (None, ())
        job = Job(
            build=partial(
                record_of, exchange, exchange.step, session or exchange.step.session, answer, filed, status=status,
                error=error, most_chars=self.config.archive.max_message_chars,
                turns=self.config.restore.recipe == "lantern",
            ),
            file=exchange.file, answer=answer.text, at=exchange.at,
            restored=tuple(p.passage.id for block in exchange.blocks for p in block.restored.placed),
        )  # fmt: skip
        written = await asyncio.wrap_future(self.writer.submit(job))
        if session is not None:
            self._warm(exchange, session)
        return written


def _read(wire: Protocol, body: bytes, encoding: str) -> tuple[bytes, Request]:
    plain = decoded(body, encoding)
    return plain, wire.read(plain)


async def _aside(size_bytes: int, work: Callable[[], T]) -> T:
    """`work`, in a thread when there is much of it."""
    return await asyncio.to_thread(work) if size_bytes > _INLINE_BYTES else work()


def _embedder(config: Config) -> Embedder | None:
    wanted = config.embed.enabled == "on" or (config.embed.enabled == "auto" and available())
    return Embedder(config.embed.model, config.embed.cache_dir, config.embed.threads) if wanted else None
