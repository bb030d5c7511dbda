"""Whose request it is: what must not make it another's, each in a chat where nothing else tells them apart."""

from collections.abc import Callable

import pytest
from chats import (
    SYSTEM,
    TOOLS,
    Chat,
    Lab,
    Wire,
    assistant,
    called,
    parts,
    result,
    summarised_chat,
    summary_of,
    transcript,
    turns,
    user,
)

from lantern_proxy.follow import Step
from lantern_proxy.session import RECENT_S

NEXT = user("And which of them is restarted first?")
SHORTEN = "You summarize the output of tools."


def in_tags(message: Wire) -> Wire:
    return {**message, "content": f"<b>{message['content']}</b>"}


GOES_ON: dict[str, Callable[[Chat], list[Wire]]] = {
    "all of it": lambda c: [*c.history, NEXT],
    "the last question again": lambda c: c.history[:-1],
    "its last answer in another dress": lambda c: [*c.history[:-1], in_tags(c.history[-1]), NEXT],
    "its last answer in part": lambda c: [*c.history[:-1], assistant(c.history[-1]["content"][-40:]), NEXT],
    "a window": lambda c: [*c.history[-3:], NEXT],
    "its last answer alone": lambda c: [c.history[-1], NEXT],
    "what its user said": lambda c: [c.history[2], c.history[4], NEXT],
    "a text with its history": lambda c: [user(f"{transcript(c.history)}\n\n[user]: Go on."), assistant("Yes."), NEXT],
    "a claimed summary": lambda c: [user("Summary of the conversation so far: " + summary_of("zephyr", 4)), NEXT],
}  # fmt: skip


@pytest.mark.parametrize("name", GOES_ON)
@pytest.mark.parametrize("summed_up", [False, True])
def test_what_came_by_one_protocol_is_gone_on_with_by_that_alone(name: str, summed_up: bool) -> None:
    """Programs that share a key may speak several."""
    known_as = {}
    for api in ("chat", "messages"):
        chat = Chat(Lab())
        for said, answer in turns("zephyr", 4):
            chat.turn(said, answer)
        if summed_up:
            chat.summarise("transcript in one message, no system prompt", summary_of("zephyr", 4))
        chat.lab.api = api
        step = chat.send(GOES_ON[name](chat))
        known_as[api] = step.session.id == chat.session or step.session.parent == chat.session
    assert known_as == {"chat": True, "messages": False}


STOCK = "Thank you, I have noted that. Is there anything else I can do for you today?"
HOURS = ("When are you open on weekdays?", "We are open from 9 to 18, on Saturdays until noon.")


def talk(lab: Lab, said: list[tuple[str, str]], window: int = 3, **body: str) -> tuple[set[str], list[Wire]]:
    """A conversation whose client shows the last messages: its sessions, and all that was said."""
    history: list[Wire] = []
    sessions = set()
    for asked, answer in said:
        history.append(user(asked))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history[-window:]], **body)
        sessions.add(step.session.id)
        lab.answer(step, assistant(answer))
        history.append(assistant(answer))
    return sessions, history


def test_who_hears_the_same_by_another_protocol_takes_nothing_from_who_goes_on() -> None:
    lab, found = Lab(), []
    for api, name in (("chat", "Rosa Quint"), ("messages", "Emil Haug")):
        lab.api = api
        found.append(talk(lab, [(f"I am {name}.", STOCK), HOURS, ("Thanks a lot!", STOCK), HOURS]))
    for api, (sessions, history) in zip(("chat", "messages"), found, strict=True):
        lab.api = api
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history[-2:], user("And who am I?")])
        assert {step.session.id} == sessions, step.link.why


def test_one_id_by_two_protocols_names_two_conversations() -> None:
    chat = Chat(Lab(), named="one")
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    chat.lab.api = "messages"
    step = chat.send([*chat.history, NEXT])
    assert (step.event, step.session.id != chat.session) == ("new", True), step.link.why


def test_a_word_and_a_question_that_others_asked_too_are_nobodys_window() -> None:
    lab = Lab()
    own, _ = talk(lab, [(f"Hello, {HOURS[0]}", "From 9 to 18."), ("My code is 7731-R.", STOCK), (HOURS[0], "OK."),
                        ("And on Sundays, are you open?", "Not at all.")])  # fmt: skip
    step = lab.ask([{"role": "system", "content": SYSTEM}, assistant("OK."), user(HOURS[0])])
    assert (step.event, step.session.id in own) == ("new", False), step.link.why


