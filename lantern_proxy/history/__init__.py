"""One session as it is known: what its client showed last, everything it held, and how a request moves it on.

    begin(request) -> Session; advance(session, request, kept) -> Session, new messages; answered(...)

A message is named, within its session, by the chain hash under which it was first seen: the client sends it again with
every request, and it is filed once.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.history.same import chain_after, chain_hashes, chain_on, changed, once, reads_same
from lantern_proxy.history.text import same_system
from lantern_proxy.turn import (
    BLANK,
    SYSTEM,
    Answer,
    Api,
    Filed,
    Head,
    Item,
    Message,
    Request,
    fingerprint,
    message,
    plain,
)

SUMMARY_CHARS = 60
"""Shortest answer that may be a summary of something."""

_QUESTION_CHARS, _ASKS = 300, re.compile(r"(?:[^.!?\u3002\uff1f\u061f\u037e]|[.!](?!\s))*[?\uff1f\u061f\u037e]")
"""A shorter answer that is one sentence, and ends in such a sign, asks something."""

MARKER = re.compile(
    r"previous conversation|conversation (?:history )?(?:so far|to date|before this point)"
    r"|(?:context|conversation|session|chat) summary|summary of (?:\w+ ){0,3}(?:conversation|session|chat)",
    re.I,
)
"""Words that clients put in front of a summary."""
MARKER_CHARS = 2_000
"""Such words open a text."""
SUMMED_UP = re.compile(
    rf"{MARKER.pattern}|summar|recap|\bso far\b|compacted|condensed|zusammenfass|bisher|résum|jusqu'|resum[eio]"
    "|riassunt|finora|hasta ahora|até agora|samenvatt|tot nu toe|sammanfatt|hittills|podsumow|dotychczas|до сих пор"
    "|кратк|итог|özet|şimdiye|ملخص|总结|摘要|總結|到目前|要約|これまで|まとめ|요약|지금까지",
    re.I,
)
"""Words around a summary, and at its beginning."""


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
    """What its upstream calls the answer that ends with it, where that stores answers. Not in an archive."""


Names = tuple[bytes, *tuple[str, ...]]
"""What an answer is known by: its fingerprint, and what its upstream called it."""


class Form(Struct, frozen=True):
    """What an answer is asked for with."""

    system: str
    tools: frozenset[str]


class Session(Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one session. Replaced, never changed: three times a request, for which a Struct is made in a
    tenth of the time that a dataclass takes."""

    id: str
    api: Api
    family: str = ""
    person: str = ""
    """Whom its client named, as in Request; empty: nobody, or several."""
    agent: str = ""
    parent: str = ""
    side: bool = False
    system: str = ""
    """Canonical text of its system prompt, without what was appended to it later."""
    tools: frozenset[str] = frozenset()
    forms: tuple[Form, ...] = ()
    """Others that its turns had before, the last one first: modes of a client, agents that hand over to each other."""
    head: tuple[Entry, ...] = ()
    """What the client showed last, and the answer that it got."""
    chain: bytes = b""
    """Its chain hash."""
    answered: bool = False
    recalled: bool = False
    """The head is from an archive that does not say how its client shows it: any answer may be in another dress."""
    opening: frozenset[bytes] = frozenset()
    """Fingerprints of the items of its first request, as its client shows them: many sessions share them, so they prove
    nothing."""
    keys: frozenset[str] = frozenset()
    """Every message it ever held."""
    abandoned: Mapping[str, bytes] = {}
    """Messages of branches that the client left (an edit, a rewind), and their fingerprints."""
    before: tuple[Names, ...] = ()
    """The answers that its head showed before some of it was lost the last time."""
    system_keys: tuple[tuple[bytes, str], ...] = ()
    position: int = 0
    turn: int = 0
    lost: bool = False
    """Some of what it held was lost, so its questions may need evidence that the request lacks."""
    before_form: "Session | None" = None
    """As it was before a request of another form, while that may have been an aside: history/former.py"""
    forks: "tuple[Session, ...]" = ()
    """As it was on other branches, the last one first."""
    asides: Mapping[Form, int] = {}
    """Forms in which answers were asked for that its client never showed, and how often."""
    title: str = ""
    created_at: float = 0.0
    last_seen_at: float = 0.0


_LONG_CHARS = 65_536
_TITLED_CHARS = 4_200
"""A title is cut when it is written down, from so much: whoever redacts it has to see more than is kept."""
_FORMS = 8
"""Kept of a session, the last ones."""
_SYSTEMS = 64
"""System messages that a session is known by: some clients write the time into theirs, with every request."""


