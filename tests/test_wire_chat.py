"""Chat completions: bytes to record, and blocks back into the bytes."""

import copy
import json

import pytest

from lantern_proxy.turn import Request
from lantern_proxy.wire import chat
from lantern_proxy.wire.json import Insert, WireError

TEXT = '<restored_context id="1">port 8484, "quoted", back\\slash, é 漢\n</restored_context>'


def request(*messages: dict, **more) -> bytes:
    return json.dumps({"model": "m", "messages": list(messages), **more}).encode()


def user(content) -> dict:
    return {"role": "user", "content": content}


def read(*messages: dict, **more) -> Request:
    return chat.read(request(*messages, **more))


# reading

CALL = {"id": "call_1", "type": "function", "function": {"name": "grep", "arguments": '{"b": 1, "a": "x"}'}}


def test_a_request_is_read_with_all_its_kinds_of_items():
    found = read(
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "text", "text": "no lists"}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "u"}}],
        },
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "3 hits"}]},
        {"role": "assistant", "content": "", "refusal": "I will not"},
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        {"role": "function", "name": "old", "content": "result"},
        tools=[{"type": "function", "function": {"name": "grep"}}, {"type": "web_search"}],
        stream=True,
    )
    kinds = [[i.kind for i in m.items] for m in found.messages]
    assert kinds == [
        ["text"],
        ["text"],
        ["text", "media"],
        ["reasoning", "call"],
        ["result"],
        ["text", "text"],
        ["media"],
        ["result"],
    ]
    assert [m.role for m in found.messages] == [
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "assistant",
        "assistant",
        "tool",
    ]
    assert found.messages[3].calls[0].text == '{"a":"x","b":1}'
    assert found.messages[3].ids == found.messages[4].ids == ("call_1",)
    assert found.messages[6].ids == ("audio_1",)
    assert (found.tools, found.stream, found.model) == ({"grep", "web_search"}, True, "m")


@pytest.mark.parametrize(
    ("choice", "may_call"),
    [("auto", {"grep"}), ("required", {"grep"}), (None, {"grep"}), ("none", set()), ({"type": "none"}, set())],
)
def test_a_tool_that_may_not_be_called_is_no_tool(choice, may_call):
    tools = [{"type": "function", "function": {"name": "grep"}}]
    assert read(user("hi"), tools=tools, tool_choice=choice).tools == may_call


def test_a_message_keeps_its_bytes():
    body = b'{"messages": [ {"role":"user" , "content":"\\u00e9  x"} , {"content" : null,"role":"assistant"}]}'
    assert [m.raw for m in chat.read(body).messages] == [
        b'{"role":"user" , "content":"\\u00e9  x"}',
        b'{"content" : null,"role":"assistant"}',
    ]


DRESSES = [
    (user("hello  there"), user([{"type": "text", "text": "hello there\n"}])),
    (user("hi"), user([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])),
    (user("hi"), {"content": "hi", "role": "user", "name": "ann"}),
    (user("hi"), user("<system-reminder>today is Monday</system-reminder>hi")),
    (user("hi"), user("hi\n\n" + TEXT)),
    (
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "tool_calls": [CALL | {"id": "other"}]},
    ),
    ({"role": "assistant", "content": "yes", "reasoning_content": "think"}, {"role": "assistant", "content": "yes"}),
]


@pytest.mark.parametrize(("a", "b"), DRESSES)
def test_a_message_is_recognised_in_another_dress(a, b):
    assert read(a).messages[0].print == read(b).messages[0].print


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (user("hi"), user("ho")),
        (user("hi"), {"role": "assistant", "content": "hi"}),
        ({"role": "system", "content": "hi"}, {"role": "developer", "content": "hi"}),
        (
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "assistant", "tool_calls": [CALL | {"function": {"name": "sed"}}]},
        ),
        (
            user([{"type": "image_url", "image_url": {"url": "a"}}]),
            user([{"type": "image_url", "image_url": {"url": "b"}}]),
        ),
    ],
)
def test_different_messages_are_told_apart(a, b):
    assert read(a).messages[0].print != read(b).messages[0].print


def test_ids_of_the_body_name_the_session_but_persons_do_not():
    found = read(
        user("x"), metadata={"session_id": "s1", "other": 1}, prompt_cache_key="k", user="ann", safety_identifier="p"
    )
    assert found.ids == (("metadata", "s1"), ("prompt_cache_key", "k"))
    assert read(user("x"), metadata="text", prompt_cache_key=None).ids == ()


@pytest.mark.parametrize(
    "bad",
    [b"{}", b"[]", b"null", b'{"messages": null}', b'{"messages": {}}', b'{"messages": [1]}', b'{"messages": ["x"]}'],
)
def test_what_is_no_chat_completion_is_an_error(bad):
    with pytest.raises(WireError):
        chat.read(bad)