def test_who_shows_all_that_is_left_of_what_another_said_does_not_take_part_in_what_was_lost() -> None:
    lab = Lab()
    said = [("My contract is 7731-R.", "Noted."), HOURS, ("Where can I park my car?", "Behind the house, for an hour.")]
    own, history = talk(lab, said, 3, user="rosa")
    asked = [{"role": "system", "content": SYSTEM}, *history[-4:], user("Which contract do I have?")]
    assert lab.ask(asked, user="emil").session.id not in own


@pytest.mark.parametrize("person", ["rosa", "emil"])
def test_the_last_answer_of_another_begins_no_window(person: str) -> None:
    lab = Lab()
    own, history = talk(lab, [HOURS, ("Thanks a lot!", "Done.")], 9, user="rosa")
    step = lab.ask([{"role": "system", "content": SYSTEM}, history[-1], user("What can you do?")], user=person)
    assert (step.session.id in own) is (person == "rosa"), step.link.why


def test_who_quotes_another_chat_goes_on_in_the_one_of_which_there_is_more() -> None:
    lab = Lab()
    own, other = Chat(lab), Chat(lab)
    for chat, project in ((own, "zephyr"), (other, "maple")):
        for said, answer in turns(project, 5):
            chat.turn(said, answer)
    shown = [*own.history[2::2], *other.history[2:6:2], user("Put all this in order.")]
    step = own.send(shown)
    assert step.session.id == own.session, step.link.why


@pytest.mark.parametrize("later", [False, True])
def test_a_result_is_shortened_for_who_called_for_it_just_now(later: bool) -> None:
    chat = Chat(Lab(), tools=TOOLS)
    chat.turn("Hello", "Good day.")
    chat.history.append(user("Read the log."))
    chat.lab.answer(chat.send(), called("call_1", "read_file", path="log"))
    chat.lab.now += 3600 * later
    made = chat.lab.ask([{"role": "system", "content": SHORTEN}, user("read_file: 200 lines say that all is well.")])
    assert (made.session.parent == chat.session) is not later, made.link.why


@pytest.mark.parametrize("later", [False, True])
def test_a_summary_is_wished_of_what_was_said_just_now(later: bool) -> None:
    chat = Chat(Lab())
    chat.turn(*turns("zephyr", 1)[0])
    chat.lab.now += 3600 * later
    orders = {"role": "system", "content": "Summarize the conversation. The summary of the session is read by a model."}
    made = chat.lab.ask([orders, chat.history[0]])
    assert (made.session.parent == chat.session) is not later, made.link.why


# --- what is said of it in the system prompt ------------------------------------------------------------------------

OTHER = "You are Ada, who knows her way about in houses, and you answer in one sentence. "


@pytest.mark.parametrize("what", ["its summary", "its lines"])
def test_a_summary_in_another_system_prompt_is_a_compaction_but_lines_of_it_are_a_side_call(what: str) -> None:
    chat = Chat(Lab(), named="one")
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    summary = summary_of("zephyr", 6)
    chat.summarise("transcript in one message, no system prompt", summary)
    about = summary if what == "its summary" else transcript(chat.history[4:8])
    step = chat.lab.ask([{"role": "system", "content": OTHER + about}, NEXT], headers=chat.headers)
    assert step.event == ("compacted" if what == "its summary" else "side"), step.link.why


# --- people, programs, ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("person", ["rosa", "emil", "ada"])
def test_a_claimed_summary_is_that_of_who_is_named_though_another_said_the_same(person: str) -> None:
    lab = Lab()
    sessions = {name: talk(lab, turns("zephyr", 4), 9, user=name)[0] for name in ("rosa", "emil")}
    claimed = user("Summary of the conversation so far: " + summary_of("zephyr", 4))
    step = lab.ask([{"role": "system", "content": SYSTEM}, claimed, NEXT], user=person)
    assert [name for name, own in sessions.items() if step.session.id in own] == [person] * (person in sessions)


