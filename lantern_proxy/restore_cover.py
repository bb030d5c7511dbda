"""Which lost sentences to put back when no question is known. Pure.

The chosen ones cover the most specific terms per character: lazy greedy on a submodular gain (Minoux 1978; Leskovec et
al. 2007 bound what greedy by gain per cost can miss).
"""

import heapq
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lantern_proxy.restore_lines import Line, Present
from lantern_proxy.turn import Passage


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
    """(candidate, term key) of named values that the user set anew later: "port 8443" when "port 9443" follows."""
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
    parts = _parts(candidates, _Weights(present, idf), prior)
    covered: set[str] = set()
    given: dict[str, float] = {}
    left = dict(shares)

    def density(part: _Part, value: float) -> float:
        """Gain per character^power, less for a message that has given much already."""
        damped = value / (1.0 + given.get(part.message, 0.0) / 8.0)
        return float(damped / max(1, cost(part.candidate, part.line, part.message in given)) ** power)

    heap = [(-density(part, part.alone), n) for n, part in enumerate(parts)]
    heapq.heapify(heap)
    chosen: list[Chosen] = []
    while heap and room_chars > LEAST_CHARS:
        _, n = heapq.heappop(heap)
        part = parts[n]
        chars = cost(part.candidate, part.line, part.message in given)
        if chars > min(room_chars, left.get(part.speaker, room_chars)):
            continue
        value = part.gain(covered)
        if value < max(MIN_GAIN, ECHO * part.alone):
            continue
        now = density(part, value)
        if heap and now < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-now, n))
            continue
        chosen.append(Chosen(part.candidate, part.line, value))
        room_chars -= chars
        if part.speaker in left:
            left[part.speaker] -= chars
        covered.update(part.covers)
        given[part.message] = given.get(part.message, 0.0) + value
    return chosen


@dataclass(slots=True)
class _Part:
    """One lost line, with the weights of what it would cover."""

    candidate: int
    line: int
    message: str
    speaker: str
    factor: float
    terms: list[tuple[str, str, float]]
    """("=" + key, its value, weight); the sign keeps keys and words apart among what is covered"""
    words: list[tuple[str, float]]
    alone: float = 0.0
    """Gain when nothing is covered yet."""

    @property
    def covers(self) -> set[str]:
        return {k for k, _, _ in self.terms} | {v for _, v, _ in self.terms if v} | {w for w, _ in self.words}

    def gain(self, covered: set[str]) -> float:
        total = 0.0
        for term_key, value, weight in self.terms:
            if term_key not in covered:
                total += weight * (0.25 if value and value in covered else 1.0)
        for word, weight in self.words:
            if word not in covered:
                total += weight
        return total * self.factor


def _parts(candidates: Sequence[Candidate], weights: "_Weights", prior: Sequence[float]) -> list[_Part]:
    """The lost lines that say something."""
    old = superseded(candidates)
    found = []
    for c, candidate in enumerate(candidates):
        for i in candidate.lost:
            line = candidate.lines[i]
            if line.salience * len(line.words) < MIN_GAIN and not line.keys:
                continue
            named = [("=" + k, _value(k), weights.term(k) * (0.2 if (c, k) in old else 1.0)) for k in line.keys]
            words = [(w, weights.word(w)) for w in sorted(line.words)]
            part = _Part(
                c,
                i,
                candidate.passage.message,
                candidate.passage.speaker,
                line.salience * prior[c],
                [t for t in named if t[2]],
                [w for w in words if w[1]],
            )
            part.alone = part.gain(set())
            if part.alone >= MIN_GAIN:
                found.append(part)
    return found


def _value(term_key: str) -> str:
    """The number in a named number, "#250" of "corp 250"; empty when it has one digit only or there is none."""
    return next(("#" + word for word in term_key.split(" ") if len(word) > 1 and word.replace(".", "").isdigit()), "")


MIN_GAIN = 0.05
"""A line that adds less than this is not worth its characters."""
LEAST_CHARS = 40
"""With less room than this the block is full."""
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
