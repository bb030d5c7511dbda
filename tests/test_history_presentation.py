"""Answers that a client shows otherwise than they came: its conversation stays one, and nothing counts as lost."""

import json
import time
from collections.abc import Callable
from statistics import median

import pytest
from chats import SYSTEM, TOOLS, Chat, Lab, Wire, assistant, called, summary_of, turns, user

from lantern_proxy.follow import Step
from lantern_proxy.history.presentation import is_same_answer
from lantern_proxy.turn import Item, item

Dress = Callable[[Lab, str], tuple[Wire, Wire]]
"""What is said -> (the message as the upstream produced it, the message as the client shows it)."""

DRESSES: dict[str, Dress] = {
    "a call, its arguments as a text": lambda lab, s: (
        called(lab.call_id(), "Reply", text=s), assistant(json.dumps({"text": s}, separators=(",", ":")))),
    "a call, one of its arguments as a text": lambda lab, s: (
        called(lab.call_id(), "Reply", thought="They want to know it, so I look.", text=s), assistant(s)),
    "a call, its arguments with what was left out": lambda lab, s: (
        called(lab.call_id(), "Reply", text=s), assistant(json.dumps({"sources": ["none"], "text": s}))),
    "JSON, written anew": lambda lab, s: (
        assistant(json.dumps({"text": s}, separators=(",", ":"))), assistant(json.dumps({"text": s}, indent=2))),
    "JSON in a fence, one field of it": lambda lab, s: (
        assistant("```json\n" + json.dumps({"plan": "Answer, then ask.", "text": f"{s}\nNext?"}) + "\n```"),
        assistant(f"{s}\nNext?")),
    "thoughts before it, left out": lambda lab, s: (
        assistant(f"<think>\n{'Let me see what they want. ' * 20}\n</think>\n\n{s}"), assistant(s)),
    "a call, one of its arguments after long thoughts": lambda lab, s: (
        called(lab.call_id(), "Reply", a_thought="Let me see what they want. " * 20, text=s), assistant(s)),
    "JSON, one field after long thoughts": lambda lab, s: (
        assistant(json.dumps({"thought": "Let me see what they want. " * 20, "text": s})), assistant(s)),
    "sections, only the last of them": lambda lab, s: (
        assistant(f"## reasoning\nThey ask for {s[:20]}\n## reply\n{s}\n## end"), assistant(s)),
    "wrapped in sections": lambda lab, s: (assistant(s), assistant(f"## reply\n{s}\n## end")),
    "a call, written into a text with its id": lambda lab, s: _written(called(lab.call_id(), "Reply", text=f'"{s}\n')),
}  # fmt: skip


def _written(call: Wire) -> tuple[Wire, Wire]:
    """The call, and a text that tells it in Python's words."""
    told = [
        each | {"function": {"arguments": json.loads(each["function"]["arguments"])}} for each in call["tool_calls"]
    ]
    return call, assistant(f"Calling tools:\n{told}")


def talk(lab: Lab, dress: str, count: int, *, project: str = "zephyr", most: int = 1_000) -> tuple[Chat, list[Step]]:
    """A chat that shows its answers in `dress`, and at most so many messages of its history."""
    chat, steps = Chat(lab), []
    for said, answer in turns(project, count):
        chat.history.append(user(said))
        steps.append(chat.send(chat.history[-most:]))
        produced, shown = DRESSES[dress](lab, answer)
        lab.answer(steps[-1], produced)
        chat.history.append(shown)
    return chat, steps


@pytest.mark.parametrize("dress", DRESSES)
def test_a_conversation_whose_answers_are_shown_in_another_dress_stays_one(dress):
    lab = Lab()
    _, steps = talk(lab, dress, 5)
    assert [step.event for step in steps] == ["new", *["turn"] * 4]
    assert len({step.session.id for step in steps}) == 1


@pytest.mark.parametrize("dress", DRESSES)
def test_an_answer_in_another_dress_is_filed_once(dress):
    lab = Lab()
    _, steps = talk(lab, dress, 4)
    assert len(lab.texts(steps[0].session.id)) == 1 + 2 * 4


@pytest.mark.parametrize("dress", DRESSES)
def test_its_window_is_told_and_what_was_shown_stays_held(dress):
    _, steps = talk(Lab(), dress, 7, most=5)
    assert [step.event for step in steps] == ["new", "turn", "turn", *["window"] * 4]
    assert len({step.session.id for step in steps}) == 1


@pytest.mark.parametrize("dress", DRESSES)
def test_its_compaction_is_found_after_a_restart(dress):
    lab = Lab()
    chat, steps = talk(lab, dress, 4)
    lab.restart()
    said, answer = turns("zephyr", 1, start=6)[0]
    chat.history.append(user(said))
    step = chat.send()
    assert (step.event, step.session.id) == ("turn", steps[0].session.id)
    lab.answer(step, assistant(answer))
    chat.history = [user(summary_of("zephyr", 4)), *chat.history[-3:], assistant(answer), user("And now?")]
    step = chat.send()
    assert (step.event, step.session.id) == ("compacted", steps[0].session.id)


