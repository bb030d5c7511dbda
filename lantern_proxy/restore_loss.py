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


Anchors = tuple[tuple[str, int], ...]
"""A few long words of a text and where they stand in it: what finds the text in a longer one without reading all of it."""


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
    def _anchors(self) -> dict[str, list[int]]:
        """Long word -> where it stands."""
        places: dict[str, list[int]] = {}
        for match in _ANCHOR.finditer(self.text):
            places.setdefault(match.group(), []).append(match.start())
        return places

    @cached_property
    def _keys(self) -> tuple[list[str], dict[str, list[int]]]:
        """The words of analyze.key(text) and where each stands among them."""
        words = key(self.text).split(" ")
        places: dict[str, list[int]] = {}
        for n, word in enumerate(words):
            places.setdefault(word, []).append(n)
        return words, places

    def holds(self, flat: str, anchors: Anchors) -> bool:
        """Does the request hold `flat` (white space collapsed) as whole words? anchors: anchors(flat)"""
        if not anchors:
            at = self.text.find(flat)
            while at >= 0 and not self._whole(at, at + len(flat)):
                at = self.text.find(flat, at + 1)
            return at >= 0
        seen = [(self._anchors.get(word, ()), offset) for word, offset in anchors]
        places, offset = min(seen, key=lambda pair: len(pair[0]))
        return any(
            place >= offset
            and self.text.startswith(flat, place - offset)
            and self._whole(place - offset, place - offset + len(flat))
            for place in places
        )

    def _whole(self, start: int, end: int) -> bool:
        text = self.text
        opens = start == 0 or not (text[start - 1].isalnum() and text[start].isalnum())
        return opens and (end == len(text) or not (text[end - 1].isalnum() and text[end].isalnum()))

    def holds_term(self, term_key: str) -> bool:
        """Does a specific term, in the form of analyze.key(), stand in the request?"""
        words, places = self._keys
        wanted = term_key.split(" ")
        seen = [(places.get(word, ()), n) for n, word in enumerate(wanted)]
        starts, offset = min(seen, key=lambda pair: len(pair[0]))
        return any(words[at - offset : at - offset + len(wanted)] == wanted for at in starts if at >= offset)

    def may_hold(self, term_key: str) -> bool:
        """Do the words of a specific term stand in the request, together or apart?"""
        return all(word in self.words for word in _WORD.findall(term_key))


_ANCHOR = re.compile(r"\w{4,}")


