"""One request's story: read it, find its session, put back what was lost, forward it, archive what came.

    exchange = await proxy.prepare(arrival)          # exchange.body is what goes upstream; never raises
    ...the answer passes through app.py...
    written = proxy.finish(exchange, status, answer) # a future: true when the turn is on disk

Whatever fails in here costs the restore or the record, never the answer: it is told in `degraded`.
"""

import asyncio
import logging
import secrets
import time
from bisect import bisect_left
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from types import ModuleType

from lantern_proxy import bm25, chunk
from lantern_proxy.archive import Record, RequestRow, SessionRow
from lantern_proxy.compaction import place, question
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder
from lantern_proxy.follow import Step, follow, reply
from lantern_proxy.history import Session
from lantern_proxy.proxy_ledger import entry, replay
from lantern_proxy.proxy_tenants import Tenants
from lantern_proxy.proxy_writer import Job, Writer
from lantern_proxy.restore import Ask
from lantern_proxy.turn import Answer, Block, Event, Filed, Passage, Request, Restored, canonical, fingerprint
from lantern_proxy.wire import protocol_of
from lantern_proxy.wire.headers import identity
from lantern_proxy.wire.http import Arrival, accept_readable, decoded, outgoing
from lantern_proxy.wire.json import Insert, Place, WireError

log = logging.getLogger("lantern.proxy")

_QUERY_CHARS = 2_000
_LEDGERS = 2_048


@dataclass(slots=True)
class Exchange:
    """One request on its way through. `prepare` fills it, `finish` archives it."""

    id: str
    arrival: Arrival
    body: bytes
    """What goes upstream."""
    headers: list[tuple[bytes, bytes]]
    at: float
    wire: ModuleType | None = None
    request: Request | None = None
    step: Step | None = None
    tenant: str = ""
    project: str = ""
    event: Event = "passthrough"
    session: str = ""
    ms: float = 0.0
    inserts: list[Insert] = field(default_factory=list)
    shown: list[Restored] = field(default_factory=list)
    """Everything restored that this request carries, replayed blocks included."""
    blocks: list[Block] = field(default_factory=list)
    """New entries of the ledger."""
    degraded: list[str] = field(default_factory=list)

    @property
    def restored(self) -> int:
        return sum(len(restored.placed) for restored in self.shown)

    @property
    def chars(self) -> int:
        return sum(len(insert.text) for insert in self.inserts)

    def drop_blocks(self, why: str) -> None:
        """Let the request go out as it came."""
        self.body, self.headers = self.arrival.body, accept_readable(outgoing(self.arrival.headers))
        self.inserts, self.shown, self.blocks = [], [], []
        self.degraded.append(why)

    def told(self) -> list[tuple[bytes, bytes]]:
        """The x-lantern-* headers of the answer."""
        told = {
            "request": self.id, "session": self.session or "-", "event": self.event, "restored": str(self.restored),
            "chars": str(self.chars), "ms": f"{self.ms:.2f}",
        }  # fmt: skip
        if self.degraded:
            told["degraded"] = ", ".join(dict.fromkeys(self.degraded))
        return [(f"x-lantern-{name}".encode(), value.encode("ascii", "replace")) for name, value in told.items()]


