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
"""A compressed body that grows larger is not read and passes through unchanged. Hardly any provider accepts more."""

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_NOT_OURS = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_MOST_CODINGS = 3
"""Most encodings of one body. Nobody needs more than one, and each costs time in proportion to the body."""
_SHORT = 256
"""Only headers of fewer bytes are cached."""
_LEAST_STEP, _STEP = 256, 4_096
_GROWTH = 1 << 15
"""How many bytes a byte of zstd can expand to."""
READABLE_ENCODINGS = ("identity", "gzip", "deflate", "zstd")


_DIGESTS = frozenset({b"content-digest", b"content-md5", b"digest", b"repr-digest", b"x-amz-content-sha256"})


class EncodingError(WireError):
    """A body whose content-encoding is unknown, or does not match."""


class TooLarge(WireError):
    """A compressed body that expands beyond the limit."""


def first_segment(path: str) -> str:
    """The first segment of a path, after /v1 if it begins with that."""
    return path.removeprefix("/v1/").strip("/").split("/", 1)[0]


def spellings(path: str) -> tuple[str, ...]:
    """`path`, and how other clients write the same: with or without /v1, and without doubled slashes."""
    plain = re.sub("//+", "/", path)
    return path, plain, plain[3:] if plain.startswith("/v1/") else f"/v1{plain}"


def is_anthropics(path: str, headers: Sequence[Header]) -> bool:
    """Is a request for Anthropic: /v1/messages*, or anything that its SDKs send? All others are for OpenAI.

    headers: names in lower case
    """
    return first_segment(path) == "messages" or b"anthropic-version" in dict(headers)


CREDENTIALS = (
    b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"x-portkey-api-key", b"ocp-apim-subscription-key",
)  # fmt: skip
"""Headers in which clients send keys, for models and for gateways in front of them."""
_NO = frozenset({"off", "false", "no", "0"})
"""Values of our own headers that mean no."""


class Arrival(Struct, kw_only=True):
    """A request as it arrived. Header names are in lower case."""

    method: str
    path: str
    query: bytes
    headers: tuple[Header, ...]
    body: bytes
    """Set once it has arrived completely."""
    tenant: str = ""
    """Set by access.py for a request with a proxy key; else the credential decides."""
    for_page: tuple[Header, ...] = ()
    """Set by access.py for a known web page: headers that let a browser show it an answer of our own."""

    def header(self, name: str) -> str:
        """The first value of a header; "" if there is none."""
        wanted = name.encode()
        for key, value in self.headers:
            if key == wanted:
                return value.decode("latin-1")
        return ""

    def is_off(self, name: str) -> bool:
        """Does a header turn off something that is on by default?"""
        return self.header(name).strip().lower() in _NO

    @property
    def is_digested(self) -> bool:
        """Does a header carry a digest of the body? The upstream would refuse a changed body."""
        return not _DIGESTS.isdisjoint(dict(self.headers))

    def may_exceed(self, size_bytes: int) -> bool:
        """Is the body longer than this, or of unknown length?"""
        length = self.header("content-length")
        return int(length) > size_bytes if length.isdigit() else bool(self.header("transfer-encoding"))

    def credentials(self, places: Sequence[bytes] = CREDENTIALS) -> tuple[str, ...]:
        """The client's keys, without duplicates, in the order of `places`. Most clients send one; a gateway may need
        one beside the model's, and SDKs that insist on one get a dummy."""
        found = {name: value for name, value in reversed(self.headers) if name in places}
        values = [found[name].decode("latin-1").strip() for name in places if name in found]
        bare = [value[6:].lstrip() if value[:7].lower() in ("bearer ", "bearer") else value for value in values]
        return tuple(dict.fromkeys(filter(None, bare)))

    def credential(self) -> str:
        """The keys as one text, one per line, which identifies the client; "" if there is none."""
        return "\n".join(self.credentials())


def outgoing(headers: tuple[Header, ...]) -> list[Header]:
    """The headers of a request that are forwarded: no hop-by-hop ones, no Host, no length (set anew), none of ours.

    No Expect either: the body has arrived, so 100 was already sent.
    """
    drop = _NOT_OURS | also if (also := connection_headers(headers)) else _NOT_OURS
    return [pair for pair in headers if pair[0] not in drop and not pair[0].startswith(b"x-lantern-")]


def returning(headers: Sequence[Header], status: int = 200) -> list[Header]:
    """The headers of an answer that are passed on: all but hop-by-hop ones and any x-lantern-* of another Lantern.

    A 204 or 304 has no body, so a length in it is dropped: a server would wait for that many bytes.
    """
    drop = HOP_BY_HOP | connection_headers(headers) | ({b"content-length"} if status in (204, 304) else set())
    lowered = [(pair[0].lower(), pair) for pair in headers]
    return [pair for name, pair in lowered if name not in drop and not name.startswith(b"x-lantern-")]


def connection_headers(headers: Sequence[Header]) -> set[bytes]:
    """Headers that `Connection` names, which are hop-by-hop, too."""
    values = [value for name, value in headers if len(name) == 10 and name.lower() == b"connection"]
    if not values or values == [b"keep-alive"]:
        return set()
    return {token.strip().lower() for value in values for token in value.split(b",")} - {b"authorization"}


def accept_readable(headers: list[Header]) -> list[Header]:
    """The headers with accept-encoding reduced to encodings that we can read, since we keep a copy of the answer."""
    kept = [pair for pair in headers if pair[0] != b"accept-encoding"]
    accepted = b",".join(value for name, value in headers if name == b"accept-encoding")
    readable = _readable if len(accepted) <= _SHORT else _readable.__wrapped__
    return [*kept, (b"accept-encoding", readable(accepted))]


@lru_cache(maxsize=256)
def _readable(accepted: bytes) -> bytes:
    parts = [part.strip() for part in accepted.decode("latin-1").split(",")]
    readable = [part for part in parts if part.split(";")[0].strip().lower() in READABLE_ENCODINGS]
    return ", ".join(readable or ["identity"]).encode("latin-1")


def decoded(body: bytes, encoding: str, *, whole: bool = True, most_bytes: int = MAX_DECODED_BYTES) -> bytes:
    """`body` without its content-encoding. EncodingError if that is unknown or the body does not match it, TooLarge if
    it expands beyond `most_bytes`.

    whole: False for a body that may have broken off
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
        import zstandard  # rarely needed

        fresh = zstandard.ZstdDecompressor().decompressobj
        return _unpacked(fresh, zstandard.ZstdError, body, name, whole, most_bytes)
    raise EncodingError(f"content-encoding {name} is not known")


def _unpacked(
    new: Callable[[], Any], failure: type[Exception], body: bytes, name: str, whole: bool, most_bytes: int
) -> bytes:
    """The decoded members of a gzip body, or frames of a zstd one.

    In small steps, the smaller the less room is left: a step of zstd can expand thirty thousand times, and everything
    after a tiny member is copied.
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
    """The body of an error of our own, in the form that the SDKs of OpenAI and of Anthropic expect."""
    return {"type": "error", "error": {"type": kind, "message": message, "code": None}}


async def answer_json(
    send: "Send", status: int, content: object, headers: Sequence[Header] = (), *, bodiless: bool = False
) -> None:
    """Send an answer of our own. bodiless: the answer to HEAD, with the same headers as for GET"""
    body = json.dumps(content).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": b"" if bodiless else body})
