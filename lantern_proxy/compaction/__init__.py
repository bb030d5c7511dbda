"""What does this request lack of what its session held, and how was it lost?

The request is aligned, item by item, with what the session showed last (its head). What is gone, what is kept and what
stands in the place of the gone decide:

    nothing gone, or only the last turn rewritten       turn, retry, branch
    everything after some point replaced                branch, unless a summary stands there
    gone from the front or the middle, the rest kept    window, or compacted when a summary stands there
    a result or text that is short now                  cleared

A summary is text that the proxy saw generated and that now stands in another role or message, or text of any origin
that speaks of the gone in the words of the gone. Words of clients (history.MARKER) only break ties.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from lantern_proxy.compaction.align import Seat, seats
from lantern_proxy.compaction.place import is_spoken
from lantern_proxy.compaction.seen import Said, Seen, see
from lantern_proxy.history import MARKER, MARKER_CHARS, SUMMARY_CHARS, Entry, Session, goes_on
from lantern_proxy.history.dress import unescaped
from lantern_proxy.history.script import ending
from lantern_proxy.history.whole import Whole, whole_of
from lantern_proxy.turn import LOSSES, SYSTEM, Event, Item, Message, Request, plain

_CLOSING = re.compile(r"\A(?:\s*</[\w:-]{1,40}>)*\s*")
"""Tags that a client puts around a summary end behind it."""
_CANDIDATES = 400
"""New texts that may be a summary, the first and the last: a client that shortens a history sends few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What happened between the session's last request and this one."""

    event: Event
    kept: tuple[str | None, ...] = ()
    """For each message of the request the key under which the session holds it, None when it is new."""
    gone: tuple[str, ...] = ()
    """Keys of messages that the head showed and the request does not."""
    abandoned: tuple[str, ...] = ()
    """Those of them that the client took back (an edit, a rewind) instead of losing them."""
    anchor: int | None = None
    """Index of the message at which the loss happened: the summary, the first kept user text, the cleared result."""
    summary: int | None = None
    """Index, among the messages that were compared, of the one that holds a summary; None where none is seen."""
    asked: str = ""
    """What waits for an answer, where it is not all of its message."""

    @property
    def is_loss(self) -> bool:
        return self.event in LOSSES


def compare(
    session: Session, request: Request, *, said: Said = (), anew: Collection[str] = (), restart: bool = False
) -> Verdict:
    """The verdict on `request` as the next one of `session`.

    anew:    canonical texts that a side call answered since: a summary may read just like the one before
    restart: nothing needs to be kept: an id or a summary alone linked the request
    """
    if request.delta:
        return _delta(session, request)
    if goes_on(session, request) and _folded(session, request) is None:
        return _more(session, request)
    seen = see(session, request, said, anew)
    event, anchor, summary = _event(seen, restart)
    gone = seen.gone_keys
    server_side = _folded(session, request)
    if server_side is not None and not seen.gone:
        hidden = tuple(key for key in seen.kept[:server_side] if key)
        return Verdict(event="compacted", kept=seen.kept, gone=hidden, anchor=server_side, summary=server_side)
    abandoned = gone if event in ("turn", "retry", "branch") else ()
    asked = _asked_behind(seen, summary) if summary is not None else ""
    return Verdict(
        event=event, kept=seen.kept, gone=gone, abandoned=abandoned, anchor=anchor, summary=summary, asked=asked
    )


def _delta(session: Session, request: Request) -> Verdict:
    """What is new is compared with nothing. Compaction items tell: its own, or one that the last answer brought."""
    kept: tuple[None, ...] = (None,) * len(request.messages)
    at = _compaction_item(request)
    if at is None and any(map(_is_folding, takewhile(lambda e: e.produced, reversed(session.head)))):
        gone = (e.key for e in session.head[: _folded_up_to(session.head)] if e.message.role not in SYSTEM)
        return Verdict(event="compacted", kept=kept, gone=tuple(gone), anchor=_first_spoken(request) or 0)
    return Verdict(event="turn", kept=kept) if at is None else Verdict(event="compacted", kept=kept, anchor=at)


