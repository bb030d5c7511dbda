"""`lantern bench judged`: the experiments of the LANTERN paper that need a model, with any OpenAI-compatible one.

(1) A model lists facts of the lost part, and (2) a question for each. Then, for every recipe and for none: (3) is the
fact in what was restored; (4) does the model answer the question correctly; (5) how good is the answer, 1 to 5; (6) all
of it by kind of fact; (7) pairwise tests: paired bootstrap and Wilcoxon's signed-rank test.

With the data set's own questions (`--questions data`) no facts are extracted, and without a judge (`--no-judge`) only
the word-for-word measure is left: does the answer contain the words of the right one?
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
import numpy as np

from lantern_proxy.bench import judged_prompts as prompts
from lantern_proxy.bench import language_model
from lantern_proxy.bench.judged_prompts import Fact
from lantern_proxy.bench.metrics import interval, tested
from lantern_proxy.bench.pipelines import Advance
from lantern_proxy.bench.restore import AT, DATA, DENSE, KEEP, opened, progress
from lantern_proxy.bench.restore_chats import SHAPES, ChatMessage, Compacted, Shape, chats, compacted
from lantern_proxy.bench.restore_recipes import NOTHING_RESTORED, RECIPES, ArchivedChats, Recipe
from lantern_proxy.bench.restore_score import answered
from lantern_proxy.config import Config
from lantern_proxy.embed import available

Arm = Recipe | Literal["none"]
EXCERPT_CHARS, FACTS_AN_EXCERPT = 6_000, 5
T = TypeVar("T")
Measure = Literal["contained", "recovered", "accuracy", "quality"]
MEASURES: tuple[Measure, ...] = ("contained", "recovered", "accuracy", "quality")
_RECIPES = [recipe for recipe in RECIPES if recipe != "trained"]


@dataclass(frozen=True, slots=True)
class Graded:
    """One fact with one recipe. chars: of what was restored; values: each available measure.

    If a judge gives no verdict, or is not asked, only `contained` is available.
    """

    fact: Fact
    chars: int
    values: Mapping[Measure, float]


@dataclass(frozen=True, slots=True)
class Trial:
    """What all facts have in common. budgets: characters of the block at the compaction, and of the question block"""

    archived: ArchivedChats
    answering: language_model.Model
    judge: language_model.Model | None
    budgets: tuple[int, int]
    threads: int


def facts(cut: Compacted, model: language_model.Model, most: int) -> tuple[list[Fact], int]:
    """At most `most` facts of what a chat lost, evenly spaced, and how many the model invented or garbled."""
    windows = excerpts(cut.lost)
    chosen = evenly_spaced(windows, -(-most // FACTS_AN_EXCERPT))
    found: list[Fact] = []
    dropped = 0
    system = prompts.EXTRACT.format(most=FACTS_AN_EXCERPT, kinds=", ".join(prompts.KINDS))
    for excerpt in chosen:
        kept, rejected = prompts.read_facts(model(system, prompts.excerpt_prompt(excerpt)), excerpt)
        found, dropped = found + kept, dropped + rejected
    return found[:most], dropped


def excerpts(messages: Sequence[ChatMessage]) -> list[list[ChatMessage]]:
    """Consecutive messages, about EXCERPT_CHARS each."""
    windows: list[list[ChatMessage]] = []
    room = 0
    for each in messages:
        if room <= 0:
            windows.append([])
            room = EXCERPT_CHARS
        windows[-1].append(each)
        room -= len(each.text)
    return windows


def dataset_facts(cut: Compacted, most: int) -> list[Fact]:
    """At most `most` of the data set's own questions whose evidence is lost and whose answer is known."""
    asked = evenly_spaced([probe for probe in cut.probes if probe.answer], most)
    return [Fact(f"{probe.text} {probe.answer}", probe.kind, probe.text, probe.answer) for probe in asked]


