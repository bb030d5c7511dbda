"""`lantern tune`: settings fitted to the questions asked here, and whether they are worth having."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from lantern_proxy.cli.frame import FILE, NEW_FILE, Settings, embedding, tenant_option, tenants, with_settings

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive
    from lantern_proxy.config import Config
    from lantern_proxy.embed import Embedder
    from lantern_proxy.tune import Labelled, Validated
    from lantern_proxy.tune_label import Label

_MOST_PLACES = 5
"""Most skipped questions that are listed."""


@click.command("tune")
@with_settings
@tenant_option
@click.option("--data", type=FILE, help="Labelled questions, one a line.")
@click.option("--output", type=NEW_FILE, help="Write the settings there.")
@click.option("--force", is_flag=True, help="Tell the settings even when they do not help.")
def command(settings: Settings, tenant: str | None, data: Path | None, output: Path | None, force: bool) -> None:
    """Fit fusion, weights and the cascade to ~50 labelled questions, and say whether that helps.

    A line of --data is {"question": "Which port?", "relevant": ["port 9443"]}: words that stand in the passages, or
    passage ids. What was called useful (`lantern feedback`) counts, too. Exits with 1 when nothing helps.

    \b
    Example: lantern tune --data labelled.jsonl --output retrieval.yaml
    """
    from lantern_proxy import tune, tune_label
    from lantern_proxy.cli.render import counting

    config = settings.load()
    if config.retrieval.router == "soft" and config.retrieval.types:
        click.echo("retrieval.router is soft: tune measures, before and after, with the router `rules`", err=True)
    try:
        with settings.open() as archive, embedding(config) as started:
            embedder = started if started and started.wait() else None
            if started and embedder is None:
                click.echo(f"the embedder is not there: {started.detail}", err=True)
            own = _only_tenant(archive, tenant)
            labels = [*(tune_label.read(data) if data else ()), *tune_label.of_feedback(archive, own)]
            found = _measured(archive, own, labels, config, embedder, quiet=settings.as_json)
        start = tune_label.start(config)
        with counting("fitting", tune.FOLDS + 1, quiet=settings.as_json) as advance:
            validated = tune.validate(found, start, advance)
            fitted = tune.fragment(tune.fit(found, start), config.retrieval.router)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    useful = validated.helps or force
    if output is not None and useful:
        output.write_text(_yaml(fitted), "utf-8")
    row = asdict(validated) | {"labels": len(labels), "helps": validated.helps, "settings": fitted if useful else None}
    row["vectors"] = vectors = any(map(tune.has_dense, found))
    settings.print_json(row) if settings.as_json else _show(
        validated, len(labels), fitted if useful else None, output, vectors
    )
    if not useful:
        raise SystemExit(1)


def _yaml(part: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(part, sort_keys=False))


def _only_tenant(archive: "Archive", tenant: str | None) -> str:
    """The tenant whose questions these are."""
    found = [each.tenant for each in tenants(archive, tenant)]
    if not found:
        raise ValueError(f"nothing is archived in {archive.path}; there is nothing to learn from")
    if len(found) > 1:
        raise ValueError(f"{archive.path} has {len(found)} tenants; choose one with --tenant (`lantern status`)")
    return found[0]


def _measured(
    archive: "Archive",
    tenant: str,
    labels: "list[Label]",
    config: "Config",
    embedder: "Embedder | None",
    *,
    quiet: bool,
) -> "list[Labelled]":
    from lantern_proxy import tune_label
    from lantern_proxy.cli.render import counting

    found, left = [], []
    with counting("ranking for each question", len(labels), quiet=quiet) as advance:
        for label, each in tune_label.measure(archive, tenant, labels, config, embedder):
            found.append(each) if each is not None else left.append(label.place)
            advance(1)
    if left:
        places = "; ".join(left[:_MOST_PLACES]) + (" ..." if len(left) > _MOST_PLACES else "")
        why = "no passage has what is relevant, or their question asks for nothing"
        click.echo(f"{len(left)} of {len(labels)} labelled questions are left out, since {why}: {places}", err=True)
    return found


def _show(
    validated: "Validated", labels: int, fitted: dict[str, Any] | None, output: Path | None, vectors: bool
) -> None:
    difference, low, high, p = validated.gain
    click.echo(
        f"{validated.n} of {labels} labelled questions, {validated.folds} folds; quality on unseen ones "
        f"{validated.before:.3f} -> {validated.after:.3f} ({difference:+.3f}, {low:+.3f} to {high:+.3f}, p {p:.4f})"
    )
    if vectors:
        click.echo(
            f"vectors are skipped for {validated.skipped:.0%} of them ({validated.skipped_before:.0%} before); "
            f"skipping changes quality by {validated.cost[0]:+.3f}"
        )
    else:
        click.echo("measured without vectors: retrieval.tau, and how much vectors count, stay as they are")
    if fitted is None:
        click.echo("this does not help: keep the settings, or label more questions (--force tells what was fitted)")
    elif output is not None:
        click.echo(f"written to {output}; put it into your config file")
    else:
        click.echo("put this into your config file:\n\n" + _yaml(fitted).rstrip())
