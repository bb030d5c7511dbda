"""Three protocols in two directions: what a request holds, and an answer's bytes, streamed or not."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """What the scripted model reads of a request."""

    api: str
    """chat, responses, compact (POST /responses/compact) or messages."""
    said: tuple[tuple[str, str], ...]
    """(role, text) a message part, in order; role is system, user, assistant or tool."""
    tools: dict[str, Json]
    """Name -> JSON schema of its arguments. Tools that hold other tools are left out."""
    stream: bool
    triggers: bool = False
    """It asks for a compaction item or block."""
    continues: str = ""
    """Id of the answer after which the server goes on with what it holds."""
    form: Json = field(default_factory=dict)
    """JSON schema that the answer is wanted in; none for words."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the scripted model says: text, or the call of a tool, or a compaction item."""

    text: str = ""
    tool: str = ""
    arguments: str = ""
    beside: tuple[str, ...] = ()
    """Arguments of more calls of the tool, made at once with that one."""
    compaction: str = ""
    tokens: int = 2_000
    """What is reported as the size of the request."""


def parse_request(path: str, body: Json) -> ParsedRequest:
    if path.endswith("/chat/completions"):
        tools = {
            t["function"]["name"]: t["function"].get("parameters", {})
            for t in body.get("tools") or []
            if "function" in t
        }
        said = tuple(part for m in body["messages"] for part in _parts(_role(m["role"]), m.get("content")))
        form = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema") or {}
        return ParsedRequest("chat", said, tools, bool(body.get("stream")), form=form)
    if path.endswith("/messages"):
        tools = {t["name"]: t.get("input_schema", {}) for t in body.get("tools") or []}
        messages = [{"role": "system", "content": body.get("system")}, *body["messages"]]
        said = tuple(part for m in messages for part in _parts(_role(m["role"]), m.get("content")))
        continues = (body.get("thread") or {}).get("previous_message_id", "")
        return ParsedRequest("messages", said, tools, bool(body.get("stream")), "compaction" in body, continues)
    given = body.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    tools = {
        t["name"]: t.get("parameters", {}) for t in body.get("tools") or [] if t.get("type") in ("function", "custom")
    }
    said = (*_parts("system", body.get("instructions")), *(part for item in items for part in _item(item)))
    last = items[-1].get("type") if items else ""
    api = "compact" if path.endswith("/compact") else "responses"
    return ParsedRequest(api, said, tools, bool(body.get("stream")), triggers=last == "compaction_trigger")


def _role(role: str) -> str:
    return "system" if role == "developer" else role


def _item(item: Json) -> Iterator[tuple[str, str]]:
    if item.get("type") in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        output = item["output"]
        yield "tool", output if isinstance(output, str) else json.dumps(output)
    elif "role" in item:
        yield from _parts(_role(item["role"]), item.get("content"))


def _parts(role: str, content: Any) -> Iterator[tuple[str, str]]:
    if isinstance(content, str):
        yield role, content
    for part in content if isinstance(content, list) else []:
        if part.get("type") == "tool_result":
            yield "tool", "\n".join(text for _, text in _parts("tool", part.get("content")))
        elif isinstance(part.get("text"), str):
            yield role, part["text"]


def render_answer(request: ParsedRequest, body: Json, reply: Reply) -> tuple[str, list[bytes]]:
    """(content type, pieces of the answer in the order in which they are sent)."""
    n = next(_ids)
    if request.api == "compact":
        return _json(_compacted(n, body, reply))
    whole, events = {"chat": _chat, "responses": _responses, "messages": _messages}[request.api](n, body, reply)
    return ("text/event-stream; charset=utf-8", events) if request.stream else _json(whole)


def _json(data: Json) -> tuple[str, list[bytes]]:
    return "application/json", [json.dumps(data).encode()]


def _event(data: Json, *, named: bool = True) -> bytes:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _called(n: int, reply: Reply) -> list[tuple[int, str]]:
    """(number, arguments) of each call of a reply."""
    return [(n, reply.arguments), *((next(_ids), arguments) for arguments in reply.beside)] if reply.tool else []


def _words(text: str) -> list[str]:
    """`text` in pieces of about three words, as a model would stream it."""
    words = text.split(" ")
    pieces = [" ".join(words[i : i + 3]) for i in range(0, len(words), 3)]
    return [piece + " " for piece in pieces[:-1]] + pieces[-1:]


# --- chat completions ------------------------------------------------------------------------------------------------


