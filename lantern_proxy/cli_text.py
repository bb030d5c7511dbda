"""What the commands print for people. Archived text is foreign: its control characters are shown, never sent."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from lantern_proxy.archive import Hit, SessionRow, Why
    from lantern_proxy.cli_doctor import Diagnosis
    from lantern_proxy.turn import Filed, Placed

_CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}
_STATES = {"ok": "green", "warn": "yellow", "bad": "red"}


def console(*, err: bool = False) -> Console:
    """A console that leaves the words alone; 100 columns where there is no terminal to ask."""
    stream = sys.stderr if err else sys.stdout
    return Console(file=stream, highlight=False, markup=False, width=None if stream.isatty() else 100)


def clean(text: str) -> str:
    """`text` with nothing in it that a terminal would obey or could not print."""
    return text.translate(_CONTROLS).encode("utf-8", "replace").decode()


def short(text: str, most: int = 120) -> str:
    """One line of at most `most` characters."""
    line = clean(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 3] + "..."


def when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else "never"


def table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return made


def status(summary: Mapping[str, Any]) -> None:
    out = console()
    kept = f"{summary['size_bytes'] / 1e6:,.1f} MB, version {summary['version']}"
    out.print(Text(f"archive  {summary['archive']} ({kept})"), soft_wrap=True)
    health = summary["proxy"]
    out.print(Text(f"proxy    {'running: ' + str(health.get('status')) if health else 'not running'}"))
    vectors = summary["vectors"]
    out.print(Text(f"vectors  {vectors[0] if vectors else 'none yet'}"))
    for degraded in summary["degraded"]:
        out.print(Text(f"lacking  {degraded}", style="yellow"))
    rows = table(
        "tenant", "sessions", "messages", "passages", "last seen", numbers=("sessions", "messages", "passages")
    )
    for each in summary["tenants"]:
        counts = [f"{count:,}" for count in (each.sessions, each.messages, each.passages)]
        rows.add_row(Text(clean(each.id)), *counts, when(each.last_at))
    out.print(rows if summary["tenants"] else "nothing is archived yet: point a client at the proxy")


def sessions(rows: Sequence[tuple[str, "SessionRow"]]) -> None:
    if not rows:
        console().print("no sessions")
        return
    several = len({owner for owner, _ in rows}) > 1
    columns = ["session", "last seen", "api", "messages", "passages", *(["tenant"] if several else []), "title"]
    made = table(*columns, numbers=("messages", "passages"))
    for owner, row in rows:
        cells = [row.id, when(row.last_seen_at), row.api, f"{row.messages:,}", f"{row.passages:,}"]
        made.add_row(*(Text(clean(c)) for c in [*cells, *([owner] if several else []), short(row.title, 60)]))
    console().print(made)


def message(filed: "Filed") -> None:
    out = console()
    marks = [mark for mark, is_so in (("side call", filed.side), ("broke off", filed.partial)) if is_so]
    head = f"turn {filed.turn}  {filed.message.role}  {when(filed.created_at)}  {', '.join(marks)}".rstrip()
    out.print(Text(head, style="bold cyan"))
    for item in filed.message.items:
        label = {"call": f"[call {item.name}] ", "result": f"[result {item.name}] ", "media": f"[{item.name}] "}
        out.print(Text(label.get(item.kind, "") + clean(item.text)), soft_wrap=True)
    out.print()


def hit(found: "Hit") -> None:
    out = console()
    passage = found.passage
    head = f"{passage.session}  turn {passage.turn}  {passage.speaker}  {when(passage.created_at)}  {found.score:.2f}"
    out.print(Text(clean(head), style="bold cyan"), soft_wrap=True)
    out.print(Text("  " + short(found.snippet, 400)), soft_wrap=True)


def why(told: "Why") -> None:
    out, request = console(), told.request
    out.print(
        Text(f"request {request.id}  {when(request.at)}  {request.event}  {request.model}", style="bold"),
        soft_wrap=True,
    )
    out.print(
        Text(f"  session {request.session}; {request.gone} messages of it are not in the request"), soft_wrap=True
    )
    out.print(Text(f"  asked: {short(request.query, 300)}"), soft_wrap=True)
    cost = f"  {request.restored} passages in its blocks, {request.chars:,} characters, {request.ms:.1f} ms in Lantern"
    out.print(Text(cost))
    for reason in request.degraded:
        out.print(Text(f"  degraded: {clean(reason)}", style="yellow"))
    used = {mark.passage: mark for mark in told.marks}
    for block in told.blocks:
        restored = block.restored
        reason = "what the compaction lost" if restored.kind == "loss" else "what the question needs"
        head = f"\n{restored.kind} block: {reason}; {len(restored.placed)} of {restored.considered} passages"
        out.print(Text(f"{head}, {len(restored.text):,} characters, {restored.ms:.1f} ms", style="bold cyan"))
        for placed in restored.placed:
            out.print(Text(f"  {placed.rank:>3}. {_reasons(placed)}"), soft_wrap=True)
            out.print(Text(f"       {short(placed.text, 300)}"), soft_wrap=True)
            mark = used.get(placed.passage.id)
            if mark and (mark.used is not None or mark.verdict):
                known = {True: "used in the answer", False: "not used in the answer", None: ""}[mark.used]
                out.print(Text("       " + "; ".join(filter(None, (known, mark.verdict))), style="green"))
    if not told.blocks:
        replayed = request.restored and "; blocks of earlier requests rode along"
        out.print(Text(f"\nit brought no block of its own{replayed or ''}"))


def _reasons(placed: "Placed") -> str:
    passage = placed.passage
    strongest = sorted(placed.signals.items(), key=lambda pair: -pair[1])
    signals = ", ".join(f"{signal} {score:.3g}" for signal, score in strongest)
    origin = f"turn {passage.turn}, {clean(passage.speaker)}, {when(passage.created_at)}"
    return f"{origin}: score {placed.score:.3g} ({signals})"


def diagnosis(finding: "Diagnosis") -> None:
    out = console()
    line = Text(f"{finding.state:<5}", style=_STATES[finding.state])
    line.append(f"{finding.name:<11} {clean(finding.detail)}", style="default")
    out.print(line, soft_wrap=True)
    if finding.remedy:
        out.print(Text(f"     {'':<11} -> {clean(finding.remedy)}", style="bold"), soft_wrap=True)


@contextmanager
def counting(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; the block gets a function that moves it on."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(err=True), transient=True, disable=quiet) as progress:
        task = progress.add_task(what, total=total)
        yield lambda steps: progress.advance(task, steps)