@pytest.mark.parametrize("later", [False, True])
def test_a_claimed_summary_is_that_of_what_was_said_lately(later: bool) -> None:
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    chat.lab.now += RECENT_S * later
    step = chat.send([user("Summary of the conversation so far: " + summary_of("zephyr", 4)), NEXT])
    assert (step.session.id == chat.session) is not later, step.link.why


def test_our_own_id_names_a_session_that_has_another_of_its_client() -> None:
    chat = Chat(Lab(), named="one")
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    shown = chat.wire([*chat.history[-2:], NEXT])
    step = chat.lab.ask(shown, headers={"x-lantern-session": chat.session, "x-session-id": "two"})
    assert (step.session.id, step.event) == (chat.session, "window"), step.link.why


def test_a_summary_alone_under_another_id_is_no_copy() -> None:
    chat, summary = summarised_chat("one")
    step = chat.lab.ask(chat.wire([user(summary), NEXT]), headers={"x-session-id": "two"})
    assert (step.event, step.session.id != chat.session) == ("new", True), step.link.why


@pytest.mark.parametrize("which", [0, 1])
def test_of_equal_windows_the_one_goes_on_whose_key_of_the_cache_it_has(which: int) -> None:
    lab, found = Lab(), []
    for code in ("7731-R", "9942-E"):
        said = [(f"My code is {code}.", "Noted."), HOURS, ("Thanks a lot!", STOCK)]
        found.append(talk(lab, said, prompt_cache_key=code))
    sessions, history = found[which]
    shown = [{"role": "system", "content": SYSTEM}, *history[-2:], user("Which code do I have?")]
    step = lab.ask(shown, prompt_cache_key=("7731-R", "9942-E")[which])
    assert {step.session.id} == sessions, step.link.why


# --- system prompts that change -------------------------------------------------------------------------------------


def on_day(day: int) -> str:
    return f"{SYSTEM} Today is day {day}."


def dated(lab: Lab, said: list[tuple[str, str]], days: tuple[int, ...], start: int) -> tuple[str, list[Wire]]:
    """A conversation whose system prompt tells the day, and whose client shows what was said from `start` on in the
    end: its session, and all that was said."""
    history: list[Wire] = []
    for day, (asked, answer) in zip(days, said, strict=True):
        history.append(user(asked))
        shown = history[start:] if len(history) > start + 2 else history
        step = lab.ask([{"role": "system", "content": on_day(day)}, *shown])
        lab.answer(step, assistant(answer))
        history.append(assistant(answer))
    return step.session.id, history


@pytest.mark.parametrize("start", [2, 99])
def test_a_prompt_that_tells_the_day_parts_no_two_that_end_alike(start: int) -> None:
    """The one that had another day may have this one now. Its window may have begun a session of its own."""
    lab = Lab()
    own, history = dated(lab, [("My code is 7731-R.", "Noted."), HOURS, ("Thanks a lot!", STOCK)], (1, 2, 2), 2)
    other, _ = dated(lab, [("My code is 9942-E.", "Noted."), HOURS, ("Thanks a lot!", STOCK)], (1, 1, 3), start)
    step = lab.ask([{"role": "system", "content": on_day(2)}, *history[2:], user("Which code do I have?")])
    assert step.session.id not in (own, other), step.link.why


@pytest.mark.parametrize("person", ["rosa", "emil"])
@pytest.mark.parametrize("said", ["", "At your service!"])
def test_a_result_or_a_word_that_another_got_too_leads_to_nobody_elses_session(person: str, said: str) -> None:
    """Of what Rosa's client showed last nobody said a word: it was results alone."""
    lab, orders = Lab(), {"role": "system", "content": SYSTEM}
    first, hours, mine = called("call_1", "run", of="hours"), result("call_1", "9-18"), result("call_2", "Rosa, 7731-R")
    calls = {**first, "tool_calls": [*first["tool_calls"], *called("call_2", "run", of="me")["tool_calls"]]}
    for shown, answer in (
        ([user("I am Rosa.")], assistant("Hello.")),
        ([user("I am Rosa."), assistant("Hello."), user("Please look me up.")], calls),
        ([mine, hours], assistant(said) if said else None),
    ):
        step = lab.ask([orders, *shown], tools=("run",), user="rosa")
        if answer:
            lab.answer(step, answer)
        else:
            lab.fail(step)
    shown = [assistant(said) if said else hours, user("Which contract do I have?")]
    found = lab.ask([orders, *shown], tools=("run",), user=person)
    assert (found.session.id == step.session.id) is (person == "rosa"), found.link.why