def whole(head: Sequence[Entry], request: Request) -> Request:
    """`request` with what its upstream holds of it: in front of it, where it says only what is new, and in place of
    references. head: of its session"""
    messages = request.messages
    if any(i.kind == "ref" for m in messages for i in m.items):
        named = {value: e.message for e in head for value in e.message.ids}
        messages = tuple(next((named[value] for value in m.ids if value in named), m) for m in messages)
    if not request.delta:
        return request if messages is request.messages else replace(request, messages=messages)
    held = tuple(e.message for e in head[_folded_up_to(head) :])
    return replace(request, messages=(*held, *messages))


def _folded_up_to(head: Sequence[Entry]) -> int:
    """Index of the last compaction item that the upstream made on its own: the model sees nothing before it."""
    return max((at for at, e in enumerate(head) if _is_folding(e)), default=0)


def _is_folding(entry: Entry) -> bool:
    return entry.produced and any(i.kind == "compaction" for i in entry.message.items)


def _more(session: Session, request: Request) -> Verdict:
    """Nothing is gone, and what is new stands behind all that was shown: as _event() says, without a look at each."""
    held = tuple(e.key if e.message.print and e.message.role not in SYSTEM else None for e in session.head)
    new = request.messages[len(held) :]
    return Verdict(event="turn" if seats(new) else "retry", kept=(*held, *(None,) * len(new)))


def _event(seen: Seen, restart: bool) -> tuple[Event, int | None, int | None]:
    """(what happened, the anchor, where a summary stands)."""
    cleared = seen.cleared
    if not seen.gone or (cleared and len(cleared) >= len({*seen.gone} - seen.reworded)):
        renewed = _renewed_summary(seen)
        if renewed is not None:
            return "compacted", renewed, renewed
        return ("cleared", max(seen.new[b].at for _, b in cleared), None) if cleared else (seen.forward, None, None)
    if seen.is_undone or seen.is_told_again or seen.is_parted:
        return "branch", None, None
    if seen.is_joined:
        return seen.forward, None, None
    summary = _summary_at(seen)
    if summary is not None:
        return "compacted", summary, summary
    if seen.pairs and seen.is_rewritten:
        return seen.forward, None, None
    if seen.is_gone_back:
        return "branch", None, None
    if seen.is_rewound and (seen.pairs or seen.returned or seen.is_edited or not restart):
        only_answer = not seen.fresh and all(seen.session.head[seen.old[a].at].produced for a in seen.gone)
        return ("retry" if only_answer else "branch"), None, None
    if not seen.pairs:
        return "compacted", _first_spoken(seen.request), None
    return "window", _first_kept_user(seen), None


def _asked_behind(seen: Seen, summary: int) -> str:
    """What the user asks behind a summary in the same message: what follows one that was seen generated, else the last
    part of the message, or its last paragraph."""
    if seen.pending == len(seen.new) or seen.new[seen.pending].at != summary:
        return ""
    texts = [s.item.text for s in seen.new[seen.pending :] if s.item.kind == "text"]
    for at, text in reversed([*enumerate(texts)]):
        ends = [plain(text).rpartition(told)[2] for told, _ in seen.told if told in plain(text)]
        if ends:
            behind = _CLOSING.sub("", min(ends, key=len))
            return "\n\n".join(filter(None, [ending(text, behind) if behind else "", *texts[at + 1 :]]))
    front, _, behind = texts[-1].rpartition("\n\n") if texts else ("", "", "")
    return texts[-1].strip() if len(texts) > 1 else behind.strip() if front.strip() else ""


# --- what stands in the place of the gone --------------------------------------------------------------------------


