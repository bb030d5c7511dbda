"""Updates of a message: later ones that state something else about the same ("Forget Tuesday. Let's meet Thursday.").

They are recognised by shared words and by order, not by words that signal a change, which differ between languages.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.analyze import ends_asking, informative, is_content, query_terms, sentences
from lantern_proxy.analyze.standing import is_rule
from lantern_proxy.rank import best
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.context import (
    SHORT_CHARS,
    STATEMENT_CHARS,
    Context,
    Contexts,
    is_self_contained,
    is_short,
    own_terms,
)
from lantern_proxy.restore.lines import greets, takes_back
from lantern_proxy.restore.parsed_statement import CHANGE_STEMS, parse_statement
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.superseded import Changes
from lantern_proxy.signals import speaker_name_end
from lantern_proxy.turn import Passage

RIVALS, SHORT_RIVALS = 6, 24
"""Most later messages that a message is compared with: in general, and of short ones and of replies to short ones."""
SHARE, SHARE_ALONE = 0.25, 0.4
"""Least share of a later sentence's idf that it has in common with the earlier message: if it has another value of the
same sort, and if it has none."""
SHARE_NEXT, SHARE_CHANGED = 0.2, 0.35
"""The same for a sentence of the next statement that has no other value of the same unit, and for the words before the
value of one that signals a change."""
SHARE_SAME = 0.6
"""Least share of a later sentence's words, apart from values, that an earlier sentence has, if nothing else links
them."""
RARE = 0.45
"""Least idf of a word that links two messages by itself."""
MOST_CORRECTIONS = 4
"""Most corrections in a row that are followed."""
WORDS_BESIDE, WORDS_BESIDE_CHANGE = 1, 2
"""Most content words beside the value in a statement that only says another one ("Hmm, 15,500 after all."), and in one
that signals a change ("Actually Friday works better.")."""
MOST_VALUES = 2
"""Most values in such a statement: "13 500 euros" has two."""
MOST_CHARS = 400
"""Longest message that counts as an update."""
MOST_STEPS = 60
"""How many messages of an agent, its calls and their results, are passed over to find what it or its user says next."""


class _Earlier(Struct, frozen=True):
    """What an earlier message states, prepared for comparison with later ones."""

    statements: Sequence[str]
    """Its sentences that state something."""
    about: frozenset[str]
    """Their content words, and those of a short message's context."""
    values: Changes
    rare: frozenset[str]
    """The rare words of `about`."""
    asked: frozenset[str]
    """The words of `about` that are in the question. A later sentence with all of them is about the same."""
    people: bool
    """It is from a chat between people: a later message counts only if the same person wrote it."""
    name: str
    """Its author, in a chat between people."""
    named: bool
    """Must a later sentence repeat the old value? In chats between people it must, since they stay on one topic for
    long."""