def test_who_joins_a_chat_goes_on_with_it_though_another_had_the_same_last_answer():
    lab, hours = Lab(), (user("When are you open on weekdays?"), assistant("From 9 to 18, on Saturdays until noon."))

    def say(history: list[Wire], said: str, answer: str, person: str) -> str:
        history.append(user(said))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history], user=person)
        history.append(assistant(answer))
        lab.answer(step, history[-1])
        return step.session.id

    say([user("My code is 7731-R."), assistant("Noted.")], hours[0]["content"], hours[1]["content"], "ada")
    group: list[Wire] = []
    rosas = say(group, hours[0]["content"], hours[1]["content"], "rosa")
    assert say(group, "And on Sundays, are you open as well?", "Not at all, I am sorry.", "emil") == rosas
    assert say(group, "Then I come on Monday at ten.", "Gladly, see you then.", "rosa") == rosas


# --- what models and programs say to everybody ------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["call_0", "functions.run:0"])
def test_a_number_that_a_model_gave_a_call_names_nobody_who_called_for_something_else(number: str) -> None:
    """Of Emil's chat nothing was seen yet."""
    lab, orders = Lab(), {"role": "system", "content": SYSTEM}

    def chat(name: str, code: str) -> list[Wire]:
        answered = [called(number, "run", of=name), result(number, f"{name} has {code}."), assistant(f"It is {code}.")]
        return [user(f"I am {name}."), *answered]

    rosas = chat("Rosa", "7731-R")
    for end in (1, 3):
        step = lab.ask([orders, *rosas[:end]], tools=("run",))
        lab.answer(step, rosas[end])
    shown = [*chat("Emil", "9942-E"), user("Which contract do I have?")]
    for first in (0, 1):
        found = lab.ask([orders, *shown[first:]], tools=("run",))
        assert found.session.id != step.session.id, found.link.why
    assert lab.ask([orders, *rosas[1:], user("And since when?")], tools=("run",)).session.id == step.session.id


GREETING = assistant("Hello! What can I do for you today?")


@pytest.mark.parametrize("shows", ["all of it", "the last three messages"])
def test_a_greeting_that_the_model_says_too_begins_no_window_of_who_heard_it(shows: str) -> None:
    """It stands in front of each chat, by whom the program was written."""
    lab, orders, history = Lab(), {"role": "system", "content": SYSTEM}, [GREETING]
    said = [("My code is 7731-R.", assistant("Noted.")), ("Hello? Are you there?", GREETING)]
    for text, answer in said if shows == "all of it" else [("Thanks.", said[0][1]), said[1], said[0]]:
        history.append(user(text))
        step = lab.ask([orders, *history[-9 if shows == "all of it" else -3 :]])
        lab.answer(step, answer)
        history.append(answer)
    found = lab.ask([orders, GREETING, user("86363568")])
    assert not any("7731-R" in text for text in lab.texts(found.session.id)), found.link.why


def test_who_was_asked_something_beside_it_ends_in_what_was_said_before_that() -> None:
    """Its client has the next speaker chosen, without the tools of its turns."""
    lab, sessions = Lab(), set[str]()
    for code in ("9942-E", "7731-R"):
        history: list[Wire] = []
        for said, answer in ((f"My code is {code}.", "Noted."), HOURS, ("Thanks a lot!", STOCK)):
            history.append(user(said))
            step = lab.ask([{"role": "system", "content": SYSTEM}, *history], tools=("run",))
            lab.answer(step, assistant(answer))
            history.append(assistant(answer))
        sessions.add(step.session.id)
        if code == "9942-E":
            aside = lab.ask([{"role": "system", "content": SYSTEM}, *history, user("Who speaks next?")])
            lab.answer(aside, assistant("The customer."))
            assert aside.session.id in sessions
    shown = [{"role": "system", "content": SYSTEM}, *history[-3:], user("Which code do I have?")]
    found = lab.ask(shown, tools=("run",))
    assert found.session.id not in sessions, found.link.why


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("shown", [2, 3, 4])
def test_who_was_not_answered_ends_in_what_was_said_before_that(shown: int, keeps: bool) -> None:
    """An upstream was busy; some clients keep the question, others drop it."""
    lab, sessions = Lab(), set[str]()
    for code in ("9942-E", "7731-R"):
        history: list[Wire] = []
        for said, answer in ((f"My code is {code}.", "Noted."), ("Thanks a lot!", STOCK), HOURS):
            history.append(user(said))
            step = lab.ask([{"role": "system", "content": SYSTEM}, *history])
            lab.answer(step, assistant(answer))
            history.append(assistant(answer))
        sessions.add(step.session.id)
    history.append(user("And on Sundays?"))
    lab.fail(lab.ask([{"role": "system", "content": SYSTEM}, *history]))
    asked = [*(history if keeps else history[:-1]), user("Which code do I have?")]
    found = lab.ask([{"role": "system", "content": SYSTEM}, *asked[-1 - shown :]])
    assert found.session.id not in {*sessions} - {step.session.id}, found.link.why


