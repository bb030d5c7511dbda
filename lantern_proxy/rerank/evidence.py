"""The evidence reranker of ConvMemory v2 (arXiv 2606.10842): a cross-encoder reorders the top ten.

    reranker = EvidenceReranker("models/evidence", cache_dir)     # a CrossEncoder: folder, or name on the hub
    reranker.start(); reranker.wait(60)
    scores = reranker.scores(question, max_pos, memories)
    order = reorder(order, scores)

Its contract, which the tests check:

- *the set is protected*: `reorder` permutes the first ten of a ranking and nothing else, so recall@10 does not change;
- *no shortcut*: a `Memory` has no field for gold labels, currency flags or another model's score. The model sees texts
  and times in a single form: QUERY_TIME and MEMORY_TIME, in turns. A model that `lantern train` made from a plain
  encoder (rerank/match.py) corrects the ranking: its logit is added to the score of the ranking;
- *off means off*: without a reranker no byte of a restore differs.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy import compiled
from lantern_proxy.compiled import ModelError, Served
from lantern_proxy.rerank.match import PRIOR, MatchModel, is_matching

Scores = npt.NDArray[np.float32]

PROTECTED = 10
"""How many of the best are reordered, and never dropped."""
RECIPE = "cross-int8-channel-2"
MAX_TOKENS = 256
"""Most tokens of a pair, including the question. A model trained on fewer says so (tokens_of)."""
TOKENS_KEY = "lantern_tokens"
"""The key for that in its config."""
_ON_HUB = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_AGREEMENT = 0.97
"""Least correlation of the compiled model's scores with the original's; otherwise the model is refused."""


class Memory(Struct, frozen=True):
    """What the reranker may know about a passage."""

    text: str
    position: float
    """In turns from the start of its session."""


def pairs(question: str, max_pos: float, memories: Sequence[Memory]) -> list[tuple[str, str]]:
    """(query, memory) texts as the cross-encoder reads them. max_pos: the newest turn at the time of the question"""
    query = f"QUERY_TIME: {max_pos:.0f}. {question}"
    return [(query, f"MEMORY_TIME: {memory.position:.0f}. {memory.text}") for memory in memories]


def reorder(order: Sequence[int], scores: Sequence[float]) -> list[int]:
    """`order` with its first PROTECTED memories sorted by `scores`, best first; ties keep their order.

    scores: one for each of these, in their order. The rest, and the set of the first, do not change.

    Raises ValueError if there is not exactly one score each, or if one is not a number.
    """
    head = list(order[:PROTECTED])
    if len(scores) != len(head) or not np.isfinite(scores).all():
        raise ValueError(f"{len(scores)} scores for {len(head)} memories, or one that is no number")
    ranked = sorted(range(len(head)), key=lambda i: -scores[i])
    return [head[i] for i in ranked] + list(order[PROTECTED:])


def corrections(first: Sequence[float], prior: float) -> Scores:
    """(n,) what the first stage's scores add to the logits of a model that was trained to correct them."""
    scores = np.asarray(first, np.float64)
    added: Scores = (prior * (scores - scores.max(initial=-np.inf))).astype(np.float32)
    return added


class Manifest(compiled.Manifest, frozen=True, kw_only=True):
    """Of a compiled cross-encoder."""

    prior: float = 0.0
    """Weight of the first stage's scores relative to the logits."""


class CompiledPairs(Struct, frozen=True):
    """A compiled cross-encoder in memory."""

    manifest: Manifest
    session: Any
    tokenizer: Any
    inputs: frozenset[str]

    def score(self, query: str, memory: str) -> float:
        """The model's logit for one pair. Pairs run one by one, so that no score depends on the batch."""
        encoded = self.tokenizer.encode(compiled.clean(query), compiled.clean(memory))
        feed = {
            "input_ids": np.array([encoded.ids], np.int64),
            "attention_mask": np.array([encoded.attention_mask], np.int64),
            "token_type_ids": np.array([encoded.type_ids], np.int64),
        }
        return float(self.session.run(None, {name: feed[name] for name in self.inputs})[0][0, 0])


class EvidenceReranker(Served["CompiledPairs"]):
    """Serves one cross-encoder; compiles it first if it is not cached. Close it. Thread-safe."""

    def __init__(self, model: str, cache_dir: Path | str, threads: int = 1) -> None:
        """model: a folder that `lantern train evidence-reranker` wrote, or a CrossEncoder's name on the hub."""
        model, folder = os.path.expanduser(model), Path(cache_dir).expanduser()
        command = ("-m", "lantern_proxy.rerank.evidence", "export", model, str(folder))
        super().__init__(model, folder_of(model, folder), command, partial(open_compiled, threads=threads))

    def scores(self, question: str, max_pos: float, memories: Sequence[Memory], first: Sequence[float] = ()) -> Scores:
        """(n,) float32, larger is better evidence. Raises ModelError while it is not ready.

        first: scores of the first stage; a model that was trained to correct them adds its logits to them
        """
        model = self.value
        if model is None:
            raise ModelError(f"no reranking, the evidence reranker is {self.state}: {self.detail}")
        logits = np.array([model.score(*pair) for pair in pairs(question, max_pos, memories)], np.float32)
        return logits + corrections(first, model.manifest.prior) if len(first) else logits


