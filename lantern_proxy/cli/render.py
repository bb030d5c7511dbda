"""The commands' output for people. Archived text is untrusted: control characters are shown, never sent."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lantern_proxy.analyze.spoken import spoken
from lantern_proxy.cli.frame import clean

if TYPE_CHECKING:
    from lantern_proxy.archive import Hit, RequestRow, SessionRow
    from lantern_proxy.archive.feedback import Edit, Marked
    from lantern_proxy.cli.doctor import Diagnosis
    from lantern_proxy.turn import Filed, Passage

_LEAST_COLUMNS = 80
"""Width that every table fits in."""
_DATES = ("last seen", "last", "made", "revoked")
"""Columns of dates."""
_LOSSES = {
    "compacted": "the client put a summary in the place of",
    "window": "the client dropped",
    "cleared": "the client emptied",
}
"""Event of a compaction -> what it did to the messages."""
_STATES = {"ok": "green", "warn": "yellow", "bad": "red"}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # as click.echo does; rich would end this process with 1


def console(*, err: bool = False) -> Console:
    """A console without highlighting; 100 columns without a terminal. What goes to stdout has at least 80, which a
    narrower terminal wraps: with fewer, tables would lose columns."""
    stream = sys.stderr if err else sys.stdout
    made = _Console(file=stream, highlight=False, markup=False, width=None if stream.isatty() else 100)
    if not err:
        made.width = max(made.width, _LEAST_COLUMNS)
    return made


def user_question(query: str) -> str:
    """A request's question without what its client added, unless nothing would be left."""
    return spoken(query).strip() or query


def short(text: str, most: int = 120) -> str:
    """One line of at most `most` characters."""
    line = clean(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 3] + "..."


def when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if 0 < at < 1e11 else "undated"