@pytest.mark.parametrize("restarts", [False, True])
def test_examples_that_a_side_call_read_over_lead_to_nobody_after_a_restart_either(restarts: bool) -> None:
    """They stand in front of each chat, and its messages are sorted with them, up to the last answer."""
    lab, orders, sort = (
        Lab(),
        {"role": "system", "content": SYSTEM},
        {"role": "system", "content": "Say: hours or other."},
    )
    lab.restarts = restarts
    examples = [user(HOURS[0]), assistant(HOURS[1]), user("Can I park there?"), assistant("Yes, behind the house.")]
    history = [*examples, user("My code is 7731-R.")]
    step = lab.ask([orders, *history])
    lab.answer(step, assistant(STOCK))
    aside = lab.ask([sort, *history, assistant(STOCK)])
    assert aside.event == "side"
    lab.answer(aside, assistant("other"))
    found = lab.ask([orders, *examples, user("Which code do I have?")])
    assert found.session.id != step.session.id, found.link.why


def test_documents_in_the_system_prompt_part_no_two_that_end_alike() -> None:
    """A program finds them for each question anew."""
    lab, manual = Lab(), f"{SYSTEM} The lamp is red while the line is down, and green when it is up."

    def ask(orders: str, *shown: Wire, answer: str = STOCK) -> Step:
        step = lab.ask([{"role": "system", "content": orders}, *shown])
        lab.answer(step, assistant(answer))
        return step

    some = [user("Where can I park my car?"), assistant("Behind the house, for an hour."), user("And at night?")]
    ask(manual, some[0], answer=some[1]["content"])
    ask(SYSTEM, *some, answer="All night.")
    rosas = ask(manual, user("My code is 7731-R, and the lamp is red."))
    ask(SYSTEM, user("My code is 9942-E."))
    step = ask(manual, assistant(STOCK), user("What does the lamp say?"))
    assert step.session.id != rosas.session.id, step.link.why


@pytest.mark.parametrize("restarts", [False, True])
def test_of_conversations_that_began_in_the_same_words_each_goes_on_under_its_own_cache_key(restarts):
    lab = Lab()
    lab.restarts = restarts
    hello = [{"role": "system", "content": SYSTEM}, user("Hi"), assistant("Hello! How can I help you today?")]
    began = {}
    for name in ("ada", "bea", "cem"):
        step = lab.ask(hello[:2], prompt_cache_key=f"chat-{name}")
        lab.answer(step, hello[2])
        began[name] = step.session.id
    for name in ("bea", "ada", "cem"):
        step = lab.ask(
            [*hello, user(f"My name is {name}, my number is {name}-86125594.")], prompt_cache_key=f"chat-{name}"
        )
        assert step.session.id == began[name]
        lab.answer(step, assistant("That is noted."))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("answered", [False, True])
def test_agents_at_one_task_are_told_apart_by_the_ids_of_their_calls_where_old_results_are_cleared(
    restarts: bool, answered: bool
) -> None:
    """What each called for is the same as well. answered: the other one is a call behind, else two"""
    lab, orders = Lab(), {"role": "system", "content": SYSTEM}
    lab.restarts = restarts

    def work(number: str, steps: int) -> tuple[Step, list[Wire]]:
        history = [user("Review the change against the rules of our team, and report what you find.")]
        for at in range(steps):
            step = lab.ask([orders, *history], tools=("run",))
            call_id = lab.call_id()
            history.append(called(call_id, "run", of=f"file {at}"))
            lab.answer(step, history[-1])
            history.append(result(call_id, f"Of file {at} it says {number if at == 1 else 'nothing'}."))
        return step, history

    own, history = work("7731-R", 3)
    other, _ = work("9942-E", 2 if answered else 1)
    cleared = [{**m, "content": "[cleared]"} if m["role"] == "tool" else m for m in history[:-1]]
    step = lab.ask([orders, *cleared, history[-1]], tools=("run",))
    assert step.session.id == own.session.id != other.session.id, step.link.why


