"""The light learned reranker over cheap features: boosted trees (native/trees.c or numpy) and small networks.

    model = load(path, known)           a file of `lantern train reranker`
    model.scores(table)                 (n,) larger is better

The file contains the trees and the networks as flat arrays, the names of the features in their order, and its version.
Training data stays with the user. Two models are shipped (restore/light.py).
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.rerank import network as rerank_network
from lantern_proxy.rerank.network import Floats, Network, Table

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError:
    BUILT = False
else:
    BUILT = hasattr(lib, "trees_flatten")  # an older build lacks it
    _INTS, _FLOATS, _DOUBLES = map(ffi.typeof, ("int32_t[]", "float[]", "double[]"))

Ints = npt.NDArray[np.int32]

VERSION = 6
"""Of the file format and of the features' meaning; other versions are refused."""


_TREE_ARRAYS = {
    "roots": np.int32, "column": np.int32, "left": np.int32, "right": np.int32,
    "threshold": np.float64, "value": np.float64,
}  # fmt: skip
_SEEDS = (1, 2, 3)
"""Of three forests, averaged."""
_NETWORK_ARRAYS = ("mean", "spread", "inner", "bias", "outer", "direct")
UNTRAINED_FEATURE = "fused"
"""The feature with the untrained order, which counts as it is."""
SHIPPED_FEATURE = "shipped"
"""The feature with the shipped model's score (restore/light.py), learned from other data. Networks start from it if it
is available."""


class LightError(ValueError):
    """A model file that cannot be used. Says why, and what to do."""


class Trees(Struct, frozen=True, dict=True):
    """Binary trees as flat arrays of nodes. A leaf points at itself."""

    features: tuple[str, ...]
    """Names of the columns that the trees use."""
    roots: Ints
    column: Ints
    threshold: Floats
    """A row goes left if its value is at most this."""
    left: Ints
    right: Ints
    value: Floats
    """The score that a leaf adds."""
    depth: int
    """Steps from a root to the deepest leaf."""

    def scores(self, table: Table) -> Floats:
        """(n,) sum over trees, first tree first. table: (n, features), no NaN"""
        if not BUILT:
            return self.scores_in_numpy(table)
        trees, flat, _ = self._native
        cells = np.ascontiguousarray(table.T, np.float32)
        total = np.empty(len(table))
        lib.trees_scores(trees, flat, len(table), ffi.from_buffer(_FLOATS, cells), ffi.from_buffer(_DOUBLES, total))
        return total

    @cached_property
    def _native(self) -> tuple[Any, Any, Any]:
        """The trees as C structures, and the memory that these refer to; made on first use, after the file was
        checked."""
        root, column, left, right = (
            ffi.from_buffer(_INTS, part) for part in (self.roots, self.column, self.left, self.right)
        )
        threshold, value = ffi.from_buffer(_DOUBLES, self.threshold), ffi.from_buffer(_DOUBLES, self.value)
        trees = ffi.new("trees *", (len(self.roots), root, column, threshold, left, right, value, self.depth))
        flat = ffi.new("flat_tree[]", len(self.roots))
        lib.trees_flatten(trees, flat)
        return trees, flat, (root, column, left, right, threshold, value)

    def scores_in_numpy(self, table: Table) -> Floats:
        """As `scores`, bit for bit."""
        cells, first = np.ascontiguousarray(table).ravel(), (np.arange(len(table)) * table.shape[1])[:, None]
        column = self.column.astype(np.intp)
        below = np.stack([self.left, self.right], axis=1).astype(np.intp).ravel()
        at = np.broadcast_to(self.roots.astype(np.intp), (len(table), len(self.roots)))
        for _ in range(self.depth):  # flat `take` with native indices costs a third of fancy indexing
            right = cells.take(first + column.take(at)) > self.threshold.take(at)
            at = below.take(2 * at + right)
        total = np.zeros(len(table))
        for added in self.value.take(at).T:  # not `sum`, which adds in a different order
            total += added
        return total


class Model(Struct, frozen=True):
    """Trees and networks over the same features."""

    trees: Trees
    network: Network
    embedder: str = ""
    """The embedder behind its training data, by `embed.name_of`; empty if none or unknown."""

    @property
    def features(self) -> tuple[str, ...]:
        return self.trees.features

    def scores(self, table: Table) -> Floats:
        """(n,) comparable within a question. table: (n, features), no NaN

        Trees and networks give logits for the same labels, so they are simply added.
        """
        return self.trees.scores(table) + self.network.scores(table)


def save(model: Model, path: Path, training: dict[str, Any]) -> None:
    """Write `model` with a description of its training (JSON)."""
    meta = {"version": VERSION, "features": list(model.features), "depth": model.trees.depth, "trained": training}
    meta |= {"embedder": model.embedder}
    arrays = {name: getattr(model.trees, name) for name in _TREE_ARRAYS}
    arrays |= {name: getattr(model.network, name) for name in _NETWORK_ARRAYS}
    with path.open("wb") as file:
        np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)