ODD = [
    {},
    {"role": None},
    {"role": 5, "content": 5},
    {"content": {"text": "x"}},
    {"role": "user", "content": [None, 3, "text", {"type": None}]},
    {
        "role": "assistant",
        "tool_calls": [None, {}, {"function": None}, {"function": "x"}, {"custom": {"name": "c", "input": "i"}}],
    },
    {"role": "assistant", "tool_calls": "no", "function_call": 3},
    {"role": "tool"},
    {"role": "tool", "content": None, "tool_call_id": 7},
    {"role": "assistant", "audio": "x", "refusal": 1, "reasoning": ["x"]},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_message_is_understood_somehow(odd):
    assert len(read(user("x"), odd).messages) == 2


# answers


def chunk(index: int = 0, *, finish=None, id_="chatcmpl-1", **delta) -> bytes:
    data = {"id": id_, "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}
    return f"data: {json.dumps(data)}\n\n".encode()


def test_a_whole_answer_is_read_choice_by_choice():
    body = json.dumps(
        {"id": "c1", "choices": [{"message": {"role": "assistant", "content": t}} for t in "ab"]}
    ).encode()
    found = chat.read_answer(body, streamed=False)
    assert ([m.text for m in found.messages], found.ids, found.complete) == (["a", "b"], ("c1",), True)


SPOKEN = {"id": "audio_1", "expires_at": 1, "data": "UklG", "transcript": "The relay is number 71."}


def test_the_transcript_of_a_spoken_answer_is_read_and_clients_may_leave_it_out():
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": None, "audio": SPOKEN}}]}).encode()
    parts = [{"id": "audio_1", "transcript": "The relay is "}, {"transcript": "number 71."}, {"data": "Ukl"},
             {"data": "G"}, {"expires_at": 1}]  # fmt: skip
    stream = b"".join(chunk(audio=part) for part in parts) + chunk(finish="stop")
    shown = read(user("x"), {"role": "assistant", "audio": {"id": "audio_1"}}).messages[1]
    for found in (chat.read_answer(body, streamed=False), chat.read_answer(stream, streamed=True)):
        assert found.messages[0].text == SPOKEN["transcript"]
        assert (found.messages[0].ids, found.messages[0].print) == (("audio_1",), shown.print)


def test_a_streamed_answer_reads_as_the_same_answer_whole():
    parts = [
        chunk(role="assistant", content=""),
        chunk(content="Hel"),
        chunk(content="lo "),
        chunk(reasoning_content="think"),
        chunk(content="😀"),
        chunk(
            tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": {"name": "grep", "arguments": ""}}]
        ),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"b": 1, '}}]),
        chunk(
            tool_calls=[{"index": 1, "id": "call_2", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]
        ),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '"a": "x"}'}}]),
        chunk(finish="tool_calls"),
        b'data: {"id": "chatcmpl-1", "choices": [], "usage": {"total_tokens": 9}}\n\n',
        b"data: [DONE]\n\n",
    ]
    found = chat.read_answer(b"".join(parts), streamed=True)
    other = {"id": "call_2", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    whole = {"role": "assistant", "content": "Hello 😀", "reasoning_content": "think", "tool_calls": [CALL, other]}
    assert found.messages[0].print == read(whole).messages[0].print
    assert found.messages[0].ids == ("call_1", "call_2")
    assert (found.ids, found.complete) == (("chatcmpl-1",), True)


def test_a_character_that_two_chunks_share_is_one_character():
    data = [
        b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": "\\ude00!"}}]}\n\n',
    ]
    assert chat.read_answer(b"".join(data), streamed=True).text == "\U0001f600!"


def test_text_that_is_streamed_in_parts_is_put_together():
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "Which port?"}]}]
    parts = [[], thought, [{"type": "text", "text": "Port "}, {"type": "reference", "ids": [1]}], "7431", thought]
    data = b"".join(chunk(content=part) for part in parts)
    assert chat.read_answer(data, streamed=True).text == "Port 7431"


def test_several_streamed_choices_are_kept_apart():
    parts = [chunk(1, content="b"), chunk(0, content="a"), chunk(1, content="B"), chunk(0, content="A", finish="stop")]
    assert [m.text for m in chat.read_answer(b"".join(parts), streamed=True).messages] == ["aA", "bB"]


def test_what_came_of_a_broken_stream_is_partial():
    broken = b"".join([chunk(content="the begin"), chunk(content="ning")]) + b'data: {"choices": [{"del'
    found = chat.read_answer(broken, streamed=True, complete=False)
    assert (found.text, found.complete) == ("the beginning", False)


ODD_ANSWERS = [
    b"",
    b"<html>",
    b"{}",
    b"[]",
    b'{"choices": null}',
    b'{"choices": [null]}',
    b'{"choices": [{"message": null}]}',
    b'{"error": {}}',
    b"data: {}\n\n",
    b'data: {"choices": [null, {"delta": null}]}\n\n',
    b'data: {"choices": [{"delta": "x"}]}\n\n',
    b"data: [1]\n\n",
    b'data: {"choices": [{"delta": {"tool_calls": [null, {"index": "x"}]}}]}\n\n',
    b'data: {"choices": "x"}\n\n',
    b'data: {"choices": [{"index": [], "delta": {"content": "x"}}]}\n\n',
    b'data: {"choices": [{"delta": {"tool_calls": "ab"}}]}\n\n',
    b'data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": 5, "arguments": {}}}]}}]}\n\n',
    b'data: {"choices": {"a": 1}}\n\n',
    b'data: {"choices": [{"delta": {"content": ["x"]}}]}\n\n',
    b'data: {"choices": 5}\n\n',
]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("odd", ODD_ANSWERS)
def test_an_odd_answer_is_read_without_complaint(odd, streamed):
    assert isinstance(chat.read_answer(odd, streamed=streamed).text, str)


