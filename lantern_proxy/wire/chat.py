"""OpenAI Chat Completions: bytes <-> record.

read(b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}').messages[0].text == "hi"
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from lantern_proxy.turn import Answer, Item, Message, Request, Role, fingerprint, item, message
from lantern_proxy.turn_blocks import strip_block
from lantern_proxy.wire import sse
from lantern_proxy.wire.headers import brief
from lantern_proxy.wire.json import (
    CachedReader,
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
    kind_of,
    media_digest,
    members,
    parse,
    span,
    splice,
    text_member,
)

_ROLES: dict[str, Role] = {
    "system": "system", "developer": "developer", "user": "user", "assistant": "assistant", "tool": "tool",
    "function": "tool", "model": "assistant",
}  # fmt: skip


def read(body: bytes) -> Request:
    """The request in `body`. WireError if it is not a chat completion request."""
    top = members(body)
    if "messages" not in top:
        raise WireError("a chat completion request without messages")
    return Request(
        api="chat",
        model=text_member(top, "model"),
        messages=tuple(read_message.all(elements(top["messages"]))),
        tools=frozenset(tool_names(top)),
        stream=bytes(top.get("stream", b"false")) == b"true",
        ids=explicit_ids(top),
        person=person(top),
    )


def explicit_ids(top: Mapping[str, msgspec.Raw]) -> tuple[tuple[str, str], ...]:
    """Session ids that a body of any protocol carries, most specific first. `user` names a person: see `person`."""
    found: list[tuple[str, str]] = []
    metadata = parse(top["metadata"]) if "metadata" in top else None
    if isinstance(metadata, dict):
        metadata_ids = [metadata.get(key) for key in ("session_id", "conversation_id", "thread_id", "chat_id")]
        found += [("metadata", brief(value)) for value in metadata_ids if isinstance(value, str) and value]
    key = text_member(top, "prompt_cache_key")
    return (*found, ("prompt_cache_key", brief(key))) if key else tuple(found)


def person(top: Mapping[str, msgspec.Raw]) -> str:
    """The person that an OpenAI body names, as in turn.Request; "" if none."""
    return known_as(text_member(top, "safety_identifier") or text_member(top, "user"))


def known_as(name: str) -> str:
    return fingerprint("person", name).hex() if name else ""


def tool_names(top: Mapping[str, msgspec.Raw]) -> list[str]:
    """Names of the tools that the model may call; none if `tool_choice` forbids all."""
    if not ("tools" in top or "functions" in top) or _forbids_tools(top):
        return []
    names = []
    for raw in (*_list(top, "tools"), *_list(top, "functions")):
        tool = parse(raw)
        if isinstance(tool, dict):
            inner = tool.get("function")
            names.append(str((inner if isinstance(inner, dict) else tool).get("name") or tool.get("type")))
    return names


def _forbids_tools(top: Mapping[str, msgspec.Raw]) -> bool:
    choice = parse(top["tool_choice"]) if "tool_choice" in top else None
    return (choice.get("type") if isinstance(choice, dict) else choice) == "none"


def _list(top: Mapping[str, msgspec.Raw], key: str) -> list[msgspec.Raw]:
    return elements(top[key]) if key in top and first_byte(top[key]) == b"[" else []


@CachedReader
def read_message(raw: bytes) -> Message:
    """One element of `messages`. Any object is read somehow; WireError otherwise."""
    data = element(raw, "a message")
    role = _ROLES.get(str(data.get("role")), "user")
    return message(role, _items(role, data), raw)


def _items(role: Role, data: Mapping[str, Any]) -> list[Item]:
    found: list[Item] = []
    reasoning = data.get("reasoning_content") or data.get("reasoning")
    if isinstance(reasoning, str):
        found.append(item(role, "reasoning", reasoning))
    if role == "tool":
        ids = [value for value in (data.get("tool_call_id"),) if isinstance(value, str)]
        return [item(role, "result", content_text(data.get("content")), name=str(data.get("name") or ""), ids=ids)]
    found += content_items(role, data.get("content"))
    if isinstance(data.get("refusal"), str):
        found.append(item(role, "text", data["refusal"]))
    found += [_call(role, call) for call in dicts(data.get("tool_calls"))]
    if isinstance(data.get("function_call"), dict):
        found.append(_call(role, {"function": data["function_call"]}))
    if isinstance(data.get("audio"), dict):
        found += _audio(role, data["audio"])
    return found


def _audio(role: Role, audio: Mapping[str, Any]) -> list[Item]:
    """A spoken answer. Its transcript is not compared, since clients send back only the id."""
    spoken = item(role, "media", "", name="audio", ids=[str(audio["id"])] if "id" in audio else [])
    transcript = audio.get("transcript")
    if not (isinstance(transcript, str) and transcript.strip()):
        return [spoken]
    return [replace(item(role, "text", ""), text=strip_block(transcript)), spoken]


def content_items(role: Role, content: Any) -> list[Item]:
    """Items of a `content` value: a string, null, or a list of parts of any type."""
    if isinstance(content, str):
        return [item(role, "text", content)]
    found = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            found.append(item(role, "text", part))
        elif isinstance(part, dict):
            found.append(_part(role, part))
    return found


def _part(role: Role, part: Mapping[str, Any]) -> Item:
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return item(role, "text", text)
    digest = media_digest({k: v for k, v in part.items() if k != "cache_control"})
    return item(role, "media", digest, name=str(part.get("type") or "part"))


def _call(role: Role, call: Mapping[str, Any]) -> Item:
    inner = call.get("function") or call.get("custom") or call
    inner = inner if isinstance(inner, dict) else {}
    arguments = canonical_json(inner.get("arguments", inner.get("input", "")))
    ids = [call["id"]] if isinstance(call.get("id"), str) and call["id"] else []
    return item(role, "call", arguments, name=str(inner.get("name") or ""), ids=ids)


def content_text(content: Any) -> str:
    """The text of a `content` value, parts joined by line breaks."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))


