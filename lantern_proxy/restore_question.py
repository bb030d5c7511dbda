"""Reading a question, and judging how good the evidence for an answer is. Pure but for the scope it looks things up in."""

from collections.abc import Sequence
from dataclasses import dataclass

from lantern_proxy.analyze import fences, informative, query_terms, sentences
from lantern_proxy.rank import Floats
from lantern_proxy.restore_loss import Line
from lantern_proxy.restore_scope import Scope
from lantern_proxy.route import asks, looks_back

MOST_TERMS = 32
FOCUS_CHARS = 600
"""Of a longer message only its telling sentences are read, at most about this much."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a user message asks for."""

    text: str
    """The part that is embedded."""
    terms: tuple[str, ...]
    """Informative index terms; empty: it asks for nothing."""
    words: frozenset[str]
    asks: bool
    """Reads as a question or a request to tell."""
    looks_back: bool
    """Points at something said or done before."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The signals for one question, each (n,) over the entries of a scope."""

    lexical: Floats
    cosines: Floats | None
    fused: Floats
    signals: dict[str, Floats]

    def of(self, row: int) -> dict[str, float]:
        """signal -> score of one passage."""
        return {name: float(values[row]) for name, values in self.signals.items()}

    def score(self, row: int) -> float:
        """Fused score above the mean; all fused scores have mean 0."""
        return float(self.fused[row])


def read_question(text: str, *, most_terms: int = MOST_TERMS) -> Question:
    """What a user message asks. Code is left out; of a long message its first and last prose and its questions are read."""
    prose = " ".join(text[a:b].strip() for a, b, fenced in fences(text) if not fenced).strip() or text[:FOCUS_CHARS]
    focus = prose if len(prose) <= FOCUS_CHARS else _focus(prose)
    wanted = tuple(informative(query_terms(focus))[:most_terms])
    return Question(focus, wanted, frozenset(wanted), asks(focus), looks_back(focus))


def _focus(prose: str) -> str:
    """The first paragraph, questions, and the last sentence, until FOCUS_CHARS are used."""
    parts = [prose[a:b] for a, b in sentences(prose)]
    first, last = parts[:3], parts[-1:]
    asked = [part for part in parts[3:-1] if part.endswith("?")]
    kept: list[str] = []
    room = FOCUS_CHARS
    for part in dict.fromkeys([*asked, *first, *last]):
        if len(part) <= room:
            kept.append(part)
            room -= len(part)
    return " ".join(part for part in parts if part in kept) or prose[:FOCUS_CHARS]


def best_quality(
    scope: Scope, evidence: Evidence, question: Question, rows: Sequence[int], *, look_at: int = 12
) -> float:
    """How good the best evidence is, 0..1: 1 is a passage that holds every rare word of the question.

    Lexical evidence is the share of the question's idf that one passage (and, at half weight, its neighbours) holds;
    dense evidence is cosine, which MiniLM puts at 0.15 for strangers and 0.6 for a paraphrase.
    """
    mass = {term: scope.idf(term) for term in question.terms}
    total = sum(mass.values()) or 1.0
    best = 0.0
    for row in rows[:look_at]:
        held = sum(weight for term, weight in mass.items() if term in scope.entries[row].words)
        lexical = min(held / total, held / 1.2)
        cosine = float(evidence.cosines[row]) if evidence.cosines is not None else 0.0
        dense = max(0.0, min(1.0, (cosine - 0.2) / 0.5))
        best = max(best, _combine(lexical, dense))
    return best * _intent(question)


def _combine(lexical: float, dense: float) -> float:
    return min(1.0, max(lexical, dense, 0.65 * lexical + 0.65 * dense))


def _intent(question: Question) -> float:
    """A question, or a message that points back, needs less evidence than an instruction."""
    if question.asks or question.looks_back:
        return 1.0
    return 0.6


def sentence_worth(line: Line, question: Question, scope: Scope) -> float:
    """Which sentences of a passage to keep when not all fit."""
    held = sum(scope.idf(term) for term in question.terms if term in line.words)
    return held + 0.2 * line.salience + 0.05
