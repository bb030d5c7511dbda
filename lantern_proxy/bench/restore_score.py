"""Does a block contain the evidence, a fact, an answer? Pure.

The evidence in a turn of at most LONG_CHARS are its sentences with content; in a longer one, the MOST_TELLING ones that
share most with the question's answer. A turn is restored when the block contains all of them word for word.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from lantern_proxy.analyze import fences, informative, query_terms, sentences
from lantern_proxy.bench.restore_chats import ChatMessage, Compacted, Probe

LONG_CHARS, MOST_TELLING, MIN_CONTENT_WORDS = 600, 3, 3


def flat(text: str) -> str:
    return " ".join(text.split())


_NAME = re.compile(r"^[A-Z]\w+: ")


def has_content(sentence: str) -> bool:
    """Does it have a number, or three meaningful words? "Ana: Wow, that's great, I'm glad!" has neither."""
    words = _NAME.sub("", sentence)
    return any(c.isdigit() for c in words) or len(informative(query_terms(words))) >= MIN_CONTENT_WORDS


def evidence(message: ChatMessage, probe: Probe, idf: Mapping[str, float]) -> list[str]:
    """The sentences of a gold turn that a block must contain."""
    parts = [message.text[a:b] for a, b in sentences(message.text)]
    contentful = [part for part in parts if has_content(part)] or parts
    if len(message.text) <= LONG_CHARS:
        return [flat(part) for part in contentful]
    fenced = {message.text[a:b].strip() for a, b, code in fences(message.text) if code}
    wanted = set(query_terms(probe.answer)) or set(query_terms(probe.text))

    def worth(part: str) -> float:
        shared = wanted.intersection(query_terms(part))
        return float(sum(idf.get(term, 1.0) for term in shared) / (len(part) + 20) ** 0.3)

    prose = [part for part in contentful if part not in fenced] or contentful
    best = sorted(range(len(prose)), key=lambda i: (-worth(prose[i]), i))[:MOST_TELLING]
    return [flat(prose[i]) for i in sorted(best) if worth(prose[i]) > 0] or [flat(prose[best[0]])]


def rarity(messages: Sequence[ChatMessage]) -> dict[str, float]:
    """Index term -> idf over messages."""
    counts = Counter(term for each in messages for term in set(query_terms(each.text)))
    return {term: log(1 + len(messages) / n) for term, n in counts.items()}


def all_restored(texts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Were all sentences restored?"""
    whole = flat(" \n ".join(texts))
    return all(each in whole for each in wanted)


def answered(texts: Sequence[str], answer: str) -> bool:
    """Was every informative word of the answer restored?"""
    wanted = set(query_terms(answer))
    return bool(wanted) and wanted <= set(query_terms(" \n ".join(texts)))


# ---- verifiable facts ----

_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
FACTS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "port": r"(?<=\bport )\d{2,5}\b",
        "path": r"(?<![\w/:.])(?:~|\.{1,2})?/[\w.-]+(?:/[\w.-]*\w)+|\b\w[\w-]*/[\w./-]*\w\.\w{1,5}\b",
        "version": r"\bv?\d+\.\d+\.\d+\b|(?<=[A-Za-z] )v?\d+\.\d+(?= |,|\.?$)",
        "date": rf"\b{_MONTH} \d{{1,2}}(?:, \d{{4}})?\b|\b\d{{4}}-\d\d-\d\d\b",
        "error": r"\b(?:[A-Z]\w+(?:Error|Exception)|[A-Z]{1,4}-\d{2,5})\b|(?<=\berror )\d{3,5}\b|\bHTTP \d{3}\b",
        "command": r"`(?:pip|npm|git|docker|flask|python|curl|kubectl|psql|make|cargo|go|yarn|pytest) [^`\n]{2,60}`",
        "amount": r"[$\u20ac\u00a3]\d[\d,]*(?:\.\d+)?|\b\d[\d,]*(?:\.\d+)? ?(?:%|percent\b|ms\b|GB\b|MB\b|hours?\b"
        r"|minutes?\b|euros?\b|dollars?\b|requests\b|users\b|pages\b|words\b)",
        "name": r"(?<=[a-z,] )[A-Z][a-z]+ [A-Z][a-z]+\b",
    }.items()
}
CONTEXT = 4
_PROSE = re.compile(r"[A-Z\"'(][^\n]*[.!?][\"')]*$")
"""A sentence, as opposed to a heading, an item of a list, a row of a table or code."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A checkable value, and its surrounding words, in order."""

    kind: str
    value: str
    speaker: str
    context: tuple[str, ...]

    @property
    def question(self) -> str:
        return f"What was the {self.kind} for {' '.join(self.context)}?"


def facts(cut: Compacted) -> list[Fact]:
    """The facts in the lost prose, once each, except values that the request still has."""
    kept_text = "\n".join((cut.summary, *(message.text for message in cut.kept)))
    idf = rarity(cut.lost)
    found: dict[tuple[str, str], Fact] = {}
    for message in cut.lost:
        for a, b in sentences(message.text):
            if _PROSE.match(message.text[a:b]) and b - a <= LONG_CHARS:
                for kind, value in _values(message.text[a:b]):
                    fact = Fact(kind, value, message.role, _context(message.text[a:b], value, idf))
                    if len(fact.context) >= 2 and not occurs(value, kept_text):
                        found.setdefault((kind, value), fact)
    return list(found.values())


def _values(sentence: str) -> list[tuple[str, str]]:
    return [(kind, m.group()) for kind, pattern in FACTS.items() for m in pattern.finditer(sentence)]


_WORD = re.compile(r"[A-Za-z][\w'-]+")


def _context(sentence: str, value: str, idf: Mapping[str, float]) -> tuple[str, ...]:
    """The rarest words around the value, in order."""
    own = set(_WORD.findall(value.lower()))
    rated: dict[str, float] = {}
    for word in _WORD.findall(sentence.replace(value, " ")):
        terms = informative(query_terms(word))
        if terms and word.lower() not in own:
            rated.setdefault(word, max(idf.get(term, 0.0) for term in terms))
    best = set(sorted(rated, key=lambda word: -rated[word])[:CONTEXT])
    return tuple(word for word in rated if word in best)


def occurs(value: str, text: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", text) is not None


def restored(fact: Fact, texts: Sequence[str]) -> bool:
    """Was the value restored in a passage together with half of its surrounding words?"""
    for text in texts:
        if occurs(fact.value, text):
            words = {word.lower() for word in _WORD.findall(text)}
            if 2 * sum(word.lower() in words for word in fact.context) >= len(fact.context):
                return True
    return False
