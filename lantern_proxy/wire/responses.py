"""OpenAI Responses: bytes <-> record. Each input item is one message; `instructions` comes first, as a system message.

read(b'{"input": "hi", "previous_response_id": "resp_1"}')    # delta: holds only what is new
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from lantern_proxy.turn import Answer, Item, Message, Request, Role, canonical, fingerprint, item, message
from lantern_proxy.wire import sse
from lantern_proxy.wire.chat import content_items, content_text, explicit_ids, inject_into, person, tool_names
from lantern_proxy.wire.json import (
    Insert,
    Place,
    WireError,
    append_to_string,
    canonical_json,
    dicts,
    element,
    elements,
    encode_string,
    encoded,
    first_byte,
    media_digest,
    members,
    parse,
    span,
    splice,
    text_member,
)

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "assistant": "assistant", "tool": "tool"}
_CALL_FIELDS = ("arguments", "input", "action", "query", "queries", "code", "operation")


def read(body: bytes, *, compact: bool = False) -> Request:
    """The request in `body`. compact: it was sent to /responses/compact, so it asks for a summary. WireError if it is
    not a Responses request."""
    top = members(body)
    if not {"input", "previous_response_id", "conversation", "prompt"} & top.keys():
        raise WireError("a responses request without input")
    messages = [*_instructions(top), *_input(top)]
    trigger = any(m.raw.find(b'"compaction_trigger"') >= 0 for m in messages[-1:])
    chained = _chained(top)
    return Request(
        api="responses", model=text_member(top, "model"), messages=tuple(messages), tools=frozenset(tool_names(top)),
        stream=bytes(top.get("stream", b"false")) == b"true", ids=(*chained, *explicit_ids(top)),
        person=person(top),
        signals=frozenset({"compact"} if compact or trigger else ()), delta=bool(chained),
    )  # fmt: skip


def _chained(top: Mapping[str, msgspec.Raw]) -> tuple[tuple[str, str], ...]:
    """Ids of the stored state that this request continues."""
    previous = text_member(top, "previous_response_id")
    conversation = parse(top["conversation"]) if "conversation" in top else None
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    found = [("previous_response_id", previous)] if previous else []
    return (*found, ("conversation", conversation)) if isinstance(conversation, str) and conversation else tuple(found)


def _instructions(top: Mapping[str, msgspec.Raw]) -> list[Message]:
    text = text_member(top, "instructions")
    return [message("system", [item("system", "text", text)], bytes(top["instructions"]))] if text else []


def _input(top: Mapping[str, msgspec.Raw]) -> list[Message]:
    raw = top.get("input")
    if raw is None or first_byte(raw) not in b'["':
        return []
    if first_byte(raw) == b'"':
        return [message("user", [item("user", "text", str(parse(raw)))], bytes(raw))]
    return [read_item(bytes(element)) for element in elements(raw)]


def read_item(raw: bytes) -> Message:
    """One element of `input` or `output`, of any type."""
    data = element(raw, "an input item")
    kind = str(data.get("type") or "message")
    if kind == "message":
        role = _ROLES.get(str(data.get("role")), "user")
        items = content_items(role, data.get("content"))
        return message(role, [_with_ids(i, _ids(data)) for i in items] if role == "assistant" else items, raw)
    made = _item(kind, data)
    return message(made.role, [made], raw)


def _with_ids(made: Item, ids: Sequence[str]) -> Item:
    return Item(made.role, made.kind, made.text, made.name, tuple(ids), made.print)


def _ids(data: Mapping[str, Any]) -> list[str]:
    return [data[key] for key in ("call_id", "id") if isinstance(data.get(key), str) and data[key]]


def _item(kind: str, data: Mapping[str, Any]) -> Item:
    if kind == "item_reference":
        return item("assistant", "ref", str(data.get("id")), ids=_ids(data))
    if kind.startswith("compaction"):
        return _compaction(kind, data)
    if kind == "reasoning":
        return item("assistant", "reasoning", content_text(data.get("summary")), ids=_ids(data))
    if kind.endswith("_output"):
        return item("tool", "result", _output(data.get("output")), name=str(data.get("name") or ""), ids=_ids(data)[:1])
    if kind.endswith("_call") or kind in ("mcp_list_tools", "mcp_approval_request"):
        return _call(kind, data)
    rest = {key: value for key, value in data.items() if key not in ("id", "status", "type")}
    return item("user", "media", media_digest(rest), name=kind, ids=_ids(data))


def _compaction(kind: str, data: Mapping[str, Any]) -> Item:
    """An item that replaces a history: readable or encrypted. An encrypted one is identified by its id, else by its
    content."""
    made = item(
        "assistant", "compaction", content_text(data.get("summary") or data.get("content")), name=kind, ids=_ids(data)
    )
    sealed = data.get("encrypted_content")
    digest = fingerprint(sealed).hex() if isinstance(sealed, str) and sealed else ""
    identity = fingerprint("compaction", made.text, (made.ids or (digest,))[0])
    return replace(made, ids=(*made.ids, *([digest] if digest else [])), print=identity)


def _call(kind: str, data: Mapping[str, Any]) -> Item:
    """A call of any tool, with the results (output, results) of a server-side tool."""
    arguments = next((data[key] for key in _CALL_FIELDS if key in data), "")
    found = data.get("output") or data.get("results") or data.get("outputs")
    text = canonical_json(arguments) + (f"\n{_output(found)}" if found else "")
    return item("assistant", "call", text, name=str(data.get("name") or kind), ids=_ids(data))


def _output(value: Any) -> str:
    """The text of a tool's output: a string, parts with text, or JSON."""
    if isinstance(value, str):
        return value
    text = content_text(value)
    return text if text or value is None else canonical_json(value)


