"""Benchmarks of retrieval (locomo, beam, longmemeval, ir): Lantern compared with its peers, on data that you fetch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy import tune, tune_label
from lantern_proxy.bench import datasets, judge, metrics
from lantern_proxy.bench import plot as plots
from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.bench.pipelines import FACTORIES, Pipeline, Trainable, pipeline
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.cli.frame import FILE, FOLDER, NewFile, Place, Settings, with_config
from lantern_proxy.cli.render import counting
from lantern_proxy.restore.routes import questions
from lantern_proxy.route_soft import fit
from lantern_proxy.route_types import TYPES, QueryType, query_type


class Choice(Struct, frozen=True):
    """The values of the options that all of these commands share."""

    pipeline: Sequence[str]
    against: str | None
    without: Sequence[str]
    plot: Path | None


class Bench(Struct, frozen=True):
    """One collection: how to read it and what to measure."""

    name: str
    read: Callable[[Path], list[Conversation]]
    measure: judge.Measure
    shown: Sequence[str]
    """Metrics in the table and the plot."""


LOCOMO = Bench(
    "locomo",
    datasets.locomo,
    judge.locomo,
    ("turn.mrr", "turn.hit@1", "turn.recall@10", "session.hit@1", "session.hit@5", "session.hit@10", "session.ra@5"),
)
BEAM = Bench("beam", datasets.beam, judge.beam, ("recall@10", "ndcg@10"))
LONGMEMEVAL = Bench("longmemeval", datasets.longmemeval, judge.longmemeval, ("recall_all@5", "ndcg@5"))
IR = Bench("ir", datasets.ir, judge.ir, ("ndcg@10",))


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that all of these commands share."""
    known = click.Choice(list(FACTORIES))
    options = [
        click.option("--pipeline", type=known, multiple=True, help="What ranks; may be given again. Default: default."),
        click.option("--against", type=known, help="Compare each pipeline with this one: paired bootstrap."),
        click.option("--without", multiple=True, help="Leave this signal out of the pipelines; may be given again."),
        click.option("--plot", type=NewFile(may_exist=True), help="Write bars there, as SVG."),
        with_config,
    ]

    @wraps(command)
    def gathered(
        settings: Settings,
        pipeline: Sequence[str],
        against: str | None,
        without: Sequence[str],
        plot: Path | None,
        **own: Any,
    ) -> Any:
        return command(settings, choice=Choice(pipeline, against, without, plot), **own)

    for option in options:
        gathered = option(gathered)
    return gathered


@click.command()
@shared_options
@click.option("--data", type=FILE, required=True, help="LoCoMo's JSON file.")
@click.option(
    "--protocol",
    type=click.Choice(["zero-shot", "convmemory"]),
    default="zero-shot",
    show_default=True,
    help="All questions at once; or the mean of five dev/test splits, a pipeline that learns being trained on dev.",
)
def locomo(settings: Settings, data: Path, protocol: str, choice: Choice) -> None:
    """LoCoMo: find the turns and sessions that hold the evidence.

    \b
    Example: lantern bench locomo --data locomo10.json --pipeline default --against bm25
    """
    run(settings, LOCOMO, data, choice, split=protocol == "convmemory")


@click.command()
@shared_options
@click.option("--data", type=FOLDER, required=True, help="Folder of BEAM's chats.")
def beam(settings: Settings, data: Path, choice: Choice) -> None:
    """BEAM: find the messages that a question is about. By category.

    \b
    Example: lantern bench beam --data beam/100K --json
    """
    run(settings, BEAM, data, choice)


@click.command()
@shared_options
@click.option("--data", type=FILE, required=True, help="longmemeval_s.json.")
def longmemeval(settings: Settings, data: Path, choice: Choice) -> None:
    """LongMemEval: find the sessions that answer, by question type.

    \b
    Example: lantern bench longmemeval --data longmemeval_s.json --pipeline selroute
    """
    run(settings, LONGMEMEVAL, data, choice)


