"""Parses a question and rates how good the evidence for an answer is. No I/O, no clock."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.analyze import ends_asking, fences, informative, query_terms, sentences
from lantern_proxy.analyze.spoken import spoken
from lantern_proxy.rank import Floats
from lantern_proxy.rank import best as largest
from lantern_proxy.restore.lines import Line
from lantern_proxy.restore.parts import is_group_chat
from lantern_proxy.restore.scope import Scope
from lantern_proxy.route import asks, looks_back, personal, subject
from lantern_proxy.signals import has_speaker_names, speaker_name, speaker_name_end
from lantern_proxy.turn import Passage

MOST_TERMS = 32
"""Most index terms of a question."""
FOCUS_CHARS = 600
"""A longer message is reduced to its questions or key sentences, up to about this many characters."""
LEAST_REACTING, LEAST_FOLLOWING = 2, 4
"""Questions with fewer content words depend on the preceding text: fewer than LEAST_REACTING when the message reacts to
what was just said, fewer than LEAST_FOLLOWING when other sentences come before the question."""
PLAIN_CHARS = 140
"""A question in a short message may ask for something said earlier; one embedded in a story usually asks for help."""

# how good the evidence is
MOST_JUDGED = 12
"""How many of the best rows are rated."""
MOST_WITH_NEIGHBOURS = 8
"""The messages next to this many passages, the best by BM25, get credit for being next to them."""
NEIGHBOUR_SHARE = 0.75
"""Share of a message's coverage of the question that is credited to the messages next to it."""
FEW_TERMS = 5
"""A message that asks for nothing and has fewer terms than this gets proportionally less credit for its coverage."""
LEXICAL_ALONE, DENSE_ALONE = 1.7, 1.9
"""Factor of the coverage when there is no cosine, and of the cosine alone, for answers in other words than the
question."""
CONFIDENT, CONFIDENT_ALONE = 0.28, 0.5
"""From lexical confidence CONFIDENT on, CONFIDENT_ALONE stands in for a cosine that was not computed; with it, half of
such questions score more than .6."""
AGREEMENT = 0.15
"""Added when the best passage is also the best by BM25 and by cosine."""

# does the request already contain the answer?
HELD_COVERAGE, NEAR_SCORE = 0.6, 0.75
"""The request answers the question only if its best passage has at least this coverage and no lost passage reaches
NEAR_SCORE of its score."""
SENTENCE_MARGIN = 0.05
"""By how much the best sentence of a lost passage must exceed the coverage of any sentence of the best passage to count
as a better answer."""
MOST_LOST_CHECKED, NEIGHBOUR_SCORE = 5, 0.3
"""How many lost passages are checked; and the share of the best score from which on a lost passage next to the best one
belongs to it."""

# how much evidence a message needs, see _required()
FORWARD, ALONE = 0.45, 0.08
"""How much more evidence a question about what to do next needs, and how much less one that stands alone."""
REACTS, ONLY_REACTS, UNSPECIFIC = 0.2, 0.5, 0.3
"""How much more evidence is needed by a question that reacts to the last message, by a reaction without a question,
and, on top of the first, by a reacting question that names nothing. All of these are mostly about that last message."""
FOLLOWS_ON = 0.6
"""How much more evidence is needed, in a chat between people, by a question with few words that follows other
sentences: it is mostly about those. Users of an assistant do lead in like this: "The tests pass. Which port does
staging use?" is about the port."""


class Question(Struct, frozen=True):
    """A user message, parsed for what it asks."""

    text: str
    """The part of the message that is used."""
    terms: tuple[str, ...]
    """Informative index terms; empty if the message asks for nothing."""
    words: frozenset[str]
    subject: str
    """The topic without the phrasing of the question; this part is embedded."""
    asks: bool
    """It is a question or a request for information."""
    looks_back: bool
    """It refers to something said or done earlier."""
    personal: bool
    """It is about the user's own affairs."""
    reacts: bool = False
    """It begins with a reaction to what was just said: "Wow, that sounds great! What is it about?"."""
    unspecific: bool = False
    """It reacts, and its questions name nothing that could be searched for: "What else did you do there?"."""
    follows_on: bool = False
    """Its questions come after other sentences and have few words: "You're your father's son. How are his feet?"."""
    items: tuple[frozenset[str], ...] = ()
    """Index terms of each thing in a list ("the port, the host and the owner"); empty if it asks for one thing."""
    alone: "Question | None" = None
    """The questions of a short message without the sentences beside them: "Which ports do alder and birch use? I need
    to write the firewall rules." None if there are none beside them, or if the questions have few words."""


