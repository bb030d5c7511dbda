"""What every protocol shares: headers, encodings, events, JSON with places."""

import gc
import gzip
import json
import random
import time
import tracemalloc
import zlib
from functools import partial

import pytest
import zstandard
from clock import is_linear

from lantern_proxy.turn_blocks import without_blocks
from lantern_proxy.wire import (
    CHAT,
    MESSAGES,
    RESPONSES,
    chat,
    messages,
    protocol_of,
    read_answer,
    read_request,
    responses,
)
from lantern_proxy.wire import http as http_module
from lantern_proxy.wire.headers import identity, user_id_session
from lantern_proxy.wire.http import MAX_DECODED_BYTES, Arrival, TooLarge, accept_readable, decoded, outgoing, returning
from lantern_proxy.wire.json import WireError, canonical_json, elements, media_digest, members, parse, span, splice
from lantern_proxy.wire.sse import Ending, payloads

# parts


def test_what_a_client_may_make_as_long_as_it_likes_is_kept_short():
    long = "s" * 1_000_000
    who = identity({"x-lantern-session": long, "x-lantern-agent": long})
    assert [len(value) for _, value in who.ids] == [32]
    assert len(who.agent) <= 32
    assert who == identity({"x-lantern-session": long, "x-lantern-agent": long})
    before = http_module._readable.cache_info().currsize
    assert accept_readable([(b"accept-encoding", b"gzip, " + long.encode())]) == [(b"accept-encoding", b"gzip")]
    assert http_module._readable.cache_info().currsize == before
    with pytest.raises(WireError, match="names 4 codings"):
        decoded(b"", "gzip, gzip, gzip, gzip")


def test_a_link_of_question_marks_is_read_in_linear_time():
    assert is_linear(lambda count: partial(media_digest, {"type": "image_url", "image_url": {"url": "?" * count}}))


@pytest.mark.parametrize("query", ["?X-Amz-Signature=a&b=1", "?a=?&sig=1", "??hm=2", "?EXPIRES=9"])
def test_a_file_whose_link_was_signed_anew_is_the_same(query):
    def part(query):
        return {"type": "image_url", "image_url": {"url": f"https://files.example/a.png{query}"}}

    assert media_digest(part(query)) == media_digest(part("")) != media_digest(part("?page=2"))


# http


def arrival(**headers: str) -> Arrival:
    pairs = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return Arrival(method="POST", path="/v1/chat/completions", query=b"", headers=pairs, body=b"")


@pytest.mark.parametrize(
    ("headers", "credential"),
    [
        ({"authorization": "Bearer sk-1"}, "sk-1"),
        ({"authorization": "bearer  sk-1 "}, "sk-1"),
        ({"authorization": "Basic abc"}, "Basic abc"),
        ({"x_api_key": "sk-2"}, "sk-2"),
        ({"api_key": "sk-3"}, "sk-3"),
        ({"x_api_key": "sk-2", "authorization": "Bearer sk-1"}, "sk-1\nsk-2"),
        ({"x_api_key": "sk-1", "authorization": "Bearer sk-1"}, "sk-1"),
        ({"x_api_key": "sk-2", "authorization": "Bearer"}, "sk-2"),
        ({}, ""),
    ],
)
def test_the_credential_is_found_wherever_it_stands(headers, credential):
    assert arrival(**headers).credential() == credential


def test_hop_by_hop_headers_and_those_that_connection_names_stay_here():
    headers = (
        (b"connection", b"close, X-Mine"),
        (b"x-mine", b"1"),
        (b"te", b"trailers"),
        (b"upgrade", b"h2c"),
        (b"host", b"h"),
        (b"content-length", b"3"),
        (b"expect", b"100-continue"),
        (b"x-lantern-session", b"s"),
        (b"x-other", b"2"),
        (b"authorization", b"k"),
    )
    assert outgoing(headers) == [(b"x-other", b"2"), (b"authorization", b"k")]


def test_a_credential_goes_on_whatever_connection_says():
    assert outgoing(((b"connection", b"authorization"), (b"authorization", b"k"))) == [(b"authorization", b"k")]


def test_headers_of_an_answer_keep_their_order_case_and_repeats():
    headers = [
        (b"Set-Cookie", b"a"),
        (b"Date", b"d"),
        (b"X-Lantern-Event", b"x"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Set-Cookie", b"b"),
    ]
    assert returning(headers) == [(b"Set-Cookie", b"a"), (b"Date", b"d"), (b"Set-Cookie", b"b")]


@pytest.mark.parametrize(
    ("asked", "readable"),
    [
        (["gzip, deflate, br, zstd"], "gzip, deflate, zstd"),
        (["br"], "identity"),
        (["br;q=1.0, gzip;q=0.8, *;q=0.1"], "gzip;q=0.8"),
        (["GZIP", "br"], "GZIP"),
        ([], "identity"),
    ],
)
def test_an_answer_is_asked_for_in_an_encoding_that_can_be_read_here(asked, readable):
    headers = [(b"accept-encoding", value.encode()) for value in asked]
    assert accept_readable([(b"a", b"b"), *headers]) == [(b"a", b"b"), (b"accept-encoding", readable.encode())]


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
    "": bytes,
}
TEXT = random.Random(1).randbytes(20_000) + b"the end"


