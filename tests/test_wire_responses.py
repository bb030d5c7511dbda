"""Responses: what is read out of a body, out of an answer, and what a block changes."""

import json
from typing import Any

import pytest

from lantern_proxy.turn import Request, message
from lantern_proxy.wire import responses
from lantern_proxy.wire.json import Insert, WireError

BLOCK = "<restored_context>\nthe port was 7443\n</restored_context>"


def read(body: Any) -> Request:
    return responses.read(json.dumps(body).encode())


def test_a_string_input_is_one_user_message_behind_the_instructions():
    request = read({"model": "m", "instructions": "be brief", "input": "hi"})
    assert [(m.role, m.text) for m in request.messages] == [("system", "be brief"), ("user", "hi")]


def test_every_item_type_is_read_as_what_it_is():
    request = read(
        {
            "input": [
                {"role": "developer", "content": "rules"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "run it"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "call_1", "name": "shell", "arguments": '{"b": 1, "a": 2}'},
                {"type": "function_call_output", "call_id": "call_1", "output": "done"},
                {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "*** Begin"},
                {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "text", "text": "ok"}]},
                {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "port"}},
                {"type": "item_reference", "id": "msg_7"},
                {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"},
                {"type": "something_new", "id": "n_1", "payload": [1, 2]},
            ]
        }
    )  # fmt: skip
    kinds = [m.items[0].kind for m in request.messages]
    assert kinds == [
        "text",
        "text",
        "reasoning",
        "call",
        "result",
        "call",
        "result",
        "call",
        "ref",
        "compaction",
        "media",
    ]
    assert request.messages[3].items[0].text == '{"a":2,"b":1}'
    assert request.messages[4].items[0].ids == ("call_1",)
    assert request.messages[8].items[0].ids == ("msg_7",)


def test_a_compaction_is_known_by_the_hash_of_what_it_seals_and_by_its_id():
    one, two = (
        read({"input": [{"type": "compaction", "id": i, "encrypted_content": "sealed"}]}) for i in ("cmp_1", "cmp_2")
    )
    assert set(one.messages[0].ids) & set(two.messages[0].ids)
    assert one.messages[0].ids != two.messages[0].ids


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"previous_response_id": "resp_1", "input": "go on"}, ("previous_response_id", "resp_1")),
        ({"conversation": {"id": "conv_1"}, "input": "go on"}, ("conversation", "conv_1")),
        ({"conversation": "conv_1", "input": "go on"}, ("conversation", "conv_1")),
    ],
)
def test_a_request_that_continues_stored_state_is_a_delta_and_names_it(body, ids):
    request = read(body)
    assert request.delta
    assert request.ids[0] == ids


def test_a_request_to_compact_says_so_by_its_path_or_by_its_trigger():
    body = b'{"input": [{"role": "user", "content": "hi"}]}'
    assert "compact" in responses.read(body, compact=True).signals
    assert "compact" in read({"input": [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]}).signals
    assert not responses.read(body).signals


def test_a_body_without_input_is_refused_and_so_passes_through():
    with pytest.raises(WireError, match="without input"):
        read({"model": "m"})


def events(*data: Any) -> bytes:
    return b"".join(f"event: {d['type']}\ndata: {json.dumps(d)}\n\n".encode() for d in data)


OUTPUT = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "the port is 7443"}],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": "{}"},
]


def test_an_answer_reads_the_same_streamed_and_not():
    whole = responses.read_answer(json.dumps({"id": "resp_1", "output": OUTPUT}).encode(), streamed=False)
    stream = events(
        {"type": "response.created", "response": {"id": "resp_1", "output": []}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "the port"},
        *({"type": "response.output_item.done", "item": i} for i in OUTPUT),
        {"type": "response.completed", "response": {"id": "resp_1", "output": OUTPUT}},
    )
    streamed = responses.read_answer(stream, streamed=True)
    assert [m.print for m in whole.messages] == [m.print for m in streamed.messages]
    assert whole.ids == streamed.ids == ("resp_1",)
    assert whole.complete
    assert streamed.complete


def test_what_came_of_a_stream_that_broke_off_is_kept_and_marked():
    stream = events(
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "item": OUTPUT[0]},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "the port is "},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "74"},
    )
    answer = responses.read_answer(stream + b'event: response.output_text.delta\ndata: {"type": "resp', streamed=True)
    assert answer.text == "the port is 74"
    assert not answer.complete


