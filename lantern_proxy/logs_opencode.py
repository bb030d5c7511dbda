"""opencode's database, read as what `opencode export` writes of each session. Reads the file, changes nothing in it.

    for export in exports(Path("~/.local/share/opencode/opencode.db").expanduser()):
        export["info"], [(message["info"], message["parts"]) for message in export["messages"]]

Versions before 1.2 kept a folder storage/ instead; logs.py reads that.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

NAME = "opencode.db"
_SESSIONS = "SELECT id, title FROM session WHERE parent_id IS NULL ORDER BY time_created, id"
"""Those of sub-agents have a parent."""
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT data FROM part WHERE message_id = ? ORDER BY id"


def is_database(path: Path) -> bool:
    """Is it a file of SQLite?"""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def exports(path: Path) -> Iterator[dict[str, Any]]:
    """Its sessions but for those of sub-agents, oldest first.

    Raises sqlite3.Error for a database that is another program's, ValueError for a row that is no JSON.
    """
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        for id, title in db.execute(_SESSIONS).fetchall():
            messages = [
                {"info": json.loads(data), "parts": [json.loads(part) for (part,) in db.execute(_PARTS, (message,))]}
                for message, data in db.execute(_MESSAGES, (id,)).fetchall()
            ]
            yield {"info": {"id": id, "title": title}, "messages": messages}
