"""What does this request lack of what its session held, and how was it lost?

The request is aligned, item by item, with what the session showed last (its head). What is gone, what is kept and what
stands in the place of the gone decide:

    nothing gone, or only the last turn rewritten       turn, retry, branch
    everything after some point replaced                branch, unless a summary stands there
    gone from the front or the middle, the rest kept    window, or compacted when a summary stands there
    a result or text that is short now                  cleared

A summary is text that the proxy saw generated and that now stands in another role or message, or text of any origin
that speaks of the gone in the words of the gone. Words of clients (history.MARKER) only break ties (wire notes, 3).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

from lantern_proxy.compaction_align import Seat, align, is_alike, is_cleared, is_replaced_media, seats
from lantern_proxy.compaction_place import is_spoken
from lantern_proxy.history import (
    MARKER,
    MARKER_CHARS,
    SUMMARY_CHARS,
    Session,
    before_answer,
    chains,
    goes_on,
    place_key,
    plain,
    terms,
)
from lantern_proxy.history_same import SYSTEM
from lantern_proxy.turn import LOSSES, Event, Item, Message, Request

_MIN_TERMS, _MIN_SHARE = 6, 1 / 3
"""A text is about the gone when it has so many terms, and that share of them is theirs."""
_LOST_TEXTS, _LOST_CHARS = 400, 400
"""Of how many gone items, and of how much of each, the terms are taken."""
_CLEARED_TEXT_CHARS = 400


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

    @property
    def is_loss(self) -> bool:
        return self.event in LOSSES


Said = Collection[tuple[str, str]]
"""(canonical text, who) of what a session's people and upstream said; "side" for answers of side calls."""


def compare(session: Session, request: Request, *, said: Said = (), restart: bool = False) -> Verdict:
    """The verdict on `request` as the next one of `session`.

    restart: nothing needs to be kept: an id or a summary alone linked the request
    """
    if request.delta:
        return _delta(request)
    if goes_on(session, request) and _folded(session, request) is None:
        return _more(session, request)
    seen = _see(session, request, said)
    event, anchor = _event(seen, restart)
    gone = seen.gone_keys
    server_side = _folded(session, request)
    if server_side is not None and not seen.gone:
        hidden = tuple(key for key in seen.kept[:server_side] if key)
        return Verdict(event="compacted", kept=seen.kept, gone=hidden, anchor=server_side)
    taken_back = event in ("turn", "retry", "branch")
    return Verdict(event=event, kept=seen.kept, gone=gone, abandoned=gone if taken_back else (), anchor=anchor)


def _delta(request: Request) -> Verdict:
    kept: tuple[None, ...] = (None,) * len(request.messages)
    at = _compaction_item(request)
    if at is None:
        return Verdict(event="turn", kept=kept)
    return Verdict(event="compacted", kept=kept, anchor=at)


def _more(session: Session, request: Request) -> Verdict:
    """Nothing is gone, and what is new stands behind all that was shown: as _event() says, without a look at each."""
    held = tuple(e.key if e.message.print and e.message.role not in SYSTEM else None for e in session.head)
    new = request.messages[len(held) :]
    return Verdict(event="turn" if seats(new) else "retry", kept=(*held, *(None,) * len(new)))


