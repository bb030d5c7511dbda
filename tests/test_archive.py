"""The archive, on real files: every promise of archive/ by name."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from sqlite_utils import utils

from lantern_proxy.archive import (
    Archive,
    ArchiveError,
    Finding,
    ForgetRule,
    PruneRule,
    Record,
    RequestRow,
    SessionRow,
    TenantArchive,
)
from lantern_proxy.archive import prune as archive_prune
from lantern_proxy.archive import tenant as archive_tenant
from lantern_proxy.archive.backup import backup
from lantern_proxy.archive.errors import archive_error
from lantern_proxy.archive.prune import _LOG_WAIT_S, ROWS, prune_dry
from lantern_proxy.archive.retention import retain
from lantern_proxy.archive.rows import dumps
from lantern_proxy.archive.snapshots import snapshot_path
from lantern_proxy.archive.tenant import _HOLDERS
from lantern_proxy.archive.transfer import import_rows
from lantern_proxy.archive.vectors import remove, remove_tokens
from lantern_proxy.config import PrivacyConfig
from lantern_proxy.turn import Block, Filed, Head, Passage, PassedOver, Placed, Reason, Restored, item, message, why_not

sqlite3: Any = utils.__dict__[
    "sqlite3"
]  # the archive's own: two SQLite libraries in one process do not see each other's locks

MINE, OTHER = "t_mine", "t_other"
NASTY = [
    "lone \ud800 surrogate \udfff",
    "nul \x00 inside",
    "emoji 👩‍👩‍👧 and flags 🇩🇪",
    "combining e\u0301 and \u202eright to left",
    "line\nbreaks\r\n\ttabs",
    "\"quotes\" 'single' -- ; DROP TABLE messages",
    "long " * 400_000,
]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "lantern.db") as archive:
        yield archive


def filed(n: int, text: str, **more: Any) -> Filed:
    raw = json.dumps({"role": "user", "content": text}).encode()
    told = message("user", [item("user", "text", text)], raw)
    return Filed(key=f"{n:032x}", position=n, turn=n + 1, message=told, created_at=100.0 + n, **more)


def passage(n: int, text: str, session: str = "s1", **more: Any) -> Passage:
    facts: dict[str, Any] = {
        "session": session, "message": f"{n:032x}", "position": n, "part": 0, "turn": n + 1, "speaker": "user",
        "text": text, "tags": ("src/a.py", "a b\nc"), "tools": ("grep",), "terms": ("one", "two", "one"),
        "created_at": 100.0 + n,
    }  # fmt: skip
    return Passage(**{**facts, **more})


def amiss(archive: Archive) -> list[Finding]:
    """What the checks of an archive find wrong with it, apart from the machine's free disk."""
    return [finding for finding in archive.check() if not finding.ok and finding.name != "disk"]


def record(n: int = 0, text: str = "", *, tenant: str = MINE, session: str = "s1", **more: Any) -> Record:
    text = text or f"message {n} of {session}"
    facts: dict[str, Any] = {
        "tenant": tenant, "project": "p1",
        "session": SessionRow(
            id=session, api="chat", title="a title", created_at=1.0, last_seen_at=100.0 + n, tools=("grep",),
        ),
        "request": RequestRow(
            id=f"{session}-r{n}", at=100.0 + n, api="chat", path="/v1/chat/completions", model="m", event="turn",
            status=200, query=text[:2000], restored=1, chars=7, ms=0.5, degraded=("dense:warming",), gone=3, error="",
        ),
        "messages": (filed(n, text),), "head": Head(keys=(f"{n:032x}",)), "ids": (f"call_{n}",),
        "passages": (passage(n, text, session),),
    }  # fmt: skip
    return Record(**{**facts, **more})


def block(placed: list[Placed], *, session: str = "s1", request: str = "s1-r0", **more: Any) -> Block:
    restored = Restored(
        kind="loss", text="<restored_context>\n\ud800 \x00 💡\n</restored_context>", placed=tuple(placed), considered=9,
        ms=1.25, degraded=("dense:warming",),
    )  # fmt: skip
    facts: dict[str, Any] = {
        "session": session, "anchor": "aa", "chain": "bb", "place": "inside", "restored": restored, "request": request,
        "created_at": 5.0,
    }  # fmt: skip
    return Block(**{**facts, **more})


def restore_one(archive: Archive, tenant: str, project: str, n: int) -> Passage:
    """Request `<project>-r<n>`, in a session that is named as its project, restores the passage that is returned."""
    of = {"tenant": tenant, "project": project, "session": project}
    [[kept]] = archive.write([record(n - 1, **of)])
    placed = Placed(passage=kept, text="x", rank=1, score=1.0, signals={})
    archive.write([record(n, **of, blocks=(block([placed], session=project, request=f"{project}-r{n}"),))])
    return kept


def passed_over(passage: Passage, reason: Reason, **more: Any) -> PassedOver:
    facts: dict[str, Any] = {"kind": "loss", "rank": 1, "score": 0.5, "signals": {"salience": 0.5}, **more}
    return PassedOver(passage=passage, reason=reason, why=why_not(reason, facts.get("other", 0)), **facts)