@pytest.mark.parametrize("ends", ["as it began", "as another began"])
def test_a_history_in_one_text_is_that_of_who_said_no_more_than_stands_there(ends: str) -> None:
    """Both began alike; the one came back to that, or was asked what the other is asked now."""
    lab = Lab()

    def say(told: list[str]) -> Step:
        return lab.ask([{"role": "system", "content": SYSTEM}, user("\n".join(told))])

    def talk(*said: tuple[str, str]) -> tuple[set[str], list[str]]:
        told, sessions = list[str](), set[str]()
        for asked, answer in said:
            told.append(f"user: {asked}")
            step = say(told)
            lab.answer(step, assistant(answer))
            told.append(f"assistant: {answer}")
            sessions.add(step.session.id)
        return sessions, told

    code, park = ("My code is 7731-R.", "Noted."), ("Where can I park my car?", "Behind the house, for an hour.")
    _, told = talk(HOURS)
    others, _ = talk(HOURS, park, code, HOURS) if ends == "as it began" else talk(HOURS, park, code)
    step = say([*told, "user: And on Sundays?" if ends == "as it began" else f"user: {park[0]}"])
    assert step.session.id not in others, step.link.why


@pytest.mark.parametrize("told", ["", " with number 7731-R"])
def test_of_two_with_one_name_nobody_gets_what_the_other_said_behind_a_summary_that_fits_both(told: str) -> None:
    """Their bot sums up by a template, and shows no more than that and the question."""
    lab, orders, sessions = Lab(), {"role": "system", "content": SYSTEM}, []
    summary = user(f"The customer Rosa Quint asked about the contract{told}. The matter is still open.")
    for code in ("7731-R", "9942-E"):
        said = [("Hello, I am Rosa Quint, and it is about my contract.", "Hello!"), (f"It is {code}.", "Noted."), HOURS]
        own, _ = talk(lab, said, 9)
        step = lab.ask([orders, summary, user("And what does it cost per month?")])
        sessions.append((own, step.session.id))
        lab.answer(step, assistant("It costs 12 euros."))
    (rosas, first), (_, second) = sessions
    assert first in rosas, "nobody else was there yet"
    assert (second in rosas) is bool(told), "where the number is told, she asks again"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_summary_that_names_nothing_leads_to_the_conversation_whose_model_wrote_it(restarts: bool) -> None:
    lab, orders, own = Lab(), {"role": "system", "content": SYSTEM}, dict[str, str]()
    lab.restarts = restarts

    def told(of: str) -> str:
        return f"So far the user asked about the care of {of}, and wishes for short and slow answers to all of it."

    for of in ("gardens", "engines"):
        history: list[Wire] = []
        for at in range(5):
            history.append(user(f"Please tell me thing {at} of {of}, in a few words and slowly."))
            step = lab.ask([orders, *history])
            history.append(assistant(f"Thing {at} of {of} is like this and that."))
            lab.answer(step, history[-1])
        own[of] = step.session.id
        lab.answer(lab.ask([orders, *history, user("Write down for me what we spoke of so far.")]), assistant(told(of)))
    for season in ("first", "second"):
        for of in own:
            step = lab.ask([orders, user(told(of)), user(f"And what about the {season} season of {of}?")])
            assert step.session.id == own[of], step.link.why
            lab.answer(step, assistant(f"It is good for {of} in the {season}."))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("shown", ["its first order", "its last answer"])
