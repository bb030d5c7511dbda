"""Scopes: opened from the archive or a snapshot, kept up to date, never longer than a request has time for."""

import math
import threading
import time

import numpy as np
import pytest
from msgspec.structs import replace

from lantern_proxy.analyze import terms
from lantern_proxy.archive import Archive, ArchiveError, PruneRule, Record, RequestRow, SessionRow
from lantern_proxy.archive.forget import ForgetRule
from lantern_proxy.archive.snapshots import folder
from lantern_proxy.bm25 import BUILT
from lantern_proxy.embed import ModelError
from lantern_proxy.restore import scope as restore_scope
from lantern_proxy.restore import snapshots
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.dense import Dense
from lantern_proxy.restore.question import parse_question
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.scopes import Scopes, keep
from lantern_proxy.signals.late import DIM, QuestionTokens
from lantern_proxy.turn import Passage

native = pytest.mark.skipif(not BUILT, reason="the numpy twin makes no snapshots")
ALL = Key("t", None, None)


def passage(session: str, n: int, text: str) -> Passage:
    return Passage(
        session=session, message=f"m{n}", position=n // 2, part=n % 2, turn=n, speaker="user", text=text,
        tags=(f"port {n}",), terms=tuple(terms(text)), created_at=1.7e9 + n,
    )  # fmt: skip


def write(archive: Archive, first: int, last: int, *, session: str = "s", tenant: str = "t", project: str = "") -> None:
    passages = tuple(
        passage(session, n, f"Box {n} of {session} holds part P-{n % 97} and gadget{n}.") for n in range(first, last)
    )
    row = SessionRow(id=session, api="chat", created_at=1.0, last_seen_at=1.0)
    request = RequestRow(id=f"{tenant}-{session}-{first}", at=1.0, api="chat", path="", event="new")
    archive.write([Record(tenant=tenant, project=project, session=row, request=request, passages=passages)])


@pytest.fixture
def few(monkeypatch):
    """Snapshots from 100 passages on."""
    monkeypatch.setattr(snapshots, "LEAST", 100)


def test_a_long_message_is_open_to_its_neighbours_by_its_whole_length(archive):
    write(archive, 0, 4)
    texts = ("word " * 200, "test " * 200)
    long = tuple(replace(passage("s", 4 + n, text), position=9, part=n) for n, text in enumerate(texts))
    row = SessionRow(id="s", api="chat", created_at=1.0, last_seen_at=1.0)
    request = RequestRow(id="long", at=1.0, api="chat", path="", event="new")
    archive.write([Record(tenant="t", session=row, request=request, passages=long)])
    openness = opened(archive).openness
    assert openness[:4].tolist() == [1.0] * 4
    assert openness[4] == openness[5] == pytest.approx(restore_scope.SHORT_BYTES / (2 * (5 * 200 - 1)))


def test_the_neighbours_of_a_message_are_of_its_session(archive):
    for n in range(0, 8, 2):
        write(archive, n, n + 2, session="a")
        write(archive, n, n + 2, session="b")
    scope = opened(archive)
    said = [(read.passage.session, read.passage.turn) for read in scope.passages]
    for row, (session, n) in enumerate(said):
        before, after = scope.said_before(row), scope.said_after(row)
        assert (before is None) if n == 0 else said[before] == (session, n - 1)
        assert (after is None) if n == 7 else said[after] == (session, n + 1)
    assert [said[row] for row in scope.previous([0, 5])] == [(said[5][0], said[5][1] - 1)]


def opened(archive: Archive, key: Key = ALL) -> Scope:
    scope = Scope(key)
    assert scope.catch_up(archive, math.inf)
    return scope


def state(scope: Scope) -> tuple:
    """All that a restore sees of a scope."""
    lexical = scope.lexical(["box", "gadget7", "p-5"])
    ids = [read.passage.id for read in scope.passages]
    return ids, lexical.tolist(), scope.places.tolist(), scope.ages(2e9).tolist(), round(scope.idf("box"), 9)


