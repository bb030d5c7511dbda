"""Protocols: bytes <-> record. Each module reads one into `turn.Request` and `turn.Answer`, and writes blocks back.

chat, responses, messages   read(body), read_answer(body, ...), inject(body, inserts), settle_place(request, at, place)
http                        a request before its body is read: path, headers, encodings
completion                  Lantern's own requests to a model over Chat Completions
headers                     what headers say about the session
incremental                 bodies that continue an earlier one
sse, json                   events of a stream; the parts of a JSON body, with their byte positions
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.turn import Answer, Request
from lantern_proxy.wire import chat, messages, responses
from lantern_proxy.wire.json import Insert, Place, WireError, members


class Protocol(Struct, frozen=True, eq=False):
    """The four functions of a protocol. Compared by identity, which is cheap: it happens many times per request."""

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
_INTERCHANGEABLE = {CHAT: (CHAT, RESPONSES), RESPONSES: (RESPONSES, CHAT)}
"""Protocols whose bodies clients also send to the path of the other; some upstreams understand both there."""

_MEMORY = {
    "/chat/completions": CHAT,
    "/responses": RESPONSES,
    "/responses/compact": replace(RESPONSES, read=partial(responses.read, compact=True)),
    "/messages": MESSAGES,
}
"""End of a memory endpoint's path, after any prefix -> its protocol."""


def protocol_of(path: str) -> Protocol | None:
    """The protocol of requests to `path`; None if they only pass through."""
    for ending, protocol in _MEMORY.items():
        if path.endswith(ending):
            return protocol
    return None


def protocols_at(protocol: Protocol) -> tuple[Protocol, ...]:
    """The protocols in which a body sent to the path of `protocol` may be written, that one first."""
    return _INTERCHANGEABLE.get(protocol, (protocol,))


def read_request(protocol: Protocol, body: bytes) -> tuple[Protocol, Request]:
    """The request in `body`, and the protocol in which it is written. WireError if it is none of them."""
    try:
        return protocol, protocol.read(body)
    except WireError:
        for other in protocols_at(protocol)[1:]:
            with suppress(WireError):
                if other.key in members(body):
                    return other, other.read(body)
        raise


def read_answer(protocol: Protocol, body: bytes, *, streamed: bool, complete: bool) -> Answer:
    """The answer to a request of `protocol`, in whichever protocol it is written. Empty if none is found."""
    own = protocol.read_answer(body, streamed=streamed, complete=complete)
    if own.messages:
        return own
    others = (each.read_answer(body, streamed=streamed, complete=complete) for each in protocols_at(protocol)[1:])
    return next((answer for answer in others if answer.messages), own)
