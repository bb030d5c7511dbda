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
from lantern_proxy.bench.restore_recipes import RECIPES, ArchivedChats, Recipe, RestoredText, archived_chats
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
class Outcome:
    """One question or fact. found: shares in [0, 1]."""

    kind: str
    found: float
    all_found: bool
    answered: bool | None
    chars: int
    ms: float


Blocks = Callable[[str], tuple[RestoredText, ...]]
"""Question -> the blocks that its request holds, its own last."""


def blocks(archived: ArchivedChats, cut: Compacted, recipe: Recipe, query: str, budget: int) -> Blocks:
    """query both: a block of `restore.budget_chars` at the compaction, and the question block in addition."""
    if query == "question":
        return lambda question: (archived.restored(cut, recipe, question, budget),)
    first = archived.restored(cut, recipe, "", budget if query == "context" else archived.config.restore.budget_chars)
    if query == "context":
        return lambda question: (first,)
    return lambda question: (first, archived.restored(cut, recipe, question, budget, first))


def evidence(
    archived: ArchivedChats, cuts: Sequence[Compacted], recipe: Recipe, query: str, budget: int
) -> Iterator[Outcome]:
    """For each question with lost evidence: the share of its gold turns in the blocks."""
    for cut in cuts:
        idf, turns = score.rarity(cut.lost), {message.id: message for message in cut.lost}
        blocks_of = blocks(archived, cut, recipe, query, budget)
        for probe in cut.probes:
            texts, last = _texts_and_last(blocks_of(probe.text))
            found = [score.all_restored(texts, score.evidence(turns[gold], probe, idf)) for gold in probe.gold]
            answered = score.answered(texts, probe.answer) if probe.answer else None
            yield Outcome(probe.kind, float(np.mean(found)), all(found), answered, len(last.text), last.ms)


def facts(
    archived: ArchivedChats, cuts: Sequence[Compacted], recipe: Recipe, query: str, budget: int
) -> Iterator[Outcome]:
    """For each checkable value: is it restored when it is asked for, or at the compaction?"""
    for cut in cuts:
        blocks_of = blocks(archived, cut, recipe, query, budget)
        for fact in _facts(cut, query):
            texts, last = _texts_and_last(blocks_of(fact.question))
            found = score.restored(fact, texts)
            yield Outcome(f"{fact.speaker} {fact.kind}", float(found), found, None, len(last.text), last.ms)


def _texts_and_last(restored: Sequence[RestoredText]) -> tuple[list[str], RestoredText]:
    return [text for block in restored for text in block.texts], restored[-1]