# --- answers -------------------------------------------------------------------------------------------------------


def read_answer(body: bytes, *, streamed: bool, complete: bool = True) -> Answer:
    """The answer in a whole response body, or in the received part of a stream. Empty if none is found."""
    if streamed:
        return _assemble(sse.objects(body), complete)
    try:
        top = members(body)
        raws = [members(choice).get("message") for choice in elements(top["choices"])]
        found = tuple(read_message.all([raw for raw in raws if raw is not None]))
    except (WireError, KeyError):
        return Answer(messages=(), complete=complete)
    return Answer(messages=found, ids=(text_member(top, "id"),) if "id" in top else (), complete=complete)


def _assemble(chunks: Sequence[Mapping[str, Any]], complete: bool) -> Answer:
    """Deltas by choice -> one message per choice, in the form in which clients send it back."""
    choices: dict[int, dict[str, Any]] = {}
    finished = False
    for chunk in chunks:
        for choice in dicts(chunk.get("choices")):
            delta = choice.get("delta")
            into = choices.setdefault(_index(choice), {"role": "assistant"})
            _merge(into, delta if isinstance(delta, dict) else {})
            finished = finished or bool(choice.get("finish_reason"))
    raws = [encoded(_settle(choices[index])) for index in sorted(choices)]  # joins surrogates split between chunks
    ids = tuple({str(chunk["id"]) for chunk in chunks if chunk.get("id")})
    return Answer(messages=tuple(read_message(raw) for raw in raws), ids=ids, complete=complete and finished)


def _index(part: Mapping[str, Any]) -> int:
    index = part.get("index")
    return index if isinstance(index, int) else 0


