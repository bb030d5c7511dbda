"""What of the archive the request lacks, how much each sentence would be missed, and which to put back. Pure.

Works on sentences: a sentence that the request holds, or that says nothing, is dropped; the rest are chosen so that they
cover the most specific terms per character (lazy greedy on a submodular gain; Minoux 1978, within 1 - 1/e of the best).
"""

import heapq
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lantern_proxy.analyze import CHAT_WORDS, STOP_WORDS, key, sentences, terms
from lantern_proxy.turn import Passage, canonical

_WORD = re.compile(r"\w+")


class Present:
    """The text of a request, prepared once for many questions of the kind "does it hold this?"."""

    def __init__(self, text: str) -> None:
        if "\\" in text:  # arguments of calls stand there as JSON
            text = text.replace("\\n", " ").replace('\\"', '"')
        self.text = " ".join(text.split())

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(_WORD.findall(self.text.lower()))

    @cached_property
    def stems(self) -> frozenset[str]:
        return frozenset(terms(self.text))

    @cached_property
    def _keys(self) -> str:
        return f" {key(self.text)} "

    def find(self, flat: str, start: int = 0) -> int:
        """Where the request holds `flat` (white space collapsed) as whole words, from `start` on; -1: nowhere."""
        at = self.text.find(flat, start)
        while at >= 0 and not self._whole(at, at + len(flat)):
            at = self.text.find(flat, at + 1)
        return at

    def _whole(self, start: int, end: int) -> bool:
        text = self.text
        opens = start == 0 or not (text[start - 1].isalnum() and text[start].isalnum())
        return opens and (end == len(text) or not (text[end - 1].isalnum() and text[end].isalnum()))

    def holds_term(self, term_key: str) -> bool:
        """Does a specific term, in the form of analyze.key(), stand in the request?"""
        return all(word in self.words for word in _WORD.findall(term_key)) and f" {term_key} " in self._keys


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
    """About how likely it is to be asked for, as a factor: filler 0.05, a plain statement 1, a decision 2."""


def lines(passage: Passage) -> tuple[Line, ...]:
    """The sentences of a passage. Costs about 60 us for 300 characters: keep them."""
    found = []
    for start, end in sentences(passage.text):
        text = passage.text[start:end]
        keys = dict.fromkeys(key(tag) for tag in passage.tags if tag in text)
        words = frozenset(term for term in terms(text) if len(term) > 2 and term not in _COMMON)
        found.append(
            Line(start, end, " ".join(text.split()), tuple(k for k in keys if k), words, salience(text, passage))
        )
    return tuple(found)


_COMMON = frozenset(stem for word in STOP_WORDS | CHAT_WORDS for stem in terms(word))
_FILLER = re.compile(
    r"^\W*(?:ack\b|ok(?:ay)?\b|thanks?\b|thank you|you'?re welcome|great\b|sure\b|of course|certainly|absolutely|got it|understood|no problem|sounds"
    r"|hello\b|hi\b|hey\b|bye\b|good (?:morning|night|luck)|glad|happy to|let me know|feel free|i(?:'d| would) be happy|i hope|if you (?:have|need|want)"
    r"|wow\b|cool\b|nice\b|awesome|that'?s (?:great|awesome|cool|amazing|wonderful|good)|congrat|done with|here(?:'s| is| are)\b|please (?:do|go|let))",
    re.I,
)
_FIRST = re.compile(r"\b(?:I|I'm|I've|I'd|my|we|we're|we've|our|me|mine)\b")
_DECIDED = re.compile(
    r"\b(?:decid\w+|agreed|chose|choos\w+|must|should|always|never|prefer\w*|favou?rite|important|remember|note that|keep in mind|deadline|actually|instead"
    r"|changed?|switch\w*|no longer|from now on|renamed?|moved?|set to|named?|called|password|token|key|secret|because|root cause|fixed|fails?|failed|error"
    r"|exception|requires?|allerg\w+|born|birthday|lives?|works? (?:at|for|as)|budget|limit\w*|use)\b",
    re.I,
)
_WHEN = re.compile(r"\b(?:yesterday|today|tomorrow|tonight|last|next|ago|since|week|month|year|weekend|\d{4})\b", re.I)
_CHANGED = re.compile(
    r"\b(?:actually|instead|changed?|switch\w*|no longer|from now on|correction|update[ds]?|rather than|not \S+ but)\b",
    re.I,
)
_SPEAKERS = {"user": 1.0, "assistant": 0.6, "tool": 0.4}


def salience(text: str, passage: Passage) -> float:
    """How likely the sentence is to be asked for, from its form (hand-made; no model, nothing learned)."""
    if _FILLER.search(text) and len(text) < 160:
        return 0.05 if not passage.tags or not any(tag in text for tag in passage.tags) else 0.3
    value = _SPEAKERS.get(passage.speaker, 1.0)
    if text.rstrip(")\"' *").endswith("?"):
        value *= 0.35
    if _FIRST.search(text):
        value *= 1.4 if passage.speaker != "tool" else 1.0
    if _DECIDED.search(text):
        value *= 1.5
    if _CHANGED.search(text):
        value *= 1.3
    if _WHEN.search(text):
        value *= 1.2
    return value


def lost(passage: Passage, of: Sequence[Line], present: Present) -> tuple[int, ...]:
    """Which of the passage's lines the request lacks. A call counts as held when its words are."""
    if passage.tools and passage.speaker != "tool":
        words = _WORD.findall(passage.text.lower())
        return () if sum(word in present.words for word in words) >= 0.9 * len(words) else tuple(range(len(of)))
    return tuple(i for i, line in enumerate(of) if present.find(line.flat) < 0)


