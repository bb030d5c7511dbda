"""Which session: conversations stay together, and apart from each other and from side calls."""

import itertools
import json
import time

import pytest
from chats import CODER, SYSTEM, TOOLS, Chat, Lab, assistant, called, result, summary_of, transcript, turns, user

from lantern_proxy.follow import Step, follow, reply
from lantern_proxy.history.text import shared_ends, shared_front
from lantern_proxy.session import pasted
from lantern_proxy.turn import Identity
from lantern_proxy.wire import messages

KINDS = [(named, tools) for named in (False, True) for tools in (False, True)]


@pytest.fixture(params=KINDS, ids=["plain", "tools", "id", "id and tools"])
def chat(request: pytest.FixtureRequest) -> Chat:
    """One of three chats that went on at the same time, under one system prompt."""
    lab = Lab()
    chats = [another(Chat(lab, named="x" if request.param[0] else ""), f"c{n}", request.param[1]) for n in range(3)]
    for n in range(4):
        for project, chat in zip(("amber", "birch", "zephyr"), chats, strict=True):
            chat.turn(*turns(project, 1, start=n)[0])
    assert len({chat.session for chat in chats}) == 3
    return chats[-1]


def another(chat: Chat, named: str = "fresh", tools: bool | None = None) -> Chat:
    """A new chat of the same program: the same system prompt and tools, an id of its own if it sends any."""
    tools = bool(chat.tools) if tools is None else tools
    system = CODER.format(date="2026-01-02") if tools else SYSTEM
    return Chat(chat.lab, system=system, tools=TOOLS if tools else (), named=named if chat.named else "")


def is_new(chat: Chat, said: str, answer: str, *, apart_from: Chat) -> None:
    """`said` opens a session of its own, which goes on as one."""
    step = chat.turn(said, answer)
    assert (step.event, step.session.id != apart_from.session) == ("new", True), step.link.why
    goes_on(chat)
    goes_on(apart_from)


def goes_on(chat: Chat) -> Step:
    step = chat.turn("and what comes next in it?", f"The next thing is the review in {chat.session}.")
    assert (step.event, step.session.id) == ("turn", chat.session), step.link.why
    return step


# --- new conversations ---------------------------------------------------------------------------------------------


def test_a_new_chat_under_a_known_system_prompt_is_a_session_of_its_own(chat):
    is_new(another(chat), "Which port does the staging database use?", "It uses 5432.", apart_from=chat)


def test_an_agent_that_gets_an_answer_in_its_system_prompt_is_a_session_of_its_own(chat):
    chat.turn("Sum up what was done so far.", summary_of("zephyr", 4))
    prompt = f"You review what others did, and find what they forgot. This is what they say: {summary_of('zephyr', 4)}"
    step = chat.lab.ask([{"role": "system", "content": prompt}, user("Go on.")])
    assert step.session.id != chat.session, step.link.why
    goes_on(chat)


def test_a_new_chat_about_the_same_project_is_a_session_of_its_own(chat):
    said, answer = turns("zephyr", 1, start=2)[0]
    is_new(another(chat), f"New task: {said}", f"{answer} And checked.", apart_from=chat)


def test_a_new_chat_with_the_same_first_message_is_a_session_of_its_own(chat):
    is_new(another(chat), chat.history[0]["content"], "Another answer than before: jitter.", apart_from=chat)


@pytest.mark.parametrize("said", [
    "Give me a summary of the conversation between Romeo and Juliet on the balcony.",
    "Summarise this earlier conversation for me: they met, they spoke of the weather for long, and they parted.",
    "The history of the conversation between science and religion is long. " * 30 + "\n\nGive me a summary of it.",
])  # fmt: skip
def test_the_words_of_a_summary_do_not_link_a_new_chat(chat, said):
    is_new(another(chat), said, "They are in love, and it rains.", apart_from=chat)


def test_common_words_do_not_outweigh_the_names_of_another_conversation():
    lab = Lab()
    wordy, other = Chat(lab), Chat(lab)
    wordy.turn(
        "Who settled the delivery address and the contact person?",
        "The user did, and the assistant went through the rest of the list.",
    )
    wordy.turn("And the hours?", "They come next: Dofezo opens at nine.")
    other.turn("Paskuga and Linnorga are first.", "Paskuga has a gate, and Linnorga has one, too.")
    other.turn("Then Kulinpas and Wenlinfe.", "Kulinpas has none, and Wenlinfe has two.")
    summary = (
        "The assistant went through Paskuga, Linnorga, Kulinpas, Wenlinfe. Settled: delivery address, contact person."
    )
    other.history = [user(f"{summary} Next: the rest of the list.")]
    assert other.turn("Which of them are left?", "None of them.").session.id != wordy.session


def test_an_answer_pasted_into_a_new_chat_does_not_link_it(chat):
    said = f"A colleague told me this:\n{chat.history[1]['content']}\nIs that right?"
    is_new(another(chat), said, "Yes, it seems right to me.", apart_from=chat)


def test_an_old_answer_in_front_of_a_question_does_not_link_a_new_chat(chat):
    fresh = another(chat)
    fresh.history = [user(chat.history[3]["content"])]
    is_new(fresh, "What do you think of it?", "It is fine, I think.", apart_from=chat)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("system", ["", "You are a friendly chat bot, and you talk with everybody about everything."])
def test_one_text_pasted_into_a_chat_without_tools_does_not_link_it_for_the_word_summary(at, system):
    lab = Lab()
    chat = Chat(lab, system=CODER, tools=TOOLS)
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    said = f"Write a summary of this message from a chat with a colleague:\n{chat.history[at]['content']}"
    is_new(Chat(lab, system=system), said, "It says what to set, and where.", apart_from=chat)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("name", "event"), [("Human: ", "side"), ("[user] ", "side"), ("", "new")])
def test_a_task_to_sum_up_the_line_that_goes_first_is_a_side_call_where_it_stands_behind_a_name(chat, name, event, at):
    wish, line = "Add the new lines of a conversation to its summary", f"{name}{chat.history[at]['content']}"
    asked = f"{wish}.\n\nSummary so far:\n\nNew lines:\n{line}\n\nNew summary:" if at == 0 else f"{wish}:\n{line}"
    step = chat.lab.ask([user(asked)])
    assert (step.event, step.session.id == chat.session) == (event, False), step.link.why
    goes_on(chat)


@pytest.mark.parametrize(
    ("orders", "told", "event"),
    [
        ("You sum up a conversation: write a summary that keeps each decision and each fact.", 6, "side"),
        ("You sum up a conversation: write a summary that keeps each decision and each fact.", 1, "new"),
        ("Answer in one sentence, whatever is asked.", 6, "new"),
    ],
)
def test_a_transcript_under_orders_behind_the_agents_own_prompt_is_a_side_call_where_they_wish_for_a_summary(
    chat, orders, told, event
):
    lines = "\n\n".join(f"{m['role'].upper()}: {m['content']}" for m in chat.history[:told])
    said = [{"role": "system", "content": orders}, user(f"This was said:\n\n{lines}")]
    step = chat.lab.ask(chat.wire(said), tools=chat.tools)
    assert (step.event, step.session.id == chat.session) == (event, False), step.link.why
    goes_on(chat)


def test_a_question_and_its_answer_pasted_into_a_new_chat_do_not_link_it(chat):
    fresh = another(chat)
    said = f"From another chat:\n{chat.history[0]['content']}\n{chat.history[1]['content']}\nWhat do you think of it?"
    is_new(fresh, said, "It is fine, I think.", apart_from=chat)


def test_pasted_into_a_chat_without_system_prompt_and_tools_they_are_a_conversation_once_it_goes_on():
    lab = Lab()
    first, second = Chat(lab, system=""), Chat(lab, system="")
    for said, answer in turns("zephyr", 3):
        first.turn(said, answer)
    second.turn(f"{transcript(first.history)}\nWhat do you think of it?", "It is fine, I think.")
    steps = [second.turn(f"and why {n}?", f"For reason {n}.") for n in range(3)]
    assert [step.event for step in steps] == ["new", "turn", "turn"]
    assert len({step.session.id for step in steps}) == 1
    assert steps[0].session.id != first.session
    goes_on(first)


