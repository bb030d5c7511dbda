"""Chains, system prompts and terms."""

import json
import re
import tracemalloc

import pytest
from chats import CODER, SYSTEM, assistant, user
from hypothesis import given
from hypothesis import strategies as st

from lantern_proxy.compaction.similarity import _words
from lantern_proxy.history.record import chains
from lantern_proxy.history.text import same_system, terms
from lantern_proxy.turn import canonical, without_reminders
from lantern_proxy.turn_blocks import strip_block
from lantern_proxy.wire import chat as wire


def messages(*found):
    return wire.read(json.dumps({"messages": found}).encode()).messages


def test_a_chain_hash_stands_for_all_messages_up_to_it_and_system_messages_do_not_count():
    talk = [user("a"), assistant("b"), user("c")]
    with_system = messages({"role": "system", "content": "x"}, *talk, {"role": "system", "content": "y"})
    assert chains(with_system)[1:4] == chains(messages(*talk))
    assert chains(messages(*talk))[-1] != chains(messages(talk[2], talk[1], talk[0]))[-1]
    assert chains(messages(*talk))[0] == chains(messages(user("  a\n")))[0]


SIGNS = "你是一位耐心的助手,负责为一家小商行记账,用完整的句子回答每个问题,并且从不透露别人的账目。"


@pytest.mark.parametrize(("a", "b"), [
    (CODER.format(date="2026-01-02"), CODER.format(date="2027-11-30") + "\nBranch: main"),
    (SYSTEM, SYSTEM + "\n\nSummary: they spoke of the retry policy."),
    (SYSTEM + "\nContext:\n" + "alpha " * 200, SYSTEM + "\nContext:\n" + "omega " * 200),
    (SIGNS + "\n<env>\nbranch: main\n M src/a.py\n M src/b.py\n</env>", SIGNS + "\nRule 0: be brief, and never late."),
])  # fmt: skip
def test_a_system_prompt_with_another_date_documents_or_summary_is_of_the_same_class(a, b):
    assert same_system(a, b)
    assert same_system(b, a)


def test_long_system_prompts_that_were_compared_do_not_stay_in_memory():
    prompts = [f"{n} " + "word " * 20_000 for n in range(100)]
    tracemalloc.start()
    try:
        assert not any(same_system(prompt[:-1], "other " * 20_000) for prompt in prompts)
        assert tracemalloc.get_traced_memory()[0] < 6_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("other", ["", "Write a short title for this chat, five words at most, no quotes.",
                                   CODER.format(date="2026-01-02")])  # fmt: skip
def test_another_system_prompt_is_of_another_class(other):
    assert not same_system(SYSTEM, other)


def test_terms_are_the_longer_words_of_any_script():
    assert terms("The retry_policy of Zephyr: 1200 ms") == {"retry_policy", "zephyr", "1200"}
    assert terms("请重启工作进程") == {"请重", "重启", "启工", "工作", "作进", "进程"}
    assert terms("用 retry.py 重试") == {"retry", "重试"}


@pytest.mark.parametrize("text", ["", "a_b  c-d\n\t0.9\x00\x7f!", "".join(map(chr, range(0x250))), "用 retry.py 重试"])
def test_what_stands_between_words_is_left_out_of_any_text(text):
    assert _words(text) == re.sub(r"\W+", "", text)


@given(
    st.lists(
        st.tuples(st.sampled_from([" ", "\n", "\u2003", "", "x", "wörd", "\x1c"]), st.integers(0, 90_000)), max_size=6
    )
)
def test_a_long_text_has_the_same_canonical_form_as_in_one_piece(runs):
    text = "".join(part * count for part, count in runs)
    assert canonical(text) == " ".join(text.split())


BLOCK, REMINDER = (
    re.compile(r"\s*<restored_context\b[^>]*>.*?</restored_context>\s*", re.S),
    re.compile(r"<system-reminder>.*?</system-reminder>", re.S),
)
TAGS = ["<restored_context", "<restored_context>", "</restored_context>", "<system-reminder>", "</system-reminder>"]


@given(st.lists(st.sampled_from([*TAGS, " ", "\n", "\x1c", "\u2003", "x", "_", "\u00e9", "<", ">"])).map("".join))
def test_blocks_and_reminders_go_with_the_white_space_that_a_pattern_would_take(text):
    alone = REMINDER.sub(" ", BLOCK.sub(" ", text))
    assert canonical(text) == " ".join(alone.split())
    assert strip_block(text) == (BLOCK.sub("\n", text).strip("\n") if "<restored_context" in text else text)
    assert without_reminders(text, "\n") == REMINDER.sub("\n", text)


@pytest.mark.parametrize("tag", [*TAGS, "<restored_context" + 99 * " "])
def test_a_tag_that_is_opened_again_and_again_holds_nobody_up(tag):
    """A pattern would take hours."""
    text = 200_000 * tag
    assert canonical(text) == " ".join(text.split())
    assert len(strip_block(text)) <= len(text)
