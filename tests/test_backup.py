"""Copies: a backup while the archive is written, and what a damaged file still gives."""

import gzip
import json
import os
import random
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_archive import run as in_python

from lantern_proxy import Lantern
from lantern_proxy.archive import Archive, ArchiveError, ForgetRule
from lantern_proxy.archive import backup as archive_backup
from lantern_proxy.archive.backup import backup, recover
from lantern_proxy.cli import main as cli
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig

PAGE = 4_096


def config_of(path) -> Config:
    return Config(archive=ArchiveConfig(path=path), embed=EmbedConfig(enabled="off"))


def chat(n: int) -> list[dict]:
    return [
        {"role": ("user", "assistant")[i % 2], "content": f"fact {n}.{i}: the gate is GATE-{n * 1000 + i}. " * 8}
        for i in range(40)
    ]


@pytest.fixture
def archive(tmp_path):
    with Lantern(config_of(tmp_path / "lantern.db")) as lantern:
        for n in range(12):
            lantern.archive(f"chat-{n}", chat(n))
    return tmp_path / "lantern.db"


def content(path) -> list[dict]:
    with Archive(path, read_only=True) as opened:
        return [json.loads(json.dumps(row, default=str)) for t in opened.tenants() for row in opened.of(t.id).export()]


def test_what_holds_half_a_surrogate_pair_is_recovered_as_it_was(tmp_path):
    said = [{"role": "user", "content": "the port is 9443 \ud83d and half an emoji"}]
    with Lantern(config_of(tmp_path / "lantern.db")) as lantern:
        lantern.archive("chat", said)
        lantern.archive("chat-\ud83d", chat(1))
    recover(tmp_path / "lantern.db", tmp_path / "saved.db")
    assert content(tmp_path / "saved.db") == content(tmp_path / "lantern.db")


