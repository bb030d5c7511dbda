"""Features for the light reranker: a table with one row per candidate, from signals that are computed anyway."""

from bisect import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise, repeat
from operator import contains

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.analyze import query_terms, terms
from lantern_proxy.rank import Floats, Ints, by_place, spread
from lantern_proxy.restore.dense import Matches
from lantern_proxy.restore.facets import Facets, Shared, Voice
from lantern_proxy.restore.matched import Matched
from lantern_proxy.restore.question import Question
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.word_table import compare_sentences
from lantern_proxy.signals.dates import closeness, spans
from lantern_proxy.signals.form import QUESTION_FEATURES, TEXT_FEATURES, question_features
from lantern_proxy.signals.late import CONTEXT, in_context, maxsim
from lantern_proxy.signals.relative import COLUMNS, Positions, columns, log_ranks

Table = npt.NDArray[np.float32]


Columns = tuple[tuple[str, ...], Floats]
"""Names of features, and their values: (len(names), len(rows))."""

_OF_MATCHES = ("late_least", "late_covered", "late_rarest", "late_things", "late_things_rank")
_OF_WORDS = (
    "held", "held_before", "held_after", "held_around", "held_terms", "terms", "rarest", "pairs",
    "rare", "rare_most", "rare_mean", "rare_terms", "rare_before", "rare_after", "rare_held", "rare_rest",
)  # fmt: skip
_OF_SENTENCES = (
    "asks", "tells", "asks_before", "tells_before", "asks_after", "tells_2before", "tells_or_asks_before",
    "asks_cubed", "tells_cubed", "asks_before_cubed", "tells_before_cubed", "asks_after_cubed", "tells_2before_cubed",
    "tells_pieces",
)  # fmt: skip
_OF_ALL = ("fused", "fused_rank", "fused_gap", "fused_before", "fused_after", "fused_session")
_OF_FORM = ("asking", "addressed", "dated", "standing", "said_by_user", "said_by_assistant", "openness")
_OF_PLACE = ("place", "share_of_session", "share_of_all")
_OF_NAMES = ("named", "names_other", "names")
_OF_DAYS = ("days",)
_NEIGHBOUR_TRAITS = ("questions", "ends_asking", "time_words", "chars", "attached")
_OF_FORMS = (
    *(f"asks_{name}" for name in QUESTION_FEATURES), *TEXT_FEATURES,
    *(f"{name}_{side}" for name in _NEIGHBOUR_TRAITS for side in ("before", "after")),
    "when_and_time", "number_and_number",
)  # fmt: skip


def _of(signal: str) -> tuple[str, ...]:
    return tuple(f"{signal}{part}" for part in COLUMNS)


TABLE_FEATURES = (*_of("alike"), *_of("alike_context"), *_OF_SENTENCES)
"""Features computed with the shipped word table."""
LEXICAL = (
    *_of("words"), *_of("things"), *_OF_WORDS, *_OF_PLACE, *_OF_NAMES, *_OF_DAYS, *_OF_FORMS, *_OF_ALL,
    *_OF_FORM, *TABLE_FEATURES,
)  # fmt: skip
"""Features that need no vectors."""
FEATURES = (*LEXICAL, *_of("vector"), *_of("late"), *_of("context"), *_OF_MATCHES)
"""All features, in the order of the table."""


class Ranked(Struct, frozen=True, kw_only=True):
    """A scope ranked for a question without a model, and the signals behind the ranking."""

    scope: Scope
    question: Question
    fused: Floats
    """(n,) the scores of the ranking."""
    lexical: Floats
    cosines: Floats | None
    """Both (n,), before smoothing over neighbours."""
    vector_matches: Matched | None
    """Word-by-word matches by vectors."""
    table_matches: Matched | None
    """Word-by-word matches by the shipped table."""
    now: float
    """Unix seconds, to resolve dates in the question; 0: use the time of the newest passage."""


def table(ranked: Ranked, rows: Ints, wanted: Sequence[str]) -> Table:
    """(len(rows), len(wanted)) float32. wanted: names of FEATURES, none that needs a missing signal"""
    scope, question, matched = ranked.scope, ranked.question, ranked.vector_matches
    facets = scope.passages.facets(rows)
    voices = facets.voices
    names = frozenset(voice.name for voice in voices.values) - {""}
    things = [term for term in question.terms if term not in names] or list(question.terms)
    signals = _signals(ranked, scope.lexical(things))
    stand = Positions(scope.places, scope.session_numbers, rows)
    low = float(ranked.fused.min())
    *relative, of_all = columns(np.array([*signals.values(), ranked.fused - low]), stand)
    wide = np.vstack([rows, scope.neighbours(rows, np.array([[-1], [1], [-2]]))])
    around = wide[:3]
    parts = [
        *((_of(signal), values) for signal, values in zip(signals, relative, strict=True)),
        _words(scope, question, things, around, signals["things"]),
        (_OF_PLACE, scope.progress[:, rows]),
        _names(voices, question, names),
        _days(facets, question, ranked.now),
        _forms(scope, question, around),
        _all(ranked.fused, of_all),
        _form(scope, facets.forms, voices, rows),
    ]
    if ranked.table_matches is not None:
        parts.append(_sentences(scope, ranked.table_matches.found, wide))
    if matched is not None:
        parts.append(_matches(matched, rows, names))
    made = np.concatenate([values for _, values in parts], dtype=np.float32)
    return made[_order(tuple(names for names, _ in parts), tuple(wanted))].T


