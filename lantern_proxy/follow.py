"""The core of a turn: link a request to a session, compare the two, advance the session.

    step = follow(index, request, identity, now=..., new_id=...)      # when a request arrives
    session, filed = reply(index, step.session, answer, now=...)      # when its answer has arrived

These two calls are a whole turn in the core; the proxy adds the wire, the archive and the restore.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.compaction import Verdict, compare
from lantern_proxy.history import advance, answered, begin, shown_beside
from lantern_proxy.history.agent_steps import steps_as_messages
from lantern_proxy.history.branches import before_form, on_branch, with_answered_branch, with_branch, without_aside
from lantern_proxy.history.containment import haystack_of
from lantern_proxy.history.prefill import with_prefilled_answer
from lantern_proxy.history.record import Said, Session, alone, answers_of, shown
from lantern_proxy.history.summaries import side_summaries
from lantern_proxy.history.transcript import transcript_as_messages, with_last_line_apart
from lantern_proxy.session import Link, SessionIndex, link, remember
from lantern_proxy.session.early_results import results_in
from lantern_proxy.session.index import side_id, side_of
from lantern_proxy.session.link_result import TAKEN_UP
from lantern_proxy.session.side_calls import summaries_since
from lantern_proxy.session.transcript_use import use_of_transcript
from lantern_proxy.turn import SYSTEM, Answer, Event, Filed, Identity, Request, plain


class Step(Struct, frozen=True, kw_only=True, gc=False):
    """What one request did to its session."""

    session: Session
    """The session after the request and before its answer."""
    event: Event
    verdict: Verdict
    filed: tuple[Filed, ...]
    """The request's messages that are new to the session."""
    link: Link
    main: Session | None = None
    """The main session, if a side call shows messages of it that the client had not shown before; else None."""
    main_filed: tuple[Filed, ...] = ()
    """Those messages."""
    cached: int = 0
    """How many of the request's messages its upstream has from what was taken for a side call, and goes on here."""


def follow(
    index: SessionIndex,
    request: Request,
    identity: Identity,
    *,
    now: float,
    new_id: Callable[[], str],
    found: Link | None = None,
) -> Step:
    """Link `request`, decide what happened, and remember the session as it is now.

    found: the result of link() for the request, if it is known already
    """
    found = found or link(index, request, identity, now)
    step = _side(index, request, found, now, new_id) if found.side else _main(index, request, found, now, new_id)
    remember(index, step.session, family="" if found.side else found.family)
    index.in_flight[step.session.id] += 1
    return step


def _main(index: SessionIndex, request: Request, found: Link, now: float, new_id: Callable[[], str]) -> Step:
    """The step of a request that begins or continues a conversation."""
    unseen: tuple[None, ...] = (None,) * len(request.messages)
    if found.session is None:
        session = begin(request, session_id=new_id(), now=now, family=found.family, parent=found.parent)
        after, filed = advance(session, request, unseen, now=now)
        return Step(session=after, event="new", verdict=Verdict(event="new", kept=unseen), filed=filed, link=found)
    beside = compared(index, found.session, request, restart=found.restart)
    base, _, lines, kept, verdict = beside
    session = with_prefilled_answer(base, request)
    if found.family and not session.family:
        session = replace(session, family=found.family)
    if verdict.is_loss:
        session = replace(session, lost=True, before=answers_of(session.head))
    after, filed = advance(session, lines, kept, now=now, abandoned=verdict.abandoned)
    after = replace(after, before_form=before_form(base, request))
    if verdict.event == "branch" or (verdict.event == "window" and verdict.abandoned):
        after = with_branch(after, base)
    elif verdict.is_loss:
        after = replace(after, before_loss=base.before_loss or alone(base))
    verdict = replace(verdict, event=beside.event)
    cached = _shown_as_side_call(index, found.session, request) if found.why == TAKEN_UP else 0
    return Step(session=after, event=verdict.event, verdict=verdict, filed=filed, link=found, cached=cached)


def _shown_as_side_call(index: SessionIndex, session: Session, request: Request) -> int:
    """How many messages the request begins with that the session's last side call showed, too."""
    side = side_of(index, session)
    pairs = zip(shown(side), request.messages, strict=False) if side is not None else ()
    return sum(1 for _ in takewhile(lambda pair: pair[0].print == pair[1].print, pairs))


