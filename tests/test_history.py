"""Chains, system prompts and terms."""

import json

import pytest
from chats import CODER, SYSTEM, assistant, user

from lantern_proxy.history import chains, same_system, terms
from lantern_proxy.wire import chat as wire


def messages(*found):
    return wire.read(json.dumps({"messages": found}).encode()).messages


def test_a_chain_hash_stands_for_all_messages_up_to_it_and_system_messages_do_not_count():
    talk = [user("a"), assistant("b"), user("c")]
    with_system = messages({"role": "system", "content": "x"}, *talk, {"role": "system", "content": "y"})
    assert chains(with_system)[1:4] == chains(messages(*talk))
    assert chains(messages(*talk))[-1] != chains(messages(talk[2], talk[1], talk[0]))[-1]
    assert chains(messages(*talk))[0] == chains(messages(user("  a\n")))[0]


@pytest.mark.parametrize(("a", "b"), [
    (CODER.format(date="2026-01-02"), CODER.format(date="2027-11-30") + "\nBranch: main"),
    (SYSTEM, SYSTEM + "\n\nSummary: they spoke of the retry policy."),
    (SYSTEM + "\nContext:\n" + "alpha " * 200, SYSTEM + "\nContext:\n" + "omega " * 200),
])  # fmt: skip
def test_a_system_prompt_with_another_date_documents_or_summary_is_of_the_same_class(a, b):
    assert same_system(a, b)
    assert same_system(b, a)


@pytest.mark.parametrize("other", ["", "Write a short title for this chat, five words at most, no quotes.",
                                   CODER.format(date="2026-01-02")])  # fmt: skip
def test_another_system_prompt_is_of_another_class(other):
    assert not same_system(SYSTEM, other)


def test_terms_are_the_longer_words_of_any_script():
    assert terms("The retry_policy of Zephyr: 1200 ms") == {"retry_policy", "zephyr", "1200"}
    assert terms("请重启工作进程") == {"请重", "重启", "启工", "工作", "作进", "进程"}
    assert terms("用 retry.py 重试") == {"retry", "重试"}
