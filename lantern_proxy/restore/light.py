"""The light reranker in a restore: the fused ranking's best in the order that a trained model gives them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lantern_proxy.rank import Floats, Ints, best
from lantern_proxy.rerank.light import Model, load
from lantern_proxy.restore.features import ALIKE, FEATURES, LEXICAL, Ranked, Table, table

POOL = 100
"""Passages that are put in order; on LoCoMo they hold .97 of the evidence, .94 without vectors. More find no more."""
LEARNED_FROM = 150
"""Passages of a question that a model is trained on."""

Reorder = Callable[[Ranked], Floats]
"""What may put the best of a ranking in another order: (n,) scores."""


@dataclass(frozen=True, slots=True)
class Light:
    """A trained model, ready to reorder."""

    model: Model

    def __call__(self, ranked: Ranked) -> Floats:
        """(n,) `fused` with its best POOL values dealt out anew: what they are worth stays, whose they are changes.

        A model that wants signals that are missing now leaves everything as it is.
        """
        lacking = set(self.model.features) - set(available(ranked))
        fused, rows = ranked.fused, pool(ranked)
        if lacking or not len(rows) or not ranked.question.terms:
            return fused
        values = table(ranked, rows, self.model.features)
        order = np.argsort(-self.model.scores(values), kind="stable")
        dealt = fused.copy()
        dealt[rows[order]] = fused[rows]
        return dealt

    def either(self, ranked: Ranked) -> Floats:
        """(n,) the same, and no passage is worth less than in the untrained order: by this a block is filled.

        It has room for what either order puts first. A model knows questions like those it learned from; of what others
        ask for, it would put too little in.
        """
        return np.maximum(self(ranked), ranked.fused)


def pool(ranked: Ranked) -> Ints:
    """The rows that are put in order, best first."""
    return best(ranked.fused, POOL)


def available(ranked: Ranked) -> tuple[str, ...]:
    """The features that can be had with these signals."""
    found = FEATURES if ranked.cosines is not None and ranked.matched is not None else LEXICAL
    return found if ranked.like is not None else tuple(name for name in found if name not in ALIKE)


def examples(ranked: Ranked) -> tuple[Ints, Table]:
    """What a model is trained on: the best rows, best first, and all features that there are."""
    rows = best(ranked.fused, LEARNED_FROM)
    return rows, table(ranked, rows, available(ranked))


def open_light(path: str) -> Light | None:
    """The model of `rerank.light`; None when it is empty. LightError when it cannot be used."""
    return Light(load(Path(path).expanduser(), FEATURES)) if path else None
