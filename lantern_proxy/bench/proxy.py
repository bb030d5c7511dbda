"""`lantern bench proxy`: the latency that Lantern, and other gateways, add to a request, with a scripted model."""

import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path

import click
import yaml

from lantern_proxy.bench import proxy_process as processes
from lantern_proxy.bench.numbers import Numbers, without_nan
from lantern_proxy.bench.proxy_cases import Case, cases, measure
from lantern_proxy.bench.proxy_process import Gateway
from lantern_proxy.bench.proxy_report import Row, merge_rows, table, write_report

Spawn = Callable[[str, Path], AbstractContextManager[Gateway]]
PEERS: dict[str, Spawn] = {
    "nginx": processes.nginx,
    "litellm": processes.litellm,
    "portkey": processes.portkey,
    "headroom": processes.headroom,
}


@click.command("proxy")
@click.option(
    "--sizes", type=Numbers(1), default="2000,100000,1000000", show_default=True, help="Bytes of a request's body."
)
@click.option("--concurrency", type=Numbers(1), default="1,16,64,256", show_default=True, help="Requests at once.")
@click.option("--memory", default="off,on,restore", show_default=True, help="Of: off, on, restore.")
@click.option(
    "--seconds", default=2.0, show_default=True, type=click.FloatRange(0, min_open=True),
    help="Seconds for each gateway in each case.",
)  # fmt: skip
@click.option(
    "--pause", "pause_s", default=0.0, type=click.FloatRange(0),
    help="Seconds between a history and the request that lost most of it.",
)  # fmt: skip
@click.option("--dense/--no-dense", default=False, help="With the embedder, as far as it is installed.")
@click.option("--peer", "peers", multiple=True, help=f"{', '.join(PEERS)}, or the URL of a gateway that runs already.")
@click.option(
    "--upstream-port", default=0, type=click.IntRange(0, 65_535),
    help="Port of the scripted model, for a gateway that runs already.",
)  # fmt: skip
@click.option("--settings", default="", help="YAML for Lantern, as {archive: {synchronous: full}}.")
@click.option(
    "--write", type=click.Path(path_type=Path, file_okay=False), help="Write latency.md and latency.svg there."
)
@click.option(
    "--merge", type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the lines there, beside those of runs before.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(
    sizes: list[int], concurrency: list[int], memory: str, seconds: float, pause_s: float, dense: bool,
    peers: tuple[str, ...], upstream_port: int, settings: str, write: Path | None, merge: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure what the proxy adds to a request, beside direct ones.

    \b
    Example: lantern bench proxy --sizes 2000,1000000 --concurrency 1,64 --peer litellm
    """
    kinds = _memory_kinds(memory)
    plan = list(cases(sizes, concurrency, kinds, seconds, dense=dense, pause_s=pause_s))
    if not plan:
        raise click.UsageError("nothing to measure; give --sizes, --concurrency above 1, or --memory restore")
    chosen = _settings(settings, dense=dense)
    try:
        if merge is not None:  # before minutes are spent on what it cannot take
            merge_rows(merge, [], _command_line())
    except ValueError as error:
        raise click.BadParameter(f"--merge: {error}") from None
    rows: list[Row] = []
    for row in _measured(plan, chosen, peers, upstream_port, dense=dense):
        rows.append(row)
        if merge is not None:  # at once: what is measured stays, whatever comes
            merge_rows(merge, [row], _command_line())
        click.echo(json.dumps(without_nan(asdict(row))) if as_json else row.line())
    commands = [_command_line()]
    if merge is not None:
        rows, commands = merge_rows(merge, [], commands[0])
    if write is not None:
        write_report(write, rows, commands)
    elif not as_json:
        click.echo(f"\n{table(rows)}")


def _measured(
    plan: Sequence[Case], settings: str, peers: Sequence[str], upstream_port: int, *, dense: bool
) -> Iterator[Row]:
    """Start the scripted model and the gateways, and measure each case of the plan."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        direct, gateways = _start_all(stack, Path(folder), settings, peers, upstream_port)
        if dense:
            processes.wait_for_embedder(gateways[0])
        for case in plan:
            yield from measure(case, direct, gateways)


def _memory_kinds(memory: str) -> list[str]:
    """The values of --memory. click.BadParameter for an unknown one."""
    kinds = [kind.strip() for kind in memory.split(",")]
    if unknown := set(kinds) - {"off", "on", "restore"}:
        raise click.BadParameter(f"--memory {', '.join(sorted(unknown))} is not known; choose of off, on, restore")
    return kinds


def _start_all(
    stack: ExitStack, folder: Path, settings: str, peers: Sequence[str], upstream_port: int
) -> tuple[str, list[Gateway]]:
    """The scripted model's URL, and Lantern and the peers in front of it. They end with `stack`."""
    try:
        direct = stack.enter_context(processes.upstream(upstream_port))
        gateways = [stack.enter_context(processes.lantern(direct, folder, settings))]
        return direct, gateways + [_peer(stack, peer, direct, folder) for peer in peers]
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None


def _settings(text: str, *, dense: bool) -> str:
    """Lantern's settings, as JSON. click.BadParameter if it is no mapping."""
    chosen = {} if dense else {"embed": {"enabled": "off"}}
    try:
        chosen.update(yaml.safe_load(text) or {})
    except (yaml.YAMLError, ValueError, TypeError):
        raise click.BadParameter(f"--settings {text!r}: write them as {{archive: {{synchronous: full}}}}") from None
    return json.dumps(chosen)


def _peer(stack: ExitStack, name: str, direct: str, folder: Path) -> Gateway:
    """One of PEERS in front of the model at `direct`, or a running gateway at the URL `name`. Raises RuntimeError."""
    spawn = PEERS.get(name)
    return stack.enter_context(spawn(direct, folder) if spawn else processes.running(name))


def _command_line() -> str:
    """The command line, without its output files."""
    words = iter(sys.argv[sys.argv.index("proxy") + 1 :] if "proxy" in sys.argv else [])
    kept = [shlex.quote(word) for word in words if word not in ("--merge", "--write") or not next(words, None)]
    return " ".join(["lantern bench proxy", *kept])
