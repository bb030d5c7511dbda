"""What a start does not wait for: what restores is imported when there is something that may be restored."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripted import Upstream, ask, body, config_for, echo, http, lantern_headers, serving, wait_for
from starlette.testclient import TestClient

from lantern_proxy import __version__
from lantern_proxy.app import create
from lantern_proxy.bench import serve
from lantern_proxy.config import RestoreConfig
from lantern_proxy.proxy import lazy_restorer, writer
from lantern_proxy.proxy.lazy_restorer import LazyRestorer
from lantern_proxy.restore.restorer import Restorer

HISTORY = ("My locker is number 4711.", "Noted.", "Which number was it?")
LATER = {
    "numpy",
    "pandas",
    "zstandard",
    "starlette.applications",
    "starlette.routing",
    "lantern_proxy.admin.routes",
    "lantern_proxy.bm25",
    "lantern_proxy.embed",
    "lantern_proxy.rank",
    "lantern_proxy.restore.restorer",
}
"""What a request without a history needs nothing of: tens of milliseconds and of megabytes."""

SERVE = """
import sys, threading
from lantern_proxy.cli.main import cli

def tell():
    for line in sys.stdin:
        print(*sys.modules, flush=True)

threading.Thread(target=tell, daemon=True).start()
cli(["serve", "--json", "--port", "0", *sys.argv[1:]])
"""


class Serving:
    """`lantern serve` in a process of its own, which tells what it has imported."""

    def __init__(self, upstream: Upstream, archive: Path) -> None:
        env = os.environ | {"LANTERN_OPENAI_UPSTREAM": f"{upstream.url}/v1", "LANTERN_ARCHIVE": str(archive)}
        config = archive.with_suffix(".yaml")
        config.write_text('embed: {enabled: "off"}\nrestore: {deadline_ms: 60000}\n')
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, "--config", str(config)], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    def imported(self) -> set[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return set(self.process.stdout.readline().split())

    def __enter__(self) -> "Serving":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


def test_what_restores_is_imported_with_the_first_request_that_has_a_history(tmp_path):
    with Upstream(echo) as upstream, Serving(upstream, tmp_path / "a.db") as served:
        assert ask(served.url, body("Good morning.")).status_code == 200
        assert http.get(f"{served.url}/lantern/health").json()["status"] == "ok"
        assert served.imported() & LATER == set()
        ask(served.url, body(*HISTORY))
        assert wait_for(lambda: "lantern_proxy.restore.restorer" in served.imported())


def test_an_archive_that_holds_something_has_its_restorer_before_the_first_request(tmp_path):
    with Upstream(echo) as upstream:
        with serving(config_for(upstream, tmp_path)) as url:
            ask(url, body(*HISTORY))
        with TestClient(create(config_for(upstream, tmp_path))) as client:
            assert client.app.state.proxy.writer.opened.restorer.ready is not None


def test_a_restorer_is_not_made_where_nothing_is_restored(tmp_path):
    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(enabled=False))
        for _ in range(2):
            with TestClient(create(config)) as client:
                client.post("/v1/chat/completions", json=body(*HISTORY))
                assert client.app.state.proxy.writer.opened.restorer.made is None


def test_a_block_whose_restorer_is_not_made_in_time_is_told_and_comes_with_the_next_question(tmp_path):
    """Nothing waits for an import longer than `restore.deadline_ms`."""
    may = threading.Event()

    def slowly(*parts):
        may.wait(60)
        return Restorer(*parts)

    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=3000, question_chars=0))
        with serving(config, make_restorer=slowly) as url:
            said: list = []
            for n in range(8):
                said.append({"role": "user", "content": f"Depot {n} ships through gate GATE-{n * 7919:05d}."})
                said.append(ask(url, body(*said)).json()["choices"][0]["message"])
            kept = [*said[-4:], {"role": "user", "content": "carry on with that"}]
            first = ask(url, body(*kept))
            assert (lantern_headers(first)["degraded"], lantern_headers(first)["restored"]) == ("restore:warming", "0")
            may.set()
            kept += [first.json()["choices"][0]["message"], {"role": "user", "content": "and now the next step"}]
            assert lantern_headers(ask(url, body(*kept)))["restored"] != "0"
            assert "GATE-07919" in upstream.got[-1].body.decode()


class Panic(BaseException):
    """As native code raises it (pyo3's PanicException)."""


@pytest.mark.parametrize("error", [ImportError("no numpy here"), Panic("native code fell over"), SystemExit(2)])
def test_a_restorer_that_cannot_be_made_costs_no_answer_is_told_and_is_made_later(tmp_path, monkeypatch, caplog, error):
    monkeypatch.setattr(lazy_restorer, "AGAIN_S", 0.1)
    caplog.set_level("INFO", "lantern")
    errors = [error]

    def make(*parts):
        if errors:
            raise errors[0]
        return Restorer(*parts)

    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path), make_restorer=make) as url:
        said: list = []
        for n in range(6):
            said.append({"role": "user", "content": f"Depot {n} ships through gate GATE-{n * 7919:05d}."})
            said.append(ask(url, body(*said)).json()["choices"][0]["message"])
        lost = body(*said[-2:], "Through which gate does Depot 1 ship?")
        answer = ask(url, lost)
        assert (answer.status_code, lantern_headers(answer)["degraded"]) == (200, "restore:error")
        assert upstream.got[-1].data == lost
        assert http.get(f"{url}/lantern/health").json()["faults"]["restorer"] >= 1
        tail = [*lost["messages"], answer.json()["choices"][0]["message"]]
        errors.clear()

        def restored():
            tail.append({"role": "user", "content": "carry on with that"})
            answer = ask(url, body(*tail))
            tail.append(answer.json()["choices"][0]["message"])
            return "degraded" not in lantern_headers(answer) and "GATE-07919" in upstream.got[-1].body.decode()

        assert wait_for(restored)
    assert [r.getMessage() for r in caplog.records].count("what was archived can be restored again") == 1


