"""Histories and texts of any size and form are read in time that grows as they do: nobody else's stream waits."""

import gc
import json
import time
from itertools import pairwise

import pytest
from msgspec.structs import replace

from lantern_proxy import turn_memo
from lantern_proxy.compaction import align, similarity
from lantern_proxy.compaction.align import _matches
from lantern_proxy.follow import follow, reply
from lantern_proxy.history import shared_prefix
from lantern_proxy.history.containment import Haystack
from lantern_proxy.history.embedded import squeezed
from lantern_proxy.history.presentation import parts_of
from lantern_proxy.history.record import Entry, Session
from lantern_proxy.session import SessionIndex
from lantern_proxy.session.contested import went_on_elsewhere
from lantern_proxy.session.overlap import shown_and_asked
from lantern_proxy.session.pasted import is_pasted
from lantern_proxy.session.rivals import ends_in, settle
from lantern_proxy.turn import Answer, Identity
from lantern_proxy.wire import chat

FEW, MANY = 250, 2_000
MOST = 24
"""Times as long at most for eight times as much; what looks at each pair takes 64 times as long."""


@pytest.fixture(autouse=True)
def no_garbage():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def growth(work):
    """How much longer `work` takes for MANY than for FEW. work: count -> seconds"""
    few = min(work(FEW) for _ in range(3))
    return min(work(MANY) for _ in range(2)) / max(few, 0.004)


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def asks(n):
    return f"Question {n}: which port has the queue worker of region {n * 7919 % 100_003}, and who owns its budget?"


def tells(n):
    return (
        f"Answer {n}: the shard {n * 104_729 % 1_000_003} listens on 9443, Anna owns it, and the token is cached there."
    )


def talk(count, asked=asks, told=tells):
    return [m for n in range(count) for m in (user(asked(n)), assistant(told(n)))]


def works(count, result=tells):
    found = [user("Go through all of the modules, please.")]
    for n in range(count):
        inner = {"name": "read_file", "arguments": json.dumps({"path": f"src/mod_{n}.py"})}
        found.append(
            {"role": "assistant", "tool_calls": [{"id": f"call_{n:08}", "type": "function", "function": inner}]}
        )
        found.append({"role": "tool", "tool_call_id": f"call_{n:08}", "content": result(n)})
    return found


def stamped(text):
    return f"2026-11-23 Please continue with the plan and report back when it is done: {text}"


def in_one_text(count):
    return user("\n".join(f"User: {asks(n)}\nAssistant: {tells(n)}" for n in range(count)))


def pictures(count, part):
    found = []
    for n in range(count):
        parts = [{"type": "text", "text": asks(n)}, part(n)]
        found += [{"role": "user", "content": parts}, assistant(tells(n))]
    return found


HISTORIES = {
    "put together in one text": lambda n: (talk(n), [in_one_text(n), assistant("I see.")]),
    "put together, and its order changed": lambda n: (
        talk(n),
        [user("\n".join(str(m["content"]) for m in reversed(talk(n)))), assistant("I see.")],
    ),
    "put together, but for one word in each": lambda n: (
        talk(n),
        [user(str(in_one_text(n)["content"]).replace("owns", "owned")), assistant("I see.")],
    ),
    "each result another": lambda n: (works(n), works(n, lambda n: tells(n) + " It changed.")),
    "each result cleared": lambda n: (works(n), works(n, lambda n: "[cleared]")),
    "each second one another, and all moved": lambda n: (
        works(n),
        [*works(n, lambda n: f"Now {n} is other")[n:], *works(n)[:n]],
    ),
    "times in front of all": lambda n: (
        talk(n, lambda n: f"[{n} minutes ago] {asks(n)}"),
        talk(n, lambda n: f"[{n + 7} minutes ago] {asks(n)}"),
    ),
    "all from one template, and all others": lambda n: (
        talk(n, lambda n: stamped(str(n)), lambda n: stamped(f"done {n}")),
        talk(n, lambda n: stamped(f"with {n}"), lambda n: stamped(f"has done {n}")),
    ),
    "pictures gone": lambda n: (
        pictures(n, lambda n: {"type": "image_url", "image_url": {"url": f"data:{n}"}}),
        pictures(n, lambda n: {"type": "text", "text": "[image removed]"}),
    ),
    "told again": lambda n: (
        talk(n),
        [*talk(2), *talk(n, lambda n: f"and now: {asks(n)[:-3]}")[4:]],
    ),
    "a system message beside each turn": lambda n: (
        [m for turn in range(n) for m in ({"role": "system", "content": asks(-turn)}, user(asks(turn)))],
        [m for turn in range(n) for m in ({"role": "system", "content": tells(-turn)}, user(tells(turn)))],
    ),
    "a prompt of many system messages, and all cleared": lambda n: (
        [*[{"role": "system", "content": asks(turn)} for turn in range(n)], user("hi"), assistant("ho")],
        [
            *[{"role": "system", "content": "[cleared]"} for _ in range(n)],
            *talk(1, lambda _: "[cleared]", lambda _: "[cleared]"),
            assistant("Fine, and what else?"),
        ],
    ),
    "answered by thousands of empty messages": lambda n: (
        talk(3),
        [*talk(3), user("Go on."), *[assistant("") for _ in range(4 * n)]],
    ),
}  # fmt: skip


