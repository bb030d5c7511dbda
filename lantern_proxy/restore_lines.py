"""Passages sentence by sentence: what the request holds of them, and how much each sentence would be missed. Pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lantern_proxy.analyze import (
    CHAT_WORDS,
    QUESTION_MARKS,
    STOP_WORDS,
    is_content,
    key,
    length_in_words,
    sentences,
    terms,
    terms_of_parts,
)
from lantern_proxy.analyze_code import code_among, is_prose
from lantern_proxy.analyze_standing import laid_down, may_lay_down
from lantern_proxy.restore_present import Present
from lantern_proxy.turn import Passage, canonical

_WORD = re.compile(r"\w+")

Sort = Literal["plain", "rule", "preference", "code"]
"""What a sentence is, as far as it matters: see analyze_standing.py and analyze_code.py."""


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of a passage."""

    start: int
    end: int
    flat: str
    """Its text with white space collapsed."""
    keys: tuple[str, ...]
    """Its specific terms in the form of analyze.key()."""
    words: frozenset[str]
    """Its content words, as index terms."""
    salience: float
    """About how likely it is to be asked for, as a factor: filler 0.05, a plain statement 1, a rule 15."""
    sort: Sort
    addresses: bool
    """It speaks to somebody."""
    of_people: bool
    digits: bool


def lines(passage: Passage) -> tuple[Line, ...]:
    """The sentences of a passage. Costs about 100 us for 300 characters: keep them."""
    found = []
    keyed = [(tag, k) for tag in passage.tags if (k := key(tag))]
    rows = _rows(passage.text)
    spans = sentences(passage.text)
    texts = [passage.text[start:end] for start, end in spans]
    lays_down = passage.speaker == "user" and may_lay_down(passage.text)
    for (start, end), text, stems_of, code in zip(spans, texts, terms_of_parts(texts), code_among(texts), strict=True):
        keys = tuple(dict.fromkeys([k for tag, k in keyed if tag in text]))
        stems = frozenset(stems_of)
        words = frozenset([term for term in stems - _COMMON if is_content(term)])
        flat = " ".join(text.split())
        value = salience(text, stems, passage.speaker, specific=bool(keys))
        if rows and sum(_template(row) in rows for row in text.splitlines()) * 2 >= text.count("\n") + 1:
            value *= _ROW.get(passage.speaker, 0.1)
        sort: Sort = "code" if code else (laid_down(text) if lays_down else None) or "plain"
        value *= _WORTH.get(sort, 1.0)
        if passage.speaker == "assistant" and _ANNOUNCES.match(text):
            value = min(value, 0.05)
        addresses, of_people = not stems.isdisjoint(_YOU), not stems.isdisjoint(_PEOPLE)
        digits = _DIGIT.search(text) is not None
        found.append(Line(start, end, flat, keys, words, value, sort, addresses, of_people, digits))
    return tuple(found)


_LETTERS, _DIGITS = re.compile(r"[^\W\d]+(?:[ _'-]+[^\W\d]+)*"), re.compile(r"[-+]?\d+(?:[.,]\d+)*")
_MAY_BE_ROW = re.compile(r"[#\d].*[#\d]|\|.*\|")
_MANY_ROWS = 4
_ROW = {"user": 0.4}
"""What a row of a table or a log counts: they are full of specific terms, and hardly one is ever asked for."""


def _template(row: str) -> str:
    """A row without its words and numbers: "| 2011 | 331 |" -> "| # | # |"."""
    return _DIGITS.sub("#", _LETTERS.sub("w", " ".join(row.split())))


def _rows(text: str) -> frozenset[str]:
    """Templates with several numbers or cells that at least four lines of a text share."""
    rows = [row for row in text.splitlines() if _MAY_BE_ROW.search(row)] if text.count("\n") >= _MANY_ROWS - 1 else ()
    counts = Counter(map(_template, rows)) if len(rows) >= _MANY_ROWS else Counter()
    return frozenset(t for t, n in counts.items() if n >= _MANY_ROWS and (t.count("#") >= 2 or t.count("|") >= 2))


