"""Parsing a question, and judging how good the evidence for an answer is. No I/O, no clock."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lantern_proxy.analyze import ends_asking, fences, informative, query_terms, sentences
from lantern_proxy.analyze.spoken import spoken
from lantern_proxy.rank import Floats
from lantern_proxy.rank import best as largest
from lantern_proxy.restore.lines import Line
from lantern_proxy.restore.parts import among_people
from lantern_proxy.restore.scope import Scope
from lantern_proxy.route import asks, looks_back, personal, subject
from lantern_proxy.signals import name_before, named, speaker_name
from lantern_proxy.turn import Passage

MOST_TERMS = 32
"""Most index terms of a question."""
FOCUS_CHARS = 600
"""Of a longer message only its telling sentences are read, up to about so many characters."""
NAMES, SAYS = 2, 4
"""Questions of fewer content words lean on what stands before them: below NAMES where they take up what the other one
said, below SAYS where they stand behind other sentences."""
PLAIN_CHARS = 140
"""A question that stands alone and short may ask for what was said; one with a story around it asks for help."""

# how good the evidence is
LOOK_AT = 12
"""How many of the best rows are looked at."""
LOOK_AROUND = 8
"""A passage may also be worth something because it stands beside one of so many that are the best by words alone."""
BESIDE = 0.75
"""Share of what a message holds of the question that counts for the messages next to it."""
FEW = 5
"""Terms from which on a message that asks for nothing may be judged by its words alone."""
LEXICAL_ALONE, DENSE_ALONE = 1.7, 1.9
"""Factor of the coverage where there is no cosine, and of the cosine alone, where something is asked in other words."""
SURE, SURE_ALONE = 0.28, 0.5
"""What stands for the cosine where words are this sure and nobody asked for one; with it, half of such questions have
more than .6."""
AGREEMENT = 0.15
"""Added where the best passage is the best one by words and by meaning, too."""

# is the question answered by what the request holds?
HELD_COVERAGE, NEAR = 0.6, 0.75
"""Least share of the question that the best passage holds, and of its score what a lost one reaches that comes near."""
MORE_TOLD = 0.05
"""How much more of the question one sentence of a lost passage holds than any of the best one, at least."""
LOOK_BESIDE, BESIDE_SCORE = 5, 0.3
"""How many lost passages are looked at, and the share of the best one's score from which on one next to it belongs to
it."""

# how much evidence a message needs, see _needed()
FORWARD, ALONE = 0.45, 0.08
"""How much more a question about what to do next needs, and how much less one that stands alone."""
REACTS, TAKES_UP, POINTS = 0.2, 0.5, 0.3
"""How much more is needed by a question that takes up the last message, by a message that takes it up and asks nothing,
and beside the first by one that names nothing. They are mostly about that last message."""
GOES_ON = 0.6
"""How much more is needed, where people talk to each other, by a question that names little and stands behind something
else: it is mostly about that. Who asks an assistant leads in: "The tests pass. Which port does staging use?"."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a user message asks for."""

    text: str
    """The part that is read."""
    terms: tuple[str, ...]
    """Informative index terms; empty: it asks for nothing."""
    words: frozenset[str]
    subject: str
    """What it is about, without how it is asked: the part that is embedded."""
    asks: bool
    """Reads as a question or a request to tell."""
    looks_back: bool
    """Points at something said or done before."""
    personal: bool
    """Is about the user's own matters."""
    reacts: bool = False
    """Begins with an answer to what was just said: "Wow, that sounds great! What is it about?"."""
    points: bool = False
    """It does, and its questions name nothing that could be found: "What else did you do there?"."""
    goes_on: bool = False
    """Its questions follow something else and name little: "You're your father's son. How are his feet?"."""
    items: tuple[frozenset[str], ...] = ()
    """Index terms of each thing that it lists: "the port, the host and the owner"; empty when it asks for one thing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The signals for one question, each (n,) over the passages of a scope."""

    lexical: Floats
    cosines: Floats | None
    fused: Floats
    signals: dict[str, Floats]
    units: Mapping[str, float] = field(default_factory=dict)
    """What a weight of 1 means for a signal, in z-scores; 1 where it is not said."""
    sure: float = 0.0
    """How sure words are of their best passages, 0..1: tau at which the cascade still skips vectors. 0 without an
    embedder that makes vectors of words: too much would be lost."""

    def of(self, row: int) -> dict[str, float]:
        """signal -> score of one passage."""
        return {name: float(values[row]) for name, values in self.signals.items()}

    def score(self, row: int) -> float:
        """Fused score above the mean; all fused scores have mean 0."""
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
"""Words with which people take up what the other one just said, behind a speaker's name where there is one."""


