"""Whatever fails in Lantern costs the restore or the record, never the answer."""

import asyncio
import contextlib
import logging
import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import pytest
from scripted import (
    CHUNKED,
    SSE,
    Upstream,
    ask,
    body,
    config_for,
    echo,
    events,
    http,
    lantern_headers,
    process,
    serving,
    wait_for,
)

from lantern_proxy.archive import Archive
from lantern_proxy.cli.doctor import examine
from lantern_proxy.compiled import available
from lantern_proxy.config import ArchiveConfig, EmbedConfig, RestoreConfig
from lantern_proxy.proxy.writer import Writer
from lantern_proxy.restore.restorer import Restorer

SAID = re.compile(rb'"id": "[^"]*"')


@pytest.fixture(scope="module")
def upstream():
    with Upstream() as made:
        yield made


def converse(ask_one, turns: int = 4, start: int = 0, messages: list | None = None) -> list[bytes]:
    """The answers to a conversation, streamed and not in turn, then to what is left of it after a loss."""
    messages, answers = [] if messages is None else messages, []
    for n in range(start, start + turns):
        messages.append(
            {"role": "user", "content": f"Line {n}: gauge G-{n * 7919} stands at {n * 13} bar in hall H{n}."}
        )
        answer = ask_one(body(*messages, stream=bool(n % 2)))
        assert answer.status_code == 200
        answers.append(SAID.sub(b"", answer.content))
        messages.append({"role": "assistant", "content": f"I heard: {messages[-1]['content']}"})
    answer = ask_one(body(*messages[-2:], "At how many bar stands gauge G-7919 in hall H1?"))
    return [*answers, SAID.sub(b"", answer.content)]


def health(url: str) -> dict:
    return http.get(f"{url}/lantern/health").json()


def direct(upstream: Upstream):
    return lambda request: http.post(f"{upstream.url}/v1/chat/completions", json=request)


@pytest.fixture
def expected(upstream):
    """What the client gets without Lantern."""
    return converse(direct(upstream))


def sessions(url: str) -> list[dict]:
    return http.get(f"{url}/lantern/api/sessions").json()


def archived(url: str) -> set[str]:
    """All texts of all sessions."""
    each = [http.get(f"{url}/lantern/api/sessions/{row['id']}").json() for row in sessions(url)]
    return {m["text"] for session in each for m in session["messages"]}


# the archive


def damage_deleted(path):
    for part in (f"{path}-wal", f"{path}-shm", path):  # the file last: one that is made anew meanwhile has a log, too
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def damage_replaced(path):
    damage_deleted(path)
    path.write_bytes(b"")


def damage_overwritten(path):
    damage_deleted(path)
    path.write_bytes(b"this is not a database, but a diary " * 1_000)


@pytest.mark.parametrize("damage", [damage_deleted, damage_replaced, damage_overwritten])
def test_an_archive_that_vanishes_under_it_costs_no_answer(upstream, expected, tmp_path, damage):
    config = config_for(upstream, tmp_path)
    with serving(config) as url:
        assert converse(lambda request: ask(url, request)) == expected
        damage(config.archive.path)
        assert converse(lambda request: ask(url, request)) == expected
        assert health(url)["faults"]["deleted"] >= 1