def unit_vector(seed: int, dim: int = 8) -> np.ndarray[Any, np.dtype[np.float32]]:
    vector = np.random.default_rng(seed).standard_normal(dim)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def embed_all(archive: Archive) -> None:
    for tenant, id_, _ in archive.unembedded(10_000):
        session = archive.of(tenant).passages_by_id([id_])[id_].session
        archive.add_vectors("model", 8, [(tenant, session, id_, unit_vector(id_))])


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`code` in a Python of its own, which may import this file."""
    prelude = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


# what is written is read


@pytest.mark.parametrize("text", NASTY, ids=lambda text: repr(text[:12]))
def test_a_message_and_its_passage_come_back_as_they_were(archive: Archive, text: str) -> None:
    one = record(0, text)
    [(added,)] = archive.write([one])
    mine = archive.of(MINE)
    assert mine.messages("s1") == list(one.messages)
    assert mine.passages() == [replace(one.passages[0], id=added.id)] == [added]
    request = mine.request("s1-r0")
    assert request == replace(one.request, session="s1")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["text", "result", "call", "reasoning", "compaction", "media"]), st.text()),
        max_size=6,
    ),
    st.binary(),
)
def test_any_message_keeps_its_items_and_its_bytes(archive: Archive, kinds: list[tuple[Any, str]], raw: bytes) -> None:
    items = [item("assistant", kind, text, name="n\ud800", ids=("id",)) for kind, text in kinds]
    one = structs.replace(filed(0, "x", side=True, partial=True, names=("resp_1", "msg_1")),
                          message=message("assistant", items, raw))  # fmt: skip
    session = os.urandom(8).hex()
    archive.write([record(0, session=session, messages=(one,), passages=())])
    assert archive.of(MINE).messages(session) == [one]


def test_a_session_is_read_as_it_was_written_last(archive: Archive) -> None:
    archive.write([record(0), record(1)])
    later = replace(record(2).session, title="", parent="s0", system="ff", tools=("grep", "sed"))
    archive.write([replace(record(2), session=later)])
    session = archive.of(MINE).session("s1")
    assert session == replace(later, title="a title", project="p1", messages=3, passages=3)
    assert archive.of(MINE).sessions() == [session]
    assert archive.of(MINE).sessions(project="elsewhere") == []


def test_the_head_is_what_the_newest_main_request_shows(archive: Archive) -> None:
    archive.write([record(0, head=Head(keys=("k1", "k2"))), record(1, head=Head(keys=("k3",))), record(2, head=Head())])
    assert archive.of(MINE).head("s1") == Head(keys=("k3",))
    assert archive.of(MINE).head("unknown") == Head()


def test_a_head_comes_back_as_it_was_written(archive: Archive) -> None:
    left = Head(keys=("k4",), altered={"k4": (b"4",)}, abandoned=("k2",), lost=True, person="ab", position=5)
    forks = Head(keys=("k1", "k3"), position=3), left
    head = Head(keys=("k1", "k2"), altered={"k2": (b"\0\xff", b"two")}, abandoned=("k3",), lost=True, forks=forks)
    archive.write([record(0, head=head)])
    assert archive.of(MINE).head("s1") == head
    archive.write([record(1, head=structs.replace(head, altered=None))])
    assert archive.of(MINE).head("s1").altered is None


def test_sessions_are_found_by_minted_ids_and_message_keys_newest_first(archive: Archive) -> None:
    archive.write([record(0, session="old"), record(1, session="new"), record(2, session="none")])
    mine = archive.of(MINE)
    assert mine.holders(["call_0", f"{1:032x}", "call_99", 'odd "\ud800\x00']) == ["new", "old"]
    assert mine.holders([]) == []


def test_sessions_are_found_by_what_they_say_but_not_by_what_many_of_them_say(archive):
    for session, said in ("one", "ab"), ("two", "a"), ("three", "bc"), ("four", "c"), ("five", "c"):
        archive.write([record(n, letter * 9, session=session) for n, letter in enumerate(said)])
    archive.write([record(0, "a" * 9, session="theirs", tenant=OTHER)])
    mine = archive.of(MINE)
    prints = {each: filed(0, each * 9).message.print for each in "abc"}
    assert mine.saying([prints["a"], prints["b"]], 2)[0] == "one"
    assert {*mine.saying([prints["a"], prints["b"]], 2)} == {"one", "two", "three"}
    assert mine.saying([prints["c"]], 2) == []
    assert len(mine.saying([prints["c"]], 3)) == 3
    told = mine.saying([prints["c"], prints["c"], prints["a"], prints["b"]], 3)
    assert {*told[:2]} == {"one", "three"}  # what is said again says no more


def test_sessions_are_looked_up_by_value_without_a_walk_through_the_tenant(archive: Archive) -> None:
    with archive._connections.reading() as db:
        plan = [row[3] for row in db.conn.execute(f"EXPLAIN QUERY PLAN {_HOLDERS}", {"tenant": MINE, "values": "[]"})]
    assert [step for step in plan if step.endswith("(tenant=?)")] == []
    assert sum(step.startswith(("SEARCH i ", "SEARCH m ", "SEARCH s ")) for step in plan) == 3


def test_a_block_comes_back_exactly_and_survives_its_passages(archive: Archive) -> None:
    [(kept,)] = archive.write([record(0, "kept")])
    [(gone,)] = archive.write([record(1, "to be pruned", session="s2")])
    placed = [
        Placed(passage=p, text=f"of {p.text} \ud800", rank=i, score=0.5 - i, signals={"bm25": 1.5, "vector": -0.25})
        for i, p in enumerate([kept, gone], start=1)
    ]
    mine, whole = archive.of(MINE), block(placed)
    archive.write([record(2, blocks=(whole,))])
    assert mine.blocks("s1") == [whole]
    mine.reinforce({gone.id: (0.1, 0.5, 1, 0.0)})
    mine.prune(PruneRule(below_confidence=0.3), now=0.0)
    assert gone.id not in mine.passages_by_id([gone.id])
    [left] = mine.blocks("s1")
    assert left.restored.text == whole.restored.text
    assert left.restored.placed[0] == placed[0]
    assert left.restored.placed[1].text == placed[1].text
    assert left.restored.placed[1].passage.speaker == "user"


def test_numbers_from_numpy_are_stored_as_numbers(archive: Archive) -> None:
    [(one,)] = archive.write([record(0)])
    signals: dict[str, Any] = {"bm25": np.float32(1.5), "vector": float("nan")}
    placed = Placed(passage=one, text="x", rank=1, score=np.float32(0.5), signals=signals)  # type: ignore[arg-type]
    archive.write([record(1, blocks=(block([placed]),))])
    [kept] = archive.of(MINE).blocks("s1")[0].restored.placed
    assert (kept.score, kept.signals) == (0.5, {"bm25": 1.5, "vector": 0.0})


# written once


def test_writing_a_record_again_changes_nothing(archive: Archive) -> None:
    [(one,)] = archive.write([record(0)])
    again = record(1, messages=(filed(0, "message 0 of s1"), filed(1, "new")), blocks=(block([]),))
    assert archive.write([again, again]) == [(replace(again.passages[0], id=one.id + 1),), ()]
    dump = list(archive.of(MINE).export())
    assert archive.write([again, record(0, head=again.head)]) == [(), ()]
    assert sorted(map(repr, archive.of(MINE).export())) == sorted(map(repr, dump))
    assert [m.key for m in archive.of(MINE).messages("s1")] == [f"{0:032x}", f"{1:032x}"]


def test_the_same_text_is_one_passage_in_a_session_and_another_in_the_next(archive: Archive) -> None:
    archive.write([record(0, "same"), record(1, "same"), record(0, "same", session="s2")])
    assert [p.session for p in archive.of(MINE).passages()] == ["s1", "s2"]


def test_the_summary_of_a_turn_that_grew_takes_the_place_of_the_shorter_one(archive: Archive) -> None:
    def summary(text: str) -> Record:
        return record(0, passages=(passage(0, text, unit="turn", turn=4),))

    mine = archive.of(MINE)
    [(short,)] = archive.write([summary("short")])
    mine.reinforce({short.id: (0.8, 0.6, 3, 9.0)})
    embed_all(archive)
    [(long,)] = archive.write([summary("short and longer")])
    assert archive.write([summary("short and longer")]) == [()]
    assert mine.passages(unit="turn") == [long]
    assert (long.confidence, long.success, long.accesses) == (0.8, 0.6, 3)
    assert mine.vectors([short.id, long.id]) == {}


# what fails


def test_a_record_that_cannot_be_stored_leaves_the_others_of_its_batch_alone(archive: Archive) -> None:
    no_number = record(1, messages=(structs.replace(filed(1, "x"), position="first"),))  # type: ignore[arg-type]
    no_tenant = record(2, tenant="")
    no_bytes = record(3, messages=(structs.replace(filed(3, "x"), created_at=None),))  # type: ignore[arg-type]
    added = archive.write([record(0), no_number, no_tenant, no_bytes, record(4)])
    assert [len(passages) for passages in added] == [1, 0, 0, 0, 1]
    assert archive.faults["record"] == 3
    assert [m.position for m in archive.of(MINE).messages("s1")] == [0, 4]
    assert [r.id for r in archive.of(MINE).requests()] == ["s1-r4", "s1-r0"]
    assert [f.ok for f in archive.check() if f.name == "faults"] == [False]


def test_an_archive_deleted_under_us_is_told_and_not_written_into_the_void(archive: Archive) -> None:
    archive.write([record(0)])
    archive.path.unlink()
    with pytest.raises(ArchiveError, match="was deleted or replaced while it was open"):
        archive.write([record(1)])
    assert archive.faults["write"] == 1
    assert not archive.check()[0].ok


def test_what_goes_wrong_is_told_as_that_of_the_archive_where_the_disk_or_its_folder_is_gone(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with Archive(tmp_path / "disk/lantern.db") as archive:
        archive.write([record(0)])
        shutil.rmtree(tmp_path / "disk")
        with pytest.raises(ArchiveError, match="was deleted or replaced while it was open"):
            archive.of(MINE).prune(PruneRule(session="s1"), now=1.0)
        with pytest.raises(ArchiveError, match="was deleted or replaced while it was open"):
            archive.forget(MINE, ForgetRule(session="s1"), now=1.0)
    unplugged = sqlite3.OperationalError("disk I/O error")
    unplugged.sqlite_errorname = "SQLITE_IOERR_READ"
    assert "check the disk" in str(archive_error(archive.path, unplugged))


def test_an_archive_that_takes_the_place_of_an_open_one_is_not_written_over(tmp_path: Path) -> None:
    """Neither loses anything: the log of the old one, which lies beside the new one, goes into the old file."""
    path, moved = tmp_path / "lantern.db", tmp_path / "moved.db"
    with Archive(tmp_path / "other.db") as other:
        other.write([record(n, tenant="t_other") for n in range(30)])
    backup(tmp_path / "other.db", tmp_path / "copy.db")
    with Archive(path) as old:
        old.write([record(n) for n in range(20)])
        path.rename(moved)
        (tmp_path / "copy.db").rename(path)
    for where, tenant, count in ((path, "t_other", 30), (moved, MINE, 20)):
        with Archive(where) as found:
            assert not amiss(found)
            assert [(each.id, each.messages) for each in found.tenants()] == [(tenant, count)]


@pytest.mark.parametrize("why", ["somebody reads it", "another has it by now"])
def test_the_log_of_a_renamed_archive_stays_where_it_is_not_known_to_be_in_the_file(tmp_path: Path, why: str) -> None:
    path, moved = tmp_path / "lantern.db", tmp_path / "moved.db"
    with Archive(path) as first:
        first.write([record(0)])
    shutil.copy(path, tmp_path / "copy.db")
    with closing(utils.sqlite3.connect(path, isolation_level=None)) as reader:
        with Archive(path) as old:
            if why == "somebody reads it":
                reader.execute("BEGIN").execute("SELECT count(*) FROM messages").fetchone()
            old.write([record(n) for n in range(1, 20)])
            path.rename(moved)
            if why == "another has it by now":
                (tmp_path / "copy.db").rename(path)
        log = tmp_path / "lantern.db-wal"
        assert log.stat().st_size > 0
    path.unlink(missing_ok=True)
    log.rename(tmp_path / "moved.db-wal")
    with Archive(moved) as found:
        assert found.tenants()[0].messages == 20


def test_a_new_archive_beside_a_deleted_one_shares_nothing_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lantern.db"
    with Archive(path) as old:
        old.write([record(n) for n in range(20)])
        path.unlink()  # lantern.db-wal and lantern.db-shm stay behind, and are open here
        with Archive(path) as new:
            new.write([record(50)])
            assert len(old.of(MINE).messages("s1")) == 20
            old.close()
            new.write([record(51)])
            seen = run(
                "from test_archive import *; print(len(Archive(sys.argv[1]).of(MINE).messages('s1')))", str(path)
            )
            assert seen.stdout == "2\n", seen.stderr
            assert [m.position for m in new.of(MINE).messages("s1")] == [50, 51]
            assert not amiss(new)


def test_closing_lets_readers_finish(archive: Archive) -> None:
    archive.write([record(n) for n in range(500)])
    with archive._connections.reading() as db:
        reading = db.conn.execute("SELECT id FROM passages ORDER BY id")
        first = reading.fetchone()
        archive.close()
        assert [row[0] for row in (first, *reading)] == list(range(1, 501))
    with pytest.raises(ArchiveError, match="is closed"):
        archive.of(MINE).sessions()


def test_closing_while_threads_read_ends_them_with_an_error_that_says_so(tmp_path: Path) -> None:
    for _ in range(5):
        archive, ends = Archive(tmp_path / "lantern.db"), list[str]()
        archive.write([record(n) for n in range(100)])
        started = threading.Barrier(4)

        def read(archive: Archive = archive, ends: list[str] = ends, started: threading.Barrier = started) -> None:
            started.wait()
            try:
                while True:
                    assert len(archive.of(MINE).messages("s1")) == 100
            except ArchiveError as error:
                ends.append(str(error))

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        started.wait()
        time.sleep(0.02)
        archive.close()
        for reader in readers:
            reader.join()
        assert [end.endswith("is closed; open it again") for end in ends] == [True] * 3


def test_a_file_that_cannot_grow_loses_nothing_once_it_can(tmp_path: Path) -> None:
    done = run(
        """
        import resource
        from test_archive import *
        archive, tried = Archive(sys.argv[1]), 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        while not archive.faults["write"]:
            batch = [record(tried, "text %d " % tried * 500), record(tried + 1, "text %d " % (tried + 1) * 500)]
            try:
                archive.write(batch)
                tried += 2
            except ArchiveError as error:
                print(error, error.retry)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        archive.write(batch)
        held = [m.position for m in archive.of(MINE).messages("s1")]
        print(held == list(range(tried + 2)), all(f.ok for f in archive.check() if f.name in ("pages", "fts")))
        """,
        str(tmp_path / "lantern.db"),
    )
    told, healed = done.stdout.splitlines()
    assert "could not be read or written" in told or "disk is full" in told
    assert told.endswith("True")
    assert healed == "True True"


@pytest.mark.parametrize("damage", ["text", "header", "truncated"])
def test_a_file_that_is_no_archive_is_refused_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "lantern.db"
    with Archive(path) as archive:
        archive.write([record(n) for n in range(50)])
    whole = path.read_bytes()
    broken = {"text": b"hello " * 1000, "header": b"\0" * 100 + whole[100:], "truncated": whole[: len(whole) // 3]}[
        damage
    ]
    path.write_bytes(broken)
    with pytest.raises(ArchiveError, match=r"archive .*lantern\.db (is|failed).*; \w+"):
        Archive(path)
    assert path.read_bytes() == broken
    assert os.listdir(tmp_path) == ["lantern.db"]


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match=r"is another program's database; set archive\.path"):
        Archive(path)
    assert path.read_bytes() == before


def test_damage_inside_is_found_by_check(tmp_path: Path) -> None:
    path = tmp_path / "lantern.db"
    with Archive(path) as archive:
        archive.write([record(n, f"word{n} " * 200) for n in range(200)])
    data = bytearray(path.read_bytes())
    at = data.index(b"word150 word150", len(data) // 4)
    data[at - at % 4096 : at - at % 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)
    with Archive(path) as archive:
        bad = amiss(archive)
        assert bad
        assert all(finding.remedy for finding in bad)


def test_a_missing_folder_and_a_folder_as_file_are_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="make the folder"):
        Archive(tmp_path / "no" / "lantern.db")
    with pytest.raises(ArchiveError, match=r"set archive\.path to a file this user may write"):
        Archive(tmp_path)
    with pytest.raises(ArchiveError, match="does not exist"):
        Archive(tmp_path / "absent.db", read_only=True)
    assert os.listdir(tmp_path) == []


def test_after_close_everything_says_that_it_is_closed(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "lantern.db")
    mine = archive.of(MINE)
    archive.close()
    archive.close()
    for call in (mine.sessions, archive.check, lambda: archive.write([record()])):
        if call == archive.check:
            assert amiss(archive)
            continue
        with pytest.raises(ArchiveError, match="is closed"):
            call()


# one file, several readers and writers


def test_the_file_and_its_companions_are_for_their_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with Archive(tmp_path / "lantern.db") as archive:
            archive.write([record()])
            assert sorted(os.listdir(tmp_path)) == ["lantern.db", "lantern.db-shm", "lantern.db-wal"]
            assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}
    finally:
        os.umask(old)
    archive.path.chmod(0o644)
    with Archive(archive.path):
        assert stat.S_IMODE(archive.path.stat().st_mode) == 0o600


def test_nothing_that_was_committed_is_lost_by_kill_9(tmp_path: Path) -> None:
    path, writer = tmp_path / "lantern.db", "import sys; sys.path.insert(0, sys.argv[2])\n" + textwrap.dedent(
        """
        from test_archive import *
        archive, start = Archive(sys.argv[1]), int(sys.argv[3])
        for n in range(start, start + 10_000_000, 3):
            archive.write([record(n + i, f"text {n + i} " * 50) for i in range(3)])
            print(n + 2, flush=True)
        """
    )  # fmt: skip
    told = -1
    for pause_s in (0.15, 0.4, 0.05, 0.25):
        arguments = [sys.executable, "-c", writer, str(path), str(Path(__file__).parent), str(told + 1)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        first = process.stdout.readline()
        time.sleep(pause_s)
        process.send_signal(signal.SIGKILL)
        last = (first + process.stdout.read()).rsplit("\n", 1)[0].splitlines()[-1]
        process.wait()
        process.stdout.close()
        with Archive(path) as archive:
            positions = [m.position for m in archive.of(MINE).messages("s1")]
            assert positions[: int(last) + 1] == list(range(int(last) + 1))
            assert len(positions) == len(archive.of(MINE).passages()) == len(positions) // 3 * 3
            assert all(finding.ok for finding in archive.check() if finding.name in ("pages", "fts"))
        told = positions[-1]


def test_another_process_sees_what_was_committed_here(archive: Archive) -> None:
    archive.write([record(0)])
    with Archive(archive.path) as second, Archive(archive.path, read_only=True) as third:
        archive.write([record(1)])
        second.write([record(2)])
        counts = {len(each.of(MINE).messages("s1")) for each in (archive, second, third)}
        assert counts == {3}
        assert archive.tenant_of("key") == second.tenant_of("key") == third.tenant_of("key")


def hold_lock(path: Path) -> Any:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("BEGIN IMMEDIATE")
    return db


def test_a_writer_waits_for_anothers_lock(archive: Archive) -> None:
    lock = hold_lock(archive.path)
    release = threading.Timer(0.2, lambda: lock.execute("COMMIT"))
    release.start()
    archive.write([record(0)])
    release.join()
    lock.close()
    assert len(archive.of(MINE).messages("s1")) == 1


def test_a_lock_held_too_long_is_told_and_the_same_records_may_be_written_later(tmp_path: Path) -> None:
    with Archive(tmp_path / "lantern.db", busy_s=0.1) as archive:
        lock = hold_lock(archive.path)
        with pytest.raises(ArchiveError, match="is locked by another process") as caught:
            archive.write([record(0)])
        assert caught.value.retry
        assert archive.of(MINE).messages("s1") == []
        lock.execute("ROLLBACK")
        lock.close()
        assert len(archive.write([record(0)])[0]) == 1


def test_several_processes_may_make_the_archive_at_once(tmp_path: Path) -> None:
    code = """
        from test_archive import *
        archive = Archive(sys.argv[1])
        archive.write([record(int(sys.argv[2]))])
        print(archive.tenant_of("k"))
        """
    outputs: list[subprocess.CompletedProcess[str]] = []
    threads = [
        threading.Thread(target=lambda n=n: outputs.append(run(code, str(tmp_path / "lantern.db"), str(n))))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({done.stdout for done in outputs}) == 1, [done.stderr for done in outputs]
    with Archive(tmp_path / "lantern.db") as archive:
        assert [m.position for m in archive.of(MINE).messages("s1")] == [0, 1, 2]


def test_threads_read_while_one_writes(archive: Archive) -> None:
    seen: list[list[int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append([m.position for m in archive.of(MINE).messages("s1")])

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(0, 60, 2):
        archive.write([record(n), record(n + 1)])
    done.set()
    for reader in readers:
        reader.join()
    assert all(positions == list(range(len(positions))) and len(positions) % 2 == 0 for positions in seen)


def test_read_only_reads_and_refuses_to_write(archive: Archive) -> None:
    archive.write([record(0)])
    with Archive(archive.path, read_only=True) as copy:
        assert copy.of(MINE).messages("s1") == archive.of(MINE).messages("s1")
        assert not amiss(copy)
        for write in (lambda: copy.write([record(1)]), lambda: copy.of(MINE).reinforce({1: (1.0, 1.0, 1, 1.0)})):
            with pytest.raises(ArchiveError, match="opened read-only; open it for writing"):
                write()
    assert len(archive.of(MINE).messages("s1")) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_folder_that_may_not_be_written_is_refused_for_writing_and_read_all_the_same() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lantern.db")
        with Archive(path) as archive:
            archive.write([record(0)])
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        code = """
            import os, sqlite_vec
            from lantern_proxy.archive import Archive, ArchiveError
            Archive(sys.argv[1], read_only=True).close()  # imports what a root's own Python keeps from nobody
            os.setuid(65534)  # nobody
            try:
                Archive(sys.argv[1])
            except ArchiveError as error:
                print(error)
            print(len(Archive(sys.argv[1], read_only=True).of("t_mine").messages("s1")))
            """
        done = run(code, str(path))
        assert done.stdout.splitlines() == [
            f"archive {path} cannot be opened (Permission denied); set archive.path to a file this user may write", "1",
        ], done.stderr  # fmt: skip


# tenants


def test_a_tenant_is_the_hmac_of_its_credential_under_this_archives_secret(tmp_path: Path) -> None:
    with Archive(tmp_path / "a.db") as one, Archive(tmp_path / "b.db") as two:
        assert one.tenant_of("sk-1") == one.tenant_of("sk-1") != one.tenant_of("sk-2")
        assert one.tenant_of("sk-1") != two.tenant_of("sk-1")
        assert one.tenant_of("sk-1").startswith("t_")
        assert "sk-1" not in one.path.read_bytes().decode("latin-1")
        with pytest.raises(ArchiveError, match="tenant is empty"):
            one.of("")


def everything_readable(mine: TenantArchive, ids: list[int]) -> str:
    """All that one tenant can read when it knows the ids of another's sessions, passages and requests."""
    sessions = ["s1", *(session.id for session in mine.sessions())]
    read: list[Any] = [
        mine.sessions(),
        mine.sessions(project="p1"),
        list(mine.export()),
        mine.holders(["call_0", f"{0:032x}"]),
    ]
    for session in sessions:
        read += [mine.session(session), mine.messages(session), mine.head(session).keys, mine.blocks(session)]
        read += [mine.passages(session), mine.requests(session), mine.outline(session)]
        read += [mine.search("canary", session=session), mine.fts(["canary"], 9, session=session)]
    read += [mine.passages(), mine.passages(project="p1"), mine.outline(), mine.passages(unit="turn")]
    read += [mine.passages_by_id(ids), mine.search("canary"), mine.search('"the canary" OR tenant:t_mine')]
    read += [mine.fts(["canary"], 9), mine.vectors(ids), mine.vectors([*ids, *range(1000)])]
    read += [mine.request("s1-r0"), mine.requests(), mine.why("s1-r0")]
    return repr([each for each in read if each])


