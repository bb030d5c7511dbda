"""A new conversation gets nothing of another, though it begins with what speaks of the same things: documents, notes,
the state of a folder. One key may serve many people."""

import json
from collections.abc import Callable

import pytest
from chats import (
    STYLES,
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
from lantern_proxy.session import forget

Shape = Callable[[str, list[Wire]], tuple[str, list[Wire]]]
"""(documents, history with the question at its end) -> system prompt, messages"""


@pytest.fixture(autouse=True, params=[False, True], ids=["", "a restart before each request"])
def _restarts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose a request is depends on no restart."""
    monkeypatch.setattr(Lab, "restarts", request.param)


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


def test_a_note_about_a_conversation_that_shows_its_lines_in_other_words_is_not_the_conversation() -> None:
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    told = "\n".join(f"Customer: {documents(n)}\nAgent: It is done, and {documents(n)}" for n in (0, 2, 4))
    note = chat.lab.ask(chat.wire([user(f"Write a note about the conversation so far:\n\n{told}")]))
    assert note.session.id != chat.session, note.link.why
    assert chat.turn("And what comes next?", "The review does.").event == "turn"


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


# --- bots that say the same to many --------------------------------------------------------------------------------

PEOPLE = (("Rosa Quint", "48213377"), ("Emil Haug", "70955102"))
Ask = Callable[[Lab, int, list[Wire]], Step]


def menu(who: int) -> list[tuple[str, str]]:
    """What a support bot and its customer say: from the fourth turn on what all say."""
    name, number = PEOPLE[who]
    return [
        ("Hi", "Hello! How can I help you today?"),
        (f"I am {name} and my line is dead.", f"Sorry to hear that, {name}. Please tell me your customer number."),
        (f"It is {number}.", f"Thank you, I found contract {number}. Restart the device and tell me when it is done."),
        ("ok", "Tell me when you are ready."),
        ("done", "Great! Does the green light come on now?"),
        ("yes", "Wonderful. Is there anything else I can help you with?"),
        ("no", "Thank you for contacting us. Have a nice day!"),
    ]


def plainly(lab: Lab, who: int, history: list[Wire]) -> Step:
    return lab.ask([{"role": "system", "content": SYSTEM}, *history])


NAMED: dict[str, Ask] = {
    "by user": lambda lab, who, h: lab.ask([{"role": "system", "content": SYSTEM}, *h], user=f"person-{who}"),
    "by safety_identifier": lambda lab, who, h: lab.ask(
        [{"role": "system", "content": SYSTEM}, *h], safety_identifier=f"person-{who}"
    ),
    "in the system prompt": lambda lab, who, h: lab.ask(
        [{"role": "system", "content": f"{SYSTEM} You talk to {PEOPLE[who][0]}."}, *h]
    ),
}


def held(lab: Lab, order: list[tuple[int, int]], ask: Ask, window: int) -> list[tuple[int, Step]]:
    """Both talk to the bot, of which so many messages are shown to the model: (who, what came of it)."""
    histories: tuple[list[Wire], list[Wire]] = ([], [])
    steps = []
    for who, n in order:
        said, answer = menu(who)[n]
        histories[who].append(user(said))
        steps.append((who, step := ask(lab, who, histories[who][-window:])))
        lab.answer(step, assistant(answer))
        histories[who].append(assistant(answer))
    return steps


def is_told_to(lab: Lab, steps: list[tuple[int, Step]], who: int) -> bool:
    """Is a number of the other one filed in a session that was asked for by this one once both had told theirs?"""
    asked = {step.session.id for by, step in steps if by == who}
    return any(PEOPLE[1 - who][1] in text for session in asked for text in lab.texts(session))


ONE_AFTER_THE_OTHER = [(who, n) for who in (0, 1) for n in range(7)]
BOTH_AT_ONCE = [(who, n) for n in range(7) for who in (0, 1)]


@pytest.mark.parametrize("window", [3, 5, 7])
def test_the_second_customer_of_a_bot_goes_on_in_a_conversation_of_their_own(window: int) -> None:
    """Up to a request that is wholly the one with which the first one ended."""
    steps = held(Lab(), ONE_AFTER_THE_OTHER[:-1], plainly, window)
    assert len({step.session.id for who, step in steps if who == 0}) == 1
    assert len({step.session.id for who, step in steps if who == 1}) == 1
    assert steps[0][1].session.id != steps[-1][1].session.id


def test_whose_question_it_is_that_both_ask_behind_the_same_words_is_not_guessed() -> None:
    lab = Lab()
    first, second = [], []
    for who, history in enumerate((first, second)):
        for said, answer in menu(who):
            history.append(user(said))
            lab.answer(plainly(lab, who, history[-5:]), assistant(answer))
            history.append(assistant(answer))
        history.append(user("What is the customer number that you have of me?"))
        step = plainly(lab, who, history[-5:])
        lab.answer(step, assistant("It is as you said."))
        assert not any(PEOPLE[1 - who][1] in text for text in lab.texts(step.session.id)), step.link.why


@pytest.mark.parametrize("window", [3, 5, 7])
def test_of_two_customers_who_say_the_same_at_the_same_time_neither_gets_what_the_other_said(window: int) -> None:
    lab = Lab()
    steps = held(lab, BOTH_AT_ONCE, plainly, window)
    swapped = steps[2][1].session.id != steps[0][1].session.id  # two equal greetings: either is right
    for who, step in steps[2:]:
        other = PEOPLE[1 - who][1]
        texts = lab.texts(step.session.id)
        assert not any(other in text for text in texts), (who, swapped, step.link.why)


@pytest.mark.parametrize("name", NAMED)
def test_customers_who_are_named_go_on_where_they_were_though_they_say_the_same(name: str) -> None:
    lab = Lab()
    steps = held(lab, BOTH_AT_ONCE, NAMED[name], 5)
    for who in (0, 1):
        assert len({step.session.id for by, step in steps if by == who}) == 1
        assert not is_told_to(lab, steps, who)


WAIT = "I will forward your request to a colleague, please hold on for a moment."
NUMBER = "Please tell me your contract number so that I can look it up for you."
ELSE = "Is there anything else that I can help you with today?"


def windowed(lab: Lab, window: int, told: list[tuple[str, str]], **body: str) -> list[str]:
    """One customer's turns in a window of so many messages; the session of each."""
    history: list[Wire] = []
    sessions = []
    for said, answer in told:
        history.append(user(said))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history[-window:]], **body)
        lab.answer(step, assistant(answer))
        history.append(assistant(answer))
        sessions.append(step.session.id)
    return sessions


@pytest.mark.parametrize("greeting", ["Hello", "How much is it?"])
def test_who_says_later_what_another_opened_with_goes_on_where_their_own_words_end(greeting: str) -> None:
    lab = Lab()
    first = windowed(lab, 5, [(greeting, "How can I help?"), ("I move, I am Rosa Quint.", NUMBER), ("48213377", WAIT),
                              ("Birch Lane 14", ELSE), ("No, thanks", "Have a nice day!")])  # fmt: skip
    second = windowed(lab, 5, [("It broke. I am Emil Haug.", NUMBER), ("70955102", WAIT), ("OK", ELSE),
                               (greeting, WAIT), (greeting, "How can I help?"), ("Who am I?", "You.")])  # fmt: skip
    assert (len({*first}), len({*second}), {*first} & {*second}) == (1, 1, set())


