"""The terminal: text for people, JSON lines for scripts. `lantern COMMAND --help` shows an example of each.

Exit codes: 0 done; 1 it could not be done, or something is wrong; 2 it was asked for wrongly (arguments, settings).
Errors are one lower-case line on stderr. LANTERN_DEBUG=1 shows where one came from.

Only click is imported at the top, and everything else inside the commands: `lantern --help` answers at once.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive, PruneRule, TenantArchive
    from lantern_proxy.config import Config

Command = TypeVar("Command", bound=Callable[..., Any])

_EXITS = {"ConfigError": 2, "ArchiveError": 1, "EmbedError": 1, "OSError": 1}
"""Errors that are told in one line, and their exit codes. By name, so that telling one imports nothing."""
SHAPES = ("user-summary", "assistant-summary", "truncated", "system-summary", "continued", "last-six")
"""demo.SHAPES by name: demo.py is not imported for the help."""
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Terminal(click.Group):
    """A group whose errors are one lower-case line."""

    def main(self, *args: Any, **options: Any) -> Any:
        options["standalone_mode"] = False
        try:
            code = super().main(*args, **options)
        except click.ClickException as error:
            hint = "; see `lantern --help`" if isinstance(error, click.UsageError) else ""
            self._end(error.format_message().rstrip(".") + hint, error.exit_code)
        except click.Abort:
            self._end("stopped", 1)
        except BrokenPipeError:  # lantern export | head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except Exception as error:
            exits = [_EXITS[each.__name__] for each in type(error).__mro__ if each.__name__ in _EXITS]
            if not exits or os.environ.get("LANTERN_DEBUG"):
                raise
            self._end(str(error), exits[0])
        sys.exit(code if isinstance(code, int) else 0)

    def _end(self, message: str, code: int) -> None:
        text = " ".join(message.split())
        first = text.split(" ", 1)[0]
        if not first.isupper():  # LANTERN_PORT keeps its case
            text = text[:1].lower() + text[1:]
        click.echo(f"lantern: {text}", err=True)
        sys.exit(code)


@dataclass(frozen=True, slots=True)
class Settings:
    """What --config, --archive and --json of a command say."""

    config: Path | None
    archive: Path | None
    as_json: bool

    def load(self) -> "Config":
        """The settings: file < environment < command line. Raises ConfigError."""
        from dataclasses import replace

        from lantern_proxy.config import load

        config = load(self.config, os.environ)
        if self.archive:
            config = replace(config, archive=replace(config.archive, path=self.archive))
        return config

    @contextmanager
    def open(self, *, write: bool = False) -> Iterator["Archive"]:
        """The archive, which must exist. Only `write` may change it."""
        from lantern_proxy.archive import Archive, ArchiveError

        settings = self.load().archive
        if not settings.path.exists():
            raise ArchiveError(f"archive {settings.path} does not exist; name it with --archive PATH")
        with Archive(settings.path, synchronous=settings.synchronous, read_only=not write) as archive:
            yield archive

    def tell(self, row: Any) -> None:
        """One JSON line."""
        click.echo(json.dumps(row, default=_plain))


def _plain(value: Any) -> Any:
    """What json does not know: dataclasses, bytes, paths, sets."""
    from dataclasses import asdict, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, bytes):
        return value.hex()
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def settled(command: Command) -> Command:
    """Give a command --config, --archive and --json, and hand them to it as one Settings."""
    from functools import wraps

    @wraps(command)
    def run(config: Path | None, archive: Path | None, as_json: bool, **others: Any) -> Any:
        return command(Settings(config, archive, as_json), **others)

    file = click.Path(path_type=Path, dir_okay=False)
    options = [
        click.option("--json", "as_json", is_flag=True, help="One JSON object a line."),
        click.option("--archive", type=file, help="The archive, instead of the configured one (./lantern.db)."),
        click.option("--config", type=file, envvar="LANTERN_CONFIG", help="A settings file; see config.example.yaml."),
    ]
    for option in options:
        run = option(run)
    return run  # type: ignore[return-value]


tenant_option = click.option("--tenant", help="Only this tenant; all by default.")


def tenants(archive: "Archive", only: str | None) -> list["TenantArchive"]:
    """What each tenant has, last seen first; one of them when `only` names it."""
    known = [each.id for each in archive.tenants()]
    if only is not None and only not in known:
        raise click.ClickException(f"tenant {only} has nothing in {archive.path}; `lantern status` lists the tenants")
    return [archive.of(each) for each in known if only in (None, each)]


@click.group(cls=Terminal, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lantern-proxy", prog_name="lantern")
def cli() -> None:
    """Give back what your LLM client's compaction lost.

    Start with `lantern demo`, then `lantern serve` and point a client's OPENAI_BASE_URL at it.
    """


@cli.command()
@settled
@click.option("--host", help="Address to listen on, instead of the configured one (127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port, instead of the configured one (8484).")
def serve(settings: Settings, host: str | None, port: int | None) -> None:
    """Serve the proxy until it is stopped.

    \b
    Example: lantern serve --port 9000 --archive ~/lantern.db
    """
    from lantern_proxy import cli_serve

    cli_serve.serve(settings.load(), host, port, as_json=settings.as_json)


@cli.command()
@settled
@click.option(
    "--shape", default="user-summary", show_default=True, help="How the client compacts; `--shape list` lists."
)
@click.option(
    "--words",
    type=click.Choice(["literal", "other"]),
    default="literal",
    show_default=True,
    help="Ask in the words of the statement, or in other words.",
)
@click.option("--dense/--no-dense", default=True, help="Wait for the embedder and use it, if it is installed.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the archive in this folder.")
def demo(settings: Settings, shape: str, words: str, dense: bool, keep: Path | None) -> None:
    """Play a chat, compact it, ask for six lost details, with and without Lantern.

    No key and no network: a scripted model answers, through the real proxy, on this machine. Exits with 1 when a
    detail does not come back.

    \b
    Example: lantern demo --shape last-six --words other
    """
    from lantern_proxy import cli_demo

    sys.exit(cli_demo.run(settings.load(), shape, words, dense=dense, keep=keep, as_json=settings.as_json))


@cli.command()
@settled
def status(settings: Settings) -> None:
    """Show what is archived, for whom, and whether a proxy is running.

    \b
    Example: lantern status --json
    """
    from lantern_proxy import cli_doctor, cli_text

    health = cli_doctor.health(settings.load())
    with settings.open() as archive:
        summary = {
            "archive": archive.path,
            "version": archive.version,
            "size_bytes": archive.path.stat().st_size,
            "vectors": archive.model,
            "degraded": archive.degraded,
            "tenants": archive.tenants(),
            "proxy": health,
        }
    if settings.as_json:
        settings.tell(summary)
    else:
        cli_text.status(summary)


@cli.command()
@settled
@click.option("--offline", is_flag=True, help="Do not try to reach the upstreams.")
@click.option("--deep", is_flag=True, help="Open the archive for writing and check its full-text index, too.")
def doctor(settings: Settings, offline: bool, deep: bool) -> None:
    """Look for everything that can be wrong, and say what to do about it. Exits with 1 when something is.

    \b
    Example: lantern doctor --offline
    """
    from lantern_proxy import cli_doctor, cli_text

    findings = list(cli_doctor.examine(settings.config, settings.load(), offline=offline, deep=deep))
    for finding in findings:
        settings.tell(finding) if settings.as_json else cli_text.diagnosis(finding)
    sys.exit(any(finding.state == "bad" for finding in findings))


@cli.command()
@settled
@tenant_option
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1), help="Most sessions to show.")
@click.option("--project", help="Only sessions of this project.")
def sessions(settings: Settings, tenant: str | None, limit: int, project: str | None) -> None:
    """List sessions, last seen first.

    \b
    Example: lantern sessions --limit 5
    """
    from lantern_proxy import cli_text

    with settings.open() as archive:
        rows = [(each.tenant, row) for each in tenants(archive, tenant) for row in each.sessions(limit, project)]
    rows = sorted(rows, key=lambda pair: -pair[1].last_seen_at)[:limit]
    if settings.as_json:
        for owner, row in rows:
            settings.tell({"tenant": owner, **_plain(row)})
    else:
        cli_text.sessions(rows)


@cli.command()
@settled
@tenant_option
@click.argument("session")
@click.option("--turn", type=int, help="Only this turn.")
def show(settings: Settings, tenant: str | None, session: str, turn: int | None) -> None:
    """Show everything a SESSION held, verbatim. The start of its id is enough.

    \b
    Example: lantern show 7f3a --turn 12
    """
    from lantern_proxy import cli_text

    with settings.open() as archive:
        owner, row = _session(archive, tenant, session)
        messages = [filed for filed in owner.messages(row.id) if turn in (None, filed.turn)]
    if not messages:
        raise click.ClickException(f"session {row.id} has no turn {turn}; `lantern show {row.id}` shows all")
    for filed in messages:
        if settings.as_json:
            message = {"role": filed.message.role, "text": filed.message.text}
            raw = filed.message.raw.decode("utf-8", "surrogateescape")
            rest = {name: getattr(filed, name) for name in ("key", "position", "turn", "side", "partial", "created_at")}
            settings.tell({"session": row.id, **rest, **message, "raw": raw})
        else:
            cli_text.message(filed)


@cli.command()
@settled
@tenant_option
@click.argument("query")
@click.option("-n", "--limit", default=10, show_default=True, type=click.IntRange(1), help="Most passages to show.")
@click.option("--session", help="Only this session.")
def search(settings: Settings, tenant: str | None, query: str, limit: int, session: str | None) -> None:
    """Show archived passages that match QUERY, best first. "Quoted words" are looked for as a phrase.

    \b
    Example: lantern search 'retry policy' --limit 3
    """
    from lantern_proxy import cli_text

    with settings.open() as archive:
        id = _session(archive, tenant, session)[1].id if session else None
        hits = [(each.tenant, hit) for each in tenants(archive, tenant) for hit in each.search(query, limit, id)]
    hits = sorted(hits, key=lambda pair: -pair[1].score)[:limit]
    for owner, hit in hits:
        if settings.as_json:
            rest = {"passage": hit.passage.id, "session": hit.passage.session, "turn": hit.passage.turn}
            told = {"speaker": hit.passage.speaker, "created_at": hit.passage.created_at, "text": hit.passage.text}
            settings.tell({"tenant": owner, **rest, **told, "score": hit.score, "snippet": hit.snippet})
        else:
            cli_text.hit(hit)
    if not hits and not settings.as_json:
        click.echo("nothing matches; fewer or other words find more")


@cli.command()
@settled
@tenant_option
@click.argument("request", default="last")
def why(settings: Settings, tenant: str | None, request: str) -> None:
    """Explain a REQUEST (x-lantern-request): what was restored, and why. `last`: the newest that got a block.

    \b
    Example: lantern why last
    """
    from lantern_proxy import cli_text

    with settings.open() as archive:
        owners = tenants(archive, tenant)
        if request == "last":
            newest = [row for owner in owners for row in owner.requests(limit=500) if owner.why(row.id).blocks]  # type: ignore[union-attr]
            if not newest:
                raise click.ClickException("no request got a block yet; `lantern why ID` explains any request")
            request = max(newest, key=lambda row: row.at).id
        found = next((told for owner in owners if (told := owner.why(request))), None)
    if found is None:
        raise click.ClickException(
            f"request {request} is not in the archive; x-lantern-request of an answer has its id"
        )
    settings.tell(found) if settings.as_json else cli_text.why(found)


@cli.command()
@settled
@tenant_option
@click.option("--older-than", help="Passages and messages older than this: 90d, 12h, 30m, 2w.")
@click.option("--below-confidence", type=click.FloatRange(0, 1), help="Passages with less confidence than this.")
@click.option("--session", help="Only this session; alone: all of it.")
@click.option("--dry-run", is_flag=True, help="Say what would go, remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(
    settings: Settings,
    tenant: str | None,
    older_than: str | None,
    below_confidence: float | None,
    session: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove what is old, or what never helped. Conditions add up: all of them must hold.

    \b
    Example: lantern prune --older-than 180d --below-confidence 0.2 --dry-run
    """
    import time

    from lantern_proxy.archive import PruneRule

    if older_than is None and below_confidence is None and session is None:
        raise click.UsageError("prune needs --older-than, --below-confidence or --session")
    age_s = _seconds(older_than) if older_than else None
    with settings.open(write=True) as archive:
        owners = tenants(archive, tenant)
        if session:
            owner, row = _session(archive, tenant, session)
            owners, session = [owner], row.id
        rule = PruneRule(older_than_s=age_s, below_confidence=below_confidence, session=session)
        now = time.time()
        if not dry_run and not yes:
            _confirm(archive.path, owners, rule, now)
        for owner in owners:
            report = owner.prune(rule, now=now, dry_run=dry_run)
            if settings.as_json:
                settings.tell({"tenant": owner.tenant, "dry_run": dry_run, **_plain(report)})
            else:
                click.echo(f"{owner.tenant}: {'would remove' if dry_run else 'removed'} {_amount(report)}")


