"""Passages matched with a question word by word: by the vectors of their words, or by a table of single words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lantern_proxy.rank import Floats, Ints, among_best, smooth, spread
from lantern_proxy.restore.alike import alike, by_themselves
from lantern_proxy.restore.dense import Dense, Matches
from lantern_proxy.restore.question import Question
from lantern_proxy.restore.scope import Scope
from lantern_proxy.signals.late import Asked, in_context, maxsim

if TYPE_CHECKING:
    from lantern_proxy.restore.ask import Ask

Bools = npt.NDArray[np.bool_]

LATE_POOL = 300
"""How many passages are compared with the question word by word, by vectors: the best by all other signals."""
ALIKE_POOL = 150
"""How many are compared word by word, by the shipped table of words."""
BY_TABLE = 2.0
"""How many times as much the signal `alike` counts where the passages' own vectors of words are compared, which were
made within their sentences."""
SHARES = (0.3, 0.15)
"""Share of the scores of the next message on each side, and of the one after it, that flows into a short passage: for
signals of words, and of words compared one by one."""


@dataclass(frozen=True, slots=True)
class Matched:
    """How well the words of a question match those of passages, one by one."""

    rows: Ints
    """Passages that were compared, ascending."""
    found: Matches
    """The matches, for the passages at `rows`."""
    scores: Floats
    """(n,) MaxSim above the lowest; 0 for passages that were not compared."""
    flowed: Floats
    """(n,) like `scores`, but a word may also match in the message before, and scores flow in from neighbours."""
    unit: float
    """How wide `flowed` spreads over all passages, as a multiple of its spread at `rows`."""


def smoothed(scope: Scope, scores: Floats, shares: Sequence[float]) -> Floats:
    """(n,) `scores` with what flows in from neighbouring messages."""
    return smooth(scores, scope.places, shares=shares, openness=scope.openness)


def by_vectors(scope: Scope, dense: Dense, asked: Asked, total: Floats, ask: "Ask") -> Matched | None:
    """The best passages by `total`, compared with the question word by word; None: nothing to compare."""
    rows = among_best(total, LATE_POOL)
    found = dense.late(scope, asked, rows.tolist(), ask)
    if found is None:
        return None
    told = in_context(found.best, scope.places[rows], openness=scope.openness[rows])
    unread = scope.unembedded(rows) & ~found.best.any(axis=0)
    flowed = smoothed(scope, _compared(scope, rows, told, found.weights, unread), SHARES)
    scores = _compared(scope, rows, found.best, found.weights, unread)
    return Matched(rows, found, scores, flowed, _unit(flowed, rows))


def by_table(scope: Scope, dense: Dense, question: Question, total: Floats, ask: "Ask") -> Matched | None:
    """As by_vectors(), with the vector that the embedder has of each word of the question by itself: no question is
    embedded. None where there is nothing to compare."""
    asked = None if ask.late() else by_themselves(question.subject)
    found = by_vectors(scope, dense, asked, total, ask) if asked is not None else None
    return None if found is None else replace(found, unit=BY_TABLE * found.unit)


def by_shipped_table(scope: Scope, question: Question, total: Floats) -> Matched | None:
    """The best passages by `total`, compared with the question word by word by the shipped table; None: there is no
    table."""
    rows = among_best(total, ALIKE_POOL)
    found = alike(scope, question, rows)
    if found is None:
        return None
    scores = np.zeros(len(scope))
    if found.words:  # not of cubes: words by themselves are never as alike as words in their sentence
        compared = maxsim(found.best, found.weights, power=1)
        scores[rows] = compared - compared.min()
    flowed = smoothed(scope, scores, SHARES)
    return Matched(rows, found, scores, flowed, _unit(flowed, rows))


def _compared(scope: Scope, rows: Ints, matches: Floats, weights: Floats, unread: Bools) -> Floats:
    """(n,) MaxSim above the lowest, 0 beyond `rows`. matches: (t, len(rows)); unread: (len(rows),)"""
    scores = np.zeros(len(scope))
    compared = maxsim(matches, weights)
    if unread.any() and not unread.all():  # the embedder has not come to it: that is no evidence against it
        compared[unread] = compared[~unread].mean()
    scores[rows] = compared - compared.min()
    return scores


def _unit(flowed: Floats, rows: Ints) -> float:
    """How wide `flowed` spreads over all passages, as a multiple of its spread at `rows`."""
    known = spread(flowed[rows])
    return spread(flowed) / known if known > 1e-9 else 1.0
