"""One session as it is known: what its client showed last, everything it held, and how a request moves it on.

    begin(request) -> Session; advance(session, request, kept) -> Session, new messages; answered(...)

A message is named, within its session, by the chain hash under which it was first seen: the client sends it again with
every request, and it is filed once.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from msgspec.structs import replace

from lantern_proxy.history.forms import base_of, forms_with, is_other_person, system_text
from lantern_proxy.history.record import (
    Entry,
    Form,
    Session,
    before_answer,
    chain_of,
    chains,
    goes_on,
    items_of,
    keys_of,
    new_answer,
    place_key,
    shown,
)
from lantern_proxy.history.shared_prefix import chain_after, chain_on, changed
from lantern_proxy.turn import (
    BLANK,
    SYSTEM,
    Answer,
    Filed,
    Head,
    Message,
    Request,
    fingerprint,
    message,
    plain,
)

_LONG_CHARS = 65_536
_TITLED_CHARS = 4_200
"""A title is cut to fewer characters when it is written down: redaction has to see more than is kept."""
_SYSTEMS = 64
"""Most system messages remembered per session: some clients write the time into theirs, with every request."""


def prepare(request: Request) -> None:
    """Compute plain() of a request's long texts in advance, for callers that must not take long."""
    for each in request.messages:
        for text in {each.text, *(i.text for i in each.items)}:
            if len(text) > _LONG_CHARS:
                plain(text)


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
    """(the session after `request`, the messages that it had not held before)

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
            entry = Entry(key, _said_by(m, held.message), held.produced, altered, held.names)
            redressed |= _redressed(held.message, m) if altered else {}
        head[start + at : start + at + 1] = [entry]
    hashes = chains(request.messages) or (b"",)
    system = base_of(session, request)
    tools = session.tools if request.delta and not request.tools else request.tools
    after = replace(
        session, head=tuple(head), answered=False, recalled=False, last_seen_at=now,
        imported=session.imported and not any(kept),
        person="" if is_other_person(session, request) else session.person,
        keys=_keys_with(session, filed), position=session.position + len(filed),
        turn=filed[-1].turn if filed else session.turn,
        chain=reduce(chain_after, request.messages, session.chain) if request.delta else hashes[-1],
        opening=frozenset(redressed.get(each, each) for each in session.opening) if redressed else session.opening,
        tools=tools, system=system, forms=forms_with(session, Form(system, tools)),
        system_keys=tuple(system_keys.items())[-_SYSTEMS:],
        abandoned=_abandoned(session, abandoned, head),
    )  # fmt: skip
    return after, filed


def _versions(session: Session, request: Request, kept: Sequence[str | None]) -> range:
    """The messages that the client shows as its own version of the last answer. A call is no version of an answer
    without calls: the client may have looked something up for the same question, asked again."""
    asked = before_answer(session)
    if not asked or len(asked) == len(session.head) or any(e.key in kept for e in session.head[len(asked) :]):
        return range(0)
    start = end = kept.index(asked[-1].key) + 1 if asked[-1].key in kept else len(kept)
    called = any(m.calls for m in new_answer(session))
    while end < len(kept) and kept[end] is None and request.messages[end].role == "assistant":
        if request.messages[end].calls and not called:
            break
        end += 1
    return range(start, end)


def _keyed(
    session: Session, request: Request, kept: Sequence[str | None], places: Iterable[int]
) -> tuple[list[tuple[str, Message]], dict[bytes, str]]:
    """(messages at `places` with their keys, fingerprint -> key of all system messages seen).

    A new message is named by its place in the history; one without a fingerprint by its bytes, too; a system message by
    its text, wherever it stands.
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


def shown_beside(
    session: Session, messages: Sequence[Message], *, now: float
) -> tuple[Session, tuple[Filed, ...]]:  # fmt: skip
    """The session, and messages that follow its head, which a side call shows before the client does. They are filed
    now, and not again when the client shows them."""
    keyed, chain = list[tuple[str, Message]](), session.chain
    for m in messages:
        chain = chain_after(chain, m)
        keyed.append((place_key(chain), m))
    filed = _file(session, keyed, now=now)
    return replace(session, keys=_keys_with(session, filed), position=session.position + len(filed)), filed


