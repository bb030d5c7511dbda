"""Which scopes have snapshots beside the archive, and when one is still valid: see archive/snapshots.py for the files.

Kept are the scopes of a tenant or a project with LEAST passages or more; a session's is built anew in milliseconds. One
fits when it is of this archive, nothing was forgotten since, and the archive still has all of its passages: ids are
never used again, so what came later is added, and corrections are followed by their number. Else all is built anew.
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
"""A snapshot is written again when its scope has grown by this share."""
BYTES_S = 500e6
"""Checked per second, at least; from memory it is four times as much."""
LATER: Literal["later"] = "later"


def name_of(key: "Key") -> str:
    """What tells the scope from the tenant's other ones."""
    return f"{key.unit}\n{'all' if key.project is None else f'project {key.project}'}"


def stamp_of(archive: Archive) -> str:
    """Tells this archive from others, and from itself before something was forgotten."""
    return f"{archive.stamp}/{archive.forgets}"


def is_due(key: "Key", n: int, kept: int) -> bool:
    """Should a scope of n passages be written, when the last snapshot held `kept`?"""
    return key.session is None and key.unit == "passage" and n >= LEAST and n - kept >= GROWTH * kept


def read(archive: Archive, key: "Key", deadline: float) -> Snapshot | Literal["later"] | None:
    """The snapshot of a scope; None: there is none that fits; LATER: there is one, but not before the deadline."""
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
    """Put a scope's snapshot beside the archive; whether it is there now. Raises OSError.

    Looked at again when it is in place: a prune that went on meanwhile may have removed the old one before.
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
    """Does the archive, if it is still there, still have every passage of it? Nothing is kept in the clear beside an
    encrypted one."""
    if archive.encrypted or not archive.is_there or snapshot.archive != stamp_of(archive):
        return False
    last = int(snapshot.ids[-1]) if len(snapshot.ids) else 0
    return archive.of(key.tenant).count(last, project=key.project, unit=key.unit) == len(snapshot.ids)
