"""Passages that a request lacks, wholly or in part, as candidates for a block."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from lantern_proxy import pack, reinforce, trust
from lantern_proxy.analyze import keys, terms
from lantern_proxy.analyze.specific import specifics
from lantern_proxy.archive import Archive
from lantern_proxy.config import RestoreConfig
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.context import asks
from lantern_proxy.restore.cover import ECHO, Candidate, Part, among_people, is_agents, term_weight
from lantern_proxy.restore.lines import FILLER, Line, above, heads, lost, tables
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import (
    LEAST_ITEMS,
    PLAIN_CHARS,
    Evidence,
    Question,
    coverage,
    masses,
    sentence_worth,
)
from lantern_proxy.restore.salience import Place, likelihood
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.superseded import MOST_CHARS, Statement, of_request, superseded
from lantern_proxy.signals import name_before
from lantern_proxy.turn import CLIENT, Passage, Reason, canonical

OFFERS, OFFER_TIMES = 12, 3
"""Passages that the packer chooses from, when a question is known: at least so many, and then until their text is so
many times the budget."""
SHARPNESS = 1.0
"""How fast the likelihood of being evidence falls with the fused score: by e a standard deviation."""
SALIENCE = 0.25
"""How likely a passage is to be asked for at all counts to this power, where the question is known."""
RARE = 0.5
"""How rare a name has to be: those of the people who talk are not."""
_SIGNS = re.compile("[\u30a0-\u30ff\u3400-\u9fff]{2,}")
"""A name or another word of Japanese, between the signs of its grammar."""
MOST_NAMING = 4
"""What more passages name is what the conversation is about."""
SAID_BESIDE, SAID_TOGETHER, PRINTED_BESIDE, HELD = 0.4, 0.2, 0.5, 0.25
"""Least scores beside the best one, of what is said, and where an agent is at work of what is said in the same turn,
and of tools and calls; and the least share of the question that the latter hold."""
AMONG_PEOPLE = 0.3
"""The same of what is said where people talk to each other."""
SURELY = 0.5
"""Share of the question with which what is said is never weak: of few passages no score is far above the mean."""
ASKED_BEFORE = 0.9
"""Share of the question that only the question itself holds."""
PRINTED = 0.5
"""Share of the question that a line holds, or nearness to it, from which on it may answer although it was printed."""
BY_REQUEST = "superseded by this request"
"""What is said of a statement that the request itself replaces."""
BELOW_CHARS = 300
"""Most of what goes in below a head that a question is about."""
_AHEAD = 32
"""Passages that are read, and looked for in the request, at once."""
PINNED = 4.0
"""Times the worth of a passage that somebody pinned."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where candidates come from, and by which rules they are refused."""

    archive: Archive
    restore: RestoreConfig
    rates: reinforce.Rates

    def lost_of(
        self, scope: Scope, order: Sequence[int], present: Present, mass: Mapping[str, float], ask: Ask
    ) -> list[Candidate]:
        """The first of `order` that the request lacks, wholly or in part: OFFERS at least, and then until their text is
        OFFER_TIMES the budget. mass: of the question, see masses()"""
        most_chars = OFFER_TIMES * ask.budget_chars
        found: list[Candidate] = []
        for row, read, reason in looked_at(scope, order, present, ask):
            if (len(found) >= OFFERS and most_chars <= 0) or ask.late():
                break
            if reason:
                ask.passed.add(read.passage, reason, row=row)
                continue
            candidate = candidate_of(row, read, present, ask)
            if any(_tells(read.lines[i], mass) for i in candidate.lost) or _rows(candidate, mass):
                found.append(candidate)
                most_chars -= len(read.flat)
            else:
                ask.passed.add(read.passage, "filler" if candidate.lost else "present", row=row)
        return self.alive(ask, found)

    def alive(self, ask: Ask, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Without what was pruned or refused since, or has too little confidence; as the archive has it now."""
        now = self.archive.of(ask.tenant).plain_passages([c.passage.id for c in candidates])
        found = []
        for candidate in candidates:
            passage = now.get(candidate.passage.id)
            if passage is None or passage.text != candidate.passage.text:
                continue  # a passage that was corrected since the scope was read has other lines
            if reason := self.refused(passage):
                ask.passed.add(passage, reason, value=passage.confidence, row=candidate.row)
            else:
                found.append(Candidate(passage, candidate.lines, candidate.lost, candidate.row, candidate.place))
        return found

    def refused(self, passage: Passage) -> Reason | None:
        """Why a rule or a person keeps a passage out, if one does."""
        if passage.verdict in reinforce.REFUSED:
            return "verdict"
        if not reinforce.retrievable(passage.confidence, self.rates):
            return "confidence"
        return None if trust.admitted(passage, self.restore.untrusted) else "untrusted"


def looked_at(
    scope: Scope, rows: Sequence[int], present: Present, ask: Ask
) -> Iterator[tuple[int, ReadPassage, Reason | None]]:
    """Each of `rows` with its passage, and why the request lacks nothing of it, if so. Some are looked at ahead."""
    for first in range(0, len(rows), _AHEAD):
        some = rows[first : first + _AHEAD]
        passages = scope.passages.of(some)
        for row, read, is_held in zip(some, passages, present.holds([e.flat for e in passages]), strict=True):
            yield row, read, "left" if read.passage.message in ask.left else "present" if is_held else None


def candidate_of(row: int, read: ReadPassage, present: Present, ask: Ask) -> Candidate:
    """A passage with the lines that the request lacks; none when a replayed block shows it in other words."""
    gone = lost(read.passage, read.lines, present)
    if read.passage.id in ask.shown and len(gone) == len(read.lines):
        gone = ()
    return Candidate(read.passage, read.lines, gone, row)


def _tells(line: Line, mass: Mapping[str, float]) -> bool:
    """May a question be answered by it? What a tool gives again must hold much of it, and not in one word, or have a
    name that is asked for: `MAX_AGE`, `v2.1`."""
    if line.sort != "printed":
        return line.salience > FILLER
    shared, held = line.words & mass.keys(), coverage(mass, line.words)
    has_name = any(not word.isalpha() and not word.isdigit() for word in shared)
    return (held >= PRINTED and len(shared) > 1) or (held >= HELD and has_name)


def _rows(candidate: Candidate, mass: Mapping[str, float]) -> set[int]:
    """Printed lines that answer a question together with the header of their table, or with their heads: neither does
    alone."""
    lines, passage = candidate.lines, candidate.passage
    if passage.speaker != "tool":
        return set()
    under = [(row, [header]) for header, *rows in tables(passage, lines) for row in rows]
    of = heads(passage, lines)
    under += [(i, above(i, of)) for i in range(len(lines)) if of[i] >= 0]
    held = dict[int, float]()
    for row, over in under:
        words = frozenset().union(*[lines[i].words for i in over])
        own, theirs = coverage(mass, lines[row].words - words), coverage(mass, words)
        if own and theirs and own + theirs >= PRINTED:
            held[row] = own + theirs
    most = max(held.values(), default=0.0)
    return {row for row, each in held.items() if each >= 0.99 * most}


def strong(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], order: Sequence[int],
    ask: Ask,
) -> list[Candidate]:  # fmt: skip
    """`candidates` without those that say little of what is asked: much less than the best does.

    Least where people talk, who ask in other words; what was said in the turn of the best stays. An agent's session is
    full of what was printed, and repeats the words of its task in every step: there they are measured by the best of
    `order`, unless they were said in its turn, and must hold more than a word of the question where they are of a tool,
    a call, or a rule for all that is done.
    """
    passages = [each.passage for each in scope.passages.of(order)]
    if is_agents(passages):
        is_strong = _strong_of_agents(candidates, scope, evidence, mass, order)
    else:
        least = AMONG_PEOPLE if among_people(passages) else SAID_BESIDE
        least *= max((evidence.score(candidate.row) for candidate in candidates), default=0.0)

        told = scope.passages[order[0]].passage

        def is_strong(candidate: Candidate) -> bool:
            held = coverage(mass, scope.passages[candidate.row].words) >= SURELY
            passage = candidate.passage
            together = (passage.session, passage.turn) == (told.session, told.turn)  # what was said to it
            return held or together or passage.pinned or evidence.score(candidate.row) >= least

    found = [candidate for candidate in candidates if is_strong(candidate)]
    taken = {candidate.row for candidate in found}
    ask.passed.all([candidate for candidate in candidates if candidate.row not in taken], "weak")
    return found if among_people(passages) else _without_echoes(found, scope, ask)


def _without_echoes(candidates: Sequence[Candidate], scope: Scope, ask: Ask) -> list[Candidate]:
    """`candidates` without what only says again what a block in the request shows: "Noted: gate 12, at 9:40." behind a
    user's "We leave from gate 12 at 9:40."."""
    found = []
    for candidate in candidates:
        said = _replied_to(candidate, scope, ask)
        lost = tuple(i for i in candidate.lost if said is None or not _echoes(candidate.lines[i], said, scope))
        if lost and not _only_asks_on(candidate, lost):
            found.append(candidate if lost == candidate.lost else replace(candidate, lost=lost))
        else:
            ask.passed.add(candidate.passage, "present", row=candidate.row)
    return found


def _only_asks_on(candidate: Candidate, lost: Sequence[int]) -> bool:
    """Is it but the question at the end of what an assistant said, of which the request holds the rest?"""
    rest = len(lost) < len(candidate.lines) and candidate.passage.speaker == "assistant"
    return rest and all(asks(candidate.lines[i].flat) for i in lost)


def _replied_to(candidate: Candidate, scope: Scope, ask: Ask) -> frozenset[str] | None:
    """The words of the user's message that the assistant replies to, if a block in the request shows it."""
    passage = candidate.passage
    at = candidate.row - passage.part - 1
    if passage.speaker != "assistant" or passage.tools or at < 0:
        return None
    before = scope.passages[at]
    shown = before.passage.id in ask.shown and before.passage.speaker == "user" and before.passage.turn == passage.turn
    return before.words if shown else None


def _echoes(line: Line, said: frozenset[str], scope: Scope) -> bool:
    """Is little of a sentence new beside these words, and no figure?"""
    words = frozenset(terms(line.flat))
    new = sum([scope.idf(word) for word in line.words - said])
    figures = any(any(map(str.isdigit, word)) and word not in said for word in words)
    return not figures and new < ECHO * sum([scope.idf(word) for word in line.words])


def _strong_of_agents(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], order: Sequence[int]
) -> Callable[[Candidate], bool]:
    lost = {candidate.row for candidate in candidates}
    others = (row for row in order if row in lost or coverage(mass, scope.passages[row].words) < ASKED_BEFORE)
    first = next(others, order[0])
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
        if about and speaker == "user" and not question.asks and not held.issuperset(about):
            return True
        return bool(about) and not question.words.difference(*about.values()).isdisjoint(there)

    found = [c for c in candidates if any(tells(c.lines[i], c.passage.speaker) for i in c.lost)]
    return found if len(found) <= MOST_NAMING else []


