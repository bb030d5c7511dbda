"""Training the evidence reranker, and testing that it reads its input (ConvMemory v2, arXiv 2606.10842).

Listwise and from gold labels only: the loss of a question is the cross-entropy between the softmax of its ten scores
and its gold memories, so no other model's opinion gets in, unless a teacher term is asked for. AdamW 2e-5, weight decay
0.01, 8 questions a step, one epoch, linear warm-up of at most 100 steps. Split by conversation.

torch is imported inside functions: `lantern --help` answers at once.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.rerank.evidence import PROTECTED, TOKENS_KEY, Memory, corrections, pairs, reorder
from lantern_proxy.rerank.match import PRIOR, MatchModel, features

LEARNING_RATE, WEIGHT_DECAY, BATCH, WARM_UP = 2e-5, 0.01, 8, 100
SAMPLE_SIZE = 6
"""Memories per question and epoch for a model that corrects the first stage; sampled anew in each epoch."""
PAIRS_PER_PASS = 16
"""Pairs in one forward pass."""
Arm = Literal["full", "no-text", "other-query", "shuffled", "scalars"]
ARMS: tuple[Arm, ...] = ("full", "no-text", "other-query", "shuffled", "scalars")
"""What the model reads in each arm. A model that reads its input gains only in the first.

full: as served. no-text: memories are empty. other-query: with the memories of another question. shuffled: the
memories' texts are permuted among the ten. scalars: only times are left."""


class Example(Struct, frozen=True, kw_only=True):
    """One question and the memories ranked first for it, best first."""

    conversation: str
    question: str
    max_pos: float
    memories: tuple[Memory, ...]
    gold: frozenset[int]
    """Indices of `memories` with the evidence."""
    teacher: tuple[float, ...] = ()
    """Scores of another model, for the optional teacher term of the loss; never an input."""
    first: tuple[float, ...] = ()
    """Scores of the first stage, which a model with the matching head corrects; if missing, the model ranks by
    itself."""


class Settings(Struct, frozen=True):
    """Training settings. The defaults are the paper's, except layers and tokens."""

    base: str
    """Folder or name of the model to start from."""
    layers: int = 3
    """Layers of the encoder to keep; 0: all. Half of MiniLM's six, so that ten pairs take half the time. Evenly spaced
    ones if the base already scores pairs, else the first ones."""
    tokens: int = 64
    """Most tokens of a pair; a long memory is cut. The paper uses 256; docs/restore.md has the time of both."""
    rate: float = LEARNING_RATE
    head_rate: float = 1e-3
    """Learning rate of a new scoring head (rerank/match.py)."""
    seed: int = 7
    epochs: int = 1
    teacher_weight: float = 0.0
    """Weight of the teacher term, relative to 1 for the labels: cross-entropy with the softmax of the teacher's
    scores."""


