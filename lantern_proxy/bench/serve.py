"""`lantern bench serve`: how soon `lantern serve` answers after its start, and how much memory it uses when idle.

Each start is a new process, with a new archive or one of many passages. The commands alternate: one start of each, then
the next. The first answer is that of /lantern/health over a new connection, which is tried every millisecond; memory is
read a moment later, from /proc (Linux).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click

from lantern_proxy.archive import Archive
from lantern_proxy.bench.numbers import Numbers
from lantern_proxy.bench.proxy_process import free_port, started
from lantern_proxy.bench.start import fill

_MOST_S = 60.0
_HEALTH = b"GET /lantern/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Served:
    """Medians of the rounds; memory in MB."""

    command: str
    passages: int
    embed: str
    first_ms: float
    """From the start of the process to the first byte of the first answer."""
    fastest_ms: float
    cpu_ms: float
    """Until memory is read."""
    rss_mb: float
    anonymous_mb: float


def measure(commands: Sequence[str], passages: int, embed: str, rounds: int, settle_s: float) -> list[Served]:
    with tempfile.TemporaryDirectory() as folder:
        filled = Path(folder) / "filled.db"
        if passages:
            with Archive(filled, synchronous="normal", vectors=False) as archive:
                fill(archive, passages)
        found: dict[str, list[tuple[float, ...]]] = {command: [] for command in commands}
        for _ in range(rounds):
            for command in commands:
                found[command].append(_start(command, filled if passages else None, embed, settle_s))
    return [_summary(command, passages, embed, values) for command, values in found.items()]


def _summary(command: str, passages: int, embed: str, values: Sequence[tuple[float, ...]]) -> Served:
    first, *rest = zip(*values, strict=True)
    return Served(command, passages, embed, round(median(first), 1), round(min(first), 1),
                  *(round(median(each), 1) for each in rest))  # fmt: skip


def _start(command: str, filled: Path | None, embed: str, settle_s: float) -> tuple[float, ...]:
    """One start: (ms to the first answer, ms of CPU time, MB resident, MB of it anonymous)."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "lantern.db"
        if filled is not None:
            shutil.copy(filled, archive)
        config = Path(folder) / "lantern.yaml"
        config.write_text(json.dumps({"archive": {"path": str(archive)}, "embed": {"enabled": embed}}), "utf-8")
        port = free_port()
        begun = time.perf_counter()
        serving = [command, "serve", "--config", str(config), "--port", str(port)]
        with started(serving, log=Path(os.devnull)) as process:
            first_s = _first_answer(port, process) - begun
            time.sleep(settle_s)
            return first_s * 1e3, *_usage(process.pid)


def _first_answer(port: int, process: "subprocess.Popen[str]") -> float:
    """The moment, by time.perf_counter()."""
    until = time.perf_counter() + _MOST_S
    while time.perf_counter() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=_MOST_S) as connection:
                connection.sendall(_HEALTH)
                if connection.recv(1):
                    return time.perf_counter()
        except OSError:
            time.sleep(0.001)
    ended = "ended before it answered" if process.poll() is not None else f"did not answer within {_MOST_S:g} s"
    raise click.ClickException(f"{process.args!r} {ended}; run it by hand to see why")


def _usage(pid: int) -> tuple[float, float, float]:
    """(ms of CPU time, MB resident, MB of it anonymous)."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    cpu_ms = sum(map(int, ticks)) * 1e3 / os.sysconf("SC_CLK_TCK")
    rss, anonymous = (int(status[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
    return cpu_ms, rss, anonymous


@click.command("serve")
@click.option(
    "--passages", type=Numbers(0), default="0,100000", show_default=True,
    help="How much the archive holds; 0: a new one.",
)  # fmt: skip
@click.option(
    "--embed", type=click.Choice(["off", "auto", "on"]), default="off", show_default=True, help="As in config."
)
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="Starts of each; medians count.")
@click.option(
    "--settle", default=1.5, show_default=True, type=click.FloatRange(0),
    help="Seconds from the first answer to the look at memory.",
)  # fmt: skip
@click.option("--against", multiple=True, type=click.Path(exists=True), help="Another `lantern`, in turns.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(
    passages: list[int], embed: str, rounds: int, settle: float, against: tuple[str, ...], as_json: bool
) -> None:  # fmt: skip
    """How soon `lantern serve` answers, and the memory it holds. Linux only.

    \b
    Example: lantern bench serve --passages 0 --rounds 9 --against ~/before/.venv/bin/lantern
    """
    if not sys.platform.startswith("linux"):
        raise click.ClickException("memory is read from /proc, which only Linux has")
    own = str(Path(sys.executable).with_name("lantern"))
    for n in passages:
        for row in measure([own, *against], n, embed, rounds, settle):
            click.echo(json.dumps(asdict(row)) if as_json else _line(row))


def _line(row: Served) -> str:
    return (
        f"{row.passages:>9,} passages, embed {row.embed:4}  first answer {row.first_ms:5.0f} ms"
        f" (fastest {row.fastest_ms:.0f}), CPU {row.cpu_ms:.0f} ms,"
        f" {row.rss_mb:.1f} MB ({row.anonymous_mb:.1f} anonymous)  {row.command}"
    )