def test_no_read_of_a_tenant_shows_anything_of_another(archive: Archive) -> None:
    [(one,)] = archive.write([record(0, "the canary sings")])
    placed = Placed(passage=one, text="the canary", rank=1, score=1.0, signals={})
    archive.write([record(0, "the canary sings", blocks=(block([placed]),))])
    archive.write([record(5, "an ordinary bird", tenant=OTHER, session="s9")])
    embed_all(archive)
    assert "canary" in everything_readable(archive.of(MINE), [one.id])
    seen = everything_readable(archive.of(OTHER), [one.id])
    assert "ordinary bird" in seen
    assert "canary" not in seen
    assert "s1" not in seen
    assert everything_readable(archive.of("t_third"), [one.id]) == "[]"


def test_no_write_of_a_tenant_changes_anything_of_another(archive: Archive) -> None:
    [(one,)] = archive.write([record(0, "the canary sings")])
    placed = Placed(passage=one, text="the canary", rank=1, score=1.0, signals={})
    archive.write([record(0, "the canary sings", blocks=(block([placed]),))])
    embed_all(archive)
    before = list(archive.of(MINE).export())
    other = archive.of(OTHER)
    other.reinforce({one.id: (0.1, 0.1, 9, 9.0)}, request="s1-r0", used={one.id: True})
    with pytest.raises(ArchiveError, match="request s1-r0 is not in the archive"):
        other.feedback("s1-r0", one.id, "wrong", now=1.0)
    report = other.prune(PruneRule(session="s1"), now=1e9)
    assert (report.passages, report.messages, report.sessions) == (0, 0, 0)
    archive.add_vectors("model", 8, [(OTHER, "s1", one.id, unit_vector(99))])
    archive.write([record(0, "of another", tenant=OTHER)])
    assert list(archive.of(MINE).export()) == before
    assert archive.of(MINE).why("s1-r0").marks[0].used is None  # type: ignore[union-attr]
    assert [t.id for t in archive.tenants()] == [MINE, OTHER]


