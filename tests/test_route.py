"""Kinds of questions, and the cascade."""

import pytest

from lantern_proxy.route import asks, lexical_is_sure, looks_back, personal, query_type


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Which port does staging use now?", "knowledge-update"),
        ("When did we launch?", "temporal"),
        ("What is my favourite editor?", "preference"),
        ("What did you suggest for the name?", "assistant"),
        ("List all the services we have", "multi-session"),
        ("Where do I work?", "user"),
        ("Which planet is largest?", "none"),
    ],
)
def test_the_first_pattern_in_order_of_priority_names_the_type(question, name):
    assert query_type(question) == name


@pytest.mark.parametrize("text", ["Which port?", "remind me of the port", "what was the port", "Tell me the port."])
def test_questions_and_requests_to_tell_ask(text):
    assert asks(text)


@pytest.mark.parametrize("text", ["Write a function that sorts a list.", "Add type hints to this file."])
def test_instructions_do_not_ask_and_do_not_look_back(text):
    assert not asks(text)
    assert not looks_back(text)


def test_what_was_agreed_lies_back():
    assert looks_back("deploy on the port we agreed on")


def test_how_do_i_is_about_the_world_and_our_port_is_not():
    assert personal("What is our port?")
    assert not personal("How do I exit vim?")


@pytest.mark.parametrize(
    ("scores", "sure"), [([10.0, 4.0], True), ([10.0, 6.0], False), ([10.0], True), ([], False), ([0.0], False)]
)
def test_the_cascade_is_sure_when_the_first_is_far_ahead(scores, sure):
    assert lexical_is_sure(scores, tau=0.5) is sure
