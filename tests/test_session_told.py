"""What a model's own words become elsewhere: tasks of agents, plans that are passed on, histories told again."""

import json

import pytest
from chats import SYSTEM, TOOLS, Chat, Lab, Wire, assistant, called, parts, result, summary_of, turns, user
from msgspec import structs

from lantern_proxy.history.record import Session
from lantern_proxy.session.by_words import begins_anew
from lantern_proxy.session.delegation import is_delegated, is_passed_on, is_taken_over
from lantern_proxy.session.retold_history import is_retold
from lantern_proxy.turn import Request
from lantern_proxy.wire import chat

PLAN = (
    "Plan: move the burst of the rate limiter into its own file, then the retry policy, then the nightly backup. "
    "Go on. Do not touch the invoice export before Thursday, since the audit of the second quarter reads it."
)
ASKED = (
    "How is the burst of the limiter set?", "And the retry policy of the gateway?", "Where is the backup kept?",
    "Who reads the invoice export?",
)  # fmt: skip
REMINDED = "<system-reminder>It is Monday.</system-reminder>"
OTHER = "You are Ada, who knows her way about in houses, and you answer in one sentence, however long the question is."


def request(*said: Wire, system: str = SYSTEM, tools: tuple[str, ...] = ("task",)) -> Request:
    offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    body: Wire = {"model": "m", "messages": [{"role": "system", "content": system}, *said], "tools": offered}
    return chat.read(json.dumps(body).encode())


def planned(*, passed: bool = True) -> tuple[Lab, Session]:
    """A conversation whose model passed a plan to a tool, or wrote it as its answer."""
    lab, history = Lab(), list[Wire]()
    for text in ASKED:
        history.append(user(text))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history], tools=("task",))
        answer = assistant("It is set by hand.")
        if text == ASKED[-1]:
            answer = called(lab.call_id(), "task", prompt=PLAN) if passed else assistant(PLAN)
        lab.answer(step, answer)
        history.append(answer)
    return lab, lab.index.sessions[step.session.id]


# --- tasks of agents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "is_task"),
    [
        ([user(PLAN)], True),
        ([user(f"Your task: {PLAN}")], True),
        ([parts(REMINDED, PLAN)], True),
        ([user(PLAN[109:])], True),
        ([user(PLAN[:12])], False),
        ([user(PLAN), assistant("Done."), user("And now the invoice export.")], False),
        ([assistant(PLAN)], False),
    ],
)
def test_a_task_is_what_the_model_passed_to_a_tool_or_a_part_of_it(shown: list[Wire], is_task: bool) -> None:
    lab, session = planned()
    assert is_delegated(lab.index, session, request(*shown)) is is_task


TALK = [user(f"Here is my plan. {PLAN}"), assistant("Yes."), user("Go on.")]


@pytest.mark.parametrize(
    ("shown", "how", "id_of", "is_passed"),
    [
        ([user(f"Here is my plan. {PLAN}")], {}, "", True),
        ([user(f"Here is my plan. {PLAN}")], {}, "own", True),
        ([user(f"Here is my plan. {PLAN}")], {}, "parent", False),
        ([user(PLAN)], {}, "", False),
        ([user(f"Here is my plan. {PLAN}")], {"system": OTHER}, "", False),
        ([user(f"Here is my plan. {PLAN}")], {"tools": ("read",)}, "", False),
        ([user(f"Do this. {PLAN}"), assistant("Yes."), user("Go on.")], {"system": OTHER}, "own", True),
        ([user(f"Do this. {PLAN}"), assistant("Yes."), user("No, as I said: " + PLAN)], {}, "own", False),
        ([assistant(PLAN)], {}, "own", False),
        ([*TALK, assistant("Yes."), user("And that?")], {}, "", True),
        ([*TALK, assistant("Yes."), user("And that?")], {"system": OTHER}, "", False),
    ],
)
def test_who_passes_on_a_plan_begins_a_conversation_and_a_sub_agent_does_not(
    shown: list[Wire], how: Wire, id_of: str, is_passed: bool
) -> None:
    lab, parent = planned()
    assert is_passed_on(lab.index, parent, request(*shown, **how), id_of=id_of) is is_passed  # type: ignore[arg-type]


