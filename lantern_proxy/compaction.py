"""What does this request lack of what its session held, and how was it lost?

The request is aligned, item by item, with what the session showed last (its head). What is gone, what is kept and what
stands in the place of the gone decide; text that the proxy itself saw generated and that now stands in another role or
message is the strongest sign of a summary. Words (history.MARKER) only break ties. Wire notes, section 3.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from lantern_proxy.history import MARKER, SUMMARY_CHARS, Session
from lantern_proxy.turn import LOSSES, Event, Item, Message, Request, canonical

CLEARED_SHARE = 0.35
"""A tool result that kept less than this share of its text was cleared."""
_NO_WORD = re.compile(r"\W+")
_CLEARED_MIN_CHARS = 80
_SYSTEM_GREW_CHARS = 60


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


@dataclass(frozen=True, slots=True)
class _Seat:
    """An item and the message that it belongs to."""

    at: int
    item: Item


def compare(
    session: Session, request: Request, *, said: Sequence[tuple[str, str]] = (), restart: bool = False
) -> Verdict:
    """The verdict on `request` as the next one of `session`.

    said:    (canonical text, who) of what the session's upstream produced; "side" for answers of side calls
    restart: nothing needs to be kept: an id or a summary alone linked the request
    """
    if request.delta:
        return _delta(request)
    old, new = _seats([e.message for e in session.head]), _seats(request.messages)
    pairs = _align(old, new)
    moved = _moved(old, new, _without(old, pairs, 0), _without(new, pairs, 1))
    kept = _kept_keys(session, request, old, new, [*pairs, *moved])
    lost_old, fresh = _without(old, [*pairs, *moved], 0), _without(new, [*pairs, *moved], 1)
    gone = tuple(
        dict.fromkeys(session.head[old[a].at].key for a in lost_old if session.head[old[a].at].key not in kept)
    )
    cleared = [(a, b) for a, b in pairs if _is_cleared(old[a].item, new[b].item)] + _replaced_media(
        old, new, lost_old, fresh
    )
    if not lost_old or (cleared and len(cleared) >= len(lost_old)):
        return _nothing_gone(kept, gone, fresh, new, cleared)
    tail_only = not any(a > min(lost_old) for a, _ in pairs)
    summary = _summary_at(session, request, new, fresh, said, nothing_kept=not pairs, tail_only=tail_only)
    in_gap = _fills_gap(pairs, fresh, lost_old)
    if summary is not None or (in_gap is not None and not tail_only):
        return Verdict(
            event="compacted", kept=kept, gone=gone, anchor=summary if summary is not None else new[in_gap or 0].at
        )
    if tail_only and (pairs or not restart):
        only_answer = not fresh and all(session.head[old[a].at].produced for a in lost_old)
        return Verdict(event="retry" if only_answer else "branch", kept=kept, gone=gone, abandoned=gone)
    if not pairs:
        return Verdict(event="compacted", kept=kept, gone=gone, anchor=_first_spoken(request))
    return Verdict(event="window", kept=kept, gone=gone, anchor=_first_kept_user(request, new, pairs))


def _without(seats: Sequence[_Seat], pairs: Sequence[tuple[int, int]], side: int) -> list[int]:
    paired = {pair[side] for pair in pairs}
    return [at for at in range(len(seats)) if at not in paired]


def _delta(request: Request) -> Verdict:
    kept: tuple[None, ...] = (None,) * len(request.messages)
    at = _compaction_item(request)
    if at is None:
        return Verdict(event="turn", kept=kept)
    return Verdict(event="compacted", kept=kept, anchor=at)


def _nothing_gone(kept: tuple[str | None, ...], gone: tuple[str, ...], fresh: Sequence[int], new: Sequence[_Seat],
                  cleared: Sequence[tuple[int, int]]) -> Verdict:  # fmt: skip
    if cleared:
        return Verdict(event="cleared", kept=kept, gone=gone, anchor=new[max(b for _, b in cleared)].at)
    return Verdict(event="turn" if fresh else "retry", kept=kept, gone=gone)


# --- alignment -----------------------------------------------------------------------------------------------------


def _seats(messages: Sequence[Message]) -> list[_Seat]:
    """Items that are compared: no system prompt, no reasoning, nothing empty."""
    return [
        _Seat(at, i)
        for at, m in enumerate(messages)
        if m.role not in ("system", "developer")
        for i in m.items
        if i.kind != "reasoning" and (i.kind != "text" or canonical(i.text))
    ]


def _align(old: Sequence[_Seat], new: Sequence[_Seat]) -> list[tuple[int, int]]:
    """Pairs (index in old, index in new), rising in both: equal items first, then alike ones in the gaps between."""
    start = 0
    while start < min(len(old), len(new)) and old[start].item.print == new[start].item.print:
        start += 1
    pairs = [(i, i) for i in range(start)]
    matcher = SequenceMatcher(
        None, [s.item.print for s in old[start:]], [s.item.print for s in new[start:]], autojunk=False
    )
    for a, b, size in matcher.get_matching_blocks():
        pairs += [(start + a + i, start + b + i) for i in range(size)]
    exact = [(-1, -1), *pairs, (len(old), len(new))]
    for (a, b), (next_a, next_b) in zip(exact, exact[1:], strict=False):
        pairs += _align_gap(old, new, range(a + 1, next_a), range(b + 1, next_b))
    return sorted(pairs)


def _align_gap(old: Sequence[_Seat], new: Sequence[_Seat], gap_old: range, gap_new: range) -> Iterator[tuple[int, int]]:
    at = gap_old.start
    for b in gap_new:
        for a in range(at, min(gap_old.stop, at + 400)):
            if _alike(old[a].item, new[b].item):
                yield a, b
                at = a + 1
                break


def _alike(a: Item, b: Item) -> bool:
    """The same item in another dress: same minted id, or text that lost or gained a suffix, or was tidied up."""
    if b.kind == "ref":
        return bool(set(a.ids) & set(b.ids))
    if a.kind != b.kind or a.role != b.role:
        return False
    if a.ids and b.ids and a.kind != "text":
        return bool(set(a.ids) & set(b.ids))
    if a.kind != "text":
        return False
    short, long = sorted((canonical(a.text), canonical(b.text)), key=len)
    if len(short) >= 8 and (long.startswith(short) or long.endswith(short)):
        return True
    return len(short) >= 8 and _NO_WORD.sub("", short) == _NO_WORD.sub("", long)


def _moved(
    old: Sequence[_Seat], new: Sequence[_Seat], gone: Sequence[int], fresh: Sequence[int]
) -> list[tuple[int, int]]:
    """Items that stand elsewhere in the request now: not gone, only out of their order."""
    places: dict[bytes, list[int]] = {}
    for b in reversed(fresh):
        places.setdefault(new[b].item.print, []).append(b)
    found = [(a, places[old[a].item.print].pop()) for a in gone if places.get(old[a].item.print)]
    taken = {b for _, b in found}
    for a in sorted(set(gone) - {a for a, _ in found}):
        match = next((b for b in fresh if b not in taken and _alike(old[a].item, new[b].item)), None)
        if match is not None:
            found.append((a, match))
            taken.add(match)
    return found


def _is_cleared(old: Item, new: Item) -> bool:
    if old.kind != "result" or old.print == new.print:
        return False
    before, after = len(canonical(old.text)), len(canonical(new.text))
    return before >= _CLEARED_MIN_CHARS and after < CLEARED_SHARE * before


def _replaced_media(
    old: Sequence[_Seat], new: Sequence[_Seat], gone: Sequence[int], fresh: Sequence[int]
) -> list[tuple[int, int]]:
    """Media for which a short text now stands in the same message."""
    return [
        (a, b)
        for a in gone
        if old[a].item.kind == "media"
        for b in fresh
        if new[b].item.kind == "text" and new[b].item.role == old[a].item.role and len(new[b].item.text) < 200
        if (b and new[b - 1].at == new[b].at) or len(gone) == 1
    ]


def _kept_keys(session: Session, request: Request, old: Sequence[_Seat], new: Sequence[_Seat],
               pairs: Sequence[tuple[int, int]]) -> tuple[str | None, ...]:  # fmt: skip
    """The key of each message of the request: that of the head's message which holds most of its items."""
    shared: dict[int, int] = {}
    for a, b in pairs:
        shared.setdefault(new[b].at, old[a].at)
    taken: set[str] = set()
    found: list[str | None] = []
    for at in range(len(request.messages)):
        key = session.head[shared[at]].key if at in shared else None
        found.append(None if key in taken else key)
        if key:
            taken.add(key)
    return tuple(found)


