"""The light learned reranker: examples from conversations with known evidence, training, and the pipeline `trained`."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from lantern_proxy.bench import metrics
from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.bench.pipelines import Advance, Pipeline, Query, Scorer
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.compiled import ModelError
from lantern_proxy.config import EmbedConfig
from lantern_proxy.embed import name_of
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.rerank import light as rerank_light
from lantern_proxy.rerank.light import SHIPPED_FEATURE, LightError, Model
from lantern_proxy.restore.features import LEXICAL, Ranked
from lantern_proxy.restore.light import POOL, Light, examples, open_light


@dataclass(frozen=True, slots=True)
class Examples:
    """The candidates of all questions of one conversation, question by question, best first."""

    conversation: str
    features: tuple[str, ...]
    """Names of the columns of `table`."""
    table: npt.NDArray[np.float32]
    gold: npt.NDArray[np.bool_]
    groups: list[int]
    before: Floats
    """Score of each candidate by the untrained ranking."""
    missed: list[int]
    """Number of gold items of each question that are not among its candidates."""


@dataclass(slots=True)
class _Collector:
    """Takes the place of a model, changes nothing, and records its inputs."""

    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    features: tuple[str, ...] = ()
    table: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    fused: Floats = field(default_factory=lambda: np.zeros(0))

    def __call__(self, ranked: Ranked) -> Floats:
        self.rows, self.fused = np.zeros(0, np.int64), ranked.fused
        if ranked.question.terms:
            self.rows, self.features, self.table = examples(ranked)
        return ranked.fused


def collect(default: Default, conversation: Conversation, advance: Advance) -> Examples | None:
    """The product's features for each question of a conversation, and which candidates are evidence; None if no
    question has a searchable word."""
    archived, seen = default.archived(conversation), _Collector()
    score = archived.scorer(seen)
    ids = np.array([candidate.id for candidate in conversation.candidates])
    tables, golds, groups, before, missed = [], [], [], [], []
    for asked in conversation.questions:
        score(Query(asked.text, asked.at))
        found = ids[archived.rows[seen.rows]]
        gold = np.isin(found, list(asked.gold))
        if len(seen.rows):
            tables.append(seen.table)
            golds.append(gold)
            groups.append(len(seen.rows))
            before.append(seen.fused[seen.rows])
            missed.append(len(asked.gold - set(found[gold].tolist())))
        advance(1)
    if not tables:
        return None
    joined = np.concatenate(tables), np.concatenate(golds), groups, np.concatenate(before), missed
    return Examples(conversation.id, seen.features, *joined)


@dataclass(frozen=True, slots=True)
class RankedExamples:
    """The examples of some conversations, with one embedder's vectors."""

    default: Default
    parts: list[Examples]
    embed: EmbedConfig
    untrained: list[Floats]
    """The result of `measure` for each part."""

    def train(self, of: Sequence[int]) -> Model:
        """A model trained on these parts. LightError if there is none."""
        model = train([self.parts[n] for n in of])
        looked = not {*LEXICAL, SHIPPED_FEATURE}.issuperset(model.features)
        embedder = name_of(self.embed.model, adapted=self.embed.adapted)
        return structs.replace(model, embedder=embedder) if looked else model


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Training data: the same conversations ranked with each of the embedders."""

    by: list[RankedExamples]
    """The configured embedder's first; all have the same questions in their parts."""

    def best(self, of: Sequence[int]) -> RankedExamples:
        """The embedder with the better untrained ranking on these parts; a model trained with it is better, too."""
        return max(self.by, key=lambda seen: _mrr([seen.untrained[n] for n in of]))

    @property
    def all_parts(self) -> range:
        """The numbers of all parts."""
        return range(len(self.by[0].parts))


def training_data(
    resources: Resources, conversations: Sequence[Conversation], advance: Advance, *, without: frozenset[str]
) -> TrainingData:
    """With the configured embedder's vectors, and those of its adapted version.

    advance: called for each question, once per embedder; without: signals to leave out
    """
    found: list[RankedExamples] = []
    for each in embedders(resources):
        default = Default(each, without)
        with suppress(ModelError) if found else nullcontext():  # what is not configured may not be there to compile
            parts = [part for known in conversations if (part := collect(default, known, advance))]
            found.append(
                RankedExamples(default, parts, each.config.embed, [measure(part, part.before) for part in parts])
            )
    return TrainingData(found)


