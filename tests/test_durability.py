"""A turn whose last byte reached the client is on disk: kill -9 at any moment loses nothing that was answered."""

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from scripted import Upstream, body, config_for, http, process, serving, wait_for
from test_archive import record
from test_proxy_cutter import TENANT, filed
from test_proxy_cutter import record as history

from lantern_proxy.archive import Archive, ArchiveError, ForgetRule, Record, Uncut
from lantern_proxy.archive.file import WAL_PAGES
from lantern_proxy.archive.raw import occurrences
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig
from lantern_proxy.proxy import writer as proxy_writer
from lantern_proxy.proxy.writer import Job, Writer

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


class PowerCut:
    """What a power cut leaves of an archive: its file, and of its log what reached the disk by fsync."""

    def __init__(self, path, folder, monkeypatch):
        self._path, self._copy, self._synced, self._fsync = path, folder / "left.db", 0, os.fsync
        monkeypatch.setattr(os, "fsync", self._note)

    def _note(self, file: int) -> None:
        size_bytes = os.fstat(file).st_size
        self._fsync(file)
        if os.path.samestat(os.fstat(file), os.stat(f"{self._path}-wal")):
            self._synced = max(self._synced, size_bytes)

    def texts(self, config) -> list[str]:
        shutil.copy(self._path, self._copy)
        with open(f"{self._path}-wal", "rb") as log:
            Path(f"{self._copy}-wal").write_bytes(log.read(self._synced))
        return texts_of(replace(config, archive=replace(config.archive, path=self._copy)))


def test_a_power_cut_takes_no_turn_that_was_answered_a_moment_ago(upstream, tmp_path, monkeypatch):
    config = config_for(upstream, tmp_path)
    assert config.archive.synchronous == "normal"
    with serving(config) as url:
        cut = PowerCut(config.archive.path, tmp_path, monkeypatch)
        http.post(f"{url}/v1/chat/completions", json=body("the only line"))
        assert wait_for(lambda: cut.texts(config) == ["the only line", "I heard: the only line"])


def test_nor_while_others_never_pause(upstream, tmp_path, monkeypatch):
    config, stop, answered = config_for(upstream, tmp_path), threading.Event(), []
    with serving(config) as url:
        cut = PowerCut(config.archive.path, tmp_path, monkeypatch)
        talkers = [threading.Thread(target=converse, args=(url, f"talker {n}", answered, stop)) for n in range(4)]
        for talker in talkers:
            talker.start()
        try:
            assert wait_for(lambda: len(answered) >= 40)
            wanted = set(answered)
            assert wait_for(lambda: wanted <= set(cut.texts(config)))
            assert all(talker.is_alive() for talker in talkers)
        finally:
            stop.set()
            for talker in talkers:
                talker.join()


def test_the_last_to_leave_the_archive_brings_its_turns_to_the_disk(tmp_path, monkeypatch):
    """Where another process has it open, SQLite does not: it leaves the log as it is."""
    path = tmp_path / "a.db"
    with Archive(path, synchronous="normal"), Archive(path, synchronous="normal") as writing:
        cut = PowerCut(path, tmp_path, monkeypatch)
        writing.write([record(text="kept")])
        assert writing.behind_s > 0
        writing.close()
        assert cut.texts(Config(archive=ArchiveConfig(path=path))) == ["kept"]


def test_what_one_archive_writes_is_kept_though_the_same_process_opened_it_twice_and_another_came_and_went(tmp_path):
    """To close a file that SQLite has open ends SQLite's locks on it; the next to leave then removed the log."""
    path = tmp_path / "a.db"
    with Archive(path) as archive:
        archive.write([record(0, text="before")])
        Archive(path).close()
        subprocess.run([sys.executable, "-c", COMES_AND_GOES, str(path)], check=True)
        archive.write([record(1, text="after")])
        seen = subprocess.run([sys.executable, "-c", COMES_AND_GOES, str(path)], check=True, capture_output=True)
        assert json.loads(seen.stdout) == 2


