"""The archive's value types besides messages and passages: sessions, requests, records, hits, reports.

Plain values. rows.py converts stored ones to rows and back.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from lantern_proxy.turn import Block, Filed, Head, Passage, PassedOver, without_reminders

TITLE_CHARS, QUERY_CHARS = 80, 2_000
"""Longer titles and questions are cut."""


def query_of(text: str) -> str:
    """The question of a request, from its last user message, without its client's reminders, which may be far longer.
    Not cut."""
    return without_reminders(text, "").strip()


class SessionRow(Struct, frozen=True, kw_only=True):
    """One session. `project`, `messages` and `passages` are filled by reads and ignored by writes."""

    id: str
    api: str
    family: str = ""
    """Explicit id that the client sent, or empty."""
    parent: str = ""
    """The session that this one branched from, or empty."""
    title: str = ""
    created_at: float
    last_seen_at: float
    system: str = ""
    """Hex fingerprint of the system prompt."""
    tools: tuple[str, ...] = ()
    project: str = ""
    messages: int = 0
    passages: int = 0


class RequestRow(Struct, frozen=True, kw_only=True):
    """The outcome of one request. `session` is filled by reads and ignored by writes."""

    id: str
    at: float
    api: str
    path: str
    model: str = ""
    event: str
    status: int = 0
    """HTTP status that the client got; 0 if it got none."""
    query: str = ""
    """The beginning of query_of() the last user message, up to QUERY_CHARS."""
    restored: int = 0
    chars: int = 0
    ms: float = 0.0
    degraded: tuple[str, ...] = ()
    gone: int = 0
    """Messages that the session held and this request lacks."""
    error: str = ""
    size: int = 0
    """Bytes of the client's request, without what we added."""
    lost: int = 0
    """Bytes of the messages behind `gone`. Filled by reads and ignored by writes."""
    session: str = ""


class Record(Struct, frozen=True, kw_only=True):
    """Everything that one request adds to the archive. It is written as a whole or not at all."""

    tenant: str
    project: str = ""
    session: SessionRow
    request: RequestRow | None
    """None for rows that come from an export."""
    messages: tuple[Filed, ...] = ()
    """New ones only, the answer included. Archived ones are skipped."""
    head: Head = msgspec.field(default_factory=Head)
    """What the session shows now; a head without keys leaves the stored one."""
    lost: tuple[str, ...] = ()
    """Keys of messages that a compaction removed from the request."""
    ids: tuple[str, ...] = ()
    """Ids minted by the upstream that name this session."""
    passages: tuple[Passage, ...] = ()
    uncut: tuple[str, ...] = ()
    """Keys of messages that Archive.add_passages still has to cut: soon, or when the next process opens the file."""
    blocks: tuple[Block, ...] = ()
    passed: tuple[PassedOver, ...] = ()
    """Passages that the restores of this request left out."""
    unkept: tuple[Filed, ...] = ()
    """Messages of which only a keyed hash is kept, so that they stay out when the client sends them again."""
    came_at: float = 0.0
    """When its request came, which may be well before the answer; 0 if nothing can have been forgotten meanwhile."""


class TenantSummary(Struct, frozen=True, kw_only=True):
    """What one tenant has archived. Times are 0 when it has no session."""

    id: str
    sessions: int
    messages: int
    passages: int
    first_at: float
    last_at: float


class Hit(Struct, frozen=True):
    """A passage that full-text search found. Larger scores are better; `snippet` marks matches with [ ]."""

    passage: Passage
    score: float
    snippet: str


class Mark(Struct, frozen=True, kw_only=True):
    """The outcome of a restored passage: `used` in the answer (None: unknown), and a person's `verdict`."""

    passage: int
    used: bool | None
    verdict: str


class Useful(Struct, frozen=True):
    """A question, and the passages of its blocks that were judged useful."""

    request: str
    session: str
    query: str
    passages: tuple[int, ...]


class Why(Struct, frozen=True, kw_only=True):
    """Everything known of one request: its row, its blocks, and the outcome of their passages."""

    request: RequestRow
    blocks: tuple[Block, ...]
    marks: tuple[Mark, ...]
    passed: tuple[PassedOver, ...] = ()
    """The best passages that were left out, by score, with the reason; also if there is no block."""


class PruneRule(Struct, frozen=True, kw_only=True):
    """Which passages to remove: those that meet all given conditions. At least one must be given."""

    older_than_s: float | None = None
    below_confidence: float | None = None
    session: str | None = None
    up_to: Mapping[str, int] = {}
    """With an age: passages, messages and blocks with larger numbers stay, since they were archived later."""


class PruneReport(Struct, frozen=True, kw_only=True):
    """Rows removed (or, in a dry run, that would be), and the bytes of their text."""

    passages: int = 0
    messages: int = 0
    blocks: int = 0
    sessions: int = 0
    bytes: int = 0

    def __add__(self, other: "PruneReport") -> "PruneReport":
        return PruneReport(
            passages=self.passages + other.passages, messages=self.messages + other.messages,
            blocks=self.blocks + other.blocks, sessions=self.sessions + other.sessions,
            bytes=self.bytes + other.bytes,
        )  # fmt: skip


class Finding(Struct, frozen=True):
    """One result of `lantern doctor`. `remedy` is empty if there is nothing to do."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
