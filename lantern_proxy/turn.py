"""The record that all packages share: items, messages, requests, answers, passages, blocks.

    bytes --wire--> Request(messages=(Message(items=(Item, ...)), ...))
          --session, compaction--> which session, what it lacks
          --chunk--> Passage  --restore--> Restored --wire--> bytes

Nothing here does I/O, reads a clock or draws a random number. A *fingerprint* is 16 bytes of BLAKE2b over the canonical
form, so that a message is recognised when its client sends it again in another form (string or list content, moved
cache_control, other white space).

Whatever is created for every message, or several times a request, is a Struct: creating one takes a tenth of the time
of a frozen dataclass, and since none can be part of a cycle, the garbage collector need not track it.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.turn_blocks import BLOCK_OPEN, between_blocks, strip_block
from lantern_proxy.turn_memo import Memo

Api = Literal["chat", "responses", "messages"]
Role = Literal["system", "developer", "user", "assistant", "tool"]
SYSTEM = ("system", "developer")
"""Roles of text from a program to the model, not from a person."""
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Invisible characters, as a set for regular expressions: Unicode's Default_Ignorable_Code_Point."""
CLIENT = "client"
"""Speaker of text that a client adds around its user's words: the state of a workspace, a file, a reminder."""
PassageKind = Literal["episodic", "semantic", "procedural"]
Kind = Literal["text", "call", "result", "media", "reasoning", "compaction", "ref"]
READ = ("text", "result", "compaction")
"""Kinds with text for a person to read."""
BlockKind = Literal["loss", "question"]
"""The purpose of a block: details that a compaction took, or evidence for a question."""
Event = Literal["new", "turn", "retry", "branch", "side", "compacted", "window", "cleared", "passthrough"]

LOSSES: frozenset[str] = frozenset({"compacted", "window", "cleared"})
LATEST_S = 1e12
"""In seconds; a larger time is invalid, since it counts milliseconds or smaller units."""

_REMINDER_OPEN, _REMINDER_CLOSE = "<system-reminder>", "</system-reminder>"
_PIECE_CHARS = 65_536
_RANDOM = re.compile(r"(?=(?:[^\W\d_]*\d){2})(?=(?:\d*[^\W\d_]){2})[^\W_]{8,}|\d{9,}")


def is_random(id: str) -> bool:
    """Does an id look as if an upstream minted it, so that nobody else has it: letters and digits mixed, or many
    digits? An id such as "call_memory" may be one that a client uses for everyone."""
    return _RANDOM.search(id[:200]) is not None


def fingerprint(*parts: str | bytes) -> bytes:
    """A 16-byte digest of `parts`, which are length-prefixed, so that ("ab", "c") differs from ("a", "bc")."""
    pieces: list[bytes] = []
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        pieces += (len(data).to_bytes(8, "little"), data)
    return blake2b(b"".join(pieces), digest_size=16).digest()


def without_reminders(text: str, by: str) -> str:
    """`text` with each <system-reminder> of a client replaced by `by`. In linear time, as strip_block()."""
    at, kept = 0, []
    while (start := text.find(_REMINDER_OPEN, at)) >= 0:
        end = text.find(_REMINDER_CLOSE, start)
        if end < 0:
            break
        kept.append(text[at:start])
        at = end + len(_REMINDER_CLOSE)
    return by.join([*kept, text[at:]]) if kept else text


def canonical(text: str) -> str:
    """The form in which texts are compared: without restored blocks and <system-reminder>, white space collapsed."""
    if BLOCK_OPEN in text:
        text = " ".join(between_blocks(text))
    if _REMINDER_OPEN in text:
        text = without_reminders(text, " ")
    return " ".join(text.split()) if len(text) <= _PIECE_CHARS else "".join(_collapsed(text))


def _collapsed(text: str) -> Iterator[str]:
    """`text` with white space collapsed, in pieces: megabytes at once would block all other threads."""
    begun = False
    for at in range(0, len(text), _PIECE_CHARS):
        if words := text[at : at + _PIECE_CHARS].split():
            if begun and (text[at].isspace() or text[at - 1].isspace()):
                yield " "
            yield " ".join(words)
            begun = True


plain = Memo(canonical, most_bytes=8 << 20, bytes_of=lambda text: 2 * len(text)).__getitem__
"""canonical(), cached: it is needed repeatedly while a text is compared, and clients send their whole history with
every request."""


class Item(Struct, frozen=True, gc=False):
    """One piece of a message. Build it with `item()`, which computes the fingerprint."""

    role: Role
    kind: Kind
    text: str
    """Prose, the arguments of a call as canonical JSON, or the text of a result: as the client sent it, without our own
    blocks."""
    name: str
    """Tool name of a call or result, media type of a media item, else empty."""
    ids: tuple[str, ...]
    """Ids that the upstream minted: tool call id, output item id, hash of encrypted content."""
    print: bytes
    """The item's fingerprint, see item()."""


