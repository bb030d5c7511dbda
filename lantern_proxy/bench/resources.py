"""What pipelines need besides the conversation: vectors, computed once and cached between runs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lantern_proxy.compiled import ModelError
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder, available
from lantern_proxy.embed_adapter import has_adapter
from lantern_proxy.signals.late import DIM, Tokens

Vectors = npt.NDArray[np.float32]
Kept = TypeVar("Kept", bound=npt.NDArray[Any])


class Resources:
    """The embedder and a folder of vectors. Owns the embedder: close it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._embedder: Embedder | None = None
        self._folder = config.embed.cache_dir / "bench"

    @cached_property
    def published(self) -> "Resources":
        """The same with the model as published, for measuring the methods of others."""
        return self._with(adapted=False)

    @cached_property
    def adapted(self) -> "Resources":
        """The same with Lantern's adaptation of the model; itself if there is none."""
        embed = self.config.embed
        there = embed.enabled != "off" and available() and has_adapter(embed.model)
        return self._with(adapted=True) if there else self

    def _with(self, *, adapted: bool) -> "Resources":
        embed = replace(self.config.embed, adapted=adapted)
        return self if embed == self.config.embed else Resources(replace(self.config, embed=embed))

    @property
    def embedder(self) -> Embedder:
        """Started on first use. ModelError if there is none."""
        if self._embedder is None:
            self._embedder = Embedder.of(self.config.embed)
            self._embedder.start()
        if not self._embedder.wait():
            raise ModelError(f"{self._embedder.detail}; pipelines fts5 and bm25 need no vectors")
        return self._embedder

    def vector(self, text: str) -> Vectors:
        """(dim,) of a question; never cached, since its time counts."""
        found: Vectors = self.embedder.embed([text])[0]
        return found

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """(n, dim), from the cache if these texts were embedded before."""
        return self.kept("vectors", texts, lambda: self.embedder.embed(texts))

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """Token vectors of each text, from the cache if these texts were embedded before."""
        rows = self.kept(self.embedder.recipe.rpartition("/")[2], texts, lambda: self._tokens(texts))
        ends = np.flatnonzero(~rows.any(axis=1))
        return [rows[start + 1 : end] for start, end in zip([-1, *ends], ends, strict=False)]

    def _tokens(self, texts: Sequence[str]) -> Tokens:
        """The token vectors of all texts; each text ends with a row of zeros."""
        parts = [
            part for made in self.embedder.embed_passages(texts)[1] for part in (made, np.zeros((1, DIM), np.int8))
        ]
        return np.concatenate([*parts, np.zeros((0, DIM), np.int8)])

    def kept(self, kind: str, texts: Sequence[str], make: Callable[[], Kept]) -> Kept:
        """The result of `make` for these texts, computed once. `kind` names it and its version."""
        digest = blake2b("\0".join([self.embedder.name, *texts]).encode("utf-8", "replace"), digest_size=12).hexdigest()
        file = self._folder / f"{kind}-{digest}.npy"
        if file.exists():
            found: Kept = np.load(file)
            return found
        made = make()
        _save(file, made)
        return made

    def close(self) -> None:
        if self._embedder is not None:
            self._embedder.close()
        for kept in ("published", "adapted"):
            if (other := self.__dict__.get(kept, self)) is not self:
                other.close()

    def __enter__(self) -> "Resources":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _save(file: Path, array: npt.NDArray[Any]) -> None:
    """Written completely or not at all: an interrupted run leaves no broken file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{time.monotonic_ns()}.npy")
    np.save(partial, array)
    partial.replace(file)
