"""Make lantern_proxy/data/adapter_minilm_l6.npz: python scripts/embed_adapter.py MODEL (one to two hours of a
core; needs the extra dense). MODEL: a folder or the name of all-MiniLM-L6-v2 (Apache 2.0), uncompiled.

Low-rank matrices beside the upper layers learn to tell the messages that answer a question from the others of their
conversation (cross-entropy), once by the words of both (signals/late.py) and once by the mean of their vectors. They
learn from the conversations of shipped_reranker.py and more of the same file, whose people and chats are made up.

So that other texts are told apart as before, the cosines of some of them with each other are held where they were:
functions of Python's standard library, what is said of them, and paragraphs of Lantern's own documents.
"""

import argparse
import ast
import importlib
import inspect
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from shipped_reranker import ROOT, to_learn_from
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.compiled import MINILM
from lantern_proxy.embed import MAX_TOKENS
from lantern_proxy.embed_model import projection_of
from lantern_proxy.signals.late import POWER

TARGET = ROOT / "lantern_proxy" / "data" / "adapter_minilm_l6.npz"
FIRST, RANK = 3, 16
"""The lowest layer that is adapted, and the rank of what is added to each of its matrices."""
EPOCHS, TOGETHER, RATE, WARM_UP = 1, 16, 5e-4, 20
"""Times that each question is seen, questions of a step, and the rate of AdamW."""
STRENGTH = 0.7
"""Share of what was learned that is added. Between published and learned weights most of what is found better is left,
and less of what was found before is lost (weight interpolation, Wortsman et al. 2022)."""
MOST_TOKENS = 4_000
"""Of a step: of longer conversations some sessions are left out, never those with evidence."""
TOGETHER_TOKENS = 1_536
"""Of texts that are read at once."""
MEAN_SHARE, HELD_SHARE, HELD_TEXTS = 1.0, 8.0, 16
"""How much the mean of vectors counts beside words, and the cosines that are held; texts of a step for these."""
OPEN_WORDS = 60
"""Words up to which the message before counts in full, as in a ranking."""
DOCUMENTED = (
    "abc", "bdb", "cmd", "code", "codecs", "collections", "contextlib", "copy", "dataclasses", "dis", "doctest", "enum",
    "filecmp", "fileinput", "functools", "getopt", "getpass", "gettext", "glob", "gzip", "hashlib", "hmac",
    "html.parser", "http.cookies", "http.server", "imaplib", "io", "ipaddress", "locale", "lzma", "mailbox",
    "mimetypes", "multiprocessing.pool", "netrc", "optparse", "pdb", "pickle", "pickletools", "platform", "plistlib",
    "poplib", "pprint", "profile", "pstats", "queue", "quopri", "reprlib", "runpy", "sched", "secrets", "selectors",
    "shelve", "shlex", "site", "socket", "socketserver", "ssl", "string", "symtable", "timeit", "tokenize", "trace",
    "traceback", "types", "typing", "urllib.request", "uuid", "venv", "warnings", "wave", "weakref", "webbrowser",
    "xmlrpc.client", "zipapp",
)  # fmt: skip

Tensor = torch.Tensor
Read = tuple[Tensor, Tensor]
"""Ids of a text's pieces, and what the layers below FIRST make of them: (pieces, dim)."""


