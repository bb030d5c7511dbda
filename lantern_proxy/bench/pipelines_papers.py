"""Pipelines that fuse rankings as the papers say: what the product has to beat."""

from collections.abc import Mapping

import numpy as np

from lantern_proxy.analyze import query_terms, terms
from lantern_proxy.analyze.specific import specifics
from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.bench.pipelines import Pipeline, Query, Scorer, refuse_unknown
from lantern_proxy.bench.pipelines_single import Bm25, Dense, Fts5
from lantern_proxy.bench.resources import Resources
from lantern_proxy.rank import Floats, fuse_scores, importance


class Fused:
    """Reciprocal rank fusion (k = 60) of named pipelines, all alike in weight."""

    def __init__(self, parts: Mapping[str, Pipeline]) -> None:
        self._parts = parts

    def prepare(self, conversation: Conversation) -> Scorer:
        scorers = {name: part.prepare(conversation) for name, part in self._parts.items()}
        n = len(conversation.candidates)
        return lambda query: fuse_scores({name: scorer(query) for name, scorer in scorers.items()}, {}, n)


class Keywords:
    """How many words of the question are among a message's specific terms (LANTERN's keyword index)."""

    def prepare(self, conversation: Conversation) -> Scorer:
        tagged = [frozenset(terms(" ".join(specifics(candidate.text)))) for candidate in conversation.candidates]

        def score(query: Query) -> Floats:
            wanted = frozenset(query_terms(query.text))
            return np.array([float(len(wanted & tags)) for tags in tagged])

        return score


class Importance:
    """LANTERN's I = R * F * D * c * s of messages that were never restored: age, files."""

    def prepare(self, conversation: Conversation) -> Scorer:
        now = max((candidate.at for candidate in conversation.candidates), default=0.0)
        values = np.array([importance(now - c.at, 0, False, "/" in c.text, 0.5, 0.5) for c in conversation.candidates])
        return lambda _: values


def rrf(resources: Resources, without: frozenset[str] = frozenset()) -> Pipeline:
    """BM25 and MiniLM, fused."""
    parts: dict[str, Pipeline] = {"bm25": Bm25(resources), "vector": Dense(resources)}
    return _fused("rrf", parts, without)


def lantern(resources: Resources, without: frozenset[str] = frozenset()) -> Pipeline:
    """The four signals of the LANTERN paper, section 3: vector, full text, keywords, importance."""
    parts: dict[str, Pipeline] = {
        "vector": Dense(resources),
        "fts": Fts5(resources),
        "keywords": Keywords(),
        "importance": Importance(),
    }
    return _fused("lantern", parts, without)


def _fused(name: str, parts: dict[str, Pipeline], without: frozenset[str]) -> Fused:
    refuse_unknown(name, without, list(parts))
    return Fused({signal: part for signal, part in parts.items() if signal not in without})
