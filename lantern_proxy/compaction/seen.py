"""A session's head and a request, side by side: which of its items are kept, gone, moved, returned, new, cut short."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lantern_proxy.compaction.align import (
    PLACEHOLDER_CHARS,
    Seat,
    align,
    alike_among,
    is_cleared,
    is_cut,
    is_placeholder,
    omits,
    seats,
)
from lantern_proxy.compaction.lines import is_made_of, stands_in, untimed
from lantern_proxy.history import (
    SUMMARY_CHARS,
    Session,
    answers_of,
    before_answer,
    chains,
    mostly_equal,
    place_key,
    terms,
)
from lantern_proxy.history.dress import strings_of
from lantern_proxy.history.whole import Whole
from lantern_proxy.turn import Event, Item, Request, plain

_MIN_TERMS, _MIN_SHARE = 6, 1 / 3
"""A text is about the gone when it has so many terms, and that share of them is theirs."""
LOST_TEXTS, _LOST_CHARS = 400, 400
"""Of how many gone items, and of how much of each, the terms are taken."""
_CLEARED_TEXT_CHARS = 400
_TEXTS_TOLD = 4
_RUN_CHARS, _RUN_STEP = SUMMARY_CHARS, 30
"""A run of a text: any stretch that is as long as both together holds one from end to end."""
_RUNS_CHARS, _SIDE_ANSWERS = 2_000, 4
"""Of how much of an answer, and of how many, runs are looked for."""


Said = Collection[tuple[str, str]]
"""(canonical text, who) of what a session's people and upstream said; "side" for answers of side calls."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A session's head and a request, side by side. Numbers are indices of seats: items that are compared."""

    session: Session
    request: Request
    said: Said
    anew: Collection[str]
    """Texts that a side call answered since the head's answer."""
    old: Sequence[Seat]
    new: Sequence[Seat]
    answer: int
    """The head's first message whose answer the client had not shown yet."""
    pending: int
    """The first seat of the user message that waits for an answer."""
    pairs: Sequence[tuple[int, int]]
    """(old, new), rising in both."""
    moved: Sequence[tuple[int, int]]
    """The same of items out of their order."""
    matched: Sequence[tuple[int, int]]
    """All of these."""
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
        """Pairs of seats that stand alone between the same neighbours, of one role, with another text each.

        What only moved there stands for nothing else.
        """
        exact = [(-1, -1), *self.pairs]
        found = []
        for (a, b), (next_a, next_b) in pairwise(exact):
            free = {self.new[at].item.role: at for at in range(next_b - 1, b, -1) if at not in self._before}
            if next_a - a == 2 and self.old[a + 1].item.role in free and a + 1 in self.gone:
                found.append((a + 1, free[self.old[a + 1].item.role]))
        return found

    @cached_property
    def cleared(self) -> list[tuple[int, int]]:
        """Results that are short now, texts that were cut, media and long texts for which a placeholder stands."""
        shorter = [
            (a, b) for a, b in self.shown
            if is_cleared(self.old[a].item, self.new[b].item) or self._is_cut(a, b)
        ]  # fmt: skip
        emptied = [
            (a, b) for a, b in self.replaced
            if self.old[a].item.kind == self.new[b].item.kind in ("text", "result")
            and (self._is_emptied(a, b) or self._is_cut(a, b))
        ]  # fmt: skip
        alone = len(self.gone) == 1
        last = {self.new[b].item.role: b for b in self.fresh if is_placeholder(self.new, b, alone=alone)}
        media = [
            (a, last[role]) for a in self.gone
            if self.old[a].item.kind == "media" and (role := self.old[a].item.role) in last
        ]  # fmt: skip
        return shorter + emptied + media

    @cached_property
    def reworded(self) -> set[int]:
        """Seats of short results for which another short one stands: a placeholder that is worded anew."""
        found = ((a, self.old[a].item, self.new[b].item) for a, b in self.replaced)
        return {
            a for a, old, new in found
            if old.kind == new.kind == "result" and max(len(old.text), len(new.text)) < PLACEHOLDER_CHARS
            and not is_cleared(old, new)
        }  # fmt: skip

    def _is_emptied(self, a: int, b: int) -> bool:
        """Stands hardly anything for a long text now, or for any result of which what followed is kept?"""
        old = self.old[a].item
        is_past = old.kind == "result" and any(after > a for after, _ in self.pairs)
        return (is_past or len(old.text) >= _CLEARED_TEXT_CHARS) and is_cleared(old, self.new[b].item)

    def _is_cut(self, a: int, b: int) -> bool:
        """A text of the last turn, and the last result, may lose what their client had put behind them meanwhile.

        Where an ellipsis stands in its middle, its client has cut a text of the last turn, too.
        """
        old, new = self.old[a].item, self.new[b].item
        if old.kind != "result":
            return is_cut(old, new) and (a < self._last_turn or omits(plain(old.text), plain(new.text)))
        was_last = self.old[a].at == self._asked - 1
        return is_cut(old, new) and not (was_last and plain(old.text).startswith(plain(new.text)))

    @cached_property
    def _asked(self) -> int:
        """How many messages the head has without its answer."""
        return len(before_answer(self.session))

    @cached_property
    def _last_turn(self) -> int:
        """The seat at which the head's last turn begins."""
        return max((n for n, s in enumerate(self.old) if is_user_text(s) and self._follows_model(n)), default=0)

    @property
    def shown(self) -> list[tuple[int, int]]:
        """Pairs but for the answers that the client shows for the first time, in whatever dress."""
        return [(a, b) for a, b in self.matched if self.old[a].at < self.answer or self.old[a].item.role != "assistant"]

    @cached_property
    def is_rewound(self) -> bool:
        """Is everything gone that the head showed after some point?"""
        first = min(self.gone)
        return not any(a > first for a, _ in self.pairs)

    @cached_property
    def told(self) -> Sequence[tuple[str, str]]:
        """What was said, as far as it may be a summary."""
        return [each for each in self.said if len(each[0]) >= SUMMARY_CHARS]

    @cached_property
    def told_aside(self) -> Sequence[tuple[str, str]]:
        """Those of them that answered a side call."""
        return [each for each in self.told if each[1] == "side"]

    @cached_property
    def passed(self) -> Sequence[str]:
        """What the last answer passed to tools, as far as it may be a summary: models compact by a tool, too."""
        calls = (s.item for s in self.old if s.at >= self.answer and s.item.kind == "call")
        return [text for i in calls for text in map(plain, strings_of(i.text)) if len(text) >= SUMMARY_CHARS]

    @cached_property
    def runs(self) -> Sequence[str]:
        """Stretches of the answers of late side calls."""
        answers = [text for text, who in self.said if who == "side"][-_SIDE_ANSWERS:]
        return [
            text[at : at + _RUN_CHARS]
            for text in answers
            for at in range(0, min(len(text), _RUNS_CHARS) - _RUN_CHARS + 1, _RUN_STEP)
        ]

    @cached_property
    def said_aloud(self) -> Whole:
        """What people of the session and its model said."""
        return Whole("\n".join(text for text, who in self.said if who != "side"))

    def is_lost(self, text: str, before: str = "") -> bool:
        """Does `text`, as far as it is another than `before`, speak of the gone, in the words of the gone?"""
        found = terms(text) - terms(before)
        return len(found) >= _MIN_TERMS and len(found & self._lost_terms) >= _MIN_SHARE * len(found)

    @cached_property
    def due(self) -> set[int]:
        """New results of the calls that the last answer made. Tools say the same words about everything."""
        called = {
            value
            for a, b in self.matched
            if self.old[a].item.kind == "call" and self.old[a].at >= self.answer
            for value in self.new[b].item.ids
        }
        return {
            b for b in self.fresh if self.new[b].item.kind == "result" and called.intersection(self.new[b].item.ids)
        }

    @cached_property
    def reports(self) -> set[int]:
        """Those of them behind some of the history: what a sub-agent found is no summary of what is gone."""
        return self.due if any(self.old[a].at < self.answer for a, _ in self.matched) else set()

    def was(self, b: int) -> str:
        """The text that stood in the place of a seat, or the result for which it stands; empty when it is new."""
        a = self._before.get(b, self._results.get(b))
        return "" if a is None else plain(_untimed(self.old[a].item))

    @cached_property
    def _results(self) -> dict[int, int]:
        """Seat of a result -> the one that it stands for."""
        return {b: a for a, b in self.replaced if self.old[a].item.kind == self.new[b].item.kind == "result"}

    @cached_property
    def _before(self) -> dict[int, int]:
        """Seat -> the one of the head that it was."""
        return {b: a for a, b in self.matched}

    def added(self, b: int) -> str:
        """What is new in a text; empty when it was taken over from one of the gone, as a system prompt may be."""
        before, text = self.was(b), plain(_untimed(self.new[b].item))
        new = text.replace(before, "", 1).strip() if before else text
        return "" if len(new) >= SUMMARY_CHARS and new in self._lost_texts else new

    @cached_property
    def _lost_texts(self) -> Whole:
        return Whole("\n".join(plain(self.old[a].item.text) for a in self.gone[:LOST_TEXTS]))

    @property
    def is_undone(self) -> bool:
        """Is more of what the session held long ago back than is gone? Then a compaction was taken back."""
        return len(self.returned) > len(self.gone)

    @property
    def is_joined(self) -> bool:
        """Does all that is gone stand within texts that are new? Then it was only put together otherwise."""
        gone = {a: self.old[a].item for a in self.gone if self.old[a].item.kind != "call"}
        other = [b for a, b in self.matched if self.old[a].item.print != self.new[b].item.print]
        whole = Whole(
            "\n".join(plain(self.new[b].item.text) for b in (*self.fresh, *other) if self.new[b].item.kind == "text")
        )
        chars = sum(len(plain(i.text)) for i in gone.values())
        if any(i.kind not in ("text", "result") for i in gone.values()) or chars > len(whole.text):
            return False
        told = all(
            stands_in(whole, _untimed(i), notes=False) or stands_in(whole, i.text, notes=a >= self._last_turn)
            for a, i in gone.items()
        )
        return bool(gone) and told and all(text in whole for text in self._long_arguments)

    @property
    def is_parted(self) -> bool:
        """Is the first text of the gone, into which the history had been put together, taken apart again?

        All before the text that waits for an answer is what it was made of, and no more than a turn came after it.
        """
        if self.pairs or self._last_turn:
            return False
        texts = [self.new[b].item for b in range(self.pending) if self.new[b].item.kind in ("text", "result")]
        told = any(i.role == "assistant" for i in texts)
        return told and is_made_of(plain(self.old[0].item.text), map(_untimed, texts))

    @property
    def _long_arguments(self) -> list[str]:
        """What gone calls passed to tools, where it is long: a file that was written, of which the result says "ok"."""
        calls = [self.old[a].item for a in self.gone if self.old[a].item.kind == "call"]
        return [text for i in calls for text in map(plain, strings_of(i.text)) if len(text) >= SUMMARY_CHARS]

    @property
    def is_gone_back(self) -> bool:
        """Does the request go on from where the session was long ago, and its head is not?"""
        if not self.returned or not self.pending:
            return False
        chain = chains(self.request.messages)[self.new[self.pending - 1].at]
        return place_key(chain) in self.session.keys

    @property
    def is_told_again(self) -> bool:
        """Stands in place of the gone what was said before: each answer as it was, the user's texts but for a part?

        Where clients write times into what their users say, no history is what it was. The first of those texts might
        be a summary.
        """
        unpaired = [self.new[b].item for b in (*self.fresh, *self.returned) if b < self.pending]
        answers = [i for i in unpaired if i.role == "assistant" and i.kind in ("text", "ref")]
        users = [plain(i.text) for i in unpaired if i.role == "user" and i.kind == "text"]
        goes_back = self.pairs and self.is_rewound and 0 < len(users) <= len(answers)
        if not (goes_back or self._is_taken_back):
            return False
        shown = {print for print, *_ in self.session.before}
        told = {text for text, who in self.said if who == "assistant"}
        if not all(i.kind == "ref" or i.print in shown or plain(i.text) in told for i in answers):
            return False
        before = [text for text, who in self.said if who == "user"]
        return all(any(text in old or mostly_equal(old, text) for old in before) for text in users[:_TEXTS_TOLD])

    @property
    def _is_taken_back(self) -> bool:
        """Are answers back that a loss took, and is what the session had shown before it all there, up to some point?

        A client that recalls a few old messages beside a window leaves out what stood between.
        """
        shown = answers_of(self.session.head)
        told = (*self.session.before, *shown)
        names = {value: each[0] for each in reversed(told) for value in each}

        def known_as(print: bytes, *ids: str) -> bytes | None:
            return next((names[value] for value in (*ids, print) if value in names), None)

        found = dict.fromkeys(known_as(s.item.print, *s.item.ids) for s in self.new[: self.pending])
        found.pop(None, None)
        since = {known_as(*each) for each in shown}
        return not since.issuperset(found) and (
            [*found] == [*dict.fromkeys(known_as(*each) for each in told)][: len(found)]
        )

    @cached_property
    def _lost_terms(self) -> set[str]:
        gone = [self.old[a].item for a in self.gone[:LOST_TEXTS]]
        return terms("\n".join(plain(i.text)[:_LOST_CHARS] for i in gone if i.kind in ("text", "result")))

    @property
    def is_edited(self) -> bool:
        """Is the text that waits for an answer one of the gone, with something added?"""
        asked = [self.new[b].item for b in self.fresh if b >= self.pending]
        return alike_among([self.old[a].item for a in self.gone], asked)

    @property
    def is_rewritten(self) -> bool:
        """Is what is gone a note of the last turn that came and went, its answer, or texts replaced one by one?"""
        if set(self.gone) == {a for a, _ in self.replaced}:
            return True
        if min(self.gone) < self._last_turn:
            return False
        if not self.is_rewound:
            return all(self.old[a].item.kind != "result" for a in self.gone) and not self._lacks_line()
        answer = all(self.session.head[self.old[a].at].produced for a in self.gone)
        return answer and any(self.new[b].item.role == "assistant" for b in (*self.fresh, *self.returned))

    def _lacks_line(self) -> bool:
        """Is all gone that the user said in the last turn? A note stands beside it, or after a result."""
        last = self._last_turn
        spoken = {n for n in range(last, len(self.old)) if is_user_text(self.old[n])}
        return spoken <= {*self.gone} and (last == 0 or self.old[last - 1].item.kind != "result")

    def _follows_model(self, n: int) -> bool:
        return n == 0 or self.old[n - 1].item.role == "assistant" or self.old[n - 1].item.kind == "result"


