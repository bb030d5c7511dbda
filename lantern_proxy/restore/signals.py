"""The signals of one question over a whole scope, fused into one ranking."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lantern_proxy.config import RestoreConfig
from lantern_proxy.config.retrieval import PipelineConfig, RetrievalConfig
from lantern_proxy.rank import Floats, Ints, Weighed, among_best, best, spread, zsum
from lantern_proxy.restore.alike import shipped
from lantern_proxy.restore.dense import Dense, Meaning
from lantern_proxy.restore.facets import Shared, Voice
from lantern_proxy.restore.features import Ranked, nearness
from lantern_proxy.restore.light import Reorder
from lantern_proxy.restore.matched import SHARES, Matched, by_shipped_table, by_table, by_vectors, smoothed
from lantern_proxy.restore.passages import Passages
from lantern_proxy.restore.question import Evidence, Question, coverage, masses
from lantern_proxy.restore.routes import Mixture, ages_count, fused, mixture, threshold
from lantern_proxy.restore.scope import Scope
from lantern_proxy.route import lead
from lantern_proxy.route_types import query_type
from lantern_proxy.signals import keywords, named, said_by
from lantern_proxy.signals.form import Form, fits
from lantern_proxy.turn import CLIENT

if TYPE_CHECKING:
    from lantern_proxy.restore.ask import Ask

PRIORS = ("speaker", "form", "session", "days")
"""Signals without a ranking of their own: reciprocal ranks leave them out."""
POOL = 400
"""How many of the best passages a question block looks at."""
SURE_BY, SURE_HELD = 10, 0.3
"""Words can only be sure of their best SURE_BY passages if one of these holds this share of the question."""
FORM_POOL = 150
"""How many passages are judged by their form and by the days they name: the best by all other signals."""
ALONE = 2.0
"""How many times as much BM25 counts where there are no vectors: with less, speaker and form would decide."""
NAMED, ROLE, USER = 2.0, 3.0, 2.0
"""How many times as much the right speaker counts. NAMED: the question names a speaker, but that may be somebody who
was only spoken of. ROLE: it asks for what the assistant said, or for the user's own matters. USER: neither; most of
what people ask for was said by the user."""
SESSION_BY_WORDS = 2 / 3
"""What a session is about is told by this share by its words, and for the rest by its best match word by word."""
WEIGHTS: Mapping[str, float] = {
    "bm25": 0.5, "vector": 0.75, "late": 1.0, "speaker": 0.8, "keywords": 0.05, "form": 1.0, "session": 0.6,
    "days": 1.5, "alike": 0.5,
}  # fmt: skip
"""Signal -> weight of its z-scores in the default recipe; `restore.weights` overrides it."""
VECTOR_SHARES = (0.07, 0.035)
"""The SHARES of vectors of whole passages, which know something of their context already."""


def gather(
    scope: Scope,
    question: Question,
    ask: "Ask",
    dense: Dense,
    restore: RestoreConfig,
    retrieval: RetrievalConfig,
    light: Reorder | None = None,
) -> Evidence:
    """All signals of a question over the whole scope, and their fusion, without signals that are unavailable.

    light: reorders the best of the fusion, if given
    """
    mixed = mixture(question.text, retrieval)
    lexical = scope.lexical(question.terms)
    fusion = _Fusion(scope, question, mixed, restore, ask.now)
    _by_words(fusion, lexical)
    sure = 0.0
    if dense.by_word:
        _said_by(fusion)
        sure = 0.0 if _is_held(fusion, ask) else sureness(scope, question, fusion.total)
    tau = 1.0 if light else threshold(mixed)
    skip = tau < 1 and sure >= tau
    wanted = not ask.late() and dense.begin(scope, question, ask, skip=skip)
    meaning = dense.look(scope, question, ask) if wanted else None
    like = _in_other_words(fusion, dense, meaning, ask, skip=skip, reorders=light is not None)
    matched = _word_by_word(fusion, dense, meaning, ask)
    _over_the_best(fusion, ask.now)
    cosines = meaning.cosines if meaning else None
    total = fusion.total
    if light is not None and not ask.late():
        ranked = Ranked(
            scope=scope, question=question, fused=total, lexical=lexical, like=like, cosines=cosines, matched=matched,
            now=ask.now,
        )  # fmt: skip
        total = light(ranked)
    return Evidence(lexical, cosines, total, fusion.signals, fusion.units, sure)


def make_ahead(passages: Passages, rows: Ints, *, vectors: bool, reorders: bool) -> None:
    """Compute what gather() needs of these passages, so that no question waits for it.

    vectors:  there may be an embedder, so that words are not compared by the shipped table
    reorders: the light reranker comes next, which reads more of them
    """
    passages.facets(rows)
    table = shipped() if reorders or not vectors else None
    if table is not None:
        passages.pieces(rows, table.pieces)
    if reorders:
        passages.traits(rows)
    if reorders and table is not None:
        passages.parts(rows, table.pieces)


class _Fusion:
    """Collects the signals of one question over a scope, and fuses them."""

    def __init__(self, scope: Scope, question: Question, mixed: Mixture, restore: RestoreConfig, now: float) -> None:
        self.scope, self.question = scope, question
        self.signals: dict[str, Floats] = {}
        self.units: dict[str, float] = {}
        """What a signal's weight is multiplied by, where that is not 1."""
        self._ages_s = scope.ages(now) if ages_count(mixed) else np.zeros(len(scope))
        self._mixed, self._restore = mixed, restore
        self._known: Weighed = {}
        self._total: Floats | None = None

    def add(self, name: str, scores: Floats, unit: float | None = None) -> None:
        """Add a signal, or replace its scores. scores: (n,); unit: what its weight is multiplied by; None: as before"""
        self.signals[name], self._total = scores, None
        if unit is not None:
            self.units[name] = unit

    def wants(self, name: str) -> bool:
        """Does the config give the signal a weight for all types of questions?"""
        return bool(_weight(self._restore, name))

    @property
    def total(self) -> Floats:
        """(n,) the fusion of the signals that were added so far."""
        if self._total is None:
            self._total = fused(
                self.signals, self._ages_s, self._mixed, self._weigh, rrf_k=self._restore.rrf_k, known=self._known
            )
        return self._total

    def _weigh(self, pipeline: PipelineConfig) -> dict[str, float]:
        own = {name: _weight(self._restore, name, pipeline) for name in self.signals}
        if pipeline.fusion == "rrf":
            return own | dict.fromkeys(PRIORS, 0.0)
        return {name: weight * self.units.get(name, 1.0) for name, weight in own.items()}


