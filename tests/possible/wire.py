"""Messages without a protocol, and as three protocols write them; and the prompt as a provider caches it."""

import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from clients.dialects import ParsedRequest, Reply, render_answer

Json = dict[str, Any]
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
_MINTED = re.compile(r'"((?:call|toolu|msg|resp)_[0-9a-f]{8})"')
"""Ids that an answer gives."""


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Msg:
    """One message as a client holds it."""

    role: str
    """system, developer, user, assistant, result"""
    texts: tuple[str, ...] = ()
    call: Call | None = None
    """What an assistant calls, or what a result is the result of."""
    more: tuple[Call, ...] = ()
    """What it calls at once with that."""
    image: bool = False
    thought: str = ""
    number: int = 0
    """Its place in the conversation, from 1; 0 for what the client made up: a summary, an acknowledgement."""
    item: str = ""
    """The id that the Responses API gave it."""

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    @property
    def calls(self) -> tuple[Call, ...]:
        return (self.call, *self.more) if self.call else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dress:
    """How a client writes what it says."""

    content: str = "string"
    """string, parts, or both in turn"""
    cache_control: bool = False
    shuffled: bool = False
    """Keys in another order with every request."""
    new_ids: bool = False
    """Ids of calls that change with every request."""
    new_order: bool = False
    """Results of what was called at once stand in another order with every request."""
    items: str = "plain"
    """Responses API: earlier answers plain, with their ids, or as references by id."""


def body_of(
    api: str, system: str, history: Sequence[Msg], dress: Dress, *, tools: Sequence[str], stream: bool, nth: int
) -> Json:
    """The body of a client's nth request."""
    write = {"chat": _chat, "responses": _responses, "messages": _messages}[api]
    shown = _reordered(history, random.Random(nth)) if dress.new_order else history
    body = {"model": "m-1", "stream": stream} | write(system, shown, dress, nth)
    if tools:
        body["tools"] = [_tool(api, name) for name in tools]
    if dress.shuffled:
        order, key = random.Random(nth), "input" if api == "responses" else "messages"
        body[key] = [_shuffled(m, order) for m in body[key]]
        body = _shuffled(body, order)
    return body


def _reordered(history: Sequence[Msg], order: random.Random) -> list[Msg]:
    runs = (list(run) for _, run in groupby(history, lambda m: m.role == "result"))
    return [m for run in runs for m in (order.sample(run, len(run)) if run[0].role == "result" else run)]


def _tool(api: str, name: str) -> Json:
    schema = {"type": "object"}
    if api == "messages":
        return {"name": name, "input_schema": schema}
    function = {"name": name, "parameters": schema}
    return {"type": "function", "function": function} if api == "chat" else {"type": "function"} | function


def _shuffled(data: Json, order: random.Random) -> Json:
    return dict(order.sample(list(data.items()), len(data)))


def _chat(system: str, history: Sequence[Msg], dress: Dress, nth: int) -> Json:
    out: list[Json] = [{"role": "system", "content": system}] if system else []
    for m in history:
        if m.role == "result":
            out.append({"role": "tool", "tool_call_id": _id(m, dress, nth), "content": m.text})
            continue
        said: Json = {"role": m.role, "content": _content("chat", m, dress, nth)}
        if m.call:
            functions = [(c, {"name": c.tool, "arguments": c.arguments}) for c in m.calls]
            calls = [{"id": _id(c, dress, nth), "type": "function", "function": f} for c, f in functions]
            said |= {"content": m.text or None, "tool_calls": calls}
        out.append(said | ({"reasoning_content": m.thought} if m.thought else {}))
    return {"messages": out}


def _responses(system: str, history: Sequence[Msg], dress: Dress, nth: int) -> Json:
    out: list[Json] = []
    for m in history:
        if m.role == "result":
            out.append({"type": "function_call_output", "call_id": _id(m, dress, nth), "output": m.text})
        elif m.call:
            functions = [(c, {"name": c.tool, "arguments": c.arguments}) for c in m.calls]
            out += [{"type": "function_call", "call_id": _id(c, dress, nth)} | function for c, function in functions]
        elif m.item and dress.items == "references":
            out.append({"type": "item_reference", "id": m.item})
        elif m.item and dress.items == "ids":
            content = [{"type": "output_text", "text": m.text, "annotations": []}]
            out.append(
                {"type": "message", "id": m.item, "status": "completed", "role": "assistant", "content": content}
            )
        else:
            out.append({"role": m.role, "content": _content("responses", m, dress, nth)})
    return {"input": out} | ({"instructions": system} if system else {})


