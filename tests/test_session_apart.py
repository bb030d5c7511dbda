"""A new conversation gets nothing of another, though it begins with what speaks of the same things: documents, notes,
the state of a folder. One key may serve many people."""

from collections.abc import Callable

import pytest
from chats import SYSTEM, Chat, Lab, Wire, assistant, parts, summary_of, turns, user

Shape = Callable[[str, list[Wire]], tuple[str, list[Wire]]]
"""(documents, history with the question at its end) -> system prompt, messages"""


def documents(*numbers: int) -> str:
    """What the program knows of the things that are talked about in the turns of these numbers."""
    return summary_of("zephyr", [n for n in numbers for _ in range(2)]).replace("Summary: ", "")


def _in_front_of_the_last(text: str, history: list[Wire], *, heading: str = "") -> list[Wire]:
    return [*history[:-1], user(f"{heading}{text}"), history[-1]]


BEGINNINGS: dict[str, Shape] = {
    "documents in the system prompt": lambda d, h: (f"{SYSTEM}\n\n# Articles\n{d}", h),
    "documents in the middle of it": lambda d, h: (f"{SYSTEM}\n\n# Articles\n{d}\n\nAnswer from the articles only.", h),
    "documents in a message before the question": lambda d, h: (SYSTEM, _in_front_of_the_last(d, h)),
    "documents in a part of the question": lambda d, h: (SYSTEM, [*h[:-1], parts(d, h[-1]["content"])]),
    "the state of a folder": lambda d, h: (SYSTEM, [user(f"<environment>\n{d}\n</environment>"), *h]),
    "a greeting": lambda d, h: (SYSTEM, [assistant(f"Good to see you! Today we talk about this: {d}"), *h]),
}


def chat_in(lab: Lab, shape: Shape, count: int) -> str:
    """A conversation of so many turns, each with the documents that it is about; its session."""
    history: list[Wire] = []
    session = ""
    for n, (said, answer) in enumerate(turns("zephyr", count)):
        system, messages = shape(documents(n), [*history, user(said)])
        step = lab.ask([{"role": "system", "content": system}, *messages])
        lab.answer(step, assistant(answer))
        history += [user(said), assistant(answer)]
        session = session or step.session.id
        assert step.session.id == session, (n, step.link.why)
    return session


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", BEGINNINGS)
def test_who_asks_about_the_same_documents_gets_nothing_of_who_asked_before(name: str, count: int) -> None:
    lab = Lab()
    before = chat_in(lab, BEGINNINGS[name], count)
    system, messages = BEGINNINGS[name](documents(0, 1), [user("Hello, what do I have to restart, and when?")])
    step = lab.ask([{"role": "system", "content": system}, *messages])
    assert (step.event, step.session.id != before) == ("new", True), step.link.why


@pytest.mark.parametrize("heading", ["# MEMORY\n- ", "Relevant knowledge from solved tickets: ", "Recently said:\n"])
def test_what_a_program_remembers_of_its_user_is_no_summary_of_the_last_chat(heading: str) -> None:
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    fresh = Chat(chat.lab, system=f"{SYSTEM}\n\n{heading}{documents(0, 2, 4)}")
    for said, answer in turns("maple", 2):
        step = fresh.turn(said, answer)
        assert (step.event, step.session.id != chat.session) == ("turn" if fresh.history[2:] else "new", True)


def test_documents_that_come_with_the_second_question_only_begin_another_chat_all_the_same() -> None:
    lab = Lab()
    history: list[Wire] = [user("Hi"), assistant("Hello! How can I help you today?")]
    first = lab.ask([{"role": "system", "content": SYSTEM}, history[0]])
    lab.answer(first, history[1])
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        asked = _in_front_of_the_last(documents(n), [*history, user(said)], heading="Answer from these articles: ")
        step = lab.ask([{"role": "system", "content": SYSTEM}, *asked])
        lab.answer(step, assistant(answer))
        history += [user(said), assistant(answer)]
        assert step.session.id == first.session.id, step.link.why
    asked = _in_front_of_the_last(documents(0, 1), [user("What do I restart?")], heading="Answer from these articles: ")
    step = lab.ask([{"role": "system", "content": SYSTEM}, *asked])
    assert (step.event, step.session.id != first.session.id) == ("new", True), step.link.why