def test_a_summary_made_elsewhere_of_a_conversation_that_was_had_twice_is_the_later_ones():
    lab = Lab()
    runs = [Chat(lab), Chat(lab)]
    for said, answer in turns("zephyr", 6):
        for n, run in enumerate(runs):
            run.turn(said, f"{answer} Run {n}.")
    assert runs[0].session != runs[1].session
    messages = [user(summary_of("zephyr", 6)), user("And what is the next step of it?")]
    step = lab.ask(runs[1].wire(messages))
    assert (step.event, step.session.id) == ("compacted", runs[1].session)


def test_many_chats_with_one_greeting_and_one_generic_answer_stay_apart(chat):
    chats = [another(chat, f"g{n}") for n in range(6)]
    for each in chats:
        assert each.turn("hi", "Hello! How can I help you today?").event == "new"
    assert len({each.session for each in chats}) == 6
    for n, each in enumerate(chats):
        each.session = each.turn(f"tell me about topic {n}", f"Topic {n} is a fine topic of its own.").session.id
    assert len({each.session for each in chats}) == 6
    for each in chats:
        goes_on(each)


def test_two_chats_that_begin_with_the_same_five_messages_stay_apart_once_they_differ(chat):
    one, two = another(chat, "one"), another(chat, "two")
    for each in (one, two):
        for said, answer in turns("maple", 2):
            each.turn(said, answer)
    assert one.session != two.session
    for each, letter in ((one, "A"), (two, "B")):
        each.session = each.turn(f"let us do {letter} now", f"{letter} it is then.").session.id
    assert one.session != two.session
    goes_on(one)
    goes_on(two)


def test_a_chat_that_opens_with_what_another_one_asked_later_is_a_session_of_its_own(chat):
    said = chat.history[2]["content"]
    is_new(another(chat), said, "It is set as you like.", apart_from=chat)


def test_an_id_that_many_conversations_share_makes_one_equal_question_no_proof():
    lab, key = Lab(), {"prompt_cache_key": "support"}
    chat = Chat(lab)
    for said, answer in turns("zephyr", 3):
        chat.history.append(user(said))
        lab.answer(chat.send(**key), assistant(answer))
        chat.history.append(assistant(answer))
    for said in (chat.history[2]["content"], "Go on, please."):
        assert lab.ask(chat.wire([user(said)]), **key).event == "new"


@pytest.mark.parametrize("fails", [True, False])
def test_one_text_of_a_user_belongs_to_a_chat_only_where_it_still_waits_there_for_an_answer(fails):
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    asked, notes = turns("zephyr", 1, start=3)[0][0], "Notes of a colleague, who was there: all of it went well so far."
    step = chat.send([*chat.history, user(asked)])
    if fails:
        chat.lab.fail(step)
    step = chat.lab.ask(chat.wire([user(notes), user(asked)]))
    assert (step.session.id == chat.session) is fails, step.link.why


@pytest.mark.parametrize(("texts", "system", "same"), [(1, SYSTEM, False), (2, SYSTEM, True), (2, CODER, False)])
def test_two_texts_of_a_user_are_the_chat_that_holds_them_under_its_system_prompt(texts, system, same):
    lab = Lab()
    chat = Chat(lab)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    kept = [m for m in chat.history[2:] if m["role"] == "user"][:texts]
    step = Chat(lab, system=system).send([*kept, user("What is left of that now?")])
    assert (step.session.id == chat.session) is same, step.link.why


def test_another_question_right_behind_a_summary_is_the_chat_that_was_summed_up():
    lab = Lab()
    chat = Chat(lab)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    told = user("What you know from the previous conversation: " + summary_of("zephyr", 4))
    lab.answer(chat.send([told, user("What is left of that now?")]), assistant("Two of the four."))
    assert chat.send([told, user("Which of them is the oldest?")]).session.id == chat.session
    assert Chat(lab, system=CODER).send([told, user("Which of them is the oldest?")]).session.id != chat.session


def test_a_greeting_and_what_another_chat_asked_later_begin_a_chat_of_its_own():
    lab, greeting = Lab(), assistant("Hello! I am the assistant of the shop. How can I help you today?")
    one = Chat(lab, history=[greeting])
    for said, answer in turns("zephyr", 3):
        one.turn(said, answer)
    assert Chat(lab, history=[greeting, one.history[3]]).send().event == "new"


def test_identical_first_requests_at_once_are_conversations_of_their_own(chat):
    chats = [another(chat, f"p{n}") for n in range(3)]
    for each in chats:
        each.history = [user("Fix the failing test in core/test_loop.py")]
    steps = [each.send() for each in chats]
    for n, (each, step) in enumerate(zip(chats, steps, strict=True)):
        chat.lab.answer(step, assistant(f"Attempt {n}: I changed the loop bound to {n + 7}."))
        each.history.append(assistant(f"Attempt {n}: I changed the loop bound to {n + 7}."))
        each.session = step.session.id
    assert len({each.session for each in chats}) == 3
    for each in (*chats, *chats):
        goes_on(each)


def test_a_first_request_that_failed_and_comes_again_is_a_retry(chat):
    fresh = another(chat)
    fresh.history = [user("the upstream is down when this comes")]
    step = fresh.send()
    chat.lab.fail(step)
    again = fresh.send()
    assert (again.event, again.session.id, again.filed) == ("retry", step.session.id, ())


def test_one_shot_requests_of_a_batch_are_sessions_of_their_own():
    lab, ids = Lab(), set()
    for n in range(20):
        review = f"Review: product {n} broke after {n + 2} days. Summary of the conversation with support: bad."
        step = lab.ask([{"role": "system", "content": "Classify the sentiment of the review."}, user(review)])
        lab.answer(step, assistant("negative"))
        assert step.event == "new"
        ids.add(step.session.id)
    assert len(ids) == 20


def test_summaries_that_a_program_asks_for_are_no_side_calls_of_anything():
    lab = Lab()
    for n in range(10):
        text = f"Article {n}: {'lorem ipsum dolor sit amet ' * 20} about subject {n}"
        step = lab.ask([user(f"Write a concise summary of the following:\n\n{text}\n\nCONCISE SUMMARY:")])
        assert step.event == "new"
        lab.answer(step, assistant(f"Article {n} is a text about subject {n} with many words that mean little."))


def test_two_agents_that_talk_to_each_other_are_two_sessions():
    lab = Lab()
    planner, critic = Chat(lab, system="You are Alice, a planner."), Chat(lab, system="You are Bob, a critic.")
    said = "Plan the release of zephyr 9."
    for n in range(5):
        plan = f"Alice's plan {n}: first freeze, then tag v{n}.9, then ship to ring {n}."
        assert planner.turn(said, plan).event == ("turn" if n else "new")
        said = f"Bob's critique {n}: plan {n} lacks a rollback for ring {n}, and the tag is wrong."
        assert critic.turn(plan, said).event == ("turn" if n else "new")
    assert planner.session != critic.session


# --- ids -----------------------------------------------------------------------------------------------------------


def test_known_content_under_a_new_id_is_a_session_of_its_own():
    lab = Lab()
    chat = Chat(lab, named="one")
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    fork = Chat(lab, named="two", history=list(chat.history))
    step = fork.turn("in the fork: use redis", "Redis it is, in the fork.")
    assert (step.event, step.session.parent) == ("new", chat.session)
    goes_on(fork)
    goes_on(chat)


def test_a_cache_key_that_many_conversations_share_does_not_join_them():
    lab = Lab()
    ids = []
    for project in ("amber", "birch"):
        step = Chat(lab).send([user(turns(project, 1)[0][0])], prompt_cache_key="my-program")
        lab.answer(step, assistant(turns(project, 1)[0][1]))
        ids.append(step.session.id)
    assert len(set(ids)) == 2


def test_one_id_and_only_the_last_message_is_a_session_that_goes_on():
    lab = Lab()
    chat = Chat(lab, named="one")
    ids = set()
    for said, answer in turns("zephyr", 4):
        step = chat.send([user(said)])
        lab.answer(step, assistant(answer))
        ids.add(step.session.id)
    assert len(ids) == 1
    assert len(lab.texts(ids.pop())) == 1 + 8  # the system prompt, four questions, four answers


