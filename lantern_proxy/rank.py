"""Fuse rankings, spread them over neighbours, diversify, and weight age and use. Pure; larger is better everywhere."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def fuse(rankings: Mapping[str, Sequence[int]], weights: Mapping[str, float], *, k: int = 60) -> dict[int, float]:
    """Reciprocal rank fusion: id -> sum over signals of weight / (k + rank) (Cormack et al. 2009; LANTERN section 3).

    rankings: signal -> ids, best first, no repeats; lengths may differ
    weights:  signal -> weight, 1 by default
    k:        in ranks; larger trusts the top of each ranking less
    Ranks count from 1. An id missing from a ranking gains nothing from it.
    """
    scores: dict[int, float] = {}
    for signal, ids in rankings.items():
        weight = weights.get(signal, 1.0)
        for rank, passage_id in enumerate(ids, start=1):
            scores[passage_id] = scores.get(passage_id, 0.0) + weight / (k + rank)
    return scores


def ranking(scores: Floats) -> list[int]:
    """Indices of (n,) scores, best first, without those of 0 or less, of which the signal says nothing."""
    return [at for at in np.argsort(-scores, kind="stable").tolist() if scores[at] > 0]


def fuse_scores(signals: Mapping[str, Floats], weights: Mapping[str, float], n: int, *, k: int = 60) -> Floats:
    """(n,) reciprocal rank fusion of signals, each (n,), by their ranking(); as fuse() otherwise."""
    total = np.zeros(n)
    for at, score in fuse({name: ranking(scores) for name, scores in signals.items()}, weights, k=k).items():
        total[at] = score
    return total


ZScores = dict[tuple[int, float], tuple[Floats, Floats]]
"""(id() of scores, weight) -> the scores, and their weighted z-scores."""


def zsum(signals: Mapping[str, Floats], weights: Mapping[str, float], *, known: ZScores | None = None) -> Floats:
    """Weighted sum of z-scores. signals: name -> (n,) for the same n candidates; a constant one adds nothing.

    known: a cache of results for the same, unchanged arrays; it is extended
    """
    total: Floats | None = None
    known = {} if known is None else known
    for name, scores in signals.items():
        weight = weights.get(name, 1.0)
        if (id(scores), weight) not in known:
            less, wide = centred(scores)
            known[id(scores), weight] = scores, weight * less / wide if wide > 1e-9 else np.zeros(len(scores))
        part = known[id(scores), weight][1]
        total = part if total is None else total + part
    return np.zeros(0) if total is None else total


def centred(scores: Floats) -> tuple[Floats, float]:
    """(n,) scores less their mean, and their standard deviation: the same as by numpy's functions, in half the time."""
    if not len(scores):
        return scores, 0.0
    less = scores - np.add.reduce(scores) / len(scores)
    return less, math.sqrt(np.add.reduce(less * less) / len(scores))


def spread(scores: Floats) -> float:
    """The standard deviation of (n,) scores; 0 if there are none."""
    return centred(scores)[1]


def best(scores: Floats, most: int) -> Ints:
    """Indices of the `most` largest scores, best first, ties by index: the result of a stable sort, without sorting
    everything."""
    if most >= len(scores):
        return np.argsort(-scores, kind="stable")
    near = _near_the_best(scores, most)
    return near[np.argsort(-scores[near], kind="stable")[:most]]


def among_best(scores: Floats, most: int) -> Ints:
    """The indices of best() in ascending order, in half the time."""
    if not 0 < most < len(scores):
        return np.arange(len(scores) if most > 0 else 0)
    near = _near_the_best(scores, most)
    values = scores[near]
    least = np.sort(values)[-most]
    above, tied = values > least, np.flatnonzero(values == least)
    above[tied[: most - np.count_nonzero(above)]] = True
    found: Ints = near[above]
    return found


