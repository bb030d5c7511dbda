"""Released schemas stay readable. `python tests/test_migrations.py` makes the archive of the newest in tests/data."""

import contextlib
import gzip
import hmac
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lantern_proxy.migrations.archive import migrations
from sqlite_utils import utils
from sqlite_utils.db import Database
from test_archive import amiss

from lantern_proxy.archive import Archive, ArchiveError, Record, RequestRow, SessionRow
from lantern_proxy.turn import Block, Filed, Head, Passage, Placed, Restored, item, message

sqlite3: Any = utils.__dict__["sqlite3"]

DATA = Path(__file__).parent / "data"
STEPS = ["m001_archive", "m002_feedback", "m003_sizes", "m004_forgotten", "m005_uncut", "m006_tokens", "m007_passed",
         "m008_lean", "m009_heads", "m010_words", "m011_anchors", "m012_persons", "m013_uncut",
         "m014_prints", "m015_branches", "m016_repeats",
         "m017_names"]  # fmt: skip
"""Every step ever released, in order."""
RELEASED = sorted(DATA.glob("archive_v*.db.gz"), key=lambda path: int(path.name[len("archive_v") : -len(".db.gz")]))
TENANT = "t_0123456789abcdef01234567"


def kept() -> Record:
    """What every archive in tests/data holds. Add to it never: what version 1 holds is known for ever."""
    said = message(
        "user",
        [
            item("user", "text", "deploy with ./ship --slot 7, caf\u00e9 \ud800"),
            item("user", "result", "exit 3", ids=("call_1",)),
        ],
        b'{"role": "user", "content": "deploy with ./ship --slot 7"}',
    )
    filed = Filed(key="00" * 16, position=0, turn=1, message=said, created_at=1_700_000_000.5)
    passage = Passage(
        session="s1", message=filed.key, position=0, part=0, turn=1, speaker="user", text=said.text, tags=("./ship",),
        tools=("bash",), terms=("deploy", "ship", "7"), created_at=filed.created_at,
    )  # fmt: skip
    placed = Placed(passage=passage, text="--slot 7", rank=1, score=0.75, signals={"bm25": 2.5})
    restored = Restored(
        kind="loss", text="<restored_context>--slot 7</restored_context>", placed=(placed,), considered=3, ms=1.5,
        degraded=("dense:warming",),
    )  # fmt: skip
    block = Block(
        session="s1", anchor="aa" * 16, chain="bb" * 16, place="inside", restored=restored, request="r1",
        created_at=filed.created_at,
    )  # fmt: skip
    request = RequestRow(
        id="r1", at=filed.created_at, api="chat", path="/v1/chat/completions", model="m", event="compacted", status=200,
        query="which slot?", restored=1, chars=45, ms=2.5, degraded=("dense:warming",), gone=2, error="", session="s1",
    )  # fmt: skip
    session = SessionRow(
        id="s1", api="chat", family="f", parent="s0", title="ship it", created_at=filed.created_at,
        last_seen_at=filed.created_at, system="cc", tools=("bash",), project="p", messages=1, passages=1,
    )  # fmt: skip
    return Record(
        tenant=TENANT, project="p", session=session, request=request, messages=(filed,), head=Head(keys=(filed.key,)),
        ids=("call_1",), passages=(passage,), blocks=(block,),
    )  # fmt: skip


VECTOR = np.array([0.5, 0.5, 0.5, -0.5], dtype=np.float32)


def make(path: Path) -> None:
    with Archive(path) as archive:
        archive.write([kept()])
        archive.add_vectors("tiny", 4, [(TENANT, "s1", 1, VECTOR)])


def unpack(packed: Path, folder: Path) -> Path:
    path = folder / "lantern.db"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def schema(db: Database) -> dict[str, str]:
    """name -> SQL of what the steps make; not what SQLite, FTS5, vec0 and sqlite-utils keep for themselves."""
    rows = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {name: sql for name, sql in rows if not re.match(r"sqlite_|idx__sqlite|_sqlite|passages_fts_|vectors", name)}


@pytest.fixture
def fresh() -> Database:
    db = Database(memory=True)
    migrations.apply(db)
    return db


