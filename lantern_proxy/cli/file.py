"""The commands for the archive as a file: export, recover, migrate, reindex."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from lantern_proxy.cli.frame import NEW_FILE, Settings, json_value, naming_file, tenant_option, tenants, with_settings


@click.command()
@with_settings
@tenant_option
@click.option("-o", "--output", type=NEW_FILE, help="A file; standard output by default.")
@click.option("--backup", type=NEW_FILE, help="Copy the whole archive to this file instead.")
def export(settings: Settings, tenant: str | None, output: Path | None, backup: Path | None) -> None:
    """Write everything that is archived as JSON lines: sessions, messages, passages, requests, blocks.

    With --backup, copy the archive itself, also while a proxy writes it; the copy is checked. Name such copies in
    archive.backups, so that `lantern forget` finds them.

    \b
    Example: lantern export --backup nightly.db
    """
    if backup is not None:
        if output is not None or tenant is not None:
            raise click.UsageError("--backup copies the whole archive; leave --output and --tenant out")
        _back_up(settings, backup)
        return

    with settings.open() as archive:
        owners = tenants(archive, tenant)
        rows = ({"tenant": owner.tenant, **row} for owner in owners for row in owner.export())
        if output is None or str(output) == "-":
            with naming_file("standard output"):
                for row in rows:
                    settings.print_json(row)
            return
        count = _write_rows(rows, output)
    summary = {"output": output, "rows": count}
    settings.print_json(summary) if settings.as_json else click.echo(f"wrote {count:,} rows to {output}")


def _write_rows(rows: Iterable[dict[str, Any]], output: Path) -> int:
    """Write the rows as JSON lines; returns how many."""
    from lantern_proxy.cli import render

    count = 0
    with render.counting(f"writing {output}") as advance, _new_private_file(output) as file:
        for row in rows:
            file.write(json.dumps(row, default=json_value) + "\n")
            advance(1)
            count += 1
    return count


def _back_up(settings: Settings, target: Path) -> None:
    from lantern_proxy.archive.backup import backup
    from lantern_proxy.cli import render

    archive = settings.file()
    with render.counting_to("copying pages", quiet=settings.as_json) as progress:
        size = backup(archive.path, target, progress, key=archive.key())
    summary = {"backup": target, "size_bytes": size}
    settings.print_json(summary) if settings.as_json else click.echo(
        f"copied {size:,} bytes to {target}; its pages are sound"
    )


@click.command()
@with_settings
@click.argument("target", type=NEW_FILE)
def recover(settings: Settings, target: Path) -> None:
    """Save what can be read of a damaged archive into a new one, TARGET. Stop the proxy first; the old file stays.

    \b
    Example: lantern recover saved.db --archive lantern.db
    """
    from lantern_proxy.archive.backup import recover as salvage
    from lantern_proxy.cli import render

    archive = settings.file()
    with render.counting_to("reading rows", quiet=settings.as_json) as progress:
        saved = salvage(archive.path, target, progress, key=archive.key())
    if settings.as_json:
        settings.print_json({"target": target, "tables": [json_value(each) for each in saved]})
    else:
        for each in saved:
            faults = f", {each.faults} places could not be read" if each.faults else ""
            click.echo(f"{each.table:<10} {each.rows:>9,} rows{faults}")
        click.echo(
            f"written to {target}; move {archive.path} away, with {archive.path.name}-wal and -shm where they are, put "
            "the new one in its place, then run `lantern reindex`"
        )
    if not any(each.rows for each in saved if each.table == "messages"):
        raise click.ClickException(f"no message of {archive.path} could be saved; restore a backup if there is one")


@contextmanager
def _new_private_file(path: Path) -> Iterator[Any]:
    """A new text file with mode 0600: an export is as confidential as the archive.

    If writing fails the file is removed: half an export could be mistaken for a whole one.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with naming_file(path), open(descriptor, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@click.command()
@with_settings
@click.option("--encrypt", is_flag=True, help="Encrypt a plain archive with the configured key; stop lantern first.")
def migrate(settings: Settings, encrypt: bool) -> None:
    """Bring the archive's schema up to date. `serve` does this by itself at its start.

    \b
    Example: lantern migrate --archive old.db
    """
    if encrypt:
        _encrypt(settings)
    with settings.open(write=True) as archive:
        summary = {"archive": archive.path, "version": archive.version, "encrypted": archive.encrypted}
    encrypted = " and encrypted" if archive.encrypted else ""
    message = f"{archive.path} is at version {summary['version']}{encrypted}"
    settings.print_json(summary) if settings.as_json else click.echo(message)


def _encrypt(settings: Settings) -> None:
    from lantern_proxy.archive import file as archive_file
    from lantern_proxy.cli import render

    config = settings.file()
    if not config.key():
        raise click.ClickException("there is no key: set archive.key_env or archive.key_file")
    with render.counting("encrypting", quiet=settings.as_json):  # nothing to count, but that it goes on is shown
        archive_file.encrypt(config.path, config.key())


@click.command()
@with_settings
@click.option("--vectors", is_flag=True, help="Forget all vectors first: after a change of embed.model.")
def reindex(settings: Settings, vectors: bool) -> None:
    """Make the indexes anew: full text, the terms of passages that an older release archived, snapshots of large BM25
    indexes, and vectors for passages that have none (with --vectors, for all).

    \b
    Example: lantern reindex --vectors
    """
    from lantern_proxy.cli import reindex as cli_reindex

    with settings.open(write=True) as archive:
        summary = cli_reindex.run(archive, settings.load(), vectors=vectors, quiet=settings.as_json)
    if settings.as_json:
        settings.print_json(summary)
    else:
        skipped = f"; no vectors: {summary['skipped']}" if summary["skipped"] else ""
        made = f"full-text index and {summary['snapshots']} snapshots of large indexes made anew"
        read = f"{summary['analysed']:,} passages got other terms"
        click.echo(f"{made}, {read}, {summary['embedded']:,} passages embedded{skipped}")
