"""Where index snapshots lie beside an archive, and their removal.

    lantern.db
    lantern.db.bm25/          mode 0700
        salt                  random; file names are hashed with it, so that they reveal no tenant
        1f6...-9ac....index   mode 0600; the index of a tenant's or a project's passages (restore/scope.py)

Snapshots are copies: without them an index is rebuilt from the archive. They hold terms of archived text, so
prune.wipe() drops those of a tenant of whom something was removed.
"""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from lantern_proxy import mapped

_SUFFIX = ".index"


def folder(archive: Path) -> Path:
    """The folder of an archive's snapshots, whether it exists or not: beside the file itself, so that whoever reaches
    that by another name, or by a link, removes the same."""
    return Path(f"{archive.resolve()}.bm25")


def snapshot_path(archive: Path, tenant: str, scope: str, *, make: bool = True) -> Path | None:
    """The file of a scope's snapshot. Raises OSError.

    make: create the folder if needed; otherwise None is returned if it does not exist
    """
    home = folder(archive)
    if make:
        home.mkdir(mode=0o700, exist_ok=True)
    elif not home.is_dir():
        return None
    salt = _salt(home)
    whose, which = _name(salt, tenant), _name(salt, f"{tenant}\0{scope}")
    return home / f"{whose}-{which}{_SUFFIX}"


def drop_snapshots(archive: Path, tenant: str | None = None) -> int:
    """Remove the snapshots of one tenant, or of all if None; returns their number.

    Their bytes are overwritten first, or as soon as no process has them mapped (mapped.py). Raises OSError if one of
    them cannot be removed.
    """
    home = folder(archive)
    if not home.is_dir():
        return 0
    start = "" if tenant is None else f"{_name(_salt(home), tenant)}-"
    found = [path for path in home.iterdir() if path.name.startswith(start) and path.name != "salt"]
    for path in found:
        mapped.remove(path)
    return len(found)


def _name(salt: bytes, what: str) -> str:
    return hashlib.blake2b(what.encode("utf-8", "surrogatepass"), key=salt, digest_size=12).hexdigest()


def _salt(home: Path) -> bytes:
    """The salt, created on first use. If another process creates one at the same time, the first one counts."""
    path = home / "salt"
    with contextlib.suppress(FileNotFoundError):
        if len(salt := path.read_bytes()) == 32:
            return salt
    made = home / f"salt.{secrets.token_hex(8)}"
    made.touch(mode=0o600)
    made.write_bytes(secrets.token_bytes(32))
    try:
        os.link(made, path)
    except FileExistsError:
        pass
    except OSError:  # no hard links on this file system
        os.replace(made, path)
    made.unlink(missing_ok=True)
    return path.read_bytes()