def test_nor_is_it_lost_once_something_was_forgotten_whose_bytes_were_looked_for_in_the_files(tmp_path):
    path = tmp_path / "a.db"
    with Archive(path) as archive:
        archive.write([record(0, text="before"), record(1, text="the canary sings")])
        assert archive.forget(record().tenant, ForgetRule(match="canary"), now=1.0).left_over == 0
        subprocess.run([sys.executable, "-c", COMES_AND_GOES, str(path)], check=True)
        archive.write([record(2, text="after")])
        seen = subprocess.run([sys.executable, "-c", COMES_AND_GOES, str(path)], check=True, capture_output=True)
        assert json.loads(seen.stdout) == 2


COMES_AND_GOES = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("SELECT count(*) FROM messages").fetchone()[0])
db.close()
"""


def test_an_archive_behind_a_link_has_its_log_where_it_points(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    path, link = tmp_path / "there" / "a.db", tmp_path / "a.db"
    link.symlink_to(path)
    with Archive(link, synchronous="normal") as archive:
        cut = PowerCut(path, tmp_path, monkeypatch)
        archive.write([record(text="kept")])
        archive.sync()
        assert cut.texts(Config(archive=ArchiveConfig(path=path))) == ["kept"]
        assert occurrences(link, "kept") == occurrences(path, "kept") > 0


class Forgetful(PowerCut):
    """A disk that is sick once. What it did not take then, the system takes for written until it is written again."""

    is_well = False

    def _note(self, file: int) -> None:
        if not self.is_well:
            self.is_well = True
            os.utime(f"{self._path}-wal", ns=(0, 0))  # what is written later shows
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if os.fstat(file).st_mtime_ns:
            super()._note(file)


def test_what_a_sick_disk_did_not_take_is_written_again_once_it_is_well(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    with Archive(path, synchronous="normal") as archive:
        cut = Forgetful(path, tmp_path, monkeypatch)
        archive.write([record(text="kept")])
        with pytest.raises(ArchiveError, match="cannot be brought to the disk"):
            archive.sync()
        assert archive.behind_s > 0
        archive.sync()
        assert archive.behind_s == 0
        assert cut.texts(Config(archive=ArchiveConfig(path=path))) == ["kept"]
        with Archive(path) as reading:
            assert len(reading.of(record().tenant).messages("s1")) == 1


@pytest.fixture
def sick_disk(monkeypatch):
    """Brings nothing to the disk until it is set."""
    well, fsync = threading.Event(), os.fsync

    def failing(file: int) -> None:
        if not well.is_set():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(file)

    monkeypatch.setattr(os, "fsync", failing)
    return well


def test_what_could_not_be_brought_to_the_disk_is_told_and_tried_again_though_nobody_asks(
    upstream, tmp_path, sick_disk, monkeypatch
):
    config = config_for(upstream, tmp_path)
    with serving(config) as url:
        assert http.post(f"{url}/v1/chat/completions", json=body("the only line")).status_code == 200
        assert wait_for(lambda: http.get(f"{url}/lantern/health").json()["faults"].get("sync"), 10)
        cut = PowerCut(config.archive.path, tmp_path, monkeypatch)
        sick_disk.set()
        assert wait_for(lambda: cut.texts(config) == ["the only line", "I heard: the only line"])


def test_an_archive_is_closed_even_if_its_turns_cannot_be_brought_to_the_disk(tmp_path, sick_disk):
    archive = Archive(tmp_path / "a.db", synchronous="normal")
    archive.write([record(text="kept")])
    with pytest.raises(ArchiveError, match="cannot be brought to the disk"):
        archive.close()
    with pytest.raises(ArchiveError, match="is closed"):
        archive.write([record(text="more")])


def test_nothing_moves_from_a_log_into_the_file_that_the_disk_may_not_hold(tmp_path, sick_disk):
    """A power cut may leave half of such a log: read again then, it would put old pages among new ones."""
    path, said = tmp_path / "a.db", filed(0, "the log is long: " + 5 * WAL_PAGES * 1_000 * ".")
    nothing_new = [(Uncut(TENANT, "", "s1", (said,)), [])]
    with Archive(path, synchronous="normal") as archive:
        before = path.stat()
        archive.write([history(said, uncut=(said.key,))])
        archive.add_passages(nothing_new)  # nobody has asked the disk before
        archive.add_passages(nothing_new)
        assert archive.behind_s > 0
        with pytest.raises(ArchiveError, match="cannot be brought to the disk"):
            archive.sync()
        archive.add_passages(nothing_new)
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        sick_disk.set()
        archive.sync()
        archive.add_passages(nothing_new)
        assert path.stat().st_size > before.st_size + WAL_PAGES * 4_096


def test_a_long_log_is_begun_anew_once_it_was_moved_and_counted_from_there(tmp_path):
    path, texts = tmp_path / "a.db", [f"gate {n}: " + 3 * WAL_PAGES * 1_000 * "." for n in range(6)]
    with Archive(path) as archive:
        for n, text in enumerate(texts):
            said = filed(n, text)
            archive.write([history(said, uncut=(said.key,))])
            archive.add_passages([(Uncut(TENANT, "", "s1", (said,)), [])])
        assert Path(f"{path}-wal").stat().st_size < 3 * WAL_PAGES * 4_096 < path.stat().st_size


def test_what_came_behind_work_that_can_wait_is_written_though_the_end_comes_right_then(tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))
    writer, begun, goes_on = Writer(config), threading.Event(), threading.Event()

    def slow() -> Record:
        begun.set()
        assert goes_on.wait(10)
        return record(text="first")

    writer.submit(Job(build=slow, file=writer.opened.file))
    assert begun.wait(10)
    writer.when_idle(lambda: None)
    second = writer.submit(Job(build=lambda: record(text="second"), file=writer.opened.file))
    ending = threading.Thread(target=writer.close)
    ending.start()
    assert writer._closing.wait(10)
    goes_on.set()
    ending.join(10)
    assert second.result(0)


def test_a_writer_whose_disk_is_sick_tells_so_and_ends(tmp_path, sick_disk):
    config = Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))
    writer = Writer(config)
    assert writer.submit(Job(build=lambda: record(text="kept"), file=writer.opened.file)).result(10)
    writer.close()
    assert writer.opened.faults["sync"]
    assert not [t for t in threading.enumerate() if t.name.startswith(("lantern-writer", "lantern-disk"))]
    assert texts_of(config) == ["kept"]


def test_turns_do_not_wait_for_the_disk_until_a_long_history_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(proxy_writer, "_BEHIND_S", 0.01)  # cutting takes longer on any machine
    writer = Writer(Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off")))
    may, was_cut, fsync = threading.Event(), [], os.fsync
    said = [filed(n, " ".join(f"the port of gate {n} at {m} is {8000 + n + m}" for m in range(20))) for n in range(600)]

    def noting(file: int) -> None:
        was_cut.append(flush.done())
        fsync(file)

    def build():
        may.wait(10)
        return history(*said, uncut=tuple(f.key for f in said))

    try:
        writer.submit(Job(build=build, file=writer.opened.file))
        flush = writer.flush(TENANT)
        monkeypatch.setattr(os, "fsync", noting)
        may.set()
        assert flush.result(60)
        assert wait_for(lambda: was_cut)
        assert was_cut[0] is False
    finally:
        may.set()
        writer.close()


def test_full_is_never_behind(tmp_path):
    with Archive(tmp_path / "a.db", synchronous="full") as archive:
        archive.write([record(text="kept")])
        assert archive.behind_s == 0
