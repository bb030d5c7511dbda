"""The cases of `lantern bench proxy`, and how each is played through every gateway and directly.

Direct and proxied requests alternate, from one lean client, on 127.0.0.1. *Added* is a quantile of the proxied requests
minus the same quantile of the direct ones. A growing history is what agents send: each request is the previous one, its
answer and a new message; an unrelated one shares nothing with any other.
"""

import asyncio
import math
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import quantiles

import click

from lantern_proxy.archive import Archive
from lantern_proxy.bench.proxy_client import Connection, Reply, dial
from lantern_proxy.bench.proxy_process import Gateway, usage
from lantern_proxy.bench.proxy_report import Row
from lantern_proxy.bench.proxy_talk import Talk, compacted, facts
from lantern_proxy.bench.proxy_upstream import answer_text, script

_PHASE_S = 0.3
"""With concurrent requests, direct and proxied phases of this length alternate."""
_WARM = 12
_FACTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table, for each gateway."""

    memory: str = "on"
    """off: a path that Lantern only forwards; on: archived; restore: a block is built for each request."""
    size_bytes: int = 2_000
    growing: bool = True
    concurrency: int = 1
    chunks: int = 0
    """Events of a streamed answer; 0: one JSON body."""
    gap_us: int = 0
    seconds: float = 2.0
    busy: bool = False
    """The embedder always has passages waiting."""
    pause_s: float = 0.0
    """Between a history and the request that lost most of it."""
    embedded: bool = False
    """Lost passages have vectors before they are asked for, as in a conversation at human pace."""


@dataclass(slots=True)
class Route:
    """A way to the model, and its measurements."""

    gateway: Gateway
    replies: list[Reply] = field(default_factory=list)
    sent: int = 0
    """All requests, including warm-up ones that are not among the replies, since the gateway's CPU time covers them."""
    errors: int = 0
    busy_s: float = 0.0
    """Time with requests under way."""


