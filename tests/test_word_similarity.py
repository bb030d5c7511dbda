"""Words that mean alike, by the shipped table: pieces, matches, and what that does to a ranking without vectors."""

import math
from array import array
from dataclasses import replace

import numpy as np
import pytest
from test_restore import archive  # noqa: F401  fixtures

from lantern_proxy.archive import Record, RequestRow, SessionRow
from lantern_proxy.bench.datasets import Candidate, Conversation
from lantern_proxy.bench.pipelines import Query
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.config import Config, RestoreConfig
from lantern_proxy.config.retrieval import RetrievalConfig
from lantern_proxy.restore import passages as restore_passages
from lantern_proxy.restore import word_table
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.dense import Dense, Meaning
from lantern_proxy.restore.question import parse_question
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.signals import gather
from lantern_proxy.signals.late import DIM as LATE_DIM
from lantern_proxy.signals.late import best_matches, kernels
from lantern_proxy.signals.word_similarity import DIM, SCALE, PieceLists, Table, words
from lantern_proxy.turn import Passage

PIECES = ["play", "##ing", "##s", "playing", "chess", "ches", "##board"]
CORNERS = (np.eye(len(PIECES), DIM) * SCALE).clip(-127, 127).astype(np.int8)


def small() -> Table:
    return Table(PIECES, CORNERS)


def numbers(pieces: bytes) -> list[int]:
    return np.frombuffer(pieces, np.uint16).tolist()


def packed(pieces: np.ndarray) -> bytes:
    return pieces.astype(np.uint16).tobytes()