def _file(
    session: Session, keyed: Iterable[tuple[str, Message]], *, now: float, partial: bool = False,
    names: Mapping[str, tuple[str, ...]] = {},
) -> tuple[Filed, ...]:  # fmt: skip
    """The messages that the session had not held, as they are filed.

    keyed: (key, message); names: key -> ids of the answer that ends there
    """
    filed: dict[str, Filed] = {}
    turn = session.turn
    for key, m in keyed:
        if key not in session.keys and key not in filed:
            turn += m.role == "user" and any(i.kind == "text" and i.print not in BLANK for i in m.items)
            filed[key] = Filed(
                key=key, position=session.position + len(filed), turn=turn, message=m, side=session.side,
                partial=partial, names=names.get(key, ()), created_at=now,
            )  # fmt: skip
    return tuple(filed.values())


def _keys_with(session: Session, filed: Sequence[Filed]) -> frozenset[str]:
    """Keys of all messages that the session ever held, including those just filed."""
    return session.keys.union([f.key for f in filed]) if filed else session.keys


def head_of(session: Session) -> Head:
    """What is archived of the session besides its messages, so that it can continue after a restart."""
    altered = {
        e.key: tuple([i.print for i in e.message.items if i.kind != "reasoning"]) for e in session.head if e.altered
    }
    forks = tuple([replace(head_of(branch), position=branch.position) for branch in session.forks])
    return Head(
        keys=keys_of(session.head), altered=altered, abandoned=tuple(sorted(session.abandoned)), lost=session.lost,
        person=session.person, forks=forks,
    )  # fmt: skip


def _said_by(m: Message, before: Message) -> Message:
    """`m`; if it only refers to an earlier message, a message with that one's content and the ids of the reference."""
    (i, *others), meant = m.items or (None,), before.items
    if i is None or i.kind != "ref" or others or len(meant) != 1 or meant[0].kind == "ref":
        return m
    return message(m.role, [replace(i, kind=meant[0].kind, text=meant[0].text, name=meant[0].name)], m.raw)


def _redressed(before: Message, now: Message) -> dict[bytes, bytes]:
    """Fingerprint before -> fingerprint now, for the items of a message that its client shows otherwise, such as with
    another time."""
    if len(before.items) != len(now.items):
        return {}
    return {old.print: new.print for old, new in zip(before.items, now.items, strict=True)}


def _abandoned(session: Session, taken: Iterable[str], head: Sequence[Entry]) -> Mapping[str, bytes]:
    """Key -> fingerprint of what the client took back, now (`taken`) and before, without what `head` shows, even under
    another key: a client may return to a branch."""
    taken = {*taken}
    if not (taken or session.abandoned):
        return session.abandoned
    left = {**session.abandoned, **{e.key: e.message.print for e in session.head if e.key in taken}}
    keys, prints = {*keys_of(head)}, {e.message.print for e in head}
    return {key: print for key, print in left.items() if key not in keys and print not in prints}


def _to_look_at(session: Session, request: Request) -> list[int]:
    """Sorted indices of the messages that are new or shown in another form, in a request that continues the head, and
    of the last answer, whose key may differ from that of the client's copy."""
    n = len(session.head)
    found = set(changed(shown(session), request.messages))
    at = n - 1
    while at >= 0 and session.head[at].produced:
        found.add(at)
        at -= 1
    return [*sorted(found), *range(n, len(request.messages))]


def answered(session: Session, answer: Answer, *, now: float) -> tuple[Session, tuple[Filed, ...]]:
    """The session after the upstream's answer, and that answer as filed. Of several choices the first one leads.

    A second answer to the same request (sent twice at once) replaces the first one, which stays filed.
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
    names = {head[-1].key: answer.ids} if answer.messages else {}
    filed = _file(session, keyed, now=now, partial=not answer.complete, names=names)
    after = replace(
        session, head=tuple(head), chain=end, answered=session.answered or bool(answer.messages),
        keys=_keys_with(session, filed), position=session.position + len(filed), last_seen_at=now,
        before_loss=None if answer.messages else session.before_loss,
    )  # fmt: skip
    return after, filed
