"""A turn is on disk before it is cut into passages; what a process leaves uncut, the next one cuts."""

import os
import signal
import time
from threading import Event

import pytest
from msgspec import structs
from msgspec.structs import replace
from scripted import Upstream, ask, body, config_for, lantern_headers, process, serving, wait_for

from lantern_proxy import chunk
from lantern_proxy.archive import Archive, Record, RequestRow, SessionRow, Uncut
from lantern_proxy.archive.file import WAL_PAGES
from lantern_proxy.chunk import passages
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig
from lantern_proxy.proxy import cutter as proxy_cutter
from lantern_proxy.proxy.cutter import Cutter, Flush
from lantern_proxy.proxy.writer import Job, Writer
from lantern_proxy.turn import Filed, item, message

TENANT = "t_0123456789abcdef01234567"


def filed(n: int, text: str) -> Filed:
    made = message("user", [item("user", "text", text)], b"{}")
    return Filed(key=f"{n:032x}", position=n, turn=n + 1, message=made, created_at=1.0)


def record(*messages: Filed, session: str = "s1", **more) -> Record:
    row = SessionRow(id=session, api="chat", family="", parent="", title="", created_at=1.0, last_seen_at=1.0,
                         system="", tools=())  # fmt: skip
    request = RequestRow(id="r1", at=1.0, api="chat", path="/", model="m", event="new", status=200, query="",
                         restored=0, chars=0, ms=0.0, degraded=(), gone=0, error="")  # fmt: skip
    return Record(tenant=TENANT, session=row, request=request, messages=messages, **more)


def test_uncut_messages_are_noted_with_their_record_and_crossed_out_with_their_passages(tmp_path):
    said = [filed(n, f"the port of service {n} is {8000 + n}") for n in range(3)]
    with Archive(tmp_path / "a.db") as archive:
        archive.write([record(*said, uncut=(said[0].key, said[2].key))])
        [left] = archive.uncut()
        assert [f.key for f in left.messages] == [said[0].key, said[2].key]
        assert left.messages[0].message.text == said[0].message.text
        assert archive.add_passages([(left, [p for f in left.messages for p in passages(f, "s1")])]) == [2]
        assert [p.message for p in archive.of(TENANT).passages()] == [said[0].key, said[2].key]
        assert archive.uncut() == []
        assert archive.add_passages([(left, passages(said[0], "s1"))]) == [0], "a passage is filed once"


def test_the_session_that_somebody_waits_for_is_cut_first(tmp_path, monkeypatch):
    monkeypatch.setattr(proxy_cutter, "_LATEST_S", 3_600.0)  # nothing is due for its age, however long the writes take
    with Archive(tmp_path / "a.db") as archive:
        cutter = Cutter()
        for n in range(60):
            said = filed(n, f"the port of service {n} is {8000 + n}")
            written = record(said, session=f"s{n % 30}", uncut=(said.key,))
            archive.write([written])
            cutter.add(written, None)
        own, every, stranger = Flush(TENANT, "s29"), Flush(TENANT, ""), Flush(f"{TENANT[:-1]}8", "")
        cutter.want(own)
        cutter.want(stranger)
        assert cutter.is_due
        assert not stranger.done.done(), "its turn may not be written yet"
        cutter.tell()
        assert stranger.done.result(0), "nothing of its tenant is left"
        cutter.some(archive, None)
        assert cutter.is_due is False
        assert own.done.result(0)
        assert {p.session for p in archive.of(TENANT).passages()} == {"s29"}
        assert len(cutter) == 58
        cutter.want(every)
        while cutter.is_due:
            assert not every.done.done()
            cutter.some(archive, None)
        assert every.done.result(0)
        assert len(archive.of(TENANT).passages()) == 60


