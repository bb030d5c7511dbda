"""Word similarity by a table that ships with Lantern; replaces late interaction while there are no vectors."""

import logging
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore.dense import Matches, rarity
from lantern_proxy.restore.question import Question
from lantern_proxy.restore.scope import Scope
from lantern_proxy.signals.late import QuestionTokens, Tokens
from lantern_proxy.signals.word_similarity import Counts, Numbers, PieceLists, Table, units, words

log = logging.getLogger(__name__)


def compare_words(scope: Scope, question: Question, rows: Ints) -> Matches | None:
    """Match the question word by word with the passages at `rows`; empty if none of its words counts. None if there is
    no table."""
    table = shipped_table()
    if table is None:
        return None
    pieces, weights, of = table.asked({word: rarity(scope, word) for word in words(question.subject)})
    found = table.best_matches(pieces, scope.passages.pieces(rows, table.pieces))
    return Matches(found, weights, of, pieces)


def compare_sentences(scope: Scope, asked: Numbers, asking: Ints, telling: Ints) -> tuple[Floats, Floats, Counts]:
    """Match a question word by word with what passages ask, and with what others state. There must be a table.

    asked: (t,) the pieces of its words
    asking, telling: (a, m) and (b, m) rows, -1 for no passage

    Returns (t, a, m) best matches with questions and (t, b, m) with statements, 0 for no passage, and (b, m) the number
    of word pieces in statements.
    """
    table = shipped_table()
    assert table is not None
    asks, tells = scope.passages.parts(np.concatenate((asking, telling)), table.pieces)
    n = len(asking)
    starts, counts = (
        np.concatenate((a[:n], t[n:])) for a, t in ((asks.starts, tells.starts), (asks.counts, tells.counts))
    )
    found = table.best_matches(asked, PieceLists(asks.pieces, starts, counts))
    return found[:, :n], found[:, n:], counts[n:]


def question_vectors(question: str) -> QuestionTokens | None:
    """The words of a question that count, for late interaction with the vectors of passages. Each piece has its
    context-free vector, which only costs a look-up. None if there is no table, or if it has none of the words."""
    table, vectors = shipped_table(), shipped_vectors()
    if table is None or vectors is None:
        return None
    pieces, _, of = table.asked(dict.fromkeys(words(question), 1.0))
    return QuestionTokens(units(vectors[pieces]), of) if of else None


def load_tables() -> None:
    """Load the shipped tables, tens of milliseconds, so that no question waits for it."""
    shipped_table()
    shipped_vectors()


@cache
def shipped_table() -> Table | None:
    """The table that comes with Lantern, made from all-MiniLM-L6-v2 (Apache 2.0); loaded once, in about 10 ms."""
    with as_file(files("lantern_proxy") / "data" / "alike_minilm_l6.npz") as path:
        return read_table(path)


@cache
def shipped_vectors() -> Tokens | None:
    """(pieces of the table, late.DIM) the same pieces in the vector space of passage tokens."""
    with as_file(files("lantern_proxy") / "data" / "late_words_minilm_l6.npz") as path:
        try:
            with np.load(path) as data:
                found: Tokens = data["vectors"]
                return found
        except Exception:  # as in read_table()
            log.exception("%s cannot be read; questions are not compared with vectors by themselves", path)
            return None


def read_table(path: Path) -> Table | None:
    """The table in a file; None if it cannot be read: ranking works without it."""
    try:
        with np.load(path) as data:
            return Table(data["pieces"].tobytes().decode().split("\n"), data["vectors"])
    except Exception:  # zipfile and numpy raise a dozen types for damaged files
        log.exception("%s cannot be read; signal alike is off", path)
        return None
