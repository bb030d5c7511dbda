"""`lantern bench restore`: what is restored into the prompt after a compaction, by Lantern and by simpler methods.

Chats are archived up to the compaction by the product's own code, and the product's own Restorer makes the blocks.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from lantern_proxy.bench import language_model
from lantern_proxy.bench import pipelines_light as light
from lantern_proxy.bench import restore_score as score
from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.bench.metrics import interval, tested
from lantern_proxy.bench.pipelines import Advance
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.bench.restore_chats import SHAPES, Compacted, Shape, chats, compacted, conversations, merged
from lantern_proxy.bench.restore_play import RECIPES, Given, Recipe, Stage, stage
from lantern_proxy.config import Config, EmbedConfig, load
from lantern_proxy.embed import available
from lantern_proxy.rerank.light import save

ORDINARY = 40
"""User messages after the compaction, per chat, that should hardly ever get a question block."""
NO_DECAY_S = 1e12
"""A half-life without any decay."""
ASKED_FACTS = 60
"""Facts per chat that are asked for, evenly spaced."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One question or fact. found: shares in [0, 1]."""

    kind: str
    found: float
    all_found: bool
    answered: bool | None
    chars: int
    ms: float


Blocks = Callable[[str], tuple[Given, ...]]
"""Question -> the blocks that its request holds, its own last."""


def blocks(played: Stage, cut: Compacted, recipe: Recipe, query: str, budget: int) -> Blocks:
    """query both: a block of `restore.budget_chars` at the compaction, and the question block in addition."""
    if query == "question":
        return lambda question: (played.restored(cut, recipe, question, budget),)
    first = played.restored(cut, recipe, "", budget if query == "context" else played.config.restore.budget_chars)
    if query == "context":
        return lambda question: (first,)
    return lambda question: (first, played.restored(cut, recipe, question, budget, first))


def evidence(played: Stage, cuts: Sequence[Compacted], recipe: Recipe, query: str, budget: int) -> Iterator[Tried]:
    """For each question with lost evidence: the share of its gold turns in the blocks."""
    for cut in cuts:
        idf, turns = score.rarity(cut.lost), {said.id: said for said in cut.lost}
        of = blocks(played, cut, recipe, query, budget)
        for probe in cut.probes:
            texts, last = _read(of(probe.text))
            found = [score.holds(texts, score.evidence(turns[gold], probe, idf)) for gold in probe.gold]
            answered = score.answered(texts, probe.answer) if probe.answer else None
            yield Tried(probe.kind, float(np.mean(found)), all(found), answered, len(last.text), last.ms)


def facts(played: Stage, cuts: Sequence[Compacted], recipe: Recipe, query: str, budget: int) -> Iterator[Tried]:
    """For each checkable value: is it restored when it is asked for, or at the compaction?"""
    for cut in cuts:
        of = blocks(played, cut, recipe, query, budget)
        for fact in _facts(cut, query):
            texts, last = _read(of(fact.question))
            found = score.restored(fact, texts)
            yield Tried(f"{fact.speaker} {fact.kind}", float(found), found, None, len(last.text), last.ms)


def _read(held: Sequence[Given]) -> tuple[list[str], Given]:
    return [text for block in held for text in block.texts], held[-1]