def _by_words(fusion: _Fusion, lexical: Floats) -> None:
    """Add the signals that need neither vectors nor a ranking: `bm25`, `keywords`, `session`."""
    scope = fusion.scope
    fusion.add("bm25", smoothed(scope, lexical, SHARES))
    if lexical.any() and fusion.wants("keywords"):
        fusion.add("keywords", _keywords(scope, fusion.question, lexical))
    if lexical.any() and fusion.wants("session"):
        fusion.add("session", _session(scope, lexical), scope.mean_openness**4)


def _said_by(fusion: _Fusion) -> None:
    """Add the signal `speaker`, by the ranking so far."""
    if fusion.wants("speaker"):
        scores, worth = _speaker(fusion)
        fusion.add("speaker", scores, worth * spread(scores))


def _over_all(fusion: _Fusion, meaning: Meaning | None) -> None:
    """Add the signal `vector`, or let words count for more where there are no vectors. Then `speaker` anew, which looks
    at the best by all other signals."""
    fusion.signals.pop("speaker", None)
    if meaning is None:
        fusion.add("bm25", fusion.signals["bm25"], ALONE)
    else:
        cosines = smoothed(fusion.scope, meaning.cosines - float(meaning.cosines.min()), VECTOR_SHARES)
        # the longer the messages, the less a word in common proves, and the more of a vector's context is their own
        fusion.add("vector", cosines, 2.0 - fusion.scope.mean_openness)
    _said_by(fusion)