def test_the_words_of_other_people_take_nothing_from_who_is_named() -> None:
    lab = Lab()
    told = [("Hi.", "Good morning, what can I do for you?"), ("Yes", "I am listening."), ("My code is {}.", "Noted."),
            ("Yes", "I am listening."), ("OK", ELSE), ("Which is my code?", "It is x.")]  # fmt: skip
    for person, code in (("rosa", "7731-R"), ("emil", "9942-E"), ("ada", "1180-A")):
        sessions = windowed(lab, 3, [(said.format(code), answer) for said, answer in told], user=person)
        assert len({*sessions}) == 1, (person, sessions)


@pytest.mark.parametrize("person", ["user", "safety_identifier", ""])
def test_who_is_left_with_the_questions_that_another_is_left_with_gets_nothing_of_them(person: str) -> None:
    """Of both chats no more is shown than what all ask, in the same words."""
    lab, steps = Lab(), {}
    common = [("When are you open?", "From 9 to 18 on weekdays, on Saturdays until noon."),
              ("Where can I park my car?", "Behind the house, the first hour is free.")]  # fmt: skip
    for code, shown_from in (("7731-R", (0, 0, 2)), ("9942-E", (0, 0, 0, 2))):
        history: list[Wire] = []
        body = {person: f"who-{code}"} if person else {}
        told = [(f"My contract is {code}.", "Noted."), *common, ("Which is mine?", "That.")]
        for start, (said, answer) in zip(shown_from, told, strict=False):
            history.append(user(said))
            step = steps[code] = lab.ask([{"role": "system", "content": SYSTEM}, *history[start:]], **body)
            lab.answer(step, assistant(answer))
            history.append(assistant(answer))
    for code, other in (("7731-R", "9942-E"), ("9942-E", "7731-R")):
        texts = lab.texts(steps[code].session.id)
        assert not any(other in text for text in texts)
        assert any(code in text for text in texts) or not person


def test_who_shows_no_more_than_another_began_with_gives_them_nothing() -> None:
    lab, asked, answer = Lab(), "When are you open on weekdays?", "From 9 to 18, and on Saturdays until noon."
    history: list[Wire] = []
    for said, told in (
        ("My contract is 7731-R.", "Noted."),
        ("My box is dead.", "We come on Friday."),
        (asked, answer),
    ):
        history.append(user(said))
        lab.answer(lab.ask([{"role": "system", "content": SYSTEM}, *history]), assistant(told))
        history.append(assistant(told))
    fresh = [user(asked), assistant(answer)]
    lab.answer(lab.ask([{"role": "system", "content": SYSTEM}, fresh[0]]), fresh[1])
    trimmed = lab.ask([{"role": "system", "content": SYSTEM}, *history[-2:], user("Fine, thank you.")])
    lab.answer(trimmed, assistant("You are welcome."))
    for said in ("Can I come at eleven?", "What is my contract?"):
        fresh.append(user(said))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *fresh])
        lab.answer(step, assistant("Yes."))
        fresh.append(assistant("Yes."))
        assert not any("7731-R" in text for text in lab.texts(step.session.id)), (said, step.link.why)


DOCUMENTS: dict[str, Callable[[str, str], list[Wire]]] = {
    "in front": lambda d, q: [user(f"Context:\n{d}\n\nQuestion: {q}")],
    "behind": lambda d, q: [user(f"{q}\n\nContext:\n{d}")],
    "within": lambda d, q: [user(f"Context:\n{d}\n{q}\nAnswer in one sentence.")],
    "in a message before": lambda d, q: [user(f"Context:\n{d}"), user(q)],
}


@pytest.mark.parametrize("window", [6, 99])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_questions_whose_documents_are_not_shown_again_go_on_each_in_its_own_conversation(
    name: str, window: int
) -> None:
    """Two who share all but a message: what the one was asked without documents the other was asked with them."""
    lab, held = Lab(), []
    for who, invoice in (("Rosa Quint, contract 48213377", "INV-5519"), ("Emil Haug, contract 70955102", "INV-8820")):
        history: list[Wire] = []
        for n, (said, answer) in enumerate([
            (f"Hi, I am {who}. My router is dead.", "Please hold its pin for 12 seconds."),
            ("Done, the lamp is amber now.", "Good, it will restart."),
            (f"I want a refund for the invoice {invoice}.", "Refunds take 14 days."),
            ("And what about roaming in Norway?", "25 GB are included."),
            ("I move house soon.", "Please use the form MV-3."),
            ("Which is my contract?", "It is as you said."),
        ]):  # fmt: skip
            asked = DOCUMENTS[name](documents(n), said)
            step = lab.ask([{"role": "system", "content": SYSTEM}, *history[-window:], *asked])
            lab.answer(step, assistant(answer))
            history += [user(said), assistant(answer)]
            held.append(step.session.id)
    assert (len({*held[:6]}), len({*held[6:]}), {*held[:6]} & {*held[6:]}) == (1, 1, set())


@pytest.mark.parametrize("who", [0, 1])
def test_of_equal_windows_the_one_goes_on_whose_calls_have_these_ids(who: int) -> None:
    lab = Lab()
    rooms: list[tuple[str, list[Wire]]] = []
    for code in ("7731-R", "9942-E"):
        call = lab.call_id()
        history = [user(f"My alarm code is {code}."), assistant("Noted."), user("Turn on the light in the hall please"),
                   called(call, "run", light="hall"), result(call, "ok")]  # fmt: skip
        for shown, answer in (
            (history[:1], history[1]),
            (history[:3], history[3]),
            (history[2:], assistant("It is on.")),
        ):
            step = lab.ask([{"role": "system", "content": SYSTEM}, *shown], tools=TOOLS)
            lab.answer(step, answer)
        rooms.append((step.session.id, [*history[2:], assistant("It is on.")]))
    session, shown = rooms[who]
    step = lab.ask([{"role": "system", "content": SYSTEM}, *shown, user("What is my alarm code?")], tools=TOOLS)
    assert step.session.id == session


