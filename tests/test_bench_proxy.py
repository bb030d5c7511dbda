"""`lantern bench proxy` measures what it says."""

import asyncio
import json
import math
import os
import sys
from contextlib import contextmanager
from dataclasses import fields

import pytest
from click import ClickException
from click.testing import CliRunner
from scripted import Upstream, completion, respond, unused_port

from lantern_proxy import Lantern
from lantern_proxy.bench import proxy_process as processes
from lantern_proxy.bench import serve
from lantern_proxy.bench.proxy import command
from lantern_proxy.bench.proxy_cases import Case, Route, _play_case, _row, cases, measure, wait_for_vectors
from lantern_proxy.bench.proxy_client import dial
from lantern_proxy.bench.proxy_process import Gateway
from lantern_proxy.bench.proxy_report import Row, merge_rows, table, write_report
from lantern_proxy.bench.proxy_talk import Talk
from lantern_proxy.bench.proxy_upstream import answer_text, script
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig

WAIT_S = 0.05


@pytest.fixture(scope="module")
def model():
    with processes.upstream() as url:
        yield url


def test_the_scripted_model_answers_in_one_body_or_in_events(model):
    async def ask(name: str):
        connection = await dial(model)
        talk = Talk(name, 500, 900, stream="-0-" not in name)
        reply = await connection.post("/v1/chat/completions", talk.body())
        connection.close()
        return reply

    whole = asyncio.run(ask(script(chars=100)))
    assert (whole.status, len(answer_text(whole.body, streamed=False))) == (200, 100)
    streamed = asyncio.run(ask(script(chars=100, chunks=5, gap_us=1_000)))
    assert len(streamed.delays_ms()) == 5
    assert min(streamed.delays_ms()) >= 0
    assert streamed.first_ms <= streamed.ms
    assert streamed.body.endswith(b"data: [DONE]\n\n")


def test_a_conversation_grows_by_what_was_said_and_starts_alike():
    talk = Talk(script(), 5_000, 8_000)
    first = json.loads(talk.body())["messages"]
    assert 4_000 <= len(talk.body()) <= 6_000
    talk.answer("quite so")
    second = json.loads(talk.body())["messages"]
    assert second[: len(first)] == first
    assert [m["role"] for m in second[len(first) :]] == ["assistant", "user"]
    assert Talk(script(), 5_000, 8_000).body() != talk.body()


def test_what_a_gateway_waits_is_what_it_is_said_to_add(model):
    """A second server that waits and then answers stands for a gateway."""

    async def slow(got, wire):
        await asyncio.sleep(WAIT_S)
        await respond(200, completion("x"))(got, wire)

    with Upstream(answer=slow) as gateway:
        [row] = measure(Case(seconds=0.5), model, [Gateway("slow", gateway.url)])
    assert WAIT_S * 900 <= row.added_p50_ms < WAIT_S * 1_000 * 20
    assert row.added_p95_ms > 0  # each is a difference of two percentiles, so that it may lie below the median's
    assert row.errors == 0


def test_cpu_time_is_that_of_all_requests_that_it_went_into(model):
    """Those that only warm a gateway up cost it as much as those that are counted."""
    case = Case(seconds=0.05)
    with Upstream() as gateway:
        routes = [Route(Gateway("direct", model)), Route(Gateway("own", gateway.url))]
        asyncio.run(_play_case(case, routes))
        sent = len(gateway.got)
    row = _row(case, *routes, cpu_s=sent / 1_000, rss_mb=1.0)
    assert 0 < row.asked < sent
    assert row.cpu_ms == pytest.approx(1.0)


def test_a_gateway_that_refuses_has_errors_and_no_times(model):
    with Upstream(answer=respond(429, b"{}")) as gateway:
        [row] = measure(Case(seconds=0.2), model, [Gateway("no", gateway.url)])
    assert row.errors > 0
    assert row.asked == 0
    assert math.isnan(row.added_p50_ms)


def test_lantern_is_measured_with_memory_off_on_and_restoring():
    patient = "{embed: {enabled: 'off'}, restore: {deadline_ms: 5000}}"
    arguments = ["--sizes", "2000", "--concurrency", "1,4", "--seconds", "0.3", "--json", "--settings", patient]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [(row["memory"], row["concurrency"], row["chunks"]) for row in rows] == [
        ("restore", 1, 0), ("off", 1, 0), ("on", 1, 0), ("on", 4, 0), ("on", 4, 20), ("on", 4, 50),
    ]  # fmt: skip
    assert all(row["asked"] > 0 and row["errors"] == 0 for row in rows), rows
    assert rows[-1]["delay_p99_ms"] is not None
    assert rows[-1]["direct_delay_p99_ms"] > 0
    assert f"({rows[-1]['direct_delay_p99_ms']:,.2f})" in table([Row(**rows[-1])])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--sizes", "-5"),
        ("--sizes", "2000,0"),
        ("--concurrency", "0"),
        ("--seconds", "0"),
        ("--seconds", "-1"),
        ("--pause", "-1"),
        ("--upstream-port", "65536"),
    ],
)
def test_numbers_that_cannot_be_are_refused(option, value):
    told = CliRunner().invoke(command, [option, value])
    assert (told.exit_code, told.stdout) == (2, "")
    assert f"Invalid value for '{option}'" in told.stderr
    assert CliRunner().invoke(serve.command, ["--settle", "-1"]).exit_code == 2
    assert CliRunner().invoke(serve.command, ["--passages", "-1"]).exit_code == 2