def test_who_waits_is_told_after_the_turn_before_is_written_not_while_it_waits_to_be(tmp_path):
    writer = Writer(Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off")))
    come, told_early = Event(), []
    said = filed(0, "the port of the gate is 8417")

    def build():
        told_early.append(flush.done())
        return record(said, uncut=(said.key,))

    def begin():
        come.wait(10)
        return record()

    try:
        writer.submit(Job(build=begin, file=writer.opened.file))
        written = writer.submit(Job(build=build, file=writer.opened.file))
        flush = writer.flush(TENANT, "s1")
        come.set()
        assert flush.result(10)
        assert written.result(10)
        assert told_early == [False]
        assert [p.message for p in writer.opened.archive.of(TENANT).passages()] == [said.key]
    finally:
        come.set()
        writer.close()


def test_what_waits_for_rest_is_done_when_all_is_cut_and_of_much_of_it_the_newest(tmp_path):
    writer, done = Writer(Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))), []
    said, may = [filed(n, f"the port of gate {n} is {8000 + n}") for n in range(100)], Event()

    def build():
        may.wait(10)
        return record(*said, uncut=tuple(f.key for f in said))

    try:
        writer.submit(Job(build=build, file=writer.opened.file))
        for n in range(40):
            writer.when_idle(lambda n=n: done.append((n, len(writer.opened.archive.of(TENANT).passages()))))
        may.set()
        assert wait_for(lambda: len(done) >= 16)
        assert done == [(n, 100) for n in reversed(range(24, 40))]
    finally:
        may.set()
        writer.close()


def test_who_waits_is_told_when_nothing_can_be_cut(tmp_path):
    with Archive(tmp_path / "a.db") as archive:
        cutter, said = Cutter(), filed(0, "the port is 8000")
        written = record(said, uncut=(said.key,))
        archive.write([written])
        cutter.add(written, None)
        flush = Flush(TENANT, "s1")
        cutter.want(flush)
        assert cutter.is_due
        cutter.give_up()
        assert not flush.done.result(0)


def test_what_was_forgotten_meanwhile_gets_no_passages(tmp_path):
    said = filed(0, "the password of the printer is swordfish")
    with Archive(tmp_path / "a.db") as archive:
        archive.write([record(uncut=(said.key,))])  # noted, and its message is gone
        assert archive.uncut() == []
        cut = Uncut(TENANT, "", "s1", (said,))
        assert archive.add_passages([(cut, passages(said, "s1"))]) == [0]
        assert archive.of(TENANT).passages() == []


def test_a_passage_that_cannot_be_stored_costs_itself_alone(tmp_path):
    said = [filed(n, f"the port of service {n} is {8000 + n}") for n in range(3)]
    with Archive(tmp_path / "a.db") as archive:
        archive.write([record(*said, uncut=tuple(f.key for f in said))])
        cuts = [(Uncut(TENANT, "", "s1", (f,)), passages(f, "s1")) for f in said]
        cuts[1] = (cuts[1][0], [replace(cuts[1][1][0], position=None)])
        assert archive.add_passages(cuts) == [1, 0, 1]
        assert archive.faults["record"] == 1
        assert archive.uncut() == [], "nor is it tried again"
        assert [hit.passage.message for hit in archive.of(TENANT).search("8002")] == [said[2].key]
        assert next(finding for finding in archive.check() if finding.name == "fts").ok


def test_a_message_that_cannot_be_cut_costs_itself_alone_and_is_not_tried_again(tmp_path, monkeypatch):
    def cut(one, session):
        if "service 1" in one.message.text:
            raise RecursionError
        return real(one, session)

    real = chunk.one_by_one
    monkeypatch.setattr(chunk, "one_by_one", cut)
    said = [filed(n, f"the port of service {n} is {8000 + n}") for n in range(3)]
    with Archive(tmp_path / "a.db") as archive:
        archive.write([record(*said, uncut=tuple(f.key for f in said))])
        cutter = Cutter()
        cutter.open(archive)
        with pytest.raises(RecursionError):
            cutter.some(archive, None)
        cutter.skip(archive)
        assert not len(cutter)
        assert archive.uncut() == []
        assert [p.message for p in archive.of(TENANT).passages()] == [said[0].key, said[2].key]


