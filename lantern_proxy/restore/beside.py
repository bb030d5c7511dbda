"""What a question block shows beside a passage that alone would mislead, or not be understood.

    what came of it   a later message of the user that says something else of the same: without "Forget the Tuesday
                      slot. Let's meet Thursday.", which has no word of the question, the old day looks like the answer;
                      of what the assistant answered, what it answered to such a message
    its answer        what was said to it, where it only asks
    its question      what it answers, where it is short: "Eight, I think."

Told by the words that two messages share and by their order: signs of a change are of one language each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lantern_proxy import pack
from lantern_proxy.analyze import ends_asking, informative, is_content, query_terms, sentences
from lantern_proxy.analyze.standing import is_rule
from lantern_proxy.rank import best
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.candidates import Source, candidates_of, looked_at, name_chars, names_of
from lantern_proxy.restore.context import Context, Contexts, is_short, own_terms, says_itself
from lantern_proxy.restore.lines import greets
from lantern_proxy.restore.parts import Candidate, among_people
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import HELD_COVERAGE, coverage
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.superseded import Changes
from lantern_proxy.signals import name_before
from lantern_proxy.turn import Passage

LEADERS = 3
"""Of the best offers, how many are looked at."""
RIVALS, SHORT_RIVALS = 6, 24
"""Later messages that one is compared with; and where they are short, or replies to such."""
SHARE, SHARE_ALONE = 0.25, 0.4
"""Least share of a sentence that is about the earlier one, where a value of the same sort follows, and where none."""
SHARE_SAME = 0.6
"""The same of its words beside its values, where nothing else tells that it is about the same."""
RARE = 0.45
"""How rare a word must be, of which two messages speak, to make them speak of the same."""
MOST_CHARS = 400
"""Of a message that says what came of another one."""
ANSWER_CHARS, SHORT_CHARS = 300, 60
"""Most of an answer that stands beside its question, and of one whose question stands beside it."""


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What an earlier message says, for comparing later ones with it."""

    told: Sequence[str]
    """Its sentences that state something."""
    about: frozenset[str]
    """Their content words, and those of what a short message belongs to."""
    values: Changes
    rare: frozenset[str]
    """The rare words of `about`."""
    asked: frozenset[str]
    """The words of `about` that the question has. A later sentence that has all of them is about the same."""
    people: bool
    """People talk to each other there: a later message counts only if the same person said it."""
    name: str
    """Who said it, where people talk."""
    named: bool
    """Must a later sentence name the old value? Where people talk it must: they talk of the same things for long."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Reads what stands beside passages of a scope, whose lock is held."""

    source: Source
    scope: Scope
    present: Present
    mass: Mapping[str, float]
    """Of the question, see masses(); empty where nothing is asked for."""
    ask: Ask
    contexts: Contexts

    def of(self, candidates: Sequence[Candidate], offered: Sequence[pack.Offer]) -> dict[int, list[pack.Offer]]:
        """Passage -> what goes into the block with it, of the best of `offered`, which are those of `candidates`."""
        first = sorted(range(len(offered)), key=lambda n: -offered[n].score)[:LEADERS]
        people = among_people([candidate.passage for candidate in candidates])
        found: dict[int, list[pack.Offer]] = {}
        whole = {candidate.row: offer for candidate, offer in zip(candidates, offered, strict=True)}
        for rank, n in enumerate(first):
            if self.ask.late():
                break
            offer, row = offered[n], candidates[n].row
            text = pack.join(offer.passage.text, offer.spans)
            told = [part for part in _sentences(text) if not ends_asking(part)]
            if told:
                rows = self._came_of(row, text, told, people=people)
                made = [self._offer(other, offer.score, self._most(MOST_CHARS)) for other in rows]
                newer = [] if people else self._newer_answers(row, offer)
                made += [self._offer(other, offer.score, self._most(ANSWER_CHARS)) for other in newer]
                answers = [] if people else self._answer_of(row, offer)
                made += [self._offer(other, offer.score, self._most(SHORT_CHARS)) for other in answers]
                made += self._news_of(answers, offer)
                shown = [] if people else [each for short in (row, *rows) for each in self.shown(short)]
                made += [whole.get(other) or self._offered(other, offer.score, lines) for other, lines in shown]
                if not shown and len(text) <= SHORT_CHARS:
                    made += [self._offer(other, offer.score, _last) for other in self._question(row)]
            else:
                rows = self._answer(row)
                made = [self._offer(other, offer.score, self._most(ANSWER_CHARS), spare=rank > 0) for other in rows]
                made += [] if people else self._news_of(rows, offer)
            found[offer.passage.id] = [each for each in made if each is not None]
        return found

    def shown(self, row: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Rows, and which of their lines a reader needs beside the message at `row`: see Context."""
        context = self.contexts.of(row)
        return context.shown if context else ()

    def came_of(self, row: int, text: str) -> list[int]:
        """The rows of what came of `text`, of the passage at `row`, if anything, and if it names a value of the text or
        is short."""
        told = [part for part in _sentences(text) if not ends_asking(part)]
        return self._came_of(row, text, told, named=True) if told else []

    def since(self, row: int, *, people: bool) -> list[Candidate]:
        """What came of the passage at `row`, which the request holds, as far as that is lost: "They called, the Skoda
        is at 7450 now" behind a "The Skoda costs 7600" that is shown; and what the assistant told of it later. Only of
        one that holds most of the question."""
        read = self.scope.passages[row]
        told = [line.flat for line in read.lines if not ends_asking(line.flat)]
        if not told or coverage(self.mass, read.words) < HELD_COVERAGE:
            return []
        came = self._came_of(row, read.flat, told, people=people)
        return self.lost_of([*came, *([] if people else self._told_since(row, read))])

    def _told_since(self, row: int, read: ReadPassage) -> list[int]:
        """The row of the last message of the assistant that has, in one sentence, all that the passage at `row` has of
        the question, and another value of the same unit: "You have 77 coins left." behind "I have 122 coins now"."""
        asked, old = read.words & self.mass.keys(), Changes(read.flat)
        scores = self.scope.lexical(sorted(asked)) * self._is_later(row)
        rivals = [other for other in best(scores, RIVALS).tolist() if scores[other] > 0]
        self.scope.passages.read(rivals)
        found = [
            other
            for other in rivals
            if (passage := self._passage(other)).speaker == "assistant"
            and not passage.tools
            and any(asked <= line.words and old.has_alike(line.flat) for line in self.scope.passages[other].lines)
        ]
        return [max(found, key=lambda other: int(self.scope.places[other]))] if found else []

    def _is_later(self, row: int) -> npt.NDArray[np.bool_]:
        """(n,) which passages of its session stand behind the message at `row`."""
        places, sessions = self.scope.places, self.scope.session_numbers
        later: npt.NDArray[np.bool_] = (places > places[row]) & (sessions == sessions[row])
        return later

    def _newer_answers(self, row: int, offer: pack.Offer) -> list[int]:
        """Rows of what the assistant answered to what came later of the message that it answers at `row`, where that
        shares a word of the question with it and has another value of the same unit: of an older draft or count the
        newer one."""
        if offer.passage.speaker != "assistant" or offer.passage.tools:
            return []
        told = pack.join(offer.passage.text, offer.spans)
        before = self.scope.at(int(self.scope.places[row]) - 1)[-1:]
        asked = [(other, self._passage(other).text) for other in before if self._passage(other).speaker == "user"]
        came = [news for other, text in asked for news in self._came_of(other, text, _sentences(text))]
        words, old = self.mass.keys() & filter(str.isalpha, _content(told)), Changes(told)
        return [
            answer
            for answer in dict.fromkeys(answer for news in came for answer in self._answer(news))
            if words & (read := self.scope.passages[answer]).words and old.has_alike(read.flat)
        ]

    def _came_of(
        self, row: int, text: str, told: Sequence[str], *, people: bool = False, named: bool = False
    ) -> list[int]:
        """Rows of later messages of the user that say something else of what is `told` at `row`, at most two: the
        newest, but one with a value of the same unit before any other; and the newest of the rest, where it is short or
        has no other value ("The Skoda is sold.").

        What short messages belong to counts, too (restore/context.py), but not where people talk.
        """
        old = self._earlier(row, text, told, people=people, named=named)
        if not (old.rare or old.asked):
            return []
        scope = self.scope
        scores = scope.lexical(sorted(old.about)) * self._is_later(row)  # a set has another order in every process
        rivals = [each for each in best(scores, RIVALS if people else SHORT_RIVALS).tolist() if scores[each] > 0]
        scope.passages.read(rivals)
        found = [other for n, other in enumerate(rivals) if self._is_news(other, old, near=n < RIVALS)]
        short = [] if people else self._short_of(row, rivals, own_terms(text), old.about)
        newest = sorted({*found, *short}, key=lambda other: -int(scope.places[other]))
        if not newest:
            return []
        first = next((other for other in newest if self._is_alike(other, old)), newest[0])
        more = [other for other in newest if other != first][:1]
        return [first, *(row for row in more if row in short or not old.values.has_other(scope.passages[row].flat))]

    def _earlier(self, row: int, text: str, told: Sequence[str], *, people: bool, named: bool) -> "_Earlier":
        about = frozenset(_content("\n".join(told) or text))
        own = None if people else self.contexts.of(row)
        about = about | own.words if own else about
        rarities = self.scope.rarities
        return _Earlier(
            told, about, Changes(text), people=people, named=people or named,
            rare=frozenset(term for term in about if rarities[term] >= RARE),
            asked=frozenset() if people else about.intersection(self.mass),
            name=_name(self._passage(row)) if people else "",
        )  # fmt: skip

    def _is_news(self, row: int, old: "_Earlier", *, near: bool) -> bool:
        """Does the message at `row`, which is later than `old`, say something else of the same?

        near: it is among the RIVALS best; others have to be short, or to have a value of the same unit
        """
        passage = self._passage(row)
        if passage.speaker != "user" or (old.people and _name(passage) != old.name):
            return False
        words = self.scope.passages[row].words
        if old.rare.isdisjoint(words) and not (old.asked and old.asked <= words):
            return False
        if not (near or (not old.people and is_short(passage)) or self._is_alike(row, old)):
            return False
        return self._says_else(self.scope.passages[row].flat, old)

    def _is_alike(self, row: int, old: "_Earlier") -> bool:
        """Has the message at `row` another value of the same unit?"""
        flat = self.scope.passages[row].flat
        return len(flat) <= MOST_CHARS and old.values.has_alike(flat)

    def _short_of(self, row: int, rivals: Sequence[int], said: frozenset[str], about: frozenset[str]) -> list[int]:
        """Rows of short messages that go on about what `row` is about, and have something that was not `said` there.

        Of `rivals`, those and the ones that they reply to; and the next message, where nothing else says what it is
        about: "Too many, make it 3."
        """
        scope, places = self.scope, self.scope.places
        place = int(places[row])
        told = [other for other in rivals if self._passage(other).speaker == "assistant"]
        replied = [before for before in scope.beside(np.array(told, np.int64), -1).tolist() if before >= 0]
        scope.passages.read(replied)
        later, found = [other for other in dict.fromkeys([*rivals, *replied]) if places[other] > place], list[int]()
        self.contexts.read_around(later)
        for other in later:
            if self.ask.late():
                break
            context = self._leaning(other, said)
            if context and self._is_about(context, said, about | said):
                found.append(other)
        next_ = [r for by in (1, 2) for r in scope.at(place + by)[:1] if self._passage(r).speaker == "user"][:1]
        return found + [r for r in next_ if self.contexts.stands_alone(r) and self._leaning(r, said)]

    def _leaning(self, row: int, said: frozenset[str]) -> Context | None:
        """What the message at `row` belongs to, where it is short and tells something that was not `said`. What says by
        itself what it is about has to name what is asked for, if anything is, or two rare words of what was said; but
        for a rule, which holds for all that it is about. What only asks tells nothing."""
        context = self.contexts.of(row)
        if context is None or context.own <= said:
            return None
        text = self._passage(row).text
        if all(map(ends_asking, _sentences(text))):
            return None
        told = frozenset(informative([*context.own]))
        shared, rarities = context.own & said, self.scope.rarities
        things = [term for term in informative([*shared]) if term.isalpha() and rarities[term] >= RARE]
        names = not self.mass or not shared.isdisjoint(self.mass) or len(things) > 1
        return context if told and (names or not says_itself(told) or is_rule(text)) else None

    def _is_about(self, context: Context, said: frozenset[str], about: frozenset[str]) -> bool:
        """Are a short message and what it belongs to largely about the same, but for what is new in it?"""
        new, rarities = context.own - said, self.scope.rarities
        weights = {term: rarities[term] for term in (context.own | context.words) - new}
        shared = [weight for term, weight in weights.items() if term in about]
        return bool(shared) and max(shared) >= RARE and math.fsum(shared) >= SHARE * math.fsum(weights.values())

    def _says_else(self, new: str, old: "_Earlier") -> bool:
        """Is a sentence of `new` about what `old` is about, with another value in it or in the next sentence?"""
        about, asked, values = old.about, old.asked, old.values
        each, rarities = _sentences(new) if len(new) <= MOST_CHARS else (), self.scope.rarities
        for n, sentence in enumerate(each):
            weights = {} if greets(sentence) else {term: rarities[term] for term in _content(sentence)}
            shared, least = [weights[term] for term in weights if term in about], SHARE * sum(weights.values())
            is_asked = bool(asked) and asked.issubset(weights)
            if not is_asked and (not shared or max(shared) < RARE or sum(shared) < least):
                continue
            is_question = ends_asking(sentence)
            if values.has_other(sentence) and not values.is_named(sentence) and self._is_of_another(weights, about):
                continue
            if values.has_other(sentence if is_question else " ".join(each[n : n + 2])):
                if not old.named or values.is_named(sentence) or _says_the_same(sentence, weights, old.told):
                    return True
            elif not is_question and not old.named and sum(shared) * SHARE >= least * SHARE_ALONE:
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
        next_ = self.scope.at(int(self.scope.places[row]) + 1)
        if next_ and self._passage(next_[0]).speaker in ("user", "assistant") and not self._passage(next_[0]).tools:
            behind = next_ if _voice(self._passage(next_[0])) != _voice(asked) else []
        else:
            behind = self._last_said(row, asked)
        return sorted(behind, key=lambda other: -coverage(self.mass, self.scope.passages[other].words))[:1]

    def _last_said(self, row: int, asked: Passage) -> list[int]:
        """Rows of the last message of the assistant in the turn of `asked`."""
        scope = self.scope
        near = scope.places <= scope.places[row] + MOST_STEPS
        said = [
            other
            for other in np.flatnonzero(near & self._is_later(row)).tolist()
            if (each := self._passage(other)).turn == asked.turn and each.speaker == "assistant" and not each.tools
        ]
        last = max((int(scope.places[other]) for other in said), default=0)
        return [other for other in said if scope.places[other] == last]

    def _question(self, row: int) -> list[int]:
        """The row of what the message at `row` answers, where that ends with a question."""
        before = self.scope.at(int(self.scope.places[row]) - 1)
        there = [n for n in before[-1:] if self._passage(n).speaker in ("user", "assistant")]
        return [n for n in there if ends_asking(self.scope.passages[n].flat)]

    def _passage(self, row: int) -> Passage:
        return self.scope.passages[row].passage

    def _news_of(self, answers: Sequence[int], offer: pack.Offer) -> list[pack.Offer | None]:
        """What came later of those of `answers` that a user gave."""
        said = [row for row in answers if self._passage(row).speaker == "user"]
        rows = [other for row in said for other in self._came_of(row, self.scope.passages[row].flat, ())]
        made = [self._offer(other, offer.score, self._most(MOST_CHARS)) for other in rows]
        return made + [self._offered(other, offer.score, lines) for short in rows for other, lines in self.shown(short)]

    def _answer_of(self, row: int, offer: pack.Offer) -> list[int]:
        """The row of the short answer to what the passage at `row` asks at its end, if that is about the question."""
        last = self.scope.passages[row].lines[-1]
        next_ = self.scope.at(int(self.scope.places[row]) + 1)[:1]
        asked = ends_asking(last.flat) and offer.spans[-1][1] >= last.end and coverage(self.mass, last.words) > 0
        return next_ if asked and next_ and is_short(self._passage(next_[0])) else []

    def lost_of(self, rows: Sequence[int]) -> list[Candidate]:
        """The passages at `rows` with the lines that the request lacks, in this order, but for those of which it lacks
        none, or that it may not have."""
        some = looked_at(self.scope, rows, self.present, self.ask)
        found = candidates_of([(row, read) for row, read, reason in some if not reason], self.present, self.ask)
        return [each for each in self.source.alive(self.ask, found) if each.lost]

    def _offered(self, row: int, score: float, lines: Sequence[int]) -> pack.Offer | None:
        """These lines of a passage, as far as the request lacks them."""
        return self._offer(row, score, lambda candidate: [i for i in lines if i in candidate.lost])

    def _offer(
        self, row: int, score: float, lines: Callable[[Candidate], Sequence[int]], *, spare: bool = False
    ) -> pack.Offer | None:
        """Of a passage those lines that the request lacks."""
        candidate = next(iter(self.lost_of([row])), None)
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

    def _most(self, chars: int) -> Callable[[Candidate], list[int]]:
        """Its lines that say most of what is asked, up to so many characters."""
        return lambda candidate: self._most_told(candidate, chars)

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


def _says_the_same(sentence: str, weights: Mapping[str, float], told: Sequence[str]) -> bool:
    """Are most words of a sentence those of one that was told, and its value of the same unit: "The safe has a new
    code, 9026" behind "Code of the safe is 4471"? A message that tells a lot has two of its words by chance.

    weights: of its terms
    """
    words = {term: weight for term, weight in weights.items() if not any(map(str.isdigit, term))}
    least = SHARE_SAME * sum(words.values())
    for old in told:
        shared = [words[term] for term in words.keys() & set(_content(old))]
        if len(shared) > 1 and math.fsum(shared) >= least and Changes(old).has_alike(sentence):
            return True
    return False


def _last(candidate: Candidate) -> Sequence[int]:
    return candidate.lost[-1:]


def _name(passage: Passage) -> str:
    return passage.text[: name_before(passage.text)]


def _voice(passage: Passage) -> tuple[str, str]:
    return passage.speaker, _name(passage)
