"""The record that all packages share: items, messages, requests, answers, passages, blocks.

    bytes --wire--> Request(messages=(Message(items=(Item, ...)), ...))
          --session, compaction--> which session, what it lacks
          --chunk--> Passage  --restore--> Restored --wire--> bytes

Nothing here does I/O, reads a clock or draws a random number. A *fingerprint* is 16 bytes of BLAKE2b over the canonical
form, so that a message is recognised when its client sends it again in another dress (string or list content, moved
cache_control, other white space).

What is made for every message, or several times a request, is a Struct: it is made in a tenth of the time that a frozen
dataclass takes, and since none refers back to itself, the garbage collector need not look at it.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, get_args

from msgspec import Struct

from lantern_proxy.turn_blocks import BLOCK_OPEN, between_blocks, strip_block
from lantern_proxy.turn_memo import Memo

Api = Literal["chat", "responses", "messages"]
Role = Literal["system", "developer", "user", "assistant", "tool"]
SYSTEM = ("system", "developer")
"""Roles in which a program speaks to the model, not a person."""
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Signs that nobody sees, for a set of a regular expression: Unicode's Default_Ignorable_Code_Point."""
CLIENT = "client"
"""Speaker of what a client writes around its user's words: the state of a workspace, a file, a reminder."""
Kind = Literal["text", "call", "result", "media", "reasoning", "compaction", "ref"]
READ = ("text", "result", "compaction")
"""Kinds whose text a person would read."""
BlockKind = Literal["loss", "question"]
"""What a block is for: what a compaction took, or a question that asks for some of it."""
Event = Literal["new", "turn", "retry", "branch", "side", "compacted", "window", "cleared", "passthrough"]

LOSSES: frozenset[str] = frozenset({"compacted", "window", "cleared"})
LATEST_S = 1e12
"""Seconds; a time from here on is none: it counts milliseconds, or smaller parts."""

_REMINDER_OPEN, _REMINDER_CLOSE = "<system-reminder>", "</system-reminder>"
_PIECE_CHARS = 65_536
_RANDOM = re.compile(r"(?=(?:[^\W\d_]*\d){2})(?=(?:\d*[^\W\d_]){2})[^\W_]{8,}|\d{9,}")


def is_random(id: str) -> bool:
    """Does an id look like one that upstreams mint, which nobody else has: letters and figures mixed, or many figures?
    An id such as "call_memory" may be a client's, which writes it for everyone."""
    return _RANDOM.search(id[:200]) is not None


def fingerprint(*parts: str | bytes) -> bytes:
    """16 bytes that stand for `parts`; the parts are length-prefixed, so ("ab", "c") differs from ("a", "bc")."""
    pieces: list[bytes] = []
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        pieces += (len(data).to_bytes(8, "little"), data)
    return blake2b(b"".join(pieces), digest_size=16).digest()


def without_reminders(text: str, by: str) -> str:
    """`text` with `by` in place of each <system-reminder> that clients put there. In linear time, as strip_block()."""
    at, kept = 0, []
    while (start := text.find(_REMINDER_OPEN, at)) >= 0:
        end = text.find(_REMINDER_CLOSE, start)
        if end < 0:
            break
        kept.append(text[at:start])
        at = end + len(_REMINDER_CLOSE)
    return by.join([*kept, text[at:]]) if kept else text


def canonical(text: str) -> str:
    """The form in which two texts are compared: no restored block, no <system-reminder>, white space collapsed."""
    if BLOCK_OPEN in text:
        text = " ".join(between_blocks(text))
    if _REMINDER_OPEN in text:
        text = without_reminders(text, " ")
    return " ".join(text.split()) if len(text) <= _PIECE_CHARS else "".join(_collapsed(text))


