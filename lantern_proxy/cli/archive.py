"""The commands that inspect an archive and clean it up: sessions, show, search, prune."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lantern_proxy.cli.frame import (
    NAME,
    Number,
    Settings,
    confirm,
    echo,
    finish_wiping,
    json_value,
    limit_option,
    removing,
    tenant_option,
    tenants,
    with_settings,
)  # fmt: skip

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive, PruneReport, PruneRule, TenantArchive
    from lantern_proxy.archive.tenant import Filters

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_ROLES = ("user", "assistant", "tool", "client")
"""Speakers that every archive may have; others are names."""
_MOST_NAMES = 10
"""Names that are told, at most, where none is like the one that was asked for."""


@click.command()
@with_settings
@tenant_option
@limit_option(20, "sessions")
@click.option("--project", help="Only sessions of this project.")
def sessions(settings: Settings, tenant: str | None, limit: int, project: str | None) -> None:
    """List sessions, last seen first.

    \b
    Example: lantern sessions --limit 5
    """
    from lantern_proxy.cli import render

    with settings.open() as archive:
        rows = [(each.tenant, row) for each in tenants(archive, tenant) for row in each.sessions(limit, project)]
        if not rows:
            _refuse_unknown(archive, tenant, project=project)
    rows = sorted(rows, key=lambda pair: -pair[1].last_seen_at)[:limit]
    if settings.as_json:
        for owner, row in rows:
            settings.print_json({"tenant": owner, **json_value(row)})
    else:
        render.sessions(rows)


@click.command()
@with_settings
@tenant_option
@click.argument("session", type=NAME)
@click.option("--turn", type=int, help="Only this turn.")
@click.option("--brief", is_flag=True, help="One line a message.")
@click.option("--passages", is_flag=True, help="What it was cut into, with what use has taught about each.")
def show(
    settings: Settings, tenant: str | None, session: str, turn: int | None, brief: bool, passages: bool
) -> None:  # fmt: skip
    """Show a SESSION as a timeline: everything it held, where the client cut it, what was put back.

    The start of its id is enough. `----` is a compaction, `++++` a restore; `lantern why` explains either by its id.
    With --passages: confidence and success of each, and how often it was restored, the most restored first.

    \b
    Example: lantern show ses_7f3a --brief
    """
    from lantern_proxy.cli import render

    with settings.open() as archive:
        owner, row = _session(archive, tenant, session)
        messages = [filed for filed in owner.messages(row.id) if turn in (None, filed.turn)]
        if turn is not None and not messages:
            raise click.ClickException(f"session {row.id} has no turn {turn}; `lantern show {row.id}` shows all")
        if passages:
            _passages(settings, owner, row.id, turn)
            return
        requests = owner.requests(row.id, limit=-1) if turn is None else []
    if not settings.as_json:
        render.timeline(messages, requests, brief=brief)
        return
    for filed in messages:
        message = {"role": filed.message.role, "text": filed.message.text}
        raw = filed.message.raw.decode("utf-8", "surrogateescape")
        rest = {name: getattr(filed, name) for name in ("key", "position", "turn", "side", "partial", "created_at")}
        settings.print_json({"tenant": owner.tenant, "session": row.id, **rest, **message, "raw": raw})


def _passages(settings: Settings, owner: "TenantArchive", session: str, turn: int | None) -> None:
    """The passages of a session with their confidence and success."""
    from lantern_proxy.cli import render

    found = [p for p in owner.passages(session=session) if turn in (None, p.turn)]
    found.sort(key=lambda p: (-p.accesses, -p.confidence, p.id))
    if not settings.as_json:
        render.passages(found)
        return
    names = ("id", "turn", "speaker", "kind", "confidence", "success", "accesses", "accessed_at", "verdict", "pinned")
    for each in found:
        figures = {name: getattr(each, name) for name in names}
        settings.print_json({"tenant": owner.tenant, "session": session, **figures, "text": each.text})


@click.command()
@with_settings
@tenant_option
@click.argument("query", type=NAME)
@limit_option(10, "passages")
@click.option("--session", type=NAME, help="Only this session.")
@click.option("--project", help="Only this project.")
@click.option("--speaker", type=NAME, help="Only what they said: user, assistant, tool, client, or a name.")
@click.option("--kind", type=click.Choice(["episodic", "semantic", "procedural"]), help="Only passages of this kind.")
@click.option("--newer-than", help="Only what was said in this time: 90d, 12h, 30m, 2w; or since a day: 2026-03-01.")
@click.option("--older-than", help="Only what was said before.")
def search(
    settings: Settings,
    tenant: str | None,
    query: str,
    limit: int,
    session: str | None,
    newer_than: str | None,
    older_than: str | None,
    project: str | None,
    speaker: str | None,
    kind: str | None,
) -> None:
    """Show archived passages that match QUERY, best first. "Quoted words" are looked for as a phrase.

    \b
    Example: lantern search 'retry policy' --speaker user --newer-than 2w
    """
    from lantern_proxy.cli import render

    since = None if newer_than is None else time.time() - _seconds("--newer-than", newer_than)
    until = None if older_than is None else time.time() - _seconds("--older-than", older_than)
    is_narrowed = any((tenant, session, project, speaker, kind, newer_than, older_than))
    filters: Filters = {"project": project, "speaker": speaker, "kind": kind, "since": since, "until": until}
    with settings.open() as archive:
        session_id = _session(archive, tenant, session)[1].id if session else None
        hits = [
            (each.tenant, hit)
            for each in tenants(archive, tenant)
            for hit in each.search(query, limit, session_id, **filters)
        ]
        if not hits:
            _refuse_unknown(archive, tenant, project=project, speaker=speaker)
    hits = sorted(hits, key=lambda pair: -pair[1].score)[:limit]
    for owner, hit in hits:
        if settings.as_json:
            rest = {"id": hit.passage.id, "session": hit.passage.session, "turn": hit.passage.turn}
            words = {"speaker": hit.passage.speaker, "created_at": hit.passage.created_at, "text": hit.passage.text}
            settings.print_json({"tenant": owner, **rest, **words, "score": hit.score, "snippet": hit.snippet})
        else:
            render.hit(hit)
    if not hits and not settings.as_json:
        echo("nothing matches; fewer or other words find more" + ", or fewer filters" * is_narrowed)


@click.command()
@with_settings
@tenant_option
@click.option(
    "--older-than", help="Passages and messages older than this: 90d, 12h, 30m, 2w; or said before a day: 2026-03-01."
)
@click.option("--below-confidence", type=Number(0, 1), help="Passages with less confidence than this.")
@click.option("--session", type=NAME, help="Only this session; alone: all of it.")
@click.option("--keep-mb", type=click.IntRange(1), help="The oldest, until about so many megabytes are left.")
@click.option("--retention", is_flag=True, help="What privacy.keep_days, keep_mb and keep_messages no longer want.")
@click.option("--dry-run", is_flag=True, help="Say what would go, remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(
    settings: Settings,
    tenant: str | None,
    older_than: str | None,
    below_confidence: float | None,
    session: str | None,
    keep_mb: int | None,
    retention: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove what is old, or what never helped. Conditions add up: all of them must hold.

    \b
    Example: lantern prune --older-than 180d --below-confidence 0.2 --dry-run
    """
    conditions = (older_than, below_confidence, session, keep_mb)
    if retention and any(condition is not None for condition in (*conditions, tenant)):
        raise click.UsageError("--retention takes its rules from the config; give it alone, or with --yes or --dry-run")
    if retention:
        _retain(settings, dry_run=dry_run, yes=yes)
        return
    if all(condition is None for condition in conditions):
        raise click.UsageError("prune needs --older-than, --below-confidence, --session, --keep-mb or --retention")
    from lantern_proxy.archive import ArchiveError, PruneRule

    age_s = None if older_than is None else _seconds("--older-than", older_than)
    with settings.open(write=not dry_run) as archive:
        if not dry_run:
            with suppress(ArchiveError):  # told when this one is wiped
                finish_wiping(archive, "pruning", quiet=settings.as_json)
        if keep_mb is not None:
            age_s = _age_over_size(archive, keep_mb, age_s)
        owners = tenants(archive, tenant)
        if session:
            owner, row = _session(archive, tenant, session)
            owners, session = [owner], row.id
        rule = PruneRule(older_than_s=age_s, below_confidence=below_confidence, session=session)
        _prune(rule, settings, archive, owners, dry_run=dry_run, yes=yes)


