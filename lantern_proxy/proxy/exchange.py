"""One request on its way through (`Exchange`), counters over all requests, and the guards that fail open."""

import asyncio
import logging
import re
import time
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import Any

from msgspec import Struct, field

from lantern_proxy.follow import Step
from lantern_proxy.turn import Block, Event, PassedOver, Request, Restored
from lantern_proxy.wire import Protocol
from lantern_proxy.wire.http import Arrival, Header, accept_readable, outgoing
from lantern_proxy.wire.json import Insert, WireError

log = logging.getLogger("lantern.proxy")

LEAVING = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""Exceptions that mean a deliberate stop. Everything else is a failure, including a panic of native code, which is not
an Exception."""


_NO_HEADER, _SAID_CHARS = re.compile("[^ -~]"), 200
"""Characters that a header may not hold, and the most characters of a session's id in a header: programs that archive
through the library choose such ids freely."""


class Exchange(Struct):
    """One request to a path with memory, on its way through. Proxy.prepare fills it, Proxy.file archives it."""

    id: str
    arrival: Arrival
    body: bytes
    """The body sent upstream."""
    headers: list[Header]
    at: float
    plain: bytes = b""
    """The client's body without its content-encoding."""
    wire: Protocol | None = None
    request: Request | None = None
    step: Step | None = None
    tenant: str = ""
    project: str = ""
    file: int = 0
    """The archive file it belongs to: Opened.file when it came; -1 if there was none."""
    event: Event = "passthrough"
    session: str = ""
    ms: float = 0.0
    inserts: list[Insert] = []
    shown: list[Restored] = []
    """All blocks that this request carries, replayed ones included."""
    held: list[Restored] = []
    """Blocks that the upstream already holds, for a request that carries only what is new and names what it
    continues."""
    blocks: list[Block] = []
    """New blocks, made for this request."""
    carried: list[Block] = []
    """Earlier blocks that get a new ledger entry, since the text of the message they ride in has changed."""
    passed: list[PassedOver] = []
    """Passages that the restores for this request left out."""
    degraded: list[str] = []
    answered: bytes = b""
    """The answer, decoded, as far as it came."""
    laps: list[tuple[str, float]] = []
    """(stage, seconds) in order: session, restore (where there was one), upstream (to its first byte), answer."""
    lap_at: float = field(default_factory=time.monotonic)

    def lap(self, stage: str) -> None:
        """End `stage` now, and start the next one."""
        now = time.monotonic()
        self.laps.append((stage, now - self.lap_at))
        self.lap_at = now

    @property
    def restored(self) -> int:
        """How many passages the request carries in blocks."""
        return sum([len(restored.placed) for restored in self.shown])

    @property
    def chars(self) -> int:
        """How many characters were added to the request."""
        return sum([len(insert.text) for insert in self.inserts])

    @property
    def entered(self) -> list[Block]:
        """Blocks that this request adds to the ledger."""
        return [*self.carried, *self.blocks]

    @property
    def own_headers(self) -> list[Header]:
        """The client's headers, as they go upstream with its own body."""
        return accept_readable(outgoing(self.arrival.headers))

    def drop_blocks(self, why: str) -> None:
        """Send the request unchanged, without blocks."""
        self.body, self.headers = self.arrival.body, self.own_headers
        self.inserts, self.shown, self.blocks, self.carried = [], [], [], []
        self.degraded.append(why)

    def lantern_headers(self) -> list[Header]:
        """The x-lantern-* headers of the answer."""
        told = [
            (b"x-lantern-request", self.id.encode()),
            (b"x-lantern-session", _NO_HEADER.sub("?", self.session[:_SAID_CHARS]).encode() or b"-"),
            (b"x-lantern-event", self.event.encode()),
            (b"x-lantern-restored", b"%d" % self.restored),
            (b"x-lantern-chars", b"%d" % self.chars),
            (b"x-lantern-ms", b"%.2f" % self.ms),
        ]
        if self.degraded:
            told.append((b"x-lantern-degraded", ", ".join(dict.fromkeys(self.degraded)).encode("ascii", "replace")))
        return told


