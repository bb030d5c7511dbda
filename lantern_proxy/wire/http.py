"""A request before its body is read, and which of its headers go on."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import zstandard

from lantern_proxy.wire.json import WireError

Header = tuple[bytes, bytes]

MAX_DECODED_BYTES = 256 * 1024 * 1024
"""A compressed body that grows beyond this is not read: it passes through as it came."""

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_ZSTD_STEP = 4_096
READABLE_ENCODINGS = ("identity", "gzip", "deflate", "zstd")


@dataclass(slots=True, kw_only=True)
class Arrival:
    """A request as it came. Header names are in lower case."""

    method: str
    path: str
    query: bytes
    headers: tuple[Header, ...]
    body: bytes
    """Filled in when all of it is here."""

    def header(self, name: str) -> str:
        """The first value of a header, or empty."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name.encode()), "")

    def credential(self) -> str:
        """The client's key, wherever its SDK puts it; empty when there is none."""
        bearer = self.header("authorization")
        return (
            bearer[7:].strip()
            if bearer[:7].lower() == "bearer "
            else (bearer or self.header("x-api-key") or self.header("api-key"))
        )


def outgoing(headers: tuple[Header, ...]) -> list[Header]:
    """What goes on of a request's headers: no hop-by-hop ones, no Host, no length (it is told anew), none of ours.

    No Expect either: the body is here, so it was answered with 100 already.
    """
    drop = HOP_BY_HOP | _named_in(headers) | {b"host", b"content-length", b"expect"}
    return [(name, value) for name, value in headers if name not in drop and not name.startswith(b"x-lantern-")]


def returning(headers: Sequence[Header], status: int = 200) -> list[Header]:
    """What goes back of an answer's headers: all but the hop-by-hop ones and any x-lantern-* of another Lantern.

    A 204 or 304 has no body, so the length that some of them tell is left out: a server would wait for that many bytes.
    """
    drop = HOP_BY_HOP | _named_in(headers) | ({b"content-length"} if status in (204, 304) else set())
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in drop and not name.lower().startswith(b"x-lantern-")
    ]


def _named_in(headers: Sequence[Header]) -> set[bytes]:
    """Headers that `Connection` names: they are hop-by-hop, too."""
    values = [value for name, value in headers if name.lower() == b"connection"]
    return {token.strip().lower() for value in values for token in value.split(b",")} - {b"authorization"}


def accept_readable(headers: list[Header]) -> list[Header]:
    """The headers with accept-encoding cut down to what we can read too, since we keep a copy of the answer."""
    kept = [(name, value) for name, value in headers if name != b"accept-encoding"]
    asked = [
        part.strip()
        for name, value in headers
        if name == b"accept-encoding"
        for part in value.decode("latin-1").split(",")
    ]
    readable = [part for part in asked if part.split(";")[0].strip().lower() in READABLE_ENCODINGS]
    return [*kept, (b"accept-encoding", ", ".join(readable or ["identity"]).encode("latin-1"))]


def decoded(body: bytes, encoding: str, *, whole: bool = True) -> bytes:
    """`body` without its content-encoding. WireError for one that is not known, broken, or grows beyond the limit.

    whole: False reads what came of a body that broke off
    """
    for name in reversed([part.strip().lower() for part in encoding.split(",") if part.strip()]):
        body = _decode(body, name, whole)
    return body


def _decode(body: bytes, name: str, whole: bool) -> bytes:
    if name == "identity":
        return body
    try:
        if name in ("gzip", "x-gzip", "deflate"):
            return _inflate(body, name, whole)
        if name == "zstd":
            return _unzstd(body, whole)
    except (zlib.error, zstandard.ZstdError) as error:
        raise WireError(f"content-encoding {name}: {error}") from error
    raise WireError(f"content-encoding {name} is not known")


def _inflate(body: bytes, name: str, whole: bool) -> bytes:
    """gzip (of several members, too) or deflate (with or without its zlib header, as servers send both)."""
    raw = name == "deflate" and body[:1] != b"\x78"
    plain = b""
    while body:
        reader = zlib.decompressobj(-zlib.MAX_WBITS if raw else zlib.MAX_WBITS | 32)
        plain += reader.decompress(body, MAX_DECODED_BYTES - len(plain) + 1)
        if len(plain) > MAX_DECODED_BYTES:
            raise WireError(f"a {name} body of more than {MAX_DECODED_BYTES} bytes")
        if whole and not reader.eof:
            raise WireError(f"a {name} body that breaks off")
        body = reader.unused_data
    return plain


def _unzstd(body: bytes, whole: bool) -> bytes:
    """zstd, of several frames too; fed in small steps, since one can grow thirty-thousandfold."""
    plain, reader, at = bytearray(), zstandard.ZstdDecompressor().decompressobj(), 0
    while at < len(body):
        plain += reader.decompress(body[at : at + _ZSTD_STEP])
        at += _ZSTD_STEP
        if len(plain) > MAX_DECODED_BYTES:
            raise WireError(f"a zstd body of more than {MAX_DECODED_BYTES} bytes")
        if reader.eof and (at < len(body) or reader.unused_data):
            at = min(at, len(body)) - len(reader.unused_data)
            reader = zstandard.ZstdDecompressor().decompressobj()
    if whole and not reader.eof:
        raise WireError("a zstd body that breaks off")
    return bytes(plain)
