"""What `lantern import` does with a file of `lantern export`."""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from lantern_proxy.cli_frame import Settings


def is_export(path: Path) -> bool:
    """Does `lantern export` write such a file? Its first line is a session with its head."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            first = json.loads(file.readline(10_000_000))
        except ValueError:
            return False
    return isinstance(first, dict) and first.get("type") == "session" and "head" in first


def take_in(settings: Settings, file: Path, tenant: str | None) -> None:
    """Archive what the export holds, for `tenant` or those that it names, and tell how much that was."""
    import time

    from lantern_proxy import archive_transfer
    from lantern_proxy.archive import Archive, ArchiveError

    config = settings.load().archive
    counts: dict[str, dict[str, int]] = {}
    with Archive(config.path, synchronous=config.synchronous, key=config.key()) as archive:
        for owner, rows in groupby(_rows(file), key=lambda row: str(row.get("tenant", ""))):
            whose = tenant or owner
            if not whose:
                raise ArchiveError("the export names no tenant; name one with --tenant")
            counts[whose] = dict(archive_transfer.take_in(archive, whose, rows, now=time.time()))
    for whose, found in counts.items():
        if settings.as_json:
            settings.tell({"tenant": whose, **found})
        else:
            click.echo(f"{whose}: " + ", ".join(f"{count:,} {kind}s" for kind, count in found.items()))


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    from lantern_proxy.archive import ArchiveError

    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise ArchiveError(f"line {number} of {file} is no JSON object; take a file of `lantern export`")
            yield row
