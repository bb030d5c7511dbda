"""Make lantern_proxy/data/late_minilm_l6.npz: python scripts/late_projection.py (half a minute; needs the extra dense).

The projection comes from the model alone: principal axes of its outputs for random words of its own vocabulary.
"""

import argparse
from pathlib import Path

import numpy as np

from lantern_proxy.analyze import STOP_WORDS
from lantern_proxy.compiled import MINILM
from lantern_proxy.config import default_cache_dir
from lantern_proxy.embed import Embedder, folder_of
from lantern_proxy.embed_model import open_compiled
from lantern_proxy.signals.late import DIM

TARGET = Path(__file__).parent.parent / "lantern_proxy" / "data" / "late_minilm_l6.npz"
TEXTS, WORDS = 400, 24


def main(cache_dir: Path) -> None:
    with Embedder(MINILM, cache_dir) as embedder:
        embedder.start()
        embedder.wait()
    compiled = open_compiled(folder_of(MINILM, cache_dir), 1)
    vocabulary = compiled.tokenizer.get_vocab()
    words = sorted(w for w in vocabulary if w.isascii() and w.isalpha() and len(w) > 1)
    random = np.random.default_rng(7)
    outputs = [compiled.token_vectors(" ".join(random.choice(words, WORDS)))[1:-1] for _ in range(TEXTS)]
    units = np.concatenate(outputs)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    axes = np.linalg.svd(units, full_matrices=False)[2][:DIM]
    turn = np.linalg.qr(random.standard_normal((DIM, DIM)))[0]
    dropped = [i for word, i in vocabulary.items() if word in STOP_WORDS or not any(map(str.isalnum, word))]
    dropped += [i for word, i in vocabulary.items() if word.startswith("[") and word.endswith("]")]
    np.savez_compressed(
        TARGET, matrix=(axes.T @ turn).astype(np.float16), dropped=np.array(sorted(set(dropped)), np.uint16)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache_dir", nargs="?", type=Path, default=default_cache_dir())
    main(**vars(parser.parse_args()))
