"""`scripts/possible-clients`: play clients that could exist and print how often Lantern was right about them."""

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from possible.draw import draw, numbers
from possible.judge import MUST_HOLD
from possible.play import Played, play
from possible.stage import Stage

SHARES = (
    ("events told right", "labels right", "main"),
    ("losses told", "losses told", "losses"),
    ("losses invented", "losses invented", "main"),
    ("conversations kept one session", "kept whole", "conversations"),
    ("side calls told", "sides right", "sides"),
    ("lost details back when asked for", "details back", "details asked"),
)
"""(what is printed, how many, of how many)"""
_ONE_STAGE = 40
"""So many clients share a proxy, each with a credential of its own."""


def play_all(numbers: Iterable[int], *, restarts: float = 0.0, more: int = 0) -> list[Played]:
    """The clients of these numbers, one after the other. restarts: as in Stage; more: as in draw()"""
    played, waiting = [], list(numbers)
    for start in range(0, len(waiting), _ONE_STAGE):
        with tempfile.TemporaryDirectory(prefix="possible-") as folder, Stage(Path(folder), restarts=restarts) as stage:
            played += [
                asyncio.run(play(draw(number, more=more), stage)) for number in waiting[start : start + _ONE_STAGE]
            ]
    return played


def total(played: Iterable[Played]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in played:
        counts.update(each.ledger.counts)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/possible-clients", description=__doc__)
    parser.add_argument("--seeds", type=numbers, default="0:100", metavar="A:B", help="from A to before B; 0:100")
    parser.add_argument(
        "--restarts", type=float, default=0.0, metavar="SHARE", help="of requests before which the proxy is restarted"
    )
    parser.add_argument(
        "--more", nargs="?", type=int, const=1, default=0, metavar="2",
        help="they also do what clients were not known to do at first; 2: and what was found last",
    )  # fmt: skip
    parser.add_argument("--faults", action="store_true", help="list the clients that met a fault")
    parser.add_argument("--story", action="store_true", help="tell every request of every client")
    args = parser.parse_args()
    played = play_all(args.seeds, restarts=args.restarts, more=args.more)
    for each in played:
        if args.story or (args.faults and each.ledger.faults):
            print(f"\n{each.client}")
            faults = (f"    {fault.kind} at {fault.op}: {fault.what}" for fault in each.ledger.faults)
            print("\n".join(each.ledger.story if args.story else faults))
    Console(width=100).print(_table(played))


def _table(played: list[Played]) -> Table:
    counts, table = total(played), Table()
    table.add_column(f"{len(played)} clients, {counts['requests']} requests")
    for column in ("", "share"):
        table.add_column(column, justify="right")
    for name, part, whole in SHARES:
        table.add_row(name, f"{counts[part]} of {counts[whole]}", f"{counts[part] / max(1, counts[whole]):.3f}")
    for name, clean in (
        ("nothing wrong at all", lambda p: not p.kinds),
        ("nothing wrong that must hold", lambda p: not p.kinds & MUST_HOLD),
    ):
        found = sum(map(clean, played))
        table.add_row(f"clients with {name}", f"{found} of {len(played)}", f"{found / max(1, len(played)):.3f}")
    kinds = Counter(kind for each in played for kind in each.kinds)
    table.add_section()
    for kind, clients in kinds.most_common():
        table.add_row(f"clients with a fault: {kind}", str(clients), "")
    return table


if __name__ == "__main__":
    main()