def prepare(request: Request) -> None:
    """Make plain() of the long texts of a request, for whoever asks soon and must not take long."""
    for each in request.messages:
        for text in {each.text, *(i.text for i in each.items)}:
            if len(text) > _LONG_CHARS:
                plain(text)


def is_empty(i: Item) -> bool:
    """A text with nothing in it but white space and reminders."""
    return i.print in BLANK


def told_aside(said: Said) -> Iterator[str]:
    """Answers of side calls that may be summaries. A mere question is none: clients have what a user asks reworded."""
    told = (text for text, who in said if who == "side" and len(text) >= SUMMARY_CHARS)
    return (text for text in told if not _ASKS.fullmatch(text[:_QUESTION_CHARS]))


# --- system prompts ------------------------------------------------------------------------------------------------


def system_text(request: Request) -> str:
    """Canonical text of the system and developer messages that open the request."""
    return "\n".join([plain(m.text) for m in _opening(request)])


def _opening(request: Request) -> Sequence[Message]:
    messages, end = request.messages, 0
    while end < len(messages) and messages[end].role in SYSTEM:
        end += 1
    return messages[:end]


@once
def shows_system_of(session: Session, request: Request) -> bool:
    """Does the request open with system messages that the session showed before, or with ones of their class?"""
    known = {print for print, _ in session.system_keys}
    opening = _opening(request)
    if opening and all(m.print in known for m in opening):
        return True
    now = system_text(request)
    return same_system(session.system, now) or any(f.system and same_system(f.system, now) for f in session.forms)


def is_others(session: Session, request: Request) -> bool:
    """Did its client name somebody else? A group may share a conversation, so this counts where little else does."""
    return bool(session.person and request.person) and session.person != request.person


def form_of(session: Session) -> Form:
    """What the session's last turn was asked for with."""
    return Form(session.system, session.tools)


def has_form(form: Form, request: Request) -> bool:
    """Documents and summaries may stand behind a system prompt, or where there was none."""
    system = system_text(request)
    return form.tools == request.tools and (form.system in system or same_system(form.system, system))


def form_among(forms: Iterable[Form], request: Request) -> Form | None:
    """The first of `forms` that the request has; one without a system prompt only where the request has none."""
    return next((f for f in forms if has_form(f, request) and (f.system or not system_text(request))), None)


def in_form(session: Session, request: Request) -> Session:
    """The session in the form of `request`, where turns of it had that before; itself where none had."""
    if not session.forms or has_form(form_of(session), request):
        return session
    form = form_among(session.forms, request)
    return replace(session, system=form.system, tools=form.tools) if form else session


def _forms(session: Session, now: Form) -> tuple[Form, ...]:
    """Those before, once the session has another form."""
    last = form_of(session)
    if not session.keys or _is_same(last, now):
        return session.forms
    return (last, *(f for f in session.forms if not _is_same(last, f)))[:_FORMS]


def _is_same(a: Form, b: Form) -> bool:
    """The same tools, and system prompts of one class."""
    return a.tools == b.tools and same_system(a.system, b.system)


def _base(session: Session, request: Request) -> str:
    """What stays of a system prompt: without the summaries that were put beside it later.

    A prompt that only the very first request had was a title call's, say.
    """
    now, is_first = system_text(request), session.side or not session.keys
    stays = session.system in now if now else request.delta or session.turn > 1
    return session.system if not is_first and stays else now


def has_marker(request: Request) -> bool:
    """Do words that clients put around summaries stand in the first eight messages?"""
    return any(MARKER.search(m.text[:MARKER_CHARS]) for m in request.messages[:8])


# --- the head ------------------------------------------------------------------------------------------------------


def spoken(messages: Iterable[Message]) -> list[Message]:
    """Messages in which somebody speaks: no system prompts."""
    return [m for m in messages if m.role not in SYSTEM]


def items_of(messages: Iterable[Message], *, system: bool = False) -> Iterator[Item]:
    for m in messages:
        if system or m.role not in SYSTEM:
            yield from m.items


def chains(messages: Iterable[Message]) -> Sequence[bytes]:
    """Chain hash up to each message: see history.same.chain_hashes."""
    return chain_hashes(tuple(messages))


_messages = attrgetter("message")


def shown(session: Session) -> tuple[Message, ...]:
    """The messages of the session's head."""
    return tuple(map(_messages, session.head))


@once
def goes_on(session: Session, request: Request) -> bool:
    """Does the request begin with all that the head shows, message by message, in the same words?"""
    head, messages = session.head, request.messages
    if not head or request.delta or len(head) > len(messages):
        return False
    before = shown(session)
    return all(reads_same(before[at], messages[at]) for at in changed(before, messages))


