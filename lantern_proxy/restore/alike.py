"""Word similarity by a table that ships with Lantern: in place of late interaction while there are no vectors."""

import logging
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore.dense import Matches, rarity
from lantern_proxy.restore.question import Question
from lantern_proxy.restore.scope import Scope
from lantern_proxy.signals.alike import Counts, Lists, Numbers, Table, units, words
from lantern_proxy.signals.late import Asked, Tokens

log = logging.getLogger(__name__)


def alike(scope: Scope, question: Question, rows: Ints) -> Matches | None:
    """The question word by word against the passages at `rows`; without words where it has none that counts. None:
    there is no table."""
    table = shipped()
    if table is None:
        return None
    pieces, weights, of = table.asked({word: rarity(scope, word) for word in words(question.subject)})
    found = table.best_matches(pieces, scope.passages.pieces(rows, table.pieces))
    return Matches(found, weights, of, pieces)


def by_sentences(scope: Scope, asked: Numbers, asking: Ints, telling: Ints) -> tuple[Floats, Floats, Counts]:
    """A question word by word against what passages ask, and against what others tell. There must be a table.

    asked: (t,) the pieces of its words
    asking, telling: (a, m) and (b, m) rows, -1 where there is none
    Gives (t, a, m) best matches with what asks and (t, b, m) with what tells, 0 where there is none, and (b, m) how
    many pieces of words tell.
    """
    table = shipped()
    assert table is not None
    asks, tells = scope.passages.parts(np.concatenate((asking, telling)), table.pieces)
    n = len(asking)
    starts, counts = (
        np.concatenate((a[:n], t[n:])) for a, t in ((asks.starts, tells.starts), (asks.counts, tells.counts))
    )
    found = table.best_matches(asked, Lists(asks.pieces, starts, counts))
    return found[:, :n], found[:, n:], counts[n:]


def by_themselves(question: str) -> Asked | None:
    """The words of a question that count, for late interaction with the vectors of passages: each piece as the model
    has it by itself, which costs a look-up. None: there is no table, or it has none of them."""
    table, vectors = shipped(), shipped_vectors()
    if table is None or vectors is None:
        return None
    pieces, _, of = table.asked(dict.fromkeys(words(question), 1.0))
    return Asked(units(vectors[pieces]), of) if of else None


def read_tables() -> None:
    """Read what comes with Lantern, tens of milliseconds, so that no question waits for it."""
    shipped()
    shipped_vectors()


@cache
def shipped() -> Table | None:
    """The table that comes with Lantern, made of all-MiniLM-L6-v2 (Apache 2.0); read once, in about 10 ms."""
    with as_file(files("lantern_proxy") / "data" / "alike_minilm_l6.npz") as path:
        return read(path)


@cache
def shipped_vectors() -> Tokens | None:
    """(pieces of the table, late.DIM) the same pieces in the space of passages' token vectors."""
    with as_file(files("lantern_proxy") / "data" / "late_words_minilm_l6.npz") as path:
        try:
            with np.load(path) as data:
                found: Tokens = data["vectors"]
                return found
        except Exception:  # as in read()
            log.exception("%s cannot be read; questions are not compared with vectors by themselves", path)
            return None


def read(path: Path) -> Table | None:
    """None: it cannot be read, and ranking does without."""
    try:
        with np.load(path) as data:
            return Table(data["pieces"].tobytes().decode().split("\n"), data["vectors"])
    except Exception:  # zipfile and numpy have a dozen kinds for what is damaged
        log.exception("%s cannot be read; signal alike is off", path)
        return None
