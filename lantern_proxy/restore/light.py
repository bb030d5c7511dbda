"""The light reranker in a restore: reorders the best of the fused ranking with a trained model."""

from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from msgspec import Struct

from lantern_proxy.rank import Floats, Ints, best
from lantern_proxy.rerank.light import SHIPPED_FEATURE, UNTRAINED_FEATURE, LightError, Model, load
from lantern_proxy.restore.features import FEATURES, LEXICAL, TABLE_FEATURES, Ranked, Table, table

POOL = 100
"""How many of the best passages are reordered. On LoCoMo these contain .97 of the evidence, .94 without vectors; more
gain nothing."""
LEARNED_FROM = 150
"""How many of the best passages of a question a model is trained on."""
KNOWN = (*FEATURES, SHIPPED_FEATURE)
"""Features that a model may use."""

SHIPPED = "shipped"
"""Value of `rerank.light` for the models that come with Lantern."""
_SHIPPED = ("light_minilm_l6.npz", "light_lexical.npz")
"""Their files: with vectors, and without. scripts/shipped_reranker.py makes them."""
CAUTION = 6.0
"""Light.caution of the shipped models, which were trained mostly on short messages. In BEAM's chats the untrained order
then counts three times the sum of its z-scores, and in chats between friends nothing."""

Reorder = Callable[[Ranked], Floats]
"""Reorders the best of a ranking: (n,) scores."""


class Light(Struct, frozen=True):
    """Trained models, ready to reorder. The first one whose signals are all available is used."""

    models: tuple[Model, ...]
    caution: float = 0.0
    """Weight of the untrained order relative to the model's; it grows with the length of the scope's messages."""

    def __call__(self, ranked: Ranked) -> Floats:
        """(n,) `fused` with its best POOL values reassigned: the values stay the same, the passages that have them
        change.

        `fused` itself if every model needs a missing signal.
        """
        there = frozenset(available(ranked))
        model = next((each for each in self.models if there.issuperset(each.features)), None)
        fused, rows = ranked.fused, pool(ranked)
        if model is None or not len(rows) or not ranked.question.terms:
            return fused
        values = _table(ranked, rows, model.features)
        before = values[:, model.features.index(UNTRAINED_FEATURE)] if self.caution else 0.0
        cautious = self.caution * (1 - ranked.scope.mean_openness) * before
        order = np.argsort(-(model.scores(values) + cautious), kind="stable")
        dealt = fused.copy()
        dealt[rows[order]] = fused[rows]
        return dealt

    def best_of_both(self, ranked: Ranked) -> Floats:
        """(n,) for each passage the better of its two scores, by the model and in the untrained order.

        A block has room for the best of either order. A model only knows questions like those it was trained on, and
        would leave out what others ask for.
        """
        return np.maximum(self(ranked), ranked.fused)


def pool(ranked: Ranked) -> Ints:
    """The rows that are reordered, best first."""
    return best(ranked.fused, POOL)


def available(ranked: Ranked) -> tuple[str, ...]:
    """The features that these signals allow, SHIPPED_FEATURE last."""
    found = FEATURES if ranked.cosines is not None and ranked.vector_matches is not None else LEXICAL
    return (
        (*found, SHIPPED_FEATURE)
        if ranked.table_matches is not None
        else tuple(name for name in found if name not in TABLE_FEATURES)
    )


def examples(ranked: Ranked) -> tuple[Ints, tuple[str, ...], Table]:
    """Training data: the best rows, best first, all available features, and their values."""
    rows, names = best(ranked.fused, LEARNED_FROM), available(ranked)
    return rows, names, _table(ranked, rows, names)


def _table(ranked: Ranked, rows: Ints, wanted: tuple[str, ...]) -> Table:
    """`table`, and if SHIPPED_FEATURE is wanted the shipped model's scores of the same candidates."""
    if SHIPPED_FEATURE not in wanted:
        return table(ranked, rows, wanted)
    first, own, columns, place = _shipped_for(wanted)
    found = table(ranked, rows, own)
    learned = first.scores(found[:, columns])
    return np.vstack([found.T[:place], learned, found.T[place:]], dtype=np.float32).T


@lru_cache
def _shipped_for(wanted: tuple[str, ...]) -> tuple[Model, tuple[str, ...], Ints, int]:
    """(the shipped model that needs only these features, with vectors if possible; these without SHIPPED_FEATURE; the
    columns of the model's features; the column of SHIPPED_FEATURE). LightError if there is no such model."""
    model = next((each for each in map(_shipped, _SHIPPED) if set(each.features) <= set(wanted)), None)
    if model is None:
        raise LightError(f"no model that comes with Lantern does with {len(wanted)} features; train it again")
    own = tuple(name for name in wanted if name != SHIPPED_FEATURE)
    return model, own, np.array([own.index(name) for name in model.features]), wanted.index(SHIPPED_FEATURE)


def open_light(wanted: str) -> Light | None:
    """The models of `rerank.light`: a file's, or the shipped ones; None if it is empty. LightError if they cannot be
    used."""
    if wanted == SHIPPED:
        return Light(tuple(_shipped(name) for name in _SHIPPED), CAUTION)
    if not wanted:
        return None
    model = load(Path(wanted).expanduser(), KNOWN)
    if SHIPPED_FEATURE in model.features:
        _shipped_for(model.features)  # read now, not at the first question
    return Light((model,))


@cache
def _shipped(name: str) -> Model:
    with as_file(files("lantern_proxy") / "data" / name) as path:
        return load(path, FEATURES)