class Evidence(Struct, frozen=True):
    """The signals for one question, each (n,) over the passages of a scope."""

    lexical: Floats
    cosines: Floats | None
    fused: Floats
    signals: dict[str, Floats]
    units: Mapping[str, float] = {}
    """The unit of a signal's weight, in z-scores; 1 if missing."""
    lexical_confidence: float = 0.0
    """How clearly BM25 separates its best passages from the rest, 0..1: from this tau on the cascade skips vectors. 0
    if the embedder makes no word vectors, since skipping would then lose too much."""

    def of(self, row: int) -> dict[str, float]:
        """signal -> score of one passage."""
        return {name: float(values[row]) for name, values in self.signals.items()}

    def score(self, row: int) -> float:
        """Fused score relative to the mean, which is 0."""
        return float(self.fused[row])


_REACTS = re.compile(
    r"\W*+(?:[A-Z][\w.-]*(?: [A-Z][\w.-]*)?: \W*+)?"  # the speaker's name
    # "whoa", "haha", "nice", "thanks"
    r"(?:w[oh]+[aw]h?|ha(?:ha)*|lol|ye(?:ah|p|s)|yup|nice|cool|great"
    r"|awesome|amazing|wonderful|fantastic|perfect|good (?:job|luck|call|idea|point|one)|congrat\w*|thanks?|thank you"
    r"|thx|cheers|glad|sure|sounds|looks|agreed|absolutely|definitely|totally|exactly|right(?=[,.!])|of course"
    r"|no (?:worries|problem)|a+w+|o+h|m{2,}|hey|hi|hello|got it|makes sense|interesting|way to go|keep it up"
    # "me too", "you're right", "I'm so glad", "that sounds"
    r"|same here|me too|you'?re (?:right|welcome)|so (?:glad|happy|sorry)|that(?:'s| is| was)"
    r"|i'?m (?:so |really )?(?:glad|happy|sorry|proud)|(?:that|this|it|those|these)(?: \w+)? (?:looks?|sounds?)"
    r")(?![\w-])",
    re.I,
)
"""Openings that react to what was just said, after a speaker's name if there is one."""


def parse_question(text: str, *, most_terms: int = MOST_TERMS) -> Question:
    """Parse a user message. Code and text that the client wrapped around the user's words are dropped; a long message
    is reduced to its key sentences."""
    text = spoken(text)
    prose = " ".join(text[a:b].strip() for a, b, fenced in fences(text) if not fenced).strip() or text[:FOCUS_CHARS]
    focus = prose if len(prose) <= FOCUS_CHARS else _focus(prose)
    about = subject(focus)
    reacts = _REACTS.match(prose) is not None
    all_sentences = [focus[a:b].rstrip() for a, b in sentences(focus)]
    questions = [each for each in all_sentences if ends_asking(each)]
    n_named = len(set(informative(query_terms(" ".join(questions))))) if questions else math.inf
    has_more = len(questions) < len(all_sentences)
    is_apart = has_more and LEAST_FOLLOWING <= n_named < math.inf and len(focus) <= PLAIN_CHARS and not reacts
    letters = [found.lower() for found in _LETTER.findall(about)]
    index_terms = tuple(dict.fromkeys([*informative(query_terms(about)), *letters]))[:most_terms]
    return Question(
        focus,
        index_terms,
        frozenset(index_terms),
        about,
        asks(focus),
        looks_back(focus),
        personal(focus),
        reacts,
        reacts and n_named < LEAST_REACTING,
        n_named < LEAST_FOLLOWING and has_more,
        _items(about),
        parse_question(" ".join(questions)) if is_apart else None,
    )


_LETTER = re.compile(r"(?<![\w'\u2019.&+-])[B-HJ-Z](?![\w'\u2019&+#-]|\.\w|\. [A-Z])")
"""A one-letter name: "table B", "gate C". "A" and "I" are words, and a letter with a full stop is an initial."""


LOOK_AT_NAMES = 100
"""How many of the newest passages are searched for speaker names."""


def without_speaker(question: Question, text: str) -> Question:
    """`question` parsed again from `text` without the name of the speaker in front ("Ana: did she say yes?"), which is
    not what is asked for. The name stays in personal questions: the speaker may have mentioned the matter before."""
    said = spoken(text)
    return question if question.personal or not speaker_name(said) else parse_question(said[speaker_name_end(said) :])


def fit_to_scope(question: Question, text: str, scope: Scope) -> Question:
    """`question` adapted to the conversation. The leading name of a speaker is removed, but only if it is a known
    speaker: "Kitchen: what do tiles cost?" is about a kitchen. One-letter terms that no passage has are removed: the C
    of "below C?" is then no name."""
    name = speaker_name(spoken(text))
    if name:
        voices = scope.passages.facets(np.arange(max(0, len(scope) - LOOK_AT_NAMES), len(scope))).voices
        names = [voice.name for voice in voices.values]
        if name in names and has_speaker_names(
            names, [voice.speaker for voice in voices.values], voices.counts.tolist()
        ):
            question = without_speaker(question, text)
    known = tuple(term for term in question.terms if not _is_letter(term) or scope.lexical([term]).any())
    return question if len(known) == len(question.terms) else replace(question, terms=known)


