"""Aligns a request with a session's head: which items are equal, which altered, which moved?

An item of the head without a partner is gone; an item of the request without one is new.
"""

import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from difflib import SequenceMatcher
from functools import partial
from itertools import accumulate, pairwise, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from lantern_proxy.compaction.similarity import (
    MARK_CHARS,
    bare,
    ends_of,
    is_alike,
    is_behind_note,
    is_condensed,
    is_mostly,
    is_patched,
    unstamped,
)
from lantern_proxy.history.presentation import is_same_answer
from lantern_proxy.history.record import is_empty
from lantern_proxy.turn import SYSTEM, Item, Message, plain

_BARE_CHARS = 20_000
"""Longer texts are matched by their beginning and end only."""
_COMPARED_CHARS, _PAIR_CHARS, _GATHER_CHARS = 20_000_000, 100, 10
"""How many characters of texts that begin or end alike may be compared, beyond those of the history itself; the extra
cost of a pair, and of listing one candidate, in characters. Together that is less than a second. Once it is used up, as
with thousands of texts that begin with one date, all remaining texts count as different."""
_JUNK = 500
"""From this many items on, very frequent ones are not matched one by one (difflib's autojunk)."""
_STEPS = 200
"""How often an item may be examined, on average, in the search for the longest runs of equal items."""
_FEW = 8
"""Fewer candidates than this are all compared, without selecting likely ones."""
_WINDOW = 400
"""How far after the last match a similar item is looked for."""

Pairs = list[tuple[int, int]]
"""(index in old, index in new)"""


class _Budget:
    """How much more of a request may be compared: everything once, and a fixed amount beyond."""

    def __init__(self, old: Sequence["Seat"], new: Sequence["Seat"]) -> None:
        self._left_chars = _COMPARED_CHARS + sum(_PAIR_CHARS + len(seat.item.text) for seat in (*old, *new))

    @property
    def is_over(self) -> bool:
        return self._left_chars < 0

    def gather(self, count: int) -> None:
        """Pay for listing `count` candidates."""
        self._left_chars -= _GATHER_CHARS * count

    def lasting(self, costs: Sequence[int]) -> int:
        """How many comparisons, from the first on, can be paid. costs: of each"""
        if self._left_chars >= sum(costs):
            return len(costs)
        return bisect_right([*accumulate(costs)], self._left_chars)

    def spend(self, chars: int) -> None:
        self._left_chars -= chars


class Seat(NamedTuple):  # thousands of them for one request: a frozen dataclass takes twice as long to make
    """An item and the index of the message that it belongs to."""

    at: int
    item: Item


def seats(messages: Sequence[Message]) -> list[Seat]:
    """Items that are compared: no system prompt, no reasoning, nothing empty."""
    return [
        Seat(at, i)
        for at, m in enumerate(messages)
        if m.role not in SYSTEM
        for i in m.items
        if i.kind != "reasoning" and not is_empty(i)
    ]


def with_distinct_ids(old: Sequence[Seat], new: Sequence[Seat]) -> tuple[Sequence[Seat], Sequence[Seat]]:
    """Both sides with ids that tell calls apart. Models that number the calls of each answer reuse ids; such an id is
    combined with what is called, or dropped if that is the same, too."""
    sides = (old, new)
    counts = [Counter(v for s in side if s.item.kind == "call" for v in {*s.item.ids}) for side in sides]
    numbers = {value for count in counts for value, times in count.items() if times > 1}
    if not numbers:
        return old, new
    calls = [Counter((v, s.item.print) for s in side if s.item.kind == "call" for v in s.item.ids) for side in sides]
    same = {call for count in calls for call, times in count.items() if times > 1}
    first, second = (_with_calls(side, numbers, same) for side in sides)
    return first, second


def _with_calls(side: Sequence[Seat], numbers: Set[str], same: Set[tuple[str, bytes]]) -> list[Seat]:
    """Calls, and the results after them, with the ids among `numbers` made distinct: see with_distinct_ids()."""
    found, last = list[Seat](), dict[str, bytes]()
    for at, i in side:
        if i.kind not in ("call", "result") or numbers.isdisjoint(i.ids):
            found.append(Seat(at, i))
            continue
        last |= dict.fromkeys(i.ids, i.print) if i.kind == "call" else {}
        named = [(value, last.get(value, b"")) for value in i.ids]
        ids = [f"{v} {call.hex()}" if v in numbers else v for v, call in named if call and (v, call) not in same]
        found.append(Seat(at, replace(i, ids=tuple(ids))))
    return found


