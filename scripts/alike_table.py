"""Make lantern_proxy/data/alike_minilm_l6.npz: python scripts/alike_table.py MODEL (a minute; needs the extra dense).

What the model gives for each piece of its vocabulary by itself, less the mean of all words, in their principal
subspace. It comes from the model alone. MODEL: a folder or the name of all-MiniLM-L6-v2 (Apache 2.0), uncompiled.
"""

import argparse
from pathlib import Path

import numpy as np

from lantern_proxy.analyze import STOP_WORDS
from lantern_proxy.signals.word_similarity import DIM, SCALE

TARGET = Path(__file__).parent.parent / "lantern_proxy" / "data" / "alike_minilm_l6.npz"
AT_ONCE = 512


def outputs(model: str) -> tuple[list[str], np.ndarray]:
    """The vocabulary, and (pieces, dim of the model) what each is by itself, of length 1."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, transformer = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    parts = []
    with torch.no_grad():
        for start in range(0, len(vocabulary), AT_ONCE):
            ids = torch.tensor([[first, n, last] for n in range(start, min(start + AT_ONCE, len(vocabulary)))])
            hidden = transformer(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            parts.append(hidden[:, 1].numpy())
    found = np.concatenate(parts)
    return vocabulary, found / np.linalg.norm(found, axis=1, keepdims=True)


def main(model: str) -> None:
    vocabulary, units = outputs(model)
    words = [n for n, piece in enumerate(vocabulary) if piece.isascii() and piece.isalpha() and len(piece) > 1]
    units -= units[words].mean(axis=0)
    small = units @ np.linalg.svd(units[words], full_matrices=False)[2][:DIM].T
    small /= np.linalg.norm(small, axis=1, keepdims=True)
    kept = [n for n, piece in enumerate(vocabulary) if _counts(piece)]
    np.savez(
        TARGET,
        pieces=np.frombuffer("\n".join(vocabulary[n] for n in kept).encode(), np.uint8),
        vectors=np.clip(np.rint(small[kept] * SCALE), -127, 127).astype(np.int8),
    )


def _counts(piece: str) -> bool:
    """ASCII, with a letter or digit: neither punctuation nor [SEP]; and no stop word."""
    return piece.isascii() and piece.removeprefix("##").isalnum() and piece not in STOP_WORDS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="sentence-transformers/all-MiniLM-L6-v2")
    main(**vars(parser.parse_args()))