def test_a_summary_that_side_calls_made_of_two_runs_of_one_job_leads_to_neither(shown: str, restarts: bool) -> None:
    """Both did the same up to there; then the first one did something else."""
    lab, orders = Lab(), {"role": "system", "content": SYSTEM}
    lab.restarts = restarts
    told = "The release was prepared in three parts: the notes, the packages, and the page with its pictures."
    asked = [user(f"Prepare part {n} of the release of our package, as it stands in the plan.") for n in range(3)]
    more = (
        "Now begin with the part for Windows, and send 7731-R to the board.",
        "And is there anything left to be done?",
    )
    behind = [asked[0], assistant(told)]

    def run(shown: list[Wire], answer: str) -> Step:
        step = lab.ask([orders, *shown])
        lab.answer(step, assistant(answer))
        return step

    def work() -> tuple[str, list[Wire]]:
        history = list[Wire]()
        for n, each in enumerate(asked):
            step = run([*history, each], f"Part {n} of the release of the package is prepared.")
            history += [each, assistant(f"Part {n} of the release of the package is prepared.")]
        side = lab.ask([{"role": "system", "content": "Summarize the conversation."}, user(transcript(history))])
        assert side.event == "side"
        lab.answer(side, assistant(told))
        return step.session.id, history

    first, history = work()
    if shown == "its last answer":
        work()
        step = run([user(told), history[-1], user(more[1])], "It is done.")
    else:
        assert run([*behind, user(more[0])], "It is begun.").session.id == first  # while nobody else has that summary
        work()
        assert run([*behind, user(more[1])], "Nothing.").session.id != first
        step = run([*behind, user(more[0])], "It is done.")
    assert step.session.id != first, step.link.why


def test_a_history_in_one_text_is_that_of_who_said_most_of_it_though_one_question_is_the_beginning_of_another() -> None:
    lab, orders = Lab(), {"role": "system", "content": SYSTEM}
    lamp = "From the manual: the lamp blinks red when the pressure is low.\nQuestion: What does the red lamp mean?"

    def talk(*said: tuple[str, str]) -> tuple[str, list[Wire]]:
        history = list[Wire]()
        for asked, answer in said:
            history.append(user(asked))
            step = lab.ask([orders, *history])
            lab.answer(step, assistant(answer))
            history.append(assistant(answer))
        return step.session.id, history

    low = "The pressure is low. Fill in water through the valve."
    own, history = talk((f"{lamp} My device is 7731-R.", low))
    other, _ = talk((lamp, low), ("And how long does it take to fill it in?", STOCK))
    step = lab.ask([{"role": "system", "content": "Summarize the conversation."}, user(transcript(history))])
    assert (step.event, step.session.parent) == ("side", own), other


@pytest.mark.parametrize(("foreign", "event"), [(False, "compacted"), (True, "new")])
def test_a_summary_in_two_halves_and_the_question_that_waits_are_its_conversations(foreign: bool, event: str) -> None:
    """foreign: side calls told the same of another conversation"""
    lab, halves = Lab(), (summary_of("zephyr", 3), summary_of("zephyr", [4, 6]))
    for project in ("amber", "zephyr") if foreign else ("zephyr",):
        chat = Chat(lab)
        for said, answer in turns(project, 8):
            chat.turn(said, answer)
        for half in halves:
            lab.answer(lab.ask([user(f"Write it down:\n{transcript(chat.history)}")]), assistant(half))
    asked = user("Which of them is the oldest, and why was that one never changed since?")
    lab.fail(chat.send([*chat.history, asked]))  # the upstream found it too long
    step = chat.send([assistant("\n\n---\n\n".join(halves)), asked])
    assert step.event == event, step.link.why


@pytest.mark.parametrize("own", [False, True])
def test_what_a_client_puts_in_front_parts_no_two_that_end_alike(own: bool) -> None:
    """It may have come to that in the other chat only now."""
    note = user("Until now the customer was told what our web page says about contracts and about hours.")
    lab, closed = Lab(), assistant("We are open from 9 to 18, on Saturdays until noon.")
    a, b = (Chat(lab, system=SYSTEM) for _ in range(2))
    a.turn("My contract is 37878275.", "Tell me when you are ready.")
    a.turn("It is 56148546.", "I will forward your request to a colleague.")
    lab.answer(a.send([note, *a.history[-2:], user("no")]), closed)
    b.turn("55889061", "Tell me when you are ready.")
    b.turn("yes", "Great! Does the green light come on now?")
    b.turn("Is it the device in the hall?" if own else "no", closed["content"])
    step = b.send([note, *b.history[-2:], user("What now?")])
    assert step.session.id == b.session if own else step.event == "new", step.link.why