# blocks

CONTENTS = {
    "text": "Which port?",
    "empty": "",
    "escapes": 'a "b" \\ \n é',
    "parts": [{"type": "text", "text": "Which?"}],
    "no parts": [],
    "cache": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    "media last": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}],
}


@pytest.mark.parametrize("place", ["inside", "before", "after"])
@pytest.mark.parametrize("name", CONTENTS)
def test_a_block_is_all_that_a_request_gains(name, place):
    sent = json.loads(request(user("first"), user(copy.deepcopy(CONTENTS[name])), user("last"), temperature=1.0))
    got = json.loads(chat.inject(json.dumps(sent).encode(), [Insert(1, place, TEXT)]))
    if place == "after":
        assert got["messages"].pop(2) == user(TEXT)
    elif isinstance(CONTENTS[name], str):
        assert got["messages"][1]["content"] == (
            f"{TEXT}\n\n{CONTENTS[name]}" if place == "before" else f"{CONTENTS[name]}\n\n{TEXT}"
        )
        got["messages"][1]["content"] = CONTENTS[name]
    else:
        got["messages"][1]["content"].remove({"type": "text", "text": TEXT})
    assert got == sent


def test_bytes_around_a_block_are_kept():
    sent = (
        b' {"n":1.0 ,"messages" : [ {"role":"user","content" : "\\u0041" } ,{"role":"user","content":"b"} ],"x":1E2} '
    )
    block = json.dumps("\n\n" + TEXT, ensure_ascii=False)[1:-1].encode()
    assert chat.inject(sent, [Insert(0, "inside", TEXT)]) == sent.replace(b'\\u0041"', b"\\u0041" + block + b'"')


def test_several_blocks_at_one_message_keep_their_order():
    got = json.loads(
        chat.inject(
            request(user("q"), user("r")),
            [Insert(0, "inside", "ONE"), Insert(1, "after", "X"), Insert(0, "inside", "TWO")],
        )
    )
    assert [m["content"] for m in got["messages"]] == ["q\n\nONE\n\nTWO", "r", "X"]


@pytest.mark.parametrize("content", [None, {}, 5])
def test_a_block_is_refused_where_there_is_no_text_to_put_it_into(content):
    with pytest.raises(WireError):
        chat.inject(request(user(content)), [Insert(0, "inside", TEXT)])


@pytest.mark.parametrize("at", [-1, 1, 9])
def test_a_block_for_a_message_that_is_not_there_is_refused(at):
    with pytest.raises(WireError):
        chat.inject(request(user("x")), [Insert(at, "inside", TEXT)])


def test_a_block_with_half_a_character_is_still_json():
    got = json.loads(chat.inject(request(user("x")), [Insert(0, "inside", "a \ud800 b")]))
    assert got["messages"][0]["content"] == "x\n\na ? b"


@pytest.mark.parametrize("index", [0, None])
def test_streamed_calls_that_share_an_index_are_kept_apart_by_their_ids(index):
    at = {} if index is None else {"index": index}
    parts = [
        chunk(tool_calls=[{**at, "id": f"call_{name}", "type": "function",
                           "function": {"name": name, "arguments": f'{{"file": "{name}"}}'}}])
        for name in ("read", "write")
    ]  # fmt: skip
    [found] = chat.read_answer(b"".join([*parts, chunk(finish="tool_calls")]), streamed=True).messages
    assert [(i.name, i.text, i.ids) for i in found.calls] == [
        ("read", '{"file":"read"}', ("call_read",)),
        ("write", '{"file":"write"}', ("call_write",)),
    ]


def test_a_streamed_call_whose_pieces_have_ids_of_their_own_is_one_call():
    parts = [
        chunk(tool_calls=[{"index": 0, "id": "call_1", "function": {"name": "grep", "arguments": '{"b"'}}]),
        chunk(tool_calls=[{"index": 0, "id": "call_2", "function": {"arguments": ": 1}"}}]),
    ]
    [found] = chat.read_answer(b"".join([*parts, chunk(finish="tool_calls")]), streamed=True).messages
    assert [(i.name, i.text) for i in found.calls] == [("grep", '{"b":1}')]


def test_a_streamed_function_call_is_put_together():
    parts = [
        chunk(function_call={"name": "look", "arguments": ""}),
        chunk(function_call={"arguments": '{"a"'}),
        chunk(function_call={"arguments": ": 1}"}),
    ]
    [found] = chat.read_answer(b"".join([*parts, chunk(finish="function_call")]), streamed=True).messages
    assert [(i.name, i.text) for i in found.calls] == [("look", '{"a":1}')]
