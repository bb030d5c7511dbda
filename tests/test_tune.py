"""Tuning: it finds what helps, says so of questions it has not seen, and says when nothing does."""

import numpy as np
import pytest
from msgspec.structs import replace

from lantern_proxy.config import Config, RestoreConfig
from lantern_proxy.config.retrieval import RetrievalConfig
from lantern_proxy.restore.signals import WEIGHTS
from lantern_proxy.tune import Labelled, Settings, Sheet, _folds, fit, fragment, judge, validate
from lantern_proxy.tune_label import start

START = Settings(weights={"bm25": 1.0, "vector": 0.8}, tau=0.5)


def labelled(n, *, good, sure=0.0, seed=0, candidates=60, kind="temporal"):
    """Questions whose gold stands out in the signals named `good`; the other signals are noise."""
    draw = np.random.default_rng(seed)
    made = []
    for number in range(n):
        gold = int(draw.integers(candidates))
        signals = {name: draw.random(candidates) for name in ("bm25", "vector")}
        for name in good:
            signals[name][gold] += 0.9
        made.append(
            Labelled(
                question=f"question {number}", type=kind, signals=signals, gold=np.array([gold]),
                sure=float(sure if np.isscalar(sure) else sure[number]), group=f"g{number % 6}",
            )
        )  # fmt: skip
    return made


def test_quality_is_that_of_the_ranking_by_hand():
    one = Labelled(
        question="", type="temporal", sure=0.0, gold=np.array([2, 0]), signals={"bm25": np.array([1.0, 3.0, 2.0, 0.0])}
    )
    two = Labelled(question="", type="temporal", sure=0.0, gold=np.array([0]), signals={"bm25": np.arange(20.0)})
    quality = Sheet([one, two], ["bm25"], "zscore", 60).quality({"bm25": 1.0})
    assert quality.tolist() == [(1 / 2 + 1) / 2, (1 / 20 + 0) / 2]


def test_where_the_dense_channel_is_skipped_the_signals_of_that_count():
    both = {"bm25": np.array([1.0, 3.0, 2.0, 0.0]), "vector": np.array([0.0, 0.0, 9.0, 0.0])}
    full = Labelled(question="", type="temporal", sure=0.0, gold=np.array([2]), signals=both)
    weights = {"bm25": 1.0, "vector": 1.0}
    assert Sheet([full], ["bm25", "vector"], "zscore", 60).quality(weights, dense=False).tolist() == [(1 / 2 + 1) / 2]
    alone = replace(full, signals={"bm25": np.array([1.0, 3.0, 4.0, 0.0])})
    sheet = Sheet([replace(full, skipped=alone)], ["bm25", "vector"], "zscore", 60)
    assert sheet.quality(weights, dense=False).tolist() == [1.0]


def test_a_signal_that_only_makes_noise_loses_its_weight():
    found = fit(labelled(120, good=("bm25",)), START)
    assert found.weights["vector"] < 0.5 * found.weights["bm25"]


def test_what_helps_is_told_to_help_on_questions_that_were_not_seen():
    told = validate(labelled(120, good=("bm25",)), Settings(weights={"bm25": 0.3, "vector": 1.0}))
    assert told.after > told.before
    assert told.gain[1] > 0
    assert told.helps


def test_settings_that_are_right_already_are_told_not_to_be_improved():
    told = validate(labelled(60, good=("bm25", "vector"), seed=5), START)
    assert told.gain[1] <= 0
    assert not told.helps


def test_a_cascade_that_skips_as_before_is_no_reason_to_change_settings():
    """What the config does already is not what fitting won."""
    plain = labelled(60, good=("bm25",) * 6, sure=0.9, seed=5)
    for begun, helps in ((1.0, True), (0.1, False)):
        told = validate(plain, replace(START, tau=begun))
        assert told.before == told.after == 1.0
        assert told.skipped >= 0.3
        assert told.skipped_before == (begun < 0.9)
        assert told.helps == helps


def test_the_router_stays_where_no_type_has_settings_of_its_own():
    alike = fit(labelled(60, good=("bm25",), seed=3), START)
    assert not alike.types
    assert not alike.taus
    for router in ("off", "rules", "soft"):
        assert fragment(alike, router)["retrieval"]["router"] == router
    own = replace(alike, types={"temporal": {"bm25": 1.0}})
    assert fragment(own, "soft")["retrieval"]["router"] == "rules"


def test_the_cascade_skips_where_words_are_sure_and_right():
    sure = np.tile([0.9, 0.0], 60)
    questions = labelled(120, good=("bm25", "vector"), sure=sure, seed=2)
    for number, each in enumerate(questions):
        if number % 2 == 0:  # sure: the words alone are beyond doubt
            each.signals["bm25"][each.gold] += 5
    found = fit(questions, START)
    assert 0 < found.of("temporal")[1] <= 0.9
    told = validate(questions, START)
    assert told.skipped == 0.5
    assert abs(told.cost[0]) < 0.01


def test_without_vectors_nothing_is_learned_of_skipping_them():
    without = [replace(each, signals={"bm25": each.signals["bm25"]}) for each in labelled(60, good=("bm25",), sure=0.9)]
    start = replace(START, taus={"temporal": 0.4})
    found = fit(without, start)
    assert (found.tau, found.taus, found.weights["vector"]) == (START.tau, {"temporal": 0.4}, START.weights["vector"])
    told = validate(without, start)
    assert (told.skipped, told.helps) == (0, False)


def test_each_fold_is_told():
    told = []
    validate(labelled(60, good=("bm25",)), START, told.append)
    assert told == [1] * 5