def test_of_equal_windows_that_lost_different_things_nobody_gets_what_the_other_lost() -> None:
    lab = Lab()
    histories: dict[str, list[Wire]] = {"7731-R": [], "9942-E": []}

    def say(code: str, said: str, window: int) -> Step:
        histories[code].append(user(said))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *histories[code][-window:]])
        answer = assistant(f"This is what I say to: {said.removesuffix(f' {code}')}")
        lab.answer(step, answer)
        histories[code].append(answer)
        return step

    for code in histories:
        for said, window in (
            (f"My code is {code}", 9),
            ("Turn on the light in the hall please", 9),
            ("Is it locked?", 3),
        ):
            say(code, said, window)
    for n, (code, other) in enumerate((("7731-R", "9942-E"), ("9942-E", "7731-R")) * 2):
        step = say(code, f"And what about the garage number {n}?", 5 + 2 * (n // 2))
        assert not any(other in text for text in lab.texts(step.session.id)), (n, step.link.why)


@pytest.mark.parametrize("at_once", [False, True])
def test_runs_of_one_task_whose_calls_have_the_same_ids_stay_apart_when_results_are_cleared(at_once: bool) -> None:
    """Some models number their calls."""
    lab = Lab()
    histories = [[user("Run the morning report: fetch the sales, then write to the channel.")] for _ in range(3)]
    sessions: list[str] = [""] * 3
    order = (
        [(run, n) for n in range(4) for run in range(3)] if at_once else [(r, n) for r in range(3) for n in range(4)]
    )
    for run, n in order:
        history = histories[run]
        cleared = [{**m, "content": "[cleared]"} if m["role"] == "tool" else m for m in history[:-1]]
        step = lab.ask([{"role": "system", "content": SYSTEM}, *cleared, history[-1]], tools=TOOLS)
        sessions[run] = sessions[run] or step.session.id
        texts = lab.texts(step.session.id)
        assert not any(f"{6000 + other} units" in text for other in range(3) if other != run for text in texts)
        call = called(f"call_{n}", "run", command=f"fetch {n}")
        lab.answer(step, call)
        said = (
            f"{6000 + run} units were sold in the north, and the rest is as before" if n == 0 else "nothing to report"
        )
        history += [call, result(f"call_{n}", said)]
    assert len({*sessions}) == 3


HELLO = ("Hi.", "Good morning, what can I do for you?")
HOURS = ("When are you open on weekdays?", "We are open from 9 to 18, on Saturdays until noon.")
FRONT = user("Until now the customer was told what our web page says about contracts and about opening hours.")
LOOKED_UP = [called("call_hours", "run", of="hours"), result("call_hours", "weekdays 9-18, saturdays 9-12")]
"""What a client looks up itself, for all its users under one id."""


def with_look_ups(lab: Lab, window: int, told: list[tuple[str, str]], front: list[Wire], looked_up: int) -> list[Step]:
    """One customer's turns in a window of so many messages, behind `front` once some are left out; the client looks
    something up in front of the answer of this number."""
    history: list[Wire] = []
    steps = []
    for n, (said, answer) in enumerate(told):
        history += [user(said), *(LOOKED_UP if n == looked_up else [])]
        shown = [*front, *history[-window:]] if len(history) > window else history
        steps.append(step := lab.ask([{"role": "system", "content": SYSTEM}, *shown], tools=TOOLS))
        lab.answer(step, assistant(answer))
        history.append(assistant(answer))
    return steps


@pytest.mark.parametrize("looked_up", [-1, 2])
def test_a_request_is_of_who_got_the_answer_that_it_shows_last_though_another_has_all_of_it(looked_up: int) -> None:
    """That one went on since; what all clients put in front, or look up behind the answer, is no evidence."""
    lab, window = Lab(), 2 if looked_up < 0 else 5
    told = [
        HELLO,
        ("Thanks, I will wait.", WAIT),
        HOURS,
        ("My contract is 48213377.", "Noted."),
        ("Which is it?", ELSE),
    ]
    with_look_ups(lab, window, told, [FRONT], looked_up)
    for step in with_look_ups(lab, window, [HELLO, *told[1:3], ("Which is my contract?", ELSE)], [FRONT], looked_up):
        assert not any("48213377" in text for text in lab.texts(step.session.id)), step.link.why


def test_what_a_client_looks_up_for_words_that_are_said_again_is_no_answer() -> None:
    """It stands where the answer to the first ones would."""
    lab, system = Lab(), {"role": "system", "content": SYSTEM}
    for shown in ([user("OK")], [user("OK"), *LOOKED_UP]):
        step = lab.ask([system, *shown], tools=TOOLS, headers={"x-session-id": "rosa"})
        lab.answer(step, assistant(WAIT))
    other = lab.ask([system, user(HOURS[0]), *LOOKED_UP], tools=TOOLS)
    assert other.session.id != step.session.id, other.link.why


def test_after_a_restart_what_a_client_looked_up_twice_is_no_answer() -> None:
    """A window showed the result of the first look-up longer than its call: of the second, the call alone is new."""
    lab, history = Lab(), list[Wire]()
    for n, said in enumerate((HOURS[0], "Fine.", "Thanks a lot.", "And on Sundays?", "My contract is 48213377.")):
        history += [user(said), *(LOOKED_UP if n in (0, 3) else [])]
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history[-5:]], tools=TOOLS)
        lab.answer(step, assistant(WAIT))
        history.append(assistant(WAIT))
    lab.restart()
    other = lab.ask([{"role": "system", "content": SYSTEM}, user("Hello?"), *LOOKED_UP], tools=TOOLS)
    assert not any("48213377" in text for text in lab.texts(other.session.id)), other.link.why


@pytest.mark.parametrize("how", ["instruction at the end", "as a turn"])
@pytest.mark.parametrize("words", ["", "Summary of the conversation so far: "])
def test_the_same_summary_of_two_conversations_goes_on_in_each_with_its_own(words: str, how: str) -> None:
    lab = Lab()
    summary = "The customer reported that a line is dead. The agent asked for a restart, and the customer did it."
    chats = [Chat(lab), Chat(lab)]
    for who, chat in enumerate(chats):
        for said, answer in menu(who)[:5]:
            chat.turn(said, answer)
        if how == "as a turn":
            assert chat.turn("Schreib bitte auf, was bisher geschah.", summary).event == "turn"
            del chat.history[-2:]
        else:
            chat.summarise(how, summary)
        step = chat.compact(STYLES["summary as user message, tail"], words + summary, "yes", "Wonderful. And then?")
        assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why
        assert not any(PEOPLE[1 - who][1] in text for text in lab.texts(step.session.id))


def test_conversations_with_the_same_short_answers_go_on_in_what_they_began_with() -> None:
    """Their texts are in another dress with every request, so that no end of a history is as it was."""
    lab = Lab()
    talks = [[f"This is talk {who} about point {n}" for n in range(5)] for who in (0, 1)]
    sessions = ["", ""]
    for n in range(5):
        for who, talk in enumerate(talks):
            shown = [m for text in talk[:n] for m in (user(" " * n + text + "\n" * n), assistant("Fine."))]
            step = lab.ask([*shown, user(talk[n])])
            lab.answer(step, assistant("Fine."))
            sessions[who] = sessions[who] or step.session.id
            assert (step.event, step.session.id) == ("turn" if n else "new", sessions[who]), step.link.why


# --- examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [0, 2])
@pytest.mark.parametrize("most", [2, 4, 8])
def test_questions_with_examples_of_those_answered_before_stand_alone(most: int, fixed: int) -> None:
    """The newest first, or those most like the question: behind examples that never change."""
    lab = Lab()
    old = [m for said, answer in turns("maple", fixed) for m in (user(said), assistant(answer))]
    answered: list[tuple[str, str]] = []
    for n, (said, answer) in enumerate(turns("zephyr", 8)):
        shown = [m for pair in answered[::-1][:most] for m in (user(pair[0]), assistant(pair[1]))]
        step = lab.ask([{"role": "system", "content": SYSTEM}, *old, *shown, user(said)])
        lab.answer(step, assistant(answer))
        answered.append((said, answer))
        if n > 1:
            assert (step.event, step.link.why) == ("new", "nothing known")


def test_questions_with_examples_of_what_several_people_asked_are_none_of_theirs() -> None:
    lab = Lab()
    people = [Chat(lab) for _ in range(3)]
    shown: list[Wire] = []
    for chat, about in zip(people, ("zephyr", "maple", "payments"), strict=True):
        for said, answer in turns(about, 2):
            chat.turn(said, answer)
        shown += chat.history[-2:]
    step = lab.ask([{"role": "system", "content": SYSTEM}, *shown, user("And who signs for the delivery?")])
    assert step.event == "new", step.link.why


@pytest.mark.parametrize("picked", [(0, 1), (2, 1, 0), (0, 2, 3), (3, 0, 1, 2)])
def test_a_question_behind_examples_of_which_each_was_asked_alone_is_none_of_theirs(picked: tuple[int, ...]) -> None:
    lab = Lab()
    asked = turns("zephyr", 5)
    sessions = set()
    for said, answer in asked[:4]:
        step = lab.ask([{"role": "system", "content": SYSTEM}, user(said)])
        lab.answer(step, assistant(answer))
        sessions.add(step.session.id)
    shown = [m for n in picked for m in (user(asked[n][0]), assistant(asked[n][1]))]
    step = lab.ask([{"role": "system", "content": SYSTEM}, *shown, user(asked[4][0])])
    assert (step.event, len(sessions), step.session.id in sessions) == ("new", 4, False), step.link.why
    lab.answer(step, assistant(asked[4][1]))
    shown += [user(asked[4][0]), assistant(asked[4][1]), user("And what comes next in it?")]
    later = lab.ask([{"role": "system", "content": SYSTEM}, *shown])
    assert (later.event, later.session.id) == ("turn", step.session.id)