@pytest.mark.parametrize(("header", "sessions"), [("x-session-affinity", 1), ("x-session-id", 4)])
def test_an_id_that_asks_for_the_same_server_may_change_within_a_session_and_one_that_names_it_may_not(
    header, sessions
):
    lab, history, found = Lab(), [], set()
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        history.append(user(said))
        step = lab.ask(history, tools=TOOLS, headers={header: f"start-{n}"})
        lab.answer(step, assistant(answer))
        history.append(assistant(answer))
        found.add(step.session.id)
    assert len(found) == sessions
    step = lab.ask([user("Now for something else: which port is it?")], tools=TOOLS, headers={header: "start-9"})
    assert step.event == "new"


def test_chats_that_go_on_at_once_under_an_id_that_asks_for_the_same_server_stay_apart():
    lab, headers, found = Lab(), {"x-session-affinity": "start-1"}, {}
    chats = {project: [] for project in ("amber", "birch", "zephyr")}
    for n in range(3):
        for project, history in chats.items():
            said, answer = turns(project, 1, start=n)[0]
            history.append(user(said))
            step = lab.ask([{"role": "system", "content": SYSTEM}, *history], headers=headers)
            lab.answer(step, assistant(answer))
            history.append(assistant(answer))
            assert step.event == ("turn" if n else "new")
            assert found.setdefault(project, step.session.id) == step.session.id
    assert len({*found.values()}) == 3


# --- side calls ----------------------------------------------------------------------------------------------------

TITLE = "Write a short title for this chat, five words at most, no quotes, nothing else."
FOLLOW_UP = "### Task:\nSuggest 3-5 questions that the user might ask next.\n<chat_history>\n{talk}\n</chat_history>"
TITLE_OF = "### Task:\nGenerate a concise, 3-5 word title with an emoji.\n<chat_history>\n{talk}\n</chat_history>"
GERMAN = "Nenne ein Thema für dieses Gespräch:\n{talk}"