def read(messages):
    return chat.read(json.dumps({"model": "m", "messages": messages}).encode())


def seconds_of(before, after):
    """How long it takes to see what became of a history."""
    turn_memo.forget_all()
    shared_prefix.forget_all()
    index, who, ids = SessionIndex(), Identity(ids=(("x-lantern-session", "huge"),)), iter(map(str, range(9)))
    requests = read(before), read(after)
    answer = Answer(messages=(chat.read_message(json.dumps(assistant("Fine, and what else?")).encode()),))
    step = follow(index, requests[0], who, now=1.7e9, new_id=lambda: next(ids))
    reply(index, step.session, answer, now=1.7e9)
    began = time.process_time()
    follow(index, requests[1], who, now=1.7e9 + 9, new_id=lambda: next(ids))
    return time.process_time() - began


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_that_came_otherwise_is_compared_in_linear_time(name):
    def work(count):
        before, after = HISTORIES[name](count)
        return seconds_of(before, [*after, user("And what about the port?")])

    assert growth(work) < MOST


def asked_after(*before, ids=()):
    """-> seconds of one more request. before: (messages, answer) of the requests before it; ids: of all of them"""

    def seconds(messages):
        index, names = SessionIndex(), (f"ses_{n}" for n in range(99))
        who = Identity(ids=tuple(("x-lantern-session", each) for each in ids))
        for n, (asked, told) in enumerate(before):
            step = follow(index, read(asked), who, now=1.7e9 + n, new_id=lambda: next(names))
            answer = Answer(messages=(chat.read_message(json.dumps(assistant(told)).encode()),))
            reply(index, step.session, answer, now=1.7e9 + n)
        request = read(messages)
        began = time.process_time()
        follow(index, request, who, now=1.7e9 + 99, new_id=lambda: next(names))
        return time.process_time() - began

    return seconds


def nods(count):
    return [m for n in range(count) for m in (user(f"say {n}x"), assistant("OK."))]


def of_nods(count):
    return asked_after(([user(f"note {n} alpha") for n in range(2 * count)], "OK."))([*nods(count), user("go")])


def of_examples(count):
    opened = [user("hello there"), assistant("Hi from A, nice to meet you")]
    seconds = asked_after(
        ([opened[0]], opened[1]["content"]), ([user(f"note {n} alpha") for n in range(2 * count)], "OK.")
    )
    return seconds([*opened, *nods(count), user("go")])


def of_a_text_without_words(count):
    system, asked, told = (
        "You are a helper. " + "x" * 50,
        "a" * (9 * count) + "b" + "a" * (9 * count),
        "All right then.",
    )
    seconds = asked_after(([{"role": "system", "content": system}, user(asked)], told), ids=["X"])
    written = f"{system}\n{'a' * (90 * count)}\nBot: {told}\n and here is more text behind"
    return seconds([{"role": "system", "content": written}, user("next")])


def of_fields(count):
    fields = json.dumps({f"k{n}": f"x field {n} {'a' * 25}b{'a' * 20}" for n in range(count)})
    system = {"role": "system", "content": "You are an agent."}
    seconds = asked_after(([system, user("Step 1: do it, the page is open")], fields), ids=["X"])
    return seconds([system, user(f"Step 2: do it, the page is open {'a' * (99 * count)}")])


