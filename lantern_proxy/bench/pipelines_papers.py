"""Pipelines that fuse rankings as published: the baselines that Lantern has to beat."""

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
    """Reciprocal rank fusion (k = 60) of named pipelines with equal weights."""

    def __init__(self, name: str, parts: Mapping[str, Pipeline], without: frozenset[str]) -> None:
        refuse_unknown(name, without, list(parts))
        self._parts = {signal: part for signal, part in parts.items() if signal not in without}

    def prepare(self, conversation: Conversation) -> Scorer:
        scorers = {name: part.prepare(conversation) for name, part in self._parts.items()}
        n = len(conversation.candidates)
        return lambda query: fuse_scores({name: scorer(query) for name, scorer in scorers.items()}, {}, n)


class Keywords:
    """Number of question words among a message's specific terms (LANTERN's keyword index)."""

    def prepare(self, conversation: Conversation) -> Scorer:
        tagged = [frozenset(terms(" ".join(specifics(candidate.text)))) for candidate in conversation.candidates]

        def score(query: Query) -> Floats:
            wanted = frozenset(query_terms(query.text))
            return np.array([float(len(wanted & tags)) for tags in tagged])

        return score


class Importance:
    """LANTERN's I = R * F * D * c * s of messages that were never restored: only age and files differ."""

    def prepare(self, conversation: Conversation) -> Scorer:
        now = max((candidate.at for candidate in conversation.candidates), default=0.0)
        values = np.array([importance(now - c.at, files="/" in c.text) for c in conversation.candidates])
        return lambda _: values


def rrf(resources: Resources, without: frozenset[str] = frozenset()) -> Pipeline:
    """BM25 and MiniLM, fused."""
    return Fused("rrf", {"bm25": Bm25(resources), "vector": Dense(resources)}, without)


def lantern(resources: Resources, without: frozenset[str] = frozenset()) -> Pipeline:
    """The four signals of the LANTERN paper, section 3: vector, full text, keywords, importance."""
    parts: dict[str, Pipeline] = {
        "vector": Dense(resources), "fts": Fts5(resources), "keywords": Keywords(), "importance": Importance(),
    }  # fmt: skip
    return Fused("lantern", parts, without)
