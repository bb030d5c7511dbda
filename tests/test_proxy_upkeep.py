"""What goes on beside the requests, and when it waits for them."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from scripted import wait_for

from lantern_proxy.archive import Archive, Record, SessionRow
from lantern_proxy.config import Config
from lantern_proxy.proxy import upkeep as proxy_upkeep
from lantern_proxy.proxy.lazy_restorer import make_restorer
from lantern_proxy.proxy.open_archive import Opened
from lantern_proxy.proxy.upkeep import Keeper
from lantern_proxy.turn import Passage

TEXTS = [f"gauge {n} shows {n * 7919} bar" for n in range(6)]


class Vectors:
    """An embedder that is ready."""

    state, detail, name, dim, recipe = "ready", "", "plain", 4, ""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def embed_passages(self, texts):
        self.texts += texts
        self.begun.set()
        self.go_on.wait(60)
        return np.ones((len(texts), self.dim), np.float32), [np.zeros((0, 128), np.int8)] * len(texts)


@pytest.fixture
def archive(tmp_path) -> Iterator[Archive]:
    said = tuple(
        Passage(id=0, session="s", message="m", position=0, part=n, turn=1, speaker="user", text=text)
        for n, text in enumerate(TEXTS)
    )
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        if not archive.vectors:
            pytest.skip("no vectors on this Python")
        session = SessionRow(id="s", api="chat", created_at=1.0, last_seen_at=1.0)
        archive.write([Record(tenant="t", session=session, request=None, messages=(), passages=said)])
        yield archive


@pytest.fixture
def vectors() -> Vectors:
    return Vectors()


@pytest.fixture
def keeper(archive, vectors) -> Iterator[Keeper]:
    opened = Opened(Config(), vectors, make_restorer)
    opened.archive = archive
    keeper = Keeper(Config(), vectors, opened, keeps=True, cut_left=lambda: None)
    keeper.begin(archive)
    keeper.start()
    yield keeper
    vectors.go_on.set()
    keeper.close(10)


def test_passages_get_their_vectors_when_nobody_waits(archive, keeper):
    keeper.has_written()
    assert wait_for(lambda: not archive.unembedded(1))


def test_no_passage_is_begun_while_a_request_waits_for_its_block(archive, keeper, vectors, monkeypatch):
    monkeypatch.setattr(proxy_upkeep, "_PATIENCE_S", 600.0)
    vectors.go_on.clear()
    keeper.has_written()
    assert vectors.begun.wait(60)
    with keeper.undisturbed():
        vectors.go_on.set()  # the one that is under way ends
        threading.Event().wait(0.3)
        assert vectors.texts == TEXTS[:1]
    assert wait_for(lambda: not archive.unembedded(1))
    assert vectors.texts == TEXTS


def test_where_requests_never_end_passages_get_their_vectors_later(archive, keeper, monkeypatch):
    monkeypatch.setattr(proxy_upkeep, "_PATIENCE_S", 0.01)
    with keeper.undisturbed():
        keeper.has_written()
        assert wait_for(lambda: not archive.unembedded(1))


def test_where_requests_never_end_passages_wait_once_for_all_of_their_group(archive, keeper, monkeypatch):
    monkeypatch.setattr(proxy_upkeep, "_PATIENCE_S", 2.0)
    with keeper.undisturbed():
        begun = time.monotonic()
        keeper.has_written()
        assert wait_for(lambda: not archive.unembedded(1))
        assert time.monotonic() - begun < 2.0 * len(TEXTS) / 2


def test_the_keeper_ends_while_it_gives_way(archive, keeper, vectors, monkeypatch):
    monkeypatch.setattr(proxy_upkeep, "_PATIENCE_S", 600.0)
    with keeper.undisturbed():
        keeper.has_written()
        keeper.close(60)
    assert not any(thread.name == "lantern-embedding" and thread.is_alive() for thread in threading.enumerate())
