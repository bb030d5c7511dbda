"""The record of a session: what its client showed last, and everything else that is known of it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.history.presentation import shown_as
from lantern_proxy.history.shared_prefix import chain_hashes, chain_on, changed, is_same_message, remember_last
from lantern_proxy.turn import BLANK, SYSTEM, Api, Item, Message, Request, item

Said = Collection[tuple[str, str]]
"""(canonical text, who) of what a session's people and upstream said; "side" for answers of side calls."""


class Entry(Struct, frozen=True, gc=False):
    """One message of a session's head."""

    key: str
    message: Message
    produced: bool
    altered: bool = False
    """Does its client show it otherwise than it was filed: cleared, cut, with other times?"""
    names: tuple[str, ...] = ()
    """Ids of the answer that ends with this message, if its upstream stores answers."""


Names = tuple[bytes | str, ...]
"""What identifies an answer: its fingerprint, those of the forms in which clients show it, and the ids its upstream
gave it."""


class Form(Struct, frozen=True):
    """What an answer is asked for with."""

    system: str
    tools: frozenset[str]


class Session(Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one session. Immutable: it is replaced three times per request, and creating a Struct takes a
    tenth of the time of a dataclass."""

    id: str
    api: Api
    family: str = ""
    person: str = ""
    """The person that its client names, as in Request; "" when it names nobody, or several."""
    agent: str = ""
    parent: str = ""
    side: bool = False
    system: str = ""
    """Canonical text of its system prompt, without what was appended to it later."""
    tools: frozenset[str] = frozenset()
    forms: tuple[Form, ...] = ()
    """Earlier forms (system prompt, tools) of its turns other than the current one, latest first: modes of a client,
    agents that hand over to each other."""
    head: tuple[Entry, ...] = ()
    """The messages of the last request, and the answer to it."""
    chain: bytes = b""
    """The chain hash of `head`."""
    answered: bool = False
    """Has the last request been answered?"""
    recalled: bool = False
    """Is the head from an archive that does not record how its client shows it? Then the client may show any answer
    formatted in another way."""
    imported: bool = False
    """Was the session imported, so that no request of its client has been seen? Then its system prompt is unknown, and
    of its tools only those that were called are known."""
    opening: frozenset[bytes] = frozenset()
    """Fingerprints of the items of its first request. Many sessions share them, so they prove nothing."""
    keys: frozenset[str] = frozenset()
    """Keys of all messages that it ever had."""
    abandoned: Mapping[str, bytes] = {}
    """Key -> fingerprint of messages on branches that the client abandoned (an edit, a rewind)."""
    before: tuple[Names, ...] = ()
    """The answers that were in its head before the last loss."""
    system_keys: tuple[tuple[bytes, str], ...] = ()
    """(fingerprint, key) of its latest system messages."""
    position: int = 0
    """How many messages it has had: Filed.position of the next one."""
    turn: int = 0
    """How many turns it has had: Filed.turn of the last message."""
    lost: bool = False
    """Has any of it been lost? Then a question may need evidence that the request lacks."""
    before_form: "Session | None" = None
    """The session before the last request, if that had another form and may have been an aside: see
    history/branches.py"""
    before_loss: "Session | None" = None
    """The session before a loss that no answer came to yet: its request may fail, and its client take it back."""
    forks: "tuple[Session, ...]" = ()
    """The session as it was on abandoned branches, latest first."""
    asides: Mapping[Form, int] = {}
    """Form -> how often the client never showed an answer to a request of that form."""
    title: str = ""
    created_at: float = 0.0
    last_seen_at: float = 0.0


def left_states(session: Session) -> tuple[Session, ...]:
    """The states that its client left, and may return to: its branches, and the one before a loss without an answer."""
    return (*session.forks, session.before_loss) if session.before_loss else session.forks


def alone(session: Session) -> Session:
    """The session in its current state, without those that its client may return to."""
    return replace(session, before_form=None, before_loss=None, forks=())


# --- its messages --------------------------------------------------------------------------------------------------


def is_empty(i: Item) -> bool:
    """Is it a text of only white space and reminders?"""
    return i.print in BLANK


def spoken(messages: Iterable[Message]) -> list[Message]:
    """The messages that are no system prompts."""
    return [m for m in messages if m.role not in SYSTEM]


def items_of(messages: Iterable[Message], *, system: bool = False) -> Iterator[Item]:
    """The items of some messages, without those of system messages unless `system`."""
    for m in messages:
        if system or m.role not in SYSTEM:
            yield from m.items


def prints_in(session: Session) -> set[bytes]:
    """Fingerprints of the items of the session's head, without those of system messages."""
    return {i.print for i in items_of(shown(session))}


def chains(messages: Iterable[Message]) -> Sequence[bytes]:
    """Chain hash up to each message: see history.shared_prefix.chain_hashes."""
    return chain_hashes(tuple(messages))


def chain_of(head: Iterable[Entry]) -> bytes:
    """The chain hash of a head."""
    return (chains(map(_messages, head)) or (b"",))[-1]


_messages = attrgetter("message")


def shown(session: Session) -> tuple[Message, ...]:
    """The messages of the session's head."""
    return tuple(map(_messages, session.head))


_key = attrgetter("key")


def keys_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(map(_key, entries))


@remember_last
def goes_on(session: Session, request: Request) -> bool:
    """Does the request begin with everything the head shows, message by message, in the same words?"""
    head, messages = session.head, request.messages
    if not head or request.delta or len(head) > len(messages):
        return False
    before = shown(session)
    return all(is_same_message(before[at], messages[at]) for at in changed(before, messages))


def place_key(chain: bytes) -> str:
    """The key of a message that was first seen at the end of `chain`."""
    return chain_on(b"", chain, b"").hex()


def before_answer(session: Session) -> tuple[Entry, ...]:
    """The session's head without the last answer, which the client has not shown yet."""
    end = len(session.head)
    while session.answered and end and session.head[end - 1].produced:
        end -= 1
    return session.head[:end]


def new_answer(session: Session) -> tuple[Message, ...]:
    """The messages of the answer to the last request, which the client has not shown yet; () while there is none."""
    return tuple(map(_messages, session.head[len(before_answer(session)) :]))


def last_asked(session: Session) -> Message | None:
    """The last user message before that answer; None if there is none."""
    return next((e.message for e in reversed(before_answer(session)) if e.message.role == "user"), None)


def last_answer(session: Session) -> Message | None:
    """The last message of the session's upstream; None if there is none."""
    return next((e.message for e in reversed(session.head) if e.produced), None)


def answers_of(head: Iterable[Entry]) -> tuple[Names, ...]:
    """The answers, including calls, that a head shows."""
    return tuple(
        (i.print, *shown_prints(i), *i.ids)
        for e in head
        if e.produced
        for i in e.message.items
        if i.kind == "call" or (i.kind == "text" and not is_empty(i))
    )


def shown_prints(i: Item) -> Iterator[bytes]:
    """Fingerprints of what clients show instead of an answer: its text without the reasoning."""
    if i.kind == "text":
        yield from (item(i.role, i.kind, text).print for text in shown_as(i.text)[1:])
