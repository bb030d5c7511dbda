"""What was lost: every way in which clients are known to compact, and what must not be taken for it."""

import json

import pytest
from chats import (
    CODER,
    SILENT,
    STYLES,
    SUMMARY_CALLS,
    SYSTEM,
    TOOLS,
    Chat,
    Lab,
    Wire,
    assistant,
    called,
    parts,
    result,
    summary_of,
    turns,
    user,
)

from lantern_proxy.compaction_place import place
from lantern_proxy.follow import Step
from lantern_proxy.history import plain
from lantern_proxy.turn import LOSSES
from lantern_proxy.wire import chat as wire
from lantern_proxy.wire import messages

LANGUAGES = ("en", "de", "zh")
NAMED_TOOLS_OTHERS = ((False, False, 0), (False, True, 2), (True, False, 2), (True, True, 0))
"""With an explicit id or not, an agent with tools or a plain chat, and how many other chats go on at the same time."""
BY_WORDS_ALONE = {"summary and question in one message"}
"""Without an id these look like the first message of a new chat, unless the proxy saw the summary made."""
CASES = [(style, how) for style in STYLES for how in (SUMMARY_CALLS if style not in SILENT else ("made elsewhere",))]


def talk(
    lab: Lab, language: str, *, named: bool, tools: bool, others: int, count: int = 6, system: bool = True
) -> Chat:
    """A chat of `count` turns about the project zephyr, others about other projects between its turns."""

    def new(project: str) -> Chat:
        prompt = (CODER.format(date="2026-01-02") if tools else SYSTEM) if system else ""
        return Chat(lab, system=prompt, tools=TOOLS if tools else (), named=project if named else "")

    chats = {project: new(project) for project in (*("amber", "birch")[:others], "zephyr")}
    for n in range(count):
        for project, chat in chats.items():
            said, answer = turns(project, 1, language, start=n)[0]
            chat.turn(said, answer, reads=file_of(project, n) if tools and n % 2 else "")
    assert len({chat.session for chat in chats.values()}) == others + 1
    return chats["zephyr"]


def file_of(project: str, n: int) -> str:
    return f"{project} {n}: " + " ".join(f"{project}{n}row{k}" for k in range(60))


def held(step: Step, at: int | None) -> str:
    """Canonical text of the message at the anchor."""
    return plain(step.session.head[at].message.text) if at is not None else ""


@pytest.mark.parametrize(("style", "how"), CASES)
@pytest.mark.parametrize("system", [True, False], ids=["", "no system prompt"])
def test_every_style_of_compaction_is_found_in_its_session_three_times_over(style, how, system):
    first = CASES.index((style, how)) + system
    for n in (first % 4, (first + 1 + system) % 4):
        named, tools, others = NAMED_TOOLS_OTHERS[n]
        if not named and (style == "last message only" or (style in BY_WORDS_ALONE and how == "made elsewhere")):
            continue
        language = "de" if how == "German transcript" else LANGUAGES[n % 3]
        lab = Lab()
        chat = talk(lab, language, named=named, tools=tools, others=others, system=system)
        for round_ in range(3):
            told = [*range(6), *(20 + 5 * r + k for r in range(round_) for k in range(4))]
            summary = summary_of("zephyr", told[-6:], language)
            if style not in SILENT:
                chat.summarise(how, summary)
            if others and round_ == 1:
                lab.restart()
            said, answer = turns("zephyr", 1, language, start=20 + 5 * round_)[0]
            step = chat.compact(STYLES[style], summary, said, answer)
            case = (named, tools, others, round_, step.link.why)
            assert step.session.id == chat.session, case
            assert step.event in ({"compacted"} if style not in SILENT else LOSSES), case
            assert style in SILENT or plain(summary) in held(step, step.verdict.anchor), case
            for k in range(1, 4):
                said, answer = turns("zephyr", 1, language, start=20 + 5 * round_ + k)[0]
                later = chat.turn(said, answer, reads=file_of("zephyr", 20 + k) if tools and k % 2 else "")
                assert (later.event, later.session.id) == ("turn", chat.session), case


