"""Asides over the history in another form: what its client never shows again is none of the conversation."""

import pytest
from chats import SYSTEM, TOOLS, Chat, Lab, assistant, turns, user

from lantern_proxy.follow import Step

SORT = "Sort the last message of the user into one of: note, wish, question. Answer with a single word in JSON."
NEXT = "Who is to speak next, by what was said last? Answer in JSON, with a reason."


def beside(chat: Chat, kind: str) -> Step:
    """The request that a client sends beside its conversation, and its answer."""
    lab, tools = chat.lab, () if kind == "next speaker, without tools" else chat.tools
    messages = {
        "sorted, all of it": [{"role": "system", "content": SORT}, *chat.history],
        "sorted, the last four": [{"role": "system", "content": SORT}, *chat.history[-4:]],
        "next speaker, without tools": chat.wire([*chat.history, user(NEXT)]),
    }[kind]
    step = lab.ask(messages, tools=tools, headers=chat.headers)
    lab.answer(step, assistant(f'{{"it": "{lab.call_id()}"}}'))
    return step


@pytest.mark.parametrize("kind", ["sorted, all of it", "sorted, the last four", "next speaker, without tools"])
@pytest.mark.parametrize("named", ["", "x"])
@pytest.mark.parametrize("behind", [False, True])
def test_a_conversation_goes_on_as_if_nothing_had_been_asked_beside_it(kind, named, behind):
    chat = Chat(Lab(), named=named, tools=TOOLS)
    steps, asides = [], []
    for n, (said, answer) in enumerate(turns("zephyr", 8)):
        chat.history.append(user(said))
        if n > 1 and not behind:
            asides.append(beside(chat, kind))
        steps.append(chat.send())
        chat.lab.answer(steps[-1], assistant(answer))
        chat.history.append(assistant(answer))
        if n > 1 and behind:
            asides.append(beside(chat, kind))
    assert [step.event for step in steps] == ["new", *["turn"] * 7]
    assert len({step.session.id for step in steps}) == 1
    assert [step.event for step in asides][3:] == ["side"] * 3
    answers = [f.key for f in chat.lab.kept[steps[-1].session.id].filed if '"it"' in f.message.text]
    assert set(answers) <= set(steps[-1].session.abandoned)


def test_another_mode_of_a_client_whose_answers_it_shows_is_a_turn_however_often_it_changes():
    chat, events, sessions = Chat(Lab(), tools=TOOLS), [], set()
    for n, (said, answer) in enumerate(turns("zephyr", 12)):
        chat.system = SORT if n // 2 % 2 else SYSTEM
        step = chat.turn(said, answer)
        events.append(step.event)
        sessions.add(step.session.id)
    assert events == ["new", *["turn"] * 11]
    assert len(sessions) == 1


def test_a_mode_that_was_asked_twice_in_vain_is_a_turn_again_once_its_answers_are_shown():
    chat = Chat(Lab(), tools=TOOLS)
    asked = turns("zephyr", 8)
    for said, answer in asked[:3]:
        chat.history.append(user(said))
        beside(chat, "sorted, all of it")
        chat.history.pop()
        chat.turn(said, answer)
    chat.system = SORT
    events = [chat.turn(said, answer).event for said, answer in asked[3:]]
    assert events[0] == "side"
    assert set(events[2:]) == {"turn"}
    assert chat.lab.known.sessions[chat.session].asides == {}


def test_one_that_asks_again_in_another_mode_goes_on_with_the_answer_that_it_shows():
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    said, answer = turns("zephyr", 1, start=3)[0]
    chat.history.append(user(said))
    beside(chat, "sorted, all of it")
    chat.history.pop()
    step = chat.turn(said, answer)
    assert (step.event, step.session.id) == ("turn", chat.session)
    assert chat.turn("And what is left of it?", "Nothing.").event == "turn"