def test_a_plan_without_a_case_is_refused():
    told = CliRunner().invoke(command, ["--sizes", "", "--concurrency", "1", "--memory", "on"])
    assert (told.exit_code, "nothing to measure" in told.stderr) == (2, True)


@pytest.mark.parametrize("settings", ["{archive: 3}", "{archives: {}}"])
def test_settings_with_which_lantern_does_not_start_are_told_in_one_line(settings):
    told = CliRunner().invoke(command, ["--sizes", "2000", "--settings", settings])
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.startswith("Error: lantern did not start; it said last: lantern: ")
    assert ("archive" in told.stderr, told.stderr.count("\n")) == (True, 1)


def test_a_port_that_is_taken_is_told(model):
    taken = model.rpartition(":")[2]
    told = CliRunner().invoke(command, ["--upstream-port", taken])
    assert (told.exit_code, told.stdout) == (1, "")
    assert f"Error: the scripted model did not start on port {taken}" in told.stderr


def test_every_size_is_measured_alone_and_every_crowd_streamed_too():
    plan = list(cases([2_000, 1_000_000], [1, 8], ["off", "on"], 1.0))
    assert [(c.memory, c.size_bytes, c.growing) for c in plan if c.concurrency == 1] == [
        ("off", 2_000, True), ("on", 2_000, True),
        ("off", 1_000_000, True), ("on", 1_000_000, True), ("on", 1_000_000, False),
    ]  # fmt: skip
    assert [c.chunks for c in plan if c.concurrency == 8] == [0, 20, 50]


def test_what_was_lost_has_its_vectors_before_it_is_asked_for_with_the_embedder(tmp_path):
    for dense in (True, False):
        assert [case.embedded for case in cases([2_000], [1], ["restore"], 1.0, dense=dense)] == [dense]
    memory = Lantern(Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off")))
    with memory:
        memory.archive("s", [{"role": "user", "content": "The port is 9443."}])
    with pytest.raises(ClickException, match=r"passages got no vectors within 0\.1 s"):
        wait_for_vectors(tmp_path / "lantern.db", within_s=0.1)


def test_parts_of_a_run_are_merged_and_what_was_written_around_the_table_stays(tmp_path):
    def row(gateway: str, size: int, p50: float) -> Row:
        numbers = {field.name: 1 for field in fields(Row)} | {"gateway": gateway, "memory": "on", "growing": True}
        return Row(**{**numbers, "size_bytes": size, "added_p50_ms": p50, "chunks": 0, "gap_us": 0, "busy": False})

    lines, page = tmp_path / "rows.jsonl", tmp_path / "docs"
    merge_rows(lines, [row("lantern", 2_000, 0.4), row("portkey", 2_000, math.nan)], "first")
    rows, commands = merge_rows(lines, [row("lantern", 2_000, 0.2), row("lantern", 100_000, 0.6)], "second")
    assert [(r.gateway, r.size_bytes) for r in rows] == [("portkey", 2_000), ("lantern", 2_000), ("lantern", 100_000)]
    assert math.isnan(rows[0].added_p50_ms)
    assert rows[1].added_p50_ms == 0.2
    assert commands == ["first", "second"]
    write_report(page, rows[:1], commands)
    written = page / "latency.md"
    above, section, table = written.read_text().partition("## All rows\n")
    written.write_text(f"{above}## In short\n\nMine.\n\n{section}{table}\n## What it means\n\nMine.\n")
    write_report(page, rows, commands)
    assert written.read_text().startswith("# What the proxy adds\n\n## In short\n\nMine.\n\n## All rows\n")
    assert written.read_text().count("## All rows") == 1
    assert written.read_text().endswith("\n## What it means\n\nMine.\n")
    assert "| lantern | on | 100 KB |" in written.read_text()
    assert "first\nsecond\n" in written.read_text()
    assert (page / "latency.svg").read_text().startswith("<svg")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the gateway")
def test_a_file_that_holds_no_lines_of_a_run_is_told_before_anything_is_measured(tmp_path):
    page = tmp_path / "latency.md"
    page.write_text("# What the proxy adds\n")
    told = CliRunner().invoke(command, ["--merge", str(page)])
    assert told.exit_code == 2
    assert str(page) in told.output
    assert page.read_text() == "# What the proxy adds\n"


def test_a_gateway_that_does_not_start_is_told_with_its_last_words(tmp_path):
    script = tmp_path / "broken"
    script.write_text("#!/bin/sh\necho this key is too weak >&2\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(RuntimeError, match="this key is too weak"), as_named("LANTERN_BENCH_LITELLM", script):
        processes.litellm("http://127.0.0.1:9", tmp_path).__enter__()


def test_a_gateway_that_nobody_knows_is_told_by_its_name():
    with pytest.raises(RuntimeError, match="--peer ngnix is not known"), processes.running("ngnix"):
        pass
    with unused_port() as port, pytest.raises(RuntimeError, match=f"--peer http://127.0.0.1:{port} cannot be reached"):
        processes.running(f"http://127.0.0.1:{port}").__enter__()


@contextmanager
def as_named(variable: str, path):
    before = os.environ.get(variable)
    os.environ[variable] = str(path)
    try:
        yield
    finally:
        del os.environ[variable]
        if before is not None:
            os.environ[variable] = before
