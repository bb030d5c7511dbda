"""What questions compare many passages by: made once, kept without their texts, bounded, the same in any thread."""

import math
import threading
import time
from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace
from test_restore_scope import ALL, opened, write

from lantern_proxy.config import Config, EmbedConfig, RerankConfig
from lantern_proxy.restore import passages, word_table
from lantern_proxy.restore import scopes as restore_scopes
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.facets import Common, Facets, Shared, facets_of
from lantern_proxy.restore.lines import lines
from lantern_proxy.restore.passages import Passages
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.restore.row_cache import RowCache
from lantern_proxy.restore.scope import Key
from lantern_proxy.restore.scopes import Scopes
from lantern_proxy.signals.dates import day_of
from lantern_proxy.signals.form import Form
from lantern_proxy.signals.word_similarity import Table
from lantern_proxy.turn import Passage


def said(text: str, **more) -> Passage:
    return Passage(
        id=1, session="s", message="m", position=0, part=0, turn=0, speaker="user", text=text, created_at=1.7e9, **more
    )


def rows(start: int, stop: int) -> np.ndarray:
    return np.arange(start, stop)


def test_the_facets_of_a_passage_are_its_time_speaker_days_form_and_tags():
    texts = [said("Caroline: I met you yesterday?", tags=("port 9443",), tools=("read_file",)), said("Ok"), said("Oh")]
    common = Common()
    facets = Facets(np.array(facets_of(texts, common)), common)
    assert facets.created_at.tolist() == [1.7e9] * 3
    assert [Form(*each).ends_asking for each in facets.forms] == [1, 0, 0]
    assert facets.voices.values == [("user", "carolin"), ("user", "")]
    assert facets.voices.counts.tolist() == [1, 2]
    assert [len(named) for named, _ in facets.days.values] == [1, 0]
    assert {said for _, said in facets.days.values} == {day_of(1.7e9)}
    assert {"port", "9443", "read_file"} <= set(facets.tags.values[0])
    assert facets.tags.values[1] == ()


def test_what_is_asked_of_a_value_holds_for_all_passages_that_have_it():
    shared = Shared(np.array([4, 0, 4, 2]), "abcde")
    assert (shared.values, shared.counts.tolist()) == (["a", "c", "e"], [1, 1, 2])
    assert shared.each([1, 2, 3]).tolist() == [3, 1, 3, 2]
    nobody = Shared(np.zeros(0, np.int64), "abcde")
    assert (nobody.values, nobody.each([]).tolist()) == ([], [])


def test_facets_stay_when_texts_are_let_go_of_and_none_are_kept_for_them(archive, monkeypatch):
    write(archive, 0, 60)
    scope = opened(archive)
    facets = scope.passages.facets(rows(10, 30))
    assert (scope.passages.read_count, scope.passages.facets_count) == (0, 20)
    scope.passages.let_go()
    monkeypatch.setattr(passages, "facets_of", None)
    assert (scope.passages.facets(rows(10, 30)).forms == facets.forms).all()


def test_a_small_scope_is_read_whole_when_some_of_it_is_looked_at_and_a_large_one_is_not(archive, monkeypatch):
    write(archive, 0, 60)
    small, large = opened(archive), opened(archive)
    assert [each.passage.id for each in small.passages.of([7, 3])] == [8, 4]
    assert small.passages.read_count == 60
    monkeypatch.setattr(passages, "SMALL", 59)
    assert [each.passage.id for each in large.passages.of([7, 3])] == [8, 4]
    assert large.passages.read_count == 2


def test_a_corrected_passage_gets_its_facets_anew(archive):
    write(archive, 0, 10)
    scope = opened(archive)
    scope.passages.prepare_ahead(10, Passages.facets)
    mine = archive.of("t")
    mine.edit(replace(mine.passages_by_id([5])[5], text="Gustav: where do you live?", terms=()), now=1.0)
    scope.catch_up(archive, math.inf)
    assert scope.passages.unprepared == range(4, 10)
    assert [scope.passages.facets(rows(n, n + 1)).voices.values[0].name for n in (3, 4, 5)] == ["", "gustav", ""]


def test_no_more_facets_are_kept_than_may_stay(archive, monkeypatch):
    monkeypatch.setattr(passages, "MOST_PREPARED", 40)
    write(archive, 0, 300)
    scope = opened(archive)
    for row in range(300):
        assert scope.passages.facets(np.array([row, 0])).created_at.tolist() == [1.7e9 + row, 1.7e9]
        assert scope.passages.facets_count <= 40
    assert scope.passages.unprepared == range(280, 300)
    facets = scope.passages.facets(rows(0, 300))  # more at once than stay
    scope.passages.facets(rows(1, 30))
    assert (
        facets.days.counts.sum() == len(facets.forms) == 300
    )  # that others took their place does not change what was given


def test_scopes_share_the_room_for_facets(archive, monkeypatch):
    monkeypatch.setattr(restore_scopes, "MAX_PREPARED", 100)
    scopes, used = Scopes(), []
    for n in range(12):
        write(archive, 0, 30, session=f"s{n}")
        scope = scopes.use(Key("t", None, f"s{n}"), 1.0)
        assert scope is not None
        scope.catch_up(archive, math.inf)
        scope.passages.facets(rows(0, 30))
        used.append(scope)
        scope.release()
    assert sum(scope.passages.facets_count for scope in used) <= 130
    assert used[-1].passages.facets_count == 30
    scopes.close()


def ask(question: str) -> Ask:
    return Ask(
        tenant="t", project="", session="s", present="Box 17 is gone.", question=question, budget_chars=2_000,
        now=1.8e9, deadline=math.inf,
    )  # fmt: skip