def tokens_of(model: str) -> int:
    """Most tokens of a pair that `model` reads."""
    config = Path(model) / "config.json"
    most = json.loads(config.read_text("utf-8")).get(TOKENS_KEY, MAX_TOKENS) if config.is_file() else MAX_TOKENS
    return min(int(most), MAX_TOKENS)


def folder_of(model: str, cache_dir: Path) -> Path:
    """The folder of the compiled `model`. A local model is identified by its weights, too, since it may be
    retrained."""
    weights = Path(model) / "model.safetensors"
    stamp = "-" + _content_hash(weights) if weights.is_file() else ""
    return compiled.folder_of(model, RECIPE + stamp, cache_dir)


def _content_hash(file: Path) -> str:
    """Hash of a folder's contents, read in pieces: 8 hex digits."""
    with file.open("rb") as opened:
        return file_digest(opened, lambda: blake2b(digest_size=4)).hexdigest()


def source_of(model: str, cache_dir: Path) -> str:
    """Where `model` comes from at the next start, in words; "" if it is not available anywhere. No network access."""
    model = os.path.expanduser(model)
    if folder_of(model, cache_dir).is_dir():
        return f"is compiled, in {cache_dir}"
    if Path(model).is_dir():
        return f"is compiled at the first start, into {cache_dir}"
    return "is no folder here, and is asked for on the hub at the first start" if _ON_HUB.fullmatch(model) else ""


def open_compiled(folder: Path, threads: int) -> CompiledPairs:
    """Load what `export` wrote. Raises FileNotFoundError (nothing there) or DamagedCache."""
    manifest = compiled.read_manifest(folder, Manifest)
    session, tokenizer, inputs = compiled.open_session(folder, threads)
    tokenizer.enable_truncation(manifest.max_tokens, strategy="longest_first")
    return CompiledPairs(manifest, session, tokenizer, inputs)


# --- the export: runs in its own process, which alone imports torch ---


def export(model: str, cache_dir: Path) -> Path:
    """Compile the cross-encoder `model` into `cache_dir`; returns its folder. Raises ModelError."""
    from lantern_proxy.compiled_export import load_original, quantise

    target = folder_of(model, cache_dir)
    with compiled.building(cache_dir, target, Manifest) as (scratch, built):
        matching = is_matching(model)
        longest = tokens_of(model)
        original = MatchModel(model, 0, longest) if matching else load_original(model, "rerank.evidence", _load)
        quantise(
            _export_match_model(original, scratch) if matching else _export_cross_encoder(original, model, scratch),
            built,
        )
        original.tokenizer.backend_tokenizer.save(str(built / "tokenizer.json"))
        longest = min(original.max_length or MAX_TOKENS, longest)
        prior = PRIOR if matching else 0.0
        compiled.write_manifest(built, Manifest, model=model, recipe=RECIPE, max_tokens=longest, prior=prior)
        _check_agreement(original, model, built)
    return target


def _export_match_model(original: MatchModel, scratch: Path) -> Path:
    original.export(scratch / "float.onnx")
    return scratch / "float.onnx"


def _export_cross_encoder(original: Any, model: str, scratch: Path) -> Path:
    if original.num_labels != 1:
        raise ModelError(f"rerank.evidence {model} gives {original.num_labels} scores a pair; use one that gives 1")
    original.model.save_pretrained(str(scratch / "float"))
    (exported,) = (scratch / "float").rglob("*.onnx")
    return exported


def _load(source: str, local: bool) -> Any:
    """The float model as a CrossEncoder over ONNX."""
    from sentence_transformers import CrossEncoder

    from lantern_proxy.compiled_export import AS_ONNX

    return CrossEncoder(source, local_files_only=local, max_length=MAX_TOKENS, **AS_ONNX)


def _check_agreement(original: Any, model: str, built: Path) -> None:
    """Refuse a model whose int8 scores order pairs differently from its own."""
    import torch

    questions = [
        "which port does the staging database listen on?",
        "when did we move the nightly job?",
        "who painted the lake?",
    ]
    texts = [
        "We moved the nightly job to 03:40 because the backup of orders-eu was still running.",
        "The staging database listens on 5433 now.",
        "Melanie painted a sunrise over the lake last year and gave it to her sister.",
        "You're welcome!",
    ]
    question_pairs = [pair for q in questions for pair in pairs(q, 40, [Memory(t, i) for i, t in enumerate(texts)])]
    served = open_compiled(built, 1)
    if isinstance(original, MatchModel):
        original_scores = np.array(original.predict(question_pairs))
    else:
        original_scores = original.predict(question_pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    compiled_scores = np.array([served.score(*pair) for pair in question_pairs])
    agreement = float(np.corrcoef(original_scores, compiled_scores)[0, 1])
    if not agreement >= _AGREEMENT:
        raise ModelError(f"rerank.evidence {model} loses too much as int8 (correlation {agreement:.3f}); use another")


def main(arguments: Sequence[str]) -> int:
    """`python -m lantern_proxy.rerank.evidence export MODEL CACHE_DIR`."""
    from lantern_proxy.compiled_export import run_export

    return run_export("lantern_proxy.rerank.evidence", arguments, export)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
