"""Determines what the packer may take of each candidate, and what that is worth."""

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from lantern_proxy import pack
from lantern_proxy.analyze import ends_asking
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.candidates import Replaced, answering_rows, may_answer, name_chars, names_of, replaced
from lantern_proxy.restore.headings import headings, headings_above, needed_headings, tables
from lantern_proxy.restore.lines import FILLER, is_filler
from lantern_proxy.restore.parts import Candidate, term_weight
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.question import Evidence, coverage, sentence_worth
from lantern_proxy.restore.salience import Surroundings, likelihood
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.superseded import Changes

SHARPNESS = 1.0
"""How fast the likelihood of being evidence falls with the fused score: by e for each standard deviation."""
SALIENCE = 0.25
"""Exponent of a passage's general likelihood of being asked for, when the question is known."""
PINNED = 4.0
"""Factor of a passage that somebody pinned."""
BELOW_CHARS = 300
"""Most characters added below a heading that a question is about."""
FEW_CHARS = 20
"""Longest sentence that is always added after the one before it: leaving a gap would cost almost as much."""
SAME_QUESTION = 0.6
"""Least coverage of a question by two passages that both answer it."""
_ATTACHED = re.compile(r" \[[^\]]*\]$")
"""An attachment in brackets after the text of a message."""


def offers_of(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], ask: Ask
) -> list[pack.Offer]:
    """What the packer may take of each candidate."""
    shown = scope.passages.of(scope.rows(sorted(ask.shown)))
    old = replaced(candidates, ask, shown)
    made = [
        _offer(c, scope, evidence, mass, {i: newer for (m, i), newer in old.items() if m == n})
        for n, c in enumerate(candidates)
    ]
    made = [offer if offer.mark else replace(offer, mark=_mark_of_later(offer, shown, mass)) for offer in made]
    scope.passages.read(scope.previous(c.row for c in candidates))
    salient = [_salience(c, scope) for c in candidates]
    mean = sum(salient) / max(1, len(salient))
    return [
        replace(each, score=each.score * math.exp(SALIENCE * (own - mean)))
        for each, own in zip(made, salient, strict=True)
    ]


def _mark_of_later(offer: pack.Offer, shown: Sequence[ReadPassage], mass: Mapping[str, float]) -> str:
    """The mark of an offer for which a block shows a later passage that covers as much of the question with another
    value; else "". Not in chats between people, which stay on one topic for long."""
    passage, least = offer.passage, coverage(mass, offer.terms)
    if not shown or least < SAME_QUESTION or name_chars(passage) or passage.speaker not in ("user", "assistant"):
        return ""
    old = Changes(pack.join(passage.text, offer.spans))
    turns = [
        each.passage.turn
        for each in shown
        if (each.passage.session, each.passage.speaker == "tool") == (passage.session, False)
        and each.passage.turn > passage.turn
        and coverage(mass, each.words) >= least
        and old.has_other_value(" ".join([line.flat for line in each.lines if not ends_asking(line.flat)]))
    ]
    return Replaced(max(turns), None, whole=False).mark if turns else ""


def _salience(candidate: Candidate, scope: Scope) -> float:
    """Logarithm of how likely a passage is to be asked for, whatever the question."""
    lines = [line for i in candidate.lost if (line := candidate.lines[i]).salience > FILLER or line.keys]
    lines = lines or [candidate.lines[i] for i in candidate.lost]
    return math.log(
        likelihood(lines, term_weight, scope.rarities.__getitem__, Surroundings(answers=_answers(scope, candidate.row)))
    )


def surroundings_of(scope: Scope, row: int) -> Surroundings:
    """What the messages around the passage at `row` say about how likely it is to be asked for."""
    return Surroundings(answers=_answers(scope, row), reports=_reports(scope, row))


def _reports(scope: Scope, row: int) -> bool:
    """Is it an assistant's message right after a tool result?"""
    passage = scope.passages[row].passage
    if passage.speaker != "assistant" or passage.tools:
        return False
    at = scope.said_before(row - passage.part)
    return at is not None and scope.passages[at].passage.speaker == "tool"


def _answers(scope: Scope, row: int) -> bool:
    """Does the message before this passage end with a question? What a client writes around its user's words does not
    count."""
    passage = scope.passages[row].passage
    at = scope.said_before(row)
    if at is None or scope.passages[at].passage.message == passage.message:
        return False
    end = scope.passages[at].flat[-200:]
    return ends_asking(_ATTACHED.sub("", end) if end.endswith("]") else end)