def of_question_marks(count):
    return asked_after(([user("?")], "b"), ids=["X"])([user("?" * (5 * count))])


@pytest.mark.parametrize("work", [of_nods, of_examples, of_a_text_without_words, of_fields, of_question_marks])
def test_what_a_client_may_send_is_placed_in_linear_time(work):
    assert growth(work) < MOST


def test_a_talk_of_one_phrase_is_looked_for_in_another_in_linear_time():
    def seconds(count):
        index, names = SessionIndex(), (f"ses_{n}" for n in range(9))
        opened = [user("first question of a kind, indeed"), assistant("The first answer of it.")]
        for asked, told in ((opened[:1], opened[1]["content"]), ([*opened, *nods(count), user("go on")], "OK.")):
            step = follow(index, read(asked), Identity(), now=1.7e9, new_id=lambda: next(names))
            answer = Answer(messages=(chat.read_message(json.dumps(assistant(told)).encode()),))
            reply(index, step.session, answer, now=1.7e9)
        same = [m for _ in range(count) for m in (user("go on"), assistant("OK."))]
        request = read([user("x"), *opened[1:], user("aha"), *same, user("what now, my friend")])
        held = read([*opened, *same, user("go on"), assistant("OK.")])
        session = replace(
            index.sessions["ses_0"], head=tuple(Entry(str(n), m, True) for n, m in enumerate(held.messages))
        )
        began = time.process_time()
        went_on_elsewhere(index, session, request)
        return time.process_time() - began

    assert growth(seconds) < MOST


def test_an_answer_of_tags_that_nothing_closes_is_filed_in_linear_time():
    def seconds(count):
        text = "".join(f"<t{n:x}>" for n in range(8 * count))
        began = time.process_time()
        assert [*parts_of(text)] == [text]
        return time.process_time() - began

    assert growth(seconds) < MOST


def test_a_last_message_of_many_parts_is_compared_in_linear_time():
    def work(count):
        parts = [{"type": "text", "text": stamped(str(-n))} for n in range(count)]
        return seconds_of(talk(count, stamped, stamped), [user("Anew."), {"role": "user", "content": parts}])

    assert growth(work) < MOST


def test_of_texts_from_one_template_only_like_ones_are_looked_at_closely(monkeypatch):
    """Each begins as all others do: what is asked of each pair has to cost next to nothing."""
    pairs, closely, is_alike, has_ellipsis = [], [], align.is_alike, similarity.has_ellipsis_for
    monkeypatch.setattr(align, "is_alike", lambda a, b: pairs.append((a.role, b.role)) or is_alike(a, b))
    monkeypatch.setattr(similarity, "has_ellipsis_for", lambda *pair: closely.append(pair) or has_ellipsis(*pair))
    before = talk(50, lambda n: stamped(f"do {n}."), lambda n: stamped(f"done {n}."))
    after = talk(50, lambda n: stamped(f"with {n}!"), lambda n: stamped(f"has done {n}!" if n % 5 else f"done, {n}!"))
    old, new = (align.seats(read(each).messages) for each in (before, after[2:]))
    paired, moved = align.align(old, new, answer=len(old), pending=len(new), finished=True)
    assert {a for a, _ in (*paired, *moved)} == {2 * n + 1 for n in range(5, 50, 5)}
    assert len(pairs) < len(new)
    assert all(a == b for a, b in pairs)
    assert not closely


def test_texts_that_were_pasted_are_found_behind_thousands_of_lines_that_begin_like_them():
    """So many places are looked at closely, and no more: where all lines have one template few need a look."""

    def document(name):
        return "\n".join(f"The report of the plant, line {n}: {name}" for n in range(400))

    said = {document(f"{who} {n}"): who for n in range(60) for who in ("user", "assistant")}
    others = [document(f"other {n}") for n in range(100)]
    asked, answer = document("user 7"), document("assistant 7")
    assert not is_pasted(said, others)
    assert is_pasted(said, [*others, f"{asked[:4_000]}\n{answer[:4_000]}"])


