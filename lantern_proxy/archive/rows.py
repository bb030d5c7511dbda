"""Records to rows of the archive and back, value by value. No SQL and no connection here.

Free text is kept exactly, lone surrogates included, which JSON can carry and UTF-8 cannot: it is bound as UTF-8 that
encodes them nevertheless, and read the same way. In ids lone surrogates are escaped, so that each id has one spelling.
`tenant` and `session` are escaped by the caller, since many rows share them: see name().
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from operator import eq
from typing import Any

import msgspec

from lantern_proxy.archive.values import RequestRow, SessionRow
from lantern_proxy.turn import (
    READ,
    Block,
    Filed,
    Head,
    Item,
    Message,
    Passage,
    PassedOver,
    Placed,
    Restored,
    fingerprint,
    why_not,
)

Row = Sequence[Any]
PASSAGE = (
    "p.id, p.session, p.message, p.position, p.part, p.turn, p.speaker, p.text, p.unit, p.kind, p.tags, p.tools, "
    "p.terms, p.created_at, p.confidence, p.success, p.accesses, p.accessed_at, "
    + ", ".join(
        f"(SELECT k.{column} FROM marks k WHERE k.tenant = p.tenant AND k.project = p.project AND k.hash = p.hash)"
        for column in ("verdict", "pinned")
    )
)
"""The columns that to_passage reads, of `passages p`: its own, and the feedback on its text."""


def exact(text: str) -> str | bytes:
    """`text` in a form that can be bound to CAST(? AS TEXT): itself, or bytes if it has lone surrogates."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def blob(data: bytes) -> bytearray:
    """`data` in the form that is bound fastest: sqlite3 first asks bytes for an adapter (PEP 246), which takes as long
    as binding ten texts."""
    return bytearray(data)


