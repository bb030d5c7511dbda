"""Stress tests of a proxy in a process of its own: clients that hang up, kills, hours of traffic, endless streams.

    scripts/storm --kills 200           kill -9 at random moments under load, on one archive; nothing is missing
    scripts/storm --hang-ups 1000       clients that leave at random moments, and none of them is felt
    scripts/storm --soak 3600           an hour of conversations that compact; memory and file handles stay flat
    scripts/storm --stream 1800         one stream of half an hour, byte for byte

tests/test_storm.py does each of them for a moment.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from scripted import Upstream, Wire, ask, body, config_for, events, process, stream

from lantern_proxy.config import ArchiveConfig


def fact(name: str, n: int) -> str:
    return f"{name} line {n}: gauge G-{n * 7919} stands at {n * 13} bar in hall H{n}. " * 3


def rss_bytes(pid: int) -> int:
    """Memory of a process. Linux only."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


# clients that hang up


CONCURRENT_CLIENTS = 50


async def hang_ups(url: str, count: int, *, at_once: int = CONCURRENT_CLIENTS, seed: int = 1) -> None:
    """`count` clients send a streaming request, and leave before, within or after its answer."""
    chance, gate = random.Random(seed), asyncio.Semaphore(at_once)

    async def one(n: int) -> None:
        async with gate:
            await _leave(url, n, chance.random(), chance.uniform(0, 0.05))

    await asyncio.gather(*(one(n) for n in range(count)))


async def _leave(url: str, n: int, stage: float, pause_s: float) -> None:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    data = json.dumps(body(fact(f"caller {n}", n), stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n".encode()
    try:
        if stage < 0.2:  # in the middle of its own request
            writer.write(head + data[: len(data) // 2])
        else:
            writer.write(head + data)
            if stage < 0.8:
                await reader.read(1 if stage < 0.5 else 200)
            else:
                await asyncio.wait_for(reader.readuntil(b"[DONE]"), 60)
        await asyncio.sleep(pause_s)
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        pass
    writer.transport.abort()


# hours of traffic


async def soak(url: str, pid: int, seconds: float, *, talkers: int = 8, pause_s: float = 0.0) -> dict[str, float]:
    """Conversations that grow, compact and begin anew. Returns memory and handles of the proxy, early and late.

    pause_s: of each talker, before each request
    rss_early, rss_late: bytes, medians of the second and of the last sixth; requests: how many were answered
    """
    until, answered = time.monotonic() + seconds, [0]
    samples: list[tuple[int, int]] = []

    async def watch() -> None:
        while time.monotonic() < until:
            samples.append((rss_bytes(pid), handles(pid)))
            await asyncio.sleep(max(0.05, seconds / 240))

    async with httpx.AsyncClient(timeout=60, base_url=url) as client:
        talk = (_talk(client, f"talker {n}", until, answered, pause_s) for n in range(talkers))
        await asyncio.gather(watch(), *talk)
    sixth = max(1, len(samples) // 6)
    early, late = samples[sixth : 2 * sixth] or samples, samples[-sixth:]
    return {
        "requests": float(answered[0]),
        "rss_early": statistics.median(rss for rss, _ in early),
        "rss_late": statistics.median(rss for rss, _ in late),
        "handles_early": statistics.median(open_handles for _, open_handles in early),
        "handles_late": statistics.median(open_handles for _, open_handles in late),
    }


async def _talk(client: httpx.AsyncClient, name: str, until: float, answered: list[int], pause_s: float) -> None:
    chance = random.Random(name)
    life = 0
    while time.monotonic() < until:
        life += 1
        messages: list[dict] = []
        for n in range(chance.randrange(6, 40)):
            if time.monotonic() > until:
                return
            if len(messages) > 30:
                messages = messages[-4:]  # the client compacts
            messages.append({"role": "user", "content": fact(f"{name}, life {life},", n)})
            request = body(*messages, stream=chance.random() < 0.5)
            await asyncio.sleep(pause_s)
            answer = await client.post("/v1/chat/completions", json=request)
            assert answer.status_code == 200, answer.text
            answered[0] += 1
            messages.append({"role": "assistant", "content": f"I heard: {messages[-1]['content'].strip()}"})


# one long stream


def slow_stream(seconds: float, pieces: int):
    """An upstream whose answer takes `seconds`, in `pieces` events with odd pauses, among them broken UTF-8."""
    chance = random.Random(3)
    broken = [b'data: {"half\n', b"\n: \xff\xfe\xc3\n\n"]
    parts = [*events("word " * pieces, pieces=pieces)[:-1], *broken, b"data: [DONE]\n\n"]

    async def answer(_got, wire: Wire) -> None:
        await wire.head(200, ("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))
        for part in parts:
            await wire.chunk(part)
            await asyncio.sleep(chance.uniform(0, 2) * seconds / len(parts))
        await wire.send(b"0\r\n\r\n")

    return answer, b"".join(parts)


async def one_stream(url: str) -> bytes:
    async with (
        httpx.AsyncClient(timeout=None) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=body("go on for long", stream=True)) as response,
    ):
        return b"".join([piece async for piece in response.aiter_raw()])


# the script


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="kill -9 so often")
    parser.add_argument("--hang-ups", type=int, default=0, help="clients that leave")
    parser.add_argument("--soak", type=float, default=0, help="seconds of traffic")
    parser.add_argument("--pause", type=float, default=0, help="seconds between two requests of a talker of --soak")
    parser.add_argument("--stream", type=float, default=0, help="seconds of one stream")
    options = parser.parse_args(arguments)
    if not any(vars(options).values()):
        parser.print_help()
        return 2
    with tempfile.TemporaryDirectory() as folder, Upstream() as upstream:
        archive = ArchiveConfig(path=Path(folder) / "storm.db", hold_ms=10_000)
        config = config_for(upstream, Path(folder), archive=archive)
        if options.kills:
            _kills(config, options.kills)
        with process(config) as (serve, url):
            if options.hang_ups:
                upstream.answer = stream(*events("word " * 400, pieces=200))
                ask(url, body("are you there?"))
                before = handles(serve.pid)
                asyncio.run(hang_ups(url, options.hang_ups))
                time.sleep(2)
                print(
                    f"{options.hang_ups} clients left: handles {before} before, {handles(serve.pid)} after", flush=True
                )
            if options.stream:
                upstream.answer, sent = slow_stream(options.stream, 2_000)
                started = time.monotonic()
                same = asyncio.run(one_stream(url)) == sent
                took, how = time.monotonic() - started, "byte for byte" if same else "ALTERED"
                print(f"a stream of {took:.0f} s: {how}", flush=True)
            if options.soak:
                upstream.answer = Upstream().answer
                for name, value in asyncio.run(soak(url, serve.pid, options.soak, pause_s=options.pause)).items():
                    print(f"soak of {options.soak:.0f} s: {name} {value:,.0f}", flush=True)
    return 0


def _kills(config, rounds: int) -> None:
    from test_durability import kill_in_a_storm, texts_of

    answered: list[str] = []
    chance = random.Random(rounds)
    for round_ in range(1, rounds + 1):
        kill_in_a_storm(config, f"round {round_}", answered, chance)
        if not round_ % 10 or round_ == rounds:
            kept = texts_of(config)
            lost, twice = len(set(answered) - set(kept)), len(kept) - len(set(kept))
            print(f"{round_} kills: {len(answered)} messages answered, {lost} lost, {twice} twice", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