@pytest.mark.parametrize("output", [[], OUTPUT[:1], OUTPUT[:2], [OUTPUT[0], OUTPUT[1] | {"id": "another"}]])
def test_what_was_said_of_an_answer_without_an_end_of_its_own_is_read_once(output):
    stream = events(
        {"type": "response.output_item.done", "item": OUTPUT[0]},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "the port is 7443"},
        {"type": "response.incomplete", "response": {"id": "resp_1", "output": output}},
    )
    answer = responses.read_answer(stream, streamed=True)
    assert [m.items[0].kind for m in answer.messages] == ["reasoning", "text"]
    assert answer.text == "the port is 7443"
    assert answer.complete


@pytest.mark.parametrize("ending", ["response.failed", "response.incomplete"])
def test_a_later_message_of_which_only_pieces_came_is_kept_beside_what_the_end_tells(ending):
    first = {"type": "message", "id": "m1", "role": "assistant", "content": "First part."}
    answer = responses.read_answer(events(
        {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "delta": "First part."},
        {"type": "response.output_item.done", "item": first},
        {"type": "response.output_text.delta", "item_id": "m2", "output_index": 1, "delta": "the port is 7443"},
        {"type": ending, "response": {"id": "resp_1", "output": [first]}},
    ), streamed=True)  # fmt: skip
    assert [m.text for m in answer.messages] == ["First part.", "the port is 7443"]


@pytest.mark.parametrize("done", [True, False])
def test_an_item_with_another_id_in_each_of_its_events_is_one(done):
    """As some gateways name it."""
    whole = {"type": "message", "id": "x3", "role": "assistant", "content": "the port is 7443"}
    answer = responses.read_answer(events(
        {"type": "response.output_text.delta", "item_id": "x1", "output_index": 0, "delta": "the port "},
        {"type": "response.output_text.delta", "item_id": "x2", "output_index": 0, "delta": "is 7443"},
        *([{"type": "response.output_item.done", "output_index": 0, "item": whole}] if done else []),
        {"type": "response.failed", "response": {"id": "resp_1", "output": []}},
    ), streamed=True)  # fmt: skip
    assert [m.text for m in answer.messages] == ["the port is 7443"]


def test_user_messages_that_a_compaction_repeats_are_not_taken_for_answers():
    output = [{"role": "user", "content": "mine"}, {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}]
    answer = responses.read_answer(json.dumps({"id": "resp_1", "output": output}).encode(), streamed=False)
    assert [m.items[0].kind for m in answer.messages] == ["compaction"]


def test_a_block_rides_inside_a_user_message_of_any_shape_and_nothing_else_changes():
    body = (
        b'{"instructions":"be brief","input":[{"role":"user","content":"hi"} , '
        b'{"role":"user","content":[{"type":"input_text","text":"x"}]}],"n":1.50}'
    )
    got = responses.inject(body, [Insert(1, "inside", BLOCK), Insert(2, "inside", BLOCK)])
    data = json.loads(got)
    assert data["input"][0]["content"] == f"hi\n\n{BLOCK}"
    assert data["input"][1]["content"][1] == {"type": "input_text", "text": BLOCK}
    assert b'"n":1.50' in got


def test_a_block_after_a_sealed_compaction_is_a_user_item_of_its_own():
    body = b'{"input":[{"type":"compaction","id":"cmp_1","encrypted_content":"x"},{"role":"user","content":"hi"}]}'
    data = json.loads(responses.inject(body, [Insert(0, "after", BLOCK)]))
    assert [i.get("type") for i in data["input"]] == ["compaction", "message", None]
    assert data["input"][1]["content"] == [{"type": "input_text", "text": BLOCK}]


def test_a_string_input_takes_the_block_at_its_end():
    request = read({"input": "hi"})
    assert responses.settle_place(request, 0, "after") == "inside"
    assert json.loads(responses.inject(b'{"input":"hi"}', [Insert(0, "inside", BLOCK)]))["input"] == f"hi\n\n{BLOCK}"


def test_an_item_reads_the_same_with_and_without_what_clients_leave_out():
    full = responses.read_item(json.dumps(OUTPUT[1]).encode())
    bare = responses.read_item(
        b'{"role":"assistant","content":[{"type":"output_text","text":"the  port is 7443","annotations":[]}]}'
    )
    assert full.print == bare.print == message("assistant", full.items, b"").print
