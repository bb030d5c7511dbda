"""Prefilled answers: a request that ends in an assistant message, which the model continues.

Its client then keeps one message, prefill and continuation together, or two.
"""

from msgspec.structs import replace

from lantern_proxy.history.record import Entry, Session, chain_of
from lantern_proxy.turn import Item, Message, Request, item, message


def prefilled_answer(session: Session) -> Message | None:
    """The last answer in one message with its prefill; None if there was no prefill.

    An answer of the Responses API may have several messages, and continues no prefill.
    """
    if not session.answered or len(session.head) < 2 or session.api == "responses":
        return None
    begun, made = session.head[-2].message, session.head[-1].message
    is_begun = begun.role == made.role == "assistant" and bool(begun.print and made.print) and not begun.calls
    return message("assistant", _joined(begun, made), made.raw) if is_begun else None


def _joined(begun: Message, made: Message) -> list[Item]:
    """The items of both messages, with the last text of the one and the first text of the other joined."""
    *front, last = begun.items
    first = next((n for n, i in enumerate(made.items) if i.kind != "reasoning"), 0)
    if not last.kind == made.items[first].kind == "text":
        return [*begun.items, *made.items]
    whole = item("assistant", "text", last.text + made.items[first].text, ids=made.items[first].ids)
    return [*front, *made.items[:first], whole, *made.items[first + 1 :]]


def with_prefilled_answer(session: Session, request: Request) -> Session:
    """The session with prefill and answer as one message, if the request shows them so."""
    whole = prefilled_answer(session)
    if whole is None or all(m.print != whole.print for m in request.messages):
        return session
    made = session.head[-1]
    head = (*session.head[:-2], Entry(made.key, whole, made.produced, altered=True))
    return replace(session, head=head, chain=chain_of(head))
