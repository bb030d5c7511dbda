"""`lantern import`: archives conversations from other programs' logs, or from an export."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from lantern_proxy.cli.frame import NAME, Place, Settings, echo, with_settings

if TYPE_CHECKING:
    from lantern_proxy.config import Config
    from lantern_proxy.embed import Embedder
    from lantern_proxy.logs import Log
    from lantern_proxy.memory import Lantern

SOURCES = ("claude-code", "codex", "opencode", "chatgpt", "claude", "jsonl")
_MOST_TENANTS = 5
"""Most tenants listed in an error."""
_MOST_SKIPPED = 3
"""Most skipped files that are listed."""
_TITLE_CHARS = 200
"""Most characters of a printed title; one is kept for each conversation."""

_KEYED = re.compile("t_[0-9a-f]{24}")
"""The id of a tenant that stands for a client's key."""
_UNKNOWN_TENANTS = (
    "{} had nothing in {} before. Such a name stands for a client's key in one archive alone. If another wrote this "
    "export, no client here gets any of it: export one tenant (`lantern export --tenant`), and import that with "
    "--key-env; or give the name to a key, in the config under `tenants:`."
)


@click.command("import")
@with_settings
@click.argument("paths", type=Place(), nargs=-1, required=True)
@click.option("--tenant", type=NAME, help="Whose they become, as `lantern status` shows them.")
@click.option(
    "--key-env", type=NAME, help="Whose they become: the client with the API key in this environment variable."
)
@click.option("--project", default="", help="A partition of the archive, as x-lantern-project names it.")
@click.option(
    "--from", "owners", type=NAME, multiple=True, help="Of an export: only what this tenant has; may be given again."
)
@click.option("--source", type=click.Choice(SOURCES), help="Only logs of this kind.")
@click.option("--dry-run", is_flag=True, help="Say what the files hold, write nothing.")
def import_(
    settings: Settings,
    paths: Sequence[Path],
    tenant: str | None,
    key_env: str | None,
    project: str,
    owners: tuple[str, ...],
    source: str | None,
    dry_run: bool,
) -> None:
    """Archive conversations from PATHS: logs of Claude Code, Codex, opencode, exports of ChatGPT, Claude, JSON lines
    ({"messages": [...]}).

    What `lantern export` wrote comes back as it was, for --tenant, --key-env or the tenants that it names. These names
    stand for clients' keys in the archive that wrote it, and in no other. Several tenants of an export become one only
    where --from says which.

    Folders are searched. What was imported before is not written twice. They are found by questions when
    restore.scope is `project` or `tenant`, by `lantern search` always. Claude Code, Codex and opencode go on with
    theirs through the proxy, if they have the same key.

    \b
    Example: lantern import ~/.claude/projects --key-env ANTHROPIC_API_KEY
    """
    _refuse_pipes(paths)
    if exports := [path for path in paths if _is_export(path)]:
        _refuse_for_exports(exports, paths, {"--project": project, "--source": source, "--dry-run": dry_run})
        _refuse_ambiguous(exports, owners, becomes_one=bool(tenant or key_env))
        with _explaining_interrupt():
            for path in exports:
                _import_export(settings, path, tenant, key_env, owners)
        return
    if owners:
        raise click.UsageError("--from is for what `lantern export` wrote, and no such file is among the PATHS")
    if dry_run:
        settings.load()
        for log in _logs(paths, source):
            _print_log(settings, log, len(log.messages), "found")
        return
    with _explaining_interrupt():
        _import_logs(settings, _logs(paths, source), tenant, key_env, project)


def _refuse_pipes(paths: Sequence[Path]) -> None:
    """UsageError for what can be read only once, and for `-`: a file is read to tell its kind, and then again."""
    for path in paths:
        if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            raise click.UsageError(f"{path} is no file, and an import reads each one more than once; save it in a file")


def _refuse_for_exports(exports: Sequence[Path], paths: Sequence[Path], options: Mapping[str, Any]) -> None:
    """UsageError if not all of `paths` are exports, or if one of the `options` is given, which do not go with them."""
    if len(exports) < len(paths):
        raise click.UsageError("some of the PATHS are exports of lantern, not all; import them one after the other")
    if given := [name for name, value in options.items() if value]:
        raise click.UsageError(
            f"{' and '.join(given)} cannot be used with what `lantern export` wrote ({exports[0]}), whose rows say the "
            "rest; --tenant, --key-env and --from can"
        )


