"""Computes the signals of one question over a whole scope and fuses them into one ranking."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lantern_proxy.config import RestoreConfig
from lantern_proxy.config.retrieval import PipelineConfig, RetrievalConfig
from lantern_proxy.rank import Floats, Ints, ZScores, among_best, best, spread, zsum
from lantern_proxy.restore.dense import Dense, Meaning
from lantern_proxy.restore.facets import Shared, Voice
from lantern_proxy.restore.features import Ranked, day_closeness
from lantern_proxy.restore.light import Reorder
from lantern_proxy.restore.matched import (
    SHARES,
    Matched,
    match_by_embedder_table,
    match_by_shipped_table,
    match_by_vectors,
    smoothed,
)
from lantern_proxy.restore.passages import Passages
from lantern_proxy.restore.question import Evidence, Question, coverage, idf_mass
from lantern_proxy.restore.routes import Mixture, ages_count, fused, mixture, threshold
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.word_table import shipped_table
from lantern_proxy.route import lead
from lantern_proxy.route_types import query_type
from lantern_proxy.signals import has_speaker_names, keywords, speaker_scores
from lantern_proxy.signals.form import Form, form_scores
from lantern_proxy.turn import CLIENT

if TYPE_CHECKING:
    from lantern_proxy.restore.ask import Ask

PRIORS = ("speaker", "form", "session", "days")
"""Signals that rank nothing by themselves; reciprocal rank fusion ignores them."""
POOL = 400
"""How many of the best passages a question block considers."""
CONFIDENCE_POOL, CONFIDENCE_COVERAGE = 10, 0.3
"""BM25 can be confident of its CONFIDENCE_POOL best passages only if one of them covers this share of the question."""
FORM_POOL = 150
"""How many passages, the best by all other signals, are rated by their form and by the days they name."""
ALONE = 2.0
"""Factor of BM25 when there are no vectors; with less, the speaker and form signals would dominate."""
NAMED, ROLE, USER = 2.0, 3.0, 2.0
"""Factors of the speaker signal. NAMED: the question names a speaker, who may only be talked about. ROLE: it asks what
the assistant said, or about the user's own affairs. USER: neither; most of what people ask for was said by the user."""
SESSION_LEXICAL_SHARE = 2 / 3
"""Share of BM25 in the session signal; the rest is the session's best word-by-word match."""
WEIGHTS: Mapping[str, float] = {
    "bm25": 0.5, "vector": 0.75, "late": 1.0, "speaker": 0.8, "keywords": 0.05, "form": 1.0, "session": 0.6,
    "days": 1.5, "alike": 0.5,
}  # fmt: skip
"""Signal -> weight of its z-scores in the default recipe; `restore.weights` overrides it."""
VECTOR_SHARES = (0.07, 0.035)
"""As SHARES, for vectors of whole passages, which already contain some context."""


def gather(
    scope: Scope,
    question: Question,
    ask: "Ask",
    dense: Dense,
    restore: RestoreConfig,
    retrieval: RetrievalConfig,
    light: Reorder | None = None,
) -> Evidence:
    """All signals of a question over the whole scope, and their fusion. Unavailable signals are left out.

    light: reorders the best of the fusion, if given
    """
    mixed = mixture(question.text, retrieval)
    lexical = scope.lexical(question.terms)
    fusion = _Fusion(scope, question, mixed, restore, ask.now)
    _add_lexical(fusion, lexical)
    confidence = 0.0
    if dense.has_word_vectors:
        _add_speaker(fusion)
        confidence = 0.0 if _best_is_present(fusion, ask) else lexical_confidence(scope, question, fusion.total)
    tau = 1.0 if light else threshold(mixed)
    skip = tau < 1 and confidence >= tau
    wanted = not ask.late() and dense.begin(scope, question, ask, skip=skip)
    meaning = dense.compare(scope, question, ask) if wanted else None
    table_matches = _add_vector_or_alike(fusion, dense, meaning, ask, skip=skip, reorders=light is not None)
    vector_matches = _add_late(fusion, dense, meaning, ask)
    _add_days_and_form(fusion, ask.now)
    cosines = meaning.cosines if meaning else None
    total = fusion.total
    if light is not None and not ask.late():
        ranked = Ranked(
            scope=scope, question=question, fused=total, lexical=lexical, cosines=cosines,
            vector_matches=vector_matches, table_matches=table_matches, now=ask.now,
        )  # fmt: skip
        total = light(ranked)
    return Evidence(lexical, cosines, total, fusion.signals, fusion.units, confidence)


