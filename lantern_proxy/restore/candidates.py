"""Candidates for a block: passages that a request lacks at least in part."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from lantern_proxy import pack, reinforce, trust
from lantern_proxy.analyze import ends_asking
from lantern_proxy.archive import Archive
from lantern_proxy.config import RestoreConfig
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.headings import headings, headings_above, needed_headings, tables
from lantern_proxy.restore.lines import FILLER, Line, lost_lines, without_age_stamp
from lantern_proxy.restore.parts import Candidate, Part
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import coverage
from lantern_proxy.restore.salience import says_something
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.superseded import Statement, statements_of_request, superseded
from lantern_proxy.signals import speaker_name_end, transcript_name_end
from lantern_proxy.turn import Passage, Reason

OFFERS, OFFER_TIMES = 12, 3
"""How many passages the packer chooses from when a question is known: OFFERS of them, and more until their text is
OFFER_TIMES the budget."""
PRINTED = 0.5
"""A line of tool output may answer the question if it covers this share of it, or if its cosine is this high."""
HELD = 0.25
"""Least coverage of the question for a tool result or a call; enough only if it contains a name that is asked for."""
_AHEAD = 32
"""Passages that are read and checked against the request in one step."""


class Source(Struct, frozen=True):
    """The archive that candidates come from, and the rules that exclude passages."""

    archive: Archive
    restore: RestoreConfig
    rates: reinforce.Rates

    def lost_passages(
        self, scope: Scope, order: Sequence[int], present: Present, mass: Mapping[str, float], ask: Ask
    ) -> list[Candidate]:
        """The first rows of `order` that the request lacks at least in part and that may answer the question: OFFERS of
        them, and more until their text is OFFER_TIMES the budget. mass: see question.idf_mass()"""
        most_chars = OFFER_TIMES * ask.budget_chars
        found: list[Candidate] = []
        for row, read, reason in check_presence(scope, order, present, ask):
            if (len(found) >= OFFERS and most_chars <= 0) or ask.late():
                break
            if reason:
                ask.passed.add(read.passage, reason, row=row)
                continue
            (candidate,) = candidates_of([(row, read)], present, ask)
            if read.passage.id in ask.shown:
                candidate = candidate._replace(lost=_relevant_left_out(candidate, mass))
            if may_answer(candidate, _relevant_lines(candidate, mass), mass) or answering_rows(candidate, mass):
                found.append(candidate)
                most_chars -= len(read.flat)
            else:
                ask.passed.add(read.passage, "filler" if candidate.lost else "present", row=row)
        return self.still_allowed(ask, found)

    def still_allowed(self, ask: Ask, candidates: Sequence[Candidate]) -> list[Candidate]:
        """`candidates` in their current state in the archive, without those that were pruned or corrected since the
        scope was read, that a person rejected, or that have too little confidence."""
        now = self.archive.of(ask.tenant).as_now([c.passage for c in candidates])
        found = []
        for candidate in candidates:
            passage = now.get(candidate.passage.id)
            if passage is None:
                continue
            if reason := self.refused(passage):
                ask.passed.add(passage, reason, value=passage.confidence, row=candidate.row)
            else:
                found.append(candidate if passage is candidate.passage else candidate._replace(passage=passage))
        return found

    def refused(self, passage: Passage) -> Reason | None:
        """Why a rule or a person excludes a passage; None if nothing does."""
        if passage.verdict in reinforce.REFUSED:
            return "verdict"
        if not reinforce.retrievable(passage.confidence, self.rates):
            return "confidence"
        return None if trust.admitted(passage, self.restore.untrusted) else "untrusted"


def check_presence(
    scope: Scope, rows: Sequence[int], present: Present, ask: Ask
) -> Iterator[tuple[int, ReadPassage, Reason | None]]:
    """(row, passage, reason why it is no candidate) for each of `rows`; the reason is None if the request lacks some of
    the passage. Passages are read and checked _AHEAD at a time."""
    for first in range(0, len(rows), _AHEAD):
        some = rows[first : first + _AHEAD]
        passages = scope.passages.of(some)
        held = present.holds([without_age_stamp(read.flat) for read in passages])
        for row, read, is_held in zip(some, passages, held, strict=True):
            yield row, read, "left" if read.passage.message in ask.abandoned else "present" if is_held else None


def candidates_of(some: Sequence[tuple[int, ReadPassage]], present: Present, ask: Ask) -> list[Candidate]:
    """Passages at rows with the lines that the request lacks. If a passage is in a replayed block but the request seems
    to lack all of its lines, the block shows it in another form, and nothing of it counts as lost."""
    gone = lost_lines([(read.passage, read.lines) for _, read in some], present)
    return [
        Candidate(
            read.passage,
            read.lines,
            () if read.passage.id in ask.shown and len(own) == len(read.lines) else own,
            row,
            read.stating,
        )
        for (row, read), own in zip(some, gone, strict=True)
    ]


def _relevant_lines(candidate: Candidate, mass: Mapping[str, float]) -> list[int]:
    """The lost lines that justify the passage as a candidate: all, if the request has none of its lines.

    Otherwise those that share a word with the question, have content, or directly follow a line of the request that
    shares a word ("It is green."). An introduction ("I'm sorry about that.") or a closing question ("Which day suits
    you?") around an answer that the request has is not worth a block.
    """
    lines, lost = candidate.lines, candidate.lost
    if len(lost) == len(lines):
        return [*lost]
    behind = {i for i in lost if i and i - 1 not in lost and coverage(mass, lines[i - 1].words)}
    tells_on = (i for i in lost if (i in behind or says_something(lines[i])) and not ends_asking(lines[i].flat))
    return sorted({*tells_on, *(i for i in lost if coverage(mass, lines[i].words))})


def _relevant_left_out(candidate: Candidate, mass: Mapping[str, float]) -> tuple[int, ...]:
    """Lost lines of a passage that a block shows in part, if they bear on the question: by themselves, by their
    headings, or because they directly follow a line that covers half of it. The block has the best ones already."""
    lines = candidate.lines
    over, held = needed_headings(candidate.passage, lines), [coverage(mass, line.words) for line in lines]

    def bears(i: int) -> bool:
        return any(held[n] for n in (i, *over[i])) or (i > 0 and held[i - 1] >= PRINTED)

    return tuple(filter(bears, candidate.lost))


def may_answer(candidate: Candidate, some: Iterable[int], mass: Mapping[str, float]) -> set[int]:
    """Those of `some` lines that may answer the question. Where rows of a tool result share words with it, what
    stands around them ("(9 rows)") must share one, too."""
    lines = candidate.lines
    in_rows = candidate.passage.speaker == "tool" and any(
        line.sort == "printed" and coverage(mass, line.words) for line in lines
    )
    return {i for i in some if _may_answer(lines[i], mass) and not (in_rows and not coverage(mass, lines[i].words))}


def _may_answer(line: Line, mass: Mapping[str, float]) -> bool:
    """May this line answer the question? Tool output must cover much of the question, in more than one word, or contain
    a name that is asked for, such as `MAX_AGE` or `v2.1`; any other line must only not be filler."""
    if line.sort != "printed":
        return line.salience > FILLER
    shared, held = line.words & mass.keys(), coverage(mass, line.words)
    has_name = any(not word.isalpha() and not word.isdigit() for word in shared)
    return (held >= PRINTED and len(shared) > 1) or (held >= HELD and has_name)


def answering_rows(candidate: Candidate, mass: Mapping[str, float]) -> set[int]:
    """Lines of a tool result that answer a question only together with their table header or headings; only the best
    ones, since such a result has many similar lines. If there are none: the lines that answer it together."""
    lines, passage = candidate.lines, candidate.passage
    if passage.speaker != "tool":
        return set()
    under = [(row, [header]) for header, *rows in tables(passage, lines) for row in rows]
    of = headings(passage, lines)
    under += [(i, headings_above(i, of)) for i in range(len(lines)) if of[i] >= 0]
    held = dict[int, float]()
    for row, over in under:
        words = frozenset().union(*[lines[i].words for i in over])
        own, theirs = coverage(mass, lines[row].words - words), coverage(mass, words)
        if own and theirs and own + theirs >= PRINTED:
            held[row] = own + theirs
    most = max(held.values(), default=0.0)
    return {row for row, each in held.items() if each >= 0.99 * most} or _answering_fields(lines, mass)


def _answering_fields(lines: Sequence[Line], mass: Mapping[str, float]) -> set[int]:
    """Lines that answer a question together, like the fields of one record: each covers words of the question that no
    other line has. Empty if they cover too little of it."""
    shared = [line.words & mass.keys() for line in lines]
    times = Counter(word for words in shared for word in words)
    own = {i: {word for word in words if times[word] == 1} for i, words in enumerate(shared)}
    told = frozenset().union(*own.values())
    return {i for i, words in own.items() if words} if len(told) > 1 and coverage(mass, told) >= PRINTED else set()


def choice_of(candidates: Sequence[Candidate], taken: Sequence[Part]) -> pack.Choice:
    """What some parts of one passage put into the block, with the speaker's name in front, as in group chats."""
    candidate = candidates[taken[0].candidate]
    return pack.Choice(candidate.passage, spans_of(candidate, sorted([i for part in taken for i in part.lines])))


def text_of(candidate: Candidate, said: Sequence[int]) -> str:
    """The text of these lines as a block shows it, before escaping."""
    return pack.join(candidate.passage.text, spans_of(candidate, said))


def spans_of(candidate: Candidate, said: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The spans of these lines, each preceded by its speaker's name, as in group chats."""
    passage, lines = candidate.passage, candidate.lines
    spans, names = [(lines[i].start, lines[i].end) for i in said], names_of(passage, lines)
    return pack.with_names(spans, [names[i] for i in said], name_chars(passage))


def name_chars(passage: Passage) -> int:
    """Length of the speaker's name in front of the text ("Ana: ..."), as in group chats; 0 if there is none."""
    return speaker_name_end(passage.text) if passage.speaker == "user" else 0


def names_of(passage: Passage, lines: Sequence[Line]) -> list[tuple[int, int]]:
    """For each line the span of its speaker's name: in a transcript that a user pasted the name of the line, else that
    of the whole text; empty if there is none."""
    text, first = passage.text, (0, name_chars(passage))
    if "\n" not in text:
        return [first] * len(lines)
    found, name, at = list[tuple[int, int]](), first, 0
    for line in lines if passage.speaker == "user" else ():
        start = text.rfind("\n", at, line.start) + 1 or at
        if start > at:
            own = transcript_name_end(text, start)
            at, name = start, (start, own) if own else name if first[1] else (0, 0)
        found.append(name)
    return found or [(0, 0)] * len(lines)


class Replaced(NamedTuple):
    """The later statement that replaces a line."""

    turn: int
    """0: the request itself."""
    candidate: int | None
    """Index of the candidate that contains it; None if the request does."""
    whole: bool
    """See superseded.Newer."""

    @property
    def mark(self) -> str:
        """The note in the header of the older passage."""
        by = f"turn {self.turn}" if self.turn else "this request"
        return f"superseded by {by}" if self.whole else f"but see {by}"


BY_REQUEST = Replaced(0, None, whole=True).mark


def replaced(
    candidates: Sequence[Candidate], ask: Ask, shown: Sequence[ReadPassage] = ()
) -> dict[tuple[int, int], Replaced]:
    """(candidate, line) -> the later statement that replaces that line.

    shown: passages in blocks of the request, which may contain such a statement, too
    """
    where, statements = list[tuple[int, int]](), list[Statement]()
    for c, candidate in enumerate(candidates):
        where += [(c, i) for i in candidate.stating]
        statements += _statements(candidate.passage, candidate.lines, candidate.stating)
    for read in shown:
        statements += _statements(read.passage, read.lines, read.stating)
    late = (math.inf, 0, 0)
    statements += [
        Statement(text, 0, late, True)
        for text in statements_of_request(ask.question, f"{ask.summary}\n{ask.users_text}")
    ]
    found = superseded(statements, ask.late).items()
    by = [candidate for candidate, _ in where] + [None] * (len(statements) - len(where))
    return {where[n]: Replaced(each.turn, by[each.statement], each.whole) for n, each in found if n < len(where)}


def _statements(passage: Passage, lines: Sequence[Line], stating: Sequence[int]) -> list[Statement]:
    """The lines of a passage that a later statement may replace."""
    at, turn, by_user = (passage.created_at, passage.position), passage.turn, passage.speaker == "user"
    return [Statement(lines[i].flat, turn, (*at, i), by_user, passage.session) for i in stating]


def without_superseded(candidates: Sequence[Candidate], ask: Ask) -> tuple[list[Candidate], dict[tuple[int, int], int]]:
    """`candidates` without the lost lines that a later statement replaces completely, except rules.

    Also, for remaining lines of which a later statement replaces a part: (candidate, line) -> the candidate with that
    statement. Without it they would mislead.
    """
    old = replaced(candidates, ask)
    gone = {(n, i) for (n, i), newer in old.items() if newer.whole and candidates[n].lines[i].sort != "rule"}
    kept = [*candidates]
    for n in sorted({n for n, _ in gone}):
        candidate = candidates[n]
        kept[n] = candidate._replace(lost=tuple(i for i in candidate.lost if (n, i) not in gone))
        if candidate.lost and not kept[n].lost:
            turn = max(old[n, i].turn for i in candidate.lost)
            ask.passed.add(candidate.passage, "superseded", other=turn)
    news = {at: newer.candidate for at, newer in old.items() if at not in gone and newer.candidate is not None}
    return kept, news
