"""The texts of a request in the form in which they are compared with sessions, and who speaks in it."""

import re
from collections.abc import Sequence

from lantern_proxy.history.presentation import unescaped
from lantern_proxy.history.record import Session, items_of, spoken
from lantern_proxy.turn import SYSTEM, Message, Request, plain

_TAG = re.compile(r"</?[\w:-]{1,40}>")
"""A tag by which a client names what it puts into a text ("</SessionSummary>"). It is no instruction."""


def texts_of(request: Request, *, system: bool = False) -> list[str]:
    """Canonical texts of the request, without calls and results."""
    return [plain(i.text) for i in items_of(request.messages, system=system) if i.kind == "text"]


def messages_of(request: Request, *, system: bool = False) -> list[str]:
    """Canonical text of each message, its parts joined, without calls and results."""
    found = request.messages if system else spoken(request.messages)
    return [" ".join([plain(i.text) for i in m.items if i.kind == "text"]) for m in found]


def readable_texts_of(request: Request, *, system: bool = False) -> list[str]:
    """messages_of(), followed by the texts that contain JSON escapes, decoded."""
    escaped = (i.text for i in items_of(request.messages, system=system) if i.kind == "text" and "\\" in i.text)
    return [*messages_of(request, system=system), *map(unescaped, escaped)]


def is_user_message(message: Message) -> bool:
    """Is it a user's message without tool results?"""
    return message.role == "user" and not any(i.kind == "result" for i in message.items)


def user_replies_last(messages: Sequence[Message]) -> bool:
    """Does a user speak last, after an answer? Nobody replies to sub-agents or titles."""
    said = spoken(messages)
    if not said or not is_user_message(said[-1]):
        return False
    return any(m.role == "assistant" for m in said)


def last_said(request: Request) -> Message | None:
    """The last message that is no system prompt."""
    for m in reversed(request.messages):
        if m.role not in SYSTEM:
            return m
    return None


def shows_beginning(session: Session, request: Request) -> bool:
    """Does the request hold a message of the session's head up to its first answer?"""
    before = [e for e in session.head if e.message.print and e.message.role not in SYSTEM]
    answered = next((n for n, e in enumerate(before, start=1) if e.produced), 1)
    first = {e.message.print for e in before[:answered]}  # a time may stand in what was asked, but not in its answer
    return any(m.print in first for m in spoken(request.messages))


def untagged(text: str) -> str:
    """`text` without tags."""
    return _TAG.sub(" ", text).strip()
