"""Conversations from other programs' logs, read as chat messages with their times. Read-only.

    for log in read(Path("~/.claude/projects").expanduser()):
        log.source, log.id, log.title, log.messages, log.times

The kind of a file is recognised by its content, not by its name:

    claude-code   ~/.claude/projects/**/*.jsonl
    codex         ~/.codex/sessions/**/rollout-*.jsonl
    opencode      ~/.local/share/opencode: opencode.db, or storage/ before 1.2; `opencode export SESSION`
    chatgpt       conversations.json of ChatGPT's data export
    claude        conversations.json of Claude's data export
    jsonl         one conversation per line: {"messages": [...], "id": ..., "title": ..., "created_at": ...}

Summaries of a compacted part are left out, since that part is in the same log. So are sub-agents.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

from msgspec import Struct

from lantern_proxy.logs_opencode import NAME, exports, files, is_database, json_object, parsed, storage_of, stored
from lantern_proxy.turn import Api

_BEGINNING = 2
"""So many messages distinguish conversations that begin alike."""
_APIS: Mapping[str, Api] = {"claude-code": "messages", "codex": "responses"}
Wire = dict[str, Any]
"""A message in the form of Chat Completions."""


class LogError(ValueError):
    """A file is not one of the known logs. The message names it and the way out."""


class NothingSaid(LogError):
    """A known log has no conversation: it is of a sub-agent, or was only begun."""


class Log(Struct, frozen=True, kw_only=True):
    """One conversation."""

    source: str
    id: str
    title: str
    """Not cut: redaction needs more of it than is kept."""
    messages: tuple[Wire, ...]
    times: tuple[float, ...]
    """Unix seconds of each message. One without a time has that of the one before it, or of the first that has one; all
    are 0 if none has."""

    @property
    def session(self) -> str:
        """The id of its session in the archive: the same at every import, so that nothing is written twice."""
        return f"{self.source}-{blake2b(self.id.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"

    @property
    def api(self) -> Api:
        """The protocol of its program. opencode uses its provider's; it counts as chat completions."""
        return _APIS.get(self.source, "chat")


class _Timed(Struct, frozen=True):
    """A message and its time in Unix seconds."""

    at: float
    message: Wire


def read(path: Path, passed_over: Callable[[LogError], None] = lambda why: None) -> Iterator[Log]:
    """All conversations of a file, or of every file below a folder. Raises LogError for a file that is not a log.

    passed_over: called for each file below a folder that is not a log, or cannot be read; and for lines in the middle
                 of a log that are no JSON objects
    """
    if not path.exists():
        raise LogError(f"{path}: no such file or folder")
    if (database := next(filter(is_database, (path, path / NAME)), None)) is not None:
        yield from _database(database)
    elif (storage := storage_of(path)) is not None:
        yield from _understood(path, (log for export in stored(storage) for log in _opencode([export], path)))
    elif path.is_dir():
        for file in files(path, "**/*.json*"):
            try:
                yield from _file(file, passed_over)
            except NothingSaid:
                continue
            except LogError as error:
                passed_over(error)
    else:
        yield from _file(path, passed_over)


def _file(path: Path, passed_over: Callable[[LogError], None]) -> Iterator[Log]:
    try:
        text = path.read_text("utf-8-sig", "replace")  # files from Windows may begin with a byte order mark
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from None
    rows, unread = _rows(text)
    is_known = False
    for recognised, reader in _READERS:
        if rows and recognised(rows):
            is_known = True
            if found := _understood(path, reader(rows, path)):
                yield from found
                if unread:
                    more = f" and {len(unread) - 1:,} more" if len(unread) > 1 else ""
                    passed_over(LogError(f"line {unread[0]}{more} of {path}: no JSON object"))
                return
    if is_known:
        raise NothingSaid(f"{path}: holds no conversation: it is a sub-agent's, or nothing was said in it yet")
    raise LogError(
        f"{path}: is no log of Claude Code, Codex, opencode, ChatGPT or Claude, and no line of it is a conversation: "
        '{"messages": [{"role": "user", "content": "..."}]}'
    )


