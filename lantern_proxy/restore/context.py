"""Finds what a short user message refers to: "no, 3", "Thursday" and "took it" say little by themselves.

The context is found by position, in any language: the question that the message answers, the sentences of the reply
that repeat it, or if there are neither, what was said right before it.
"""

from collections.abc import Iterable, Sequence
from math import fsum

from msgspec import Struct

from lantern_proxy.analyze import count_wide_chars, ends_asking, is_content, query_terms, sentences
from lantern_proxy.analyze.standing import is_rule
from lantern_proxy.restore.lines import FILLER, Line, is_filler
from lantern_proxy.restore.scope import Scope
from lantern_proxy.turn import Passage
from lantern_proxy.turn_memo import Memo

SHORT_CHARS = 80
"""Longest message that counts as short."""
WIDE_CHARS = 2
"""How many characters a character of a script without spaces (Chinese, Japanese) counts in addition to one."""
STATEMENT_CHARS = 200
"""Longest sentence that counts as context. The first sentence of a reply counts without sharing a word with the message
only if the whole reply is no longer than this: "Then Kyoto is now the machiya in Gion." after "took it"."""
LEAST_WORDS, SELF_CONTAINED = 2, 3
"""From LEAST_WORDS content words on a sentence says what something is about; from SELF_CONTAINED on a user message can
be understood by itself."""


class Context(Struct, frozen=True):
    """What a short message refers to."""

    own: frozenset[str]
    """Content words and numbers of the message, as index terms."""
    words: frozenset[str]
    """Content words and numbers of its context."""
    shown: tuple[tuple[int, tuple[int, ...]], ...]
    """(row, its lines) that a reader needs to understand the message, oldest first; empty if it is self-contained."""


def _own_terms(text: str) -> frozenset[str]:
    return frozenset(term for term in query_terms(text) if is_content(term) or term.isdigit())


own_terms = Memo(_own_terms, most_bytes=4 << 20, bytes_of=lambda text: 1_000 + 8 * len(text)).__getitem__
"""Content words and numbers of a text, as index terms. Cached: each text is read for several messages around it."""


def is_self_contained(own: frozenset[str]) -> bool:
    """Are these content words enough to understand a message? Numbers do not count: they do not say of what. Terms of
    scripts without spaces count half, since they overlap."""
    return (
        fsum([1 / max(1, count_wide_chars(term)) for term in own if not any(map(str.isdigit, term))]) >= SELF_CONTAINED
    )


def is_short(passage: Passage) -> bool:
    """May this be a user message that says little by itself?"""
    text = passage.text
    if passage.speaker != "user" or passage.tools or len(text) > SHORT_CHARS:
        return False
    return text.isascii() or len(text) + WIDE_CHARS * count_wide_chars(text) <= SHORT_CHARS


class Contexts:
    """Finds the context of short messages in a scope. Hold its lock."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._known: dict[int, Context | None] = {}

    def own(self, row: int) -> frozenset[str]:
        """Content words and numbers of the message at `row`."""
        return own_terms(self._scope.passages[row].flat)

    def stands_alone(self, row: int) -> bool:
        """Is the message at `row` short and not self-contained, and has it no context?"""
        context = self.of(row)
        return context is not None and context.words <= context.own and not is_self_contained(context.own)

    def of(self, row: int) -> Context | None:
        """The context of the message at `row`; None if it is not short, or has no content."""
        if row not in self._known:
            self._known[row] = self._context(row)
        return self._known[row]

    def _context(self, row: int) -> Context | None:
        """The context of the message at `row`, computed; see `of`."""
        read = self._scope.passages[row]
        passage = read.passage
        if not is_short(passage) or all(is_filler(line, passage.speaker) for line in read.lines):
            return None
        own = own_terms(passage.text)
        if not own:
            return None
        place = int(self._scope.places[row])
        before, after = (
            self._assistant_rows(self._scope.at(place - 1)[-1:]),
            self._assistant_rows(self._scope.at(place + 1)[:1]),
        )
        context_lines = [said for r in before if (said := self._closing_question(r))]
        restated = [said for r in after if (said := self._restatement(r, own))]
        if len(_words(context_lines)) < LEAST_WORDS:
            context_lines += restated
        if not context_lines:
            context_lines = [said for r in before if (said := self._last_statement(r))]
        words = _words(context_lines) | _words(restated)
        needs = words - own and not is_self_contained(own) and not is_rule(passage.text)
        return Context(own, words, tuple((each.row, (each.line,)) for each in context_lines) if needs else ())

    def read_around(self, rows: Iterable[int]) -> None:
        """Read what `of` needs for each of `rows` at once: a tenth of the cost of reading one by one."""
        scope, around = self._scope, list[int]()
        for row in rows:
            if row not in self._known and is_short(scope.passages[row].passage):
                place = int(scope.places[row])
                around += [*scope.at(place - 1)[-1:], *scope.at(place + 1)[:1]]
        scope.passages.read(around)

    def _assistant_rows(self, rows: Iterable[int]) -> list[int]:
        """Those of `rows` that an assistant wrote, without tool calls."""
        return [r for r in rows if (p := self._scope.passages[r].passage).speaker == "assistant" and not p.tools]

    def _closing_question(self, row: int) -> "_ContextLine | None":
        """The last line of the passage at `row` if it is a question; else None. Only that line is read: the passage may
        be long."""
        text = self._scope.passages[row].passage.text
        if not ends_asking(text.rstrip()):
            return None
        spans = sentences(text)
        start, end = spans[-1]
        last = " ".join(text[start:end].split())
        return _ContextLine(row, len(spans) - 1, last) if ends_asking(last) and len(last) <= STATEMENT_CHARS else None

    def _restatement(self, row: int, own: frozenset[str]) -> "_ContextLine | None":
        """The first line of the reply at `row` with both a word of the message and a new one; else, of a short reply,
        the first statement. own: the words of the message"""
        read = self._scope.passages[row]
        if not own.isdisjoint(read.words):
            for i, line in enumerate(read.lines):
                if _is_statement(line) and not own.isdisjoint(words := own_terms(line.flat)) and words - own:
                    return _ContextLine(row, i, line.flat)
        return self._first_statement(row, range(len(read.lines))) if len(read.flat) <= STATEMENT_CHARS else None

    def _last_statement(self, row: int) -> "_ContextLine | None":
        """The last line of the passage at `row` that states something."""
        return self._first_statement(row, reversed(range(len(self._scope.passages[row].lines))))

    def _first_statement(self, row: int, order: Iterable[int]) -> "_ContextLine | None":
        """The first line, in the given order, that states something."""
        lines = self._scope.passages[row].lines
        told = (i for i in order if _is_statement(lines[i]) and len(own_terms(lines[i].flat)) >= LEAST_WORDS)
        return next((_ContextLine(row, i, lines[i].flat) for i in told), None)


class _ContextLine(Struct, frozen=True):
    """One line near a short message."""

    row: int
    line: int
    flat: str


def _words(some: Sequence[_ContextLine]) -> frozenset[str]:
    return own_terms("\n".join([each.flat for each in some]))


def _is_statement(line: Line) -> bool:
    return len(line.flat) <= STATEMENT_CHARS and line.salience > FILLER and not ends_asking(line.flat)
