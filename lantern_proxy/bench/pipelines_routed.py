"""SelRoute and AgentIR on plain signals, with their routes as data: what routing alone gains."""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files

import numpy as np

from lantern_proxy.analyze import query_terms, terms
from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.bench.pipelines import Pipeline, Query, Scorer, refuse_unknown
from lantern_proxy.bench.pipelines_single import Bm25, Dense, Fts5
from lantern_proxy.bench.resources import Resources
from lantern_proxy.bm25 import Index
from lantern_proxy.rank import Floats, fuse_scores, recencies
from lantern_proxy.route import margin
from lantern_proxy.route_types import QueryType, query_type

ROUTES: Mapping[QueryType, Sequence[str]] = {
    "knowledge-update": ("fts", "vector"),
    "multi-session": ("fts", "vector"),
    "single-session-user": ("enriched",),
    "single-session-assistant": ("fts",),
    "single-session-preference": ("vector",),
    "temporal": ("fts",),
}
"""SelRoute's four pipelines (lexical, semantic, hybrid, vocabulary-enriched) by type; several are fused by rank."""


@cache
def table() -> Mapping[str, tuple[str, ...]]:
    """Index term -> index terms; read once, in about 10 ms."""
    data = (files("lantern_proxy") / "data" / "enrichment.tsv.gz").read_bytes()
    rows = (line.split("\t") for line in gzip.decompress(data).decode().splitlines())
    return {term: tuple(found.split(" ")) for term, found in rows}


def enrich(terms: Iterable[str]) -> list[str]:
    """Related terms under which a passage may be searched for, without duplicates and without terms that it has.

    enrich(["bought", "violin"]) -> ["purchas", "acquir", ..., "instrument"]

    SelRoute, section 4: hypernyms and topics of common nouns, synonyms and nominal forms of common verbs, from WordNet
    (scripts/enrichment.py). They blur embeddings, so they are never embedded, and mixed into the words of a passage
    they cost .015 MRR on LoCoMo; as a field of their own they gain .003 there and cost .01 recall on BEAM. The product
    does without: docs/retrieval.md.
    """
    known, own = table(), dict.fromkeys(terms)
    return list(dict.fromkeys(found for term in own for found in known.get(term, ()) if found not in own))


class Enriched:
    """BM25 over the text of a message and, at 0.3 of the weight, over its related terms."""

    def prepare(self, conversation: Conversation) -> Scorer:
        words_index, related_index = Bm25.index(conversation), Index()
        for row, candidate in enumerate(conversation.candidates):
            related_index.add(row, enrich(terms(candidate.text)), candidate.at)
        n = len(conversation.candidates)

        def score(query: Query) -> Floats:
            wanted, found = query_terms(query.text), np.zeros(n)
            for index, weight in ((words_index, 1.0), (related_index, 0.3)):
                ids, scores = index.search(wanted, n)
                found[ids] += weight * scores
            return found

        return score


class SelRoute:
    """The type of a question, by rules, determines the rankings that answer it (McKee 2026, section 3)."""

    def __init__(self, resources: Resources, without: frozenset[str] = frozenset()) -> None:
        refuse_unknown("selroute", without, ["enriched"])
        lexical: Pipeline = Fts5(resources) if "enriched" in without else Enriched()
        self._parts: Mapping[str, Pipeline] = {"fts": Fts5(resources), "vector": Dense(resources), "enriched": lexical}

    def prepare(self, conversation: Conversation) -> Scorer:
        scorers = {name: part.prepare(conversation) for name, part in self._parts.items()}
        n = len(conversation.candidates)

        def score(query: Query) -> Floats:
            chosen = {name: scorers[name](query) for name in ROUTES[query_type(query.text)]}
            return next(iter(chosen.values())) if len(chosen) == 1 else fuse_scores(chosen, {}, n)

        return score


MARGIN = 0.2
"""route.margin of the lexical scores from which on AgentIR skips vectors."""
RECENCY_GAIN, RECENCY_DAYS, COMPARED_DAYS = 0.005, 30.0, 120.0
"""AgentIR adds gain * exp(-age / days) to reciprocal ranks; the larger number of days applies to multi-session
questions."""


class AgentIr:
    """BM25 alone if its margin is wide (the cascade), else BM25 and MiniLM by reciprocal rank with a recency bonus that
    lasts longer for multi-session questions (Yuan et al. 2026, sections 3 and 4)."""

    def __init__(self, resources: Resources, without: frozenset[str] = frozenset()) -> None:
        refuse_unknown("agentir", without, ["cascade", "recency"])
        self._lexical, self._dense = Bm25(resources), Dense(resources)
        self._margin = 2.0 if "cascade" in without else MARGIN
        self._gain = 0.0 if "recency" in without else RECENCY_GAIN

    def prepare(self, conversation: Conversation) -> Scorer:
        lexical, dense = self._lexical.prepare(conversation), self._dense.prepare(conversation)
        times = np.array([candidate.at for candidate in conversation.candidates])
        newest = float(times.max(initial=0.0))

        def score(query: Query) -> Floats:
            words = lexical(query)
            if margin(np.sort(words)[::-1][:2].tolist()) >= self._margin:
                return words
            days = COMPARED_DAYS if query_type(query.text) == "multi-session" else RECENCY_DAYS
            ages = (query.at or newest) - times
            bonus = recencies(ages, gain=self._gain, tau_s=days * 86_400)
            return fuse_scores({"bm25": words, "vector": dense(query)}, {}, len(times)) + bonus

        return score
