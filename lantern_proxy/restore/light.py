"""The light reranker in a restore: reorders the best of the fused ranking by a trained model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from lantern_proxy.rank import Floats, Ints, best
from lantern_proxy.rerank.light import BEFORE, LEARNED, LightError, Model, load
from lantern_proxy.restore.features import ALIKE, FEATURES, LEXICAL, Ranked, Table, table

POOL = 100
"""How many of the best passages are put in order. On LoCoMo these hold .97 of the evidence, .94 without vectors; more
gain nothing."""
LEARNED_FROM = 150
"""How many of the best passages for a question a model is trained on."""
KNOWN = (*FEATURES, LEARNED)
"""Features that a model may want."""

SHIPPED = "shipped"
"""What `rerank.light` says for the models that come with Lantern."""
_SHIPPED = ("light_minilm_l6.npz", "light_lexical.npz")
"""Their files: with vectors, and without. scripts/shipped_reranker.py makes them."""
CAUTION = 6.0
"""Light.caution of the shipped models, which learned mostly from short messages. In BEAM's chats the untrained order
then counts for three times the sum of its z-scores, and among friends for nothing."""

Reorder = Callable[[Ranked], Floats]
"""What may put the best of a ranking in another order: (n,) scores."""


@dataclass(frozen=True, slots=True)
class Light:
    """Trained models, ready to reorder. The first of them serves whose signals can all be had now."""

    models: tuple[Model, ...]
    caution: float = 0.0
    """How much the untrained order counts beside the model's; the longer the messages of the scope, the more."""

    def __call__(self, ranked: Ranked) -> Floats:
        """(n,) `fused` with its best POOL values dealt out anew: the values stay, which passage has which changes.

        `fused` itself where every model wants a signal that is missing.
        """
        there = frozenset(available(ranked))
        model = next((each for each in self.models if there.issuperset(each.features)), None)
        fused, rows = ranked.fused, pool(ranked)
        if model is None or not len(rows) or not ranked.question.terms:
            return fused
        values = _table(ranked, rows, model.features)
        before = values[:, model.features.index(BEFORE)] if self.caution else 0.0
        cautious = self.caution * (1 - ranked.scope.mean_openness) * before
        order = np.argsort(-(model.scores(values) + cautious), kind="stable")
        dealt = fused.copy()
        dealt[rows[order]] = fused[rows]
        return dealt

    def either(self, ranked: Ranked) -> Floats:
        """(n,) for each passage the better of its two scores, by the model and in the untrained order.

        A block is filled by this: it has room for what either order puts first. A model only knows questions like those
        it learned from, and would leave out what others ask for.
        """
        return np.maximum(self(ranked), ranked.fused)


def pool(ranked: Ranked) -> Ints:
    """The rows that are put in order, best first."""
    return best(ranked.fused, POOL)


def available(ranked: Ranked) -> tuple[str, ...]:
    """The features that can be had with these signals, LEARNED last."""
    found = FEATURES if ranked.cosines is not None and ranked.matched is not None else LEXICAL
    return (*found, LEARNED) if ranked.like is not None else tuple(name for name in found if name not in ALIKE)


def examples(ranked: Ranked) -> tuple[Ints, tuple[str, ...], Table]:
    """What a model is trained on: the best rows, best first, all features that there are, and their values."""
    rows, names = best(ranked.fused, LEARNED_FROM), available(ranked)
    return rows, names, _table(ranked, rows, names)


def _table(ranked: Ranked, rows: Ints, wanted: tuple[str, ...]) -> Table:
    """`table`, and where LEARNED is wanted what the shipped model says of the same candidates."""
    if LEARNED not in wanted:
        return table(ranked, rows, wanted)
    first, own, columns, place = _first(wanted)
    found = table(ranked, rows, own)
    learned = first.scores(found[:, columns])
    return np.vstack([found.T[:place], learned, found.T[place:]], dtype=np.float32).T


@lru_cache
def _first(wanted: tuple[str, ...]) -> tuple[Model, tuple[str, ...], Ints, int]:
    """The shipped model that wants none but these, with vectors where they are among them; these without LEARNED; where
    those of the model are among them; and where LEARNED is. LightError when there is no such model."""
    model = next((each for each in map(_shipped, _SHIPPED) if set(each.features) <= set(wanted)), None)
    if model is None:
        raise LightError(f"no model that comes with Lantern does with {len(wanted)} features; train it again")
    own = tuple(name for name in wanted if name != LEARNED)
    return model, own, np.array([own.index(name) for name in model.features]), wanted.index(LEARNED)


def open_light(wanted: str) -> Light | None:
    """The models of `rerank.light`: a file's, or those that are shipped; None when it is empty. LightError when they
    cannot be used."""
    if wanted == SHIPPED:
        return Light(tuple(_shipped(name) for name in _SHIPPED), CAUTION)
    if not wanted:
        return None
    model = load(Path(wanted).expanduser(), KNOWN)
    if LEARNED in model.features:
        _first(model.features)  # read now, not at the first question
    return Light((model,))


@cache
def _shipped(name: str) -> Model:
    with as_file(files("lantern_proxy") / "data" / name) as path:
        return load(path, FEATURES)