def _with_tables(
    candidate: Candidate, relevant: AbstractSet[int], matching: AbstractSet[int], lost: Sequence[int]
) -> AbstractSet[int]:
    """`relevant`, and the header of each table of which it has a row; all rows if only the header matches the question:
    "Which of them have a sauna?". A header is added even if the request has it with other rows."""
    found = set(relevant)
    for header, *rows in tables(candidate.passage, candidate.lines) if relevant else ():
        if not matching.isdisjoint(rows) or header not in matching:
            found |= {header} if not relevant.isdisjoint(rows) else set()
        else:
            found |= {header, *rows}.intersection(lost)
    return found


def _with_heads(
    candidate: Candidate, shown: AbstractSet[int], matching: AbstractSet[int], lost: Sequence[int]
) -> AbstractSet[int]:
    """`shown`, and the headings of these lines, even if the request has them, possibly elsewhere or with other lines.
    Below a heading that matches the question, and of which nothing is shown, the lines that it heads."""
    of = headings(candidate.passage, candidate.lines) if shown else ()
    if not of or max(of) < 0:
        return shown
    found = set(shown)
    for i in shown:
        found.update(headings_above(i, of))
        below = [n for n in lost if i in headings_above(n, of)] if i in matching and i in of else []
        if below and shown.isdisjoint(below):
            chars = 0
            for n in below:
                chars += candidate.lines[n].end - candidate.lines[n].start
                found |= {n} if chars <= BELOW_CHARS else set()
    return found


def _with_few_words(candidate: Candidate, shown: AbstractSet[int], lost: Sequence[int]) -> AbstractSet[int]:
    """`shown`, and a very short line right after each: "It is too strict. 0.8%", "Heirs of the Doge. Not dead.". In
    chats between people such lines are mostly cheers, so there they need a digit."""
    found, people = set(shown), name_chars(candidate.passage) > 0
    for i in lost:
        line = candidate.lines[i]
        is_said = line.sort == "plain" and not is_filler(line, candidate.passage.speaker)
        is_said = is_said and (line.digits or not people)
        if i - 1 in shown and len(line.flat) <= FEW_CHARS and is_said and not ends_asking(line.flat):
            found.add(i)
    return found


def _offer(
    candidate: Candidate, scope: Scope, evidence: Evidence, mass: Mapping[str, float], old: Mapping[int, Replaced]
) -> pack.Offer:
    """What the packer may take of one candidate: its lost sentences without filler, weighted by their coverage of the
    question.

    old: line -> what replaces it. Lines that are replaced completely are left out, or marked if there are no others.
    """
    lost = [i for i in candidate.lost if i not in old or not old[i].whole] or list(candidate.lost)
    matching = {i for i in lost if coverage(mass, candidate.lines[i].words)}
    in_prose = {i for i in matching if candidate.lines[i].sort != "printed"}
    answering = answering_rows(candidate, mass).intersection(lost)
    relevant = in_prose | (answering or may_answer(candidate, lost, mass))
    shown = _with_heads(candidate, _with_tables(candidate, relevant, matching, lost), matching, lost)
    shown = _with_few_words(candidate, shown, lost)
    chosen_rows = sorted(shown or lost)
    chosen, at = [candidate.lines[i] for i in chosen_rows], {i: n for n, i in enumerate(chosen_rows)}
    over = needed_headings(candidate.passage, candidate.lines)
    names = names_of(candidate.passage, candidate.lines)
    newer = max((old[i] for i in shown or lost if i in old), default=None, key=lambda each: each.turn or math.inf)
    likely = math.exp(SHARPNESS * (evidence.score(candidate.row) - (newer is not None and newer.whole)))
    likely *= PINNED if candidate.passage.pinned else 1.0
    return pack.Offer(
        candidate.passage,
        spans=tuple((line.start, line.end) for line in chosen),
        score=likely,
        worth=tuple(sentence_worth(line, mass) for line in chosen),
        terms=scope.passages[candidate.row].words,
        mark=newer.mark if newer else "",
        names=tuple(names[i] for i in chosen_rows),
        name_chars=name_chars(candidate.passage),
        over=tuple(tuple(at[head] for head in over[i] if head in at) for i in chosen_rows),
    )