@click.command()
@shared_options
@click.option("--data", type=FOLDER, required=True, help="A folder in BEIR's layout.")
def ir(settings: Settings, data: Path, choice: Choice) -> None:
    """A classic test collection: nDCG@10, exponential gain.

    \b
    Example: lantern bench ir --data scifact --pipeline bm25
    """
    run(settings, IR, data, choice)


@click.command()
@with_config
@click.option("--split", type=click.Choice(["held_out", "dev"]), default="held_out", show_default=True, help="Which.")
def routes(settings: Settings, split: str) -> None:
    """How often the type of a question is told right. The questions are our own; the rules were not written on them.

    \b
    Example: lantern bench routes
    """
    known = questions(split)
    dev_questions = questions("dev")
    learned = fit([text for text, _ in dev_questions], [name for _, name in dev_questions])
    for router, classify in (("rules", query_type), ("learned", lambda text: _most_likely(learned.posterior(text)))):
        matrix = {str(name): dict.fromkeys(map(str, TYPES), 0) for name in TYPES}
        for text, name in known:
            matrix[name][classify(text)] += 1
        right = sum(matrix[name][name] for name in TYPES) / len(known)
        if settings.as_json:
            settings.print_json(
                {"router": router, "split": split, "n": len(known), "right": round(right, 4), "told": matrix}
            )
        else:
            click.echo(f"{router}: {right:.1%} of {len(known)} right\n\n{confusion(matrix)}\n")