def test_entries_are_the_passages_in_order_and_read_when_looked_at(archive):
    write(archive, 0, 30)
    scope = opened(archive)
    assert [read.passage.text.split()[1] for read in scope.passages] == [str(n) for n in range(30)]
    assert scope.passages[-1].passage.id == 30
    assert "gadget3" in scope.passages[3].flat
    assert [e.passage.id for e in scope.passages[2:5]] == [3, 4, 5]
    with pytest.raises(IndexError):
        scope.passages[30]


def test_passages_are_weighed_by_how_rare_their_terms_are_now(archive):
    write(archive, 0, 6)
    scope = opened(archive)
    for _ in range(2):
        found = scope.weighed(np.array([2, -1, 5, 2]))
        for row, own in zip((2, 5, 2), found[[0, 2, 3]], strict=True):
            rare = [scope.idf(term) for term in scope.passages[row].words]
            assert own.tolist() == pytest.approx([sum(rare), max(rare), len(rare)])
        assert found[1].tolist() == [0, 0, 0]
        write(archive, 6, 12, session="more")
        scope.catch_up(archive, math.inf)


def test_no_more_are_weighed_than_may_stay(archive, monkeypatch):
    write(archive, 0, 6)
    scope = opened(archive)
    monkeypatch.setattr(restore_scope, "MOST_PREPARED", 4)
    every = np.arange(6)
    assert (scope.weighed(every) == np.vstack([scope.weighed(every[n : n + 1]) for n in range(6)])).all()


def test_messages_of_a_session_stand_next_to_each_other_and_sessions_far_apart(archive):
    write(archive, 0, 4)
    write(archive, 0, 4, session="other")
    write(archive, 4, 6)
    places = opened(archive).places.tolist()
    mine, other = places[:4] + places[8:], places[4:8]
    assert np.diff(mine).tolist() == [0, 1, 0, 1, 0]
    assert np.diff(other).tolist() == [0, 1, 0]
    assert min(abs(a - b) for a in mine for b in other) == 10


@pytest.mark.parametrize("key", [ALL, Key("t", "p", None), Key("t", None, "two")])
def test_what_another_process_archives_is_found_at_the_next_use(archive, key):
    write(archive, 0, 5, session="two", project="p")
    scope = opened(archive, key)
    with Archive(archive.path, vectors=False) as other:
        write(other, 5, 9, session="two", project="p")
        write(other, 0, 9, session="three", tenant="u", project="p")
    assert scope.catch_up(archive, math.inf)
    assert [e.passage.id for e in scope.passages] == list(range(1, 10))
    assert scope.lexical(["gadget8"])[8] > 0


def test_a_passage_without_stored_terms_is_analysed(archive):
    row = SessionRow(id="s", api="chat", created_at=1.0, last_seen_at=1.0)
    request = RequestRow(id="r", at=1.0, api="chat", path="", event="new")
    bare = Passage(session="s", message="m", position=0, part=0, turn=0, speaker="user", text="Gustav Mayr \ud800")
    archive.write([Record(tenant="t", session=row, request=request, passages=(bare,))])
    assert opened(archive).lexical(["gustav"])[0] > 0


def test_an_open_scope_stops_at_the_deadline_and_the_background_goes_on(archive):
    for first in range(0, 4_000, 1_000):
        write(archive, first, first + 1_000)
    scopes = Scopes()
    scope = scopes.use(ALL, 1.0)
    assert not scope.catch_up(archive, time.monotonic())
    assert len(scope) == restore_scope.STEP
    scopes.finish(scope, archive)
    scope.release()
    for _ in range(500):
        scope = scopes.use(ALL, 5.0)
        n, opening = len(scope), scope.opening
        scope.release()
        if not opening:
            break
        time.sleep(0.01)
    assert n == 4_000
    scopes.close()


def test_a_closed_archive_ends_the_background_without_a_word(tmp_path, caplog):
    archive = Archive(tmp_path / "b.db", vectors=False)
    write(archive, 0, 1_200)
    scopes = Scopes()
    scope = scopes.use(ALL, 1.0)
    scope.catch_up(archive, time.monotonic())
    archive.close()
    scopes.finish(scope, archive)
    scope.release()
    for thread in threading.enumerate():
        if thread.name == "lantern-open":
            thread.join(10)
    assert not caplog.records
    scopes.close()


