"""A body that goes on from another one reads as it does when it is read whole."""

import json
import random

import pytest

from lantern_proxy.wire import CHAT, MESSAGES, RESPONSES
from lantern_proxy.wire.incremental import LEAST_BYTES, Rereads, again, seen


def element(draw: random.Random, protocol) -> dict:
    text = f'say "messages": [{draw.random()}] \\ \u00e9 \ud83d\ude00 ' * draw.randint(1, 40)
    role = draw.choice(["user", "assistant"])
    if protocol is RESPONSES and draw.random() < 0.3:
        return {"type": "function_call_output", "call_id": f"c{draw.random()}", "output": text}
    content = text if draw.random() < 0.5 else [{"type": "text", "text": text}]
    return {"role": role, "content": content}


def bodies(protocol, draw: random.Random):
    """A growing conversation, dressed as its client dresses it."""
    head = {"model": "m", "stream": True}
    tail = {"tools": [{"type": "function", "function": {"name": "f"}}], "metadata": {"session_id": "s"}}
    if protocol is MESSAGES:
        (head if draw.random() < 0.5 else tail)["system"] = "You help."
    if protocol is RESPONSES:
        head["instructions"] = "You help."
    separators = draw.choice([(",", ":"), (", ", ": ")])
    items = [element(draw, protocol)]
    for _ in range(12):
        tail["temperature"] = draw.random()
        yield json.dumps({**head, protocol.key: items, **tail}, separators=separators).encode()
        items = [*items, *(element(draw, protocol) for _ in range(draw.randint(1, 3)))]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("protocol", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])
def test_what_follows_is_read_as_if_all_of_it_were(protocol, seed):
    known, taken = None, 0
    for body in bodies(protocol, random.Random(seed)):
        whole = protocol.read(body)
        found = again(known, body) if known else None
        if found is not None:
            assert found[0] == whole
            assert found[1] == seen(protocol.read, protocol.key, body, whole)
            known, taken = found[1], taken + 1
        else:
            known = seen(protocol.read, protocol.key, body, whole)
    assert taken >= 10


def chat(*texts: str, **more) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text} for text in texts], **more}).encode()


@pytest.mark.parametrize(
    "body",
    [
        chat("one", "two"),
        chat("one", "other", "three"),
        chat("one", "two") + b", not JSON",
        chat("one", "two", "three")[:-9],
        b'{"messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}, 5]}',
    ],
    ids=["the same", "another history", "garbage behind", "cut off", "no message"],
)
def test_what_does_not_go_on_is_left_to_be_read_whole(body):
    first = chat("one", "two")
    assert again(seen(CHAT.read, "messages", first, CHAT.read(first)), body) is None


def test_a_second_member_of_the_same_name_counts_as_it_does_in_json():
    first = chat("one", "two")
    body = first[:-2] + b', {"role": "user", "content": "three"}], "messages": [{"role": "user", "content": "four"}]}'
    found = again(seen(CHAT.read, "messages", first, CHAT.read(first)), body)
    assert found is None or found[0] == CHAT.read(body)


def test_nothing_of_one_tenant_is_compared_with_anothers():
    rereads, first, second = Rereads(), chat("x" * LEAST_BYTES), chat("x" * LEAST_BYTES, "two")
    rereads.keep("a", seen(CHAT.read, "messages", first, CHAT.read(first)))
    assert rereads.read("b", CHAT.read, second) is None
    assert rereads.read("a", CHAT.read, second) == CHAT.read(second)


@pytest.mark.parametrize("where", ["opening", "message"])
def test_a_body_that_goes_on_with_much_is_left_to_a_thread(where):
    much, little = "x" * 300_000, "x" * LEAST_BYTES
    first, then = (little, little) if where == "opening" else (little, much)
    more = {"system": much} if where == "opening" else {}
    bodies = [json.dumps({**more, **json.loads(chat(*texts))}).encode() for texts in ([first], [first, then])]
    rereads = Rereads()
    rereads.keep("a", seen(CHAT.read, "messages", bodies[0], CHAT.read(bodies[0])))
    assert again(seen(CHAT.read, "messages", bodies[0], CHAT.read(bodies[0])), bodies[1]) is not None
    assert rereads.read("a", CHAT.read, bodies[1]) is None


def test_what_is_kept_is_bounded():
    rereads, big = Rereads(), "x" * 4_000_000
    for n in range(60):
        body = chat(f"{n}{big}")
        rereads.keep(f"t{n % 30}", seen(CHAT.read, "messages", body, CHAT.read(body)))
    assert sum(len(s.prefix) for kept in rereads._kept.values() for s in kept) <= 64 << 20
