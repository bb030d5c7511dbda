"""Settings of `retrieval:` and `restore.weights` from labelled questions, and whether they are worth having. Pure.

    found = fit(labelled, start)          # fusion, weights, taus, for types with enough questions of their own
    told = validate(labelled, start)      # the same on folds: its gain on questions that it was not fitted to

A ranking is a weighted sum of columns, one per signal: z-scores, or reciprocal ranks. So fusion, weights and the
cascade (without the columns of the dense channel) are sums over one matrix, and hundreds of settings take seconds.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.bench.metrics import paired
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore.signals import PRIORS
from lantern_proxy.route_types import TYPES, QueryType

Fusion = Literal["zscore", "rrf"]
DENSE = frozenset({"vector", "late"})
"""Signals that need the embedder, which the cascade can skip."""
ENOUGH, ENOUGH_OF_TYPE = 20, 25
"""Fewer labelled questions, in all or of a type, are too few to learn from."""
FACTORS = (0.0, 0.5, 0.7, 1.4, 2.0)
ROUNDS = 3
"""How often each weight is optimised in turn."""
FOLDS = 5
"""Number of parts in cross-validation."""
TAUS = (0.1, 0.15, 0.2, 0.25, 0.28, 0.3, 0.35, 0.4, 0.5, 0.7)
LOSS = 0.002
"""Most quality that the cascade may cost on the questions to which tau is fitted."""
SPARED = 0.3
"""Settings of equal quality are worth having if they skip the dense channel for so many more of the questions."""
CAUTION = 0.004
"""Least gain in quality for a change of a weight: less is noise. Doubled for the weights of one type."""


class Labelled(Struct, frozen=True, kw_only=True):
    """A question whose evidence is known, and each signal's scores for all n candidates."""

    question: str
    type: QueryType
    signals: Mapping[str, Floats]
    """Name -> (n,)."""
    units: Mapping[str, float] = {}
    """The unit of a signal's weight, if that is not one z-score."""
    skipped: "Labelled | None" = None
    """The same question when the cascade skips the dense channel; None: as above, without its signals."""
    gold: Ints
    """Rows of the evidence; not empty."""
    sure: float
    """How sure words are of their best passages, 0..1: the largest tau at which the cascade skips the dense channel."""
    group: str = ""
    """Questions of a group (a conversation) stay together in a fold; "": of no group."""


class Settings(Struct, frozen=True, kw_only=True):
    """The result of `fit`: the fusion, the weights of the signals, and tau by type of question."""

    fusion: Fusion = "zscore"
    weights: Mapping[str, float]
    tau: float = 1.0
    types: Mapping[QueryType, Mapping[str, float]] = {}
    """Type -> weights, if they differ."""
    taus: Mapping[QueryType, float] = {}
    rrf_k: int = 60
    """restore.rrf_k, which is not fitted: for reciprocal ranks."""

    def of(self, name: QueryType) -> tuple[Mapping[str, float], float]:
        """Weights and tau of a type."""
        return self.types.get(name, self.weights), self.taus.get(name, self.tau)


class Validated(Struct, frozen=True, kw_only=True):
    """The result of fitted settings on questions to which they were not fitted. Quality: (reciprocal rank + recall@10)
    / 2."""

    n: int
    folds: int
    before: float
    after: float
    gain: tuple[float, float, float, float]
    """Mean difference, its 95 % interval, p: see metrics.paired."""
    skipped: float
    """Share of the questions for which the cascade skips the dense channel."""
    skipped_before: float
    """The same with the settings that `fit` starts from."""
    cost: tuple[float, float, float, float]
    """The effect of skipping on quality, in the form of `gain`."""

    @property
    def helps(self) -> bool:
        """Is it better beyond doubt, or as good with clearly fewer questions to the embedder than before?"""
        difference, low, _, _ = self.gain
        return low > 0 or (difference >= 0 and self.skipped >= self.skipped_before + SPARED and self.cost[3] > 0.05)