def place_key(chain: bytes) -> str:
    """The key of a message that was first seen at the end of `chain`."""
    return chain_on(b"", chain, b"").hex()


def before_answer(session: Session) -> tuple[Entry, ...]:
    """The session's head without the last answer, which the client has not shown yet."""
    end = len(session.head)
    while session.answered and end and session.head[end - 1].produced:
        end -= 1
    return session.head[:end]


def answers_of(head: Iterable[Entry]) -> tuple[Names, ...]:
    """The answers that a head shows, calls among them."""
    return tuple(
        (i.print, *i.ids)
        for e in head
        if e.produced
        for i in e.message.items
        if i.kind == "call" or (i.kind == "text" and not is_empty(i))
    )


def begin(
    request: Request,
    *,
    session_id: str,
    now: float,
    family: str = "",
    agent: str = "",
    parent: str = "",
    side: bool = False,
) -> Session:
    """A session that starts with `request`."""
    spoken = [m for m in request.messages if m.role == "user" and plain(m.text)]
    return Session(
        id=session_id, api=request.api, family=family, person=request.person, agent=agent, side=side, parent=parent,
        system=system_text(request), tools=request.tools, created_at=now, last_seen_at=now,
        opening=frozenset(i.print for i in items_of(request.messages)),
        title=plain(spoken[-1].text)[:_TITLED_CHARS] if spoken else "",
    )  # fmt: skip


def advance(
    session: Session, request: Request, kept: Sequence[str | None], *, now: float, abandoned: Iterable[str] = ()
) -> tuple[Session, tuple[Filed, ...]]:
    """The session after `request`, and the messages that it had not held before.

    kept: for each message of the request the key under which the session already holds it, or None
    """
    on = goes_on(session, request)
    places = _to_look_at(session, request) if on else range(len(request.messages))
    keyed, system_keys = _keyed(session, request, kept, places)
    filed = _file(session, keyed, now=now)
    head = [*session.head] if on or request.delta else []
    start = len(head) if request.delta else 0
    before = {e.key: e for e in ([head[at] for at in places if at < len(head)] if on else session.head)}
    redressed: dict[bytes, bytes] = {}
    versions = range(0) if on else _versions(session, request, kept)
    for at, (key, m) in zip(places, keyed, strict=True):
        entry, held = Entry(key, m, at in versions), before.get(kept[at] or "")
        if held is not None:
            altered = held.altered or held.message.print != m.print
            entry = Entry(key, _said_by(m, held.message), held.produced, altered)
            redressed |= _redressed(held.message, m) if altered else {}
        head[start + at : start + at + 1] = [entry]
    hashes = chains(request.messages) or (b"",)
    system = _base(session, request)
    tools = session.tools if request.delta and not request.tools else request.tools
    after = replace(
        session, head=tuple(head), answered=False, recalled=False, last_seen_at=now,
        person="" if is_others(session, request) else session.person,
        keys=_keys_with(session, filed), position=session.position + len(filed),
        turn=filed[-1].turn if filed else session.turn,
        chain=reduce(chain_after, request.messages, session.chain) if request.delta else hashes[-1],
        opening=frozenset(redressed.get(each, each) for each in session.opening) if redressed else session.opening,
        tools=tools, system=system, forms=_forms(session, Form(system, tools)),
        system_keys=tuple(system_keys.items())[-_SYSTEMS:],
        abandoned=_abandoned(session, abandoned, head),
    )  # fmt: skip
    return after, filed


def _versions(session: Session, request: Request, kept: Sequence[str | None]) -> range:
    """Where the request shows a version of its client's own in place of the last answer."""
    asked = before_answer(session)
    if not asked or len(asked) == len(session.head) or any(e.key in kept for e in session.head[len(asked) :]):
        return range(0)
    start = end = kept.index(asked[-1].key) + 1 if asked[-1].key in kept else len(kept)
    while end < len(kept) and kept[end] is None and request.messages[end].role == "assistant":
        end += 1
    return range(start, end)


def _keyed(
    session: Session, request: Request, kept: Sequence[str | None], places: Iterable[int]
) -> tuple[list[tuple[str, Message]], dict[bytes, str]]:
    """(messages at `places` with their keys, fingerprint -> key of all system messages that were seen).

    A message that was not held before is named by the place where it stands; one without a fingerprint by its bytes,
    too; a system message by its words, wherever it stands.
    """
    hashes, previous = chains(request.messages), session.chain if request.delta else b""
    found, of_system = [], dict(session.system_keys)
    for at in places:
        m = request.messages[at]
        if m.role in SYSTEM:
            key = of_system[m.print] = of_system.get(m.print) or fingerprint("system", m.print or m.raw).hex()
        elif previous or not m.print:
            key = kept[at] or fingerprint(previous, hashes[at], b"" if m.print else m.raw).hex()
        else:
            key = kept[at] or place_key(hashes[at])
        found.append((key, m))
    return found, of_system