def times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def counted(count: int, word: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    """A table whose first column, the id that people copy or grep for, is never wrapped; a date only at its space."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        justify: JustifyMethod = "right" if column in numbers else "left"
        least = 10 if column in _DATES else None
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column == columns[0], min_width=least)
    return made


def sessions(rows: Sequence[tuple[str, "SessionRow"]]) -> None:
    """Print sessions with their tenants: one table per tenant, under its name, if there are several. Projects have a
    column where there are any."""
    owners = list(dict.fromkeys(owner for owner, _ in rows))
    for owner in owners:
        counts = ("messages", "passages")
        project = ["project"] if any(row.project for tenant, row in rows if tenant == owner) else []
        made = table("session", "last seen", "api", *counts, *project, "title", numbers=counts)
        for row in (row for tenant, row in rows if tenant == owner):
            cells = [row.id, when(row.last_seen_at), row.api, f"{row.messages:,}", f"{row.passages:,}"]
            named = [row.project for _ in project]
            made.add_row(*(Text(clean(c)) for c in [*cells, *named, short(row.title, 60)]))
        if len(owners) > 1:
            console().print(Text(f"tenant {clean(owner)}", style="bold cyan"))
        console().print(made)
    if not rows:
        console().print("no sessions")


def passages(found: Sequence["Passage"]) -> None:
    """A table of passages, with their confidence and success."""
    made = table(
        "id", "turn", "speaker", "confidence", "success", "restored", "last", "text",
        numbers=("id", "turn", "confidence", "success", "restored"),
    )  # fmt: skip
    for each in found:
        state = "".join(f" [{word}]" for word in (each.verdict, "pinned" if each.pinned else "") if word)
        last = when(each.accessed_at) if each.accesses else ""
        figures = [f"{each.confidence:.2f}", f"{each.success:.2f}", str(each.accesses), last]
        cells = [str(each.id), str(each.turn), each.speaker, *figures, short(each.text, 60) + state]
        made.add_row(*(Text(clean(cell)) for cell in cells))
    console().print(made if found else "no passages")


def message(filed: "Filed", called: Mapping[str, str]) -> None:
    """called: id of a call -> the tool it calls, which a result may not name itself"""
    out = console()
    marks = [mark for mark, is_so in (("side call", filed.side), ("broke off", filed.partial)) if is_so]
    head = f"turn {filed.turn}  {filed.message.role}  {when(filed.created_at)}  {', '.join(marks)}".rstrip()
    out.print(Text(clean(head), style="bold cyan"))
    for item in filed.message.items:
        name = item.name or next((called[each] for each in item.ids if each in called), "")
        label = {"call": f"[call {name}] ", "result": f"{f'[result {name}'.rstrip()}] ", "media": f"[{name}] "}
        out.print(Text(clean(label.get(item.kind, "") + item.text)), soft_wrap=True)
    out.print()


def hit(found: "Hit") -> None:
    out = console()
    passage = found.passage
    place = f"{passage.session}  turn {passage.turn}  passage {passage.id}"
    head = f"{place}  {passage.speaker}  {when(passage.created_at)}  {found.score:.2f}"
    out.print(Text(clean(head), style="bold cyan"), soft_wrap=True)
    out.print(Text("  " + short(found.snippet, 400)), soft_wrap=True)


def judged(passage: "Passage") -> None:
    """Print a passage after a person's verdict."""
    state = ", ".join(filter(None, (passage.verdict, "pinned" if passage.pinned else ""))) or "no mark"
    line = Text(f"passage {passage.id}: {state}", style="bold")
    line.append(f"  confidence {passage.confidence:.2f}, success {passage.success:.2f}", style="default")
    console().print(line)
    console().print(Text("  " + short(passage.text, 300)), soft_wrap=True)


def marks(found: Sequence["Marked"]) -> None:
    if not found:
        console().print("nothing is judged, pinned or corrected; `lantern feedback --help` shows how")
    for each in found:
        judged(each.passage)
        if each.edits:
            console().print(Text(f"  corrected {times(each.edits)}, last {when(each.changed_at)}", style="yellow"))


def correction(past: "Edit") -> None:
    out = console()
    out.print(Text(when(past.at), style="bold"))
    out.print(Text(f"  - {clean(past.before)}", style="red"), soft_wrap=True)
    out.print(Text(f"  + {clean(past.after)}", style="green"), soft_wrap=True)


def diagnosis(finding: "Diagnosis") -> None:
    out = console()
    line = Text(f"{finding.state:<5}", style=_STATES[finding.state])
    line.append(f"{finding.name:<12} {clean(finding.detail)}", style="default")
    out.print(line, soft_wrap=True)
    if finding.remedy:
        out.print(Text(f"     {'':<12} -> {clean(finding.remedy)}", style="bold"), soft_wrap=True)


def timeline(messages: Sequence["Filed"], requests: Sequence["RequestRow"], *, brief: bool) -> None:
    """Messages in order, and between them the requests that lost or restored something.

    brief: one line per message, without side calls
    """
    marks = deque(sorted((r for r in requests if r.event in _LOSSES or r.restored), key=lambda r: r.at))
    shown = set[str]()
    called = {each: call.name for filed in messages for call in filed.message.calls for each in call.ids}
    for filed in messages:
        while marks and marks[0].at < filed.created_at:
            _print_event(marks.popleft(), shown)
        if not brief:
            message(filed, called)
        elif not filed.side:
            _brief(filed)
    for rest in marks:
        _print_event(rest, shown)


def _brief(filed: "Filed") -> None:
    text = " ".join(item.text or f"[{item.kind} {item.name}]" for item in filed.message.items)
    line = Text(f"{filed.turn:>4}  {clean(filed.message.role):<9} ", style="cyan")
    line.append(short(text, 80), style="default")
    console().print(line, soft_wrap=True)


def _print_event(request: "RequestRow", shown: set[str]) -> None:
    """One line for a loss; one for a restore, unless the same blocks were only replayed."""
    out = console()
    if request.event in _LOSSES:
        what = f"{_LOSSES[request.event]} {request.gone:,} messages ({request.lost:,} bytes)"
        out.print(
            Text(f"---- {when(request.at)}  {request.event}: {what}  {clean(request.id)}", style="bold red"),
            soft_wrap=True,
        )
    riding = f"{request.restored}/{request.chars}"
    if request.restored and riding not in shown:
        shown.add(riding)
        restored = f"{request.restored} passages put back, {request.chars:,} characters"
        question = f", asked: {clean(short(user_question(request.query), 60))}" if request.query else ""
        out.print(
            Text(f"++++ {when(request.at)}  {restored}{question}  {clean(request.id)}", style="bold green"),
            soft_wrap=True,
        )


@contextmanager
def counting(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr if that is a terminal; the block gets a function that advances it."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    out = console(err=True)
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda steps: progress.advance(task, steps)


@contextmanager
def counting_to(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """The same for work that reports its position and its total."""
    with counting(what, quiet=quiet) as advance:
        reached = 0

        def progress(done: int, of: int) -> None:
            nonlocal reached
            advance(done - reached)
            reached = done

        yield progress