@native
def test_a_kept_scope_opens_as_it_was_and_takes_in_what_came_since(archive, few):
    write(archive, 0, 150)
    write(archive, 0, 20, session="other")
    first = opened(archive)
    assert keep(first, archive)
    write(archive, 150, 160)
    fresh, kept = opened(archive, Key("t", None, None)), Scope(ALL)
    assert kept.catch_up(archive, math.inf)
    assert (kept.kept, first.kept) == (170, 170)
    assert state(fresh) == state(kept)
    first.catch_up(archive, math.inf)
    assert state(first) == state(kept)


@native
def test_a_correction_reaches_a_kept_scope(archive, few):
    write(archive, 0, 150)
    scope = opened(archive)
    assert keep(scope, archive)
    mine = archive.of("t")
    old = mine.passages_by_id([5])[5]
    mine.edit(replace(old, text="The courier is Gustav.", terms=tuple(terms("The courier is Gustav."))), now=1.0)
    again = Scope(ALL)
    assert scope.catch_up(archive, math.inf)
    assert again.catch_up(archive, math.inf)
    assert again.kept == 150
    for each in (scope, again):
        assert np.flatnonzero(each.lexical(["gustav"])).tolist() == [4]
        assert each.lexical(["gadget4"])[4] == 0
        assert each.passages[4].passage.text == "The courier is Gustav."
    assert keep(again, archive)
    assert state(opened(archive)) == state(again) == state(scope)


@native
def test_a_prune_leaves_no_word_in_any_file_beside_the_archive(archive, few):
    write(archive, 0, 150)
    write(archive, 0, 120, session="secret")
    write(archive, 0, 120, session="theirs", tenant="u")
    mine, theirs = opened(archive), opened(archive, Key("u", None, None))
    assert keep(mine, archive)
    assert keep(theirs, archive)
    assert any(b"secret" in path.read_bytes() for path in folder(archive.path).iterdir())
    archive.of("t").prune(PruneRule(session="secret"), now=2e9)
    left = list(folder(archive.path).iterdir())
    assert not any(b"secret" in path.read_bytes() for path in left)
    assert len([path for path in left if path.suffix == ".index"]) == 1
    assert not keep(mine, archive), "an open index that still has what was pruned must not be written"
    assert not any(b"secret" in path.read_bytes() for path in folder(archive.path).iterdir())
    again = opened(archive)
    assert (len(again), again.kept) == (150, 0)


@native
def test_a_damaged_snapshot_or_one_of_another_archive_is_built_anew(archive, few, tmp_path):
    write(archive, 0, 150)
    scope = opened(archive)
    keep(scope, archive)
    (path,) = folder(archive.path).glob("*.index")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    again = opened(archive)
    assert again.kept == 0
    assert state(again) == state(scope)
    with Archive(tmp_path / "c.db", vectors=False) as other:
        write(other, 0, 150, session="x")
        snapshot = snapshots.snapshot_path(other.path, "t", snapshots.name_of(ALL))
        snapshot.write_bytes(whole)
        assert opened(other).kept == 0


@native
def test_a_deleted_archive_takes_its_snapshots_with_it(tmp_path, few):
    path = tmp_path / "d.db"
    with Archive(path, vectors=False) as archive:
        write(archive, 0, 150, session="secret")
        scope = opened(archive)
        keep(scope, archive)
        path.unlink()
        folder(path).joinpath("x.index").write_bytes(b"secret")
        assert not keep(scope, archive)
    with Archive(path, vectors=False):
        assert not list(folder(path).glob("*.index"))


@native
def test_nothing_is_kept_in_the_clear_beside_an_encrypted_archive(archive, few):
    write(archive, 0, 150)
    archive.encrypted = True
    assert not keep(opened(archive), archive)
    assert not list(folder(archive.path).glob("*.index"))


@native
def test_small_scopes_sessions_and_summaries_of_turns_are_not_kept():
    assert not snapshots.is_due(ALL, 4_999, 0)
    assert snapshots.is_due(ALL, 5_000, 0)
    assert not snapshots.is_due(ALL, 6_000, 5_000)
    assert snapshots.is_due(ALL, 6_250, 5_000)
    assert not snapshots.is_due(Key("t", None, "s"), 50_000, 0)
    assert not snapshots.is_due(Key("t", None, None, "turn"), 50_000, 0)