def test_tenants_are_summed_up(archive: Archive) -> None:
    archive.write([record(0), record(7, session="s2"), record(3, tenant=OTHER)])
    first, second = archive.tenants()
    assert (first.id, first.sessions, first.messages, first.passages) == (MINE, 2, 2, 2)
    assert (first.first_at, first.last_at, second.id) == (1.0, 107.0, OTHER)


# finding


QUERIES = [
    '"', '""', "*", "a*", "NEAR(a b)", "a AND", "AND", "OR NOT", "text:a", "-a", "^a", "a + b", "(", ")", "'", "{a}:b",
    "\x00", "a\x00b", "\ud800", "日本語", "ß", "%", "", " ", "--", ";", "a" * 5000, "w " * 3000,
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: repr(q[:10]))
def test_whatever_a_person_types_is_words_and_never_syntax(archive: Archive, query: str) -> None:
    archive.write([record(0, "plain words")])
    assert archive.of(MINE).search(query) == []
    assert archive.of(MINE).fts([query, query], 5) == []
    assert [id_ for id_, _ in archive.of(MINE).fts([query, "plain"], 5)] == [1]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_no_query_is_an_error(archive: Archive, query: str) -> None:
    archive.of(MINE).search(query)
    archive.of(MINE).fts([query], 3)


