"""Several workers on one archive: to a client they are one proxy, whichever of them its connection reaches."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from scripted import Upstream, ask, body, config_for, lantern_headers, process, wait_for
from test_durability import converse, texts_of

from lantern_proxy.admin.metrics import merged
from lantern_proxy.app_place import WorkerPlace
from lantern_proxy.app_workers import Peers
from lantern_proxy.config import Config

BLOCK = re.compile(r"<restored_context.*?</restored_context>", re.S)
CLIENTS = [f"sk-{n}" for n in range(6)]
"""Credentials that both of two workers have some of."""
PATIENT = "restore: {deadline_ms: 5000}\n"

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture
def upstream():
    with Upstream() as made:
        yield made


def once(url: str, request: dict, key: str, **headers: str) -> httpx.Response:
    """One request on a connection of its own."""
    head = {"authorization": f"Bearer {key}", "connection": "close", **headers}
    return httpx.post(f"{url}/v1/chat/completions", json=request, headers=head, timeout=60)


def fact(key: str, n: int) -> str:
    return f"Depot {n} of {key} ships through gate GATE-{n * 7919:05d}, and its keeper is Keeper-{n * 104729:06d}."


def workers(serve: subprocess.Popen) -> list[int]:
    """Processes of the workers."""
    found = []
    for child in Path(f"/proc/{serve.pid}/task/{serve.pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # one that has just ended
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def health(url: str) -> dict:
    return httpx.get(f"{url}/lantern/health", timeout=60).json()


def all_up(url: str, count: int) -> None:
    """Wait until so many workers answer."""
    assert wait_for(lambda: [w["status"] for w in health(url)["workers"]] == ["ok"] * count, 60)


def test_a_conversation_whose_connections_reach_any_worker_gets_its_block_and_the_same_bytes_ever_after(
    upstream, tmp_path
):
    with process(config_for(upstream, tmp_path), "--workers", "2", more=PATIENT) as (_, url):
        for key in CLIENTS:
            messages: list[dict] = []
            for n in range(8):
                messages.append({"role": "user", "content": fact(key, n)})
                messages.append(once(url, body(*messages), key).json()["choices"][0]["message"])
            kept = [*messages[-4:], {"role": "user", "content": "Which gate does depot number 2 ship through?"}]
            sent: list[list[str]] = []
            for n in range(5):
                answer = once(url, body(*kept), key)
                assert lantern_headers(answer)["restored"] != "0", (key, n, lantern_headers(answer))
                assert "degraded" not in lantern_headers(answer)
                sent.append([str(m["content"]) for m in upstream.got[-1].data["messages"]])
                kept += [answer.json()["choices"][0]["message"], {"role": "user", "content": f"Noted, {n}."}]
            blocks = BLOCK.findall("\n".join(sent[0]))
            assert "GATE-15838" in "\n".join(blocks)
            for before, after in pairwise(sent):
                assert after[: len(before)] == before  # the provider's prompt cache holds
        each = [one["events"] for one in health(url)["workers"]]
        assert all(one.get("window") or one.get("compacted") for one in each), each
    assert len(texts_of(config_for(upstream, tmp_path))) == len(CLIENTS) * 2 * (8 + 5)


@linux
def test_a_worker_that_is_killed_loses_nothing_and_is_started_again(upstream, tmp_path):
    config, answered, stop = config_for(upstream, tmp_path), [], threading.Event()
    with process(config, "--workers", "2") as (serve, url):
        assert wait_for(lambda: len(workers(serve)) == 2)
        for victim in range(4):
            stop.clear()
            talkers = [
                threading.Thread(target=_persist, args=(url, f"round {victim} talker {n}", answered, stop))
                for n in range(6)
            ]
            before = len(answered)
            for talker in talkers:
                talker.start()
            wait_for(lambda before=before: len(answered) > before + 12)
            killed = workers(serve)[victim % 2]
            os.kill(killed, signal.SIGKILL)
            assert wait_for(lambda killed=killed: len(workers(serve)) == 2 and killed not in workers(serve))
            there = len(answered)
            assert wait_for(lambda there=there: len(answered) > there + 12), "nobody is served any more"
            stop.set()
            for talker in talkers:
                talker.join(30)
        all_up(url, 2)
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(30) == 0
    kept = texts_of(config)
    assert not set(answered) - set(kept)
    assert len(kept) == len(set(kept)), "archived twice"


def _persist(url: str, name: str, answered: list[str], stop: threading.Event) -> None:
    """Conversations, each until the proxy breaks one off."""
    life = 0
    while not stop.is_set():
        life += 1
        converse(url, f"{name} life {life}", answered, stop)


def test_metrics_and_health_tell_of_all_workers(upstream, tmp_path):
    with process(config_for(upstream, tmp_path), "--workers", "3") as (_, url):
        all_up(url, 3)
        for key in CLIENTS:
            once(url, body("hello"), key)
        for _ in range(4):  # whichever worker answers
            text = httpx.get(f"{url}/lantern/metrics", timeout=60).text
            counts = re.findall(r'^lantern_requests_total\{worker="(\d)",event="new"\} (\S+)$', text, re.M)
            assert sum(float(count) for _, count in counts) == len(CLIENTS)
            assert len(counts) > 1
            assert re.findall(r'^lantern_worker_up\{worker="(\d)"\} 1.0$', text, re.M) == ["0", "1", "2"]
            names = re.findall(r"^# TYPE (\S+)", text, re.M)
            assert len(names) == len(set(names))
            told = health(url)
            assert told["events"] == {"new": len(CLIENTS)}
            assert len(told["workers"]) == 3


def test_the_pages_event_stream_hears_every_worker(upstream, tmp_path):
    with process(config_for(upstream, tmp_path), "--workers", "2") as (_, url):
        all_up(url, 2)
        with httpx.stream("GET", f"{url}/lantern/api/events", timeout=60) as page:
            lines = page.iter_lines()
            next(lines)
            time.sleep(1.0)  # the other worker's stream is open by then
            for key in CLIENTS:
                once(url, body("hello"), key)
            heard = set()
            for line in lines:
                if line.startswith("data: "):
                    heard.add(json.loads(line[6:])["tenant"])
                if len(heard) == len(CLIENTS):
                    break
            assert len(heard) == len(CLIENTS)


def test_a_limit_holds_for_all_workers_together(upstream, tmp_path):
    with process(config_for(upstream, tmp_path), "--workers", "3", more="access: {requests_per_minute: 2}\n") as (
        _,
        url,
    ):
        for key in CLIENTS:
            statuses = [once(url, body(f"hello {n}"), key).status_code for n in range(5)]
            assert (statuses[0], statuses[-1]) == (200, 429), statuses


def test_what_passes_through_comes_back_as_it_is(upstream, tmp_path):
    with process(config_for(upstream, tmp_path), "--workers", "2") as (_, url):
        for key in CLIENTS:
            head = {"authorization": f"Bearer {key}", "connection": "close", "x-custom": "kept"}
            big = b"x" * 3_000_000
            for data in (b"{}", big, iter([big[:7], big[7:]])):
                answer = httpx.post(f"{url}/v1/embeddings?a=b%20c", content=data, headers=head, timeout=60)
                got = upstream.got[-1]
                assert (answer.status_code, answer.content) == (200, b"{}")
                assert (got.target, got.header("x-custom")) == ("/v1/embeddings?a=b%20c", "kept")
                assert not [name for name, _ in got.headers if name.lower().startswith("x-lantern")]
            assert got.body == big
            assert httpx.head(f"{url}/v1/models", headers=head, timeout=60).status_code == 200
            assert once(url, body("hi"), key, upgrade="websocket", connection="upgrade").status_code == 426


@linux
def test_workers_end_when_their_parent_is_killed(upstream, tmp_path):
    with process(config_for(upstream, tmp_path), "--workers", "2") as (serve, url):
        once(url, body("hello"), "sk-0")
        pids = workers(serve)
        assert len(pids) == 2
        serve.send_signal(signal.SIGKILL)
        serve.wait(10)
        assert wait_for(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()])


@linux
@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_interrupt_ends_it_also_where_a_shell_started_it_in_the_background(upstream, tmp_path, processes):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `lantern serve &` of a script has it
    try:
        with process(config_for(upstream, tmp_path), "--workers", processes) as (serve, url):
            assert wait_for(lambda: health(url)["status"] == "ok", 60)
            serve.send_signal(signal.SIGINT)
            assert serve.wait(30) == 0
    finally:
        signal.signal(signal.SIGINT, before)


@linux
def test_a_worker_that_is_stopped_serves_the_others_until_they_have_answered_their_clients(upstream, tmp_path):
    """Requests arrive while the server stops, all at one worker, which forwards some of them to the other."""
    with process(config_for(upstream, tmp_path), "--workers", "2") as (serve, url):
        all_up(url, 2)
        idle = workers(serve)[0]
        content, place = json.dumps(body("hello")).encode(), httpx.URL(url)
        os.kill(idle, signal.SIGSTOP)
        sockets = [socket.create_connection((place.host, place.port), timeout=60) for _ in CLIENTS]
        for key, sock in zip(CLIENTS, sockets, strict=True):
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
            sock.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content[:9])
        time.sleep(0.5)
        os.kill(idle, signal.SIGCONT)
        serve.send_signal(signal.SIGTERM)
        time.sleep(1.0)
        for sock in sockets:
            sock.sendall(content[9:])
        assert [sock.recv(12) for sock in sockets] == [b"HTTP/1.1 200"] * len(CLIENTS)
        for sock in sockets:
            sock.close()
        assert serve.wait(30) == 0


def test_a_worker_that_cannot_start_again_ends_the_server_with_its_reason(upstream, tmp_path):
    config = config_for(upstream, tmp_path)
    with process(config, "--workers", "2") as (serve, url):
        all_up(url, 2)
        Path(f"{config.archive.path}.keys").write_text("no keys at all")
        os.kill(workers(serve)[0], signal.SIGKILL)
        assert serve.wait(120) != 0
        assert "cannot be read" in serve.stderr.read()


def test_a_missing_admin_token_is_told_once_and_before_anything_is_served(tmp_path):
    (tmp_path / "c.yaml").write_text(f"access: {{admin: token}}\narchive: {{path: {tmp_path / 'a.db'}}}\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LANTERN_")}
    run = [sys.executable, "-m", "lantern_proxy", "serve", "--config", str(tmp_path / "c.yaml"), "--port", "0"]
    ran = subprocess.run([*run, "--workers", "2"], capture_output=True, text=True, timeout=60, env=environ)
    assert (ran.returncode, ran.stdout) == (2, "")
    told = "access.admin_token_env LANTERN_ADMIN_TOKEN holds no admin token; put one there: openssl rand -hex 32"
    assert ran.stderr == f"lantern: {told}\n"


def test_a_workers_own_port_is_for_workers():
    peers = Peers(WorkerPlace(0, (4001, 4002), "secret"), Config())
    scope = {"server": ("127.0.0.1", 4001), "client": ("127.0.0.1", 9), "headers": [(b"host", b"x")]}
    assert peers.original_scope(scope) is None
    assert peers.original_scope({**scope, "headers": [(b"x-lantern-worker", b"guess")]}) is None
    known = [(b"x-lantern-worker", b"secret"), (b"x-lantern-worker-client", b"10.1.2.3"), (b"host", b"x")]
    entered = peers.original_scope({**scope, "headers": known})
    assert entered is not None
    assert (entered["client"], entered["headers"]) == (("10.1.2.3", 0), [(b"host", b"x")])
    public = {**scope, "server": ("127.0.0.1", 8484), "headers": known}
    assert peers.original_scope(public) is public


def test_samples_are_told_apart_by_worker():
    up = "# HELP lantern_worker_up U.\n# TYPE lantern_worker_up gauge\nlantern_worker_up 1.0\n"
    one = '# HELP a_total A.\n# TYPE a_total counter\na_total{event="x\\"y"} 1.0\na_total 2.0\n' + up
    found = merged({1: one, 0: one.replace("2.0", "5.0")}, range(3))
    assert found.splitlines() == [
        "# HELP a_total A.", "# TYPE a_total counter", 'a_total{worker="0",event="x\\"y"} 1.0',
        'a_total{worker="0"} 5.0', 'a_total{worker="1",event="x\\"y"} 1.0', 'a_total{worker="1"} 2.0',
        "# HELP lantern_worker_up U.", "# TYPE lantern_worker_up gauge",
        'lantern_worker_up{worker="0"} 1.0', 'lantern_worker_up{worker="1"} 1.0', 'lantern_worker_up{worker="2"} 0.0',
    ]  # fmt: skip


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_second_server_of_one_archive_is_told_of_the_first_and_one_that_follows_it_is_not(
    upstream, tmp_path, workers
):
    config = config_for(upstream, tmp_path)
    for _ in range(2):  # the second round comes after the first pair has ended
        with process(config, "--workers", workers) as (first, url), process(config) as (second, other):
            assert ask(url, body("To the first.")).status_code == ask(other, body("To the second.")).status_code == 200
            for serve in (second, first):
                serve.send_signal(signal.SIGTERM)
                assert serve.wait(60) == 0
            told = second.stderr.read()
            assert f"(process {first.pid}) serves {config.archive.path}, too" in told
            assert "--workers" in told
            assert "serves" not in first.stderr.read()
    assert not list(tmp_path.glob("*-serve"))