class Compared(NamedTuple):
    """A request compared with its session."""

    base: Session
    """The session in the state that the request continues: before an aside, on a branch, after a stored answer."""
    is_moved: bool
    """Did the session move to another branch?"""
    lines: Request
    """The messages that were compared; not the request's own if a client writes its history into one text."""
    kept: tuple[str | None, ...]
    """For each of `lines` the key under which the session holds it; None if it is new."""
    verdict: Verdict
    """What the request lacks, in terms of its own messages."""

    @property
    def event(self) -> Event:
        """The event of the request: the next turn on another branch is a branch, too."""
        return "branch" if self.is_moved and self.verdict.event == "turn" else self.verdict.event


def compared(index: SessionIndex, session: Session, request: Request, *, restart: bool) -> Compared:
    """Compare `request` with `session`, without changing it. restart: as in Link"""
    known_as = without_aside(session, request)
    base = on_branch(known_as, request)
    said, session = index.said.get(base.id, {}).items(), with_prefilled_answer(base, request)
    lines = transcript_as_messages(session, request) or (None if restart else steps_as_messages(session, request, said))
    if lines is None and restart and use_of_transcript(index, session, request, named=True) == "turn":
        lines = with_last_line_apart(request)
    lines = lines or request
    verdict = compare(session, lines, said=said, anew=summaries_since(index, session), restart=restart)
    if verdict.event == "window" and lines is not request and _shows_summary(request, said):
        verdict = replace(verdict, event="compacted")
    return Compared(base, base is not known_as, lines, verdict.kept, _as_sent(verdict, request, lines))


def _shows_summary(request: Request, said: Said) -> bool:
    """Does a text that is read line by line also hold a summary before its lines?"""
    whole = haystack_of("\n".join([plain(m.text) for m in request.messages]))
    return any(text in whole for text in side_summaries(said))


def _as_sent(verdict: Verdict, request: Request, lines: Request) -> Verdict:
    """The verdict on the lines of a text, for the single message that holds them all."""
    if lines is request:
        return verdict
    asked = lines.messages[-1].text
    at = next(n for n, m in enumerate(request.messages) if m.role not in SYSTEM)
    anchor = None if verdict.anchor is None else at
    return replace(verdict, kept=(None,) * len(request.messages), dressed={}, anchor=anchor, asked=asked)


def _side(index: SessionIndex, request: Request, found: Link, now: float, new_id: Callable[[], str]) -> Step:
    """File a side call in a session of its own: one per sub-agent, one for all other side calls of a session."""
    parent = found.session.id if found.session and not found.session.side else found.parent
    own = found.session if found.session and found.session.side else None
    if own is None and parent:
        own = index.sessions.get(side_id(parent, found.agent))
    if own is None:
        own = begin(request, session_id=side_id(parent, found.agent) if parent else new_id(), now=now,
                    family=found.family, agent=found.agent, parent=parent, side=True)  # fmt: skip
    unseen: tuple[None, ...] = (None,) * len(request.messages)
    after, filed = advance(replace(own, system="", tools=frozenset()), request, unseen, now=now)
    main, main_filed = _shown_beside(index, request, after, now, named=not found.by_content)
    return Step(
        session=after, event="side", verdict=Verdict(event="side", kept=unseen), filed=filed, link=found, main=main,
        main_filed=main_filed,
    )  # fmt: skip


def _shown_beside(
    index: SessionIndex, request: Request, side: Session, now: float, *, named: bool
) -> tuple[Session | None, tuple[Filed, ...]]:  # fmt: skip
    """The session, and the results of its last calls, that this side call shows before the main conversation does.

    named: an id led to the session
    """
    main = None if side.agent else index.sessions.get(side.parent)
    results = results_in(index, main, request, named=named) if main is not None else ()
    if main is None or not results:
        return None, ()
    main, filed = shown_beside(main, results, now=now)
    if not filed:
        return None, ()
    index.sessions[main.id] = main  # its head is unchanged, and so is what finds it
    return main, filed


def reply(
    index: SessionIndex, asked: Session, answer: Answer, *, now: float
) -> tuple[Session | None, tuple[Filed, ...]]:
    """File the upstream's answer in the session as it is now; do nothing if the session was forgotten meanwhile.

    asked: the session as the answered request left it. Another request may have come since
    """
    session = index.sessions.get(asked.id)
    if session is None:
        return None, ()
    index.in_flight[asked.id] = max(0, index.in_flight[asked.id] - 1)
    last_asked = index.asks.get(asked.id, (b"",))[0] if session.answered else session.chain
    if last_asked == asked.chain:
        after, filed = answered(session, answer, now=now)
    else:  # the answer goes after its request, and the head stays
        own, filed = answered(replace(asked, keys=session.keys, position=session.position), answer, now=now)
        remember(index, own, ids=answer.ids, asked=asked.chain)
        after = with_answered_branch(session, asked, own)
    remember(index, after, ids=answer.ids, asked=last_asked)
    return after, filed