def precompute(passages: Passages, rows: Ints, *, vectors: bool, reorders: bool) -> None:
    """Compute what gather() needs of these passages, so that no question waits for it.

    vectors:  there may be an embedder, so that words are not compared by the shipped table
    reorders: the light reranker runs, which needs more features of the passages
    """
    passages.facets(rows)
    table = shipped_table() if reorders or not vectors else None
    if table is not None:
        passages.pieces(rows, table.pieces)
    if reorders:
        passages.traits(rows)
    if reorders and table is not None:
        passages.parts(rows, table.pieces)


class _Fusion:
    """Collects the signals of one question over a scope and fuses them."""

    def __init__(self, scope: Scope, question: Question, mixed: Mixture, restore: RestoreConfig, now: float) -> None:
        self.scope, self.question = scope, question
        self.signals: dict[str, Floats] = {}
        self.units: dict[str, float] = {}
        """Factor of a signal's weight, if it is not 1."""
        self._ages_s = scope.ages(now) if ages_count(mixed) else np.zeros(len(scope))
        self._mixed, self._restore = mixed, restore
        self._known: ZScores = {}
        self._total: Floats | None = None

    def add(self, name: str, scores: Floats, unit: float | None = None) -> None:
        """Add a signal or replace its scores. scores: (n,); unit: factor of its weight, None: as before"""
        self.signals[name], self._total = scores, None
        if unit is not None:
            self.units[name] = unit

    def wants(self, name: str) -> bool:
        """Does the config give the signal a nonzero weight?"""
        return bool(_weight(self._restore, name))

    @property
    def total(self) -> Floats:
        """(n,) the fusion of the signals added so far."""
        if self._total is None:
            self._total = fused(
                self.signals, self._ages_s, self._mixed, self._weigh, rrf_k=self._restore.rrf_k, known=self._known
            )
        return self._total

    def _weigh(self, pipeline: PipelineConfig) -> dict[str, float]:
        """Signal -> weight in one pipeline, in the units of the signals."""
        own = {name: _weight(self._restore, name, pipeline) for name in self.signals}
        if pipeline.fusion == "rrf":
            return own | dict.fromkeys(PRIORS, 0.0)
        return {name: weight * self.units.get(name, 1.0) for name, weight in own.items()}


def _add_lexical(fusion: _Fusion, lexical: Floats) -> None:
    """Add the signals that need neither vectors nor a ranking: `bm25`, `keywords`, `session`."""
    scope = fusion.scope
    fusion.add("bm25", smoothed(scope, lexical, SHARES))
    if lexical.any() and fusion.wants("keywords"):
        fusion.add("keywords", _keywords(scope, fusion.question, lexical))
    if lexical.any() and fusion.wants("session"):
        fusion.add("session", _session(scope, lexical), scope.mean_openness**4)


def _add_speaker(fusion: _Fusion) -> None:
    """Add the signal `speaker`, based on the ranking so far."""
    if fusion.wants("speaker"):
        scores, worth = _speaker(fusion)
        fusion.add("speaker", scores, worth * spread(scores))


def _add_vector(fusion: _Fusion, meaning: Meaning | None) -> None:
    """Add the signal `vector`, or raise the weight of BM25 if there are no vectors. Then compute `speaker` again, which
    depends on the best passages by all other signals."""
    fusion.signals.pop("speaker", None)
    if meaning is None:
        fusion.add("bm25", fusion.signals["bm25"], ALONE)
    else:
        cosines = smoothed(fusion.scope, meaning.cosines - float(meaning.cosines.min()), VECTOR_SHARES)
        # in longer messages a shared word proves less, and a vector contains more context of its own
        fusion.add("vector", cosines, 2.0 - fusion.scope.mean_openness)
    _add_speaker(fusion)