def _prune(
    rule: "PruneRule", settings: Settings, archive: "Archive", owners: "Sequence[TenantArchive]", *, dry_run: bool,
    yes: bool,
) -> None:  # fmt: skip
    """Remove the passages of `rule` from each owner's archive, or show what would be removed (dry_run). yes: without
    asking"""
    now = time.time()
    if dry_run or not yes:
        dry_run_reports = [(owner, owner.prune(rule, now=now, dry_run=True)) for owner in owners]
    if dry_run:
        _print_reports(settings, dry_run_reports, "would remove")
        return
    if not yes:
        _confirm(archive.path, dry_run_reports)
    with removing(archive, "pruning", quiet=settings.as_json) as advance:
        reports = [(owner, owner.prune(rule, now=now, wiped=False, advance=advance)) for owner in owners]
        archive.wipe(advance)
    _print_reports(settings, reports, "removed")


def _print_reports(settings: Settings, reports: "Sequence[tuple[TenantArchive, PruneReport]]", verb: str) -> None:
    for owner, report in reports:
        if settings.as_json:
            settings.print_json({"tenant": owner.tenant, "dry_run": verb != "removed", **json_value(report)})
        else:
            echo(f"{owner.tenant}: {verb} {_amount(report)}")
    if not reports and not settings.as_json:
        echo("nothing is archived")


