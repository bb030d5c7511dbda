"""Fusion, neighbours, diversity, age."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lantern_proxy.rank import (
    among_best,
    best,
    diversify,
    fuse,
    fuse_scores,
    importance,
    overlap,
    recencies,
    smooth,
    zsum,
)


def test_rrf_adds_weight_over_k_plus_rank():
    assert fuse({"a": [1, 2], "b": [2]}, {"b": 2.0}, k=60) == {1: 1 / 61, 2: 1 / 62 + 2 / 61}


def test_a_constant_signal_adds_nothing_to_the_sum_of_z_scores():
    scores = np.array([1.0, 2.0, 6.0])
    with_it = zsum({"bm25": scores, "vector": np.ones(3)}, {})
    assert np.array_equal(with_it, zsum({"bm25": scores}, {}))
    assert with_it.sum() == pytest.approx(0)


def test_a_sum_of_z_scores_is_the_same_with_what_is_known_of_its_signals():
    chance, known = np.random.default_rng(1), {}
    signals = {name: chance.random(50) for name in ("bm25", "vector", "late")}
    for late in (signals["late"], chance.random(50), np.ones(50)):
        signals["late"] = late
        weights = {"bm25": 0.3, "late": float(late[0])}
        assert zsum(signals, weights, known=known).tolist() == zsum(signals, weights).tolist()
    assert len(known) == 5


def test_scores_flow_into_neighbouring_messages_and_not_into_other_sessions():
    flowed = smooth(np.array([0.0, 4.0, 0.0, 0.0]), np.array([1, 2, 3, 13]), shares=(0.5, 0.25))
    assert flowed.tolist() == [2.0, 4.0, 2.0, 0.0]


def test_a_message_takes_as_much_of_its_neighbours_as_it_is_open():
    scores, places, openness = np.array([0.0, 4.0, 0.0]), np.array([1, 2, 3]), np.array([1.0, 1.0, 0.5])
    assert smooth(scores, places, shares=(0.5,), openness=openness).tolist() == [2.0, 4.0, 1.0]


def test_diversity_puts_a_copy_behind_something_new():
    same = {(1, 2), (2, 1)}
    order = diversify({1: 1.0, 2: 0.99, 3: 0.8, 4: 0.0}, lambda a, b: float((a, b) in same), lam=0.7)
    assert order == [1, 3, 2, 4]


def test_with_lambda_one_relevance_alone_decides():
    assert diversify({1: 0.1, 2: 0.9, 3: 0.5}, lambda a, b: 1.0, lam=1.0) == [2, 3, 1]


def test_importance_is_the_product_of_the_paper():
    assert importance(0) == pytest.approx(0.25)
    assert importance(604_800, accesses=3, tools=True, files=True, confidence=1.0, success=1.0) == pytest.approx(
        0.5 * 3.0 * 1.8, rel=1e-3
    )


def test_newer_is_more_recent():
    new, day, month = recencies(np.array([0.0, 86_400.0, 30 * 86_400.0]))
    assert new == 0.005
    assert month < day < new


def test_overlap_is_a_share():
    assert overlap({"a", "b"}, {"b", "c"}) == pytest.approx(1 / 3)
    assert overlap(set(), {"a"}) == 0.0


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]), max_size=60), st.integers(1, 70))
def test_the_best_are_those_of_a_stable_sort(scores, most):
    given_scores = np.array(scores, np.float64)
    wanted = np.argsort(-given_scores, kind="stable")[:most].tolist()
    assert best(given_scores, most).tolist() == wanted
    assert among_best(given_scores, most).tolist() == sorted(wanted)


def test_signals_are_fused_by_the_ranks_of_what_they_say_something_of():
    signals = {"bm25": np.array([0.0, 2.0, 5.0, -1.0]), "vector": np.array([0.3, 0.0, 0.3, 0.9])}
    found = fuse_scores(signals, {"bm25": 2.0}, 4, k=60)
    assert found == pytest.approx([1 / 62, 2 / 62, 2 / 61 + 1 / 63, 1 / 61])
    assert fuse_scores({}, {}, 3).tolist() == [0.0, 0.0, 0.0]