def test_a_start_does_not_wait_for_a_restorer_without_end(tmp_path, monkeypatch):
    may = threading.Event()
    monkeypatch.setattr(writer, "MADE_S", 0.1)
    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=100))
        with serving(config) as url:
            ask(url, body(*HISTORY))
        with serving(config, make_restorer=lambda *parts: may.wait(60) and Restorer(*parts)) as url:
            answer = ask(url, body(HISTORY[2], "I heard: Which number was it?", "Of my locker, I mean."))
            assert answer.status_code == 200
            may.set()


def test_a_restorer_of_an_archive_that_was_closed_is_not_made_any_more():
    made = []
    late = LazyRestorer(lambda: made.append(1))
    late.close()
    assert late.want() is None
    assert not made


def test_a_restorer_that_is_made_after_the_close_is_closed():
    may, closed = threading.Event(), threading.Event()

    class Made:
        close = staticmethod(closed.set)

    late = LazyRestorer(lambda: may.wait(60) and Made())
    late.want()
    late.close(0.01)
    may.set()
    assert closed.wait(60)


def test_a_panic_of_native_code_costs_the_restore_and_not_the_answer(tmp_path):
    class Panicking(Restorer):
        def at_compaction(self, ask):
            raise Panic("native code fell over")

        for_question = at_compaction

        def settle(self, *_):
            raise Panic("and again")

    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path), make_restorer=Panicking) as url:
        said: list = []
        for n in range(6):
            said.append({"role": "user", "content": f"Depot {n} ships through gate GATE-{n * 7919:05d}."})
            said.append(ask(url, body(*said)).json()["choices"][0]["message"])
        answer = ask(url, body(*said[-2:], "Through which gate does Depot 1 ship?"))
        assert (answer.status_code, lantern_headers(answer)["degraded"]) == (200, "restore:error")
        assert ask(url, body("Good morning.")).status_code == 200


def test_one_who_no_longer_waits_for_the_restorer_does_not_cancel_it_for_the_others():
    may = threading.Event()
    late = LazyRestorer(lambda: may.wait(60) and Restorer)

    async def leave():
        await asyncio.wait_for(asyncio.wrap_future(late.want()), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(leave())
    may.set()
    assert late.want().result(60) is late.ready is Restorer


def _wanted_in_vain(monkeypatch):
    """A restorer that was wanted while no thread could start."""

    def no_thread(self):
        raise RuntimeError("can't start new thread")

    late = LazyRestorer(lambda: Restorer)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError):
            late.want()
    return late


def test_a_restorer_whose_thread_cannot_start_is_tried_again(monkeypatch):
    late = _wanted_in_vain(monkeypatch)
    assert late.want().result(60) is Restorer


def test_closing_a_restorer_whose_thread_could_not_start_waits_for_nothing(monkeypatch):
    late = _wanted_in_vain(monkeypatch)
    late.close()
    assert late.want() is None


def test_the_version_that_is_told_without_asking_pip_is_the_installed_one():
    assert __version__ == version("lantern-proxy")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_bench_serve_measures_starts_with_and_without_passages():
    result = CliRunner().invoke(serve.command, ["--passages", "0,40", "--rounds", "1", "--settle", "0", "--json"])
    assert result.exit_code == 0, result.output
    new, filled = map(json.loads, result.stdout.splitlines())
    assert (new["passages"], filled["passages"]) == (0, 40)
    assert all(row["first_ms"] > 0 and 0 < row["anonymous_mb"] < row["rss_mb"] for row in (new, filled))
