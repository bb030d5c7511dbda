"""The difference between a session's head and a request: items kept, gone, moved, returned, new, cut short."""

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import pairwise

from msgspec import Struct

from lantern_proxy.compaction.align import Pairs, Seat, align, seats, with_distinct_ids
from lantern_proxy.compaction.lines import untimed
from lantern_proxy.compaction.similarity import is_condensed_from
from lantern_proxy.history.record import Said, Session, before_answer, chains, place_key
from lantern_proxy.history.summaries import SUMMARY_CHARS, is_long_text
from lantern_proxy.history.text import mostly_equal, shared_ends
from lantern_proxy.turn import Event, Item, Request, plain


class Diff(Struct, frozen=True, kw_only=True, dict=True):
    """The difference between a session's head and a request. Numbers are indices of seats: items that are compared."""

    session: Session
    request: Request
    said: Said
    anew: Collection[str]
    """Canonical texts that a side call answered since the head's last answer."""
    old: Sequence[Seat]
    new: Sequence[Seat]
    answer: int
    """Index, in the head, of the first message of the last answer, which the client had not shown yet."""
    pending: int
    """The first seat in `new` of the user message that waits for an answer, or of the client's own version of the last
    answer in front of it."""
    pairs: Sequence[tuple[int, int]]
    """(seat in `old`, seat in `new`) of the same item, rising on both sides."""
    moved: Sequence[tuple[int, int]]
    """The same for items that stand elsewhere now, out of order."""
    matched: Sequence[tuple[int, int]]
    """`pairs` and `moved`."""
    gone: Sequence[int]
    """Seats in `old` without a partner."""
    gone_items: Sequence[Item]
    """The items at `gone`."""
    returned: Sequence[int]
    """Seats in `new` of messages that the head does not show, but that the session held after this very history."""
    fresh: Sequence[int]
    """Seats in `new` of what the session does not hold."""

    @property
    def forward(self) -> Event:
        """The event if nothing was lost or taken back."""
        return "turn" if self.fresh else "retry"

    @property
    def is_answer_gone(self) -> bool:
        """Are only answers of the model gone?"""
        return all(self.session.head[self.old[a].at].produced for a in self.gone)

    @cached_property
    def kept(self) -> tuple[str | None, ...]:
        """For each message of the request the key of the head's message that holds the first of its items; None for a
        new one, and for a message with a new result of a call."""
        shared: dict[int, int] = {}
        anew = {self.new[b].at for a, b in self.matched if self._is_another_result(a, b) or self._is_beside(a, b)}
        for a, b in self.matched:
            if self.new[b].at not in anew:
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
    def dressed(self) -> dict[int, str]:
        """Index of each message of the request that contains the head's message and more, or lost words of it -> hex
        fingerprint of the latter."""
        before, now = {e.key: e.message for e in self.session.head}, self.request.messages
        pairs = [(at, before[key], now[at]) for at, key in enumerate(self.kept) if key]
        return {
            at: old.print.hex()
            for at, old, new in pairs
            if old.print != new.print and _is_dressed(plain(old.text), plain(new.text))
        }

    def _is_another_result(self, a: int, b: int) -> bool:
        """Did a call that waited (for consent, for background work) get its result, or more of it?

        A shorter result was cleared or cut, unless both are short in the last turn. A text that was said before may be
        the placeholder of many results.
        """
        old, new = self.old[a].item, self.new[b].item
        if old.print == new.print or not old.kind == new.kind == "result":
            return False
        before, after = plain(old.text), plain(new.text)
        is_waiting = a >= self.last_turn and not is_long_text(before)
        if (len(after) <= len(before) and not is_waiting) or after in before:
            return False
        if after in self._texts_said:
            return False
        return len(after) - shared_ends(before, after) >= SUMMARY_CHARS or not mostly_equal(before, after)

    def _is_beside(self, a: int, b: int) -> bool:
        """Does a text only stand beside another question now: a note that comes with each, or what a memory holds? Both
        messages have a text of their own, and what they share is not their last text, or comes with others, too."""
        old, new = self.old[a], self.new[b]
        if new.at != self.new[-1].at or not is_user_text(new):
            return False
        paired_old, paired_new = {a for a, _ in self.matched}, {b for _, b in self.matched}
        before = [n for n, s in enumerate(self.old) if s.at == old.at and is_user_text(s)]
        now = [n for n, s in enumerate(self.new) if s.at == new.at and is_user_text(s)]
        if paired_old.issuperset(before) or paired_new.issuperset(now):
            return False
        is_last = (a, b) == (before[-1], now[-1])
        return not is_last or sum(s.item.print == new.item.print for s in self.old) > 1

    @cached_property
    def _texts_said(self) -> set[str]:
        return {text for text, _ in self.said}

    @property
    def gone_keys(self) -> tuple[str, ...]:
        """Keys of the messages that the head showed and the request does not."""
        keys = dict.fromkeys(self.session.head[self.old[a].at].key for a in self.gone)
        held = {*self.kept}
        return tuple(key for key in keys if key not in held)

    @property
    def taken_back(self) -> tuple[str, ...]:
        """Those of `gone_keys` that the head showed behind the answer after which the request asks something else: its
        user went back there, whatever the request lacks of what came before."""
        last = max((a for a, _ in self.pairs), default=-1)
        is_behind = self.pending > 0 and (last, self.pending - 1) in self.pairs
        if not is_behind or self.old[last].item.role != "assistant" or self.old[last].item.kind != "text":
            return ()
        if any(seat.item.print == self.old[last].item.print for seat in self.old[last + 1 :]):
            return ()  # said again since: it may be the last one that is shown
        since = {self.session.head[seat.at].key for seat in self.old[last + 1 :]}
        return tuple(key for key in self.gone_keys if key in since)

    @cached_property
    def replaced(self) -> list[tuple[int, int]]:
        """Pairs of seats that stand alone between the same neighbours, with one role and different texts. An item that
        only moved there replaces nothing."""
        exact = [(-1, -1), *self.pairs]
        found = []
        taken = {b for _, b in self.matched}
        for (a, b), (next_a, next_b) in pairwise(exact):
            free = {self.new[at].item.role: at for at in range(next_b - 1, b, -1) if at not in taken}
            if next_a - a == 2 and self.old[a + 1].item.role in free and a + 1 in self.gone:
                found.append((a + 1, free[self.old[a + 1].item.role]))
        return found

    @cached_property
    def last_turn(self) -> int:
        """The seat at which the head's last turn begins."""
        begun = (self._with_pictures(n) for n, s in enumerate(self.old) if is_user_text(s))
        return max((n for n in begun if self._follows_model(n)), default=0)

    def _with_pictures(self, n: int) -> int:
        """The first of the pictures in front of a text, in its message; the text itself if there are none."""
        while n and self.old[n - 1].item.kind == "media" and self.old[n - 1].at == self.old[n].at:
            n -= 1
        return n

    def _follows_model(self, n: int) -> bool:
        return n == 0 or self.old[n - 1].item.role == "assistant" or self.old[n - 1].item.kind == "result"

    @property
    def shown(self) -> list[tuple[int, int]]:
        """`matched` without the answers that the client shows for the first time, however formatted."""
        return [(a, b) for a, b in self.matched if self.old[a].at < self.answer or self.old[a].item.role != "assistant"]

    @cached_property
    def is_rewound(self) -> bool:
        """Is everything gone that the head showed after some point?"""
        first = min(self.gone)
        return not any(a > first for a, _ in self.pairs)


