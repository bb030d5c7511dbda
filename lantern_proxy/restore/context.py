"""What a short message of a user belongs to: "no, 3", "Thursday" and "took it" say little by themselves.

It is told by what stands around the message, whatever the language: the question that it answers, the sentences of
the reply that say it again, and where there is neither, what was said right before it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lantern_proxy.analyze import ends_asking, is_content, query_terms, wide_signs
from lantern_proxy.analyze.standing import is_rule
from lantern_proxy.restore.lines import FILLER, Line, is_filler
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.scope import Scope
from lantern_proxy.turn import Passage
from lantern_proxy.turn_memo import Memo

SHORT_CHARS = 80
"""Most of a message that is taken for short."""
WIDE_CHARS = 2
"""What a sign of a script without spaces counts more than a letter."""
SAYS_CHARS = 200
"""Most of a sentence that says what a short message is about; and of a reply whose first sentence does, though it has
none of its words: "Then Kyoto is now the machiya in Gion." behind "took it"."""
LEAST_WORDS, SAYS_ITSELF = 2, 3
"""Content words from which on a sentence says what something is about, and a message of a user all that it means."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a short message belongs to."""

    own: frozenset[str]
    """Content words and numbers of the message, as index terms."""
    words: frozenset[str]
    """Those of what it belongs to."""
    shown: tuple[tuple[int, tuple[int, ...]], ...]
    """Rows, and which of their lines a reader needs beside it; oldest first. None where it says all by itself."""


def _read(text: str) -> frozenset[str]:
    return frozenset(term for term in query_terms(text) if is_content(term) or term.isdigit())


own_terms = Memo(_read, most_bytes=4 << 20, bytes_of=lambda text: 1_000 + 8 * len(text)).__getitem__
"""Content words and numbers of a text, as index terms. Remembered: each is read for several messages around it."""


def prepare(read: ReadPassage) -> None:
    """Compute ahead what contexts ask of a passage."""
    for line in read.lines if read.passage.speaker in ("user", "assistant") else ():
        if len(line.flat) <= SAYS_CHARS:
            own_terms(line.flat)


def says_itself(own: frozenset[str]) -> bool:
    """Do these content words say all that a message means? Numbers say of nothing."""
    return sum([not any(map(str.isdigit, term)) for term in own]) >= SAYS_ITSELF


def is_short(passage: Passage) -> bool:
    """May it be a message of a user that says little by itself?"""
    text = passage.text
    if passage.speaker != "user" or passage.tools or len(text) > SHORT_CHARS:
        return False
    return text.isascii() or len(text) + WIDE_CHARS * wide_signs(text) <= SHORT_CHARS


def at_place(scope: Scope, place: int) -> list[int]:
    """Rows of the message at a place of the session."""
    rows: list[int] = np.flatnonzero(scope.places == place).tolist()
    return rows


class Contexts:
    """Reads what short messages of a scope belong to. Hold its lock."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._known: dict[int, Context | None] = {}

    def own(self, row: int) -> frozenset[str]:
        """Content words and numbers of the message at `row`."""
        return own_terms(self._scope.passages[row].flat)

    def stands_alone(self, row: int) -> bool:
        """Is the message at `row` short, and nothing says what it belongs to, nor does it itself?"""
        context = self.of(row)
        return context is not None and context.words <= context.own and not says_itself(context.own)

    def of(self, row: int) -> Context | None:
        """None where the message at `row` is not short, or says nothing of its own."""
        if row not in self._known:
            self._known[row] = self._read(row)
        return self._known[row]

    def _read(self, row: int) -> Context | None:
        passage = self._scope.passages[row].passage
        if not is_short(passage) or is_filler(passage.text):
            return None
        own = own_terms(passage.text)
        if not own:
            return None
        place = int(self._scope.places[row])
        before, after = (
            self._said(at_place(self._scope, place - 1)[-1:]),
            self._said(at_place(self._scope, place + 1)[:1]),
        )
        found = [(r, lines) for r in before if (lines := self._asked(r))]
        again = [(r, lines) for r in after if (lines := self._says_again(r, own))]
        if len(self._words(found)) < LEAST_WORDS:
            found += again
        if not found:
            found = [(r, lines) for r in before if (lines := self._told(r))]
        words = self._words(found) | self._words(again)
        needs = words - own and not says_itself(own) and not is_rule(passage.text)
        return Context(own, words, tuple(found) if needs else ())

    def _said(self, rows: Iterable[int]) -> list[int]:
        """Those of `rows` that an assistant says."""
        return [r for r in rows if (p := self._scope.passages[r].passage).speaker == "assistant" and not p.tools]

    def _asked(self, row: int) -> tuple[int, ...]:
        """The last line, where it asks."""
        lines = self._scope.passages[row].lines
        last = len(lines) - 1
        return (last,) if lines and ends_asking(lines[last].flat) and len(lines[last].flat) <= SAYS_CHARS else ()

    def _says_again(self, row: int, own: frozenset[str]) -> tuple[int, ...]:
        """The first line of a reply that has a word of the message and another one; of a short reply the first that
        says something."""
        read = self._scope.passages[row]
        told = [(i, own_terms(line.flat)) for i, line in enumerate(read.lines) if _tells(line)]
        again = [i for i, words in told if not words.isdisjoint(own) and words - own]
        if not again and len(read.flat) <= SAYS_CHARS:
            again = [i for i, words in told if len(words) >= LEAST_WORDS]
        return tuple(again[:1])

    def _told(self, row: int) -> tuple[int, ...]:
        """The last line of what was said before that says something."""
        lines = self._scope.passages[row].lines
        told = [i for i, line in enumerate(lines) if _tells(line) and len(own_terms(line.flat)) >= LEAST_WORDS]
        return tuple(told[-1:])

    def _words(self, some: Sequence[tuple[int, tuple[int, ...]]]) -> frozenset[str]:
        lines = (self._scope.passages[row].lines[i].flat for row, each in some for i in each)
        return own_terms("\n".join(lines))


def _tells(line: Line) -> bool:
    return len(line.flat) <= SAYS_CHARS and line.salience > FILLER and not ends_asking(line.flat)