def _database(path: Path) -> list[Log]:
    try:
        return _understood(path, (log for export in exports(path) for log in _opencode([export], path)))
    except sqlite3.Error as error:
        raise LogError(f"{path}: cannot be read as opencode's database ({error}); try `opencode export`") from None


def _understood(path: Path, found: Iterable[Log]) -> list[Log]:
    """The conversations in which something was said."""
    try:
        return [log for log in found if log.messages]
    except (TypeError, AttributeError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
        raise LogError(f"{path}: looks like a log, but is not as these programs write it ({error!r})") from None


def _rows(text: str) -> tuple[list[Wire], list[int]]:
    """The objects of a JSON document or of JSON lines, and the numbers of lines that hold none; a last line that has no
    end yet is still being written."""
    try:
        whole = parsed(text)
    except (ValueError, RecursionError):
        # not splitlines, which also breaks at U+2028, and JSON.stringify does not escape that
        lines = text.split("\n")
        rows = [json_object(line) for line in lines]
        unread = [at for at, line in enumerate(lines[:-1], start=1) if line.strip() and not rows[at - 1]]
        return [row for row in rows if row], unread
    rows = whole if isinstance(whole, list) else [whole]
    return [row for row in rows if isinstance(row, dict)], []


def _log(source: str, id: str, title: str, timed: Iterable[_Timed]) -> Log:
    held = [each for each in timed if each.message.get("content") or each.message.get("tool_calls")]
    first = next((each.at for each in held if each.at > 0), 0.0)
    times = (*accumulate((each.at for each in held), max, initial=first),)[1:]
    return Log(source=source, id=id, title=title, messages=tuple(each.message for each in held), times=times)


# Claude Code


def _is_claude_code(rows: Sequence[Wire]) -> bool:
    return any("sessionId" in row and isinstance(row.get("message"), dict) for row in rows[:50])


def _claude_code(rows: Sequence[Wire], path: Path) -> Iterator[Log]:
    sessions: dict[str, list[_Timed]] = {}
    title = next((str(row["summary"]) for row in rows if row.get("type") == "summary" and row.get("summary")), "")
    for row in rows:
        message = row.get("message")
        hidden = row.get("isSidechain") or row.get("isMeta") or row.get("isCompactSummary")
        if row.get("type") not in ("user", "assistant") or hidden or not isinstance(message, dict):
            continue
        held = sessions.setdefault(str(row.get("sessionId") or path.stem), [])
        held += [_Timed(_time(row.get("timestamp")), each) for each in _blocks(row["type"], message.get("content"))]
    for id, timed in sessions.items():
        yield _log("claude-code", id, title or _title(timed), timed)


def _blocks(role: str, content: Any) -> Iterator[Wire]:
    """Anthropic's content in the form of Chat Completions: text, calls, results; thinking is left out."""
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    blocks = [block for block in content or () if isinstance(block, dict)]
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _text(block.get("content"))}
    text = "\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text").strip()
    calls = [_call(b.get("id"), b.get("name"), b.get("input")) for b in blocks if b.get("type") == "tool_use"]
    if text or calls:
        yield {"role": role, "content": text} | ({"tool_calls": calls} if calls else {})


def _call(id: Any, name: Any, arguments: Any) -> Wire:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": str(id), "type": "function", "function": {"name": str(name), "arguments": given}}