def test_a_search_for_operators_and_quotes_finds_them_as_words(archive: Archive) -> None:
    archive.write([record(0, 'he said NEAR the "AND" gate'), record(1, "the gate is near")])
    mine = archive.of(MINE)
    assert [hit.passage.position for hit in mine.search('said "AND gate"')] == [0]
    assert [hit.passage.position for hit in mine.search("AND gate")] == [0]
    assert [hit.passage.position for hit in mine.search("unheard gate", limit=1)] == [1]  # no passage has both: any


def test_scores_are_larger_for_the_better_and_snippets_mark_what_was_found(archive: Archive) -> None:
    archive.write([record(0, "alpha beta gamma delta"), record(1, "alpha alpha alpha"), record(2, "nothing of it")])
    hits = archive.of(MINE).search("alpha")
    assert [hit.passage.position for hit in hits] == [1, 0]
    assert hits[0].score > hits[1].score > 0
    assert hits[1].snippet == "[alpha] beta gamma delta"
    ranking = archive.of(MINE).fts(["alpha", "gamma"], 5)
    assert [score for _, score in ranking] == sorted((score for _, score in ranking), reverse=True)


def test_a_small_tenants_search_does_not_walk_through_what_others_said(archive: Archive) -> None:
    archive.write([record(n, f"our port is {n}") for n in range(2)])
    archive.write([record(n, f"their port is {n}", tenant=OTHER) for n in range(3_000)])
    steps: list[str] = []
    with archive._connections.reading() as db:
        for who in (OTHER, MINE):
            db.conn.set_progress_handler(partial(steps.append, who), 100)
            found = archive.of(who).fts(["port"], 5_000)
            db.conn.set_progress_handler(None, 0)
            said = archive.of(who).passages_by_id(id_ for id_, _ in found).values()
            assert len(found) == (2 if who == MINE else 3_000)
            assert all(p.text.startswith("our" if who == MINE else "their") for p in said)
    assert steps.count(OTHER) > 20 * steps.count(MINE)


@pytest.mark.parametrize("filters", [{}, {"session": "s2"}, {"speaker": "user"}, {"since": 3.0}])
def test_a_search_finds_the_same_whether_there_are_few_passages_or_many(archive, monkeypatch, filters) -> None:
    archive.write([record(n, f"port {n % 4} and word{n}", session=f"s{n % 3}") for n in range(30)])
    archive.write([record(n, f"port {n % 4}", session="s1", tenant=OTHER) for n in range(30)])
    few = [(hit.passage.id, hit.score, hit.snippet) for hit in archive.of(MINE).search("port 2", 20, **filters)]
    monkeypatch.setattr(archive_tenant, "FEW", 0)
    many = [(hit.passage.id, hit.score, hit.snippet) for hit in archive.of(MINE).search("port 2", 20, **filters)]
    assert few == many
    assert few


def test_full_text_search_finds_passages_of_a_session_no_summaries_and_nothing_pruned(archive: Archive) -> None:
    archive.write([record(0, "shared word"), record(1, "shared word too", session="s2")])
    archive.write([record(2, passages=(passage(2, "shared summary", unit="turn"),))])
    mine = archive.of(MINE)
    assert [hit.passage.session for hit in mine.search("shared", session="s2")] == ["s2"]
    assert len(mine.fts(["shared"], 9)) == 2
    mine.prune(PruneRule(session="s1"), now=0.0)
    assert [hit.passage.session for hit in mine.search("shared")] == ["s2"]


def test_passages_are_read_by_session_project_unit_and_id(archive: Archive) -> None:
    archive.write([record(n, session=f"s{n % 2}") for n in range(6)])
    archive.write([record(9, session="s7", project="p2")])
    mine = archive.of(MINE)
    assert [p.position for p in mine.passages("s1")] == [1, 3, 5]
    assert [p.position for p in mine.passages(project="p2")] == [9]
    assert set(mine.passages_by_id([1, 2, 99])) == {1, 2}
    found = mine.outline("s0", after_id=1)
    assert (found.ids, found.times, found.lines) == ((3, 5), (102.0, 104.0), (b"one\ntwo\none",) * 2)


def test_vectors_are_read_as_they_were_kept(archive: Archive) -> None:
    archive.write([record(n) for n in range(9)])
    embed_all(archive)
    found = archive.of(MINE).vectors([7, 8, 999])
    assert found.keys() == {7, 8}
    assert found[7] == pytest.approx(unit_vector(7))


def test_passages_wait_for_vectors_in_fair_shares_and_only_once(archive: Archive) -> None:
    archive.write([record(n) for n in range(10)])
    archive.write([record(n, tenant=OTHER) for n in range(2)])
    assert [tenant for tenant, _, _ in archive.unembedded(4)] == [MINE, MINE, OTHER, OTHER]
    assert len(archive.unembedded(100)) == 12
    row = (MINE, "s1", 1, unit_vector(1))
    assert archive.add_vectors("model", 8, [row]) == 1
    assert archive.add_vectors("model", 8, [row, (MINE, "s1", 999, unit_vector(2))]) == 0
    assert len(archive.unembedded(100)) == 11
    assert archive.model == ("model", 8)


def test_vectors_of_another_model_are_refused_until_the_old_ones_are_dropped(archive: Archive) -> None:
    archive.write([record(0)])
    embed_all(archive)
    with pytest.raises(
        ArchiveError, match=r"has vectors of model \(8\), not of other \(4\); run `lantern reindex --vectors`"
    ):
        archive.add_vectors("other", 4, [(MINE, "s1", 1, unit_vector(1, 4))])
    with pytest.raises(ArchiveError, match="has shape"):
        archive.add_vectors("model", 8, [(MINE, "s1", 1, unit_vector(1, 4))])
    archive.drop_vectors()
    assert len(archive.unembedded(9)) == 1
    assert archive.add_vectors("other", 4, [(MINE, "s1", 1, unit_vector(1, 4))]) == 1
    assert archive.of(MINE).vectors([1])[1] == pytest.approx(unit_vector(1, 4))


def test_dropping_vectors_lets_others_write_in_between_and_keeps_what_they_make(archive: Archive) -> None:
    archive.write([record(n) for n in range(3 * ROWS)])
    embed_all(archive)
    tokens = [(MINE, id_, np.ones((2, 4), np.int8)) for id_ in range(1, 3 * ROWS + 1)]
    archive.add_vectors("model", 8, [], recipe="before", tokens=tokens)
    seen = transactions(archive, archive.drop_vectors)
    assert len(seen) > 3
    assert max(seen[1:]) <= ROWS
    assert archive.of(MINE).tokens(range(1, 3 * ROWS + 1), "before", 4) == {}

    archive.add_vectors("other", 8, [(MINE, "s1", 1, unit_vector(1))], recipe="after", tokens=tokens[:2])
    with archive.writing() as db:
        remove_tokens(db, range(3 * ROWS))
    assert archive.of(MINE).tokens(range(3 * ROWS), "after", 4).keys() == {1}


def test_without_vectors_everything_else_works_and_check_says_so(archive: Archive) -> None:
    archive.write([record(0), record(1, session="s2")])
    embed_all(archive)
    with Archive(archive.path, vectors=False) as plain:
        mine = plain.of(MINE)
        assert not plain.vectors
        assert (mine.vectors([1]), plain.unembedded(9)) == ({}, [])
        assert plain.add_vectors("model", 8, [(MINE, "s1", 1, unit_vector(1))]) == 0
        plain.write([record(2)])
        assert len(mine.search("message")) == 3
        assert mine.prune(PruneRule(session="s2"), now=0.0).passages == 1
        assert [f.name for f in amiss(plain)] == ["vectors"]
    assert archive.of(MINE).vectors([1, 2]).keys() == {1}  # the pruned passage's is still there, and is never found
    archive.of(MINE).prune(PruneRule(older_than_s=1e9), now=0.0)
    assert [f.ok for f in archive.check() if f.name == "vectors"] == [True]