WHOLE = "How the limiter's burst is set, what the retry policy of the gateway is, and where the backup is kept."


@pytest.mark.parametrize(
    ("shown", "how", "is_taken"),
    [
        ([user(WHOLE), assistant("I see."), user("Then begin with the gateway, please.")], {}, True),
        ([user(WHOLE), assistant("I see."), user("Then begin with the gateway, please.")], {"system": OTHER}, False),
        ([user(WHOLE), assistant("I see."), user("Then begin with the gateway, please.")], {"tools": ("read",)}, False),
        ([user(WHOLE), user("Then begin with the gateway, please.")], {}, False),
        ([user("Which time is it?"), assistant("Ten."), user("Then begin with the gateway, please.")], {}, False),
        ([user(WHOLE), assistant("I see."), user(f"{PLAN} That was all of it.")], {}, False),
        ([user(WHOLE), assistant("I see."), user(PLAN[:60])], {}, False),
    ],
)
def test_a_user_takes_over_a_thread_in_which_all_was_told_and_says_something_new(
    shown: list[Wire], how: Wire, is_taken: bool
) -> None:
    lab, parent = planned()
    assert is_taken_over(lab.index, parent, request(*shown, **how)) is is_taken


def test_nobody_takes_over_a_thread_of_who_had_said_one_thing() -> None:
    lab = Lab()
    step = lab.ask([{"role": "system", "content": SYSTEM}, user("How is the burst set?")], tools=("task",))
    lab.answer(step, called(lab.call_id(), "task", prompt=PLAN))
    shown = request(user(PLAN), assistant("Yes."), user("Then begin with the gateway, please."))
    assert not is_taken_over(lab.index, lab.index.sessions[step.session.id], shown)


# --- told again -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "is_it"),
    [
        ([user(PLAN), user("Where do I begin?")], True),
        ([user(f"Before: {PLAN} Where do I begin?")], True),
        ([user(f"[5 minutes ago] {PLAN} Where do I begin?")], True),
        ([user(f"It is set by hand. {PLAN} Where do I begin?")], True),
        ([user(f"A friend of mine has written this draft: {PLAN} Where do I begin?")], False),
    ],
)
def test_an_answer_in_front_of_the_question_was_a_summary_and_one_that_is_introduced_is_a_draft(
    shown: list[Wire], is_it: bool
) -> None:
    lab, session = planned(passed=False)
    assert is_retold(lab.index.said[session.id], session, request(*shown)) is is_it


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("in_system", [False, True])
def test_a_summary_that_was_asked_for_like_a_turn_is_shown_without_what_the_model_thought_before(
    in_system: bool, restarts: bool
) -> None:
    lab, history = Lab(), list[Wire]()
    lab.restarts = restarts
    for text in (*ASKED, "Write down for me what is planned."):
        history.append(user(text))
        step = lab.ask(history)
        said = f"It is point {len(history)} of the list." if text in ASKED else PLAN
        lab.answer(step, assistant(f"<think>\nWhat do they want of {len(history)}?\n</think>\n\n{said}"))
        history.append(assistant(said))
    told = {"role": "system", "content": PLAN} if in_system else user(PLAN)
    after = lab.ask([told, *(history[-4:-2] if in_system else ()), user("Where do I begin?")])
    assert (after.event, after.session.id) == ("compacted", step.session.id), after.link.why


@pytest.mark.parametrize("restarts", [False, True])
def test_the_last_answer_behind_a_summary_is_no_phrase_where_its_client_leaves_out_what_the_model_thought(
    restarts: bool,
) -> None:
    lab, history = Lab(), list[Wire]()
    lab.restarts = restarts
    for text in ASKED:
        history.append(user(text))
        step = lab.ask(history)
        said = f"It is point {len(history)} of the list, and the others come later."
        lab.answer(step, assistant(f"<think>\nWhat do they want of {len(history)}?\n</think>\n\n{said}"))
        history.append(assistant(said))
    told = "The burst of the limiter, the retry policy of the gateway and who reads the invoice export were looked at."
    after = lab.ask([assistant(told), history[-1], user("And then?")])
    assert (after.event, after.session.id) == ("compacted", step.session.id), after.link.why