def see(session: Session, request: Request, said: Said, anew: Collection[str] = ()) -> Seen:
    old, new = seats([e.message for e in session.head]), seats(request.messages)
    pending = _pending(old, new)
    answer = 0 if session.recalled else len(before_answer(session))
    pairs, moved = align(old, new, answer=answer, pending=pending, finished=_is_finished(session))
    matched = [*pairs, *moved]
    paired_old, paired_new = {a for a, _ in matched}, {b for _, b in matched}
    gone = [a for a in range(len(old)) if a not in paired_old]
    unpaired = [b for b in range(len(new)) if b not in paired_new]
    places = chains(request.messages) if gone and unpaired else []
    returned = [b for b in unpaired if gone and place_key(places[new[b].at]) in session.keys]
    return Seen(
        session=session, request=request, said=said, anew=anew, old=old, new=new, answer=answer, pending=pending,
        pairs=pairs, moved=moved, matched=matched,
        gone=gone, returned=returned, fresh=sorted({*unpaired} - {*returned}),
    )  # fmt: skip


def _pending(old: Sequence[Seat], new: Sequence[Seat]) -> int:
    """The first seat of the user message that waits for an answer; of one that holds what was asked before, its end."""
    at = len(new)
    while at and new[at - 1].at == new[-1].at and _is_said(new[at - 1].item):
        at -= 1
    said = {s.item.print for s in old if is_user_text(s)}
    known = [new[n].item.print for n in range(at, len(new)) if new[n].item.print in said]
    asked = {s.item.print for s, after in pairwise(old) if is_user_text(s) and after.at != s.at}
    if len(known) < 2 or asked.isdisjoint(known) or new[-1].item.print in said:
        return at
    return max(n for n in range(at, len(new)) if is_user_text(new[n]))


def _is_said(i: Item) -> bool:
    return i.role == "user" and i.kind in ("text", "media")


def _is_finished(session: Session) -> bool:
    """Did the head's last turn end in an answer that calls no tool?"""
    last = session.head[-1].message if session.head else None
    return last is not None and last.role == "assistant" and not last.calls


def is_user_text(seat: Seat) -> bool:
    return seat.item.role == "user" and seat.item.kind == "text"


def _untimed(i: Item) -> str:
    return untimed(i.text) if i.role == "user" and i.kind == "text" else i.text