_COMMON = frozenset(stem for word in STOP_WORDS | CHAT_WORDS for stem in terms(word))
TELLS = {"user": 3}
"""Content words from which on a sentence says something, however it opens: "Glad you sold the blue boat". What an
assistant opens like that repeats or promises."""
_FILLER = re.compile(
    r"^\W*(?:ack\b|ok(?:ay)?\b|thanks?\b|thank you|you'?re welcome|great\b|sure\b|of course|certainly|absolutely"
    r"|got it|understood|noted\b|will do\b|no problem|sounds|hello\b|hi\b|hey\b|bye\b|good (?:morning|night|luck)"
    r"|glad|happy to|let me know|feel free|i(?:'d| would) be happy|i hope"
    r"|i(?:'ll| will| have|'ve) (?:keep|remember|note|taken note)"
    r"|if you (?:have|need|want)|wow\b|cool\b|nice\b|awesome|that'?s (?:great|awesome|cool|amazing|wonderful|good)"
    r"|congrat|done with|here(?:'s| is| are)\b|please (?:do|go|let))",
    re.I,
)
_DECIDED = frozenset(
    terms(
        "decide decided decision agreed chose choose chosen must should always never prefer preferred "
        "preference favorite favourite important remember note deadline actually instead changed change "
        "switch switched longer renamed moved set named name called password token key secret because cause "
        "fixed failed fails error exception requires required allergic allergy born birthday live lives work "
        "works budget limit limited use uses rename"
    )
)
_CHANGED = frozenset(terms("actually instead changed change switch switched longer correction update updated rather"))
_WHEN = frozenset(terms("yesterday today tomorrow tonight last next ago since week month year weekend"))
_FIRST = frozenset(terms("I I'm I've I'd my we we're we've our me mine"))
_YOU = frozenset(terms("you your you're you've you'd yours"))
_PEOPLE = frozenset(
    terms(
        "mother mom father dad sister brother son daughter child children kids wife husband partner friend family "
        "girlfriend boyfriend cousin grandma grandmother grandpa uncle aunt colleague boss team customer client "
        "dog cat pet"
    )
)
_DIGIT = re.compile(r"\d")
_FIGURES = {"user": 0.7}
"""What a line counts that is mostly figures and signs, printed rather than said."""
_SPEAKERS = {"user": 1.0, "assistant": 0.3, "tool": 0.4}
_FIRST_PERSON = {"user": 1.4, "assistant": 2.4, "tool": 1.0}
"""What an assistant says of itself or of both (a choice, a promise) is worth far more than its advice in general."""
_ANNOUNCES = re.compile(
    r"\W*(?:(?:ok(?:ay)?|now|first|next|then|so|great|good|alright|perfect),? )*"
    r"(?:let me (?:now |first |also |quickly )?|let['\u2019]s (?:now |first )?"
    r"|i(?:['\u2019]ll| will| need to|['\u2019]m going to| want to| should)(?: now| first| also| next)? )"
    r"(?:look|check|see|read|find|search|examine|explore|inspect|view|open|run|start|begin|take|verify|test|list"
    r"|understand|try|continue|get|fetch|grep|review)\b",
    re.I,
)
"""What an assistant says before it calls a tool."""
_WORTH: Mapping[Sort, float] = {"rule": 15.0, "preference": 4.0, "code": 0.2}
"""What a rule that was laid down counts, and a preference; and code, which is full of specific terms and stands in
files, too."""


def salience(text: str, stems: frozenset[str], speaker: str, *, specific: bool) -> float:
    """How likely a sentence is to be asked for, from its form (hand-made; no model, nothing learned).

    stems: its index terms. specific: whether it holds specific terms.
    """
    says_little = length_in_words(text) <= 2
    if says_little and len(text) > 100 and " " not in text and "\n" not in text and not text.startswith("http"):
        return 0.02  # encoded data, minified code
    if says_little and not specific and len(text) < 40:
        return 0.05
    if (
        len(text) < 160
        and _FILLER.match(text)
        and sum(len(stem) > 2 for stem in stems - _COMMON) < TELLS.get(speaker, 99)
    ):
        return 0.3 if specific else 0.05
    value = _SPEAKERS.get(speaker, 1.0)
    pieces = text.split()
    if len(pieces) >= 4 and not is_prose(pieces, 0.35):
        value *= _FIGURES.get(speaker, 0.3)
    if text.rstrip(")\"' *").endswith(QUESTION_MARKS):
        value *= 0.35
    if not stems.isdisjoint(_FIRST):
        value *= _FIRST_PERSON.get(speaker, 1.4)
    elif speaker == "assistant" and text.startswith(("-", "*", "#", "|", "`")):
        value *= 0.7
    for signs, factor in ((_DECIDED, 1.5), (_CHANGED, 1.3), (_WHEN, 1.2)):
        if not stems.isdisjoint(signs):
            value *= factor
    return value


def lost(passage: Passage, of: Sequence[Line], present: Present) -> tuple[int, ...]:
    """Which of the passage's lines the request lacks. A call counts as held when its words are."""
    if passage.tools and passage.speaker != "tool":
        words = _WORD.findall(passage.text.lower())
        return () if sum(present.words(words)) >= 0.9 * len(words) else tuple(range(len(of)))
    held = present.holds([line.flat for line in of])
    return tuple(i for i, is_held in enumerate(held) if not is_held)


def flat(text: str) -> str:
    """`text` as the request's text is compared: canonical, in one line."""
    short = canonical(text)
    return text if short == text else short
