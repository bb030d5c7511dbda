"""A request before its body is read, the headers that are forwarded, and answers of our own."""

import json
import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lantern_proxy.wire.json import WireError

if TYPE_CHECKING:
    from starlette.types import Send

Header = tuple[bytes, bytes]

MAX_DECODED_BYTES = 32 * 1024 * 1024
"""A compressed body that grows beyond this is not read: it passes through as it came. Hardly a provider takes more."""

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_NOT_OURS = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_MOST_CODINGS = 3
"""One around another. Nobody needs more than one, and each costs as much as the body is long."""
_SHORT = 256
"""Bytes of a header that are remembered."""
_LEAST_STEP, _STEP = 256, 4_096
_GROWTH = 1 << 15
"""How much a byte of zstd can become."""
READABLE_ENCODINGS = ("identity", "gzip", "deflate", "zstd")


_DIGESTS = frozenset({b"content-digest", b"content-md5", b"digest", b"repr-digest", b"x-amz-content-sha256"})


class EncodingError(WireError):
    """A body whose content-encoding is not known, or that is not what this says."""


class TooLarge(WireError):
    """A compressed body that grows beyond what may be read of it."""


def first_segment(path: str) -> str:
    """Of a path below /v1, what follows that; else its own first segment."""
    return path.removeprefix("/v1/").strip("/").split("/", 1)[0]


def spellings(path: str) -> tuple[str, ...]:
    """`path`, and as other clients ask the same: with /v1 in front or without, and no slash twice."""
    plain = re.sub("//+", "/", path)
    return path, plain, plain[3:] if plain.startswith("/v1/") else f"/v1{plain}"


def is_anthropics(path: str, headers: Sequence[Header]) -> bool:
    """Does a request belong to Anthropic: /v1/messages*, and everything that its SDKs send? All else is OpenAI's.

    headers: names in lower case
    """
    return first_segment(path) == "messages" or b"anthropic-version" in dict(headers)


CREDENTIALS = (
    b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"x-portkey-api-key", b"ocp-apim-subscription-key",
)  # fmt: skip
"""Headers in which clients bring keys: to models, and to gateways in front of them."""
_NO = frozenset({"off", "false", "no", "0"})
"""What says no in a header of ours."""


class Arrival(Struct, kw_only=True):
    """A request as it came. Header names are in lower case."""

    method: str
    path: str
    query: bytes
    headers: tuple[Header, ...]
    body: bytes
    """Filled in when all of it is here."""
    tenant: str = ""
    """Set by access.py for a request that came with a proxy key; else the credential tells."""
    for_page: tuple[Header, ...] = ()
    """Set by access.py for a web page that it knows: by these headers a browser lets it read an answer of our own."""

    def header(self, name: str) -> str:
        """The first value of a header, or empty."""
        wanted = name.encode()
        for key, value in self.headers:
            if key == wanted:
                return value.decode("latin-1")
        return ""

    def is_off(self, name: str) -> bool:
        """Does a header say no to something that is done without it?"""
        return self.header(name).strip().lower() in _NO

    @property
    def is_digested(self) -> bool:
        """Does a header tell a digest of the body? Its upstream would refuse any other body."""
        return not _DIGESTS.isdisjoint(dict(self.headers))

    def may_exceed(self, size_bytes: int) -> bool:
        """Is the body longer than this, or of unknown length?"""
        length = self.header("content-length")
        return int(length) > size_bytes if length.isdigit() else bool(self.header("transfer-encoding"))

    def credentials(self, places: Sequence[bytes] = CREDENTIALS) -> tuple[str, ...]:
        """The client's keys, each once, in the order of `places`. Most bring one; a gateway may want one beside that of
        the model, and SDKs that insist on one get a dummy."""
        found = {name: value for name, value in reversed(self.headers) if name in places}
        values = [found[name].decode("latin-1").strip() for name in places if name in found]
        bare = [value[6:].lstrip() if value[:7].lower() in ("bearer ", "bearer") else value for value in values]
        return tuple(dict.fromkeys(filter(None, bare)))

    def credential(self) -> str:
        """Its keys as one text, a line each, which tells clients apart; empty when there is none."""
        return "\n".join(self.credentials())


def outgoing(headers: tuple[Header, ...]) -> list[Header]:
    """What goes on of a request's headers: no hop-by-hop ones, no Host, no length (it is told anew), none of ours.

    No Expect either: the body is here, so it was answered with 100 already.
    """
    drop = _NOT_OURS | named if (named := named_in(headers)) else _NOT_OURS
    return [pair for pair in headers if pair[0] not in drop and not pair[0].startswith(b"x-lantern-")]