def _is_letter(term: str) -> bool:
    return len(term) == 1 and "a" <= term <= "z"


_BETWEEN = re.compile(
    r"[,;:\n\u3001\uff0c\uff1b\u060c]|(?<!\w)(?:and|or|und|oder|et|ou|y|o|e|i|en|och|ve|\u0438|\u0456|\u03ba\u03b1\u03b9|&)(?!\w)|\u548c|\u4ee5\u53ca"
)
"""Separators and conjunctions between the items of a list."""
_SPAN = re.compile(
    r"\b(?:between|zwischen|entre|tussen|mellan|mellem|mi\u0119dzy|\u043c\u0435\u0436\u0434\u0443)\b", re.I
)
"""What is asked for lies between two things, and is neither of them."""
LEAST_ITEMS, MOST_ITEM_TERMS = 2, 4
"""A list has at least LEAST_ITEMS items of at most MOST_ITEM_TERMS terms each; anything longer is a sentence."""


def _items(about: str) -> tuple[frozenset[str], ...]:
    """Index terms of each listed item; () if the text is not a list."""
    parts = [] if _SPAN.search(about) else _BETWEEN.split(about)
    term_sets = (frozenset(informative(query_terms(part))) for part in parts if len(parts) >= LEAST_ITEMS)
    found = tuple(each for each in term_sets if each)
    return found if len(found) >= LEAST_ITEMS and max(map(len, found)) <= MOST_ITEM_TERMS else ()


def _focus(prose: str) -> str:
    """The questions of a long message, else its first two and its last sentence; at most FOCUS_CHARS."""
    parts = [prose[a:b] for a, b in sentences(prose)]
    telling = [part for part in parts if ends_asking(part)] or [*parts[:2], *parts[-1:]]
    kept, room = list[str](), FOCUS_CHARS
    for part in dict.fromkeys(telling):
        if len(part) <= room:
            kept.append(part)
            room -= len(part)
    return " ".join(kept) or prose[:FOCUS_CHARS]


def evidence_quality(scope: Scope, evidence: Evidence, question: Question, rows: Sequence[int]) -> float:
    """Rate the best evidence among the first rows, 0..1; at 0.5 a block is worth its characters.

    Evidence is good if it covers most of the question's terms or has a high cosine. Both count. A message that asks for
    nothing needs much more of both than a question, and a single shared word is not enough.

    The constants used here and in the functions below are not fitted by a script. They were chosen by how many ordinary
    messages, and how many questions about lost details, get a block in BEAM and LoCoMo (docs/restore.md, "Who gets a
    question block").
    """
    mass = idf_mass(scope, question)
    plain = question.asks and len(question.text) <= PLAIN_CHARS and not question.reacts
    coverage_by_place = _coverage_by_place(scope, evidence.lexical, mass)
    is_vague = len(question.terms) < FEW_TERMS and not (question.asks or question.looks_back)

    def quality(row: int) -> float:
        beside = _neighbour_coverage(coverage_by_place, int(scope.places[row]))
        covered = max(coverage(mass, scope.passages[row].words), beside)
        if is_vague:
            covered *= len(question.terms) / FEW_TERMS
        if evidence.cosines is not None:
            cosine = float(evidence.cosines[row])
            return max(covered + cosine, DENSE_ALONE * cosine if plain else 0.0)
        if evidence.lexical_confidence >= CONFIDENT:
            return max(LEXICAL_ALONE * covered, covered + CONFIDENT_ALONE)
        return LEXICAL_ALONE * covered

    judged = rows[:MOST_JUDGED]
    best = max([0.0, *map(quality, judged)])
    if question.asks and rows and _agree(evidence, judged):
        best += AGREEMENT
    leans_on_context = question.follows_on and _is_people_only([scope.passages[row].passage for row in judged])
    return 1.0 / (1.0 + math.exp(-6.0 * (best - _required(question) - FOLLOWS_ON * leans_on_context)))


def _is_people_only(some: Sequence[Passage]) -> bool:
    """Do these passages come from a chat between people, without an assistant?"""
    return all(each.speaker != "assistant" for each in some) and is_group_chat(some)


