"""Anthropic Messages: bytes <-> record. A top-level `system` comes first, as a message of role system.

read(b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "model": "m"}').messages[0].text == "hi"
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lantern_proxy.turn import Answer, Item, Message, Request, Role, item, message
from lantern_proxy.wire import sse
from lantern_proxy.wire.chat import content_text, explicit_ids, inject_into, known_as, tool_names, user_message
from lantern_proxy.wire.headers import brief, user_id_session
from lantern_proxy.wire.json import (
    CachedReader,
    Insert,
    Place,
    WireError,
    as_object,
    canonical_json,
    element,
    elements,
    encoded,
    first_byte,
    media_digest,
    members,
    parse,
    text_member,
)

_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


def read(body: bytes) -> Request:
    """The request in `body`. WireError if it is not a Messages request."""
    top = members(body)
    if "messages" not in top:
        raise WireError("a messages request without messages")
    continued, user = _continued(top), _user_id(top)
    session = user_id_session(user)  # without one it names a person
    own_ids = (("user_id", brief(session)),) if session else ()
    return Request(
        api="messages", model=text_member(top, "model"),
        messages=(*_system(top), *read_message.all(elements(top["messages"]))),
        tools=frozenset(tool_names(top)), stream=bytes(top.get("stream", b"false")) == b"true",
        ids=(*own_ids, *explicit_ids(top), *continued), person="" if session else known_as(user), delta=bool(continued),
        signals=frozenset({"compact"} if bytes(top.get("compaction", b"null")) != b"null" else ()),
    )  # fmt: skip


def _continued(top: Mapping[str, msgspec.Raw]) -> tuple[tuple[str, str], ...]:
    """The id of the answer that this request continues, in a thread kept by the server."""
    thread = parse(top["thread"]) if "thread" in top else None
    previous = thread.get("previous_message_id") if isinstance(thread, dict) else None
    return (("previous_message_id", previous),) if isinstance(previous, str) and previous else ()


def _user_id(top: Mapping[str, msgspec.Raw]) -> str:
    metadata = parse(top["metadata"]) if "metadata" in top else None
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return user if isinstance(user, str) else ""


def _system(top: Mapping[str, msgspec.Raw]) -> list[Message]:
    if "system" not in top:
        return []
    items = _items("system", parse(top["system"]))
    return [message("system", items, bytes(top["system"]))] if items else []


@CachedReader
def read_message(raw: bytes) -> Message:
    """One element of `messages`, with blocks of any type. WireError if it is not an object."""
    data = element(raw, "a message")
    role = _ROLES.get(str(data.get("role")), "user")
    return message(role, _items(role, data.get("content")), raw)


def _items(role: Role, content: Any) -> list[Item]:
    if isinstance(content, str):
        return [item(role, "text", content)]
    blocks = content if isinstance(content, list) else ()
    return [_block(role, block) for block in blocks if isinstance(block, dict)]


def _block(role: Role, block: Mapping[str, Any]) -> Item:
    kind = str(block.get("type") or "")
    if isinstance(block.get("text"), str):
        return item(role, "text", block["text"])
    if kind.endswith("tool_use"):
        ids = [block["id"]] if isinstance(block.get("id"), str) else []
        return item(role, "call", canonical_json(block.get("input")), name=str(block.get("name") or kind), ids=ids)
    if kind.endswith("tool_result"):
        ids = [block["tool_use_id"]] if isinstance(block.get("tool_use_id"), str) else []
        return item("tool", "result", _result_text(block.get("content")), ids=ids)
    if kind in ("thinking", "redacted_thinking"):
        return item(role, "reasoning", str(block.get("thinking") or ""))
    if kind == "compaction" and content_text(block.get("content")):  # without a text it failed, and replaces nothing
        return item(role, "compaction", content_text(block.get("content")))
    rest = {key: value for key, value in block.items() if key != "cache_control"}
    return item(role, "media", media_digest(rest), name=kind or "block")


def _result_text(content: Any) -> str:
    """The text of a tool result: a string, text blocks, or JSON (the hits of a web search)."""
    text = content_text(content)
    return text if text or not content else canonical_json(content)


# --- answers -------------------------------------------------------------------------------------------------------


def read_answer(body: bytes, *, streamed: bool, complete: bool = True) -> Answer:
    """The answer in a whole response body, or in the received part of a stream."""
    if streamed:
        return _assemble(sse.objects(body), complete)
    data = as_object(body)
    if data is None or not isinstance(data.get("content"), list):
        return Answer(messages=(), complete=complete)
    return Answer(messages=_as_messages(data["content"]), ids=_id_of(data), complete=complete)


def _as_messages(blocks: Sequence[Any]) -> tuple[Message, ...]:
    """The answer in the form in which clients send it back."""
    return (read_message(encoded({"role": "assistant", "content": blocks})),) if blocks else ()


def _id_of(data: Mapping[str, Any]) -> tuple[str, ...]:
    return (data["id"],) if isinstance(data.get("id"), str) else ()


def _assemble(events: Sequence[Mapping[str, Any]], complete: bool) -> Answer:
    """Content block deltas by index -> one message."""
    blocks: dict[int, dict[str, Any]] = {}
    ids: tuple[str, ...] = ()
    finished = False
    for event in events:
        kind = event.get("type")
        if kind == "message_start" and isinstance(event.get("message"), dict):
            ids = _id_of(event["message"])
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            blocks[_index(event, len(blocks))] = dict(event["content_block"])
        elif kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            at = _index(event, max(blocks, default=0))
            _merge(blocks.setdefault(at, {"type": "text", "text": ""}), event["delta"])
        finished = finished or kind == "message_stop"
    done = [_settle(blocks[index]) for index in sorted(blocks)]
    return Answer(messages=_as_messages(done), ids=ids, complete=complete and finished)


def _index(event: Mapping[str, Any], otherwise: int) -> int:
    """The block that an event is about. Blocks arrive in order, so an event without a number is about the next one."""
    index = event.get("index")
    return index if isinstance(index, int) else otherwise


def _merge(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta: texts are appended to their field; a call's input arrives as JSON text."""
    for key, value in delta.items():
        if key == "partial_json":
            sse.add_piece(block, "_json", str(value))
        elif key == "citation":
            if not isinstance(block.get("citations"), list):
                block["citations"] = []
            block["citations"].append(value)
        elif key != "type" and isinstance(value, str):
            sse.add_piece(block, key, value)