def read_question(text: str, *, most_terms: int = MOST_TERMS) -> Question:
    """What a user message asks. Code, and what a client wrote around its user's words, is left out; a long message is
    read at its telling sentences."""
    text = spoken(text)
    prose = " ".join(text[a:b].strip() for a, b, fenced in fences(text) if not fenced).strip() or text[:FOCUS_CHARS]
    focus = prose if len(prose) <= FOCUS_CHARS else _focus(prose)
    about = subject(focus)
    reacts = _REACTS.match(prose) is not None
    told = [focus[a:b].rstrip() for a, b in sentences(focus)]
    asked = [each for each in told if ends_asking(each)]
    named = len(set(informative(query_terms(" ".join(asked))))) if asked else math.inf
    letters = [found.lower() for found in _LETTER.findall(about)]
    wanted = tuple(dict.fromkeys([*informative(query_terms(about)), *letters]))[:most_terms]
    return Question(
        focus,
        wanted,
        frozenset(wanted),
        about,
        asks(focus),
        looks_back(focus),
        personal(focus),
        reacts,
        reacts and named < NAMES,
        named < SAYS and len(asked) < len(told),
        _items(about),
    )


_LETTER = re.compile(r"(?<![\w'\u2019.&+-])[B-HJ-Z](?![\w'\u2019&+#-]|\.\w|\. [A-Z])")
"""A name of one letter: "table B", "gate C". "A" and "I" are words; with a full stop it is an initial."""


LOOK_AT_NAMES = 100
"""Passages, the newest, before which the names of those who talk stand."""


def without_speaker(question: Question, text: str) -> Question:
    """`question` as `text` asks it, without the name of who asks in front, which is not what is asked for: "Ana: did
    she say yes?". It stays where they ask for matters of their own, of which they may have spoken before."""
    said = spoken(text)
    return question if question.personal or not speaker_name(said) else read_question(said[name_before(said) :])


def as_asked(question: Question, text: str, scope: Scope) -> Question:
    """`question` as `text` asks it in a conversation: without who asks, where those who talk have their names in front
    and it is one of them ("Kitchen: what do tiles cost?" is about a kitchen), and without letters that no passage
    has: the C of "below C?" is no name then."""
    name = speaker_name(spoken(text))
    if name:
        voices = scope.passages.facets(np.arange(max(0, len(scope) - LOOK_AT_NAMES), len(scope))).voices
        names = [voice.name for voice in voices.values]
        if name in names and named(names, [voice.speaker for voice in voices.values], voices.counts.tolist()):
            question = without_speaker(question, text)
    known = tuple(term for term in question.terms if not _is_letter(term) or scope.lexical([term]).any())
    return question if len(known) == len(question.terms) else replace(question, terms=known)


def _is_letter(term: str) -> bool:
    return len(term) == 1 and "a" <= term <= "z"


_BETWEEN = re.compile(
    r"[,;:\n\u3001\uff0c\uff1b\u060c]|(?<!\w)(?:and|or|und|oder|et|ou|y|o|e|i|en|och|ve|\u0438|\u0456|\u03ba\u03b1\u03b9|&)(?!\w)|\u548c|\u4ee5\u53ca"
)
"""What stands between things that are listed."""
LEAST_ITEMS, MOST_ITEM_TERMS = 2, 4
"""So many things make a list, and of so many terms is each: of more it is a sentence of its own."""


def _items(about: str) -> tuple[frozenset[str], ...]:
    parts = _BETWEEN.split(about)
    told = (frozenset(informative(query_terms(part))) for part in parts if len(parts) >= LEAST_ITEMS)
    found = tuple(each for each in told if each)
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


def best_quality(scope: Scope, evidence: Evidence, question: Question, rows: Sequence[int]) -> float:
    """How good the best evidence among the first rows is, 0..1; 0.5 is where a block is worth its characters.

    Two ways to be good: to hold most of the question's words, or to lie near it in meaning. Both count; a message that
    asks for nothing needs much more of them than a question, and one word alone proves nothing.

    No script fits the numbers of this and of what it calls: they were chosen by how many ordinary messages and how many
    questions for what was lost get a block, in BEAM and LoCoMo (docs/restore.md, "Who gets a question block").
    """
    mass = masses(scope, question)
    plain = question.asks and len(question.text) <= PLAIN_CHARS and not question.reacts
    near = _coverage_by_place(scope, evidence.lexical, mass)
    best = 0.0
    for row in rows[:LOOK_AT]:
        held = max(coverage(mass, scope.passages[row].words), _beside(near, int(scope.places[row])))
        if len(question.terms) < FEW and not (question.asks or question.looks_back):
            held *= len(question.terms) / FEW
        if evidence.cosines is None:
            best = max(best, LEXICAL_ALONE * held, held + SURE_ALONE if evidence.sure >= SURE else 0.0)
        else:
            cosine = float(evidence.cosines[row])
            best = max(best, held + cosine, DENSE_ALONE * cosine if plain else 0.0)
    if question.asks and rows and _agree(evidence, rows[:LOOK_AT]):
        best += AGREEMENT
    leans = question.goes_on and _only_people([scope.passages[row].passage for row in rows[:LOOK_AT]])
    return 1.0 / (1.0 + math.exp(-6.0 * (best - _needed(question) - GOES_ON * leans)))


