"""`lantern demo`: plays the chat and shows, side by side, what a client gets with and without Lantern."""

import json
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import httpx
from msgspec import to_builtins
from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from lantern_proxy import demo
from lantern_proxy.archive import Archive
from lantern_proxy.cli.frame import clean
from lantern_proxy.cli.render import console, short
from lantern_proxy.config import Config
from lantern_proxy.turn import Block, Placed

_DOCUMENTED: dict[str, str] = {name: (shape.__doc__ or "").partition("\n")[0] for name, shape in demo.SHAPES.items()}

_EXCERPT_CHARS = 140
"""Length of the excerpt of a restored passage around the answer."""


def run(config: Config, shape: str, words: str, *, dense: bool, keep: Path | None, as_json: bool) -> int:
    """Play one shape, or all of them, and show it. Returns 0 if every lost detail was restored and none leaked."""
    script = demo.chat()
    phrasing: demo.Words = "other" if words == "other" else "literal"
    all_back = True
    for each in demo.SHAPES if shape == "all" else [shape]:
        with _folder(keep, each) as folder:
            demo_config = demo.configured(config, folder, dense=dense)
            story = _play(script, each, phrasing, demo_config, quiet=as_json)
            with Archive(demo_config.archive.path, read_only=True, key=demo_config.archive.key()) as archive:
                blocks = [_blocks(archive, outcome.request) for outcome in story.outcomes]
        kept = demo_config.archive.path if keep else None
        if kept:
            _save_request(kept, script, each, story.outcomes[0].question)
        if as_json:
            _print_json(story, blocks)
        else:
            show(console(), story, blocks, kept, brief=shape == "all")
        all_back &= all(outcome.is_back for outcome in story.outcomes) and not story.stranger
    return 0 if all_back else 1


def _play(script: demo.Chat, shape: str, words: demo.Words, config: Config, *, quiet: bool) -> demo.Story:
    try:
        with _progress(quiet=quiet) as tell:
            return demo.play(script, shape, words, config, tell=tell)
    except (httpx.HTTPError, demo.DemoError) as error:
        raise click.ClickException(f"the demo broke off: {error}; `lantern doctor` tells what is missing") from error


@contextmanager
def _folder(keep: Path | None, shape: str) -> Iterator[Path]:
    """The folder for the archive of one play: a temporary one, or an empty one in `keep`."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="lantern-demo-") as made:
            yield Path(made)
        return
    folder = keep / shape
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "demo.db").exists():
        raise click.ClickException(f"{folder / 'demo.db'} is there already; remove it, or name another folder")
    yield folder


def _save_request(archive: Path, script: demo.Chat, shape: str, question: str) -> None:
    """Save the first request after the compaction beside its archive, for trying a restore on the page."""
    messages = demo.SHAPES[shape](script.history, script.summary, question)
    body = json.dumps({"model": "scripted-1", "messages": messages}, indent=2)
    archive.with_name("request.json").write_text(body + "\n", "utf-8")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[demo.Tell]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30))
    out = console(err=True)
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as progress:
        task = progress.add_task("starting two servers on 127.0.0.1")
        yield lambda what, done, of: progress.update(task, description=what, completed=done, total=of)


def _blocks(archive: Archive, request: str) -> tuple[Block, ...]:
    """The blocks of a request, for either of the demo's two credentials."""
    for tenant in archive.tenants():
        if found := archive.of(tenant.id).why(request):
            return found.blocks
    return ()


def _print_json(story: demo.Story, blocks: Sequence[tuple[Block, ...]]) -> None:
    """Print one line per detail, and one for the whole."""
    for outcome, brought in zip(story.outcomes, blocks, strict=True):
        passages = [
            {"block": block.restored.kind, "turn": placed.passage.turn, "rank": placed.rank, "score": placed.score}
            | {"signals": placed.signals, "text": placed.text}
            for block in brought
            for placed in block.restored.placed
        ]
        verdict = {"shape": story.shape, "is_back": outcome.is_back, "was_lost": outcome.was_lost}
        click.echo(json.dumps(verdict | to_builtins(outcome) | {"chosen": passages}))
    summary = {name: value for name, value in to_builtins(story).items() if name != "outcomes"}
    back = sum(outcome.is_back for outcome in story.outcomes)
    click.echo(json.dumps(summary | {"back": back, "of": len(story.outcomes)}))


def show(
    out: Console, story: demo.Story, blocks: Sequence[tuple[Block, ...]], kept: Path | None, *, brief: bool
) -> None:
    """Print everything for people: what was played, what was compacted, each detail, the totals. brief: the totals
    alone"""
    if not brief:
        out.print(_opening(story))
        out.print(_answers(story))
        out.print(_compaction_block(story, blocks))
        out.print(_reasons(story, blocks))
    out.print(_totals(story, brief=brief))
    if kept:
        archive = f"--archive {shlex.quote(str(kept))}"
        why = f"lantern why {story.outcomes[0].request} {archive}"
        look = f"{why}\n  lantern search firewall {archive}\n  lantern serve {archive}"
        out.print(Text(f"The archive is kept, and the compacted request beside it. Look into it:\n  {look}"))