def diff_of(session: Session, request: Request, said: Said, anew: Collection[str] = ()) -> Diff:
    """Compare the head of `session` with `request`, item by item. said, anew: as compare() takes them"""
    old, new = with_distinct_ids(seats([e.message for e in session.head]), seats(request.messages))
    pending = _pending(old, new)
    answer = 0 if session.recalled else len(before_answer(session))
    pairs, moved = align(old, new, answer=answer, pending=pending, finished=_is_finished(session))
    matched = [*pairs, *moved]
    pending = _version(old, new, answer, pending, matched)
    paired_old, paired_new = {a for a, _ in matched}, {b for _, b in matched}
    gone = [a for a in range(len(old)) if a not in paired_old]
    unpaired = [b for b in range(len(new)) if b not in paired_new]
    places = chains(request.messages) if gone and unpaired else []
    returned = [b for b in unpaired if gone and place_key(places[new[b].at]) in session.keys]
    return Diff(
        session=session, request=request, said=said, anew=anew, old=old, new=new, answer=answer, pending=pending,
        pairs=pairs, moved=moved, matched=matched,
        gone=gone, gone_items=[old[a].item for a in gone], returned=returned, fresh=sorted({*unpaired} - {*returned}),
    )  # fmt: skip


def _pending(old: Sequence[Seat], new: Sequence[Seat]) -> int:
    """The first seat of the user message that waits for an answer; if that message repeats an earlier question, the
    seat of its last text."""
    at = len(new)
    while at and new[at - 1].at == new[-1].at and _is_users(new[at - 1].item):
        at -= 1
    said = {s.item.print for s in old if is_user_text(s)}
    known = [new[n].item.print for n in range(at, len(new)) if new[n].item.print in said]
    asked = {s.item.print for s, after in pairwise(old) if is_user_text(s) and after.at != s.at}
    if len(known) < 2 or asked.isdisjoint(known) or new[-1].item.print in said:
        return at
    return max(n for n in range(at, len(new)) if is_user_text(new[n]))


def _version(old: Sequence[Seat], new: Sequence[Seat], answer: int, pending: int, matched: Pairs) -> int:
    """The first seat of the client's own version of the last answer, if one stands between the question and the user's
    next text; else `pending`. Such a version is no summary, whatever it is about."""
    found = dict(matched)
    asked = max((a for a in range(len(old)) if old[a].at < answer), default=None)
    if asked is None or asked not in found or any(a in found for a in range(asked + 1, len(old))):
        return pending
    between, known = range(found[asked] + 1, pending), {*found.values()}
    is_version = between and all(new[b].item.role == "assistant" and b not in known for b in between)
    return found[asked] + 1 if is_version and asked + 1 < len(old) else pending


def _is_users(i: Item) -> bool:
    return i.role == "user" and i.kind in ("text", "media")


def _is_finished(session: Session) -> bool:
    """Did the head's last turn end in an answer that calls no tool?"""
    last = session.head[-1].message if session.head else None
    return last is not None and last.role == "assistant" and not last.calls


def is_user_text(seat: Seat) -> bool:
    return seat.item.role == "user" and seat.item.kind == "text"


def _is_dressed(before: str, after: str) -> bool:
    return before in after or is_condensed_from(before, after)


def untimed_text(i: Item) -> str:
    return untimed(i.text) if i.role == "user" and i.kind == "text" else i.text
