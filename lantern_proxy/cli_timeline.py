"""A session as a timeline: what was said, where the history was cut, and what was put back."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from lantern_proxy.cli_text import clean, console, short, when

if TYPE_CHECKING:
    from lantern_proxy.archive import RequestRow
    from lantern_proxy.turn import Filed

_MEANS = {
    "compacted": "the client put a summary in the place of",
    "window": "the client dropped",
    "cleared": "the client emptied",
}
"""Event of a compaction -> what was done to the messages that it took."""


def timeline(messages: Sequence["Filed"], requests: Sequence["RequestRow"], *, brief: bool) -> None:
    """Messages in their order, and between them the requests that lost or restored something.

    brief: one line a message, side calls left out
    """
    from lantern_proxy import cli_text

    marks = deque(sorted((r for r in requests if r.event in _MEANS or r.restored), key=lambda r: r.at))
    shown = set[str]()
    for filed in messages:
        while marks and marks[0].at < filed.created_at:
            _mark(marks.popleft(), shown)
        if not brief:
            cli_text.message(filed)
        elif not filed.side:
            _brief(filed)
    for rest in marks:
        _mark(rest, shown)


def _brief(filed: "Filed") -> None:
    said = " ".join(item.text or f"[{item.kind} {item.name}]" for item in filed.message.items)
    line = Text(f"{filed.turn:>4}  {filed.message.role:<9} ", style="cyan")
    line.append(short(said, 80), style="default")
    console().print(line, soft_wrap=True)


def _mark(request: "RequestRow", shown: set[str]) -> None:
    """One line for a loss; one for a restore, unless the same blocks only rode along."""
    out = console()
    if request.event in _MEANS:
        what = f"{_MEANS[request.event]} {request.gone:,} messages ({request.lost:,} bytes)"
        out.print(
            Text(f"---- {when(request.at)}  {request.event}: {what}  {request.id}", style="bold red"), soft_wrap=True
        )
    riding = f"{request.restored}/{request.chars}"
    if request.restored and riding not in shown:
        shown.add(riding)
        restored = f"{request.restored} passages put back, {request.chars:,} characters"
        asked = f", asked: {clean(short(request.query, 60))}" if request.query else ""
        out.print(Text(f"++++ {when(request.at)}  {restored}{asked}  {request.id}", style="bold green"), soft_wrap=True)