def test_a_deleted_archive_is_made_anew_and_filled_by_what_clients_resend(upstream, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("lantern_proxy.proxy._LOOK_S", 60.0)  # the first request sees the new file, however busy it is
    config, messages = config_for(upstream, tmp_path), []
    with serving(config) as url:
        converse(lambda request: ask(url, request), 4, 0, messages)
        old = {row["id"] for row in sessions(url)}
        assert wait_for(lambda: http.get(f"{url}/lantern/api/search?q=G-23757").json())  # all is cut: nobody writes
        damage_deleted(config.archive.path)
        converse(lambda request: ask(url, request), 2, 4, messages)
        assert wait_for(lambda: archived(url) >= {m["content"] for m in messages})
        assert not old & {row["id"] for row in sessions(url)}
        assert health(url)["archive"]["ok"]
        found = lantern_headers(ask(url, body(*messages[-2:], "At how many bar stands gauge G-7919 in hall H1?")))
        assert int(found["restored"]) > 0
    assert len([r for r in caplog.records if "a new one is kept" in r.getMessage() and r.levelno >= logging.ERROR]) == 1


def test_each_new_archive_is_known_to_be_another_one(upstream, tmp_path):
    """The number of a file that is gone is often that of the next one."""
    config = config_for(upstream, tmp_path)
    writer = Writer(config)
    try:
        for n in range(1, 9):
            assert writer.opened.file == n
            damage_deleted(config.archive.path)
            writer.look().result(60)
    finally:
        writer.close()


def locking(path) -> subprocess.Popen:
    """Another process that holds the write lock until something is said to it."""
    code = (
        "import sqlite3, sys; held = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "held.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read(1)"
    )
    lock = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert lock.stdout.readline() == "held\n"
    return lock


def test_an_archive_that_another_process_locks_costs_no_answer_and_nothing_is_lost(upstream, expected, tmp_path):
    archive, messages = ArchiveConfig(path=tmp_path / "lantern.db", hold_ms=250), []
    config = config_for(upstream, tmp_path, archive=archive)
    with serving(config) as url:
        converse(lambda request: ask(url, request), 1, 0, messages)
        lock = locking(config.archive.path)
        started = time.monotonic()
        assert converse(lambda request: ask(url, request), 3, 1, messages)
        answer = ask(url, body(*messages, "still there?"))
        held_s = time.monotonic() - started
        assert "I heard: still there?" in answer.text
        assert held_s < 5 * (config.archive.hold_ms / 1000 + 3)  # to wait for the lock would take 20 s and more
        assert wait_for(lambda: not health(url)["archive"]["ok"])
        answer = ask(url, body(*messages, "still there?", "I heard: still there?", "sure?"))
        assert lantern_headers(answer)["degraded"] == "archive:unavailable"
        assert "is locked by another process" in health(url)["archive"]["problem"]
        assert archived(url)
        lock.communicate("done", timeout=60)
        assert wait_for(lambda: health(url)["archive"]["ok"])
        assert wait_for(lambda: archived(url) >= {m["content"] for m in messages})
        assert "degraded" not in lantern_headers(ask(url, body(*messages, "and now?")))


def corrupt(path, upstream):
    path.write_bytes(os.urandom(100_000))


def half_corrupt(path, upstream):
    with serving(config_for(upstream, path.parent)) as url:
        converse(lambda request: ask(url, request))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 8192))


