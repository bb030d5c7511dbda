"""Kinds of questions, and the cascade."""

import time
from collections import Counter

import pytest

from lantern_proxy.restore.routes import questions
from lantern_proxy.route import asks, lead, looks_back, margin, personal, subject
from lantern_proxy.route_soft import fit
from lantern_proxy.route_types import TYPES, query_type


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Which port does staging use now?", "knowledge-update"),
        ("When did we launch?", "temporal"),
        ("What is my favourite editor?", "single-session-preference"),
        ("What did you suggest for the name?", "single-session-assistant"),
        ("List all the services we have", "multi-session"),
        ("Where do I work?", "single-session-user"),
        ("Which planet is largest?", "single-session-user"),
    ],
)
def test_the_first_rule_in_order_of_priority_names_the_type(question, name):
    assert query_type(question) == name


@pytest.mark.parametrize("split", ["dev", "held_out"])
def test_the_rules_know_most_of_our_own_questions(split):
    known = questions(split)
    assert Counter(name for _, name in known) == dict.fromkeys(TYPES, 15)
    assert sum(query_type(text) == name for text, name in known) >= 0.9 * len(known)


def test_no_question_is_in_both_splits():
    assert not {text for text, _ in questions("dev")} & {text for text, _ in questions("held_out")}


def test_the_learned_router_knows_questions_that_it_was_not_fitted_to():
    known = questions("dev")
    learned = fit([text for text, _ in known], [name for _, name in known])
    right = 0
    for text, name in questions("held_out"):
        shares = learned.posterior(text)
        assert sum(shares.values()) == pytest.approx(1)
        right += max(shares, key=shares.__getitem__) == name
    assert right >= 0.85 * len(questions("held_out"))


@pytest.mark.parametrize("text", ["Which port?", "remind me of the port", "what was the port", "Tell me the port."])
def test_questions_and_requests_to_tell_ask(text):
    assert asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "and how many lanterns did we hang",
        "whats the gate code again",
        "wheres the spare fuse",
        "so which tailor was it",
        "ok and who mends it",
        "oh, and when is it due",
        "ok thanks. whats the colour",
        "so is it still 8:15",
        "btw what was her street",
        "and did we ever oil the hinge",
        "And how long are the planks",
        "so have we paid the sailmaker",
        "what's more important, sail or oar",
    ],
)
def test_who_leaves_out_the_question_mark_asks(text):
    assert asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "so what i want is a table",
        "So do I, and I like oak.",
        "So what's left is the roof.",
        "so what the crew needs is sleep",
        "and what place it is i told you",
        "and when you are done sweep the hall",
        "and when the lamps are lit, ring",
        "but how about we walk instead",
        "so how it works is simple",
        "and who knows, maybe",
        "and do it again",
        "and have the planks cut",
        "ok do that",
        "Now do the same for the hall",
        "So have we.",
        "and so did she",
        "What's more, the sail has a hole.",
        "and what is worse, the mast is gone",
    ],
)
def test_words_that_ask_within_what_is_told_do_not(text):
    assert not asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "Ana: who drives on Friday",
        "Oma Hilde: wer kommt",
        "wann ist die Abnahme",
        "cu\u00e1ndo sale el tren",
        "quand part le camion",
        "\u5408\u540c\u7f16\u53f7\u662f\u591a\u5c11",  # "the number of the contract is how much"
    ],
)
def test_a_question_needs_no_question_mark_in_other_languages_and_behind_a_name(text):
    assert asks(text)


@pytest.mark.parametrize("text", ["Ana: me too", "Note: the port is 80", "danke dir", "merci", "\u8c22\u8c22\u4f60"])
def test_who_agrees_or_thanks_does_not_ask(text):
    assert not asks(text)


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
    ("scores", "margins"), [([10.0, 4.0], 0.6), ([10.0, 10.0], 0.0), ([10.0], 1.0), ([], 0.0), ([0.0], 0.0)]
)
def test_the_margin_is_how_far_the_first_is_ahead(scores, margins):
    assert margin(scores) == margins


@pytest.mark.parametrize(
    ("question", "about"),
    [
        ("Can you list the order in which I brought up the parts of the move, in order? Name five only.", "the move?"),
        ("Could you please remind me what port the relay uses?", "what port the relay uses?"),
        ("Give me a quick overview of the roof repair so far.", "the roof repair"),
        ("Show me everything we said about Lisbon across our chats", "everything we said about Lisbon"),
        ("In which order did we discuss the ferries, the tent and the stove?", "the ferries, the tent and the stove?"),
        ("So what do you remember about my knee? Keep it short.", "my knee?"),
        ("Explain to us again how the lock works", "how the lock works"),
    ],
)
def test_how_something_is_asked_is_not_what_it_is_about(question, about):
    assert subject(question) == about


@pytest.mark.parametrize(
    "question",
    [
        "Which port does the relay use?",
        "Name of the dog?",
        "List",
        "Can you?",
        "Which names does the list of guests hold?",
        "Delete the cookie in the session store",
        "Was steht in der Liste?",
        "",
    ],
)
def test_a_question_that_is_all_about_something_stays_as_it_is(question):
    assert subject(question) == question


@pytest.mark.parametrize("said", [
    "The build is broken. Give me the Dockerfile that worked", "Is the gateway up? Give its port",
    "We moved to 9090. Use it now",
])  # fmt: skip
def test_what_the_last_of_several_sentences_asks_for_is_part_of_the_subject(said):
    assert subject(f"{said}.") == said


def test_a_subject_with_long_gaps_is_told_as_fast_as_one_without():
    def seconds(text: str) -> float:
        begun = time.perf_counter()
        for _ in range(5):
            subject(text)
        return time.perf_counter() - begun

    words, gap = "so and now " * 54, "so." + " " * 590 + "x"
    assert min(seconds(gap) for _ in range(5)) < 10 * min(seconds(words) for _ in range(5))


def test_a_greek_question_asks_with_its_semicolon_and_code_does_not():
    assert asks("Πού είναι το κλειδί;")
    assert not asks("int x = 1;")


@pytest.mark.parametrize(
    ("scores", "share"),
    [
        ([4.0, 4.0, 3.0, 2.0, 1.0, 0.5], 0.75),  # the fifth counts, not the second
        ([4.0, 4.0, 4.0, 4.0, 4.0], 0.0),
        ([4.0, 1.0, 0.0, -1.0, -2.0], 1.0),
        ([4.0, 1.0, 0.0, 0.0], 0.0),  # too few to tell
        ([0.0] * 5, 0.0),
        ([], 0.0),
    ],
)
def test_the_lead_of_the_best_is_what_it_has_before_the_fifth(scores, share):
    assert lead(scores) == share