def test_pythons_own_sqlite_serves_where_pysqlite3_is_missing(archive: Archive) -> None:
    archive.write([record(0)])
    embed_all(archive)
    done = run(
        """
        sys.modules["pysqlite3"] = None
        from test_archive import *
        with Archive(sys.argv[1]) as archive:
            archive.write([record(1, "second"), record(2, "to be cut", passages=(), uncut=(filed(2, "").key,))])
            print(archive.vectors, len(archive.of(MINE).search("message second")), len(archive.of(MINE).messages("s1")))
            print([f.name for f in amiss(archive)])
            print(*archive.degraded)
        backup(Path(sys.argv[1]), Path(sys.argv[1] + ".copy"))  # is checked, and refused where it is damaged
        """,
        str(archive.path),
    )
    results, findings, degraded = (done.stdout + "\n").split("\n")[:3]
    assert results in ("False 2 3", "True 2 3"), done.stderr  # True where this Python's sqlite3 loads extensions
    assert (findings, degraded != "", done.returncode) in (("['vectors']", True, 0), ("[]", False, 0)), done.stderr


# requests, feedback, pruning


@pytest.mark.parametrize(
    "value",
    [
        (), [], {}, "", "plain", 'quoted "so" \\ and\nbroken\t\x00', "gr\u00fc\u00dfe \U0001f389",
        "half \ud800 of two", 10**30, None,
        [["user", "text", 12, "", ("call_1", "\ud83d"), "00ff"]], {"a": [1, 2.5, True], "\u00e9": {"b": ()}},
    ],
)  # fmt: skip
def test_json_is_stored_as_compact_ascii_whatever_it_holds(value: Any) -> None:
    assert dumps(value) == json.dumps(value, separators=(",", ":"))


def test_why_tells_the_request_its_blocks_and_what_became_of_them(archive: Archive) -> None:
    [(one,)] = archive.write([record(0)])
    placed = Placed(passage=one, text="x", rank=1, score=1.0, signals={"bm25": 2.0})
    archive.write([record(1, blocks=(block([placed], request="s1-r1"),)), record(2)])
    mine = archive.of(MINE)
    mine.reinforce({}, request="s1-r1", used={one.id: True, 99: False})
    mine.feedback("s1-r1", one.id, "useful", now=1.0)
    why = mine.why("s1-r1")
    assert why is not None
    marked = Placed(passage=replace(one, verdict="useful"), text="x", rank=1, score=1.0, signals={"bm25": 2.0})
    assert (why.request.id, why.blocks[0].restored.placed) == ("s1-r1", (marked,))
    assert [(mark.passage, mark.used, mark.verdict) for mark in why.marks] == [(one.id, True, "useful")]
    assert mine.why("unknown") is None
    mine.feedback("s1-r2", one.id, "wrong", now=2.0)  # replayed in the next request of the session
    assert mine.why("s1-r1").marks[0].verdict == "wrong"  # type: ignore[union-attr]
    with pytest.raises(ArchiveError, match="request s1-r1 restored no passage 77; `lantern why s1-r1` lists them"):
        mine.feedback("s1-r1", 77, "useful", now=3.0)


def test_a_request_written_again_is_brought_up_to_date(archive: Archive) -> None:
    archive.write([record(0), record(1)])
    archive.write([replace(record(0), request=replace(record(0).request, status=500, error="broke off"))])
    assert [(r.id, r.status) for r in archive.of(MINE).requests("s1", limit=9)] == [("s1-r1", 200), ("s1-r0", 500)]


def test_reinforced_values_are_kept(archive: Archive) -> None:
    archive.write([record(0), record(1)])
    archive.of(MINE).reinforce({1: (0.65, 0.55, 1, 7.0), 99: (0.0, 0.0, 0, 0.0)})
    kept = archive.of(MINE).passages_by_id([1])[1]
    assert (kept.confidence, kept.success, kept.accesses, kept.accessed_at) == (0.65, 0.55, 1, 7.0)


@pytest.mark.parametrize(
    ("rule", "passages", "messages", "sessions"),
    [
        (PruneRule(older_than_s=95.0), 5, 5, 0),
        (PruneRule(older_than_s=0.0), 12, 12, 2),
        (PruneRule(session="s2"), 2, 2, 1),
        (PruneRule(below_confidence=0.3), 1, 0, 0),
        (PruneRule(below_confidence=0.3, session="s2"), 0, 0, 0),
        (PruneRule(older_than_s=95.0, session="s2"), 0, 0, 0),
    ],
)
def test_prune_removes_what_its_rule_names_and_a_dry_run_nothing(
    archive: Archive, rule: PruneRule, passages: int, messages: int, sessions: int
) -> None:
    archive.write([record(n) for n in range(10)] + [record(n, session="s2") for n in range(10, 12)])
    embed_all(archive)
    mine = archive.of(MINE)
    mine.reinforce({3: (0.2, 0.5, 0, 0.0)})
    before = list(mine.export())
    dry = mine.prune(rule, now=200.0, dry_run=True)
    assert (dry.passages, dry.messages, dry.sessions) == (passages, messages, sessions)
    assert list(mine.export()) == before
    assert mine.prune(rule, now=200.0) == dry
    left = mine.passages()
    assert (len(left), len(mine.sessions())) == (12 - passages, 2 - sessions)
    assert mine.vectors(range(1, 50)).keys() == {p.id for p in left}
    assert {hit.passage.id for hit in mine.search("message", limit=50)} == {p.id for p in left}
    assert (dry.bytes > 0) == (passages > 0)
    assert not amiss(archive)


def test_what_was_pruned_is_no_longer_in_the_file(archive: Archive) -> None:
    archive.write([record(0, "the passphrase is xylophone42"), record(1, "something else", session="s2")])
    archive.of(MINE).prune(PruneRule(session="s1"), now=0.0)
    archive.close()
    assert b"xylophone42" not in archive.path.read_bytes()


@pytest.mark.parametrize("rule", [PruneRule(session="s1"), PruneRule(older_than_s=95.0)])
def test_what_quotes_what_was_pruned_goes_too(archive: Archive, rule: PruneRule) -> None:
    """Blocks of other sessions as well, and what was asked for them; blocks that quote nothing of it stay."""
    [(gone,), (kept,)] = archive.write([record(0, "the vault is xylophone42"), record(99, "the gate", session="s2")])
    told = [Placed(passage=each, text=each.text, rank=1, score=1.0, signals={}) for each in (gone, kept)]
    of_s1 = block([told[0]], request="s1-r0")
    of_s2 = [block([each], session="s2", request=f"b{n}", created_at=150.0) for n, each in enumerate(told)]
    archive.write([record(0, blocks=(of_s1,)), record(99, session="s2", blocks=tuple(of_s2))])
    mine, forgets = archive.of(MINE), archive.forgets
    dry = mine.prune(rule, now=200.0, dry_run=True)
    assert dry == mine.prune(rule, now=200.0)
    assert dry.blocks == 2
    assert [each.request for each in mine.blocks("s2")] == ["b1"]
    assert mine.requests("s1", limit=9) == []
    assert archive.forgets != forgets
    archive.close()
    assert b"xylophone42" not in archive.path.read_bytes()


def test_what_a_proxy_quotes_while_its_blocks_go_goes_with_the_passage(archive: Archive) -> None:
    """It lets go of what it replays, is asked again, and finds the passage still there."""
    [(gone,)] = archive.write([record(0, "the vault is xylophone42")])
    told = [Placed(passage=gone, text=gone.text, rank=1, score=1.0, signals={})]
    archive.write([record(0, blocks=(block(told),))])
    seen = [archive.forgets]

    def advance(_: int) -> None:
        if len(seen) == 1:
            archive.write([record(99, session="s2", blocks=(block(told, session="s2", created_at=150.0),))])
        seen.append(archive.forgets)

    report = archive.of(MINE).prune(PruneRule(older_than_s=95.0), now=200.0, advance=advance)
    assert report.blocks == 2
    assert archive.of(MINE).blocks("s2") == []
    assert seen[0] != seen[1] != seen[2] != archive.forgets
    archive.close()
    assert b"xylophone42" not in archive.path.read_bytes()


