"""Large scopes are opened, and kept, before a restore asks for them."""

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from threading import enumerate as enumerate_threads

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient
from test_restore_scope import ALL, few, native, opened, state, write

from lantern_proxy.app import create
from lantern_proxy.archive import Archive
from lantern_proxy.archive.snapshots import folder
from lantern_proxy.bench import start
from lantern_proxy.cli import opening, reindex
from lantern_proxy.config import Config, EmbedConfig
from lantern_proxy.restore import scope as restore_scope
from lantern_proxy.restore import scopes as restore_scopes
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.scopes import Scopes, large_scopes, make_snapshot, open_ahead, that_fit

__all__ = ["few"]


def configured(path, reach="tenant"):
    config = Config()
    return replace(
        config,
        archive=replace(config.archive, path=path),
        restore=replace(config.restore, scope=reach),
        embed=EmbedConfig(enabled="off"),
    )


@pytest.fixture
def archive(tmp_path):
    with Archive(tmp_path / "a.db", synchronous="normal", vectors=False) as archive:
        write(archive, 0, 150)
        write(archive, 0, 120, session="other", project="p")
        write(archive, 0, 99, session="few", tenant="u")
        yield archive


def test_large_scopes_are_those_that_a_restore_of_that_reach_would_open(archive, few):
    assert large_scopes(archive, "tenant") == [(ALL, 270)]
    assert large_scopes(archive, "project") == [(Key("t", "", None), 150), (Key("t", "p", None), 120)]
    assert large_scopes(archive, "session") == []


def test_no_more_is_opened_ahead_than_may_be_open_at_once(monkeypatch):
    monkeypatch.setattr("lantern_proxy.restore.scopes.MAX_PASSAGES", 100)
    keys = [(Key(str(n), None, None), n) for n in (90, 60, 20, 5)]
    assert [n for _, n in that_fit(keys)] == [90, 5]


@native
def test_a_snapshot_made_ahead_is_the_one_that_the_next_start_finds(archive, few, monkeypatch):
    monkeypatch.setattr(restore_scope, "STEP", 100)
    steps = []
    assert make_snapshot(archive, ALL, steps.append)
    assert sum(steps) == 270
    assert max(steps) <= 100
    assert opened(archive).kept == 270
    write(archive, 150, 160)
    assert make_snapshot(archive, ALL, lambda _: None)
    assert opened(archive).kept == 280


@native
def test_reindex_makes_the_snapshots_anew_and_says_how_many(archive, few, tmp_path):
    assert reindex.make_snapshots(archive, configured(archive.path, "project"), quiet=True) == 2
    for path in folder(archive.path).glob("*.index"):
        path.write_bytes(b"damaged")
    assert reindex.make_snapshots(archive, configured(archive.path, "project"), quiet=True) == 2
    assert opened(archive, Key("t", "p", None)).kept == 120
    assert reindex.make_snapshots(archive, configured(archive.path, "session"), quiet=True) == 0
    assert not list(folder(archive.path).glob("*.index"))


def test_a_restore_that_comes_while_a_scope_is_opened_gets_what_there_is(archive, few, monkeypatch):
    monkeypatch.setattr(restore_scope, "STEP", 10)
    scopes, held = Scopes(), []

    def look(_: int) -> None:
        scope = scopes.use(ALL, 0.0)
        assert scope is not None, "between two steps nothing holds it"
        held.append(len(scope))
        scope.release()

    open_ahead(scopes, ALL, archive, look)
    assert held == sorted(held)
    assert len(set(held)) > 20
    scope = scopes.use(ALL, 1.0)
    assert state(scope) == state(opened(archive))
    scope.release()
    scopes.close()


@native
def test_what_came_since_a_snapshot_is_taken_in_slice_by_slice(archive, few, monkeypatch):
    make_snapshot(archive, ALL, lambda _: None)
    write(archive, 150, 600)
    monkeypatch.setattr(restore_scope, "STEP", 10)
    scopes, held = Scopes(), []
    scope = scopes.use(ALL, 1.0)
    assert not scope.catch_up(archive, time.monotonic()), "there is no time to read the snapshot"
    monkeypatch.setattr(restore_scopes.time, "sleep", lambda _: held.append(len(scope)))
    scopes.finish(scope, archive)
    scope.release()
    for thread in enumerate_threads():
        if thread.name == "lantern-open":
            thread.join(10)
    assert (held[0], held[-1]) == (280, 720)
    scopes.close()


def test_a_scope_that_is_closed_while_it_is_opened_is_left_alone(archive, few, monkeypatch):
    monkeypatch.setattr(restore_scope, "STEP", 10)
    scopes = Scopes()
    open_ahead(scopes, ALL, archive, lambda _: scopes.close())
    assert not list(folder(archive.path).glob("*.index"))


def test_the_restorer_opens_what_is_large_and_tells_how_far_it_is(archive, few):
    told = []

    @contextmanager
    def progress(total):
        told.append(total)
        yield told.append

    restorer = Restorer(archive, configured(archive.path), None)
    restorer.open_large(progress)
    assert told[0] == sum(told[1:]) == 270
    scope = restorer._scopes.use(ALL, 1.0)
    assert len(scope) == 270
    scope.release()
    restorer.close()


def test_a_server_that_starts_opens_its_large_indexes_in_the_background(archive, few):
    app = create(configured(archive.path))
    opening.open_in_background(app)  # before it serves, as `lantern serve` does
    with TestClient(app):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            restorer = app.state.proxy.writer.opened.restorer.ready
            scope = restorer._scopes.use(ALL, 1.0) if restorer else None
            if scope is not None:
                n = len(scope)
                scope.release()
                if n == 270:
                    return
            time.sleep(0.05)
    raise AssertionError("it was not opened")


@native
def test_bench_start_measures_each_way_an_index_is_made():
    result = CliRunner().invoke(start.command, ["--records", "5000", "--rounds", "1", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["records"] == 5000
    assert all(told[name] > 0 for name in told)
    assert told["size_mb"] > 0.5


def test_two_threads_may_make_the_same_snapshot(archive, few):
    made = []
    threads = [Thread(target=lambda: made.append(make_snapshot(archive, ALL, lambda _: None))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fresh = Scope(ALL)
    assert fresh.step(archive) or fresh.catch_up(archive, float("inf"))
    assert state(fresh)[0] == list(range(1, 271))
    assert len(set(made)) == 1
