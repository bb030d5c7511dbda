"""Which scopes have snapshots beside the archive, and when one is still valid: see archive/snapshots.py for the files.

Snapshots exist for scopes of a tenant or project with at least LEAST passages; a session's scope is built in
milliseconds. A snapshot is valid if it belongs to this archive, nothing was forgotten since, and the archive still has
all of its passages. Ids are never reused, so later passages can be added and corrections applied by number. Otherwise
the scope is rebuilt.
"""

import time
from typing import TYPE_CHECKING, Literal

from lantern_proxy.archive import Archive
from lantern_proxy.archive.snapshots import snapshot_path
from lantern_proxy.bm25 import file as bm25_file
from lantern_proxy.bm25.file import Snapshot

if TYPE_CHECKING:
    from lantern_proxy.restore.scope import Key

LEAST = 5_000
GROWTH = 0.25
"""A snapshot is rewritten when its scope has grown by this share."""
BYTES_S = 500e6
"""Bytes verified per second, at least; from the page cache it is four times as much."""
LATER: Literal["later"] = "later"


def name_of(key: "Key") -> str:
    """Identifies the scope among the tenant's other ones."""
    return f"{key.unit}\n{'all' if key.project is None else f'project {key.project}'}"


def stamp_of(archive: Archive) -> str:
    """Identifies this archive, in its state since something was last forgotten."""
    return f"{archive.stamp}/{archive.forgets}"


def is_due(key: "Key", n: int, kept: int) -> bool:
    """Should a scope of n passages be saved, when the last snapshot had `kept`?"""
    return key.session is None and key.unit == "passage" and n >= LEAST and n - kept >= GROWTH * kept


def read(archive: Archive, key: "Key", deadline: float) -> Snapshot | Literal["later"] | None:
    """The snapshot of a scope; None if there is no valid one; LATER if there is one but too little time to read it."""
    if key.session is not None or key.unit != "passage":
        return None
    try:
        path = snapshot_path(archive.path, key.tenant, name_of(key), make=False)
        size_bytes = path.stat().st_size if path else 0
    except OSError:
        return None
    if path is None or not size_bytes:
        return None
    if size_bytes / BYTES_S > deadline - time.monotonic():
        return LATER
    found = bm25_file.read(path, archive=stamp_of(archive), scope=name_of(key))
    if found is None or _fits(archive, key, found):
        return found
    found.index.close()
    return None


def write(archive: Archive, key: "Key", snapshot: Snapshot) -> bool:
    """Write a scope's snapshot beside the archive; True if it exists now. Raises OSError.

    It is validated again once it is in place: a concurrent prune may have removed the old file before.
    """
    if not _fits(archive, key, snapshot):
        return False
    path = snapshot_path(archive.path, key.tenant, name_of(key))
    if path is None or not bm25_file.write(path, snapshot):
        return False
    if not _fits(archive, key, snapshot):
        path.unlink(missing_ok=True)
        return False
    return True


def _fits(archive: Archive, key: "Key", snapshot: Snapshot) -> bool:
    """Does the archive still exist and have every passage of the snapshot? An encrypted archive has no snapshots, which
    would be plain text."""
    if archive.encrypted or not archive.is_there or snapshot.archive != stamp_of(archive):
        return False
    last = int(snapshot.ids[-1]) if len(snapshot.ids) else 0
    return archive.of(key.tenant).count(last, key.project) == len(snapshot.ids)
