"""The commands that read and change an archive: sessions, show, search, why, prune, export, migrate, reindex."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lantern_proxy.cli_frame import Settings, plain, settled, tenant_option, tenants

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive, PruneRule, TenantArchive

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@click.command()
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
            settings.tell({"tenant": owner, **plain(row)})
    else:
        cli_text.sessions(rows)


@click.command()
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


@click.command()
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


@click.command()
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
            request = _newest_restored(owners)
        found = next((told for owner in owners if (told := owner.why(request))), None)
    if found is None:
        raise click.ClickException(
            f"request {request} is not in the archive; x-lantern-request of an answer has its id"
        )
    settings.tell(found) if settings.as_json else cli_text.why(found)


def _newest_restored(owners: list["TenantArchive"]) -> str:
    """The newest request that brought a block of its own."""
    latest = [(row.at, row.id, owner) for owner in owners for row in owner.requests(limit=500) if row.restored]
    for _, id, owner in sorted(latest, key=lambda found: -found[0]):
        told = owner.why(id)
        if told and told.blocks:
            return id
    raise click.ClickException("no request got a block yet; `lantern why ID` explains any request")


@click.command()
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
                settings.tell({"tenant": owner.tenant, "dry_run": dry_run, **plain(report)})
            else:
                click.echo(f"{owner.tenant}: {'would remove' if dry_run else 'removed'} {_amount(report)}")


def _confirm(path: Path, owners: list["TenantArchive"], rule: "PruneRule", now: float) -> None:
    for owner in owners:
        click.echo(f"{owner.tenant}: {_amount(owner.prune(rule, now=now, dry_run=True))}", err=True)
    click.confirm(f"Remove this from {path}? It cannot be undone.", abort=True, err=True)


def _amount(report: Any) -> str:
    rows = f"{report.passages:,} passages, {report.messages:,} messages, {report.sessions:,} sessions"
    return f"{rows}, {report.bytes:,} bytes"


@click.command()
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
                file.write(json.dumps(row, default=plain) + "\n")
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


@click.command()
@settled
def migrate(settings: Settings) -> None:
    """Bring the archive's schema up to date. `serve` does this by itself at its start.

    \b
    Example: lantern migrate --archive old.db
    """
    with settings.open(write=True) as archive:
        summary = {"archive": archive.path, "version": archive.version}
    settings.tell(summary) if settings.as_json else click.echo(f"{archive.path} is at version {summary['version']}")


@click.command()
@settled
@click.option("--vectors", is_flag=True, help="Forget all vectors first: after a change of embed.model.")
def reindex(settings: Settings, vectors: bool) -> None:
    """Make the indexes anew: the full-text index, and vectors for passages that have none (with --vectors, for all).

    \b
    Example: lantern reindex --vectors
    """
    from lantern_proxy import cli_reindex

    with settings.open(write=True) as archive:
        summary = cli_reindex.run(archive, settings.load(), vectors=vectors, quiet=settings.as_json)
    if settings.as_json:
        settings.tell(summary)
    else:
        skipped = f"; no vectors: {summary['skipped']}" if summary["skipped"] else ""
        click.echo(f"full-text index made anew, {summary['embedded']:,} passages embedded{skipped}")


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