def restorer_of(archive, light: str = "") -> Restorer:
    return Restorer(archive, Config(embed=EmbedConfig(enabled="off"), rerank=RerankConfig(light=light)), None)


QUESTIONS = [f"Which box has part P-{n} and gadget{n} since last week?" for n in range(12)]


def test_a_warm_restorer_gives_the_same_question_blocks(archive):
    write(archive, 0, 400)
    blocks = []
    for warm in (False, True):
        restorer = restorer_of(archive)
        if warm:
            restorer.warm("t", "", "s", wait=True)
        found = [restorer.for_question(ask(question)) for question in QUESTIONS]
        blocks.append([each.text if each else "" for each in found])
        restorer.close()
    assert blocks[0] == blocks[1]
    assert all(blocks[0])


@pytest.mark.parametrize("light", ["", "shipped"])
def test_a_warm_restorer_has_made_all_that_is_looked_at_of_passages_before_the_first_question(
    archive, monkeypatch, light
):
    write(archive, 0, 20)
    made, pieces, text_features = [], Table.pieces, passages.text_features
    monkeypatch.setattr(Table, "pieces", lambda table, text: (made.append("pieces"), pieces(table, text))[1])
    monkeypatch.setattr(passages, "text_features", lambda *of: (made.append("traits"), text_features(*of))[1])
    restorer = restorer_of(archive, light)
    restorer.warm("t", "", "s", wait=True)
    # of each its words; for the reranker those of what it asks and of what it tells as well, and its traits
    assert Counter(made) == ({"pieces": 3 * 20, "traits": 20} if light else {"pieces": 20})
    made.clear()
    assert restorer.for_question(ask(QUESTIONS[0])) is not None
    assert not made
    restorer.close()


def test_a_warm_restorer_has_read_the_tables_that_a_question_may_need(archive):
    tables = (word_table.shipped_table, word_table.shipped_vectors)
    for table in tables:
        table.cache_clear()
    restorer = restorer_of(archive)
    restorer.warm("t", "", "s", wait=True)
    assert [table.cache_info().currsize for table in tables] == [1, 1]
    restorer.close()


def _being_prepared(archive):
    """Scopes, one of them in use, and the thread that prepares its 200 passages."""
    write(archive, 0, 200)
    scopes = Scopes()
    scope = scopes.use(ALL, 1.0)
    assert scope is not None
    scope.catch_up(archive, math.inf)
    preparing = scopes.prepare(scope, Passages.facets)
    assert preparing is not None
    return scopes, scope, preparing


def test_what_is_archived_while_a_scope_is_prepared_in_the_background_is_prepared_too(archive):
    scopes, scope, preparing = _being_prepared(archive)
    assert scopes.prepare(scope, Passages.facets) is preparing
    write(archive, 200, 300)
    scope.catch_up(archive, math.inf)
    scope.release()
    preparing.join(30)
    assert (scope.passages.facets_count, scope.preparing) == (300, None)
    with scope.lock:
        assert scopes.prepare(scope, Passages.facets) is None
    scopes.close()


@pytest.mark.parametrize("closed", ["scope", "archive"])
def test_what_is_closed_meanwhile_ends_the_background_without_a_word(archive, caplog, closed):
    scopes, scope, preparing = _being_prepared(archive)
    (scopes if closed == "scope" else archive).close()
    scope.release()
    preparing.join(30)
    assert not preparing.is_alive()
    assert scope.preparing is None
    assert scope.passages.facets_count == 0
    assert not caplog.records
    scopes.close()


def test_questions_of_several_threads_get_their_blocks_while_it_is_prepared(archive):
    write(archive, 0, 400)
    restorer = restorer_of(archive)
    alone = [restorer.for_question(ask(question)).text for question in QUESTIONS]
    restorer.forget()
    found: dict[int, list[str]] = {}

    def run(n: int) -> None:
        found[n] = [restorer.for_question(ask(question)).text for question in QUESTIONS]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
        restorer.warm("t", "", "s")
        restorer.rest(3_600)
    assert [found[n] for n in range(4)] == [alone] * 4
    restorer.close()


def test_a_sentence_knows_whom_it_speaks_to_and_of_and_whether_it_holds_a_figure():
    text = "Your port is 9443. My sister moved to Ghent. It rains. You're right about the dogs of 1999."
    found = [(line.addresses, line.of_people, line.digits) for line in lines(said(text))]
    assert found == [(True, False, True), (False, True, False), (False, False, False), (True, True, True)]


def test_numbers_are_made_once_and_no_more_stay_than_may():
    kept, asked = RowCache(2), list[list[int]]()

    def made(missing: list[int]) -> list[tuple[float, float]]:
        asked.append(missing)
        return [(row, row / 2) for row in missing]

    def numbers(*some: int) -> list[list[float]]:
        return kept.of(np.array(some, np.int64), made, most=4).tolist()

    assert numbers(3, -1, 0, 3) == [[3, 1.5], [0, 0], [0, 0], [3, 1.5]]
    assert numbers() == []
    assert numbers(300, 0) == [[300, 150], [0, 0]]
    kept.forget(0)
    kept.forget(1_000)
    assert numbers(0, 3) == [[0, 0], [3, 1.5]]
    assert asked == [[0, 3], [300], [0]]
    assert numbers(1, 3) == [[1, 0.5], [3, 1.5]]  # there is no room: made anew
    assert numbers(5, 6, 7, 8, 9, 1) == [[n, n / 2] for n in (5, 6, 7, 8, 9, 1)]  # more at once than stay
    assert asked[3:] == [[1, 3], [1, 5, 6, 7, 8, 9]]