def test_conversations_of_one_key_that_end_alike_are_told_apart_in_linear_time():
    """A summary stands in front, which may be of each of them: what it tells of others is looked for once."""
    handbook = "The handbook of the house and its garden. " + " ".join(f"Rule {n}: water bed {n}." for n in range(120))
    heard = assistant("Understood, I have read the handbook and wait for what you want.")
    answer = Answer(messages=(chat.read_message(json.dumps(heard).encode()),))
    summed_up = user(f"Summary of the conversation so far, for the model that goes on with it: {handbook}")
    request = read([summed_up, *talk(1), user(handbook), heard, user("And?")])

    def work(count):
        turn_memo.forget_all()
        index = SessionIndex()
        for n in range(count):
            asked = read([user(asks(n)), assistant(tells(n)), user(handbook)])
            step = follow(index, asked, Identity(), now=1.7e9 + n, new_id=lambda n=n: f"ses_{n}")
            reply(index, step.session, answer, now=1.7e9 + n)
        began = time.process_time()
        assert settle(index, index.sessions["ses_0"], request, ()) is index.sessions["ses_0"]
        return time.process_time() - began

    assert work(400) < MOST * max(0.004, min(work(50) for _ in range(3)))


def test_a_conversation_that_ends_otherwise_is_known_by_its_end_however_long_it_is():
    opened, closed = [user("Hi"), assistant("Hello!")], [user("no"), assistant("Have a nice day!")]
    shown, asked = shown_and_asked(read([*opened, user(asks(-1)), assistant(tells(-1)), *closed, user("And?")]))

    def work(count):
        said = [each for n in range(count) for each in (user(asks(n)), assistant(tells(n)))]
        held = read([*opened, *said, *closed]).messages
        session = Session(id="ses_other", api="chat", head=tuple(Entry(str(n), m, True) for n, m in enumerate(held)))
        index = SessionIndex()
        began = time.process_time()
        assert not any(ends_in(index, session, shown, asked) for _ in range(100))
        return time.process_time() - began

    assert min(work(MANY) for _ in range(2)) < MOST * max(0.004, min(work(2) for _ in range(3)))


def test_a_text_of_empty_lines_is_squeezed_about_as_fast_as_it_is_split():
    text = "\n" * 500_000

    def seconds(do):
        began = time.process_time()
        do(text)
        return time.process_time() - began

    assert squeezed("a\n\n \t\r\n\n  b\n\n") == "a\n  b"
    assert min(seconds(squeezed) for _ in range(3)) < MOST * max(0.001, min(seconds(str.split) for _ in range(3)))


def test_items_that_come_once_are_paired_in_their_order_wherever_others_are_between_them():
    old = [b"%d" % n for n in range(4_000)]
    new = [each if n % 2 else b"new %d" % n for n, each in enumerate(old)]
    assert _matches(old, new) == [(n, n) for n in range(1, 4_000, 2)]


def test_items_that_come_often_are_paired_as_long_as_there_is_time_for_it():
    old, new = [b"a", b"b"] * 250, [b"b", b"b", b"a"] * 166
    paired = _matches(old, new)
    assert all(old[a] == new[b] for a, b in paired)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(paired))


@pytest.mark.parametrize("signs", ["ab", "abcdefg hij", "é中😀 "])
def test_a_whole_text_holds_what_stands_in_it_and_nothing_else(signs):
    text = "".join(signs[(n * n // 7 + n) % len(signs)] for n in range(9_000))
    whole = Haystack(text)
    for start in range(0, 9_000, 97):
        for chars in (1, 15, 30, 31, 64, 400):
            part = text[start : start + chars]
            assert part in whole
            assert chars < 64 or part[:-1] + "~" not in whole
    assert signs + "~" not in whole


def test_places_in_a_whole_text_are_all_found_wherever_the_last_one_was():
    whole = Haystack("one two one three one")
    assert "three" in whole
    assert list(whole.places("one")) == [18, 0, 8]


def test_a_whole_text_is_read_no_more_when_it_was_read_often_enough():
    whole = Haystack("a" * 40_000)
    assert "a" in whole
    whole.spend(64 * 40_000)
    assert "a" in whole
    whole.spend(64 * 40_000)
    assert "a" not in whole