class Sheet:
    """The columns of many questions, stacked, for one kind of fusion."""

    def __init__(self, labelled: Sequence[Labelled], names: Sequence[str], fusion: Fusion, rrf_k: int) -> None:
        self.names = list(names)
        self._labelled = labelled
        self._column: Callable[[Labelled, str], Floats] = (
            _zscores if fusion == "zscore" else partial(_reciprocal, k=rrf_k)
        )
        self._unweighed = frozenset(PRIORS) if fusion == "rrf" else frozenset[str]()
        self._columns = self._stacked(labelled)
        sizes = np.array([len(next(iter(each.signals.values()))) for each in labelled])
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._owner = np.repeat(np.arange(len(labelled)), sizes)
        self._gold = np.concatenate([each.gold + start for each, start in zip(labelled, self._starts, strict=True)])
        self._asker = self._owner[self._gold]
        self._n = len(labelled)

    @cached_property
    def _skipped(self) -> Floats:
        """_columns without the dense channel. Most sheets never need it."""
        return self._stacked([each.skipped or each for each in self._labelled])

    def _stacked(self, labelled: Sequence[Labelled]) -> Floats:
        """(candidates of all questions, names)"""
        made = [np.stack([self._column(each, name) for name in self.names], axis=1) for each in labelled]
        return np.concatenate(made)

    def quality(self, weights: Mapping[str, float], *, dense: bool = True) -> Floats:
        """(questions,) of (reciprocal rank + recall@10) / 2."""
        left_out = self._unweighed | (frozenset() if dense else DENSE)
        given = np.array([0.0 if name in left_out else weights.get(name, 0.0) for name in self.names])
        scores = (self._columns if dense else self._skipped) @ given
        order = np.lexsort((-scores, self._owner))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        ranks = place[self._gold] - self._starts[self._asker] + 1
        best = np.full(self._n, np.inf)
        np.minimum.at(best, self._asker, ranks)
        found, all_gold = np.zeros(self._n), np.zeros(self._n)
        np.add.at(found, self._asker, (ranks <= 10).astype(float))
        np.add.at(all_gold, self._asker, 1.0)
        return np.asarray((1 / best + found / all_gold) / 2, np.float64)


def _zscores(each: Labelled, signal: str) -> Floats:
    scores = each.signals.get(signal)
    if scores is None or float(scores.std()) < 1e-9:
        return np.zeros(len(next(iter(each.signals.values()))))
    unit = each.units.get(signal, 1.0)
    return np.asarray(unit * (scores - scores.mean()) / float(scores.std()), np.float64)


def _reciprocal(each: Labelled, signal: str, *, k: int) -> Floats:
    scores = each.signals.get(signal)
    if scores is None:
        return np.zeros(len(next(iter(each.signals.values()))))
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return np.where(scores > 0, 1 / (k + ranks), 0.0)


def fit(labelled: Sequence[Labelled], start: Settings) -> Settings:
    """The settings that fit best, starting from `start`. ValueError if there are too few questions.

    tau stays the same if no question has signals of the dense channel, since the cost of skipping was not measured.
    """
    if len(labelled) < ENOUGH:
        raise ValueError(f"{len(labelled)} labelled questions are too few to learn from; give {ENOUGH} or more")
    shared = _fit_shared(labelled, start)
    types: dict[QueryType, Mapping[str, float]] = {}
    taus: dict[QueryType, float] = {}
    for name in TYPES:
        own = [each for each in labelled if each.type == name]
        if len(own) >= ENOUGH_OF_TYPE:
            sheet = Sheet(own, list(shared.weights), shared.fusion, shared.rrf_k)
            weights = _climb(sheet, shared.weights, caution=2 * CAUTION)
            if weights != shared.weights:
                types[name] = weights
            taus[name] = _tau(own, sheet, weights)
    if not any(map(has_dense, labelled)):
        return replace(shared, types=types, taus=start.taus)
    sheet = Sheet(labelled, list(shared.weights), shared.fusion, shared.rrf_k)
    tau = _tau(labelled, sheet, shared.weights)
    return replace(shared, tau=tau, types=types, taus={t: v for t, v in taus.items() if v != tau})


def has_dense(each: Labelled) -> bool:
    """Does the question have signals that the cascade can skip?"""
    return not DENSE.isdisjoint(each.signals)


def _fit_shared(labelled: Sequence[Labelled], start: Settings) -> Settings:
    """Fusion and weights for all types: z-scores, unless reciprocal ranks are clearly better."""
    names = sorted({signal for each in labelled for signal in each.signals} | set(start.weights))
    found: dict[Fusion, tuple[float, dict[str, float]]] = {}
    fusions: tuple[Fusion, ...] = ("zscore", "rrf")
    for fusion in fusions:
        sheet = Sheet(labelled, names, fusion, start.rrf_k)
        initial = {name: start.weights.get(name, 0.0) for name in names}
        weights = _climb(sheet, initial, caution=CAUTION)
        found[fusion] = float(sheet.quality(weights).mean()), weights
    better: Fusion = "rrf" if found["rrf"][0] > found["zscore"][0] + 2 * CAUTION else "zscore"
    return replace(start, fusion=better, weights=found[better][1], types={}, taus={})