def load(path: Path, known: Sequence[str]) -> Model:
    """The model of a file. known: the available features; LightError if the model needs others."""
    try:
        with np.load(path, allow_pickle=False) as data:
            meta = json.loads(str(data["meta"]))
            if meta["version"] != VERSION:
                raise LightError(f"{path}: is of version {meta['version']}, not {VERSION}; train it again")
            arrays: dict[str, Any] = {
                name: np.ascontiguousarray(data[name], kind) for name, kind in _TREE_ARRAYS.items()
            }
            features = tuple(map(str, meta["features"]))
            trees = Trees(features=features, depth=int(meta["depth"]), **arrays)
            network = Network(*(np.ascontiguousarray(data[name], np.float32) for name in _NETWORK_ARRAYS))
            model = Model(trees, network, str(meta.get("embedder", "")))
    except LightError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LightError(f"{path}: {reason}; name a file that `lantern train reranker` wrote, or `shipped`") from None
    except Exception as error:  # zipfile, zlib and numpy raise a dozen types for damaged files
        raise LightError(f"{path}: is no model of `lantern train reranker` ({error}); train one") from None
    _check(model, path, known)
    return model


def _check(read: Model, path: Path, known: Sequence[str]) -> None:
    model, network = read.trees, read.network
    unknown = sorted(set(model.features) - set(known))
    if unknown:
        raise LightError(f"{path}: wants feature {unknown[0]}, which this version does not make; train it again")
    parts = [getattr(network, name) for name in _NETWORK_ARRAYS]
    fits = _fits_together(network, len(model.features))
    if not fits or not all(np.isfinite(part).all() for part in parts) or not network.spread.all():
        raise LightError(f"{path}: its weights are damaged; train it again")
    nodes = len(model.column)
    same_length = all(
        part.shape == (nodes,) for part in (model.column, model.threshold, model.left, model.right, model.value)
    )
    pointers = np.concatenate([part.ravel() for part in (model.roots, model.left, model.right)])
    if not same_length or not 0 <= model.depth < nodes or pointers.min() < 0 or pointers.max() >= nodes:
        raise LightError(f"{path}: its trees are damaged; train it again")
    if model.column.min() < 0 or model.column.max() >= len(model.features):
        raise LightError(f"{path}: its trees look at features that it does not name; train it again")


def _fits_together(network: Network, features: int) -> bool:
    units = network.bias.shape
    same_features = all(part.shape == (features,) for part in (network.mean, network.spread, network.direct))
    return (
        same_features and len(units) == 1 and network.inner.shape == (features, *units) and network.outer.shape == units
    )


def train(
    features: Sequence[str], table: Table, gold: npt.NDArray[np.bool_], groups: Sequence[int], *, rounds: int = 150
) -> Model:
    """Train on the candidates of each question, listwise (LambdaMART, Burges 2010; and networks). Needs lightgbm.

    table: (n, features); gold: (n,) is it evidence?; groups: number of candidates of each question, n in total
    """
    try:
        import lightgbm
    except ImportError:
        raise LightError('lightgbm is not installed; pip install "lantern-proxy[train]"') from None
    parameters = {
        "objective": "lambdarank", "learning_rate": 0.08, "num_leaves": 15, "min_data_in_leaf": 40, "lambda_l2": 5.0,
        "feature_fraction": 0.4, "bagging_fraction": 0.7, "bagging_freq": 1, "max_bin": 63, "label_gain": [0, 1],
        "lambdarank_truncation_level": 15, "use_missing": False, "deterministic": True, "num_threads": 1, "verbose": -1,
    }  # fmt: skip
    data = lightgbm.Dataset(
        _without_shipped(features, table), gold.astype(np.float32), group=list(groups), free_raw_data=False
    )
    forests = [lightgbm.train(parameters | {"seed": seed}, data, rounds).dump_model() for seed in _SEEDS]
    roots = [tree["tree_structure"] for model in forests for tree in model["tree_info"]]
    first = SHIPPED_FEATURE if SHIPPED_FEATURE in features else UNTRAINED_FEATURE
    linear_start = [float(name == first) for name in features]
    return Model(
        _flattened_trees(features, roots, 1 / len(_SEEDS)), rerank_network.fit(table, gold, groups, linear_start)
    )


def _without_shipped(features: Sequence[str], table: Table) -> Table:
    """`table` with SHIPPED_FEATURE constant: the errors of trees are independent if they do not see it."""
    return np.where(np.array([name == SHIPPED_FEATURE for name in features]), np.float32(0), table)


def _flattened_trees(features: Sequence[str], roots: Sequence[dict[str, Any]], share: float) -> Trees:
    """LightGBM's nested trees as arrays."""
    column: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    right: list[int] = []
    value: list[float] = []

    def add(node: dict[str, Any]) -> tuple[int, int]:
        """(number, height) of the node."""
        number = len(column)
        leaf = "leaf_value" in node
        column.append(0 if leaf else int(node["split_feature"]))
        threshold.append(0.0 if leaf else float(node["threshold"]))
        value.append(share * float(node["leaf_value"]) if leaf else 0.0)
        left.append(number)
        right.append(number)
        if leaf:
            return number, 0
        (left[number], left_height), (right[number], right_height) = add(node["left_child"]), add(node["right_child"])
        return number, 1 + max(left_height, right_height)

    roots_and_heights = [add(root) for root in roots]
    numbers = [np.array(part, np.int32) for part in ([top for top, _ in roots_and_heights], column, left, right)]
    return Trees(
        tuple(features), numbers[0], numbers[1], np.array(threshold), numbers[2], numbers[3], np.array(value),
        max((height for _, height in roots_and_heights), default=0),
    )  # fmt: skip
