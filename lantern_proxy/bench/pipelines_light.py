"""The light learned reranker: examples from conversations with known evidence, training, and the pipeline `trained`."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from lantern_proxy.bench import metrics
from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.bench.pipelines import Advance, Pipeline, Query, Scorer
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
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


def collect_all(default: Default, conversations: Sequence[Conversation], advance: Advance) -> list[Examples]:
    """Of the conversations that have a question to learn from. advance: called for each question"""
    return [part for known in conversations if (part := collect(default, known, advance))]


def train_with(embed: EmbedConfig, parts: Sequence[Examples]) -> Model:
    """Train on parts that were ranked with the vectors of `embed`; the model says so if it looks at them."""
    model = train(parts)
    looked = not {*LEXICAL, SHIPPED_FEATURE}.issuperset(model.features)
    return replace(model, embedder=name_of(embed.model, adapted=embed.adapted)) if looked else model


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


def cross_validated(parts: Sequence[Examples]) -> Iterator[tuple[Floats, Floats]]:
    """(before, after) of each conversation's questions, by a model that did not learn from it."""
    for train_parts, test_parts in folds(len(parts)):
        model = train([parts[n] for n in train_parts])
        for part in (parts[n] for n in test_parts):
            yield measure(part, part.before), measure(part, pool_first(part, model.scores(part.table)))


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
        self._default, self._embed = Default(resources, without), resources.config.embed
        self._light = open_light(resources.config.rerank.light)

    def prepare(self, conversation: Conversation) -> Scorer:
        return self._default.archived(conversation).scorer(self._light)

    def train(self, conversations: Sequence[Conversation]) -> Pipeline:
        made = copy(self)
        made._light = Light((train_with(self._embed, collect_all(self._default, conversations, lambda _: None)),))
        return made
