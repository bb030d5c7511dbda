"""The terminal: text for people, JSON lines for scripts. `lantern COMMAND --help` shows an example of each.

Exit codes: 0 done; 1 it could not be done, or something is wrong; 2 it was asked for wrongly (arguments, settings).
Errors are one lower-case line on stderr. LANTERN_DEBUG=1 shows where one came from.

Only click is imported at the top, and everything else inside the commands: `lantern --help` answers at once.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

import click

from lantern_proxy.cli.frame import FOLDER, Group, Settings, Terminal, with_settings

SHAPES = ("user-summary", "assistant-summary", "truncated", "system-summary", "continued", "last-six")
"""demo.SHAPES by name: `demo` is not imported for the help."""

_LAZY_COMMANDS = {
    "edit": "feedback.edit",
    "export": "file.export",
    "feedback": "feedback.feedback",
    "forget": "forget.forget",
    "import": "importing.import_",
    "keys": "keys.keys",
    "marks": "feedback.marks",
    "mcp": "mcp.mcp",
    "migrate": "file.migrate",
    "pin": "feedback.pin",
    "prune": "archive.prune",
    "recover": "file.recover",
    "reindex": "file.reindex",
    "search": "archive.search",
    "sessions": "archive.sessions",
    "show": "archive.show",
    "tune": "tune.command",
    "why": "why.why",
}
"""Command -> its module and function in this package, imported on demand."""

GROUPS = {
    "Begin": {
        "demo": "See a compaction survived; needs no key and no network.",
        "serve": "Serve the proxy until it is stopped.",
        "doctor": "Check this machine, and say how to mend what is wrong.",
    },
    "Look": {
        "status": "What is archived, and what the proxy did today.",
        "sessions": "List conversations, last seen first.",
        "show": "One conversation as a timeline.",
        "search": "Full-text search over everything archived.",
        "why": "What was restored into a request, and why.",
    },
    "Correct": {
        "feedback": "Call a restored passage useful, wrong or outdated.",
        "pin": "Prefer a passage, and never prune it.",
        "edit": "Correct what a passage says.",
        "marks": "List what was judged, pinned or corrected.",
    },
    "Keep": {
        "import": "Archive logs of other tools, or an export.",
        "export": "Write everything as JSON lines, or make a backup.",
        "prune": "Remove what is old or never helped.",
        "forget": "Remove something for good, with a receipt.",
        "migrate": "Bring an archive up to date, or encrypt it.",
        "reindex": "Rebuild the indexes.",
        "recover": "Save what a damaged archive still holds.",
    },
    "Connect": {
        "keys": "Make, list and revoke proxy keys.",
        "mcp": "Serve the archive to agents as MCP tools.",
        "completion": "Print a completion script for your shell.",
    },
    "Measure and learn": {
        "bench": "Measure Lantern beside its peers.",
        "tune": "Fit retrieval to labelled questions.",
        "train": "Train a reranker on your own conversations.",
    },
}
"""The commands as listed by `lantern --help`: group -> command -> a description that fits a narrow terminal."""


class Commands(Terminal):
    """The commands defined here, and those in other modules."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            # click looks among imported ones only
            close = get_close_matches(args[0], [*self.list_commands(ctx), "--version", "--help"], n=1)
            if not close:
                raise
            raise click.UsageError(f"no such command {args[0]!r}; did you mean {close[0]}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(
                    [(name.ljust(10), description) for name, description in commands.items()]
                )  # one column for all

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, *_LAZY_COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LAZY_COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = _LAZY_COMMANDS[cmd_name].partition(".")
        command: click.Command = getattr(import_module(f"lantern_proxy.cli.{module}"), name)
        return command