def _collapsed(text: str) -> Iterator[str]:
    """`text` with white space collapsed, piece by piece: megabytes at once would hold up all other threads, and
    requests."""
    begun = False
    for at in range(0, len(text), _PIECE_CHARS):
        if words := text[at : at + _PIECE_CHARS].split():
            if begun and (text[at].isspace() or text[at - 1].isspace()):
                yield " "
            yield " ".join(words)
            begun = True


plain = Memo(canonical, most_bytes=8 << 20, bytes_of=lambda text: 2 * len(text)).__getitem__
"""canonical(), remembered: it is asked for again while a text is compared, and clients send their whole history with
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
"""Fingerprints of texts with nothing in them but white space and reminders."""


class Message(Struct, frozen=True, gc=False):
    """One message (or Responses item) of the wire. `raw` is its JSON, byte for byte."""

    role: Role
    items: tuple[Item, ...]
    raw: bytes
    print: bytes
    """Fingerprint of the items that are compared; reasoning is not, since clients drop it. Empty: nothing to
    compare."""

    @property
    def text(self) -> str:
        """What a person would read of the message: prose and results, without media."""
        if len(self.items) == 1:  # as most have
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
    """A Message with its fingerprint. An item that holds nothing but white space counts for nothing."""
    prints = [i.print for i in items if i.kind != "reasoning" and i.print not in BLANK]
    return Message(role, tuple(items), raw, fingerprint(*prints) if prints else b"")


class Head(Struct, frozen=True, kw_only=True, gc=False):
    """What a client showed last of its session: with this and the messages that were filed it goes on after a
    restart."""

    keys: tuple[str, ...] = ()
    """Keys of the messages that it showed, in order."""
    altered: Mapping[str, tuple[bytes, ...]] | None = {}
    """Key of a message that is not shown as it was filed (cleared, cut, with another time) -> fingerprints of its items
    as they are shown. None: neither this nor the fields below are known."""
    abandoned: tuple[str, ...] = ()
    """Keys of messages that the client took back (an edit, a rewind)."""
    lost: bool = False
    """Was something lost of the session?"""
    person: str = ""
    """The person that its client names, as in Request; empty for nobody, or several."""

    def without(self, gone: Container[str]) -> "Head":
        """The head without the messages whose keys are `gone`."""
        altered = self.altered and {key: prints for key, prints in self.altered.items() if key not in gone}
        keys, abandoned = ([key for key in some if key not in gone] for some in (self.keys, self.abandoned))
        return Head(keys=tuple(keys), altered=altered, abandoned=tuple(abandoned), lost=self.lost, person=self.person)


class Request(Struct, frozen=True, kw_only=True):
    """What a client asked, in the same shape for all three protocols."""

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
    """The person for whom the client says that it asks, as a fingerprint in hex: names and addresses are nobody's
    business."""
    signals: frozenset[str] = frozenset()
    """What the client says of itself: "compact" (this is the summarising call), "side" (a sub-agent, a title)."""
    delta: bool = False
    """Does it continue a response that the upstream stores? Then it holds only what is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a request's headers say of who is talking."""

    ids: tuple[tuple[str, str], ...] = ()
    """(name, value), most specific first."""
    agent: str = ""
    """A sub-agent's own id."""
    signals: frozenset[str] = frozenset()


class Answer(Struct, frozen=True, kw_only=True, gc=False):
    """What the upstream answered, as far as it came."""

    messages: tuple[Message, ...]
    """A message for each choice (chat) or output item (responses); usually one."""
    ids: tuple[str, ...] = ()
    """Response id and whatever else later requests may name."""
    complete: bool = True
    """Did it come to its end?"""

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
    """Belongs to a side call (a title, a summary): archived, never restored."""
    partial: bool = False
    """The answer broke off here."""
    created_at: float


