"""`lantern train`: models that Lantern learns from labelled conversations of yours. None is needed to serve."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lantern_proxy.cli.frame import NEW_FILE, Number, Place, Settings, with_config
from lantern_proxy.cli.render import counting, counting_to

if TYPE_CHECKING:
    from lantern_proxy.bench.datasets import Conversation
    from lantern_proxy.bench.pipelines_light import TrainingData
    from lantern_proxy.rerank.train import Example, Outcome
    from lantern_proxy.rerank.train import Settings as Training

_FORMATS = "labelled conversations as JSON lines (.jsonl), LoCoMo's or LongMemEval's JSON file, or BEAM's folder"

conversations = click.option(
    "--data",
    type=Place(exists=True),
    multiple=True,
    required=True,
    help=f"{_FORMATS[0].upper()}{_FORMATS[1:]}; repeatable.",
)


@click.command("reranker")
@with_config
@conversations
@click.option("--out", type=NEW_FILE, help="File for the model; none: only measure.")
def reranker(settings: Settings, data: Sequence[Path], out: Path | None) -> None:
    """Train the light reranker and tell what it gains.

    That is over the untrained ranking, on conversations it has not seen.

    It reorders the best 100 passages of a question. Use it with `rerank.light: FILE`. It is learned with the vectors
    that rank these questions better: MiniLM's as published, or with what Lantern learned on top of it (embed.adapted).

    \b
    Example: lantern train reranker --data labelled.jsonl --out reranker.npz
    """
    from lantern_proxy.bench import pipelines_light as light
    from lantern_proxy.bench.resources import Resources
    from lantern_proxy.rerank.light import save

    try:
        known = read_all(data)
        if len(known) < 2:
            raise ValueError("one conversation is not enough: what was learned is measured on others; give two or more")
        with Resources(settings.load()) as resources:
            total = sum(len(c.questions) for c in known) * len(light.embedders(resources))
            with counting("ranking the candidates", total, quiet=settings.as_json) as advance:
                training = light.training_data(resources, known, advance, without=frozenset())
        chosen = training.best(training.all_parts)
        parts = chosen.parts
        if len(parts) < 2:
            raise ValueError(f"{len(parts)} of {len(known)} conversations have questions to learn from; two must")
        comparison = _cross_validated(training, quiet=settings.as_json)
        row: dict[str, Any] = {"conversations": len(parts), "n": sum(len(p.groups) for p in parts), **comparison}
        row |= {"helps": _helps(comparison), "adapted": chosen.embed.adapted}
        row["reindex"] = chosen.embed.adapted != resources.config.embed.adapted
        if out is not None:
            save(chosen.train(training.all_parts), out, row)
            row["out"] = str(out)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    settings.print_json(row) if settings.as_json else click.echo(_summary(row))


def _cross_validated(data: "TrainingData", *, quiet: bool) -> dict[str, dict[str, Any]]:
    """Each measure before and after, on conversations that the model of their fold has not seen."""
    import numpy as np

    from lantern_proxy.bench import pipelines_light as light

    runs = []
    with counting("learning", len(data.all_parts), quiet=quiet) as advance:
        for run in light.cross_validated(data):
            runs.append(run)
            advance(1)
    return light.compared(np.concatenate([b for b, _ in runs]), np.concatenate([a for _, a in runs]))


def _helps(comparison: Mapping[str, Mapping[str, Any]]) -> bool:
    """Is the first good hit ranked higher, by more than chance?"""
    return bool(comparison["mrr"]["ci"][0] > 0)


def _summary(row: Mapping[str, Any]) -> str:
    lines = [f"{row['n']} questions of {row['conversations']} conversations, each measured unseen:"]
    for name in ("mrr", "hit@1", "recall@10"):
        found = row[name]
        lines.append(f"  {name:<10} {found['before']:.3f} -> {found['after']:.3f}  (p {found['p']:.4f})")
    if not row["helps"]:
        lines.append("It does not help on conversations it has not seen: leave rerank.light empty, or label more.")
    elif "out" in row:
        lines += [f"Written to {row['out']}. Use it with", f"  rerank: {{light: {row['out']}}}"]
        if row["reindex"]:
            lines += ["  embed: {adapted: true}", "and, since that means other vectors, `lantern reindex --vectors`."]
    return "\n".join(lines)


def read_all(paths: Sequence[Path]) -> "list[Conversation]":
    """The conversations of all files. ValueError if one occurs twice, under any name: it would be in both training and
    test data."""
    found = [conversation for path in paths for conversation in read(path)]
    names: dict[object, str] = {}
    for each in found:
        if each.candidates in names:
            first = names[each.candidates]
            also = "" if first == each.id else f", also as {first}"
            raise ValueError(
                f"conversation {each.id} is twice in --data{also}; give each once, with all its questions, since some "
                "are measured on"
            )
        if each.candidates:
            names[each.candidates] = each.id
    return found


def read(path: Path) -> "list[Conversation]":
    """The known collection at `path`. DataError says where reading fails, and which formats are supported."""
    from lantern_proxy.bench.datasets import DataError

    try:
        return _read(path)
    except DataError as error:
        raise DataError(f"{error}. --data takes {_FORMATS}") from None


def _read(path: Path) -> "list[Conversation]":
    from lantern_proxy.bench import datasets

    if path.is_dir():
        return datasets.beam(path)
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return datasets.labelled(path)
    begins = path.read_text("utf-8", "replace")[:1_000_000]
    if '"haystack_sessions"' in begins:
        return datasets.longmemeval(path)
    readers = {"locomo": datasets.locomo, "beam": datasets.beam}
    if kind := datasets.published(path):
        return readers[kind](path)
    raise datasets.DataError(f"{path}: is JSON that begins with {begins[:40]!r}, as no known collection does")


@click.command("evidence-reranker")
@with_config
@conversations
@click.option("--out", type=Place(file_okay=False, writable=True), required=True, help="Folder for the model.")
@click.option(
    "--base",
    default="sentence-transformers/all-MiniLM-L6-v2",
    show_default=True,
    help="Model to start from: a folder, or a name on the hub.",
)
@click.option(
    "--layers",
    type=click.IntRange(0, 48),
    default=3,
    show_default=True,
    help="Layers of the base to keep; 0: all. Fewer are faster.",
)
@click.option(
    "--tokens",
    type=click.IntRange(24, 256),
    default=64,
    show_default=True,
    help="Most to read of a question and a memory together; fewer are faster, a long memory is cut.",
)
@click.option(
    "--rate",
    type=Number(0, 1, min_open=True),
    default=2e-5,
    show_default=True,
    help="Learning rate; the default is for a base that scores pairs already, 1e-4 suits MiniLM, which starts anew.",
)
@click.option(
    "--held-out",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Conversations to measure on; the model never sees them.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="Of the split, the order and the model's head.")
@click.option(
    "--teacher", help="Cross-encoder whose scores it learns, too: a folder, or a name on the hub. None: labels only."
)
@click.option(
    "--teacher-weight",
    type=Number(0, min_open=True),
    default=0.5,
    show_default=True,
    help="Weight of what the teacher says beside what the labels say.",
)
@click.option("--arms/--no-arms", default=True, show_default=True, help="Also measure with what it reads destroyed.")
def evidence_reranker(
    settings: Settings, data: Sequence[Path], out: Path, base: str, layers: int, tokens: int, rate: float,
    held_out: int, seed: int, teacher: str | None, teacher_weight: float, arms: bool,
) -> None:  # fmt: skip
    """Train the evidence reranker and show whether it reads. It is that of ConvMemory v2.

    It reorders the ten best candidates of a question and nothing else. Use it with `rerank.evidence: FOLDER`.

    \b
    Example: lantern train evidence-reranker --data locomo10.json --out models/evidence
    """
    from lantern_proxy.bench import pipelines_evidence as evidence
    from lantern_proxy.bench.datasets import DataError
    from lantern_proxy.rerank.train import (
        ARMS,
        ablated,
        evaluate,
        refuse_unknown,
        scorer,
        with_teacher_scores,
    )
    from lantern_proxy.rerank.train import Settings as Training

    try:
        train_set, test_set = _split(read_all(data), held_out, seed)
        out.mkdir(parents=True, exist_ok=True)  # and the models: before hours are spent
        refuse_unknown(evidence.base_of(base))
        if teacher:
            refuse_unknown(teacher, teacher=True)
        train_examples, test_examples, golds = _examples(settings, train_set, test_set)
        if teacher:
            with counting_to("asking the teacher", quiet=settings.as_json) as progress:
                train_examples = with_teacher_scores(train_examples, teacher, progress)
        how = Training(
            evidence.base_of(base), layers=layers, tokens=tokens, rate=rate, seed=seed, teacher_weight=teacher_weight
        )
        model = _train(train_examples, how, out, quiet=settings.as_json)
        for arm in ARMS if arms else ARMS[:1]:
            found = evaluate(ablated(test_examples, arm, seed), golds, scorer(model), evidence.prior_of(model))
            row = {"arm": arm, "n": len(test_examples), "held_out": [c.id for c in test_set]} | _gains(found)
            settings.print_json(row) if settings.as_json else click.echo(_line(row))
    except (DataError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    if not settings.as_json:
        click.echo(f"written to {out}; to use it, set rerank.evidence: {out}")


def _examples(
    settings: Settings, train_set: "list[Conversation]", test_set: "list[Conversation]"
) -> "tuple[list[Example], list[Example], list[int]]":
    """(training examples, test examples, number of golds of each test question), from the ranking as configured."""
    from lantern_proxy.bench import pipelines_evidence as evidence
    from lantern_proxy.bench.pipelines_product import Default
    from lantern_proxy.bench.resources import Resources

    with Resources(settings.load()) as resources:
        first = Default(resources)
        total = sum(len(c.questions) for c in train_set + test_set)
        with counting("ranking the candidates", total, quiet=settings.as_json) as advance:
            train_examples, _ = evidence.examples(train_set, first, advance)
            test_examples, golds = evidence.examples(test_set, first, advance)
    return train_examples, test_examples, golds


def _train(examples: "Sequence[Example]", how: "Training", out: Path, *, quiet: bool) -> Any:
    """The trained model, saved in `out`; so is what was learned when ctrl-C stops it, with a ClickException."""
    from lantern_proxy.rerank.train import Stopped, train

    try:
        with counting_to("training", quiet=quiet) as progress:
            model = train(examples, how, progress)
    except Stopped as stopped:
        stopped.model.save_pretrained(str(out))
        raise click.ClickException(f"stopped; what was learned by then is in {out}, and was not measured") from None
    model.save_pretrained(str(out))
    return model


COMMANDS: Mapping[str, click.Command] = {"evidence-reranker": evidence_reranker, "reranker": reranker}


def _split(
    all_of_them: "list[Conversation]", held_out: int, seed: int
) -> "tuple[list[Conversation], list[Conversation]]":
    """(training, test): whole conversations, so that no text is in both. Raises ValueError."""
    import random

    if len(all_of_them) <= held_out:
        raise ValueError(
            f"--held-out is {held_out} of {len(all_of_them)} conversations; none would be left to learn from"
        )
    mixed = sorted(all_of_them, key=lambda c: c.id)
    random.Random(seed).shuffle(mixed)
    if not any(each.questions for each in mixed[:held_out]):
        raise ValueError(f"{mixed[0].id}, which is held out, has no question; give another --seed, or more --held-out")
    return mixed[held_out:], mixed[:held_out]


def _gains(found: "Outcome") -> dict[str, Any]:
    """Metric -> its mean before and after the reranker, and the confidence interval of the difference."""
    import numpy as np

    from lantern_proxy.bench.pipelines_light import compared

    before, after = zip(found.mrr, found.hit_at_1, found.recall_at_10, strict=True)
    return compared(np.column_stack(before), np.column_stack(after))


def _line(row: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {row[name]['before']:.3f} -> {row[name]['after']:.3f} (p {row[name]['p']:.4f})"
        for name in ("mrr", "hit@1", "recall@10")
    ]
    return f"{row['arm']:<12} {row['n']} questions: " + ", ".join(parts)
