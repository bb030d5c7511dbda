"""One request joins what is known: link it to a session, compare, move the session on.

    step = follow(known, request, identity, now=..., new_id=...)      # when a request comes
    session, filed = reply(known, step.session, answer, now=...)      # when its answer has come

The two calls are the whole life of a turn in the core; the proxy adds the wire, the archive and the restore.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, takewhile

from msgspec.structs import replace

from lantern_proxy.compaction import Verdict, compare
from lantern_proxy.history import advance, answered, begin
from lantern_proxy.history.begun import as_begun
from lantern_proxy.history.former import before_form, on_branch, with_answered_branch, with_branch, without_aside
from lantern_proxy.history.forms import system_text
from lantern_proxy.history.record import Entry, Said, Session, answers_of, before_answer, chain_of, items_of
from lantern_proxy.history.script import lines_of, parted
from lantern_proxy.history.steps import steps_of
from lantern_proxy.history.summaries import told_aside
from lantern_proxy.history.whole import whole_of
from lantern_proxy.session import Known, Link, link, remember
from lantern_proxy.session.known import side_id
from lantern_proxy.session.script import script_use
from lantern_proxy.session.side import summed_up_since
from lantern_proxy.turn import SYSTEM, Answer, Event, Filed, Head, Identity, Item, Request, message, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one request did to its session."""

    session: Session
    """As it is after the request, before the answer."""
    event: Event
    verdict: Verdict
    filed: tuple[Filed, ...]
    """Messages that the session had not held before."""
    link: Link


def follow(
    known: Known,
    request: Request,
    identity: Identity,
    *,
    now: float,
    new_id: Callable[[], str],
    found: Link | None = None,
) -> Step:
    """Link `request`, decide what happened, and remember the session as it is now.

    found: what link() says of the request, when that is known already
    """
    found = found or link(known, request, identity, now)
    step = _side(known, request, found, now, new_id) if found.side else _main(known, request, found, now, new_id)
    remember(known, step.session, family="" if found.side else found.family)
    known.in_flight[step.session.id] += 1
    return step


def _main(known: Known, request: Request, found: Link, now: float, new_id: Callable[[], str]) -> Step:
    unseen: tuple[None, ...] = (None,) * len(request.messages)
    if found.session is None:
        session = begin(request, session_id=new_id(), now=now, family=found.family, parent=found.parent)
        after, filed = advance(session, request, unseen, now=now)
        return Step(session=after, event="new", verdict=Verdict(event="new", kept=unseen), filed=filed, link=found)
    base = on_branch(known_as := without_aside(found.session, request), request)
    lines, verdict = compared(known, base, request, restart=found.restart)
    session = as_begun(base, request)
    if found.family and not session.family:
        session = replace(session, family=found.family)
    if verdict.is_loss:
        session = replace(session, lost=True, before=answers_of(session.head))
    after, filed = advance(session, lines, verdict.kept, now=now, abandoned=verdict.abandoned)
    after = replace(after, before_form=before_form(base, request))
    if verdict.event == "branch":
        after = with_branch(after, base)
    elif verdict.event == "turn" and base is not known_as:
        verdict = dataclasses.replace(verdict, event="branch")
    verdict = as_sent(verdict, request, lines)
    return Step(session=after, event=verdict.event, verdict=verdict, filed=filed, link=found)


def compared(known: Known, session: Session, request: Request, *, restart: bool) -> tuple[Request, Verdict]:
    """What `request` lacks of its session; and the messages that this is said of: other ones than came, where its
    client writes its history into one text."""
    said = known.said.get(session.id, {}).items()
    session = as_begun(session, request)
    lines = lines_of(session, request) or (None if restart else steps_of(session, request, said))
    if lines is None and restart and script_use(known, session, request, named=True) == "turn":
        lines = parted(request)
    lines = lines or request
    anew = summed_up_since(known, session)
    verdict = compare(session, lines, said=said, anew=anew, restart=restart)
    if verdict.event == "window" and lines is not request and _shows_summary(request, said):
        verdict = dataclasses.replace(verdict, event="compacted")
    return lines, verdict


def _shows_summary(request: Request, said: Said) -> bool:
    """Does a text that is read line by line hold a summary, too, in front of its lines?"""
    whole = whole_of("\n".join([plain(m.text) for m in request.messages]))
    return any(text in whole for text in told_aside(said))


def as_sent(verdict: Verdict, request: Request, lines: Request) -> Verdict:
    """What was found of the lines of a text, for the only message that holds them all."""
    if lines is request:
        return verdict
    asked = lines.messages[-1].text
    at = next(n for n, m in enumerate(request.messages) if m.role not in SYSTEM)
    anchor = None if verdict.anchor is None else at
    return dataclasses.replace(verdict, kept=(None,) * len(request.messages), anchor=anchor, asked=asked)


def _side(known: Known, request: Request, found: Link, now: float, new_id: Callable[[], str]) -> Step:
    """A side call is filed under a session of its own: one for each sub-agent, one for all others of a session."""
    parent = found.session.id if found.session and not found.session.side else found.parent
    own = found.session if found.session and found.session.side else None
    if own is None and parent:
        own = known.sessions.get(side_id(parent, found.agent))
    if own is None:
        own = begin(request, session_id=side_id(parent, found.agent) if parent else new_id(), now=now,
                    family=found.family, agent=found.agent, parent=parent, side=True)  # fmt: skip
    unseen: tuple[None, ...] = (None,) * len(request.messages)
    after, filed = advance(replace(own, system="", tools=frozenset()), request, unseen, now=now)
    return Step(session=after, event="side", verdict=Verdict(event="side", kept=unseen), filed=filed, link=found)