class Client:
    """One client of one route: a connection and its conversation."""

    def __init__(self, case: Case, route: Route, connection: Connection) -> None:
        self._case, self._route, self._connection = case, route, connection
        self._talk: Talk | None = None
        self._path = "/v1/completions" if case.memory == "off" else "/v1/chat/completions"

    def _next(self) -> Talk:
        case = self._case
        if self._talk is None or self._talk.is_over or not case.growing:
            model = self._route.gateway.prefix + script(chunks=case.chunks, gap_us=case.gap_us)
            grown = max(1_500, case.size_bytes // 20)
            self._talk = Talk(model, case.size_bytes - grown, case.size_bytes + grown, stream=case.chunks > 0)
        return self._talk

    async def ask(self, keep: bool = True) -> None:
        talk = self._next()
        self._route.sent += 1
        try:
            reply = await self._connection.post(self._path, talk.body())
        except ConnectionError:
            self._route.errors += 1
            self._talk = None
            self._connection = await dial(self._route.gateway.url, self._route.gateway.headers)
            return
        if reply.status != 200:
            self._route.errors += 1
        elif keep:
            self._route.replies.append(reply)
        talk.answer(answer_text(reply.body, streamed=self._case.chunks > 0))

    def close(self) -> None:
        self._connection.close()


async def _play_case(case: Case, routes: Sequence[Route]) -> None:
    """Fill `routes` with the replies of one case."""
    crowds = [
        [Client(case, route, await dial(route.gateway.url, route.gateway.headers)) for _ in range(case.concurrency)]
        for route in routes
    ]
    for route, crowd in zip(routes, crowds, strict=True):
        await asyncio.gather(*(_warm_up(client, max(1, _WARM // case.concurrency)) for client in crowd))
        route.errors = 0
    if case.concurrency == 1:
        await _in_turn(case, routes, [crowd[0] for crowd in crowds])
    else:
        await _in_phases(case, routes, crowds)
    for client in chain.from_iterable(crowds):
        client.close()


async def _warm_up(client: Client, times: int) -> None:
    for _ in range(times):
        await client.ask(keep=False)


async def _in_turn(case: Case, routes: Sequence[Route], clients: Sequence[Client]) -> None:
    """One request after another, alternating between the routes; each round begins with the next route."""
    until, turn = time.monotonic() + case.seconds * len(routes), 0
    while time.monotonic() < until:
        for n in range(len(routes)):
            at = (n + turn) % len(routes)
            begun = time.monotonic()
            await clients[at].ask()
            routes[at].busy_s += time.monotonic() - begun
        turn += 1


async def _in_phases(case: Case, routes: Sequence[Route], crowds: Sequence[Sequence[Client]]) -> None:
    """All clients of one route at once for _PHASE_S, then those of the next."""

    async def until(end: float, client: Client) -> None:
        while time.monotonic() < end:
            await client.ask()

    for _ in range(max(1, round(case.seconds / _PHASE_S))):
        for route, crowd in zip(routes, crowds, strict=True):
            begun = time.monotonic()
            await asyncio.gather(*(until(begun + _PHASE_S, client) for client in crowd))
            route.busy_s += time.monotonic() - begun


async def _restoring(case: Case, routes: Sequence[Route]) -> None:
    """Conversations whose facts a compaction dropped; then each fact is asked for. Only requests with a new block are
    measured, beside the same requests sent directly."""
    direct, proxied = routes[0], routes[1:]
    direct_connection = await dial(direct.gateway.url)
    connections = [(route, await dial(route.gateway.url, route.gateway.headers)) for route in proxied]
    until, serial = time.monotonic() + case.seconds * 2, 0
    while time.monotonic() < until:
        serial += 1
        for route, connection in connections:
            await _restore_one(case, route, connection, direct, direct_connection, serial)


async def _restore_one(
    case: Case, route: Route, connection: Connection, direct: Route, direct_connection: Connection, serial: int
) -> None:
    """One such conversation by `route`. serial: distinguishes it from others

    connection, direct_connection: of the route, and directly to the model
    """
    known, path = facts(serial, _FACTS), "/v1/chat/completions"
    model = route.gateway.prefix + script()
    session = f"x-lantern-session: bench-{serial}"
    talk = Talk(model, case.size_bytes, 10 * case.size_bytes)
    for text, _, _ in known:
        talk.say("user", text)
        talk.say("assistant", f"Noted: {text[-40:]}")
    talk.say("user", "Thank you. What is next?")
    route.sent += 1 + len(known)
    await connection.post(path, talk.body(), session)
    await asyncio.sleep(case.pause_s)
    if case.embedded and route.gateway.archive is not None:
        await asyncio.to_thread(wait_for_vectors, route.gateway.archive)
    turns: list[tuple[str, str]] = []
    added_before, answer = 0, "Noted."
    for _, _, question in known:
        turns.append((answer, question))
        body = compacted(talk, turns)
        reply = await connection.post(path, body, session)
        direct_reply = await direct_connection.post(path, body)
        added = int(reply.headers.get(b"x-lantern-chars", b"0"))
        if reply.status != 200:
            route.errors += 1
        elif added > added_before:
            route.replies.append(reply)
            direct.replies.append(direct_reply)
        added_before, answer = added, answer_text(reply.body, streamed=False)


def wait_for_vectors(archive: Path, within_s: float = 60.0) -> None:
    """Wait until all passages have vectors. ClickException if some never get theirs."""
    until = time.monotonic() + within_s
    with Archive(archive, read_only=True) as opened:
        while opened.uncut(1) or opened.unembedded(1):
            if time.monotonic() > until:
                problem = (
                    f"passages got no vectors within {within_s:g} s; `lantern doctor` says what the embedder lacks"
                )
                raise click.ClickException(problem)
            time.sleep(0.02)


def measure(case: Case, direct_url: str, gateways: Sequence[Gateway]) -> Iterator[Row]:
    """The case through each of `gateways`, and directly."""
    routes = [Route(Gateway("direct", direct_url)), *map(Route, gateways)]
    before = [usage(gateway.pid) for gateway in gateways]
    run = _restoring if case.memory == "restore" else _play_case
    _run(run(case, routes))
    after = [usage(gateway.pid) for gateway in gateways]
    direct = routes[0]
    for route, old, new in zip(routes[1:], before, after, strict=True):
        yield _row(case, direct, route, new.cpu_s - old.cpu_s, new.rss_mb)


def _run(work: Coroutine[object, object, None]) -> None:
    if sys.platform == "win32":
        asyncio.run(work)
        return
    import uvloop

    uvloop.run(work)


def _row(case: Case, direct: Route, route: Route, cpu_s: float, rss_mb: float) -> Row:
    """The costs of a route beyond `direct`. cpu_s, rss_mb: of its gateway"""
    both = (direct.replies, route.replies)
    plain, theirs = (_quantiles([reply.ms for reply in replies]) for replies in both)
    first, their_first = (_quantiles([reply.first_ms for reply in replies]) for replies in both)
    lag, their_lag = (_quantiles([late for reply in replies for late in reply.delays_ms()]) for replies in both)
    asked = len(route.replies)
    cpu_ms = cpu_s * 1000 / route.sent if asked else math.nan
    return Row(
        gateway=route.gateway.name, memory=case.memory if route.gateway.name == "lantern" else "-",
        size_bytes=case.size_bytes, growing=case.growing, chunks=case.chunks, gap_us=case.gap_us,
        concurrency=case.concurrency, busy=case.busy, asked=asked, errors=route.errors, direct_ms=plain[0],
        added_p50_ms=theirs[0] - plain[0], added_p95_ms=theirs[1] - plain[1], added_p99_ms=theirs[2] - plain[2],
        first_p50_ms=their_first[0] - first[0], first_p95_ms=their_first[1] - first[1],
        delay_p50_ms=their_lag[0] - lag[0], delay_p99_ms=their_lag[2] - lag[2],
        per_s=asked / route.busy_s if route.busy_s else math.nan,
        per_core_s=1000 / cpu_ms if cpu_ms else math.nan, cpu_ms=cpu_ms, rss_mb=rss_mb,
        direct_delay_p99_ms=lag[2],
    )  # fmt: skip


def _quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    """p50, p95, p99; NaN for no values."""
    if len(values) < 2:
        return (values[0],) * 3 if values else (math.nan,) * 3
    cut = quantiles(values, n=100, method="inclusive")
    return cut[49], cut[94], cut[98]


def cases(
    sizes: Sequence[int], crowds: Sequence[int], memory: Sequence[str], seconds: float, *, dense: bool = False,
    pause_s: float = 0.0,
) -> Iterator[Case]:  # fmt: skip
    """Restores; each size alone, by kind of memory and history; concurrent ones, streamed and not; paced streams.

    Restores come first: otherwise their passages would wait for vectors behind those of all other cases.

    dense: with the embedder, which cannot keep up with concurrent cases; lost passages have their vectors
    """
    if "restore" in memory:
        yield Case(memory="restore", seconds=seconds, embedded=dense, pause_s=pause_s)
    for size in sizes:
        for kind in memory:
            if kind == "restore":
                continue
            yield Case(memory=kind, size_bytes=size, seconds=seconds)
            if kind == "on" and size > 10_000:
                yield Case(memory=kind, size_bytes=size, growing=False, seconds=seconds)
    crowd_memory = "on" if "on" in memory else memory[0]
    for crowd in crowds:
        if crowd > 1:
            yield Case(memory=crowd_memory, concurrency=crowd, seconds=seconds)
            yield Case(memory=crowd_memory, concurrency=crowd, chunks=20, seconds=seconds)
            yield Case(memory=crowd_memory, concurrency=crowd, chunks=50, gap_us=10_000, seconds=seconds, busy=dense)
