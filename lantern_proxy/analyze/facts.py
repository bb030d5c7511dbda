"""Features of a sentence for classifiers: number of pieces, words and symbols, and its content words. Pure.

native/facts.c gives the same result where it is available; the reference is here.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from lantern_proxy.analyze import count_wide_chars, is_content, native, terms
from lantern_proxy.analyze.letters import bare

COMMON, CALLS, DIGIT = 1, 2, 4
"""Flags: of a stem without content; of a sentence with symbols of code, or with a digit."""
_OWN = 8
"""The lowest flag that a caller of Stems may use; lower ones are COMMON, CALLS and DIGIT."""

_PROSE = re.compile(r"[(\"'*]*[^\W\d_][^\W\d_']+[.,;:!?)\"'*]*")
_SIGNS = re.compile(r"[{}\[\]();=<>]")
_CALLS = re.compile(r"\w\(|[{};=<>]")
_DIGIT = re.compile(r"\d")


class Facts(NamedTuple):
    """Counts over one sentence. A piece is a run without white space."""

    pieces: int
    plain: int
    """Pieces of two or more letters and nothing else."""
    prose: int
    """Pieces that are a word, with or without punctuation."""
    wide: int
    """Characters of scripts without spaces."""
    signs: int
    """Brackets, semicolons and comparison symbols."""
    flags: int
    words: frozenset[str]
    """Its content words, as index terms: long enough and not COMMON."""

    def is_prose(self, share: float) -> bool:
        """Are at least `share` of the pieces words?"""
        return 0 < share * self.pieces <= self.plain or self.prose / max(1, self.pieces) >= share


class Stems:
    """Stems with flags, each a power of two from 8 on, and COMMON."""

    def __init__(self, flagged: Iterable[tuple[int, Iterable[str]]]) -> None:
        self._flags: dict[str, int] = {}
        for flag, stems in flagged:
            for stem in stems:
                self._flags[stem] = self._flags.get(stem, 0) | flag

    @cached_property
    def _native(self) -> Any:
        return native.lexicon((flags, [stem]) for stem, flags in self._flags.items())

    def facts(self, sentences: Sequence[str]) -> list[Facts]:
        """The Facts of each sentence, with the flags of its stems except COMMON."""
        found = native.facts(sentences, self._native) if native.AVAILABLE else None
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
            wide=count_wide_chars(sentence),
            signs=len(_SIGNS.findall(sentence)),
            flags=flags,
            words=frozenset(s for s in stems if not self._flags.get(s, 0) & COMMON and is_content(s)),
        )
