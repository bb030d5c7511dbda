"""Token vectors small enough to keep: a fixed projection of a model's outputs to 128 numbers, one byte each.

The projection is the principal subspace of the model's outputs for random words of its vocabulary, turned so that its
axes share the variance (scripts/late_projection.py makes it). Pieces of stop words and punctuation are left out: they
match nothing that a question asks for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from lantern_proxy.signals_late import Asked, Tokens, pack

Vectors = npt.NDArray[np.float32]

RECIPE = "late-1"
"""Another projection means other vectors; archives record it."""
_FILES = {
    "sentence-transformers/all-MiniLM-L6-v2": "late_minilm_l6.npz",
    "all-MiniLM-L6-v2": "late_minilm_l6.npz",
}


@dataclass(frozen=True, slots=True)
class Projection:
    """How one model's token vectors are made small."""

    matrix: Vectors
    """(dim of the model, 128)"""
    dropped: frozenset[int]
    """Ids of tokens that are not kept, [CLS] and [SEP] among them."""

    def passage(self, ids: Sequence[int], hidden: Vectors) -> Tokens:
        """What to keep of a text: (tokens kept, 128) int8. ids: (t,); hidden: (t, dim)"""
        return pack(self._small(hidden[self._kept(ids)]))

    def question(self, text: str, encoding: Any, hidden: Vectors) -> Asked:
        """Every word that counts, with its vectors. encoding: of `tokenizers`."""
        kept = self._kept(encoding.ids)
        words = tuple(_word(text, encoding, token) for token in kept)
        return Asked(self._small(hidden[kept]), words)

    def _kept(self, ids: Sequence[int]) -> list[int]:
        return [n for n, id_ in enumerate(ids) if id_ not in self.dropped]

    def _small(self, hidden: Vectors) -> Vectors:
        small = hidden @ self.matrix
        unit: Vectors = small / np.maximum(np.linalg.norm(small, axis=1, keepdims=True), 1e-12)
        return unit


@cache
def projection_of(model: str) -> Projection | None:
    """None for a model that none was made for: late interaction is off then."""
    if model not in _FILES:
        return None
    packed = (files("lantern_proxy") / "data" / _FILES[model]).read_bytes()
    with np.load(BytesIO(packed)) as data:
        return Projection(data["matrix"].astype(np.float32), frozenset(data["dropped"].tolist()))


def _word(text: str, encoding: Any, token: int) -> str:
    """The whole word that a piece of it belongs to."""
    start, end = encoding.word_to_chars(encoding.word_ids[token])
    return text[start:end]
