"""What a request's headers say about its session, most specific first."""

import json
import re
from collections.abc import Iterable, Mapping

from lantern_proxy.turn import Identity, fingerprint

_SESSION_HEADERS = (
    "x-lantern-session", "thread-id", "x-claude-code-session-id", "x-session-id", "x-opencode-session",
    "x-session-affinity", "x-affinity", "x-litellm-session-id", "x-openwebui-chat-id", "x-conversation-id",
    "x-thread-id", "session-id", "conversation-id", "session_id",
)  # fmt: skip
_AGENT_HEADERS = ("x-claude-code-agent-id", "x-agent-id")
_SUBAGENT_HEADERS = ("x-openai-subagent", "x-codex-parent-thread-id")

_SIDE_KINDS = re.compile(r'"request_kind"\s*:\s*"(\w+)"')


_TOLD = frozenset(
    name.encode() for name in (*_SESSION_HEADERS, *_AGENT_HEADERS, *_SUBAGENT_HEADERS, "x-codex-turn-metadata")
)
_NOBODY = Identity()
_LONGEST_ID = 200
"""In characters; ids stay in memory as long as their session. A longer one is replaced by a fingerprint."""


def telling(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers that identity() reads, by name; of repeated ones the last."""
    return {name.decode("latin-1"): typed(value.decode("latin-1")) for name, value in headers if name in _TOLD}


def typed(value: str) -> str:
    """A header's value, read as Latin-1, as somebody typed it: programs send UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def identity(headers: Mapping[str, str]) -> Identity:
    """The session and person that a request's headers name; blank values are ignored. headers: names in lower case."""
    if not headers:
        return _NOBODY
    ids = [(name, brief(headers[name])) for name in _SESSION_HEADERS if headers.get(name, "").strip()]
    signals: set[str] = set()
    agent = next((headers[name] for name in _AGENT_HEADERS if headers.get(name)), "")
    if any(headers.get(name) for name in _SUBAGENT_HEADERS):
        signals.add("side")
        agent = agent or headers.get("thread-id", "") or "subagent"
    agent = brief(agent)
    kind = _SIDE_KINDS.search(headers.get("x-codex-turn-metadata", ""))
    if kind and kind[1] == "compaction":
        signals.add("compact")
    return Identity(ids=tuple(ids), agent=agent, signals=frozenset(signals))


def brief(value: str) -> str:
    """An id as it is kept: its fingerprint if it is too long."""
    return value if len(value) <= _LONGEST_ID else fingerprint(value).hex()


def user_id_session(user_id: str) -> str:
    """The session id within an Anthropic metadata.user_id: JSON, or ..._session_<uuid>; "" if there is none."""
    try:
        data = json.loads(user_id)
        return str(data.get("session_id") or "") if isinstance(data, dict) else ""
    except (ValueError, RecursionError):
        found = re.search(r"_session_([0-9A-Za-z-]{8,})", user_id)
        return found[1] if found else ""