def _near_the_best(scores: Floats, most: int) -> Ints:
    """Ascending indices that include those of the `most` largest scores. 0 <= most < n"""
    width = len(scores) // (2 * most) if most > 0 else 0
    if width < 2:
        return np.arange(len(scores))
    # at least `most` scores are as large as the `most` largest of these; partition() is slow with ties
    peaks = scores[: len(scores) // width * width].reshape(width, -1).max(axis=0)
    return np.flatnonzero(scores >= np.sort(peaks)[-most])


def smooth(
    scores: Floats, place: Ints, *, shares: Sequence[float] = (0.3, 0.15), openness: Floats | None = None
) -> Floats:
    """Spread the scores of messages to their neighbours.

    scores: (n,) >= 0, one per passage
    place:  (n,) message number of each passage, consecutive within a session, with a gap of > len(shares) between two
    shares: how much of the best passage at distance 1, 2, ... is added
    openness: (n,) 0..1, the part of that which each gets; None: all of it
    """
    if not len(scores):
        return scores
    best, at = by_place(scores, place, len(shares))
    flow = np.zeros(len(scores))
    for distance, share in enumerate(shares, start=1):
        flow += share * (best[at - distance] + best[at + distance])
    return scores + (flow if openness is None else flow * openness)


def by_place(scores: Floats, place: Ints, pad: int) -> tuple[Floats, Ints]:
    """The best score at each place from the first on, with `pad` empty places on both sides, and (n,) indices of the
    passages in it. scores, place: as in `smooth`; n > 0"""
    at = place - (int(place.min()) - pad)
    best = np.zeros(int(at.max()) + 1 + pad)
    np.maximum.at(best, at, scores)
    return best, at


def diversify(
    relevance: Mapping[int, float],
    similarity: Callable[[int, int], float],
    *,
    lam: float = 0.7,
    limit: int | None = None,
) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): ids, best first.

    Each step takes the id with the largest lam * relevance - (1 - lam) * similarity to the most similar id taken so
    far; relevance is scaled to [0, 1] first, similarity must be in [0, 1]. Ties go to the smaller id.
    """
    if not relevance:
        return []
    low, high = min(relevance.values()), max(relevance.values())
    span = high - low or 1.0
    left = {i: (value - low) / span for i, value in sorted(relevance.items())}
    nearest = dict.fromkeys(left, 0.0)
    taken: list[int] = []
    while left and (limit is None or len(taken) < limit):
        best = max(left, key=lambda i: lam * left[i] - (1 - lam) * nearest[i])
        taken.append(best)
        del left[best]
        for i in left:
            nearest[i] = max(nearest[i], similarity(best, i))
    return taken


def overlap(a: frozenset[str] | set[str], b: frozenset[str] | set[str]) -> float:
    """Jaccard similarity of two sets of terms, in [0, 1]."""
    if not a or not b:
        return 0.0
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)


def importance(
    age_s: float,
    *,
    accesses: int = 0,
    tools: bool = False,
    files: bool = False,
    confidence: float = 0.5,
    success: float = 0.5,
    half_life_s: float = 604_800.0,
) -> float:
    """I = R * F * D * c * s of the LANTERN paper; the defaults are those of a passage that was never restored.

    R = exp(-0.693 age / half life), F = log2(accesses + 1) + 1, D = 1 + 0.5 (tools) + 0.3 (files).
    """
    recent = math.exp(-0.693 * max(0.0, age_s) / half_life_s)
    frequent = math.log2(accesses + 1) + 1.0
    dense = 1.0 + 0.5 * tools + 0.3 * files
    return recent * frequent * dense * confidence * success


def recencies(ages_s: Floats, *, gain: float = 0.005, tau_s: float = 30 * 86_400.0) -> Floats:
    """AgentIR's recency bonus: gain * exp(-age / tau), (n,); 120 days or more suit multi-session questions."""
    return gain * np.exp(-np.maximum(0.0, ages_s) / tau_s)