def lexical_confidence(scope: Scope, question: Question, total: Floats) -> float:
    """How clearly BM25 separates its best passages from the rest, 0..1: `route.lead` of their scores, scaled up for
    long messages, whose scores lie closer together. 0 if the best passages cover little of the question, or if it has a
    single term.

    total: (n,) the fusion of all signals that need no vectors
    """
    first = best(total, CONFIDENCE_POOL).tolist()
    mass = idf_mass(scope, question)
    if (
        len(question.terms) < 2
        or max((coverage(mass, scope.passages[row].words) for row in first), default=0.0) < CONFIDENCE_COVERAGE
    ):
        return 0.0
    return min(1.0, lead(total[first].tolist()) / (0.5 + 0.5 * scope.mean_openness))


def _best_is_present(fusion: _Fusion, ask: "Ask") -> bool:
    """Does the client's own text contain the best passage? Then BM25 proves little: that text may be a summary of what
    was lost, which shares words with every question."""
    first = fusion.scope.passages[int(best(fusion.total, 1)[0])]
    return first.passage.id not in ask.shown and first.flat in ask.present


def _add_vector_or_alike(
    fusion: _Fusion, dense: Dense, meaning: Meaning | None, ask: "Ask", *, skip: bool, reorders: bool
) -> Matched | None:
    """Add the signals of vectors or, without vectors, `alike`: word-by-word similarity by the embedder's table of
    single words, or else by the shipped table. Returns the matches by the shipped table, None if it was not used.

    skip:     BM25 was confident enough that no vectors were wanted
    reorders: the light reranker runs, which needs the matches by the shipped table
    """
    alone = meaning is None and fusion.wants("alike")
    if alone and not reorders and dense.has_word_vectors:
        told = match_by_embedder_table(fusion.scope, dense, fusion.question, fusion.total, ask)
        if told is not None:
            _add_matches(fusion, "alike", told)
            return None
    _add_vector(fusion, meaning)
    alone = alone and not (skip and dense.ready)
    like = None
    if (alone or reorders) and not ask.late():
        like = match_by_shipped_table(fusion.scope, fusion.question, fusion.total)
    if alone and like is not None and like.found.words:
        _add_matches(fusion, "alike", like)
    return like


def _add_late(fusion: _Fusion, dense: Dense, meaning: Meaning | None, ask: "Ask") -> Matched | None:
    """Add the signal `late` and return its matches; None if it is not wanted or there is nothing to compare."""
    if meaning is None or meaning.asked is None or not fusion.wants("late") or ask.late():
        return None
    matched = match_by_vectors(fusion.scope, dense, meaning.asked, fusion.total, ask)
    if matched is not None:
        _add_matches(fusion, "late", matched)
    return matched


def _add_matches(fusion: _Fusion, name: str, matched: Matched) -> None:
    """Add a word-by-word signal, and refine the signal `session` with its best match in each session."""
    fusion.add(name, matched.smooth_scores, matched.unit)
    if "session" in fusion.signals:
        in_full = _session_with_matches(fusion.scope, fusion.signals["session"], matched.smooth_scores)
        fusion.add("session", in_full, fusion.units["session"] * spread(in_full))


def _add_days_and_form(fusion: _Fusion, now: float) -> None:
    """Add the signals that only consider the best passages so far: `days`, then `form`, on the ranking updated by
    `days`."""
    rows = among_best(fusion.total, FORM_POOL)
    if fusion.wants("days") and (near := _days(fusion, rows, now)) is not None:
        fusion.add("days", near, spread(near))
        rows = among_best(fusion.total, FORM_POOL)
    if fusion.wants("form"):
        form = _form(fusion, rows)
        fusion.add("form", form, spread(form))


def _session(scope: Scope, lexical: Floats) -> Floats:
    """(n,) how much each passage's whole session is about the question, by BM25. Its weight is lower when messages are
    long, since those can be judged on their own."""
    numbers = scope.session_numbers
    counts = np.maximum(1, np.bincount(numbers))
    found: Floats = (np.bincount(numbers, lexical) / np.sqrt(counts))[numbers]
    return found


