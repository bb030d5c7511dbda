"""A scoring head that starts from what a bi-encoder knows: how similar the words of two texts are.

A cross-encoder whose head only sees the first token must learn from the labels what a match is, and a few thousand
pairs are too few. This head sees, from the same encoder over the joint text, the cosine of the means of both texts and
the mean over the question's words of the best cosine with a word of the memory (MaxSim), besides the first token, the
memory's mean and the product of the means. Its weights start at zero, and its output is added to the score of the first
stage, less the best one's, times PRIOR: before the first step the order is that of the first stage.

torch is imported inside functions: `lantern --help` answers at once.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PRIOR = 1.0
"""Weight of the first stage's z-scores relative to this head's logit."""
SIMILARITY_SCALE = 8.0
"""Factor of the two cosines, so that small weights on them have an effect."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_HEAD = "lantern_head"


def is_matching(model: str) -> bool:
    """Is `model` a folder with an encoder and this head?"""
    config = Path(model) / "config.json"
    return config.is_file() and _HEAD in json.loads(config.read_text("utf-8"))


class MatchModel:
    """Encoder, head and tokenizer, with the interface of CrossEncoder: `model(**features).logits` is (n, 1)."""

    def __init__(self, folder: str, layers: int, max_length: int) -> None:
        """folder: a BERT encoder, with this head or without, or its name on the hub

        layers: how many of the first layers to keep; 0: all
        """
        from transformers import AutoTokenizer

        tokenizers: Any = AutoTokenizer
        self.tokenizer = tokenizers.from_pretrained(folder)  # nosec B615
        self.model = _module(folder, layers)
        self.max_length = max_length

    def predict(self, text_pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Logits of pairs, computed one by one."""
        import torch

        with torch.no_grad():
            return [float(self.model(**features(self, [pair])).logits[0, 0]) for pair in text_pairs]

    def save_pretrained(self, folder: str) -> None:
        from safetensors.torch import save_file

        self.model.encoder.config.update({_HEAD: "match"})
        self.model.encoder.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        save_file(self.model.head.state_dict(), str(Path(folder) / "head.safetensors"))

    def export(self, path: Path) -> None:
        """Write it as ONNX."""
        import torch

        class Logits(torch.nn.Module):
            def __init__(self, module: Any) -> None:
                super().__init__()
                self.module = module

            def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
                return self.module(input_ids, attention_mask, token_type_ids).logits

        example = features(self, [("which port is it?", "the port is 9443")])
        torch.onnx.export(
            Logits(self.model).eval(),
            tuple(example[name] for name in INPUTS),
            str(path),
            input_names=list(INPUTS),
            output_names=["logits"],
            dynamic_axes={name: {0: "pairs", 1: "tokens"} for name in INPUTS},
            opset_version=17,
            dynamo=False,  # the other exporter needs another package
        )


def features(model: Any, text_pairs: Sequence[tuple[str, str]]) -> Any:
    """Pairs in the input format of `model`, a MatchModel or a CrossEncoder: padded to the longest."""
    questions, memories = [q for q, _ in text_pairs], [m for _, m in text_pairs]
    return model.tokenizer(
        questions, memories, padding=True, truncation="longest_first", max_length=model.max_length, return_tensors="pt"
    )


def _module(folder: str, layers: int) -> Any:
    """The encoder with the head on top, as a torch module: (input_ids, attention_mask, token_type_ids) -> .logits"""
    import torch
    from safetensors.torch import load_file

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = _encoder(folder, layers)
            self.config = self.encoder.config
            self.head = torch.nn.Linear(3 * self.config.hidden_size + 2, 1)
            torch.nn.init.zeros_(self.head.weight)
            torch.nn.init.zeros_(self.head.bias)

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            encoded = self.encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
            return SimpleNamespace(
                logits=self.head(_head_inputs(encoded.last_hidden_state, attention_mask, token_type_ids))
            )

    module = Module()
    head = Path(folder) / "head.safetensors"
    if head.is_file():
        module.head.load_state_dict(load_file(str(head)))
    return module.eval()


def _encoder(folder: str, layers: int) -> Any:
    """The encoder in `folder`, or its first `layers` layers."""
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False)  # nosec B615
    if 0 < layers < len(encoder.encoder.layer):
        encoder.encoder.layer = encoder.encoder.layer[:layers]
        encoder.config.num_hidden_layers = layers
    return encoder


def _head_inputs(hidden: Any, attention_mask: Any, token_type_ids: Any) -> Any:
    """(pairs, 3 * dim + 2) what the head sees of the encoder's output, (pairs, tokens, dim)."""
    import torch

    memory = (attention_mask * token_type_ids).to(hidden.dtype)
    question = attention_mask.to(hidden.dtype) - memory
    question_mean, memory_mean = _mean(hidden, question), _mean(hidden, memory)
    unit = torch.nn.functional.normalize(hidden, dim=-1)
    cosines = unit @ unit.transpose(1, 2) - 2.0 * (1.0 - memory)[:, None, :]  # below every cosine outside the memory
    max_cosines = (cosines.max(2).values * question).sum(1) / question.sum(1)
    cosine = torch.nn.functional.cosine_similarity(question_mean, memory_mean)
    similarities = SIMILARITY_SCALE * torch.stack((max_cosines, cosine), 1)
    return torch.cat((hidden[:, 0], question_mean * memory_mean, memory_mean, similarities), 1)


def _mean(hidden: Any, of: Any) -> Any:
    """(n, dim) mean of the vectors where `of`, (n, tokens), is 1."""
    return (hidden * of[..., None]).sum(1) / of.sum(1, keepdim=True)