def newer(path, upstream):
    Archive(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        table = next(t for (t,) in db.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%migrations%'"))
        db.execute(
            f"INSERT INTO {table} (migration_set, name, applied_at) VALUES ('lantern.archive', 'm999_later', '2099')"
        )


def not_ours(path, upstream):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE diary (entry TEXT)")


def a_folder(path, upstream):
    path.mkdir()


def of_a_broken_secret(path, upstream):
    """What nobody foresaw: no error of SQLite's."""
    Archive(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE settings SET value = 'not hex' WHERE name = 'secret'")


@pytest.mark.parametrize("spoil", [corrupt, half_corrupt, newer, not_ours, a_folder, of_a_broken_secret])
def test_an_archive_that_cannot_be_used_at_the_start_costs_no_answer_and_is_left_alone(
    upstream, expected, tmp_path, spoil, caplog
):
    config = config_for(upstream, tmp_path)
    spoil(config.archive.path, upstream)
    before = config.archive.path.read_bytes() if config.archive.path.is_file() else b""
    with serving(config) as url:
        assert converse(lambda request: ask(url, request)) == expected
        found = lantern_headers(ask(url, body("one more")))
        state = health(url)
        assert "lantern_archive_up 0.0" in http.get(f"{url}/lantern/metrics").text
    assert found["degraded"] == "archive:unavailable"
    assert found["event"] == "new"
    assert not state["archive"]["ok"]
    assert str(config.archive.path) in state["archive"]["problem"]
    assert state["degraded"]["archive:unavailable"] == 6
    errors = [r for r in caplog.records if r.name.startswith("lantern") and r.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert errors[0].getMessage().endswith("; until then requests go on without memory")
    if config.archive.path.is_file() and spoil not in (half_corrupt, of_a_broken_secret):
        assert config.archive.path.read_bytes() == before


@pytest.mark.skipif(not available(), reason="the extra `dense` is not installed")
def test_an_embedder_that_cannot_be_had_is_in_the_log_and_what_the_doctor_says(upstream, tmp_path, caplog):
    (tmp_path / "file").touch()
    config = config_for(upstream, tmp_path, embed=EmbedConfig(cache_dir=tmp_path / "file/cache"))
    with serving(config) as url:
        ask(url, body("hello"))
        assert wait_for(lambda: "no vectors: embed.cache_dir" in caplog.text)
        here = replace(config, server=replace(config.server, port=httpx.URL(url).port))
        found = examine(None, here, offline=True, deep=False)
        assert any(each.detail.startswith("the proxy has none: embed.cache_dir") for each in found)


def test_an_archive_that_becomes_usable_is_used(upstream, tmp_path):
    config, messages = config_for(upstream, tmp_path / "later"), []
    with serving(config) as url:
        converse(lambda request: ask(url, request), 2, 0, messages)
        assert not health(url)["archive"]["ok"]
        config.archive.path.parent.mkdir()
        assert wait_for(lambda: "degraded" not in lantern_headers(ask(url, body(*messages, "now?"))))
        assert wait_for(lambda: archived(url) >= {m["content"] for m in messages})


@pytest.fixture
def shut_folder(tmp_path):
    """A folder with an archive that nobody may write: of a read-only mount for root, who may write anywhere else."""
    folder = tmp_path / "shut"
    folder.mkdir()
    root = os.getuid() == 0
    if (
        root
        and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True).returncode
    ):
        pytest.skip("root may not mount here")
    Archive(folder / "lantern.db").close()
    if root:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    else:
        (folder / "lantern.db").chmod(0o400)
        folder.chmod(0o500)
    yield folder
    if root:
        subprocess.run(["umount", "-l", folder], check=True)
    else:
        folder.chmod(0o700)


def test_an_archive_that_may_not_be_written_costs_no_answer(upstream, expected, shut_folder):
    with serving(config_for(upstream, shut_folder)) as url:
        assert converse(lambda request: ask(url, request)) == expected
        assert not health(url)["archive"]["ok"]
        assert lantern_headers(ask(url, body("more")))["degraded"] == "archive:unavailable"


def test_a_full_disk_costs_no_answer_and_what_waits_is_written_later(upstream, expected, tmp_path):
    """A limit on the size of files stands for the end of the disk."""
    config, messages = config_for(upstream, tmp_path), []

    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))

    with process(config, preexec_fn=little_room) as (serve, url):
        assert converse(lambda request: ask(url, request)) == expected
        filler = "".join(f"word{n} " for n in range(8_000))
        for n in range(12):
            assert ask(url, body(f"{n} {filler}")).status_code == 200
        assert wait_for(lambda: not health(url)["archive"]["ok"])
        converse(lambda request: ask(url, request), 3, 10, messages)
        assert lantern_headers(ask(url, body("full?")))["degraded"] == "archive:unavailable"
        assert health(url)["faults"]
        resource.prlimit(serve.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert wait_for(lambda: health(url)["archive"]["ok"])
        assert wait_for(lambda: archived(url) >= {m["content"] for m in messages})


# restore and the embedder


class BrokenRestorer(Restorer):
    """Fails at everything."""

    def at_compaction(self, ask):
        raise RuntimeError("no luck at the compaction")

    def for_question(self, ask):
        raise MemoryError("no luck with the question")

    def settle(self, *_):
        raise ValueError("will not settle")


class SlowRestorer(Restorer):
    may, done = threading.Event(), list[bool]()
    """Until then nothing is restored."""

    def at_compaction(self, ask):
        self.done.append(self.may.wait(60))
        return super().at_compaction(ask)

    for_question = at_compaction


def test_a_restore_that_raises_costs_no_answer(upstream, expected, tmp_path, caplog):
    with serving(config_for(upstream, tmp_path), make_restorer=BrokenRestorer) as url:
        messages: list[dict] = []
        assert converse(lambda request: ask(url, request), 4, 0, messages) == expected
        lost = body(*messages[-2:], "At how many bar stands gauge G-7919 in hall H1?", "Hm.", "And G-0?")
        found = lantern_headers(ask(url, lost))
        assert found["degraded"] == "restore:error"
        assert upstream.got[-1].data == lost
        assert archived(url) >= {m["content"] for m in messages}
        state = health(url)
        assert state["degraded"]["restore:error"] == 2
        metrics = http.get(f"{url}/lantern/metrics").text
        assert 'lantern_degraded_total{reason="restore:error"} 2.0' in metrics
    told_of = [r for r in caplog.records if "restore failed" in r.getMessage() and r.levelno >= logging.ERROR]
    assert len(told_of) == 1


def test_a_restore_that_keeps_failing_is_left_alone_for_a_while(upstream, tmp_path, caplog):
    with serving(config_for(upstream, tmp_path), make_restorer=BrokenRestorer) as url:
        messages: list[dict] = []
        converse(lambda request: ask(url, request), 4, 0, messages)
        tail = messages[-2:]
        reasons = []
        for n in range(6):
            tail += [{"role": "user", "content": f"what of gauge G-{n}?"}]
            answer = ask(url, body(*tail))
            reasons.append(lantern_headers(answer).get("degraded"))
            tail += [answer.json()["choices"][0]["message"]]
        assert reasons[0] == "restore:error"
        assert reasons[-1] == "restore:resting"
    assert len([r for r in caplog.records if "it rests for a while" in r.getMessage()]) == 1


class SickRestorer(Restorer):
    """Fails with what asks of poison."""

    def for_question(self, ask):
        if "poison" in ask.question:
            raise RuntimeError("no luck")
        return super().for_question(ask)


class StuckRestorer(SickRestorer):
    """And takes long to do so."""

    may = threading.Event()

    def for_question(self, ask):
        if "poison" in ask.question:
            self.may.wait(60)
        return super().for_question(ask)


@pytest.mark.parametrize("other", ["sk-one", "sk-other"])
@pytest.mark.parametrize("make", [SickRestorer, StuckRestorer])
def test_a_session_that_cannot_be_restored_keeps_no_other_from_it(upstream, tmp_path, make, other):
    config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=2_000))

    def lossy(url: str, key: str, start: int) -> list[dict]:
        """What is left of a chat that asked for something lost."""
        messages: list[dict] = []
        converse(lambda request: ask(url, request, key), 4, start, messages)
        return messages[-2:]

    with serving(config, make_restorer=make) as url:
        try:
            sick, sound = lossy(url, "sk-one", 0), lossy(url, other, 40)
            reasons = []
            while "restore:resting" not in reasons and len(reasons) < 6:
                sick.append({"role": "user", "content": f"which poison stands at gauge G-{len(reasons)}?"})
                answer = ask(url, body(*sick))
                reasons.append(lantern_headers(answer).get("degraded", ""))
                sick.append(answer.json()["choices"][0]["message"])
            assert reasons[-1] == "restore:resting"
            found = lantern_headers(
                ask(url, body(*sound, f"At how many bar stands gauge G-{41 * 7919} in hall H41?"), other)
            )
            assert "degraded" not in found
            assert int(found["restored"]) > 0
        finally:
            StuckRestorer.may.set()