class Adapted(torch.nn.Module):
    """A linear layer and what is learned on top of it."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.inner = torch.nn.Parameter(torch.randn(RANK, layer.in_features) / math.sqrt(layer.in_features))
        self.outer = torch.nn.Parameter(torch.zeros(layer.out_features, RANK))

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given) + (given @ self.inner.T) @ self.outer.T


class Reader:
    """The model with its adapted layers."""

    def __init__(self, model: str) -> None:
        projection = projection_of(MINILM)
        assert projection is not None
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = AutoModel.from_pretrained(model, attn_implementation="sdpa").eval().requires_grad_(False)
        self.projection = torch.tensor(projection.matrix)
        self.dropped = torch.zeros(self.tokenizer.vocab_size, dtype=torch.bool)
        self.dropped[list(projection.dropped)] = True
        self.adapted: dict[str, Adapted] = {}
        for n in range(FIRST, len(self.model.encoder.layer)):
            for name, module in list(self.model.encoder.layer[n].named_modules()):
                if isinstance(module, torch.nn.Linear):
                    self.adapted[f"encoder.layer.{n}.{name}.weight"] = Adapted(module)
                    self.model.encoder.layer[n].set_submodule(name, self.adapted[f"encoder.layer.{n}.{name}.weight"])

    @torch.no_grad()
    def read(self, texts: Sequence[str]) -> list[Read]:
        ids = [torch.tensor(self.tokenizer(t, truncation=True, max_length=MAX_TOKENS)["input_ids"]) for t in texts]

        def below(some: Sequence[int]) -> list[Tensor]:
            padded, mask = _padded([ids[n][:, None] for n in some])
            hidden = self._through(self.model.embeddings(padded[..., 0].long()), mask, range(FIRST))
            return [hidden[row, : len(ids[n])].clone() for row, n in enumerate(some)]

        return list(zip(ids, _by_length([*map(len, ids)], below), strict=True))

    def encode(self, texts: Sequence[Read]) -> tuple[Tensor, list[Read]]:
        """(n, dim) vectors of length 1, and of each text the pieces that count: their ids and vectors."""

        def above(some: Sequence[int]) -> list[tuple[Tensor, Read]]:
            padded, mask = _padded([texts[n][1] for n in some])
            hidden = self._through(padded, mask, range(FIRST, len(self.model.encoder.layer)))
            means = functional.normalize((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)
            small = functional.normalize(hidden @ self.projection, dim=-1)
            found = []
            for row, n in enumerate(some):
                ids = texts[n][0]
                kept = ~self.dropped[ids]
                found.append((means[row], (ids[kept], small[row, : len(ids)][kept])))
            return found

        pairs = _by_length([len(ids) for ids, _ in texts], above)
        return torch.stack([mean for mean, _ in pairs]), [pieces for _, pieces in pairs]

    def _through(self, hidden: Tensor, mask: Tensor, layers: range) -> Tensor:
        for n in layers:
            made = self.model.encoder.layer[n](hidden, (1 - mask)[:, None, None, :] * -1e9)
            hidden = made[0] if isinstance(made, tuple) else made
        return hidden


def _padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True)
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True), mask


def _by_length(sizes: Sequence[int], work: Callable[[Sequence[int]], list[Any]]) -> list[Any]:
    """`work` of all, those of like length together, few of the long ones: all are padded to the longest."""
    order, found = sorted(range(len(sizes)), key=sizes.__getitem__), [None] * len(sizes)
    while order:
        fits = sum(1 for n, at in enumerate(order, start=1) if n * sizes[at] <= TOGETHER_TOKENS)
        some, order = order[: max(1, fits)], order[max(1, fits) :]
        for n, made in zip(some, work(some), strict=True):
            found[n] = made
    return found


@dataclass(frozen=True, slots=True)
class Known:
    """A conversation whose evidence is known, read once up to the layers that learn."""

    told: list[Read]
    asked: list[Read]
    gold: list[list[int]]
    """Places of the evidence of each question."""
    session: list[str]
    openness: Tensor
    """(messages,) 0..1: how much of the message before belongs to it."""
    idf: Tensor
    """(vocabulary,)"""


def known(conversation: Conversation, reader: Reader) -> Known:
    told = reader.read([each.text_with_speaker for each in conversation.candidates])
    at = {each.id: n for n, each in enumerate(conversation.candidates)}
    words = np.array([max(1, len(each.text_with_speaker.split())) for each in conversation.candidates])
    holding = torch.zeros(reader.tokenizer.vocab_size)
    for ids, _ in told:
        holding[ids.unique()] += 1
    return Known(
        told, reader.read([each.text for each in conversation.questions]),
        [sorted(at[id_] for id_ in each.gold if id_ in at) for each in conversation.questions],
        [each.session for each in conversation.candidates],
        torch.tensor(np.minimum(1, OPEN_WORDS / words) ** 2, dtype=torch.float32),
        torch.log(1 + len(told) / holding.clamp(min=0.5)),
    )  # fmt: skip


def scores(reader: Reader, of: Known, asked: Sequence[int], places: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(questions, places) by words, and by the mean of vectors."""
    asked_means, asked_pieces = reader.encode([of.asked[n] for n in asked])
    means, pieces = reader.encode([of.told[n] for n in places])
    vectors = torch.cat([found if len(found) else torch.zeros(1, found.shape[1]) for _, found in pieces])
    owner = torch.repeat_interleave(torch.tensor([max(1, len(ids)) for ids, _ in pieces]))
    alike = torch.cat([found for _, found in asked_pieces]) @ vectors.T
    best = torch.full((len(alike), len(places)), -1.0).scatter_reduce(1, owner.expand(len(alike), -1), alike, "amax")
    best = _in_context(best, of, places).clamp(0, 1) ** POWER
    weights = torch.cat([of.idf[ids] for ids, _ in asked_pieces])
    question = torch.repeat_interleave(torch.tensor([len(ids) for ids, _ in asked_pieces]))
    found = torch.zeros(len(asked), len(places)).index_add(0, question, best * weights[:, None])
    total = torch.zeros(len(asked)).index_add(0, question, weights)
    return found / total.clamp(min=1e-6)[:, None], asked_means @ means.T


def _in_context(best: Tensor, of: Known, places: Sequence[int]) -> Tensor:
    """A word may also be found in the message before, where both are short."""
    pairs = [(n, n - 1) for n in range(1, len(places)) if places[n] == places[n - 1] + 1
             and of.session[places[n]] == of.session[places[n - 1]]]  # fmt: skip
    before, follows = torch.zeros(len(places), dtype=torch.long), torch.zeros(len(places))
    for n, m in pairs:
        before[n], follows[n] = m, 1
    open_ = of.openness[list(places)]
    gained = (open_[before] * best[:, before] - best).clamp(min=0)
    return best + open_ * gained * follows


