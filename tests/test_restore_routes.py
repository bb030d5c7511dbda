"""Pipelines as settings: which one a question takes, and what it makes of the signals."""

import numpy as np
import pytest

from lantern_proxy.config.check import ConfigError
from lantern_proxy.config.retrieval import RetrievalConfig
from lantern_proxy.restore.routes import fused, mixture, threshold

SIGNALS = {"bm25": np.array([3.0, 0.0, 1.0, 0.0]), "vector": np.array([0.1, 0.9, 0.2, 0.3])}
NOW = np.zeros(4)
TYPES = {"temporal": {"weights": {"vector": 2.0}, "tau": 1}, "multi-session": {"fusion": "rrf", "recency": 0.005}}


def weigh(pipeline):
    return {"bm25": 1.0, "vector": 0.5, **pipeline.weights}


def best(retrieval, question, ages=NOW):
    return int(np.argmax(fused(SIGNALS, ages, mixture(question, retrieval), weigh, rrf_k=60)))


def test_a_type_has_its_weights_and_all_others_the_shared_ones():
    retrieval = RetrievalConfig(types=TYPES)
    assert best(retrieval, "Where do I live?") == 0
    assert best(retrieval, "When did we launch?") == 1
    assert threshold(mixture("When did we launch?", retrieval)) == 1
    assert threshold(mixture("Where do I live?", retrieval)) == retrieval.tau


def test_without_a_router_types_count_for_nothing():
    assert best(RetrievalConfig(router="off", types=TYPES), "When did we launch?") == 0


def test_the_soft_router_lies_between_its_types():
    retrieval = RetrievalConfig(router="soft", types={"temporal": {"tau": 1}, "multi-session": {"tau": 0}}, tau=0)
    sure, unsure = (threshold(mixture(text, retrieval)) for text in ("When did we launch?", "Where do I live?"))
    assert 0 < unsure < sure < 1
    assert sum(share for share, _ in mixture("When did we launch?", retrieval)) == pytest.approx(1)


def test_recency_lets_the_newer_of_two_equals_win():
    signals = {"bm25": np.array([1.0, 1.0, 0.0])}
    ages = np.array([90.0, 1.0, 0.0]) * 86_400
    for fusion in ("zscore", "rrf"):
        mixed = mixture("?", RetrievalConfig(fusion=fusion, recency=0.005))
        assert np.argmax(fused(signals, ages, mixed, lambda _: {"bm25": 1.0}, rrf_k=60)) == 1


def test_fused_scores_have_mean_zero_whatever_the_fusion():
    soft = RetrievalConfig(router="soft", types=TYPES)
    for retrieval in (RetrievalConfig(), RetrievalConfig(fusion="rrf", recency=1.0), soft):
        assert fused(SIGNALS, NOW, mixture("q", retrieval), weigh, rrf_k=60).mean() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("types", "told"),
    [
        ({"temporl": {}}, "types.temporl is not known; did you mean temporal?"),
        ({"temporal": {"tao": 1}}, "types.temporal.tao is not a setting; use fusion, weights, tau"),
        ({"temporal": {"tau": 2}}, "types.temporal.tau is 2"),
        ({"temporal": {"weights": {"votes": 1}}}, "types.temporal.weights.votes is not known"),
    ],
)
def test_a_wrong_pipeline_is_refused_at_its_place(types, told):
    with pytest.raises(ConfigError, match=told):
        RetrievalConfig(types=types)