@pytest.mark.parametrize(
    ("system", "event"),
    [
        (
            "You compress what tools return, so that it takes less of the context. Keep numbers, dates and names.",
            "side",
        ),
        ("Tool output comes in; shorten it, and keep numbers, dates and names.", "side"),
        ("You help people who look after servers. Be brief.", "new"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_result_that_shall_be_shortened_is_a_side_call_of_the_session_that_got_it(system, event, named):
    lab = Lab()
    chat = another(Chat(lab, named="x" if named else ""), "c", tools=True)
    read = "retries = 4, backoff = 30 seconds, the burst is 12, and the docs tell more of it on page 7"
    chat.turn("Read the settings, please.", "I have read them.", reads=read)
    step = lab.ask([{"role": "system", "content": system}, user(f"Results to work on:\nread_file\n{read}\n")])
    assert (step.event, step.session.parent == chat.session) == (event, event == "side")
    goes_on(chat)


@pytest.mark.parametrize(("waiting", "event"), [(1, "side"), (2, "new")])
def test_a_result_that_its_client_has_shortened_first_is_a_side_call_of_the_only_session_that_waits(waiting, event):
    lab = Lab()
    chats = [another(Chat(lab), f"c{n}", tools=True) for n in range(waiting)]
    for project, chat in zip(("amber", "zephyr"), chats, strict=False):
        chat.turn(*turns(project, 1)[0])
        lab.answer(chat.send([*chat.history, user("Read it.")]), called(lab.call_id(), "read_file", path="a.txt"))
    system = {"role": "system", "content": "You are compressing tool call results, so that they take less space."}
    step = lab.ask([system, user("Results:\nread_file\nretries = 4, backoff = 30 seconds, and the burst is 12")])
    assert (step.event, step.session.parent in {chat.session for chat in chats}) == (event, event == "side")
    assert lab.ask([system, user("Results:\nsend_mail\nIt was sent to 12 people at noon.")]).event == "new"


@pytest.mark.parametrize("prompt", [FOLLOW_UP, TITLE_OF, GERMAN], ids=["follow-ups", "title", "German"])
def test_a_task_about_the_pasted_conversation_is_a_side_call_of_it(chat, prompt):
    step = chat.lab.ask([user(prompt.format(talk=transcript(chat.history)))], headers=chat.headers)
    assert (step.event, step.session.parent) == ("side", chat.session)
    chat.lab.answer(step, assistant("Retry policy of zephyr, and what the worker does when it is restarted then."))
    goes_on(chat)


@pytest.mark.parametrize("name", ["Human: ", "[user] ", "<user>", "- user: "])
def test_messages_that_are_summed_up_one_by_one_are_side_calls(name):
    lab = Lab()
    chat, summary = Chat(lab), ""
    said = turns("zephyr", 7)
    for n in range(2):
        chat.turn(*said[n])
    for n in range(2, 6):
        oldest = chat.history.pop(0)
        line = (name if oldest["role"] == "user" else name.replace("user", "ai").replace("Human", "AI")) + oldest[
            "content"
        ]
        task = (
            f"Sum up the conversation in new words.\n\nThe summary so far:\n{summary}\n\nNew lines:\n{line}\n\nSummary:"
        )
        step = lab.ask([user(task)])
        assert (step.event, step.session.parent) == ("side", chat.session), (n, step.link.why)
        summary = summary_of("zephyr", 2 * n)
        lab.answer(step, assistant(summary))
        told = [{"role": "system", "content": summary}, *chat.history, user(said[n][0])]
        step = chat.send(told)
        assert (step.event, step.session.id) == ("compacted", chat.session), (n, step.link.why)
        lab.answer(step, assistant(said[n][1]))
        chat.history += [user(said[n][0]), assistant(said[n][1])]


@pytest.mark.parametrize("system", ["", CODER])
def test_an_old_message_that_its_user_pastes_into_a_new_chat_is_a_chat_of_its_own(chat, system):
    pasted = chat.history[0]["content"]
    for task in (
        "Sum up this message of a conversation for me:\n\n{}",
        "Is that right?\n{}",
        "{}\n\nWhat does that say?",
    ):
        wire = [user(task.format(pasted))]
        step = chat.lab.ask([{"role": "system", "content": system}, *wire] if system else wire)
        assert (step.event, step.session.side) == ("new", False), task
    goes_on(chat)


def test_a_pasted_conversation_without_the_times_in_front_of_what_was_said_is_a_side_call():
    lab = Lab()
    chat = Chat(lab, system=CODER, tools=TOOLS)
    said = turns("zephyr", 4)
    for n, (text, answer) in enumerate(said):
        chat.turn(f"[Mon 2026-01-05 10:0{n} UTC] {text}", answer)
    talk = "\n\n".join(f"[User]: {text}\n\n[Assistant]: {answer}" for text, answer in said)
    prompt = {"role": "system", "content": "You sum up what is said between a user and an assistant."}
    step = lab.ask([prompt, user(f"<conversation>\n{talk}\n</conversation>\n\nThe summary, please.")])
    assert (step.event, step.session.parent) == ("side", chat.session)


def test_a_title_call_with_the_first_message_is_a_side_call(chat):
    step = chat.lab.ask([{"role": "system", "content": TITLE}, user(chat.history[0]["content"])], headers=chat.headers)
    assert step.event == "side"
    chat.lab.answer(step, assistant("Retry policy"))
    goes_on(chat)


def test_a_title_call_that_comes_before_its_conversation_is_a_side_call():
    lab = Lab()
    task = "You are a title generator. You output ONLY a thread title. Nothing else."
    step = lab.ask([{"role": "system", "content": task}, user("Which port does the staging database use?")])
    assert step.event == "side"


def test_a_title_call_in_any_words_is_a_side_call_where_there_was_no_system_prompt():
    chat = Chat(Lab(), system="", named="one")
    for n, (said, answer) in enumerate(turns("zephyr", 3)):
        chat.turn(f"[10:0{n}] {said}", answer)
    said = chat.history[0]["content"].partition("] ")[2]
    step = chat.lab.ask([{"role": "system", "content": GERMAN}, user(said)], headers=chat.headers)
    assert step.event == "side"
    chat.lab.answer(step, assistant("Retry policy"))
    goes_on(chat)


def test_a_title_that_repeats_what_the_user_said_makes_no_side_call_of_the_conversation():
    lab, said = Lab(), "Retry policy of the gateway. Please set its backoff to 4 and tell me why that is enough."
    lab.answer(lab.ask([{"role": "system", "content": GERMAN}, user(said)]), assistant("Retry policy of the gateway."))
    step = lab.ask([user(f"{SYSTEM}\n\n{said}")])
    assert (step.event, step.session.side) == ("new", False)


def test_a_word_of_assent_links_no_conversation_to_another():
    lab = Lab()
    chats = {project: Chat(lab) for project in ("amber", "zephyr")}
    for project, chat in chats.items():
        for said, answer in turns(project, 3):
            chat.turn(said, answer)
    chats["amber"].turn("That will do.", "OK.")
    one = chats["zephyr"]
    one.history = [user("Three things were set up for it so far."), assistant("OK."), one.history[-1]]
    assert one.turn("go on", "going on").session.id == one.session


def test_a_conversation_whose_title_came_first_goes_on_though_its_times_change():
    chat = Chat(Lab(), system="", named="one")
    said, answer = turns("zephyr", 1)[0]
    chat.lab.answer(
        chat.lab.ask([{"role": "system", "content": GERMAN}, user(said)], headers=chat.headers), assistant("Retry")
    )
    for n in range(4):
        chat.history[:1] = [user(f"[{n} minutes ago] {SYSTEM}\n\n{said}")]
        step = chat.send()
        chat.lab.answer(step, assistant(f"{answer} {n}"))
        chat.history += [assistant(f"{answer} {n}"), user(f"What of number {n}, and why?")]
        assert n < 2 or step.event == "turn"


@pytest.mark.parametrize("system", [
    "You help people who love books. For each book that you recommend give its title, its author and its year.",
    "Write a blog post with a title, an introduction and three sections about what the user asks for.",
])  # fmt: skip
def test_a_program_that_writes_titles_of_other_things_has_conversations(system):
    chat = Chat(Lab(), system=system)
    assert chat.turn("Something about the sea, please.", "The Old Man and the Sea, by Hemingway, 1952.").event == "new"
    goes_on(chat)


def test_a_summary_after_every_turn_is_a_side_call_and_no_compaction(chat):
    for n in range(3):
        goes_on(chat)
        step = chat.summarise("transcript under another system prompt", summary_of("zephyr", 2 + n))
        assert step is not None
        assert (step.event, step.session.parent) == ("side", chat.session)
    goes_on(chat)


SUMMARISER = (
    "You write summaries of conversations. When you are asked for one, tell what was said last in more words than the "
    "rest, and name every file that was touched."
)


@pytest.mark.parametrize(("shown", "kept", "turns"), [
    (slice(-1), slice(-2, None), 4), (slice(-3), slice(-2, None), 4), (slice(1), slice(1, None), 2),
    (slice(2), slice(2, None), 2),
], ids=["without its last answer", "without the last turn", "what was said first", "and its answer"])  # fmt: skip
def test_under_the_prompt_of_one_who_sums_up_a_part_of_a_conversation_is_a_side_call(chat, shown, kept, turns):
    """Whatever its tools."""
    messages = [{"role": "system", "content": SUMMARISER}, *chat.history[shown]]
    step = chat.lab.ask(messages, tools=chat.tools, headers=chat.headers)
    assert (step.event, step.session.parent) == ("side", chat.session), step.link.why
    chat.lab.answer(step, assistant(summary_of("zephyr", turns)))
    chat.history = [user(summary_of("zephyr", turns)), *chat.history[kept]]
    step = chat.turn("and what comes next?", "The review of it comes next.")
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


@pytest.mark.parametrize("told", [
    "<analysis>They spoke of one project, and of nothing else.</analysis>\n<summary>\n{}\n</summary>",
    "<think>\nThey spoke of one project, and of nothing else.\n</think>\n\n{}",
    '{{"parts": [{{"part": "first to last", "summary": "{}"}}]}}',
])  # fmt: skip
@pytest.mark.parametrize("kept", [0, 1], ids=["nothing else", "and what was said first"])
def test_a_summary_that_is_a_part_of_what_was_answered_is_the_sessions_it_was_made_for(chat, told, kept):
    chat.summarise("history under another system prompt", told.format(summary_of("zephyr", 4)))
    wrapped = f"[What was said before, in short]\n\n<summary>\n{summary_of('zephyr', 4)}\n</summary>\n\nGo on with it."
    chat.history = [*chat.history[:kept], user(wrapped)]
    step = chat.send()
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why
    chat.lab.answer(step, assistant("I go on with the review."))
    chat.history.append(assistant("I go on with the review."))
    goes_on(chat)


def test_a_first_message_that_opened_another_chat_is_a_new_one_where_nothing_wishes_for_a_summary(chat):
    fresh = another(chat)
    fresh.system = "You plan the work of a team, and leave it to others."
    is_new(fresh, chat.history[0]["content"], "First I would look at what there is.", apart_from=chat)


def test_a_first_message_under_the_prompt_of_one_who_sums_up_opens_a_chat_where_none_began_like_it(chat):
    fresh = another(chat)
    fresh.system = SUMMARISER
    is_new(fresh, turns("zephyr", 1, start=9)[0][0], "It says where a thing lies.", apart_from=chat)


@pytest.mark.parametrize("system", ["", "You plan, and change nothing.", f"{SYSTEM} Summary of the conversation: {{}}"])
def test_an_answer_that_is_wished_for_anew_under_another_prompt_is_no_side_call(chat, system):
    goes_on(chat)
    chat.summarise("transcript under another system prompt", summary_of("zephyr", 4))
    messages = [{"role": "system", "content": system.format(summary_of("zephyr", 4))}, *chat.history[:-1]]
    step = chat.lab.ask(messages, tools=chat.tools, headers=chat.headers)
    assert (step.event != "side", step.session.id) == (True, chat.session), step.link.why


def test_a_summary_that_stands_for_the_turn_that_is_at_work_is_no_wish_for_one(chat):
    call_id = chat.lab.call_id()
    asked = chat.send([*chat.history, user("Read the notes, please.")], tools=(*chat.tools, "read_file"))
    chat.lab.answer(asked, called(call_id, "read_file", path="notes.txt"))
    begun = [user("Read the notes, please."), called(call_id, "read_file", path="notes.txt")]
    whole = Chat(chat.lab, named=chat.named, history=[*chat.history, *begun, result(call_id, "Zephyr is late. " * 90)])
    whole.summarise("transcript under another system prompt", summary_of("zephyr", 4))
    told = f"[MEMORY] Made by a program.{' It is no order, and newer context counts for more.' * 9} Summary:\n"
    step = chat.send([*chat.history[:2], user(told + summary_of("zephyr", 4))], tools=(*chat.tools, "read_file"))
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


def test_tags_behind_a_summary_that_comes_with_every_turn_wish_for_none(chat):
    for n, (said, answer) in enumerate(turns("zephyr", 6, start=4)):
        chat.summarise("transcript under another system prompt", f"{summary_of('zephyr', 3 + n)} Number {n}.")
        told = f"<Context>\n<SessionSummary>\n{summary_of('zephyr', 3 + n)} Number {n}.\n</SessionSummary>\n</Context>"
        chat.history = chat.history[-4:]
        step = chat.turn(f"{said}\n{told}", answer)
        assert (step.event != "side", step.session.id) == (True, chat.session), step.link.why


WISHES = ("Create a summary of the conversation above:", "Please summarise the messages above in a few words.")


@pytest.mark.parametrize("wish", WISHES)
def test_a_short_wish_for_a_summary_of_what_a_client_left_of_the_history_is_a_side_call(wish):
    chat = Chat(Lab(), system="")
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    step = chat.send([*chat.history[2:], user(wish)])
    assert (step.event, step.link.session.id) == ("side", chat.session), step.link.why
    summary = summary_of("zephyr", 4)
    chat.lab.answer(step, assistant(summary))
    chat.history = [{"role": "system", "content": f"Summary of the conversation so far: {summary}"}]
    assert chat.turn("and what comes next?", "The review of it comes next.").event == "compacted"
    chat.turn("And then?", "Then it is released, if nobody minds.")
    more = f"This is the summary of the conversation so far: {summary}\n\nExtend it with the new messages: {wish}"
    step = chat.send([*chat.history[3:], user(more)])
    assert (step.event, step.link.session.id) == ("side", chat.session), step.link.why


HANDED_ON = (
    "Write the brief by which someone else can take up our conversation where it stands. Say what was wanted, what has "
    "been tried and found, and which parts of the work are still open, each with the file that it is about. Whoever "
    f"reads your summary has nothing else to go by. {'Keep to the order: the aim, the state, the next steps. ' * 5}"
)
IN_WORDS = (
    "Answer in plain words. Tools must not be called now: read_file would be refused, and so would all the others. All "
    "that you need stands in the conversation above. What you write has two parts, thoughts between <notes> tags, then "
    f"the <summary>. {'List every request, every file that was read, every error and what mended it. ' * 16}"
)


@pytest.mark.parametrize("asked", [HANDED_ON, IN_WORDS])
@pytest.mark.parametrize("shown", ["all", "the older part"])
def test_a_long_instruction_with_a_summary_far_from_the_conversation_is_a_side_call_without_tools(asked, shown):
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    step = chat.send([*chat.history[: None if shown == "all" else -3], user(asked)], tools=())
    assert (step.event, step.link.session.id) == ("side", chat.session), step.link.why
    chat.lab.answer(step, assistant(summary := summary_of("zephyr", 4)))
    chat.history = [user("Where are we?"), assistant(summary)]
    assert chat.turn("Go on with the last one, then.", "It is done.").event == "compacted"


@pytest.mark.parametrize("more", ["", " Do not use any tools for it."])
def test_a_long_text_that_speaks_of_both_is_a_turn_where_the_tools_stay(more):
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    assert chat.turn(HANDED_ON + more, "Here it is.").event == "turn"


@pytest.mark.parametrize("named", ["", "x"])
def test_a_summarising_call_behind_the_notes_that_another_one_had_written_is_a_side_call_too(named):
    chat = Chat(Lab(), tools=TOOLS, named=named)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    older = chat.history[:-2]
    notes = user("The conversation will be compacted. Note down now whatever must not be lost, as briefly as you can.")
    step = chat.send([*older, notes], tools=())
    assert (step.event, step.link.session.id) == ("side", chat.session), step.link.why
    noted = assistant("Noted: the retry policy is set, and the invoice export waits for its column.")
    chat.lab.answer(step, noted)
    asked = f"Now write a summary of this conversation. {'Name all files, all decisions and what is to be done. ' * 8}"
    step = chat.send([*older, notes, noted, user(asked)], tools=())
    assert (step.event, step.link.session.id) == ("side", chat.session), step.link.why
    chat.lab.answer(step, assistant(summary := summary_of("zephyr", 3)))
    chat.history = [assistant(summary), *chat.history[-2:]]
    step = chat.turn("What is left of it?", "The column of the export.")
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


@pytest.mark.parametrize("wish", WISHES)
def test_a_summary_that_the_user_of_a_windowed_chat_wishes_for_is_no_side_call(wish):
    chat = Chat(Lab(), system="")
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
        chat.history = chat.history[-6:]
    assert chat.turn(wish, "There were some changes to the project.").event == "window"


@pytest.mark.parametrize("wish", WISHES)
def test_a_summary_that_a_user_wishes_for_is_no_side_call_where_a_note_behind_an_older_text_went(wish):
    chat = Chat(Lab())
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        chat.turn(f"{said}\n\n<environment_details>\ntime: 10:{n}7\n</environment_details>", answer)
        chat.history[-2] = user(said)
    assert chat.turn(wish, "There were some changes to the project.").event == "turn"


@pytest.mark.parametrize("wish", WISHES)
def test_a_summary_that_was_made_before_makes_no_side_call_of_the_wish_for_another(wish):
    chat = Chat(Lab(), system="")
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
        chat.history = chat.history[-6:]
    assert chat.summarise("transcript in one message, no system prompt", summary_of("zephyr", 6)).event == "side"
    assert chat.turn(wish, "There were some changes to the project.").event == "window"


def test_a_long_text_about_summaries_is_no_wish_for_one_where_a_window_begins_to_move():
    chat = Chat(Lab(), system="")
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    chat.history = chat.history[-6:]
    said = f"The new page shows a summary of each conversation. {'It is slow, and I do not know why. ' * 60}"
    assert chat.turn(said, "Let us look at its queries.").event == "window"


@pytest.mark.parametrize("same", [False, True], ids=["own system prompt", "the same system prompt"])
def test_a_sub_agent_is_a_side_call_and_its_calls_stay_together(chat, same):
    prompt = "Explore the repository and report where the retry policy is configured and who calls it."
    system = chat.system if same else "You are an exploring sub-agent. Report what you find, in short."
    call = called(chat.lab.call_id(), "task", prompt=prompt)
    chat.history.append(user("find out with a sub-agent"))
    chat.lab.answer(chat.send(), call)
    own = [{"role": "system", "content": system}, user(prompt)]
    first = chat.lab.ask(own, tools=("grep", "glob"), headers=chat.headers)
    look = called(chat.lab.call_id(), "grep", pattern="retry")
    chat.lab.answer(first, look)
    own += [look, result(look["tool_calls"][0]["id"], "gateway/retry.py:3 retry")]
    second = chat.lab.ask(own, tools=("grep", "glob"), headers=chat.headers)
    chat.lab.answer(second, assistant("It is in gateway/retry.py, and main.py calls it."))
    assert (first.event, second.event, second.session.id) == ("side", "side", first.session.id)
    chat.history += [call, result(call["tool_calls"][0]["id"], "It is in gateway/retry.py, and main.py calls it.")]
    step = chat.send()
    assert (step.event, step.session.id) == ("turn", chat.session)


def test_an_agent_named_in_a_header_is_a_side_call_of_the_session_that_the_other_header_names():
    lab = Lab()
    headers = {"x-claude-code-session-id": "s-1"}
    main = lab.ask([user("explore the repository")], headers=headers)
    lab.answer(main, assistant("I send an agent."))
    agents = [
        lab.ask([user("you explore")], headers={**headers, "x-claude-code-agent-id": name})
        for name in ("a1", "a2", "a1")
    ]
    assert [step.event for step in agents] == ["side"] * 3
    assert [step.session.parent for step in agents] == [main.session.id] * 3
    assert agents[0].session.id == agents[2].session.id != agents[1].session.id


# --- side calls that come first, and main calls that look like side calls -------------------------------------------

NAME_IT = "Erzeuge einen kurzen Namen für diesen Austausch."


@pytest.mark.parametrize("text", ["quota", "Hello, shall we start with the log?"])
def test_a_conversation_with_tools_is_no_side_call_of_a_probe_that_came_before_it_under_its_id(text):
    lab = Lab()
    probe = Chat(lab, system=NAME_IT, named="one")
    probe.turn(text, "Protokoll")
    chat = Chat(lab, system=CODER.format(date="2026-01-02"), tools=TOOLS, named="one")
    step = chat.turn("Hello, shall we start with the log?", "Yes, show it to me.")
    assert step.event == "new"
    goes_on(chat)


def test_a_conversation_without_tools_is_one_from_its_second_turn_on():
    lab = Lab()
    Chat(lab, system=NAME_IT, named="one").turn("ping", "pong")
    chat = Chat(lab, named="one")
    chat.turn("Hello, shall we start with the log?", "Yes, show it to me.")
    step = chat.turn("Here it is: nothing happened at all.", "Then all is well.")
    assert (step.event, step.session.side) == ("new", False)
    chat.session = step.session.id
    goes_on(chat)


def test_a_chat_without_a_system_prompt_keeps_none_of_a_title_call_that_came_before_it():
    lab, (said, *rest) = Lab(), turns("zephyr", 5)
    Chat(lab, system=NAME_IT, named="one").turn(said[0], "Protokoll")
    chat = Chat(lab, system="", named="one")
    for each in (said, *rest):
        chat.session = chat.turn(*each).session.id
    chat.history = [user(summary_of("zephyr", 5))]
    step = chat.turn("Sort the next of them, please.", "Sorted.")
    assert (step.event, step.session.id) == ("compacted", chat.session)


@pytest.mark.parametrize("tail", [0, 4])
def test_a_summary_in_a_new_system_prompt_is_no_side_call_of_a_chat_that_had_none(tail):
    chat = Chat(Lab(), system="", tools=TOOLS, named="one")
    for said, answer in turns("zephyr", 5, "de"):
        chat.turn(said, answer)
    summary = summary_of("zephyr", 5, "de")
    chat.turn("Schreib auf, was gesagt wurde.", summary)
    chat.system, chat.history = summary, chat.history[-2 - tail : -2]
    step = chat.turn("Weiter mit dem Nächsten.", "Gut.")
    assert (step.event, step.session.id) == ("compacted", chat.session)
    goes_on(chat)


def test_a_sub_agent_with_a_prompt_and_tools_of_its_own_is_a_side_call_of_a_chat_without_a_system_prompt():
    chat = Chat(Lab(), system="", tools=TOOLS, named="one")
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    agent = Chat(chat.lab, system="You are a search agent.", tools=("search",), named="one")
    assert agent.send([user("Find every file that names the staging cluster.")]).event == "side"
    goes_on(chat)


def test_a_summary_that_the_model_passed_to_a_tool_is_no_prompt_of_a_sub_agent(chat):
    summary = summary_of("zephyr", 4)
    call_id = chat.lab.call_id()
    asked = chat.send([*chat.history, user("Put what happened into the tool.")], tools=(*chat.tools, "keep"))
    chat.lab.answer(asked, called(call_id, "keep", context=summary))
    chat.history = [user(summary)]
    step = chat.turn("Let us go on with the next one.", "Gladly.")
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why
    goes_on(chat)


@pytest.mark.parametrize("by", ["its user", "its agent"])
def test_a_thread_that_the_model_opened_is_the_conversation_once_its_user_goes_on_there(chat, by):
    summary, order = summary_of("zephyr", 4), "Look once more, and tell me in which of the files it is read at start."
    chat.history.append(user("Go on in a new thread, please."))
    chat.lab.answer(chat.send(), called(chat.lab.call_id(), "new_thread", context=summary, then=order))
    chat.history = [user(summary)]
    first = chat.send()
    chat.lab.answer(first, assistant("I have read it. What is next?"))
    chat.history += [assistant("I have read it. What is next?")]
    step = chat.turn("Let us go on with the mails." if by == "its user" else order, "Gladly.")
    if by == "its user" or chat.named:
        assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why
        goes_on(chat)
    else:
        assert (step.event, step.session.id) == ("side", first.session.id), step.link.why


def test_a_sub_agent_that_its_client_speaks_to_again_stays_one(chat):
    task = "Find every place in which the retry policy of the gateway is read, and list the files with their lines."
    chat.history.append(user("Please delegate the search for the places."))
    call = called(chat.lab.call_id(), "task", prompt=task)
    chat.lab.answer(chat.send(), call)
    agent = Chat(chat.lab, system=chat.system, tools=chat.tools, history=[user(task)])
    chat.lab.answer(agent.send(), assistant("I think I am done."))
    agent.history += [assistant("I think I am done."), user("You called no tool. Go on, or say that you are done.")]
    assert agent.send().event == "side"
    chat.history += [call, result(call["tool_calls"][0]["id"], "gateway/retry.py")]
    step = chat.send()
    assert (step.event, step.session.id) == ("turn", chat.session)


PLAN = "1. Move the listener to port 7461. 2. Replace the parser of the invoices. 3. Add a test for each encoding."


def written(chat: Chat, *, waits: bool) -> Chat:
    """A new chat of the program in which the model of `chat` wrote a plan with a tool."""
    chat.history.append(user("Write down a plan for the rest, please."))
    call = called(chat.lab.call_id(), "write_file", path="plan.md", content=PLAN)
    chat.lab.answer(chat.send(), call)
    chat.history += [call, result(call["tool_calls"][0]["id"], "written")]
    if not waits:
        chat.lab.answer(chat.send(), assistant("It is in plan.md."))
        chat.history.append(assistant("It is in plan.md."))
    return another(chat)


@pytest.mark.parametrize("waits", [True, False], ids=["no result of it was seen", "its result was seen"])
@pytest.mark.parametrize("words", ["", "Implement the following plan:\n\n"])
def test_a_plan_that_a_model_wrote_begins_a_conversation_of_its_own_where_its_user_passes_it_on(chat, words, waits):
    fresh = written(chat, waits=waits)
    events = [fresh.turn(f"{words}{PLAN}", "I begin with the listener.").event]
    for said, answer in turns("omega", 5):
        events.append((step := fresh.turn(said, answer)).event)
        assert step.session.id != chat.session
    at = events.index("new")
    assert events == ["side"] * at + ["new"] + ["turn"] * (5 - at)
    assert at == 0 if words or fresh.named else at == (2 if waits else 1)
    fresh.history = fresh.history[-5:]
    cut = fresh.turn("And what was it before?", "The listener.")
    assert (cut.event, cut.session.id) == ("window", step.session.id), cut.link.why


@pytest.mark.parametrize(("named", "event"), [("two", "new"), ("one", "side"), ("", "side")])
def test_who_is_spoken_to_about_a_plan_under_another_prompt_is_an_agent_but_for_one_with_an_id_of_its_own(named, event):
    chat = Chat(Lab(), named="one")
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    written(chat, waits=True)
    fresh = Chat(chat.lab, system=CODER, tools=TOOLS, named=named)
    assert fresh.turn(PLAN, "I begin with the listener.").event == "side"
    step = fresh.turn("And then the parser.", "Gladly.")
    assert (step.event, step.session.id != chat.session) == (event, True), step.link.why


def test_an_old_half_of_a_long_conversation_pasted_is_a_side_call(chat):
    for n, (said, answer) in enumerate(turns("zephyr", 45, start=20)):
        chat.turn(f"{n}: {said}", f"{n}: {answer}")
    step = chat.lab.ask([user(f"Schreib es auf.\n{transcript(chat.history[:8])}")], headers=chat.headers)
    assert (step.event, step.session.parent) == ("side", chat.session)


@pytest.mark.parametrize(
    "system", ["You keep books.\nToday is {}.", "你是一位耐心的助手,负责为一家小商行记账。今天是{}。"]
)
def test_a_date_in_a_short_system_prompt_does_not_make_it_another(system):
    chat = Chat(Lab(), system=system.format("2026-03-01 09:00"))
    for n, (said, answer) in enumerate(turns("zephyr", 5)):
        chat.system = system.format(f"2026-03-0{n + 1} 1{n}:2{n}")
        chat.turn(said, answer)
    chat.history, chat.system = [user(summary_of("zephyr", 5)), *chat.history[-2:]], system.format("2026-04-11 23:59")
    step = chat.turn("go on", "going on")
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


def test_a_short_answer_that_another_session_got_too_does_not_link_a_new_conversation(chat):
    chat.turn("Is that fine with you?", "OK.")
    example = [user("Great product, I would buy it again."), assistant("OK."), user("Do not buy this one.")]
    step = another(chat).send(example)
    assert (step.event, step.session.id != chat.session) == ("new", True), step.link.why
    goes_on(chat)


@pytest.mark.parametrize(("rest", "event"), [
    ("\n... [shortened]", "window"), ("...[shortened]", "window"), (" […]", "window"),
    (" for the others, please.", "new"), (" (for the others)", "new"), (" [for the others]", "new"),
    ("... for the others.", "new"),
])  # fmt: skip
def test_whose_texts_are_cut_short_is_known_by_their_beginnings_where_something_stands_for_the_rest(rest, event):
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 5):
        chat.turn(said, answer)
    chat.history = [m if at == 3 else {**m, "content": m["content"][:30] + rest} for at, m in enumerate(chat.history)]
    step = chat.send([*chat.history, user("And what comes next?")])
    assert (step.event, step.session.id == chat.session) == (event, event != "new"), step.link.why


@pytest.mark.parametrize("tools", [False, True])
def test_a_window_that_leaves_no_more_than_a_short_answer_stays_in_its_session(tools):
    lab = Lab()
    chats = [another(Chat(lab), f"c{n}", tools) for n in range(2)]
    for project, chat in zip(("amber", "zephyr"), chats, strict=True):
        for said, answer in turns(project, 3):
            chat.turn(said, answer)
    chat = chats[0]
    chat.turn("Restart it, please.", "Done.")
    left = chat.history[-1]
    chat.history = [left]
    step = chat.turn("And which port does it use?", "OK.")
    assert (step.event, step.session.id) == ("window", chats[0].session), step.link.why
    chats[1].turn("Is that fine with you?", "OK.")
    assert another(chat, "c", tools).send([assistant("OK."), user("What can you do?")]).event == "new"
    assert another(chat, "d", tools).send([assistant("Hello!"), user("What can you do?")]).event == "new"


@pytest.mark.parametrize("why", [
    "another prompt", "other tools", "an hour later", "it has gone on", "one turn", "nothing to be known by",
    "more behind it", "a side call got it",
])  # fmt: skip
def test_a_chat_that_begins_with_a_short_answer_is_a_new_one_where_it_is_no_window(why):
    chat = Chat(Lab(), system="" if why == "nothing to be known by" else SYSTEM)
    for said, answer in turns("zephyr", 0 if why == "one turn" else 3):
        chat.turn(said, answer)
    if why == "a side call got it":
        chat.summarise("instruction at the end", "Done.")
    else:
        chat.turn("Restart it, please.", "Done.")
    if why == "it has gone on":
        chat.turn("And the other one?", "Is up.")
    chat.lab.now += 3600 * (why == "an hour later")
    fresh = Chat(
        chat.lab, system=CODER if why == "another prompt" else chat.system, tools=TOOLS if why == "other tools" else ()
    )
    more = [user("Who are you?"), assistant("A helper.")] if why == "more behind it" else []
    step = fresh.send([assistant("Done."), *more, user("What can you do?")])
    assert (step.event, step.session.id not in (chat.session, f"{chat.session}.side")) == ("new", True), step.link.why


def test_a_picture_before_a_short_answer_is_not_what_a_side_call_asked():
    chat = Chat(Lab(), named="x")
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    assert chat.summarise("instruction at the end", "Done.").event == "side"
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}
    step = chat.send([picture, assistant("Done."), user("What is next?")])
    assert step.session.id == chat.session, step.link.why


def test_a_chat_of_another_protocol_that_begins_with_a_short_answer_is_a_new_one():
    chat = Chat(Lab())
    for said, answer in [*turns("zephyr", 3), ("Restart it, please.", "Done.")]:
        chat.turn(said, answer)
    body = {"system": SYSTEM, "messages": [assistant("Done."), user("What can you do?")]}
    request = messages.read(json.dumps(body).encode())
    step = follow(chat.lab.index, request, Identity(), now=chat.lab.now, new_id=lambda: "another")
    assert (step.event, step.session.id) == ("new", "another"), step.link.why


def test_results_of_tools_that_stand_in_messages_of_the_user_are_nothing_that_was_said_before():
    lab, history = Lab(), []

    def send(said):
        history.append(user(said))
        tools = [{"name": "read_file", "input_schema": {}}]
        request = messages.read(json.dumps({"system": SYSTEM, "tools": tools, "messages": history}).encode())
        return follow(lab.index, request, Identity(), now=lab.now, new_id=lambda: f"ses_{len(history)}")

    def answer(step, part):
        content = {"id": lab.call_id(), "role": "assistant", "content": [part]}
        reply(lab.index, step.session, messages.read_answer(json.dumps(content).encode(), streamed=False), now=lab.now)
        history.append({"role": "assistant", "content": [part]})

    for n, (said, told) in enumerate(turns("zephyr", 4)):
        step = send(said)
        for call in (f"a{n}", f"b{n}", f"c{n}"):
            answer(step, {"type": "tool_use", "id": call, "name": "read_file", "input": {"path": f"{call}.txt"}})
            step = send([{"type": "tool_result", "tool_use_id": call, "content": f"Row {call} of a table."}])
        answer(step, {"type": "text", "text": told})
    kept = {"type": "tool_use", "id": "t9", "name": "read_file", "input": {"context": summary_of("zephyr", 4)}}
    answer(send("Go on in a new thread, please."), kept)
    session, history = step.session.id, []
    assert send(f"<task>\n{summary_of('zephyr', 4)}\n</task>").session.id == session


def test_texts_from_one_template_are_looked_for_once(monkeypatch):
    template = "Classify this ticket by its product, and answer with one word. " * 8
    looked_for = []
    speakers = pasted._speakers
    monkeypatch.setattr(pasted, "_speakers", lambda pieces, *rest: looked_for.append(pieces) or speakers(pieces, *rest))
    assert not pasted.is_pasted({f"{template} Ticket {n}": "user" for n in range(50)}, [f"{template} And this?"])
    assert [len(some.texts) for found in looked_for for voices in found.values() for some in voices.values()] == [1]


def test_speakers_are_those_of_whom_something_stands_in_no_text_of_another():
    words = ["amber birch cedar drift ember flint", "birch cedar drift ember flint", "cedar drift ember flint grove"]
    for whos in itertools.product(("user", "assistant", "tool"), repeat=3):
        said = list(zip(words, whos, strict=True))
        pieces = pasted._by_start(said)
        for text in (*words, " ".join(words), f"{words[1]} {words[2]}", f"{words[0]} grove"):
            spans = [(at, at + len(p), who) for p, who in said for at in range(len(text)) if text.startswith(p, at)]
            apart = {w for a, b, w in spans if not any(c <= a and b <= d and w != v for c, d, v in spans)}
            assert pasted._speakers(pieces, text, iter(range(1_000)), pasted._starts_of(pieces), {}) == apart


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        ("", "", 0),
        ("", "a", 0),
        ("a", "a", 1),
        ("ab", "ac", 1),
        ("abc", "abcd", 3),
        ("xbc", "abc", 0),
        ("aéb", "aéc", 2),
    ],
)
def test_what_two_texts_have_in_common_is_counted_from_their_start(a, b, shared):
    assert shared_front(a, b) == shared_front(b, a) == shared


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        ("", "", 0),
        ("a", "a", 1),
        ("aa", "a", 1),
        ("axb", "ayb", 2),
        ("abab", "ab", 2),
        ("xa", "ya", 1),
        ("ab", "ba", 0),
    ],
)
def test_no_character_that_two_texts_share_at_both_ends_is_counted_twice(a, b, shared):
    assert shared_ends(a, b) == shared_ends(b, a) == shared