def train(examples: Sequence[Example], settings: Settings, progress: Callable[[int, int], None]) -> Any:
    """A CrossEncoder trained on `examples`, or a MatchModel if the base has no scoring head.

    progress(done, all) after each step. Raises ValueError without gold, and Stopped on ctrl-C.
    """
    import torch

    usable = [each for each in examples if each.gold and len(each.memories) > len(each.gold)]
    if not usable:
        raise ValueError("no question has both a gold memory and another one among its first ten; nothing to learn")
    torch.manual_seed(settings.seed)
    model = _base(settings)
    optimiser = torch.optim.AdamW(_groups(model.model, settings))
    batches = [b for epoch in range(settings.epochs) for b in _batches(usable, settings.seed + epoch)]
    warm_up = min(WARM_UP, max(1, len(batches) // 10))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm_up, (len(batches) - step) / max(1, len(batches) - warm_up))
    )
    model.model.train()
    rng = random.Random(settings.seed)
    try:
        for done, batch in enumerate(batches, start=1):
            if isinstance(model, MatchModel):
                batch = [_sample(each, rng) for each in batch]
            loss = _loss(model, batch, settings.teacher_weight)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            progress(done, len(batches))
    except KeyboardInterrupt:
        raise Stopped(model) from None
    finally:
        model.model.eval()
    return model


class Stopped(KeyboardInterrupt):
    """Training was interrupted. model: as trained so far"""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


def refuse_unknown(model: str, *, teacher: bool = False) -> None:
    """Raises ValueError if `model` is neither a model's folder nor an available name, or cannot be a teacher."""
    try:
        scores_pairs = _has_head(model)
    except (OSError, ValueError):
        problem = "is no folder with a model's config.json here, and no model of that name can be had from the hub"
        raise ValueError(f"{model} {problem}") from None
    if teacher and not scores_pairs:
        raise ValueError(f"{model} scores no pairs; a teacher is a cross-encoder")


def with_teacher_scores(
    examples: Sequence[Example], teacher: str, progress: Callable[[int, int], None]
) -> list[Example]:
    """The examples with the scores of a cross-encoder, a folder or a name on the hub, for the teacher term of the loss.

    It reads the same pairs as the model. Raises ValueError if `teacher` cannot score pairs.
    """
    from sentence_transformers import CrossEncoder

    refuse_unknown(teacher, teacher=True)
    score = scorer(CrossEncoder(teacher, num_labels=1, device="cpu", local_files_only=_is_local(teacher)))
    made = []
    for each in examples:
        made.append(replace(each, teacher=tuple(score(each.question, each.max_pos, each.memories))))
        progress(len(made), len(examples))
    return made


def _base(settings: Settings) -> Any:
    """The model to start from. Word embeddings are frozen if the head is new, since there are few labels."""
    if not _has_head(settings.base):
        made = MatchModel(settings.base, settings.layers, settings.tokens)
        made.model.config.update({TOKENS_KEY: settings.tokens})
        made.model.encoder.embeddings.requires_grad_(False)
        return made
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(
        settings.base, num_labels=1, max_length=settings.tokens, device="cpu", local_files_only=_is_local(settings.base)
    )
    model.model.config.update({TOKENS_KEY: settings.tokens})
    _keep_layers(model.model, settings.layers)
    return model


def _keep_layers(model: Any, layers: int) -> None:
    """Keep `layers` evenly spaced layers of the encoder, including the last."""
    import torch

    all_layers = model.base_model.encoder.layer
    if layers and layers < len(all_layers):
        kept = [all_layers[(i + 1) * len(all_layers) // layers - 1] for i in range(layers)]
        model.base_model.encoder.layer = torch.nn.ModuleList(kept)
        model.config.num_hidden_layers = layers


def _is_local(base: str) -> bool:
    return Path(base).is_dir()


def _has_head(base: str) -> bool:
    """Can the base already score pairs?"""
    from transformers import AutoConfig

    known = AutoConfig.from_pretrained(base, local_files_only=_is_local(base))  # nosec B615
    return any("SequenceClassification" in name for name in known.architectures or ())


def _groups(model: Any, settings: Settings) -> list[dict[str, Any]]:
    """Parameter groups: weight decay for matrices, none for biases and norms; a new head has its own rate."""
    groups: dict[tuple[bool, bool], list[Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((name.startswith("head."), parameter.ndim >= 2), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": settings.head_rate if head else settings.rate,
            "weight_decay": WEIGHT_DECAY if matrix else 0.0,
        }
        for (head, matrix), parameters in groups.items()
    ]


def _sample(example: Example, rng: random.Random) -> Example:
    """A random sample of at most SAMPLE_SIZE / 2 golds and as many others, in their order."""
    gold = sorted(rng.sample(sorted(example.gold), min(len(example.gold), SAMPLE_SIZE // 2)))
    others = [n for n in range(len(example.memories)) if n not in example.gold]
    kept = sorted([*gold, *rng.sample(others, min(len(others), SAMPLE_SIZE - len(gold)))])
    return replace(
        example,
        memories=tuple(example.memories[n] for n in kept),
        gold=frozenset(kept.index(n) for n in gold),
        first=tuple(example.first[n] for n in kept) if example.first else (),
        teacher=tuple(example.teacher[n] for n in kept) if example.teacher else (),
    )


def _batches(examples: Sequence[Example], seed: int) -> Iterator[list[Example]]:
    mixed = list(examples)
    random.Random(seed).shuffle(mixed)
    for start in range(0, len(mixed), BATCH):
        yield mixed[start : start + BATCH]


def _loss(model: Any, batch: Sequence[Example], teacher_weight: float) -> Any:
    """Mean over the questions of the listwise cross-entropy."""
    import torch

    logits = _logits(model, [pair for each in batch for pair in pairs(each.question, each.max_pos, each.memories)])
    total, start = torch.zeros(()), 0
    for each in batch:
        scored = logits[start : start + len(each.memories)]
        if isinstance(model, MatchModel) and each.first:
            scored = scored + torch.tensor(corrections(each.first, PRIOR))
        likely = torch.log_softmax(scored, dim=0)
        start += len(each.memories)
        total = total - likely[sorted(each.gold)].mean()
        if teacher_weight and each.teacher:
            wanted = torch.softmax(torch.tensor(each.teacher), dim=0)
            total = total - teacher_weight * (wanted * likely).sum()
    return total / len(batch)


def _logits(model: Any, text_pairs: Sequence[tuple[str, str]]) -> Any:
    """(n,) scores with gradients. Pairs of similar length run together, to avoid padding all to one long memory."""
    import torch

    order = sorted(range(len(text_pairs)), key=lambda i: sum(map(len, text_pairs[i])))
    found: list[Any] = []
    for start in range(0, len(order), PAIRS_PER_PASS):
        batch = [text_pairs[i] for i in order[start : start + PAIRS_PER_PASS]]
        found.append(model.model(**features(model, batch)).logits[:, 0])
    places = torch.tensor(order)
    return torch.cat(found)[torch.argsort(places)]


# --- showing that it reads ---


class Outcome(Struct, frozen=True):
    """Per question: reciprocal rank, hit at 1, and recall at 10, before and after reordering."""

    mrr: tuple[list[float], list[float]]
    hit_at_1: tuple[list[float], list[float]]
    recall_at_10: tuple[list[float], list[float]]


def ablated(examples: Sequence[Example], arm: Arm, seed: int) -> list[Example]:
    """The examples without what `arm` removes. Gold and order stay: only the model's input changes."""
    rng = random.Random(seed)
    made = []
    for n, each in enumerate(examples):
        texts = [memory.text for memory in each.memories]
        if arm in ("no-text", "scalars"):
            texts = [""] * len(texts)
        elif arm == "shuffled":
            rng.shuffle(texts)
        elif arm == "other-query" and len(examples) > 1:
            other = examples[(n + rng.randrange(1, len(examples))) % len(examples)].memories
            texts = [other[i % len(other)].text for i in range(len(texts))]
        memories = tuple(replace(memory, text=text) for memory, text in zip(each.memories, texts, strict=True))
        made.append(replace(each, memories=memories, question="" if arm == "scalars" else each.question))
    return made


def evaluate(
    examples: Sequence[Example],
    all_gold: Sequence[int],
    score: Callable[[str, float, Sequence[Memory]], Sequence[float]],
    prior: float = 0.0,
) -> Outcome:
    """Reorder each example by `score` plus `prior` times the score of the first stage.

    all_gold: gold memories of each question, including those beyond the ten

    A question without gold among its memories counts with reciprocal rank 0 on both sides.
    """
    outcome = Outcome(([], []), ([], []), ([], []))
    for each, wanted in zip(examples, all_gold, strict=True):
        before = list(range(len(each.memories)))
        scores = np.asarray(score(each.question, each.max_pos, each.memories), np.float64)
        after = reorder(before, (scores + corrections(each.first, prior) if each.first else scores).tolist())
        for side, order in enumerate((before, after)):
            ranks = [rank for rank, i in enumerate(order, start=1) if i in each.gold]
            outcome.mrr[side].append(1 / ranks[0] if ranks else 0.0)
            outcome.hit_at_1[side].append(float(bool(ranks) and ranks[0] == 1))
            outcome.recall_at_10[side].append(sum(r <= PROTECTED for r in ranks) / max(1, wanted))
    return outcome


def scorer(model: Any) -> Callable[[str, float, Sequence[Memory]], Sequence[float]]:
    """Scores by a CrossEncoder in torch, for `evaluate` right after training."""
    import torch

    def score(question: str, max_pos: float, memories: Sequence[Memory]) -> list[float]:
        text_pairs = pairs(question, max_pos, memories)
        if isinstance(model, MatchModel):
            return model.predict(text_pairs)
        found = model.predict(text_pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
        return [float(each) for each in np.asarray(found).ravel()]

    return score