def _session_with_matches(scope: Scope, by_words: Floats, matches: Floats) -> Floats:
    """(n,) `by_words` combined with the best word-by-word match of the session, both as z-scores."""
    numbers = scope.session_numbers
    peaks = np.zeros(int(numbers.max()) + 1)
    np.maximum.at(peaks, numbers, matches)
    weights = {"words": SESSION_LEXICAL_SHARE, "matches": 1 - SESSION_LEXICAL_SHARE}
    return zsum({"words": by_words, "matches": peaks[numbers]}, weights)


def _days(fusion: _Fusion, rows: Ints, now: float) -> Floats | None:
    """(n,) how close the days named in the passage, or the day it was said, are to those named in the question; 0 for
    rows not in `rows`. None if the question names no day."""
    near = day_closeness(lambda: fusion.scope.passages.facets(rows), fusion.question.text, now)
    if near is None:
        return None
    scores = np.zeros(len(fusion.scope))
    scores[rows] = near
    return scores


def _speaker(fusion: _Fusion) -> tuple[Floats, float]:
    """(n,) 1 for passages by the speaker that the question is about, else 0, also for all but the POOL best by the
    other signals; and the factor of this signal."""
    scope, question = fusion.scope, fusion.question
    kind = query_type(question.text)
    own = question.personal or kind == "single-session-preference"
    role = "assistant" if kind == "single-session-assistant" else "user"
    rows = among_best(fusion.total, POOL)
    voices = scope.passages.facets(rows).voices
    speakers = [voice.speaker for voice in voices.values]
    names = [voice.name for voice in voices.values] if _has_names(voices) else [""] * len(speakers)
    scores = np.zeros(len(scope))
    scores[rows] = voices.each(speaker_scores(speakers, names, question.words, role))
    if not question.words.isdisjoint(names):
        return scores, NAMED
    return scores, ROLE if own or role == "assistant" else USER


def _form(fusion: _Fusion, rows: Ints) -> Floats:
    """(n,) how well each passage's form fits an answer; rows not in `rows` get the lowest value among these."""
    scope = fusion.scope
    told = scope.passages.facets(rows)
    people = all(voice.speaker in ("user", CLIENT) for voice in told.voices.values) and _has_names(told.voices)
    answers = _answers(scope, rows) if people else None
    worth = form_scores(fusion.question.text, told.forms, answers=answers)
    scores = np.full(len(scope), worth.min(initial=0.0))
    scores[rows] = worth
    return scores


def _has_names(voices: Shared[Voice]) -> bool:
    """Do user messages begin with the speaker's name?"""
    return has_speaker_names(
        [v.name for v in voices.values], [v.speaker for v in voices.values], voices.counts.tolist()
    )


def _answers(scope: Scope, rows: Ints) -> Floats:
    """(len(rows),) 1 for a passage that follows a message ending with a question, else 0."""
    before = scope.neighbours(rows, -1)
    there = before >= 0
    found = np.zeros(len(rows))
    found[there] = scope.passages.facets(before[there]).forms[:, _ENDS_ASKING]
    return found


_ENDS_ASKING = Form._fields.index("ends_asking")


def _keywords(scope: Scope, question: Question, lexical: Floats) -> Floats:
    """(n,) share of the question's terms among each passage's tags and tools; 0 for all but the POOL best by BM25."""
    matched = np.flatnonzero(lexical)
    rows = matched[np.argsort(-lexical[matched])[:POOL]] if len(matched) > POOL else matched
    tags = scope.passages.facets(rows).tags  # often only the names of speakers
    scores = np.zeros(len(scope))
    scores[rows] = tags.each(keywords(question.terms, tags.values))
    return scores


def _weight(restore: RestoreConfig, signal: str, pipeline: PipelineConfig | None = None) -> float:
    """The weight of a signal: the pipeline's, else the config's, else the default."""
    own = restore.weights.get(signal, WEIGHTS.get(signal, 0.0))  # type: ignore[call-overload]
    return float(pipeline.weights.get(signal, own) if pipeline else own)  # type: ignore[call-overload]