def test_a_new_conversation_is_not_held_up_by_hundreds_of_long_system_prompts():
    """Programs put the time or a folder at the end of theirs, so that all of them begin alike."""
    one, other = ("You are careful. " * 20_000 + end for end in ("It is 09:41.", "It is 10:05."))

    def walked() -> int:
        return next(n for n, (x, y) in enumerate(zip(one, other, strict=True)) if x != y)

    def seconds(work) -> float:
        begun = time.perf_counter()
        assert work() == len("You are careful. ") * 20_000 + len("It is ")
        return time.perf_counter() - begun

    assert 10 * min(seconds(lambda: shared_front(one, other)) for _ in range(5)) < min(
        seconds(walked) for _ in range(5)
    )


def test_a_title_call_that_no_word_tells_and_that_came_first_takes_nothing_of_its_conversation_for_lost():
    lab, (said, answer), (more, _) = Lab(), *turns("zephyr", 2)
    headers = {"x-session-id": "one"}
    lab.answer(lab.ask([{"role": "system", "content": GERMAN}, user(said)], headers=headers), assistant("Zephyr"))
    first = [{"role": "system", "content": SYSTEM}, user(said)]
    lab.answer(lab.ask(first, headers=headers), assistant(answer))
    step = lab.ask([*first, assistant(answer), user(more)], headers=headers)
    assert (step.event, step.session.side) == ("new", False), step.link.why