def sureness(scope: Scope, question: Question, total: Floats) -> float:
    """How sure words are of their best passages, 0..1: `route.lead` of their scores, the more the longer the messages,
    whose scores lie closer together. 0 where the best hold little of what is asked, and for one word alone.

    total: (n,) the fusion of all that needs no vectors
    """
    first = best(total, SURE_BY).tolist()
    mass = masses(scope, question)
    if (
        len(question.terms) < 2
        or max((coverage(mass, scope.passages[row].words) for row in first), default=0.0) < SURE_HELD
    ):
        return 0.0
    return min(1.0, lead(total[first].tolist()) / (0.5 + 0.5 * scope.mean_openness))


def _is_held(fusion: _Fusion, ask: "Ask") -> bool:
    """Does the client itself show the best passage? Then words prove little: it may be a summary of what was lost,
    which has the words of every question."""
    first = fusion.scope.passages[int(best(fusion.total, 1)[0])]
    return first.passage.id not in ask.shown and first.flat in ask.present


def _in_other_words(
    fusion: _Fusion, dense: Dense, meaning: Meaning | None, ask: "Ask", *, skip: bool, reorders: bool
) -> Matched | None:
    """Add what vectors say; without them, `alike`: what a table of single words says, that of the embedder or else the
    shipped one. Returns what the shipped table says, None where it was not asked.

    skip:     words were sure enough, so that no vectors were wanted
    reorders: the light reranker comes next, and reads what the shipped table says
    """
    alone = meaning is None and fusion.wants("alike")
    if alone and not reorders and dense.by_word:
        told = by_table(fusion.scope, dense, fusion.question, fusion.total, ask)
        if told is not None:
            _match(fusion, "alike", told)
            return None
    _over_all(fusion, meaning)
    alone = alone and not (skip and dense.ready)
    like = None
    if (alone or reorders) and not ask.late():
        like = by_shipped_table(fusion.scope, fusion.question, fusion.total)
    if alone and like is not None and like.found.words:
        _match(fusion, "alike", like)
    return like


def _word_by_word(fusion: _Fusion, dense: Dense, meaning: Meaning | None, ask: "Ask") -> Matched | None:
    """Add the signal `late`, and return it; None: it is not wanted, or there is nothing to compare."""
    if meaning is None or meaning.asked is None or not fusion.wants("late") or ask.late():
        return None
    matched = by_vectors(fusion.scope, dense, meaning.asked, fusion.total, ask)
    if matched is not None:
        _match(fusion, "late", matched)
    return matched


def _match(fusion: _Fusion, name: str, matched: Matched) -> None:
    """Add a signal of words that were compared one by one, and what it says of whole sessions."""
    fusion.add(name, matched.flowed, matched.unit)
    if "session" in fusion.signals:
        in_full = _session_in_full(fusion.scope, fusion.signals["session"], matched.flowed)
        fusion.add("session", in_full, fusion.units["session"] * spread(in_full))


def _over_the_best(fusion: _Fusion, now: float) -> None:
    """Add the signals that only look at the best passages so far: `days`, then `form`, at the ranking that `days`
    left."""
    rows = among_best(fusion.total, FORM_POOL)
    if fusion.wants("days") and (near := _days(fusion, rows, now)) is not None:
        fusion.add("days", near, spread(near))
        rows = among_best(fusion.total, FORM_POOL)
    if fusion.wants("form"):
        form = _form(fusion, rows)
        fusion.add("form", form, spread(form))


def _session(scope: Scope, lexical: Floats) -> Floats:
    """(n,) how much of the question the whole session of each passage is about, by words. Its weight is less where
    messages are long: those stand for themselves."""
    numbers = scope.session_numbers
    counts = np.maximum(1, np.bincount(numbers))
    found: Floats = (np.bincount(numbers, lexical) / np.sqrt(counts))[numbers]
    return found