def held_whole(flat: str, longest: Sequence[str], present: Present, cursor: int) -> int:
    """Where the request holds a whole passage, looking from `cursor` first, as they come in order; -1: nowhere.

    longest: a few long words of it in lower case; one that is missing settles the question without a search
    """
    if not all(word in present.words for word in longest):
        return -1
    at = present.find(flat, cursor)
    return at if at >= 0 or not cursor else present.find(flat)


def longest_words(text: str, count: int = 6) -> tuple[str, ...]:
    """A few long words of `text` in lower case: what most likely tells whether another text can hold it."""
    return tuple(sorted(set(_WORD.findall(text.lower())), key=lambda word: (-len(word), word))[:count])


def flat(text: str) -> str:
    return canonical(text)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage and those of its lines that the request lacks."""

    passage: Passage
    lines: tuple[Line, ...]
    lost: tuple[int, ...]


_KIND = re.compile(r"(?P<digit>\d)|(?P<sign>[_/@.=~$-])")


def term_weight(term_key: str) -> float:
    """How much a lost specific term would be missed: values most, then identifiers and paths, then names."""
    shape = _KIND.search(term_key)
    if shape is None:
        return 1.0
    return (2.0 if " " in term_key else 1.6) if any(c.isdigit() for c in term_key) else 1.5


def superseded(candidates: Sequence[Candidate]) -> frozenset[tuple[int, str]]:
    """(candidate, term key) of named values that the user set anew later: of "port 8443", then "port 9443", the first."""
    newest: dict[str, str] = {}
    old: set[tuple[int, str]] = set()
    order = sorted(
        range(len(candidates)), key=lambda i: (candidates[i].passage.created_at, candidates[i].passage.position)
    )
    for i in reversed(order):
        for line in candidates[i].lines:
            for term_key in line.keys:
                name, _, value = term_key.rpartition(" ")
                if not name or not any(c.isdigit() for c in value):
                    continue
                if newest.get(name, term_key) != term_key:
                    old.add((i, term_key))
                elif candidates[i].passage.speaker == "user":
                    newest[name] = term_key
    return frozenset(old)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Lines of one candidate, best first come first."""

    candidate: int
    line: int
    gain: float


def cover(
    candidates: Sequence[Candidate],
    present: Present,
    idf: Callable[[str], float],
    cost: Callable[[int, int, bool], int],
    room_chars: int,
    *,
    power: float,
    prior: Sequence[float],
    shares: Mapping[str, float],
) -> list[Chosen]:
    """Choose lines until `room_chars` are used: most new specific terms and words, by salience, per character^power.

    idf:    index term -> idf scaled to [0, 1]
    cost:   (candidate, line, is its message already opened?) -> characters in the block
    prior:  factor per candidate (similarity to the summary breaks ties, confidence)
    shares: speaker -> largest share of the room it may take
    The gain of a term that is covered is 0, and a message gives less the more it has given: submodular.
    """
    old = superseded(candidates)
    weights = _Weights(present, idf)
    covered: set[str] = set()
    given: dict[str, float] = {}
    spent = dict.fromkeys(shares, 0)

    def gain(c: int, i: int) -> float:
        candidate = candidates[c]
        line = candidate.lines[i]
        total = sum(weights.term(k) * (0.2 if (c, k) in old else 1.0) for k in line.keys if k not in covered)
        total += sum(weights.word(w) for w in line.words if w not in covered)
        total *= line.salience * prior[c]
        message = candidate.passage.message
        return total / (1.0 + given.get(message, 0.0) / 8.0)

    def density(c: int, i: int) -> float:
        return gain(c, i) / max(1, cost(c, i, candidates[c].passage.message in given)) ** power

    heap = [(-density(c, i), c, i) for c, candidate in enumerate(candidates) for i in candidate.lost]
    heapq.heapify(heap)
    chosen: list[Chosen] = []
    while heap:
        _, c, i = heapq.heappop(heap)
        candidate = candidates[c]
        speaker, opened = candidate.passage.speaker, candidate.passage.message in given
        chars = cost(c, i, opened)
        if chars > room_chars or (speaker in shares and spent[speaker] + chars > shares[speaker]):
            continue
        now = density(c, i)
        if heap and now < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-now, c, i))
            continue
        value = gain(c, i)
        if value < MIN_GAIN:
            continue
        chosen.append(Chosen(c, i, value))
        room_chars -= chars
        if speaker in shares:
            spent[speaker] += chars
        line = candidate.lines[i]
        covered.update(line.keys, line.words)
        given[candidate.passage.message] = given.get(candidate.passage.message, 0.0) + value
    return chosen


MIN_GAIN = 0.05
"""A line that adds less than this is not worth its characters."""


class _Weights:
    """Weights of terms and words, computed once each; 0 for those that the request holds."""

    def __init__(self, present: Present, idf: Callable[[str], float]) -> None:
        self._present, self._idf = present, idf
        self._terms: dict[str, float] = {}
        self._words: dict[str, float] = {}

    def term(self, term_key: str) -> float:
        weight = self._terms.get(term_key)
        if weight is None:
            weight = 0.0 if self._present.holds_term(term_key) else term_weight(term_key)
            self._terms[term_key] = weight
        return weight

    def word(self, word: str) -> float:
        weight = self._words.get(word)
        if weight is None:
            weight = 0.0 if word in self._present.stems else WORD_WEIGHT * self._idf(word)
            self._words[word] = weight
        return weight


WORD_WEIGHT = 0.4
"""A new content word of the highest idf, against 1 for a name and 2 for a named number."""