def test_est_a_restore_that_is_too_slow_is_not_waited_for(upstream, expected, tmp_path, caplog):
    caplog.set_level("INFO", "lantern.proxy")
    config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=50))
    with serving(config, make_restorer=SlowRestorer) as url:
        try:
            assert converse(lambda request: ask(url, request)) == expected
            assert health(url)["degraded"]["restore:deadline"] == 1
            told = [r.getMessage() for r in caplog.records if "looked at in time" in r.getMessage()]
            assert any("restore:deadline" in each for each in told)
            assert SlowRestorer.done == []
        finally:
            SlowRestorer.may.set()


def test_blocks_of_before_are_replayed_while_restoring_fails(upstream, tmp_path):
    config, messages = config_for(upstream, tmp_path), []
    with serving(config) as url:
        converse(lambda request: ask(url, request), 5, 0, messages)
        tail = [*messages[-2:], {"role": "user", "content": "At how many bar stands gauge G-7919 in hall H1?"}]
        answer = ask(url, body(*tail))
        assert int(lantern_headers(answer)["restored"]) > 0
        before = upstream.got[-1].data["messages"]
        tail.append(answer.json()["choices"][0]["message"])
    with serving(config, make_restorer=BrokenRestorer) as url:
        found = lantern_headers(ask(url, body(*tail, "and G-15838?")))
        assert found["degraded"] == "restore:error"
        assert upstream.got[-1].data["messages"][: len(before)] == before