def listed(
    source: Source,
    scope: Scope,
    question: Question,
    present: Present,
    evidence: Evidence,
    order: Sequence[int],
    ask: Ask,
) -> list[Candidate]:
    """For each thing that a question lists the lost passage that says most of it, if it says nearly all; none for a
    question of which fewer than LEAST_ITEMS, or than half, are found."""
    if len(question.text) > PLAIN_CHARS or question.reacts:
        return []
    rows = list[int]()
    for item in question.items:
        mass = {term: scope.idf(term) for term in item}
        total = sum(mass.values())
        held = {row: coverage(mass, scope.passages[row].words) for row in order}
        row = max(order, key=lambda row: (held[row], evidence.score(row)))
        if held[row] >= ITEM_HELD * total and evidence.score(row) > 0:
            rows.append(row)
    mass = masses(scope, question)
    found = source.lost_of(scope, [*dict.fromkeys(rows)], present, mass, ask)
    return found if 2 * len(rows) >= len(question.items) and len(found) >= LEAST_ITEMS else []


def first_of(
    rows: AbstractSet[int], candidates: Sequence[Candidate], offered: Sequence[pack.Offer]
) -> list[pack.Offer]:
    """`offered`, which are those of `candidates`, with those at `rows` as good as the best: each is the best of one
    thing."""
    top = max((offer.score for offer in offered), default=0.0)
    return [replace(o, score=top) if c.row in rows else o for c, o in zip(candidates, offered, strict=True)]


