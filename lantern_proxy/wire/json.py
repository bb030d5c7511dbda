"""JSON with the byte position of each value, so that a block can be spliced into the client's own bytes.

All other bytes stay the same: key order, number formats, escapes, white space.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from json import dumps, loads
from typing import Any, Literal

import msgspec
from _cffi_backend import FFI
from msgspec import Struct

from lantern_proxy.turn import Message, fingerprint
from lantern_proxy.turn_memo import Memo

Place = Literal["inside", "before", "after"]

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()
_canonical = msgspec.json.Encoder(order="sorted")


_QUERY = re.compile(r'\?[^"\s]*')
_SIGNED = re.compile(r"(?:signature|\bsig|expires|token|\bhm)=", re.I)
"""In the query of a URL that expires: the same file may have another URL tomorrow."""
_SURROGATE = re.compile(rb"\\u[dD](?:([89abAB])|[c-fC-F])..", re.S)
"""An escaped surrogate: a high one (group 1) or a low one."""
_SECOND_HALF = re.compile(rb"\\u[dD][c-fC-F]..", re.S)


_KINDS = {
    bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array", dict: "an object",
}  # fmt: skip


class WireError(ValueError):
    """A body that does not fit its path. The request passes through unchanged."""


def kind_of(value: Any) -> str:
    """The type of a JSON value, for an error message: never its content, which may be a secret."""
    return _KINDS.get(type(value), "null")


class Insert(Struct, frozen=True):
    """A block to add at message `at` of a request."""

    at: int
    place: Place
    """inside: at its end; before: in front of its last text part; after: as a user message right after it."""
    text: str


def parse(data: bytes | msgspec.Raw) -> Any:
    """The value in `data`; WireError if it is not JSON."""
    try:
        return _any.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # lone surrogates, which clients do send and msgspec refuses
        return loads(bytes(data))
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise WireError(f"body is not JSON: {error}") from error


def encoded(value: Any) -> bytes:
    """A value as JSON; lone surrogates, which models do produce, are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return dumps(value).encode()