# --- what stands in the place of the gone --------------------------------------------------------------------------


def _summary_at(session: Session, request: Request, new: Sequence[_Seat], fresh: Sequence[int],
                said: Sequence[tuple[str, str]], *, nothing_kept: bool, tail_only: bool) -> int | None:  # fmt: skip
    """Index of the message that holds a summary of the gone; None when there is none to be seen."""
    item = _compaction_item(request)
    if item is not None:
        return item
    last = max((s.at for s in new), default=-1)
    pending = {last} if not nothing_kept and request.messages[last].role == "user" else set()
    for b in fresh:
        text = canonical(new[b].item.text)
        for produced, who in said:
            if len(produced) >= SUMMARY_CHARS and produced in text and (who == "side" or new[b].at not in pending):
                return new[b].at
    for b in fresh:
        if new[b].at < 8 + _leading_system(request) and new[b].at not in pending and MARKER.search(new[b].item.text):
            return new[b].at
    return _summary_in_system(session, request, said, tail_only=tail_only)


def _summary_in_system(
    session: Session, request: Request, said: Sequence[tuple[str, str]], *, tail_only: bool
) -> int | None:
    """A summary appended to the system prompt, or in a system message of its own."""
    known = {print for print, _ in session.system_keys}
    for at, m in enumerate(request.messages):
        if m.role not in ("system", "developer") or m.print in known:
            continue
        text = canonical(m.text)
        if any(len(produced) >= SUMMARY_CHARS and produced in text for produced, _ in said):
            return at
        added = text.removeprefix(session.system) if session.system and text.startswith(session.system) else ""
        grew = len(added) >= _SYSTEM_GREW_CHARS or (not session.system and len(text) >= _SYSTEM_GREW_CHARS)
        if (grew and not tail_only) or MARKER.search(added or (text if session.system not in text else "")):
            return at
    return None