# --- answers -------------------------------------------------------------------------------------------------------


def read_answer(body: bytes, *, streamed: bool, complete: bool = True) -> Answer:
    """The answer in a whole response body, or in the received part of a stream."""
    if streamed:
        return _assemble(sse.objects(body), complete)
    try:
        top = members(body)
        raws = [bytes(raw) for raw in elements(top["output"])]
    except (WireError, KeyError):
        return Answer(messages=(), complete=complete)
    runs = text_member(top, "status") in ("queued", "in_progress")
    ids = tuple(filter(None, [text_member(top, "id")]))
    return Answer(messages=_output_messages(raws), ids=ids, complete=complete and not runs)


def _output_messages(raws: Sequence[bytes]) -> tuple[Message, ...]:
    """The output items, without user messages that /responses/compact repeats."""
    return tuple(m for m in map(read_item, raws) if m.role != "user")


def _unfinished(texts: Mapping[str, str], whole: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of which only pieces arrived: those that are not among the whole items, by their id or their text."""
    ids = {str(each.get("id")) for each in whole}
    whole_texts = [m.text for m in _output_messages([encoded(each) for each in whole])]
    return [
        {"type": "message", "role": "assistant", "id": id_, "content": text}
        for id_, text in texts.items()
        if id_ not in ids and not any(text in each for each in whole_texts)
    ]


def _assemble(events: Sequence[Mapping[str, Any]], complete: bool) -> Answer:
    """The final response's output. For a stream that broke off or failed: its finished items, and the text of the
    unfinished one."""
    ids: dict[str, None] = {}
    done: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    """Output index of an item -> the id that it had first: some gateways give it a new id in each event."""
    deltas: dict[str, Any] = {}
    final: list[dict[str, Any]] = []
    ending = ""
    for event in events:
        kind, response = event.get("type"), event.get("response")
        if isinstance(response, dict):
            ids.update(dict.fromkeys(_ids({"id": response.get("id")})))
            if kind in ("response.completed", "response.incomplete", "response.failed"):
                ending, final = str(kind), dicts(response.get("output"))
        elif kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            done.append(event["item"])
        elif kind == "response.output_text.delta":
            id_ = str(event.get("item_id"))
            key = names.setdefault(str(event.get("output_index", id_)), id_)
            sse.add_piece(deltas, key, str(event.get("delta") or ""))
    whole = final or done
    halves = [] if ending == "response.completed" else _unfinished(sse.joined(deltas), whole)
    raws = [encoded(each) for each in (*whole, *halves)]
    finished = ending in ("response.completed", "response.incomplete")
    return Answer(messages=_output_messages(raws), ids=tuple(ids), complete=complete and finished)


# --- blocks --------------------------------------------------------------------------------------------------------


def inject(body: bytes, inserts: Sequence[Insert]) -> bytes:
    """`body` with each block added to its message; all other bytes stay. WireError if a place does not exist."""
    top = members(body)
    offset = len(_instructions(top))
    moved = [Insert(insert.at - offset, insert.place, insert.text) for insert in inserts]
    raw = top.get("input")
    if raw is not None and first_byte(raw) == b'"':
        start, end = span(body, raw)
        return splice(body, [(start, end, append_to_string(raw, "".join(f"\n\n{i.text}" for i in moved), front=False))])
    return inject_into(body, "input", moved, part_type="input_text", new_message=_user_message)


def _user_message(text: str) -> bytes:
    part = b'{"type":"input_text","text":' + encode_string(text) + b"}"
    return b'{"type":"message","role":"user","content":[' + part + b"]}"


def settle_place(request: Request, at: int, place: Place) -> Place:
    """Where exactly a block goes so that later requests can repeat it there: `place`, but always inside if `input` is a
    string."""
    return "inside" if request.messages[at].raw[:1] == b'"' and canonical(request.messages[at].text) else place
