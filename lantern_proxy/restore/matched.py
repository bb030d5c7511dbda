"""Matches passages with a question word by word: by the vectors of their words, or by a table of single words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.rank import Floats, Ints, among_best, smooth, spread
from lantern_proxy.restore.dense import Dense, Matches
from lantern_proxy.restore.question import Question
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.word_table import compare_words, question_vectors
from lantern_proxy.signals.late import QuestionTokens, in_context, maxsim

if TYPE_CHECKING:
    from lantern_proxy.restore.ask import Ask

Bools = npt.NDArray[np.bool_]

LATE_POOL = 300
"""How many passages, the best by all other signals, are compared word by word with vectors."""
ALIKE_POOL = 150
"""How many are compared word by word with the shipped table."""
BY_TABLE = 2.0
"""Factor of the signal `alike` when the embedder's single-word vectors are compared with the passages' token vectors,
which were computed in the context of their sentences."""
SHARES = (0.3, 0.15)
"""Share of the scores of the adjacent messages, and of the ones after those, that flows into a short passage: for
signals of words and for word-by-word matches."""


class Matched(Struct, frozen=True):
    """How well the words of a question match those of passages."""

    rows: Ints
    """Rows of the passages that were compared, ascending."""
    found: Matches
    """The matches, for the passages at `rows`."""
    scores: Floats
    """(n,) MaxSim above its minimum; 0 for passages that were not compared."""
    smooth_scores: Floats
    """(n,) as `scores`, but a word may also match in the previous message, and scores flow in from neighbours."""
    unit: float
    """The spread of `smooth_scores` over all passages, as a multiple of its spread at `rows`."""


def smoothed(scope: Scope, scores: Floats, shares: Sequence[float]) -> Floats:
    """(n,) `scores` with a share of the scores of neighbouring messages."""
    return smooth(scores, scope.places, shares=shares, openness=scope.openness)


def match_by_vectors(scope: Scope, dense: Dense, asked: QuestionTokens, total: Floats, ask: "Ask") -> Matched | None:
    """The best passages by `total`, matched with the question word by word; None if there is nothing to compare."""
    rows = among_best(total, LATE_POOL)
    found = dense.compare_words(scope, asked, rows.tolist(), ask)
    if found is None:
        return None
    contextual = in_context(found.best, scope.places[rows], openness=scope.openness[rows])
    unread = scope.unembedded(rows) & ~found.best.any(axis=0)
    smooth_scores = smoothed(scope, _compared(scope, rows, contextual, found.weights, unread), SHARES)
    scores = _compared(scope, rows, found.best, found.weights, unread)
    return Matched(rows, found, scores, smooth_scores, _unit(smooth_scores, rows))


def match_by_embedder_table(
    scope: Scope, dense: Dense, question: Question, total: Floats, ask: "Ask"
) -> Matched | None:
    """As match_by_vectors(), but with the vector that the embedder's table has for each single word of the question, so
    no question is embedded. None if there is nothing to compare."""
    asked = None if ask.late() else question_vectors(question.subject)
    found = match_by_vectors(scope, dense, asked, total, ask) if asked is not None else None
    return None if found is None else replace(found, unit=BY_TABLE * found.unit)


def match_by_shipped_table(scope: Scope, question: Question, total: Floats) -> Matched | None:
    """The best passages by `total`, matched with the question by the shipped table; None if there is no table."""
    rows = among_best(total, ALIKE_POOL)
    found = compare_words(scope, question, rows)
    if found is None:
        return None
    scores = np.zeros(len(scope))
    if found.words:  # not cubed: vectors without context are never as similar as those of words in a sentence
        compared = maxsim(found.best, found.weights, power=1)
        scores[rows] = compared - compared.min()
    smooth_scores = smoothed(scope, scores, SHARES)
    return Matched(rows, found, scores, smooth_scores, _unit(smooth_scores, rows))


def _compared(scope: Scope, rows: Ints, matches: Floats, weights: Floats, unread: Bools) -> Floats:
    """(n,) MaxSim above its minimum, 0 for rows not in `rows`. matches: (t, len(rows)); unread: (len(rows),)"""
    scores = np.zeros(len(scope))
    compared = maxsim(matches, weights)
    if unread.any() and not unread.all():  # not embedded yet, which is no evidence against a passage
        compared[unread] = compared[~unread].mean()
    scores[rows] = compared - compared.min()
    return scores


def _unit(smooth_scores: Floats, rows: Ints) -> float:
    """The spread of `smooth_scores` over all passages, as a multiple of its spread at `rows`."""
    known = spread(smooth_scores[rows])
    return spread(smooth_scores) / known if known > 1e-9 else 1.0