class Updates(Struct, frozen=True):
    """Finds updates of messages in a scope, whose lock is held."""

    scope: Scope
    mass: Mapping[str, float]
    """Of the question, see idf_mass(); empty if nothing is asked for."""
    ask: Ask
    contexts: Contexts

    def of(
        self, row: int, text: str, statements: Sequence[str], *, people: bool = False, named: bool = False
    ) -> list[int]:
        """Rows of at most two later user messages that update what the message at `row` states.

        First the newest with another value of the same unit, or else the newest of all. Then the newest of the rest, if
        it is short or has no other value ("The Skoda is sold."). A short message is read together with its context
        (restore/context.py), except in chats between people.

        statements: the sentences of `text` that state something
        """
        old = self._earlier(row, text, statements, people=people, named=named)
        if not (old.rare or old.asked):
            return []
        scope = self.scope
        about = sorted(old.about)  # the order of a set differs between processes
        scores = scope.lexical(about) * is_later(scope, row)
        rivals = [each for each in best(scores, RIVALS if people else SHORT_RIVALS).tolist() if scores[each] > 0]
        scope.passages.read(rivals)
        found = [other for n, other in enumerate(rivals) if self._is_update(other, old, near=n < RIVALS)]
        corrections = [] if people else [each for said in (row, *found) for each in self._corrections(said, old)]
        short = [] if people else [*self._short_updates(row, rivals, own_terms(text), old.about), *corrections]
        linked = {*found, *corrections}
        ranked = sorted(
            linked.union(short),
            key=lambda other: (self._has_same_unit(other, old), other in linked, int(scope.places[other])),
            reverse=True,
        )
        more = (row for row in ranked[1:] if row in short or not old.values.has_other_value(scope.passages[row].flat))
        best_of_more = max(more, key=lambda other: (other in linked, int(scope.places[other])), default=None)
        return [*ranked[:1], *([] if best_of_more is None else [best_of_more])]

    def _earlier(self, row: int, text: str, statements: Sequence[str], *, people: bool, named: bool) -> "_Earlier":
        """The message at `row`, prepared for comparison with later ones."""
        about = frozenset(content_of("\n".join(statements) or text))
        context = None if people else self.contexts.of(row)
        about = about | context.words if context else about
        rarities = self.scope.rarities
        return _Earlier(
            statements, about, Changes(text), people=people, named=people or named,
            rare=frozenset(term for term in about if rarities[term] >= RARE),
            asked=frozenset() if people else about.intersection(self.mass),
            name=speaker_prefix(self._passage(row)) if people else "",
        )  # fmt: skip

    def _is_update(self, row: int, old: "_Earlier", *, near: bool) -> bool:
        """Does the message at `row`, which is later than `old`, state something else about the same?

        near: it is among the RIVALS best; others must be short or have a value of the same unit
        """
        passage = self._passage(row)
        if passage.speaker != "user" or (old.people and speaker_prefix(passage) != old.name):
            return False
        words = self.scope.passages[row].words
        if old.rare.isdisjoint(words) and not (old.asked and old.asked <= words):
            return False
        if not (near or (not old.people and is_short(passage)) or self._has_same_unit(row, old)):
            return False
        return self._states_otherwise(self.scope.passages[row].flat, old)

    def _has_same_unit(self, row: int, old: "_Earlier") -> bool:
        """Does the message at `row` have another value of the same unit?"""
        flat = self.scope.passages[row].flat
        return len(flat) <= MOST_CHARS and old.values.has_same_unit(flat)

    def _short_updates(self, row: int, rivals: Sequence[int], said: frozenset[str], about: frozenset[str]) -> list[int]:
        """Rows of short messages on the subject of the message at `row` that add something to what it `said`.

        They are searched among `rivals` and the messages that these reply to. The next user message counts as well, if
        nothing else shows what it is about: "Too many, make it 3."
        """
        scope, places = self.scope, self.scope.places
        place = int(places[row])
        replies = [other for other in rivals if self._passage(other).speaker == "assistant"]
        replied = [before for before in scope.neighbours(np.array(replies, np.int64), -1).tolist() if before >= 0]
        next_ = [r for by in (1, 2) for r in scope.said_at(place + by)[:1] if self._passage(r).speaker == "user"][:1]
        scope.passages.read(replied)
        near, found = dict.fromkeys([*rivals, *replied, *next_]), list[int]()
        later = [other for other in near if places[other] > place]
        self.contexts.read_around(later)
        for other in later:
            if self.ask.late():
                break
            context = self._context_of_short(other, said)
            if context and self._is_about(context, said, about | said):
                found.append(other)
        return found + [r for r in next_ if self.contexts.stands_alone(r) and self._context_of_short(r, said)]

    def _corrections(self, row: int, old: "_Earlier") -> list[int]:
        """Rows of the corrections that follow the message at `row`: the user's next statement, if it is one, the next
        one after that, and so on."""
        found = list[int]()
        for _ in range(MOST_CORRECTIONS):
            next_ = self._next_correction(row, old)
            if next_ is None:
                break
            found.append(next_)
            row = next_
        return found

    def _next_correction(self, row: int, old: "_Earlier") -> int | None:
        """The row of the user's next statement after `row`, if it is not long and corrects `old`: it has another value
        of the same unit, or takes something back, and repeats an old value or is about the same: a rare word is enough
        where nothing is asked for, or with such a value. Right after it, nothing but another value is one, too."""
        found = self._next_statement(row)
        flat = self.scope.passages[found].flat if found is not None else ""
        if found is None or len(flat) > STATEMENT_CHARS:
            return None
        said = _stated(flat)
        text = " ".join(said)
        if self._passage(found).turn <= self._passage(row).turn + 1 and _is_other_value(text, old.values):
            return found
        is_same, rarities = old.values.has_same_unit(text), self.scope.rarities
        least = SHARE_NEXT if self.mass and not is_same else 0.0
        weights = ({term: rarities[term] for term in content_of(part)} for part in said)
        links = old.values.names_old_value(text) or any(_shares(each, old.about, least) for each in weights)
        takes = takes_back(said[0]) and not all(map(greets, said))
        return found if links and (takes or is_same) else None

    def _next_statement(self, row: int) -> int | None:
        """The row of the user's next message in the session that does not only ask."""
        scope = self.scope
        place, session = int(scope.places[row]), self._passage(row).session
        for by in range(1, MOST_STEPS + 1):
            rows = scope.said_at(place + by)[:1]
            passage = self._passage(rows[0]) if rows else None
            if passage is None or passage.session != session:
                return None
            if passage.speaker == "user" and _stated(scope.passages[rows[0]].flat):
                return rows[0]
        return None

    def _context_of_short(self, row: int, said: frozenset[str]) -> Context | None:
        """The context of a short message at `row` that adds something to what was `said`; else None.

        A message that can be understood by itself must also name something that the question asks for, or share two
        rare words with what was said. A rule need not: it applies to everything that it is about.
        """
        context = self.contexts.of(row)
        if context is None or context.own <= said:
            return None
        text = self._passage(row).text
        if all(map(ends_asking, sentences_of(text))):
            return None
        informative_terms = frozenset(informative([*context.own]))
        shared, rarities = context.own & said, self.scope.rarities
        things = [term for term in informative([*shared]) if term.isalpha() and rarities[term] >= RARE]
        names = not shared.isdisjoint(self.mass) or len(things) > 1
        return (
            context
            if informative_terms and (names or not is_self_contained(informative_terms) or is_rule(text))
            else None
        )

    def _is_about(self, context: Context, said: frozenset[str], about: frozenset[str]) -> bool:
        """Is a short message with its context, apart from what is new in it, mostly `about` the same?"""
        new, rarities = context.own - said, self.scope.rarities
        return _shares({term: rarities[term] for term in (context.own | context.words) - new}, about, SHARE)

    def _states_otherwise(self, new: str, old: "_Earlier") -> bool:
        """Is a sentence of `new` about what `old` is about, with another value in it or in the next sentence?"""
        about, asked, values = old.about, old.asked, old.values
        each, rarities = sentences_of(new) if len(new) <= MOST_CHARS else (), self.scope.rarities
        for n, sentence in enumerate(each):
            weights = {} if greets(sentence) else {term: rarities[term] for term in content_of(sentence)}
            shared, least = [weights[term] for term in weights if term in about], SHARE * sum(weights.values())
            is_asked = bool(asked) and asked.issubset(weights)
            is_linked = bool(shared) and max(shared) >= RARE and sum(shared) >= least
            is_replaced = bool(self.mass) and values.names_old_value(sentence) and values.has_another(sentence)
            if not (is_asked or is_linked or is_replaced):
                continue
            is_question = ends_asking(sentence)
            if (
                values.has_other_value(sentence)
                and not values.names_old_value(sentence)
                and self._is_about_another(weights, about)
            ):
                continue
            if values.has_other_value(sentence if is_question else " ".join(each[n : n + 2])):
                if not old.named or values.names_old_value(sentence) or _restates(sentence, weights, old.statements):
                    return True
                if not old.people and self._has_same_subject(sentence, old):
                    return True
            elif not is_question and not old.named and sum(shared) * SHARE >= least * SHARE_ALONE:
                return True
        return False

    def _has_same_subject(self, sentence: str, old: "_Earlier") -> bool:
        """Does the sentence give another value to what a sentence of `old` is about: are most words before the value
        from there, or, if it signals a change, a part of them? Not if it names somebody or something else."""
        parsed = parse_statement(sentence)
        least = SHARE_CHANGED if parsed.says_changed else SHARE_SAME
        for value in parsed.located_values:
            if value.sort == "name" or value.negated or not old.values.lacks(value):
                continue
            subject = {word: self.scope.rarities[word] for word in value.head.difference(value.tail, [value.unit])}
            for statement in old.statements:
                is_shared = _shares(subject, content_of(statement), least)
                if is_shared and any(value.sort == sort for _, sort, _ in parse_statement(statement).kinds):
                    return True
        return False

    def _is_about_another(self, weights: Mapping[str, float], about: frozenset[str]) -> bool:
        """Is a sentence about something else in the same words, as records are: "The Porto budget is 500" when the
        question is about Lisbon's? weights: of its terms"""
        asked = about.intersection(self.mass)
        others = (term for term, rarity in weights.items() if rarity >= RARE and term not in about)
        return not asked.issubset(weights) and any(not term.isdigit() and term not in self.mass for term in others)

    def _passage(self, row: int) -> Passage:
        return self.scope.passages[row].passage