def _file(
    session: Session, keyed: Iterable[tuple[str, Message]], *, now: float, partial: bool = False
) -> tuple[Filed, ...]:
    """Those of some messages, with their keys, that the session had not held."""
    filed: dict[str, Filed] = {}
    turn = session.turn
    for key, m in keyed:
        if key not in session.keys and key not in filed:
            turn += m.role == "user" and any(i.kind == "text" and i.print not in BLANK for i in m.items)
            filed[key] = Filed(key=key, position=session.position + len(filed), turn=turn, message=m,
                               side=session.side, partial=partial, created_at=now)  # fmt: skip
    return tuple(filed.values())


def _keys_with(session: Session, filed: Sequence[Filed]) -> frozenset[str]:
    """Every message that the session ever held, these among them."""
    return session.keys.union([f.key for f in filed]) if filed else session.keys


def head_of(session: Session) -> Head:
    """What has to be kept of the session beside its messages."""
    altered = {e.key: tuple([i.print for i in e.message.items]) for e in session.head if e.altered}
    abandoned = tuple(sorted(session.abandoned))
    return Head(
        keys=keys_of(session.head), altered=altered, abandoned=abandoned, lost=session.lost, person=session.person
    )


def _said_by(m: Message, before: Message) -> Message:
    """`m` itself; where it only refers to what was said before, that under the name of the reference."""
    (i, *others), meant = m.items or (None,), before.items
    if i is None or i.kind != "ref" or others or len(meant) != 1 or meant[0].kind == "ref":
        return m
    return message(m.role, [dataclasses.replace(i, kind=meant[0].kind, text=meant[0].text, name=meant[0].name)], m.raw)


def _redressed(before: Message, now: Message) -> dict[bytes, bytes]:
    """Fingerprints of what a client shows otherwise by now, with another time perhaps: before -> now."""
    if len(before.items) != len(now.items):
        return {}
    return {old.print: new.print for old, new in zip(before.items, now.items, strict=True)}


def _abandoned(session: Session, taken: Iterable[str], head: Sequence[Entry]) -> Mapping[str, bytes]:
    """What the client took back, by now and before, but for what `head` shows, be it the same words under other names:
    a client may come back to a branch."""
    taken = {*taken}
    if not (taken or session.abandoned):
        return session.abandoned
    left = {**session.abandoned, **{e.key: e.message.print for e in session.head if e.key in taken}}
    keys, prints = {*keys_of(head)}, {e.message.print for e in head}
    return {key: print for key, print in left.items() if key not in keys and print not in prints}


_key = attrgetter("key")


def keys_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(map(_key, entries))


def _to_look_at(session: Session, request: Request) -> list[int]:
    """Where a request that goes on shows something new, or the same in another dress; in order.

    An answer that has nothing to compare was filed under another name than the client's copy of it will be.
    """
    n = len(session.head)
    found = set(changed(shown(session), request.messages))
    at = n - 1
    while at >= 0 and session.head[at].produced:
        found.add(at)
        at -= 1
    return [*sorted(found), *range(n, len(request.messages))]


def answered(session: Session, answer: Answer, *, now: float) -> tuple[Session, tuple[Filed, ...]]:
    """The session after the upstream's answer, and that answer as it is filed. Of several choices the first one leads.

    A second answer to the same request (sent twice at once) takes the place of the first one, which stays filed.
    """
    head = [*before_answer(session)] if answer.messages else [*session.head]
    chain = end = session.chain if len(head) == len(session.head) else chain_of(head)
    keyed: list[tuple[str, Message]] = []
    leading = len(answer.messages) if session.api == "responses" else 1
    for n, m in enumerate(answer.messages):
        before = end if n < leading else chain  # other choices stand beside the first one
        key = place_key(chain_on(before, m.print)) if m.print else fingerprint(before, m.raw).hex()
        keyed.append((key, m))
        if n < leading:
            head.append(Entry(key, m, True, names=answer.ids if n == leading - 1 else ()))
            end = chain_after(end, m)
    filed = _file(session, keyed, now=now, partial=not answer.complete)
    after = replace(
        session, head=tuple(head), chain=end, answered=session.answered or bool(answer.messages),
        keys=_keys_with(session, filed), position=session.position + len(filed), last_seen_at=now,
    )  # fmt: skip
    return after, filed


def chain_of(head: Iterable[Entry]) -> bytes:
    """The chain hash of a head."""
    return (chains(map(_messages, head)) or (b"",))[-1]