def steps(all_of_them: Sequence[Known], draw: random.Random) -> Iterator[tuple[Known, list[int], list[int]]]:
    """(conversation, questions, places of the messages that they are asked of), EPOCHS times each question."""
    for _ in range(EPOCHS):
        batches = []
        for each in all_of_them:
            asked = [n for n, gold in enumerate(each.gold) if gold]
            draw.shuffle(asked)
            batches += [(each, asked[at : at + TOGETHER]) for at in range(0, len(asked), TOGETHER)]
        draw.shuffle(batches)
        yield from ((each, asked, _places(each, asked, draw)) for each, asked in batches)


def _places(of: Known, asked: Sequence[int], draw: random.Random) -> list[int]:
    """Messages with their evidence and around it, then whole sessions by chance, then single messages."""
    gold = {n for q in asked for n in of.gold[q]}
    with_gold = {of.session[n] for n in gold}
    sizes = [len(ids) for ids, _ in of.told]
    others = [name for name in dict.fromkeys(of.session) if name not in with_gold]
    draw.shuffle(others)
    kept = {n for n, name in enumerate(of.session) if name in with_gold}
    tokens = sum(sizes[n] for n in kept)
    if tokens > MOST_TOKENS:
        rest, kept = kept, {n + by for n in gold for by in (-1, 0, 1) if 0 <= n + by < len(sizes)}
        tokens, left = sum(sizes[n] for n in kept), sorted(rest - kept)
        draw.shuffle(left)
        for n in left:
            if tokens > MOST_TOKENS:
                break
            kept.add(n)
            tokens += sizes[n]
    for name in others:
        session = [n for n, own in enumerate(of.session) if own == name]
        if tokens + sum(sizes[n] for n in session) <= MOST_TOKENS:
            kept.update(session)
            tokens += sum(sizes[n] for n in session)
    return sorted(kept)


def held_texts() -> list[str]:
    """What is told apart as before: code, what is said of it, and prose."""
    code, prose = [], []
    for name in DOCUMENTED:
        for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(name)))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (told := ast.get_docstring(node)):
                code.append(told.split("\n\n")[0][:400])
                body = "\n".join(map(ast.unparse, node.body[1:]))
                code.append(f"def {node.name}({ast.unparse(node.args)}):\n{body}"[:600])
    for file in sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]):
        paragraphs = [" ".join(each.split()) for each in file.read_text("utf-8").split("\n\n")]
        prose += [each for each in paragraphs if 60 < len(each) < 700 and not each.startswith(("|", "<", "```"))]
    draw = random.Random(3)
    return draw.sample(code, min(1_500, len(code))) + draw.sample(prose, min(1_200, len(prose)))


def train(reader: Reader, all_of_them: Sequence[Known], draw: random.Random) -> None:
    texts = reader.read(held_texts())
    with torch.no_grad():
        means_before = reader.encode(texts)[0]
    learned = [part for each in reader.adapted.values() for part in (each.inner, each.outer)]
    sharpness = torch.nn.Parameter(torch.tensor([3.4, 3.0]))
    parts = [{"params": learned, "weight_decay": 0.01}, {"params": [sharpness], "lr": 1e-2, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(parts, lr=RATE)
    planned = list(steps(all_of_them, draw))
    for step, (of, asked, places) in enumerate(planned, start=1):
        optimiser.param_groups[0]["lr"] = RATE * min(1, step / WARM_UP) * (1 - step / (len(planned) + 1))
        wanted = torch.zeros(len(asked), len(places))
        at = {place: n for n, place in enumerate(places)}
        for row, q in enumerate(asked):
            wanted[row, [at[place] for place in of.gold[q]]] = 1 / len(of.gold[q])
        found = scores(reader, of, asked, places)
        by_words, by_means = (
            _surprise(wanted, each * sharp.exp()) for each, sharp in zip(found, sharpness, strict=True)
        )
        some = draw.sample(range(len(texts)), HELD_TEXTS)
        means, before = reader.encode([texts[n] for n in some])[0], means_before[some]
        moved = ((means @ means.T - before @ before.T) ** 2).mean()
        optimiser.zero_grad()
        (by_words + MEAN_SHARE * by_means + HELD_SHARE * moved).backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()
        if step % 20 == 0:
            print(f"{step} of {len(planned)}: {by_words:.2f} by words, {by_means:.2f} by means, moved {moved:.4f}")


def _surprise(wanted: Tensor, logits: Tensor) -> Tensor:
    return -(wanted * functional.log_softmax(logits, 1)).sum(1).mean()


def main(model: str) -> None:
    torch.manual_seed(1)
    reader = Reader(model)
    train(reader, [known(each, reader) for each in to_learn_from()], random.Random(1))
    halves = {
        f"{name}/{part}": by * getattr(each, part).detach().numpy()
        for name, each in reader.adapted.items()
        for part, by in (("outer", STRENGTH), ("inner", 1.0))
    }
    np.savez_compressed(TARGET, **{name: half.astype(np.float16) for name, half in halves.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=MINILM)
    main(**vars(parser.parse_args()))
