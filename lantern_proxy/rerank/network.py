"""The networks of the light reranker: they combine features that say little one by one.

    network = fit(table, gold, groups, start)   listwise, from candidates with known evidence; only numpy
    network.scores(table)                       (n,) larger is better

Several networks with one hidden layer learn a correction of an existing order, from the same questions, with some
features and hidden units dropped in each step (dropout, Srivastava et al. 2014). Their mean is used: there are few
questions, and a single network overfits. Trees make other errors (docs/reranker.md has the figures).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Table = npt.NDArray[np.float32]

CLIP = 5.0
"""Features are clipped at this many standard deviations."""
NETWORKS, HIDDEN = 5, 24
"""Number of networks, and hidden units of each."""
MAX_CANDIDATES = 100
"""First candidates of a question that are used for training."""
DROPPED = 0.3
"""Share of features, and of hidden units, dropped in each step."""
EPOCHS, BATCH = 30, 16
"""Passes over the questions, and questions per step."""
LEARNING_RATE, WARM_UP, WEIGHT_DECAY = 3e-3, 20, 0.3
"""Learning rate of AdamW; warm-up steps; and weight decay at rate 1."""
INITIAL_SCALE = 0.1
"""Scale of the initial output."""


class Network(Struct, frozen=True):
    """The mean of networks with one hidden layer over standardised features, stored as one network."""

    mean: Floats32
    spread: Floats32
    """Both (features,), of the training data; no spread is 0."""
    inner: Floats32
    """(features, units)"""
    bias: Floats32
    """(units,)"""
    outer: Floats32
    """(units,)"""
    direct: Floats32
    """(features,) linear weights."""

    def scores(self, table: Table) -> Floats:
        """(n,) table: (n, features), no NaN"""
        cells = table - self.mean
        cells /= self.spread
        np.clip(cells, -CLIP, CLIP, out=cells)
        hidden = cells @ self.inner
        hidden += self.bias
        np.maximum(hidden, 0, out=hidden)
        found: Floats = (hidden @ self.outer + cells @ self.direct).astype(np.float64)
        return found


def fit(table: Table, gold: npt.NDArray[np.bool_], groups: Sequence[int], start: Sequence[float]) -> Network:
    """Minimise the cross-entropy between the softmax of a question's scores and its evidence (ListNet, Cao et al.
    2007), by AdamW.

    table: (n, features); gold: (n,) is it evidence?; groups: candidates of each question, best first, n in total.
    Questions without evidence among their candidates are ignored.
    start: (features,) initial linear weights

    Deterministic: the same questions give the same network.
    """
    mean = table.mean(axis=0, dtype=np.float64).astype(np.float32)
    spread = table.std(axis=0, dtype=np.float64).astype(np.float32)
    ends = np.cumsum(groups)
    question_rows = [
        slice(end - n, end - n + min(n, MAX_CANDIDATES)) for end, n in zip(ends.tolist(), groups, strict=True)
    ]
    question_rows = [rows for rows in question_rows if gold[rows].any()]
    draw, features, units = np.random.default_rng(1), table.shape[1], NETWORKS * HIDDEN
    weights = _Weights(
        draw.standard_normal((features, units), np.float32) / np.float32(np.sqrt(features)),
        np.zeros(units, np.float32),
        draw.standard_normal(units, np.float32) * np.float32(INITIAL_SCALE / np.sqrt(HIDDEN)) * bool(question_rows),
        np.zeros((features, NETWORKS), np.float32),
    )
    weights.inner[spread == 0] = 0  # constant features carry no information
    spread[spread == 0] = 1
    initial = np.asarray(start, np.float32) * spread
    if question_rows:
        cells = [np.clip((table[rows] - mean) / spread, -CLIP, CLIP) for rows in question_rows]
        training = [
            _TrainingQuestion(each, each @ initial, gold[rows] / gold[rows].sum())
            for each, rows in zip(cells, question_rows, strict=True)
        ]
        _train(weights, training, draw)
    outer, direct = weights.outer / np.float32(NETWORKS), initial + weights.direct.mean(axis=1)
    return Network(mean, spread, weights.inner, weights.bias, outer, direct)


class _TrainingQuestion(Struct, frozen=True):
    """A question's candidates with their evidence."""

    cells: Floats32
    """(n, features)"""
    before: Floats32
    """(n,) their initial scores."""
    wanted: Floats
    """(n,) equal shares for all evidence; the sum is 1."""


class _Weights(Struct):
    """The trained parameters; the arrays change in place. Unit u belongs to network u // HIDDEN."""

    inner: Floats32
    bias: Floats32
    outer: Floats32
    direct: Floats32
    """(features, NETWORKS)"""


def _train(weights: _Weights, questions: Sequence[_TrainingQuestion], draw: np.random.Generator) -> None:
    parts = (weights.inner, weights.bias, weights.outer, weights.direct)
    means, squares = [np.zeros_like(part) for part in parts], [np.zeros_like(part) for part in parts]
    steps, step = EPOCHS * -(-len(questions) // BATCH), 0
    for _ in range(EPOCHS):
        order = draw.permutation(len(questions)).tolist()
        for begin in range(0, len(order), BATCH):
            step += 1
            gradients = _gradients(weights, [questions[n] for n in order[begin : begin + BATCH]], draw)
            rate = LEARNING_RATE * min(1.0, step / WARM_UP) * (1 - step / (steps + 1))
            for part, gradient, mean, square in zip(parts, gradients, means, squares, strict=True):
                mean += 0.1 * (gradient - mean)
                square += 0.01 * (gradient * gradient - square)
                step_size = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
                part -= rate * (step_size + WEIGHT_DECAY * part)


def _gradients(
    weights: _Weights, questions: Sequence[_TrainingQuestion], draw: np.random.Generator
) -> tuple[Floats32, Floats32, Floats32, Floats32]:
    """Gradient of the loss of some questions, summed over the networks, for each part of the weights."""
    sizes = [len(each.wanted) for each in questions]
    starts, rows = np.cumsum([0, *sizes[:-1]]), sum(sizes)
    kept = [np.asarray(draw.random(n) >= DROPPED, np.float32) / np.float32(1 - DROPPED) for n in weights.inner.shape]
    seen = np.concatenate([each.cells for each in questions]) * kept[0]
    raw = seen @ weights.inner + weights.bias
    hidden = np.maximum(raw, 0) * kept[1]
    scores = (hidden * weights.outer).reshape(rows, NETWORKS, HIDDEN).sum(axis=2) + seen @ weights.direct
    scores += np.concatenate([each.before for each in questions])[:, None]
    scores -= np.repeat(np.maximum.reduceat(scores, starts), sizes, axis=0)
    shares = np.exp(scores)
    shares /= np.repeat(np.add.reduceat(shares, starts), sizes, axis=0)
    wanted = np.concatenate([each.wanted for each in questions])[:, None]
    of_scores = ((shares - wanted) / len(questions)).astype(np.float32)
    of_units = np.repeat(of_scores, HIDDEN, axis=1)
    of_raw = of_units * weights.outer * kept[1] * (raw > 0)
    return seen.T @ of_raw, of_raw.sum(axis=0), (hidden * of_units).sum(axis=0), seen.T @ of_scores
