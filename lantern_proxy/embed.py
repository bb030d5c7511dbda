"""Text -> vectors, with a sentence-transformers model compiled once to ONNX int8.

    embedder = Embedder("sentence-transformers/all-MiniLM-L6-v2", cache_dir)
    embedder.start()                        # returns at once; "warming" until the compiled model is ready
    embedder.wait(60)
    embedder.embed(["what was the port?"])  # float32 (1, 384), length 1

Two processes, so that torch's memory never enters the proxy:

    python -m lantern_proxy.embed export MODEL CACHE_DIR    sentence-transformers -> ONNX -> int8 per channel, once
    Embedder                                                onnxruntime and tokenizers only, imported in its thread

Each text is run alone: activations are quantised over the whole batch, so in one a vector would depend on its
neighbours, and on one thread a batch is slower, too (32 ms per passage of 250 tokens against 24).
"""

import sys
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lantern_proxy import compiled
from lantern_proxy.compiled import ModelError, Served, available
from lantern_proxy.embed_adapter import ADAPTED, adapter_of, has_adapter

if TYPE_CHECKING:
    from lantern_proxy.embed_model import Compiled, Projection, Vectors
    from lantern_proxy.signals.late import QuestionTokens, Tokens

__all__ = ["Embedder", "ModelError", "available", "export", "folder_of"]

RECIPE = "int8-channel-1"
"""How models are compiled. Another recipe gives other vectors: it is part of the cache's key and stored in archives."""
MAX_TOKENS = 256
_AGREEMENT = 0.97
"""Least median cosine between the compiled model and its original; below it the model is refused."""


def recipe_of(model: str, *, adapted: bool) -> str:
    """How vectors of `model` are made. adapted: with Lantern's adapter, if there is one for it"""
    return f"{RECIPE}-{ADAPTED}" if adapted and has_adapter(model) else RECIPE


def name_of(model: str, *, adapted: bool = False) -> str:
    """A name to store with vectors and what was trained on them: those of another model or recipe are incomparable."""
    return f"{model}@{recipe_of(model, adapted=adapted)}"


def folder_of(model: str, cache_dir: Path, *, adapted: bool = False) -> Path:
    """The folder of the compiled `model`."""
    return compiled.folder_of(model, recipe_of(model, adapted=adapted), cache_dir)


class Embedder(Served["Compiled"]):
    """Serves one model, and compiles it first if the cache lacks it. Owns a thread and maybe a process, so it must be
    closed.

    Thread-safe. No lock is held while a model runs: a question does not wait for passages that are being embedded.
    """

    def __init__(
        self, model: str, cache_dir: Path | str, threads: int = 1, *, late_interaction: bool = True,
        adapted: bool = False,
    ) -> None:  # fmt: skip
        """model: a sentence-transformers name or folder. threads: most threads for one text.

        late_interaction: also make token vectors, if there is a projection for the model
        adapted:          with Lantern's adapter, if there is one for the model
        """
        self.model = model
        self.adapted = adapted and has_adapter(model)
        self.name = name_of(model, adapted=adapted)
        self._late_wanted = late_interaction
        folder = Path(cache_dir).expanduser()
        command = ("-m", "lantern_proxy.embed", "export", model, str(folder), *((_ADAPTED,) if adapted else ()))
        built = folder_of(model, folder, adapted=adapted)
        super().__init__(model, built, command, partial(_open, threads=threads))

    @classmethod
    def of(cls, settings: Any) -> Self:
        """An embedder by the `embed:` section of a config."""
        return cls(
            settings.model, settings.cache_dir, settings.threads, late_interaction=settings.late_interaction,
            adapted=settings.adapted,
        )  # fmt: skip

    @cached_property
    def late(self) -> "Projection | None":
        """The projection that makes token vectors of this model's output; None if none are made."""
        from lantern_proxy.embed_model import projection_of

        return projection_of(self.model) if self._late_wanted else None

    @property
    def recipe(self) -> str:
        """The recipe of token vectors, as `name` is of vectors; "" if none are made."""
        from lantern_proxy.embed_model import LATE

        return f"{self.name}/{LATE}" if self.late else ""

    @property
    def dim(self) -> int:
        """Numbers per vector; 0 until the embedder is ready."""
        model = self.value
        return model.manifest.dim if model else 0

    def embed(self, texts: Sequence[str]) -> "Vectors":
        """(n, dim) float32, each row of length 1. Only the first 256 tokens of a text count.

        Raises ModelError while the embedder is not ready.
        """
        return self._ready().vectors(texts)

    def embed_passages(self, texts: Sequence[str]) -> "tuple[Vectors, list[Tokens]]":
        """The vectors of embed(), and from the same run each text's token vectors; no tokens without a projection."""
        return self._ready().passages(texts, self.late)

    def embed_question(self, text: str) -> "tuple[Vectors, QuestionTokens | None]":
        """(dim,) float32 of length 1, and the question word by word; None without a projection."""
        model = self._ready()
        clean, encoding, hidden = model.run(text)
        return model.pooled(hidden), self.late.question(clean, encoding, hidden) if self.late else None

    def _ready(self) -> "Compiled":
        model = self.value
        if model is None:
            raise ModelError(f"no vectors, embedder is {self.state}: {self.detail}")
        return model