def test_a_conversation_whose_title_came_first_is_one_from_its_second_turn_on_though_its_answers_follow_thoughts():
    lab = Lab()
    Chat(lab, system=GERMAN, named="one").turn("Wie geht es den Molchen?", "Molche")
    chat = Chat(lab, named="one")
    chat.history.append(user("Wie geht es den Molchen?"))
    lab.answer(chat.send(), assistant("<think>\nSie fragen nach ihnen.\n</think>\n\nGut, sie sind im Teich."))
    chat.history.append(assistant("Gut, sie sind im Teich."))
    step = chat.turn("Und den Eulen?", "Auch gut.")
    assert (step.event, step.session.side) == ("new", False), step.link.why
    chat.session = step.session.id
    goes_on(chat)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("probed", [False, True])
def test_the_topic_of_each_message_is_a_side_call_though_the_first_one_came_before_the_conversation(probed, restarted):
    lab = Lab()
    lab.restarts, chat = restarted, Chat(lab, system=CODER, tools=TOOLS, named="one")
    if probed:
        lab.answer(lab.ask([user("may I?")], headers=chat.headers), assistant("Y"))
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        orders = "Name the field that a message is about, in one word, as JSON."
        topic = lab.ask([{"role": "system", "content": orders}, user(said)], headers=chat.headers)
        lab.answer(topic, assistant(f'{{"field": "{"abcd"[n]}"}}'))
        step = chat.turn(said, answer)
        assert (topic.event, step.event) == (("side", "turn") if n else ("new", "new")), (topic.link.why, step.link.why)
        assert step.session.id == chat.session != topic.session.id


