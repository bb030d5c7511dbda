"""opencode's stored sessions, read as `opencode export` would write each of them. Read-only.

for export in exports(Path("~/.local/share/opencode/opencode.db").expanduser()):
    export["info"], [(message["info"], message["parts"]) for message in export["messages"]]

stored(Path("~/.local/share/opencode/storage").expanduser())     # the same for versions before 1.2
"""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

NAME = "opencode.db"
_SESSIONS = "SELECT id, title FROM session WHERE parent_id IS NULL ORDER BY time_created, id"
"""Sessions without a parent: those of sub-agents have one."""
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT data FROM part WHERE message_id = ? ORDER BY id"


def is_database(path: Path) -> bool:
    """Is it an SQLite file?"""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def exports(path: Path) -> Iterator[dict[str, Any]]:
    """Its sessions except those of sub-agents, oldest first.

    Raises sqlite3.Error for another program's database, ValueError for a row that is not JSON.
    """
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        for id, title in db.execute(_SESSIONS).fetchall():
            messages = [
                {"info": json.loads(data), "parts": [json.loads(part) for (part,) in db.execute(_PARTS, (message,))]}
                for message, data in db.execute(_MESSAGES, (id,)).fetchall()
            ]
            yield {"info": {"id": id, "title": title}, "messages": messages}


def storage_of(path: Path) -> Path | None:
    """opencode's folder `storage`, if `path` is it or contains it."""
    for folder in (path, path / "storage"):
        if (folder / "message").is_dir() and (folder / "part").is_dir() and (folder / "session").is_dir():
            return folder
    return None


def stored(storage: Path) -> Iterator[dict[str, Any]]:
    """The sessions of a folder `storage` except those of sub-agents, by file name."""
    for file in files(storage / "session", "**/*.json"):
        info = _read(file)
        id = str(info.get("id") or file.stem)
        if info.get("parentID") or not _is_name(id):  # a sub-agent, or not one of opencode's files
            continue
        messages = [_read(each) for each in files(storage / "message" / id, "*.json")]
        messages.sort(key=lambda m: ((m.get("time") or {}).get("created") or 0, str(m.get("id"))))
        contents = [{"info": m, "parts": _parts(storage, str(m.get("id")))} for m in messages]
        yield {"info": {**info, "id": id}, "messages": contents}


def _parts(storage: Path, message: str) -> list[dict[str, Any]]:
    return [_read(each) for each in files(storage / "part" / message, "*.json")] if _is_name(message) else []


def _is_name(id: str) -> bool:
    """Is `id` a plain file name? A path could lead out of the folder."""
    return id not in ("", ".", "..") and not set(id) & set("/\\\0")


def _read(file: Path) -> dict[str, Any]:
    return json_object(file.read_text("utf-8", "replace"))


def json_object(text: str) -> dict[str, Any]:
    """The object that a text holds as JSON; {} if it holds none."""
    try:
        found = parsed(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def parsed(text: str) -> Any:
    """Parsed JSON; None for NaN and infinities, which JSON lacks and Python writes. ValueError, RecursionError."""
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def files(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder, sorted; without links, which may lead anywhere."""
    if folder.is_symlink():
        return []
    return sorted(each for each in folder.glob(pattern) if each.is_file() and not each.is_symlink())