def _text(content: Any) -> str:
    """The plain text of a string, or of a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content] if isinstance(content, dict) else []
    texts = [
        part if isinstance(part, str) else part.get("text") or "" for part in parts if isinstance(part, str | dict)
    ]
    return "\n".join(str(text) for text in texts if text)


# Codex


def _is_codex(rows: Sequence[Wire]) -> bool:
    return any(row.get("type") == "response_item" and isinstance(row.get("payload"), dict) for row in rows[:50])


def _codex(rows: Sequence[Wire], path: Path) -> Iterator[Log]:
    held = [row for row in rows if isinstance(row.get("payload"), dict)]
    # the first is the log's own: a forked session also holds those of its origin
    meta: Wire = next((row["payload"] for row in held if row.get("type") == "session_meta"), {})
    if isinstance(source := meta.get("source"), dict) and "subagent" in source:
        return
    timed: list[_Timed] = []
    for row in held:
        if row.get("type") == "response_item" and (message := _codex_item(row["payload"])):
            timed.append(_Timed(_time(row.get("timestamp")), message))
        elif row.get("type") == "compacted" and timed and _is_summary(timed[-1].message, row["payload"]):
            timed.pop()
    yield _log("codex", str(meta.get("id") or path.stem), _title(timed), timed)


def _is_summary(message: Wire, compacted: Wire) -> bool:
    """Is `message` the model's summary for a compaction? In the compacted history Codex puts a text before it."""
    text = str(message["content"]).strip()
    return message["role"] == "assistant" and bool(text) and str(compacted.get("message")).strip().endswith(text)


def _codex_item(payload: Wire) -> Wire | None:
    kind = payload.get("type")
    if kind == "message" and payload.get("role") in ("user", "assistant"):
        text = _text(payload.get("content"))
        if text.startswith(("<environment_context", "<user_instructions")):
            return None  # what Codex puts before the first prompt is about the machine, not the conversation
        return _message(payload["role"], text)
    if kind in ("function_call", "custom_tool_call", "local_shell_call"):
        arguments = payload.get("arguments") or payload.get("input") or payload.get("action")
        name = payload.get("name") or "shell"
        return {"role": "assistant", "content": "", "tool_calls": [_call(payload.get("call_id"), name, arguments)]}
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = payload.get("output")
        text = _text(output.get("content")) if isinstance(output, dict) else _text(output)
        return {"role": "tool", "tool_call_id": str(payload.get("call_id")), "content": text}
    return None


def _message(role: str, text: str) -> Wire:
    return {"role": role, "content": text}


# opencode


def _is_opencode(rows: Sequence[Wire]) -> bool:
    messages = rows[0].get("messages") if len(rows) == 1 else None
    return isinstance(messages, list) and any(isinstance(m, dict) and "parts" in m and "info" in m for m in messages)


def _opencode(rows: Sequence[Wire], path: Path) -> Iterator[Log]:
    info = rows[0].get("info") or {}
    timed = [each for m in rows[0]["messages"] for each in _opencode_items(m.get("info") or {}, m.get("parts") or ())]
    yield _log("opencode", str(info.get("id") or path.stem), str(info.get("title") or _title(timed)), timed)


def _opencode_items(info: Wire, parts: Iterable[Any]) -> Iterator[_Timed]:
    if info.get("summary") is True:
        return
    role = "user" if info.get("role") == "user" else "assistant"
    at = _time((info.get("time") or {}).get("created"))
    for part in parts:
        if not isinstance(part, dict) or part.get("synthetic"):
            continue
        if part.get("type") == "text":
            yield _Timed(at, _message(role, str(part.get("text") or "")))
        elif part.get("type") == "tool":
            state = part.get("state") or {}
            id = str(part.get("callID"))
            yield _Timed(at, _message(role, "") | {"tool_calls": [_call(id, part.get("tool"), state.get("input"))]})
            yield _Timed(at, {"role": "tool", "tool_call_id": id, "content": _text(state.get("output"))})


# ChatGPT and Claude


def _is_chatgpt(rows: Sequence[Wire]) -> bool:
    return isinstance(rows[0].get("mapping"), dict)