def _messages(system: str, history: Sequence[Msg], dress: Dress, nth: int) -> Json:
    out: list[Json] = []
    last = max((at for at, m in enumerate(history) if m.role == "user"), default=-1)
    for at, m in enumerate(history):
        if m.role == "result":
            part = {"type": "tool_result", "tool_use_id": _id(m, dress, nth), "content": m.text}
            if at and history[at - 1].role == "result":
                out[-1]["content"].append(part)
            else:
                out.append({"role": "user", "content": [part]})
            continue
        content = _content("messages", m, dress, nth, cached=dress.cache_control and at == last)
        parts: list[Json] = []
        if m.thought:
            parts.append({"type": "thinking", "thinking": m.thought, "signature": f"signature{m.number}"})
        if m.call:
            uses = [(c, {"name": c.tool, "input": json.loads(c.arguments)}) for c in m.calls]
            parts += [{"type": "tool_use", "id": _id(c, dress, nth)} | use for c, use in uses]
        elif parts:
            parts += content if isinstance(content, list) else [{"type": "text", "text": content}]
        out.append({"role": "system" if m.role == "developer" else m.role, "content": parts or content})
    opening = system if dress.content == "string" else [{"type": "text", "text": system}]
    return {"max_tokens": 4096, "messages": out} | ({"system": opening} if system else {})


def _id(of: Msg | Call, dress: Dress, nth: int) -> str:
    call = of.call if isinstance(of, Msg) else of
    assert call is not None
    return f"{call.id}_{nth}" if dress.new_ids else call.id


def _content(api: str, m: Msg, dress: Dress, nth: int, *, cached: bool = False) -> str | list[Json]:
    bare = len(m.texts) <= 1 and not m.image and not cached
    if bare and (dress.content == "string" or (dress.content == "both" and nth % 2)):
        return m.text
    kind = "text" if api != "responses" else "output_text" if m.role == "assistant" else "input_text"
    parts = [_image(api, f"{_PIXEL}{m.number}")] if m.image else []
    parts += [{"type": kind, "text": text} for text in m.texts]
    if cached and parts:
        parts[-1] |= {"cache_control": {"type": "ephemeral"}}
    return parts


def _image(api: str, data: str) -> Json:
    if api == "messages":
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    url = f"data:image/png;base64,{data}"
    return (
        {"type": "input_image", "image_url": url}
        if api == "responses"
        else {"type": "image_url", "image_url": {"url": url}}
    )


def answer(api: str, body: Json, reply: Reply) -> tuple[bytes, Msg, str]:
    """(the answer's bytes, the message as the client keeps it, the id of the response)."""
    _, pieces = render_answer(ParsedRequest(api, (), {}, stream=bool(body["stream"])), body, reply)
    data = b"".join(pieces)
    minted = _MINTED.findall(data.decode())
    ids = dict.fromkeys(name for name in minted if name.startswith(("call_", "toolu_")))
    calls = [Call(name, reply.tool, each) for name, each in zip(ids, (reply.arguments, *reply.beside), strict=False)]
    item = next((name for name in minted if name.startswith("msg_")), "") if api == "responses" else ""
    response = next((name for name in minted if name.startswith("resp_")), "")
    said = Msg("assistant", call=calls[0], more=(*calls[1:],)) if calls else Msg("assistant", (reply.text,), item=item)
    return data, said, response


def prompt(body: Json) -> list[str]:
    """The prompt as a provider caches it: tools, system prompt, then a string a message."""
    top = [
        json.dumps(body.get("tools", "")),
        *(_spoken(body[key]) for key in ("system", "instructions") if key in body),
    ]
    for m in body.get("messages", body.get("input", [])):
        rest = {key: value for key, value in m.items() if key not in ("content", "output")}
        top.append(json.dumps(rest, sort_keys=True) + _spoken(m.get("content", m.get("output"))))
    return top


def _spoken(content: Any) -> str:
    if not isinstance(content, list):
        return content or ""
    return "".join("\x01" + (part["text"] if isinstance(part.get("text"), str) else _bare(part)) for part in content)


def _bare(part: Json) -> str:
    return json.dumps({key: value for key, value in part.items() if key != "cache_control"}, sort_keys=True)


def shared_chars(a: Iterable[str], b: Iterable[str]) -> int:
    """How long a beginning two prompts share."""
    one, other = "\0".join(a), "\0".join(b)
    return next((n for n, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