def listed(passages: list[bytes]) -> PieceLists:
    """The same, one after another in an array that begins and ends with another text's."""
    other = array("H", [0])
    counts = np.array([len(each) // other.itemsize for each in passages], np.uint32)
    starts = np.cumsum(counts, dtype=np.uint32) - counts + np.uint32(1)
    return PieceLists(array("H", other.tobytes() + b"".join(passages) + other.tobytes()), starts, counts)


def named(found: bytes) -> list[str]:
    return sorted(PIECES[n] for n in numbers(found))


def test_words_are_split_into_the_longest_pieces_that_the_table_has():
    assert named(small().pieces("Playing chess; plays chessboard")) == sorted(
        ["playing", "chess", "play", "##s", "##board"]
    )


def test_a_word_that_the_table_cannot_spell_has_no_pieces():
    assert named(small().pieces(f"playful {'play' * 100} \u5c07\u68cb")) == []


def test_stop_words_and_accents_do_not_count():
    assert words("What's the caf\u00e9 that I don\u2019t own? The CAFE.") == ["cafe"]


def test_each_piece_asked_for_finds_its_best_match_in_each_passage():
    random = np.random.default_rng(3)
    vectors = random.integers(-127, 128, (40, DIM)).astype(np.int8)
    table = Table([f"w{n}" for n in range(40)], vectors)
    held = [random.choice(40, size, replace=False) for size in (5, 0, 12, 1)]
    passages = [*map(packed, held)]
    asked = np.array([3, 9, 31], np.uint16)
    units = vectors / np.linalg.norm(vectors.astype(float), axis=1, keepdims=True)
    wanted = [[max((units[a] @ units[b] for b in own), default=0.0) for own in held] for a in asked]
    assert table.best_matches(asked, listed(passages)) == pytest.approx(np.array(wanted), abs=1e-6)
    assert table.best_matches(asked[:0], listed(passages)).shape == (0, 4)
    assert not table.best_matches(asked, listed([passages[1]])).any()


@pytest.mark.parametrize("asked", [0, 1, 7, 8, 9, 17])  # around the pieces that are compared together
@pytest.mark.parametrize("kernel", kernels())
def test_all_kernels_agree_bit_for_bit(kernel, asked):
    random = np.random.default_rng(asked)
    vectors = random.integers(-128, 128, (300, DIM)).astype(np.int8)
    vectors[:2] = [[-128] * DIM, [0] * DIM]  # the largest sum there is, and a piece that is like nothing
    table = Table([f"w{n}" for n in range(300)], vectors)
    wanted = random.integers(0, 300, asked).astype(np.uint16)
    passages = [packed(random.integers(0, 300, n)) for n in (0, 1, 7, 0, 30, 200, 1, 0)]
    passages.append(packed(np.array([0, 1])))
    found = table.best_matches(wanted, listed(passages), kernel=kernel)
    assert found.shape == (asked, len(passages))
    assert found.tolist() == table.best_matches(wanted, listed(passages), kernel="numpy").tolist()


@pytest.mark.parametrize("kernel", kernels())
def test_a_piece_that_stands_in_many_passages_matches_in_all_as_it_does_in_one(kernel):
    random = np.random.default_rng(5)
    table = Table([f"w{n}" for n in range(9_000)], random.integers(-128, 128, (9_000, DIM)).astype(np.int8))
    asked = np.arange(9, dtype=np.uint16)
    pieces = [np.arange(4) * 2_048 + random.integers(0, 3, 4) for _ in range(50)]  # what is kept of one, others take
    found = table.best_matches(asked, listed([*map(packed, pieces)]), kernel=kernel)
    alone = [table.best_matches(asked, listed([packed(each)]), kernel=kernel) for each in pieces]
    assert (found == np.hstack(alone)).all()


def test_the_shipped_table_knows_which_words_are_alike():
    table = word_table.shipped_table()
    assert table is not None
    asked, _, _ = table.asked({"photo": 1.0})
    picture, dentist = table.best_matches(asked, listed([table.pieces("a picture"), table.pieces("the dentist")]))[0]
    assert picture > 0.5 > 0.3 > dentist


def test_the_words_of_a_question_by_themselves_match_the_same_and_like_words():
    asked, table, vectors = word_table.question_vectors("a photo of it"), *_shipped()
    assert asked is not None
    assert asked.words == ("photo",)
    told = [vectors[numbers(table.pieces(text))] for text in ("photo", "picture", "dentist")]
    same, like, other = best_matches(asked.vectors, told)[0]
    assert same > 0.99
    assert same > like > other
    assert word_table.question_vectors("\u5c07\u68cb of it") is None


def test_the_table_has_a_vector_of_late_interaction_for_each_piece():
    table, vectors = _shipped()
    assert vectors.shape == (len(table._numbers), LATE_DIM)
    assert vectors.any(axis=1).all()


def _shipped():
    table, vectors = word_table.shipped_table(), word_table.shipped_vectors()
    assert table is not None
    assert vectors is not None
    return table, vectors


SAID = [
    "The physician told me to rest for a week.",
    "We repaired the fence on the weekend.",
    "The dentist has moved to another street.",
    "Our neighbour sold the piano.",
    "It rained all of Tuesday.",
    "The train was late again.",
]


def ranked(question: str, **weights: float) -> np.ndarray:
    """Scores of SAID, far apart from each other, without vectors."""
    candidates = tuple(
        Candidate(id=str(n), session=str(n), speaker="user", text=text, at=1.7e9) for n, text in enumerate(SAID)
    )
    plain = Config()
    config = replace(plain, embed=replace(plain.embed, enabled="off"), restore=RestoreConfig(weights=weights))
    with Resources(config) as resources:
        score = Default(resources).prepare(Conversation(id="c", candidates=candidates, questions=()))
        return score(Query(question))


def test_without_vectors_a_question_in_other_words_finds_its_answer():
    assert int(ranked("What did the doctor say?").argmax()) == 0
    without = ranked("What did the doctor say?", alike=0)
    assert without[0] == pytest.approx(without[1])


def test_without_the_table_the_ranking_is_that_without_the_signal(monkeypatch, tmp_path, caplog):
    damaged = tmp_path / "table.npz"
    damaged.write_bytes(b"PK\x03\x04 but no more")
    assert word_table.read_table(damaged) is None
    assert "signal alike is off" in caplog.text
    monkeypatch.setattr(word_table, "shipped_table", lambda: None)
    assert (ranked("What did the doctor say?") == ranked("What did the doctor say?", alike=0)).all()


def test_a_question_of_which_the_table_knows_no_word_is_ranked_by_the_others():
    question = "\u0433\u0434\u0435 \u043f\u0438\u0430\u043d\u0438\u043d\u043e?"
    assert (ranked(question) == ranked(question, alike=0)).all()


def opened(archive) -> Scope:  # noqa: F811
    scope = Scope(Key("t", None, None))
    scope.catch_up(archive, math.inf)
    return scope


class _Vectors(Dense):
    """Vectors that say the same of all passages."""

    def begin(self, *_: object, **__: object) -> bool:
        return True

    def compare(self, scope: Scope, *_: object) -> Meaning:
        return Meaning(np.ones(len(scope)), None)


class _Ready(Dense):
    """Vectors that could be asked."""

    @property
    def ready(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "tau"), [(_Vectors, RetrievalConfig().tau), (_Ready, 0.0)], ids=["asked", "left out where words are sure"]
)
def test_where_there_are_vectors_the_table_is_not_asked(archive, kind, tau):  # noqa: F811
    ask = Ask(tenant="t", project="", session="s", present="", budget_chars=900, now=0.0, deadline=math.inf)
    question, retrieval = parse_question("What did the doctor say?"), RetrievalConfig(tau=tau)
    found = []
    for each in (Dense, kind):
        dense = each(archive, None, wanted=False)
        found.append(gather(opened(archive), question, ask, dense, RestoreConfig(), retrieval).signals)
        dense.close()
    assert ["alike" in signals for signals in found] == [True, False]


def counted():
    """(a function that splits texts into pieces, the list of texts that it has split)"""
    split: list[str] = []

    def pieces(text: str) -> bytes:
        split.append(text)
        return small().pieces(text)

    return pieces, split


def test_pieces_are_kept_until_the_passage_changes_and_no_more_than_may_stay(archive, monkeypatch):  # noqa: F811
    passages, (pieces, split) = opened(archive).passages, counted()
    passages.pieces(np.array([0, 1]), pieces)
    passages.pieces(np.array([1, 0]), pieces)
    assert len(split) == 2
    passages.forget(1)
    passages.pieces(np.array([0, 1]), pieces)
    assert len(split) == 3
    monkeypatch.setattr(restore_passages, "MOST_PREPARED", 3)
    passages.pieces(np.array([2, 3]), pieces)
    passages.pieces(np.array([0]), pieces)
    assert len(split) == 6


def test_parts_are_kept_until_the_passage_changes(archive):  # noqa: F811
    passages, (pieces, split) = opened(archive).passages, counted()
    passages.parts(np.array([0, 1]), pieces)
    passages.parts(np.array([1, 0]), pieces)
    assert len(split) == 4
    passages.forget(1)
    passages.parts(np.array([0, 1]), pieces)
    assert len(split) == 6


def test_what_is_asked_and_what_is_told_are_matched_apart_and_nothing_where_there_is_no_passage(archive):  # noqa: F811
    texts = ["Ada: I bought a camera. How is your garden?", "Bo: The garden grows. Which camera?", "Ada: Fine!"]
    told = tuple(
        Passage(id=0, session="new", message=f"m{n}", position=n, part=0, turn=n, speaker="user", text=text)
        for n, text in enumerate(texts)
    )
    row = SessionRow(id="new", api="chat", created_at=1.0, last_seen_at=1.0)
    request = RequestRow(id="new", at=1.0, api="chat", path="", event="new")
    archive.write([Record(tenant="t", session=row, request=request, passages=told)])
    scope = Scope(Key("t", None, "new"))
    scope.catch_up(archive, math.inf)
    rows = np.array([[1, -1, 0], [2, 1, -1]])
    asked = word_table.compare_words(scope, parse_question("the garden?"), np.zeros(0, np.int64))
    asks, tells, count = word_table.compare_sentences(scope, asked.pieces, rows, rows)
    assert len(asked.weights) == len(asks) == len(tells) == 1
    assert (asks[0] > 0.99).tolist() == [[False, False, True], [False, False, False]]
    assert (tells[0] > 0.99).tolist() == [[True, False, False], [False, True, False]]
    assert (asks[0] == 0).tolist() == [[False, True, False], [True, False, True]]  # the last asks nothing
    assert (tells[0] == 0).tolist() == (rows < 0).tolist()
    assert count.tolist() == [[2, 0, 2], [1, 2, 0]]
