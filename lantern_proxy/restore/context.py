"""What a short user message belongs to: "no, 3", "Thursday" and "took it" say little by themselves.

It is told by what stands around the message, whatever the language: the question that it answers, the sentences of
the reply that say it again, and where there is neither, what was said right before it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from lantern_proxy.analyze import ends_asking, is_content, query_terms, sentences, wide_signs
from lantern_proxy.analyze.standing import is_rule
from lantern_proxy.restore.lines import FILLER, Line, is_filler
from lantern_proxy.restore.scope import Scope
from lantern_proxy.turn import Passage
from lantern_proxy.turn_memo import Memo

SHORT_CHARS = 80
"""Most characters of a message that counts as short."""
WIDE_CHARS = 2
"""What a sign of a script without spaces (Chinese, Japanese) counts beyond the one character that a letter counts."""
SAYS_CHARS = 200
"""Most characters of a sentence that says what a short message is about. The first sentence of a reply counts as such
without a word of the message only if the whole reply is no longer: "Then Kyoto is now the machiya in Gion." behind
"took it"."""
LEAST_WORDS, SAYS_ITSELF = 2, 3
"""From LEAST_WORDS content words on a sentence says what something is about, and from SAYS_ITSELF on a message of a
user says all that it means."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a short message belongs to."""

    own: frozenset[str]
    """Content words and numbers of the message, as index terms."""
    words: frozenset[str]
    """Content words and numbers of what it belongs to."""
    shown: tuple[tuple[int, tuple[int, ...]], ...]
    """(row, lines of it) that a reader needs beside the message, oldest first; empty where it says all by itself."""


def _read(text: str) -> frozenset[str]:
    return frozenset(term for term in query_terms(text) if is_content(term) or term.isdigit())


own_terms = Memo(_read, most_bytes=4 << 20, bytes_of=lambda text: 1_000 + 8 * len(text)).__getitem__
"""Content words and numbers of a text, as index terms. Remembered: each is read for several messages around it."""


def says_itself(own: frozenset[str]) -> bool:
    """Do the content words of a message say all that it means? Numbers do not count: they do not say of what. Terms of
    scripts without spaces are half a word each, since they overlap."""
    return fsum([1 / max(1, wide_signs(term)) for term in own if not any(map(str.isdigit, term))]) >= SAYS_ITSELF


def is_short(passage: Passage) -> bool:
    """May it be a message of a user that says little by itself?"""
    text = passage.text
    if passage.speaker != "user" or passage.tools or len(text) > SHORT_CHARS:
        return False
    return text.isascii() or len(text) + WIDE_CHARS * wide_signs(text) <= SHORT_CHARS


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
        """What the message at `row` belongs to; None where it is not short, or says nothing of its own."""
        if row not in self._known:
            self._known[row] = self._read(row)
        return self._known[row]

    def _read(self, row: int) -> Context | None:
        read = self._scope.passages[row]
        passage = read.passage
        if not is_short(passage) or all(is_filler(line, passage.speaker) for line in read.lines):
            return None
        own = own_terms(passage.text)
        if not own:
            return None
        place = int(self._scope.places[row])
        before, after = self._said(self._scope.at(place - 1)[-1:]), self._said(self._scope.at(place + 1)[:1])
        found = [said for r in before if (said := self._asked(r))]
        again = [said for r in after if (said := self._says_again(r, own))]
        if len(_words(found)) < LEAST_WORDS:
            found += again
        if not found:
            found = [said for r in before if (said := self._told(r))]
        words = _words(found) | _words(again)
        needs = words - own and not says_itself(own) and not is_rule(passage.text)
        return Context(own, words, tuple((each.row, (each.line,)) for each in found) if needs else ())

    def read_around(self, rows: Iterable[int]) -> None:
        """Read what `of` looks at for each of `rows` at once: a tenth of what it costs one by one."""
        scope, around = self._scope, list[int]()
        for row in rows:
            if row not in self._known and is_short(scope.passages[row].passage):
                place = int(scope.places[row])
                around += [*scope.at(place - 1)[-1:], *scope.at(place + 1)[:1]]
        scope.passages.read(around)

    def _said(self, rows: Iterable[int]) -> list[int]:
        """Those of `rows` that an assistant says; calls of tools are none."""
        return [r for r in rows if (p := self._scope.passages[r].passage).speaker == "assistant" and not p.tools]

    def _asked(self, row: int) -> "_Said | None":
        """The last line of the passage at `row`, where it asks; else None. Only that one is read: the passage may be
        long."""
        text = self._scope.passages[row].passage.text
        if not ends_asking(text.rstrip()):
            return None
        spans = sentences(text)
        start, end = spans[-1]
        last = " ".join(text[start:end].split())
        return _Said(row, len(spans) - 1, last) if ends_asking(last) and len(last) <= SAYS_CHARS else None

    def _says_again(self, row: int, own: frozenset[str]) -> "_Said | None":
        """The first line of the reply at `row` that has both a word of the message and a new one; else, of a short
        reply, the first that says something. own: the words of the message"""
        read = self._scope.passages[row]
        if not own.isdisjoint(read.words):
            for i, line in enumerate(read.lines):
                if _tells(line) and not own.isdisjoint(words := own_terms(line.flat)) and words - own:
                    return _Said(row, i, line.flat)
        return self._says(row, range(len(read.lines))) if len(read.flat) <= SAYS_CHARS else None

    def _told(self, row: int) -> "_Said | None":
        """The last line of the passage at `row` that says something."""
        return self._says(row, reversed(range(len(self._scope.passages[row].lines))))

    def _says(self, row: int, order: Iterable[int]) -> "_Said | None":
        """The first line, in the given order, that says something."""
        lines = self._scope.passages[row].lines
        told = (i for i in order if _tells(lines[i]) and len(own_terms(lines[i].flat)) >= LEAST_WORDS)
        return next((_Said(row, i, lines[i].flat) for i in told), None)


@dataclass(frozen=True, slots=True)
class _Said:
    """One line of a message around a short one."""

    row: int
    line: int
    flat: str


def _words(some: Sequence[_Said]) -> frozenset[str]:
    return own_terms("\n".join([each.flat for each in some]))


def _tells(line: Line) -> bool:
    return len(line.flat) <= SAYS_CHARS and line.salience > FILLER and not ends_asking(line.flat)
