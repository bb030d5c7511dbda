"""What a question block shows beside a passage that alone would mislead, or not be understood.

    what came of it   a later message of the user that says something else of the same: without "Forget the Tuesday
                      slot. Let's meet Thursday.", which has no word of the question, the old day looks like the answer
    its answer        what was said to it, where it only asks
    its question      what it answers, where it is short: "Eight, I think."

Told by the words that two messages share and by their order: signs of a change are of one language each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lantern_proxy import pack
from lantern_proxy.analyze import QUESTION_MARKS, is_content, query_terms, sentences
from lantern_proxy.rank import best
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.candidates import Source, candidate_of, looked_at
from lantern_proxy.restore.cover import Candidate, among_people
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import coverage
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.superseded import Changes
from lantern_proxy.signals import name_before
from lantern_proxy.turn import Passage

LEADERS = 3
"""Of the best offers, how many are looked at."""
RIVALS = 6
"""Later messages that one is compared with."""
SHARE, SHARE_ALONE = 0.25, 0.4
"""Least share of a sentence that is about the earlier one, where a value of the same sort follows, and where none."""
RARE = 0.45
"""How rare a word must be, of which two messages speak, to make them speak of the same."""
MOST_CHARS = 400
"""Of a message that says what came of another one."""
ANSWER_CHARS, SHORT_CHARS = 300, 60
"""Most of an answer that stands beside its question, and of one whose question stands beside it."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Reads what stands beside passages of a scope, whose lock is held."""

    source: Source
    scope: Scope
    present: Present
    mass: Mapping[str, float]
    """Of the question, see masses()."""
    ask: Ask

    def of(self, candidates: Sequence[Candidate], offered: Sequence[pack.Offer]) -> dict[int, list[pack.Offer]]:
        """Passage -> what goes into the block with it, of the best of `offered`, which are those of `candidates`."""
        first = sorted(range(len(offered)), key=lambda n: -offered[n].score)[:LEADERS]
        people = among_people([candidate.passage for candidate in candidates])
        found: dict[int, list[pack.Offer]] = {}
        for rank, n in enumerate(first):
            if self.ask.late():
                break
            offer, row = offered[n], candidates[n].row
            text = pack.join(offer.passage.text, offer.spans)
            told = [part for part in _sentences(text) if not _asks(part)]
            if told:
                rows = self._came_of(row, text, told, people=people)
                made = [self._offer(other, offer.score, MOST_CHARS) for other in rows]
                if len(text) <= SHORT_CHARS:
                    made += [self._offer(other, offer.score, 0) for other in self._question(row)]
            else:
                made = [self._offer(other, offer.score, ANSWER_CHARS, spare=rank > 0) for other in self._answer(row)]
            found[offer.passage.id] = [each for each in made if each is not None]
        return found

    def came_of(self, row: int, text: str) -> list[int]:
        """The row of what came of `text`, of the passage at `row`, if anything, and if it names a value of the text."""
        told = [part for part in _sentences(text) if not _asks(part)]
        return self._came_of(row, text, told, named=True) if told else []

    def _came_of(
        self, row: int, text: str, told: Sequence[str], *, people: bool = False, named: bool = False
    ) -> list[int]:
        """The row of the newest later message of the user that says something else of what is told at `row`, if any."""
        about = frozenset(_content("\n".join(told)))
        scope, name = self.scope, _name(self._passage(row)) if people else ""
        rarities = scope.rarities
        rare = frozenset(term for term in about if rarities[term] >= RARE)
        if not rare:
            return []
        later = (scope.places > scope.places[row]) & (scope.session_numbers == scope.session_numbers[row])
        scores = scope.lexical([*about]) * later
        old = Changes(text)
        found = [
            other
            for other in best(scores, RIVALS).tolist()
            if scores[other] > 0
            and (passage := self._passage(other)).speaker == "user"
            and not rare.isdisjoint(scope.passages[other].words)
            and (not people or _name(passage) == name)
            and self._says_else(scope.passages[other].flat, old, about, named=people or named)
        ]
        return sorted(found, key=lambda other: -int(scope.places[other]))[:1]

    def _says_else(self, new: str, old: Changes, about: frozenset[str], *, named: bool) -> bool:
        """Is one of its sentences about what the old ones are about, with another value in it or behind it?

        named: must it name the old value? People talk of the same things for long.
        """
        each, rarities = _sentences(new) if len(new) <= MOST_CHARS else (), self.scope.rarities
        for n, sentence in enumerate(each):
            weights = {term: rarities[term] for term in _content(sentence)}
            shared, least = [weights[term] for term in weights if term in about], SHARE * sum(weights.values())
            if not shared or max(shared) < RARE or sum(shared) < least:
                continue
            asks = _asks(sentence)
            if old.has_other(sentence) and not old.is_named(sentence) and self._is_of_another(weights, about):
                continue
            if old.has_other(sentence if asks else " ".join(each[n : n + 2])):
                if not named or old.is_named(sentence):
                    return True
            elif not asks and not named and sum(shared) * SHARE >= least * SHARE_ALONE:
                return True
        return False

    def _is_of_another(self, weights: Mapping[str, float], about: frozenset[str]) -> bool:
        """Does a sentence speak of something else in the same words, as records do: "The Porto budget is 500" beside
        what is asked of Lisbon's? weights: of its terms"""
        asked = about.intersection(self.mass)
        others = (term for term, rarity in weights.items() if rarity >= RARE and term not in about)
        return not asked.issubset(weights) and any(not term.isdigit() and term not in self.mass for term in others)

    def _answer(self, row: int) -> list[int]:
        """The row of what answers the message at `row`: what somebody else said next, or behind calls of tools the last
        that the assistant said in its turn; of a long one the passage that is most about the question."""
        asked = self._passage(row)
        next_ = self._at(int(self.scope.places[row]) + 1)
        if next_ and self._passage(next_[0]).speaker in ("user", "assistant") and not self._passage(next_[0]).tools:
            behind = next_ if _voice(self._passage(next_[0])) != _voice(asked) else []
        else:
            behind = self._last_said(row, asked)
        return sorted(behind, key=lambda other: -coverage(self.mass, self.scope.passages[other].words))[:1]

    def _last_said(self, row: int, asked: Passage) -> list[int]:
        """Rows of the last message of the assistant in the turn of `asked`."""
        scope = self.scope
        later = (scope.places > scope.places[row]) & (scope.places <= scope.places[row] + MOST_STEPS)
        said = [
            other
            for other in np.flatnonzero(later & (scope.session_numbers == scope.session_numbers[row])).tolist()
            if (each := self._passage(other)).turn == asked.turn and each.speaker == "assistant" and not each.tools
        ]
        last = max((int(scope.places[other]) for other in said), default=0)
        return [other for other in said if scope.places[other] == last]

    def _question(self, row: int) -> list[int]:
        """The row of what the message at `row` answers, where that ends with a question."""
        before = self._at(int(self.scope.places[row]) - 1)
        there = [n for n in before[-1:] if self._passage(n).speaker in ("user", "assistant")]
        return [n for n in there if _asks(self.scope.passages[n].flat)]

    def _at(self, place: int) -> list[int]:
        rows: list[int] = np.flatnonzero(self.scope.places == place).tolist()
        return rows

    def _passage(self, row: int) -> Passage:
        return self.scope.passages[row].passage

    def _offer(self, row: int, score: float, most_chars: int, *, spare: bool = False) -> pack.Offer | None:
        """What of a passage the request lacks: its lines that say most of what is asked, up to so many characters; its
        last line, where that is 0."""
        ((_, read, reason),) = looked_at(self.scope, [row], self.present, self.ask)
        alive = () if reason else self.source.alive(self.ask, [candidate_of(row, read, self.present, self.ask)])
        for candidate in alive:
            kept = self._most_told(candidate, most_chars) if most_chars else candidate.lost[-1:]
            spans = tuple((candidate.lines[i].start, candidate.lines[i].end) for i in kept)
            if spans:
                return pack.Offer(candidate.passage, spans, score, (1.0,) * len(spans), read.words, spare=spare)
        return None

    def _most_told(self, candidate: Candidate, most_chars: int) -> list[int]:
        lines, kept = candidate.lines, list[int]()
        for i in sorted(candidate.lost, key=lambda i: (-coverage(self.mass, lines[i].words), i)):
            most_chars -= lines[i].end - lines[i].start
            if most_chars < 0 and kept:
                break
            kept.append(i)
        return sorted(kept)


MOST_STEPS = 60
"""Messages behind a question in which an agent's answer to it is looked for."""


@lru_cache(maxsize=1 << 13)
def _content(text: str) -> tuple[str, ...]:
    """Remembered: the same messages are compared for one question after the other."""
    return tuple(filter(is_content, query_terms(text)))


@lru_cache(maxsize=1 << 11)
def _sentences(text: str) -> tuple[str, ...]:
    return tuple(text[a:b] for a, b in sentences(text))


def _asks(text: str) -> bool:
    return text.rstrip("\"')* ").endswith(QUESTION_MARKS)


def _name(passage: Passage) -> str:
    return passage.text[: name_before(passage.text)]


def _voice(passage: Passage) -> tuple[str, str]:
    return passage.speaker, _name(passage)