ITEM_HELD = 0.6
"""Share of a listed thing that a passage holds which says what it is."""


def _names(said: str, scope: Scope) -> dict[str, frozenset[str]]:
    """What a text names that is rare in the scope -> its index terms."""
    written = [each for each in specifics(said) if not (each.isalpha() and each.islower())]  # "tomorrow" names nothing
    named = {name: frozenset(terms(name)) for name in (*keys(written), *_SIGNS.findall(said))}
    return {name: words for name, words in named.items() if max(map(scope.idf, words), default=0.0) >= RARE}


def choice_of(candidates: Sequence[Candidate], taken: Sequence[Part]) -> pack.Choice:
    """What of one passage some parts put into the block; and the name before it, as group chats have it."""
    candidate = candidates[taken[0].candidate]
    said = [candidate.lines[i] for i in sorted(i for part in taken for i in part.lines)]
    spans = [(line.start, line.end) for line in said]
    return pack.Choice(candidate.passage, pack.named(_name_chars(candidate.passage), spans))


def _name_chars(passage: Passage) -> int:
    """Length of the name before the text, as group chats have it; 0 where there is none."""
    return name_before(passage.text) if passage.speaker == "user" else 0


def replaced(candidates: Sequence[Candidate], ask: Ask) -> dict[tuple[int, int], int]:
    """(candidate, line) -> turn of the later statement that replaces it, 0 for the request itself."""
    where, statements = [], []
    for c, candidate in enumerate(candidates):
        passage = candidate.passage
        for i, line in enumerate(candidate.lines) if passage.speaker in ("user", "assistant") else ():
            if line.keys and len(line.flat) <= MOST_CHARS and not line.flat.startswith("```"):
                where.append((c, i))
                order = (passage.created_at, passage.position, i)
                statements.append(Statement(line.flat, passage.turn, order, passage.speaker == "user"))
    late = (math.inf, 0, 0)
    statements += [Statement(text, 0, late, True) for text in of_request(ask.question, f"{ask.summary}\n{ask.told}")]
    return {where[n]: turn for n, turn in superseded(statements, ask.late).items() if n < len(where)}