def _opening(story: demo.Story) -> Text:
    first = story.outcomes[0]
    return Text.assemble(
        ("A chat of ", ""),
        (f"{story.turns} turns", "bold"),
        f" ({story.history_chars:,} characters) went through Lantern in {story.played_s:.1f} s.\n",
        "Then the client compacted it: ",
        (story.shape, "bold"),
        f". {_DOCUMENTED[story.shape]}\n",
        f"Its next request has {story.compacted_chars:,} characters. Lantern noticed: ",
        (first.event, "bold green"),
        f". Embedder: {story.embedder}.\n",
    )


def _answers(story: demo.Story) -> Table:
    """The six questions with both answers, side by side."""
    made = Table(title="The same requests, to the same model", title_justify="left", show_lines=True, expand=True)
    made.add_column("asked for", ratio=4)
    made.add_column("without Lantern", ratio=2)
    made.add_column("with Lantern", ratio=5)
    made.add_column("added", justify="right", no_wrap=True)
    made.add_column("ms", justify="right", no_wrap=True)
    for outcome in story.outcomes:
        answer = Text(short(outcome.answer, 260), style="" if outcome.is_back else "red")
        answer.highlight_words([outcome.detail.answer], style="bold green")
        without = Text(short(outcome.without, 120), style="red" if outcome.was_lost else "")
        made.add_row(Text(outcome.question), without, answer, f"{outcome.chars:,}", f"{outcome.ms:.1f}")
    return made


def _compaction_block(story: demo.Story, blocks: Sequence[tuple[Block, ...]]) -> Group:
    """The beginning of the first block, as the model saw it."""
    texts = [block.restored.text for block in blocks[0]] or list(story.outcomes[0].blocks)
    panels = []
    for text in texts[:1]:
        lines = clean(text).strip().splitlines()
        rest = f"\n... and {len(lines) - 12} more lines" if len(lines) > 13 else ""
        title = f"What reached the model at the compaction: {len(text):,} characters"
        panels.append(Panel(Text("\n".join(lines[:12]) + rest), title=title, title_align="left"))
    return Group(*panels)


def _reasons(story: demo.Story, blocks: Sequence[tuple[Block, ...]]) -> Table:
    """For each detail its passage and the evidence for it."""
    made = Table(title="Why these passages", title_justify="left", expand=True)
    made.add_column("detail", ratio=2)
    made.add_column("passage", ratio=5)
    made.add_column("block", no_wrap=True)
    made.add_column("rank", justify="right", no_wrap=True)
    made.add_column("evidence", ratio=4)
    earlier: list[Block] = []
    for outcome, brought in zip(story.outcomes, blocks, strict=True):
        earlier += brought
        found = _placed_answer(outcome.detail, [*reversed(brought), *reversed(earlier)])
        if found is None:
            made.add_row(outcome.detail.about, Text("not restored", style="red"), "", "", "")
            continue
        block, placed = found
        origin = f"turn {placed.passage.turn}, {clean(placed.passage.speaker)}: "
        text = Text(origin + _excerpt(placed.text, outcome.detail.answer))
        text.highlight_words([outcome.detail.answer], style="bold green")
        strongest = sorted(placed.signals.items(), key=lambda pair: -pair[1])[:4]
        evidence = ", ".join(f"{signal} {score:.2f}" for signal, score in strongest)
        made.add_row(outcome.detail.about, text, block.restored.kind, str(placed.rank), evidence)
    return made


def _placed_answer(detail: demo.Detail, blocks: Sequence[Block]) -> tuple[Block, Placed] | None:
    for block in blocks:
        for placed in block.restored.placed:
            if detail.answer in placed.text:
                return block, placed
    return None


def _excerpt(text: str, answer: str) -> str:
    """The part of `text` around `answer`, on one line."""
    at = max(0, text.find(answer) - _EXCERPT_CHARS // 2)
    return ("..." if at else "") + short(text[at:], _EXCERPT_CHARS)


def _totals(story: demo.Story, *, brief: bool) -> Text:
    outcomes = story.outcomes
    back, lost = sum(each.is_back for each in outcomes), sum(each.was_lost for each in outcomes)
    times = sorted(each.ms for each in outcomes)
    reasons = {reason for each in outcomes for reason in each.degraded.split(", ")}
    skipped = ", ".join(sorted(reasons - {"", "dense:off"}))  # that no embedder is here stands at the top
    head = f"{story.shape:<18}" if brief else "\nBack with Lantern: "
    return Text.assemble(
        head,
        (f"{back} of {len(outcomes)}", "bold green" if back == len(outcomes) else "bold red"),
        f" (without: {len(outcomes) - lost}). Added per request: at most {max(each.chars for each in outcomes):,} "
        f"characters, {times[len(times) // 2]:.1f} ms (median) and {times[-1]:.1f} ms at most. ",
        f"Another key, same requests: {story.stranger}.",
        (f" Skipped: {skipped}; this machine is busy, or `lantern doctor` knows why." if skipped else "", "yellow"),
    )