def item(role: Role, kind: Kind, text: str, *, name: str = "", ids: Iterable[str] = ()) -> Item:
    """An Item with its fingerprint: role class, kind, name and canonical text; ids are left out on purpose."""
    if BLOCK_OPEN in text:
        text = strip_block(text)
    known = name if kind == "call" else ""
    return Item(role, kind, text, name, tuple(ids), fingerprint(role, kind, known, plain(text)))


BLANK = frozenset(item(role, "text", "").print for role in get_args(Role))
"""Fingerprints of texts that consist only of white space and reminders."""


class Message(Struct, frozen=True, gc=False):
    """One message (or Responses item) of the wire. `raw` is its JSON, byte for byte."""

    role: Role
    items: tuple[Item, ...]
    raw: bytes
    print: bytes
    """Fingerprint of the items that are compared, without reasoning, which clients drop. Empty if there is nothing to
    compare."""

    @property
    def text(self) -> str:
        """The text of the message that a person would read: prose and results, without media."""
        if len(self.items) == 1:  # true for most messages
            return self.items[0].text if self.items[0].kind in READ else ""
        return "\n".join([i.text for i in self.items if i.kind in READ and i.text])

    @property
    def calls(self) -> tuple[Item, ...]:
        return tuple(i for i in self.items if i.kind == "call")

    @property
    def ids(self) -> tuple[str, ...]:
        if len(self.items) == 1:
            return self.items[0].ids
        return tuple([value for i in self.items for value in i.ids])


def message(role: Role, items: Sequence[Item], raw: bytes) -> Message:
    """A Message with its fingerprint. Items that consist only of white space are ignored."""
    prints = [i.print for i in items if i.kind != "reasoning" and i.print not in BLANK]
    return Message(role, tuple(items), raw, fingerprint(*prints) if prints else b"")


class Head(Struct, frozen=True, kw_only=True, gc=False):
    """What a client showed last of its session. With this and the filed messages the session continues after a
    restart."""

    keys: tuple[str, ...] = ()
    """Keys of the messages shown, in order."""
    altered: Mapping[str, tuple[bytes, ...]] | None = {}
    """Key of a message that is shown in another form than it was filed (cleared, cut, with another time) ->
    fingerprints of its items as shown. None: neither this nor the fields below are known."""
    abandoned: tuple[str, ...] = ()
    """Keys of messages that the client took back (an edit, a rewind)."""
    lost: bool = False
    """Did the session ever lose something?"""
    person: str = ""
    """The person that its client names, as in Request; "" for nobody, or several."""
    forks: "tuple[Head, ...]" = ()
    """The branches to which its client may return, as it showed them, latest first."""
    position: int = 0
    """How many messages the session had when its client left this branch; 0 if it did not."""

    def without(self, gone: Container[str]) -> "Head":
        """The head without the messages whose keys are `gone`."""
        altered = self.altered and {key: prints for key, prints in self.altered.items() if key not in gone}
        keys, abandoned = (tuple([key for key in some if key not in gone]) for some in (self.keys, self.abandoned))
        forks = tuple([branch.without(gone) for branch in self.forks])
        return replace(self, keys=keys, altered=altered, abandoned=abandoned, forks=forks)


class Request(Struct, frozen=True, kw_only=True):
    """A client's request, in the same form for all three protocols."""

    api: Api
    model: str
    messages: tuple[Message, ...]
    """In wire order. A top-level `system` or `instructions` comes first, as a message of role system."""
    tools: frozenset[str] = frozenset()
    """Names of the tools that the model may call."""
    stream: bool = False
    ids: tuple[tuple[str, str], ...] = ()
    """Explicit session ids of the body, most specific first: (name, value)."""
    person: str = ""
    """The person for whom the client makes the request, as a hex fingerprint, since names and addresses are private."""
    signals: frozenset[str] = frozenset()
    """What the client states about itself: "compact" (this is the summarising call), "side" (a sub-agent, a title)."""
    delta: bool = False
    """Does it continue a response stored by the upstream? Then it holds only what is new."""


class Identity(Struct, frozen=True, kw_only=True):
    """What a request's headers say about its session and sub-agent."""

    ids: tuple[tuple[str, str], ...] = ()
    """(name, value), most specific first."""
    agent: str = ""
    """A sub-agent's own id."""
    signals: frozenset[str] = frozenset()


class Answer(Struct, frozen=True, kw_only=True, gc=False):
    """The upstream's answer, as far as it came."""

    messages: tuple[Message, ...]
    """One message per choice (chat) or output item (responses); usually one."""
    ids: tuple[str, ...] = ()
    """Response id and any other id that later requests may refer to."""
    complete: bool = True
    """Did it arrive completely?"""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, [m.text for m in self.messages]))


class Filed(Struct, frozen=True, kw_only=True, gc=False):
    """A message as the archive keeps it, with its place in a session."""

    key: str
    """Names the message within its session: hex of the chain hash under which it was first seen."""
    position: int
    """Order within the session, from 0, never reused."""
    turn: int
    """Which turn it belongs to, from 1; 0 before the first user message."""
    message: Message
    side: bool = False
    """Does it belong to a side call (a title, a summary)? Such messages are archived, but never restored."""
    partial: bool = False
    """Did the answer break off here?"""
    names: tuple[str, ...] = ()
    """Ids of the answer that ends with this message."""
    created_at: float