@click.group("lantern", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lantern-proxy", prog_name="lantern")
def cli() -> None:
    """A proxy that gives back what your LLM client's compaction lost.

    Try `lantern demo`. Then start `lantern serve` and point a client at it: it prints the two lines to paste.
    """


_BENCH_MODULES = ("bm25", "judged", "proxy", "restore", "serve", "start")
"""Benches in a module of their own."""


class Bench(Group):
    """Benchmarks, each imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*_BENCH_MODULES, "beam", "cascade", "ir", "locomo", "longmemeval", "routes"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name in _BENCH_MODULES:
            command: click.Command = import_module(f"lantern_proxy.bench.{cmd_name}").command
            return command
        from lantern_proxy.cli import bench as cli_bench

        return cli_bench.COMMANDS[cmd_name]


@cli.command(cls=Bench)
def bench() -> None:
    """Measure Lantern beside its peers, on this machine.

    Intervals and p are of resampled questions, as if each were of its own conversation: of few conversations they are
    narrower than another choice of conversations would show.

    \b
    Example: lantern bench bm25 --records 5000,10000
    """


class Train(Group):
    """Trainable models, each imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["evidence-reranker", "reranker"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from lantern_proxy.cli import train as cli_train

        return cli_train.COMMANDS.get(cmd_name)


@cli.command(cls=Train)
def train() -> None:
    """Learn from labelled conversations of your own. Nothing has to be trained to serve.

    \b
    Example: lantern train evidence-reranker --data locomo10.json --out models/evidence
    """


@cli.command()
@with_settings
@click.option("--host", help="Address to listen on, instead of the configured one (127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port, instead of the configured one (8484).")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes, instead of as many as configured (1).")
def serve(settings: Settings, host: str | None, port: int | None, workers: int | None) -> None:
    """Serve the proxy until it is stopped.

    \b
    Example: lantern serve --port 9000 --archive ~/lantern.db
    """
    from lantern_proxy.cli import serve as cli_serve

    cli_serve.serve(settings.load(), host, port, workers, as_json=settings.as_json)


@cli.command()
@with_settings
@click.option(
    "--shape",
    type=click.Choice([*SHAPES, "all"]),
    default="user-summary",
    show_default=True,
    help="How the client compacts; all: one after the other.",
)
@click.option(
    "--words",
    type=click.Choice(["literal", "other"]),
    default="literal",
    show_default=True,
    help="Ask in the words of the statement, or in other words.",
)
@click.option("--dense/--no-dense", default=True, help="Wait for the embedder and use it, if it is installed.")
@click.option("--keep", type=FOLDER, help="Keep the archive in this folder.")
def demo(settings: Settings, shape: str, words: str, dense: bool, keep: Path | None) -> None:
    """Play a chat, compact it, ask for six lost details, with and without Lantern.

    No key and no network: a scripted model answers, through the real proxy, on this machine. Exits with 1 when a
    detail does not come back.

    \b
    Example: lantern demo --shape last-six --words other
    """
    from lantern_proxy.cli import demo as cli_demo

    if settings.archive:
        raise click.UsageError("the demo makes an archive of its own; --keep FOLDER keeps it")
    sys.exit(cli_demo.run(settings.load(), shape, words, dense=dense, keep=keep, as_json=settings.as_json))


@cli.command()
@with_settings
@click.option("--watch", is_flag=True, help="Stay, and show it anew every two seconds until Ctrl-C.")
def status(settings: Settings, watch: bool) -> None:
    """Show what is archived, for whom, what the proxy did in the last day, and whether it is running.

    \b
    Example: lantern status --watch
    """
    from lantern_proxy.cli import status as cli_status

    cli_status.run(settings, watch=watch)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    \b
    Example: lantern completion bash > ~/.local/share/bash-completion/completions/lantern
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, "lantern", "_LANTERN_COMPLETE").source())


@cli.command()
@with_settings
@click.option("--offline", is_flag=True, help="Do not try to reach the upstreams.")
@click.option("--deep", is_flag=True, help="Open the archive for writing and check its full-text index, too.")
def doctor(settings: Settings, offline: bool, deep: bool) -> None:
    """Look for everything that can be wrong, and say what to do about it. Exits with 1 when something is.

    \b
    Example: lantern doctor --offline
    """
    from lantern_proxy.cli import doctor as cli_doctor
    from lantern_proxy.cli import render

    findings = list(cli_doctor.examine(settings.config, settings.load(), offline=offline, deep=deep))
    for finding in findings:
        settings.print_json(finding) if settings.as_json else render.diagnosis(finding)
    sys.exit(any(finding.state == "bad" for finding in findings))


def main() -> None:
    """The console script `lantern`.

    Its matrices are small: where those of the light reranker are spread over two threads, a question takes twice the
    CPU time (docs/reranker.md). This is read when numpy is imported.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    cli()