@contextmanager
def _explaining_interrupt() -> Iterator[None]:
    """On Ctrl-C, say how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        message = "stopped in the middle: what was imported stays; the same command goes on"
        raise click.ClickException(message) from None


def _import_logs(
    settings: Settings, found: "Iterator[Log]", tenant: str | None, key_env: str | None, project: str
) -> None:
    from lantern_proxy.cli import render

    config = settings.load()
    found = chain([next(found)], found)  # where there is none no archive is made
    done: list[tuple[Log, int]] = []
    with open_lantern(config, tenant, key_env, project) as lantern:
        with render.counting("importing", quiet=settings.as_json) as advance:
            for log in found:
                try:
                    count = lantern.archive(
                        log.session, log.messages, times=log.times, title=log.title, known_as=log.id, api=log.api
                    )
                except ValueError as error:
                    raise click.ClickException(f"conversation {log.session} cannot be archived: {error}") from None
                done.append((replace(log, title=log.title[:_TITLE_CHARS], messages=(), times=()), count))
                advance(1)
        for log, count in done:
            _print_log(settings, log, count, "imported")
    if not settings.as_json:
        added = render.counted(sum(count for _, count in done), "message")
        added += f" of {render.counted(len(done), 'conversation')}"
        echo(f"new in {config.archive.path}: {added}")


def _logs(paths: Sequence[Path], source: str | None) -> "Iterator[Log]":
    """The conversations in the files, with one file in memory at a time.

    ClickException if there is none, or if one cannot be read, after those before it were returned.
    """
    from lantern_proxy import logs

    found = False
    passed: list[logs.LogError] = []
    try:
        for log in chain.from_iterable(logs.read(path, passed.append) for path in paths):
            if source in (None, log.source):
                found = True
                yield log
    except logs.LogError as error:
        raise click.ClickException(str(error)) from None
    for why in passed[:_MOST_SKIPPED]:
        echo(f"passed over {why}", err=True)
    if len(passed) > _MOST_SKIPPED:
        echo(f"passed over {len(passed) - _MOST_SKIPPED:,} more", err=True)
    if not found:
        raise click.ClickException(f"no conversation in {', '.join(map(str, paths))}; see `lantern import --help`")


def _print_log(settings: Settings, log: "Log", count: int, verb: str) -> None:
    from lantern_proxy.cli.render import counted, short

    if settings.as_json:
        settings.print_json(
            {"session": log.session, "source": log.source, "title": log.title[:_TITLE_CHARS], "messages": count}
        )
    else:
        echo(f"{verb} {counted(count, 'message'):>14}  {log.session}  {short(log.title, 60)}")


def open_lantern(
    config: "Config", tenant: str | None, key_env: str | None, project: str, *, embedder: "Embedder | None" = None
) -> "Lantern":
    """The archive of the one tenant that is meant; UsageError if it is ambiguous, ArchiveError if no tenant has that
    name."""
    from lantern_proxy.memory import Lantern

    _refuse_both(tenant, key_env)
    if key_env:
        key, named = _key(config, key_env)
        return Lantern(config, user=key, tenant=named, project=project, embedder=embedder)
    lantern = Lantern(config, project=project, tenant=tenant or "", embedder=embedder)
    known = [] if tenant else lantern.tenants()
    if len(known) > 1:
        lantern.close()
        raise click.UsageError(
            f"{len(known)} tenants are in {config.archive.path}; say whose is meant: --tenant or --key-env"
        )
    if known:
        lantern.tenant = known[0]
    return lantern


def _refuse_both(tenant: str | None, key_env: str | None) -> None:
    if tenant and key_env:
        raise click.UsageError("--tenant and --key-env both say whose they become; give one")


def _key(config: "Config", key_env: str) -> tuple[str, str]:
    """The credential in that variable, and the tenant configured for it, if any."""
    from lantern_proxy.config import tenant_named

    key = os.environ.get(key_env, "")
    if not key:
        raise click.UsageError(f"--key-env is {key_env}, which is not set")
    return key, tenant_named(config.owners(), key)


def _is_export(path: Path) -> bool:
    """Was the file written by `lantern export`? Its first line is a session with its head."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            first = json.loads(file.readline(10_000_000))
        except (ValueError, RecursionError):
            return False
    return isinstance(first, dict) and first.get("type") == "session" and "head" in first