def _facts(cut: Compacted, query: str) -> Sequence[score.Fact]:
    told = score.facts(cut)
    return told if query == "context" else told[:: max(1, len(told) // ASKED_FACTS)]


def admission(played: Stage, cuts: Sequence[Compacted], recipe: Recipe, query: str, budget: int) -> Iterator[Tried]:
    """Who gets a question block: the user's next messages (found: it got one), and questions for what is lost."""
    for cut in cuts:
        of = blocks(played, cut, recipe, "both" if query == "both" else "question", budget)
        for kind, text in _messages(cut):
            block = of(text)[-1]
            yield Tried(kind, float(bool(block.text)), bool(block.text), None, len(block.text), block.ms)


def _messages(cut: Compacted) -> list[tuple[str, str]]:
    ordinary = [("ordinary", said.text) for said in cut.later if said.role == "user"][:ORDINARY]
    return [*ordinary, *(("asking", probe.text) for probe in cut.probes)]


Measure = Callable[[Stage, Sequence[Compacted], Recipe, str, int], Iterator[Tried]]
MEASURES: dict[str, Measure] = {"evidence": evidence, "facts": facts, "admission": admission}
ASKED: dict[str, Callable[[Compacted, str], int]] = {
    "evidence": lambda cut, query: len(cut.probes),
    "facts": lambda cut, query: len(_facts(cut, query)),
    "admission": lambda cut, query: len(_messages(cut)),
}
"""How many questions each measure asks per chat."""


def summary(tried: Sequence[Tried]) -> dict[str, Any]:
    """The figures of one run with at least one question. ci: by bootstrap over questions"""
    found = [each.found for each in tried]
    with_answer = [each.answered for each in tried if each.answered is not None]
    kinds: dict[str, list[float]] = {}
    for each in tried:
        kinds.setdefault(each.kind, []).append(each.found)
    return {
        "evidence_recall": _mean(found),
        "all_evidence": _mean([each.all_found for each in tried]),
        "answer_containment": _mean(with_answer) if with_answer else None,
        "n": len(tried),
        "chars": round(_mean([each.chars for each in tried])),
        "ms": {f"p{p}": round(float(np.percentile([t.ms for t in tried], p)), 1) for p in (50, 95)},
        "ci": [round(bound, 4) for bound in interval(np.asarray(found))],
        "kinds": {kind: [_mean(shares), len(shares)] for kind, shares in sorted(kinds.items())},
    }


def against(ours: Sequence[Tried], theirs: Sequence[Tried]) -> dict[str, Any]:
    """Our values minus theirs on the same questions: paired bootstrap and Wilcoxon's signed-rank test, as in the
    paper."""
    a, b = (np.array([each.found for each in tried], np.float64) for tried in (ours, theirs))
    return {"evidence_recall": _mean(b.tolist())} | tested(a, b)


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


@contextmanager
def folder(keep: Path | None, at: int) -> Iterator[Path]:
    if keep is not None:
        path = keep / str(at)
        path.mkdir(parents=True, exist_ok=True)
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="lantern-bench-") as made:
            yield Path(made)


@contextmanager
def progress(label: str, total: int) -> Iterator[Advance]:
    """A bar on stderr; the block gets a function that moves it on."""
    bar: Any = click.progressbar(length=total, label=label, file=sys.stderr)
    with bar:
        yield bar.update


def trained(found: Sequence[Conversation], config: Config, path: Path) -> dict[str, Path]:
    """Conversation -> file of a light reranker trained on the others, in up to five folds. ValueError if too few of
    them have questions. path: a folder for the files"""
    with Resources(config) as resources, progress("learning", sum(len(each.questions) for each in found)) as advance:
        default = Default(resources)
        parts = [part for each in found if (part := light.collect(default, each, advance))]
    if len(parts) < 2:
        raise ValueError(f"{len(parts)} of {len(found)} chats have questions to learn from; recipe trained needs two")
    files: dict[str, Path] = {}
    for fold, (taught, unseen) in enumerate(light.folds(len(parts))):
        save(light.grow([parts[n] for n in taught]), path / f"{fold}.npz", {})
        files |= dict.fromkeys((parts[n].conversation for n in unseen), path / f"{fold}.npz")
    return files


DATA = click.option(
    "--data", required=True, type=click.Path(path_type=Path, exists=True), help="LoCoMo or BEAM: file or folder."
)
AT = click.option(
    "--at", type=click.Choice(["30", "50", "70"]), default="50", show_default=True, help="Compacted at, in %."
)
DENSE = click.option(
    "--dense/--no-dense", default=None, help="With vectors; by default when the extra `dense` is installed."
)
KEEP = click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the archives, vectors too, there."
)


