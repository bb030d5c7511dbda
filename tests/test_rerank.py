"""The evidence reranker's contract (ConvMemory v2), mechanically; its serving and training on the real MiniLM."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from lantern_proxy.compiled import ModelError, available
from lantern_proxy.compiled_export import sources
from lantern_proxy.rerank.evidence import PROTECTED, EvidenceReranker, Memory, corrections, pairs, reorder
from lantern_proxy.rerank.match import PRIOR
from lantern_proxy.rerank.train import (
    ARMS,
    Example,
    Settings,
    Stopped,
    ablated,
    evaluate,
    scorer,
    train,
    with_teacher_scores,
)

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
dense = pytest.mark.skipif(not available(), reason="the extra `dense` is not installed")


# the contract


def test_what_the_model_reads_is_text_and_time_only() -> None:
    assert [field.name for field in fields(Memory)] == ["text", "position"]
    assert pairs("which port?", 41.0, [Memory("the port is 7461", 3.4)]) == [
        ("QUERY_TIME: 41. which port?", "MEMORY_TIME: 3. the port is 7461")
    ]


@given(st.lists(st.integers(), unique=True, max_size=40), st.data())
def test_the_first_ten_are_permuted_and_nothing_else_moves(order: list[int], data: st.DataObject) -> None:
    n = min(PROTECTED, len(order))
    scores = data.draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=n, max_size=n))
    ranked = reorder(order, scores)
    assert set(ranked[:PROTECTED]) == set(order[:PROTECTED])
    assert ranked[PROTECTED:] == order[PROTECTED:]
    dealt = dict(zip(order, scores, strict=False))
    assert [dealt[i] for i in ranked[:n]] == sorted(scores, reverse=True)


@given(st.lists(st.integers(), unique=True, max_size=40))
def test_equal_scores_leave_the_order_as_it_was(order: list[int]) -> None:
    assert reorder(order, [0.5] * min(PROTECTED, len(order))) == order


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan")], [1.0, 2.0, 3.0]])
def test_scores_that_do_not_fit_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="2 memories"):
        reorder([4, 5], scores)


# what training needs


COLOURS = ["red", "green", "blue", "white", "black", "yellow", "purple", "orange", "brown", "grey"]
THINGS = ["kettle", "bicycle", "tent", "lamp", "scarf", "piano", "boat", "ladder", "mirror", "jacket"]


def examples(n: int, *, size: int = 10, seed: int = 1) -> list[Example]:
    """Questions whose gold memory holds the thing that is asked for, at a place that says nothing."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        things = rng.permutation(THINGS)[:size]
        memories = tuple(Memory(f"My {t} is {COLOURS[rng.integers(10)]}.", int(rng.integers(40))) for t in things)
        gold = int(rng.integers(size))
        asked = f"What colour is the {things[gold]}?"
        made.append(
            Example(conversation=f"c{i % 4}", question=asked, max_pos=40, memories=memories, gold=frozenset({gold}))
        )
    return made


@pytest.fixture(scope="module")
def trained() -> object:
    if not available():
        pytest.skip("the extra `dense` is not installed")
    import torch

    torch.set_num_threads(1)  # more threads only wait for each other where the cores are busy
    base = sources(MINILM)[0][0]
    return train(examples(96, size=4), Settings(base, rate=3e-4, epochs=2), lambda done, steps: None)


@dense
def test_a_trained_reranker_reads_and_loses_its_gain_when_the_text_is_taken_away(trained: object) -> None:
    asked = examples(16, size=4, seed=9)
    mrr = {}
    for arm in ARMS:
        outcome = evaluate(ablated(asked, arm, seed=3), [1] * len(asked), scorer(trained))
        mrr[arm] = np.mean(outcome.mrr[1])
        assert outcome.recall_at_10[0] == outcome.recall_at_10[1]
    assert mrr["full"] > np.mean(outcome.mrr[0]) + 0.2
    assert all(mrr["full"] > mrr[arm] + 0.15 for arm in ARMS if arm != "full"), mrr


