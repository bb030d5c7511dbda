"""Where a restored block goes, and which message asks the question."""

from collections.abc import Sequence
from typing import Literal

from lantern_proxy.history.record import is_empty
from lantern_proxy.turn import SYSTEM, Message, Request


def may_hold_block(m: Message) -> bool:
    """May a block go inside this message? Only into a user's text without tool results."""
    kinds = {i.kind for i in m.items}
    return m.role == "user" and "result" not in kinds and any(i.kind == "text" and not is_empty(i) for i in m.items)


def place(request: Request, anchor: int) -> tuple[int, Literal["inside", "after"]] | None:
    """Where the block of a loss at `anchor` goes: (message, how); None if every place would break something.

    Inside the anchor if it is a user's text, else inside the next user text, else as a user message of its own after
    the last tool result, or after a summary that nothing follows. After an encrypted compaction item comes a user
    message right away. After other assistant text there is no place: the model may have to continue it, and Anthropic's
    always has to.
    """
    messages = request.messages
    if any(i.kind == "compaction" for i in messages[anchor].items) and request.api == "responses":
        return anchor, "after"
    for at in range(anchor, len(messages)):
        if may_hold_block(messages[at]):
            return at, "inside"
    open_calls = {value for m in messages for i in m.calls for value in i.ids}
    open_calls -= {value for m in messages for i in m.items if i.kind == "result" for value in i.ids}
    last = len(messages) - 1
    words = any(i.kind != "compaction" for i in messages[last].items)
    begun = messages[last].role == "assistant" and words and (last != anchor or request.api == "messages")
    return None if open_calls or begun else (last, "after")


def is_prefilled_answer(messages: Sequence[Message]) -> bool:
    """Is the last message an assistant's, right after a user text, so that the model has to continue it?"""
    if len(messages) < 2 or messages[-1].role != "assistant" or messages[-1].calls:
        return False
    return may_hold_block(messages[-2])


def question(request: Request, kept: Sequence[str | None] = (), *, is_summed_up: bool = False) -> int | None:
    """Index of the user text that waits for an answer: the last message, apart from system messages and a prefilled
    answer after it.

    kept: the session's key of each message, None for new ones. A known text after a new one is a client's note. A
          request that ends in the session's last answer may show the question in front of what was said before
    """
    messages = request.messages
    at = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role not in SYSTEM), None)
    if at is not None and is_prefilled_answer(messages[: at + 1]):
        front = None if is_summed_up else _asked_in_front(messages, kept, at)
        at = at - 1 if front is None else front
    if at is None or not may_hold_block(messages[at]):
        return None
    is_note = (
        at > 0 and bool(kept) and kept[at] is not None and kept[at - 1] is None and may_hold_block(messages[at - 1])
    )
    return at - 1 if is_note else at


def _asked_in_front(messages: Sequence[Message], kept: Sequence[str | None], last: int) -> int | None:
    """The newest user text unknown to the session, if the last message is an answer known to it; else None."""
    if not kept or kept[last] is None:
        return None
    return next((at for at in range(last - 1, -1, -1) if kept[at] is None and may_hold_block(messages[at])), None)
