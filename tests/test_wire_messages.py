"""Messages: what is read out of a body, out of an answer, and what a block changes."""

import json
from typing import Any

import pytest

from lantern_proxy.turn import Request
from lantern_proxy.wire import messages
from lantern_proxy.wire.json import Insert, WireError

BLOCK = "<restored_context>\nthe port was 7443\n</restored_context>"
CACHED = {"cache_control": {"type": "ephemeral"}}


def read(body: Any) -> Request:
    return messages.read(json.dumps(body).encode())


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def test_the_system_prompt_comes_first_whether_string_or_blocks():
    one = read({"system": "be brief", "messages": [user(text("hi"))]})
    two = read({"system": [text("be brief", **CACHED)], "messages": [{"role": "user", "content": "hi"}]})
    assert [m.role for m in one.messages] == [m.role for m in two.messages] == ["system", "user"]
    assert [m.print for m in one.messages] == [m.print for m in two.messages]


def test_cache_control_that_moves_changes_no_fingerprint():
    assert (
        read({"messages": [user(text("hi", **CACHED))]}).messages[0].print
        == read({"messages": [user(text("hi"))]}).messages[0].print
    )


def test_a_system_reminder_that_comes_and_goes_changes_no_fingerprint():
    reminded = read({"messages": [user(text("<system-reminder>\nbe nice\n</system-reminder>\n"), text("hi"))]})
    assert reminded.messages[0].print == read({"messages": [user(text("hi"))]}).messages[0].print


def test_every_block_type_is_read_as_what_it_is():
    assistant = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "x"},
        text("running"),
        {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"b": 1, "a": 2}},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"title": "t"}]},
        {"type": "compaction", "content": "we fixed the port"},
    ]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("done")], "is_error": False}
    image = {"type": "image", "source": {"type": "base64", "data": "aGk="}}
    request = read({"messages": [{"role": "assistant", "content": assistant}, user(result, image)]})
    assert [i.kind for i in request.messages[0].items] == [
        "reasoning",
        "reasoning",
        "text",
        "call",
        "call",
        "result",
        "compaction",
    ]
    assert [(i.kind, i.role) for i in request.messages[1].items] == [("result", "tool"), ("media", "user")]
    assert request.messages[0].items[3].text == '{"a":2,"b":1}'
    assert request.messages[1].items[0].ids == request.messages[0].items[3].ids == ("toolu_1",)


@pytest.mark.parametrize(
    "user_id", ['{"device_id":"d","session_id":"19941170-655e-48b7"}', "user_abc_account__session_19941170-655e-48b7"]
)
def test_the_session_in_a_user_id_is_found_in_both_of_its_forms(user_id):
    assert read({"messages": [], "metadata": {"user_id": user_id}}).ids == (("user_id", "19941170-655e-48b7"),)


def test_a_user_id_that_names_a_person_is_no_session():
    assert read({"messages": [], "metadata": {"user_id": "user-42"}}).ids == ()


def test_a_body_without_messages_is_refused_and_so_passes_through():
    with pytest.raises(WireError, match="without messages"):
        read({"model": "m"})


CONTENT = [
    {"type": "thinking", "thinking": "let me see", "signature": "c2ln"},
    {"type": "text", "text": "the port is 7443"},
    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
]


def stream(*, upto: int | None = None) -> bytes:
    start = {"thinking": {"type": "thinking", "thinking": "", "signature": ""}, "text": text("")}
    data: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "content": []}},
        {"type": "ping"},
    ]
    deltas = [
        [
            {"type": "thinking_delta", "thinking": "let me "},
            {"type": "thinking_delta", "thinking": "see"},
            {"type": "signature_delta", "signature": "c2ln"},
        ],
        [{"type": "text_delta", "text": "the port "}, {"type": "text_delta", "text": "is 7443"}],
        [
            {"type": "input_json_delta", "partial_json": '{"comm'},
            {"type": "input_json_delta", "partial_json": 'and": "ls"}'},
        ],
    ]
    for index, block in enumerate(CONTENT):
        begun = start.get(block["type"], {**block, "input": {}})
        data.append({"type": "content_block_start", "index": index, "content_block": begun})
        data += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas[index]]
        data.append({"type": "content_block_stop", "index": index})
    data += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    return b"".join(f"event: {d['type']}\ndata: {json.dumps(d)}\n\n".encode() for d in data[:upto])


