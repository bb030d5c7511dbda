"""Lantern's adapter for a published embedder: low-rank matrices that are added to its weights.

    adapter = adapter_of("sentence-transformers/all-MiniLM-L6-v2")     # None: nothing was learned on top of that model
    adapter.merge(state)                                               # state: weight -> array, changed in place

A sentence embedder was made for texts that say the same. Here a question looks for the message that answers it, which
says it in the first person, in other words and beside other things, and words are compared with words. Low-rank
adaptation (LoRA, Hu et al. 2022) teaches it that in 0.6 MB, and the model runs as fast as before, since the matrices
are merged before it is compiled. scripts/embed_adapter.py made the one that is shipped.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO

import numpy as np
import numpy.typing as npt

from lantern_proxy.compiled import MINILM_NAMES

Matrix = npt.NDArray[np.float32]

_FILE = "adapter_minilm_l6.npz"
ADAPTED = "adapted-3"
"""Other matrices mean other vectors: caches are keyed by it and archives record it."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Name of a weight -> the two factors of what is added to it: (out, rank) and (rank, in)."""

    factors: dict[str, tuple[Matrix, Matrix]]

    def merge(self, state: MutableMapping[str, Matrix]) -> None:
        """Add to the weights of `state`, in place. KeyError or ValueError when it is not the model they belong to."""
        for name, (outer, inner) in self.factors.items():
            state[name] += outer @ inner


def has_adapter(model: str) -> bool:
    return model in MINILM_NAMES


def adapter_of(model: str) -> Adapter | None:
    """The one that comes with Lantern; None: there is none for this model."""
    if not has_adapter(model):
        return None
    with np.load(BytesIO((files("lantern_proxy") / "data" / _FILE).read_bytes())) as data:
        names = sorted({key.rpartition("/")[0] for key in data.files})
        halves = {name: (data[f"{name}/outer"], data[f"{name}/inner"]) for name in names}
    return Adapter({name: (a.astype(np.float32), b.astype(np.float32)) for name, (a, b) in halves.items()})
