"""The learned router: the probability of each type of question. Pure.

AgentIR's classifier, small enough to train in milliseconds: multinomial logistic regression over TF-IDF of a question's
words and word pairs (section 4). Its probabilities weight the types' rankings.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.analyze import terms
from lantern_proxy.route_types import query_type

Floats = npt.NDArray[np.float64]


class Classifier(Struct, frozen=True):
    """Trained by `fit`. `weights` is (features, classes), features in the order of `idf`."""

    classes: tuple[str, ...]
    idf: Mapping[str, float]
    weights: Floats
    bias: Floats

    def posterior(self, question: str) -> dict[str, float]:
        """Class -> probability; they sum to 1."""
        row = _row(question, self.idf, {feature: n for n, feature in enumerate(self.idf)})
        odds = row @ self.weights + self.bias
        shares = np.exp(odds - odds.max())
        return dict(zip(self.classes, (shares / shares.sum()).tolist(), strict=True))


_ROUNDS, _STEP, _DECAY = 400, 4.0, 0.003


def fit(questions: Sequence[str], classes: Sequence[str]) -> Classifier:
    """Gradient descent on the cross-entropy with L2 decay, from zero: the same data gives the same classifier."""
    if not questions:
        raise ValueError("no questions to learn types from")
    names = tuple(sorted(set(classes)))
    idf = _idf(questions)
    place = {feature: n for n, feature in enumerate(idf)}
    rows = np.stack([_row(question, idf, place) for question in questions])
    wanted = np.array([[name == each for name in names] for each in classes], float)
    weights, bias = np.zeros((rows.shape[1], len(names))), np.zeros(len(names))
    for _ in range(_ROUNDS):
        odds = rows @ weights + bias
        shares = np.exp(odds - odds.max(axis=1, keepdims=True))
        wrong = (wanted - shares / shares.sum(axis=1, keepdims=True)) / len(rows)
        weights += _STEP * (rows.T @ wrong - _DECAY * weights)
        bias += _STEP * wrong.sum(axis=0)
    return Classifier(names, idf, weights, bias)


def _features(question: str) -> list[str]:
    """Stems with stop words (which indicate the type), their pairs, the first word, and the result of the rules."""
    words = terms(question)
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return [*words, *pairs, *(f"^{word}" for word in words[:1]), f"={query_type(question)}"]


def _idf(questions: Sequence[str]) -> dict[str, float]:
    """Feature -> idf, for features of at least two questions."""
    found = Counter(feature for question in questions for feature in set(_features(question)))
    kept = {feature: n for feature, n in found.items() if n > 1}
    return {feature: math.log(1 + len(questions) / n) for feature, n in sorted(kept.items())}


def _row(question: str, idf: Mapping[str, float], place: Mapping[str, int]) -> Floats:
    """(features,) TF-IDF of length 1, or all 0."""
    row = np.zeros(len(idf))
    for feature, count in Counter(_features(question)).items():
        if feature in place:
            row[place[feature]] = (1 + math.log(count)) * idf[feature]
    length = float(np.linalg.norm(row))
    return row / length if length else row
