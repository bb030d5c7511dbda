"""What the packer may take of each candidate, and what that is worth."""

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from lantern_proxy import pack
from lantern_proxy.analyze import ends_asking
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.candidates import Replaced, answering_rows, name_chars, names_of, replaced, tells
from lantern_proxy.restore.lines import FILLER, above, heads, is_filler, stands_under, tables
from lantern_proxy.restore.parts import Candidate, term_weight
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.question import Evidence, coverage, sentence_worth
from lantern_proxy.restore.salience import Around, likelihood
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.superseded import Changes
from lantern_proxy.turn import CLIENT

SHARPNESS = 1.0
"""How fast the likelihood of being evidence falls with the fused score: by e a standard deviation."""
SALIENCE = 0.25
"""How likely a passage is to be asked for at all counts to this power, where the question is known."""
PINNED = 4.0
"""Times the worth of a passage that somebody pinned."""
BELOW_CHARS = 300
"""Most of what goes in below a head that a question is about."""
FEW_CHARS = 20
"""Most of a sentence that goes in with the one before it: what a gap costs and more would hardly be saved."""
SAYS_SO = 0.6
"""Least share of a question that two passages hold which say it twice."""
_ATTACHED = re.compile(r" \[[^\]]*\]$")
"""What a message shows may follow in brackets behind its text."""


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
    made = [offer if offer.mark else replace(offer, mark=_later(offer, shown, mass)) for offer in made]
    scope.passages.read(c.row - 1 for c in candidates if c.row)
    salient = [_salience(c, scope) for c in candidates]
    mean = sum(salient) / max(1, len(salient))
    return [
        replace(each, score=each.score * math.exp(SALIENCE * (own - mean)))
        for each, own in zip(made, salient, strict=True)
    ]


def _later(offer: pack.Offer, shown: Sequence[ReadPassage], mass: Mapping[str, float]) -> str:
    """The mark of an offer that says what is asked, where a later passage that a block shows says as much of it with
    another value; else "". Not where people talk: they speak of the same things for long."""
    passage, least = offer.passage, coverage(mass, offer.terms)
    if not shown or least < SAYS_SO or name_chars(passage) or passage.speaker not in ("user", "assistant"):
        return ""
    old = Changes(pack.join(passage.text, offer.spans))
    turns = [
        each.passage.turn
        for each in shown
        if (each.passage.session, each.passage.speaker == "tool") == (passage.session, False)
        and each.passage.turn > passage.turn
        and coverage(mass, each.words) >= least
        and old.has_other(" ".join([line.flat for line in each.lines if not ends_asking(line.flat)]))
    ]
    return Replaced(max(turns), None, whole=False).mark if turns else ""


def _salience(candidate: Candidate, scope: Scope) -> float:
    """Logarithm of how likely a passage is to be asked for, whatever the question."""
    said = [line for i in candidate.lost if (line := candidate.lines[i]).salience > FILLER or line.keys]
    said = said or [candidate.lines[i] for i in candidate.lost]
    return math.log(
        likelihood(said, term_weight, scope.rarities.__getitem__, Around(answers=_answers(scope, candidate.row)))
    )


def around(scope: Scope, row: int) -> Around:
    """What stands around the passage at `row`, as far as it tells how likely that is to be asked for."""
    return Around(answers=_answers(scope, row), reports=_reports(scope, row))


def _reports(scope: Scope, row: int) -> bool:
    """Does the assistant say it right behind the result of a tool?"""
    passage = scope.passages[row].passage
    at = row - passage.part - 1
    if passage.speaker != "assistant" or passage.tools or at < 0:
        return False
    before = scope.passages[at].passage
    return before.speaker == "tool" and before.session == passage.session


