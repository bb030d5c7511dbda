"""`lantern forget`: removes something for good, and proves it."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from lantern_proxy.cli.frame import (
    NAME,
    Place,
    Settings,
    confirm,
    echo,
    finish_wiping,
    json_value,
    removing,
    tenants,
    with_settings,
)

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive, ForgetRule, Receipt
    from lantern_proxy.config import Config

_PROXY_CHECK_S = 0.6
"""Running proxies check for forgotten data every quarter of a second."""


@click.command()
@with_settings
@click.option("--session", type=NAME, help="One session with its side calls; its id.")
@click.option("--project", type=NAME, help="All sessions of one project.")
@click.option("--match", metavar="TEXT", help="Every message and passage that holds TEXT, in any case.")
@click.option("--tenant", type=NAME, help="Of this tenant; alone: all that it has. Without it: of all tenants.")
@click.option("--dry-run", is_flag=True, help="Say what would go, remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--verify", metavar="RECEIPT", type=Place(dir_okay=False, exists=True),
              help="Check a receipt: is it genuine, and is none of what it lists here again? Nor of what --session, "
              "--project, --match or --tenant name beside it?")  # fmt: skip
def forget(
    settings: Settings,
    session: str | None,
    project: str | None,
    match: str | None,
    tenant: str | None,
    dry_run: bool,
    yes: bool,
    verify: Path | None,
) -> None:
    """Forget a session, a project, a tenant, or whatever holds a text: rows, indexes, vectors, log and known backups.

    Running proxies let go of it, too, and it stays out when clients send it again. Prints a receipt for each tenant,
    as JSON, which --verify checks.

    \b
    Example: lantern forget --match "4111 1111 1111 1111" --dry-run
    """
    import time

    from lantern_proxy.archive import ForgetRule

    config = settings.load()
    rule = ForgetRule(session=session, project=project, match=match)
    is_named = any(each is not None for each in (session, project, match, tenant))
    if verify is not None:
        genuine = _verify(settings, verify)
        sys.exit(0 if (not is_named or _is_gone(settings, rule, tenant)) and genuine else 1)
    if not is_named:
        raise click.UsageError("forget needs --session, --project, --match or --tenant")
    copies = [_inspect_copy(config, each, rule, tenant) for each in backups(config)]
    holding = [copy for copy in copies if copy.may_hold]
    with settings.open(write=not dry_run) as archive:
        receipts = _would_remove(archive, rule, tenant)
        if not receipts and not dry_run:
            finish_wiping(archive, "forgetting", quiet=settings.as_json)
        if not receipts and not holding:
            _raise_faults(copies)
            _refuse_nothing_found(archive, rule, tenant)
        if not dry_run and not yes:
            _confirm(receipts, archive.path, holding)
        # the proof of it comes before the backups, whatever becomes of them
        if dry_run:
            _print_receipts(settings, receipts, "would remove")
        else:
            _remove(settings, archive, receipts, rule)
    if not dry_run:  # a backup may have begun, or ended, while it was asked
        known = {copy.path for copy in copies}
        copies += [_inspect_copy(config, each, rule, tenant) for each in backups(config) if each not in known]
        holding = [copy for copy in copies if copy.may_hold]
    for copy in holding:
        _print_copy(copy, "would remove") if dry_run else _forget_in_copy(config, copy, rule, tenant)
    if not dry_run:
        time.sleep(_PROXY_CHECK_S)
    _raise_faults(copies)


def _remove(settings: Settings, archive: "Archive", receipts: Sequence["Receipt"], rule: "ForgetRule") -> None:
    """Remove what `rule` names from the archives of the tenants in `receipts`, and print their receipts."""
    import time

    if receipts:
        owners = [receipt.tenant for receipt in receipts]
        with removing(archive, "forgetting", quiet=settings.as_json) as advance:
            done = archive.forget_all(owners, rule, now=time.time(), advance=advance)
        _print_receipts(settings, done, "removed")


def _refuse_nothing_found(archive: "Archive", rule: "ForgetRule", tenant: str | None) -> None:
    from lantern_proxy.archive.raw import occurrences

    tenants(archive, tenant)  # one that is not known is the reason
    nothing = f"nothing of {_described(rule, tenant)} is in {archive.path}"
    if rule.match is None:
        raise click.ClickException(f"{nothing}; ids and names must be whole")
    left_over = occurrences(archive.path, rule.match)
    raise click.ClickException(f"{nothing}'s texts; {_held_by(left_over)}" if left_over else nothing)


def _confirm(receipts: Sequence["Receipt"], path: Path, copies: Sequence["_Copy"]) -> None:
    for receipt in receipts:
        echo(f"{receipt.tenant}: {_amount(receipt)}", err=True)
    for copy in copies:
        _print_copy(copy, "to be forgotten")
    where = ", ".join(map(str, [*([path] if receipts else ()), *(copy.path for copy in copies)]))
    confirm(f"Forget this for good, in {where}?")


def _would_remove(archive: "Archive", rule: "ForgetRule", tenant: str | None) -> list["Receipt"]:
    """The receipts of a dry run, for tenants with data that `rule` names."""
    import time

    owners = [each.id for each in archive.tenants() if tenant in (None, each.id)]
    receipts = [archive.forget(each, rule, now=time.time(), dry_run=True) for each in owners]
    return [receipt for receipt in receipts if any(receipt.removed.values())]


class _Copy(Struct):
    """A backup, and what was found in it."""

    path: Path
    would: Sequence["Receipt"] = ()
    is_older: bool = False
    """It has an older schema and cannot be searched without migrating it."""
    fault: str = ""

    @property
    def may_hold(self) -> bool:
        return bool(self.would) or self.is_older


def _inspect_copy(config: "Config", path: Path, rule: "ForgetRule", tenant: str | None) -> _Copy:
    """The data in a backup that `rule` names. Nothing is written."""
    from lantern_proxy.archive import Archive, ArchiveError
    from lantern_proxy.archive.backup import is_partial
    from lantern_proxy.archive.errors import OlderError

    if path.is_dir():
        return _Copy(path, fault=f"is a folder; name the copies in it, as {path / '*'}")
    if is_partial(path):
        return _Copy(path, fault="is a copy under way, or what a killed one left; let it end, or remove this")
    try:
        with Archive(path, read_only=True, key=config.archive.key()) as archive:
            return _Copy(path, _would_remove(archive, rule, tenant))
    except OlderError:
        return _Copy(path, is_older=True)
    except (ArchiveError, OSError) as error:
        return _Copy(path, fault=str(error))


def _forget_in_copy(config: "Config", copy: _Copy, rule: "ForgetRule", tenant: str | None) -> None:
    """Remove what `rule` names from a backup and report the amount; an error is stored in `copy`."""
    import time

    from lantern_proxy.archive import Archive, ArchiveError

    try:
        with Archive(copy.path, key=config.archive.key()) as archive:
            owners = [receipt.tenant for receipt in _would_remove(archive, rule, tenant)]
            copy.would = archive.forget_all(owners, rule, now=time.time())
        _print_copy(copy, "removed")
    except (ArchiveError, OSError) as error:
        copy.fault = str(error)


def _print_copy(copy: _Copy, verb: str) -> None:
    for receipt in copy.would:
        echo(f"{copy.path}: {verb} {_amount(receipt)}", err=True)


def _raise_faults(copies: Sequence[_Copy]) -> None:
    """Raises ClickException if there were errors: those backups may still have the data."""
    faults = [copy for copy in copies if copy.fault]
    for copy in faults:
        echo(f"{copy.path}: {copy.fault}", err=True)
    if faults:
        raise click.ClickException(
            f"{len(faults)} of {len(copies)} backups may still hold it; mend or remove them, or name others in "
            "archive.backups, and run this again"
        )


def backups(config: "Config") -> Iterator[Path]:
    """The existing copies of the archive named in the config, including incomplete ones."""
    from lantern_proxy.archive.backup import partial

    for named in config.archive.backups:
        pattern = Path(named).expanduser()
        if pattern.is_dir():
            yield pattern
        names = {pattern.name, f"{partial(pattern, '[0-9]*').name}*"}
        found = {each for name in names for each in pattern.parent.glob(name) if each.is_file()}
        yield from sorted(each for each in found if not each.name.endswith(("-wal", "-shm", "-journal")))


def _is_gone(settings: Settings, rule: "ForgetRule", tenant: str | None) -> bool:
    """Is nothing left of what is named along with --verify?"""
    with settings.open() as archive:
        remaining = _would_remove(archive, rule, tenant)
        for receipt in remaining:
            row = {"tenant": receipt.tenant, "here": receipt.removed}
            settings.print_json(row) if settings.as_json else echo(f"{receipt.tenant}: {_amount(receipt)} are here")
        if not remaining and not settings.as_json:
            echo(f"nothing of {_described(rule, tenant)} is in {archive.path}")
    return not remaining


def _verify(settings: Settings, path: Path) -> bool:
    """Are all receipts in the file genuine, and is nothing that they list left in the archive?"""
    from lantern_proxy.archive import ArchiveError, Receipt

    fine, lines = True, [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
    with settings.open() as archive:
        for line in lines or [""]:  # none is no proof of anything
            try:
                receipt = Receipt.read(line)
            except ArchiveError as error:
                raise ArchiveError(f"{path}: {error}") from None
            found = archive.verify(receipt)
            fine &= found.genuine and not found.present
            if settings.as_json:
                settings.print_json({"tenant": receipt.tenant, **json_value(found)})
            else:
                genuine = "genuine" if found.genuine else "NOT of this archive, or changed"
                echo(f"{receipt.tenant}: receipt is {genuine}; {found.present} of {len(receipt.marks)} rows are here")
    return fine


def _print_receipts(settings: Settings, receipts: Sequence["Receipt"], verb: str) -> None:
    """Print receipts and the amount removed, which goes to stderr if stdout gets receipts or JSON."""
    machine = verb == "removed" or settings.as_json
    for receipt in receipts:
        if machine:
            settings.print_json(receipt)
        echo(f"{receipt.tenant}: {verb} {_amount(receipt)}", err=machine)
        if receipt.left_over:
            echo(_held_by(receipt.left_over), err=True)


def _held_by(places: int) -> str:
    return (
        f"{places} places in the file still hold it: another tenant's text, part of a word, a leftover of SQLite, or a "
        "name of a session, project or tool, which --session or --project forgets (see `lantern sessions --json`)"
    )


def _amount(receipt: "Receipt") -> str:
    from lantern_proxy.cli.render import counted

    parts = []
    for kinds, count in receipt.removed.items():
        if count:
            what, space, of = kinds.partition(" ")  # "texts of requests"
            parts.append(counted(count, what.removesuffix("s")) + space + of)
    return ", ".join(parts) or "nothing"


def _described(rule: "ForgetRule", tenant: str | None) -> str:
    held: dict[str, Any] = {"session": rule.session, "project": rule.project, "match": rule.match, "tenant": tenant}
    return ", ".join(f"{kind} {value}" for kind, value in held.items() if value is not None)