def _open(folder: Path, threads: int) -> "Compiled":
    from lantern_proxy.embed_model import open_compiled

    return open_compiled(folder, threads)


# --- the export: runs in a separate process, the only one that imports torch ---


def export(model: str, cache_dir: Path, *, adapted: bool = False) -> Path:
    """Compile `model` into `cache_dir` and return its folder, which appears complete or not at all.

    Needs ~1 GB of memory and 10-30 s of one core. Raises ModelError.
    """
    from lantern_proxy.compiled_export import load_original, quantise
    from lantern_proxy.embed_model import Manifest

    target = folder_of(model, cache_dir, adapted=adapted)
    with compiled.building(cache_dir, target, Manifest) as (scratch, built):
        load = partial(_load_adapted, model, scratch / "adapted") if adapted and has_adapter(model) else _load
        original = load_original(model, "embed.model", load)
        original.transformers_model.save_pretrained(str(scratch / "float"))
        (exported,) = (scratch / "float").rglob("*.onnx")
        quantise(exported, built)
        original.tokenizer.backend_tokenizer.save(str(built / "tokenizer.json"))
        _describe(original, model, recipe_of(model, adapted=adapted), built)
        _check_agreement(original, model, built)
    return target


def _load(source: str, local: bool) -> Any:
    """The float model as a SentenceTransformer over ONNX."""
    from sentence_transformers import SentenceTransformer

    from lantern_proxy.compiled_export import AS_ONNX

    return SentenceTransformer(source, local_files_only=local, **AS_ONNX)


def _load_adapted(model: str, folder: Path, source: str, local: bool) -> Any:
    """The same with Lantern's adapter. folder: for the merged weights, until they are compiled"""
    adapt(model, source, folder, local=local)
    return _load(str(folder), True)


def adapt(model: str, source: str, folder: Path, *, local: bool) -> None:
    """Write `model`, loaded from `source`, into `folder` as a SentenceTransformer with its adapted weights."""
    from sentence_transformers import SentenceTransformer

    adapter = adapter_of(model)
    assert adapter is not None
    original = SentenceTransformer(source, device="cpu", local_files_only=local)
    weights = original[0].auto_model.state_dict()
    adapter.merge({name: weight.numpy() for name, weight in weights.items()})  # in place: the memory is shared
    original.save(str(folder), create_model_card=False)


def _describe(original: Any, model: str, recipe: str, built: Path) -> None:
    from lantern_proxy.embed_model import Manifest

    pooling = next((getattr(module, "pooling_mode", "") for module in original if hasattr(module, "pooling_mode")), "")
    if pooling not in ("mean", "cls"):
        raise ModelError(f"embed.model {model} pools by {pooling or 'nothing'!r}; use one that pools by mean or cls")
    compiled.write_manifest(
        built,
        Manifest,
        model=model,
        recipe=recipe,
        dim=int(original.encode(["a"]).shape[1]),
        pooling=pooling,
        max_tokens=min(original.max_seq_length or MAX_TOKENS, MAX_TOKENS),
    )


def _check_agreement(original: Any, model: str, built: Path) -> None:
    """Refuse a model that this recipe does not fit (additional layers, a prompt of its own, too little precision)."""
    import numpy as np

    texts = [
        "which port does the staging database listen on?",
        "We moved the nightly job to 03:40 because the backup of orders-eu was still running.",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str' in src/billing/invoice.py, line 88",
        "Melanie painted a sunrise over the lake last year and gave it to her sister.",
        "def decay(confidence, age_s, half_life_s):\n    return confidence * 2 ** (-age_s / half_life_s)",
    ]
    served = _open(built, 1)
    wanted = original.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    found = np.stack([served.vector(text) for text in texts])
    cosine = float(np.median((wanted * found).sum(axis=1)))
    if not cosine >= _AGREEMENT:
        raise ModelError(
            f"embed.model {model} loses too much as int8 (cosine {cosine:.3f}); use another, like the default"
        )


_ADAPTED = "adapted"
"""Last argument of the export: with Lantern's adapter."""


def main(arguments: Sequence[str]) -> int:
    """`python -m lantern_proxy.embed export MODEL CACHE_DIR [adapted]`; can also fill a cache in advance."""
    from lantern_proxy.compiled_export import run_export

    adapted = arguments[3:] == [_ADAPTED]
    return run_export("lantern_proxy.embed", arguments[:3] if adapted else arguments, partial(export, adapted=adapted))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