@pytest.mark.parametrize("encoding", PACKERS)
def test_encodings_are_undone(encoding):
    assert decoded(PACKERS[encoding](TEXT), encoding.upper()) == TEXT


def test_deflate_without_its_zlib_header_is_undone_too():
    assert decoded(raw_deflate(TEXT), "deflate") == TEXT


def test_several_encodings_are_undone_last_one_first():
    packed = PACKERS["zstd"](gzip.compress(TEXT))
    assert decoded(packed, "gzip, zstd") == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_several_members_are_one_text(encoding):
    pack = PACKERS[encoding]
    assert decoded(pack(TEXT) + pack(b"") + pack(b"and more"), encoding) == TEXT + b"and more"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("spoil", [lambda data: data[:-5], lambda data: data + b"junk", lambda data: b"junk" + data])
def test_a_broken_encoding_is_an_error(encoding, spoil):
    with pytest.raises(WireError):
        decoded(spoil(PACKERS[encoding](TEXT)), encoding)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_the_beginning_of_an_answer_that_broke_off_can_be_read(encoding):
    text = b"".join(b"line %d of many\n" % n for n in range(200_000))
    packed = PACKERS[encoding](text)
    came = decoded(packed[: len(packed) // 2], encoding, whole=False)
    assert came
    assert text.startswith(came)


@pytest.mark.parametrize("encoding", ["br", "compress", "aes128gcm"])
def test_an_unknown_encoding_is_an_error_that_names_it(encoding):
    with pytest.raises(WireError, match=encoding):
        decoded(b"x", encoding)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_does_not_go_off(encoding):
    packed = PACKERS[encoding](bytes(MAX_DECODED_BYTES // 4))
    with pytest.raises(WireError, match="more than"):
        decoded(packed * 5, encoding)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_what_may_be_read_of_a_body_is_all_that_is_unpacked_of_it(encoding):
    packed = PACKERS[encoding](TEXT + bytes(60_000_000))
    tracemalloc.start()
    with pytest.raises(TooLarge, match="more than 20000 bytes"):
        decoded(packed, encoding, most_bytes=20_000)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20_000_000
    assert decoded(PACKERS[encoding](TEXT), encoding, most_bytes=len(TEXT)) == TEXT


# whose body is it?


@pytest.mark.parametrize(
    ("path", "body", "api"),
    [
        ("/v1/chat/completions", {"messages": []}, "chat"),
        ("/v1/chat/completions", {"input": "hi"}, "responses"),
        ("/v1/chat/completions", {"messages": [], "input": "hi"}, "chat"),
        ("/v1/responses", {"input": "hi"}, "responses"),
        ("/v1/responses", {"messages": []}, "chat"),
        ("/v1/responses", {"messages": [], "input": "hi"}, "responses"),
    ],
)
def test_a_body_is_read_as_what_it_is_also_where_another_is_expected(path, body, api):
    wire, request = read_request(protocol_of(path), json.dumps(body).encode())
    assert (request.api, wire is {"chat": CHAT, "responses": RESPONSES}[api]) == (api, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/messages", {"input": "hi"}), ("/v1/chat/completions", {"prompt": "hi"}), ("/v1/responses", {"model": "m"})],
)
def test_a_body_that_no_protocol_of_its_path_knows_is_an_error(path, body):
    with pytest.raises(WireError):
        read_request(protocol_of(path), json.dumps(body).encode())


CHAT_STREAM = b'data: {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]}\n\n'
RESPONSES_STREAM = (
    b'data: {"type": "response.completed", "response": {"id": "resp_1", "output": [{"type": "message", '
    b'"role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}]}}\n\n'
)


@pytest.mark.parametrize("asked", [CHAT, RESPONSES])
@pytest.mark.parametrize("stream", [CHAT_STREAM, RESPONSES_STREAM])
def test_an_answer_is_read_as_what_it_is(asked, stream):
    answer = read_answer(asked, stream, streamed=True, complete=True)
    assert ([m.text for m in answer.messages], answer.complete) == (["hello"], True)


# sse


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_payloads_are_found_whatever_the_line_ends_are(newline):
    lines = [
        b": comment",
        b"event: ping",
        b"",
        b"data: {",
        b'data:"a": 1}',
        b"id: 3",
        b"",
        b"data",
        b"data: [DONE]",
        b"",
        b"data: rest",
    ]
    assert list(payloads(newline.join(lines))) == [b'{\n"a": 1}', b"[DONE]", b"rest"]


def test_a_byte_order_mark_is_passed_over():
    assert list(payloads(b"\xef\xbb\xbfdata: x\n\n")) == [b"x"]


ENDS = [
    b"data: [DONE]\n\n",
    b"data:[DONE]\r\n\r\n",
    b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
    b'data: {"type":"message_stop"}\n\n',
    b'event: response.completed\ndata: {"type": "response.completed", "response": {"output": []}}\n\n',
    b'data: {"type": "response.failed"}\r\r',
]
NOT_ENDS = [
    b'data: {"choices": [{"delta": {"content": "data: [DONE]"}}]}\n\n',
    b'data: {"text": "\\ndata: [DONE]\\n"}\n\n',
    b"x data: [DONE]\n",
    b'data: {"type": "message_delta"}\n\n',
    b": data: [DONE]\n",
    b'data: {"type":"content_block_delta","delta":{"text":"event: message_stop"}}\n\n',
]


@pytest.mark.parametrize("event", ENDS)
def test_the_end_of_a_stream_is_seen_in_any_split(event):
    stream = b'data: {"choices": []}\n\n' + event
    for cut in range(len(stream) - len(event), len(stream)):
        ending, first = Ending(), stream[:cut]
        assert ending.is_in(first) is (b"[DONE]" in first)
        assert ending.is_in(stream[cut:]) or b"[DONE]" in first


@pytest.mark.parametrize("event", NOT_ENDS)
def test_text_that_reads_like_an_end_is_none(event):
    stream = b"data: {}\n\n" + event
    for cut in range(len(stream)):
        ending = Ending()
        assert not ending.is_in(stream[:cut])
        assert not ending.is_in(stream[cut:])


# json

BODY = b' {"a" : [1.0, "x\\u00e9\\/" , {"b":null}],\n "c":1E2, "c": "\xc3\xa9" } '


def test_members_and_elements_are_views_of_their_bytes():
    top = members(BODY)
    assert {key: bytes(raw) for key, raw in top.items()} == {
        "a": b'[1.0, "x\\u00e9\\/" , {"b":null}]',
        "c": b'"\xc3\xa9"',
    }
    for raw in elements(top["a"]):
        start, end = span(BODY, raw)
        assert BODY[start:end] == bytes(raw)


@pytest.mark.parametrize(
    "text",
    ["\\ud800", "a\\uDFFFb", "\\ud83d\\ude00 \\ud83d", "\\\\ud800 \\ud800", "\\udc00\\ud800", "\\ud800\\n\\ud800x"],
)
def test_lone_surrogates_do_not_hide_a_body(text):
    whole = b'{"k": [{"text": "%s"}, 2], "l": "%s"}' % (text.encode(), text.encode())
    top = members(whole)
    assert parse(top["l"]) == json.loads(whole)["l"]
    for raw in (*top.values(), *elements(top["k"])):
        start, end = span(whole, raw)
        assert whole[start:end] == bytes(raw)
    inner = members(elements(top["k"])[0])["text"]
    start, end = span(whole, inner)
    assert whole[start:end] == b'"%s"' % text.encode()


@pytest.mark.parametrize(
    "bad", [b"", b"{", b"[1,", b"nul", b'{"a": "\\ud8"}', b"\xff", b"[" * 100_000, b'{"a": \xff}', b"{'a': 1}"]
)
def test_what_is_not_json_is_an_error(bad):
    for read in (members, elements, parse):
        with pytest.raises(WireError):
            read(bad)


def test_span_refuses_what_is_no_part():
    with pytest.raises(WireError):
        span(b'{"a": 1}', members(b'{"b": 2}')["b"])


def test_splice_does_all_edits_and_leaves_the_rest():
    assert splice(b"abcdef", [(4, 5, b"E"), (1, 1, b"+"), (2, 3, b"")]) == b"a+bdEf"


@pytest.mark.parametrize(
    ("a", "b"),
    [('{"x": 1, "y": [2]}', {"y": [2], "x": 1}), ("plain", "plain"), (" [1,2] ", [1, 2]), ('{"broken', '{"broken')],
)
def test_equal_values_have_one_canonical_text(a, b):
    assert canonical_json(a) == canonical_json(b)


def test_a_canonical_text_exists_for_anything_json_can_hold():
    deep: list = []
    for _ in range(5_000):
        deep = [deep]
    for value in (deep, "\ud800", {"a": "\udfff"}, "[" * 5_000 + "]" * 5_000, None, 1.5):
        assert isinstance(canonical_json(value), str)


# headers, paths


def test_the_most_specific_id_comes_first():
    found = identity({"session-id": "s", "x-lantern-session": "l", "thread-id": "t", "x-session-id": "", "other": "o"})
    assert [name for name, _ in found.ids] == ["x-lantern-session", "thread-id", "session-id"]
    assert identity({"x-thread-id": "t1", "x-resource-id": "r1"}).ids == (("x-thread-id", "t1"),)
    assert identity({"x-lantern-session": " \t", "thread-id": "\xa0", "x-session-id": "s"}).ids == (
        ("x-session-id", "s"),
    )


@pytest.mark.parametrize(
    ("headers", "agent", "signals"),
    [
        ({"x-claude-code-agent-id": "a1"}, "a1", set()),
        ({"x-openai-subagent": "review", "thread-id": "t"}, "t", {"side"}),
        ({"x-codex-turn-metadata": '{"request_kind": "compaction"}'}, "", {"compact"}),
        ({"x-codex-turn-metadata": '{"request_kind":"turn"}'}, "", set()),
        ({}, "", set()),
    ],
)
def test_sub_agents_and_compactions_are_told_by_headers(headers, agent, signals):
    found = identity(headers)
    assert (found.agent, found.signals) == (agent, signals)


@pytest.mark.parametrize(
    ("user_id", "session"),
    [
        ('{"session_id": "abc"}', "abc"),
        ("user_1_account__session_0a1b2c3d-4e5f", "0a1b2c3d-4e5f"),
        ("someone", ""),
        ("[1]", ""),
        ("{}", ""),
        ("17", ""),
    ],
)
def test_the_session_within_a_user_id_is_found(user_id, session):
    assert user_id_session(user_id) == session


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/v1/chat/completions", True),
        ("/chat/completions", True),
        ("/api/v1/chat/completions", True),
        ("/v1/completions", False),
        ("/v1/chat/completions/", False),
        ("/v1/models", False),
        ("/v1/messages/count_tokens", False),
        ("/", False),
    ],
)
def test_memory_paths_are_told_by_how_they_end(path, known):
    assert (protocol_of(path) is not None) == known


def seconds(work) -> float:
    """The best of two, without the collector of garbage, whose work depends on what else is there."""

    def once() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    gc.disable()
    try:
        return min(once(), once())
    finally:
        gc.enable()


def empty_members(n: int) -> None:
    decoded(gzip.compress(b"") * 20 * n, "gzip")


def sent_back(n: int) -> None:
    block = b"<restored_context passages=1>x</restored_context> and "
    assert without_blocks(b'"' + block * 40 * n + b'"') == b'"' + b" and " * 40 * n + b'"'


@pytest.mark.parametrize("work", [empty_members, sent_back])
def test_many_pieces_of_a_body_take_as_long_each_as_few(work):
    few, many = (seconds(partial(work, n)) for n in (200, 3_200))
    assert many < 100 * few, "sixteen times as many; the square of that is 256"


PIECE = "word" * 2_000
DELTAS = {
    "citations": (MESSAGES, {"type": "content_block_delta", "delta": {"citation": {"cited_text": "x"}}}, 32_000),
    "texts": (CHAT, {"choices": [{"delta": {"content": PIECE}}]}, 3_200),
    "arguments": (CHAT, {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": PIECE}}]}}]}, 3_200),
    "inputs": (MESSAGES, {"type": "content_block_delta", "delta": {"partial_json": PIECE}}, 3_200),
    "output": (RESPONSES, {"type": "response.output_text.delta", "item_id": "a", "delta": PIECE}, 3_200),
}


@pytest.mark.parametrize(("protocol", "event", "n"), DELTAS.values(), ids=DELTAS.keys())
def test_a_long_answer_takes_hardly_longer_than_events_that_say_nothing(protocol, event, n):
    def stream(each: dict) -> bytes:
        return (b"data: %s\n\n" % json.dumps(each).encode()) * n

    said, nothing = stream(event), stream({"type": "ping", "unknown": event})
    read = partial(protocol.read_answer, streamed=True)
    assert seconds(partial(read, said)) < 30 * seconds(partial(read, nothing))


@pytest.mark.parametrize(
    ("read", "field"), [(chat.read, "messages"), (messages.read, "messages"), (responses.read, "input")]
)
@pytest.mark.parametrize(
    ("held", "kind"), [("sk-ant-hidden", "a string"), (["sk-ant-hidden"], "an array"), (7, "a number"), (None, "null")]
)
def test_what_is_wrong_with_a_body_is_told_without_a_word_of_it(read, field, held, kind):
    with pytest.raises(WireError, match=kind) as told:
        read(json.dumps({"model": "m", field: [held]}).encode())
    assert "sk-" not in str(told.value)