@pytest.mark.parametrize(
    ("came_s", "forgotten_s", "kept"),
    [(-5, -1, 0), (-5, 2, 0), (3_595, 3_600, 0), (-1, 3_600, 1)],
    ids=["under way", "under way, a clock two seconds ahead", "under way, the clock set back since", "came after it"],
)
def test_what_is_under_way_while_it_is_forgotten_stays_out_though_clocks_are_set(
    archive: Archive, came_s: float, forgotten_s: float, kept: int
) -> None:
    now = time.time()
    archive.write([record(0)])
    archive.forget(MINE, ForgetRule(session="s1"), now=now + forgotten_s)
    archive.write([record(1, came_at=now + came_s)])
    assert len(archive.of(MINE).messages("s1")) == kept


def test_an_empty_rule_prunes_nothing(archive: Archive) -> None:
    archive.write([record(0)])
    with pytest.raises(ArchiveError, match="prune rule is empty and would remove everything"):
        archive.of(MINE).prune(PruneRule(), now=1e9)
    assert len(archive.of(MINE).passages()) == 1


def test_export_is_json_line_by_line_and_complete(archive: Archive) -> None:
    [(one,)] = archive.write([record(0, "odd \ud800 text")])
    placed = Placed(passage=one, text="x", rank=1, score=1.0, signals={})
    archive.write([record(1, blocks=(block([placed]),), passages=(passage(1, "t", unit="turn"),))])
    rows = [json.loads(json.dumps(row)) for row in archive.of(MINE).export()]
    kinds = [row["type"] for row in rows]
    assert kinds == ["session", "message", "message", "passage", "passage", "request", "request", "block"]
    assert json.loads(rows[1]["raw"])["content"] == "odd \ud800 text"


def test_check_finds_nothing_wrong_with_a_sound_archive(archive: Archive) -> None:
    archive.write([record(n) for n in range(5)])
    findings = archive.check()
    assert [finding for finding in findings if not finding.ok or finding.remedy] == []
    assert {f.name for f in findings} == {"mode", "size", "disk", "schema", "pages", "fts", "vectors", "faults"}


def test_a_full_text_index_that_disagrees_is_found_and_made_anew(archive: Archive) -> None:
    archive.write([record(0, "findable")])
    with sqlite3.connect(archive.path) as db:
        db.execute("INSERT INTO passages_fts (passages_fts) VALUES ('delete-all')")
    db.close()
    assert [f.name for f in amiss(archive)] == ["fts"]
    archive.rebuild_fts()
    assert len(archive.of(MINE).search("findable")) == 1
    assert not amiss(archive)


def transactions(archive: Archive, work: Callable[[], object]) -> list[int]:
    """How many rows each transaction of `work` changes, and how often the full-text index is made anew in one go."""
    seen: list[int] = []
    with archive.writing() as db:
        changed = db.conn.total_changes

    def told(sql: str) -> None:
        nonlocal changed
        assert "optimize" not in sql
        if sql == "COMMIT":
            seen.append(db.conn.total_changes - changed)
        changed = db.conn.total_changes if sql.startswith(("BEGIN", "COMMIT")) else changed

    db.conn.set_trace_callback(told)
    work()
    db.conn.set_trace_callback(None)
    return [rows for rows in seen if rows]


def test_a_prune_lets_others_write_in_between(archive: Archive) -> None:
    archive.write([record(n, session=f"s{n % 7}") for n in range(5 * ROWS)])
    seen = transactions(archive, lambda: archive.of(MINE).prune(PruneRule(older_than_s=1.0), now=1e9))
    assert len(archive.of(MINE).passages()) == 0
    assert len(seen) > 10
    assert max(seen) < 10 * ROWS


