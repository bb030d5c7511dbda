"""What the light reranker looks at: a table with one row a candidate, from signals that are there anyway."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lantern_proxy.analyze import query_terms, terms
from lantern_proxy.rank import Floats, Ints, smooth
from lantern_proxy.restore.dense import Matches
from lantern_proxy.restore.passages import Told
from lantern_proxy.restore.question import Question
from lantern_proxy.restore.scope import Scope
from lantern_proxy.signals.dates import closeness, day_of, spans
from lantern_proxy.signals.form import ASKED, TRAITS, asked
from lantern_proxy.signals.late import in_context, maxsim

Table = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Matched:
    """Late interaction over a scope."""

    rows: Ints
    """Passages that were compared, ascending."""
    found: Matches
    """At these rows."""
    scores: Floats
    """(n,) MaxSim above the lowest; 0 for passages that were not compared."""
    flowed: Floats
    """(n,) the same where a word may also be found in the message before, with that of neighbours."""
    unit: float
    """How wide it spreads over all, for its spread where it is known."""


Columns = dict[str, Floats]

_OF_A_SIGNAL = (
    "", "_z", "_rank", "_near", "_near_rank", "_2before", "_before", "_after", "_2after", "_session",
    "_session_sum", "_session_rank",
)  # fmt: skip
_OF_MATCHES = ("late_least", "late_covered", "late_rarest", "late_things", "late_things_rank")
_OF_WORDS = ("held", "held_before", "held_after", "held_around", "held_terms", "terms", "rarest", "pairs")
_BESIDE = ("questions", "ends_asking", "time_words", "chars", "attached")
_OF_ALL = ("fused", "fused_rank", "fused_gap", "fused_before", "fused_after", "fused_session")
_OF_FORM = ("asking", "addressed", "dated", "said_by_user", "said_by_assistant", "openness")
_OF_PLACE = ("place", "share_of_session", "share_of_all", "named", "names_other", "names", "days")


def _of(signal: str) -> tuple[str, ...]:
    return tuple(f"{signal}{part}" for part in _OF_A_SIGNAL)


ALIKE = (*_of("alike"), *_of("alike_context"))
"""Features by the shipped table of words."""
LEXICAL = (
    *_of("words"), *_of("things"), *_OF_WORDS, *_OF_PLACE, *(f"asks_{name}" for name in ASKED), *TRAITS,
    *(f"{name}_{side}" for name in _BESIDE for side in ("before", "after")), "when_and_time", "number_and_number",
    *_OF_ALL, *_OF_FORM, *ALIKE,
)  # fmt: skip
"""Features that need no vectors."""
FEATURES = (*LEXICAL, *_of("vector"), *_of("late"), *_of("context"), *_OF_MATCHES)
"""All there are, in the order of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A scope ranked for a question without a model, and the signals that it was ranked by."""

    scope: Scope
    question: Question
    fused: Floats
    """(n,) the ranking."""
    lexical: Floats
    cosines: Floats | None
    """Both (n,), before neighbours flow in."""
    matched: Matched | None
    like: Matched | None
    """The same by the shipped table of words."""
    now: float
    """Unix seconds, for the dates in the question; 0: when the last passage was said."""


def table(ranked: Ranked, rows: Ints, wanted: Sequence[str]) -> Table:
    """(len(rows), len(wanted)) float32. wanted: names of FEATURES, none of a signal that is None"""
    scope, question, cosines, matched = ranked.scope, ranked.question, ranked.cosines, ranked.matched
    told = scope.passages.told(rows.tolist())
    said_by = [each.name for each in told]
    names = frozenset(said_by) - {""}
    columns = _signal("words", ranked.lexical, scope, rows) | _things(scope, question, rows, names)
    columns |= _places(scope, rows) | _names(said_by, question, names) | _days(told, question, ranked.now)
    columns |= _forms(scope, question, rows) | _all(ranked.fused, scope, rows) | _form(scope, told, rows)
    if ranked.like is not None:
        columns |= _signal("alike", ranked.like.scores, scope, rows)
        columns |= _signal("alike_context", _in_context(ranked.like, scope), scope, rows)
    if cosines is not None:
        columns |= _signal("vector", cosines - cosines.min(), scope, rows)
    if matched is not None:
        columns |= _signal("late", matched.scores, scope, rows) | _matches(matched, rows, names)
        columns |= _signal("context", _in_context(matched, scope), scope, rows)
    made = np.empty((len(wanted), len(rows)), np.float32)
    for place, name in enumerate(wanted):
        made[place] = columns[name]
    return made.T


def _signal(name: str, scores: Floats, scope: Scope, rows: Ints) -> Columns:
    """A signal by itself, beside the others, beside its neighbours, and in its session."""
    top = float(scores.max(initial=0.0)) or 1.0
    flowed = smooth(scores, scope.places)
    best = _by_place(scores, scope.places)
    own = scope.places[rows] - int(scope.places.min()) + _PAD
    session = np.zeros(int(scope.session_numbers.max()) + 1)
    np.maximum.at(session, scope.session_numbers, scores)
    sums: Floats = np.bincount(scope.session_numbers, scores).astype(np.float64)
    found = (
        scores[rows] / top,
        (scores[rows] - scores.mean()) / (float(scores.std()) or 1.0),
        _log_rank(scores)[rows],
        flowed[rows] / (float(flowed.max()) or 1.0),
        _log_rank(flowed)[rows],
        *(best[own + by] / top for by in (-2, -1, 1, 2)),
        session[scope.session_numbers[rows]] / top,
        (sums / (float(sums.max()) or 1.0))[scope.session_numbers[rows]],
        _log_rank(sums)[scope.session_numbers[rows]],
    )
    return {f"{name}{part}": values for part, values in zip(_OF_A_SIGNAL, found, strict=True)}


_PAD = 2


def _by_place(scores: Floats, places: Ints) -> Floats:
    """Best score at each place from the first on, with _PAD empty ones on both sides."""
    first = int(places.min())
    best = np.zeros(int(places.max()) - first + 1 + 2 * _PAD)
    np.maximum.at(best, places - first + _PAD, scores)
    return best


def _log_rank(scores: Floats) -> Floats:
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return np.log1p(ranks)


def _all(fused: Floats, scope: Scope, rows: Ints) -> Columns:
    """What the untrained ranking says: how far above the others, how far behind the best, beside its neighbours."""
    spread = float(fused.std()) or 1.0
    best = _by_place(fused - fused.min(), scope.places) / spread
    own = scope.places[rows] - int(scope.places.min()) + _PAD
    session = np.full(int(scope.session_numbers.max()) + 1, -np.inf)
    np.maximum.at(session, scope.session_numbers, fused)
    of_session = session[scope.session_numbers[rows]]
    values = (
        (fused[rows] - fused.mean()) / spread, _log_rank(fused)[rows], (fused.max() - fused[rows]) / spread,
        best[own - 1], best[own + 1], (fused.max() - of_session) / spread,
    )  # fmt: skip
    return dict(zip(_OF_ALL, values, strict=True))


def _form(scope: Scope, told: Sequence[Told], rows: Ints) -> Columns:
    forms, speakers = [each.form for each in told], [each.speaker for each in told]
    values = (
        [form.asking for form in forms],
        [form.addressed for form in forms],
        [form.dated for form in forms],
        [speaker == "user" for speaker in speakers],
        [speaker == "assistant" for speaker in speakers],
        scope.openness[rows],
    )
    return {name: np.array(value, np.float64) for name, value in zip(_OF_FORM, values, strict=True)}


def _things(scope: Scope, question: Question, rows: Ints, names: frozenset[str]) -> Columns:
    """BM25 and coverage without the names of speakers: half of all passages carry those."""
    things = [term for term in question.terms if term not in names] or list(question.terms)
    scores = scope.lexical(things)
    mass = {term: scope.idf(term) for term in things}
    total = sum(mass.values()) or 1.0
    held = np.zeros(len(scope))
    count = np.zeros(len(scope))
    near = np.unique(np.concatenate([rows, scope.beside(rows, -1), scope.beside(rows, 1)]))
    near = near[(near >= 0) & (scores[near] > 0)]
    words = [read.words for read in scope.passages.of(near.tolist())]
    for term, weight in mass.items():
        there = np.array([term in own for own in words], bool)
        held[near] += weight * there
        count[near] += there
    held /= total
    best = _by_place(held, scope.places)
    own = scope.places[rows] - int(scope.places.min()) + _PAD
    before, after = best[own - 1], best[own + 1]
    around = np.minimum(1.0, held[rows] + before + after)
    constant = np.ones(len(rows))
    values = (
        held[rows],
        before,
        after,
        around,
        count[rows],
        constant * len(things),
        constant * max(mass.values(), default=0.0),
        _pairs(scope, question, rows, count[rows]),
    )
    return _signal("things", scores, scope, rows) | dict(zip(_OF_WORDS, values, strict=True))


def _pairs(scope: Scope, question: Question, rows: Ints, count: Floats) -> Floats:
    """(len(rows),) how many words that stand side by side in the question do so in the passage."""
    asked_pairs = [f"\n{first}\n{second}\n" for first, second in set(pairwise(terms(question.text)))]
    holding = np.flatnonzero(count)
    found = np.zeros(len(rows))
    for n, read in zip(holding.tolist(), scope.passages.of(rows[holding].tolist()), strict=True):
        found[n] = sum([pair in read.sequence for pair in asked_pairs])
    return found


def _places(scope: Scope, rows: Ints) -> Columns:
    sessions, places = scope.session_numbers, scope.places
    first = np.full(int(sessions.max()) + 1, np.iinfo(np.int64).max)
    last = np.zeros(len(first), np.int64)
    np.minimum.at(first, sessions, places)
    np.maximum.at(last, sessions, places)
    place = (places - first[sessions])[rows].astype(np.float64)
    length = np.maximum(1, last - first)[sessions[rows]]
    span = max(1, int(places.max()) - int(places.min()))
    return {
        "place": place, "share_of_session": place / length, "share_of_all": (places[rows] - places.min()) / span,
    }  # fmt: skip


def _names(said_by: Sequence[str], question: Question, names: frozenset[str]) -> Columns:
    """said_by: the name that each passage begins with"""
    asked_of = names & question.words
    named = np.array([name in asked_of for name in said_by], np.float64)
    other = 1.0 - named if asked_of else np.zeros(len(said_by))
    return {"named": named, "names_other": other, "names": np.full(len(said_by), float(len(asked_of)))}


def nearness(told: Callable[[], Sequence[Told]], question: str, now: float) -> Floats | None:
    """(n,) 0..1, how near the days are that question and passage name, or on which it was said. None: it names none.

    told: (n,) passages, asked for when the question names a day
    now:  Unix seconds, of the question; 0: when the last passage was said
    """
    days = spans(question, now or max((each.created_at for each in told()), default=0.0))
    if not days:
        return None
    said = [(each.days, day_of(each.created_at)) for each in told()]
    return np.array([closeness(days, (*named, (day, day))) for named, day in said])


def _days(told: Sequence[Told], question: Question, now: float) -> Columns:
    """How near the days are that question and passage name; -1 when the question names none."""
    near = nearness(lambda: told, question.text, now)
    return {"days": np.full(len(told), -1.0) if near is None else near}


def _forms(scope: Scope, question: Question, rows: Ints) -> Columns:
    beside = {"": rows, "_before": scope.beside(rows, -1), "_after": scope.beside(rows, 1)}
    all_of_them = np.split(scope.traits(np.concatenate(list(beside.values()))).T, 3, axis=1)
    columns: Columns = {}
    for side, traits in zip(beside, all_of_them, strict=True):
        columns |= {f"{name}{side}": traits[TRAITS.index(name)] for name in (_BESIDE if side else TRAITS)}
    wants = dict(zip(ASKED, asked(question.text), strict=True))
    columns |= {f"asks_{name}": np.full(len(rows), value) for name, value in wants.items()}
    columns["when_and_time"] = wants["when"] * columns["time_words"]
    columns["number_and_number"] = wants["number"] * columns["numbers"]
    return columns


def _in_context(matched: Matched, scope: Scope) -> Floats:
    """(n,) MaxSim above the lowest where a word may also be found in the message before, however long both are.

    Only here: in the untrained fusion, where it gained on LoCoMo and lost on BEAM, it counts among short messages only.
    """
    if not matched.found.words:
        return np.zeros(len(scope))
    compared = maxsim(in_context(matched.found.best, scope.places[matched.rows]), matched.found.weights)
    scores = np.zeros(len(scope))
    scores[matched.rows] = compared - compared.min()
    return scores


def _matches(matched: Matched, rows: Ints, names: frozenset[str]) -> Columns:
    """Of rows that were not compared word by word: 0."""
    weights = matched.found.weights / matched.found.weights.sum()
    best = np.zeros((len(weights), len(rows)))
    at = np.searchsorted(matched.rows, rows)
    compared = matched.rows[np.minimum(at, len(matched.rows) - 1)] == rows
    best[:, compared] = matched.found.best[:, at[compared]]
    things = weights * [names.isdisjoint(query_terms(word)) for word in matched.found.words]
    about = things @ best / (float(things.sum()) or 1.0)
    values = (best.min(axis=0), weights @ (best > 0.5), best[int(np.argmax(weights))], about, _log_rank(about))
    return dict(zip(_OF_MATCHES, values, strict=True))
