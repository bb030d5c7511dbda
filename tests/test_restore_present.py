"""What a request holds: exact, for many questions at once, in C as without it."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lantern_proxy.analyze import held, key, terms
from lantern_proxy.analyze.held import Held
from lantern_proxy.restore import present
from lantern_proxy.restore.present import Late, Present, text_of
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


class Clock:
    """A deadline that comes when it was asked for so often."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize(
    ("wanted", "looks"), [(Present.terms, 3), (Present.specific_terms, 3), (Present.may_hold, 0), (Present.words, 0)]
)
def test_a_long_text_is_read_no_further_when_the_deadline_comes(wanted, looks, monkeypatch):
    read = []
    for name in ("sequence", "key"):
        whole = getattr(present, name)
        monkeypatch.setattr(present, name, lambda text, whole=whole: read.append(len(text)) or whole(text))
    with pytest.raises(Late):
        wanted(Present("port 9443 " * 100_000, Clock(looks)), ["port"] if wanted is Present.words else {"port"})
    assert sum(read) < 400_000


def test_a_short_text_is_read_whatever_the_time():
    late = Present("The port is 9443", Clock(0))
    assert (late.words(["port"]), late.specific_terms({"port 9443"})) == ([True], {"port 9443"})


@given(text=TEXTS, times=st.integers(1, 60))
def test_a_text_that_is_read_in_pieces_holds_what_it_holds_as_a_whole(text, times):
    text = f"{text} " * times
    asked, told = {*terms(text), "nothing"}, {key(each) for each in text.split()} - {""}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(present, "_PIECE_CHARS", 20)
        pieces = Present(text)
        found = pieces.terms(asked), pieces.specific_terms(told)
    assert found == (Present(text).terms(asked), Present(text).specific_terms(told))


@pytest.mark.parametrize("native", [True, False], ids=["c", "python"])
def test_what_stands_within_words_again_and_again_is_looked_for_no_longer(native, monkeypatch):
    looked_at = []
    joins = held._is_within_word
    monkeypatch.setattr(held, "_is_within_word", lambda data, at: looked_at.append(at) or joins(data, at))
    assert Held("\u0e01" * 50_000, native=native).holds(["\u0e01" * 9]) == [False]
    assert len(looked_at) < 5_000