def test_who_goes_back_behind_what_was_said_twice_goes_on_and_shows_no_examples() -> None:
    chat, (first, last) = Chat(Lab()), turns("zephyr", 2)
    for said, answer in (("Thanks a lot!", "You are welcome."), first, ("Thanks a lot!", "You are welcome."), last):
        chat.turn(said, answer)
    step = chat.send([*chat.history[:6], user("And who signs for the delivery?")])
    assert step.session.id == chat.session, step.link.why


def test_what_left_the_window_may_stand_in_front_of_what_was_said_last() -> None:
    """Its client looks up what is like the question, also after a loss."""
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 8):
        chat.turn(said, answer)
    whole, chat.history = chat.history, chat.history[-4:]
    assert chat.turn("Which of them comes first?", "The second.").event == "window"
    step = chat.send([*whole[2:4], *whole[6:8], *chat.history[-2:], user("And why?")])
    assert step.session.id == chat.session, step.link.why


# --- a phrase, a document, a key that many share -------------------------------------------------------------------


def told_by(lab: Lab, step: Step, who: int = 0) -> bool:
    """Does the session of `step` hold what this one said?"""
    return any(PEOPLE[who][1] in text for text in lab.texts(step.session.id))


def customer(lab: Lab, count: int = 7, **body: str) -> list[Wire]:
    history: list[Wire] = []
    for said, answer in menu(0)[:count]:
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history, user(said)], **body)
        lab.answer(step, assistant(answer))
        history += [user(said), assistant(answer)]
    return history


