"""`lantern train reranker`: the light reranker, from labelled conversations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lantern_proxy.cli_frame import Settings, settled
from lantern_proxy.cli_text import counting

if TYPE_CHECKING:
    from lantern_proxy.bench.datasets import Conversation

_FOLDS = 5

conversations = click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    required=True,
    help="Labelled conversations as JSON lines, LoCoMo's or LongMemEval's JSON file, or BEAM's folder; repeatable.",
)


@click.command("reranker")
@settled
@conversations
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File for the model; none: only measure.")
def reranker(settings: Settings, data: Sequence[Path], out: Path | None) -> None:
    """Train the light reranker and tell what it gains over the untrained ranking, on conversations it has not seen.

    It reorders the best 100 passages of a question. Use it with `rerank.light: FILE`.

    \b
    Example: lantern train reranker --data labelled.jsonl --out reranker.npz
    """
    import numpy as np

    from lantern_proxy.bench import light
    from lantern_proxy.bench.pipelines_product import Default
    from lantern_proxy.bench.resources import Resources
    from lantern_proxy.rerank_light import save

    try:
        found = [conversation for path in data for conversation in read(path)]
        if len(found) < 2:
            raise ValueError("one conversation is not enough: what was learned is measured on others; give two or more")
        with Resources(settings.load()) as resources:
            default = Default(resources)
            asked = sum(len(c.questions) for c in found)
            with counting("ranking the candidates", asked, quiet=settings.as_json) as advance:
                parts = [light.collect(default, c, advance) for c in found]
        runs = list(light.cross_validated(parts, min(_FOLDS, len(parts))))
        told = light.compared(np.concatenate([b for b, _ in runs]), np.concatenate([a for _, a in runs]))
        row: dict[str, Any] = {"conversations": len(parts), "n": sum(len(p.groups) for p in parts), **told}
        row["helps"] = _helps(told)
        if out is not None:
            save(light.grow(parts), out, row)
            row["out"] = str(out)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    settings.tell(row) if settings.as_json else click.echo(_text(row))


def _helps(told: Mapping[str, Mapping[str, Any]]) -> bool:
    """Is the first good hit higher, by more than chance?"""
    return bool(told["mrr"]["ci"][0] > 0)


def _text(row: Mapping[str, Any]) -> str:
    lines = [f"{row['n']} questions of {row['conversations']} conversations, each measured unseen:"]
    for name in ("mrr", "hit@1", "recall@10"):
        found = row[name]
        lines.append(f"  {name:<10} {found['before']:.3f} -> {found['after']:.3f}  (p {found['p']:.3f})")
    if not row["helps"]:
        lines.append("It does not help on conversations it has not seen: leave rerank.light empty, or label more.")
    elif "out" in row:
        lines.append(f"Written to {row['out']}. Use it with `rerank: {{light: {row['out']}}}`.")
    return "\n".join(lines)


def read(path: Path) -> "list[Conversation]":
    """Whatever of the known collections `path` is. Raises ValueError."""
    from lantern_proxy.bench import datasets
    from lantern_proxy.bench.labelled import labelled

    if path.is_dir():
        return datasets.beam(path)
    if path.suffix == ".jsonl":
        return labelled(path)
    if '"haystack_sessions"' in path.read_text("utf-8", "replace")[:1_000_000]:
        return datasets.longmemeval(path)
    return datasets.locomo(path)