def evenly_spaced(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of them, evenly spaced."""
    return [items[i * len(items) // most] for i in range(most)] if len(items) > most else list(items)


def grade_fact(trial: Trial, cut: Compacted, fact: Fact, arm: Arm) -> Graded:
    """One fact with one recipe: is it restored, is the question answered?"""
    restored = restored_text(trial, cut, fact.question, arm)
    history = "\n".join((cut.summary, *(f"{message.role}: {message.text}" for message in cut.kept)))
    answer = trial.answering(prompts.ANSWER, prompts.answer_prompt(f"{restored}\n\n{history}".strip(), fact.question))
    values: dict[Measure, float] = {"contained": float(answered([answer], fact.answer))}
    if trial.judge is not None:
        with suppress(ValueError):  # no verdict
            values |= judge_answer(trial.judge, fact, restored, answer)
    return Graded(fact, len(restored), values)


def judge_answer(judge: language_model.Model, fact: Fact, restored: str, answer: str) -> dict[Measure, float]:
    """The judge's measures. Raises ValueError without a verdict."""
    recovered = bool(restored) and prompts.read_recovered(
        judge(prompts.RECOVERED, prompts.recovered_prompt(fact, restored))
    )
    correct, quality = prompts.read_grade(judge(prompts.JUDGE, prompts.grade_prompt(fact, answer)))
    return {"recovered": float(recovered), "accuracy": float(correct), "quality": float(quality)}


def restored_text(trial: Trial, cut: Compacted, question: str, arm: Arm) -> str:
    """What a recipe adds to the request: a block at the compaction, and one at the question for what is still
    missing."""
    if arm == "none":
        return ""
    first = trial.archived.restored(cut, arm, "", trial.budgets[0])
    second = (
        trial.archived.restored(cut, arm, question, trial.budgets[1], shown=first)
        if trial.budgets[1]
        else NOTHING_RESTORED
    )
    return "\n\n".join(block.text for block in (first, second) if block.text)


def grade_all(trial: Trial, asked: Sequence[tuple[Compacted, Fact]], arm: Arm, advance: Advance) -> list[Graded]:
    """In the order of `asked`."""
    with ThreadPoolExecutor(trial.threads) as pool:
        tasks = [pool.submit(grade_fact, trial, cut, fact, arm) for cut, fact in asked]
        rows = []
        try:
            for task in tasks:
                rows.append(task.result())
                advance(1)
        finally:
            for task in tasks:
                task.cancel()
    return rows


def questions(
    cuts: Sequence[Compacted], most: int, extracting: language_model.Model | None
) -> tuple[list[tuple[Compacted, Fact]], int]:
    """Each chat's facts, and how many were left out; the data set's own without an extracting model. Raises
    ValueError."""
    asked: list[tuple[Compacted, Fact]] = []
    dropped = 0
    if extracting is None:
        asked = [(cut, fact) for cut in cuts for fact in dataset_facts(cut, most)]
        if not asked:
            raise ValueError("--data has no question whose answer is known and whose evidence is lost")
        return asked, dropped
    with progress("extracting facts", len(cuts)) as advance:
        for cut in cuts:
            found, rejected = facts(cut, extracting, most)
            asked, dropped = asked + [(cut, fact) for fact in found], dropped + rejected
            advance(1)
    if not asked:
        raise ValueError(f"{extracting.name} listed no fact that stands in the chats; try another model")
    return asked, dropped


def run(
    trial: Trial,
    cuts: Sequence[Compacted],
    recipes: Sequence[Recipe],
    most_facts: int,
    extracting: language_model.Model | None,
) -> dict[str, Any]:
    """All experiments. extracting: None for the data set's own questions. Raises NoAnswerError, and ValueError without
    a question."""
    asked, dropped = questions(cuts, most_facts, extracting)
    arms: list[Arm] = ["none", *dict.fromkeys(recipes)]
    rows: dict[Arm, list[Graded]] = {}
    with progress("asking and judging", len(arms) * len(asked)) as advance:
        for arm in arms:
            rows[arm] = grade_all(trial, asked, arm, advance)
    result: dict[str, Any] = {"facts": len(asked), "facts_dropped": dropped, "recipes": {}}
    first = arms[1] if len(arms) > 1 else arms[0]
    for arm in arms:
        result["recipes"][arm] = summary(rows[arm], judged=trial.judge is not None)
        if arm != first:
            result["recipes"][arm][f"{first}_against_it"] = against(rows[first], rows[arm])
    models = dict.fromkeys(each for each in (trial.answering, trial.judge, extracting) if each is not None)
    return result | {"usage": {each.name: each.usage.as_json() for each in models}}


def summary(rows: Sequence[Graded], *, judged: bool) -> dict[str, Any]:
    """The figures of one recipe, over all facts and by kind. n: facts; unjudged: those without a verdict"""
    unjudged = sum("accuracy" not in row.values for row in rows) if judged else 0
    figures: dict[str, Any] = {"n": len(rows), "unjudged": unjudged}
    figures["chars"] = round(float(np.mean([row.chars for row in rows])))
    for measure in MEASURES:
        if values := [row.values[measure] for row in rows if measure in row.values]:
            figures[measure] = round(float(np.mean(values)), 4)
            figures[f"{measure}_ci"] = [round(bound, 4) for bound in interval(np.array(values))]
    figures["kinds"] = {}
    for kind in sorted({row.fact.kind for row in rows}):
        own = [row.values for row in rows if row.fact.kind == kind]
        figures["kinds"][kind] = {"n": len(own)} | {
            measure: round(float(np.mean(values)), 4)
            for measure in MEASURES
            if (values := [each[measure] for each in own if measure in each])
        }
    return figures


def against(ours: Sequence[Graded], theirs: Sequence[Graded]) -> dict[str, Any]:
    """Our values minus theirs, per fact, where both have the measure."""
    differences: dict[str, Any] = {}
    for measure in MEASURES:
        both = [
            (a.values[measure], b.values[measure])
            for a, b in zip(ours, theirs, strict=True)
            if measure in a.values and measure in b.values
        ]
        if not both:
            continue
        a, b = (np.array([pair[side] for pair in both]) for side in (0, 1))
        differences[measure] = {"n": len(both)} | tested(a, b)
    return differences


@click.command("judged")
@DATA
@language_model.options(required=True)
@click.option("--judge-model", default="", help="Model that extracts and judges. Default: --model.")
@click.option(
    "--recipe", "recipes", type=click.Choice(_RECIPES), multiple=True, default=("default", "lantern", "memgpt"),
    show_default=True, help="What puts back; may be given again. The others are tested against the first.",
)  # fmt: skip
@click.option(
    "--questions", "source", type=click.Choice(["model", "data"]), default="model", show_default=True,
    help="Who says what to ask: a model that lists facts, or the data set.",
)  # fmt: skip
@click.option(
    "--judge/--no-judge", "judging", default=True, show_default=True,
    help="Without: a third of the calls, and only whether the answer holds the right one's words.",
)  # fmt: skip
@click.option("--facts", "most_facts", default=30, show_default=True, type=click.IntRange(1), help="Of each chat.")
@click.option(
    "--budget", default=6_000, show_default=True, type=click.IntRange(0), help="Characters at the compaction."
)
@click.option(
    "--question-budget", default=2_000, show_default=True, type=click.IntRange(0),
    help="Characters beside the question; 0: none, as in the paper.",
)  # fmt: skip
@AT
@click.option(
    "--shape", type=click.Choice(SHAPES), default="abstractive", show_default=True, help="What stands for it."
)
@DENSE
@KEEP
@click.option("--threads", default=4, show_default=True, type=click.IntRange(1, 64), help="Calls at a time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    data: Path, model: language_model.Model, judge_model: str, recipes: tuple[Recipe, ...],
    source: Literal["model", "data"], judging: bool, most_facts: int, budget: int, question_budget: int, at: str,
    shape: Shape, dense: bool | None, keep: Path | None, threads: int, as_json: bool,
) -> None:  # fmt: skip
    """Let a model answer questions for what was lost, and judge it.

    With and without what is put back. Costs three calls a fact and recipe. Stop it whenever you like: what is
    answered is kept, and costs nothing again.

    \b
    Example: lantern bench judged --data locomo10.json --model gpt-4o-mini --model-url https://api.openai.com/v1
    """
    room = (budget, question_budget)
    try:
        cuts = [compacted(chat, int(at), shape) for chat in chats(data)]
        with ExitStack() as stack:
            answering = stack.enter_context(model)
            judge = stack.enter_context(replace(model, name=judge_model)) if judge_model else answering
            dense = available() if dense is None else dense
            archived = stack.enter_context(opened(cuts, Config(), keep, int(at), dense=dense, model=answering))
            trial = Trial(archived, answering, judge if judging else None, room, threads)
            result = run(trial, cuts, recipes, most_facts, judge if source == "model" else None)
    except (ValueError, language_model.NoAnswerError) as error:
        raise click.ClickException(str(error)) from None
    about = {"model": model.name, "judge": judge.name if judging else None, "questions": source}
    result = about | {"at": int(at), "shape": shape, "room": room} | result
    click.echo(json.dumps(result) if as_json else table(result))


def table(result: dict[str, Any]) -> str:
    """For people: one line per recipe, with its costs below."""
    lines = [f"{result['facts']} facts, {result['facts_dropped']} more were not in the chats and are left out", ""]
    lines.append(f"{'recipe':10}" + "".join(f" {measure:>9}" for measure in MEASURES) + f" {'chars':>7}")
    for name, row in result["recipes"].items():
        figures = (f"{row[measure]:9.3f}" if measure in row else f"{'-':>9}" for measure in MEASURES)
        lines.append(f"{name:10} {' '.join(figures)} {row['chars']:7}")
    for name, used in result["usage"].items():
        cost = "price unknown" if used["usd"] is None else f"${used['usd']:.4f}"
        lines.append(f"\n{name}: {used['calls']} calls ({used['from_cache']} answers kept), "
                     f"{used['tokens']['read']} + {used['tokens']['written']} tokens, {cost}")  # fmt: skip
    return "\n".join(lines)
