"""A turn whose last byte reached the client is on disk: kill -9 at any moment loses nothing that was answered."""

import contextlib
import json
import random
import signal
import threading
import time

import httpx
import pytest
from scripted import Upstream, body, config_for, http, process

from lantern_proxy.archive import Archive
from lantern_proxy.config import ArchiveConfig

TALKERS = 6


@pytest.fixture(scope="module")
def upstream():
    with Upstream() as made:
        yield made


def converse(url: str, name: str, answered: list[str], stop: threading.Event) -> None:
    """A conversation that goes on until the proxy dies, or answers with an error. answered: what came to its end."""
    messages: list[dict] = []
    with contextlib.suppress(httpx.HTTPError), httpx.Client(timeout=10) as client:
        for n in range(10_000):
            if stop.is_set():
                return
            messages.append({"role": "user", "content": f"{name} line {n}"})
            streamed = (n + len(name)) % 2 == 0
            request = body(*messages, stream=streamed)
            text = f"I heard: {name} line {n}"
            with client.stream("POST", f"{url}/v1/chat/completions", json=request) as response:
                response.raise_for_status()
                read_to_its_end(response, streamed)
            answered += [messages[-1]["content"], text]
            messages.append({"role": "assistant", "content": text})


def read_to_its_end(response: httpx.Response, streamed: bool) -> None:
    """As clients do: a stream ends for them at [DONE], whatever the connection does then."""
    came = b""
    for piece in response.iter_raw():
        came += piece
        if streamed and came.endswith(b"data: [DONE]\n\n"):
            return
    if not streamed:
        json.loads(came)


def texts_of(config) -> list[str]:
    with Archive(config.archive.path) as archive:
        mine = [archive.of(tenant.id) for tenant in archive.tenants()]
        return [f.message.text for each in mine for row in each.sessions(10_000) for f in each.messages(row.id)]


@pytest.mark.parametrize("synchronous", ["full", "normal"])
def test_whatever_was_answered_survives_kill_9(upstream, tmp_path, synchronous):
    """Ten rounds each on one archive, so that each start recovers what the kill before it left."""
    archive = ArchiveConfig(path=tmp_path / "lantern.db", hold_ms=10_000, synchronous=synchronous)
    config, chance, answered = config_for(upstream, tmp_path, archive=archive), random.Random(1), []
    for round_ in range(10):
        kill_in_a_storm(config, f"{synchronous} round {round_}", answered, chance)
        kept = texts_of(config)
        assert not set(answered) - set(kept)
        assert len(kept) == len(set(kept)), "archived twice"
    assert len(answered) > 10 * TALKERS


def kill_in_a_storm(config, name: str, answered: list[str], chance: random.Random) -> None:
    stop = threading.Event()
    with process(config) as (serve, url):
        threads = [
            threading.Thread(target=converse, args=(url, f"{name} talker {n}", answered, stop)) for n in range(TALKERS)
        ]
        for thread in threads:
            thread.start()
        before = len(answered)
        until = time.monotonic() + 10
        while len(answered) < before + TALKERS and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.15))
        serve.send_signal(signal.SIGKILL)
        serve.wait(10)
    stop.set()
    for thread in threads:
        thread.join(15)


def test_what_was_killed_in_mid_answer_is_mended_by_the_next_request(upstream, tmp_path):
    archive = ArchiveConfig(path=tmp_path / "lantern.db", hold_ms=10_000)
    config = config_for(upstream, tmp_path, archive=archive)
    held = threading.Event()

    async def never_ends(got, wire):
        await wire.head(200, ("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))
        await wire.chunk(b'data: {"choices": [{"index": 0, "delta": {"content": "half"}}]}\n\n')
        held.set()
        await wire.closed()

    first, said = "the first question", "I heard: the first question"
    with process(config) as (serve, url):
        http.post(f"{url}/v1/chat/completions", json=body(first))
        usual, upstream.answer = upstream.answer, never_ends
        with http.stream(
            "POST", f"{url}/v1/chat/completions", json=body(first, said, "the second", stream=True)
        ) as half:
            chunks = half.iter_raw()  # an iterator that nobody holds closes the connection
            next(chunks)
            assert held.wait(5)
            serve.send_signal(signal.SIGKILL)
            serve.wait(10)
    upstream.answer = usual
    assert sorted(texts_of(config)) == sorted([first, said])
    with process(config) as (_, url):
        again = http.post(f"{url}/v1/chat/completions", json=body(first, said, "the second"))
        assert again.headers["x-lantern-event"] == "turn"
    assert sorted(texts_of(config)) == sorted([first, said, "the second", "I heard: the second"])


def test_a_signal_to_stop_writes_all_and_ends_with_success(upstream, tmp_path):
    config = config_for(upstream, tmp_path, archive=ArchiveConfig(path=tmp_path / "lantern.db", hold_ms=0))
    with process(config) as (serve, url):
        for n in range(20):
            http.post(f"{url}/v1/chat/completions", json=body(f"line {n}"))
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(15) == 0
    assert len(texts_of(config)) == 40
