"""Make lantern_proxy/data/late_words_minilm_l6.npz: python scripts/late_words.py (a minute; needs the extra dense).

What the compiled model gives for each piece of the table of like words (scripts/alike_table.py) by itself, in the space
of the token vectors of passages. It comes from the model alone.
"""

import argparse
from pathlib import Path

import numpy as np

from lantern_proxy.compiled import MINILM
from lantern_proxy.config import default_cache_dir
from lantern_proxy.embed import Embedder, folder_of
from lantern_proxy.embed_model import open_compiled, projection_of
from lantern_proxy.signals.late import pack

DATA = Path(__file__).parent.parent / "lantern_proxy" / "data"


def main(cache_dir: Path) -> None:
    with Embedder(MINILM, cache_dir) as embedder:
        embedder.start()
        embedder.wait()
    compiled, projection = open_compiled(folder_of(MINILM, cache_dir), 1), projection_of(MINILM)
    assert projection is not None
    with np.load(DATA / "alike_minilm_l6.npz") as table:
        pieces = table["pieces"].tobytes().decode().split("\n")
    number = compiled.tokenizer.token_to_id
    outputs = np.empty((len(pieces), compiled.manifest.dim), np.float32)
    for row, piece in enumerate(pieces):
        ids = np.array([[number("[CLS]"), number(piece), number("[SEP]")]], np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        outputs[row] = compiled.session.run(None, {name: feed[name] for name in compiled.inputs})[0][0][1]
    small = outputs @ projection.matrix
    np.savez(DATA / "late_words_minilm_l6.npz", vectors=pack(small / np.linalg.norm(small, axis=1, keepdims=True)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache_dir", nargs="?", type=Path, default=default_cache_dir())
    main(**vars(parser.parse_args()))