def align(
    old: Sequence[Seat], new: Sequence[Seat], *, answer: int, pending: int, finished: bool
) -> tuple[Pairs, Pairs]:
    """(pairs that rise on both sides, pairs out of order)

    answer:   the first message of the head's answer, which the client had not shown yet
    pending:  index in `new` of the first text that waits for an answer
    finished: the head's last turn was answered, so a pending text equal to an older one is new, unless the request
              continues exactly like the head
    """
    both = _Both(old, new, answer, pending)
    pairs = _exact(old, new, pending if finished else len(new))
    pairs += [pair for gap in _gaps(pairs, old, new) for pair in both.alike_in(*gap)]
    pairs.sort()
    intact = next((n for n, (a, _) in enumerate(pairs) if a != n), len(pairs))
    pairs = [
        (a, b)
        for n, (a, b) in enumerate(pairs)
        if b < pending or n < intact or (not finished and _in_last_turn(old, a))
    ]
    return pairs, both.moved(pairs)


def _in_last_turn(old: Sequence[Seat], a: int) -> bool:
    """Does no user text after an answer follow old[a]?"""
    return not any(s.item.role == "user" and s.item.kind == "text" for s in old[_first_model(old, a) :])


def _first_model(old: Sequence[Seat], a: int) -> int:
    return next((n for n in range(a, len(old)) if old[n].item.role != "user"), len(old))


def _exact(old: Sequence[Seat], new: Sequence[Seat], end: int) -> Pairs:
    """Pairs of equal items. From `end` on, where an equal text is a new one, only in its place; anywhere if a text that
    was never said waits with it, since it may be a note behind that question."""
    a_prints, b_prints = [s.item.print for s in old], [s.item.print for s in new]
    start = 0
    while start < min(len(old), len(new)) and a_prints[start] == b_prints[start]:
        start += 1
    pairs = [(i, i) for i in range(start)]
    if start == len(old) or start == len(new):
        return pairs
    waiting = {s.item.print for s in takewhile(lambda s: s.item.role == "user", reversed(new))}
    end = end if waiting.issubset(a_prints) else len(new)
    found = [(start + a, start + b) for a, b in _matches(a_prints[start:], b_prints[start : max(start, end)])]
    in_place = [(i, i) for i in range(start, min(len(old), len(new))) if _says_the_same(old[i].item, new[i].item)]
    is_in_place = sum(i < end for i, _ in in_place) >= len(found)
    return pairs + (in_place if is_in_place else found)  # "2 minutes ago: go on" may be another by now


def _says_the_same(old: Item, new: Item) -> bool:
    """Are two items equal, but for the time in front of what a user says?"""
    if old.print == new.print:
        return True
    is_users = old.kind == new.kind == "text" and old.role == new.role == "user"
    return is_users and unstamped(old) == unstamped(new)


def _matches(a: Sequence[bytes], b: Sequence[bytes]) -> Pairs:
    """Pairs of equal fingerprints as difflib finds them: the longest run of equal ones, then the same before and after
    it. If that would take long, only those that occur once on both sides are matched in the rest."""
    found, is_rising = _of_once(a, b)
    if is_rising:
        return found
    found = []
    is_long = len(b) > _JUNK
    matcher = SequenceMatcher(None, a, b, autojunk=is_long)
    times, most = Counter(b), len(b) // 100 + 1 if is_long else len(b)
    steps = [0, *accumulate(1 + times[each] * (times[each] <= most) for each in a)]
    left, ranges = _STEPS * (len(a) + len(b)), [(0, len(a), 0, len(b))]
    while ranges:
        a_start, a_stop, b_start, b_stop = ranges.pop()
        left -= steps[a_stop] - steps[a_start]
        if left < 0:
            once, _ = _of_once(a[a_start:a_stop], b[b_start:b_stop])
            found += [(a_start + i, b_start + j) for i, j in _rising(once)]
            continue
        i, j, size = matcher.find_longest_match(a_start, a_stop, b_start, b_stop)
        found += [(i + n, j + n) for n in range(size)]
        if size and a_start < i and b_start < j:
            ranges.append((a_start, i, b_start, j))
        if size and i + size < a_stop and j + size < b_stop:
            ranges.append((i + size, a_stop, j + size, b_stop))
    return sorted(found)