def _event(seen: "_Seen", restart: bool) -> tuple[Event, int | None]:
    cleared = seen.cleared
    if not seen.gone or len(cleared) >= len(seen.gone) > 0:
        if cleared:
            return "cleared", max(seen.new[b].at for _, b in cleared)
        renewed = _renewed_summary(seen)
        return (seen.forward, None) if renewed is None else ("compacted", renewed)
    summary = _summary_at(seen)
    if summary is not None:
        return "compacted", summary
    if seen.pairs and seen.is_rewritten:
        return seen.forward, None
    if seen.is_rewound and (seen.pairs or seen.returned or seen.is_edited or not restart):
        only_answer = not seen.fresh and all(seen.session.head[seen.old[a].at].produced for a in seen.gone)
        return ("retry" if only_answer else "branch"), None
    if not seen.pairs:
        return "compacted", _first_spoken(seen.request)
    return "window", _first_kept_user(seen)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A session's head and a request, side by side. Numbers are indices of seats: items that are compared."""

    session: Session
    request: Request
    said: Said
    old: Sequence[Seat]
    new: Sequence[Seat]
    answer: int
    """The head's first message whose answer the client had not shown yet."""
    pending: int
    """The first seat of the user message that waits for an answer."""
    pairs: Sequence[tuple[int, int]]
    """(old, new), rising in both."""
    matched: Sequence[tuple[int, int]]
    """Those, and the moved ones."""
    gone: Sequence[int]
    returned: Sequence[int]
    """Seats of messages that the head does not show, but the session holds with this very history before them."""
    fresh: Sequence[int]

    @property
    def forward(self) -> Event:
        return "turn" if self.fresh else "retry"

    @cached_property
    def kept(self) -> tuple[str | None, ...]:
        """The key of each message of the request: that of the head's message which holds most of its items."""
        shared: dict[int, int] = {}
        for a, b in self.matched:
            shared.setdefault(self.new[b].at, self.old[a].at)
        taken: set[str] = set()
        found: list[str | None] = []
        for at in range(len(self.request.messages)):
            key = self.session.head[shared[at]].key if at in shared else None
            found.append(None if key in taken else key)
            if key:
                taken.add(key)
        return tuple(found)

    @property
    def gone_keys(self) -> tuple[str, ...]:
        keys = dict.fromkeys(self.session.head[self.old[a].at].key for a in self.gone)
        held = {*self.kept}
        return tuple(key for key in keys if key not in held)

    @cached_property
    def replaced(self) -> list[tuple[int, int]]:
        """Pairs of seats that stand alone between the same neighbours, of one role, with another text each."""
        exact = [(-1, -1), *self.pairs]
        found = []
        for (a, b), (next_a, next_b) in pairwise(exact):
            roles = [self.new[at].item.role for at in range(b + 1, next_b)]
            if next_a - a == 2 and self.old[a + 1].item.role in roles and a + 1 in self.gone:
                found.append((a + 1, b + 1 + roles.index(self.old[a + 1].item.role)))
        return found

    @cached_property
    def cleared(self) -> list[tuple[int, int]]:
        """Results that are short now, media and long texts for which a placeholder stands."""
        shorter = [(a, b) for a, b in self.shown if is_cleared(self.old[a].item, self.new[b].item)]
        emptied = [
            (a, b) for a, b in self.replaced
            if self.old[a].item.kind == "text" == self.new[b].item.kind
            and len(self.old[a].item.text) >= _CLEARED_TEXT_CHARS and is_cleared(self.old[a].item, self.new[b].item)
        ]  # fmt: skip
        media = [
            (a, b) for a in self.gone for b in self.fresh if is_replaced_media(self.old, self.new, a, b, len(self.gone))
        ]
        return shorter + emptied + media

    @property
    def shown(self) -> list[tuple[int, int]]:
        """Pairs but for the answers that the client shows for the first time, in whatever dress."""
        return [(a, b) for a, b in self.matched if self.old[a].at < self.answer or self.old[a].item.role != "assistant"]

    @property
    def is_rewound(self) -> bool:
        """Is everything gone that the head showed after some point?"""
        return not any(a > min(self.gone) for a, _ in self.pairs)

    def is_lost(self, text: str) -> bool:
        """Does `text` speak of the gone, in the words of the gone?"""
        found = terms(text)
        return len(found) >= _MIN_TERMS and len(found & self._lost_terms) >= _MIN_SHARE * len(found)

    @cached_property
    def _lost_terms(self) -> set[str]:
        gone = [self.old[a].item for a in self.gone[:_LOST_TEXTS]]
        return terms("\n".join(plain(i.text)[:_LOST_CHARS] for i in gone if i.kind in ("text", "result")))

    @property
    def is_edited(self) -> bool:
        """Is the text that waits for an answer one of the gone, with something added?"""
        asked = [self.new[b].item for b in self.fresh if b >= self.pending]
        return any(is_alike(self.old[a].item, text) for a in self.gone for text in asked)

    @property
    def is_rewritten(self) -> bool:
        """Is what is gone a note of the last turn that came and went, its answer, or texts replaced one by one?"""
        last = max((n for n, s in enumerate(self.old) if _is_user_text(s) and self._follows_model(n)), default=0)
        if set(self.gone) == {a for a, _ in self.replaced}:
            return True
        if min(self.gone) < last:
            return False
        if not self.is_rewound:
            return all(self.old[a].item.kind != "result" for a in self.gone) and not self._lacks_line(last)
        answer = all(self.session.head[self.old[a].at].produced for a in self.gone)
        return answer and any(self.new[b].item.role == "assistant" for b in (*self.fresh, *self.returned))

    def _lacks_line(self, last: int) -> bool:
        """Is all gone that the user said in the last turn? A note stands beside it, or after a result."""
        spoken = {n for n in range(last, len(self.old)) if _is_user_text(self.old[n])}
        return spoken <= {*self.gone} and (last == 0 or self.old[last - 1].item.kind != "result")

    def _follows_model(self, n: int) -> bool:
        return n == 0 or self.old[n - 1].item.role == "assistant" or self.old[n - 1].item.kind == "result"


def _see(session: Session, request: Request, said: Said) -> _Seen:
    old, new = seats([e.message for e in session.head]), seats(request.messages)
    pending = _pending(new)
    answer = 0 if session.recalled else len(before_answer(session))
    pairs, moved = align(old, new, answer=answer, pending=pending, finished=_is_finished(session))
    matched = [*pairs, *moved]
    paired_old, paired_new = {a for a, _ in matched}, {b for _, b in matched}
    gone = [a for a in range(len(old)) if a not in paired_old]
    unpaired = [b for b in range(len(new)) if b not in paired_new]
    places = chains(request.messages) if gone and unpaired else []
    returned = [b for b in unpaired if gone and place_key(places[new[b].at]) in session.keys]
    return _Seen(
        session=session, request=request, said=said, old=old, new=new, answer=answer, pending=pending, pairs=pairs,
        matched=matched, gone=gone, returned=returned, fresh=sorted({*unpaired} - {*returned}),
    )  # fmt: skip