def _leading_system(request: Request) -> int:
    return next((at for at, m in enumerate(request.messages) if m.role not in ("system", "developer")), 0)


def _compaction_item(request: Request) -> int | None:
    return next((at for at, m in enumerate(request.messages) if any(i.kind == "compaction" for i in m.items)), None)


def _fills_gap(pairs: Sequence[tuple[int, int]], fresh: Sequence[int], gone: Sequence[int]) -> int | None:
    """The first new item that stands where something is gone and before something that was kept."""
    last_kept = max((b for _, b in pairs), default=-1)
    first_gone = min(gone)
    before_gone = max((b for a, b in pairs if a < first_gone), default=-1)
    return next((b for b in fresh if before_gone < b < last_kept), None)


def _first_kept_user(request: Request, new: Sequence[_Seat], pairs: Sequence[tuple[int, int]]) -> int | None:
    kept = [new[b].at for _, b in pairs if is_spoken(request.messages[new[b].at])]
    return kept[0] if kept else _first_spoken(request)


def _first_spoken(request: Request) -> int | None:
    return next((at for at, m in enumerate(request.messages) if is_spoken(m)), None)


# --- where a block goes --------------------------------------------------------------------------------------------


def is_spoken(m: Message) -> bool:
    """May a block ride inside this message? Only a user's text that carries no tool result."""
    kinds = {i.kind for i in m.items}
    return m.role == "user" and "result" not in kinds and any(i.kind == "text" and canonical(i.text) for i in m.items)


def place(request: Request, anchor: int) -> tuple[int, Literal["inside", "after"]] | None:
    """Where the block of a loss at `anchor` goes: (message, how); None when there is no place that breaks nothing.

    Inside the anchor when a user speaks there, else inside the next user text, else as a user message of its own
    behind the last tool result. An encrypted compaction item takes a user message right after it.
    """
    messages = request.messages
    if any(i.kind == "compaction" for i in messages[anchor].items) and request.api == "responses":
        return anchor, "after"
    for at in range(anchor, len(messages)):
        if is_spoken(messages[at]):
            return at, "inside"
    open_calls = {value for m in messages for i in m.calls for value in i.ids}
    open_calls -= {value for m in messages for i in m.items if i.kind == "result" for value in i.ids}
    last = len(messages) - 1
    return None if open_calls or messages[last].role == "assistant" else (last, "after")


def question(request: Request) -> int | None:
    """Index of the user text that waits for an answer: the last message, system messages behind it left out."""
    for at in range(len(request.messages) - 1, -1, -1):
        m = request.messages[at]
        if m.role in ("system", "developer"):
            continue
        return at if is_spoken(m) else None
    return None


def is_summary_of(text: str, said: Sequence[tuple[str, str]]) -> bool:
    """Does `text` hold the answer of a side call?"""
    whole = canonical(text)
    return any(who == "side" and len(produced) >= SUMMARY_CHARS and produced in whole for produced, who in said)
