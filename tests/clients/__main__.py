"""`scripts/clients [NAME ...]`: drive clients through Lantern and print a table. Exit status 1 when one fails."""

import argparse
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from clients.checks import Verdict, judge
from clients.client import Client, ClientError
from clients.install import InstallError, NoPython, ensure, installed
from clients.play import ROOT, end_clients, play
from clients.table import CLIENTS

CACHE = ROOT / ".cache/clients"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the closing table."""

    client: Client
    verdict: Verdict
    seconds: float


def drive(client: Client, cache: Path = CACHE) -> Outcome:
    """Install `client` when it is not there yet, play it straight and through Lantern, and judge."""
    began = time.monotonic()
    try:
        folder = ensure(client, cache)
        began = time.monotonic()
        with ThreadPoolExecutor(2) as both:
            straight, through = (both.submit(play, client, folder, lantern=lantern) for lantern in (False, True))
            try:
                verdict = judge(client, straight.result(), through.result())
            except KeyboardInterrupt:
                end_clients()
                raise
    except NoPython as error:
        verdict = Verdict(skipped=str(error))
    except (InstallError, ClientError) as error:
        verdict = Verdict(problems=[str(error)])
    except (OSError, ValueError, LookupError, httpx.HTTPError) as error:  # the client's output is not what it was
        verdict = Verdict(problems=[f"{type(error).__name__}: {error}"])
    return Outcome(client, verdict, time.monotonic() - began)


def main() -> int:
    names = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(prog="scripts/clients", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which clients; all when none is named")
    parser.add_argument("--quick", action="store_true", help="only those that install in seconds")
    parser.add_argument("--list", action="store_true", help="say what there is, and end")
    args = parser.parse_args()
    if unknown := set(args.names) - set(names):
        parser.error(f"no client is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen = [c for c in CLIENTS if (c.name in args.names or not args.names) and (c.quick or not args.quick)]
    if args.list:
        _list(chosen)
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs is ended on both signals
    outcomes = []
    for client in chosen:
        outcomes.append(drive(client))
        _tell(outcomes[-1])
    Console(width=160).print(_table(outcomes))
    return 1 if any(outcome.verdict.problems for outcome in outcomes) else 0


def _list(clients: list[Client]) -> None:
    for client in clients:
        state = "installed" if installed(client, CACHE) else "quick to install" if client.quick else "not installed"
        print(f"{client.name:18} {client.version:10} {client.protocol:10} {client.family:16} {state}")


def _tell(outcome: Outcome) -> None:
    if outcome.verdict.skipped:
        print(f"{outcome.client.name}: skipped, {outcome.verdict.skipped}", flush=True)
        return
    print(f"{outcome.client.name}: {_result(outcome.verdict)} in {outcome.seconds:.0f} s", flush=True)
    for problem in outcome.verdict.problems:
        print(f"    {problem}", flush=True)


def _result(verdict: Verdict) -> str:
    return "FAILED" if verdict.problems else "skipped" if verdict.skipped else "passed"


def _table(outcomes: list[Outcome]) -> Table:
    table = Table()
    for column in ("client", "version", "protocol"):
        table.add_column(column)
    for column in ("requests", "losses found", "details restored", "sessions", "seconds", "result"):
        table.add_column(column, justify="right")
    for outcome in outcomes:
        client, verdict = outcome.client, outcome.verdict
        kinds = ", ".join(f"{verdict.losses.count(kind)} {kind}" for kind in dict.fromkeys(verdict.losses))
        table.add_row(
            client.name, client.version, client.protocol, str(verdict.requests), kinds or "none",
            f"{verdict.restored} of {verdict.lost}", str(verdict.sessions), f"{outcome.seconds:.0f}",
            _result(verdict),
        )  # fmt: skip
    return table


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