PHRASE = "Sorry to hear that, Rosa Quint. Please tell me your customer number."
SEEN: dict[str, list[Wire]] = {
    "a clerk's phrase": [user("The device blinks red."), assistant(PHRASE), user("It is 70955102.")],
    "a greeting": [assistant(PHRASE), user("Which number do you have of me?")],
    "a phrase among others": [
        user("Good morning"), assistant("Good morning, this is Ida of the service."), user("It blinks red."),
        assistant(PHRASE), user("70955102"), assistant("And since when does it blink?"), user("Since noon."),
    ],
    "the last phrase": [user("It works again."), assistant(menu(0)[-1][1]), user("Which number do you have of me?")],
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_a_phrase_that_another_customer_heard_too_gives_nothing_of_them(name: str) -> None:
    lab = Lab()
    customer(lab)
    step = lab.ask([{"role": "system", "content": SYSTEM}, *SEEN[name]])
    assert (step.event, told_by(lab, step)) == ("new", False), step.link.why


def test_a_key_of_the_cache_is_no_evidence_beside_a_phrase() -> None:
    lab = Lab()
    customer(lab, prompt_cache_key="app")
    shown = [user("It works."), assistant("Tell me when you are ready."), user("Which number do you have of me?")]
    step = lab.ask([{"role": "system", "content": SYSTEM}, *shown], prompt_cache_key="app")
    assert (step.event, told_by(lab, step)) == ("new", False), step.link.why


def test_what_another_person_said_is_not_yours_though_you_say_the_same_unless_you_are_a_group() -> None:
    lab = Lab()
    history = customer(lab, user="rosa")
    asked = [{"role": "system", "content": SYSTEM}, *history[-2:], user("Which number do you have of me?")]
    assert not told_by(lab, lab.ask(asked, user="emil"))
    asked = [{"role": "system", "content": SYSTEM}, *history[-4:], user("And who else takes part here?")]
    assert not told_by(lab, lab.ask(asked, user="emil"))


def test_who_speaks_behind_all_that_was_said_takes_part_and_goes_on_with_what_is_shown_later() -> None:
    lab, history, steps = Lab(), [], []
    for n, (said, answer) in enumerate(turns("zephyr", 8)):
        history.append(user(said))
        shown = history if n < 4 else history[-5:]
        steps.append(lab.ask([{"role": "system", "content": SYSTEM}, *shown], user=("rosa", "emil", "ada")[n % 3]))
        lab.answer(steps[-1], assistant(answer))
        history.append(assistant(answer))
    assert {step.session.id for step in steps} == {steps[0].session.id}
    assert [step.event for step in steps] == ["new", *["turn"] * 3, *["window"] * 4]


def test_after_a_restart_people_who_are_named_are_still_told_apart() -> None:
    lab = Lab()
    history = customer(lab, user="rosa")
    lab.restart()
    asked = [{"role": "system", "content": SYSTEM}, *history[-4:], user("Which number do you have of me?")]
    assert not told_by(lab, lab.ask(asked, user="emil"))
    assert told_by(lab, lab.ask(asked, user="rosa"))


def test_whose_chat_ends_in_what_is_shown_goes_on_though_another_went_through_the_same() -> None:
    lab, common = Lab(), [("What about roaming in Norway?", "25 GB are included."),
                          ("How do I get my money back?", "It comes in 14 days."), ("It is on.", "Good.")]  # fmt: skip
    told: dict[str, list[str]] = {}
    for name, documents in (("Ada Berg", "of light"), ("Emil Haug", "")):
        history: list[Wire] = []
        last = ("I move house.", "Please use form MV-3.") if told else common[2]
        for n, (said, answer) in enumerate([(f"I am {name}, my router is dead.", "Hold its pin."), *common[:2], last]):
            history.append(user(said))
            system = f"{SYSTEM} Sources: {documents if n < 3 else 'of light'}"
            shown = history[-5:] if n == 3 else history
            step = lab.ask([{"role": "system", "content": system}, *shown])
            lab.answer(step, assistant(answer))
            history.append(assistant(answer))
            told.setdefault(name, []).append(step.session.id)
    assert [len({*ids}) for ids in told.values()] == [1, 1]
    assert told["Ada Berg"][0] != told["Emil Haug"][0]


TERMS = "Travel policy: class B is allowed up to 840 EUR for the staff of Nordwind, with approval of the line manager."
HOTELS = "Hotel policy: 120 EUR a night in Lisbon and 140 EUR a night in Bergen, with breakfast included in both."


def test_who_asks_about_a_document_gets_nothing_of_who_got_no_answer_about_it() -> None:
    lab = Lab()
    history = customer(lab)
    lab.fail(lab.ask([{"role": "system", "content": SYSTEM}, *history, parts(TERMS, "May I fly in class B?")]))
    step = lab.ask([{"role": "system", "content": SYSTEM}, parts(TERMS, "What is allowed?")])
    assert (step.event, told_by(lab, step)) == ("new", False), step.link.why


@pytest.mark.parametrize("kept", [True, False])
def test_who_asks_about_two_documents_gets_nothing_of_who_asked_about_both(kept: bool) -> None:
    lab = Lab()
    history = customer(lab)
    asked = parts(TERMS, HOTELS, "May I fly in class B?")
    lab.answer(lab.ask([{"role": "system", "content": SYSTEM}, *history, asked]), assistant("Yes, up to 840 EUR."))
    shown = [*history[-2:], asked if kept else user("May I fly in class B?"), assistant("Yes, up to 840 EUR.")]
    step = lab.ask([{"role": "system", "content": SYSTEM}, *shown, user("And breakfast?")])
    assert step.event == "window"
    lab.answer(step, assistant("It is included."))
    step = lab.ask([{"role": "system", "content": SYSTEM}, parts(TERMS, HOTELS, "What may a hotel cost in Lisbon?")])
    assert (step.event, told_by(lab, step)) == ("new", False), step.link.why


# --- what side calls answer that is no summary ---------------------------------------------------------------------

ASKED_ANEW = "Which documents are required to move a contract of Acme Broadband to a new address in the same city?"
NOTED = "Has had problems with the internet connection since yesterday evening"
MADE_ASIDE: dict[str, tuple[str, Callable[[str], tuple[str, list[Wire]]]]] = {
    "a question, worded anew": (ASKED_ANEW, lambda a: (SYSTEM, [user(a)])),
    "a question, worded anew, behind documents": (ASKED_ANEW, lambda a: (SYSTEM, [user(f"{TERMS}\n\nQuestion: {a}")])),
    "a fact of a list": (
        json.dumps({"facts": [NOTED]}),
        lambda a: (f"{SYSTEM}\n\n# Memories\n- {NOTED}\n- Likes jazz", [user("How do I bake a plum cake?")]),
    ),
    "a fact of a list of records": (
        json.dumps({"memory": [{"id": "0", "text": NOTED, "event": "ADD"}]}),
        lambda a: (f"{SYSTEM}\n\n# Memories\n- {NOTED}\n- Likes jazz", [user("How do I bake a plum cake?")]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE_ASIDE)
def test_what_a_side_call_made_of_a_conversation_gives_it_to_nobody_who_says_the_same(name: str) -> None:
    lab = Lab()
    history = customer(lab)
    made, shown = MADE_ASIDE[name]
    side = lab.ask([user(f"Read the conversation and do as you were told.\n\n{transcript(history)}")])
    assert (side.event, told_by(lab, side)) == ("side", True), side.link.why
    lab.answer(side, assistant(made))
    system, messages = shown(made)
    step = lab.ask([{"role": "system", "content": system}, *messages])
    assert (step.event, step.link.why) == ("new", "nothing known")


@pytest.mark.parametrize("named", ["acme-4711", ""])
def test_remembered_facts_alone_lead_to_no_conversation_but_the_one_that_their_client_names(named: str) -> None:
    lab = Lab()
    chat = Chat(lab, named=named)
    for said, answer in menu(0)[:5]:
        chat.turn(said, answer)
    side = lab.ask([user(f"Read the conversation and do as you were told.\n\n{transcript(chat.history)}")])
    lab.answer(side, assistant(json.dumps({"facts": [NOTED]})))
    remembered = {"role": "system", "content": f"{SYSTEM}\n\n# Memories\n- {NOTED}"}
    step = lab.ask([remembered, user("Does it work again?")], headers=chat.headers)
    assert (step.event, step.session.id == chat.session) == (("compacted", True) if named else ("new", False))


@pytest.mark.parametrize("named", [True, False])
def test_a_summary_that_two_got_is_nobodys_unless_one_of_them_is_named(named: bool) -> None:
    lab = Lab()
    summary = "The customer reported that a line is dead. The agent asked for a restart, and the customer did it."
    sessions = []
    for who in (0, 1):
        history: list[Wire] = []
        body = {"user": f"person-{who}"} if named else {}
        for said, answer in menu(who)[:5]:
            step = lab.ask([{"role": "system", "content": SYSTEM}, *history, user(said)], **body)
            lab.answer(step, assistant(answer))
            history += [user(said), assistant(answer)]
        sessions.append(step.session.id)
        side = lab.ask([{"role": "system", "content": "Sum it up."}, user(transcript(history))], **body)
        lab.answer(side, assistant(summary))
    for who, session in enumerate(sessions):
        asked = [user(f"So far: {summary}"), user(f"Which number did {PEOPLE[who][0]} give?")]
        body = {"user": f"person-{who}"} if named else {}
        step = lab.ask([{"role": "system", "content": SYSTEM}, *asked], **body)
        assert step.event == ("compacted" if named else "new"), step.link.why
        assert not named or step.session.id == session
        forget(lab.index, *({step.session.id} - {*sessions}))


# --- what its user made of a conversation --------------------------------------------------------------------------

DRAFT = (
    "Dear all, Team Heron moves to Lisbon on 14 March. Marta Oliveira answers questions on furniture; the budget is "
    "18,400 EUR. Until April please use garage P3 for parking. We look forward to it!"
)
DRAFTED = [
    ("I have to write an announcement about the office move of Team Heron to Lisbon.", "Sure, when is the move?"),
    ("On 14 March; the badge codes are private: 48213377, leave them out.", "Understood. Who helps with the rest?"),
    ("Marta Oliveira for questions on furniture.", "Of course. Which tone?"),
    ("Friendly, with the budget of 18,400 EUR for furniture.", "Fine. Anything on parking?"),
    ("Parking: use garage P3 until April.", DRAFT),
]


@pytest.mark.parametrize("words", ["I got this mail today:\n\n", "Please look at what a colleague sent to us all.\n"])
def test_a_draft_that_is_pasted_into_another_chat_gives_nothing_of_the_chat_in_which_it_was_written(words: str) -> None:
    lab = Lab()
    chat = Chat(lab)
    for said, answer in DRAFTED:
        chat.turn(said, answer)
    asked = user(f"{words}{DRAFT}\n\nWrite a polite answer that I cannot come on that day.")
    step = lab.ask([{"role": "system", "content": SYSTEM}, asked])
    assert (step.event, told_by(lab, step)) == ("new", False), step.link.why


# --- the words of a subject ----------------------------------------------------------------------------------------

ABOUT_A_LINE = [
    ("Hi", "Hello! What can I do for you?"),
    (
        "My internet connection is dead since yesterday, the router blinks red; I am Rosa Quint, number 48213377.",
        "Please restart the router and check the cable, Rosa Quint.",
    ),
    (
        "The restart of the router did not help, the cable is fine, I need a technician in Birch Lane 14.",
        "A technician comes on Friday to Birch Lane 14.",
    ),
    ("Does the technician bring a new router?", "Yes, the technician brings a new router."),
]
ABOUT_AN_INVOICE = [
    ("Good day", "Good day! What can I do?"),
    ("I want to cancel my invoice of March, the amount of 99 EUR is wrong.", "I checked the invoice."),
    ("And send the refund to my bank account please.", "The refund is on its way."),
]
IN_THEIR_WORDS: dict[str, tuple[str, list[Wire]]] = {
    "two messages": (SYSTEM, [
        user("My router blinks red since yesterday, internet connection dead, restart of the router did not help."),
        user("Hello? When does a technician come?"),
    ]),
    "an article that has a summary": (
        f"{SYSTEM}\n\n# Articles\nSummary: when the internet connection is dead and the router blinks red, restart the "
        "router and check the cable. If the restart did not help, a technician brings a new router.",
        [user("Hello, what do I do?")],
    ),
    "a summary of another customer": (
        f"{SYSTEM}\n\nProfile summary: Emil Haug, number 70955102, reported on Friday that the internet connection is "
        "dead and the router blinks red, restart did not help, technician booked.",
        [user("Hello, any news?")],
    ),
    "notes for a summary": (SYSTEM, [
        user("Write a chat summary from my notes: internet connection dead since yesterday, router blinks red, restart "
             "of the router did not help, technician booked for Friday, new router."),
    ]),
}  # fmt: skip


def about_both(lab: Lab) -> Chat:
    line, invoice = Chat(lab), Chat(lab)
    for chat, told in ((line, ABOUT_A_LINE), (invoice, ABOUT_AN_INVOICE)):
        for said, answer in told:
            chat.turn(said, answer)
    return line


@pytest.mark.parametrize("name", IN_THEIR_WORDS)
def test_who_begins_in_the_words_in_which_all_speak_of_a_subject_gets_nothing_of_who_spoke_of_it(name: str) -> None:
    lab = Lab()
    about_both(lab)
    system, messages = IN_THEIR_WORDS[name]
    step = lab.ask([{"role": "system", "content": system}, *messages])
    assert (step.event, told_by(lab, step)) == ("new", False), step.link.why


OF_A_LINE = (
    "Rosa Quint, number 48213377, reported a dead internet connection and a router that blinks red. The restart did "
    "not help, so a technician comes on Friday to Birch Lane 14 with a new router."
)


def test_a_summary_that_names_what_was_named_is_that_of_the_conversation() -> None:
    chat = about_both(Lab())
    step = chat.send([user(OF_A_LINE), user("Which floor, did I say?")])
    assert (step.event, step.session.id, step.link.why) == ("compacted", chat.session, "the words of one session")


def test_a_list_on_which_most_are_others_is_no_summary_of_the_conversation_of_one_of_them() -> None:
    chat = about_both(Lab())
    others = "Emil Haug 51733290, Ada Holm 60218345, Karl Maas 70955102, Ida Roth 80011223, Ole Berg 90044556"
    step = chat.send([user(f"{OF_A_LINE} So it is with {others}."), user("Which floor, did they say?")])
    assert step.event == "new", step.link.why


def test_a_text_about_what_was_said_in_a_single_turn_is_no_summary_of_it() -> None:
    chat = Chat(Lab())
    chat.turn(" ".join(said for said, _ in ABOUT_A_LINE), " ".join(answer for _, answer in ABOUT_A_LINE))
    step = chat.send([user(OF_A_LINE), user("Which floor, did I say?")])
    assert step.event == "new", step.link.why


# --- one id for a whole run ----------------------------------------------------------------------------------------

RUN = {"x-litellm-session-id": "nightly-7"}


def test_questions_that_a_run_asks_one_by_one_under_its_id_stand_alone() -> None:
    lab = Lab()
    sessions = set()
    for who, (name, number) in enumerate((*PEOPLE, ("Ada Berg", "33120045"))):
        text = f"Ticket {who}: customer {name}, contract {number}, says that the device does not work since Monday."
        step = lab.ask([{"role": "system", "content": SYSTEM}, user(text)], headers=RUN)
        lab.answer(step, assistant("hardware"))
        assert step.event == "new", step.link.why
        sessions.add(step.session.id)
    assert len(sessions) == 3


def test_workers_of_a_run_go_on_each_in_a_conversation_of_its_own_under_its_id() -> None:
    lab = Lab()
    workers = [Chat(lab), Chat(lab), Chat(lab)]
    steps = []
    for n in range(4):
        for chat, project in zip(workers, ("zephyr", "maple", "omega"), strict=True):
            said, answer = turns(project, 1, start=n)[0]
            chat.history.append(user(said))
            steps.append(step := lab.ask(chat.wire(chat.history[-5:]), headers=RUN))
            lab.answer(step, assistant(answer))
            chat.history.append(assistant(answer))
    assert [step.event for step in steps] == ["new"] * 3 + ["turn"] * 6 + ["window"] * 3
    for at in range(3):
        assert len({step.session.id for step in steps[at::3]}) == 1


@pytest.mark.parametrize("how", ["made elsewhere", "transcript in one message, no system prompt"])
@pytest.mark.parametrize("words", ["", "Summary of the conversation so far: "])
@pytest.mark.parametrize("which", [0, 1])
def test_a_summary_that_is_all_that_is_left_under_the_id_of_a_run_is_that_of_its_conversation(
    words: str, how: str, which: int
) -> None:
    lab = Lab()
    chats = [Chat(lab), Chat(lab)]
    for n in range(4):
        for chat, project in zip(chats, ("zephyr", "maple"), strict=True):
            said, answer = turns(project, 1, start=n)[0]
            step = lab.ask(chat.wire([*chat.history, user(said)]), headers=RUN)
            lab.answer(step, assistant(answer))
            chat.history += [user(said), assistant(answer)]
            chat.session = step.session.id
    assert chats[0].session != chats[1].session
    chat, project = chats[which], ("zephyr", "maple")[which]
    if how != "made elsewhere":
        side = lab.ask([user(f"Sum it up.\n\n{transcript(chat.history)}")], headers=RUN)
        assert (side.event, side.session.parent) == ("side", chat.session), side.link.why
        lab.answer(side, assistant(summary_of(project, 4)))
    step = lab.ask(chat.wire([user(f"{words}{summary_of(project, 4)}")]), headers=RUN)
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


# --- and what is one conversation all the same ---------------------------------------------------------------------


@pytest.mark.parametrize("again", ["What is the other one for?", "And what does the first one cost?"])
def test_of_a_window_of_one_answer_the_question_may_be_asked_again_or_edited(again: str) -> None:
    lab, chat = Lab(), turns("zephyr", 4)
    history: list[Wire] = []
    for said, answer in chat:
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history[-1:], user(said)])
        lab.answer(step, assistant(answer))
        history += [user(said), assistant(answer)]
    asked = [history[-1], user("What is the other one for?")]
    first = lab.ask([{"role": "system", "content": SYSTEM}, *asked])
    lab.answer(first, assistant("It is for the night."))
    step = lab.ask([{"role": "system", "content": SYSTEM}, asked[0], user(again)])
    assert (step.session.id, step.event != "new") == (first.session.id, True), step.link.why


def test_what_is_like_the_question_may_stand_in_front_of_what_was_said_last() -> None:
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    whole = chat.history
    chat.history = [*whole[6:8], *whole[2:4], *whole[-2:]]
    step = chat.turn("And which of them comes first?", "The second.")
    assert step.session.id == chat.session, step.link.why


def test_a_summary_that_ends_in_an_open_question_is_one() -> None:
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    summary = "The retry policy and the export were settled. The backup comes next. Open: which day is it made on?"
    chat.summarise("instruction at the end", summary)
    step = chat.compact(STYLES["summary as user message, tail"], summary, "On Monday.", "Monday it is.")
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


@pytest.mark.parametrize("restart", [False, True])
def test_a_copy_under_a_new_id_behind_the_summary_goes_on_with_what_was_lost(restart: bool) -> None:
    """A client resumes a conversation, or forks it: that has another id then, and the same history."""
    chat, _ = summarised_chat("first")
    history = [*chat.history]
    if restart:
        chat.lab.restart()
    for said in ("Which ports were it?", "And which depots?"):
        history.append(user(said))
        copied = chat.lab.ask(chat.wire(history), tools=chat.tools, headers={"x-session-id": "second"})
        assert (copied.event, copied.session.id, copied.session.lost) == ("turn", chat.session, True), copied.link.why
        chat.lab.answer(copied, assistant("As I said."))
        history.append(assistant("As I said."))
    short = [{"role": "system", "content": SYSTEM}, *history[-3:], user("And the third?")]
    assert chat.lab.ask(short, headers={"x-session-id": "second"}).session.id == chat.session


def test_who_has_the_same_left_under_another_id_of_their_own_gets_nothing_of_what_was_lost() -> None:
    lab, common = Lab(), [("When are you open on weekdays?", "From 9 to 18 on weekdays."),
                          ("Where can I park my car?", "Behind the house, one hour is free.")]  # fmt: skip
    history: list[Wire] = []
    for n, (said, answer) in enumerate([("My contract is 7731-R.", "Noted."), *common]):
        history.append(user(said))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *(history[2:] if n > 1 else history)],
                       headers={"x-session-id": "first"})  # fmt: skip
        lab.answer(step, assistant(answer))
        history.append(assistant(answer))
    other = lab.ask([{"role": "system", "content": SYSTEM}, *history[2:], user("Which contract do I have?")],
                    headers={"x-session-id": "second"})  # fmt: skip
    assert (other.event, other.session.id != step.session.id) == ("new", True)


