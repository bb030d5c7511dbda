"""The evidence reranker on labelled conversations: training examples, and its gain."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.bench.pipelines import Advance, Pipeline, Query, Scorer
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.compiled import MINILM
from lantern_proxy.compiled_export import sources
from lantern_proxy.rank import Floats
from lantern_proxy.rerank.evidence import PROTECTED, Memory, corrections, reorder
from lantern_proxy.rerank.match import PRIOR, MatchModel
from lantern_proxy.rerank.train import Example, Settings, scorer, train


def base_of(model: str) -> str:
    """The folder of a model that a package carries or that is itself one, else its name on the hub."""
    return sources(model)[0][0]


def examples(
    conversations: Sequence[Conversation], pipeline: Pipeline, advance: Advance = lambda steps: None
) -> tuple[list[Example], list[int]]:
    """One example per question, with its ten candidates as ranked by `pipeline`; and each question's number of
    golds."""
    made, golds = [], []
    for conversation in conversations:
        score = pipeline.prepare(conversation)
        for asked in conversation.questions:
            scores = score(Query(asked.text, asked.at))
            first = np.argsort(-scores, kind="stable")[:PROTECTED].tolist()
            memories = tuple(Memory(conversation.candidates[i].text_with_speaker, float(i)) for i in first)
            gold = frozenset(n for n, i in enumerate(first) if conversation.candidates[i].id in asked.gold)
            made.append(
                Example(
                    conversation=conversation.id, question=asked.text, max_pos=float(len(conversation.candidates)),
                    memories=memories, gold=gold, first=tuple(scores[first].tolist()),
                )
            )  # fmt: skip
            golds.append(len(asked.gold))
            advance(1)
    return made, golds


def prior_of(model: Any) -> float:
    """Weight of the first stage's score relative to the trained model's."""
    return PRIOR if isinstance(model, MatchModel) else 0.0


class Evidence:
    """The pipeline `default` with its ten best reordered by a cross-encoder trained on the training conversations."""

    def __init__(self, resources: Resources, without: frozenset[str] = frozenset()) -> None:
        self._first = Default(resources, without)
        self._model: Any = None

    def prepare(self, conversation: Conversation) -> Scorer:
        score = self._first.prepare(conversation)
        if self._model is None:
            return score
        judge = scorer(self._model)

        def reranked(query: Query) -> Floats:
            scores = score(query)
            order = np.argsort(-scores, kind="stable").tolist()
            head = [Memory(conversation.candidates[i].text_with_speaker, float(i)) for i in order[:PROTECTED]]
            head_scores = np.asarray(judge(query.text, float(len(conversation.candidates)), head))
            head_scores = head_scores + corrections(scores[order[:PROTECTED]].tolist(), prior_of(self._model))
            reranked_order = reorder(order, head_scores.tolist())
            reranked_scores = scores.copy()
            reranked_scores[reranked_order[:PROTECTED]] = scores[order[:PROTECTED]]
            return reranked_scores

        return reranked

    def train(self, conversations: Sequence[Conversation]) -> Pipeline:
        learned = copy(self)
        found, _ = examples(conversations, self._first)
        learned._model = train(found, Settings(base_of(MINILM)), lambda done, steps: None)
        return learned