class Tally:
    """How long something took: counts by bucket, as Prometheus wants them."""

    BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
    """Upper bounds, in seconds."""

    def __init__(self) -> None:
        self.total = 0.0
        self._counts = [0] * (len(self.BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        self.total += seconds
        self._counts[bisect_left(self.BOUNDS, seconds)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many were no longer than that), the last one "+Inf"."""
        return list(zip([*map(str, self.BOUNDS), "+Inf"], map(float, accumulate(self._counts)), strict=True))


class Proxy:
    """What is known of every tenant's sessions, the ledgers and the one writer. Close it."""

    def __init__(self, config: Config, embedder: Embedder | None) -> None:
        self.config, self.embedder = config, embedder
        self.degraded: Counter[str] = Counter()
        """What was skipped and why -> how often."""
        self.events: Counter[str] = Counter()
        self.prepare_s = Tally()
        self.restored = 0
        self.added_chars = 0
        self.kernel = bm25.best_kernel()
        self._ledgers: dict[tuple[str, str], list[Block]] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="lantern-restore")
        self.tenants = Tenants(config)
        self.writer = Writer(config, embedder, on_new_file=self._forget_all)
        self.tenants.writer = self.writer

    def close(self) -> None:
        self.writer.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self.embedder is not None:
            self.embedder.close()

    def _forget_all(self) -> None:
        self._ledgers.clear()
        self.tenants.forget_all()

    # --- before the upstream ---------------------------------------------------------------------------------------

    async def prepare(self, arrival: Arrival) -> Exchange:
        """Everything up to the moment when the request goes out. Never raises."""
        started = time.monotonic()
        exchange = Exchange(
            id=f"req_{secrets.token_hex(8)}", arrival=arrival, body=arrival.body, at=time.time(),
            headers=accept_readable(outgoing(arrival.headers)),
        )  # fmt: skip
        try:
            await self._understand(exchange)
            if exchange.step is not None and exchange.event != "side":
                deadline = started + self.config.restore.deadline_ms / 1000
                await self._restore(exchange, exchange.step, deadline)
        except WireError as error:
            log.info("%s passes through as it came: %s", exchange.id, error)
        except Exception:  # a failed restore must not cost the client its answer
            exchange.drop_blocks("restore:error")
            log.exception("%s: restoring failed; the request goes out as it came", exchange.id)
        exchange.ms = (time.monotonic() - started) * 1000
        self._count(exchange)
        return exchange

    def _count(self, exchange: Exchange) -> None:
        self.degraded.update(set(exchange.degraded))
        self.events[exchange.event] += 1
        self.prepare_s.add(exchange.ms / 1000)
        self.restored += sum(len(block.restored.placed) for block in exchange.blocks)
        self.added_chars += exchange.chars

    def take_back(self, exchange: Exchange, why: str) -> None:
        """The upstream refused the request for its length: let it go as it came, and do not repeat what was new."""
        ledger = self._ledgers.get((exchange.tenant, exchange.session), [])
        for block in exchange.blocks:
            if block in ledger:
                ledger.remove(block)
        exchange.drop_blocks(why)
        self.degraded[why] += 1

    async def _understand(self, exchange: Exchange) -> None:
        """Read the request and find its session."""
        arrival = exchange.arrival
        exchange.wire = protocol_of(arrival.path)
        if exchange.wire is None:
            return
        body = decoded(arrival.body, arrival.header("content-encoding"))
        request = exchange.request = exchange.wire.read(body)
        exchange.tenant = self.tenants.of(arrival.credential())
        exchange.project = arrival.header("x-lantern-project")[:200]
        who = identity({name.decode("latin-1"): value.decode("latin-1") for name, value in arrival.headers})
        if self.writer.archive is None:
            exchange.degraded.append("archive:unavailable")
        known = await self.tenants.known((exchange.tenant, exchange.project), request, who, exchange.at)
        step = follow(known, request, who, now=exchange.at, new_id=lambda: f"ses_{secrets.token_hex(8)}")
        exchange.step, exchange.event, exchange.session = step, step.event, step.session.id

    async def _restore(self, exchange: Exchange, step: Step, deadline: float) -> None:
        """Replay the ledger, add to it what this request needs, and write both into the request."""
        request, wire, config = exchange.request, exchange.wire, self.config.restore
        if (
            request is None
            or wire is None
            or not config.enabled
            or exchange.arrival.header("x-lantern-restore") == "off"
        ):
            return
        key = (exchange.tenant, step.session.id)
        async with self._locks.setdefault(key, asyncio.Lock()):
            ledger = await self._ledger(key)
            again = replay(ledger, request)
            exchange.inserts = [insert for _, insert in again]
            exchange.shown = [block.restored for block, _ in again]
            if self.writer.restorer is not None and (step.verdict.is_loss or step.session.lost):
                await self._add_blocks(exchange, request, step, deadline)
            if exchange.inserts:
                body = decoded(exchange.arrival.body, exchange.arrival.header("content-encoding"))
                exchange.body = wire.inject(body, exchange.inserts)
                exchange.headers = [h for h in exchange.headers if h[0] != b"content-encoding"]
            ledger += exchange.blocks

    async def _ledger(self, key: tuple[str, str]) -> list[Block]:
        if key not in self._ledgers:
            while len(self._ledgers) >= _LEDGERS:
                old = next(iter(self._ledgers))
                del self._ledgers[old]
                self._locks.pop(old, None) if old != key else None
            archive = self.writer.archive
            self._ledgers[key] = await asyncio.to_thread(archive.of(key[0]).blocks, key[1]) if archive else []
        return self._ledgers[key]

    async def _add_blocks(self, exchange: Exchange, request: Request, step: Step, deadline: float) -> None:
        """The loss block where the history was lost, and the question block inside the text that waits for an answer."""
        config, verdict = self.config.restore, step.verdict
        asked = question(request)
        asked_text = request.messages[asked].text if asked is not None else ""
        if verdict.is_loss and verdict.anchor is not None and (spot := place(request, verdict.anchor)) is not None:
            summary = request.messages[verdict.anchor].text if exchange.event == "compacted" else ""
            ask = self._ask(exchange, step, config.budget_chars, deadline, asked_text, summary)
            await self._add(exchange, request, spot[0], spot[1], ask, "loss")
        is_new = asked is not None and step.verdict.kept[asked] is None and exchange.event != "retry"
        if asked is not None and is_new:
            ask = self._ask(exchange, step, config.question_chars, deadline, asked_text, "")
            await self._add(exchange, request, asked, "inside", ask, "question")

    def _ask(self, exchange: Exchange, step: Step, budget: int, deadline: float, asked: str, summary: str) -> Ask:
        held = [canonical(i.text) for m in exchange.request.messages for i in m.items] if exchange.request else []
        return Ask(
            tenant=exchange.tenant, project=exchange.project, session=step.session.id,
            present="\n".join([*held, *(insert.text for insert in exchange.inserts)]),
            shown=frozenset(p.passage.id for restored in exchange.shown for p in restored.placed),
            question=asked, summary=summary, budget_chars=budget, now=exchange.at, deadline=deadline,
        )  # fmt: skip

    async def _add(self, exchange: Exchange, request: Request, at: int, how: Place, ask: Ask, kind: str) -> None:
        """Choose one block within the deadline, and enter it into the ledger."""
        restorer = self.writer.restorer
        assert restorer is not None
        choose = restorer.at_compaction if kind == "loss" else restorer.for_question
        work = asyncio.get_running_loop().run_in_executor(self._threads, choose, ask)
        try:
            restored = await asyncio.wait_for(work, max(0.001, ask.deadline - time.monotonic()) + 0.02)
        except TimeoutError:
            exchange.degraded.append("restore:deadline")
            return
        exchange.degraded += ask.notes
        if restored is None:
            return
        spot: Place = exchange.wire.settle_place(request, at, how) if exchange.wire is not None else how
        exchange.blocks.append(entry(ask.session, request, at, spot, restored, by=exchange.id, now=exchange.at))
        exchange.inserts.append(Insert(at, spot, restored.text))
        exchange.shown.append(restored)

    # --- after the answer ------------------------------------------------------------------------------------------

    async def finish(
        self, exchange: Exchange, status: int, body: bytes, *, streamed: bool, complete: bool, error: str = ""
    ) -> bool:
        """Archive the exchange; true when it is on disk, false when it must wait. Never raises.

        body: the answer, decoded, as far as it came
        """
        try:
            return await self._finish(exchange, status, body, streamed=streamed, complete=complete, error=error)
        except Exception:  # a record that fails costs the record, never the answer
            self.degraded["record:error"] += 1
            log.exception("%s could not be archived", exchange.id)
            return False

    async def _finish(
        self, exchange: Exchange, status: int, body: bytes, *, streamed: bool, complete: bool, error: str
    ) -> bool:
        if exchange.step is None or exchange.request is None or exchange.wire is None:
            return True
        answer = Answer(messages=())
        if 200 <= status < 300 and body:
            read = exchange.wire.read_answer
            if len(body) > 65_536:
                answer = await asyncio.to_thread(read, body, streamed=streamed, complete=complete)
            else:
                answer = read(body, streamed=streamed, complete=complete)
        known = self.tenants.remembered((exchange.tenant, exchange.project))
        session, filed = reply(known, exchange.session, answer, now=time.time()) if known else (None, ())
        session = session or exchange.step.session
        job = self._job(exchange, exchange.step, session, answer, filed, status, error)
        return await asyncio.wrap_future(self.writer.submit(job))

    def _job(
        self,
        exchange: Exchange,
        step: Step,
        session: Session,
        answer: Answer,
        filed: tuple[Filed, ...],
        status: int,
        error: str,
    ) -> Job:
        """What the writer needs, with nothing in it that a later request may change."""
        fresh = tuple(block for block in exchange.blocks)
        return Job(
            build=lambda: self._record(exchange, step, session, answer, filed, status, error),
            restored=tuple(p.passage.id for block in fresh for p in block.restored.placed),
            answer=answer.text, at=exchange.at,
        )  # fmt: skip

    def _record(
        self,
        exchange: Exchange,
        step: Step,
        session: Session,
        answer: Answer,
        filed: tuple[Filed, ...],
        status: int,
        error: str,
    ) -> Record:
        messages = (*step.filed, *filed)
        return Record(
            tenant=exchange.tenant, project=exchange.project, session=_row(session, step), messages=messages,
            request=self._request_row(exchange, status, error),
            head=() if session.side else tuple(e.key for e in session.head),
            ids=tuple(dict.fromkeys([*answer.ids, *(v for f in messages for v in f.message.ids), *([session.family] if session.family else [])])),
            passages=self._passages(step, session, messages), blocks=tuple(exchange.blocks),
        )  # fmt: skip

    def _request_row(self, exchange: Exchange, status: int, error: str) -> RequestRow:
        request, step = exchange.request, exchange.step
        asked = question(request) if request else None
        return RequestRow(
            id=exchange.id, at=exchange.at, api=request.api if request else "", path=exchange.arrival.path,
            model=request.model if request else "", event=exchange.event, status=status,
            query=request.messages[asked].text[:_QUERY_CHARS] if request and asked is not None else "",
            restored=exchange.restored, chars=exchange.chars, ms=exchange.ms, degraded=tuple(exchange.degraded),
            gone=len(step.verdict.gone) if step else 0, error=error,
        )  # fmt: skip

    def _passages(self, step: Step, session: Session, messages: tuple[Filed, ...]) -> tuple[Passage, ...]:
        """Passages of what is new. A summary that stands for lost text is none: it would crowd out what it lost."""
        at = step.verdict.anchor if step.event == "compacted" else None
        summary = session.head[at].key if at is not None and at < len(session.head) else ""
        return tuple(p for f in messages if f.key != summary for p in chunk.passages(f, session.id))


def _row(session: Session, step: Step) -> SessionRow:
    return SessionRow(
        id=session.id, api=session.api, family=session.family, parent=session.parent, title=session.title,
        created_at=session.created_at, last_seen_at=session.last_seen_at,
        system=fingerprint(session.system).hex() if session.system else "", tools=tuple(sorted(session.tools)),
    )  # fmt: skip