@click.command("restore")
@DATA
@click.option("--budget", default=6_000, show_default=True, type=click.IntRange(0), help="Characters of a block.")
@click.option(
    "--query", type=click.Choice(["question", "context", "both"]), default="question", show_default=True,
    help="Is the question known, or only what the request still holds? both: one block at the compaction, and the "
    "question's, of --budget, beside it.",
)  # fmt: skip
@click.option(
    "--recipe", type=click.Choice(RECIPES), default="default", show_default=True,
    help="How to choose; trained: the default with a light reranker that was trained on the other chats.",
)  # fmt: skip
@AT
@click.option("--shape", type=click.Choice(SHAPES), default="window", show_default=True, help="What stands for it.")
@click.option(
    "--measure", type=click.Choice(list(MEASURES)), default="evidence", show_default=True,
    help="Evidence of questions, verifiable facts, or who gets a question block.",
)  # fmt: skip
@click.option("--admission", type=click.FloatRange(0, 1), help="Instead of the configured one; 0 adds a block always.")
@click.option("--against", "other", type=click.Choice(RECIPES), help="Test the difference to this recipe.")
@click.option(
    "--half-life", "half_life_days", type=click.FloatRange(0), metavar="DAYS",
    help="Decay of old passages in the recipe `lantern`; 0: none (the paper's ablation). Default: the configured one.",
)  # fmt: skip
@DENSE
@click.option("--merge", is_flag=True, help="All chats as one long session: how it fares, and how fast it is, there.")
@KEEP
@click.option(
    "--config", "settings", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A settings file, as for `rerank.light`; default: none.",
)  # fmt: skip
@language_model.options(required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    data: Path, budget: int, query: str, recipe: Recipe, at: str, shape: Shape, measure: str, admission: float | None,
    other: Recipe | None, half_life_days: float | None, dense: bool | None, merge: bool, keep: Path | None,
    settings: Path | None, as_json: bool, model: language_model.Model | None,
) -> None:  # fmt: skip
    """Measure what a restore gives back of what a compaction lost.

    \b
    Example: lantern bench restore --data locomo10.json --query context --recipe lantern
    """
    if model is None and "memgpt" in (recipe, other):
        raise click.UsageError("recipe memgpt needs a model, which writes down what to keep; give --model, --model-url")
    if merge and "trained" in (recipe, other):
        raise click.UsageError("recipe trained learns from other chats; leave out --merge")
    try:
        cuts = [compacted(chat, int(at), shape) for chat in chats(data)]
        cuts = [merged(cuts)] if merge else cuts
        if not any(ASKED[measure](cut, query) for cut in cuts):
            raise ValueError(
                f"{data}: at {at} % no chat has lost what --measure {measure} asks for; nothing to measure"
            )
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    config = configured(admission, half_life_days, Config() if settings is None else load(settings, os.environ))
    dense = available() and config.embed.enabled != "off" if dense is None else dense
    config = config if dense else replace(config, embed=EmbedConfig(enabled="off"))
    names = [recipe, *([other] if other and other != recipe else [])]
    with ExitStack() as stack:
        path = stack.enter_context(folder(keep, int(at)))
        try:
            with progress("archiving", len(cuts)) as advance:
                there = stage(cuts, path, config, dense=dense, advance=advance, ask_model=model)
                played = stack.enter_context(there)
            if "trained" in names:
                models = stack.enter_context(tempfile.TemporaryDirectory(prefix="lantern-bench-"))
                played.trained = trained(conversations(data), config, Path(models))
            lost = sum(len(played.lost(cut)) for cut in cuts)
            tried = {each: measured(played, cuts, each, measure, query, budget) for each in names}
        except (ValueError, language_model.NoAnswerError) as error:
            raise click.ClickException(str(error)) from None
    row = {"recipe": recipe, "query": query, "at": int(at), "shape": shape, "budget": budget}
    row |= {"measure": measure, "passages_lost": lost}
    result = row | summary(tried[recipe])
    if other:
        result["against"] = {"recipe": other} | against(tried[recipe], tried[other])
    if model is not None:
        result["usage"] = {model.name: model.usage.as_json()}
    click.echo(json.dumps(result) if as_json else table(result))


def measured(
    played: Stage, cuts: Sequence[Compacted], recipe: Recipe, measure: str, query: str, budget: int
) -> list[Tried]:
    with progress(f"asking: {recipe}", sum(ASKED[measure](cut, query) for cut in cuts)) as advance:
        tried = []
        for one in MEASURES[measure](played, cuts, recipe, query, budget):
            tried.append(one)
            advance(1)
    return tried


def configured(admission: float | None, half_life_days: float | None, config: Config) -> Config:
    """`config` with the given changes. half_life_days: 0 for no decay at all"""
    if admission is not None:
        config = replace(config, restore=replace(config.restore, admission=admission))
    if half_life_days is None:
        return config
    return replace(config, reinforce=replace(config.reinforce, half_life_s=86_400 * half_life_days or NO_DECAY_S))


def table(result: dict[str, Any]) -> str:
    return "\n".join(f"{name:20} {value}" for name, value in result.items())