def _pending(new: Sequence[Seat]) -> int:
    at = len(new)
    while at and new[at - 1].at == new[-1].at and _is_user_text(new[at - 1]):
        at -= 1
    return at


def _is_finished(session: Session) -> bool:
    """Did the head's last turn end in an answer that calls no tool?"""
    last = session.head[-1].message if session.head else None
    return last is not None and last.role == "assistant" and not last.calls


def _is_user_text(seat: Seat) -> bool:
    return seat.item.role == "user" and seat.item.kind == "text"


# --- what stands in the place of the gone --------------------------------------------------------------------------


def _summary_at(seen: _Seen) -> int | None:
    """Index of the message that holds a summary of the gone; None when there is none to be seen."""
    item = _compaction_item(seen.request)
    if item is not None:
        return item
    candidates = [b for b in seen.fresh if seen.new[b].item.kind in ("text", "result")]
    early = [b for b in candidates if b < seen.pending]
    for b in candidates:
        if _was_generated(seen, seen.new[b], before="", in_answer=b in early):
            return seen.new[b].at
    renewed = _renewed_summary(seen)
    if renewed is not None:
        return renewed
    if seen.pairs and seen.is_rewritten:
        return None
    found = _marked(seen, early)
    if found is None:
        found = _about_the_gone(seen, early)
    return found if found is not None else _summary_in_system(seen)


def _renewed_summary(seen: _Seen) -> int | None:
    """Index of a message that reads much like before, but for a summary that was generated since."""
    for a, b in seen.matched:
        if seen.old[a].item.print != seen.new[b].item.print and _was_generated(
            seen, seen.new[b], before=plain(seen.old[a].item.text), in_answer=False
        ):
            return seen.new[b].at
    return None


def _was_generated(seen: _Seen, seat: Seat, *, before: str, in_answer: bool) -> bool:
    """Does an answer that the proxy saw stand in this text, and did not `before`?

    in_answer: an answer of the conversation itself counts too, as part of a longer text or in another role
    """
    text = plain(seat.item.text)
    return any(
        (who == "side" or (in_answer and (text != produced or who != seat.item.role)))
        for produced, who in seen.said
        if len(produced) >= SUMMARY_CHARS and produced in text and produced not in before
    )


def _marked(seen: _Seen, early: Sequence[int]) -> int | None:
    end = _leading_system(seen.request) + 8
    places = [
        seen.new[b].at for b in early if seen.new[b].at < end and MARKER.search(seen.new[b].item.text[:MARKER_CHARS])
    ]
    return places[0] if places else None


def _about_the_gone(seen: _Seen, early: Sequence[int]) -> int | None:
    """The first text that is new, or was rewritten, and speaks of the gone; the last one waits for an answer."""
    rewritten = [b for a, b in seen.shown if _is_rewritten(seen.old[a].item, seen.new[b].item)]
    for b in sorted([*early, *rewritten]):
        text = plain(seen.new[b].item.text)
        if len(text) >= SUMMARY_CHARS and seen.is_lost(text):
            return seen.new[b].at
    return None


def _is_rewritten(old: Item, new: Item) -> bool:
    return old.kind == "text" and old.print != new.print and plain(new.text) not in plain(old.text)


def _summary_in_system(seen: _Seen) -> int | None:
    """A summary appended to the system prompt, or in a system message of its own."""
    session, messages = seen.session, seen.request.messages
    known = {print for print, _ in session.system_keys}
    systems = [at for at, m in enumerate(messages) if m.role in SYSTEM]
    for at in systems:
        if messages[at].print in known:
            continue
        text = plain(messages[at].text)
        if any(len(produced) >= SUMMARY_CHARS and produced in text for produced, _ in seen.said):
            return at
        if seen.pairs and seen.is_rewound:
            continue
        added = text.removeprefix(session.system)
        extended = len(added) < len(text) or not session.system or at != systems[0]
        if (extended and len(added) >= SUMMARY_CHARS) or seen.is_lost(added):
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


def _first_kept_user(seen: _Seen) -> int | None:
    messages = seen.request.messages
    same = [b for a, b in seen.pairs if seen.old[a].item.print == seen.new[b].item.print]
    kept = [seen.new[b].at for b in same if is_spoken(messages[seen.new[b].at])]
    return kept[0] if kept else _first_spoken(seen.request)


def _first_spoken(request: Request) -> int | None:
    return next((at for at, m in enumerate(request.messages) if is_spoken(m)), None)