@pytest.mark.parametrize("words", [
    "This session is being continued from a previous conversation that ran out of context.",
    "The conversation history before this point was compacted.",
    "Here is what was said in the conversation so far.",
    "Context summary:",
    "Here is a summary of our earlier conversation.",
])  # fmt: skip
def test_a_summary_made_elsewhere_and_the_question_in_one_message_are_found_by_the_words_around_them(words):
    lab = Lab()
    chat = talk(lab, "en", named=False, tools=False, others=2)
    step = chat.send([user(f"{words}\n\n{summary_of('zephyr', 6)}\n\nGo on with the next step.")])
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


INSTRUCTIONS = (
    "Write a detailed summary of the conversation above so that another model can go on with it. ",
    "Summarize this session for whoever takes over: decisions, files, open tasks, in order. ",
    "Compact the context: write down all that is needed to go on without the messages above. ",
)


@pytest.mark.parametrize("words", INSTRUCTIONS)
@pytest.mark.parametrize("named", [False, True])
def test_a_long_instruction_to_summarise_at_the_end_of_the_conversation_is_a_side_call(words, named):
    lab = Lab()
    chat = talk(lab, "en", named=named, tools=True, others=0)
    step = chat.send([*chat.history, user(words * 5)])
    assert (step.event, step.session.parent) == ("side", chat.session)


TEMPLATE = "".join(
    f"{n}. What was {what}, with the reasons that were given and the places where it was done.\n"
    for n, what in enumerate(("wanted", "decided", "read", "changed", "tried in vain", "left open", "planned") * 8)
)
"""A form to fill in. It does not repeat what it is for."""


@pytest.mark.parametrize("wish", [*INSTRUCTIONS, "Condense the messages above; they will be dropped. "])
@pytest.mark.parametrize("barred", [{"tool_choice": "none"}, {"tool_choice": {"type": "none"}}, {"tools": ()}])
@pytest.mark.parametrize("named", [False, True])
def test_a_long_form_for_a_summary_is_a_side_call_when_no_tool_may_be_called(wish, barred, named):
    lab = Lab()
    chat = talk(lab, "en", named=named, tools=True, others=0)
    step = chat.send([*chat.history, user(wish + TEMPLATE)], **barred)
    assert (step.event, step.session.parent) == ("side", chat.session)
    assert chat.turn(*turns("zephyr", 1, start=30)[0]).event == "turn"


@pytest.mark.parametrize("named", [False, True])
def test_a_note_that_stands_behind_the_last_result_only_is_no_loss(named):
    lab = Lab()
    chat = talk(lab, "en", named=named, tools=True, others=0)
    note = (
        "\n\n<environment>open files: a.py, b.py, c.py, d.py; it is 12:04; a third of the context is used</environment>"
    )
    chat.history.append(user("Look up the retries, please."))
    lab.answer(chat.send(), call := called(lab.call_id(), "read_file", path="retry.py"))
    got = result(
        call["tool_calls"][0]["id"], "retries = 4, backoff = 30 seconds, the burst is 12; the docs tell more of it"
    )
    with_note = result(got["tool_call_id"], got["content"] + note)
    lab.answer(chat.send([*chat.history, call, with_note]), assistant("There are 4 retries."))
    chat.history += [call, got, assistant("There are 4 retries.")]
    assert chat.turn("Thanks. Set them to 5.", "Done.").event == "turn"


@pytest.mark.parametrize("named", [False, True])
def test_a_wish_of_a_few_words_is_no_form_for_a_summary(named):
    chat = talk(Lab(), "en", named=named, tools=True, others=0)
    step = chat.send([*chat.history, user("Compact the table, and show its messages.")], tools=())
    assert (step.event, step.session.id) == ("turn", chat.session)


@pytest.mark.parametrize("named", [False, True])
def test_a_last_step_in_which_no_tool_may_be_called_belongs_to_the_conversation(named):
    lab = Lab()
    chat = talk(lab, "en", named=named, tools=True, others=0)
    call_id = lab.call_id()
    chat.history += [user("Which port is it? Look it up, please."), called(call_id, "read_file", path="ports.txt")]
    chat.history += [result(call_id, "The port is 8484.")]
    step = chat.send(tool_choice="none")
    lab.answer(step, assistant("It is port 8484."))
    chat.history.append(assistant("It is port 8484."))
    assert (step.event, step.session.id) == ("turn", chat.session)
    assert chat.turn(*turns("zephyr", 1, start=30)[0]).event == "turn"