def _of_once(a: Sequence[bytes], b: Sequence[bytes]) -> tuple[Pairs, bool]:
    """(pairs of fingerprints that occur once on each side, are these all that both sides share and in the same
    order)"""
    counts_a, counts_b = Counter(a), Counter(b)
    places = {each: j for j, each in enumerate(b)}
    common = [(i, each) for i, each in enumerate(a) if each in places]
    found = [(i, places[each]) for i, each in common if counts_a[each] == 1 == counts_b[each]]
    return found, len(found) == len(common) and all(j < k for (_, j), (_, k) in pairwise(found))


def _rising(pairs: Pairs) -> Pairs:
    """As many pairs as possible that rise on both sides (a longest increasing subsequence, by patience sorting)."""
    ends, last, before = list[int](), list[int](), list[int]()
    for n, (_, j) in enumerate(pairs):
        at = bisect_left(ends, j)
        ends[at : at + 1], last[at : at + 1] = [j], [n]
        before.append(last[at - 1] if at else -1)
    found, n = Pairs(), last[-1] if last else -1
    while n >= 0:
        found.append(pairs[n])
        n = before[n]
    return found[::-1]


def _gaps(pairs: Pairs, old: Sequence[Seat], new: Sequence[Seat]) -> Iterator[tuple[range, range]]:
    exact = [(-1, -1), *pairs, (len(old), len(new))]
    for (a, b), (next_a, next_b) in pairwise(exact):
        if next_a - a > 1 and next_b - b > 1:
            yield range(a + 1, next_a), range(b + 1, next_b)


class _Both:
    """The items of a head and of a request; those that are not equal are compared. See align()."""

    def __init__(self, old: Sequence[Seat], new: Sequence[Seat], answer: int, pending: int) -> None:
        self._old, self._new, self._pending = old, new, pending
        self._answers = bisect_left(old, answer, key=lambda seat: seat.at)
        """Index in `old` of the first item of the head's answer."""
        self._budget = _Budget(old, new)

    def alike_in(self, gap_old: range, gap_new: range) -> Iterable[tuple[int, int]]:
        """Pairs of similar items in a gap between equal ones: place by place if all of them fit; else each new item
        with the first old one that is similar, in order."""
        if 1 < len(gap_old) <= len(gap_new) and gap_new.start + len(gap_old) <= self._pending:
            in_place = list(zip(gap_old, gap_new, strict=False))
            if all(self._is_likely(a, b) for a, b in in_place):
                return in_place  # times in each of them
        return self._in_order(gap_old, gap_new)

    def _is_likely(self, a: int, b: int) -> bool:
        before, after = self._old[a].item, self._new[b].item
        return is_alike(before, after) or is_mostly(before, after) or is_condensed(before, after)

    def _in_order(self, gap_old: range, gap_new: range) -> Iterator[tuple[int, int]]:
        at, alone = gap_old.start, len(gap_old) == 1 == len(gap_new)
        marked = _Marked(self._old, gap_old, self._budget)
        for b in gap_new:
            item, stop = self._new[b].item, min(gap_old.stop, at + _WINDOW)
            near = marked.near(item, at, stop)
            self._budget.gather(len(near))
            places = range(at, stop) if alone else sorted(near.union(range(max(at, self._answers), stop)))
            fits = partial(self._fits, b, alone)
            found = marked.first(item, places, fits, closely=at if alone else self._answers)
            if found is not None:
                yield found, b
                at = found + 1
            elif self._budget.is_over:
                return

    def _fits(self, b: int, alone: bool, a: int) -> bool:
        """Did old[a] become new[b]? Any picture fits in place of a picture: it gets a new address with every request,
        or was uploaded meanwhile. alone: nothing else is in their gap"""
        before, after = self._old[a].item, self._new[b].item
        is_pending = b >= self._pending
        if is_pending and len(plain(after.text)) > len(plain(before.text)):
            return False  # what was added to a text that waits for its answer is new
        redressed = a >= self._answers and after.role == "assistant" and is_same_answer([before], [after])
        redrawn = not is_pending and before.kind == after.kind == "media" and before.role == after.role
        likely = redressed or redrawn or is_alike(before, after) or is_patched(before, after)
        if likely or not alone or is_pending:
            return likely
        return is_mostly(before, after) or is_behind_note(before, after) or is_condensed(before, after)

    def moved(self, pairs: Pairs) -> Pairs:
        """Pairs of items that stand elsewhere in the request now. They are not gone, only out of order. Pending items
        are new."""
        old, new = self._old, self._new
        paired_old, paired_new = {a for a, _ in pairs}, {b for _, b in pairs}
        gone = [a for a in range(len(old)) if a not in paired_old]
        fresh = [b for b in range(min(self._pending, len(new))) if b not in paired_new]
        places: dict[bytes, list[int]] = {}
        for b in reversed(fresh):
            places.setdefault(new[b].item.print, []).append(b)
        found = [(a, places[old[a].item.print].pop()) for a in gone if places.get(old[a].item.print)]
        taken, matched = {b for _, b in found}, {a for a, _ in found}
        budget = _Budget(old, new)
        marked = _Marked(new, fresh, budget)

        def fits(a: int, b: int) -> bool:
            return is_alike(old[a].item, new[b].item)

        for a in gone:
            if a in matched or budget.is_over:
                continue
            near = marked.near(old[a].item) - taken
            budget.gather(len(near))
            match = marked.first(old[a].item, sorted(near), partial(fits, a))
            if match is not None:
                found.append((a, match))
                taken.add(match)
        return found