@dense
def test_a_trained_reranker_is_served_from_its_folder_in_the_same_order(trained: object, tmp_path: Path) -> None:
    trained.save_pretrained(str(tmp_path / "model"))  # type: ignore[attr-defined]
    with EvidenceReranker(str(tmp_path / "model"), tmp_path / "cache") as reranker:
        reranker.start()
        assert reranker.wait(240), reranker.detail
        assert reranker.value is not None
        assert reranker.value.manifest.max_tokens == Settings("base").tokens
        long = [Memory(f"{text} and so on" * 400, 1) for text in ("the gate is 12", "the depot moved")]
        assert np.isfinite(reranker.scores("which gate?", 9, long)).all()
        score = scorer(trained)
        for each in examples(6, seed=5):
            wanted = score(each.question, each.max_pos, each.memories)
            found = reranker.scores(each.question, each.max_pos, each.memories)
            assert np.corrcoef(wanted, found)[0, 1] > 0.95
            first = [float(-n) for n in range(len(each.memories))]
            corrected = reranker.scores(each.question, each.max_pos, each.memories, first)
            assert np.allclose(corrected - found, corrections(first, PRIOR), atol=1e-4)


@dense
def test_before_the_first_step_a_new_head_leaves_the_order_of_the_first_stage() -> None:
    from lantern_proxy.rerank.match import MatchModel

    base = MatchModel(sources(MINILM)[0][0], 3, 256)
    asked = [replace(each, first=tuple(float(-n) for n in range(len(each.memories)))) for each in examples(4)]
    outcome = evaluate(asked, [1] * len(asked), scorer(base), PRIOR)
    assert outcome.mrr[0] == outcome.mrr[1]


@dense
def test_training_that_is_stopped_gives_what_was_learned_by_then() -> None:
    def stop(done: int, steps: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    asked = examples(32, size=4)
    with pytest.raises(Stopped) as stopped:
        train(asked, Settings(sources(MINILM)[0][0], rate=3e-4), stop)
    learned = scorer(stopped.value.model)(asked[0].question, asked[0].max_pos, asked[0].memories)
    assert len(set(learned)) > 1  # a new head says the same of all


@dense
def test_a_teacher_that_reads_teaches_what_wrong_labels_do_not() -> None:
    asked = examples(96, size=4)
    right = [tuple(8.0 * (n in each.gold) for n in range(4)) for each in asked]
    wrong = [
        replace(each, teacher=told, gold=frozenset({(n * 7) % 4}))
        for n, (each, told) in enumerate(zip(asked, right, strict=True))
    ]
    how = Settings(sources(MINILM)[0][0], rate=3e-4, epochs=2, teacher_weight=5.0)
    model = train(wrong, how, lambda done, steps: None)
    unseen = examples(16, size=4, seed=9)
    outcome = evaluate(unseen, [1] * len(unseen), scorer(model))
    assert np.mean(outcome.mrr[1]) > np.mean(outcome.mrr[0]) + 0.2


@dense
def test_a_teacher_is_a_cross_encoder_and_scores_the_pairs_that_are_learned_from(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    base, told = sources(MINILM)[0][0], []
    with pytest.raises(ValueError, match="scores no pairs"):
        with_teacher_scores(examples(2), base, lambda done, steps: None)
    teacher = CrossEncoder(base, num_labels=1, device="cpu", local_files_only=True)
    teacher.save_pretrained(str(tmp_path))
    asked = with_teacher_scores(examples(3), str(tmp_path), lambda done, steps: told.append((done, steps)))
    for each in asked:
        assert each.teacher == pytest.approx(scorer(teacher)(each.question, each.max_pos, each.memories), abs=1e-5)
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_reranker_that_is_not_ready_says_so(tmp_path: Path) -> None:
    with EvidenceReranker("no/such-model", tmp_path) as reranker, pytest.raises(ModelError, match="reranker is off"):
        reranker.scores("which port?", 3, [Memory("7461", 1)])


def test_questions_without_gold_cannot_be_learnt_from() -> None:
    nothing = [Example(conversation="a", question="q", max_pos=1, memories=(Memory("x", 0),), gold=frozenset())]
    with pytest.raises(ValueError, match="nothing to learn"):
        train(nothing, Settings("base"), lambda done, steps: None)


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_takes_away_what_it_says_and_leaves_order_and_gold(arm: str) -> None:
    before = examples(5)
    after = ablated(before, arm, seed=1)  # type: ignore[arg-type]
    for old, new in zip(before, after, strict=True):
        assert new.gold == old.gold
        assert [m.position for m in new.memories] == [m.position for m in old.memories]
        texts, olds = [m.text for m in new.memories], [m.text for m in old.memories]
        assert (texts == olds) == (arm == "full")
        assert (new.question == "") == (arm == "scalars")
        if arm == "shuffled":
            assert sorted(texts) == sorted(olds)
        if arm in ("no-text", "scalars"):
            assert set(texts) == {""}