class Passage(Struct, frozen=True, kw_only=True):
    """A piece of a turn, small enough to be found and restored whole. `id` is 0 until it is archived."""

    id: int = 0
    session: str
    message: str
    """Key of the message it was cut from."""
    position: int
    part: int
    """Order within its message, from 0."""
    turn: int
    speaker: str
    """user, assistant, system, tool, CLIENT, or the name the client gave."""
    text: str
    unit: Literal["passage", "turn"] = "passage"
    """"turn": this is the extractive summary of a whole turn, which the recipe `lantern` ranks."""
    kind: Literal["episodic", "semantic", "procedural"] = "episodic"
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
    """A person's verdict: useful, wrong or outdated; empty when there is none."""
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A passage that a restore chose, and why."""

    passage: Passage
    text: str
    """What of the passage went into the block; whole sentences, maybe not all of them."""
    rank: int
    score: float
    signals: dict[str, float]
    """signal -> score of this passage in it; larger is better."""


Reason = Literal[
    "budget", "similar", "echo", "filler", "admission", "answered", "present", "left", "superseded", "verdict",
    "confidence", "untrusted", "weak",
]  # fmt: skip
"""Why a passage was passed over; PassedOver.why says it in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A passage that a restore looked at and left out, and why."""

    kind: BlockKind
    """The kind of block in which it might have stood."""
    passage: Passage
    reason: Reason
    other: int = 0
    """For the reasons similar and echo, the id of the passage that says it already; for superseded, the later turn, 0
    when that is the request itself."""
    value: float = 0.0
    """For the reason admission, how good the best evidence was; for confidence, that of the passage."""
    rank: int
    """Place by score among those that were passed over for this block, from 1."""
    score: float
    signals: dict[str, float]
    why: str
    """`reason`, `other` and `value` in words, see why_not()."""


def why_not(reason: Reason, other: int = 0, value: float = 0.0) -> str:
    """The reason in words."""
    return {
        "budget": "no room was left for it",
        "similar": f"says much the same as passage {other}",
        "echo": f"most of it stands in what was chosen, above all in passage {other}",
        "filler": "says nothing specific that is lost",
        "admission": f"the best evidence is worth {value:.2f}, less than restore.admission asks for",
        "answered": "a better answer stands in the request already",
        "present": "stands in the request already",
        "left": "belongs to a branch that the client left",
        "superseded": f"superseded by turn {other}" if other else "superseded by the request itself",
        "verdict": "somebody marked it wrong or outdated",
        "confidence": f"its confidence, {value:.2f}, is below reinforce.minimum",
        "weak": "says little of what is asked, beside what says most of it",
        "untrusted": "reads like orders to the model (restore.untrusted)",
    }[reason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """One restored block before it is placed: its exact text, what is in it and what it cost."""

    kind: BlockKind
    text: str
    placed: tuple[Placed, ...]
    considered: int
    """How many passages were looked at."""
    ms: float
    """Milliseconds that it took."""
    degraded: tuple[str, ...] = ()
    """What was skipped and why, as in x-lantern-degraded: "dense:warming"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would be restored into a request. `session` is empty when the request fits none that is known: then it is
    nothing."""

    tenant: str
    session: str = ""
    event: str = "new"
    gone: int = 0
    """Messages that the session holds and the request lacks."""
    blocks: tuple[Restored, ...] = ()
    refused: tuple[dict[str, Any], ...] = ()
    """Passages of the session that are kept out: {"passage", "why", "text"}."""
    passed: tuple[PassedOver, ...] = ()
    """What would be left out, and why."""
    notes: tuple[str, ...] = ()
    """What was skipped and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """An entry of the ledger: a restored block, which rides in the same message, its anchor, until that message is
    gone."""

    session: str
    anchor: str
    """Hex fingerprint of the anchor message."""
    chain: str
    """Hex chain hash up to the anchor, to tell apart two messages that read the same."""
    message: str = ""
    """Key of the anchor message in its session; "" in archives of the time before this was kept."""
    place: Literal["inside", "before", "after"]
    """inside: at the end of the anchor message; before: in front of its last part; after: as a user message behind
    it."""
    restored: Restored
    request: str
    """Id of the request that brought the block."""
    created_at: float
