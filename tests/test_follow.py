"""The life of a turn: everything is filed once, in order, and found again after a restart."""

import json

import pytest
from chats import STYLES, Chat, Lab, Wire, assistant, called, result, summary_of, turns, user

from lantern_proxy.follow import reply
from lantern_proxy.session import forget, indexing
from lantern_proxy.session.early_results import results_in
from lantern_proxy.turn import Answer
from lantern_proxy.wire import chat as wire


def chat_of(lab: Lab, count: int = 4, project: str = "zephyr", named: str = "") -> Chat:
    chat = Chat(lab, named=named)
    for said, answer in turns(project, count):
        chat.turn(said, answer)
    return chat


def filed(chat: Chat, text: str) -> int:
    return chat.lab.texts(chat.session).count(text)


def test_every_message_is_filed_once_in_the_order_in_which_it_came():
    chat = chat_of(Lab())
    assert chat.lab.texts(chat.session) == [chat.system, *(m["content"] for m in chat.history)]
    kept = chat.lab.kept[chat.session].filed
    assert [f.position for f in kept] == list(range(9))
    assert [f.turn for f in kept] == [0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("how", ["all of it", "a window", "a compaction", "the last message"])
def test_the_same_words_again_are_a_new_message(how):
    chat = chat_of(Lab(), named="one")
    for n in range(4):
        chat.turn("continue", f"Part {n} is written now, and checked.")
    if how == "a window":
        chat.history = chat.history[-4:]
    elif how == "a compaction":
        chat.history = [user(f"Summary of the conversation: {summary_of('zephyr', 4)}"), chat.history[-1]]
    elif how == "the last message":
        chat.history = []
    step = chat.turn("continue", "Part 4 is written now.")
    assert step.session.id == chat.session
    assert filed(chat, "continue") == 5
    assert filed(chat, "Part 4 is written now.") == 1


def test_a_task_that_a_compaction_in_the_middle_of_a_turn_keeps_is_not_filed_again():
    chat = chat_of(Lab())
    chat.history.append(user("rename the module, and run the tests"))
    call = called("call_x", "run", cmd="pytest")
    chat.lab.answer(chat.send(), call)
    summary = user(f"Summary of the conversation: {summary_of('zephyr', 4)}")
    chat.history = [summary, user("rename the module, and run the tests"), call, result("call_x", "2 passed")]
    step = chat.send()
    assert (step.event, step.session.id) == ("compacted", chat.session)
    assert filed(chat, "rename the module, and run the tests") == 1


def test_a_request_that_failed_and_is_sent_again_compacted_files_its_question_once():
    chat = chat_of(Lab())
    chat.history.append(user("this one is too long for the model"))
    chat.lab.fail(chat.send())
    step = chat.send([user(f"Summary of the conversation: {summary_of('zephyr', 4)}"), chat.history[-1]])
    assert (step.event, step.session.id) == ("compacted", chat.session)
    assert filed(chat, "this one is too long for the model") == 1


def test_a_byte_identical_request_files_nothing_and_neither_does_the_same_answer():
    chat = chat_of(Lab())
    step = chat.send(chat.history[:-1])
    assert (step.event, step.filed) == ("retry", ())
    assert chat.lab.answer(step, chat.history[-1]) == ()


def test_of_two_answers_to_one_request_both_are_filed_and_either_may_go_on():
    for chosen in (0, 1):
        chat = chat_of(Lab())
        chat.history.append(user("write a poem"))
        steps = [chat.send(), chat.send()]
        answers = [assistant("Roses are red, as far as I know."), assistant("Violets are blue, as far as I see.")]
        for step, answer in zip(steps, answers, strict=True):
            assert len(chat.lab.answer(step, answer)) == 1
        chat.history.append(answers[chosen])
        after = chat.turn("go on", "And so are you.")
        assert (after.event, after.session.id) == ("turn", chat.session)
        assert [f.message.text for f in after.filed] == ["go on"]


def test_any_of_several_choices_may_go_on():
    chat = chat_of(Lab())
    chat.history.append(user("two variants please"))
    chat.lab.answer(chat.send(), assistant("Variant one is blue."), assistant("Variant two is green."))
    chat.history.append(assistant("Variant two is green."))
    step = chat.turn("go with it", "Going with green.")
    assert (step.event, step.session.id, len(step.filed)) == ("turn", chat.session, 1)


def test_an_answer_that_broke_off_is_filed_as_partial_and_the_client_goes_on_without_it():
    chat = chat_of(Lab())
    chat.history.append(user("write a long poem"))
    kept = chat.lab.answer(chat.send(), assistant("Roses are red, viol"), complete=False)
    assert [f.partial for f in kept] == [True]
    chat.history.append(user("no, stop that"))
    after = chat.send()
    assert after.session.id == chat.session
    assert after.event in ("turn", "branch")


# --- a restart -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["", "one"])
def test_after_a_restart_every_session_goes_on_and_nothing_is_filed_again(named):
    lab = Lab()
    chats = [chat_of(lab, project=project, named=named and project) for project in ("amber", "birch", "zephyr")]
    lab.restart()
    for chat in chats:
        step = chat.turn("and after the restart?", f"It goes on in {chat.session}.")
        assert (step.event, step.session.id) == ("turn", chat.session)
        assert [f.message.text for f in step.filed] == ["and after the restart?"]


@pytest.mark.parametrize("style", [
    "last six only", "first message, assistant summary, last three", "bare assistant summary",
    "appended to the system prompt only", "summary, then the question",
])  # fmt: skip
def test_a_compaction_right_after_a_restart_is_found(style):
    lab = Lab()
    chat = chat_of(lab, 6)
    lab.restart()
    step = chat.compact(STYLES[style], summary_of("zephyr", 6), "go on with it", "Going on.")
    assert (step.verdict.is_loss, step.session.id) == (True, chat.session), step.link.why


def test_after_a_restart_a_summary_that_was_made_before_it_links_and_old_texts_are_still_known():
    lab = Lab()
    chat = chat_of(lab, 6)
    summary = "Bisher: alles bestens, es fehlt nur noch der Rest, siehe oben."
    chat.summarise("transcript under another system prompt", summary)
    chat.history = chat.history[-4:]
    chat.turn("go on", "Going on with it.")
    lab.restart()
    step = chat.send([user(summary), user("weiter")])
    assert (step.event, step.session.id) == ("compacted", chat.session)
    assert step.session.lost


def test_after_a_restart_a_session_is_known_as_it_was():
    lab = Lab()
    chat = chat_of(lab, 4)
    lab.answer(chat.send(chat.history[:-1]), assistant("Another answer to the same."))
    chat.history[-1] = assistant("Another answer to the same.")
    chat.history = chat.history[:5]
    edited = chat.turn("something else instead", "Something else it is.")
    assert edited.event == "branch"
    chat.history[2] = user(f"[10:02] {chat.history[2]['content']}")
    chat.turn("go on", "Going on with it.")
    before = lab.index.sessions[chat.session]
    lab.restart()
    after = lab.index.sessions[chat.session]
    assert before.abandoned
    assert any(e.altered for e in before.head)
    for field in ("head", "chain", "answered", "keys", "abandoned", "lost", "position", "turn", "recalled"):
        was, now = getattr(before, field), getattr(after, field)
        if field == "head":
            was, now = ([(e.key, e.message.print, e.produced) for e in some] for some in (was, now))
        assert was == now, field


LISTING = "\n".join(f"{n:03} the relay of line {n} listens on port {4000 + n}" for n in range(30))
CLEARINGS = {
    "a placeholder": lambda text: "[old tool result cleared]",
    "its first half": lambda text: text[: len(text) // 2] + "…",
    "both ends": lambda text: f"{text[:60]}\n[... truncated ...]\n{text[-60:]}",
    "nothing": lambda text: "",
}


def chat_with_results(lab: Lab) -> Chat:
    """Three tools were called, and each result spoken of."""
    chat = chat_of(lab, 2)
    for n in range(3):
        chat.turn(f"what does listing {n} say?", f"Listing {n} has thirty lines.", reads=f"listing {n}\n{LISTING}")
    return chat


def cleared(history: list[Wire], how: str, first: int = 1) -> list[Wire]:
    at = [n for n, m in enumerate(history) if m["role"] == "tool"][:first]
    return [m | {"content": CLEARINGS[how](m["content"])} if n in at else m for n, m in enumerate(history)]


@pytest.mark.parametrize("how", CLEARINGS)
def test_what_was_cleared_before_a_restart_is_not_cleared_again_by_it(how):
    lab = Lab()
    chat = chat_with_results(lab)
    chat.history = cleared(chat.history, how)
    assert chat.turn("and the next?", "The next one is the same.").event == "cleared"
    for _ in range(2):
        lab.restart()
        step = chat.turn("what else is there?", "Nothing else.")
        assert (step.event, len(step.filed), step.session.id) == ("turn", 1, chat.session)
    lab.restart()
    chat.history = cleared(chat.history, how, first=2)
    assert chat.turn("and now?", "The second one is gone, too.").event == "cleared"


def test_answers_that_are_cut_short_right_after_a_restart_are_a_loss_where_answers_were_shown_as_they_came():
    lab = Lab()
    chat = chat_of(lab, 2)
    chat.turn("list the relays", LISTING)
    chat.turn("thank you", "You are welcome, tell me if a relay is missing.")
    lab.restart()
    at = next(n for n, m in enumerate(chat.history) if m["content"] == LISTING)
    chat.history[at] = assistant(LISTING[:100] + "…")
    assert chat.turn("which is the tenth?", "Line ten.").event == "cleared"


def test_answers_that_a_client_always_shows_without_their_thoughts_are_no_loss_after_a_restart():
    lab = Lab()
    chat = chat_of(lab, 2)
    for n in range(3):
        chat.turn(f"question {n}", f"<think>{'I wonder about it. ' * 20}</think>\n\nAnswer {n} is short.")
        chat.history[-1] = assistant(f"Answer {n} is short.")
    lab.restart()
    step = chat.turn("and now?", "Now it is done.")
    assert (step.event, step.session.id) == ("turn", chat.session)


# --- requests at once ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["the one that came first", "the one that came last"])
@pytest.mark.parametrize("named", ["", "x"])
def test_of_two_questions_at_once_each_answer_stands_behind_its_own(first, named):
    chat = chat_of(Lab(), project="amber", named=named)
    lab, history = chat.lab, list(chat.history)
    asks = {word: f"What colour has the door of the {word} house?" for word in ("north", "south")}
    steps = {word: chat.send([*history, user(said)]) for word, said in asks.items()}
    assert {step.session.id for step in steps.values()} == {chat.session}
    order = ("north", "south") if first == "the one that came first" else ("south", "north")
    filed = {word: lab.answer(steps[word], assistant(f"It is {word}-green."))[0] for word in order}
    for word, step in steps.items():
        assert filed[word].turn == step.filed[-1].turn
    held = lab.index.sessions[chat.session]
    assert (filed["north"].key in held.abandoned, filed["south"].key in held.abandoned) == (True, False)
    for word in (*order, *order):
        own = [*history, user(asks[word]), assistant(f"It is {word}-green."), user(f"And the windows of {word}?")]
        step = chat.send(own)
        assert (step.session.id, step.event in ("turn", "branch", "retry")) == (chat.session, True)
        assert {f.message.text for f in step.filed} <= {own[-1]["content"]}
        gone = [asks[other] for other in asks if other != word]
        assert not {f.message.text for f in lab.kept[chat.session].filed if f.key in step.verdict.gone} & {*gone}


# --- eviction ------------------------------------------------------------------------------------------------------


def test_forgotten_sessions_leave_nothing_behind_and_do_not_disturb_the_others():
    lab = Lab()
    first, second = chat_of(lab, project="amber", named="one"), chat_of(lab, project="birch", named="two")
    step = first.summarise("transcript under another system prompt", summary_of("amber", 4))
    assert step is not None
    for gone in (step.session.id, first.session):
        forget(lab.index, gone)
    forget(lab.index, "never seen")
    held = [sid for index in (lab.index.by_id, lab.index.by_answer, lab.index.by_user, lab.index.by_start) for
            holders in index.values() for sid in holders]  # fmt: skip
    assert set(held) <= {second.session}
    assert reply(lab.index, step.link.session, Answer(messages=()), now=1.0) == (None, ())
    assert second.turn("still there?", "Still here.").session.id == second.session
    assert first.turn("and I?", "You are new to me.").event == "new"


def test_the_session_seen_longest_ago_makes_room():
    lab = Lab()
    chats = [Chat(lab, named=f"n{n}") for n in range(indexing.SIZE + 2)]
    for n, chat in enumerate(chats):
        lab.answer(chat.send([user(f"hello {n}")]), assistant(f"hello to you, {n}"))
    assert indexing.SIZE * 0.9 < len(lab.index.sessions) <= indexing.SIZE
    assert "ses_1" not in lab.index.sessions
    assert chats[-1].send([user("again")]).session.id == f"ses_{indexing.SIZE + 2}"


READ = "call_9f27c1d3"
AUDIT = "The audit names host lic-07 with kernel 5.10.218."
SUM_UP = "Write a summary of this conversation so far. " + "Name all files and decisions. " * 20


def at_work(lab: Lab, call_id: str = READ) -> tuple[Chat, Wire]:
    """A chat whose model called a tool, and that call; its result was not shown yet."""
    chat = chat_of(lab)
    chat.history.append(user("Please read the audit."))
    call = called(call_id, "read_file", path="audit.txt")
    lab.answer(chat.send(), call)
    return chat, call


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("then", ["a summary", "the result", "no more than the result"])
def test_a_result_that_a_summary_call_shows_first_is_filed_in_its_conversation_and_once(restarts, then):
    lab = Lab()
    chat, call = at_work(lab)
    done = result(READ, AUDIT)
    step = chat.send([*chat.history, call, done, user(SUM_UP)])
    assert step.event == "side"
    lab.answer(step, assistant(summary := summary_of("zephyr", 4)))
    lab.restarts = restarts
    assert lab.texts(chat.session)[-1] == AUDIT
    if then == "a summary":
        chat.history = [user("What did we do so far?"), assistant(summary), user("Continue, please.")]
    else:
        chat.history += [call, done]
    step = chat.send()
    assert (step.session.id, step.event) == (chat.session, "compacted" if then == "a summary" else "turn")
    lab.answer(step, assistant("The audit is read."))
    if then != "no more than the result":
        chat.history += [assistant("The audit is read."), user("Go on.")]
        assert chat.send().event == "turn"
    assert lab.texts(chat.session).count(AUDIT) == 1


@pytest.mark.parametrize(("shown", "is_filed"), [(5, True), (3, True), (1, False)])
def test_a_result_that_a_summary_call_of_the_end_of_a_history_shows_first_is_filed_in_its_conversation(shown, is_filed):
    """What stood before was summed up earlier, or is left out. shown: messages before the call, of eleven"""
    lab = Lab()
    chat = chat_of(lab)
    for n in range(2):
        chat.turn(f"Export number {n} runs at 03:4{n} and writes to the archive.", f"Noted: export {n} is in order.")
    chat.history.append(user("Please read the audit of this week."))
    call = called(READ, "read_file", path="audit.txt")
    lab.answer(chat.send(), call)
    wish = user("Create a summary of the conversation above:")
    step = chat.send([*chat.history[-shown:], call, result(READ, AUDIT), wish])
    assert (step.event, step.main is not None) == ("side", is_filed)
    assert lab.texts(chat.session).count(AUDIT) == is_filed


@pytest.mark.parametrize("call_id", ["call_8b1e4a77", READ])
def test_a_result_of_another_call_that_a_summary_call_shows_is_not_its_conversations(call_id):
    lab = Lab()
    chat, _ = at_work(lab)
    others = called(call_id, "read_file", path="the audit of somebody else")
    assert chat.send([*chat.history, others, result(call_id, AUDIT), user(SUM_UP)]).main is None
    assert AUDIT not in lab.texts(chat.session)


def test_a_result_of_a_call_that_was_only_numbered_is_not_filed_where_a_side_call_seems_to_belong():
    """Two people ask the same of models that number their calls: what the one got must not reach the other."""
    lab = Lab()
    look, asked = called("call_0", "get_orders"), user("Where is my last order, please?")
    steps = [lab.ask([asked], tools=["get_orders"]) for _ in range(2)]
    for step in steps:
        lab.answer(step, look)
    summary_call = lab.ask([asked, look, result("call_0", AUDIT), user(SUM_UP)])
    assert (summary_call.event, summary_call.session.parent) == ("side", steps[1].session.id)  # or is it the first's?
    assert not any(AUDIT in lab.texts(step.session.id) for step in steps)


def test_a_summary_call_that_is_sent_again_shows_nothing_that_its_conversation_does_not_hold():
    chat, call = at_work(Lab())
    first, again = (chat.send([*chat.history, call, result(READ, AUDIT), user(SUM_UP)]) for _ in range(2))
    assert first.main is not None
    assert (again.event, again.main) == ("side", None)


def in_one_text(
    chat: Chat, *more: str, label: str = "[Tool result]: ", end: str = "\n</conversation>\n\nSum it up."
) -> Wire:
    """The history of a chat in one text, as clients write it to have it summed up. more: lines behind it"""
    front, lines = {"user": "[User]: ", "assistant": "[Assistant]: ", "tool": label}, list[str]()
    for m in chat.history:
        call = m["tool_calls"][0]["function"] if m.get("tool_calls") else None
        said = f"[Assistant tool call]: {call['name']}({call['arguments']})" if call else f"{m['content']}\n"
        lines.append(said if call else front[m["role"]] + said)
    return user("\n".join(["Here is the conversation so far:\n\n<conversation>", *lines, *more]) + end)


def has_read(lab: Lab) -> Chat:
    """A chat whose model has read the notes, and now calls for the audit; its result was not shown yet."""
    chat = chat_of(lab)
    for call_id, path in ((f"call_{7:08x}", "notes.txt"), (READ, "audit.txt")):
        chat.history.append(user(f"Please read the file {path} of this week."))
        call = called(call_id, "read_file", path=path)
        lab.answer(chat.send(), call)
        chat.history.append(call)
        if call_id != READ:
            chat.history.append(result(call_id, "The notes speak of zephyr-4.\nIts queue holds 4711 jobs."))
            lab.answer(chat.send(), assistant("I read that the queue holds 4711 jobs."))
            chat.history.append(assistant("I read that the queue holds 4711 jobs."))
    return chat


SHOWN_FIRST = f"[Tool result]: {AUDIT}\nIt is signed by Jorid Naess."
ORDERS = {"role": "system", "content": "You sum up conversations between a user and an agent. Keep names and figures."}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_result_that_stands_first_in_a_history_in_one_text_is_filed_in_its_conversation(restarts):
    lab = Lab()
    lab.restarts = restarts
    chat = has_read(lab)
    step = lab.ask([ORDERS, in_one_text(chat, SHOWN_FIRST)])
    assert (step.event, step.main and step.main.id) == ("side", chat.session)
    assert lab.texts(chat.session)[-1] == f"{AUDIT}\nIt is signed by Jorid Naess."
    assert lab.ask([ORDERS, in_one_text(chat, SHOWN_FIRST)]).main is None
    chat.history.append(result(READ, f"{AUDIT}\nIt is signed by Jorid Naess."))
    assert chat.send().event == "turn"
    assert sum(AUDIT in text for text in lab.texts(chat.session)) == 1


def shown_first(lab: Lab, chat: Chat, told: Wire) -> list[str]:
    """What results_in() finds in a side call of this text."""
    request = wire.read(json.dumps({"model": "m", "messages": [ORDERS, told]}).encode())
    return [m.text for m in results_in(lab.index, lab.index.sessions[chat.session], request, named=False)]


@pytest.mark.parametrize(
    ("more", "how"),
    [
        ((SHOWN_FIRST, "[User]: And what did Ola order?"), {}),
        ((SHOWN_FIRST, "[Tool result]: Ola ordered 12 crates."), {}),
        ((SHOWN_FIRST,), {"end": "\n\nSum it up."}),
        ((SHOWN_FIRST,), {"label": "[Output]: "}),
    ],
    ids=["somebody goes on", "two results of one call", "no end", "a label that is not known"],
)
def test_what_may_be_more_than_a_result_at_the_end_of_a_history_in_one_text_is_not_filed(more, how):
    lab = Lab()
    chat = has_read(lab)
    assert shown_first(lab, chat, in_one_text(chat, SHOWN_FIRST)) == [f"{AUDIT}\nIt is signed by Jorid Naess."]
    assert shown_first(lab, chat, in_one_text(chat, *more, **how)) == []


def test_a_history_in_one_text_behind_a_wish_ends_where_the_text_ends():
    lab = Lab()
    chat = has_read(lab)
    told = in_one_text(chat, SHOWN_FIRST, end="")["content"]
    assert shown_first(lab, chat, user(f"Summarize the conversation below.\n{told}")) == [
        f"{AUDIT}\nIt is signed by Jorid Naess."
    ]
    assert shown_first(lab, chat, user(told)) == []


@pytest.mark.parametrize("other", ["read_file(", "I read that", "this week"])
def test_a_result_behind_another_call_or_another_end_of_a_history_is_not_filed(other):
    lab = Lab()
    chat = has_read(lab)
    told = in_one_text(chat, SHOWN_FIRST)
    assert shown_first(lab, chat, user(told["content"].replace(other, "something else ("))) == []


def test_of_two_conversations_that_say_the_same_none_gets_the_result_that_a_history_in_one_text_shows():
    lab = Lab()
    chats = has_read(lab), has_read(lab)
    assert [shown_first(lab, chat, in_one_text(chat, SHOWN_FIRST)) for chat in chats] == [[], []]


def test_where_an_id_names_the_conversation_the_last_result_of_calls_with_one_number_is_filed_and_none_again():
    lab = Lab()
    chat = chat_of(lab, named="c-1")
    chat.history.append(user("Please read the audits."))
    for n in range(3):
        call, done = called("functions.run:0", "run", audit=str(n)), result("functions.run:0", f"{n}: {AUDIT}")
        lab.answer(chat.send(), call)
        chat.history += [call, done]
    step = chat.send([*chat.history, user(SUM_UP)])
    assert [f.message.text for f in step.main_filed] == [f"2: {AUDIT}"]
    assert chat.send().event == "turn"
    assert [text for text in lab.texts(chat.session) if AUDIT in text] == [f"{n}: {AUDIT}" for n in range(3)]


@pytest.mark.parametrize("apart", [False, True])
def test_the_results_of_calls_with_ids_of_their_own_are_filed_though_two_say_the_same(apart):
    """apart: each call is shown as a message of its own"""
    lab = Lab()
    asked, wish, ids = user("Where is my last order?"), user(SUM_UP), ("call_8b1e4a77", "call_9c2f5b88")
    chats = [Chat(lab) for _ in range(2)]
    calls = [called(value, "get_orders", of=value) for value in ids]
    both = {"role": "assistant", "content": None, "tool_calls": [c["tool_calls"][0] for c in calls]}
    for chat in chats:
        chat.history.append(asked)
        lab.answer(chat.send(), both if chat is chats[0] else assistant("It is on its way."))
    shown = calls if apart else [both]
    step = chats[0].send([asked, *shown, *(result(value, f"{AUDIT} {value}") for value in ids), wish])
    assert [f.message.text for f in step.main_filed] == [f"{AUDIT} {value}" for value in ids]


def test_a_word_that_one_alone_said_gives_them_no_result_of_a_call_that_was_only_numbered():
    lab, call = Lab(), called("functions.run:0", "get_orders")
    for said in ("7", "8"):
        chat = chat_of(lab)
        chat.history.append(user(said))
        lab.answer(chat.send(), call)
    assert chat.send([user("8"), call, result("functions.run:0", AUDIT), user(SUM_UP)]).main is None
