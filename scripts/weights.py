"""Do the weights of the default hold on conversations that they were not chosen on? python scripts/weights.py DATA ...

Each weight by itself times 0, 0.5, 0.75, 1.33 and 2; DATA: what `lantern train reranker --data` reads. For each
conversation the best of these is picked on the others and measured on it; and the best on all of one DATA on the
others. Told is (reciprocal rank + recall@10) / 2, counted by passages.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.cli.train import read
from lantern_proxy.config import Config
from lantern_proxy.restore.signals import WEIGHTS
from lantern_proxy.tune import Labelled, Sheet

TIMES = (0.0, 0.5, 0.75, 1.33, 2.0)


def choices() -> dict[str, Mapping[str, float]]:
    """What is compared: the default first."""
    found: dict[str, Mapping[str, float]] = {"default": WEIGHTS}
    return found | {f"{name} x {by}": {**WEIGHTS, name: by * WEIGHTS[name]} for name in WEIGHTS for by in TIMES}


def qualities(labelled: Sequence[Labelled]) -> np.ndarray:
    """(choices, questions)"""
    sheet = Sheet(labelled, list(WEIGHTS), "zscore", Config().restore.rrf_k)
    return np.stack([sheet.quality(weights) for weights in choices().values()])


def main(paths: Sequence[Path]) -> None:
    names = list(choices())
    with Resources(Config()) as resources:
        asked = {path: Default(resources).labelled(read(path)) for path in paths}
    table = {path: qualities(labelled) for path, labelled in asked.items()}
    for path, found in table.items():
        groups = np.array([each.group for each in asked[path]])
        picked = found[0].copy()
        for group in np.unique(groups):
            best = int(found[:, groups != group].mean(axis=1).argmax())
            picked[groups == group] = found[best, groups == group]
        print(f"{path.name}: default {found[0].mean():.4f}, picked on the other conversations {picked.mean():.4f}")
        best = int(found.mean(axis=1).argmax())
        for other in (each for each in table if each != path):
            there = table[other]
            print(f"    best here, {names[best]}: on {other.name} {there[best].mean():.4f} for {there[0].mean():.4f}")
        print(f"    worst and best: {found.mean(axis=1).min():.4f} .. {found.mean(axis=1).max():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA")
    main(parser.parse_args().data)
