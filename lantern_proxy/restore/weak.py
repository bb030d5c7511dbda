"""Removes lost passages that say too little of what is asked to stand in a question block."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum

from lantern_proxy.analyze import ends_asking, terms
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.candidates import HELD, PRINTED
from lantern_proxy.restore.cover import ECHO
from lantern_proxy.restore.lines import Line
from lantern_proxy.restore.parts import Candidate, is_agents
from lantern_proxy.restore.question import Evidence, coverage
from lantern_proxy.restore.scope import Scope

SAID_BESIDE, SAID_TOGETHER, PRINTED_BESIDE = 0.4, 0.2, 0.5
"""Least scores beside the best one, of what is said, and where an agent is at work of what is said in the same turn,
and of tools and calls."""
AMONG_PEOPLE = 0.2
"""The same of what is said where people talk to each other."""
SURELY = 0.5
"""Share of the question with which what is said is never weak: of few passages no score is far above the mean."""
NEAR = 0.35
"""Nearness to the question with which what holds no word of it bears on it."""
ASKED_BEFORE = 0.9
"""Share of the question that only the question itself holds."""


def without_weak(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], order: Sequence[int],
    ask: Ask, *, people: bool,
) -> list[Candidate]:  # fmt: skip
    """`candidates` without those that say little of what is asked: much less than the best of `order` does, which the
    request or a block in it may show already. Does it, or has the best half of the question, what bears on no word of
    that is left out, too: its score is that of what stands beside it. Of rules only where it is shown.

    Least where people talk, who ask in other words; what was said in the turn of the best stays. An agent's session is
    full of what was printed, and repeats the words of its task in every step: there they are measured by the best even
    where they were said in its turn, and must hold more than a word of the question where they are of a tool, a call,
    or a rule for all that is done.

    people: they talk to each other there, as among_people() says of `order`
    """
    if is_agents([each.passage for each in scope.passages.of(order)]):
        is_strong = _strong_of_agents(candidates, scope, evidence, mass, order)
    else:
        first = _first(candidates, scope, mass, order)
        least = (AMONG_PEOPLE if people else SAID_BESIDE) * evidence.score(first)
        told = scope.passages[first].passage
        best, lost = scope.passages[order[0]], {candidate.row for candidate in candidates}
        is_shown = bool(ask.shown) or (order[0] not in lost and not ends_asking(best.flat))
        is_worded = coverage(mass, scope.passages[first].words) >= SURELY

        def is_strong(candidate: Candidate) -> bool:
            row, passage = candidate.row, candidate.passage
            held = coverage(mass, scope.passages[row].words)
            near = evidence.cosines is not None and float(evidence.cosines[row]) >= NEAR
            lays_down = any(candidate.lines[i].sort in ("rule", "preference") for i in candidate.lost)
            bears = people or held > 0 or near or not (is_shown or (is_worded and not lays_down))
            together = (passage.session, passage.turn) == (told.session, told.turn)  # what was said to it
            is_told = held >= SURELY or together or passage.pinned
            return is_told or (bears and evidence.score(row) >= least)

    found = [candidate for candidate in candidates if is_strong(candidate)]
    taken = {candidate.row for candidate in found}
    ask.passed.all([candidate for candidate in candidates if candidate.row not in taken], "weak")
    return found


def without_echoes(candidates: Sequence[Candidate], scope: Scope, ask: Ask) -> list[Candidate]:
    """`candidates` without what only says again what a block in the request shows: "Noted: gate 12, at 9:40." behind a
    user's "We leave from gate 12 at 9:40."."""
    found = []
    for candidate in candidates:
        said = _replied_to(candidate, scope, ask)
        lost = tuple(i for i in candidate.lost if not echoes(candidate.lines[i], said, scope))
        if lost and not _only_asks_on(candidate, lost):
            found.append(candidate if lost == candidate.lost else candidate._replace(lost=lost))
        else:
            ask.passed.add(candidate.passage, "present", row=candidate.row)
    return found


def _only_asks_on(candidate: Candidate, lost: Sequence[int]) -> bool:
    """Is it but the question at the end of what an assistant said, of which the request holds the rest?"""
    rest = len(lost) < len(candidate.lines) and candidate.passage.speaker == "assistant"
    return rest and all(ends_asking(candidate.lines[i].flat) for i in lost)


def _replied_to(candidate: Candidate, scope: Scope, ask: Ask) -> list[frozenset[str]]:
    """The words of the user's message that the assistant replies to, if a block in the request shows it."""
    passage = candidate.passage
    at = candidate.row - passage.part - 1
    if passage.speaker != "assistant" or passage.tools or at < 0:
        return []
    before = scope.passages[at]
    shown = before.passage.id in ask.shown and before.passage.speaker == "user" and before.passage.turn == passage.turn
    return [before.words] if shown else []


def echoes(line: Line, messages: Iterable[frozenset[str]], scope: Scope) -> bool:
    """Is little of a sentence new beside the words of one of these messages, and no figure?"""
    figures = {word for word in terms(line.flat) if any(map(str.isdigit, word))}
    rarities = {word: scope.idf(word) for word in line.words}
    least = ECHO * fsum(rarities.values())

    def has(said: frozenset[str]) -> bool:
        return figures <= said and fsum([rarity for word, rarity in rarities.items() if word not in said]) < least

    return any(map(has, messages))


def _first(candidates: Sequence[Candidate], scope: Scope, mass: Mapping[str, float], order: Sequence[int]) -> int:
    """The best row, lost or not, but for the question itself, which the request holds."""
    lost = {candidate.row for candidate in candidates}
    others = (row for row in order if row in lost or coverage(mass, scope.passages[row].words) < ASKED_BEFORE)
    return next(others, order[0])


def _strong_of_agents(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], order: Sequence[int]
) -> Callable[[Candidate], bool]:
    first = _first(candidates, scope, mass, order)
    best, told = evidence.score(first), scope.passages[first].passage

    def is_strong(candidate: Candidate) -> bool:
        row, passage = candidate.row, candidate.passage
        near = evidence.cosines is not None and float(evidence.cosines[row]) >= PRINTED
        bears = near or coverage(mass, scope.passages[row].words) >= HELD
        if not passage.tools and passage.speaker != "tool":
            together = (passage.session, passage.turn) == (told.session, told.turn)
            least = SAID_TOGETHER if together else SAID_BESIDE
            lays_down = any(candidate.lines[i].sort == "rule" for i in candidate.lost)
            return evidence.score(row) >= least * best and (bears or not lays_down)
        return bears and evidence.score(row) >= PRINTED_BESIDE * best

    return is_strong