@lru_cache
def _order(made: tuple[tuple[str, ...], ...], wanted: tuple[str, ...]) -> Ints:
    """For each name in `wanted` its index among the names in `made`."""
    place = {name: n for n, name in enumerate(chain.from_iterable(made))}
    return np.array([place[name] for name in wanted])


def _signals(ranked: Ranked, things: Floats) -> dict[str, Floats]:
    """The available signals, each (n,) >= 0. things: BM25 without speaker names, which half of all passages contain"""
    found = {"words": ranked.lexical, "things": things}
    if ranked.table_matches is not None:
        found |= {
            "alike": ranked.table_matches.scores,
            "alike_context": _in_context(ranked.table_matches, ranked.scope),
        }
    if ranked.cosines is not None:
        found["vector"] = ranked.cosines - ranked.cosines.min()
    if ranked.vector_matches is not None:
        found |= {"late": ranked.vector_matches.scores, "context": _in_context(ranked.vector_matches, ranked.scope)}
    return found


def _all(fused: Floats, stood: Floats) -> Columns:
    """Features of the untrained ranking: the margin over others, the distance to the best, the scores of neighbours.

    stood: `relative.columns` of the fused scores above their minimum
    """
    of = dict(zip(COLUMNS, stood, strict=True))
    reach = (float(fused.max()) - float(fused.min())) / (spread(fused) or 1.0)
    values = (
        of["_z"], of["_rank"], reach * (1 - of[""]), reach * of["_before"], reach * of["_after"],
        reach * (1 - of["_session"]),
    )  # fmt: skip
    return _OF_ALL, np.array(values)


def _form(scope: Scope, forms: Floats, voices: Shared[Voice], rows: Ints) -> Columns:
    """Features of each passage's form and speaker."""
    asking, addressed, dated, _, standing, _ = forms.T
    user, assistant = (
        voices.each([voice.speaker == role for voice in voices.values]) for role in ("user", "assistant")
    )
    return _OF_FORM, np.array([asking, addressed, dated, standing, user, assistant, scope.openness[rows]])


def _words(scope: Scope, question: Question, things: Sequence[str], around: Ints, scores: Floats) -> Columns:
    """Coverage features, without speaker names. around: (3, m) the rows, and those of the messages before and after;
    scores: (n,) BM25 by `things`"""
    rows = around[0]
    mass = {term: scope.idf(term) for term in things}
    total = sum(mass.values()) or 1.0
    near = np.zeros(len(scope), bool)
    near[around[around >= 0]] = True
    holding = np.flatnonzero(near & (scores > 0))
    words = [read.words for read in scope.passages.of(holding.tolist())]
    there = [np.fromiter(map(contains, words, repeat(term)), bool, len(words)) for term in mass]
    held, count = np.zeros(len(scope)), np.zeros(len(scope))
    held[holding] = sum(weight * each for weight, each in zip(mass.values(), there, strict=True))
    count[holding] = sum(there)
    best, at = by_place(held / total, scope.places, 1)
    own, before, after = held[rows] / total, best[at[rows] - 1], best[at[rows] + 1]
    constant = np.ones(len(rows))
    (rare, most, many), (rare_before, *_), (rare_after, *_) = (
        scope.weighed(around.ravel()).T.reshape(3, 3, -1).swapaxes(0, 1)
    )
    values = (
        own,
        before,
        after,
        np.minimum(1.0, own + before + after),
        count[rows],
        constant * len(things),
        constant * max(mass.values(), default=0.0),
        _pairs(scope, question, rows, count[rows]),
        rare,
        most,
        rare / np.maximum(1, many),
        many,
        rare_before,
        rare_after,
        held[rows] / np.maximum(1e-9, rare),
        rare - held[rows],
    )
    return _OF_WORDS, np.array(values)


def _sentences(scope: Scope, matches: Matches, around: Ints) -> Columns:
    """How well the question matches a passage's statements, its questions, and those of its neighbours: an answer
    repeats little of the question just before it.

    around: (4, m) the rows, and those of the messages before, after, and two before
    """
    assert matches.pieces is not None
    asks, tells, count = compare_sentences(scope, matches.pieces, around[:3], around[[0, 1, 3]])
    likely = CONTEXT * asks[:, 1]
    parts = (asks[:, 0], tells[:, 0], asks[:, 1], tells[:, 1], asks[:, 2], tells[:, 2], np.maximum(tells[:, 0], likely))
    best = np.clip(np.array(parts), 0, 1)
    share = matches.weights / (float(matches.weights.sum()) or 1.0)
    return _OF_SENTENCES, np.vstack([share @ best, share @ (best * best * best)[:-1], count[None, 0]])


