"""A compiled model in memory: runs one text at a time in onnxruntime; a text's vector and the vectors of its words."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy import compiled
from lantern_proxy.signals.late import DIM, QuestionTokens, Tokens, pack

Vectors = npt.NDArray[np.float32]

LATE = "late-1"
"""Another projection gives other vectors; archives store this."""


class Projection(Struct, frozen=True):
    """Reduces one model's token vectors so that they can be stored: 128 numbers, one byte each.

    It is the principal subspace of the model's outputs for random words of its vocabulary, rotated so that its axes
    share the variance (scripts/late_projection.py makes it). Tokens of stop words and punctuation are dropped: no
    question asks for them.
    """

    matrix: Vectors
    """(dim of the model, 128)"""
    dropped: frozenset[int]
    """Ids of tokens that are dropped, [CLS] and [SEP] among them."""

    def passage(self, ids: Sequence[int], hidden: Vectors) -> Tokens:
        """The token vectors to store: (tokens kept, 128) int8. ids: (t,); hidden: (t, dim)"""
        return pack(self._small(hidden[self._kept(ids)]))

    def question(self, text: str, encoding: Any, hidden: Vectors) -> QuestionTokens:
        """Every significant word, with its vectors. encoding: of `tokenizers`"""
        kept = self._kept(encoding.ids)
        words = tuple(_word(text, encoding, token) for token in kept)
        return QuestionTokens(self._small(hidden[kept]), words)

    def _kept(self, ids: Sequence[int]) -> list[int]:
        return [n for n, id_ in enumerate(ids) if id_ not in self.dropped]

    def _small(self, hidden: Vectors) -> Vectors:
        small = hidden @ self.matrix
        unit: Vectors = small / np.maximum(np.linalg.norm(small, axis=1, keepdims=True), 1e-12)
        return unit


@cache
def projection_of(model: str) -> Projection | None:
    """The projection for a model; None if there is none: late interaction is off then."""
    if model not in compiled.MINILM_NAMES:
        return None
    packed = (files("lantern_proxy") / "data" / "late_minilm_l6.npz").read_bytes()
    with np.load(BytesIO(packed)) as data:
        return Projection(data["matrix"].astype(np.float32), frozenset(data["dropped"].tolist()))


def _word(text: str, encoding: Any, token: int) -> str:
    """The whole word that a token belongs to."""
    start, end = encoding.word_to_chars(encoding.word_ids[token])
    return text[start:end]


class Manifest(compiled.Manifest, frozen=True, kw_only=True):
    """The metadata of a compiled embedder, stored beside it as JSON."""

    dim: int
    pooling: str
    """mean or cls."""


class Compiled(Struct, frozen=True):
    """A compiled model in memory."""

    manifest: Manifest
    session: Any
    tokenizer: Any
    inputs: frozenset[str]

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32, each row of length 1."""
        found = np.empty((len(texts), self.manifest.dim), np.float32)
        for row, text in enumerate(texts):
            found[row] = self.vector(text)
        return found

    def passages(self, texts: Sequence[str], late: Projection | None) -> tuple[Vectors, list[Tokens]]:
        """The same, and from the same run each text's token vectors; none without a projection."""
        found, tokens = np.empty((len(texts), self.manifest.dim), np.float32), []
        for row, text in enumerate(texts):
            _, encoding, hidden = self.run(text)
            found[row] = self.pooled(hidden)
            tokens.append(late.passage(encoding.ids, hidden) if late else np.zeros((0, DIM), np.int8))
        return found, tokens

    def vector(self, text: str) -> Vectors:
        """(dim,) float32 of length 1: the mean of the token vectors, or the first one if the model uses that."""
        return self.pooled(self.token_vectors(text))

    def pooled(self, hidden: Vectors) -> Vectors:
        """The vector of a text from its token vectors."""
        mean = hidden[0] if self.manifest.pooling == "cls" else hidden.mean(axis=0)
        unit: Vectors = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return unit

    def token_vectors(self, text: str) -> Vectors:
        """(tokens, dim) float32 of the first 256 tokens, [CLS] and [SEP] included; not normalised."""
        return self.run(text)[2]

    def run(self, text: str) -> tuple[str, Any, Vectors]:
        """(the text as the model read it, its encoding (of `tokenizers`), its token vectors)"""
        read = compiled.clean(text)
        encoding = self.tokenizer.encode(read)
        ids = np.array([encoding.ids], np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden: Vectors = self.session.run(None, {name: feed[name] for name in self.inputs})[0][0]
        return read, encoding, hidden


def open_compiled(folder: Path, threads: int) -> Compiled:
    """Load a folder that `export` wrote. Raises FileNotFoundError (nothing there) or DamagedCache."""
    manifest = compiled.read_manifest(folder, Manifest)
    session, tokenizer, inputs = compiled.open_session(folder, threads)
    tokenizer.enable_truncation(manifest.max_tokens)
    return Compiled(manifest, session, tokenizer, inputs)