PROMPT = {"role": "system", "content": SYSTEM}
MANUAL = "From the manual: the device is restarted by its button on the back, which has to be held for ten seconds."
REPORT = (
    "All in all: the device was looked at, its lamp is green again, and nothing else has to be done by the customer."
)


def test_of_two_who_wait_for_an_answer_to_the_same_words_each_gets_their_own() -> None:
    lab = Lab()
    for _ in range(2):
        lab.answer(lab.ask([PROMPT, user("Hi")]), assistant("Noted."))
    shown = [PROMPT, user("Hi"), assistant("Noted."), user("ok")]
    first, second = lab.ask(shown), lab.ask(shown)
    assert first.session.id != second.session.id, second.link.why


def test_who_picks_the_same_numbers_of_a_menu_gets_nothing_of_who_picked_them_before() -> None:
    chat = Chat(Lab(), named="one")
    for said in ("Hi", "2", "3", "My contract is 7731-R."):
        chat.history.append(user(said))
        chat.lab.answer(chat.send(), assistant(f"Thank you for {said}"))
    step = chat.lab.ask([PROMPT, *map(user, ("Hi", "2", "3", "And which contract is mine?"))])
    assert step.event == "new", step.link.why


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (user("Where can I park my car?"), [user("Where can I park my car?")]),
        (parts(MANUAL, "How is it restarted?"), [user("Hello there"), parts(MANUAL, "Which button?")]),
    ],
)
def test_what_one_waits_for_may_be_asked_by_another(asked: Wire, shown: list[Wire]) -> None:
    lab = Lab()
    own, history = talk(lab, [("My contract is 7731-R.", STOCK), HOURS, ("Thanks a lot!", STOCK)])
    lab.fail(lab.ask([PROMPT, *history[-2:], asked]))
    step = lab.ask([PROMPT, *shown])
    assert (step.event, step.session.id in own) == ("new", False), step.link.why


def test_a_reminder_beside_the_question_that_waits_does_not_count() -> None:
    lab = Lab()
    reminder = "<system-reminder>Be brief.</system-reminder>"
    own, history = talk(lab, [("My contract is 7731-R.", STOCK), HOURS, ("Thanks a lot!", STOCK)])
    asked = parts(reminder, "Where can I park my car?")
    lab.fail(lab.ask([PROMPT, *history[-2:], asked]))
    step = lab.ask([PROMPT, user("Hello there"), asked])
    assert step.session.id in own, step.link.why


def test_the_same_report_to_two_is_neithers_summary() -> None:
    lab = Lab()
    for name in ("zephyr", "borealis"):
        chat = Chat(lab)
        for said, answer in turns(name, 4):
            chat.turn(said, answer)
        chat.turn("How does it stand?", REPORT)
    step = lab.ask([PROMPT, user(REPORT), user("What does it mean?")])
    assert step.event == "new", step.link.why


ORDERS = "You sort the messages of customers into those about hours and others, in 7 words."


@pytest.mark.parametrize("said", [ORDERS, "7"])
def test_phrases_in_one_text_under_a_prompt_of_which_one_user_said_a_part_are_nobodys(said: str) -> None:
    lab = Lab()
    common = [HOURS, ("Thanks a lot!", STOCK)]
    talk(lab, [(said, "Good."), *common], 9)
    _, history = talk(lab, [("I am Emil.", "Hello Emil."), *common], 9)
    step = lab.ask([{"role": "system", "content": ORDERS}, user(transcript(history[2:]))])
    assert step.link.side
    assert step.link.session is None, step.link.why


def test_a_summary_of_all_that_was_said_is_its_conversations_though_another_said_what_it_began_with() -> None:
    lab = Lab()
    first, other = Chat(lab), Chat(lab)
    asked = "Please tell me how the lamp on the front has to be read."
    other.turn("Good evening to you all", "Good evening.")
    first.turn(asked, "Green means that all is well.")
    other.turn(asked, "Green means that all is well.")
    first.turn("My contract is 7731-R.", "I have noted that.")
    wish = {"role": "system", "content": "Summarize the conversation for a colleague. Keep names."}
    step = lab.ask([wish, *first.history, user("Write it.")])
    assert step.session.parent == first.session, step.link.why
