"""Protocols: bytes <-> record. Each module reads one into `turn.Request` and `turn.Answer`, and writes blocks back.

chat, responses, messages   read(body), read_answer(body, ...), inject(body, inserts), settle_place(request, at, place)
http                        what a request is before it is read: path, headers, encodings
headers                     what headers say of the session
reread                      bodies that go on where another one ended
sse, json                   events of a stream; the parts of a JSON body, with the place where each stands
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lantern_proxy.turn import Answer, Request
from lantern_proxy.wire import chat, messages, responses
from lantern_proxy.wire.json import Insert, Place


@dataclass(frozen=True, slots=True)
class Protocol:
    """The four functions that a protocol consists of."""

    read: Callable[[bytes], Request]
    read_answer: Callable[..., Answer]
    """(body, *, streamed, complete=True)"""
    inject: Callable[[bytes, Sequence[Insert]], bytes]
    settle_place: Callable[[Request, int, Place], Place]
    key: str = "messages"
    """The member of a body that holds its messages."""


CHAT = Protocol(chat.read, chat.read_answer, chat.inject, chat.settle_place)
RESPONSES = Protocol(responses.read, responses.read_answer, responses.inject, responses.settle_place, "input")
MESSAGES = Protocol(messages.read, messages.read_answer, messages.inject, messages.settle_place)

_MEMORY = {
    "/chat/completions": CHAT,
    "/responses": RESPONSES,
    "/responses/compact": replace(RESPONSES, read=partial(responses.read, compact=True)),
    "/messages": MESSAGES,
}
"""How a path of a memory endpoint ends, under whatever prefix -> its protocol."""


def protocol_of(path: str) -> Protocol | None:
    """How to read requests for `path`; None when it only passes through."""
    return next((protocol for ending, protocol in _MEMORY.items() if path.endswith(ending)), None)