def _pairs(scope: Scope, question: Question, rows: Ints, count: Floats) -> Floats:
    """(len(rows),) how many adjacent word pairs of the question occur in the passage."""
    asked_pairs = [f"\n{first}\n{second}\n" for first, second in set(pairwise(terms(question.text)))]
    holding = np.flatnonzero(count)
    said = [read.sequence for read in scope.passages.of(rows[holding].tolist())]
    starts = [0, *accumulate(len(each) for each in said)]
    joined = "".join(said)  # searched once per pair; two line breaks in a row separate the passages
    counts = [0.0] * len(said)
    for pair in asked_pairs:
        at = joined.find(pair)
        while at >= 0:
            n = bisect(starts, at)
            counts[n - 1] += 1
            at = joined.find(pair, starts[n])
    found = np.zeros(len(rows))
    found[holding] = counts
    return found


def _names(voices: Shared[Voice], question: Question, names: frozenset[str]) -> Columns:
    """Which speakers the question names. names: the speaker names at the start of passages"""
    asked_of = names & question.words
    named = voices.each([voice.name in asked_of for voice in voices.values])
    other = 1.0 - named if asked_of else np.zeros(len(named))
    return _OF_NAMES, np.array([named, other, np.full(len(named), float(len(asked_of)))])


def day_closeness(facets: Callable[[], Facets], question: str, now: float) -> Floats | None:
    """(n,) 0..1, how close the days that a passage names, or the day it was said, are to those that the question names;
    None if it names none.

    facets: gives those of n passages; called only if needed
    now:    Unix seconds, of the question; 0: use the time of the newest passage
    """
    asked_of = spans(question, now or float(facets().created_at.max(initial=0.0)))
    if not asked_of:
        return None
    days = facets().days
    return days.each([closeness(asked_of, (*named, (said, said))) for named, said in days.values])


def _days(facets: Facets, question: Question, now: float) -> Columns:
    """As day_closeness(); -1 if the question names no day."""
    near = day_closeness(lambda: facets, question.text, now)
    return _OF_DAYS, (np.full(len(facets.forms), -1.0) if near is None else near)[None]


def _forms(scope: Scope, question: Question, around: Ints) -> Columns:
    """What kind of text each passage and its neighbours are, and what kind of answer the question wants.

    around: (3, m) the rows, and those of the messages before and after
    """
    traits = scope.passages.traits(around.ravel()).T.reshape(len(TEXT_FEATURES), *around.shape)
    wants = np.array(question_features(question.text))
    values = (
        np.repeat(wants[:, None], around.shape[1], axis=1),
        traits[:, 0],
        traits[_NEIGHBOUR_TRAIT_COLUMNS, 1:].reshape(-1, around.shape[1]),
        wants[_WANTED][:, None] * traits[_WANTS, 0],
    )
    return _OF_FORMS, np.concatenate(values)


_NEIGHBOUR_TRAIT_COLUMNS = [TEXT_FEATURES.index(name) for name in _NEIGHBOUR_TRAITS]
_WANTED = [QUESTION_FEATURES.index("when"), QUESTION_FEATURES.index("number")]
_WANTS = [TEXT_FEATURES.index("time_words"), TEXT_FEATURES.index("numbers")]


def _in_context(matched: Matched, scope: Scope) -> Floats:
    """(n,) MaxSim above its minimum, where a word may also match in the previous message, however long both are.

    The untrained fusion does this for short messages only: for long ones it gained on LoCoMo and lost on BEAM.
    """
    if not matched.found.words:
        return np.zeros(len(scope))
    compared = maxsim(in_context(matched.found.best, scope.places[matched.rows]), matched.found.weights)
    scores = np.zeros(len(scope))
    scores[matched.rows] = compared - compared.min()
    return scores


def _matches(matched: Matched, rows: Ints, names: frozenset[str]) -> Columns:
    """Word-by-word features; zeros for rows that were not compared."""
    weights = matched.found.weights / matched.found.weights.sum()
    best = np.zeros((len(weights), len(rows)))
    at = np.searchsorted(matched.rows, rows)
    compared = matched.rows[np.minimum(at, len(matched.rows) - 1)] == rows
    best[:, compared] = matched.found.best[:, at[compared]]
    things = weights * [names.isdisjoint(query_terms(word)) for word in matched.found.words]
    about = things @ best / (float(things.sum()) or 1.0)
    values = (best.min(axis=0), weights @ (best > 0.5), best[int(np.argmax(weights))], about, log_ranks(about))
    return _OF_MATCHES, np.array(values)
