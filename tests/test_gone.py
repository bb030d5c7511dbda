"""What was removed, by whichever way, is in none of the bytes: the file, its log, what lies beside it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from test_archive import MINE, amiss, block, passage, record, sqlite3

from lantern_proxy.archive import Archive, ForgetRule, PruneRule, Record
from lantern_proxy.archive.retention import retain
from lantern_proxy.archive.snapshots import snapshot_path
from lantern_proxy.config import PrivacyConfig
from lantern_proxy.turn import Placed

TENANTS = range(40)
GOING = [n for n in TENANTS if n % 4]
"""Those whose texts are removed; the others' stand in the same pages of the file."""


def sign(n: int) -> str:
    return f"removed{n:02d}zq"


def fill(archive: Archive) -> dict[int, list[bytes]]:
    """Texts of 20 bytes to 40 KB, blocks that quote them, vectors; tenant -> its vectors."""
    vectors: dict[int, list[bytes]] = {n: [] for n in TENANTS}
    for at in range(2):
        for n in TENANTS:
            text = f"{sign(n)} is number {at} " * (1, 9, 40, 150, 700, 1_500)[(n + at) % 6]
            made = record(at, text, tenant=f"t{n}", session=f"s{n}", project=f"p{n}")
            [(one,)] = archive.write([made])
            placed = Placed(passage=one, text=one.text, rank=1, score=1.0, signals={})
            archive.write([replace(made, blocks=(block([placed], session=f"s{n}", request=f"s{n}-r{at}"),))])
            vector = np.random.default_rng(one.id).standard_normal(8).astype(np.float32)
            archive.add_vectors("model", 8, [(f"t{n}", f"s{n}", one.id, vector)])
            vectors[n].append(vector.tobytes())
    return vectors


def found(folder: Path, vectors: dict[int, list[bytes]]) -> dict[str, set[int]]:
    """file -> those whose texts or vectors are in its bytes."""
    files = {part.name: part.read_bytes() for part in folder.rglob("*") if part.is_file()}
    return {
        name: {n for n, own in vectors.items() for each in (sign(n).encode(), *own) if each in data}
        for name, data in files.items()
    }


def prune(archive: Archive, rule: Callable[[int], PruneRule]) -> None:
    for n in GOING:
        archive.of(f"t{n}").prune(rule(n), now=1e9, wiped=False)
    archive.wipe()


def forget(archive: Archive, rule: Callable[[int], ForgetRule]) -> None:
    for n in GOING:
        assert archive.forget(f"t{n}", rule(n), now=1.0).left_over == 0


REMOVALS: dict[str, Callable[[Archive], object]] = {
    "prune by age": lambda archive: prune(archive, lambda n: PruneRule(older_than_s=1.0)),
    "prune a session": lambda archive: prune(archive, lambda n: PruneRule(session=f"s{n}")),
    "retention": lambda archive: retain(archive, PrivacyConfig(keep_days=1), now=1e9),
    "forget a session": lambda archive: forget(archive, lambda n: ForgetRule(session=f"s{n}")),
    "forget a project": lambda archive: forget(archive, lambda n: ForgetRule(project=f"p{n}")),
    "forget a match": lambda archive: forget(archive, lambda n: ForgetRule(match=sign(n))),
    "forget a tenant": lambda archive: forget(archive, lambda n: ForgetRule()),
}


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        yield archive


@pytest.mark.parametrize("how", REMOVALS)
def test_what_is_removed_is_in_none_of_the_bytes(archive: Archive, how: str) -> None:
    folder, vectors = archive.path.parent, fill(archive)
    assert set.union(*found(folder, vectors).values()) == set(TENANTS)
    REMOVALS[how](archive)
    going = set(GOING)
    assert {name: held & going for name, held in found(folder, vectors).items() if held & going} == {}
    archive.close()
    held = set.union(*found(folder, vectors).values())
    assert held == (set() if how == "retention" else set(TENANTS) - going)


def test_a_snapshot_goes_by_whichever_name_of_the_file_its_passages_are_removed(archive: Archive) -> None:
    link = archive.path.parent.parent / f"{archive.path.parent.name}-link.db"
    link.symlink_to(archive.path)
    archive.write([record(0, "the harbour")])
    with Archive(link) as same:
        path = snapshot_path(same.path, MINE, "scope")
    assert path is not None
    path.write_bytes(b"harbour")
    archive.forget(MINE, ForgetRule(), now=1.0)
    assert not path.exists()


def test_a_log_that_somebody_reads_is_emptied_by_the_next_round(archive: Archive) -> None:
    folder, vectors = archive.path.parent, fill(archive)
    reader = sqlite3.connect(archive.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchone()
    prune(archive, lambda n: PruneRule(older_than_s=1.0))
    assert found(folder, vectors)["lantern.db-wal"]
    reader.close()
    retain(archive, PrivacyConfig(), now=1e9)
    assert not set.union(*found(folder, vectors).values()) & set(GOING)


def test_vacuum_takes_what_an_earlier_release_left_in_the_file(archive: Archive) -> None:
    with archive.writing() as db:
        pass
    db.execute("PRAGMA secure_delete = OFF")
    folder, vectors = archive.path.parent, fill(archive)
    prune(archive, lambda n: PruneRule(older_than_s=1.0))
    archive.close()
    assert found(folder, vectors)["lantern.db"] & set(GOING)
    plain = sqlite3.connect(archive.path, isolation_level=None)
    plain.execute("VACUUM")
    plain.close()
    assert found(folder, vectors)["lantern.db"] == set(TENANTS) - set(GOING)
    with Archive(archive.path) as again:
        assert not amiss(again)


def test_a_vector_whose_passage_was_reworded_or_replaced_is_overwritten(archive: Archive) -> None:
    """Not every sqlite-vec does so by itself: 0.1.6 leaves a deleted vector in its place."""

    def summary(text: str) -> Record:
        return record(0, session="s", passages=(passage(0, text, "s", unit="turn"), passage(0, "said", "s")))

    [(turn, said)] = archive.write([summary("a turn")])
    rows = [(MINE, "s", one.id, np.full(8, one.id, np.float32)) for one in (turn, said)]
    archive.add_vectors("model", 8, rows)
    statements: list[str] = []
    with archive.writing() as db:
        db.conn.set_trace_callback(statements.append)
    archive.of(MINE).edit(replace(said, text="said otherwise"), now=1.0)
    archive.write([summary("a longer turn")])
    overwrite, delete = "UPDATE vectors SET", "DELETE FROM vectors WHERE"
    done = [start for each in statements for start in (overwrite, delete) if each.startswith(start)]
    assert done == [overwrite, delete] * 2