def _confirm(path: Path, owners: list["TenantArchive"], rule: "PruneRule", now: float) -> None:
    for owner in owners:
        click.echo(f"{owner.tenant}: {_amount(owner.prune(rule, now=now, dry_run=True))}", err=True)
    click.confirm(f"Remove this from {path}? It cannot be undone.", abort=True, err=True)


def _amount(report: Any) -> str:
    rows = f"{report.passages:,} passages, {report.messages:,} messages, {report.sessions:,} sessions"
    return f"{rows}, {report.bytes:,} bytes"


@cli.command()
@settled
@tenant_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file; standard output by default."
)
def export(settings: Settings, tenant: str | None, output: Path | None) -> None:
    """Write everything that is archived as JSON lines: sessions, messages, passages, requests, blocks.

    \b
    Example: lantern export --output backup.jsonl
    """
    from lantern_proxy import cli_text

    with settings.open() as archive:
        owners = tenants(archive, tenant)
        rows = ({"tenant": owner.tenant, **row} for owner in owners for row in owner.export())
        if output is None:
            for row in rows:
                settings.tell(row)
            return
        with cli_text.counting(f"writing {output}") as advance, _private(output) as file:
            count = 0
            for row in rows:
                file.write(json.dumps(row, default=_plain) + "\n")
                advance(1)
                count += 1
    summary = {"output": output, "rows": count}
    settings.tell(summary) if settings.as_json else click.echo(f"wrote {count:,} rows to {output}")