def test_a_turn_does_not_wait_for_a_checkpoint_and_its_passages_make_one(tmp_path):
    said, path = filed(0, "the log is long: " + 5 * WAL_PAGES * 1_000 * "."), tmp_path / "a.db"
    with Archive(path) as archive:
        before = path.stat().st_size
        archive.write([record(said, uncut=(said.key,))])
        assert path.stat().st_size == before
        archive.add_passages([(Uncut(TENANT, "", "s1", (said,)), [])])
        assert path.stat().st_size > before + WAL_PAGES * 4_096


def test_many_turns_at_once_are_cut_in_fewer_transactions(tmp_path):
    said = [filed(n, f"turn {n} of many") for n in range(20)]
    rounds = []
    for crowd in (1, 5):
        with Archive(tmp_path / f"{crowd}.db") as archive:
            cutter = Cutter()
            cutter.crowd = crowd
            for each in said:
                written = replace(record(each), uncut=(each.key,))
                archive.write([written])
                cutter.add(written, None)
            rounds.append(0)
            while cutter:
                cutter.some(archive, None)
                rounds[-1] += 1
            assert archive.uncut() == []
    assert rounds == [3, 1]


def test_a_request_that_restores_waits_for_the_turn_right_before_it(tmp_path):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        messages = []
        for n in range(6):
            messages.append({"role": "user", "content": f"note: rack R-{n} draws {410 + n} watts in hall H{n}"})
            answer = ask(url, body(*messages))
            messages.append(answer.json()["choices"][0]["message"])
        lost = body(
            *messages[-1:], "hm", {"role": "assistant", "content": "yes?"}, "How many watts does rack R-5 draw?"
        )
        found = ask(url, lost)
        assert lantern_headers(found)["event"] in ("window", "compacted"), lantern_headers(found)
        assert "415 watts" in upstream.got[-1].texts
        assert "degraded" not in lantern_headers(found)


def test_a_killed_process_loses_no_passage(tmp_path):
    """Killed the moment its answer is here, five times; the next process cuts what was left."""
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        for n in range(5):
            with process(config) as (serve, url):
                ask(url, body(f"turn {n}: valve V-{n} opens at {30 + n} bar, seen by inspector number {n}"))
                os.kill(serve.pid, signal.SIGKILL)
                serve.wait(10)
        with process(config) as (_, url):
            ask(url, body("and one more, so that it is up"))

            def cut() -> bool:
                with Archive(config.archive.path, read_only=True) as archive:
                    tenant = archive.tenants()[0].id
                    texts = "\n".join(p.text for p in archive.of(tenant).passages())
                    return not archive.uncut() and all(f"V-{n} opens at {30 + n} bar" in texts for n in range(5))

            assert wait_for(cut)


def test_passages_follow_within_a_moment_although_turns_keep_coming(tmp_path):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        until = time.monotonic() + 30.0
        n, seen = 0, 0
        while time.monotonic() < until and not seen:
            n += 1
            ask(url, body(f"message {n} of a busy day"))
            with Archive(tmp_path / "lantern.db", read_only=True) as archive:
                tenants = archive.tenants()
                seen = len(archive.of(tenants[0].id).passages()) if tenants else 0
        assert seen > 0


def test_a_record_with_its_passages_in_it_is_written_as_before(tmp_path):
    said = filed(0, "as programs do that use the archive without the proxy")
    with Archive(tmp_path / "a.db") as archive:
        [added] = archive.write([record(said, passages=passages(said, "s1"))])
        assert len(added) == 1
        assert archive.uncut() == []
        archive.write([replace(record(said), passages=())])
        assert len(archive.of(TENANT).passages()) == 1