class Passage(Struct, frozen=True, kw_only=True):
    """A piece of a turn, small enough to be found and restored as a whole. `id` is 0 until it is archived."""

    id: int = 0
    session: str
    message: str
    """Key of the message it was cut from."""
    position: int
    part: int
    """Order within its message, from 0."""
    turn: int
    speaker: str
    """user, assistant, system, tool, CLIENT, or a name given by the client."""
    text: str
    unit: Literal["passage", "turn"] = "passage"
    """"turn": this is the extractive summary of a whole turn, which the recipe `lantern` ranks."""
    kind: PassageKind = "episodic"
    tags: tuple[str, ...] = ()
    """Specific terms, as written: paths, identifiers, error codes, commands, URLs, versions, named numbers."""
    tools: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    """The index terms of its speaker, date and text, see analyze.terms(): in order, repeats kept."""
    created_at: float = 0.0
    confidence: float = 0.5
    success: float = 0.5
    accesses: int = 0
    accessed_at: float = 0.0
    verdict: str = ""
    """A person's verdict: useful, wrong or outdated; "" if there is none."""
    pinned: bool = False


class Placed(Struct, frozen=True, kw_only=True):
    """A passage chosen by a restore, and the reasons."""

    passage: Passage
    text: str
    """The part of the passage that went into the block: whole sentences, perhaps not all of them."""
    rank: int
    score: float
    signals: dict[str, float]
    """signal -> score of this passage in it; larger is better."""


Reason = Literal[
    "budget", "similar", "echo", "filler", "admission", "answered", "present", "left", "superseded", "verdict",
    "confidence", "untrusted", "weak",
]  # fmt: skip
"""Why a passage was passed over; PassedOver.why says it in words."""


class PassedOver(Struct, frozen=True, kw_only=True):
    """A passage that a restore considered and left out, and why."""

    kind: BlockKind
    """The kind of block for which it was considered."""
    passage: Passage
    reason: Reason
    other: int = 0
    """For the reasons similar and echo, the id of the passage that says the same; for superseded, the later turn, 0 if
    that is the request itself."""
    value: float = 0.0
    """For the reason admission, the quality of the best evidence; for confidence, that of the passage."""
    rank: int
    """Rank by score among those left out of this block, from 1."""
    score: float
    signals: dict[str, float]
    why: str
    """`reason`, `other` and `value` in words, see why_not()."""


def why_not(reason: Reason, other: int = 0, value: float = 0.0) -> str:
    """The reason in words."""
    return {
        "budget": "no room was left for it",
        "similar": f"says much the same as passage {other}",
        "echo": f"what was restored says most of it already, above all passage {other}",
        "filler": "has no detail that the request lacks",
        "admission": f"nothing fits the question well enough: the best scores {value:.2f} (restore.admission)",
        "answered": "the request has a better answer already",
        "present": "the request has it already",
        "left": "the client took it back and went on without it",
        "superseded": f"turn {other} has newer information" if other else "the request has newer information",
        "verdict": "a person marked it wrong or outdated",
        "confidence": f"its confidence fell to {value:.2f} (reinforce.minimum)",
        "weak": "fits the question far less well than others do",
        "untrusted": "reads like instructions to the model (restore.untrusted)",
    }[reason]


class Restored(Struct, frozen=True, kw_only=True):
    """One restored block before it is placed: its exact text, its passages and its cost."""

    kind: BlockKind
    text: str
    placed: tuple[Placed, ...]
    considered: int
    """How many passages were considered."""
    ms: float
    """Milliseconds that choosing it took."""
    degraded: tuple[str, ...] = ()
    """What was skipped and why, as in x-lantern-degraded: "dense:warming"."""


class Preview(Struct, frozen=True, kw_only=True):
    """What would be restored into a request. If the request fits no known session, `session` is empty and nothing would
    be."""

    tenant: str
    session: str = ""
    event: str = "new"
    gone: int = 0
    """Number of messages that the session holds and the request lacks."""
    blocks: tuple[Restored, ...] = ()
    refused: tuple[dict[str, Any], ...] = ()
    """Passages of the session that must not be restored: {"passage", "why", "text"}."""
    passed: tuple[PassedOver, ...] = ()
    """What would be left out, and why."""
    notes: tuple[str, ...] = ()
    """What was skipped and why."""


class Block(Struct, frozen=True, kw_only=True):
    """An entry of the ledger: a restored block that stays in the same message, its anchor, until that message is
    gone."""

    session: str
    anchor: str
    """Hex fingerprint of the anchor message."""
    chain: str
    """Hex chain hash up to the anchor, which distinguishes two messages with the same text."""
    message: str = ""
    """Key of the anchor message in its session; "" in archives from before this was kept."""
    place: Literal["inside", "before", "after"]
    """inside: at the end of the anchor message; before: in front of its last part; after: as a user message after
    it."""
    restored: Restored
    request: str
    """Id of the request for which the block was made."""
    created_at: float