def test_an_answer_reads_the_same_streamed_and_not():
    whole = messages.read_answer(
        json.dumps({"id": "msg_1", "role": "assistant", "content": CONTENT}).encode(), streamed=False
    )
    streamed = messages.read_answer(stream(), streamed=True)
    assert json.loads(streamed.messages[0].raw)["content"] == CONTENT
    assert whole.messages[0].print == streamed.messages[0].print
    assert whole.ids == streamed.ids == ("msg_1",)
    assert streamed.complete


@pytest.mark.parametrize("wrong", ["a", [1], None])
def test_a_stream_whose_indexes_are_no_numbers_is_read_block_by_block(wrong: Any):
    told = [json.loads(line[6:]) for line in stream().decode().splitlines() if line.startswith("data: ")]
    odd = [each | {"index": wrong} if "index" in each else each for each in told]
    streamed = messages.read_answer(b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in odd), streamed=True)
    assert json.loads(streamed.messages[0].raw)["content"] == CONTENT


def test_what_came_of_a_stream_that_broke_off_is_kept_and_marked():
    answer = messages.read_answer(stream(upto=9), streamed=True)
    assert answer.text == "the port is 7443"[: len(answer.text)]
    assert answer.text
    assert not answer.complete


def test_a_block_goes_in_front_of_a_part_that_is_cached_and_stays_there_when_the_mark_moves_on():
    marked = read({"system": "s", "messages": [user(text("summary"), text("go on", **CACHED))]})
    place = messages.settle_place(marked, 1, "inside")
    assert place == "before"
    shapes = [user(text("summary"), text("go on", **CACHED)), user(text("summary"), text("go on"))]
    sent = [
        json.loads(
            messages.inject(json.dumps({"system": "s", "messages": [shape]}).encode(), [Insert(1, place, BLOCK)])
        )
        for shape in shapes
    ]
    assert [[part["text"] for part in body["messages"][0]["content"]] for body in sent] == [
        ["summary", BLOCK, "go on"]
    ] * 2


def test_a_block_that_is_in_front_stays_in_front_when_the_client_sends_a_string_instead():
    body = b'{"messages":[{"role":"user","content":"go on"}]}'
    assert (
        json.loads(messages.inject(body, [Insert(0, "before", BLOCK)]))["messages"][0]["content"] == f"{BLOCK}\n\ngo on"
    )


def test_a_tool_result_stays_first_in_its_message():
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done", **CACHED}
    request = read({"messages": [user(result)]})
    assert messages.settle_place(request, 0, "after") == "after"
    body = json.dumps({"messages": [user(result, text("and now?"))]}).encode()
    content = json.loads(messages.inject(body, [Insert(0, "inside", BLOCK)]))["messages"][0]["content"]
    assert [part["type"] for part in content] == ["tool_result", "text", "text"]


def test_a_request_that_continues_a_thread_holds_only_what_is_new():
    request = read({"messages": [user(text("go on"))], "thread": {"type": "continue", "previous_message_id": "msg_1"}})
    assert request.delta
    assert request.ids == (("previous_message_id", "msg_1"),)


@pytest.mark.parametrize("thread", [None, {"type": "create"}, "new", {"previous_message_id": None}])
def test_a_request_that_continues_no_thread_holds_all_of_it(thread):
    request = read({"messages": [user(text("hi"))], "thread": thread})
    assert not request.delta
    assert request.ids == ()


def test_a_request_for_a_compaction_says_so_of_itself():
    assert read({"messages": [], "compaction": {"type": "summarize"}}).signals == {"compact"}
    assert read({"messages": [], "compaction": None}).signals == read({"messages": []}).signals == frozenset()