@pytest.mark.parametrize("how", [how for how in SUMMARY_CALLS if how not in ("made elsewhere", "German transcript")])
@pytest.mark.parametrize("named", [False, True])
def test_the_summarising_call_is_a_side_call_of_its_session(how, named):
    for tools in (False, True):
        lab = Lab()
        chat = talk(lab, "en", named=named, tools=tools, others=2)
        step = chat.summarise(how, summary_of("zephyr", 6))
        assert step is not None
        assert step.event == "side"
        assert step.session.parent == chat.session


@pytest.mark.parametrize("named", [False, True])
def test_a_transcript_in_parts_of_one_message_is_a_side_call(named):
    lab = Lab()
    chat = talk(lab, "en", named=named, tools=True, others=2)
    spoken = [f"{m['role']}: {m['content']}" for m in chat.history if m.get("content")]
    system = {"role": "system", "content": "You keep notes of what people tell an assistant, one line for each."}
    step = lab.ask([system, user("Take notes of what is new."), parts("What was said:", *spoken)], headers=chat.headers)
    assert (step.event, step.session.parent) == ("side", chat.session)


@pytest.mark.parametrize("named", [False, True])
def test_a_summary_of_the_only_turn_is_a_side_call_and_what_follows_it_a_compaction(named):
    lab = Lab()
    chat = Chat(lab, system=CODER.format(date="2026-01-02"), tools=TOOLS, named="run-1" if named else "")
    chat.turn(*turns("zephyr", 1)[0])
    wish = "Summarise this conversation, so that work can go on.\n\nThe conversation:\n"
    step = lab.ask([user(f"{wish}{chat.history[0]['content']}\n\nSummary:")], headers=chat.headers)
    assert (step.event, step.session.parent) == ("side", chat.session)
    lab.answer(step, assistant(summary_of("zephyr", 1)))
    chat.history[0] = user(f"What was said before, in short:\n{summary_of('zephyr', 1)}")
    step = chat.turn(*turns("zephyr", 1, start=3)[0])
    assert (step.event, step.session.id) == ("compacted", chat.session)


def test_a_summary_in_front_of_an_unfinished_turn_is_a_compaction_though_no_user_speaks_after_it():
    lab = Lab()
    chat = talk(lab, "en", named=False, tools=True, others=0)
    call = called(lab.call_id(), "read_file", path="ports.txt")
    chat.history.append(user("Look up the port."))
    lab.answer(chat.send(), call)
    step = chat.summarise("transcript in one message, no system prompt", summary_of("zephyr", 6))
    assert step is not None
    words = "This conversation was summarised. The whole of it is in a file. The summary of the conversation:"
    history = [user(f"{words}\n{summary_of('zephyr', 6)}"), call, result(call["tool_calls"][0]["id"], "8484")]
    step = chat.send(history)
    assert (step.event, step.session.id) == ("compacted", chat.session)


def test_a_summary_that_was_renewed_is_a_compaction_though_it_reads_much_like_before():
    lab = Lab()
    chat = talk(lab, "en", named=False, tools=True, others=0)
    summary = summary_of("zephyr", 6)
    chat.summarise("transcript in one message, no system prompt", summary)
    said, answer = turns("zephyr", 1, start=30)[0]
    assert chat.compact(STYLES["summary, then the question"], summary, said, answer).event == "compacted"
    renewed = "restarted, and all is well".join(summary.rsplit("restarted after it", 1))
    chat.summarise("transcript in one message, no system prompt", renewed)
    chat.history[0] = user(renewed)
    step = chat.turn(*turns("zephyr", 1, start=31)[0])
    assert (step.event, step.session.id, step.verdict.anchor) == ("compacted", chat.session, 1)


# --- losses without a summary --------------------------------------------------------------------------------------


def reading_chat(lab: Lab, named: str = "") -> Chat:
    chat = Chat(lab, system=CODER.format(date="2026-01-02"), tools=TOOLS, named=named)
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        chat.turn(said, answer, reads=file_of("zephyr", n))
    return chat


