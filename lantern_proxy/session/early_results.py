"""Results that a side call shows before its main conversation does: those of the last tool calls.

A client that finds a result too long has its history summed up before its model gets to see that result: then it stands
nowhere else. The history comes message by message, or as one text: "[User]: ...", "[Tool result]: ...".
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from lantern_proxy.history.record import Session, before_answer, items_of, new_answer
from lantern_proxy.history.text import breadth
from lantern_proxy.session.index import PROBE_CHARS, SessionIndex, sayer_of
from lantern_proxy.session.instructions import asks_for_summary
from lantern_proxy.session.side_calls import held_share, holds_answer
from lantern_proxy.turn import Item, Message, Request, Role, is_random, item, message, plain

_LOOKED_AT, _ALL_THERE = 12, 3
"""How many of the session's last messages are looked for in a history; and how many of their last texts must all stand
there."""
_CLOSES = re.compile(r"\n\s*</[\w:-]{1,40}>")
"""The tag that ends such a history."""


def results_in(index: SessionIndex, session: Session, request: Request, *, named: bool) -> tuple[Message, ...]:
    """The results of the session's last calls, as a side call of it shows them. named: an id led to the session"""
    calls = [i for m in new_answer(session) for i in m.calls]
    if not calls:
        return ()
    entries = islice(reversed(before_answer(session)), _LOOKED_AT)
    said = [i for e in entries for i in reversed(e.message.items) if i.kind in ("text", "result") and i.text.strip()]
    shown = {i.print for i in items_of(request.messages)}
    is_end_shown = all(i.print in shown for i in said[:_ALL_THERE])  # what stood before may be summed up already
    if holds_answer(session, request) and (is_end_shown or held_share(session, request) > 0.5):
        is_own = named or _is_ones(index, [i for i in said[:_ALL_THERE] if i.print in shown])
        return tuple(_of_calls(request, calls, is_own=is_own))
    texts = (i.text for i in items_of(request.messages) if i.kind == "text" and i.role == "user")
    is_own = _is_ones(index, said[:_ALL_THERE])
    return next(filter(None, (_in_text(text, said, calls) for text in texts)), ()) if is_own else ()


def _is_ones(index: SessionIndex, said: Sequence[Item]) -> bool:
    """Was one of these items, longer than a word or two, said in one conversation only?"""
    texts = (plain(i.text) for i in said)
    return any(breadth(text) >= PROBE_CHARS and sayer_of(index, text) for text in texts)


def _of_calls(request: Request, calls: Sequence[Item], *, is_own: bool) -> Iterator[Message]:
    """The results as messages. A call id that is only a number proves nothing, since another session's call may have
    it, unless the request is known to be the session's (is_own). Results of earlier calls with that number do not count
    either."""
    called = {value for i in calls for value in i.ids if is_own or is_random(value)}
    behind = takewhile(lambda m: all(i.print != calls[0].print for i in m.items), reversed(request.messages))
    for m in reversed([*behind]):
        gave = tuple(i for i in m.items if i.kind == "result" and not called.isdisjoint(i.ids))
        if gave:
            yield m if gave == m.items else _message(m.role, gave)  # a client may put its wish behind them


def _in_text(text: str, said: Sequence[Item], calls: Sequence[Item]) -> tuple[Message, ...]:
    """The results at the end of a history in one text. There must be as many as calls, after the last known text and
    the names of the called tools, each behind the label that known results have. Empty otherwise.

    said: texts and results that the session held, the last one first
    """
    labels = [_label(text, i) for i in said]
    label = next((each for i, each in zip(said, labels, strict=True) if i.kind == "result" and each), "")
    others = {each for i, each in zip(said, labels, strict=True) if i.kind == "text"} - {""}
    if not all(labels[:_ALL_THERE]):
        return ()
    last = said[0].text.strip()
    front, *parts = text[text.rfind(last) + len(last) :].split(f"\n{label}")
    if len(parts) != len(calls) or any(i.name not in front for i in calls):
        return ()
    closes = _CLOSES.search(parts[-1])
    if closes is None and not asks_for_summary(text):  # then the wish may stand behind it
        return ()
    gave = [*parts[:-1], parts[-1][: closes.start()] if closes else parts[-1]]
    if any(f"\n{other}" in part for other in others for part in gave):  # somebody speaks behind it
        return ()
    pairs = zip(calls, gave, strict=True)
    return tuple(_message("tool", [item("tool", "result", told.strip(), ids=call.ids)]) for call, told in pairs)


def _label(text: str, said: Item) -> str:
    """What precedes the last occurrence of a known text, from the beginning of its line; "" if the text does not occur
    at the end of a line."""
    whole = said.text.strip()
    at = text.rfind(whole)
    found = text[text.rfind("\n", 0, max(0, at)) + 1 : at] if at >= 0 else ""
    ends = text[at + len(whole) :][:1] in ("", "\n")
    return found if ends else ""


def _message(role: Role, items: Sequence[Item]) -> Message:
    raw = json.dumps({"role": role, "content": "\n".join(i.text for i in items)}, ensure_ascii=False).encode()
    return message(role, items, raw)
