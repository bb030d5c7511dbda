"""What kind of text a passage is, and what kind of answer a question wants. Pure.

Counts and flags that cost microseconds; the light reranker learns their weights. The only prior that is used untrained,
`form_scores`, can be switched off (`restore.weights: {form: 0}`).
"""

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lantern_proxy.analyze import QUESTION_MARKS, folded, sentences
from lantern_proxy.analyze.standing import instruction_kind
from lantern_proxy.rank import Floats
from lantern_proxy.signals import speaker_name_end
from lantern_proxy.signals.words import Counts, count

TEXT_FEATURES = (
    "chars",
    "word_count",
    "questions",
    "ends_asking",
    "first_person",
    "second_person",
    "numbers",
    "time_words",
    "capitals",
    "past_verbs",
    "exclaims",
    "filler",
    "attached",
    "code",
)
"""Names of the numbers that text_features() returns, in this order."""

QUESTION_FEATURES = ("when", "where", "who", "number", "span", "why", "what", "yes_no", "plan", "length")
"""Names of the numbers that question_features() returns, in this order."""

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][a-z]+)?")
_RUN = re.compile(r"\w+")
_NUMBER = re.compile(r"\d(?<!\w\d)[\d,.:]*\b")
NUMBER_WORDS = frozenset(
    """
    two three four five six seven eight nine ten eleven twelve dozen hundred thousand once twice
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
_MORE_TIME = re.compile(r"\bthis (?:morning|summer)\b|\b\d{1,2}:\d\d\b|\b(?!(?:19|20)\d\d)\d{4}-\d\d-\d\d\b")
_NAME = re.compile(r"[A-Z](?<=\s[A-Z])(?<![.!?:\n\"] [A-Z])[\w'\u2019]+")
"""These patterns begin with a character to search for and then check what precedes it, which takes a third of the
time."""
_PAST = frozenset(
    """
    went got had was were did made took saw met bought began won lost found left gave told said came felt ran wrote
    built chose read taught caught held kept spent grew became set
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
_FILLER = re.compile(
    r"\W*(?:wow|thanks|thank you|yeah|yep|yes|sure|absolutely|definitely"
    r"|that['\u2019]?s (?:great|awesome|so|amazing|cool)"
    r"|sounds|glad|great|awesome|cool|nice|congrat\w*|hey|hi|hello|bye|oh|aw+|no problem|you['\u2019]?re welcome"
    r"|certainly|of course|got it)\b",
    re.I,
)

_WHEN = re.compile(r"\bwhen\b|\b(?:what|which) (?:time|date|day|month|year|week)\b", re.I)
_WHERE = re.compile(r"\bwhere\b|\b(?:what|which) (?:city|country|place|state|town|location)\b", re.I)
_WHO = re.compile(r"\bwho(?:m|se)?\b|\bwhat (?:is|was)(?: the)? names?\b", re.I)
_HOW_MANY = re.compile(
    r"\bhow (?:many|much|often|old|big|fast|large)\b|\bwhat (?:number|percentage|amount|version)\b", re.I
)
_HOW_LONG = re.compile(r"\bhow (?:long|many (?:days|weeks|months|years|hours|minutes))\b", re.I)
_WHY = re.compile(r"\bwhy\b|\bhow (?:did|does|do|was|were|has|have|can|could|is|are)\b|\breasons?\b", re.I)
_WHAT = re.compile(r"\bwhat\b|\bwhich\b", re.I)
_YES_NO = re.compile(r"\W*(?:is|are|was|were|did|do|does|has|have|had|can|could|would|will|should)\b", re.I)
_PLAN = re.compile(r"\bwould\b|\bmight\b|\blikely\b|\bplan\w*\b|\bgoing to\b|\bwill\b|\bconsider\w*\b", re.I)


class Form(NamedTuple):
    """What `form_scores` considers in a passage; numbers are 0..1."""

    asking: float
    """Share of its sentences that are questions."""
    addressed: float
    """Second-person words: 1 if every fifth word is one."""
    dated: float
    """Time words: 1 for two or more."""
    own: float
    """First-person words: 1 if every tenth word is one."""
    standing: float
    """1 for a rule set by the user, a third for a preference."""
    ends_asking: float
    """1 if it ends with a question mark."""


def _count_times(text: str, counts: Counts) -> int:
    """Number of time words, times and dates."""
    return counts.time + (len(_MORE_TIME.findall(folded(text))) if counts.times else 0)


def form_of(text: str, speaker: str, counts: Counts | None = None) -> Form:
    """The form of a text. counts: of this text, if known"""
    counts = counts or count([text])[0]
    asking, words = counts.asking / max(1, counts.ends), len(text) / CHARS_PER_WORD + 1
    addressed, own, dated = counts.second / words, counts.first / words, min(2, _count_times(text, counts))
    ends_asking = text.rstrip().endswith("?")
    return Form(asking, min(1.0, 5 * addressed), dated / 2, min(1.0, 10 * own), _standing(text, speaker), ends_asking)


def _standing(text: str, speaker: str) -> float:
    if speaker != "user" or "```" in text:
        return 0.0
    return {"rule": 1.0, "preference": 1 / 3, None: 0.0}[instruction_kind(text)]


CHARS_PER_WORD = 5.5


def form_scores(question: str, forms: npt.ArrayLike, *, answers: npt.ArrayLike | None) -> Floats:
    """(n,) how well texts of these forms may answer, in z-scores of the fusion: at best 6, at worst -3.

    A question is no answer, first-person statements inform, and a question about time wants a time. Between people, an
    answer informs, while what is said to another person is about that person's news. With an assistant, rules and
    preferences of the user apply to the current question.

    forms:   (n, 6) numbers of each Form
    answers: (n,) does each follow a message that ends with a question? None if it is not a chat between people only
    """
    people = answers is not None
    weights = (-1.0, -2.0 if people else 0.0, 2.0 if _WHEN.search(question) else 0.0, 1.0, 0.0 if people else 3.0)
    numbers = np.asarray(forms, np.float64).reshape(-1, len(Form._fields))
    found: Floats = numbers[:, : len(weights)] @ np.array(weights)
    return found + np.asarray(answers, np.float64) if people else found


def questions_and_statements(text: str) -> tuple[str, str]:
    """(questions, other sentences) of a passage, without the speaker's name."""
    words = text[speaker_name_end(text) :]
    parts = [words[start:end] for start, end in sentences(words)]
    is_question = [sentence.rstrip("!)\"' *").endswith(QUESTION_MARKS) for sentence in parts]
    questions, statements = (
        "\n".join(s for s, a in zip(parts, is_question, strict=True) if a is kind) for kind in (True, False)
    )
    return questions, statements


def text_features(text: str, counts: Counts | None = None) -> tuple[float, ...]:
    """One number for each of TEXT_FEATURES; counts are per word, so that length matters only once.

    counts: of this text, if known
    """
    words, counts = len(_WORD.findall(text)) + 1, counts or count([text])[0]
    stripped, runs = text.rstrip(), _RUN.findall(folded(text))
    numbers = len(_NUMBER.findall(text)) + sum(map(NUMBER_WORDS.__contains__, runs))
    past = sum(run in _PAST or (len(run) > 3 and run.endswith("ed")) for run in runs)
    return (
        float(len(text)),
        float(words),
        float(text.count("?")),
        float(stripped.endswith("?")),
        counts.first / words,
        counts.second / words,
        float(min(8, numbers)),
        float(min(8, _count_times(text, counts))),
        float(min(8, len(_NAME.findall(text)))),
        past / words,
        float(text.count("!")),
        float(bool(_FILLER.match(text))),
        float("[image" in text),
        float("```" in text),
    )


def question_features(question: str) -> tuple[float, ...]:
    """One number for each of QUESTION_FEATURES: flags, and the question's length in words."""
    patterns = (_WHEN, _WHERE, _WHO, _HOW_MANY, _HOW_LONG, _WHY, _WHAT)
    flags = [float(bool(pattern.search(question))) for pattern in patterns]
    yes_no, plan = float(bool(_YES_NO.match(question))), float(bool(_PLAN.search(question)))
    return (*flags, yes_no, plan, float(len(_WORD.findall(question))))
