"""Finds lost passages about what a question names or lists: each of several listed items gets its best passage."""

import re
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from lantern_proxy import pack
from lantern_proxy.analyze import ends_asking, is_content, keys, query_terms, terms
from lantern_proxy.analyze.specific import specifics
from lantern_proxy.restore.lines import Line
from lantern_proxy.restore.parsed_statement import parse_statement
from lantern_proxy.restore.parts import Candidate
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import PLAIN_CHARS, Evidence, Question, coverage
from lantern_proxy.restore.scope import Scope
from lantern_proxy.signals.form import NUMBER_WORDS
from lantern_proxy.turn import canonical

RARE = 0.5
"""Least idf of a name; the names of the participants are more common than that."""
_SIGNS = re.compile("[\u30a0-\u30ff\u3400-\u9fff]{2,}")
"""A name or another word in Japanese, between the characters of its grammar."""
_OPENS = re.compile(r"(?:^|[.!?:;]\s)\W*[A-Z](?=[a-z])")
"""The capital at the start of a sentence: the verb of "Call Petrov" is not part of the name."""
MOST_NAMING = 4
"""A name in more passages than this is the topic of the whole conversation."""
SUBJECT_TERMS = 2
"""The subject of a statement is among so many of its first words."""
ITEM_HELD = 0.6
"""Least coverage of a listed item by a passage that describes it."""


def about_named(candidates: Sequence[Candidate], scope: Scope, question: Question, present: Present) -> list[Candidate]:
    """Those of `candidates`, best first, with a lost sentence about what the user names in a question or an order: it
    contains the name and another content word of the message. The name alone is enough in a user's sentence, if the
    message is an order and the rest of the request lacks the name. What is named in small letters counts in an order,
    see _told_in_small()."""
    said = question.text
    if question.reacts or len(said) > PLAIN_CHARS:
        return []
    named, rest = _names(said, scope), present.without(canonical(said))
    small = frozenset[str]() if question.asks else _small_names(question, scope, rest)
    if not (named or small):
        return []
    held = rest.specific_terms(named)

    def told_of(line: Line, speaker: str) -> AbstractSet[str]:
        there = frozenset(terms(line.flat))
        about = {name: words for name, words in named.items() if words <= there}
        others = question.words - max(about.values(), key=len, default=frozenset())  # another name counts as a word
        is_enough = speaker == "user" and not question.asks and not held.issuperset(about)
        told = about.keys() if is_enough or not others.isdisjoint(there) else frozenset[str]()
        return told | _told_in_small(line, small) if speaker == "user" else told

    told = [frozenset[str]().union(*[told_of(c.lines[i], c.passage.speaker) for i in c.lost]) for c in candidates]
    naming = Counter(name for names in told for name in names)
    return [c for c, names in zip(candidates, told, strict=True) if any(naming[name] <= MOST_NAMING for name in names)]


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


def _small_names(question: Question, scope: Scope, rest: Present) -> frozenset[str]:
    """Rare words of an order that the rest of the request lacks, without its first word, which is mostly a verb."""
    verb = terms(question.text)[:1]
    rare = [term for term in question.terms if is_content(term) and term.isalpha() and scope.idf(term) >= RARE]
    return frozenset(rare).difference(verb, NUMBER_WORDS, rest.terms(rare))


def _told_in_small(line: Line, small: frozenset[str]) -> frozenset[str]:
    """Those of the words `small` that a short sentence tells of: two of them, or one that is its subject and has a
    value ("birch listens on 7411")."""
    there = small & line.words
    if not there or line.sort == "code" or len(line.flat) > PLAIN_CHARS or ends_asking(line.flat):
        return frozenset()
    if len(there) > 1:
        return there
    values = [value for value in parse_statement(line.flat).located_values if value.sort != "name"]
    is_subject = not there.isdisjoint(query_terms(line.flat)[:SUBJECT_TERMS])
    return there if is_subject and any(there <= value.head for value in values) else frozenset()


def _names(said: str, scope: Scope) -> dict[str, frozenset[str]]:
    """Rare names in a text -> their index terms."""
    opened = _OPENS.sub(lambda found: found[0].lower(), said)
    found = specifics(opened)
    written = [each for each in found if not (each.isalpha() and each.islower())]  # "tomorrow" names nothing
    named = {name: frozenset(terms(name)) for name in (*keys(written), *_SIGNS.findall(said))}
    return {name: words for name, words in named.items() if max(map(scope.idf, words), default=0.0) >= RARE}