def test_a_signal_that_is_there_only_where_vectors_are_skipped_counts_there():
    (one,) = labelled(1, good=("vector",), sure=1.0)
    told = one.signals["vector"]
    skipped = replace(one, signals={"bm25": np.zeros(len(told)), "alike": told})
    settings = Settings(weights={"alike": 1.0, "vector": 1.0}, tau=0.5)
    judged = judge([replace(one, skipped=skipped)], settings)
    assert judged.skipped.all()
    assert judged.quality == judged.full == 1.0


def test_a_type_of_its_own_gets_its_own_weights():
    words = labelled(60, good=("bm25",), seed=3, kind="single-session-user")
    sense = labelled(60, good=("vector",), seed=4, kind="single-session-preference")
    found = fit(words + sense, START)
    assert found.of("single-session-user")[0]["bm25"] > found.of("single-session-user")[0]["vector"]
    assert found.of("single-session-preference")[0]["vector"] > found.of("single-session-preference")[0]["bm25"]


def test_few_questions_are_refused_with_how_many_it_takes():
    with pytest.raises(ValueError, match="19 labelled questions are too few to learn from; give 20 or more"):
        fit(labelled(19, good=("bm25",)), START)


def test_what_is_found_is_a_config_that_loads():
    words = labelled(60, good=("bm25",), seed=3, kind="single-session-user")
    sense = labelled(60, good=("vector",), seed=4, kind="single-session-preference")
    part = fragment(fit(words + sense, START))
    RestoreConfig(**part["restore"])
    retrieval = RetrievalConfig(**part["retrieval"])
    assert retrieval.of("single-session-preference") != retrieval.of("temporal")


def test_judging_looks_at_each_question_once():
    questions = labelled(30, good=("bm25",)) + labelled(30, good=("vector",), kind="multi-session")
    told = judge(questions, START)
    assert told.quality.shape == (60,)
    assert (told.quality[:30].mean() > 0.2, told.skipped.sum()) == (True, 0)


@pytest.mark.parametrize("named", [4, 8])
def test_questions_of_no_group_and_one_large_group_leave_every_fold_enough_to_learn_from(named):
    questions = labelled(50, good=("bm25",))
    without = [replace(each, group=f"g{n}" if n < named else "") for n, each in enumerate(questions)]
    assert validate(without, START).n == 50
    most_in_one = [replace(each, group=f"g{n}" if n < named else "large") for n, each in enumerate(questions)]
    assert validate(most_in_one, START).n == 50


@pytest.mark.parametrize("group", ["", "all in one"])
def test_a_question_that_comes_again_is_never_both_learned_from_and_judged(group):
    questions = [replace(each, group=group) for each in labelled(33, good=("bm25",))]
    fold = _folds(questions + questions)
    assert fold[:33] == fold[33:]
    assert set(fold) == set(range(5))


def test_a_group_is_never_both_learned_from_and_judged():
    questions = labelled(60, good=("bm25",))
    mixed = [replace(each, group=each.group if n % 2 else "") for n, each in enumerate(questions)]
    for given in (questions, mixed):
        fold = _folds(given)
        for name in {each.group for each in given} - {""}:
            assert len({own for own, each in zip(fold, given, strict=True) if each.group == name}) == 1
        assert set(fold) == set(range(5))


@pytest.mark.parametrize(("k", "rank"), [(1, 3), (60, 2)])
def test_reciprocal_ranks_count_as_much_as_restores_let_them(k, rank):
    signals = {"bm25": np.array([3.0, 1.0, 2.0, 0.5]), "fts": np.array([0.5, 2.0, 1.0, 3.0])}
    one = Labelled(question="", type="temporal", sure=0.0, gold=np.array([2]), signals=signals)
    config = Config(restore=RestoreConfig(rrf_k=k))
    assert judge([one], replace(start(config), fusion="rrf", weights={"bm25": 1.0, "fts": 0.9})).quality.tolist() == [
        (1 / rank + 1) / 2
    ]


def test_reciprocal_ranks_leave_out_the_signals_that_restores_leave_out_of_them():
    signals = {"bm25": np.array([3.0, 2.0, 1.0]), "days": np.array([0.0, 0.0, 9.0])}
    one = Labelled(question="", type="temporal", sure=0.0, gold=np.array([2]), signals=signals)
    weights = {"bm25": 1.0, "days": 50.0}
    assert Sheet([one], ["bm25", "days"], "zscore", 60).quality(weights).tolist() == [1.0]
    assert Sheet([one], ["bm25", "days"], "rrf", 60).quality(weights).tolist() == [(1 / 3 + 1) / 2]


def test_what_is_compared_with_is_all_that_the_config_says():
    types = {"temporal": {"weights": {"days": 3.0}, "tau": 0.2}, "multi-session": {"tau": 0.3}}
    restore = RestoreConfig(weights={"bm25": 0.9})
    told = start(Config(restore=restore, retrieval=RetrievalConfig(types=types, tau=0.7)))
    assert told.of("temporal") == ({**WEIGHTS, "bm25": 0.9, "days": 3.0}, 0.2)
    assert told.of("multi-session") == ({**WEIGHTS, "bm25": 0.9}, 0.3)
    assert told.of("knowledge-update") == ({**WEIGHTS, "bm25": 0.9}, 0.7)
    off = start(Config(restore=restore, retrieval=RetrievalConfig(types=types, tau=0.7, router="off")))
    assert off.of("temporal") == ({**WEIGHTS, "bm25": 0.9}, 0.7)