def test_the_cutter_keeps_up_with_turns_that_never_pause(tmp_path):
    """What waited longest is due, however much was cut since it came."""
    with Archive(tmp_path / "a.db") as archive:
        cutter = Cutter()
        for n in range(20):
            said = filed(n, f"turn {n} of many")
            archive.write([replace(record(said), uncut=(said.key,))])
            cutter.add(replace(record(said), uncut=(said.key,)), None)
        time.sleep(1.1)
        rounds = 0
        while cutter.is_due:
            cutter.some(archive, None)
            rounds += 1
        assert rounds > 1
        assert len(cutter) == 0
        assert archive.uncut() == []


def test_long_messages_are_cut_one_by_one_and_short_ones_together(tmp_path):
    """So that a turn that comes meanwhile does not wait for a long history to be cut."""
    short = [filed(n, "short") for n in range(6)]
    long = [
        structs.replace(filed(n, "long"), message=structs.replace(short[0].message, raw=b"x" * 7_500))
        for n in range(6, 9)
    ]
    with Archive(tmp_path / "a.db") as archive:
        said = (*short, *long)
        written = replace(record(*said), uncut=tuple(each.key for each in said))
        archive.write([written])
        cutter = Cutter()
        cutter.add(written, None)
        left = []
        while cutter:
            cutter.some(archive, None)
            left.append(sum(len(each.messages) for each in archive.uncut()))
        assert left == [3, 2, 1, 0]


def test_one_long_message_is_cut_in_portions_between_which_turns_are_written(tmp_path):
    """And its passages are those that it has when it is cut in one go."""
    long = filed(0, "\n\n".join(f"Gauge {n} stands at {n * 7} bar. " * 30 for n in range(200)))
    written = replace(record(long), uncut=(long.key,))
    with Archive(tmp_path / "a.db") as archive:
        archive.write([written])
        cutter, rounds = Cutter(), 0
        cutter.add(written, None)
        while cutter:
            cutter.some(archive, None)
            rounds += 1
            archive.write([record(filed(rounds, f"meanwhile {rounds}"))])
            held = len(archive.of(TENANT).passages())
            assert bool(held) == (not cutter), "all of it or nothing, so that a killed process leaves no half of it"
        whole = passages(long, "s1")
        assert len(whole) > 150
        assert len(whole) / rounds <= 32
        found = archive.of(TENANT).passages()
        assert [(p.part, p.text) for p in found] == [(p.part, p.text) for p in whole]


def test_of_a_message_of_long_runs_fewer_passages_are_cut_at_once(tmp_path):
    long = filed(0, "\n\n".join(f"https://h{n}.example/" + "a.b/" * 2_900 for n in range(40)))
    written = replace(record(long), uncut=(long.key,))
    with Archive(tmp_path / "a.db") as archive:
        archive.write([written])
        cutter, rounds = Cutter(), 0
        cutter.add(written, None)
        while cutter:
            cutter.some(archive, None)
            rounds += 1
        found = archive.of(TENANT).passages()
        assert [(p.part, p.text) for p in found] == [(p.part, p.text) for p in passages(long, "s1")]
        assert sum(len(p.text) for p in found) / rounds < 60_000


def test_what_is_more_than_memory_holds_is_cut_from_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(proxy_cutter, "MOST_LEFT_BYTES", 1_000)
    long = [
        structs.replace(filed(n, f"turn {n}"), message=structs.replace(filed(n, f"turn {n}").message, raw=b"x" * 600))
        for n in range(9)
    ]
    with Archive(tmp_path / "a.db") as archive:
        cutter = Cutter()
        for said in long:
            written = record(said, session=f"s{said.position}", uncut=(said.key,))
            archive.write([written])
            cutter.add(written, None)
        assert len(cutter) == 2
        flush = Flush(TENANT, "s8")
        cutter.want(flush)
        while len(cutter):
            cutter.some(archive, None)
        assert flush.done.done()
        assert archive.uncut() == []
        assert len(archive.of(TENANT).passages()) == len(long)