def members(data: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, each as raw bytes."""
    try:
        return _object.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if (seen := _without_lone_surrogates(data)) is not None:
            return {key: _same_part(data, seen, raw) for key, raw in members(seen).items()}
        raise WireError(f"body is not a JSON object: {error}") from error


def elements(data: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """The elements of a JSON array, each as raw bytes."""
    try:
        return _array.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if (seen := _without_lone_surrogates(data)) is not None:
            return [_same_part(data, seen, raw) for raw in elements(seen)]
        raise WireError(f"body is not a JSON array: {error}") from error


def _without_lone_surrogates(data: bytes | msgspec.Raw) -> bytes | None:
    """`data` with each lone surrogate replaced by U+FFFD, all positions unchanged; None if there is none.

    JavaScript cuts texts between two surrogates and escapes the rest, which msgspec refuses.
    """
    whole, lone, behind = bytes(data), list[int](), 0
    for found in _SURROGATE.finditer(whole):
        at = found.start()
        if at < behind or _is_escaped(whole, at):
            continue
        if found[1] and _SECOND_HALF.match(whole, at + 6):
            behind = at + 12
        else:
            lone.append(at)
    seen = bytearray(whole)
    for at in lone:
        seen[at : at + 6] = b"\\ufffd"
    return bytes(seen) if lone else None


def _is_escaped(data: bytes, at: int) -> bool:
    """Is `at` preceded by an odd number of backslashes?"""
    start = at
    while start and data[start - 1] == 0x5C:
        start -= 1
    return (at - start) % 2 == 1


def _same_part(data: bytes | msgspec.Raw, seen: bytes, raw: msgspec.Raw) -> msgspec.Raw:
    """The part of `data` at the position of `raw` in `seen`."""
    start, end = span(seen, raw)
    return msgspec.Raw(memoryview(data)[start:end])


def first_byte(raw: msgspec.Raw) -> bytes:
    """The type of a value by its first byte: b'"', b"[", b"{", a digit, or the initial of true, false or null."""
    return bytes(memoryview(raw)[:1])


def text_member(top: Mapping[str, msgspec.Raw], key: str) -> str:
    """The string member `key`; "" if it is missing or not a string."""
    value = parse(top[key]) if key in top else ""
    return value if isinstance(value, str) else ""


def as_object(data: bytes) -> dict[str, Any] | None:
    """The object in `data`; None for anything else, such as [DONE] or half an event."""
    try:
        value = parse(data)
    except WireError:
        return None
    return value if isinstance(value, dict) else None


def element(raw: bytes, what: str) -> dict[str, Any]:
    """One element of an array of messages. WireError if it is not an object; what: its name in that message."""
    value = parse(raw)
    if not isinstance(value, dict):
        raise WireError(f"{what} is {kind_of(value)}, {len(raw)} bytes long; it has to be an object")
    return value


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects among the elements of `value`; none if it is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


class CachedReader:
    """`read`, with small messages cached: clients resend their whole history, and most of it was read before."""

    def __init__(self, read: Callable[[bytes], Message]) -> None:
        self._read = read
        self._small = Memo(read, most_bytes=_SMALL_ALL_BYTES, bytes_of=lambda raw: 1_000 + 3 * len(raw)).__getitem__

    def __call__(self, raw: bytes) -> Message:
        return self._small(raw) if len(raw) <= _SMALL_BYTES else self._read(raw)

    def all(self, raws: Iterable[msgspec.Raw]) -> list[Message]:
        """The result of `read` for each; cached ones need no call."""
        small, read = self._small, self._read
        return [small(raw) if len(raw) <= _SMALL_BYTES else read(raw) for raw in map(bytes, raws)]


_SMALL_BYTES, _SMALL_ALL_BYTES = 16_384, 8 << 20
"""Most bytes of a small message, and most bytes that all cached ones take."""


def canonical_json(value: Any) -> str:
    """The same text for equal values: keys sorted, no white space. A string that holds JSON counts as that JSON."""
    as_sent = value if isinstance(value, str) else None
    try:
        return str(_canonical.encode(value if as_sent is None else _any.decode(as_sent)), "utf-8")
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # not JSON; a lone surrogate; nested too deeply
        return as_sent if as_sent is not None else _bare(value)


def media_digest(part: Any) -> str:
    """A hex id of a picture, sound or file, the same if its URL was only signed anew."""
    text = canonical_json(part)
    return fingerprint(_QUERY.sub(_lasting, text) if "?" in text else text).hex()


def _lasting(query: re.Match[str]) -> str:
    return "" if _SIGNED.search(query[0]) else query[0]


def _bare(value: Any) -> str:
    try:
        return repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"


def span(whole: bytes, part: msgspec.Raw) -> tuple[int, int]:
    """(start, end) of `part`, decoded from `whole`, in it. WireError if it is not a view of it."""
    start = _address(part) - _address(whole)
    end = start + memoryview(part).nbytes
    if not 0 <= start <= end <= len(whole):
        raise WireError("a decoded value is not a view of its body")
    return start, end


def _address(data: bytes | msgspec.Raw) -> int:
    return int(_ffi.cast(_ADDRESS, _ffi.from_buffer(data)))


_ffi = FFI()  # of compiled extensions: cffi's own parser need not be imported
_ADDRESS = _ffi.typeof("uintptr_t")


def splice(whole: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """`whole` with each (start, end, replacement) applied; edits must not overlap."""
    pieces, done = [], 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[0]):
        pieces += [whole[done:start], replacement]
        done = end
    return b"".join([*pieces, whole[done:]])


def append_to_string(raw: msgspec.Raw, text: str, *, front: bool) -> bytes:
    """The JSON string `raw` with `text` added at its end, or at its front, as JSON."""
    data, added = bytes(raw), encode_string(text)[1:-1]
    return b'"' + added + data[1:] if front else data[:-1] + added + b'"'


def encode_string(text: str) -> bytes:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode())