@pytest.mark.parametrize("restarts", [False, True])
def test_a_first_system_prompt_that_is_a_summary_is_no_side_call_in_front_of_a_last_answer_without_its_thoughts(
    restarts: bool,
) -> None:
    chat = Chat(Lab(), system="", named="x")
    for said, answer in turns("zephyr", 12):
        chat.history.append(user(said))
        chat.lab.answer(step := chat.send(), assistant(f"<think>\nWhat of {said}?\n</think>\n\n{answer}"))
        chat.history.append(assistant(answer))
    if restarts:
        chat.lab.restart()
    after = chat.send([{"role": "system", "content": summary_of("zephyr", 9)}, *chat.history[-4:], user("And then?")])
    assert (after.event, after.session.id) == ("compacted", step.session.id), after.link.why


@pytest.mark.parametrize("thinks", ["", "<think>\nWhat do they want of me?\n</think>\n\n"])
def test_a_summary_that_was_asked_for_like_a_turn_may_come_as_a_result_in_front_of_an_earlier_answer(
    thinks: str,
) -> None:
    lab, history = Lab(), list[Wire]()
    for text in (*ASKED, "Write down for me what is planned."):
        history.append(user(text))
        step = lab.ask(history, tools=TOOLS)
        said = f"It is point {len(history)} of the list, and the others come later." if text in ASKED else PLAN
        lab.answer(step, assistant(f"{thinks}{said}"))
        history.append(assistant(said))
    recalled = [user("..."), called("memory_1", "recall"), result("memory_1", f"<summary>\n{PLAN}\n</summary>")]
    after = lab.ask([*recalled, history[-3], user("And then?")], tools=TOOLS)
    assert (after.event, after.session.id) == ("compacted", step.session.id), after.link.why


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("behind", ["", "\n\nIs there anything else that I should write down?"])
def test_a_summary_that_was_asked_for_like_a_turn_may_stand_within_tags(behind: str, restarts: bool) -> None:
    """behind: what the model says to everybody whom it wrote a summary"""
    lab = Lab()
    lab.restarts = restarts
    for plan in ("Plan: nothing is done before the audit, since nobody knows yet who reads the export.", PLAN):
        history, told = list[Wire](), f"<summary>\n{plan}\n</summary>{behind}"
        for text in (*ASKED, "Write down for me what is planned."):
            history.append(user(text))
            step = lab.ask(history)
            said = f"It is point {len(history)} of {len(plan)}." if text in ASKED else told
            lab.answer(step, assistant(said))
            history.append(assistant(said))
    after = lab.ask([user(told), user("Where do I begin?")])
    assert (after.event, after.session.id) == ("compacted", step.session.id), after.link.why


@pytest.mark.parametrize("named", ["", "x"])
def test_a_summary_that_reads_almost_like_one_with_which_its_client_failed_before_is_no_talk_of_two(named: str) -> None:
    chat = Chat(Lab(), named=named)
    for text in ASKED:
        chat.turn(text, "It is set by hand.")
    told = " ".join([PLAN, *(f"Step {n} is to be looked at once more by who wrote it." for n in range(9))])
    for end in ("All else waits.", "Nothing else is to be done."):
        step = chat.send([*chat.history, user("Write down for me what is planned.")])
        chat.lab.answer(step, assistant(f"{told} {end}"))
        step = chat.send([user(f"<summary>\n{told} {end}\n</summary>\n\nWhere do I begin?")])
        assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why
        chat.lab.fail(step)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_summary_behind_a_prompt_that_tells_the_time_may_be_made_anew(restarts: bool) -> None:
    chat, dated = Chat(Lab()), f"{SYSTEM} It is 8:{{}}, and the office is open."
    chat.lab.restarts = restarts
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        chat.system = dated.format(10 + n)
        chat.turn(said, answer)
    for n, told in enumerate((summary_of("zephyr", 6), summary_of("zephyr", (0, 0, 2, 2, 5)))):
        chat.system = f"{dated.format(20 + n)}\n\nSo far: {told}"
        step = chat.send([user(f"[{n} minutes ago] And what comes then?")])
        assert (step.event, step.session.id) == (("compacted", "retry")[n], chat.session), step.link.why
        chat.lab.fail(step)