def _retain(settings: Settings, *, dry_run: bool, yes: bool) -> None:
    """Remove what exceeds the configured retention."""
    from lantern_proxy.archive.retention import leap, retain, would_retain

    config = settings.load()
    keep = config.privacy
    if not (keep.keep_days or keep.keep_mb or keep.keep_messages):
        raise click.ClickException("nothing is to go: set privacy.keep_days, keep_mb or keep_messages")
    with settings.open(write=not dry_run) as archive:
        now = time.time()
        if keep.keep_days and (leapt := leap(archive, now=now)):
            echo(f"{leapt}; where it is right, wait, or `lantern prune --older-than`", err=True)
        if dry_run or not yes:
            dry_run_reports = would_retain(archive, keep, now=now)
        if dry_run:
            _print_report(settings, dry_run_reports, "would remove about")
            return
        if not yes:
            asked = f"Remove about {_amount(dry_run_reports)} from {archive.path}? It cannot be undone."
            confirm(asked)
        with removing(archive, "pruning", quiet=settings.as_json) as advance:
            report = retain(archive, keep, now=now, advance=advance)
    _print_report(settings, report, "removed")


def _print_report(settings: Settings, report: "PruneReport", verb: str) -> None:
    if settings.as_json:
        settings.print_json({"dry_run": verb != "removed", **json_value(report)})
    else:
        echo(f"{verb} {_amount(report)}")


def _age_over_size(archive: "Archive", keep_mb: int, age_s: float | None) -> float:
    """The age in seconds beyond which passages are removed, so that about `keep_mb` are left, or `age_s` if that is
    more; infinite if there are no more than `keep_mb`."""
    import math

    from lantern_proxy.archive.retention import cutoff_of_size

    cutoff = cutoff_of_size(archive, keep_mb)
    if cutoff is None:
        return math.inf
    return max(age_s or 0.0, time.time() - cutoff, 0.0)


def _confirm(path: Path, would: "Iterable[tuple[TenantArchive, PruneReport]]") -> None:
    """Show what would be removed and ask for confirmation; click.Abort for a no. If nothing would be removed, it does
    not ask."""
    some = [(owner, report) for owner, report in would if _removes_some(report)]
    for owner, report in some:
        echo(f"{owner.tenant}: {_amount(report)}", err=True)
    if not some:
        return
    confirm(f"Remove this from {path}? It cannot be undone.")


def _removes_some(report: "PruneReport") -> bool:
    return any((report.passages, report.messages, report.blocks, report.sessions))


def _amount(report: Any) -> str:
    from lantern_proxy.cli.render import counted

    each = ("passage", "message", "block", "session", "byte")
    return ", ".join(counted(getattr(report, f"{name}s"), name) for name in each)


def _session(archive: "Archive", tenant: str | None, start: str) -> tuple["TenantArchive", Any]:
    """(owner, session) whose id is `start`, or the only one whose id begins with it. ClickException."""
    found = sessions_named(archive, tenant, start)
    if len(found) > 1:
        raise click.ClickException(f"{len(found)} tenants have a session {start}; say whose is meant: --tenant")
    return found[0]


def sessions_named(archive: "Archive", tenant: str | None, start: str) -> list[tuple["TenantArchive", Any]]:
    """(owner, session) of each whose id is `start`, or begins with it where there is only one such id. A client's own
    name for a session may occur in several tenants. ClickException if there is none."""
    owners = tenants(archive, tenant)
    exact = [(owner, row) for owner in owners if (row := owner.session(start))]
    found = exact or [(o, row) for o in owners for row in o.sessions(limit=-1) if row.id.startswith(start)]
    if len({row.id for _, row in found}) != 1:
        wrong = f"{len(found)} sessions begin with {start}" if found else f"no session begins with {start}"
        raise click.ClickException(f"{wrong}; `lantern sessions` lists them")
    return found


def _refuse_unknown(archive: "Archive", tenant: str | None, *, project: str | None, speaker: str | None = None) -> None:
    """ClickException for a project or a speaker that nobody has: it names those that are like it."""
    from difflib import get_close_matches

    wanted: dict[Literal["project", "speaker"], str | None] = {"project": project, "speaker": speaker}
    for kind, name in wanted.items():
        if name is None or name in _ROLES:
            continue
        known = {each for owner in tenants(archive, tenant) for each in owner.names(kind)}
        if name not in known:
            named = {each.casefold(): each for each in sorted(known)}
            close = [named[each] for each in get_close_matches(name.casefold(), named)] or sorted(known)[:_MOST_NAMES]
            suggestions = ", ".join(map(repr, close)) or "none"
            raise click.ClickException(f"{kind} {name!r} has nothing in {archive.path}; there is {suggestions}")


def _seconds(option: str, text: str) -> float:
    """90d -> 7,776,000; a day such as 2026-03-01 -> seconds since it began, local time."""
    with suppress(ValueError):
        return time.time() - datetime.strptime(text, "%Y-%m-%d").timestamp()
    number, unit = text[:-1], text[-1:]
    if unit not in _SECONDS or not number.isascii() or not number.replace(".", "", 1).isdigit():
        raise click.UsageError(
            f"{option} is {text!r}; use a number and a unit (90d, 12h, 30m, 2w) or a day (2026-03-01)"
        )
    return float(number) * _SECONDS[unit]