def test_a_pruned_passage_reads_as_nothing(archive):
    write(archive, 0, 10)
    scope = opened(archive)
    archive.of("t").prune(PruneRule(session="s"), now=2e9)
    assert scope.passages[4].passage.text == ""
    assert scope.passages[4].lines == ()


@native
def test_what_was_forgotten_is_in_no_file_and_no_kept_scope(archive, few):
    write(archive, 0, 150)
    write(archive, 0, 120, session="secret")
    scope = opened(archive)
    assert keep(scope, archive)
    archive.forget("t", ForgetRule(session="secret"), now=2e9)
    assert not list(folder(archive.path).glob("*.index"))
    assert not keep(scope, archive)
    assert opened(archive).kept == 0
    assert len(opened(archive)) == 150


def test_token_vectors_that_cannot_be_read_are_told_of(archive):
    class Embedder:
        recipe = "r"

    write(archive, 0, 5)
    scope = opened(archive)
    ask = Ask(tenant="t", project="", session="s", present="", budget_chars=900, now=0.0, deadline=math.inf)
    dense = Dense(archive, Embedder(), wanted=True)
    archive.close()
    assert dense.compare_words(scope, QuestionTokens(np.eye(1, DIM, dtype=np.float32), ("gadget3",)), [3], ask) is None
    assert ask.degraded == ["late:failed"]
    dense.close()


class Embedder:
    """Says the same of every question; fails as often as it is told to."""

    name, state, recipe = "m", "ready", "r"

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    def embed_question(self, text: str) -> tuple[np.ndarray, None]:
        self.failures -= 1
        if self.failures >= 0:
            raise ModelError("out of memory")
        return np.ones(4, np.float32), None


class SickScope(Scope):
    """Its vectors cannot be read."""

    def cosines(self, *_):
        raise ArchiveError("malformed")


@pytest.fixture
def with_vectors(tmp_path):
    with Archive(tmp_path / "v.db", synchronous="normal") as archive:
        write(archive, 0, 5)
        write(archive, 0, 5, tenant="u")
        for tenant in ("t", "u"):
            ids = [p.id for p in archive.of(tenant).passages("s")]
            archive.add_vectors("m", 4, [(tenant, "s", id_, np.ones(4, np.float32)) for id_ in ids])
        yield archive


def looked(dense: Dense, scope: Scope, archive: Archive, *, left_s: float = 60.0) -> list[str]:
    """The notes of one question."""
    scope.catch_up(archive, math.inf)
    ask = Ask(
        tenant=scope.key.tenant, project="", session="s", present="", budget_chars=900, now=0.0,
        deadline=time.monotonic() + left_s,
    )  # fmt: skip
    question = parse_question("Which box holds gadget3?")
    if dense.begin(scope, question, ask):
        dense.compare(scope, question, ask)
    return ask.degraded


def test_vectors_that_cannot_be_read_are_left_alone_and_those_of_others_are_not(with_vectors):
    dense = Dense(with_vectors, Embedder(), wanted=True)
    notes = [looked(dense, SickScope(ALL), with_vectors) for _ in range(4)]
    assert notes == [["dense:failed"]] * 3 + [["dense:breaker"]]
    assert looked(dense, Scope(Key("u", None, None)), with_vectors) == []
    dense.close()


def test_an_embedder_that_fails_again_and_again_is_left_alone_by_all(with_vectors):
    dense = Dense(with_vectors, Embedder(failures=3), wanted=True)
    assert [looked(dense, Scope(ALL), with_vectors) for _ in range(3)] == [["dense:failed"]] * 3
    assert looked(dense, Scope(Key("u", None, None)), with_vectors) == ["dense:breaker"]
    dense.close()


@pytest.mark.parametrize(("slow_s", "last"), [(60.0, []), (0.0, ["dense:breaker"])])
def test_a_restore_that_is_late_tells_of_the_embedder_only_if_that_was_slow(with_vectors, slow_s, last):
    dense = Dense(with_vectors, Embedder(), wanted=True, slow_s=slow_s)
    assert [looked(dense, Scope(ALL), with_vectors, left_s=-1.0) for _ in range(3)] == [[]] * 3
    assert looked(dense, Scope(Key("u", None, None)), with_vectors) == last
    dense.close()