@pytest.mark.parametrize(("asked", "event"), [(ASKED, "compacted"), (ASKED[:2], "new")])
def test_what_a_user_nods_to_is_nothing_that_a_summary_would_tell_again(asked: tuple[str, ...], event: str) -> None:
    lab, history = Lab(), list[Wire]()
    for n, text in enumerate([*asked, *["Go on.", "ok", "Yes, do that."] * 3, "Write down for me what is planned."]):
        history.append(user(text))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history])
        said = PLAN if text.startswith("Write") else f"It is point {n} of the list."
        lab.answer(step, assistant(said))
        history.append(assistant(said))
    told = user(f"<summary>\n{PLAN}\n</summary>\n\nGo on.")
    assert lab.ask([{"role": "system", "content": SYSTEM}, told]).event == event


def test_nothing_is_retold_of_a_session_that_shows_nothing() -> None:
    lab, session = planned(passed=False)
    empty = Session(id="ses_9", api="chat", system=session.system, tools=session.tools, answered=True)
    assert not is_retold(lab.index.said[session.id], empty, request(user(PLAN), user("Where do I begin?")))


# --- a run's next conversation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "anew"),
    [
        ([user("Where can I park my car?")], True),
        ([user("Where can I park my car?"), user("It is a long one.")], False),
        ([assistant("You can park your car behind the house.")], False),
        ([user(REMINDED)], False),
        ([user("So far we spoke of parking.")], False),
        ([user(f"{PLAN.lower()} Where can I park my car?")], True),
        ([user("It is set by hand. Where can I park my car?")], True),
        ([user(f"{PLAN} Where can I park my car?")], False),
    ],
)
def test_a_conversation_begins_with_one_text_that_tells_nothing_of_another(shown: list[Wire], anew: bool) -> None:
    lab, session = planned(passed=False)
    assert begins_anew(lab.index, [session], request(*shown)) is anew


def test_what_is_added_to_what_the_upstream_holds_begins_nothing() -> None:
    lab, session = planned(passed=False)
    assert begins_anew(lab.index, [session], request(user("Where can I park?")))
    added = structs.replace(request(user("Where can I park?")), delta=True)
    assert not begins_anew(lab.index, [session], added)


ORDERS = (
    "Of this conversation a summary is kept, as notes: all turns above are about to be moved out of view. Do not go on "
    "with the task and do not call any tool. Write only what those turns change in the notes; a line of them you do "
    "not mention is kept. Write one line `name: value` below CHANGES for each fact that those turns set or change, in "
    "the order in which they give them, and below OPEN what is unfinished. Output these sections alone, nothing else."
)
FACTS = "project: the parser of zephyr was split in two, and its second half waits for a review since Tuesday."


def noted(chat: Chat, *, tools: tuple[str, ...] = ()) -> str:
    """The event of what a client sends that has its model say what changes in notes, and shows these in place of all
    but the first message."""
    orders = ORDERS if not tools else "Before we go on, tell me what I should put into the notes, please."
    step = chat.send([*chat.history, user(orders)], tools=tools)
    assert step.link.side != bool(tools)
    chat.lab.answer(step, assistant(f"CHANGES\n{FACTS}\nOPEN\n(none)"))
    notes = user(f"[[NOTES: {len(chat.history)} messages are in the archive]]\nRULES\n(none)\nSTATE\n{FACTS}\nOPEN")
    step = chat.send([chat.history[0], notes, user("And what comes next?")])
    return step.event if step.session.id == chat.session else "another"


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_notes_of_which_a_model_only_said_what_changes_show_whose_they_are(tools: tuple[str, ...]) -> None:
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 5):
        chat.turn(said, answer)
    assert noted(chat, tools=tools) == "compacted"


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_notes_are_nobodys_that_say_what_another_was_told(tools: tuple[str, ...]) -> None:
    lab = Lab()
    for project in ("amber", "zephyr"):
        chat = Chat(lab, tools=TOOLS)
        chat.turn("Hello.", "Hello. What is it about?")
        for said, answer in turns(project, 4):
            chat.turn(said, answer)
        if project == "amber":
            chat.turn("What is said of zephyr?", f"It is said that\n{FACTS}")
    assert noted(chat, tools=tools) == "another"
