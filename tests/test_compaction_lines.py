"""A text stands within another in one piece, or line by line with names in between, and not when lines are missing."""

import time

import pytest

from lantern_proxy.compaction_lines import stands_in

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
    assert stands_in(whole, TEXT, notes=notes) is stands


def test_a_text_of_lines_that_are_all_the_same_is_looked_for_as_fast_as_another():
    def seconds(first: str) -> float:
        text = f"{first}\n" + "a\n" * 100_000
        began = time.process_time()
        assert not stands_in(text.replace("\n", " "), text + "and an end", notes=False)
        return time.process_time() - began

    seconds("b")
    assert min(seconds("a") for _ in range(3)) < 8 * min(seconds("b") for _ in range(3))