class BrokenEmbedder:
    """Ready, it says."""

    state, detail, name, dim = "ready", "", "broken", 4

    def __init__(self):
        self.asked = 0

    def start(self):
        pass

    def embed_passages(self, texts):
        self.asked += 1
        raise RuntimeError("the model fell over")

    def embed_question(self, text):
        raise RuntimeError("the model fell over")

    def close(self):
        pass


class WrongEmbedder(BrokenEmbedder):
    def embed_passages(self, texts):
        self.asked += 1
        return np.zeros((len(texts), 7), np.float32), [np.zeros((0, 128), np.int8)] * len(texts)


@pytest.mark.parametrize("make", [BrokenEmbedder, WrongEmbedder])
def test_an_embedder_that_fails_costs_no_answer(upstream, expected, tmp_path, make, caplog):
    embedder = make()
    config = config_for(upstream, tmp_path, embed=EmbedConfig(enabled="on"))
    with serving(config, embedder=embedder) as url:
        messages: list[dict] = []
        answers = converse(lambda request: ask(url, request), 4, 0, messages)
        assert answers == expected
        assert wait_for(lambda: embedder.asked)
        assert wait_for(lambda: any(kind.startswith("embed") for kind in health(url)["faults"]))
        question = [*messages[-2:], {"role": "user", "content": "At how many bar stands gauge G-7919 in hall H1?"}]
        found = lantern_headers(ask(url, body(*question)))
        assert int(found["restored"]) > 0
        assert archived(url) >= {m["content"] for m in messages}
    errors = [r for r in caplog.records if r.name == "lantern.writer" and r.levelno >= logging.ERROR]
    assert len(errors) == 1


# the process