HOURS = ("When are you open?", "We are open from 9 to 18 on weekdays.")
THANKS = ("Thanks a lot!", "You are welcome, is there anything else?")


def _windowed(lab: Lab, said: list[tuple[str, str]]) -> tuple[str, list[Wire]]:
    """A conversation whose client shows the last three messages: the session of its last request, and all of it."""
    history: list[Wire] = []
    for asked, answer in said:
        history.append(user(asked))
        step = lab.ask([{"role": "system", "content": SYSTEM}, *history[-3:]])
        lab.answer(step, assistant(answer))
        history.append(assistant(answer))
    return step.session.id, history


def test_of_two_whose_summaries_read_the_same_none_gets_the_others_conversation() -> None:
    lab = Lab()
    summary = "The customer asked about several things and gave details; the agent answered and goes on to help."
    sessions: list[set[str]] = []
    for name in ("Rosa Quint of Birch Lane 14", "Emil Haug of Canal Street 9"):
        own, history = _windowed(lab, [(f"I am {name}.", "Noted, thank you."), HOURS, THANKS])
        orders = {"role": "system", "content": "You summarize conversations."}
        made = lab.ask([orders, *history, user("Write the summary of the conversation now.")])
        assert made.event == "side"
        lab.answer(made, assistant(summary))
        told = [{"role": "system", "content": SYSTEM}, user(f"Summary: {summary}")]
        sessions.append({own})
        for n in range(3):
            step = lab.ask([*told, *history[-2:], user(f"{HOURS[0]} {n}")])
            sessions[-1].add(step.session.id)
            lab.answer(step, assistant(HOURS[1]))
            history += [user(f"{HOURS[0]} {n}"), assistant(HOURS[1])]
    assert sessions[0].isdisjoint(sessions[1])


