"""Hard weather, for a moment; scripts/storm does it for as long as you like."""

import asyncio
import os
import random
import sys
import time

import pytest
from scripted import Upstream, ask, body, config_for, events, process, serving, stream, wait_for
from storm import CONCURRENT_CLIENTS, fact, handles, hang_ups, one_stream, slow_stream, soak
from test_failures import SAID, converse, direct

from lantern_proxy import Lantern
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture
def upstream():
    with Upstream() as made:
        yield made


@linux
def test_clients_that_hang_up_are_not_felt_and_leave_nothing_open(upstream, tmp_path):
    usual, upstream.answer = upstream.answer, stream(*events("word " * 400, pieces=100))
    with process(config_for(upstream, tmp_path)) as (serve, url):
        asyncio.run(hang_ups(url, 300))
        # connections to the upstream are kept for later, as many as were used at once; nothing else is
        assert wait_for(lambda: handles(serve.pid) < CONCURRENT_CLIENTS + 40), handles(serve.pid)
        upstream.answer = usual
        assert ask(url, body("still there?")).json()["choices"][0]["message"]["content"] == "I heard: still there?"
        assert serve.poll() is None


@linux
def test_memory_and_handles_stay_flat_under_conversations_that_compact(upstream, tmp_path):
    with process(config_for(upstream, tmp_path)) as (serve, url):
        asyncio.run(soak(url, serve.pid, 4))
        found = asyncio.run(soak(url, serve.pid, 10))
    assert found["requests"] > 40
    assert found["rss_late"] < 1.25 * found["rss_early"] + 12e6, found
    assert found["handles_late"] <= found["handles_early"] + 20, found


def test_a_long_stream_with_odd_pauses_and_broken_text_comes_byte_for_byte(upstream, tmp_path):
    upstream.answer, sent = slow_stream(4, 60)
    with serving(config_for(upstream, tmp_path)) as url:
        assert asyncio.run(one_stream(url)) == sent
        usual = Upstream().answer
        upstream.answer = usual
        assert ask(url, body("go on for long", "word " * 60, "and now?")).status_code == 200


def test_a_page_that_is_spoilt_while_it_serves_costs_no_answer(upstream, tmp_path):
    expected = converse(direct(upstream), turns=12)
    config = config_for(upstream, tmp_path)
    with serving(config) as url:

        def spoiling(request):
            size = config.archive.path.stat().st_size
            with open(config.archive.path, "r+b") as file:
                file.seek(random.Random(size).randrange(4_096, max(size, 8_192)))
                file.write(os.urandom(4_096))
            return ask(url, request)

        for n in range(3):
            converse(lambda request: ask(url, request), turns=3, start=100 * n)
        found = converse(spoiling, turns=12)
    assert [SAID.sub(b"", each) for each in found] == expected


@pytest.mark.parametrize("days", [-3_650, 3_650])
def test_a_clock_that_jumps_changes_no_memory(tmp_path, days):
    """What was archived before a jump is restored after it, whichever way the clock went."""
    config = Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))
    said = [
        {"role": role, "content": text}
        for n in range(8)
        for role, text in (("user", fact("depot", n)), ("assistant", f"Noted, number {n}."))
    ]
    then = time.time() - days * 86_400
    with Lantern(config) as lantern:
        lantern.archive("s", said, times=[then + n for n in range(len(said))])
        blocks = lantern.restore("s", [*said[-4:], {"role": "user", "content": "At how many bar stands gauge G-7919?"}])
    assert any("G-7919" in block.text for block in blocks)