@pytest.fixture
def of_a_terminal():
    """What is started here hears SIGHUP, also when the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.usefixtures("of_a_terminal")
def test_a_terminal_that_is_closed_lets_streams_end(tmp_path, workers):
    may = threading.Event()

    async def slowly(got, wire):
        first, *rest = events("It goes on to its end.")
        await wire.head(200, SSE, CHUNKED)
        await wire.chunk(first)
        await asyncio.to_thread(may.wait, 60)
        for event in rest:
            await wire.chunk(event)
        await wire.send(b"0\r\n\r\n")

    with (
        Upstream(answer=slowly) as upstream,
        process(config_for(upstream, tmp_path), "--workers", workers, more="server: {drain_s: 60}") as (serve, url),
        http.stream("POST", f"{url}/v1/chat/completions", json=body("Go on.", stream=True)) as answer,
    ):
        chunks = answer.iter_bytes()
        seen = next(chunks)
        serve.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            serve.wait(0.3)
        may.set()
        assert b"".join([seen, *chunks]).endswith(b"data: [DONE]\n\n")
        assert serve.wait(60) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stop_that_waited_long_enough_is_a_503_before_the_head_and_a_broken_stream_after_it(tmp_path, workers):
    async def never_ending(got, wire):
        if got.data.get("stream"):
            await wire.head(200, SSE, CHUNKED)
            await wire.chunk(events("on and on")[0])
        await wire.closed()

    with (
        Upstream(answer=never_ending) as upstream,
        process(config_for(upstream, tmp_path), "--workers", workers, more="server: {drain_s: 1}") as (serve, url),
        ThreadPoolExecutor(1) as other,
        http.stream("POST", f"{url}/v1/chat/completions", json=body("Go on.", stream=True)) as answer,
    ):
        chunks = answer.iter_bytes()
        next(chunks)
        waiting = other.submit(ask, url, body("And you?"))
        assert wait_for(lambda: len(upstream.got) == 2)
        serve.send_signal(signal.SIGTERM)
        refused = waiting.result(60)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "being stopped" in refused.json()["error"]["message"]
        with pytest.raises(httpx.RemoteProtocolError):
            list(chunks)
        assert serve.wait(60) == 0
        said = serve.stderr.read()
        # each worker logs its own: both answers may be with one, or one with each
        assert sum(map(int, re.findall(r"server\.drain_s after the stop are cut off, .*: (\d+)", said))) >= 2
        assert "Traceback" not in said


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_client_that_still_sends_its_request_when_a_stop_has_waited_long_enough_is_told(tmp_path, workers, path):
    with (
        Upstream() as upstream,
        process(config_for(upstream, tmp_path), "--workers", workers, more="server: {drain_s: 1}") as (serve, url),
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as sock,
        sock.makefile("rb") as answer,
    ):
        sock.sendall(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{{".encode())
        assert ask(url, body("Is it there?")).status_code == 200  # so the other one is, too
        serve.send_signal(signal.SIGTERM)
        head, _, told = answer.read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in head
        assert b"being stopped" in told
        assert serve.wait(60) == 0
        assert "Traceback" not in serve.stderr.read()


def test_more_streams_are_served_than_a_terminal_may_have_files(tmp_path):
    def as_in_a_terminal():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4_096))

    async def when_all_are_here(got, wire):
        await asyncio.to_thread(wait_for, lambda: len(upstream.got) >= 40)
        await echo(got, wire)

    with Upstream(answer=when_all_are_here) as upstream:
        config = config_for(upstream, tmp_path)
        with process(config, preexec_fn=as_in_a_terminal) as (_, url), ThreadPoolExecutor(40) as clients:
            asked = [clients.submit(ask, url, body(f"client {n}")) for n in range(40)]
            assert {each.result().status_code for each in asked} == {200}


def test_hold_zero_waits_for_nothing(upstream, expected, tmp_path):
    config = config_for(upstream, tmp_path, archive=ArchiveConfig(path=tmp_path / "l.db", hold_ms=0))
    with serving(config) as url:
        assert converse(lambda request: ask(url, request)) == expected
    with Archive(config.archive.path) as archive:
        assert archive.tenants()[0].messages >= 9


def test_a_stop_writes_all_that_waits(upstream, tmp_path):
    config = config_for(upstream, tmp_path, archive=ArchiveConfig(path=tmp_path / "l.db", hold_ms=0))
    with serving(config) as url:
        for n in range(100):
            assert ask(url, body(f"the last words, number {n}")).status_code == 200
    with Archive(config.archive.path) as archive:
        assert archive.tenants()[0].messages == 200