def embedders(resources: Resources) -> list[Resources]:
    """The embedders that a lesson chooses from, the configured one first."""
    return [resources] if resources.adapted is resources else [resources, resources.adapted]


def _mrr(untrained: Sequence[Floats]) -> float:
    return float(np.concatenate(untrained)[:, 0].mean()) if untrained else 0.0


def train(parts: Sequence[Examples]) -> Model:
    """Train on all `parts`. LightError if there is none."""
    if not parts:
        raise LightError("no conversation has a question to learn from; give more of them")
    table = np.concatenate([part.table for part in parts])
    gold = np.concatenate([part.gold for part in parts])
    return rerank_light.train(parts[0].features, table, gold, [n for part in parts for n in part.groups])


def measure(part: Examples, scores: Floats) -> Floats:
    """(questions, 3) reciprocal rank, hit at 1 and recall at 10 of candidates with these scores."""
    rows = []
    borders = np.concatenate(([0], np.cumsum(part.groups)))
    for (start, end), missed in zip(pairwise(borders.tolist()), part.missed, strict=True):
        gold = part.gold[start:end][np.argsort(-scores[start:end], kind="stable")]
        hits = np.flatnonzero(gold)
        every = int(gold.sum()) + missed
        rows.append((1 / (hits[0] + 1) if len(hits) else 0.0, float(gold[0]), gold[:10].sum() / max(1, every)))
    return np.array(rows)


FOLDS = 5


def folds(n: int) -> Iterator[tuple[list[int], range]]:
    """(training parts, test parts) of n parts, FOLDS times, or as often as there are parts."""
    number = min(FOLDS, n)
    for fold in range(number):
        yield [each for each in range(n) if each % number != fold], range(fold, n, number)


def cross_validated(data: TrainingData) -> Iterator[tuple[Floats, Floats]]:
    """(before, after) of each conversation's questions, by a model and vectors that were not chosen with it."""
    for train_parts, test_parts in folds(len(data.all_parts)):
        ranked = data.best(train_parts)
        model = ranked.train(train_parts)
        for n in test_parts:
            part = ranked.parts[n]
            yield data.by[0].untrained[n], measure(part, pool_first(part, model.scores(part.table)))


def pool_first(part: Examples, scores: Floats) -> Floats:
    """The scores with those beyond the POOL best of each question below all others, in their order, as when serving."""
    place = np.concatenate([np.arange(n) for n in part.groups])
    return np.where(place < POOL, scores, scores.min() - place)


def compared(before: Floats, after: Floats) -> dict[str, dict[str, Any]]:
    """Each measure before and after, with a paired bootstrap of the difference."""
    comparison: dict[str, dict[str, Any]] = {}
    for column, name in enumerate(("mrr", "hit@1", "recall@10")):
        _, low, high, p = metrics.paired(after[:, column], before[:, column])
        means = float(before[:, column].mean()), float(after[:, column].mean())
        comparison[name] = {"before": means[0], "after": means[1], "ci": [low, high], "p": p}
    return comparison


class Trained:
    """The default with the light reranker: trained on dev conversations, or the configured one."""

    def __init__(self, resources: Resources, without: frozenset[str] = frozenset()) -> None:
        self._resources, self._without = resources, without
        self._default = Default(resources, without)
        self._light = open_light(resources.config.rerank.light)

    def prepare(self, conversation: Conversation) -> Scorer:
        return self._default.archived(conversation).scorer(self._light)

    def train(self, conversations: Sequence[Conversation]) -> Pipeline:
        data = training_data(self._resources, conversations, lambda _: None, without=self._without)
        made, seen = copy(self), data.best(data.all_parts)
        made._default, made._light = seen.default, Light((seen.train(data.all_parts),))
        return made
