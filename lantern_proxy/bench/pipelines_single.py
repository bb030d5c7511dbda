"""Pipelines of a single signal, as baselines."""

import sqlite3

import numpy as np

from lantern_proxy.analyze import STOP_WORDS, query_terms, terms
from lantern_proxy.bench.datasets import Candidate, Conversation
from lantern_proxy.bench.pipelines import Query, Scorer, refuse_unknown
from lantern_proxy.bench.resources import Resources
from lantern_proxy.bm25 import Index
from lantern_proxy.chunk import spoken_date
from lantern_proxy.rank import Floats


def indexed(candidate: Candidate) -> list[str]:
    """Index terms of a candidate: speaker, date and text, as chunk.passages has them."""
    return terms(f"{candidate.speaker} {spoken_date(candidate.at)} {candidate.text}")


class Bm25:
    """The product's index (k1 0.9, b 0.4) over the product's terms."""

    def __init__(self, _: Resources, without: frozenset[str] = frozenset()) -> None:
        refuse_unknown("bm25", without, [])

    @staticmethod
    def index(conversation: Conversation) -> Index:
        """Row -> terms."""
        index = Index()
        for row, candidate in enumerate(conversation.candidates):
            index.add(row, indexed(candidate), candidate.at)
        return index

    def prepare(self, conversation: Conversation) -> Scorer:
        index, n = self.index(conversation), len(conversation.candidates)

        def score(query: Query) -> Floats:
            kept = set(query_terms(query.text))  # a word that is asked for twice counts twice
            ids, scores = index.search([term for term in terms(query.text) if term in kept], n)
            found = np.zeros(n)
            found[ids] = scores
            return found

        return score


class Fts5:
    """SQLite's FTS5 with its Porter stemmer; stop words dropped from the query, words joined with OR.

    Its bm25() is negative, and smaller is better: the sign is inverted here.
    """

    def __init__(self, _: Resources, without: frozenset[str] = frozenset()) -> None:
        refuse_unknown("fts5", without, [])

    def prepare(self, conversation: Conversation) -> Scorer:
        db = sqlite3.connect(":memory:")
        db.execute("CREATE VIRTUAL TABLE said USING fts5(text, tokenize = 'porter unicode61')")
        db.executemany(
            "INSERT INTO said (rowid, text) VALUES (?, ?)",
            [(row, candidate.text_with_speaker) for row, candidate in enumerate(conversation.candidates)],
        )
        n = len(conversation.candidates)

        def score(query: Query) -> Floats:
            found = np.zeros(n)
            words = "".join(c if c.isalnum() else " " for c in query.text.lower()).split()
            wanted = " OR ".join(f'"{word}"' for word in dict.fromkeys(words) if word not in STOP_WORDS)
            if wanted:
                rows = db.execute("SELECT rowid, -bm25(said) FROM said WHERE said MATCH ?", [wanted]).fetchall()
                for row, value in rows:
                    found[row] = value
            return found

        return score


class Dense:
    """Cosine of the product's embedder as published."""

    def __init__(self, resources: Resources, without: frozenset[str] = frozenset()) -> None:
        refuse_unknown("dense", without, [])
        self._resources = resources.published

    def prepare(self, conversation: Conversation) -> Scorer:
        vectors = self._resources.vectors([candidate.text_with_speaker for candidate in conversation.candidates])
        return lambda query: (vectors @ self._resources.vector(query.text)).astype(np.float64)
