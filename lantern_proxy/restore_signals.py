"""The signals of one question over a whole scope, and their fusion into one ranking."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lantern_proxy.config import RestoreConfig
from lantern_proxy.config_retrieval import PipelineConfig, RetrievalConfig
from lantern_proxy.rank import Centred, Floats, best, smooth, zsum
from lantern_proxy.restore_dense import Dense
from lantern_proxy.restore_features import Matched, Ranked, nearness
from lantern_proxy.restore_light import Reorder
from lantern_proxy.restore_question import Evidence, Question
from lantern_proxy.restore_routes import ages_count, fused, mixture, threshold
from lantern_proxy.restore_scope import Scope
from lantern_proxy.route_types import query_type
from lantern_proxy.signals import keywords, said_by
from lantern_proxy.signals_form import fits
from lantern_proxy.signals_late import Asked, maxsim

if TYPE_CHECKING:
    from lantern_proxy.restore_ask import Ask

PRIORS = ("speaker", "form", "session", "days")
"""Signals without a ranking of their own: reciprocal ranks leave them out."""
POOL = 400
"""Passages that are looked at, when a question is known."""
LATE_POOL = 300
"""Passages that are compared word by word: the best by everything else."""
FORM_POOL = 150
"""Passages whose form counts: the best by everything else."""
ALONE = 2.0
"""How much more words count where there are no vectors: less would leave the choice to speaker and form."""
NAMED, ROLE, USER = 2.0, 3.0, 2.0
"""What the right speaker is worth: a name in a question may be that of somebody who was only spoken of, and where
neither a name nor a role is told, most of what is asked for was said by the user."""
SESSION_BY_WORDS = 2 / 3
"""What a session is about is told by its words and, this much less, by its best match word by word."""
WEIGHTS: Mapping[str, float] = {
    "bm25": 0.5, "vector": 0.75, "late": 1.0, "speaker": 0.8, "keywords": 0.05, "form": 1.0, "session": 0.6,
    "days": 1.5,
}  # fmt: skip
"""Of the z-scores in the default recipe; `restore.weights` overrides."""
SHARES = (0.3, 0.15)
"""How much of its neighbours' scores flows into a short passage, by words and word by word."""
VECTOR_SHARES = (0.07, 0.035)
"""The same for vectors, which already see context."""


def gather(
    scope: Scope,
    question: Question,
    ask: "Ask",
    dense: Dense,
    restore: RestoreConfig,
    retrieval: RetrievalConfig,
    light: Reorder | None = None,
) -> Evidence:
    """Every signal over the whole scope, and their fusion. A signal that is missing just leaves the fusion.

    light: reorders the best of them; None: leave them as they are
    """
    mixed = mixture(question.text, retrieval)
    lexical = scope.lexical(question.terms)
    signals: dict[str, Floats] = {"bm25": _near(scope, lexical, SHARES)}
    units: dict[str, float] = {}
    meaning = None
    if not ask.late():
        meaning = dense.look(scope, question, lexical, ask, tau=1.0 if light else threshold(mixed))
    if meaning is not None:
        signals["vector"] = _near(scope, meaning.cosines - float(meaning.cosines.min()), VECTOR_SHARES)
        # the longer the messages, the less a word in common proves, and the more of a vector's context is their own
        units["vector"] = 2.0 - float(scope.openness.mean())
    else:
        units["bm25"] = ALONE
    if lexical.any() and _weight(restore, "keywords"):
        signals["keywords"] = _keywords(scope, question, lexical)
    if lexical.any() and _weight(restore, "session"):
        signals["session"] = _session(scope, lexical)
        units["session"] = float(scope.openness.mean()) ** 4
    ages = scope.ages(ask.now) if ages_count(mixed) else np.zeros(len(scope))

    def weigh(pipeline: PipelineConfig) -> dict[str, float]:
        own = {name: _weight(restore, name, pipeline) for name in signals}
        if pipeline.fusion == "rrf":
            return own | dict.fromkeys(PRIORS, 0.0)
        return {name: weight * units.get(name, 1.0) for name, weight in own.items()}

    known: Centred = {}
    total = fused(signals, ages, mixed, weigh, rrf_k=restore.rrf_k, known=known)
    if _weight(restore, "speaker"):
        signals["speaker"], worth = _speaker(scope, question, total)
        units["speaker"] = worth * float(signals["speaker"].std())
        total = fused(signals, ages, mixed, weigh, rrf_k=restore.rrf_k, known=known)
    matched = None
    if meaning is not None and meaning.asked is not None and _weight(restore, "late") and not ask.late():
        matched = _late(scope, dense, meaning.asked, total)
    if matched is not None:
        signals["late"], units["late"] = matched.flowed, matched.unit
        total = fused(signals, ages, mixed, weigh, rrf_k=restore.rrf_k, known=known)
    if matched is not None and "session" in signals:
        signals["session"] = _session_in_full(scope, signals["session"], matched.flowed)
        units["session"] *= float(signals["session"].std())
        total = fused(signals, ages, mixed, weigh, rrf_k=restore.rrf_k, known=known)
    if _weight(restore, "days") and (near := _days(scope, question, total, ask.now)) is not None:
        signals["days"], units["days"] = near, float(near.std())
        total = fused(signals, ages, mixed, weigh, rrf_k=restore.rrf_k, known=known)
    if _weight(restore, "form"):
        signals["form"] = _form(scope, question, total)
        units["form"] = float(signals["form"].std())
        total = fused(signals, ages, mixed, weigh, rrf_k=restore.rrf_k, known=known)
    cosines = meaning.cosines if meaning else None
    if light is not None and not ask.late():
        ranked = Ranked(
            scope=scope, question=question, fused=total, lexical=lexical, cosines=cosines, matched=matched, now=ask.now
        )
        total = light(ranked)
    return Evidence(lexical, cosines, total, signals, units)