def test_a_backup_is_the_archive_in_one_file_with_mode_0600(archive, tmp_path):
    before = archive.read_bytes()
    size = backup(archive, tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(archive)
    assert (tmp_path / "copy.db").stat().st_size == size
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert archive.read_bytes() == before
    assert not (tmp_path / "copy.db-wal").exists()


def test_an_archive_without_its_secret_makes_no_backup(archive, tmp_path):
    with Archive(archive) as opened, opened.writing() as db:
        db.execute("DELETE FROM settings WHERE name = 'secret'")
    with pytest.raises(ArchiveError, match="its secret, which tells whose key is whose, cannot be read"):
        backup(archive, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_backup_taken_while_turns_are_written_is_whole_and_of_one_moment(archive, tmp_path):
    stop = threading.Event()

    def write() -> None:
        with Lantern(config_of(archive)) as lantern:
            n = 100
            while not stop.is_set():
                lantern.archive(f"chat-{n}", chat(n))
                n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for n in range(3):
            backup(archive, tmp_path / f"copy-{n}.db")
    finally:
        stop.set()
        writer.join()
    for n in range(3):
        with Archive(tmp_path / f"copy-{n}.db") as copy:
            assert all(found.ok for found in copy.check() if found.name in ("pages", "fts", "schema"))
            (tenant,) = copy.tenants()
            mine = copy.of(tenant.id)
            assert all(len(mine.messages(s.id)) == 40 for s in mine.sessions(limit=-1))


def test_a_backup_does_not_begin_again_with_every_turn_that_is_written_meanwhile(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(archive_backup, "_PAGES", 20)
    before, told = content(archive), []
    with Lantern(config_of(archive)) as lantern:

        def progress(done: int, of: int) -> None:
            told.append(done)
            assert len(told) < 2 + of / 20, told
            lantern.archive(f"meanwhile-{len(told)}", chat(len(told))[:2])

        backup(archive, tmp_path / "copy.db", progress)
    assert len(told) > 3
    assert told == sorted(told)
    assert content(tmp_path / "copy.db") == before


def test_nothing_is_written_over_and_nothing_is_left_behind(archive, tmp_path):
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(ArchiveError, match=r"copy\.db exists"):
        backup(archive, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"
    (tmp_path / "other.db").write_bytes(b"not a database at all" * 400)
    with pytest.raises(ArchiveError, match="is not a lantern archive"):
        backup(tmp_path / "other.db", tmp_path / "copy2.db")
    assert not [path for path in os.listdir(tmp_path) if "partial" in path or path == "copy2.db"]


def test_what_a_killed_process_left_keeps_none_of_the_same_number_from_a_backup(archive, tmp_path):
    """In a container every one has the same."""
    left = tmp_path / f".copy.db.{os.getpid()}.partial"
    left.write_bytes(b"half of it")
    backup(archive, tmp_path / "copy.db")
    assert left.read_bytes() == b"half of it"  # it may be another container's, and under way


def on_a_small_disk(tmp_path, room: str, script: str, **environ: str) -> tuple[str, str]:
    """What is printed, and told as an error, by a script of a shell in `tmp_path`: $0 is Python, and `small` a disk of
    its own with so much room, beside big.db of 21 MB."""
    with Lantern(config_of(tmp_path / "big.db")) as lantern:
        random_ = random.Random(7)
        words = [" ".join(str(random_.randrange(10**9)) for _ in range(2_000)) for _ in range(120)]
        said = [{"role": ("user", "assistant")[i % 2], "content": each} for i, each in enumerate(words)]
        lantern.archive("chat", said)
    (tmp_path / "small").mkdir()
    script = f"mount -t tmpfs -o size={room} none small || exit 77\n{script}"
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, sys.executable]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environ
    done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, env=environ, timeout=120)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no file system of one's own can be mounted here")
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("room", "command"),
    [
        ("1m", "export --backup"),
        ("12m", "export --backup"),
        ("1m", "recover"),
        ("8m", "recover"),  # full in the middle of a table
        ("1m", "truncate -s 16m big.db; recover"),
    ],
)
def test_a_full_disk_is_told_as_that_of_the_copy_and_nothing_is_left_on_it(tmp_path, command, room):
    *before, command = command.split("; ")
    copy = "; ".join([*before, f'"$0" -m lantern_proxy {command} small/copy.db --archive big.db; echo $?; ls -A small'])
    printed, told = on_a_small_disk(tmp_path, room, copy)
    assert "lantern: archive small/copy.db has no room: the disk is full" in told
    assert printed.splitlines()[-1] == "1"


FILL = """
import os, random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_archive import record
from lantern_proxy.archive import Archive, ArchiveError, ForgetRule

left = os.open("small/other", os.O_CREAT | os.O_WRONLY)
os.write(left, bytes(4_000_000))
archive, some = Archive(Path("small/a.db")), random.Random(3)
try:
    for n in range(10_000):
        text = " ".join(str(some.randrange(10**9)) for _ in range(100))
        archive.write([record(n, text, session=f"s{n // 50}")])
except ArchiveError:
    os._exit(0)  # as one that is killed: its log stays
"""


def test_what_frees_room_on_a_full_disk_is_told_and_what_is_forgotten_and_pruned_then_goes(tmp_path):
    lantern = '"$0" -m lantern_proxy'
    to_do = [f"{lantern} {what} --yes --archive small/a.db" for what in ("prune --session s0", "forget --session s1")]
    script = f"""
        "$0" fill.py {Path(__file__).parent}
        {to_do[0]}; {to_do[1]}
        rm small/other
        {to_do[0]} && {to_do[1]}"""
    (tmp_path / "fill.py").write_text(FILL)
    printed, told = on_a_small_disk(tmp_path, "24m", script)
    wanted = re.findall(r"small/a.db has no room: the disk is full; free (\d) MB there", told)
    assert len(wanted) == 2
    assert all(1 <= int(each) <= 4 for each in wanted)  # as much as was freed then
    assert "removed 50 passages, 50 messages" in printed
    assert "removed 50 passages, 50 messages" in told  # of forget: its receipt is what it prints


def test_the_room_that_doctor_tells_is_that_of_the_disk_where_the_file_is(tmp_path):
    script = """cp big.db small/real.db; ln -s small/real.db link.db
        "$0" -m lantern_proxy doctor --offline --archive link.db | grep disk"""
    printed, _ = on_a_small_disk(tmp_path, "30m", script)
    assert "MB free" in printed
    assert int(printed.split()[2]) < 30


def test_an_archive_that_cannot_be_opened_on_a_full_disk_is_told_as_that(tmp_path):
    script = """
        cp big.db small/a.db; dd if=/dev/zero of=small/other bs=4096 2>/dev/null
        "$0" -m lantern_proxy prune --older-than 1d --yes --archive small/a.db"""
    _, told = on_a_small_disk(tmp_path, "24m", script)
    assert "small/a.db has no room: the disk is full" in told


def test_what_is_sound_is_recovered_whole(archive, tmp_path):
    saved = {each.table: each for each in recover(archive, tmp_path / "new.db")}
    assert not any(each.faults for each in saved.values())
    assert content(tmp_path / "new.db") == content(archive)
    with Lantern(config_of(tmp_path / "new.db")) as lantern, Lantern(config_of(archive)) as old:
        assert lantern.tenant == old.tenant
        assert lantern.search("GATE-7003")
        assert lantern.archive("chat-7", chat(7)) == 0


def test_an_archive_of_a_newer_lantern_is_not_recovered_without_what_only_that_one_knows(archive, tmp_path):
    with closing(sqlite3.connect(archive)) as db, db:
        later = ("lantern.archive", "m099_later", "then")
        db.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)", later)
    with pytest.raises(ArchiveError, match=r"written by a newer lantern .* upgrade"):
        recover(archive, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("seed", range(6))
def test_of_a_damaged_archive_most_comes_back_and_the_file_stays_as_it_is(archive, tmp_path, seed):
    draw = random.Random(seed)
    data = bytearray(archive.read_bytes())
    pages = len(data) // PAGE
    for page in draw.sample(range(pages // 4, pages), max(2, pages // 50)):
        data[page * PAGE : (page + 1) * PAGE] = draw.randbytes(PAGE)
    archive.write_bytes(data)
    saved = {each.table: each for each in recover(archive, tmp_path / "new.db")}
    assert archive.read_bytes() == bytes(data)
    assert saved["messages"].rows > 240, saved  # of 480
    with Archive(tmp_path / "new.db") as new:
        assert all(found.ok for found in new.check() if found.name in ("pages", "fts", "schema"))
    with Lantern(config_of(tmp_path / "new.db")) as lantern:
        assert sum(bool(lantern.search(f"GATE-{n * 1000 + 3}")) for n in range(12)) >= 6


def pages_of_the_list_of_tables(path) -> set[int]:
    """Numbers of the pages that sqlite_schema is in, of its rows' ends as well."""
    data = path.read_bytes()
    with closing(sqlite3.connect(path)) as db:
        names = {row[0].encode() for row in db.execute("SELECT sql FROM sqlite_schema WHERE sql <> ''")}
    heads = {sql[:60] for sql in names} | {sql[-60:] for sql in names}
    return {1} | {data.index(part) // PAGE + 1 for part in heads}


def spoil(path, pages, seed=1) -> None:
    data = bytearray(path.read_bytes())
    for page in pages:
        data[(page - 1) * PAGE : page * PAGE] = random.Random(seed + page).randbytes(PAGE)
    path.write_bytes(data)


@pytest.mark.parametrize("what", ["the first", "all but the first", "all"])
def test_an_archive_whose_list_of_tables_is_damaged_comes_back_whole(archive, tmp_path, what):
    with Lantern(config_of(archive)) as lantern:
        lantern.archive("long", [{"role": "user", "content": "".join(f"line {n} of GATE-77. " for n in range(9_000))}])
        lantern.archive("chat-\ud83d", chat(13))
    with Archive(archive) as opened:
        (tenant,) = opened.tenants()
        opened.forget(tenant.id, ForgetRule(session="chat-3"), now=1.0)
    kept = content(archive)
    listed = pages_of_the_list_of_tables(archive)
    assert len(listed) > 2
    spoil(archive, {"the first": {1}, "all but the first": listed - {1}, "all": listed}[what])
    damaged = archive.read_bytes()
    saved = {each.table: each.rows for each in recover(archive, tmp_path / "new.db")}
    assert saved["heads"] == saved["sessions"] == 13
    assert archive.read_bytes() == damaged
    assert content(tmp_path / "new.db") == kept
    assert not list(tmp_path.glob(".new.db*"))
    with Lantern(config_of(tmp_path / "new.db")) as lantern:
        assert lantern.search("GATE-7003")
        assert lantern.archive("chat-7", chat(7)) == 0
        lantern.archive("chat-3", chat(3))
        assert not lantern.search("GATE-3003")  # forgotten is forgotten


def test_what_is_committed_in_the_log_of_such_an_archive_comes_back_and_what_is_not_does_not(archive, tmp_path):
    with Lantern(config_of(archive)) as lantern:
        for n in range(12, 24):
            lantern.archive(f"chat-{n}", chat(n))
        shutil.copy(archive, tmp_path / "broken.db")
        log = bytearray((tmp_path / "lantern.db-wal").read_bytes())
    kept = content(archive)
    size = 24 + PAGE
    for at in range(32, len(log), size):
        if int.from_bytes(log[at : at + 4], "big") == 1:  # the newer versions of page 1 are lost, too
            log[at + 24 : at + size] = bytes(PAGE)
    unfinished = bytearray(log[-size:])
    unfinished[4:8] = bytes(4)  # begins a commit that was never ended
    (tmp_path / "broken.db-wal").write_bytes(log + unfinished)
    spoil(tmp_path / "broken.db", {1})
    recover(tmp_path / "broken.db", tmp_path / "new.db")
    assert content(tmp_path / "new.db") == kept


@pytest.mark.parametrize("old", sorted((Path(__file__).parent / "data").glob("archive_v*.db.gz")), ids=lambda p: p.name)
def test_such_an_archive_of_every_earlier_release_comes_back(tmp_path, old):
    (tmp_path / "sound.db").write_bytes(gzip.decompress(old.read_bytes()))
    shutil.copy(tmp_path / "sound.db", tmp_path / "broken.db")
    spoil(tmp_path / "broken.db", {1})
    recover(tmp_path / "sound.db", tmp_path / "one.db")
    saved = {each.table: each.rows for each in recover(tmp_path / "broken.db", tmp_path / "other.db")}
    assert saved["messages"]
    assert content(tmp_path / "other.db") == content(tmp_path / "one.db")


def test_such_an_archive_of_a_newer_lantern_is_refused_as_any(archive, tmp_path):
    with closing(sqlite3.connect(archive)) as db, db:
        later = ("lantern.archive", "m099_later", "then")
        db.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)", later)
    spoil(archive, {1})
    with pytest.raises(ArchiveError, match=r"written by a newer lantern .* upgrade"):
        recover(archive, tmp_path / "new.db")


@pytest.mark.parametrize("held", [b"", b"no database at all" * 4_000])
def test_what_is_no_archive_gives_nothing_back(tmp_path, held):
    (tmp_path / "other.db").write_bytes(held)
    with pytest.raises(ArchiveError, match=r"gives nothing back; .* restore a backup"):
        recover(tmp_path / "other.db", tmp_path / "new.db")
    assert os.listdir(tmp_path) == ["other.db"]


def test_an_archive_that_is_not_there_is_told_by_name(tmp_path):
    with pytest.raises(ArchiveError, match=r"nowhere\.db"):
        recover(tmp_path / "nowhere.db", tmp_path / "new.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0.97, 0.6])
def test_of_an_archive_that_was_cut_short_the_rest_comes_back(archive, tmp_path, share):
    data = archive.read_bytes()
    cut = data[: int(len(data) * share)]
    archive.write_bytes(cut)
    modes = set()

    def look(*_: int) -> None:
        modes.update(path.stat().st_mode & 0o777 for path in tmp_path.glob(".new.db*"))

    saved = {each.table: each for each in recover(archive, tmp_path / "new.db", look)}
    assert modes == {0o600}
    assert archive.read_bytes() == cut
    assert saved["messages"].rows > 480 * (share - 0.35), saved
    assert sorted(os.listdir(tmp_path)) == sorted({archive.name, "new.db"})


def test_a_damaged_archive_is_not_backed_up_as_if_it_were_sound(archive, tmp_path):
    data = bytearray(archive.read_bytes())
    for page in range(len(data) // PAGE // 4, len(data) // PAGE, 5):
        data[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE
    archive.write_bytes(data)
    with pytest.raises(ArchiveError, match="lantern recover"):
        backup(archive, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_copies_of_an_encrypted_archive_are_encrypted(tmp_path):
    pytest.importorskip("sqlcipher3", reason="the extra `encrypted` is not installed")
    key = "ab" * 32
    (tmp_path / "key").write_text(key)
    config = Config(
        archive=ArchiveConfig(path=tmp_path / "lantern.db", key_file=str(tmp_path / "key")),
        embed=EmbedConfig(enabled="off"),
    )
    with Lantern(config) as lantern:
        lantern.archive("chat-1", chat(1))
    backup(config.archive.path, tmp_path / "copy.db", key=key)
    recover(config.archive.path, tmp_path / "new.db", key=key)
    for wrong in ("", "cd" * 32):
        with pytest.raises(
            ArchiveError, match=r"gives nothing back; if it is encrypted check its key .*, else restore"
        ):
            recover(config.archive.path, tmp_path / "none.db", key=wrong)
    for name in ("copy.db", "new.db"):
        assert b"GATE-1003" not in (tmp_path / name).read_bytes()
        assert b"SQLite format" not in (tmp_path / name).read_bytes()
        with Archive(tmp_path / name, key=key) as copy:
            (tenant,) = copy.tenants()
            assert copy.of(tenant.id).search("GATE-1003")


def test_a_copy_is_not_read_with_the_log_of_what_was_in_its_place(archive, tmp_path):
    """As `mv saved.db lantern.db` after a crash, which left a log."""
    backup(archive, tmp_path / "saved.db")
    kept = content(tmp_path / "saved.db")
    with Lantern(config_of(archive)) as lantern:
        for n in range(12, 24):
            lantern.archive(f"chat-{n}", chat(n))
        log = (tmp_path / "lantern.db-wal").read_bytes()
    (tmp_path / "saved.db").replace(archive)
    (tmp_path / "lantern.db-wal").write_bytes(log)
    for opens in (
        lambda: Archive(archive).close(),
        lambda: Archive(archive, read_only=True).close(),
        lambda: backup(archive, tmp_path / "again.db"),
        lambda: recover(archive, tmp_path / "again.db"),
    ):
        with pytest.raises(ArchiveError, match=r"whose log is still there; move .*lantern\.db-wal and .*-shm away"):
            opens()
    (tmp_path / "lantern.db-wal").unlink()
    assert content(archive) == kept


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_of_an_archive_in_a_folder_that_cannot_be_written_copies_are_made():
    """As a disk at fault is mounted again. With a log, which a crash left, it is saved by `recover`."""
    with tempfile.TemporaryDirectory() as shut, tempfile.TemporaryDirectory() as free:
        path = Path(shut, "lantern.db")
        with Lantern(config_of(path)) as lantern:
            lantern.archive("chat", chat(0))
            for part in (path, Path(f"{path}-wal")):
                shutil.copy(part, Path(shut, part.name.replace("lantern", "crashed")))
        for each in Path(shut).iterdir():
            each.chmod(0o444)
        Path(shut).chmod(0o555)
        Path(free).chmod(0o777)
        code = """
            import os, sqlite_vec
            from pathlib import Path
            from lantern_proxy.archive.backup import backup, recover
            shut, free = Path(sys.argv[1]), Path(sys.argv[2])
            recover(shut / "crashed.db", free / "roots.db")  # imports what a root's own Python keeps from nobody
            os.setuid(65534)  # nobody
            backup(shut / "lantern.db", free / "copy.db")
            for name in ("lantern.db", "crashed.db"):
                print({each.table: each.rows for each in recover(shut / name, free / name)}["messages"])
            """
        done = in_python(code, shut, free)
        assert done.stdout.splitlines() == ["40", "40"], done.stderr
        assert len(content(Path(free, "copy.db"))) == len(content(Path(free, "crashed.db")))


def test_the_commands_say_what_they_did(archive, tmp_path):
    run = CliRunner().invoke
    told = run(cli.cli, ["export", "--backup", str(tmp_path / "b.db"), "--archive", str(archive), "--json"])
    assert json.loads(told.stdout)["size_bytes"] == (tmp_path / "b.db").stat().st_size
    told = run(cli.cli, ["recover", str(tmp_path / "r.db"), "--archive", str(archive), "--json"])
    assert {each["table"]: each["rows"] for each in json.loads(told.stdout)["tables"]}["messages"] == 480
    again = run(cli.cli, ["export", "--backup", str(tmp_path / "b.db"), "--archive", str(archive)])
    assert again.exit_code == 2
    assert "exists; remove it first" in again.output


def test_what_was_not_cut_into_passages_yet_still_waits_for_it_when_it_is_recovered(archive, tmp_path):
    with Archive(archive) as opened:
        with opened.writing() as db:
            db.conn.execute("INSERT INTO uncut SELECT tenant, session, key, '' FROM messages LIMIT 7")
        waiting = opened.uncut()
    recover(archive, tmp_path / "new.db")
    with Archive(tmp_path / "new.db") as saved:
        assert saved.uncut() == waiting
        assert sum(len(each.messages) for each in waiting) == 7