@pytest.mark.parametrize("packed", RELEASED, ids=lambda path: path.name)
def test_every_released_archive_still_opens_with_all_it_holds(tmp_path: Path, packed: Path) -> None:
    want, path = kept(), unpack(packed, tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        (secret,) = db.execute("SELECT value FROM settings WHERE name = 'secret'").fetchone()
    with Archive(path) as archive:
        mine = archive.of(TENANT)
        assert mine.sessions() == [want.session]
        assert mine.messages("s1") == list(want.messages)
        assert mine.head("s1").keys == want.head.keys
        assert mine.holders(["call_1"]) == ["s1"]
        [passage] = mine.passages()
        assert passage.text == want.passages[0].text
        assert passage.terms == want.passages[0].terms
        [block] = mine.blocks("s1")
        assert block.restored.text == want.blocks[0].restored.text
        assert block.restored.placed[0].signals == {"bm25": 2.5}
        assert mine.request("r1") == want.request
        assert mine.search("slot")[0].passage == passage
        if archive.vectors:
            assert mine.vectors([passage.id])[passage.id] == pytest.approx(VECTOR)
        assert [finding.name for finding in amiss(archive)] == ([] if archive.vectors else ["vectors"])
        assert (
            archive.tenant_of("sk-test") == f"t_{hmac.digest(bytes.fromhex(secret), b'sk-test', 'sha256').hex()[:24]}"
        )
        archive.write([want])
        assert len(mine.messages("s1")) == 1
        assert archive.version == len(STEPS)


def test_passages_that_an_older_process_adds_to_a_newer_schema_are_found_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    path = unpack(DATA / "archive_v7.db.gz", tmp_path)
    with Archive(path) as archive:
        archive.write([kept()])
    older = sqlite3.connect(path)  # it counts on a trigger that the newer process has dropped
    columns = ", ".join(row[1] for row in older.execute("PRAGMA table_info(passages)") if row[1] not in ("id", "hash"))
    copied = columns.replace(" text,", " 'a wordless gauge',")
    older.execute(f"INSERT INTO passages ({columns}, hash) SELECT {copied}, x'00' FROM passages LIMIT 1")
    older.commit()
    older.close()
    with Archive(path) as archive:
        assert [hit.passage.text for hit in archive.of(TENANT).search("gauge")] == ["a wordless gauge"]
        assert next(finding for finding in archive.check() if finding.name == "fts").ok


def test_names_of_sessions_that_were_read_in_the_wrong_encoding_are_mended(tmp_path: Path) -> None:
    path = unpack(DATA / "archive_v16.db.gz", tmp_path)
    misread = "Gespräch 東".encode().decode("latin-1")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET family = ?", (misread,))
        db.execute("INSERT INTO ids SELECT tenant, ?, session FROM ids", (misread,))
        db.execute("INSERT INTO ids SELECT tenant, 'façade', session FROM ids LIMIT 1")
    with Archive(path) as archive:
        mine = archive.of(TENANT)
        assert mine.sessions()[0].family == "Gespräch 東"
        assert [mine.holders([name]) for name in ("Gespräch 東", "façade", misread)] == [["s1"], ["s1"], []]


def test_every_released_version_left_an_archive() -> None:
    assert [path.name for path in RELEASED] == [f"archive_v{n}.db.gz" for n in range(1, len(STEPS) + 1)]


def test_steps_are_only_ever_appended(fresh: Database) -> None:
    assert [step.name for step in migrations.applied(fresh)] == STEPS


@pytest.mark.parametrize("packed", RELEASED, ids=lambda path: path.name)
def test_a_released_step_is_never_edited(tmp_path: Path, packed: Path) -> None:
    path, db = unpack(packed, tmp_path), Database(memory=True)
    released = Database(sqlite3.connect(path))
    done = len(migrations.applied(released))
    migrations.apply(db, stop_before=STEPS[done:] or None)
    assert schema(released) == schema(db)


def test_every_table_is_strict_and_names_its_tenant_first_of_all(fresh: Database) -> None:
    made = {name: sql for name, sql in schema(fresh).items() if sql.startswith("CREATE TABLE")}
    assert len(made) == 14
    for name in made:
        table = fresh.table(name)
        assert table.strict, name
        assert "tenant" in table.columns_dict, name
        for index in table.indexes:
            assert index.columns[0] == "tenant", index


def test_opening_again_migrates_nothing(tmp_path: Path) -> None:
    with Archive(tmp_path / "lantern.db") as archive:
        before, version = schema(Database(sqlite3.connect(archive.path))), archive.version
        with Archive(archive.path) as again:
            assert (schema(Database(sqlite3.connect(again.path))), again.version) == (before, version)


@pytest.mark.parametrize("read_only", [False, True])
def test_an_archive_of_a_newer_lantern_is_refused_and_left_as_it_is(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "lantern.db"
    Archive(path).close()
    db = sqlite3.connect(path)
    later = ("lantern.archive", "m099_later", "then")
    db.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)", later)
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(
        ArchiveError, match=r"was written by a newer lantern \(it has schema step m099_later\); upgrade"
    ):
        Archive(path, read_only=read_only)
    assert path.read_bytes() == before


def test_an_archive_that_lacks_steps_is_not_migrated_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "lantern.db"
    path.write_bytes(gzip.decompress((DATA / "archive_v7.db.gz").read_bytes()))
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match="is of an older lantern; run `lantern migrate`"):
        Archive(path, read_only=True)
    assert path.read_bytes() == before
    Archive(path).close()
    Archive(path, read_only=True).close()


def test_an_empty_file_is_not_made_an_archive_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "lantern.db"
    path.touch()
    with pytest.raises(ArchiveError, match="is an empty file; `lantern serve` makes an archive of it"):
        Archive(path, read_only=True)
    assert path.read_bytes() == b""
    Archive(path).close()
    Archive(path, read_only=True).close()


if __name__ == "__main__":
    target = DATA / f"archive_v{len(STEPS)}.db"
    target.unlink(missing_ok=True)
    make(target)
    target.with_suffix(".db.gz").write_bytes(gzip.compress(target.read_bytes(), mtime=0))
    target.unlink()