def _chatgpt(rows: Sequence[Wire], path: Path) -> Iterator[Log]:
    for row in rows:
        timed = list(_branch(row.get("mapping") or {}, row.get("current_node")))
        id = row.get("conversation_id") or row.get("id") or _name(timed)
        yield _log("chatgpt", str(id), str(row.get("title") or _title(timed)), timed)


def _branch(mapping: Mapping[str, Any], leaf: Any) -> Iterator[_Timed]:
    """The messages from the root to the current leaf of the export, else to the newest one."""
    if leaf not in mapping:
        leaf = next((id for id, node in reversed(list(mapping.items())) if not node.get("children")), None)
    chain: list[Wire] = []
    while leaf in mapping and len(chain) <= len(mapping):
        chain.append(mapping[leaf])
        leaf = mapping[leaf].get("parent")
    for node in reversed(chain):
        message = node.get("message") or {}
        role = (message.get("author") or {}).get("role")
        content = message.get("content") or {}
        if role in ("user", "assistant") and content.get("content_type") in ("text", "multimodal_text"):
            yield _Timed(_time(message.get("create_time")), _message(role, _text(content.get("parts"))))


def _is_claude(rows: Sequence[Wire]) -> bool:
    return isinstance(rows[0].get("chat_messages"), list)


def _claude(rows: Sequence[Wire], path: Path) -> Iterator[Log]:
    for row in rows:
        timed = [
            _Timed(
                _time(each.get("created_at")),
                _message(
                    "user" if each.get("sender") == "human" else "assistant",
                    str(each.get("text") or _text(each.get("content"))),
                ),
            )
            for each in row.get("chat_messages") or ()
            if isinstance(each, dict)
        ]
        yield _log("claude", str(row.get("uuid") or _name(timed)), str(row.get("name") or _title(timed)), timed)


# JSON lines


def _is_jsonl(rows: Sequence[Wire]) -> bool:
    return any(isinstance(row.get("messages"), list) for row in rows)


def _jsonl(rows: Sequence[Wire], path: Path) -> Iterator[Log]:
    for row in rows:
        listed = row.get("messages")
        if not isinstance(listed, list):
            continue
        at = _time(row.get("created_at") or row.get("time"))
        timed = [
            _Timed(_time(each.get("created_at")) or at, {key: each[key] for key in each if key != "created_at"})
            for each in listed
            if isinstance(each, dict) and each.get("role") in ("user", "assistant", "tool")
        ]
        title = str(row.get("title") or _title(timed))
        yield _log("jsonl", str(row.get("id") or _name(timed)), title, timed)


def _name(timed: Sequence[_Timed]) -> str:
    """A name for a conversation without an id: its beginning and time, which stay the same when it continues; without
    times its whole text, since many begin alike."""
    opening = timed[:_BEGINNING] if any(each.at for each in timed[:_BEGINNING]) else timed
    return blake2b(json.dumps([(each.at, each.message) for each in opening]).encode(), digest_size=16).hexdigest()


def _title(timed: Sequence[_Timed]) -> str:
    """The first thing that a user said."""
    first = next((_text(each.message.get("content")) for each in timed if each.message["role"] == "user"), "")
    return " ".join(first.split())


def _time(value: Any) -> float:
    """Unix seconds of a number (milliseconds beyond the year 5000), or of a time in ISO 8601; 0 for anything else."""
    if isinstance(value, int | float):
        seconds = value / 1_000 if 1e11 < value < 1e14 else value
        return float(seconds) if 0 <= seconds <= 1e11 else 0.0
    try:
        parsed = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


_Reader = Callable[[Sequence[Wire], Path], Iterator[Log]]
_READERS: Sequence[tuple[Callable[[Sequence[Wire]], bool], _Reader]] = (
    (_is_claude_code, _claude_code),
    (_is_codex, _codex),
    (_is_opencode, _opencode),
    (_is_chatgpt, _chatgpt),
    (_is_claude, _claude),
    (_is_jsonl, _jsonl),
)
"""How each kind is recognised by its objects, and read; the first that fits is used."""
