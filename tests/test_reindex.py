"""`lantern reindex` makes the full-text index anew while a proxy writes, and goes on where it was stopped."""

import json
import shutil

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from scripted import Upstream, body, config_for, http, serving, wait_for
from test_archive import MINE, passage, record, transactions

from lantern_proxy import chunk
from lantern_proxy.archive import Archive, ArchiveError, PruneRule
from lantern_proxy.cli import main as cli
from lantern_proxy.proxy import upkeep
from lantern_proxy.proxy.open_archive import Opened

PASSAGES = 1_200


class Stopped(BaseException):
    """As the signal of Ctrl-C is."""


@pytest.fixture
def archive(tmp_path):
    with Archive(tmp_path / "lantern.db") as made:
        made.write([record(n, f"gauge {n} reads {n + 7000}", session=f"s{n % 3}") for n in range(PASSAGES)])
        yield made


def stop_after(calls: int, work=lambda: None):
    """To be told of passages: does `work` each time, and ends it all at the last."""
    left = iter(range(calls - 1, -1, -1))

    def advance(_: int) -> None:
        work()
        if not next(left):
            raise Stopped

    return advance


def lacking(archive: Archive) -> int:
    with archive.reading() as db:
        sql = "SELECT count(*) FROM passages WHERE id NOT IN (SELECT id FROM passages_fts_docsize)"
        return int(db.execute(sql).fetchone()[0])


def is_sound(archive: Archive) -> bool:
    """FTS5 compares each word of its index with the passages."""
    with archive.writing() as db:
        db.execute("INSERT INTO passages_fts (passages_fts, rank) VALUES ('integrity-check', 1)")
    return not lacking(archive)


def found(archive: Archive, n: int) -> bool:
    return bool(archive.of(MINE).search(str(n + 7000)))


def test_no_transaction_is_long(archive):
    seen = transactions(archive, archive.rebuild_fts)
    assert len(seen) > 3
    assert is_sound(archive)


def test_where_it_was_stopped_it_goes_on_and_searches_find_meanwhile_what_is_there(archive):
    with pytest.raises(Stopped):
        archive.rebuild_fts(stop_after(2))
    left = lacking(archive)
    assert 0 < left < PASSAGES
    assert found(archive, PASSAGES - 1)  # newest first
    assert not found(archive, 0)
    archive.close()
    with Archive(archive.path) as again:
        assert lacking(again) == left  # nobody who opens it waits for the rest
        told = []
        again.rebuild_fts(told.append)
        assert sum(told) == left
        assert found(again, 0)
        assert is_sound(again)
        told.clear()
        again.rebuild_fts(told.append)  # it was done: the next one makes it anew
        assert sum(told) == PASSAGES


def test_a_running_proxy_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "_RETAIN_S", 0.2)
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with Archive(config.archive.path) as archive:
            archive.write([record(n, f"gauge {n} reads {n + 7000}", session=f"s{n % 3}") for n in range(PASSAGES)])
            with pytest.raises(Stopped):
                archive.rebuild_fts(stop_after(1))
            assert archive.is_reindexing
            with serving(config):
                assert wait_for(lambda: not archive.is_reindexing)
            assert is_sound(archive)
            assert found(archive, 0)


def test_a_proxy_that_stops_leaves_the_rest_for_later(archive, tmp_path):
    with pytest.raises(Stopped):
        archive.rebuild_fts(stop_after(1))
    left = lacking(archive)
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        opened = Opened(config, None, lambda *_: None)
        assert opened.open(lambda _: None)
        stopped = upkeep.Keeper(config, None, opened, keeps=True, cut_left=lambda: None)
        stopped.stop()
        stopped._reindex()
        opened.close()
    assert not opened.faults
    assert archive.is_reindexing
    assert 0 < lacking(archive) < left


def test_what_is_emptied_again_meanwhile_is_not_taken_for_whole(archive):
    with pytest.raises(Stopped):
        archive.rebuild_fts(stop_after(1))
    emptied = []

    def empty(_: int) -> None:
        if not emptied:
            emptied.append(1)
            with archive.writing() as db:
                db.execute("INSERT INTO passages_fts (passages_fts) VALUES ('delete-all')")

    archive.complete_fts(empty)
    assert archive.is_reindexing
    archive.complete_fts()
    assert not archive.is_reindexing
    assert is_sound(archive)


