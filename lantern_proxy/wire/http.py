"""A request before its body is read, and which of its headers go on."""

import gzip
import zlib
from dataclasses import dataclass

import zstandard

from lantern_proxy.wire.json import WireError

Header = tuple[bytes, bytes]

MAX_DECODED_BYTES = 256 * 1024 * 1024
"""A compressed body that grows beyond this is not read: it passes through as it came."""

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
READABLE_ENCODINGS = ("identity", "gzip", "deflate", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as it came. Header names are in lower case."""

    method: str
    path: str
    query: bytes
    headers: tuple[Header, ...]
    body: bytes

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
    """What goes on of a request's headers: no hop-by-hop ones, no Host, no length (it is told anew), none of ours."""
    named = {token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")}
    drop = HOP_BY_HOP | named | {b"host", b"content-length"}
    return [(name, value) for name, value in headers if name not in drop and not name.startswith(b"x-lantern-")]


def returning(headers: list[Header] | tuple[Header, ...]) -> list[Header]:
    """What goes back of an answer's headers: all but the hop-by-hop ones and any x-lantern-* of another Lantern."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    drop = HOP_BY_HOP | named
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in drop and not name.lower().startswith(b"x-lantern-")
    ]


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


def decoded(body: bytes, encoding: str) -> bytes:
    """`body` without its content-encoding. WireError for one that is not known, broken, or grows beyond the limit."""
    for name in reversed([part.strip().lower() for part in encoding.split(",") if part.strip()]):
        body = _decode(body, name)
    return body


def _decode(body: bytes, name: str) -> bytes:
    if name == "identity":
        return body
    try:
        if name in ("gzip", "x-gzip", "deflate"):
            reader = zlib.decompressobj(
                zlib.MAX_WBITS | 32 if name != "deflate" or body[:1] == b"\x78" else -zlib.MAX_WBITS
            )
            plain = reader.decompress(body, MAX_DECODED_BYTES)
            if reader.unconsumed_tail:
                raise WireError(f"a {name} body of more than {MAX_DECODED_BYTES} bytes")
            return plain
        if name == "zstd":
            with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as stream:
                plain = stream.read(MAX_DECODED_BYTES + 1)
            if len(plain) > MAX_DECODED_BYTES:
                raise WireError(f"a zstd body of more than {MAX_DECODED_BYTES} bytes")
            return plain
    except (zlib.error, gzip.BadGzipFile, zstandard.ZstdError, EOFError) as error:
        raise WireError(f"content-encoding {name}: {error}") from error
    raise WireError(f"content-encoding {name} is not known")
