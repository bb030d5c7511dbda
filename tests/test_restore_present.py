"""What a request holds: exact, for many questions at once, in C as without it."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lantern_proxy.analyze import key, terms
from lantern_proxy.analyze.held import Held
from lantern_proxy.restore.present import Present, text_of
from lantern_proxy.wire import chat

TEXTS = st.text(alphabet="aab19 .,_-'\n\u2014\u00e9\u0416\u4e2d\U0001f600", max_size=60)


def held_plainly(text: str, part: str) -> bool:
    """The definition: somewhere it stands, and at neither end letters or digits stand on both sides."""

    def joins(at: int) -> bool:
        return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()

    starts = [m.start() for m in re.finditer(f"(?={re.escape(part)})", text)]
    return any(not joins(at) and not joins(at + len(part)) for at in starts)


@pytest.mark.parametrize("native", [True, False], ids=["c", "python"])
@given(text=TEXTS, others=st.lists(TEXTS, max_size=4), cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))))
@example(text="x_foo foo\u2014bar caf\u00e9", others=["foo", "foo\u2014", "caf", "\u00e9", "oo"], cuts=[(2, 9)])
@example(text="caf\u00e9s \u00e9s", others=["\u00e9s"], cuts=[])
def test_a_part_is_held_where_it_stands_as_whole_words(native, text, others, cuts):
    parts = [*others, *(text[min(cut) : max(cut)] for cut in cuts)]
    held = Held(text, native=native)
    assert held.holds(parts) == [held_plainly(text, part) for part in parts]


def test_half_a_character_is_looked_for_as_any_other():
    assert Held("a \ud83d b").holds(["\ud83d b", "\ud83d c"]) == [True, False]
    assert Held("a\ud83db\u4e2d\ud83dc").holds(["\ud83db\u4e2d", "b\u4e2d", "\u4e2d"]) == [True, True, False]


def test_a_text_without_words_holds_what_stands_in_it():
    assert Held("-- ... --").holds(["...", "....", ""]) == [True, False, True]
    assert Held("").holds(["", "a"]) == [True, False]


@given(text=TEXTS, others=st.lists(TEXTS, max_size=4))
def test_terms_and_specific_terms_are_those_of_the_whole_text(text, others):
    present = Present(text)
    asked = {term for other in (text, *others) for term in terms(other)}
    assert present.terms(asked) == asked & set(terms(text.replace("\n", " ")))
    told = {found for other in (text[:9], *others) if (found := key(other))}
    assert present.specific_terms(told) == {k for k in told if f" {k} " in f" {key(text)} "}


def test_a_specific_term_may_be_held_by_words_that_stand_apart():
    present = Present("The port of the proxy, as Ada said, is 9443 now")
    assert present.specific_terms({"port 9443", "ada said"}) == {"ada said"}
    assert present.may_hold({"port 9443", "port 9444"}) == {"port 9443"}


def test_arguments_of_calls_are_held_as_they_are_read_and_prose_as_it_is_written():
    run = {"name": "run", "arguments": json.dumps({"cmd": "ls\nmake all"})}
    said = {"role": "user", "content": 'print("a\\nb")'}
    called = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": run}]}
    request = chat.read(json.dumps({"model": "m", "messages": [said, called]}).encode())
    present = Present(text_of(request))
    assert present.holds(["ls make all", 'print("a\\nb")', "make none"]) == [True, True, False]
