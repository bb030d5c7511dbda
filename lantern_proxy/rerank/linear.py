"""The linear half of the light reranker: what many features say a little of, where trees see few of them at a time.

    linear = fit(table, gold, groups)   listwise, from candidates with known evidence; needs scipy (LightGBM brings it)
    linear.scores(table)                (n,) larger is better

Trees and a sum err on different questions: together they rank better than either (docs/reranker.md has the figures).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Table = npt.NDArray[np.float32]

MOST = 5.0
"""Standard deviations beyond which a feature counts no more."""
SHRINK = 0.03
"""Of the squared weights, beside the mean loss of a question: features are many and much alike, conversations few."""
STEPS = 100


@dataclass(frozen=True, slots=True)
class Linear:
    """A weighted sum of standardised features."""

    mean: Floats
    spread: Floats
    """Both (features,), of what it was trained on; no spread is 0."""
    weight: Floats
    """(features,)"""

    def scores(self, table: Table) -> Floats:
        """(n,) table: (n, features), no NaN"""
        found: Floats = self._standard(table) @ self.weight
        return found

    def _standard(self, table: Table) -> Floats:
        return np.clip((table - self.mean) / self.spread, -MOST, MOST)


def fit(table: Table, gold: npt.NDArray[np.bool_], groups: Sequence[int]) -> Linear:
    """Cross-entropy between the softmax of a question's scores and its evidence (ListNet, Cao et al. 2007), by L-BFGS.

    table: (n, features); gold: (n,) is it evidence?; groups: candidates of each question, their sum is n. Questions
    without evidence among their candidates teach nothing.
    """
    from scipy.optimize import minimize

    starts = np.concatenate([[0], np.cumsum(groups)[:-1]])
    counts = np.add.reduceat(gold.astype(np.float64), starts)
    known = np.repeat(counts > 0, groups)
    spread = table.std(axis=0, dtype=np.float64)
    start = Linear(table.mean(axis=0, dtype=np.float64), np.where(spread > 0, spread, 1.0), np.zeros(table.shape[1]))
    cells, sizes = start._standard(table[known]), np.array(groups)[counts > 0]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    wanted = gold[known] / np.repeat(counts[counts > 0], sizes)

    def loss(weight: Floats) -> tuple[float, Floats]:
        scores = cells @ weight
        scores -= np.repeat(np.maximum.reduceat(scores, starts), sizes)
        shares = np.exp(scores)
        totals = np.add.reduceat(shares, starts)
        shares /= np.repeat(totals, sizes)
        cost = (np.log(totals).sum() - wanted @ scores) / len(sizes) + SHRINK * weight @ weight
        return float(cost), cells.T @ (shares - wanted) / len(sizes) + 2 * SHRINK * weight

    if not len(sizes):
        return start
    found = minimize(loss, start.weight, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return Linear(start.mean, start.spread, np.asarray(found.x, np.float64))