FORGOTTEN = {
    "a session": ForgetRule(session="s0"),
    "a match": ForgetRule(match="message"),
    "a tenant": ForgetRule(),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_forgetting_lets_others_write_in_between(archive: Archive, what: str) -> None:
    archive.write([record(n, session="s0") for n in range(3 * ROWS)])
    archive.write([record(n, session=f"s{n}") for n in range(1, ROWS)])
    quoted = [Placed(passage=p, text=p.text, rank=1, score=1.0, signals={}) for p in archive.of(MINE).passages("s0")]
    archive.write([record(n, blocks=(block(quoted[n : n + 9], request=f"b{n}"),)) for n in range(ROWS)])
    seen = transactions(archive, lambda: archive.forget(MINE, FORGOTTEN[what], now=1e9))
    assert archive.of(MINE).passages("s0") == []
    assert len(seen) > 10
    assert max(seen) < 10 * ROWS


def test_an_import_lets_others_write_in_between(archive: Archive, tmp_path: Path) -> None:
    with Archive(tmp_path / "exported.db", synchronous="normal") as exported:
        exported.write([record(n) for n in range(3 * ROWS)])
        rows = list(exported.of(MINE).export())
    seen = transactions(archive, lambda: import_rows(archive, MINE, rows, now=1.0))
    assert len(archive.of(MINE).passages("s1")) == len(archive.of(MINE).messages("s1")) == 3 * ROWS
    assert max(seen) < 10 * ROWS


def test_blocks_that_are_too_old_go_a_few_at_a_time(archive: Archive) -> None:
    [added] = archive.write([record(0)])
    quoted = [Placed(passage=added[0], text="x", rank=n, score=1.0, signals={}) for n in range(9)]
    archive.write([record(0, blocks=(block(quoted, request=f"b{n}"),)) for n in range(2 * ROWS)])
    seen = transactions(archive, lambda: archive.of(MINE).prune(PruneRule(older_than_s=1.0), now=1e9))
    assert archive.of(MINE).blocks("s1") == []
    assert max(seen) < 10 * ROWS


def test_what_would_be_forgotten_is_counted_while_somebody_writes(archive: Archive) -> None:
    archive.write([record(0)])
    lock = hold_lock(archive.path)
    assert archive.forget(MINE, ForgetRule(), now=1.0, dry_run=True).removed["messages"] == 1
    lock.close()


@pytest.mark.parametrize("what", FORGOTTEN)
def test_forgetting_that_was_stopped_is_ended_by_the_same_rule(archive: Archive, what: str) -> None:
    archive.write([record(n, f"message {n} xylophone{n}", session="s0") for n in range(ROWS)])
    done = 0
    for stopped in range(1, 20):
        left = [stopped]

        def advance(_: int, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        try:
            archive.forget_all([MINE], FORGOTTEN[what], now=1.0, advance=advance)
        except KeyboardInterrupt:
            done += 1
            archive.write([record(n, f"message {n} xylophone{n}", session="s0") for n in range(ROWS)])
        else:
            assert not archive.unwiped
            break
    assert done > 3
    assert archive.of(MINE).passages("s0") == []
    assert archive.forget(MINE, FORGOTTEN[what], now=1.0, dry_run=True).removed["messages"] == 0
    archive.close()
    assert b"xylophone" not in archive.path.read_bytes()


def test_pruning_that_was_stopped_is_ended_by_the_same_rule(archive: Archive) -> None:
    """Snapshots go, and running proxies are told of blocks that do, though the second run finds neither."""
    rule, stopped, done = PruneRule(session="s1"), 0, False
    while not done:
        stopped += 1
        snapshot = snapshot_path(archive.path, MINE, "all")
        assert snapshot is not None
        snapshot.write_bytes(b"xylophone")
        [[one]] = archive.write([record(0, "xylophone")])
        quoted = [Placed(passage=one, text=one.text, rank=1, score=1.0, signals={})]
        archive.write([record(1, session="s2", blocks=(block(quoted, session="s2", request=f"b{stopped}"),))])
        before, left = archive.forgets, [stopped]

        def advance(_: int, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            archive.of(MINE).prune(rule, now=1.0, wiped=False, advance=advance)
            archive.wipe(advance)
            done = True
        archive.of(MINE).prune(rule, now=1.0)
        assert archive.of(MINE).blocks("s2") == []
        assert archive.forgets != before
        assert not snapshot.exists()
    assert stopped > 5


def test_passages_cut_from_a_message_while_it_is_forgotten_go_with_it(archive: Archive) -> None:
    """The look for the text takes long; meanwhile the writer cuts up what it had archived."""
    key = f"{0:032x}"
    archive.write([record(0, "the xylophone plays; something else", passages=(), uncut=(key,))])
    [left] = archive.uncut()
    told: list[int] = []

    def cut_now(n: int) -> None:
        if not told:
            archive.add_passages([(left, [passage(0, "something else")])])
        told.append(n)

    archive.forget_all([MINE], ForgetRule(match="xylophone"), now=1.0, advance=cut_now)
    assert told
    assert archive.of(MINE).messages("s1") == []
    assert archive.of(MINE).passages() == []


def test_others_write_while_a_reader_needs_the_log(archive: Archive) -> None:
    archive.write([record(0)])
    reader = sqlite3.connect(archive.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchone()
    archive.of(MINE).prune(PruneRule(session="s1"), now=0.0, wiped=False)
    told: list[bool] = []
    with Archive(archive.path, busy_s=_LOG_WAIT_S / 2) as other:  # less than the reader is waited for
        wiping = threading.Thread(target=lambda: told.append(archive.wipe()))
        wiping.start()
        written = 0
        while wiping.is_alive():
            other.write([record(written)])
            written += 1
            wiping.join(0.005)  # one that never pauses lets nobody else have the lock
        wiping.join()
    assert told == [False]
    assert archive.unwiped
    reader.close()
    assert archive.wipe()
    assert not archive.unwiped


def test_a_writer_finds_the_pauses_of_one_that_holds_the_lock_most_of_the_time(archive: Archive) -> None:
    """SQLite's own waiting looks every 100 ms after a while."""
    other = hold_lock(archive.path)
    stop, held = threading.Event(), [0]

    def hog() -> None:
        while not stop.is_set():
            time.sleep(0.3)
            other.execute("COMMIT")
            held[0] += 1
            time.sleep(0.04)
            other.execute("BEGIN IMMEDIATE")
        other.execute("COMMIT")

    hogging = threading.Thread(target=hog)
    hogging.start()
    waits = []
    for n in range(12):
        before = held[0]
        archive.write([record(n)])
        waits.append(held[0] - before)
        time.sleep(0.05)
    stop.set()
    hogging.join()
    other.close()
    assert sorted(waits)[-3] <= 1


def test_a_vector_is_removed_without_a_look_at_all_others(tmp_path: Path) -> None:
    steps: list[int] = []
    for many in (50, 400):
        with Archive(tmp_path / f"{many}.db", synchronous="normal") as archive:
            if not archive.vectors:
                pytest.skip("no vectors on this Python")
            archive.write([record(n, tenant=OTHER) for n in range(many)])
            archive.write([record(0)])
            embed_all(archive)
            with archive.writing() as db:
                db.conn.set_progress_handler(partial(steps.append, many), 1)
                assert remove(db, [many + 1]) == 1
                db.conn.set_progress_handler(None, 0)
    assert steps.count(400) < 2 * steps.count(50)


def test_retention_wipes_what_it_removed_once_for_all_tenants(archive: Archive) -> None:
    archive.write([record(n, f"xylophone{n}", tenant=f"t{n}", session=f"s{n}") for n in range(10)])
    seen = transactions(archive, lambda: retain(archive, PrivacyConfig(keep_days=1), now=1e9))
    assert archive.tenants() == []
    assert len(seen) < 10 * 4 + 10
    archive.close()
    assert b"xylophone" not in archive.path.read_bytes()


def test_a_prune_that_was_killed_is_wiped_by_the_next_retention(archive: Archive) -> None:
    archive.write([record(0, "the passphrase is xylophone42"), record(1, "something else", session="s2")])
    archive.of(MINE).prune(PruneRule(session="s1"), now=0.0, wiped=False)
    retain(archive, PrivacyConfig(), now=1e9)
    archive.close()
    assert b"xylophone42" not in archive.path.read_bytes()


def test_what_a_proxy_wipes_in_the_middle_of_a_forget_is_wiped_behind_it(archive: Archive) -> None:
    """Every proxy looks now and then whether there is something to wipe."""
    archive.write([record(n, f"xylophone{n}") for n in range(3 * ROWS)])
    snapshot = snapshot_path(archive.path, MINE, "all")
    assert snapshot is not None
    looked = 0

    def advance(_: int) -> None:
        nonlocal looked
        looked += 1
        if looked == 3:
            retain(archive, PrivacyConfig(), now=1e9)
            snapshot.write_bytes(b"xylophone")

    archive.forget_all([MINE], ForgetRule(session="s1"), now=1.0, advance=advance)
    assert looked > 3
    assert not archive.unwiped
    held = [path for path in archive.path.parent.rglob("*") if path.is_file() and b"xylophone" in path.read_bytes()]
    assert held == []


def test_a_snapshot_that_cannot_be_removed_keeps_nothing_else(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, tenant: str | None) -> None:
        raise ArchiveError(f"the snapshots of {tenant} are stuck")

    archive.write([record(0, "xylophone42"), record(1, "something else", session="s2")])
    monkeypatch.setattr(archive_prune, "drop_snapshots_of", refuse)
    with pytest.raises(ArchiveError, match="are stuck"):
        archive.of(MINE).prune(PruneRule(session="s1"), now=0.0)
    assert archive.unwiped
    monkeypatch.undo()
    assert b"xylophone42" not in archive.path.read_bytes()
    retain(archive, PrivacyConfig(), now=1e9)
    assert not archive.unwiped


def test_what_an_earlier_lantern_left_unwiped_is_wiped_of_all_tenants(archive: Archive) -> None:
    """It did not note whose it was."""
    archive.write([record(0), record(1, tenant="t_other")])
    paths = [path for tenant in (MINE, "t_other") if (path := snapshot_path(archive.path, tenant, "all"))]
    assert [path.write_bytes(b"xylophone42") for path in paths] == [11, 11]
    with archive.writing() as db:
        db.execute("INSERT INTO settings (tenant, name, value) VALUES ('', 'unwiped', '1')")
    retain(archive, PrivacyConfig(), now=1e9)
    assert not any(path.exists() for path in paths)


def test_what_it_takes_to_prune_grows_with_what_there_is_and_not_with_its_square(tmp_path):
    steps = []
    for sessions in (20, 80):
        with Archive(tmp_path / f"{sessions}.db", synchronous="normal", vectors=False) as archive:
            archive.write([record(n, session=f"s{s}") for s in range(sessions) for n in range(20)])
            with archive.writing() as db:
                db.conn.set_progress_handler(partial(steps.append, sessions), 1_000)
                told = prune_dry(db, MINE, PruneRule(older_than_s=90.0), now=200.0)
                db.conn.set_progress_handler(None, 0)
            assert (told.passages, told.messages, told.sessions) == (10 * sessions, 10 * sessions, 0)
    assert steps.count(80) < 8 * steps.count(20)


def test_a_reader_whose_thread_ends_while_the_archive_is_closed_is_closed_by_one_of_them_at_a_time(tmp_path):
    """SQLite crashes when two threads close a connection at once."""
    read, may_end = threading.Event(), threading.Event()

    class Connection:
        """The thread's: while it is being closed for the first time, its thread ends."""

        def __init__(self, conn: Any) -> None:
            self._conn, self._closing, self.together = conn, False, False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._conn, name)

        def close(self) -> None:
            self.together |= self._closing
            if not may_end.is_set():
                self._closing = True
                may_end.set()
                thread.join(60)
                self._closing = False
            self._conn.close()

    archive = Archive(tmp_path / "a.db")
    opened: list[Connection] = []
    new_reader = archive._connections._new_reader

    def opening() -> Any:
        db = new_reader()
        opened.append(Connection(db.conn))
        db.conn = opened[-1]
        return db

    archive._connections._new_reader = opening

    def reads() -> None:
        archive.tenants()
        read.set()
        may_end.wait(60)

    thread = threading.Thread(target=reads)
    thread.start()
    assert read.wait(60)
    archive.close()
    assert [connection.together for connection in opened] == [False]
