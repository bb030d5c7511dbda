"""The light reranker in a restore: the fused ranking's best in the order that a trained model gives them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from lantern_proxy.rank import Floats, Ints, best
from lantern_proxy.rerank_light import Trees, load
from lantern_proxy.restore_features import FEATURES, LEXICAL, Matched, Table, table
from lantern_proxy.restore_question import Question
from lantern_proxy.restore_scope import Scope

POOL = 150
"""Passages that are put in order; on LoCoMo they hold .99 of the evidence."""


class Reorder(Protocol):
    """What may put the best of a ranking in another order."""

    def __call__(
        self,
        scope: Scope,
        question: Question,
        fused: Floats,
        lexical: Floats,
        cosines: Floats | None,
        matched: Matched | None,
        now: float,
        /,
    ) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Light:
    """A trained model, ready to reorder."""

    model: Trees

    def __call__(
        self,
        scope: Scope,
        question: Question,
        fused: Floats,
        lexical: Floats,
        cosines: Floats | None,
        matched: Matched | None,
        now: float,
    ) -> Floats:
        """(n,) `fused` with its best POOL values dealt out anew: what they are worth stays, whose they are changes.

        A model that wants signals that are missing now leaves everything as it is.
        """
        lacking = set(self.model.features) - set(available(cosines, matched))
        rows = pool(fused)
        if lacking or not len(rows) or not question.terms:
            return fused
        values = table(
            scope, question, rows, fused=fused, lexical=lexical, cosines=cosines, matched=matched, now=now,
            wanted=self.model.features,
        )  # fmt: skip
        order = np.argsort(-self.model.scores(values), kind="stable")
        dealt = fused.copy()
        dealt[rows[order]] = fused[rows]
        return dealt


def pool(fused: Floats) -> Ints:
    """The rows that are put in order, best first."""
    return best(fused, POOL)


def available(cosines: Floats | None, matched: Matched | None) -> tuple[str, ...]:
    """The features that can be had with these signals."""
    return FEATURES if cosines is not None and matched is not None else LEXICAL


def examples(
    scope: Scope,
    question: Question,
    fused: Floats,
    lexical: Floats,
    cosines: Floats | None,
    matched: Matched | None,
    now: float,
) -> tuple[Ints, Table]:
    """What a model is trained on: the rows of the pool, and all features that there are."""
    rows = pool(fused)
    wanted = available(cosines, matched)
    return rows, table(
        scope, question, rows, fused=fused, lexical=lexical, cosines=cosines, matched=matched, now=now, wanted=wanted
    )


def open_light(path: str) -> Light | None:
    """The model of `rerank.light`; None when it is empty. LightError when it cannot be used."""
    return Light(load(Path(path).expanduser(), FEATURES)) if path else None