@pytest.mark.parametrize("restarted", [False, True])
def test_behind_a_probe_a_conversation_begins_but_one_that_begins_without_orders_may_be_summed_up_in_them(restarted):
    for asked, event in (("may I?", "new"), ("The mill of Leeds is number 4711-A.", "compacted")):
        lab, headers = Lab(), {"x-session-id": "one"}
        lab.restarts = restarted
        lab.answer(lab.ask([user(asked)], headers=headers), assistant("Yes, and what else can I do for you?"))
        orders = {"role": "system", "content": "You help. Until now a mill was talked about."}
        step = lab.ask([orders, user("What is its number?")], headers=headers)
        assert step.event == event, step.link.why


def test_a_first_call_without_tools_that_goes_on_is_a_conversation_beside_the_one_with_tools():
    one, other = Chat(Lab(), system=GERMAN, named="one"), Chat(Lab(), system=CODER, tools=TOOLS, named="one")
    other.lab = one.lab
    for ours, theirs in zip(turns("zephyr", 3), turns("amber", 3), strict=True):
        steps = one.turn(*ours), other.turn(*theirs)
        assert [step.session.id for step in steps] == [one.session, other.session]
    assert one.session != other.session


# --- what many conversations have in common ------------------------------------------------------------------------


def ago(history: list[dict], now: int) -> list[dict]:
    """The history as a client sends it that writes in front of each text of the user how long ago it was said."""
    return [
        m | {"content": f"[{now - at} minutes ago] {m['content']}"} if m["role"] == "user" else m
        for at, m in enumerate(history)
    ]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_first_message_with_another_time_in_front_of_it_still_proves_nothing(restarted):
    lab = Lab()
    chats = [Chat(lab), Chat(lab)]
    for chat, answer in zip(chats, ("Of course, let us begin with the gateway.", "Yes."), strict=True):
        chat.history = [user("Good morning, shall we start?")]
        step = chat.send(ago(chat.history, 1))
        chat.session = step.session.id
        lab.answer(step, assistant(answer))
        chat.history.append(assistant(answer))
    assert chats[0].session != chats[1].session
    for n, chat in enumerate(chats):
        chat.history.append(user(f"The {('gateway', 'invoice')[n]} first, please: what is open there?"))
        step = chat.send(ago(chat.history, 3))
        assert (step.session.id == chats[0].session) == (chat is chats[0]), step.link.why
        lab.answer(step, assistant("The tests, and nothing else."))
        if restarted:
            lab.restart()


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_answered_behind_a_thought_is_known_without_it_where_all_that_the_user_said_is_dated_anew(restarted):
    lab = Lab()
    chat = Chat(lab)
    said = {
        "Who feeds the owls?": "Marit feeds them, at dusk and again at six.",
        "And the newts?": "Nobody does so far.",
    }
    events = []
    for asked, answer in said.items():
        chat.history.append(user(asked))
        step = chat.send(ago(chat.history, 2 * len(chat.history) + 1))
        lab.answer(step, assistant(f"<think>\nThey ask for {asked!r}.\n</think>\n\n{answer}"))
        chat.history.append(assistant(answer))
        events.append(step.event)
        if restarted:
            lab.restart()
    assert events == ["new", "turn"], step.link.why