def anchors(flat: str, count: int = 5) -> Anchors:
    """The longest words of at least four characters and where they stand; empty when there are none."""
    found = {match.group(): match.start() for match in _ANCHOR.finditer(flat)}
    return tuple(sorted(found.items(), key=lambda pair: (-len(pair[0]), pair[1]))[:count])


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of a passage."""

    start: int
    end: int
    flat: str
    """Its text with white space collapsed."""
    anchors: Anchors
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
        flat = " ".join(text.split())
        found.append(Line(start, end, flat, anchors(flat), tuple(k for k in keys if k), words, salience(text, passage)))
    return tuple(found)


_COMMON = frozenset(stem for word in STOP_WORDS | CHAT_WORDS for stem in terms(word))
_FILLER = re.compile(
    r"^\W*(?:ack\b|ok(?:ay)?\b|thanks?\b|thank you|you'?re welcome|great\b|sure\b|of course|certainly|absolutely|got it"
    r"|understood|noted\b|will do\b|no problem|sounds|hello\b|hi\b|hey\b|bye\b|good (?:morning|night|luck)|glad|happy to"
    r"|let me know|feel free|i(?:'d| would) be happy|i hope|i(?:'ll| will| have|'ve) (?:keep|remember|note|taken note)"
    r"|if you (?:have|need|want)|wow\b|cool\b|nice\b|awesome|that'?s (?:great|awesome|cool|amazing|wonderful|good)|congrat"
    r"|done with|here(?:'s| is| are)\b|please (?:do|go|let))",
    re.I,
)
_FIRST = re.compile(r"\b(?:I|I'm|I've|I'd|my|we|we're|we've|our|me|mine)\b")
_DECIDED = re.compile(
    r"\b(?:decid\w+|agreed|chose|choos\w+|must|should|always|never|prefer\w*|favou?rite|important|remember|note that"
    r"|keep in mind|deadline|actually|instead|changed?|switch\w*|no longer|from now on|renamed?|moved?|set to|named?|called"
    r"|password|token|key|secret|because|root cause|fixed|fails?|failed|error|exception|requires?|allerg\w+|born|birthday"
    r"|lives?|works? (?:at|for|as)|budget|limit\w*|use)\b",
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
    if len(text) > 100 and " " not in text and "\n" not in text and not text.startswith("http"):
        return 0.02  # encoded data, minified code
    specific = any(tag in text for tag in passage.tags)
    if not specific and len(text) < 40 and len(_WORD.findall(text)) <= 2:
        return 0.05
    if _FILLER.search(text) and len(text) < 160:
        return 0.3 if specific else 0.05
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
    return tuple(i for i, line in enumerate(of) if not present.holds(line.flat, line.anchors))


def flat(text: str) -> str:
    """`text` as the request's text is compared: canonical, in one line."""
    short = canonical(text)
    return text if short == text else short


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
    shares: speaker -> most characters that what it said may take; others are free
    The gain of a term that is covered is 0, and a message gives less the more it has given: submodular.
    """
    old = superseded(candidates)
    weights = _Weights(present, idf)
    covered: set[str] = set()
    given: dict[str, float] = {}
    left = dict(shares)

    def gain(c: int, i: int) -> float:
        candidate = candidates[c]
        line = candidate.lines[i]
        total = sum(
            weights.term(k) * (0.2 if (c, k) in old else 1.0) * (0.25 if _value(k) in covered else 1.0)
            for k in line.keys
            if k not in covered
        )
        total += sum(weights.word(w) for w in line.words if w not in covered)
        return total * line.salience * prior[c]

    def worth(c: int, i: int) -> tuple[float, float]:
        """Gain, and gain per character^power, less for a message that has given much already."""
        value, message = gain(c, i), candidates[c].passage.message
        damped = value / (1.0 + given.get(message, 0.0) / 8.0)
        return value, damped / max(1, cost(c, i, message in given)) ** power

    alone = {(c, i): worth(c, i) for c, candidate in enumerate(candidates) for i in candidate.lost}
    heap = [(-dense, c, i) for (c, i), (_, dense) in alone.items()]
    heapq.heapify(heap)
    chosen: list[Chosen] = []
    while heap:
        _, c, i = heapq.heappop(heap)
        passage, line = candidates[c].passage, candidates[c].lines[i]
        chars = cost(c, i, passage.message in given)
        if chars > min(room_chars, left.get(passage.speaker, room_chars)):
            continue
        value, dense = worth(c, i)
        if value < max(MIN_GAIN, ECHO * alone[c, i][0]):
            continue
        if heap and dense < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-dense, c, i))
            continue
        chosen.append(Chosen(c, i, value))
        room_chars -= chars
        if passage.speaker in left:
            left[passage.speaker] -= chars
        covered.update(line.keys, line.words, filter(None, map(_value, line.keys)))
        given[passage.message] = given.get(passage.message, 0.0) + value
    return chosen


def _value(term_key: str) -> str:
    """The number in a named number, "250" of "corp 250"; empty when it has one digit only or there is none."""
    return next((word for word in term_key.split(" ") if len(word) > 1 and word.replace(".", "").isdigit()), "")


MIN_GAIN = 0.05
"""A line that adds less than this is not worth its characters."""
ECHO = 0.35
"""A line of which less than this share is new repeats what others said."""


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