@pytest.mark.parametrize("ack", [False, True])
def test_of_two_whose_summaries_read_the_same_each_goes_on_where_it_ends_though_phrases_stand_in_both(
    ack: bool,
) -> None:
    """Nobody saw how the summaries were made, and the one ends in a question that the other once asked, too."""
    lab = Lab()
    front = [user("Context: The customer asked about several things and gave details; the agent goes on to help.")]
    front += [assistant("Understood, I go on from there.")] if ack else []
    sessions: list[set[str]] = []
    for name, more in (("Rosa Quint, code 7731-R", [("Is it warm?", STOCK)]), ("Emil Haug, code 9942-E", [])):
        history = [assistant("Good day! How can I help you?")]
        sessions.append(set())
        for said, answer in ((f"I am {name}.", STOCK), HOURS, *more, ("And on Sundays?", "Never.")):
            history.append(user(said))
            shown = [*front, *history[-5:]] if len(history) > 5 else history
            step = lab.ask([{"role": "system", "content": SYSTEM}, *shown])
            sessions[-1].add(step.session.id)
            lab.answer(step, assistant(answer))
            history.append(assistant(answer))
    assert (len(sessions[0]), len(sessions[1]), sessions[0] & sessions[1]) == (1, 1, set())


def test_documents_with_which_another_program_begins_trace_nobody_to_who_was_shown_them_beside_a_question() -> None:
    lab = Lab()

    def ask(*picked: int) -> Step:
        about = [user(f"Documents for this chat:\n{documents(*picked)}"), assistant("I have read them.")]
        step = lab.ask([{"role": "system", "content": SYSTEM}, *about, user("Hello, I need help.")])
        lab.answer(step, assistant("Of course."))
        return step

    ask(3, 4)
    asked = f"Articles: {documents(0, 1, 2)}\n\nMay I?"
    own, _ = _windowed(lab, [("I am Rosa Quint.", STOCK), (asked, STOCK), HOURS, THANKS])
    step = ask(2, 1)
    assert (step.event, step.session.id != own) == ("new", True), step.link.why


STOCK = "Thank you, I have noted that. Is there anything else I can do for you today?"


def test_a_phrase_that_a_bot_says_to_all_is_nobodys_summary_where_users_say_it_again() -> None:
    """A client that writes all into messages of the user: what its bot said stands there, too."""
    lab = Lab()
    codes = [
        [f"Customer: My {thing} is {who}{n}." for n, thing in enumerate(("locker", "parcel", "seat"))] for who in "AB"
    ]
    sessions: list[set[str]] = [set(), set()]
    for n in range(1, 4):
        for own, said in zip(sessions, codes, strict=True):
            shown = [user(text) for line in said[:n] for text in (line, f"Agent: {STOCK}")][:-1]
            step = lab.ask([{"role": "system", "content": SYSTEM}, *shown])
            own.add(step.session.id)
            lab.answer(step, assistant(STOCK))
    assert sessions[0].isdisjoint(sessions[1])


@pytest.mark.parametrize("heard", [STOCK, "Got it."])
def test_lines_that_another_customer_said_and_heard_too_make_no_text_that_ones_script(heard: str) -> None:
    lab = Lab()

    def ask(*said: str) -> str:
        text = "".join(f"[INST] {line} [/INST]" if n % 2 == 0 else f" {line} </s>" for n, line in enumerate(said))
        step = lab.ask([{"role": "system", "content": SYSTEM}, user(text)])
        lab.answer(step, assistant(STOCK))
        return step.session.id

    ask("Hi")
    other = ask("Hi", heard, "My ticket code is LO-41223.")
    assert ask("Hi", STOCK, "My flight code is DM-23752.") != other


def test_documents_that_change_and_phrases_give_the_next_question_to_nobody_who_was_shown_the_same() -> None:
    lab = Lab()
    sessions: list[set[str]] = [set(), set()]
    for own, name, picked in zip(sessions, "AB", ([(4, 1), (4, 2), (2, 1)], [(3, 1), (4, 2), (2, 1)]), strict=True):
        history: list[Wire] = []
        for n, chosen in enumerate(picked):
            history.append(user("Hello, I need help." if n == 0 else f"My number {n} is {name}{n}."))
            shown = [user(f"Documents for this chat:\n{documents(*chosen)}"), assistant("I have read them."), *history]
            step = lab.ask([{"role": "system", "content": SYSTEM}, *shown])
            own.add(step.session.id)
            lab.answer(step, assistant(STOCK if n == 0 else "Got it."))
            history.append(assistant(STOCK if n == 0 else "Got it."))
    assert sessions[0].isdisjoint(sessions[1])


@pytest.mark.parametrize("tail", [0, 2])
def test_the_summary_of_lines_that_two_customers_said_gives_neither_what_the_other_said(tail: int) -> None:
    lab = Lab()
    lines = ("What was my case number?", "Let me look that up for you at once.")
    sessions: list[set[str]] = []
    for name in ("Emil Haug of Canal Street 9", "Rosa Quint of Birch Lane 14"):
        own, _ = _windowed(lab, [(f"I am {name}.", "Noted, thank you."), THANKS, lines])
        sessions.append({own})
    made = lab.ask([user(f"Summarize these lines.\n\nuser: {lines[0]}\nassistant: {lines[1]}\n\nSummary:")])
    summary = "Emil Haug asked for his case number, which the assistant looks up; he lives in Canal Street 9."
    lab.answer(made, assistant(summary))
    kept = [user(f"What happened before: {summary}"), user(lines[0]), assistant(lines[1])]
    step = lab.ask([{"role": "system", "content": SYSTEM}, *kept[: 1 + tail], user("And my badge number?")])
    assert (step.event == "side", step.session.id in sessions[1]) == (False, False), step.link.why