def returning(headers: Sequence[Header], status: int = 200) -> list[Header]:
    """What goes back of an answer's headers: all but the hop-by-hop ones and any x-lantern-* of another Lantern.

    A 204 or 304 has no body, so the length that some of them tell is left out: a server would wait for that many bytes.
    """
    drop = HOP_BY_HOP | named_in(headers) | ({b"content-length"} if status in (204, 304) else set())
    lowered = [(pair[0].lower(), pair) for pair in headers]
    return [pair for name, pair in lowered if name not in drop and not name.startswith(b"x-lantern-")]


def named_in(headers: Sequence[Header]) -> set[bytes]:
    """Headers that `Connection` names: they are hop-by-hop, too."""
    values = [value for name, value in headers if len(name) == 10 and name.lower() == b"connection"]
    if not values or values == [b"keep-alive"]:
        return set()
    return {token.strip().lower() for value in values for token in value.split(b",")} - {b"authorization"}


def accept_readable(headers: list[Header]) -> list[Header]:
    """The headers with accept-encoding cut down to what we can read too, since we keep a copy of the answer."""
    kept = [pair for pair in headers if pair[0] != b"accept-encoding"]
    asked = b",".join(value for name, value in headers if name == b"accept-encoding")
    readable = _readable if len(asked) <= _SHORT else _readable.__wrapped__
    return [*kept, (b"accept-encoding", readable(asked))]


@lru_cache(maxsize=256)
def _readable(asked: bytes) -> bytes:
    parts = [part.strip() for part in asked.decode("latin-1").split(",")]
    readable = [part for part in parts if part.split(";")[0].strip().lower() in READABLE_ENCODINGS]
    return ", ".join(readable or ["identity"]).encode("latin-1")


def decoded(body: bytes, encoding: str, *, whole: bool = True, most_bytes: int = MAX_DECODED_BYTES) -> bytes:
    """`body` without its content-encoding. EncodingError for one that is not known or broken, TooLarge for one that
    grows beyond `most_bytes`.

    whole: False reads what came of a body that broke off
    """
    names = [part.strip().lower() for part in encoding.split(",") if part.strip()]
    if len(names) > _MOST_CODINGS:
        raise EncodingError(f"content-encoding names {len(names)} codings; a body has {_MOST_CODINGS} at most")
    for name in reversed(names):
        body = _decode(body, name, whole, most_bytes)
    return body


def _decode(body: bytes, name: str, whole: bool, most_bytes: int) -> bytes:
    if name == "identity":
        return body
    if name in ("gzip", "x-gzip", "deflate"):
        bare = name == "deflate" and body[:1] != b"\x78"  # servers send deflate with and without its zlib header
        new = partial(zlib.decompressobj, -zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
        return _unpacked(new, zlib.error, body, name, whole, most_bytes)
    if name == "zstd":
        import zstandard  # few clients and upstreams have it

        fresh = zstandard.ZstdDecompressor().decompressobj
        return _unpacked(fresh, zstandard.ZstdError, body, name, whole, most_bytes)
    raise EncodingError(f"content-encoding {name} is not known")


def _unpacked(
    new: Callable[[], Any], failure: type[Exception], body: bytes, name: str, whole: bool, most_bytes: int
) -> bytes:
    """All members of a gzip body, or frames of a zstd one.

    In small steps, the smaller the less room there is: a step of zstd can become thirty thousand times as long, and
    what stands behind a tiny member is copied.
    """
    plain, reader, at = bytearray(), None, 0
    while at < len(body):
        reader = reader or new()
        step = min(max((most_bytes - len(plain)) // _GROWTH, _LEAST_STEP), _STEP)
        try:
            plain += reader.decompress(body[at : at + step])
        except failure as error:
            raise EncodingError(f"content-encoding {name}: {error}") from error
        at = min(at + step, len(body))
        if len(plain) > most_bytes:
            raise TooLarge(f"a {name} body of more than {most_bytes} bytes")
        if reader.eof:
            at, reader = at - len(reader.unused_data), None
    if whole and reader is not None:
        raise EncodingError(f"a {name} body that breaks off")
    return bytes(plain)


def failure(kind: str, message: str) -> dict[str, object]:
    """The body of an error of our own, in the form in which the SDKs of OpenAI and of Anthropic expect errors."""
    return {"type": "error", "error": {"type": kind, "message": message, "code": None}}


async def answer_json(
    send: "Send", status: int, told: object, headers: Sequence[Header] = (), *, bodiless: bool = False
) -> None:
    """An answer of our own. bodiless: to HEAD, with the headers that GET would get"""
    body = json.dumps(told).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": b"" if bodiless else body})