def test_a_short_answer_in_a_script_without_spaces_is_known_by_its_words():
    lab = Lab()
    chat = Chat(lab)
    chat.history = [user("こんにちは、始めましょうか。")]
    first = chat.send(ago(chat.history, 1))
    lab.answer(first, assistant("石松館の搭乗口は群青です。"))
    chat.history += [assistant("石松館の搭乗口は群青です。"), user("次の項目に進みましょう。")]
    step = chat.send(ago(chat.history, 3))
    assert (step.event, step.session.id) == ("turn", first.session.id), step.link.why


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("wrap", [user, assistant])
def test_words_that_a_client_puts_around_every_summary_do_not_link_it(wrap, restarted):
    lab = Lab()
    chats = {project: Chat(lab) for project in ("amber", "zephyr")}
    names = {
        "amber": ("Linzow", "Pasvik", "Tikuno", "Meltip", "Fepasr", "Linmel", "Timelv", "Selpas"),
        "zephyr": ("Dogata", "Norgap", "Gaselv", "Kuwenw", "Zopasg", "Wenrat", "Borlin", "Fekufe"),
    }
    for project, chat in chats.items():
        for name in names[project]:
            chat.turn(f"{name} wants it soon.", f"Noted for {name}.")
    frame = "This session is being continued from a previous conversation that ran out of context.\nWe went through {}."
    for project in ("amber", "zephyr"):
        chat = chats[project]
        chat.history = [
            wrap(frame.format(", ".join(names[project]))),
            user({"amber": "Go on with the next one.", "zephyr": "What is still on the list?"}[project]),
        ]
        step = chat.send()
        assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why
        lab.answer(step, assistant("There is no next one."))
        if restarted:
            lab.restart()


def test_a_title_that_stands_in_the_answer_does_not_make_the_conversation_a_side_call():
    lab = Lab()
    said, answer = "How do I sort a list of names in place?", "Sorting lists in place is what list.sort() does. " * 8
    title = lab.ask([{"role": "system", "content": "Give it a name of three words."}, user(said)])
    lab.answer(title, assistant("Sorting lists in place"))
    chat = Chat(lab, history=[])
    chat.turn(said, answer)
    chat.turn("And in reverse?", "With reverse=True, and nothing else.")
    lab.answer(lab.ask([{"role": "system", "content": "Give it a name of three words."}, user(said)]),
               assistant("Sorting lists in place"))  # fmt: skip
    chat.history[1] = assistant(answer[:60] + "…")
    step = chat.turn("And by length?", "With key=len.")
    assert (step.event in ("turn", "cleared"), step.session.id) == (True, chat.session), step.link.why


def test_a_wish_for_a_summary_is_a_persons_where_times_changed_in_the_first_message():
    lab = Lab()
    chat = Chat(lab)
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        chat.history.append(user(said))
        step = chat.send(ago(chat.history, 2 * n + 1))
        lab.answer(step, assistant(answer))
        chat.history.append(assistant(answer))
    asked = chat.send(ago([*chat.history, user("Please summarise our conversation so far.")], 9))
    assert (asked.event, asked.session.id) == ("turn", step.session.id), asked.link.why


@pytest.mark.parametrize("name", ["[{}]: {}", "{}: {}", "**{}:** {}"])
@pytest.mark.parametrize("nods", [("ok", "weiter", "Ja."), ("Ok.", "Weiter!", "Ja?")])
def test_a_short_question_between_two_answers_is_what_its_user_said_where_both_were_pasted(nods, name):
    chat = Chat(Lab())
    for nod, (_, answer) in zip(nods, turns("zephyr", 3), strict=True):
        chat.turn(nod, answer)
    lines = (name.format(m["role"].upper(), m["content"]) for m in chat.history)
    pasted = "\n".join(["Suggest three questions that may come next.\n", *lines])
    step = chat.lab.ask([user(pasted)])
    assert (step.event, step.session.parent) == ("side", chat.session)


def test_two_answers_side_by_side_are_no_transcript():
    chat = Chat(Lab())
    for nod, (_, answer) in zip(("ok", "weiter"), turns("zephyr", 2), strict=True):
        chat.turn(nod, answer)
    both = "\n".join(m["content"] for m in chat.history if m["role"] == "assistant")
    assert chat.lab.ask([{"role": "system", "content": "Compare."}, user(f"Which is better?\n{both}")]).event == "new"
