"""Lantern's adapter for a published embedder: low-rank matrices that are added to its weights.

    adapter = adapter_of("sentence-transformers/all-MiniLM-L6-v2")     # None: there is none for that model
    adapter.merge(state)                                               # state: weight -> array, changed in place

A sentence embedder is trained on texts with the same meaning. Here a question looks for the message that answers it,
which says it in the first person, in other words and beside other things, and words are compared with words. Low-rank
adaptation (LoRA, Hu et al. 2022) trains the model for that with 0.6 MB, and it runs as fast as before, since the
matrices are merged before it is compiled. scripts/embed_adapter.py made the one that is shipped.
"""

from collections.abc import MutableMapping
from importlib.resources import files
from io import BytesIO

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.compiled import MINILM_NAMES

Matrix = npt.NDArray[np.float32]

_FILE = "adapter_minilm_l6.npz"
ADAPTED = "adapted-4"
"""Other matrices give other vectors: this is part of the cache's key and stored in archives."""


class Adapter(Struct, frozen=True):
    """Name of a weight -> the two factors of the matrix added to it: (out, rank) and (rank, in)."""

    factors: dict[str, tuple[Matrix, Matrix]]

    def merge(self, state: MutableMapping[str, Matrix]) -> None:
        """Add to the weights of `state`, in place. KeyError or ValueError if it is not of the adapter's model."""
        for name, (outer, inner) in self.factors.items():
            state[name] += outer @ inner


def has_adapter(model: str) -> bool:
    return model in MINILM_NAMES


def adapter_of(model: str) -> Adapter | None:
    """The adapter that comes with Lantern; None if there is none for this model."""
    if not has_adapter(model):
        return None
    with np.load(BytesIO((files("lantern_proxy") / "data" / _FILE).read_bytes())) as data:
        names = sorted({key.rpartition("/")[0] for key in data.files})
        halves = {name: (data[f"{name}/outer"], data[f"{name}/inner"]) for name in names}
    return Adapter({name: (a.astype(np.float32), b.astype(np.float32)) for name, (a, b) in halves.items()})