def _near(scope: Scope, scores: Floats, shares: Sequence[float]) -> Floats:
    """The same with what flows in from neighbouring messages."""
    return smooth(scores, scope.places, shares=shares, openness=scope.openness)


def _late(scope: Scope, dense: Dense, asked: Asked, total: Floats) -> Matched | None:
    """The best by everything else, word by word; None: nothing to compare."""
    rows = np.sort(best(total, LATE_POOL))
    found = dense.late(scope, asked, rows.tolist())
    if found is None:
        return None
    scores = np.zeros(len(scope))
    compared = maxsim(found.best, found.weights)
    unread = scope.unembedded(rows)
    if unread.any() and not unread.all():  # the embedder has not come to it: that is no evidence against it
        compared[unread] = compared[~unread].mean()
    scores[rows] = compared - compared.min()
    flowed = _near(scope, scores, SHARES)
    spread = float(flowed[rows].std())
    return Matched(rows, found, scores, flowed, float(flowed.std()) / spread if spread > 1e-9 else 1.0)


def _session(scope: Scope, lexical: Floats) -> Floats:
    """(n,) how much of the question the whole session of each entry is about, by words. Its weight is less where
    messages are long: those stand for themselves."""
    numbers = scope.session_numbers
    counts = np.maximum(1, np.bincount(numbers))
    found: Floats = (np.bincount(numbers, lexical) / np.sqrt(counts))[numbers]
    return found


def _session_in_full(scope: Scope, by_words: Floats, matches: Floats) -> Floats:
    """(n,) the same with how well the best of the session matches word by word; both as z-scores."""
    numbers = scope.session_numbers
    peaks = np.zeros(int(numbers.max()) + 1)
    np.maximum.at(peaks, numbers, matches)
    weights = {"words": SESSION_BY_WORDS, "matches": 1 - SESSION_BY_WORDS}
    return zsum({"words": by_words, "matches": peaks[numbers]}, weights)


def _days(scope: Scope, question: Question, total: Floats, now: float) -> Floats | None:
    """(n,) how near the days are that question and passage name, or on which it was said; 0 beyond the FORM_POOL best
    by everything else. None: the question names no day."""
    rows = best(total, FORM_POOL).tolist()
    near = nearness(lambda: scope.entries.told(rows), question.text, now)
    if near is None:
        return None
    scores = np.zeros(len(scope))
    scores[rows] = near
    return scores


def _speaker(scope: Scope, question: Question, total: Floats) -> tuple[Floats, float]:
    """(n,) 1 for what was said by the one that the question is about; 0 beyond the POOL best by everything else.
    And what that is worth."""
    kind = query_type(question.text)
    own = question.personal or kind == "single-session-preference"
    role = "assistant" if kind == "single-session-assistant" else "user"
    rows = best(total, POOL).tolist()
    told = scope.entries.told(rows)
    names = [each.name for each in told]
    scores = np.zeros(len(scope))
    scores[rows] = said_by([each.speaker for each in told], names, question.words, role)
    if not question.words.isdisjoint(names):
        return scores, NAMED
    return scores, ROLE if own or role == "assistant" else USER


def _form(scope: Scope, question: Question, total: Floats) -> Floats:
    """(n,) how well its form fits an answer; for all but the FORM_POOL best by everything else, the worst there is."""
    rows = best(total, FORM_POOL).tolist()
    told = scope.entries.told(rows)
    people = any(each.name for each in told) and all(each.speaker == "user" for each in told)
    answers = _answers(scope, rows) if people else None
    worth = fits(question.text, [each.form for each in told], answers=answers)
    scores = np.full(len(scope), worth.min(initial=0.0))
    scores[rows] = worth
    return scores


def _answers(scope: Scope, rows: Sequence[int]) -> list[bool]:
    """Whether each follows a message that ends with a question."""
    before = scope.beside(np.array(rows, np.int64), -1)
    there = before >= 0
    asked = np.zeros(len(rows), bool)
    asked[there] = [each.form.ends_asking for each in scope.entries.told(before[there].tolist())]
    found: list[bool] = asked.tolist()
    return found


def _keywords(scope: Scope, question: Question, lexical: Floats) -> Floats:
    """(n,) share of the question's terms among an entry's tags and tools; 0 beyond the POOL best by words."""
    matched = np.flatnonzero(lexical)
    rows = matched[np.argsort(-lexical[matched])[:POOL]].tolist()
    scores = np.zeros(len(scope))
    scores[rows] = keywords(question.terms, [each.tag_terms for each in scope.entries.told(rows)])
    return scores


def _weight(restore: RestoreConfig, signal: str, pipeline: PipelineConfig | None = None) -> float:
    given = {**restore.weights, **(pipeline.weights if pipeline else {})}
    return float(given.get(signal, WEIGHTS.get(signal, 0.0)))  # type: ignore[call-overload]