def _summary_at(seen: Seen) -> int | None:
    """Index of the message that holds a summary of the gone; None when there is none to be seen."""
    item = _compaction_item(seen.request)
    if item is not None:
        return item
    candidates = [b for b in seen.fresh if seen.new[b].item.kind in ("text", "result") and b not in seen.reports]
    if len(candidates) > _CANDIDATES:
        candidates = [*candidates[: _CANDIDATES // 2], *candidates[-_CANDIDATES // 2 :]]
    early = [b for b in candidates if b < seen.pending]
    for b in candidates:
        if _was_generated(seen, seen.new[b], before="", in_answer=b in early):
            return seen.new[b].at
    renewed = _renewed_summary(seen)
    if renewed is None:
        renewed = _repeated_summary(seen)
    if renewed is not None:
        return renewed
    passed = next((b for b in early if _was_passed(seen, seen.new[b].item)), None)
    if passed is not None:
        return seen.new[passed].at
    for a, b in seen.moved:
        if _is_put_in_front(seen, a, b):
            return seen.new[b].at
    if seen.pairs and seen.is_rewritten:
        return None
    found = next((seen.new[b].at for b in early if _holds_run(seen, whole_of(plain(seen.new[b].item.text)))), None)
    told = [b for b in early if b not in seen.due]
    if found is None:
        found = _marked(seen, told)
    if found is None:
        found = _about_the_gone(seen, told)
    return found if found is not None else _summary_in_system(seen)


def _renewed_summary(seen: Seen) -> int | None:
    """Index of a message that reads much like before, but for a summary that was generated since."""
    for a, b in seen.matched:
        if seen.old[a].item.print != seen.new[b].item.print and _was_generated(
            seen, seen.new[b], before=plain(seen.old[a].item.text), in_answer=False
        ):
            return seen.new[b].at
    return None


def _repeated_summary(seen: Seen) -> int | None:
    """Index of a message that reads as before, and holds what was generated since in the same words."""
    found = (b for _, b in seen.matched if any(text in plain(seen.new[b].item.text) for text in seen.anew))
    return next((seen.new[b].at for b in found), None)


def _was_generated(seen: Seen, seat: Seat, *, before: str, in_answer: bool) -> bool:
    """Does an answer that the proxy saw stand in this text, and did not `before`?

    in_answer: an answer of the conversation itself counts too, as part of a longer text or in another role
    """
    text = plain(seat.item.text)
    whole = whole_of(unescaped(seat.item.text))
    return any(
        produced in whole and produced not in before
        for produced, who in (seen.told if in_answer else seen.told_aside)
        if who == "side" or text != produced or who != seat.item.role
    )


def _was_passed(seen: Seen, item: Item) -> bool:
    """Is this a text that holds what the model has just passed to a tool of its client's?"""
    return item.kind == "text" and any(text in plain(item.text) for text in seen.passed)


def _holds_run(seen: Seen, text: str | Whole) -> bool:
    """Does a stretch of a late side call's answer stand in `text`, though its client wrote into it or left tags out?

    One that people of the session or its model said before is a quotation.
    """
    return any(run in text and run not in seen.said_aloud for run in seen.runs)


def _is_put_in_front(seen: Seen, a: int, b: int) -> bool:
    """Does an answer stand in front of what was said before it? Then it was a summary."""
    item = seen.new[b].item
    if item.kind != "text" or item.role != "assistant" or len(plain(item.text)) < SUMMARY_CHARS:
        return False
    return any(before < a and after > b for before, after in seen.pairs)


def _marked(seen: Seen, early: Sequence[int]) -> int | None:
    end = _leading_system(seen.request) + 8
    places = [
        seen.new[b].at for b in early if seen.new[b].at < end and MARKER.search(seen.new[b].item.text[:MARKER_CHARS])
    ]
    return places[0] if places else None


def _about_the_gone(seen: Seen, early: Sequence[int]) -> int | None:
    """The first text that is new, or was rewritten, and speaks of the gone; the last one waits for an answer."""
    rewritten = [b for a, b in seen.shown if _is_rewritten(seen.old[a].item, seen.new[b].item)]
    for b in sorted([*early, *rewritten]):
        text = seen.added(b)
        if len(text) >= SUMMARY_CHARS and seen.is_lost(text, seen.was(b)):
            return seen.new[b].at
    return None


def _is_rewritten(old: Item, new: Item) -> bool:
    return old.kind == "text" and old.print != new.print and plain(new.text) not in plain(old.text)


def _summary_in_system(seen: Seen) -> int | None:
    """A summary beside the system prompt, in one message with it or in one of its own."""
    session, messages = seen.session, seen.request.messages
    known = {print for print, _ in session.system_keys}
    systems = [at for at, m in enumerate(messages) if m.role in SYSTEM]
    before = whole_of("\n".join(plain(e.message.text) for e in session.head if e.message.role in SYSTEM))
    for at in systems:
        if messages[at].print in known:
            continue
        text = plain(messages[at].text)
        whole = whole_of(unescaped(messages[at].text))
        if any(said in whole and said not in before for said, _ in seen.told):
            return at
        if _holds_run(seen, whole) and not _holds_run(seen, before):
            return at
        if seen.pairs and seen.is_rewound:
            continue
        added = text.replace(session.system, "", 1).strip() if session.system else text
        extended = len(added) < len(text) or not session.system or at != systems[0]
        if (extended and len(added) >= SUMMARY_CHARS) or seen.is_lost(added, session.system):
            return at
    return None


def _leading_system(request: Request) -> int:
    return next((at for at, m in enumerate(request.messages) if m.role not in SYSTEM), 0)


def shown_to_model(request: Request) -> Sequence[Message]:
    """The messages that the model gets to see: Anthropic's servers drop what stands before a compaction block."""
    at = _compaction_item(request, last=True) if request.api == "messages" else None
    if at is None:
        return request.messages
    opening = takewhile(lambda m: m.role in SYSTEM, request.messages)
    return (*opening, *request.messages[at:])


def _folded(session: Session, request: Request) -> int | None:
    """Index of a compaction block that the last answer brought: the client still sends all before it, for nothing."""
    last = session.head[-1] if session.head and request.api == "messages" else None
    if last is None or not last.produced or all(i.kind != "compaction" for i in last.message.items):
        return None
    at = _compaction_item(request, last=True)
    return at if at is not None and last.message.print == request.messages[at].print else None


def _compaction_item(request: Request, *, last: bool = False) -> int | None:
    found = (at for at, m in enumerate(request.messages) if any(i.kind == "compaction" for i in m.items))
    return max(found, default=None) if last else next(found, None)


def _first_kept_user(seen: Seen) -> int | None:
    """The first kept text of a user at which the beginning that providers cache ends, since what followed is gone.

    Where that is the last before the gap it is the anchor itself: what a client pins there outlives the next cut. Where
    an agent is at work and no text of a user is left, the last result is it; words of the assistant never are.
    """
    messages = seen.request.messages
    same = [(a, seen.new[b].at) for a, b in seen.pairs if seen.old[a].item.print == seen.new[b].item.print]
    kept = [(a, at) for a, at in same if is_spoken(messages[at])]
    gap = min(seen.gone)
    cached = max((seen.new[b].at for a, b in seen.pairs if a < gap), default=-1)
    spots = [at for a, at in kept if a > gap or at == cached]
    if spots:
        return min(spots)
    spoken = _first_spoken(seen.request, max(0, cached))
    if spoken is not None:
        return spoken
    works = messages[-1].role != "assistant" and any(i.kind == "result" for i in messages[-1].items)
    return cached if cached >= 0 else (len(messages) - 1 if works else None)


def _first_spoken(request: Request, start: int = 0) -> int | None:
    return next((at for at in range(start, len(request.messages)) if is_spoken(request.messages[at])), None)
