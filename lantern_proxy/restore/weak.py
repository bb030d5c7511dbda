"""Removes lost passages that are too weak, compared with the best one, to be in a question block."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum

from lantern_proxy.analyze import ends_asking, terms
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.candidates import HELD, PRINTED, may_answer
from lantern_proxy.restore.cover import ECHO
from lantern_proxy.restore.lines import Line, is_filler
from lantern_proxy.restore.parts import Candidate, is_agent_session
from lantern_proxy.restore.question import Evidence, coverage
from lantern_proxy.restore.scope import Scope

SAID_BESIDE, SAID_TOGETHER, PRINTED_BESIDE = 0.4, 0.2, 0.5
"""Least score as a share of the best passage's: of what was said; in an agent's session, of what was said in the turn
of the best one; and there, of tool results and calls."""
AMONG_PEOPLE = 0.2
"""The same in chats between people."""
SURELY = 0.5
"""A passage with this coverage of the question is never weak: among few passages, no score is far above the mean."""
NEAR, MANY = 0.35, 20
"""Least cosine of a relevant passage that shares no word with the question. From so many passages on, it must also
stand out among them."""
ASKED_BEFORE = 0.9
"""A passage with this coverage is taken for an earlier copy of the question itself."""


def without_weak(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], order: Sequence[int],
    ask: Ask, *, people: bool,
) -> list[Candidate]:  # fmt: skip
    """`candidates` without those that are much weaker than the best passage of `order`.

    The best passage need not be lost: the request, or a block in it, may have it. If so, or if it covers half of the
    question, candidates that share no word with the question are removed as well, since they owe their score to their
    neighbours. Rules are removed for that reason only if the request has the best passage.

    The limit is lowest in chats between people, since they ask in other words. Passages from the turn of the best one
    are kept. An agent's session is full of tool output and repeats the words of its task in every step. There the limit
    applies to the turn of the best passage, too, and tool results, calls and standing rules must cover more than one
    word of the question.

    people: is `order` from a chat between people? See is_group_chat()
    """
    if is_agent_session([each.passage for each in scope.passages.of(order)]):
        is_strong = _strong_in_agent_session(candidates, scope, evidence, mass, order)
    else:
        is_strong = _strong_in_chat(candidates, scope, evidence, mass, order, ask, people=people)
    found = [candidate for candidate in candidates if is_strong(candidate)]
    taken = {candidate.row for candidate in found}
    ask.passed.all([candidate for candidate in candidates if candidate.row not in taken], "weak")
    return found


def without_echoes(
    candidates: Sequence[Candidate], scope: Scope, mass: Mapping[str, float], ask: Ask
) -> list[Candidate]:
    """`candidates` without lines that only repeat what a block in the request shows: "Noted: gate 12, at 9:40." after a
    user's "We leave from gate 12 at 9:40.". If the rest is filler, it goes, too."""
    found = []
    for candidate in candidates:
        said = _replied_to(candidate, scope, ask)
        lost = tuple(i for i in candidate.lost if not echoes(candidate.lines[i], said, scope))
        left = candidate if lost == candidate.lost else candidate._replace(lost=lost)
        tells = left is candidate or may_answer(left, lost, mass)
        if lost and tells and not _only_asks_for_what_is_there(candidate, lost, scope, ask):
            found.append(left)
        else:
            ask.passed.add(candidate.passage, "present", row=candidate.row)
    return found


def _only_asks_for_what_is_there(candidate: Candidate, lost: Sequence[int], scope: Scope, ask: Ask) -> bool:
    """Do the lost lines only ask, and a block shows the answer; or close an assistant's message whose rest the request
    has?"""
    passage, lines = candidate.passage, candidate.lines
    if not all(ends_asking(lines[i].flat) or is_filler(lines[i], passage.speaker) for i in lost):
        return False
    if passage.speaker == "assistant":
        return len(lost) < len(lines) and all(ends_asking(lines[i].flat) for i in lost)
    at = scope.said_after(candidate.row)
    after = passage if at is None else scope.passages[at].passage
    return after.id in ask.shown and after.speaker == "assistant"