def _facts(cut: Compacted, query: str) -> Sequence[score.Fact]:
    all_facts = score.facts(cut)
    return all_facts if query == "context" else all_facts[:: max(1, len(all_facts) // ASKED_FACTS)]


def admission(
    archived: ArchivedChats, cuts: Sequence[Compacted], recipe: Recipe, query: str, budget: int
) -> Iterator[Outcome]:
    """Who gets a question block: the user's next messages (found: it got one), and questions for what is lost."""
    for cut in cuts:
        blocks_of = blocks(archived, cut, recipe, "both" if query == "both" else "question", budget)
        for kind, text in _messages(cut):
            block = blocks_of(text)[-1]
            yield Outcome(kind, float(bool(block.text)), bool(block.text), None, len(block.text), block.ms)


def _messages(cut: Compacted) -> list[tuple[str, str]]:
    ordinary = [("ordinary", message.text) for message in cut.later if message.role == "user"][:ORDINARY]
    return [*ordinary, *(("asking", probe.text) for probe in cut.probes)]


Measure = Callable[[ArchivedChats, Sequence[Compacted], Recipe, str, int], Iterator[Outcome]]
MEASURES: dict[str, Measure] = {"evidence": evidence, "facts": facts, "admission": admission}
QUESTION_COUNTS: dict[str, Callable[[Compacted, str], int]] = {
    "evidence": lambda cut, query: len(cut.probes),
    "facts": lambda cut, query: len(_facts(cut, query)),
    "admission": lambda cut, query: len(_messages(cut)),
}
"""How many questions each measure asks per chat."""


def summary(tried: Sequence[Outcome]) -> dict[str, Any]:
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


def against(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> dict[str, Any]:
    """Our values minus theirs on the same questions: paired bootstrap and Wilcoxon's signed-rank test, as in the
    paper."""
    a, b = (np.array([each.found for each in tried], np.float64) for tried in (ours, theirs))
    return {"evidence_recall": _mean(b.tolist())} | tested(a, b)


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


@contextmanager
def archive_folder(keep: Path | None, at: int) -> Iterator[Path]:
    if keep is not None:
        path = keep / str(at)
        path.mkdir(parents=True, exist_ok=True)
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="lantern-bench-") as made:
            yield Path(made)


@contextmanager
def opened(
    cuts: Sequence[Compacted], config: Config, keep: Path | None, at: int, *, dense: bool,
    model: language_model.Model | None,
) -> Iterator[ArchivedChats]:  # fmt: skip
    """The chats in an archive, in `keep` or in a temporary folder; with a progress bar."""
    with archive_folder(keep, at) as path, ExitStack() as stack:
        with progress("archiving", len(cuts)) as advance:
            opening = archived_chats(cuts, path, config, dense=dense, advance=advance, ask_model=model)
            archived = stack.enter_context(opening)
        yield archived


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
        save(light.train([parts[n] for n in taught]), path / f"{fold}.npz", {})
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
        cuts = compacted_chats(data, int(at), shape, measure, query, merge=merge)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    config = configured(admission, half_life_days, Config() if settings is None else load(settings, os.environ))
    dense = available() and config.embed.enabled != "off" if dense is None else dense
    config = config if dense else replace(config, embed=EmbedConfig(enabled="off"))
    recipes = list(dict.fromkeys([recipe, other or recipe]))
    try:
        with (
            opened(cuts, config, keep, int(at), dense=dense, model=model) as archived,
            tempfile.TemporaryDirectory(prefix="lantern-bench-") as models,
        ):
            if "trained" in recipes:
                archived.trained = trained(conversations(data), config, Path(models))
            lost = sum(len(archived.lost(cut)) for cut in cuts)
            outcomes = {each: measured(archived, cuts, each, measure, query, budget) for each in recipes}
    except (ValueError, language_model.NoAnswerError) as error:
        raise click.ClickException(str(error)) from None
    row = {"recipe": recipe, "query": query, "at": int(at), "shape": shape, "budget": budget}
    row |= {"measure": measure, "passages_lost": lost}
    result = row | summary(outcomes[recipe])
    if other:
        result["against"] = {"recipe": other} | against(outcomes[recipe], outcomes[other])
    if model is not None:
        result["usage"] = {model.name: model.usage.as_json()}
    click.echo(json.dumps(result) if as_json else table(result))


def compacted_chats(
    data: Path, at: int, shape: Shape, measure: str, query: str, *, merge: bool
) -> list[Compacted]:  # fmt: skip
    """The chats of `data`, each compacted. ValueError if none has lost anything that `measure` asks for."""
    cuts = [compacted(chat, at, shape) for chat in chats(data)]
    cuts = [merged(cuts)] if merge else cuts
    if not any(QUESTION_COUNTS[measure](cut, query) for cut in cuts):
        raise ValueError(f"{data}: at {at} % no chat has lost what --measure {measure} asks for; nothing to measure")
    return cuts


def measured(
    archived: ArchivedChats, cuts: Sequence[Compacted], recipe: Recipe, measure: str, query: str, budget: int
) -> list[Outcome]:
    with progress(f"asking: {recipe}", sum(QUESTION_COUNTS[measure](cut, query) for cut in cuts)) as advance:
        tried = []
        for one in MEASURES[measure](archived, cuts, recipe, query, budget):
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