def test_on_a_full_disk_the_index_stays_as_it_is(archive, monkeypatch):
    usage = shutil.disk_usage(archive.path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(ArchiveError, match=r"1,000,000 bytes are free, [0-9,]+ are needed; free some space"):
        archive.rebuild_fts()
    assert is_sound(archive)


def test_a_small_index_is_made_anew_on_a_disk_with_little_room(archive, monkeypatch):
    usage, told = shutil.disk_usage(archive.path.parent), []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=20_000_000))
    archive.rebuild_fts(told.append)
    assert sum(told) == PASSAGES
    assert (archive.path.with_name(f"{archive.path.name}-wal")).stat().st_size < 20_000_000


def test_an_error_in_the_middle_says_how_to_go_on_and_so_does_the_check(archive):
    def fill(_: int) -> None:
        raise ArchiveError("the disk is full", retry=True)

    with pytest.raises(ArchiveError, match="disk is full; searches lack passages until `lantern reindex` is run again"):
        archive.rebuild_fts(fill)
    (told,) = [found for found in archive.check() if found.name == "fts"]
    assert (told.ok, told.remedy) == (False, "run `lantern reindex`")
    status = ["status", "--archive", str(archive.path)]
    assert "the full-text index is not whole; a `lantern reindex`" in CliRunner().invoke(cli.cli, status).output
    archive.rebuild_fts()
    assert is_sound(archive)
    assert "full-text" not in CliRunner().invoke(cli.cli, status).output


def test_what_is_not_in_the_index_yet_may_be_corrected_and_removed(archive):
    with pytest.raises(Stopped):
        archive.rebuild_fts(stop_after(1))
    mine = archive.of(MINE)
    first = min(mine.passages("s0"), key=lambda passage: passage.id)
    mine.edit(chunk.reword(first, "the corrected gauge"), now=2.0)
    mine.prune(PruneRule(session="s1"), now=2.0)
    archive.write([record(PASSAGES, "a later gauge")])
    archive.rebuild_fts()
    assert is_sound(archive)
    assert [hit.passage.id for hit in mine.search("corrected")] == [first.id]
    assert mine.search("later")
    assert not found(archive, 1)


def test_a_proxy_archives_its_turns_while_it_goes_on(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with Archive(config.archive.path) as archive:
            archive.write([record(n, f"gauge {n} reads {n + 7000}") for n in range(PASSAGES)])
        with serving(config) as url, Archive(config.archive.path) as archive:
            said: list[str] = []

            def ask() -> None:
                said.append(f"the {len(said)}th question of valve{len(said)}")
                assert http.post(f"{url}/v1/chat/completions", json=body(said[-1])).status_code == 200
                wait_for(lambda: any(hits_of(said[-1])))

            def hits_of(text: str):
                return [archive.of(tenant.id).search(text.split()[-1]) for tenant in archive.tenants()]

            with pytest.raises(Stopped):
                archive.rebuild_fts(stop_after(3, ask))
            assert lacking(archive)
            ask()
            archive.rebuild_fts(lambda _: ask())
            assert len(said) > 5
            assert all(any(hits_of(text)) for text in said)
            assert is_sound(archive)
            assert not http.get(f"{url}/lantern/health").json()["faults"]


def test_passages_of_an_older_release_get_the_terms_of_today(tmp_path, monkeypatch):
    text, data = "部屋は7461番です", "QUJD" * 40
    with Archive(tmp_path / "lantern.db") as archive:
        [[said], [encoded], [turn]] = archive.write(
            [
                replace(record(0, "x"), passages=(replace(passage(0, text), terms=("old",), tags=("gone",)),)),
                replace(record(1, "y"), passages=(replace(passage(1, data), terms=("qujd",)),)),
                replace(record(2, "z"), passages=(chunk.reword(passage(2, text, unit="turn"), text),)),
            ]
        )
        before = archive.forgets
    reindex = ["reindex", "--archive", str(tmp_path / "lantern.db"), "--json"]
    monkeypatch.setenv("LANTERN_CONFIG", str(tmp_path / "lantern.yaml"))
    (tmp_path / "lantern.yaml").write_text("embed: {enabled: off}")
    done = [json.loads(CliRunner().invoke(cli.cli, reindex).stdout)["analysed"] for _ in range(2)]
    assert done == [1, 0]
    with Archive(tmp_path / "lantern.db") as archive:
        held = archive.of(MINE).passages_by_id([said.id, encoded.id, turn.id])
        assert "7461" in held[said.id].terms
        assert "7461" in held[said.id].tags
        assert held[said.id].text == text
        assert held[encoded.id].terms == ("qujd",)
        assert archive.forgets != before  # a running proxy lets go of the indexes that it has open
        assert is_sound(archive)