@pytest.mark.parametrize("placeholder", ["[cleared]", "", "[Old tool result content cleared]", "zephyr 0: zephyr0row0"])
def test_tool_results_that_were_emptied_are_cleared_and_the_anchor_is_the_last_of_them(placeholder):
    chat = reading_chat(Lab())
    results = [n for n, m in enumerate(chat.history) if m["role"] == "tool"]
    for n in results[:2]:
        chat.history[n] = {**chat.history[n], "content": placeholder}
    step = chat.turn("go on with the next file", "going on with it")
    assert (step.event, step.session.id) == ("cleared", chat.session)
    assert step.verdict.anchor == results[1] + 1  # the system prompt is message 0
    assert chat.turn("and on", "on and on").event == "turn"


@pytest.mark.parametrize(("now", "event"), [
    ("[This output was taken out of the conversation. Ask for read_file again.]", "cleared"),
    ("[This output was taken out of the conversation, since it was long ago; whoever needs it has to ask the tool named"
     " read_file for it once more, with the very same arguments as before.]", "turn"),
    ("The importer gave up at 03:42 on parser_pool.c: bucket kestrel, build 4471, owner Ola.", "turn"),
])  # fmt: skip
def test_a_placeholder_half_as_long_as_its_result_is_told_by_its_words(now, event):
    chat = Chat(Lab(), tools=TOOLS)
    log = "The nightly importer gave up at 03:42 on parser_pool.c: bucket kestrel, build 4471, owner Ola."
    chat.turn("Read the log.", "I have.", reads=log)
    chat.turn("What is next?", "The invoices.")
    at = next(n for n, m in enumerate(chat.history) if m["role"] == "tool")
    chat.history[at] = {**chat.history[at], "content": now}
    assert chat.turn("Go on.", "Going on.").event == event


@pytest.mark.parametrize("structured", ["call", "JSON"])
def test_a_summary_that_was_a_field_of_a_structured_answer_is_known_where_it_stands_alone(structured):
    lab = Lab()
    chat = talk(lab, "en", named=False, tools=False, others=2)
    summary = "Various things were settled, and the colleagues carry on tomorrow morning."
    call = SUMMARY_CALLS["transcript under another system prompt"](chat)
    assert call is not None
    made = {"summary": summary, "topics": ["work"]}
    answer = called(lab.call_id(), "Summary", **made) if structured == "call" else assistant(json.dumps(made))
    lab.answer(lab.ask(call[0]), answer)
    step = chat.send([user(f"Earlier: {summary}"), user("What is next?")])
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


def test_media_for_which_a_placeholder_stands_were_cleared():
    chat = reading_chat(Lab())
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    chat.history.append({"role": "user", "content": [{"type": "text", "text": "what is in this?"}, image]})
    chat.lab.answer(chat.send(), assistant("A blue heron at a pond, in the rain."))
    chat.history.append(assistant("A blue heron at a pond, in the rain."))
    text = [{"type": "text", "text": "what is in this?"}, {"type": "text", "text": "[image removed]"}]
    chat.history[-2] = {"role": "user", "content": text}
    assert chat.turn("thanks", "welcome").event == "cleared"


def test_results_that_are_dropped_with_their_calls_are_a_window():
    chat = reading_chat(Lab())
    chat.history = [m for m in chat.history[:-4] if m["role"] != "tool" and not m.get("tool_calls")] + chat.history[-4:]
    step = chat.turn("go on", "going on with it")
    assert (step.event, step.session.id) == ("window", chat.session)
    assert len(step.verdict.gone) == 6


def test_a_long_text_cut_to_a_placeholder_is_cleared():
    chat = Chat(Lab())
    chat.turn("Look at this log:\n" + file_of("zephyr", 1), "It shows that the worker restarts every hour.")
    chat.turn("and why?", "A timer in ops/restart.timer does it.")
    chat.history[0] = user("[message truncated to save space]")
    assert chat.turn("thanks, go on", "going on").event == "cleared"


