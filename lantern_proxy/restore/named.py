"""Lost passages about what a question names or lists: each of several things gets its best passage."""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from lantern_proxy import pack
from lantern_proxy.analyze import keys, terms
from lantern_proxy.analyze.specific import specifics
from lantern_proxy.restore.lines import Line
from lantern_proxy.restore.parts import Candidate
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import PLAIN_CHARS, Evidence, Question, coverage
from lantern_proxy.restore.scope import Scope
from lantern_proxy.turn import canonical

RARE = 0.5
"""How rare a name has to be: those of the people who talk are not."""
_SIGNS = re.compile("[\u30a0-\u30ff\u3400-\u9fff]{2,}")
"""A name or another word of Japanese, between the signs of its grammar."""
_OPENS = re.compile(r"(?:^|[.!?:;]\s)\W*[A-Z](?=[a-z])")
"""The capital with which a sentence opens: no name of two words begins with the verb of "Call Petrov"."""
MOST_NAMING = 4
"""What more passages name is what the conversation is about."""
ITEM_HELD = 0.6
"""Share of a listed thing that a passage holds which says what it is."""


def naming(candidates: Sequence[Candidate], scope: Scope, question: Question, present: Present) -> list[Candidate]:
    """Of `candidates`, best first, those with a lost sentence about what the user names, whether they ask or give an
    order: it has the name and another content word of theirs. The name alone does where it is a user's, too, an order
    has it, and the rest of the request has not."""
    said = question.text
    if question.reacts or len(said) > PLAIN_CHARS:
        return []
    named = _names(said, scope)
    if not named:
        return []
    held = present.without(canonical(said)).specific_terms(named)

    def tells(line: Line, speaker: str) -> bool:
        there = frozenset(terms(line.flat))
        about = {name: words for name, words in named.items() if words <= there}
        if not about:
            return False
        if speaker == "user" and not question.asks and not held.issuperset(about):
            return True
        others = question.words - max(about.values(), key=len)  # another name is another word
        return not others.isdisjoint(there)

    found = [c for c in candidates if any(tells(c.lines[i], c.passage.speaker) for i in c.lost)]
    return found if len(found) <= MOST_NAMING else []


def listed(scope: Scope, question: Question, evidence: Evidence, order: Sequence[int]) -> list[int]:
    """For each thing that a question lists the row of `order` that says most of it, if it says nearly all: at most one
    for each of `question.items`, maybe the same for several."""
    if len(question.text) > PLAIN_CHARS or question.reacts:
        return []
    rows = list[int]()
    for item in question.items:
        mass = {term: scope.idf(term) for term in sorted(item)}
        total = sum(mass.values())
        held = {row: coverage(mass, scope.passages[row].words) for row in order}
        row = max(order, key=lambda row: (held[row], evidence.score(row)))
        if held[row] >= ITEM_HELD * total and evidence.score(row) > 0:
            rows.append(row)
    return rows


def first_of(
    rows: AbstractSet[int], candidates: Sequence[Candidate], offered: Sequence[pack.Offer]
) -> list[pack.Offer]:
    """`offered`, which are those of `candidates`, with those at `rows` as good as the best: each is the best of one
    thing."""
    top = max((offer.score for offer in offered), default=0.0)
    return [replace(o, score=top) if c.row in rows else o for c, o in zip(candidates, offered, strict=True)]


def _names(said: str, scope: Scope) -> dict[str, frozenset[str]]:
    """What a text names that is rare in the scope -> its index terms."""
    opened = _OPENS.sub(lambda found: found[0].lower(), said)
    found = specifics(opened)
    written = [each for each in found if not (each.isalpha() and each.islower())]  # "tomorrow" names nothing
    named = {name: frozenset(terms(name)) for name in (*keys(written), *_SIGNS.findall(said))}
    return {name: words for name, words in named.items() if max(map(scope.idf, words), default=0.0) >= RARE}