@lru_cache(maxsize=1 << 13)
def content_of(text: str) -> tuple[str, ...]:
    """The content words of a text. Cached: the same messages are compared for each question."""
    return tuple(filter(is_content, query_terms(text)))


@lru_cache(maxsize=1 << 11)
def sentences_of(text: str) -> tuple[str, ...]:
    return tuple(text[a:b] for a, b in sentences(text))


def _stated(flat: str) -> list[str]:
    """The sentences of a text that do not ask."""
    return [part for part in sentences_of(flat) if not ends_asking(part)]


def _is_other_value(text: str, old: Changes) -> bool:
    """Does a text say nothing but that something has another value than the `old` one?"""
    parsed = parse_statement(text)
    sorts = [value.sort for value in parsed.located_values]
    if len(text) > SHORT_CHARS or len({*sorts}) != 1 or len(sorts) > MOST_VALUES:
        return False
    is_other = old.has_another(text) and (parsed.says_changed or sorts[0] != "name")
    said = (content_of(value.text) for value in parsed.located_values)
    beside = {term for term in content_of(text) if term.isalpha()}.difference(CHANGE_STEMS, *said)
    return is_other and len(beside) <= (WORDS_BESIDE_CHANGE if parsed.says_changed else WORDS_BESIDE)


def _shares(weights: Mapping[str, float], about: Collection[str], least: float) -> bool:
    """Is a rare term among `about`, and a share `least` of all terms? weights: of the terms"""
    shared = [weight for term, weight in weights.items() if term in about]
    return bool(shared) and max(shared) >= RARE and math.fsum(shared) >= least * math.fsum(weights.values())


def _restates(sentence: str, weights: Mapping[str, float], statements: Sequence[str]) -> bool:
    """Does a sentence have most words of an earlier one, with another value of the same unit: "The safe has a new code,
    9026" after "Code of the safe is 4471"? Two shared words are not enough: long messages share them by chance.

    weights: of its terms
    """
    words = {term: weight for term, weight in weights.items() if not any(map(str.isdigit, term))}
    least = SHARE_SAME * sum(words.values())
    for old in statements:
        shared = [words[term] for term in words.keys() & set(content_of(old))]
        if len(shared) > 1 and math.fsum(shared) >= least and Changes(old).has_same_unit(sentence):
            return True
    return False


def is_later(scope: Scope, row: int) -> npt.NDArray[np.bool_]:
    """(n,) which passages of the session come after the message at `row`."""
    places, sessions = scope.places, scope.session_numbers
    later: npt.NDArray[np.bool_] = (places > places[row]) & (sessions == sessions[row])
    return later


def speaker_prefix(passage: Passage) -> str:
    """The speaker's name in front of a passage, with its colon; empty if there is none."""
    return passage.text[: speaker_name_end(passage.text)]