def _settle(block: dict[str, Any]) -> dict[str, Any]:
    block = sse.joined(block)
    pieces = block.pop("_json", None)
    if not pieces:
        return block
    try:
        return {**block, "input": parse(pieces.encode("utf-8", "surrogatepass"))}
    except WireError:  # broken off within the arguments
        return {**block, "input": {"partial": pieces}}


# --- blocks --------------------------------------------------------------------------------------------------------


def inject(body: bytes, inserts: Sequence[Insert]) -> bytes:
    """`body` with each block added to its message; all other bytes stay. WireError if a place does not exist."""
    offset = len(_system(members(body)))
    moved = [Insert(insert.at - offset, insert.place, insert.text) for insert in inserts]
    return inject_into(body, "messages", moved, part_type="text", new_message=user_message)


def settle_place(request: Request, at: int, place: Place) -> Place:
    """Where exactly a block goes so that later requests can repeat it there.

    In front of a last text part that has cache_control, so that the block is cached with it. The client moves its
    cache_control with the next request; the block stays in front.
    """
    content = members(request.messages[at].raw).get("content") if place == "inside" else None
    if content is None or first_byte(content) != b"[":
        return place
    last = parse(elements(content)[-1]) if elements(content) else None
    marked = isinstance(last, dict) and last.get("type") == "text" and "cache_control" in last
    return "before" if marked else place