def reply(known: Known, asked: Session, answer: Answer, *, now: float) -> tuple[Session | None, tuple[Filed, ...]]:
    """File the upstream's answer in the session as it is by now; nothing when the session was forgotten meanwhile.

    asked: the session as the request left it that is answered. Another one may have come since
    """
    session = known.sessions.get(asked.id)
    if session is None:
        return None, ()
    known.in_flight[asked.id] = max(0, known.in_flight[asked.id] - 1)
    last_asked = known.asks.get(asked.id, (b"",))[0] if session.answered else session.chain
    if last_asked == asked.chain:
        after, filed = answered(session, answer, now=now)
    else:  # it stands behind what it answers, and the head stays what it is
        own, filed = answered(replace(asked, keys=session.keys, position=session.position), answer, now=now)
        remember(known, own, ids=answer.ids, asked=asked.chain)
        after = with_answered_branch(session, asked, own)
    remember(known, after, ids=answer.ids, asked=last_asked)
    return after, filed


def recall(known: Known, row: Session, filed: Sequence[Filed], head: Head, ids: Iterable[str] = ()) -> Session:
    """Remember a session as the archive has it. `row` names it; what its messages tell is filled in here.

    ids: what the upstream called its answers, and other names of the session

    Which messages its upstream produced and which opened it is told by when they were filed: those of one request, or
    of one answer, at one time. Of a conversation that no upstream is known to have answered (an import) what an
    assistant said counts as produced, and what came before that as opening.
    """
    names = frozenset(ids) - {row.id, row.family}
    by_key = {f.key: f for f in filed}
    at_once = _at_once(filed) if names else [(f,) for f in filed]
    entry_of = {f.key: Entry(f.key, f.message, _is_answer(some)) for some in at_once for f in some}
    opened = list(chain.from_iterable(takewhile(lambda some: not _is_answer(some), at_once)))
    request = Request(api=row.api, model="", messages=tuple(f.message for f in sorted(filed, key=_position)))
    head_of_all, altered = tuple(entry_of.values()), head.altered or {}
    opening = {i.print for i in items_of(f.message for f in opened)}
    opening.update(print for f in opened for print in altered.get(f.key, ()))
    abandoned = {key: by_key[key].message.print for key in head.abandoned if key in by_key}
    session = replace(
        row, head=head_of_all, chain=chain_of(head_of_all), keys=frozenset(by_key), system=system_text(request),
        opening=frozenset(opening),
        system_keys=tuple((f.message.print, f.key) for f in filed if f.message.role in SYSTEM),
        position=max((f.position for f in filed), default=-1) + 1, turn=max((f.turn for f in filed), default=0),
        abandoned=abandoned, person=head.person,
        before=answers_of(entry_of[f.key] for f in sorted(filed, key=_position) if f.key not in abandoned),
        lost=_lacks_some(filed, head.keys) if head.altered is None else head.lost,
    )  # fmt: skip
    if not (names or session.system or session.tools):
        called = frozenset(call.name for f in filed for call in f.message.calls)
        session = replace(session, tools=called, imported=True)
    own = {value for f in filed for value in f.message.ids}
    remember(known, session, ids=names - own)  # all it ever held, so that every text of it is found
    entries = tuple(_as_shown(entry_of[key], altered.get(key)) for key in head.keys if key in by_key)
    answered_last = bool(entries and entries[-1].produced)
    session = replace(
        session, head=entries, chain=chain_of(entries), answered=answered_last, recalled=head.altered is None
    )  # fmt: skip
    remember(known, session, asked=chain_of(before_answer(session)))
    return session


def _position(filed: Filed) -> int:
    return filed.position


def _at_once(filed: Sequence[Filed]) -> list[tuple[Filed, ...]]:
    """What was filed of each request and of each answer, in order of position. Requests hardly ever end in an answer:
    what was filed at once and does so is one, or was imported, as what has no time was. There each is by itself. A
    request may seem to end in a call: where a client looks something up again, the result may be filed already."""
    groups = (tuple(some) for _, some in groupby(filed, key=lambda f: f.created_at))
    found = list[tuple[Filed, ...]]()
    for some in groups:
        last = some[-1].message
        apart = (last.role == "assistant" and not last.calls) or not some[0].created_at
        found += [(f,) for f in some] if apart else [some]
    return found


def _is_answer(filed: Iterable[Filed]) -> bool:
    """Did an upstream produce what was filed at once? An example, a greeting, an answer from elsewhere came with what
    somebody else said."""
    return all(f.message.role == "assistant" for f in filed)


def _lacks_some(filed: Iterable[Filed], shown: Collection[str]) -> bool:
    return any(f.key not in shown and f.message.role not in SYSTEM for f in filed)


def _as_shown(entry: Entry, prints: Sequence[bytes] | None) -> Entry:
    """The entry with the fingerprints of what its client shows for it; of its words those that were filed, none of what
    its client has put beside them since."""
    if prints is None:
        return entry
    items, others = [], iter([p for p in prints if all(p != i.print for i in entry.message.items)])
    for i in entry.message.items:
        print = i.print if i.print in prints else next(others, None)
        if print is not None:
            items.append(dataclasses.replace(i, print=print))
    items += [Item(entry.message.role, "text", "", "", (), print) for print in others]
    shown = message(entry.message.role, items, entry.message.raw)
    return Entry(entry.key, shown, entry.produced, altered=True)