def name(text: str) -> str:
    """`text` as an id: lone surrogates escaped, otherwise unchanged."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def lines(values: Iterable[str]) -> str:
    """Terms or keys, one per line, which is read ten times faster than JSON. Line breaks in a value become spaces."""
    held = tuple(values)
    text = "\n".join(held)
    return text if text.count("\n") < max(1, len(held)) else "\n".join(value.replace("\n", " ") for value in held)


def unlines(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")) if text else ()


HEAD = "keys, altered, abandoned, lost, person, forks"
"""The columns that from_head writes and to_head reads."""


def from_head(head: Head) -> Row:
    altered = None if head.altered is None else dumps(plain_head(head)["altered"])
    lost = int(head.lost)  # sqlite3 asks a boolean for an adapter, too: see blob()
    forks = dumps([_plain_fork(fork, head) for fork in head.forks])
    return name(lines(head.keys)), altered, name(lines(head.abandoned)), lost, head.person, forks


def _plain_fork(fork: Head, head: Head) -> dict[str, Any]:
    """A branch in the form of an export, without the keys that it shares with the head: they may be many."""
    shared = sum(takewhile(bool, map(eq, fork.keys, head.keys)))
    return plain_head(fork) | {"shared": shared, "head": fork.keys[shared:]}


def to_head(row: Row) -> Head:
    keys, altered, abandoned, lost, person, forks = row
    shown, head = None if altered is None else json.loads(altered), unlines(keys)
    told = {"head": head, "altered": shown, "abandoned": unlines(abandoned), "lost": lost, "person": person}
    return head_of(
        told | {"forks": [fork | {"head": [*head[: fork["shared"]], *fork["head"]]} for fork in json.loads(forks)]}
    )


def plain_head(head: Head) -> dict[str, Any]:
    """A head in the form of an export: fingerprints as hex."""
    altered = head.altered
    shown = None if altered is None else {name(key): [p.hex() for p in prints] for key, prints in altered.items()}
    told = {"head": head.keys, "altered": shown, "abandoned": head.abandoned, "lost": head.lost, "person": head.person}
    return told | ({"position": head.position} if head.position else {"forks": [*map(plain_head, head.forks)]})


def head_of(row: Mapping[str, Any]) -> Head:
    """The inverse of plain_head(). Exports of an earlier Lantern have only the keys."""
    altered = row.get("altered")
    shown = None if altered is None else {key: tuple(map(bytes.fromhex, prints)) for key, prints in altered.items()}
    keys, abandoned = tuple(row["head"]), tuple(row.get("abandoned", ()))
    lost, person, position = bool(row.get("lost")), str(row.get("person") or ""), int(row.get("position", 0))
    return Head(
        keys=keys, altered=shown, abandoned=abandoned, lost=lost, person=person, position=position,
        forks=tuple(map(head_of, row.get("forks", ()))),
    )  # fmt: skip


_encode = json.JSONEncoder(separators=(",", ":")).encode
_encode_utf8 = msgspec.json.Encoder().encode


def dumps(value: Any) -> str:
    """Compact ASCII JSON, which any SQLite can store. Ten times as fast as json if nothing has to be escaped and there
    is no lone surrogate, which msgspec rejects."""
    if not value and isinstance(value, tuple | list):
        return "[]"
    try:
        encoded = _encode_utf8(value)
    except UnicodeEncodeError:
        return _encode(value)
    return encoded.decode() if encoded.isascii() else _encode(value)


_decode = msgspec.json.Decoder().decode


def _loads(stored: str) -> Any:
    """The inverse of dumps(). Five times as fast as json, except for lone surrogates, which msgspec rejects."""
    try:
        return _decode(stored)
    except msgspec.DecodeError:
        return json.loads(stored)


def texts(value: str) -> tuple[str, ...]:
    """A stored JSON list of strings."""
    return () if value == "[]" else tuple(_loads(value))


def finite(value: float) -> float:
    """A float that SQLite and JSON can both hold, also from numpy: NaN and infinities become 0."""
    number = float(value)
    return number if math.isfinite(number) else 0.0


def from_session(tenant: str, project: str, row: SessionRow) -> Row:
    return (
        tenant, name(row.id), name(project), row.api, name(row.family), name(row.parent), exact(row.title),
        row.created_at, row.last_seen_at, row.system, dumps(row.tools),
    )  # fmt: skip


def to_session(row: Row) -> SessionRow:
    (id_, project, api, family, parent, title, created_at, last_seen_at, system, tools, messages, passages) = row
    return SessionRow(
        id=id_, api=api, family=family, parent=parent, title=title, created_at=created_at, last_seen_at=last_seen_at,
        system=system, tools=texts(tools), project=project, messages=messages, passages=passages,
    )  # fmt: skip


def from_request(tenant: str, session: str, row: RequestRow, passed: Sequence[PassedOver] = ()) -> Row:
    return (
        tenant, name(row.id), session, row.at, row.api, exact(row.path), exact(row.model), row.event,
        int(row.status), exact(row.query), int(row.restored), int(row.chars), finite(row.ms), dumps(row.degraded),
        int(row.gone), exact(row.error), int(row.size), dumps([_from_passed(each) for each in passed]),
    )  # fmt: skip


def to_request(row: Row) -> RequestRow:
    (id_, session, at, api, path, model, event, status, query, restored, chars, ms, degraded, gone, error, size,
     lost) = row  # fmt: skip
    return RequestRow(
        id=id_, at=at, api=api, path=path, model=model, event=event, status=status, query=query, restored=restored,
        chars=chars, ms=ms, degraded=texts(degraded), gone=gone, error=error, size=size, lost=lost, session=session,
    )  # fmt: skip


def from_filed(tenant: str, session: str, filed: Filed) -> Row:
    message = filed.message
    return (
        tenant, session, name(filed.key), filed.position, filed.turn, message.role, exact(message.text),
        dumps([_from_item(item) for item in message.items]), blob(message.raw), blob(message.print), int(filed.side),
        int(filed.partial), filed.created_at, name(lines(filed.names)),
    )  # fmt: skip


def _from_item(item: Item) -> list[Any]:
    """An item as a JSON list. A text that the message's own text (turn.Message.text) repeats is stored as its
    length."""
    text: str | int = len(item.text) if item.kind in READ else item.text
    return [item.role, item.kind, text, item.name, item.ids, item.print.hex()]


def to_filed(row: Row) -> Filed:
    (key, position, turn, role, text, items, raw, print_, side, partial, created_at, names) = row
    message = Message(role, _to_items(_loads(items), text), raw, print_)
    return Filed(
        key=key,
        position=position,
        turn=turn,
        message=message,
        side=bool(side),
        partial=bool(partial),
        names=unlines(names),
        created_at=created_at,
    )


def said_of(items: str, chars: int) -> dict[str, Any]:
    """The fields of `archive.overview.Shown` that follow from a message's items, without reading its text."""
    stored = [(kind, own, name_) for _, kind, own, name_, _, _ in _loads(items) if kind != "reasoning"]
    calls = tuple(f"{name_} {own[:chars]}" for kind, own, name_ in stored if kind == "call")
    return {"calls": calls, "is_result": bool(stored) and all(kind == "result" for kind, _, _ in stored)}


