"""A text stands within another in one piece, or line by line with names in between, and not when lines are missing."""

import time

import pytest

from lantern_proxy.compaction.lines import is_made_of, stands_in, untimed
from lantern_proxy.history.containment import Haystack

TEXT = "Keep the books of the house.\n\nHello, shall we start?"


@pytest.mark.parametrize(
    ("whole", "notes", "stands"),
    [
        ("Keep the books of the house. Hello, shall we start? ASSISTANT: Yes.", False, True),
        ("Keep the books of the house. USER: Hello, shall we start? ASSISTANT: Yes.", False, True),
        ("Keep the books of the house. " + "It was said at length. " * 4 + "Hello, shall we start?", False, False),
        ("Keep the books of the house. ASSISTANT: Yes.", False, False),
        ("Keep the books of the house. ASSISTANT: Yes.", True, True),
        ("Hello, shall we start? USER: Keep the books of the house.", False, False),
    ],
)
def test_a_text_stands_in_another_with_no_more_than_names_between_its_lines(whole, notes, stands):
    assert stands_in(Haystack(whole), TEXT, notes=notes) is stands


@pytest.mark.parametrize(("last", "stands"), [("Rosa: It is 30099752.", False), ("It is Monday.", True)])
def test_a_note_may_be_missing_behind_the_lines_that_are_there_but_no_line_of_who_speaks_in_them(last, stands):
    whole = Haystack("Rosa: Hello there. Bot: Which number? Rosa: It is 94249896.")
    assert stands_in(whole, f"Rosa: Hello there.\nBot: Which number?\n{last}", notes=True) is stands


def test_a_text_of_lines_that_are_all_the_same_is_looked_for_as_fast_as_another():
    def seconds(first: str) -> float:
        text = f"{first}\n" + "a\n" * 100_000
        began = time.process_time()
        assert not stands_in(Haystack(text.replace("\n", " ")), text + "and an end", notes=False)
        return time.process_time() - began

    seconds("b")
    assert min(seconds("a") for _ in range(3)) < 8 * min(seconds("b") for _ in range(3))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[5 minutes ago] Shall we start?", "Shall we start?"),
        ("(2026-03-01 10:05): Shall we start?", "Shall we start?"),
        ("Be brief.\nHuman: [5 minutes ago] Shall we?\nAI: Yes.", "Be brief.\n\nShall we?\nAI: Yes."),
        ("[ticket 4711] Shall we start?", "[ticket 4711] Shall we start?"),
        ("The log:\n[2026-03-01 10:05] ready", "The log:\n[2026-03-01 10:05] ready"),
        ("It was read [5 minutes ago] by all", "It was read [5 minutes ago] by all"),
    ],
)
def test_a_time_is_left_out_in_front_of_what_is_said_alone(text, said):
    assert untimed(text).strip() == said


@pytest.mark.parametrize(
    ("whole", "made"),
    [
        ("USER: Shall we start? ASSISTANT: Yes. We may.", True),
        ("Shall we start? Yes. We may.", True),
        ("USER: Shall we start? ASSISTANT: Yes. We may. USER: And now for something that nobody else has said?", False),
        ("What was said before them, and at some length: Shall we start? ASSISTANT: Yes. We may.", False),
        ("USER: Shall we start? ASSISTANT: Yes.", False),
        ("ASSISTANT: Yes. We may. USER: Shall we start?", False),
    ],
)
def test_a_text_is_made_of_others_that_stand_in_it_from_its_beginning_to_its_end(whole, made):
    assert is_made_of(whole, ["Shall we start?", "Yes.\nWe may."]) is made


@pytest.mark.parametrize("text", ["\n", "a:\n", "[", "[1", "a: [1 ", "a: [1 minute ago", " ", "a: "])
def test_times_are_looked_for_in_linear_time(text):
    def seconds(count: int) -> float:
        began = time.process_time()
        untimed(text * count)
        return time.process_time() - began

    seconds(1_000)
    assert min(seconds(80_000) for _ in range(3)) < 40 * min(seconds(10_000) for _ in range(3)) + 0.05
