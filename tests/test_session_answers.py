"""Answers that their clients show otherwise: begun by themselves, in a version of their own."""

import pytest
from chats import Chat, Lab, assistant, turns, user


@pytest.mark.parametrize("begun", ["{", "<answer>", "Mira:", "Here is the JSON requested:\n"])
@pytest.mark.parametrize("as_one", [True, False])
def test_a_client_that_begins_its_answers_stays_one_session(begun, as_one):
    lab = Lab()
    chat, sessions, events = Chat(lab), [], []
    for n, (said, answer) in enumerate(turns("zephyr", 8)):
        chat.history.append(user(said))
        shown = chat.history[-5:] if n >= 6 else chat.history
        step = chat.send([*shown, assistant(begun)])
        lab.answer(step, assistant(answer))
        chat.history += [assistant(begun + answer)] if as_one else [assistant(begun), assistant(answer)]
        sessions.append(step.session.id)
        events.append(step.event)
    assert len({*sessions}) == 1, step.link.why
    assert events == ["new", *["turn"] * 5, *["window"] * 2]


def test_a_begun_answer_is_filed_once():
    lab = Lab()
    chat = Chat(lab)
    for said, answer in turns("zephyr", 3):
        chat.history.append(user(said))
        step = chat.send([*chat.history, assistant("{")])
        lab.answer(step, assistant(answer))
        chat.history.append(assistant("{" + answer))
    texts = lab.texts(step.session.id)
    assert [sum(answer in text for text in texts) for _, answer in turns("zephyr", 3)] == [1, 1, 1]