@contextmanager
def _private(path: Path) -> Iterator[Any]:
    """A new text file with mode 0600: an export holds as much as the archive. An existing file is refused."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.ClickException(f"{path} exists; remove it first, or name another file") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        yield file


@cli.command()
@settled
def migrate(settings: Settings) -> None:
    """Bring the archive's schema up to date. `serve` does this by itself at its start.

    \b
    Example: lantern migrate --archive old.db
    """
    with settings.open(write=True) as archive:
        summary = {"archive": archive.path, "version": archive.version}
    settings.tell(summary) if settings.as_json else click.echo(f"{archive.path} is at version {summary['version']}")


@cli.command()
@settled
@click.option("--vectors", is_flag=True, help="Forget all vectors first: after a change of embed.model.")
def reindex(settings: Settings, vectors: bool) -> None:
    """Make the indexes anew: the vectors of passages that have none (or, with --vectors, of all).

    \b
    Example: lantern reindex --vectors
    """
    from lantern_proxy import cli_reindex

    with settings.open(write=True) as archive:
        summary = cli_reindex.run(archive, settings.load(), vectors=vectors, quiet=settings.as_json)
    settings.tell(summary) if settings.as_json else click.echo(f"{summary['embedded']:,} passages embedded")


def _session(archive: "Archive", tenant: str | None, start: str) -> tuple["TenantArchive", Any]:
    """The session whose id is `start` or, alone, begins with it."""
    owners = tenants(archive, tenant)
    exact = [(owner, row) for owner in owners if (row := owner.session(start))]
    found = exact or [(o, row) for o in owners for row in o.sessions(limit=-1) if row.id.startswith(start)]
    if len(found) != 1:
        wrong = f"{len(found)} sessions begin with {start}" if found else f"no session begins with {start}"
        raise click.ClickException(f"{wrong}; `lantern sessions` lists them")
    return found[0]


def _seconds(text: str) -> float:
    """90d -> 7,776,000."""
    number, unit = text[:-1], text[-1:]
    if unit not in _SECONDS or not number.isascii() or not number.replace(".", "", 1).isdigit():
        raise click.UsageError(f"--older-than is {text!r}; use a number and a unit: 90d, 12h, 30m, 2w")
    return float(number) * _SECONDS[unit]


def main() -> None:
    """The console script `lantern`."""
    cli()