@pytest.mark.parametrize("dress", DRESSES)
def test_two_chats_that_begin_alike_stay_apart_by_their_answers(dress):
    lab = Lab()
    chats = [Chat(lab), Chat(lab)]
    answers = ["We deploy on Mondays and Wednesdays, in the morning.", "Nobody may deploy at the moment, ask Ingrid."]
    steps: list[Step] = []
    for chat in chats:
        chat.history.append(user("When do we deploy?"))
        steps.append(chat.send())
    for chat, step, answer in zip(chats, steps, answers, strict=True):
        produced, shown = DRESSES[dress](lab, answer)
        lab.answer(step, produced)
        chat.history += [shown, user("Thank you. Who knows more of it?")]
    again = [chat.send() for chat in chats]
    assert [step.session.id for step in again] == [step.session.id for step in steps]
    assert [step.event for step in again] == ["turn"] * 2


def test_another_answer_to_the_same_question_is_another_conversation():
    lab = Lab()
    talk(lab, "JSON, written anew", 1)
    said = turns("zephyr", 1)[0][0]
    other = [user(said), assistant("I would rather leave it as it is, since nobody asked for it."), user("Why?")]
    assert Chat(lab).send(other).event == "new"


def test_prose_that_mentions_what_a_tool_was_given_is_not_its_call():
    call = item("assistant", "call", '{"path": "gateway/retry.py"}', name="read_file", ids=["call_1"])
    assert not is_same_answer([call], [item("assistant", "text", "I have read gateway/retry.py for you.")])


def test_a_text_that_tells_much_besides_the_id_of_a_call_is_not_that_call():
    call, counted = (
        item("assistant", "call", '{"path": "gateway/retry.py"}', name="read_file", ids=(value,))
        for value in ("call_0000001a", "1")
    )
    told = "Calling call_0000001a."
    assert is_same_answer([call], [item("assistant", "text", told)])
    assert not is_same_answer(
        [call], [item("assistant", "text", f"{told} {'It went through the whole project. ' * 30}")]
    )
    assert not is_same_answer([counted], [item("assistant", "text", "Step 1 is done, I think.")])


@pytest.mark.parametrize(("a", "b", "same"), [
    ("Yes.", "yes", True), ("No.", "Nobody knows.", False), ("", "", False), ('{"n": 1}', '{"n": 1}', False),
])  # fmt: skip
def test_short_answers_must_be_equal(a, b, same):
    def said(text: str) -> list[Item]:
        return [item("assistant", "text", text)]

    assert is_same_answer(said(a), said(b)) is same


def test_a_text_that_quotes_a_short_answer_among_much_else_is_not_that_answer():
    answer, quoting = "It is done, all tests pass.", f"{summary_of('zephyr', 6)} Then: it is done, all tests pass."
    assert not is_same_answer([item("assistant", "text", answer)], [item("assistant", "text", quoting)])


@pytest.mark.parametrize("after_restart", [False, True])
def test_a_summary_in_the_words_of_the_assistant_that_quotes_its_last_answer_is_new(after_restart):
    lab = Lab()
    chat = Chat(lab, named="s")
    for said, _ in turns("zephyr", 6):
        chat.turn(said, "It is done, all tests pass.")
    if after_restart:
        lab.restart()
    summary = f"{summary_of('zephyr', 6)} Then: it is done, all tests pass."
    step = chat.send([chat.history[0], assistant(summary), user("And now?")])
    assert (step.event, step.verdict.anchor) == ("compacted", 2)
    assert summary in lab.texts(step.session.id)


def test_what_two_texts_say_is_made_once_for_many_comparisons():
    calls = [item("assistant", "call", json.dumps({"text": f"{n} " + f"word{n}, " * 2_000})) for n in range(15)]
    shown = [item("assistant", "text", f"{n} " + f"other{n}, " * 2_000) for n in range(15)]

    def seconds() -> float:
        took = []
        for call, text in zip(calls, shown, strict=True):
            begun = time.perf_counter()
            is_same_answer([call], [text])
            took.append(time.perf_counter() - begun)
        return median(took)

    assert seconds() > 3 * seconds()


def test_a_tool_that_the_client_ran_is_no_other_dress_of_a_text():
    lab = Lab()
    chat = Chat(lab, system=SYSTEM, tools=TOOLS)
    chat.turn("Where is the retry policy?", "It is in gateway/retry.py.", reads="gateway/retry.py: retries = 4")
    assert [len(lab.texts(chat.session)), chat.turn("Thanks.", "Welcome.").event] == [5, "turn"]
