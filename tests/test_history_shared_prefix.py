"""What goes on from a known history is understood as if all of it were looked at."""

import random
import sys

import pytest
from msgspec import structs
from msgspec.structs import replace

from lantern_proxy.compaction import _event, compare
from lantern_proxy.compaction.diff import diff_of
from lantern_proxy.history import advance, answered, begin
from lantern_proxy.history.forms import shows_system_of
from lantern_proxy.history.record import chains, goes_on
from lantern_proxy.history.shared_prefix import forget_all
from lantern_proxy.turn import Answer, Message, Request, fingerprint, item, message


def spoken(draw: random.Random, n: int, role: str = "") -> Message:
    role = role or draw.choice(["user", "assistant", "tool"])
    if role == "assistant" and draw.random() < 0.2:
        return message(role, [item(role, "reasoning", f"think {draw.randint(0, 3)}")], f"{n % 3}".encode())
    if role == "assistant" and draw.random() < 0.3:
        return message(role, [item(role, "call", f'{{"a":{n}}}', name="f", ids=[f"c{n}"])], f"call {n}".encode())
    text = draw.choice(["go on", f"text {n} {draw.random()}"])
    return message(role, [item(role, "result" if role == "tool" else "text", text)], f"{n} {draw.random()}".encode())


def resent(draw: random.Random, history: list[Message]) -> list[Message]:
    """As a client sends it again: mostly the same, now and then dressed otherwise, edited, or cut."""
    history, at, how = list(history), draw.randrange(len(history)), draw.random()
    if how < 0.2:
        history[at] = structs.replace(history[at], raw=b"dressed " + history[at].raw)
    elif how < 0.3:
        history[at] = spoken(draw, 900)
    elif how < 0.4:
        del history[at]
    elif how < 0.5 and history and history[0].role == "system":
        history[0] = message("system", [item("system", "text", f"You help. {draw.random()}")], b"s")
    return history


def steps(seed: int):
    """(session, the request that comes next) of one conversation."""
    draw = random.Random(seed)
    api = draw.choice(["chat", "responses", "messages"])
    history = [message("system", [item("system", "text", "You help.")], b"s"), spoken(draw, 0, "user")]
    request = Request(api=api, model="m", messages=tuple(history))
    session, _ = advance(begin(request, session_id="s", now=0.0), request, (None, None), now=0.0)
    for step in range(10):
        said = tuple(spoken(draw, 100 + step, "assistant") for _ in range(draw.randint(1, 2)))
        session, _ = answered(session, Answer(messages=said), now=1.0)
        more = [spoken(draw, 10 * step + n) for n in range(draw.randint(0, 3))]
        leading = said if api == "responses" else said[:1]
        request = replace(request, messages=tuple(resent(draw, [*request.messages, *leading, *more])))
        yield session, request
        session, _ = advance(session, request, compare(session, request).kept, now=2.0)


@pytest.mark.parametrize("seed", range(60))
def test_a_request_that_goes_on_gets_the_verdict_that_a_look_at_all_of_it_gives(seed):
    went_on = 0
    for session, request in steps(seed):
        verdict, seen = compare(session, request), diff_of(session, request, ())
        assert (verdict.event, verdict.anchor, verdict.summary) == _event(seen, False)[:3]
        assert (verdict.kept, verdict.gone) == (seen.kept, seen.gone_keys)
        went_on += goes_on(session, request)
    assert went_on


@pytest.mark.parametrize("seed", range(60))
def test_a_session_that_went_on_shows_the_request_and_files_each_new_message_once(seed):
    for session, request in steps(seed):
        kept = compare(session, request).kept
        after, filed = advance(session, request, kept, now=2.0)
        assert tuple(e.message for e in after.head) == request.messages
        assert all(e.key == known for e, known in zip(after.head, kept, strict=True) if known)
        assert {e.key for e in after.head} <= after.keys
        assert [f.position for f in filed] == list(range(session.position, after.position))
        assert {f.key for f in filed} == after.keys - session.keys


@pytest.mark.parametrize("seed", range(20))
def test_chain_hashes_of_a_history_that_grew_are_those_of_the_whole(seed):
    for _, request in steps(seed):
        chain, expected = b"", []
        for m in request.messages:
            chain = fingerprint(chain, m.print) if m.print and m.role != "system" else chain
            expected.append(chain)
        assert list(chains(request.messages)) == expected


def test_nothing_of_a_request_stays_when_all_is_forgotten():
    request = Request(api="chat", model="m", messages=(message("user", [item("user", "text", "secret")], b"{}"),))
    session = begin(request, session_id="s", now=0.0)
    session, _ = advance(session, request, [None], now=0.0)
    forget_all()
    held = sys.getrefcount(request), sys.getrefcount(session)
    assert goes_on(session, request)
    assert shows_system_of(session, request)
    forget_all()
    assert (sys.getrefcount(request), sys.getrefcount(session)) == held
