"""What a question block adds to a passage that would mislead or be unclear by itself.

updates        later messages that state something else about the same (restore/updates.py): without "Forget the Tuesday
               slot. Let's meet Thursday.", which shares no word with the question, the old day looks like the answer.
               For an answer of the assistant: its answer to such a message
its answer     the reply to a passage that only asks
its question   what a short passage answers: "Eight, I think."
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from lantern_proxy import pack
from lantern_proxy.analyze import ends_asking
from lantern_proxy.rank import best
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.candidates import Source, candidates_of, check_presence, name_chars, names_of
from lantern_proxy.restore.context import Contexts, is_short
from lantern_proxy.restore.lines import is_filler
from lantern_proxy.restore.parts import Candidate, is_group_chat
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import HELD_COVERAGE, coverage
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.superseded import Changes
from lantern_proxy.restore.updates import (
    MOST_CHARS,
    MOST_STEPS,
    RIVALS,
    Updates,
    content_of,
    is_later,
    sentences_of,
    speaker_prefix,
)
from lantern_proxy.turn import Passage

LEADERS = 6
"""How many of the best offers get supplements."""
ANSWER_CHARS, SHORT_CHARS = 300, 60
"""Most characters of an answer that is added to its question, and of an answer to which its question is added."""


class Supplements(Struct, frozen=True):
    """Finds supplements to passages of a scope, whose lock is held."""

    source: Source
    scope: Scope
    present: Present
    mass: Mapping[str, float]
    """Of the question, see idf_mass(); empty if nothing is asked for."""
    ask: Ask
    contexts: Contexts

    def of(self, candidates: Sequence[Candidate], offered: Sequence[pack.Offer]) -> dict[int, list[pack.Offer]]:
        """Passage id -> its supplements, for the LEADERS best offers. offered: one offer per candidate, in their
        order"""
        leaders = sorted(range(len(offered)), key=lambda n: -offered[n].score)[:LEADERS]
        people = is_group_chat([candidate.passage for candidate in candidates])
        found: dict[int, list[pack.Offer]] = {}
        offer_of_row = {candidate.row: offer for candidate, offer in zip(candidates, offered, strict=True)}
        for rank, n in enumerate(leaders):
            if self.ask.late():
                break
            offer, row = offered[n], candidates[n].row
            text = pack.join(offer.passage.text, offer.spans)
            statements = [part for part in sentences_of(text) if not ends_asking(part)]
            if statements:
                added = self._of_statements(row, offer, text, statements, offer_of_row, people=people)
            else:
                answers = self._answer_to(row)
                added = self._offers(answers, offer, ANSWER_CHARS, spare=rank > 0)
                added += [] if people else self._updates_of_answers(answers, offer)
            found[offer.passage.id] = [each for each in added if each is not None]
        return found

    def _of_statements(
        self, row: int, offer: pack.Offer, text: str, statements: Sequence[str],
        offer_of_row: Mapping[int, pack.Offer], *, people: bool,
    ) -> list[pack.Offer | None]:  # fmt: skip
        """The supplements of a passage that states something."""
        updates = self._updates.of(row, text, statements, people=people)
        added, context = self._offers(updates, offer, MOST_CHARS), list[tuple[int, tuple[int, ...]]]()
        if not people:
            added += self._offers(self._newer_answers(row, offer), offer, ANSWER_CHARS)
            answers = self._answer_to_closing_question(row, offer)
            added += self._offers(answers, offer, SHORT_CHARS) + self._updates_of_answers(answers, offer)
            context = [each for short in (row, *updates) for each in self.context_of(short)]
            added += [
                offer_of_row.get(other) or self._offer_of_lines(other, offer.score, lines) for other, lines in context
            ]
        if not context and len(text) <= SHORT_CHARS:
            added += [self._offer(other, offer.score, _last_line) for other in self._question_before(row)]
        return added

    def context_of(self, row: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """(row, lines) that a reader needs to understand the message at `row`: see Context.shown."""
        context = self.contexts.of(row)
        return context.shown if context else ()

    def updates_of(self, row: int, text: str) -> list[int]:
        """Rows of updates of `text`, from the passage at `row`, that repeat one of its values or are short."""
        statements = [part for part in sentences_of(text) if not ends_asking(part)]
        return self._updates.of(row, text, statements, named=True) if statements else []

    def updates_of_present(self, row: int, *, people: bool) -> list[Candidate]:
        """Lost updates of a passage that the request has: "They called, the Skoda is at 7450 now" after "The Skoda
        costs 7600", and later statements of the assistant. Only for a passage that covers most of the question."""
        read = self.scope.passages[row]
        statements = [line.flat for line in read.lines if not ends_asking(line.flat)]
        if not statements or coverage(self.mass, read.words) < HELD_COVERAGE:
            return []
        updates = self._updates.of(row, read.flat, statements, people=people)
        return self.lost_candidates([*updates, *([] if people else self._later_assistant_value(row, read))])

    def _later_assistant_value(self, row: int, read: ReadPassage) -> list[int]:
        """The row of the last assistant message with a sentence that shares all question words of the passage at `row`
        and has another value of the same unit: "You have 77 coins left." after "I have 122 coins now"."""
        asked, old = read.words & self.mass.keys(), Changes(read.flat)
        scores = self.scope.lexical(sorted(asked)) * is_later(self.scope, row)
        rivals = [other for other in best(scores, RIVALS).tolist() if scores[other] > 0]
        self.scope.passages.read(rivals)
        found = [
            other
            for other in rivals
            if (passage := self._passage(other)).speaker == "assistant"
            and not passage.tools
            and any(asked <= line.words and old.has_same_unit(line.flat) for line in self.scope.passages[other].lines)
        ]
        return [max(found, key=lambda other: int(self.scope.places[other]))] if found else []

    def _newer_answers(self, row: int, offer: pack.Offer) -> list[int]:
        """Rows of newer versions of an assistant's answer, such as a draft or a count. These are its answers to updates
        of the message that it answers at `row`, if they share a word of the question and have another value of the same
        unit. If there are none, its latest such value."""
        if offer.passage.speaker != "assistant" or offer.passage.tools:
            return []
        old_text = pack.join(offer.passage.text, offer.spans)
        before = self._said_before(row)
        asked = [(other, self._passage(other).text) for other in before if self._passage(other).speaker == "user"]
        updates = [news for other, text in asked for news in self._updates.of(other, text, sentences_of(text))]
        words, old = self.mass.keys() & filter(str.isalpha, content_of(old_text)), Changes(old_text)
        newer = [
            answer
            for answer in dict.fromkeys(answer for news in updates for answer in self._answer_to(news))
            if words & (read := self.scope.passages[answer]).words and old.has_same_unit(read.flat)
        ]
        return newer or (self._later_assistant_value(row, self.scope.passages[row]) if words else [])

    def _answer_to(self, row: int) -> list[int]:
        """The row of the answer to the message at `row`: what somebody else said next or, after tool calls, the last
        assistant message of the turn. Of a long answer, the passage that covers most of the question."""
        asked = self._passage(row)
        next_ = self.scope.said_at(int(self.scope.places[row]) + 1)
        if next_ and self._passage(next_[0]).speaker in ("user", "assistant") and not self._passage(next_[0]).tools:
            behind = next_ if _who(self._passage(next_[0])) != _who(asked) else []
        else:
            behind = self._last_said(row, asked)
        return sorted(behind, key=lambda other: -coverage(self.mass, self.scope.passages[other].words))[:1]

    def _last_said(self, row: int, asked: Passage) -> list[int]:
        """Rows of the assistant's last message in the turn of `asked`."""
        scope = self.scope
        near = scope.places <= scope.places[row] + MOST_STEPS
        said = [
            other
            for other in np.flatnonzero(near & is_later(self.scope, row)).tolist()
            if (each := self._passage(other)).turn == asked.turn and each.speaker == "assistant" and not each.tools
        ]
        last = max((int(scope.places[other]) for other in said), default=0)
        return [other for other in said if scope.places[other] == last]

    def _question_before(self, row: int) -> list[int]:
        """The row of the message before `row`, if it ends with a question."""
        there = [n for n in self._said_before(row) if self._passage(n).speaker in ("user", "assistant")]
        return [n for n in there if ends_asking(self.scope.passages[n].flat)]

    def _said_before(self, row: int) -> list[int]:
        """The last row of the message before the one at `row`, without what its client wrote around its user's words;
        empty if there is none."""
        return self.scope.said_at(int(self.scope.places[row]) - 1)[-1:]

    @property
    def _updates(self) -> Updates:
        return Updates(self.scope, self.mass, self.ask, self.contexts)

    def _passage(self, row: int) -> Passage:
        return self.scope.passages[row].passage

    def _updates_of_answers(self, answers: Sequence[int], offer: pack.Offer) -> list[pack.Offer | None]:
        """Updates of those `answers` that a user gave."""
        said = [row for row in answers if self._passage(row).speaker == "user"]
        rows = [other for row in said for other in self._updates.of(row, self.scope.passages[row].flat, ())]
        return self._offers(rows, offer, MOST_CHARS) + [
            self._offer_of_lines(other, offer.score, lines) for short in rows for other, lines in self.context_of(short)
        ]

    def _answer_to_closing_question(self, row: int, offer: pack.Offer) -> list[int]:
        """The row of the short answer to the question at the end of the passage at `row`, if that question is
        relevant."""
        last = self.scope.passages[row].lines[-1]
        next_ = self.scope.said_at(int(self.scope.places[row]) + 1)
        asked = ends_asking(last.flat) and offer.spans[-1][1] >= last.end and coverage(self.mass, last.words) > 0
        return next_ if asked and next_ and is_short(self._passage(next_[0])) else []

    def lost_candidates(self, rows: Sequence[int]) -> list[Candidate]:
        """The passages at `rows`, in this order, with the lines that the request lacks; of those that a block shows in
        part, without filler. Passages that it has completely, or that a rule excludes, are left out."""
        some = check_presence(self.scope, rows, self.present, self.ask)
        found = candidates_of([(row, read) for row, read, reason in some if not reason], self.present, self.ask)
        found = [_without_filler(each) if each.passage.id in self.ask.shown else each for each in found]
        return [each for each in self.source.still_allowed(self.ask, found) if each.lost]

    def _offers(
        self, rows: Iterable[int], to: pack.Offer, chars: int, *, spare: bool = False
    ) -> list[pack.Offer | None]:
        """Offers of the passages at `rows`, as supplements of the offer `to`: of each the lost lines that cover most of
        the question, up to `chars` characters."""
        return [
            self._offer(row, to.score, lambda candidate: self._most_relevant(candidate, chars), spare=spare)
            for row in rows
        ]

    def _offer_of_lines(self, row: int, score: float, lines: Sequence[int]) -> pack.Offer | None:
        """An offer of those `lines` that the request lacks."""
        return self._offer(row, score, lambda candidate: [i for i in lines if i in candidate.lost])

    def _offer(
        self, row: int, score: float, lines: Callable[[Candidate], Sequence[int]], *, spare: bool = False
    ) -> pack.Offer | None:
        """An offer of the lost lines that `lines` selects from the passage at `row`; None if there are none."""
        candidate = next(iter(self.lost_candidates([row])), None)
        kept = lines(candidate) if candidate else ()
        if candidate is None or not kept:
            return None
        spans = tuple((candidate.lines[i].start, candidate.lines[i].end) for i in kept)
        words, names = self.scope.passages[row].words, names_of(candidate.passage, candidate.lines)
        led = tuple(names[i] for i in kept)
        return pack.Offer(
            candidate.passage, spans, score, (1.0,) * len(spans), words, names=led,
            name_chars=name_chars(candidate.passage), spare=spare,
        )  # fmt: skip

    def _most_relevant(self, candidate: Candidate, most_chars: int) -> list[int]:
        """The lost lines that cover most of the question, up to `most_chars` characters, at least one; ascending."""
        lines, kept = candidate.lines, list[int]()
        for i in sorted(candidate.lost, key=lambda i: (-coverage(self.mass, lines[i].words), i)):
            most_chars -= lines[i].end - lines[i].start
            if most_chars < 0 and kept:
                break
            kept.append(i)
        return sorted(kept)


def _without_filler(candidate: Candidate) -> Candidate:
    speaker, lines = candidate.passage.speaker, candidate.lines
    return candidate._replace(lost=tuple(i for i in candidate.lost if not is_filler(lines[i], speaker)))


def _last_line(candidate: Candidate) -> Sequence[int]:
    return candidate.lost[-1:]


def _who(passage: Passage) -> tuple[str, str]:
    return passage.speaker, speaker_prefix(passage)
