"""Selects the pipeline, or mixture of pipelines, for a question, and fuses the signals accordingly."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files

import numpy as np

from lantern_proxy.config.retrieval import PipelineConfig, RetrievalConfig
from lantern_proxy.rank import Floats, ZScores, fuse_scores, recencies, zsum
from lantern_proxy.route_soft import Classifier, fit
from lantern_proxy.route_types import TYPES, QueryType, query_type

Mixture = Sequence[tuple[float, PipelineConfig]]
"""(share, pipeline); the shares sum to 1."""
Weigh = Callable[[PipelineConfig], Mapping[str, float]]
"""Pipeline -> weight of each signal."""


def questions(split: str) -> list[tuple[str, QueryType]]:
    """Our own labelled questions: `dev`, or `held_out`, which the rules of route_types.py were not written for."""
    data = json.loads((files("lantern_proxy") / "data" / "questions.json").read_text("utf-8"))
    return [(text, name) for name in TYPES for text in data[split][name]]


@cache
def classifier() -> Classifier:
    """The learned router, fitted to all our own questions: 0.2 s, once per process."""
    known = questions("dev") + questions("held_out")
    return fit([text for text, _ in known], [name for _, name in known])


def mixture(question: str, retrieval: RetrievalConfig) -> Mixture:
    """The pipelines for a question. Without `retrieval.types` there is a single one for all."""
    if retrieval.router == "off" or not retrieval.types:
        return [(1.0, retrieval.of(None))]
    if retrieval.router == "rules":
        return [(1.0, retrieval.of(query_type(question)))]
    shares = classifier().posterior(question)
    return [(shares[name], retrieval.of(name)) for name in TYPES]


def threshold(mixed: Mixture) -> float:
    """The tau of the cascade: from this lexical confidence on, the dense channel is skipped."""
    return sum(share * pipeline.tau for share, pipeline in mixed)


def ages_count(mixed: Mixture) -> bool:
    """Does any of these pipelines depend on the age of passages?"""
    return any(pipeline.recency for _, pipeline in mixed)


def fused(
    signals: Mapping[str, Floats], ages_s: Floats, mixed: Mixture, weigh: Weigh, *, rrf_k: int,
    known: ZScores | None = None,
) -> Floats:  # fmt: skip
    """(n,) the scores of one ranking, mean 0: the z-scores of each pipeline, weighted by its share.

    signals: name -> (n,); ages_s: (n,) seconds since each candidate was said; known: as rank.zsum takes it
    """
    known = {} if known is None else known
    if len(mixed) == 1:
        return _of(signals, ages_s, mixed[0][1], weigh, rrf_k, known)
    rankings = {str(n): _of(signals, ages_s, pipeline, weigh, rrf_k, known) for n, (_, pipeline) in enumerate(mixed)}
    return zsum(rankings, {str(n): share for n, (share, _) in enumerate(mixed)})


def _of(
    signals: Mapping[str, Floats],
    ages_s: Floats,
    pipeline: PipelineConfig,
    weigh: Weigh,
    rrf_k: int,
    known: ZScores,
) -> Floats:
    """(n,) the fused scores of one pipeline, mean 0."""
    weights = weigh(pipeline)
    if pipeline.fusion == "zscore":
        total = zsum(signals, weights, known=known)
    else:
        total = fuse_scores(signals, weights, len(ages_s), k=rrf_k)
    if pipeline.recency:
        total = total + recencies(ages_s, gain=pipeline.recency, tau_s=pipeline.recency_days * 86_400)
    return total - np.add.reduce(total) / len(total) if len(total) else total