def _merge(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            calls = into.setdefault("tool_calls", {})
            for part in dicts(value):
                _merge_call(_call_of(calls, part), part)
        elif key == "audio" and isinstance(value, dict):
            _merge(into.setdefault(key, {}), {name: part for name, part in value.items() if name != "data"})
        elif key == "function_call" and isinstance(value, dict):
            _merge_function(into.setdefault(key, {"name": "", "arguments": ""}), value)
        elif isinstance(value, str) and key not in ("role", "id"):
            sse.add_piece(into, key, value)
        elif key == "content" and isinstance(value, list):  # as Mistral's models that think send it
            texts = [part.get("text") for part in dicts(value)]
            sse.add_piece(into, key, "".join(text for text in texts if isinstance(text, str)))
        elif value is not None:
            into[key] = value


def _call_of(calls: dict[int, list[dict[str, Any]]], part: Mapping[str, Any]) -> dict[str, Any]:
    """The call that a piece belongs to. Some servers give all calls one index, or none: another id beside a name starts
    another call. Others give each piece its own id, but only the first one a name."""
    same, function = calls.setdefault(_index(part), []), part.get("function")
    is_named = isinstance(function, dict) and function.get("name") and part.get("id")
    if not same or (is_named and same[-1].get("id") not in (None, part["id"])):
        same.append({})
    return same[-1]


def _merge_call(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if key == "function" and isinstance(value, dict):
            _merge_function(into.setdefault(key, {"name": "", "arguments": ""}), value)
        elif key != "index" and value is not None:
            into[key] = value


def _merge_function(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    name, more = part.get("name"), part.get("arguments")
    into["name"] = into["name"] or (name if isinstance(name, str) else "")
    sse.add_piece(into, "arguments", more if isinstance(more, str) else "")


def _settle(merged: dict[str, Any]) -> dict[str, Any]:
    calls = merged.get("tool_calls")
    if calls:
        merged = {**merged, "tool_calls": [_settle_call(each) for index in sorted(calls) for each in calls[index]]}
    inner = {key: sse.joined(value) for key in ("function_call", "audio") if isinstance(value := merged.get(key), dict)}
    return sse.joined({**merged, **inner})


def _settle_call(call: dict[str, Any]) -> dict[str, Any]:
    return {**call, "function": sse.joined(call["function"])} if isinstance(call.get("function"), dict) else call


# --- blocks --------------------------------------------------------------------------------------------------------


def inject(body: bytes, inserts: Sequence[Insert]) -> bytes:
    """`body` with each block added to its message; all other bytes stay. WireError if a place does not exist."""
    return inject_into(body, "messages", inserts, part_type="text", new_message=user_message)


def user_message(text: str) -> bytes:
    return b'{"role":"user","content":' + encode_string(text) + b"}"


def inject_into(body: bytes, key: str, inserts: Sequence[Insert], *, part_type: str, new_message: Any) -> bytes:
    """`body` with `inserts` spliced into the array member `key`. Inserts at one message keep their order."""
    raws = elements(members(body)[key])
    edits: list[tuple[int, int, bytes]] = []
    for at in sorted({insert.at for insert in inserts}):
        if not 0 <= at < len(raws):
            raise WireError(f"no message {at} to put a block into")
        here = [insert for insert in inserts if insert.at == at]
        inside = [insert for insert in here if insert.place != "after"]
        start, end = span(body, raws[at])
        raw = bytes(raws[at])
        for insert in inside:
            raw = _add_inside(raw, insert, part_type)
        after = b"".join(b"," + new_message(insert.text) for insert in here if insert.place == "after")
        edits.append((start, end, raw + after))
    return splice(body, edits)


def _add_inside(raw: bytes, insert: Insert, part_type: str) -> bytes:
    content = members(raw).get("content")
    if content is None:
        raise WireError("the message for a block has no content")
    first = first_byte(content)
    start, end = span(raw, content)
    if first == b'"':
        front = insert.place == "before"
        text = f"{insert.text}\n\n" if front else f"\n\n{insert.text}"
        return splice(raw, [(start, end, append_to_string(content, text, front=front))])
    if first != b"[":
        raise WireError(f"cannot put a block into content that is {kind_of(parse(content))}")
    part = b'{"type":"' + part_type.encode() + b'","text":' + encode_string(insert.text) + b"}"
    parts = elements(content)
    if insert.place == "before" and parts:
        at, _ = span(raw, parts[-1])
        return splice(raw, [(at, at, part + b",")])
    return splice(raw, [(end - 1, end - 1, (b"," if parts else b"") + part)])


def settle_place(request: Request, at: int, place: Place) -> Place:
    """Where exactly a block goes so that later requests can repeat it there: always `place`."""
    return place
