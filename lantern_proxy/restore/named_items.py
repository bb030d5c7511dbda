"""Finds lost passages about what a question names or lists: each of several listed items gets its best passage."""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

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
"""Least idf of a name; the names of the participants are more common than that."""
_SIGNS = re.compile("[\u30a0-\u30ff\u3400-\u9fff]{2,}")
"""A name or another word in Japanese, between the characters of its grammar."""
_OPENS = re.compile(r"(?:^|[.!?:;]\s)\W*[A-Z](?=[a-z])")
"""The capital at the start of a sentence: the verb of "Call Petrov" is not part of the name."""
MOST_NAMING = 4
"""A name in more passages than this is the topic of the whole conversation."""
ITEM_HELD = 0.6
"""Least coverage of a listed item by a passage that describes it."""


def about_named(candidates: Sequence[Candidate], scope: Scope, question: Question, present: Present) -> list[Candidate]:
    """Those of `candidates`, best first, with a lost sentence about what the user names in a question or an order: it
    contains the name and another content word of the message. The name alone is enough in a user's sentence, if the
    message is an order and the rest of the request lacks the name."""
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
        others = question.words - max(about.values(), key=len)  # another name counts as another word
        return not others.isdisjoint(there)

    found = [c for c in candidates if any(tells(c.lines[i], c.passage.speaker) for i in c.lost)]
    return found if len(found) <= MOST_NAMING else []


def best_row_of_items(scope: Scope, question: Question, evidence: Evidence, order: Sequence[int]) -> list[int]:
    """For each listed item the row of `order` that covers it best, if it covers nearly all of it: at most one row per
    item of `question.items`, possibly the same for several."""
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


def raise_items(
    rows: AbstractSet[int], candidates: Sequence[Candidate], offered: Sequence[pack.Offer]
) -> list[pack.Offer]:
    """`offered`, which belong to `candidates`, with the scores of those at `rows` raised to the best one's, since each
    is the best passage of one item."""
    top = max((offer.score for offer in offered), default=0.0)
    return [replace(o, score=top) if c.row in rows else o for c, o in zip(candidates, offered, strict=True)]


def _names(said: str, scope: Scope) -> dict[str, frozenset[str]]:
    """Rare names in a text -> their index terms."""
    opened = _OPENS.sub(lambda found: found[0].lower(), said)
    found = specifics(opened)
    written = [each for each in found if not (each.isalpha() and each.islower())]  # "tomorrow" names nothing
    named = {name: frozenset(terms(name)) for name in (*keys(written), *_SIGNS.findall(said))}
    return {name: words for name, words in named.items() if max(map(scope.idf, words), default=0.0) >= RARE}