def _climb(sheet: Sheet, start: Mapping[str, float], *, caution: float) -> dict[str, float]:
    """Coordinate ascent: each weight in turn takes the best of its FACTORS, if that gains `caution`."""
    weights, best = dict(start), float(sheet.quality(start).mean())
    for _ in range(ROUNDS):
        before = dict(weights)
        for name, weight in before.items():
            tries = [weight * factor for factor in FACTORS] if weight else [0.25, 0.5]
            scored = [(float(sheet.quality({**weights, name: each}).mean()), each) for each in tries]
            quality, value = max(scored)
            others = sum(each for signal, each in weights.items() if signal != name)
            if quality > best + caution and value + others > 0:
                best, weights = quality, {**weights, name: round(value, 3)}
        if weights == before:
            break
    return weights


def _tau(labelled: Sequence[Labelled], sheet: Sheet, weights: Mapping[str, float]) -> float:
    """The smallest tau at which skipping the dense channel costs at most LOSS."""
    full, lexical = sheet.quality(weights), sheet.quality(weights, dense=False)
    sure = np.array([each.sure for each in labelled])
    for tau in TAUS:
        if float(np.where(sure >= tau, lexical - full, 0.0).mean()) >= -LOSS:
            return tau
    return 1.0


class Judged(Struct, frozen=True):
    """(questions,) each: quality with the cascade, without it, and whether it skipped."""

    quality: Floats
    full: Floats
    skipped: Floats


def judge(labelled: Sequence[Labelled], settings: Settings) -> Judged:
    """The result of `settings` on each question."""
    names = sorted({signal for each in labelled for one in (each, each.skipped or each) for signal in one.signals})
    quality, full, skipped = (np.zeros(len(labelled)) for _ in range(3))
    for name in TYPES:
        rows = [row for row, each in enumerate(labelled) if each.type == name]
        if not rows:
            continue
        own = [labelled[row] for row in rows]
        weights, tau = settings.of(name)
        sheet = Sheet(own, names, settings.fusion, settings.rrf_k)
        skip = np.array([tau < 1 and each.sure >= tau and has_dense(each) for each in own])
        full[rows] = sheet.quality(weights)
        quality[rows] = np.where(skip, sheet.quality(weights, dense=False), full[rows])
        skipped[rows] = skip
    return Judged(quality, full, skipped)


def validate(
    labelled: Sequence[Labelled], start: Settings, advance: Callable[[int], None] = lambda steps: None
) -> Validated:
    """Cross-validation: each fold is evaluated with settings fitted to the others, beside `start`.

    advance: called after each of the FOLDS
    """
    if len(labelled) * (FOLDS - 1) < ENOUGH * FOLDS:
        raise ValueError(f"{len(labelled)} labelled questions are too few to learn from; give {ENOUGH + 5} or more")
    before, after = judge(labelled, start), judge(labelled, start)
    fold = _folds(labelled)
    for number in range(FOLDS):
        held = [row for row, own in enumerate(fold) if own == number]
        taught = [labelled[row] for row, own in enumerate(fold) if own != number]
        if held:
            found = judge([labelled[row] for row in held], fit(taught, start))
            after.quality[held], after.full[held], after.skipped[held] = found.quality, found.full, found.skipped
        advance(1)
    return Validated(
        n=len(labelled),
        folds=FOLDS,
        before=float(before.quality.mean()),
        after=float(after.quality.mean()),
        gain=paired(after.quality, before.quality),
        skipped=float(after.skipped.mean()),
        skipped_before=float(before.skipped.mean()),
        cost=paired(after.quality, after.full),
    )


def _folds(labelled: Sequence[Labelled]) -> list[int]:
    """The fold of each question: whole groups if they leave enough to learn from for each fold, else question by
    question. A question without a group is its own group; a repeated one is in the same fold."""
    by_group = _round_robin([each.group or each.question for each in labelled])
    enough = len(set(by_group)) >= FOLDS and len(labelled) - max(Counter(by_group).values()) >= ENOUGH
    return by_group if enough else _round_robin([each.question for each in labelled])


def _round_robin(names: Sequence[str]) -> list[int]:
    """A fold for each name, in turn; equal names get the same."""
    fold = {name: n % FOLDS for n, name in enumerate(dict.fromkeys(names))}
    return [fold[name] for name in names]


def fragment(settings: Settings, router: str = "rules") -> dict[str, Any]:
    """The settings as a part of the config file. router: the configured one, which stays unless a type has its own
    settings, which were fitted and evaluated with the types of the rules."""
    types: dict[str, dict[str, Any]] = {}
    for name in TYPES:
        own: dict[str, Any] = {}
        if name in settings.types:
            own["weights"] = dict(settings.types[name])
        if name in settings.taus:
            own["tau"] = settings.taus[name]
        if own:
            types[name] = own
    retrieval: dict[str, Any] = {"router": "rules" if types else router, "fusion": settings.fusion, "tau": settings.tau}
    return {
        "restore": {"weights": dict(settings.weights)},
        "retrieval": retrieval | ({"types": types} if types else {}),
    }
