"""Ranking metrics, and whether two rankings differ by more than chance. Pure; all in [0, 1], larger is better."""

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from lantern_proxy.rank import Floats

_ROUNDS, _PAIRED_ROUNDS = 2_000, 10_000


def reciprocal_rank(ranked: Sequence[str], gold: Collection[str]) -> float:
    """1 / rank of the first gold item; 0 if there is none."""
    return next((1.0 / rank for rank, each in enumerate(ranked, start=1) if each in gold), 0.0)


def hit(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """1 if one of the first k is gold."""
    return float(any(each in gold for each in ranked[:k]))


def recall(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Share of the gold items among the first k."""
    return sum(each in gold for each in ranked[:k]) / len(gold)


def recall_all(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """1 if all gold items are among the first k."""
    return float(set(gold) <= set(ranked[:k]))


def ndcg(ranked: Sequence[str], grades: Mapping[str, float], k: int) -> float:
    """Normalised discounted cumulative gain of the first k with gain 2^grade - 1 (Burges et al. 2005).

    grades: id -> grade; missing ids count 0. A gain of `grade` itself would be a different, more lenient metric.
    """
    gained = sum((2.0 ** grades.get(each, 0.0) - 1) / math.log2(rank + 1) for rank, each in enumerate(ranked[:k], 1))
    best = sorted(grades.values(), reverse=True)[:k]
    ideal = sum((2.0**grade - 1) / math.log2(rank + 1) for rank, grade in enumerate(best, 1))
    return gained / ideal if ideal else 0.0


def interval(values: Floats, weights: Floats | None = None) -> tuple[float, float]:
    """95 % bootstrap confidence interval of the mean of `values`, (n,). weights: (n,) of each; None: equal"""
    means = _resampled(values, _ROUNDS)
    if weights is not None:  # the same samples of both
        means = _resampled(values * weights, _ROUNDS) / _resampled(weights, _ROUNDS)
    return float(np.percentile(means, 2.5)), float(np.percentile(means, 97.5))


def paired(a: Floats, b: Floats) -> tuple[float, float, float, float]:
    """Paired bootstrap of a - b over the same questions: mean difference, its 95 % interval, two-sided p.

    Both are (n,) with one value per question. p is twice the share of resamples on the other side of 0, counting the
    data themselves as one of them: at least 2 / 10,001.
    """
    if len(a) != len(b):
        raise ValueError(f"paired: {len(a)} and {len(b)} values; both must answer the same questions")
    difference = a - b
    means = _resampled(difference, _PAIRED_ROUNDS)
    mean = float(difference.mean())
    beyond = (1 + min(int((means <= 0).sum()), int((means >= 0).sum()))) / (_PAIRED_ROUNDS + 1)
    return mean, float(np.percentile(means, 2.5)), float(np.percentile(means, 97.5)), min(1.0, 2 * beyond)


def tested(a: Floats, b: Floats) -> dict[str, Any]:
    """a minus b over the same questions, by paired() and wilcoxon(), rounded for the benches' output."""
    difference, low, high, p = paired(a, b)
    return {
        "difference": round(difference, 4), "ci": [round(low, 4), round(high, 4)],
        "p_bootstrap": p, "p_wilcoxon": wilcoxon(a, b)[1],
    }  # fmt: skip


EXACT = 25
"""Most differences for which wilcoxon() enumerates all signs."""


def wilcoxon(a: Floats, b: Floats) -> tuple[float, float]:
    """Wilcoxon's signed-rank test of a - b over the same questions: (W, two-sided p). W: the smaller sum of ranks.

    Both are (n,) with one value per question. Differences of zero are left out, ties share their mean rank. Exact for
    up to EXACT differences without ties, else by the normal approximation with tie correction, which is never reported
    as 0.
    """
    if len(a) != len(b):
        raise ValueError(f"wilcoxon: {len(a)} and {len(b)} values; both must answer the same questions")
    difference = np.round(a - b, 12)  # what is equal but for the noise of floats is tied
    difference = difference[difference != 0]
    n = len(difference)
    if not n:
        return 0.0, 1.0
    _, which, sizes = np.unique(np.abs(difference), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[which]
    low = min(float(ranks[difference > 0].sum()), float(ranks[difference < 0].sum()))
    if n <= EXACT and sizes.max() == 1:
        return low, min(1.0, 2 * _share_up_to(n, low))
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24 - float((sizes.astype(np.float64) ** 3 - sizes).sum()) / 48)
    return low, max(math.erfc((n * (n + 1) / 4 - low) / spread / math.sqrt(2)), sys.float_info.min)


def _share_up_to(n: int, low: float) -> float:
    """Share of the 2^n assignments of signs to the ranks 1..n whose positive ones sum to at most `low`."""
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1
    for rank in range(1, n + 1):
        ways[rank:] += ways[:-rank].copy()
    return float(ways[: int(low) + 1].sum() / 2.0**n)


def _resampled(values: Floats, rounds: int) -> Floats:
    """(rounds,) means of samples with replacement, deterministic for the same values; in slices to limit memory."""
    draw, n = np.random.default_rng(0), len(values)
    if not n:
        return np.zeros(rounds)
    step = max(1, 4_000_000 // n)
    parts = [values[draw.integers(0, n, (min(step, rounds - done), n))].mean(axis=1) for done in range(0, rounds, step)]
    return np.concatenate(parts)