@click.command()
@with_config
@click.option("--data", type=Place(), required=True, help="LoCoMo's JSON file, or BEAM's folder.")
def cascade(settings: Settings, data: Path) -> None:
    """What skipping the dense channel saves and costs, at each tau. All else is as configured.

    \b
    Example: lantern bench cascade --data locomo10.json
    """
    bench = BEAM if data.is_dir() else LOCOMO
    config = settings.load()
    try:
        conversations = bench.read(data)
        asked = sum(len(each.questions) for each in conversations)
        with (
            Resources(config) as resources,
            counting("ranking for each question", asked, quiet=settings.as_json) as advance,
        ):
            labelled = Default(resources).labelled(conversations, advance)
        if not labelled:
            raise ValueError(f"{data}: no question has words and evidence among the candidates; nothing to measure")
    except (datasets.DataError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for tau in tune.TAUS:
        found = tune.judge(labelled, replace(tune_label.start(config), tau=tau, taus={}))
        difference, low, high, p = metrics.paired(found.quality, found.full)
        row = {"tau": tau, "n": len(labelled), "skipped": round(float(found.skipped.mean()), 4)}
        result = row | _difference(difference, low, high, p)
        if settings.as_json:
            settings.print_json(result)
        else:
            click.echo(
                f"tau {tau:.2f}: skipped {row['skipped']:.1%}, quality {difference:+.4f} ({low:+.4f} to {high:+.4f})"
            )


def _most_likely(shares: Mapping[str, float]) -> QueryType:
    return max(TYPES, key=lambda name: shares[name])


def confusion(matrix: Mapping[str, Mapping[str, int]]) -> str:
    """Markdown: one row per true type, one column per predicted type."""
    short = {name: name.replace("single-session-", "") for name in matrix}
    lines = ["| is / told | " + " | ".join(short.values()) + " |", "| --- |" + " ---: |" * len(short)]
    for name, row in matrix.items():
        lines.append(f"| {short[name]} | " + " | ".join(str(n or "") for n in row.values()) + " |")
    return "\n".join(lines)


COMMANDS: Mapping[str, click.Command] = {
    each.name or "": each for each in (locomo, beam, longmemeval, ir, routes, cascade)
}


def run(settings: Settings, bench: Bench, data: Path, choice: Choice, *, split: bool = False) -> None:
    """Measure each pipeline and print its figures, one after the other."""
    rows: list[dict[str, Any]] = []
    try:
        conversations = bench.read(data)
        with Resources(settings.load()) as resources:
            for row in _rows(settings, bench, conversations, resources, choice, split=split):
                rows.append(row)
                settings.print_json(row) if settings.as_json else print_row(row)
        if not settings.as_json and len(rows) > 1:
            click.echo(f"\n{plots.table(rows, bench.shown)}")
        if choice.plot is not None:
            choice.plot.write_text(plots.bars(rows, bench.shown), "utf-8")
    except (datasets.DataError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def _rows(
    settings: Settings,
    bench: Bench,
    conversations: list[Conversation],
    resources: Resources,
    choice: Choice,
    *,
    split: bool,
) -> Iterator[dict[str, Any]]:
    """The figures of each pipeline, with its difference to `choice.against`."""
    names, against = dict.fromkeys(choice.pipeline or ["default"]), choice.against
    pipelines = {name: pipeline(name, resources, frozenset(choice.without)) for name in names}
    other = pipeline(against, resources) if against else None
    other_report = _report(settings, bench, conversations, f"against {against}", other, split) if other else None
    for name, each in pipelines.items():
        if isinstance(each, Trainable) and not split:
            click.echo(
                f"{name}: only `locomo --protocol convmemory` trains; this is the default, as configured", err=True
            )
        report = _report(settings, bench, conversations, name, each, split)
        row = as_json_row(bench.name, name, report) | ({"without": sorted(choice.without)} if choice.without else {})
        if other_report is not None:
            compared = judge.compare(report, other_report)
            row["against"] = {"pipeline": against} | nested(
                {metric: _difference(*values) for metric, values in compared.items()}
            )
        yield row


def _report(
    settings: Settings, bench: Bench, conversations: list[Conversation], name: str, made: Pipeline, split: bool
) -> judge.Report:
    total = judge.questions_of(made, conversations, split=split)
    with counting(f"{bench.name}: {name}", total, quiet=settings.as_json) as advance:
        if split:
            return judge.report(judge.by_splits(made, conversations, bench.measure, advance))
        return judge.report([list(judge.judge(made, conversations, bench.measure, advance))])


def _difference(difference: float, low: float, high: float, p: float) -> dict[str, float]:
    return {"difference": round(difference, 4), "low": round(low, 4), "high": round(high, 4), "p": round(p, 4)}


def as_json_row(bench: str, name: str, found: judge.Report) -> dict[str, Any]:
    """One pipeline's figures for JSON."""
    return {
        "bench": bench,
        "pipeline": name,
        **nested({metric: round(value, 4) for metric, value in found.means.items()}),
        "n": sum(found.n) if len(found.n) == 1 else list(found.n),
        "ms_per_query": round(found.ms_per_query, 3),
        "ci": nested({metric: [round(low, 4), round(high, 4)] for metric, (low, high) in found.intervals.items()}),
        "categories": {
            category: nested({metric: round(value, 4) for metric, value in values.items()})
            for category, values in found.categories.items()
        },
    }


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"turn.mrr": 1} -> {"turn": {"mrr": 1}}."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[leaf] = value
    return tree


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a tree by dotted name; other values are left out."""
    found: dict[str, float] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            found[prefix + name] = value
    return found


def print_row(row: Mapping[str, Any]) -> None:
    """Print one pipeline's figures for people."""
    ours = {k: v for k, v in row.items() if k not in ("ci", "categories", "against", "n", "ms_per_query")}
    figures = "  ".join(f"{name} {value:.3f}" for name, value in flat(ours).items())
    click.echo(f"{row['pipeline']}: {figures}  n {row['n']}  {row['ms_per_query']:.2f} ms")
    for metric, value in flat(row.get("against", {})).items():
        if metric.endswith((".difference", ".p")) or metric in ("difference", "p"):
            click.echo(f"    against {row['against']['pipeline']}: {metric} {value:+.4f}")