def _refuse_ambiguous(files: Sequence[Path], owners: Sequence[str], *, becomes_one: bool) -> None:
    """UsageError if an export has nothing of one of the `owners`, if several would be merged without being asked for,
    or if two merged ones have a session of the same name, which would become a single session."""
    if not owners and not becomes_one:
        return
    owner_of: dict[str, str] = {}
    for file in files:
        sessions_of = _sessions(file)
        _refuse_unnamed(file, [*sessions_of], owners)
        merged = (owners or sessions_of) if becomes_one else ()
        for owner, session in ((each, session) for each in merged for session in sessions_of[each]):
            if (other := owner_of.setdefault(session, owner)) != owner:
                raise click.UsageError(
                    f"{other} and {owner} both have a session {session}, and the two would become one; import {owner} "
                    "by itself, for another tenant"
                )


def _refuse_unnamed(file: Path, tenants: Sequence[str], owners: Sequence[str]) -> None:
    """UsageError if one of the `owners` has nothing in the file, or if none is named and it has several tenants."""
    more = len(tenants) - _MOST_TENANTS
    holders = ", ".join(tenants[:_MOST_TENANTS]) + (f" and {more} more" if more > 0 else "")
    if absent := next((each for each in owners if each not in tenants), ""):
        raise click.UsageError(f"--from is {absent}, who has nothing in {file}; it holds {holders}")
    if not owners and len(tenants) > 1:
        raise click.UsageError(
            f"{file} holds {len(tenants)} tenants, who would become one: {holders}; say with --from which of them are "
            "meant"
        )


def _sessions(file: Path) -> dict[str, list[str]]:
    """Tenant -> ids of its sessions, for all tenants of an export."""
    found: dict[str, list[str]] = {}
    for row in _rows(file):
        ids = found.setdefault(_owner(row), [])
        if row.get("type") == "session":
            ids.append(str(row.get("id")))
    return found


def _owner(row: dict[str, Any]) -> str:
    return str(row.get("tenant", ""))


def _import_export(
    settings: Settings, file: Path, tenant: str | None, key_env: str | None, owners: Sequence[str]
) -> None:  # fmt: skip
    """Archive the export, of all or of the `owners`, for the given tenant or for those that it names; report how much
    it was."""
    import time

    from lantern_proxy.archive import Archive, ArchiveError, transfer
    from lantern_proxy.cli import render

    _refuse_both(tenant, key_env)
    whole = settings.load()
    config, (key, named) = whole.archive, _key(whole, key_env) if key_env else ("", tenant or "")
    counts: dict[str, Counter[str]] = {}
    with (
        Archive(config.path, synchronous=config.synchronous, key=config.key()) as archive,
        render.counting("importing", quiet=settings.as_json) as advance,
    ):
        tenant = named or (archive.tenant_of(key) if key else None)
        known = {each.id: each.messages for each in archive.tenants()}
        numbered = enumerate(_advancing(_rows(file), advance), start=1)
        for owner, group in groupby(numbered, key=lambda numbered: _owner(numbered[1])):
            if owners and owner not in owners:
                continue
            rest = iter(group)
            line, first = next(rest)
            target = tenant or owner
            if not target:
                raise ArchiveError(f"line {line} of {file} names no tenant; name one with --tenant")
            rows = chain([first], (row for _, row in rest))
            imported = transfer.import_rows(archive, target, rows, now=time.time(), line=line, file=file)
            counts.setdefault(target, Counter()).update(imported)
        new = sum(each.messages - known.get(each.id, 0) for each in archive.tenants() if each.id in counts)
    _print_counts(settings, counts)
    if not settings.as_json:
        echo(f"new in {config.path}: {render.counted(new, 'message')}")
    unknown = [target for target in counts if tenant is None and target not in known and _KEYED.fullmatch(target)]
    if unknown:
        echo(_UNKNOWN_TENANTS.format(", ".join(unknown), config.path), err=True)


def _print_counts(settings: Settings, counts: Mapping[str, Mapping[str, int]]) -> None:
    """counts: tenant -> kind of row -> how many were imported"""
    from lantern_proxy.cli.render import counted

    for tenant, found in counts.items():
        if settings.as_json:
            settings.print_json({"tenant": tenant, **found})
        else:
            echo(f"{tenant}: " + ", ".join(counted(count, kind) for kind, count in found.items()))


def _advancing(rows: Iterator[dict[str, Any]], advance: Callable[[int], None]) -> Iterator[dict[str, Any]]:
    """`rows`; `advance` is called with 1 after each."""
    for row in rows:
        yield row
        advance(1)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of an export, one for each line; empty lines at its end are no fault."""
    from lantern_proxy.archive import ArchiveError

    empty = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                empty = empty or number
                continue
            try:
                row = None if empty else json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise ArchiveError(
                    f"line {empty or number} of {file} is no JSON object; take a file of `lantern export`"
                )
            yield row