class _Marked:
    """Seats, indexed by marks: similar items share at least one mark, see _marks()."""

    def __init__(self, of: Sequence[Seat], some: Iterable[int], budget: _Budget) -> None:
        self._budget = budget
        self._texts = {at: unstamped(of[at].item) for at in some}
        self._costs = {at: _PAIR_CHARS + len(of[at].item.text) for at in self._texts}
        self._places: dict[object, list[int]] = {}
        """A mark, or (beginning, end) of a text -> the seats that have it, in order."""
        for at in self._texts:
            for mark in (*_marks(of[at].item), ends_of(of[at].item)):
                self._places.setdefault(mark, []).append(at)
        self._long = {at for at, text in self._texts.items() if len(text) > _BARE_CHARS}

    def near(self, i: Item, start: int = 0, stop: int = sys.maxsize) -> set[int]:
        """The seats in [start, stop) that share a mark with an item: all items similar to it are among them."""
        found = set[int]()
        for mark in _marks(i):
            places = self._places.get(mark, ())
            found.update(places[bisect_left(places, start) : bisect_left(places, stop)])
        return found

    def first(
        self, i: Item, near: Sequence[int], fits: Callable[[int], bool], *, closely: int = sys.maxsize
    ) -> int | None:
        """The first of the seats `near` that `fits`, within the budget; None if none does.

        closely: from this seat on every one is tried; before it only likely ones, see _likely()
        """
        if not near:
            return None
        own = len(i.text)
        costs = [self._costs[at] + own for at in near]
        lasting = self._budget.lasting(costs)
        found = next(filter(fits, self._likely(i, near[:lasting], closely)), None)
        self._budget.spend(sum(costs if found is None else costs[: near.index(found) + 1]))
        return found

    def _likely(self, i: Item, near: Sequence[int], closely: int) -> Iterable[int]:
        """The seats of `near` that are worth a comparison: few are, among thousands of texts with one template."""
        text, texts, back = unstamped(i), self._texts, (unstamped(i), ">")
        if len(near) < _FEW or i.kind != "text" or len(text) > _BARE_CHARS or text.endswith(">"):
            return near
        sure = self._long.union(*(self._places.get(mark, ()) for mark in (*i.ids, _bare_mark(i, text), ends_of(i))))
        return (
            at
            for at in near
            if (other := texts[at]).startswith(text) or text.startswith(other) or other.endswith(back)
            or text.endswith(other) or at in sure or at >= closely
        )  # fmt: skip


def _marks(i: Item) -> Set[str]:
    """Marks of an item. Two similar items share at least one, which saves comparing all pairs; two texts of different
    roles share none."""
    if i.kind == "media":
        return {*i.ids, f"media {i.role}"}
    if i.kind != "text":
        return {*i.ids}
    text = unstamped(i)
    marks = {*i.ids, f"front {i.role} {text[:MARK_CHARS]}", f"back {i.role} {text[-MARK_CHARS:]}"}
    return marks if len(text) > _BARE_CHARS else {*marks, _bare_mark(i, text)}


def _bare_mark(i: Item, text: str) -> str:
    return f"bare {i.role} {bare(text)}"


def alike_among(some: Sequence[Item], others: Sequence[Item]) -> bool:
    """Is one of `some` similar to one of `others`?"""
    of, sought = [Seat(0, i) for i in some], [Seat(0, i) for i in others]
    marked = _Marked(of, range(len(of)), _Budget(of, sought))

    def fits(i: Item, at: int) -> bool:
        return is_alike(of[at].item, i)

    return any(marked.first(i, [*marked.near(i)], partial(fits, i)) is not None for i in others)
