"""Features of a sentence for classifiers: pieces, words, signs, and its content words. Pure.

native/facts.c gives the same where it was built and can; what it must equal is here.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from lantern_proxy.analyze import is_content, native, terms, wide_signs
from lantern_proxy.analyze.letters import bare

COMMON, CALLS, DIGIT = 1, 2, 4
"""Flags: of a stem that says nothing; of a sentence with signs of a program, or with a figure."""
_OWN = 8
"""The lowest flag that a caller of Stems may give a stem; those below are COMMON, CALLS and DIGIT."""

_PROSE = re.compile(r"[(\"'*]*[^\W\d_][^\W\d_']+[.,;:!?)\"'*]*")
_SIGNS = re.compile(r"[{}\[\]();=<>]")
_CALLS = re.compile(r"\w\(|[{};=<>]")
_DIGIT = re.compile(r"\d")


class Facts(NamedTuple):
    """What can be counted of one sentence. A piece is what stands between white space."""

    pieces: int
    plain: int
    """Pieces of two letters or more, and nothing else."""
    prose: int
    """Pieces that are a word, with marks around it or without."""
    wide: int
    """Signs of scripts without spaces."""
    signs: int
    """Brackets, semicolons and what compares."""
    flags: int
    words: frozenset[str]
    """Its content words, as index terms: those that are not COMMON, and long enough."""

    def is_prose(self, share: float) -> bool:
        """Are at least `share` of the pieces words?"""
        return 0 < share * self.pieces <= self.plain or self.prose / max(1, self.pieces) >= share


class Stems:
    """What stems are: flags from 8 on, each a power of two, and COMMON."""

    def __init__(self, sorts: Iterable[tuple[int, Iterable[str]]]) -> None:
        self._flags: dict[str, int] = {}
        for flag, stems in sorts:
            for stem in stems:
                self._flags[stem] = self._flags.get(stem, 0) | flag

    @cached_property
    def _native(self) -> Any:
        return native.lexicon((flags, [stem]) for stem, flags in self._flags.items())

    def facts(self, sentences: Sequence[str]) -> list[Facts]:
        """The Facts of each sentence. It has the flags of its stems, but for COMMON."""
        found = native.facts(sentences, self._native) if native.SERVES else None
        if found is None:
            return [*map(self.facts_in_python, sentences)]
        return [Facts(*each[:6], frozenset(each[6])) for each in found]

    def facts_in_python(self, sentence: str) -> Facts:
        """The Facts of one sentence, without C."""
        stems, pieces = frozenset(terms(sentence)), bare(sentence).split()
        flags = CALLS * bool(_CALLS.search(sentence)) | DIGIT * bool(_DIGIT.search(sentence))
        for stem in stems:
            flags |= self._flags.get(stem, 0) & -_OWN
        return Facts(
            pieces=len(pieces),
            plain=sum([len(piece) > 1 and piece.isalpha() for piece in pieces]),
            prose=sum(_PROSE.fullmatch(piece) is not None for piece in pieces),
            wide=wide_signs(sentence),
            signs=len(_SIGNS.findall(sentence)),
            flags=flags,
            words=frozenset(s for s in stems if not self._flags.get(s, 0) & COMMON and is_content(s)),
        )