class Histogram:
    """A Prometheus histogram of durations."""

    BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
    """Upper bounds, in seconds."""

    def __init__(self) -> None:
        self.total = 0.0
        self._counts = [0] * (len(self.BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        self.total += seconds
        self._counts[bisect_left(self.BOUNDS, seconds)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many were at most that long), cumulative; the last bound is "+Inf"."""
        return list(zip([*map(str, self.BOUNDS), "+Inf"], map(float, accumulate(self._counts)), strict=True))


class Tallies:
    """Counters since the start. Only the event loop writes them, except the stage `archive`: only the writer does."""

    def __init__(self) -> None:
        self.degraded: Counter[str] = Counter()
        """What was skipped and why -> how often."""
        self.events: Counter[str] = Counter()
        self.prepare_s = Histogram()
        self.stages: defaultdict[str, Histogram] = defaultdict(Histogram)
        """Stage (see Exchange.laps) -> how long it took."""
        self.blocks: Counter[str] = Counter()
        """Kind -> blocks added."""
        self.prefix = Prefixes()
        self.restored = 0
        self.added_chars = 0

    def count(self, exchange: Exchange) -> None:
        """Count a request that is about to go upstream."""
        if exchange.degraded:
            self.degraded.update(set(exchange.degraded))
        self.events[exchange.event] += 1
        self.prepare_s.add(exchange.ms / 1000)
        self.restored += sum([len(block.restored.placed) for block in exchange.blocks])
        self.added_chars += exchange.chars

    def settle(self, exchange: Exchange) -> None:
        """Count a request whose answer has been relayed."""
        for stage, seconds in exchange.laps:
            self.stages[stage].add(seconds)
        if exchange.blocks:
            self.blocks.update(block.restored.kind for block in exchange.blocks)
        self.prefix.follow(exchange)


class Prefixes:
    """How much of the prefix that successive requests of a session share is still shared in what goes upstream.

    In bytes of whole messages. Only requests with blocks count: the others go out unchanged.
    """

    MOST = 2_048

    def __init__(self) -> None:
        self.shared = 0
        """Bytes at the start of requests that the previous request of the session had as well; a sum over requests."""
        self.kept = 0
        """How many of these bytes went upstream the same as before."""
        self._last: OrderedDict[tuple[str, str], dict[int, int]] = OrderedDict()

    def follow(self, exchange: Exchange) -> None:
        request, step, key = exchange.request, exchange.step, (exchange.tenant, exchange.session)
        before = self._last.pop(key, {})
        if step is None or request is None or not (before or exchange.inserts):
            return
        now = {insert.at: hash(insert.text) for insert in exchange.inserts}
        known = list(takewhile(lambda at: step.verdict.kept[at] is not None, range(len(step.verdict.kept))))
        same = list(takewhile(lambda at: before.get(at) == now.get(at), known))
        sizes = [len(message.raw) for message in request.messages]
        self.shared += sum(sizes[at] for at in known)
        self.kept += sum(sizes[at] for at in same)
        self._last[key] = now
        while len(self._last) > self.MOST:
            self._last.popitem(last=False)


class Once:
    """Logs a fault as an error when it is new and then once an hour while it lasts; other occurrences at level
    debug."""

    AGAIN_S = 3_600.0

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[str, float] = {}

    def tell(self, kind: str, message: str, *parts: object, error: BaseException | None = None) -> None:
        """kind:  of the fault: `write`, or `write:ValueError`
        error: an unexpected one, whose traceback is logged
        """
        now = time.monotonic()
        is_new = now - self._told.get(kind, -self.AGAIN_S) >= self.AGAIN_S
        if is_new:
            self._told[kind] = now
        self._log.log(logging.ERROR if is_new else logging.DEBUG, message, *parts, exc_info=error)

    def is_over(self, kinds: Sequence[str]) -> bool:
        """Forget the faults of these kinds; True when there were any."""
        over = [kind for kind in self._told if kind.partition(":")[0] in kinds]
        for kind in over:
            del self._told[kind]
        return bool(over)


class FailingOpen(Struct):
    """`with FailingOpen(...):` an exception ends the block, never the answer. It is added to exchange.degraded and
    logged, see Once.

    A class, since every request enters five of them and @contextmanager costs five times as much.
    """

    once: Once
    exchange: Exchange
    stage: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, LEAVING):
            return False
        if isinstance(error, WireError):  # the body does not fit its path: the upstream will reject it
            log.info("%s passes through as it came: %s", self.exchange.id, error)
            return True
        self.exchange.degraded.append(f"{self.stage}:error")
        told = "%s: %s failed; the request goes on without it"
        self.once.tell(f"{self.stage}:{type(error).__name__}", told, self.exchange.id, self.stage, error=error)
        return True


async def settled(writing: "Future[Any]", within_s: float) -> bool:
    """Wait for a future of another thread; False if it is not done in that time, in which case its work continues."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bool] = loop.create_future()

    def settle(done: bool) -> None:
        if not waiter.done():
            waiter.set_result(done)

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, True)

    writing.add_done_callback(wake)
    timer = loop.call_later(within_s, settle, False)
    try:
        return await waiter
    finally:
        timer.cancel()