@pytest.mark.parametrize("restart", [False, True])
def test_a_history_of_calls_that_began_before_is_known_by_the_ids_of_its_upstream(restart: bool) -> None:
    lab, history = Lab(), []
    for n in range(6):
        call = called(f"toolu_01A{n:03}q90qw90lq917835", "read", file=f"m{n}.py")
        history += [
            user(f"Look at file {n}."),
            call,
            result(f"toolu_01A{n:03}q90qw90lq917835", f"PORT_{n} = {9_000 + n}"),
        ]
    step = lab.ask([*history, user("go on")])
    lab.answer(step, assistant("Done."))
    if restart:
        lab.restart()
    again = lab.ask([user("Summary: some files were looked at."), *history[-6:-3], user("Which port has file 1?")])
    assert (again.session.id, again.event) == (step.session.id, "window")


@pytest.mark.parametrize("looked_up", ["{} asked for opening hours.", "No memories were found."])
@pytest.mark.parametrize("own_id", ["call_memory", "memory2024lookup1", "prefetch1a2b3c4d"])
@pytest.mark.parametrize("restart", [False, True])
def test_calls_that_clients_write_themselves_under_one_id_trace_nobody_to_another(
    restart: bool, own_id: str, looked_up: str
) -> None:
    lab = Lab()
    sessions: list[set[str]] = []
    for name in ("Emil Haug of Canal Street 9", "Rosa Quint of Birch Lane 14"):
        own, _ = _windowed(lab, [(f"I am {name}.", "Noted, thank you."), HOURS, (f"And {name[:4]}?", "Got it.")])
        recalled = [called(own_id, "recall"), result(own_id, looked_up.format(name))]
        if restart:
            lab.restart()
        step = lab.ask([{"role": "system", "content": SYSTEM}, *recalled, user("When do you open on Sundays?")])
        lab.answer(step, assistant("Not at all."))
        sessions.append({own, step.session.id})
    assert sessions[0].isdisjoint(sessions[1])


def test_texts_with_which_another_conversation_began_are_no_proof_of_the_one_that_said_them_later() -> None:
    lab = Lab()
    said = ["Agent: I have noted that, is there anything else that I can do for you?", f"Agent: {STOCK}"]

    def ask(question: str) -> Step:
        step = lab.ask([{"role": "system", "content": SYSTEM}, *map(user, said), user(question)])
        lab.answer(step, assistant("Got it."))
        return step

    ask("My seat number is A1.")
    chat = Chat(lab)
    for text, answer in (("Hello there", "Good day."), (said[0], "Yes?"), (said[1], "Go ahead.")):
        step = chat.turn(text, answer)
    assert ask("My parcel code is A2.").session.id != step.session.id


DESK = [("hello", "Welcome to the help desk."), ("my order is 7741-99, my phone is 0171-5550123", "Thank you."),
        ("I need help with my order", "One moment, please."), ("my address is Rosenweg 17", "I have noted that."),
        ("I need help with my order", "Let me check that."), ("thanks", "You are welcome.")]  # fmt: skip


@pytest.mark.parametrize("summary", [[], [user("Summary of the conversation so far: the user asked about an order.")]])
def test_a_phrase_that_one_said_twice_is_one_text_and_gives_them_to_nobody_who_says_it(summary: list[Wire]) -> None:
    lab = Lab()
    chat = Chat(lab)
    for said, answer in DESK:
        chat.turn(said, answer)
    chat.history = chat.history[4:]
    assert chat.turn("and when does it ship to me?", "Tomorrow.").event == "window"
    step = lab.ask([{"role": "system", "content": SYSTEM}, *summary, user("I need help with my order")])
    assert (step.event, step.session.id != chat.session) == ("new", True), step.link.why


@pytest.mark.parametrize("together", [False, True])
def test_a_question_asked_again_beside_its_document_gives_nothing_to_who_asks_it_beside_that(together: bool) -> None:
    lab = Lab()
    chat, document, asked = Chat(lab), documents(1), "What does the document say on it?"
    for said, answer in DESK:
        chat.turn(said, answer)
    for content in (parts(document, asked)["content"], asked):
        chat.history.append({"role": "user", "content": content})
        lab.answer(chat.send(), assistant("Read it, please."))
        chat.history.append(assistant("Read it, please."))
    shown = [parts(document, asked)] if together else [user(document), user(asked)]
    step = lab.ask([{"role": "system", "content": SYSTEM}, *shown])
    assert (step.event, step.session.id != chat.session) == ("new", True), step.link.why


@pytest.mark.parametrize("shown", [
    [assistant("Thank you. One moment, please."), user("and what is my order number?")],
    [user("I was told: Thank you. One moment, please."), user("and what is my order number?")],
])  # fmt: skip
@pytest.mark.parametrize("others", [3, 5])
def test_the_only_answer_of_many_is_not_the_history_of_one_of_them(shown: list[Wire], others: int) -> None:
    lab = Lab()
    before = set()
    for n in range(others + 1):
        chat = Chat(lab)
        chat.turn(f"my order number is {1000 + n}-KX", "Thank you. One moment, please.")
        before.add(chat.session)
    step = lab.ask([{"role": "system", "content": SYSTEM}, *shown])
    assert (step.event, step.session.id in before) == ("new", False), step.link.why


SPOKEN = {
    "lines": ("Human: {}\nAI:", " {}\n"),
    "a question": ("Answer.\n\n{history}\nQuestion: {}\nHelpful answer:", "User: {}\nBot: {}\n"),
    "headings": ("{history}### User\n{}\n\n### Assistant\n", "### User\n{}\n\n### Assistant\n{}\n\n"),
}


def _in_one_text(name: str, said: list[tuple[str, str]], asked: str) -> list[Wire]:
    whole, pair = SPOKEN[name]
    if name == "lines":
        text = "".join(whole.format(q) + pair.format(a) for q, a in said) + whole.format(asked)
    else:
        text = whole.format(asked, history="".join(pair.format(*each) for each in said))
    return [{"role": "system", "content": SYSTEM}, user(text)]


PHRASES = [("what comes next?", "Thank you. One moment, please.")]


@pytest.mark.parametrize("name", SPOKEN)
@pytest.mark.parametrize("front", [
    [("my parcel has not arrived yet", "I have noted that down for you.")],
    [("hello, I am Bob", "Hello Bob, nice to meet you."), ("not arrived yet", "I have noted that down for you.")],
])  # fmt: skip
def test_a_script_that_comes_to_the_same_phrases_behind_other_lines_is_anothers(
    name: str, front: list[tuple[str, str]]
) -> None:
    lab = Lab()
    alice = [("my address is Rosenweg 17 in Lisbon", "Great, thank you, I wrote that down."),
             ("my order number is 7741-99", "I have noted that down for you."), *PHRASES]  # fmt: skip
    for n, (said, answer) in enumerate(alice):
        step = lab.ask(_in_one_text(name, alice[:n], said))
        lab.answer(step, assistant(answer))
    other = lab.ask(_in_one_text(name, [*front, *PHRASES], "what is my order number?"))
    assert (other.event, other.session.id != step.session.id) == ("new", True), other.link.why
    again = lab.ask(_in_one_text(name, alice[1:], "and when does it come?"))
    assert (again.event, again.session.id) == ("window", step.session.id), again.link.why


def test_a_summary_is_its_conversations_where_a_system_prompt_is_all_of_the_request_for_it() -> None:
    lab = Lab()
    chat = Chat(lab, system="")
    for said, answer in turns("zephyr", 2):
        chat.turn(said, answer)
    spoken = "\n".join(f"{m['role'].title()}: {m['content']}" for m in chat.history)
    orders = f"Extract what matters of this conversation.\n\nConversation:\n{spoken}\n\nYour output is a JSON object."
    step = lab.ask([{"role": "system", "content": orders}])
    assert (step.event, step.session.parent) == ("side", chat.session), step.link.why