def newest(candidates: Sequence[Candidate], ask: Ask) -> list[Candidate]:
    """Without the lost lines that a later statement replaces. A rule stays: the new number alone says not of what."""
    old = replaced(candidates, ask)
    kept = [
        replace(c, lost=tuple(i for i in c.lost if (n, i) not in old or c.lines[i].sort == "rule"))
        for n, c in enumerate(candidates)
    ]
    for n, candidate in enumerate(kept):
        if candidates[n].lost and not candidate.lost:
            ask.passed.add(candidate.passage, "superseded", other=max(old.get((n, i), 0) for i in candidates[n].lost))
    return kept


def offers(
    candidates: Sequence[Candidate], scope: Scope, evidence: Evidence, mass: Mapping[str, float], ask: Ask
) -> list[pack.Offer]:
    """What the packer may take of each candidate."""
    old = replaced(candidates, ask)
    made = [
        _offer(c, scope, evidence, mass, {i: turn for (m, i), turn in old.items() if m == n})
        for n, c in enumerate(candidates)
    ]
    scope.passages.read(c.row - 1 for c in candidates if c.row)
    salient = [_salience(c, scope) for c in candidates]
    mean = sum(salient) / max(1, len(salient))
    return [
        replace(each, score=each.score * math.exp(SALIENCE * (own - mean)))
        for each, own in zip(made, salient, strict=True)
    ]


def _salience(candidate: Candidate, scope: Scope) -> float:
    """Logarithm of how likely a passage is to be asked for, whatever the question."""
    said = [line for i in candidate.lost if (line := candidate.lines[i]).salience > FILLER or line.keys]
    said = said or [candidate.lines[i] for i in candidate.lost]
    return math.log(
        likelihood(said, term_weight, scope.rarities.__getitem__, Place(answers=_answers(scope, candidate.row)))
    )


def place_of(scope: Scope, row: int) -> Place:
    return Place(answers=_answers(scope, row), reports=_reports(scope, row))


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
    return asked and _QUESTION.search(before.flat, max(0, len(before.flat) - 200)) is not None


_QUESTION = re.compile(r"\?[\"')*]*(?: \[[^\]]*\])?$")


def _with_tables(
    candidate: Candidate, tells: AbstractSet[int], bears: AbstractSet[int], lost: Sequence[int]
) -> AbstractSet[int]:
    """`tells`, and the header of each table of which a row is among it; all its rows where the header alone bears on
    the question: "Which of them have a sauna?"."""
    found = set(tells)
    for header, *rows in tables(candidate.passage, candidate.lines) if tells else ():
        if not bears.isdisjoint(rows) or header not in bears:
            found |= {header} if not tells.isdisjoint(rows) else set()
        else:
            found |= {header, *rows}
    return found.intersection(lost)


def _with_heads(
    candidate: Candidate, shown: AbstractSet[int], bears: AbstractSet[int], lost: Sequence[int]
) -> AbstractSet[int]:
    """`shown`, and the heads of these lines; below a head that bears on the question, and of which nothing is shown,
    what it is the head of."""
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
    return found.intersection(lost)


def _offer(
    candidate: Candidate, scope: Scope, evidence: Evidence, mass: Mapping[str, float], old: Mapping[int, int]
) -> pack.Offer:
    """Lost sentences without filler, weighed by what of the question they hold.

    old: line -> turn of the statement that replaces it. Such lines are left out, or marked when there are no others.
    """
    lost = [i for i in candidate.lost if i not in old] or list(candidate.lost)
    bears = {i for i in lost if coverage(mass, candidate.lines[i].words)}
    tells = {
        i for i in lost if _tells(candidate.lines[i], mass) or (candidate.lines[i].sort != "printed" and i in bears)
    }
    tells |= _rows(candidate, mass).intersection(lost)
    shown = _with_heads(candidate, _with_tables(candidate, tells, bears, lost), bears, lost)
    told = [candidate.lines[i] for i in sorted(shown or lost)]
    newer = max((old[i] for i in lost if i in old), default=None)
    likely = math.exp(SHARPNESS * (evidence.score(candidate.row) - (newer is not None)))
    likely *= PINNED if candidate.passage.pinned else 1.0
    return pack.Offer(
        candidate.passage,
        tuple((line.start, line.end) for line in told),
        likely,
        tuple(sentence_worth(line, mass) for line in told),
        scope.passages[candidate.row].words,
        "" if newer is None else f"superseded by turn {newer}" if newer else BY_REQUEST,
        _name_chars(candidate.passage),
    )