def _to_items(stored: Sequence[Row], text: str) -> tuple[Item, ...]:
    items, at = [], 0
    for role, kind, own, name_, ids, print_ in stored:
        if isinstance(own, int):
            start, at = at, at + own + (own > 0)  # texts are separated by a line break; an empty one has none
            own = text[start : start + own]
        items.append(Item(role, kind, own, name_, tuple(ids), bytes.fromhex(print_)))
    return tuple(items)


def from_passage(tenant: str, project: str, passage: Passage) -> Row:
    return (
        tenant, name(project), name(passage.session), name(passage.message), passage.position, passage.part,
        passage.turn, exact(passage.speaker), exact(passage.text), passage.unit, passage.kind, dumps(passage.tags),
        dumps(passage.tools), exact(lines(passage.terms)), passage.created_at, passage.confidence, passage.success,
        passage.accesses, passage.accessed_at, blob(fingerprint(passage.text)),
    )  # fmt: skip


def to_passage(row: Row) -> Passage:
    """A passage from a row with the columns of PASSAGE."""
    (id_, session, message, position, part, turn, speaker, text, unit, kind, tags, tools, terms, created_at, confidence,
     success, accesses, accessed_at, verdict, pinned) = row  # fmt: skip
    return Passage(
        id=id_, session=session, message=message, position=position, part=part, turn=turn, speaker=speaker, text=text,
        unit=unit, kind=kind, tags=texts(tags), tools=texts(tools), terms=unlines(terms), created_at=created_at,
        confidence=confidence, success=success, accesses=accesses, accessed_at=accessed_at,
        verdict=verdict or "", pinned=bool(pinned),
    )  # fmt: skip


def from_block(tenant: str, session: str, block: Block) -> Row:
    restored = block.restored
    return (
        tenant, session, name(block.request), block.anchor, block.chain, name(block.message), block.place,
        restored.kind, exact(restored.text), int(restored.considered), finite(restored.ms), dumps(restored.degraded),
        block.created_at,
    )  # fmt: skip


_ORIGIN = ("session", "message", "position", "part", "turn", "speaker", "unit", "kind", "created_at")


def from_placed(tenant: str, block: int, slot: int, placed: Placed) -> Row:
    origin = {field: getattr(placed.passage, field) for field in _ORIGIN}
    signals = {signal: finite(score) for signal, score in placed.signals.items()}
    return (
        tenant, block, slot, int(placed.passage.id), dumps(origin), exact(placed.text), int(placed.rank),
        finite(placed.score), dumps(signals),
    )  # fmt: skip


def to_placed(row: Row, passages: Mapping[int, Passage]) -> Placed:
    """row: passage, origin, text, rank, score, signals. A removed passage is rebuilt from what the row kept."""
    (id_, origin, text, rank, score, signals) = row
    passage = passages.get(id_) or Passage(id=id_, text=text, **json.loads(origin))
    return Placed(passage=passage, text=text, rank=rank, score=score, signals=json.loads(signals))


def _from_passed(passed: PassedOver) -> dict[str, Any]:
    """The id without any text, so that only a number remains here of a forgotten passage."""
    signals = {signal: finite(score) for signal, score in passed.signals.items()}
    return {
        "kind": passed.kind, "passage": int(passed.passage.id), "reason": passed.reason, "other": int(passed.other),
        "value": finite(passed.value), "rank": int(passed.rank), "score": finite(passed.score), "signals": signals,
    }  # fmt: skip


def to_passed(stored: Sequence[dict[str, Any]], passages: Mapping[int, Passage]) -> tuple[PassedOver, ...]:
    """The passed-over passages that still exist."""
    kept = [one for one in stored if one["passage"] in passages]
    return tuple(
        PassedOver(
            **(one | {"passage": passages[one["passage"]]}), why=why_not(one["reason"], one["other"], one["value"])
        )
        for one in kept
    )


def to_block(row: Row, placed: tuple[Placed, ...]) -> Block:
    (session, request, anchor, chain, message, place, kind, text, considered, ms, degraded, created_at) = row
    restored = Restored(kind=kind, text=text, placed=placed, considered=considered, ms=ms, degraded=texts(degraded))
    return Block(
        session=session,
        anchor=anchor,
        chain=chain,
        message=message,
        place=place,
        restored=restored,
        request=request,
        created_at=created_at,
    )