def _chat(n: int, body: Json, reply: Reply) -> tuple[Json, list[bytes]]:
    base = {"id": f"chatcmpl-{n:08x}", "created": 1_700_000_000, "model": body["model"]}
    usage = {"prompt_tokens": reply.tokens, "completion_tokens": 20, "total_tokens": reply.tokens + 20}
    calls: list[Json] = [
        {"id": f"call_{each:08x}", "type": "function", "function": {"name": reply.tool, "arguments": arguments}}
        for each, arguments in _called(n, reply)
    ]
    message: Json = {"role": "assistant", "content": None if reply.tool else reply.text, "refusal": None}
    if reply.tool:
        message["tool_calls"] = calls
    why = "tool_calls" if reply.tool else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": why}
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += (
        [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(calls)]
        if reply.tool
        else [{"content": piece} for piece in _words(reply.text)]
    )
    chunk = base | {"object": "chat.completion.chunk"}
    chunks = [chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks += [chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": why}]}]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks += [chunk | {"choices": [], "usage": usage}]
    events = [*(_event(c, named=False) for c in chunks), b"data: [DONE]\n\n"]
    return base | {"object": "chat.completion", "choices": [choice], "usage": usage}, events


# --- Responses -------------------------------------------------------------------------------------------------------


def _responses(n: int, body: Json, reply: Reply) -> tuple[Json, list[bytes]]:
    calls = _called(n, reply)
    items = [_call(each, reply.tool, arguments) for each, arguments in calls] or [_output(n, reply)]
    start = {"id": f"resp_{n:08x}", "object": "response", "created_at": 1_700_000_000, "model": body["model"],
             "error": None, "status": "in_progress", "output": [],
             "previous_response_id": body.get("previous_response_id"), "parallel_tool_calls": True,
             "tool_choice": "auto", "tools": [], "usage": None}  # fmt: skip
    whole = start | {"status": "completed", "output": items, "usage": _usage(reply)}
    events: list[Json] = [
        {"type": "response.created", "response": start},
        {"type": "response.in_progress", "response": start},
        *(event for at, item in enumerate(items) for event in _told(at, item, reply)),
        {"type": "response.completed", "response": whole},
    ]
    return whole, [_event(event | {"sequence_number": i}) for i, event in enumerate(events)]


def _told(output_index: int, item: Json, reply: Reply) -> list[Json]:
    """The events of one item of an answer."""
    place = {"output_index": output_index, "item_id": item["id"]}
    events: list[Json] = [{"type": "response.output_item.added", "output_index": output_index, "item": _begun(item)}]
    if reply.tool:
        arguments = item["arguments"]
        events += [{"type": "response.function_call_arguments.delta", **place, "delta": arguments}]
        events += [{"type": "response.function_call_arguments.done", **place, "arguments": arguments}]
    elif not reply.compaction:
        part = {"type": "output_text", "text": "", "annotations": []}
        at = place | {"content_index": 0}
        events += [{"type": "response.content_part.added", **at, "part": part}]
        events += [
            {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []} for piece in _words(reply.text)
        ]
        events += [{"type": "response.output_text.done", **at, "text": reply.text, "logprobs": []}]
        events += [{"type": "response.content_part.done", **at, "part": part | {"text": reply.text}}]
    return [*events, {"type": "response.output_item.done", "output_index": output_index, "item": item}]


def _call(n: int, tool: str, arguments: str) -> Json:
    return {"id": f"fc_{n:08x}", "type": "function_call", "status": "completed", "call_id": f"call_{n:08x}",
            "name": tool, "arguments": arguments}  # fmt: skip


def _output(n: int, reply: Reply) -> Json:
    if reply.compaction:
        return {"id": f"cmp_{n:08x}", "type": "compaction", "encrypted_content": f"{reply.compaction}{n:08x}"}
    content = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
    return {"id": f"msg_{n:08x}", "type": "message", "status": "completed", "role": "assistant", "content": content}


def _begun(item: Json) -> Json:
    empty: Json = {"status": "in_progress"} if "status" in item else {}
    blank: Json = {"content": [], "arguments": ""}
    return item | empty | {name: value for name, value in blank.items() if name in item}


def _usage(reply: Reply) -> Json:
    return {"input_tokens": reply.tokens, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": reply.tokens + 20}  # fmt: skip


def _compacted(n: int, body: Json, reply: Reply) -> Json:
    """The user's messages and one compaction item, as POST /responses/compact answers."""
    given = body.get("input") or []
    kept = (
        [item for item in given if isinstance(item, dict) and item.get("role") == "user"]
        if isinstance(given, list)
        else []
    )
    return {"id": f"resp_{n:08x}", "object": "response.compaction", "created_at": 1_700_000_000,
            "output": [*kept, _output(n, reply)], "usage": _usage(reply)}  # fmt: skip


# --- Messages --------------------------------------------------------------------------------------------------------


def _messages(n: int, body: Json, reply: Reply) -> tuple[Json, list[bytes]]:
    block: Json = {"type": "text", "text": reply.text}
    deltas: list[Json] = [{"type": "text_delta", "text": piece} for piece in _words(reply.text)]
    blocks = [(block, block | {"text": ""}, deltas)]
    if reply.compaction:
        block = {"type": "compaction", "content": reply.text, "encrypted_content": f"{reply.compaction}{n:08x}"}
        blocks = [(block, {"type": "compaction", "content": None}, [block | {"type": "compaction_delta"}])]
    elif reply.tool:
        blocks = [_use(each, reply.tool, arguments) for each, arguments in _called(n, reply)]
    usage = {
        "input_tokens": reply.tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 20,
    }
    start = {"id": f"msg_{n:08x}", "type": "message", "role": "assistant", "model": body["model"], "content": [],
             "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    why = "tool_use" if reply.tool else "compaction" if reply.compaction else "end_turn"
    ended = {"stop_reason": why, "stop_sequence": None}
    events: list[Json] = [{"type": "message_start", "message": start}]
    for at, (_, empty, told) in enumerate(blocks):
        events += [{"type": "content_block_start", "index": at, "content_block": empty}, {"type": "ping"}]
        events += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in told]
        events += [{"type": "content_block_stop", "index": at}]
    events += [{"type": "message_delta", "delta": ended, "usage": {"output_tokens": 20}}, {"type": "message_stop"}]
    return start | ended | {"content": [whole for whole, *_ in blocks]}, [_event(event) for event in events]


def _use(n: int, tool: str, arguments: str) -> tuple[Json, Json, list[Json]]:
    """A call, as it begins, and what comes of it then."""
    block = {"type": "tool_use", "id": f"toolu_{n:08x}", "name": tool, "input": json.loads(arguments)}
    return block, block | {"input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]
