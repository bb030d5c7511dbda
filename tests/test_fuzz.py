"""Random bodies of all three protocols: never an error of ours, a changed request, or a session split in two."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scripted import filed

from lantern_proxy.compaction.placement import may_hold_block
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig
from lantern_proxy.follow import follow, reply
from lantern_proxy.proxy import Proxy
from lantern_proxy.session import SessionIndex
from lantern_proxy.turn import Identity
from lantern_proxy.wire import CHAT, MESSAGES, RESPONSES, Protocol
from lantern_proxy.wire.http import Arrival
from lantern_proxy.wire.json import Insert, WireError

PATHS = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
BLOCK = '<restored_context note="x">\n“quoted” \\ and \u2028 lines\n</restored_context>'

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(
    ["role", "content", "type", "text", "id", "call_id", "name", "arguments", "tool_calls", "function", "input",
     "output", "tool_use_id", "summary", "encrypted_content", "cache_control", "refusal", "index"]
)  # fmt: skip
kinds = st.sampled_from(
    ["message", "text", "input_text", "output_text", "tool_use", "tool_result", "function_call", "compaction",
     "function_call_output", "item_reference", "reasoning", "thinking", "image", "user", "assistant", "system", "tool"]
)  # fmt: skip
nearly = st.recursive(
    scalars | kinds,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | st.text(max_size=4), inner, max_size=6),
    max_leaves=20,
)
"""Values with the right words in the wrong places."""
tops = st.dictionaries(
    st.sampled_from(["messages", "input", "model", "tools", "stream", "system", "instructions", "metadata",
                     "previous_response_id", "conversation", "prompt_cache_key", "functions", "n"]),
    nearly | anything, max_size=6,
)  # fmt: skip
events = st.dictionaries(
    st.sampled_from(["type", "choices", "delta", "response", "item", "item_id", "output", "message", "content_block",
                     "index", "id", "content", "tool_calls", "citations", "citation", "partial_json", "text"]),
    st.sampled_from(
        ["response.completed", "response.output_item.done", "response.output_text.delta", "message_start",
         "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"]
    ) | nearly, max_size=6,
)  # fmt: skip
"""Parts of streamed answers, more or less."""
bodies = st.one_of(
    tops.map(lambda top: json.dumps(top).encode()),
    anything.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
    tops.map(lambda top: json.dumps(top).encode()[:-3]),
)


@settings(max_examples=200, deadline=None)
@given(body=bodies, protocol=st.sampled_from(list(PATHS.values())))
def test_a_body_of_any_shape_is_read_or_refused(body: bytes, protocol: Protocol):
    try:
        request = protocol.read(body)
    except WireError:
        return
    assert all(m.raw for m in request.messages)


@settings(max_examples=200, deadline=None)
@given(body=bodies, protocol=st.sampled_from(list(PATHS.values())))
def test_an_answer_of_any_shape_is_read(body: bytes, protocol: Protocol):
    assert protocol.read_answer(body, streamed=False).messages is not None


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(events.map(json.dumps) | st.text(max_size=20), max_size=8),
    protocol=st.sampled_from([*PATHS.values()]),
)
def test_a_stream_of_any_events_is_read(parts: list[str], protocol: Protocol):
    data = "".join(f"data: {part}\n\n" for part in parts).encode("utf-8", "surrogatepass")
    answer = protocol.read_answer(data, streamed=True)
    assert all(isinstance(value, str) for value in answer.ids)


def without(value: Any) -> Any:
    """`value` without blocks, and without the parts and messages that held nothing else."""
    if isinstance(value, str):
        return re.sub(r"\n*<restored_context.*?</restored_context>\n*", "", value, flags=re.S)
    if isinstance(value, list):
        return [
            w
            for w in map(without, value)
            if w not in ({"type": "text", "text": ""}, {"type": "input_text", "text": ""})
        ]
    return {k: without(v) for k, v in value.items()} if isinstance(value, dict) else value


@settings(max_examples=200, deadline=None)
@given(top=tops, path=st.sampled_from(list(PATHS)), data=st.data())
def test_a_block_in_any_place_where_it_may_go_changes_nothing_else(top: dict[str, Any], path: str, data: st.DataObject):
    body, protocol = json.dumps(top).encode(), PATHS[path]
    try:
        request = protocol.read(body)
    except WireError:
        return
    spoken = [at for at, m in enumerate(request.messages) if may_hold_block(m)]
    if not spoken:
        return
    at = data.draw(st.sampled_from(spoken))
    place = protocol.settle_place(request, at, "inside")
    got = protocol.inject(body, [Insert(at, place, BLOCK)])
    assert got.count(b"<restored_context") == 1
    assert without(json.loads(got)) == without(json.loads(body))


# --- whole conversations -------------------------------------------------------------------------------------------

words = st.sampled_from(["port", "name", "date", "path", "green", "seven", "done", "next", "error", "server"])
said = st.lists(words, min_size=3, max_size=12).map(" ".join)
turns = st.lists(st.tuples(said, said, st.booleans()), min_size=2, max_size=8)
"""What the user says, what is answered, whether a tool is called on the way."""


def dressed(protocol: Protocol, talk: list[tuple[str, str, bool]], upto: int, dress: int) -> bytes:
    """The request that asks for answer `upto`; `dress` picks a spelling of the same messages."""
    history: list[dict[str, Any]] = []
    for n, (asked, answered, called) in enumerate(talk[: upto + 1]):
        history.append(spoken(protocol, "user", f"{n}: {asked}", dress + n))
        if n < upto:
            history += tool_round(protocol, n, talk[0][0]) if called else []
            history.append(spoken(protocol, "assistant", f"answer {n}: {answered}", dress + n))
    key = "input" if protocol is RESPONSES else "messages"
    return json.dumps(
        {"model": "m", key: history, "stream": bool(dress % 2)}, separators=(",", ":") if dress % 3 else None
    ).encode()


def spoken(protocol: Protocol, role: str, text: str, dress: int) -> dict[str, Any]:
    kind = "text" if protocol is not RESPONSES else ("input_text" if role == "user" else "output_text")
    part: dict[str, Any] = {"type": kind, "text": text if dress % 5 else f"{text}\n"}
    if protocol is MESSAGES and dress % 2:
        part["cache_control"] = {"type": "ephemeral"}
    return {"role": role, "content": text if dress % 3 == 0 else [part]}


def tool_round(protocol: Protocol, n: int, talk: str) -> list[dict[str, Any]]:
    arguments, call = json.dumps({"command": f"ls {n}"}), f"call_{talk[:6].replace(' ', '_')}_{n}"
    if protocol is CHAT:
        function = {"name": "shell", "arguments": arguments}
        asked = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        }
        return [asked, {"role": "tool", "tool_call_id": call, "content": f"file {n}"}]
    if protocol is RESPONSES:
        return [
            {"type": "function_call", "call_id": call, "name": "shell", "arguments": arguments},
            {"type": "function_call_output", "call_id": call, "output": f"file {n}"},
        ]
    use = {"type": "tool_use", "id": call, "name": "shell", "input": json.loads(arguments)}
    result = {"type": "tool_result", "tool_use_id": call, "content": f"file {n}"}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def answer_of(protocol: Protocol, text: str) -> bytes:
    if protocol is CHAT:
        return json.dumps({"id": "c", "choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
    if protocol is RESPONSES:
        part = {"type": "output_text", "text": text}
        return json.dumps({"id": "r", "output": [{"type": "message", "role": "assistant", "content": [part]}]}).encode()
    return json.dumps({"id": "m", "role": "assistant", "content": [{"type": "text", "text": text}]}).encode()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    talks=st.lists(turns, min_size=1, max_size=3),
    path=st.sampled_from(list(PATHS)),
    dresses=st.lists(st.integers(0, 30), min_size=9, max_size=9),
)
@example(  # both got the same answer, each after a call of the same kind
    talks=[[("port port port", "port port port", True), ("port port port", "port port port", False)]] * 2,
    path="/v1/chat/completions",
    dresses=[0] * 9,
)
@example(  # where results come in messages of the user
    talks=[
        [("port port port", "port port port", called), ("port port port", "port port port", False)]
        for called in (False, True)
    ],
    path="/v1/messages",
    dresses=[0] * 9,
)
def test_conversations_side_by_side_in_changing_dress_are_never_split_and_never_taken_for_a_loss(
    talks: list[list[tuple[str, str, bool]]], path: str, dresses: list[int]
):
    protocol, index, seen = PATHS[path], SessionIndex(), {}
    ids = iter(range(1_000))
    for n in range(max(map(len, talks))):
        for which, talk in enumerate(talks):
            if n >= len(talk):
                continue
            marked = [(f"talk {which} {asked}", answered, called) for asked, answered, called in talk]
            request = protocol.read(dressed(protocol, marked, n, dresses[n]))
            step = follow(index, request, Identity(), now=float(n), new_id=lambda: f"s{next(ids)}")
            answered = protocol.read_answer(answer_of(protocol, f"answer {n}: {marked[n][1]}"), streamed=False)
            reply(index, step.session, answered, now=float(n))
            assert step.event == ("new" if n == 0 else "turn")
            assert seen.setdefault(which, step.session.id) == step.session.id
    assert len(set(seen.values())) == len(seen)


# --- the proxy itself ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory):
    path: Path = tmp_path_factory.mktemp("fuzz") / "a.db"
    made = Proxy(replace(Config(), archive=ArchiveConfig(path=path), embed=EmbedConfig(enabled="off")), None)
    yield made
    made.close()


@settings(max_examples=150, deadline=None)
@given(body=bodies, path=st.sampled_from(list(PATHS)), status=st.sampled_from([200, 400, 500]), reply_body=bodies)
def test_the_proxy_never_fails_and_changes_nothing_where_nothing_was_lost(proxy: Proxy, body, path, status, reply_body):
    async def through() -> None:
        headers = ((b"authorization", b"Bearer k"), (b"content-type", b"application/json"))
        exchange = await proxy.prepare(Arrival(method="POST", path=path, query=b"", headers=headers, body=body))
        assert exchange.inserts or exchange.body == body
        assert not [reason for reason in exchange.degraded if "error" in reason]
        await filed(proxy.file(exchange, status, reply_body, streamed=False, complete=True))
        assert not proxy.degraded["record:error"]

    asyncio.run(through())
    assert not proxy.writer.opened.faults
