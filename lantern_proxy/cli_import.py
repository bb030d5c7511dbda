"""`lantern import`: conversations that you already have elsewhere become part of the archive."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lantern_proxy import cli_import_export
from lantern_proxy.cli_frame import Settings, settled

if TYPE_CHECKING:
    from lantern_proxy.config import Config
    from lantern_proxy.embed import Embedder
    from lantern_proxy.logs import Log
    from lantern_proxy.memory import Lantern

SOURCES = ("claude-code", "codex", "opencode", "chatgpt", "claude", "jsonl")


@click.command("import")
@settled
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--tenant", help="Whose they become, as `lantern status` shows them.")
@click.option("--key-env", help="Whose they become: the client with the API key in this environment variable.")
@click.option("--project", default="", help="A partition of the archive, as x-lantern-project names it.")
@click.option("--source", type=click.Choice(SOURCES), help="Only logs of this kind.")
@click.option("--dry-run", is_flag=True, help="Say what would be imported, write nothing.")
def import_(
    settings: Settings,
    paths: Sequence[Path],
    tenant: str | None,
    key_env: str | None,
    project: str,
    source: str | None,
    dry_run: bool,
) -> None:
    """Archive conversations from PATHS: logs of Claude Code, Codex, opencode, exports of ChatGPT, Claude, JSON lines.

    What `lantern export` wrote comes back as it was, for --tenant or the tenants that it names.

    Folders are searched. What was imported before is not written twice. They are found by questions when
    restore.scope is `project` or `tenant`, by `lantern search` always.

    \b
    Example: lantern import ~/.claude/projects --key-env ANTHROPIC_API_KEY
    """
    from lantern_proxy import cli_text, logs

    exports = [path for path in paths if cli_import_export.is_export(path)]
    if exports and len(exports) < len(paths):
        raise click.UsageError("some of the PATHS are exports of lantern, not all; import them one after the other")
    if exports and (key_env or project or source or dry_run):
        raise click.UsageError("an export of lantern takes --tenant alone: it says itself what its rows are")
    if exports:
        for path in exports:
            cli_import_export.take_in(settings, path, tenant)
        return
    config = settings.load()
    try:
        found = [log for path in paths for log in logs.read(path) if source in (None, log.source)]
    except logs.LogError as error:
        raise click.ClickException(str(error)) from None
    if not found:
        raise click.ClickException(f"no conversation in {', '.join(map(str, paths))}; see `lantern import --help`")
    if dry_run:
        for log in found:
            _tell(settings, log, len(log.messages), "would import")
        return
    with opened(config, tenant, key_env, project) as lantern:
        with cli_text.counting("importing", len(found), quiet=settings.as_json) as advance:
            counts = [_archive(lantern, log, advance) for log in found]
        for log, count in zip(found, counts, strict=True):
            _tell(settings, log, count, "imported")
    if not settings.as_json:
        click.echo(f"{sum(counts):,} messages of {len(found):,} conversations are new in {config.archive.path}")


def _archive(lantern: "Lantern", log: "Log", advance: object) -> int:
    count = lantern.archive(log.session, log.messages, times=log.times, title=log.title)
    advance(1)  # type: ignore[operator]
    return count


def _tell(settings: Settings, log: "Log", count: int, verb: str) -> None:
    from lantern_proxy.cli_text import short

    if settings.as_json:
        settings.tell({"session": log.session, "source": log.source, "title": log.title, "messages": count})
    else:
        click.echo(f"{verb} {count:>5,} messages  {log.session}  {short(log.title, 60)}")


def opened(
    config: "Config", tenant: str | None, key_env: str | None, project: str, *, embedder: "Embedder | None" = None
) -> "Lantern":
    """The archive of the one tenant that is meant; a UsageError where it cannot be told."""
    from lantern_proxy.memory import Lantern

    if tenant and key_env:
        raise click.UsageError("--tenant and --key-env both say whose they become; give one")
    if key_env:
        key = os.environ.get(key_env, "")
        if not key:
            raise click.UsageError(f"--key-env is {key_env}, which is not set")
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        named = next((name for name, group in config.tenants.items() if digest in group.keys_sha256), "")
        return Lantern(config, user=key, tenant=named, project=project, embedder=embedder)
    lantern = Lantern(config, project=project, tenant=tenant or "", embedder=embedder)
    known = lantern.tenants()
    if tenant is None and known:
        lantern.tenant = known[0]
    wrong = ""
    if tenant is None and len(known) > 1:
        wrong = f"{len(known)} tenants are in {config.archive.path}; say whose is meant: --tenant or --key-env"
    if tenant and tenant not in known and tenant not in config.tenants:
        wrong = f"tenant {tenant} is not known; `lantern status` lists the tenants, or use --key-env"
    if wrong:
        lantern.close()
        raise click.UsageError(wrong)
    return lantern