def _only_people(some: Sequence[Passage]) -> bool:
    """Do people talk to each other there, and no assistant with them?"""
    return all(each.speaker != "assistant" for each in some) and among_people(some)


def _coverage_by_place(scope: Scope, lexical: Floats, mass: Mapping[str, float]) -> dict[int, float]:
    """Message number -> share of the question that its best passages by words hold."""
    rows = [row for row in largest(lexical, LOOK_AROUND).tolist() if lexical[row] > 0]
    return {int(scope.places[row]): coverage(mass, scope.passages[row].words) for row in reversed(rows)}


def _beside(near: Mapping[int, float], place: int) -> float:
    """What a message next to one that holds the question is worth: an answer stands beside what it answers."""
    return BESIDE * max(near.get(place - 1, 0.0), near.get(place + 1, 0.0))


def is_answered(scope: Scope, evidence: Evidence, mass: Mapping[str, float], best: int, lost: Sequence[int]) -> bool:
    """Does the request hold the best passage already? Only when its words say so, and no lost one comes near it."""
    if not lost or best == lost[0] or coverage(mass, scope.passages[best].words) < HELD_COVERAGE:
        return False
    beside = (row for row in lost[:LOOK_BESIDE] if abs(int(scope.places[row]) - int(scope.places[best])) == 1)
    if any(evidence.score(row) >= BESIDE_SCORE * evidence.score(best) for row in beside):
        return False  # the request holds the question that was asked then, or its answer, but not both
    told = _most_told(scope, best, mass)
    if any(_most_told(scope, row, mass) >= max(HELD_COVERAGE, told + MORE_TOLD) for row in lost[:LOOK_BESIDE]):
        return False  # a long one has the words, but one here and one there
    return evidence.score(lost[0]) < NEAR * evidence.score(best)


def _most_told(scope: Scope, row: int, mass: Mapping[str, float]) -> float:
    """The largest share of the question that one sentence of a passage holds."""
    return max((coverage(mass, line.words) for line in scope.passages[row].lines), default=0.0)


def _agree(evidence: Evidence, rows: Sequence[int]) -> bool:
    """Is the best passage also the best one by words and by meaning?"""
    if evidence.cosines is None or evidence.lexical[rows[0]] <= 0:
        return False
    cosines = evidence.cosines
    return all(evidence.lexical[rows[0]] >= evidence.lexical[r] and cosines[rows[0]] >= cosines[r] for r in rows)


def masses(scope: Scope, question: Question) -> dict[str, float]:
    """The question's terms -> their share of its idf."""
    mass = {term: scope.idf(term) for term in question.terms}
    total = sum(mass.values()) or 1.0
    return {term: weight / total for term, weight in mass.items()}


def coverage(mass: Mapping[str, float], words: frozenset[str]) -> float:
    """Share of the question's idf that a passage with these words holds."""
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
"""Questions about what to do next: they share words with what was said, and hardly ask for it. A block needs more."""


def _needed(question: Question) -> float:
    """Coverage + cosine at which quality is 0.5: most for an instruction, more for a long message, less for a question
    that stands alone, and for what points back or asks about the user's own matters."""
    needed = 0.66 + 0.6 * max(0.0, math.log(max(1, len(question.terms)) / 8))
    forward = question.asks and _FORWARD.search(question.text) is not None
    if question.looks_back:
        needed += -0.1 if question.asks else 0.05
    elif not question.asks:
        needed += 0.9
    elif forward:
        needed += FORWARD
    if question.reacts:
        needed += REACTS + POINTS * question.points if question.asks else TAKES_UP
    elif question.asks and not forward:
        needed -= ALONE
    return needed - 0.07 * (question.asks and question.personal)


def sentence_worth(line: Line, mass: Mapping[str, float]) -> float:
    """Which sentences of a passage to keep when not all fit."""
    return 3.0 * coverage(mass, line.words) + 0.2 * line.salience + 0.05