def _answers(scope: Scope, row: int) -> bool:
    """Does the message before this passage end with a question?"""
    passage = scope.passages[row].passage
    at = row - 1
    while at > 0 and scope.passages[at].passage.speaker == CLIENT:
        at -= 1
    if at < 0 or passage.part:
        return False
    before = scope.passages[at]
    asked = before.passage.session == passage.session and before.passage.message != passage.message
    end = before.flat[-200:]
    return asked and ends_asking(_ATTACHED.sub("", end) if end.endswith("]") else end)


def _with_tables(
    candidate: Candidate, telling: AbstractSet[int], bears: AbstractSet[int], lost: Sequence[int]
) -> AbstractSet[int]:
    """`telling`, and the header of each table of which it has a row; all its rows where only the header bears on the
    question: "Which of them have a sauna?". A header goes in also where the request holds it, with other rows."""
    found = set(telling)
    for header, *rows in tables(candidate.passage, candidate.lines) if telling else ():
        if not bears.isdisjoint(rows) or header not in bears:
            found |= {header} if not telling.isdisjoint(rows) else set()
        else:
            found |= {header, *rows}.intersection(lost)
    return found


def _with_heads(
    candidate: Candidate, shown: AbstractSet[int], bears: AbstractSet[int], lost: Sequence[int]
) -> AbstractSet[int]:
    """`shown`, and the heads of these lines, also those that the request holds: it may have the word elsewhere, or with
    other lines. Below a head that bears on the question, and of which nothing is shown, what it is the head of."""
    of = heads(candidate.passage, candidate.lines) if shown else ()
    if not of or max(of) < 0:
        return shown
    found = set(shown)
    for i in shown:
        found.update(above(i, of))
        below = [n for n in lost if i in above(n, of)] if i in bears and i in of else []
        if below and shown.isdisjoint(below):
            chars = 0
            for n in below:
                chars += candidate.lines[n].end - candidate.lines[n].start
                found |= {n} if chars <= BELOW_CHARS else set()
    return found


def _with_few_words(candidate: Candidate, shown: AbstractSet[int], lost: Sequence[int]) -> AbstractSet[int]:
    """`shown`, and the few words right behind each: "It is too strict. 0.8%", "Heirs of the Doge. Not dead.". Where
    people talk these cheer, unless they have a figure."""
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
    """What the packer may take of one candidate: its lost sentences without filler, weighed by what of the question
    they hold.

    old: line -> what replaces it. Lines that are replaced whole are left out, or marked when there are no others.
    """
    lost = [i for i in candidate.lost if i not in old or not old[i].whole] or list(candidate.lost)
    bears = {i for i in lost if coverage(mass, candidate.lines[i].words)}
    said = {i for i in bears if candidate.lines[i].sort != "printed"}
    answering = answering_rows(candidate, mass).intersection(lost)
    telling = said | (answering or {i for i in lost if tells(candidate.lines[i], mass)})
    shown = _with_heads(candidate, _with_tables(candidate, telling, bears, lost), bears, lost)
    shown = _with_few_words(candidate, shown, lost)
    goes_in = sorted(shown or lost)
    told, at = [candidate.lines[i] for i in goes_in], {i: n for n, i in enumerate(goes_in)}
    over = stands_under(candidate.passage, candidate.lines)
    names = names_of(candidate.passage, candidate.lines)
    newer = max((old[i] for i in shown or lost if i in old), default=None, key=lambda each: each.turn or math.inf)
    likely = math.exp(SHARPNESS * (evidence.score(candidate.row) - (newer is not None and newer.whole)))
    likely *= PINNED if candidate.passage.pinned else 1.0
    return pack.Offer(
        candidate.passage,
        tuple((line.start, line.end) for line in told),
        likely,
        tuple(sentence_worth(line, mass) for line in told),
        scope.passages[candidate.row].words,
        newer.mark if newer else "",
        tuple(names[i] for i in goes_in),
        name_chars=name_chars(candidate.passage),
        over=tuple(tuple(at[head] for head in over[i] if head in at) for i in goes_in),
    )