def _coverage_by_place(scope: Scope, lexical: Floats, mass: Mapping[str, float]) -> dict[int, float]:
    """Message number -> question coverage of its best passages by BM25."""
    rows = [row for row in largest(lexical, MOST_WITH_NEIGHBOURS).tolist() if lexical[row] > 0]
    return {int(scope.places[row]): coverage(mass, scope.passages[row].words) for row in reversed(rows)}


def _neighbour_coverage(near: Mapping[int, float], place: int) -> float:
    """The credit of a message for the coverage of the messages next to it: an answer stands next to its question."""
    return NEIGHBOUR_SHARE * max(near.get(place - 1, 0.0), near.get(place + 1, 0.0))


def is_answered(scope: Scope, evidence: Evidence, mass: Mapping[str, float], best: int, lost: Sequence[int]) -> bool:
    """Does the request already contain the best passage? True only if that passage covers the question and no lost
    passage comes close."""
    if not lost or best == lost[0] or coverage(mass, scope.passages[best].words) < HELD_COVERAGE:
        return False
    neighbours = (row for row in lost[:MOST_LOST_CHECKED] if abs(int(scope.places[row]) - int(scope.places[best])) == 1)
    if any(evidence.score(row) >= NEIGHBOUR_SCORE * evidence.score(best) for row in neighbours):
        return False  # the request has an earlier question or its answer, but not both
    best_sentence = _best_sentence(scope, best, mass)
    if any(
        _best_sentence(scope, row, mass) >= max(HELD_COVERAGE, best_sentence + SENTENCE_MARGIN)
        for row in lost[:MOST_LOST_CHECKED]
    ):
        return False  # the best passage is long, with the words spread over it
    return evidence.score(lost[0]) < NEAR_SCORE * evidence.score(best)


def _best_sentence(scope: Scope, row: int, mass: Mapping[str, float]) -> float:
    """The highest question coverage of a single sentence of a passage."""
    return max((coverage(mass, line.words) for line in scope.passages[row].lines), default=0.0)


def _agree(evidence: Evidence, rows: Sequence[int]) -> bool:
    """Is the best passage also the best by BM25 and by cosine?"""
    if evidence.cosines is None or evidence.lexical[rows[0]] <= 0:
        return False
    cosines = evidence.cosines
    return all(evidence.lexical[rows[0]] >= evidence.lexical[r] and cosines[rows[0]] >= cosines[r] for r in rows)


def idf_mass(scope: Scope, question: Question) -> dict[str, float]:
    """The question's terms -> their share of its total idf."""
    mass = {term: scope.idf(term) for term in question.terms}
    total = sum(mass.values()) or 1.0
    return {term: weight / total for term, weight in mass.items()}


def coverage(mass: Mapping[str, float], words: frozenset[str]) -> float:
    """The share of the question's idf that a passage with these words covers."""
    return sum([weight for term, weight in mass.items() if term in words])


_FORWARD = re.compile(
    # "how do I", "what if"
    r"\bhow (?:do|can|could|would|might) (?:i|we|you|one)\b|\bhow to\b|\bwhat (?:if|happens if)\b|\bthe best way\b"
    # "should I use", "is there a", "can you suggest"
    r"|\b(?:do|should|can|could|would|will) i (?:need|use|add|also|just|be|do|make)\b|\bis there (?:a|any|some)\b"
    r"|\bcan you (?:help|explain|suggest|provide|also|please|take|review|write|create)\b"
    # "what steps", "any tips", "do you want to"
    r"|\bwhat (?:steps|should|would|do you (?:think|suggest|recommend))\b|\bany (?:tips|advice|suggestions|ideas)\b"
    r"|\bwanna\b|\b(?:do|would|don't) you (?:want|like) to\b",
    re.I,
)
"""Questions about what to do next. They share words with earlier messages but rarely ask for them, so a block needs
more evidence."""


def _required(question: Question) -> float:
    """The coverage + cosine at which quality is 0.5: highest for an instruction, higher for a long message, lower for a
    question that stands alone, refers back or is about the user's own affairs."""
    needed = 0.66 + 0.6 * max(0.0, math.log(max(1, len(question.terms)) / 8))
    forward = question.asks and _FORWARD.search(question.text) is not None
    if question.looks_back:
        needed += -0.1 if question.asks else 0.05
    elif not question.asks:
        needed += 0.9
    elif forward:
        needed += FORWARD
    if question.reacts:
        needed += REACTS + UNSPECIFIC * question.unspecific if question.asks else ONLY_REACTS
    elif question.asks and not forward:
        needed -= ALONE
    return needed - 0.07 * (question.asks and question.personal)


def sentence_worth(line: Line, mass: Mapping[str, float]) -> float:
    """Rank of a sentence when not all sentences of a passage fit."""
    return 3.0 * coverage(mass, line.words) + 0.2 * line.salience + 0.05