LONG = file_of("zephyr", 7)
CUTS = {
    "its first half": lambda text: text[: len(text) // 2],
    "half and a mark": lambda text: text[: len(text) // 2] + " … [truncated]",
    "head and tail": lambda text: f"{text[:60]}\n[... 400 characters left out ...]\n{text[-60:]}",
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("renamed", [False, True])
def test_an_older_result_that_was_cut_is_cleared_even_when_its_id_changed(cut, renamed):
    chat = reading_chat(Lab())
    called_at = next(n for n, m in enumerate(chat.history) if m.get("tool_calls"))
    call, found = chat.history[called_at : called_at + 2]
    call_id = "call_anew" if renamed else found["tool_call_id"]
    chat.history[called_at] = {**call, "tool_calls": [{**call["tool_calls"][0], "id": call_id}]}
    chat.history[called_at + 1] = result(call_id, CUTS[cut](found["content"]))
    step = chat.turn("go on with the next file", "going on with it")
    assert (step.event, step.session.id) == ("cleared", chat.session)
    assert chat.turn("and on", "on and on").event == "turn"


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_older_text_that_was_cut_is_cleared(cut, role):
    chat = Chat(Lab())
    chat.turn("Hello, shall we begin with the log?", "Yes, show me what there is.")
    chat.turn(*((LONG, "It shows a restart every hour.") if role == "user" else ("Show the log.", LONG)))
    chat.turn("and why does it do so?", "A timer in ops/restart.timer does it.")
    at = next(n for n, m in enumerate(chat.history) if m["content"] == LONG)
    chat.history[at] = {**chat.history[at], "content": CUTS[cut](LONG)}
    assert chat.turn("thanks, go on", "going on").event == "cleared"


def test_a_text_that_was_the_last_may_lose_what_its_client_put_behind_it():
    chat = Chat(Lab())
    chat.turn("Hello, shall we begin with the log?", "Yes, show me what there is.")
    chat.turn(f"It says nothing.\n{LONG}", "Then all is well.")
    chat.history[2] = user("It says nothing.")
    assert chat.turn("thanks, go on", "going on").event == "turn"


def test_a_placeholder_in_front_of_the_words_of_a_message_stands_for_its_image_too():
    chat = reading_chat(Lab())
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    chat.history.append({"role": "user", "content": [image, {"type": "text", "text": "what is in this?"}]})
    chat.lab.answer(chat.send(), assistant("A blue heron at a pond, in the rain."))
    chat.history.append(assistant("A blue heron at a pond, in the rain."))
    text = [{"type": "text", "text": "[image removed]"}, {"type": "text", "text": "what is in this?"}]
    chat.history[-2] = {"role": "user", "content": text}
    assert chat.turn("thanks", "welcome").event == "cleared"


def test_an_answer_that_stands_in_front_of_what_was_said_before_it_is_a_summary(chat):
    summary = "So far the retry policy, the invoice export and the login page were settled; the backup is next."
    chat.turn("Schreib bitte auf, was bisher geschah.", summary)
    chat.history = [chat.history[0], assistant(summary), *chat.history[-8:-2]]
    step = chat.turn("go on", "going on")
    assert (step.event, step.session.id) == ("compacted", chat.session)
    assert held(step, step.verdict.anchor) == summary


def test_a_system_prompt_that_moves_on_with_the_first_message_of_a_window_is_no_summary():
    chat = Chat(Lab(), system="")
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        chat.turn(said if n else f"{SYSTEM}\n\n{said}", answer)
    first = chat.history[6]
    chat.history = [user(f"{SYSTEM}\n\n{first['content']}"), *chat.history[7:]]
    step = chat.turn("go on", "going on")
    assert (step.event, step.session.id) == ("window", chat.session)


@pytest.mark.parametrize(
    "style", ["summary as user message, acknowledged, tail", "appended to the system prompt, tail"]
)
def test_a_compaction_that_is_taken_back_is_a_branch(chat, style):
    before, system = list(chat.history), chat.system
    assert chat.compact(STYLES[style], summary_of("zephyr", 6), "go on", "going on").event == "compacted"
    chat.history, chat.system = before, system
    step = chat.turn("back to where we were before", "All of it is here again.")
    assert (step.event, step.session.id) == ("branch", chat.session)
    assert chat.turn("good", "Shall we?").event == "turn"


def test_the_anchor_of_a_window_is_the_first_user_text_that_was_kept():
    chat = talk(Lab(), "en", named=False, tools=False, others=0)
    chat.history = chat.history[-5:]
    step = chat.turn("go on", "going on")
    assert step.event == "window"
    assert held(step, step.verdict.anchor) == plain(chat.history[1]["content"])


# --- false alarms: nothing was lost --------------------------------------------------------------------------------


@pytest.fixture(params=[(named, tools) for named in (False, True) for tools in (False, True)],
                ids=["plain", "tools", "id", "id and tools"])  # fmt: skip
def chat(request: pytest.FixtureRequest) -> Chat:
    named, tools = request.param
    return talk(Lab(), "en", named=named, tools=tools, others=2)


def last_said(chat: Chat) -> int:
    return max(n for n, m in enumerate(chat.history) if m["role"] == "user")


def goes_on(chat: Chat, event: str = "turn") -> Step:
    """The next turn is what it should be, and so is the one after it."""
    step = chat.turn("and what comes next in it?", "The next thing is the review of it.")
    assert (step.event, step.session.id) == (event, chat.session), step.link.why
    after = chat.turn("and then?", "Then it ships.")
    assert (after.event, after.session.id) == ("turn", chat.session), after.link.why
    return step


def test_an_answer_that_is_asked_for_again_is_a_retry(chat):
    step = chat.send(chat.history[:-1])
    assert (step.event, step.session.id) == ("retry", chat.session)
    chat.lab.answer(step, assistant("Another answer, with backoff 77."))
    chat.history[-1] = assistant("Another answer, with backoff 77.")
    goes_on(chat)


@pytest.mark.parametrize("words", [
    "No, forget that: use a queue instead of a lock in otter.py",
    "Instead explain what the previous conversation history summary in memory.py is for.",
])  # fmt: skip
def test_an_edit_of_the_last_message_is_a_branch(chat, words):
    chat.history = chat.history[: last_said(chat)]
    step = chat.turn(words, "Fine, a queue it is.")
    assert (step.event, step.session.id) == ("branch", chat.session)
    assert words in chat.lab.texts(chat.session)
    goes_on(chat)


def test_an_edit_that_only_adds_to_a_message_is_a_branch_and_the_new_words_are_filed(chat):
    words = chat.history[last_said(chat)]["content"] + " And name the owner of it."
    chat.history = chat.history[: last_said(chat)]
    step = chat.turn(words, "The owner is Rita.")
    assert (step.event, step.session.id) == ("branch", chat.session)
    assert words in chat.lab.texts(chat.session)


def test_a_rewind_is_a_branch_and_what_it_left_is_abandoned_not_lost(chat):
    left = [m["content"] for m in chat.history[6:] if m["role"] == "user"]
    chat.history = chat.history[:2]
    step = goes_on(chat, "branch")
    assert not step.session.lost
    abandoned = {f.message.text for f in chat.lab.kept[chat.session].filed if f.key in step.session.abandoned}
    assert abandoned.issuperset(left)


def test_going_back_to_a_branch_that_was_left_loses_nothing_and_files_nothing_twice(chat):
    first = list(chat.history)
    chat.history = chat.history[:2]
    chat.turn("another way", "Another way it is.")
    chat.history = first
    step = chat.turn("back to the first way", "Back on it.")
    assert (step.event, step.session.id) == ("branch", chat.session)
    assert [f.message.text for f in step.filed] == ["back to the first way"]
    goes_on(chat)


ASKED = (
    "Please summarise our conversation so far.",
    "Bitte fasse unser Gespräch zusammen.",
    "请总结到目前为止的对话。",
)


@pytest.mark.parametrize("words", ASKED)
def test_a_user_who_asks_for_a_summary_stays_in_the_conversation(chat, words):
    step = chat.turn(words, summary_of("zephyr", 6))
    assert (step.event, step.session.id) == ("turn", chat.session)
    goes_on(chat)


def test_a_pasted_article_with_please_summarise_this_is_a_turn(chat):
    article = "The history of that discussion is long, and the state of the art has moved on since. " * 30
    step = chat.turn(f"Please summarise this for me:\n{article}", "It says that much has moved.")
    assert (step.event, step.session.id) == ("turn", chat.session)
    step = chat.turn(f"{article}\nPlease summarise this state of the discussion.", "It says the same again.")
    assert (step.event, step.session.id) == ("turn", chat.session)
    goes_on(chat)


def test_an_answer_pasted_back_into_its_own_chat_is_a_turn(chat):
    said = chat.history[-1]["content"]
    assert chat.turn(f"You said:\n{said}\nAre you sure?", "Yes, I am sure about that.").event == "turn"
    chat.history = chat.history[:-2]
    assert chat.turn(f"You said before:\n{said}\nReally?", "Really, yes.").event == "branch"


def test_a_switch_of_model_of_tools_or_of_the_system_prompt_is_a_turn(chat):
    chat.history.append(user("go on with the bigger model"))
    step = chat.send(model="bigger")
    assert (step.event, step.session.id) == ("turn", chat.session)
    chat.lab.answer(step, assistant("bigger it is"))
    chat.history.append(assistant("bigger it is"))
    chat.tools = (*chat.tools, "mcp_search")
    goes_on(chat)
    chat.tools = ()
    goes_on(chat)
    chat.system = "Sprich wie ein Pirat und antworte nur in Reimen, egal was gefragt wird."
    goes_on(chat)


def test_a_system_prompt_that_grows_is_no_summary_while_nothing_else_is_gone(chat):
    chat.system += "\n\n# Memory\nThe user likes tea, works at night, and wants short sentences without any jokes."
    assert chat.send(chat.history[:-1]).event == "retry"
    chat.system += "\nThe summary of the conversation is shown in the side bar of the editor, so do not repeat it."
    chat.history = chat.history[: last_said(chat)]
    goes_on(chat, "branch")


def test_a_switch_of_mode_is_the_conversation_again_as_soon_as_its_user_goes_on(chat):
    chat.system = "You are in ACT mode now: carry out the plan that was agreed on, with the tools that you have."
    chat.tools = ("apply_patch", "shell")
    chat.turn("do it", "Doing it now, as agreed.")
    goes_on(chat)
    assert chat.lab.texts(chat.session).count("do it") == 1


@pytest.mark.parametrize("count", [0, 3])
def test_a_line_of_the_user_that_is_gone_while_its_answer_is_kept_is_a_window(count):
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", count + 1):
        chat.turn(said, answer)
    del chat.history[-2]
    step = chat.turn("And what comes next?", "The next thing.")
    assert (step.event, step.session.id) == ("window", chat.session)


@pytest.mark.parametrize("note", [
    "\n\n# environment\nopen files: a{k}.py\ntime 12:0{k}",
    "<environment>open files: a{k}.py, time is 12:0{k}</environment>",
    "[System notice: {k} tool calls left.]",
])  # fmt: skip
def test_a_tail_that_changes_with_every_request_is_no_loss(chat, note):
    for k in range(4):
        said, answer = turns("zephyr", 1, start=30 + k)[0]
        text = note.format(k=k)
        pending = [user(said + text)] if text.startswith("\n") else [user(said), user(text)]
        step = chat.send([*chat.history, *pending])
        assert (step.event, step.session.id) == ("turn", chat.session)
        chat.lab.answer(step, assistant(answer))
        chat.history += [user(said), assistant(answer)]


def test_a_first_message_that_changes_with_every_request_is_no_loss():
    lab, history, sessions = Lab(), [], set()
    for k in range(4):
        said, answer = turns("zephyr", 1, start=k)[0]
        context = user(f"<environment>cwd /home/me, branch main, time is 12:0{k}</environment>")
        step = Chat(lab).send([context, *history, user(said)])
        assert step.event == ("turn" if k else "new")
        sessions.add(step.session.id)
        lab.answer(step, assistant(answer))
        history += [user(said), assistant(answer)]
    assert len(sessions) == 1


def test_documents_that_change_with_every_request_are_no_loss(chat):
    for k in range(4):
        said, answer = turns("zephyr", 1, start=30 + k)[0]
        documents = "Context:\n" + " ".join(f"doc{k}word{n}" for n in range(120))
        step = chat.send([*chat.history, user(f"{documents}\n\nQuestion: {said}")])
        assert (step.event, step.session.id) == ("turn", chat.session)
        chat.lab.answer(step, assistant(answer))
        chat.history += [user(said), assistant(answer)]


@pytest.mark.parametrize("at", [1, -1])
def test_an_answer_that_the_client_rewrote_is_a_turn(chat, at):
    answers = [n for n, m in enumerate(chat.history) if m["role"] == "assistant" and m["content"]]
    chat.history[answers[at]] = assistant("I, the user, rewrote this answer: zstd, level 19.")
    goes_on(chat)


def test_an_answer_without_its_thoughts_is_the_same_answer(chat):
    chat.turn("think first", "<think>\nlet me think about that for a while\n</think>\n\nThe result of it is 42 sheep.")
    chat.history[-1] = assistant("The result of it is 42 sheep.")
    step = goes_on(chat)
    assert not any("42 sheep" in f.message.text for f in step.filed)


def dressed(history: list[Wire], how: str) -> list[Wire]:
    if how == "white space":
        return [{**m, "content": f"\n {m['content']}  \n"} if m.get("content") else m for m in history]
    if how == "lists":
        return [{**m, "content": [{"type": "text", "text": m["content"]}]} if m.get("content") else m for m in history]
    if how == "empty for null":
        return [{**m, "content": m.get("content") or ""} for m in history]
    return [
        {
            **m,
            **({"tool_calls": [{**c, "id": f"x{c['id']}"} for c in m["tool_calls"]]} if m.get("tool_calls") else {}),
            **({"tool_call_id": f"x{m['tool_call_id']}"} if "tool_call_id" in m else {}),
        }
        for m in history
    ]


@pytest.mark.parametrize("how", ["white space", "lists", "empty for null", "other call ids"])
def test_a_history_in_another_dress_is_the_same_history(chat, how):
    chat.history = dressed(chat.history, how)
    step = goes_on(chat)
    assert len(step.filed) == 1


def test_calls_in_another_order_and_a_message_split_in_two_are_no_loss():
    chat = reading_chat(Lab())
    one, two = chat.lab.call_id(), chat.lab.call_id()
    calls = [called(one, "read_file", path="a")["tool_calls"][0], called(two, "read_file", path="b")["tool_calls"][0]]
    chat.history.append(user("read a and b"))
    chat.lab.answer(chat.send(), {"role": "assistant", "content": "I will read both.", "tool_calls": calls})
    chat.history += [assistant("I will read both."), {"role": "assistant", "content": None, "tool_calls": calls[::-1]},
                     result(two, "bbb"), result(one, "aaa")]  # fmt: skip
    step = chat.send()
    assert (step.event, step.session.id) == ("turn", chat.session)
    chat.lab.answer(step, assistant("I have read both."))
    chat.history.append(assistant("I have read both."))
    goes_on(chat)


def test_the_parts_of_a_message_in_another_order_are_no_loss(chat):
    text, image = {"type": "text", "text": "look at this"}, {"type": "image_url", "image_url": {"url": "data:,AAAA"}}
    chat.history.append({"role": "user", "content": [text, image]})
    chat.lab.answer(chat.send(), assistant("It is blue."))
    chat.history[-1] = {"role": "user", "content": [image, text]}
    chat.history.append(assistant("It is blue."))
    goes_on(chat)


def test_a_system_message_that_comes_and_goes_is_no_loss(chat):
    note = {"role": "system", "content": "Remember the rules: short sentences, no jokes, cite the files, and be kind."}
    chat.history.append(user("do the next step"))
    step = chat.send([*chat.history, note])
    assert step.event == "turn"
    chat.lab.answer(step, assistant("I did the next step."))
    chat.history.append(assistant("I did the next step."))
    note = {"role": "system", "content": "The summary of the conversation is shown to the user in the side bar."}
    assert chat.send([*chat.history[:-1], note]).event == "retry"
    goes_on(chat)


# --- where a block goes --------------------------------------------------------------------------------------------


def spot(messages: list[Wire], anchor: int) -> tuple[int, str] | None:
    return place(wire.read(json.dumps({"messages": messages}).encode()), anchor)


def test_a_block_never_stands_between_a_call_and_its_result():
    open_call = [assistant("S"), called("c1", "run", cmd="ls")]
    assert spot(open_call, 0) is None
    assert spot([*open_call, result("c1", "a.txt")], 0) == (2, "after")
    assert spot([*open_call, result("c1", "a.txt"), user("and?")], 0) == (3, "inside")


def test_a_summary_that_nothing_follows_gets_a_user_message_behind_it():
    system = {"role": "system", "content": "be brief"}
    assert spot([system, assistant("S")], 1) == (1, "after")


def test_words_that_the_model_may_have_to_go_on_with_get_no_block_behind_them():
    assert spot([assistant("S"), assistant("I beg")], 0) is None
    body = {"model": "m", "messages": [user("hi"), assistant("S")]}
    assert place(messages.read(json.dumps(body).encode()), 1) is None


def test_a_block_rides_in_the_summary_when_a_user_message_holds_it():
    assert spot([user("S"), assistant("ok"), user("go on")], 0) == (0, "inside")
    assert spot([assistant("S"), user("go on")], 0) == (1, "inside")
