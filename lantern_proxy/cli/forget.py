"""`lantern forget`: take something out for good, and prove it."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lantern_proxy.cli.frame import Settings, plain, removing, settled, tenants

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive, ForgetRule, Receipt
    from lantern_proxy.config import Config

_NOTICED_S = 0.6
"""Running proxies look for what was forgotten every quarter of a second."""


@click.command()
@settled
@click.option("--session", help="One session with its side calls; its id.")
@click.option("--project", help="All sessions of one project.")
@click.option("--match", metavar="TEXT", help="Every message and passage that holds TEXT, in any case.")
@click.option("--tenant", help="Of this tenant; alone: all that it has. Without it: of all tenants.")
@click.option("--dry-run", is_flag=True, help="Say what would go, remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--verify", metavar="RECEIPT", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              help="Check a receipt: is it genuine, and is none of what it lists here again?")  # fmt: skip
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
    if verify is not None:
        sys.exit(_verify(settings, verify))
    if session is None and project is None and match is None and tenant is None:
        raise click.UsageError("forget needs --session, --project, --match or --tenant")
    rule = ForgetRule(session=session, project=project, match=match)
    with settings.open(write=True) as archive:
        owners = [each.tenant for each in tenants(archive, tenant)]
        would = _would(archive, owners, rule)
        if not would:
            if archive.unwiped and not dry_run:  # by a run that was stopped
                with removing(archive, "forgetting", quiet=settings.as_json) as advance:
                    archive.wipe(advance)
            way_out = "" if match is not None else "; ids and names must be whole"
            raise click.ClickException(f"nothing of {_what(rule, tenant)} is in {archive.path}{way_out}")
        if dry_run:
            _tell(settings, would, "would remove")
            return
        if not yes:
            _confirm(would, archive.path)
        owners = [receipt.tenant for receipt in would]
        with removing(archive, "forgetting", quiet=settings.as_json) as advance:
            done = archive.forget_all(owners, rule, now=time.time(), advance=advance)
    _elsewhere(config, [receipt.tenant for receipt in done], rule)
    _tell(settings, done, "removed")


def _confirm(would: Sequence["Receipt"], path: Path) -> None:
    for receipt in would:
        click.echo(f"{receipt.tenant}: {_amount(receipt)}", err=True)
    click.confirm(f"Forget this for good, in {path}?", abort=True, err=True)


def _would(archive: "Archive", owners: list[str], rule: "ForgetRule") -> list["Receipt"]:
    """Receipts of those tenants that have something of it."""
    import time

    receipts = [archive.forget(each, rule, now=time.time(), dry_run=True) for each in owners]
    return [receipt for receipt in receipts if any(receipt.removed.values())]


def _elsewhere(config: "Config", owners: list[str], rule: "ForgetRule") -> None:
    """Backups, and the memory of running proxies."""
    import time

    from lantern_proxy.archive import Archive

    for backup in backups(config):
        with Archive(backup, key=config.archive.key()) as archive:
            for receipt in archive.forget_all(owners, rule, now=time.time()):
                if any(receipt.removed.values()):
                    click.echo(f"{backup}: removed {_amount(receipt)}", err=True)
    time.sleep(_NOTICED_S)


def backups(config: "Config") -> Iterator[Path]:
    """The copies of the archive that the config names, as far as they exist."""
    for named in config.archive.backups:
        pattern = Path(named).expanduser()
        yield from sorted(
            each for each in pattern.parent.glob(pattern.name) if each.suffix not in (".db-wal", ".db-shm")
        )


def _verify(settings: Settings, path: Path) -> int:
    """0 when all receipts in the file are genuine and nothing that they list is here."""
    from lantern_proxy.archive import Receipt

    fine = True
    with settings.open() as archive:
        for line in filter(str.strip, path.read_text("utf-8").splitlines()):
            receipt = Receipt.read(line)
            found = archive.verify(receipt)
            fine &= found.genuine and not found.present
            if settings.as_json:
                settings.tell({"tenant": receipt.tenant, **plain(found)})
            else:
                genuine = "genuine" if found.genuine else "NOT of this archive, or changed"
                click.echo(
                    f"{receipt.tenant}: receipt is {genuine}; {found.present} of {len(receipt.marks)} rows are here"
                )
    return 0 if fine else 1


def _tell(settings: Settings, receipts: Sequence["Receipt"], verb: str) -> None:
    """Receipts, and all JSON, go to stdout, for a file; what they say to people then goes to stderr."""
    machine = verb == "removed" or settings.as_json
    for receipt in receipts:
        if machine:
            settings.tell(receipt)
        click.echo(f"{receipt.tenant}: {verb} {_amount(receipt)}", err=machine)
        if receipt.left_over:
            why = "of another tenant, part of a word, or a leftover of SQLite"
            click.echo(f"{receipt.left_over} places in the file still hold it: {why}", err=True)


def _amount(receipt: "Receipt") -> str:
    from lantern_proxy.cli.render import counted

    told = []
    for kinds, count in receipt.removed.items():
        if count:
            what, space, of = kinds.partition(" ")  # "texts of requests"
            told.append(counted(count, what.removesuffix("s")) + space + of)
    return ", ".join(told) or "nothing"


def _what(rule: "ForgetRule", tenant: str | None) -> str:
    held: dict[str, Any] = {"session": rule.session, "project": rule.project, "match": rule.match, "tenant": tenant}
    return ", ".join(f"{kind} {value}" for kind, value in held.items() if value is not None)
