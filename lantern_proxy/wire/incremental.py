"""Bodies that begin like an earlier one: only the rest is decoded.

Clients send their whole history with every request. What two bodies share is compared as bytes; the rest, after the
opening of the request, forms a small body of its own with every member of the request.

    rereads = Rereads()
    request = rereads.read(tenant, CHAT.read, body)         # None: read it whole, and then
    rereads.keep(tenant, seen(CHAT.read, CHAT.key, body, request))
"""

from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.turn import Message, Request
from lantern_proxy.wire.json import WireError, elements, first_byte, members, span

LEAST_BYTES = 16_384
"""Shorter bodies are parsed as fast as they are compared."""
_MOST_NEW_BYTES = 262_144
"""If more bytes than this are new, the whole body is parsed in a thread, so that other streams go on."""
_MOST_BYTES, _MOST_BODIES = 64 << 20, 8
"""Most bytes of bodies that are kept for all tenants together, and most bodies of one tenant."""

Reader = Callable[[bytes], Request]


class Seen(Struct, frozen=True):
    """A parsed body, up to the end of its last message."""

    read: Reader
    key: str
    prefix: memoryview
    """The bytes of the body up to there: a view, no copy."""
    start: int
    """Where the first message begins in them."""
    messages: tuple[Message, ...]
    """The messages of the array."""


def seen(read: Reader, key: str, body: bytes, request: Request) -> Seen | None:
    """What to keep of a parsed body; None if nothing can be kept."""
    raw = members(body).get(key)
    found = elements(raw) if raw is not None and first_byte(raw) == b"[" else []
    if not found or len(found) > len(request.messages):
        return None
    start, (_, end) = span(body, found[0])[0], span(body, found[-1])
    return Seen(read, key, memoryview(body)[:end], start, request.messages[len(request.messages) - len(found) :])


def again(known: Seen, body: bytes) -> tuple[Request, Seen] | None:
    """The request in `body`, which continues `known`, and what to keep of it; None if it cannot be read this way."""
    end = len(known.prefix)
    if body[end : end + 1] != b"," or not body.startswith(known.prefix):
        return None
    rest = body[: known.start] + body[end + 1 :]
    try:
        found = elements(members(rest)[known.key])
        request = known.read(rest)
    except (WireError, KeyError):
        return None
    if not found or len(found) > len(request.messages):
        return None
    if rest[known.start : span(rest, found[0])[0]].strip():  # a second member of that name, which would win in JSON
        return None
    before = len(request.messages) - len(found)
    messages = (*known.messages, *request.messages[before:])
    last = span(rest, found[-1])[1] + len(body) - len(rest)
    kept = Seen(known.read, known.key, memoryview(body)[:last], known.start, messages)
    return replace(request, messages=(*request.messages[:before], *messages)), kept


class Rereads:
    """Recently parsed bodies, by tenant: those of one tenant are never compared with another's."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, list[Seen]] = OrderedDict()
        self.size_bytes = 0

    def read(self, tenant: str, read: Reader, body: bytes) -> Request | None:
        """The request in `body` if it continues one of `tenant`'s; None if it has to be parsed as a whole."""
        for known in reversed(self._kept.get(tenant, ())) if len(body) >= LEAST_BYTES else ():
            if known.read is not read or known.start + len(body) - len(known.prefix) > _MOST_NEW_BYTES:
                continue
            if (found := again(known, body)) is not None:
                self._kept[tenant].remove(known)
                self.size_bytes -= len(known.prefix)
                self.keep(tenant, found[1])
                return found[0]
        return None

    def keep(self, tenant: str, known: Seen | None) -> None:
        if known is None:
            return
        mine = self._kept.setdefault(tenant, [])
        self._kept.move_to_end(tenant)
        mine.append(known)
        self.size_bytes += len(known.prefix)
        while len(mine) > _MOST_BODIES:
            self.size_bytes -= len(mine.pop(0).prefix)
        while self.size_bytes > _MOST_BYTES and self._kept:
            oldest = next(iter(self._kept))
            self.size_bytes -= len(self._kept[oldest].pop(0).prefix)
            if not self._kept[oldest]:
                del self._kept[oldest]

    def clear(self) -> None:
        self._kept.clear()
        self.size_bytes = 0