def _replied_to(candidate: Candidate, scope: Scope, ask: Ask) -> list[frozenset[str]]:
    """The words of the user message that the assistant replies to, if a block in the request shows it; else empty."""
    passage = candidate.passage
    if passage.speaker != "assistant" or passage.tools:
        return []
    at = scope.said_before(candidate.row - passage.part)
    if at is None:
        return []
    before = scope.passages[at]
    shown = before.passage.id in ask.shown and before.passage.speaker == "user" and before.passage.turn == passage.turn
    return [before.words] if shown else []


def echoes(line: Line, messages: Iterable[frozenset[str]], scope: Scope) -> bool:
    """Does a sentence add little, and no number, to the words of one of these messages?"""
    figures = {word for word in terms(line.flat) if any(map(str.isdigit, word))}
    rarities = {word: scope.idf(word) for word in line.words}
    least = ECHO * fsum(rarities.values())

    def has(said: frozenset[str]) -> bool:
        return figures <= said and fsum([rarity for word, rarity in rarities.items() if word not in said]) < least

    return any(map(has, messages))


def _reference_row(
    candidates: Sequence[Candidate], scope: Scope, mass: Mapping[str, float], order: Sequence[int]
) -> int:
    """The best row, lost or not, except copies of the question, which the request has."""
    lost = {candidate.row for candidate in candidates}
    others = (row for row in order if row in lost or coverage(mass, scope.passages[row].words) < ASKED_BEFORE)
    return next(others, order[0])


def _nearness(evidence: Evidence, least: float) -> Callable[[int], bool]:
    """The test whether the passage at a row is near the question in meaning: its cosine is at least `least` and, among
    many, a standard deviation above the mean. In a language that the vectors' model does not know, all texts are
    alike."""
    cosines = evidence.cosines
    if cosines is None:
        return lambda row: False
    limit = max(least, float(cosines.mean() + cosines.std())) if len(cosines) >= MANY else least
    return lambda row: float(cosines[row]) >= limit


def _strong_in_chat(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], order: Sequence[int],
    ask: Ask, *, people: bool,
) -> Callable[[Candidate], bool]:  # fmt: skip
    """The test for a strong candidate in a chat, see without_weak()."""
    reference_row = _reference_row(candidates, scope, mass, order)
    least = (AMONG_PEOPLE if people else SAID_BESIDE) * evidence.score(reference_row)
    reference = scope.passages[reference_row].passage
    best, lost = scope.passages[order[0]], {candidate.row for candidate in candidates}
    is_shown = bool(ask.shown) or (order[0] not in lost and not ends_asking(best.flat))
    is_worded = coverage(mass, scope.passages[reference_row].words) >= SURELY
    is_near = _nearness(evidence, NEAR)

    def is_strong(candidate: Candidate) -> bool:
        row, passage = candidate.row, candidate.passage
        held = coverage(mass, scope.passages[row].words)
        lays_down = any(candidate.lines[i].sort in ("rule", "preference") for i in candidate.lost)
        bears = people or held > 0 or is_near(row) or not (is_shown or (is_worded and not lays_down))
        together = (passage.session, passage.turn) == (reference.session, reference.turn)
        is_told = held >= SURELY or together or passage.pinned
        return is_told or (bears and evidence.score(row) >= least)

    return is_strong


def _strong_in_agent_session(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], order: Sequence[int]
) -> Callable[[Candidate], bool]:
    """The test for a strong candidate in an agent's session, see without_weak()."""
    reference_row = _reference_row(candidates, scope, mass, order)
    best, reference = evidence.score(reference_row), scope.passages[reference_row].passage
    is_near = _nearness(evidence, PRINTED)

    def is_strong(candidate: Candidate) -> bool:
        row, passage = candidate.row, candidate.passage
        bears = is_near(row) or coverage(mass, scope.passages[row].words) >= HELD
        if not passage.tools and passage.speaker != "tool":
            together = (passage.session, passage.turn) == (reference.session, reference.turn)
            least = SAID_TOGETHER if together else SAID_BESIDE
            lays_down = any(candidate.lines[i].sort == "rule" for i in candidate.lost)
            return evidence.score(row) >= least * best and (bears or not lays_down)
        return bears and evidence.score(row) >= PRINTED_BESIDE * best

    return is_strong
