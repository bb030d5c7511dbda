"""Answers that their clients show otherwise: begun by themselves, in a version of their own."""

import re

import pytest
from chats import SYSTEM, Chat, Lab, assistant, turns, user


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


@pytest.mark.parametrize("thought", [{}, {"reasoning_content": "What do they want?"}], ids=["aloud", "beside"])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_answer_that_its_user_cut_off_is_known_without_what_the_model_thought(restarts, thought):
    """Thoughts are no part of what is compared, so none stands for the answer after a restart."""
    lab, history = Lab(), list[dict[str, str]]()
    for said, answer in turns("zephyr", 4):
        history.append(user(said))
        lab.answer(lab.ask(history), assistant(answer) | thought)
        history.append(assistant(answer[:40]) | {"reasoning_content": "What do they want?"})
        lab.ask([*history, user("Leave that.")])
        history += [user("Leave that."), assistant("Gladly.")]
    lab.restarts = restarts
    plain = [{"role": m["role"], "content": m["content"]} for m in history]
    assert lab.ask([*plain, user("And what is next?")]).event == "turn"


VERSIONS = {
    "other words": lambda n, answer: assistant(f"The {n}. thing was looked after, as the office had wished it to be."),
    "masked": lambda n, answer: assistant(re.sub(r"\d+|[A-Z]\w+", "<NAME>", answer)),
    "tags": lambda n, answer: assistant("<p>" + answer.replace(" ", "</i> <i>") + "</p>"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_keeps_its_own_version_of_each_answer_stays_one_session(version):
    lab = Lab()
    chat, steps = Chat(lab), []
    for n, (said, answer) in enumerate(turns("zephyr", 9)):
        chat.history.append(user(said))
        step = chat.send(chat.history[-7:] if n >= 7 else chat.history)
        lab.answer(step, assistant(answer))
        chat.history.append(VERSIONS[version](n, answer))
        steps.append(step)
    other = version == "other words"  # than the first answer's: what was asked once is no proof
    assert len({step.session.id for step in steps[other:]}) == 1, step.link.why
    assert [step.event for step in steps[other:]] == ["new", *["turn"] * (6 - other), *["window"] * 2]


def test_a_version_of_an_answer_is_known_though_what_was_asked_lost_its_end():
    lab = Lab()
    chat, steps = Chat(lab), []
    for said, answer in turns("zephyr", 5):
        step = chat.send([*chat.history, user(f"{said}\n\nRespond with the fields, and end with [[completed]].")])
        lab.answer(step, assistant(f"[[reasoning]] It was looked up for {said[:9]}. [[answer]] {answer} [[completed]]"))
        chat.history += [user(said), assistant(f"[[reasoning]] Not kept. [[answer]] {answer} [[completed]]")]
        steps.append(step)
    assert len({step.session.id for step in steps}) == 1, step.link.why
    assert [step.event for step in steps] == ["new", *["turn"] * 4]


def test_two_that_begin_with_the_same_words_stay_two_though_their_clients_show_other_answers():
    lab = Lab()
    said = "How do I reset the password of the staging account?"
    chats = [Chat(lab, history=[user(said)]) for _ in range(2)]
    firsts = [chat.send() for chat in chats]
    for step, answer in zip(firsts, ("Open the settings page.", "Ask the office of Bergamo."), strict=True):
        lab.answer(step, assistant(answer))
    seconds = []
    for n, chat in enumerate(chats):
        chat.history += [assistant(f"Version {n} of what was said."), user(f"And what is number {n} about?")]
        seconds.append(chat.send())
        lab.answer(seconds[-1], assistant("It is about nothing else."))
    assert len({step.session.id for step in (*firsts, *seconds)}) == 4


@pytest.mark.parametrize("system", ["You sort mail into folders, and say nothing of what stands in it.", ""])
def test_a_chat_under_another_system_prompt_is_none_of_one_that_began_with_its_words(system):
    lab = Lab()
    chat = Chat(lab)
    chat.turn("How do I reset the password of the staging account?", "Open the settings page.")
    other = Chat(lab, system=system, history=[chat.history[0], assistant("Ask Ann."), user("Where is she today?")])
    assert other.send().session.id != chat.session


def test_a_short_first_text_alone_links_no_version_of_an_answer():
    lab = Lab()
    chat = Chat(lab)
    chat.turn("Hello!", "Good morning, what is it about?")
    other = Chat(lab, history=[user("Hello!"), assistant("Nice to see you."), user("Which port is it?")])
    assert other.send().session.id != chat.session


QUESTION = "How do I reset the password of the staging account, please?"
EXAMPLE = [user("Example question: what is the port?"), assistant("It is 8080, as written in the config.")]
GREETING = [assistant("Hello! I am the assistant of the shop. How can I help you today?")]


@pytest.mark.parametrize("opened", [[], EXAMPLE])
@pytest.mark.parametrize("what", ["wants another answer", "edits", "tries again after a failure"])
@pytest.mark.parametrize("restarts", [False, True])
def test_who_goes_back_to_a_question_that_another_one_asked_too_gets_none_of_that_chat(opened, what, restarts):
    lab = Lab()
    one, other = (Chat(lab, history=[*opened]) for _ in range(2))
    how = "To reset the password, open the settings page, choose account and press reset. "
    one.turn(QUESTION, f"{how}Your account is bergamo-7.")
    other.turn(QUESTION, f"{how}Your account is palermo-9.")
    other.history.append(user("And where do I find that page in the new version?"))
    step = other.send()
    if what == "tries again after a failure":
        lab.fail(step)
    else:
        lab.answer(step, assistant("It is behind the wheel."))
    if what == "edits":
        other.history[-1] = user("And does that hold for the beta version, too?")
    if restarts:
        lab.restart()
    assert other.send().session.id == other.session != one.session


@pytest.mark.parametrize("shown", ["It was sent to Palermo.", "Sorry, something went wrong. Please try again."])
def test_an_answer_from_elsewhere_behind_a_greeting_and_one_question_links_nothing(shown):
    lab = Lab()
    asked = "Where is my order, and when will it be delivered to my house?"
    one = Chat(lab, history=[*GREETING])
    one.turn(asked, "Your lamp 4711 comes on Monday to Bergamo, street 9.")
    other = Chat(lab, history=[*GREETING, user(asked), assistant(shown), user("Thanks. And to which street there?")])
    assert other.send().session.id != one.session


def test_a_session_that_was_asked_nothing_but_blanks_does_no_harm():
    lab, shop = Lab(), "Welcome to the shop of Bergamo: ask for orders, returns, and bills; what is it about today?"
    lab.answer(lab.ask([{"role": "system", "content": SYSTEM}]), assistant(shop))
    chat = Chat(lab, history=[user(shop), assistant("Is that the text of the shop?"), user("Yes. What is it?")])
    assert chat.send().event == "new"


@pytest.mark.parametrize("kept", [2, 3])
@pytest.mark.parametrize("mark", ["", "[Previous conversation truncated. Removed {} turns to fit the window.]"])
@pytest.mark.parametrize("told_again", [False, True])
def test_a_window_of_answers_that_are_shown_as_calls_in_words_stays_one_session(kept, mark, told_again):
    lab, steps, asked = Lab(), [], list[list[dict[str, str]]]()
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        asked.append([user(said)])
        front = [user(mark.format(n + 1 - kept))] if mark and len(asked) > kept else []
        step = lab.ask([*front, *(m for each in asked[-kept:] for m in each)])
        lab.answer(step, assistant(answer))
        again = [user(f"Result (say_{n}): {answer}")] if told_again else []
        asked[-1] += [assistant(f"!!!CALL:say_{n}\n!!!TEXT\n{answer}\n!!!END"), *again]
        steps.append(step)
    assert len({step.session.id for step in steps}) == 1, step.link.why
    assert [step.event for step in steps] == ["new", *["turn"] * (kept - 1), *["window"] * (6 - kept)]


def test_two_who_are_given_another_answer_to_one_question_stay_two():
    lab = Lab()
    said = "How do I reset the password of the staging account?"
    answers = ("Open the settings page.", "Ask Ann in Oslo.")
    chats = [Chat(lab) for _ in range(2)]
    for n, chat in enumerate(chats):
        chat.turn(f"Good morning, I am number {n} of the office of Bergamo.", f"Good morning to you, number {n}.")
        chat.turn(said, answers[n])
    wrapped = assistant(f"!!!CALL:say_0\n!!!TEXT\n{answers[0]}\n!!!END")
    step = lab.ask([user(said), wrapped, user(f"Result (say_0): {answers[0]}"), user("And then?")])
    assert step.session.id not in {chat.session for chat in chats}