def _session_in_full(scope: Scope, by_words: Floats, matches: Floats) -> Floats:
    """(n,) `by_words` together with how well the best passage of the session matches word by word; both as z-scores."""
    numbers = scope.session_numbers
    peaks = np.zeros(int(numbers.max()) + 1)
    np.maximum.at(peaks, numbers, matches)
    weights = {"words": SESSION_BY_WORDS, "matches": 1 - SESSION_BY_WORDS}
    return zsum({"words": by_words, "matches": peaks[numbers]}, weights)


def _days(fusion: _Fusion, rows: Ints, now: float) -> Floats | None:
    """(n,) how near the days are that question and passage name, or on which it was said; 0 beyond `rows`. None: the
    question names no day."""
    near = nearness(lambda: fusion.scope.passages.facets(rows), fusion.question.text, now)
    if near is None:
        return None
    scores = np.zeros(len(fusion.scope))
    scores[rows] = near
    return scores


def _speaker(fusion: _Fusion) -> tuple[Floats, float]:
    """(n,) 1 for what was said by the speaker that the question asks for, else 0; 0 also beyond the POOL best by all
    other signals. And how many times as much this counts."""
    scope, question = fusion.scope, fusion.question
    kind = query_type(question.text)
    own = question.personal or kind == "single-session-preference"
    role = "assistant" if kind == "single-session-assistant" else "user"
    rows = among_best(fusion.total, POOL)
    voices = scope.passages.facets(rows).voices
    speakers = [voice.speaker for voice in voices.values]
    names = [voice.name for voice in voices.values] if _named(voices) else [""] * len(speakers)
    scores = np.zeros(len(scope))
    scores[rows] = voices.each(said_by(speakers, names, question.words, role))
    if not question.words.isdisjoint(names):
        return scores, NAMED
    return scores, ROLE if own or role == "assistant" else USER


def _form(fusion: _Fusion, rows: Ints) -> Floats:
    """(n,) how well the form of each passage fits an answer; for all but those at `rows` the lowest value among
    these."""
    scope = fusion.scope
    told = scope.passages.facets(rows)
    people = all(voice.speaker in ("user", CLIENT) for voice in told.voices.values) and _named(told.voices)
    answers = _answers(scope, rows) if people else None
    worth = fits(fusion.question.text, told.forms, answers=answers)
    scores = np.full(len(scope), worth.min(initial=0.0))
    scores[rows] = worth
    return scores


def _named(voices: Shared[Voice]) -> bool:
    """Do names stand before what users say?"""
    return named([v.name for v in voices.values], [v.speaker for v in voices.values], voices.counts.tolist())


def _answers(scope: Scope, rows: Ints) -> Floats:
    """(len(rows),) 1 for what follows a message that ends with a question, else 0."""
    before = scope.beside(rows, -1)
    there = before >= 0
    found = np.zeros(len(rows))
    found[there] = scope.passages.facets(before[there]).forms[:, _ENDS_ASKING]
    return found


_ENDS_ASKING = Form._fields.index("ends_asking")


def _keywords(scope: Scope, question: Question, lexical: Floats) -> Floats:
    """(n,) share of the question's terms among a passage's tags and tools; 0 beyond the POOL best by words."""
    matched = np.flatnonzero(lexical)
    rows = matched[np.argsort(-lexical[matched])[:POOL]] if len(matched) > POOL else matched
    tags = scope.passages.facets(rows).tags  # often little else than the names of speakers
    scores = np.zeros(len(scope))
    scores[rows] = tags.each(keywords(question.terms, tags.values))
    return scores


def _weight(restore: RestoreConfig, signal: str, pipeline: PipelineConfig | None = None) -> float:
    own = restore.weights.get(signal, WEIGHTS.get(signal, 0.0))  # type: ignore[call-overload]
    return float(pipeline.weights.get(signal, own) if pipeline else own)  # type: ignore[call-overload]
