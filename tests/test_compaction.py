"""What was lost: every way in which clients are known to compact, and what must not be taken for it."""

import gc
import json
import re
import time

import msgspec
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
    transcript,
    turns,
    user,
)

from lantern_proxy.compaction import align as compaction_align
from lantern_proxy.compaction.placement import place
from lantern_proxy.follow import Step
from lantern_proxy.turn import LOSSES, plain
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
    "## Earlier in this conversation:",
    "Plus tôt dans cette conversation :",
    "Ранее в этой беседе:",
])  # fmt: skip
def test_a_summary_made_elsewhere_and_the_question_in_one_message_are_found_by_the_words_around_them(words):
    lab = Lab()
    chat = talk(lab, "en", named=False, tools=False, others=2)
    step = chat.send([user(f"{words}\n\n{summary_of('zephyr', 6)}\n\nGo on with the next step.")])
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


@pytest.mark.parametrize("language", ["en", "de", "zh"])
@pytest.mark.parametrize("pasted", ["a summary", "the answer before it", "a summary, under another system prompt"])
def test_a_summary_that_came_as_an_answer_links_the_message_that_is_left_and_no_other_answer_does(language, pasted):
    lab = Lab()
    chat = talk(lab, language, named=False, tools=False, others=2)
    last = chat.history[-1]["content"]
    if pasted != "the answer before it":
        last = summary_of("zephyr", 8, language)
        chat.turn({"en": "Write it all down.", "de": "Schreib das auf.", "zh": "写下来。"}[language], last)
    if pasted == "a summary, under another system prompt":
        chat.system = "You translate what you are given, line by line, and add nothing of your own to it."
    step = chat.send([user(f"{last}\n\n{turns('omega', 1, language)[0][0]}")])
    linked = step.session.id == chat.session
    assert (step.event, linked) == (("compacted", True) if pasted == "a summary" else ("new", False)), step.link.why


@pytest.mark.parametrize("words", ["This session is being continued from a previous conversation.", ""])
@pytest.mark.parametrize("named", [False, True])
def test_an_answer_that_alone_is_left_is_a_summary_where_its_client_says_so_in_front_of_it(words, named):
    chat = talk(Lab(), "en", named=named, tools=False, others=0)
    chat.turn("Write it all down.", summary_of("zephyr", 8))
    step = chat.send([assistant(f"{words}\n{summary_of('zephyr', 8)}".strip()), user("Go on.")])
    assert (step.event, step.session.id) == ("compacted" if words else "window", chat.session), step.link.why


@pytest.mark.parametrize("thinks", ["", "<think>\nLet me see what it says.\n</think>\n\n"])
def test_who_compacts_again_after_a_failure_shows_all_of_it_first_and_cleared_nothing(thinks):
    chat = Chat(Lab(), named="one")
    for said, answer in turns("zephyr", 6):
        chat.turn(said, f"{thinks}{answer}")
        chat.history[-1] = assistant(answer)
    whole, summary = [*chat.history], summary_of("zephyr", 6)
    kept = [user(f"{summary}\n\n{chat.history[-2]['content']}"), chat.history[-1]]
    chat.lab.fail(chat.send([*kept, user("Go on.")]))
    chat.history = whole
    step = chat.turn("Write it all down.", summary)
    assert (step.event, step.session.id) == ("branch", chat.session)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_compaction_is_taken_back_with_all_that_was_shown_before_it_though_a_user_corrected_an_answer(restarts):
    chat, now = Chat(Lab(), named="one"), 20
    for said, answer in turns("zephyr", 6):
        chat.history.append(user(said))
        chat.lab.answer(chat.send(stamped(chat.history, now := now + 1, "each")), assistant(answer))
        chat.history.append(assistant(answer))
        if "invoice" in said:
            chat.history[-1] = assistant("No: the column of the invoices is called total, and it is a sum.")
    if restarts:
        chat.lab.restart()
    whole, summary = [*chat.history], summary_of("zephyr", 6)
    chat.lab.answer(chat.lab.ask([user(f"Write it down:\n{transcript(whole)}")]), assistant(summary))
    step = chat.send(stamped([user(f"{summary}\n\nGo on.")], now := now + 1, "each"))
    assert step.event == "compacted"
    chat.lab.answer(step, assistant("Going on."))
    chat.history = [*whole, user("Leave that.")]
    assert chat.send(stamped(chat.history, now + 1, "each")).event == "branch"


@pytest.mark.parametrize("pasted", ["a summary", "the answer before it"])
def test_a_summary_that_came_as_an_answer_links_what_is_left_where_articles_are_parts_of_words(pasted):
    chat = Chat(Lab())
    for said, answer in (
        (
            "اسم صاحب البيت السيد هشام ويريد الإيجار قبل اليوم الثالث.",
            "فهمت، سأكتب له رسالة مهذبة وأذكر فيها التاريخ المطلوب.",
        ),
        ("الرقم التسلسلي للطابعة هو 48213.", "سأضيفه إلى طلب الضمان وأرسله إلى المورّد صباح الغد."),
        ("سنطلب الكعكة من المخبز في شارع النور.", "من الأفضل أن نحجز قبل يومين لأن الطلبات كثيرة هذا الأسبوع."),
        ("رقم تتبع الطرد هو 99172.", "سأتحقق منه صباح الغد مرة أخرى وأخبرك بالموعد الجديد للتسليم."),
    ):
        chat.turn(said, answer)
    last = chat.history[-1]["content"]
    if pasted == "a summary":
        told = "الإيجار والطابعة والكعكة والطرد"
        last = f"ينظم المستخدم مع المساعد أمورًا منزلية ومهنية: {told}. تم تدوين كل شيء ولا يوجد شيء معلق."
        chat.turn("لخّص ما سبق.", last)
    step = chat.send([user(f"{last}\n\nنتابع.")])  # noqa: RUF001
    linked = step.session.id == chat.session
    assert (step.event, linked) == (("compacted", True) if pasted == "a summary" else ("new", False)), step.link.why


GOING_ON = (
    "Go on.",
    "Continue with the next step if there is one, and ask me when you are unsure how to go on with it.",
)


@pytest.mark.parametrize("said", GOING_ON)
@pytest.mark.parametrize(("system", "tools"), [(CODER, TOOLS), (SYSTEM, ())])
@pytest.mark.parametrize("ack", [True, False])
def test_conversations_that_go_on_in_the_same_words_after_their_summaries_stay_apart(said, system, tools, ack):
    lab, projects = Lab(), ("zephyr", "birch", "amber")
    chats = [Chat(lab, system=system, tools=tools) for _ in projects]
    for chat, project in zip(chats, projects, strict=True):
        for told, answer in turns(project, 6):
            chat.turn(told, answer)
        chat.summarise("transcript in one message, no system prompt", summary_of(project, 6))
    assert len({chat.session for chat in chats}) == len(projects)
    for chat, project in zip(chats, projects, strict=True):
        chat.history = [user(f"So far:\n{summary_of(project, 6)}"), *([assistant("I see.")] if ack else []), user(said)]
        step = chat.send()
        assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why
        lab.answer(step, assistant(f"The next step of {project} is done."))


def ordering(lab: Lab, project: str, *, orders: int) -> Chat:
    """A chat in which six things are said, and then one order is given after the other."""
    chat = Chat(lab, system=CODER, tools=TOOLS)
    for said, answer in turns(project, 6):
        chat.turn(said, answer)
    for n in range(orders):
        order = ("Go on.", "ok", "Fix the failing test.", "Yes, do it.")[n % 4]
        chat.turn(order, f"That is done, file {n} has {n * 7} lines less.")
    return chat


@pytest.mark.parametrize("ack", [True, False])
def test_a_summary_made_as_an_ordinary_turn_after_many_short_orders_stands_for_the_conversation(ack):
    """Users of agents say little: their words do not tell that a summary speaks of all they said."""
    lab = Lab()
    chats = [ordering(lab, project, orders=210) for project in ("zephyr", "birch")]
    for chat, project in zip(chats, ("zephyr", "birch"), strict=True):
        chat.turn("Write down what another one needs to go on.", summary_of(project, 6))
    for chat, project in zip(chats, ("zephyr", "birch"), strict=True):
        told = [user(summary_of(project, 6)), *([assistant("I see.")] if ack else [])]
        step = chat.send([*told, user(f"Now add a metric to {project}.")])
        assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


def told_as_a_turn(lab: Lab, *, nods: int = 0) -> tuple[Chat, str]:
    """A conversation whose model was asked for a summary in its user's place, and that summary, in other words."""
    chat = Chat(lab, named="x")
    summary = "Alles wurde besprochen, und was noch offen ist, steht auf einer Liste, die am Donnerstag an alle geht."
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        chat.turn("Go on." if n < nods else said, answer)
    lab.answer(chat.send([*chat.history, user("Write down what was said.")]), assistant(summary))
    return chat, summary


@pytest.mark.parametrize("said", ["Go on.", "Then write the export."])
def test_a_summary_in_front_of_the_last_answer_is_one_whether_the_user_said_the_same_before(said):
    chat, summary = told_as_a_turn(Lab(), nods=2)
    step = chat.send([assistant(summary), chat.history[-1], user(said)])
    assert (step.event, step.session.id) == ("compacted", chat.session)


_ZH = [
    ("我们的港口仓库叫北风,门禁密码放在哪里", "密码由林师傅保管,放在三号柜的铁盒里"),
    ("下周谁负责值夜班", "值夜班的是陈阿姨,她周二和周四在"),
    ("货车什么时候到", "货车每天早上六点半到东门,司机姓王"),
    ("如果东门锁了怎么办", "请打电话给保安队长赵强,他有备用钥匙"),
]
_JA = [
    ("倉庫の鍵はどこにありますか", "鍵は三番の棚の箱にあり、林さんが管理しています"),
    ("来週の夜勤は誰ですか", "夜勤は田中さんで、火曜と木曜に来ます"),
    ("トラックは何時に着きますか", "毎朝六時半に東門に着き、運転手は王さんです"),
    ("東門が閉まっていたら", "警備の高橋さんに電話してください"),
]


@pytest.mark.parametrize(
    "style", ["bare assistant summary", "second system message only", "summary, then the question"]
)
@pytest.mark.parametrize(
    ("talk", "summary"),
    [
        (_ZH, "北风仓库:密码在三号柜铁盒,林师傅管;陈阿姨周二周四值夜班;货车六点半到东门;赵强有备用钥匙"),
        (_JA, "鍵は三番の棚の箱、林さん管理。夜勤は田中さん火木。トラックは六時半東門。警備は高橋さん。"),
    ],
    ids=["zh", "ja"],
)
def test_a_summary_in_a_script_without_spaces_may_be_half_as_long(talk, summary, style):
    chat = Chat(Lab(), system="")
    for said, answer in talk:
        chat.turn(said, answer)
    chat.summarise("instruction at the end", summary)
    step = chat.compact(STYLES[style], summary, "司机叫什么名字?", "王")
    assert (step.session.id, step.event) == (chat.session, "compacted")


def test_an_answer_in_front_of_what_is_kept_of_the_user_is_a_summary_in_one_message_with_it_as_well():
    chat, summary = told_as_a_turn(Lab())
    asked, *kept = chat.history[-4:]
    step = chat.send([user(f"{summary}\n\n{asked['content']}"), *kept, user("And then?")])
    assert (step.event, step.verdict.anchor, step.session.id) == ("compacted", 1, chat.session)


@pytest.mark.parametrize(
    ("order", "front", "is_order"),
    [
        ("Write a summary of all that was said.", "", True),
        ("Write down all that was said.", "", False),  # a user may want it
        ("Write a summary of all that was said.", "Somebody wrote me a long letter about the harbour. " * 40, False),
    ],
)
def test_what_a_client_says_to_get_its_summary_is_not_lost_as_what_a_user_says_is(order, front, is_order):
    chat = Chat(Lab(), named="x")
    for said, answer in [*turns("zephyr", 6), (order, summary_of("zephyr", 6))]:
        chat.turn(said, answer)
    step = chat.send([user(front + summary_of("zephyr", 6)), user("Now add a metric to zephyr.")])
    filed = {f.key: f.message.text for f in chat.lab.kept[chat.session].filed}
    assert (step.event, [filed[key] for key in step.verdict.abandoned]) == ("compacted", [order] * is_order)


@pytest.mark.parametrize("project", ["zephyr", "birch"])
def test_a_last_answer_that_is_shown_to_a_new_chat_with_a_question_in_one_message_is_no_compaction(project):
    lab = Lab()
    chat = ordering(lab, "zephyr", orders=30)
    chat.turn("And now?", summary_of(project, 2))
    fresh = Chat(lab, system=CODER, tools=TOOLS)
    step = fresh.turn(f"A colleague sent me this:\n{summary_of(project, 2)}\nIs that right?", "It seems so.")
    assert (step.event, step.session.id != chat.session) == ("new", True), step.link.why


def test_a_transcript_that_ends_in_a_summary_is_no_compaction_of_what_it_is_taken_from():
    chat = Chat(Lab(), system="")
    for said, answer in [*turns("zephyr", 8), ("Write it all down.", summary_of("zephyr", 8))]:
        chat.turn(said, answer)
    pasted = "\n".join(f"{m['role'].upper()}: {m['content']}" for m in chat.history[-6:])
    assert chat.send([user(f"Suggest three questions that may come next.\n{pasted}")]).event == "side"


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


@pytest.mark.parametrize(
    ("tools", "event"), [(("fill_in_the_form",), "side"), (TOOLS[:1], "turn"), ((*TOOLS, "new_tool"), "turn")]
)
@pytest.mark.parametrize("named", [False, True])
def test_a_long_form_for_a_summary_is_a_side_call_when_it_brings_its_own_tool_to_fill_it_in(tools, event, named):
    lab = Lab()
    chat = talk(lab, "en", named=named, tools=True, others=0)
    wish = parts(INSTRUCTIONS[0] + TEMPLATE, "<system-reminder>Call a tool now.</system-reminder>")
    step = chat.send([*chat.history, wish], tools=tools)
    assert (step.event, step.session.parent or step.session.id) == (event, chat.session)
    if event == "side":
        told = summary_of("zephyr", 6)
        lab.answer(step, called(lab.call_id(), tools[0], overview=told, next_steps="None is left."))
        note = f"<info>What was done before\n# Overview\n{told}\n# Next\nNone is left.</info>"
        chat.history = [user(note)]
        step = chat.turn(*turns("zephyr", 1, start=30)[0])
        assert (step.event, step.session.id) == ("compacted", chat.session)


@pytest.mark.parametrize(
    ("last", "event"),
    [
        ("Answer in words. Do not call any tools.", "side"),
        ("Never use tools for it.", "side"),
        ("Write it without calling a tool.", "side"),
        ("Then write it down in the notes, with the tool for that.", "turn"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_long_form_for_a_summary_is_a_side_call_when_it_says_that_no_tool_may_be_called(last, event, named):
    chat = talk(Lab(), "en", named=named, tools=True, others=0)
    step = chat.send([*chat.history, user(INSTRUCTIONS[0] + TEMPLATE + last)])
    assert (step.event, step.session.parent or step.session.id) == (event, chat.session)


@pytest.mark.parametrize("headers", [{}, {"x-lantern-session": "notes"}])
def test_a_note_that_comes_anew_with_every_turn_is_no_summary_though_it_calls_itself_one(headers):
    lab, history, events = Lab(), [{"role": "system", "content": SYSTEM}], []
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        note = user(f"Context summary: m{n}.py is open, m{n}_test.py beside it, the branch is feature-{n}.")
        step = lab.ask([*history, note, user(said)], headers=headers)
        lab.answer(step, assistant(answer))
        history += [user(said), assistant(answer)]
        events.append(step.event)
    assert events == ["new", *["turn"] * 5]


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


def ran(command: str, out: str) -> str:
    """What a shell tool says of every command, in the same words."""
    told = {"success": True, "command": command, "error": "", "stdout": out, "stderr": "", "exit_code": 0,
            "execution_time": 0.1, "timeout": False, "user_interrupted": False, "background": False}  # fmt: skip
    return json.dumps(told)


@pytest.mark.parametrize(
    ("how", "event"),
    [("transcript in one message, no system prompt", "compacted"), ("made elsewhere", "compacted"), ("", "window")],
)
def test_a_new_result_in_the_words_of_a_lost_one_is_no_summary(how, event):
    lab = Lab()
    chat = Chat(lab, system=CODER.format(date="2026-01-02"), tools=TOOLS)
    chat.turn("Hello. We look at the cluster.", "Gladly.")
    chat.turn("Read the first file.", "It is read.", reads=ran("cat blue.txt", "The blue one has build 4471-k."))
    chat.turn(*turns("zephyr", 1)[0])
    call = called(lab.call_id(), "run", command="cat audit.txt")
    chat.history.append(user("Now the audit."))
    lab.answer(chat.send(), call)
    if how:
        chat.summarise(how, summary_of("zephyr", 6))
        chat.system = f"Summary of what was said before:\n\n{summary_of('zephyr', 6)}\n\n{chat.system}"
    chat.history = [chat.history[0], call, result(call["tool_calls"][0]["id"], ran("cat audit.txt", "It runs 5.10."))]
    step = chat.send()
    assert (step.event, step.session.id) == (event, chat.session)
    assert step.verdict.anchor == (0 if how else 1)


@pytest.mark.parametrize("front", [True, False])
def test_a_vague_summary_beside_the_system_prompt_is_one_each_time_it_is_another(front):
    chat = talk(Lab(), "en", named=False, tools=False, others=0)
    for n, vague in enumerate(
        ("Some matters were settled. More of them wait", "Much is done by now. Little of it waits")
    ):
        told = f"{vague} for what their user will say of it, and then the work goes on as it did."
        chat.system = f"{told}\n\n{SYSTEM}" if front else f"{SYSTEM}\n\n{told}"
        chat.history = chat.history[-4:]
        step = chat.turn(*turns("zephyr", 1, start=30 + n)[0])
        assert (step.event, step.session.id, step.verdict.anchor) == ("compacted", chat.session, 0)
        chat.turn(*turns("zephyr", 1, start=40 + n)[0])


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


@pytest.mark.parametrize("how", [how for how in SUMMARY_CALLS if how != "made elsewhere"])
@pytest.mark.parametrize("style", [
    "summary as user message, tail", "summary, then the question", "summary, acknowledged, question",
    "bare assistant summary",
])  # fmt: skip
@pytest.mark.parametrize("named", [False, True])
def test_a_summary_in_the_very_words_of_the_one_before_is_a_compaction_too_and_going_back_to_it_is_none(
    how, style, named
):
    chat = talk(Lab(), "en", named=named, tools=False, others=0)
    summary = summary_of("zephyr", 6)
    for n in range(3):
        chat.summarise(how, summary)
        step = chat.compact(STYLES[style], summary, f"go on with part {n}", f"Part {n} is done.")
        assert (step.event, step.session.id, step.verdict.abandoned) == ("compacted", chat.session, ())
        kept = list(chat.history)
        for said, answer in turns("zephyr", 3, start=7 + n):
            chat.turn(said, answer)
    assert chat.send([*kept[:-2], user("or rather with another part")]).event == "branch"


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("agent", ["", "agent-1"])
@pytest.mark.parametrize(("kept", "event"), [(0, "turn"), (4, "window"), (7, "window"), (2, "compacted")])
def test_what_a_sub_agent_found_is_no_summary_where_a_window_moves_at_the_same_time(named, agent, kept, event):
    chat = talk(Lab(), "en", named=named, tools=True, others=0)
    prompt = "Look through the whole repository for callers of the retry policy, and list each of them by its path."
    call, found = called("call_task", "task", prompt=prompt), f"{summary_of('zephyr', 4)} That is all there is to find."
    chat.history.append(user("who calls the retry policy?"))
    chat.lab.answer(chat.send(tools=(*TOOLS, "task")), call)
    headers = chat.headers | ({"x-claude-code-agent-id": agent} if named and agent else {})
    step = chat.lab.ask([{"role": "system", "content": "You search files."}, user(prompt)], headers=headers)
    assert step.event == "side"
    chat.lab.answer(step, assistant(found))
    chat.history += [call, result("call_task", found)]
    step = chat.send(chat.history[-kept:], tools=(*TOOLS, "task"))
    assert (step.event, step.session.id) == (event, chat.session)


@pytest.mark.parametrize("role", ["system", "user"])
def test_a_summary_that_its_client_wrote_into_is_a_compaction_though_the_first_message_stays(role):
    chat = talk(Lab(), "en", named=False, tools=True, others=0)
    told, tail = summary_of("zephyr", 6), "The next thing to do is what the user asks for now."
    chat.summarise(
        "transcript in one message, no system prompt", f"<notes>\nDay 3\n{told}\n</notes>\n<next>{tail}</next>"
    )
    note = {"role": role, "content": f"What you know of this user:\nDay 3 (today)\n{told}"}
    chat.history = [note, *chat.history[:2]] if role == "system" else [*chat.history[:2], note]
    step = chat.turn(*turns("zephyr", 1, start=30)[0])
    assert (step.event, step.session.id) == ("compacted", chat.session)


def test_words_of_the_conversation_that_a_side_call_repeats_do_not_make_a_rewind_a_compaction():
    chat = talk(Lab(), "en", named=False, tools=True, others=0)
    said = "Please compare what the two of us found out about the limits of that gateway until today, if you can."
    chat.turn(said, "They are the same.")
    before = chat.history[:2]
    chat.summarise("transcript in one message, no system prompt", f"<notes>{said}</notes> There is more to do.")
    note = {"role": "system", "content": f"Pinned in the side bar: {said[:-8]}..."}
    step = chat.send([note, *before, user("What else is there to do in the side bar?")])
    assert (step.event, step.session.id) == ("branch", chat.session)


# --- losses without a summary --------------------------------------------------------------------------------------


def reading_chat(lab: Lab, named: str = "") -> Chat:
    chat = Chat(lab, system=CODER.format(date="2026-01-02"), tools=TOOLS, named=named)
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        chat.turn(said, answer, reads=file_of("zephyr", n))
    return chat


NEW_ON_THE_WAY = {
    "another user": lambda n: [user(f"bob: {turns('zephyr', 1, start=40 + n)[0][0]}")],
    "a person instead of the model": lambda n: [
        user("Is a person there?"), assistant(f"Paul here. {turns('zephyr', 1, start=40 + n)[0][1]}")],
    "a note of the client": lambda n: [
        {"role": "system", "content": f"Working directory /srv/app. Files: zephyr_{n}.py. Tokens left: {90 - n}000"}],
    "nothing": lambda n: [],
}  # fmt: skip


@pytest.mark.parametrize("new", NEW_ON_THE_WAY)
@pytest.mark.parametrize("counts", [True, False])
def test_what_is_new_behind_what_a_window_kept_is_no_summary(new, counts):
    chat = talk(Lab(), "en", named=False, tools=False, others=0)
    note = "The customer has the gold plan by now and speaks German as well as English (step {})."
    chat.system = f"{SYSTEM}\n\n{note.format(0)}" if counts else SYSTEM
    chat.turn(*turns("zephyr", 1, start=29)[0])
    for n in range(3):
        chat.system = f"{SYSTEM}\n\n{note.format(n + 1)}" if counts else SYSTEM
        chat.history = [*chat.history[-6:], *NEW_ON_THE_WAY[new](n)]
        step = chat.turn(*turns("zephyr", 1, start=30 + n)[0])
        assert (step.event, step.session.id) == ("window", chat.session)


def writing_chat() -> Chat:
    """Its files stand in the arguments of calls alone."""
    chat = Chat(Lab(), system=CODER, tools=TOOLS)
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        call_id = chat.lab.call_id()
        call = called(call_id, "write_file", path=f"notes/{n}.md", text=file_of("zephyr", n))
        chat.history.append(user(said))
        chat.lab.answer(chat.send(), call)
        chat.history += [call, result(call_id, "written")]
        chat.lab.answer(chat.send(), assistant(answer))
        chat.history.append(assistant(answer))
        chat.session = next(iter(chat.lab.index.sessions))
    return chat


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("left", [{}, {"path": "notes/0.md", "text": "[omitted]"}, {"text": file_of("zephyr", 0)[:90]}])
def test_calls_whose_arguments_were_emptied_are_cleared(left, renamed):
    chat = writing_chat()
    at = next(n for n, m in enumerate(chat.history) if m.get("tool_calls"))
    call_id = "call_anew" if renamed else chat.history[at]["tool_calls"][0]["id"]
    chat.history[at : at + 2] = [called(call_id, "write_file", **left), result(call_id, "written")]
    step = chat.turn("go on with the next file", "going on with it")
    assert (step.event, step.session.id) == ("cleared", chat.session)
    assert chat.turn("and on", "on and on").event == "turn"


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


NOTES = {
    "a user's message": lambda note: user(note),
    "a system message": lambda note: {"role": "system", "content": note},
    "behind words of the client": lambda note: user(f"A note: {note}"),
}


@pytest.mark.parametrize("place", NOTES)
@pytest.mark.parametrize("kept", [0, 4], ids=["alone", "a tail of the chat is kept"])
@pytest.mark.parametrize("named", [True, False])
def test_a_summary_of_several_lines_is_known_where_its_client_writes_it_as_a_string_of_json(place, kept, named):
    lab = Lab()
    chat = talk(lab, "en", named=named, tools=False, others=2)
    told = 'Where we are\n\n- they call it "the errand"\n- Jürgen waits for the rest of it, and so do others.'
    chat.summarise("transcript under another system prompt", told)
    note = json.dumps({"kind": "note", "text": f"Much of it is out of sight now. In short:\n{told}", "count": 8})
    tail = chat.history[-kept:] if kept else []
    step = chat.send([NOTES[place](note), *tail, user("What is next?")])
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


DUMPS = {
    "a list": lambda history: json.dumps(history),
    "a list, as it is": lambda history: json.dumps(history, ensure_ascii=False, indent=2),
    "a line each": lambda history: "\n".join(map(json.dumps, history)),
    "a field": lambda history: json.dumps({"talk": history, "wanted": 5}),
}


@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("system", [SYSTEM, ""], ids=["", "no system prompt"])
def test_a_history_that_is_handed_over_as_json_is_a_side_call_of_its_session(dump, named, system):
    lab = Lab()
    chats = [Chat(lab, system=system, named=name if named else "") for name in ("Jürgen", "Zoë")]
    for n in range(4):
        for chat, who in zip(chats, ("Jürgen", "Zoë"), strict=True):
            asked = f'"{who}" said:\n- part {n} of the errand is at gate {n + 7}\n- a "call" is due before noon'
            chat.turn(asked, f'Noted:\n\n1. gate {n + 7}, for {who}\n2. a "call" before noon, {who}, part {n}')
    for chat in chats:
        orders = {"role": "system", "content": "You pick out what is worth to be kept. Answer with a list."}
        task = user(f"What was said:\n{DUMPS[dump](chat.history)}\nGive me the list.")
        step = lab.ask([orders, task], headers=chat.headers)
        assert (step.event, step.session.parent) == ("side", chat.session), step.link.why


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["behind the words", "in front of them"])
def test_media_for_which_a_placeholder_stands_were_cleared(order):
    chat = reading_chat(Lab())
    asked = {"type": "text", "text": "what is in this?"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    chat.history.append({"role": "user", "content": [asked, image][order]})
    chat.lab.answer(chat.send(), assistant("A blue heron at a pond, in the rain."))
    chat.history.append(assistant("A blue heron at a pond, in the rain."))
    chat.history[-2] = {"role": "user", "content": [asked, {"type": "text", "text": "[image removed]"}][order]}
    assert chat.turn("thanks", "welcome").event == "cleared"


@pytest.mark.parametrize("pictures", [1, 2])
def test_pictures_that_have_another_address_with_every_request_are_the_same(pictures):
    def seen(n: int, request: int) -> dict[str, object]:
        address = f"https://pictures.example/{request}/{n}"
        shown = [{"type": "image_url", "image_url": {"url": f"{address}-{k}.png"}} for k in range(pictures)]
        return {"role": "user", "content": [{"type": "text", "text": f"What do you make of picture {n}?"}, *shown]}

    chat, events = Chat(Lab()), list[str]()
    for n in range(5):
        chat.history.append(seen(n, n))
        chat.history[: 2 * n : 2] = [seen(k, n) for k in range(n)]
        step = chat.send()
        events.append(step.event)
        answer = assistant(f"Picture {n} shows a harbour at dusk, with {n} boats in it.")
        chat.lab.answer(step, answer)
        chat.history.append(answer)
    assert events == ["new", *["turn"] * 4]
    assert len(chat.lab.texts(step.session.id)) == 1 + 10, "the prompt, and each message once"
    chat.history = chat.history[-4:]
    assert chat.turn("go on", "going on").event == "window"


def test_what_a_user_says_twice_in_a_row_is_there_though_the_times_in_front_of_it_have_moved_by_one():
    chat = Chat(Lab(), named="x")
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)

    def shown(minutes: int, answer: str) -> list[Wire]:
        nods = [user(f"[{minutes - n} minutes ago] Go on.") for n in range(2)]
        return [*chat.history[:4], *nods, *chat.history[4:], assistant(answer), user("[0 minutes ago] And then?")]

    history = shown(13, "It is done.")
    chat.lab.answer(chat.send(history), assistant("It will be read on Monday."))
    assert chat.send(shown(14, "It is not done yet, since nobody has read it.")).event in ("turn", "branch", "retry")


def test_an_edit_behind_a_first_message_whose_long_note_is_another_one_has_lost_nothing():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    said = chat.history[0]["content"]

    def noted(n: int) -> dict[str, object]:
        names = ("invoice", "ledger", "tariff", "harbour", "signal", "cedar")
        files = "\n".join(f"file: {name}{n}.md" for name in names)
        return user(f"<env>\ncwd: /srv/{n}\n{files}\n</env>\n\n{said}")

    chat.history[0] = noted(1)
    assert chat.turn("and now?", "It is done.").event == "turn"
    chat.history = [noted(2), *chat.history[1:-2]]
    step = chat.turn("or rather?", "That is done, too.")
    assert (step.event, step.session.id) == ("branch", chat.session)


def test_results_that_are_dropped_with_their_calls_are_a_window():
    chat = reading_chat(Lab())
    chat.history = [m for m in chat.history[:-4] if m["role"] != "tool" and not m.get("tool_calls")] + chat.history[-4:]
    step = chat.turn("go on", "going on with it")
    assert (step.event, step.session.id) == ("window", chat.session)
    assert len(step.verdict.gone) == 6


@pytest.mark.parametrize(
    ("marks", "event"), [(("[answer left out]",) * 4, "cleared"), (("Yes.", "No.", "Sure.", "Well."), "turn")]
)
def test_answers_for_which_one_and_the_same_mark_stands_were_cleared(marks, event):
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    chat.history[1:8:2] = map(assistant, marks)
    assert chat.turn("go on", "going on").event == event


@pytest.mark.parametrize(("left", "event"), [("[omitted due to length]", "cleared"), ("Never mind the port.", "turn")])
def test_a_text_that_became_a_note_in_brackets_was_cleared(left, event):
    chat = Chat(Lab())
    said = "The staging database listens on port 54817 and belongs to Marit Solheim, who is away until March."
    chat.turn(said, "I will keep that in mind.")
    chat.turn("Is it reachable?", "It is, since this morning.")
    chat.history[0] = user(left)
    assert chat.turn("go on", "going on").event == event


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
    "a note and its first half": lambda text: (
        f"[Shortened, {len(text)} characters before]\n{text[: len(text) // 2]}..."
    ),
    "a note, head and tail": lambda text: f"(output of a tool, shortened) {text[:60]} [...] {text[-60:]}",
    "head and tail": lambda text: f"{text[:60]}\n[... 400 characters left out ...]\n{text[-60:]}",
}


@pytest.mark.parametrize(
    ("left", "event"),
    [
        ("We thought about it for a while and looked at altern", "cleared"),
        ("We thought about it for a while and looked at", "cleared"),
        ("We thought about it for a while and looked at alternatives that were worse in nearly every way.", "turn"),
    ],
)
def test_texts_that_are_cut_off_as_soon_as_they_are_old_are_cleared(chat, left, event):
    """At so many characters, or at the last word before. What stood behind a whole sentence may be a note."""
    for n in range(3):
        said, answer = turns("zephyr", 1, start=30 + n)[0]
        long = f"We thought about it for a while and looked at alternatives that were worse in nearly every way. {said}"
        step = chat.send([*chat.history, user(long)])
        chat.lab.answer(step, assistant(answer))
        chat.history += [user(left), assistant(answer)]
        assert (step.event, step.session.id) == (event if n else "turn", chat.session)


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


def _event_once_a_result_is(now, *, was):
    """What a request is told as that has `now` where the result of a tool two turns ago `was` something else."""
    chat = Chat(Lab(), tools=TOOLS)
    chat.turn("Read the notes.", "I have read them.", reads=was)
    chat.turn("and then?", "Then we wait for Friday.")
    chat.history[2] |= {"content": now}
    return chat.turn("thanks, go on", "going on").event


AUDIT = "The audit of host quill-3 was signed by Ada Lund for kernel 4.18.99, and its second disk is due on Friday ..."


@pytest.mark.parametrize(("now", "event"), [
    ("[read_file: 110 characters, shown: 20]\nThe audit of host...", "cleared"),
    (f"Ran again. {AUDIT}", "turn"),
    (f"(kept from before) {AUDIT[:-4]}.", "turn"),
])  # fmt: skip
def test_a_result_behind_a_note_is_cleared_when_little_of_it_is_left(now, event):
    assert _event_once_a_result_is(now, was=AUDIT) == event


HEALTH = (
    "The blue cluster is deployed from build 4471, and Ola signs it off.\n"
    "Its health check is GET /ready, which times out after 1730 ms.\n"
)


@pytest.mark.parametrize(("now", "event"), [
    (HEALTH.partition("\n")[0], "cleared"),
    (f"Tool: read_file\nResult: {HEALTH.partition(chr(10))[0]}", "cleared"),
    (f"{HEALTH[:60]}...", "cleared"),
    (f"Tool: read_file\nResult: {HEALTH}", "turn"),
    (HEALTH.partition(", which")[0], "turn"),
    ("The blue cluster is not deployed from any build.", "turn"),
])  # fmt: skip
def test_a_short_result_of_which_the_first_line_is_left_is_cleared(now, event):
    assert _event_once_a_result_is(now, was=HEALTH) == event


def _first_sentences(text, most):
    """As clients do that cut by rules: what ends their sentences is the same everywhere."""
    kept = ""
    for sentence in re.split(r"[.!?]\s+", text):
        if len(kept + sentence) > most:
            break
        kept += f"{sentence}. "
    return f"{kept.strip()}..."


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_long_text_of_which_the_first_sentences_are_left_is_cleared(role):
    told = "Shall we? Yes!\nThe nightly job ran. " + " ".join(f"Relay {n} waits at gate {n + 7}!" for n in range(20))
    chat = Chat(Lab())
    chat.turn("Hello, shall we begin with the log?", "Yes, show me what there is.")
    chat.turn(*((told, "It is a long list.") if role == "user" else ("What is there?", told)))
    chat.turn("and why does it do so?", "A timer in ops/restart.timer does it.")
    at = next(n for n, m in enumerate(chat.history) if m["content"] == told)
    chat.history[at] = {**chat.history[at], "content": _first_sentences(told, 300)}
    assert chat.turn("thanks, go on", "going on").event == "cleared"


def test_a_result_that_was_cut_in_front_of_a_window_is_no_summary_though_its_id_changed():
    chat = Chat(Lab(), tools=TOOLS)
    host = "The nightly job of the ledger ran on host quill-3"
    signed = "Ada Lund signed off its build 8812 on Friday morning, behind the gate."
    chat.turn("Hello, shall we begin with the ledger?", "Yes, show me its file.")
    chat.turn("Read it.", "It is about a nightly job.", reads=f"{host}, and {signed}")
    chat.turn("And what is left to do?", "Hardly anything, I would say.")
    first = next(n for n, m in enumerate(chat.history) if m["role"] == "tool")
    cut = result("1", f"{host[:-3]}...{signed[-36:]}")
    chat.history = [*chat.history[2:first], cut, *chat.history[first + 1 :]]
    assert chat.turn("thanks, go on", "going on").event in ("window", "cleared")


@pytest.mark.parametrize("result_of", [
    lambda n: "\n".join(f"{line:03} relay {n} listens on port {4000 + 10 * n + line}" for line in range(6)),
    lambda n: "\n".join(f"{line:03} 中継機{n}は{4000 + 10 * n + line}番で待ち受けます。" for line in range(6)),
])  # fmt: skip
def test_short_results_of_turns_that_are_over_are_cleared_though_their_ids_changed(result_of):
    chat = Chat(Lab())
    for n in range(4):
        chat.turn(f"what does relay {n} do?", f"Relay {n} waits for its turn.", reads=result_of(n))
    for n, m in enumerate(chat.history):
        if m.get("tool_calls"):
            chat.history[n] = {**m, "tool_calls": [{**m["tool_calls"][0], "id": f"call_anew_{n}"}]}
        if m["role"] == "tool":
            chat.history[n] = result(f"call_anew_{n - 1}", "[cleared]")
    assert chat.turn("thanks, go on", "going on").event == "cleared"


def test_results_are_cleared_though_older_placeholders_are_worded_anew():
    chat = reading_chat(Lab())
    results = [n for n, m in enumerate(chat.history) if m["role"] == "tool"]

    def clear(count: int, words: str) -> str:
        for n, at in enumerate(results):
            call_id = f"call_{words}_{n}"
            call = chat.history[at - 1]
            chat.history[at - 1] = {**call, "tool_calls": [{**call["tool_calls"][0], "id": call_id}]}
            text = f"[{words} {n}]" if n < count else chat.history[at]["content"]
            chat.history[at] = result(call_id, text)
        return chat.turn("go on", "going on").event

    assert clear(1, "output cleared") == "cleared"
    assert clear(2, "a result was here") == "cleared"
    assert clear(2, "nothing to see") != "cleared"


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


LISTENS = "Keep in mind that our staging database listens on port 54817 and belongs to Marit."


def _after_rewriting(said: str, later: str) -> str:
    """What a turn is when the first text of a conversation stands there as `later`."""
    chat = Chat(Lab())
    chat.turn(said, "I will keep that in mind.")
    chat.turn("Shall we begin with the log?", "Yes, show me what there is.")
    chat.history[0] = user(later)
    return chat.turn("thanks, go on", "going on").event


@pytest.mark.parametrize("mark", ["...", "…", "..", " [… 38 characters …] "])
def test_a_text_that_lost_a_few_words_to_an_ellipsis_is_cleared(mark):
    assert _after_rewriting(LISTENS, LISTENS.replace(" staging database listens on port 54817", mark)) == "cleared"


@pytest.mark.parametrize("later", [f"{LISTENS[:40]}...", f"{LISTENS[:29]} …… t.", f"[…] {LISTENS[-18:]}"])
def test_a_text_of_which_one_end_and_an_ellipsis_are_left_in_its_place_is_cleared(later):
    assert _after_rewriting(LISTENS, later) == "cleared"


@pytest.mark.parametrize("later", ["Keep... yes.", "What is the port of it...", f"{LISTENS[:75]}..."])
def test_a_text_in_its_place_that_shares_less_or_lost_a_word_is_not_cleared_for_its_ellipsis(later):
    assert _after_rewriting(LISTENS, later) == "turn"


@pytest.mark.parametrize("mark", ["...", ".."])
def test_the_only_text_of_a_user_is_cleared_when_it_loses_its_middle_to_an_ellipsis(mark):
    chat = Chat(Lab())
    chat.turn(LISTENS, "I will keep that in mind.")
    chat.history[0] = user(LISTENS.replace(" staging database listens on port 54817", mark))
    assert chat.turn("thanks, go on", "going on").event == "cleared"


@pytest.mark.parametrize("lost", ["staging ", " listens on port 54817", ", so that you have it: our staging database"])
def test_a_text_that_lost_its_middle_to_an_ellipsis_in_front_of_a_window_is_no_summary(lost):
    said = f"Here is what is known, so that you have it: our staging database listens on port 54817. {LISTENS}"
    chat = Chat(Lab())
    chat.turn("Hello, shall we begin? I have our staging database and its port here.", "Yes, tell me of that port.")
    chat.turn(said, "I will keep that in mind.")
    chat.turn("Shall we look at the log?", "Yes, show me what there is.")
    cut = said.replace(lost, "...", 1)
    chat.history = [user(cut), *chat.history[3:]]
    assert chat.turn("thanks, go on", "going on").event in ("window", "cleared")


def test_the_two_points_of_a_path_are_no_ellipsis():
    before = "Please look at the folder exports/old/nightly and tell me what is wrong there."
    assert _after_rewriting(before, before.replace("exports/old/nightly", "../n")) == "turn"


def test_a_text_in_which_a_client_changed_or_dropped_a_few_words_is_not_cleared():
    assert _after_rewriting(LISTENS, LISTENS.replace(" listens on port 54817", " is up")) == "turn"
    assert _after_rewriting(LISTENS, LISTENS.replace(" listens on port 54817", "")) == "turn"


CONDENSED = {
    "most of it": "Keep staging database listens 54817 belongs to Marit.",
    "articles": "Keep mind that our staging database port 54817 and belongs Marit.",
}


@pytest.mark.parametrize("later", CONDENSED.values(), ids=CONDENSED)
def test_a_text_that_lost_words_all_over_it_is_cleared(later):
    assert _after_rewriting(LISTENS, later) == "cleared"


def test_texts_that_lost_words_all_over_them_one_after_another_are_cleared():
    chat = Chat(Lab())
    chat.turn(LISTENS, "I will keep that in mind, and I named the branch for it heron/amber-212.")
    chat.turn("We froze release 7.19.3 because of the leak in the parser pool.", "It stays frozen until then.")
    chat.history[:3] = [
        user(CONDENSED["most of it"]),
        assistant("keep that mind, named branch heron/amber-212."),
        user("froze release because leak in parser pool."),
    ]
    assert chat.turn("Who owns the staging database?", "Marit does.").event == "cleared"


def test_a_message_that_loses_words_after_a_loss_is_known_as_what_it_was():
    chat = Chat(Lab())
    chat.turn(LISTENS, "I will keep that in mind.")
    chat.turn("Shall we begin with the log?", "Yes, show me what there is.")
    asked = "Here it is, and the last line of it is the one that I do not understand at all."
    chat.history = chat.history[2:]
    assert chat.turn(asked, "It restarts.").event == "window"
    at = 3  # behind the system prompt
    before = chat.turn("Why does it?", "A timer does it.").verdict.kept[at]
    chat.history[2] = user(asked.replace("the last", "last").replace("do not", "not"))
    verdict = chat.turn("Stop it, please.", "It is stopped.").verdict
    assert (verdict.event, verdict.kept[at], [*verdict.dressed]) == ("turn", before, [at])


@pytest.mark.parametrize(
    "later",
    ["Keep in mind that our staging database listens at port 54817, it belongs to Marit.", "Our database is up today."],
    ids=["changed", "another"],
)
def test_a_text_that_got_other_words_is_not_cleared(later):
    assert _after_rewriting(LISTENS, later) == "turn"


def test_texts_that_lost_hardly_a_word_each_are_the_same():
    assert _after_rewriting(LISTENS, LISTENS.replace("that our", "our").replace("belongs to", "belongs")) == "turn"


def test_a_text_whose_own_ellipsis_moved_is_not_cleared():
    before = "Open files: main.py, parser.py, and so on to the last of them... Please look at the parser of the export."
    assert (
        _after_rewriting(before, before.replace("main.py, parser.py, and so on to the last of them...", "..."))
        == "turn"
    )


def test_a_text_that_was_the_last_may_lose_what_its_client_put_behind_it():
    chat = Chat(Lab())
    chat.turn("Hello, shall we begin with the log?", "Yes, show me what there is.")
    chat.turn(f"It says nothing.\n{LONG}", "Then all is well.")
    chat.history[2] = user("It says nothing.")
    assert chat.turn("thanks, go on", "going on").event == "turn"


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
    assert chat.send(chat.history[:-1]).event == "retry"


@pytest.mark.parametrize("kept", [2, 4])
def test_what_stood_where_a_summary_that_was_refused_stands_is_back_and_no_placeholder(chat, kept):
    before, told = [*chat.history], f"{summary_of('zephyr', 6)} {summary_of('zephyr', range(1, 6))}"
    chat.history = [*before[:kept], user(told), *before[-2:], user("go on")]
    step = chat.send()
    assert step.event == "compacted"
    chat.lab.fail(step)
    chat.history = [*before, user("go on")]
    step = chat.send()
    assert (step.event, step.session.id) == ("branch", chat.session), step.link.why


@pytest.mark.parametrize("kept", [2, 4])
def test_orders_that_stood_in_front_of_the_first_text_kept_are_not_cut_from_it_once_the_others_are_back(kept):
    lab = Lab()
    chat = Chat(lab, system="")
    for said, answer in turns("zephyr", 8):
        chat.turn(said if chat.history else f"{SYSTEM}\n\n{said}", answer)
    before, left = [*chat.history], chat.history[-2 * kept :]
    chat.history = [user(f"{SYSTEM}\n\n{left[0]['content']}"), *left[1:], user("go on")]
    step = chat.send()
    assert step.event == "window"
    lab.fail(step)
    chat.history = [*before, user("go on, with all of it")]
    step = chat.send()
    assert (step.event, step.session.id) == ("branch", chat.session), step.link.why


@pytest.mark.parametrize("left", [0, 1])
def test_a_client_that_leaves_out_what_its_model_thought_aloud_has_lost_nothing(left):
    chat = Chat(Lab(), named="one")
    thought = "<think>\nFirst I look at the file, then at what it says, and then I change it.\n</think>"
    for said, answer in turns("zephyr", 5):
        chat.turn(said, f"{thought}\n\n{' '.join([answer] * 3)}")
    for m in chat.history[: len(chat.history) - left]:
        m["content"] = m["content"].rpartition("</think>")[2].strip()
    assert chat.turn("and now?", "Now it is done.").event == "turn"
    for m in chat.history[1:6:2]:
        m["content"] = f"{m['content'][:80]}…"
    assert chat.turn("go on", "I do.").event == "cleared"


def test_answers_that_are_cut_short_again_after_that_was_taken_back_are_cleared_again():
    chat = talk(Lab(), "en", named=True, tools=True, others=0)
    for n in range(3):
        chat.turn(f"Tell me of mill {n}.", " ".join(f"Wheel {k} of mill {n} turns {k * 37} times." for k in range(16)))
    chat.turn("Thanks.", "You are welcome.")
    before = [*chat.history]
    for n in range(2):
        cut = [m | {"content": f"{m['content'][:100]}…"} if len(m["content"] or "") > 300 else m for m in before]
        chat.history = [*cut, user(f"go on, {n}")]
        step = chat.send()
        assert step.event == "cleared", step.link.why
        chat.lab.answer(step, assistant(f"I do, {n}."))
        chat.history = [*before, user(f"no, back, {n}")]
        step = chat.send()
        assert step.event == "branch"
        chat.lab.answer(step, assistant(f"Back, {n}."))
        session = chat.lab.index.sessions[chat.session]
        chat.lab.index.sessions[chat.session] = msgspec.structs.replace(
            session, forks=()
        )  # as after many other branches


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_text_that_is_left_out_again_after_it_was_back_is_cleared_again(role, restarts):
    chat = talk(Lab(), "en", named=True, tools=True, others=0)
    told = " ".join(f"Wheel {k} of the mill turns {k * 37} times." for k in range(16))
    chat.turn(*((told, "Noted.") if role == "user" else ("Tell me of the mill.", told)))
    chat.turn("Thanks.", "You are welcome.")
    chat.lab.restarts, events = restarts, list[str]()
    for n in range(4):
        chat.history.append(user(f"go on, {n}"))
        left_out = [m | {"content": "[left out]"} if m["content"] == told else m for m in chat.history]
        step = chat.send(chat.history if n % 2 else left_out)
        events.append(step.event)
        chat.lab.answer(step, assistant(f"I do, {n}."))
        chat.history.append(assistant(f"I do, {n}."))
    assert events[::2] == ["cleared", "cleared"]


def test_a_compaction_that_is_taken_back_after_many_turns_is_a_branch(chat):
    before, style = list(chat.history), STYLES["summary as user message, acknowledged, tail"]
    assert chat.compact(style, summary_of("zephyr", 6), "go on", "going on").event == "compacted"
    for said, answer in turns("zephyr", 9, start=20):
        chat.turn(said, answer)
    chat.history = before
    step = chat.turn("back to where we were before", "All of it is here again.")
    assert (step.event, step.session.id) == ("branch", chat.session)


def test_a_picture_that_is_shown_again_beside_a_new_one_is_a_branch():
    def seen(n: int) -> dict[str, object]:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,iVBORw0KGgo{n}"}}
        return {"role": "user", "content": [picture, {"type": "text", "text": f"What do you make of picture {n}?"}]}

    chat = Chat(Lab())
    for n in range(4):
        chat.history.append(seen(n))
        chat.lab.answer(chat.send(), assistant(f"Picture {n} shows a harbour at dusk, with {n} boats in it."))
        chat.history.append(assistant(f"Picture {n} shows a harbour at dusk, with {n} boats in it."))
    before = list(chat.history)
    chat.history[0] = parts("[image removed]", "What do you make of picture 0?")
    assert chat.turn("go on", "going on").event == "cleared"
    chat.history = [*before, seen(9)]
    assert chat.send().event == "branch"


@pytest.mark.parametrize("whole", ["as it is", "no note behind the last", "orders before the names"])
def test_a_history_that_is_sent_again_as_one_text_has_lost_nothing(chat, whole):
    if whole == "no note behind the last":
        note = "\n\n<environment_details>\ntime: 10:17\nopen: f3.py\n</environment_details>"
        chat.turn(f"Now look at the tests of it.{note}", "They pass.")
        chat.history[-2] = user("Now look at the tests of it.")
    if whole == "orders before the names":
        chat = Chat(Lab(), system="")
        chat.turn(f"{SYSTEM}\n\nHello, shall we start?", "Yes, let us start.")
        for said, answer in turns("zephyr", 6):
            chat.turn(said, answer)
        chat.history[0] = user("Hello, shall we start?")
    told = "\n\n".join(f"{m['role']}: {m['content']}" for m in chat.history if m.get("content"))
    chat.history = [user(f"{SYSTEM}\n\n{told}" if whole == "orders before the names" else told)]
    assert chat.turn("go on", "going on").event not in LOSSES


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("others", [0, 2])
def test_a_history_in_one_text_with_the_next_question_behind_it_is_a_turn_of_its_session(named, tools, system, others):
    chat = talk(Lab(), "en", named=named, tools=tools, others=others, system=system)
    names = {"user": "USER", "assistant": "ASSISTANT", "tool": "RESULT"}
    told = "\n\n".join(f"{names[m['role']]}: {m['content'] or m['tool_calls'][0]['function']}" for m in chat.history)
    before, chat.history = chat.history, [user(told)]
    first = chat.turn("and what comes next?", "The review comes next.")
    if system or tools:
        assert (first.event, first.session.id) == ("turn", chat.session)
    step = chat.turn("and after that?", "Nothing comes after it.")
    assert (step.event, step.session.id) == ("turn", chat.session), "of no system prompt it is known at the latest now"
    chat.history = before[:-2] + chat.history[-4:]
    assert chat.turn("and now?", "Now it is over.").session.id == chat.session


@pytest.mark.parametrize(
    "how", ["transcript under another system prompt", "transcript in one message, no system prompt"]
)
@pytest.mark.parametrize("rows", [100, 4_000])
def test_a_transcript_that_begins_with_a_long_listing_is_a_side_call_and_its_summary_leads_back(how, rows):
    chat = Chat(Lab(), tools=TOOLS)
    listing = "\n".join(f"machine {row} of hall {row % 7} answers" for row in range(rows))
    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        chat.turn(said if n else f"{said}\n{listing}", answer)
    side = chat.summarise(how, summary_of("zephyr", 4))
    assert (side.event, side.session.parent) == ("side", chat.session), side.link.why
    chat.history = [user(summary_of("zephyr", 4))]
    step = chat.turn("And what do we do next?", "The fifth of them.")
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


@pytest.mark.parametrize("asked", ["Summarise the conversation above.", "Now give this chat a title of five words."])
def test_a_task_behind_a_history_in_one_text_is_no_turn_of_the_session_that_an_id_names(asked):
    chat = talk(Lab(), "en", named=True, tools=False, others=0)
    step = chat.send([user(transcript(chat.history)), user(asked)])
    assert step.event != "turn" or step.session.id != chat.session, step.link.why


@pytest.mark.parametrize("other", ["system prompt", "tools"])
def test_a_history_in_one_text_under_orders_or_with_tools_of_others_is_no_turn_of_its_session(other):
    chat = talk(Lab(), "en", named=True, tools=True, others=0)
    orders = {"role": "system", "content": SYSTEM if other == "system prompt" else chat.system}
    tools = ("grade",) if other == "tools" else TOOLS
    told = [orders, user(transcript(chat.history)), user("Was the user content with that?")]
    step = chat.lab.ask(told, tools=tools, headers=chat.headers)
    assert (step.event, step.session.parent) == ("side", chat.session), step.link.why


def test_a_chat_that_begins_with_what_another_one_waits_for_an_answer_to_is_a_new_one():
    lab, said = Lab(), "Which port does the staging database use?"
    waiting = lab.ask(Chat(lab).wire([user(said)]))
    step = lab.ask(Chat(lab).wire([user(f"Hello. {said}"), user("And is it up?")]))
    assert (step.event, step.session.id != waiting.session.id) == ("new", True), step.link.why


def test_words_of_a_client_tell_a_summary_in_another_language_that_was_made_elsewhere():
    chat = talk(Lab(), "en", named=True, tools=False, others=0)
    told = "Bisher ging es um Einstellungen mehrerer Dienste; alle wurden geändert, begründet und danach geprüft."
    chat.history = [user(f"Summary of the conversation so far:\n{told}"), *chat.history[-4:], user("go on")]
    step = chat.send()
    assert (step.event, step.verdict.summary) == ("compacted", 1)


def test_an_agent_whose_compaction_is_taken_back_is_on_a_branch_though_it_said_nothing_and_keeps_what_came_since():
    chat = Chat(Lab(), system=CODER, tools=TOOLS, named="one")
    held = [user("Look through all of the files, and mend what is broken in them.")]
    for n in range(8):
        call_id = chat.lab.call_id()
        call = called(call_id, "read_file", path=f"notes/{n}.txt")
        chat.lab.answer(chat.send(held), call)
        held += [call, result(call_id, file_of("zephyr", n))]
    chat.history = [user(summary_of("zephyr", 6))]
    chat.turn("go on", "Going on with the files.", reads=file_of("omega", 1))
    since = chat.history[1:]
    step = chat.send([*held, *since, user("and now?")])
    assert (step.event, step.session.id) == ("branch", chat.session)


WRAPPED = {
    "nothing": lambda summary, asked: user(f"{summary}\n\n{asked}".strip()),
    "tags": lambda summary, asked: user(f"<summary>\n{summary}\n</summary>\n\n{asked}".strip()),
    "words": lambda summary, asked: user(f"The chat so far, in short.\n{summary}\n{asked}".strip()),
    "a part of its own": lambda summary, asked: parts(*filter(None, [summary, asked])),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("asked", ["Which port has it?", "Set the burst.\n\n    burst: 4711\n\nand test it", ""])
def test_what_is_asked_behind_a_summary_in_its_message_is_known_as_it_was_written(wrapped, language, asked):
    chat = talk(Lab(), language, named=True, tools=False, others=0)
    summary = summary_of("zephyr", 6, language)
    chat.summarise("instruction at the end", summary)
    step = chat.send([WRAPPED[wrapped](summary, asked)])
    assert (step.event, step.verdict.summary, step.verdict.asked) == ("compacted", 1, asked)


@pytest.mark.parametrize("shown", [
    lambda summary, asked: user(f"{asked}\n<context>\n<notes>\n{summary}\n</notes>\n</context>"),
    lambda summary, asked: user(f"{asked}\n\n{summary}"),
    lambda summary, asked: parts(asked, summary),
], ids=["tags", "nothing", "a part of its own"])  # fmt: skip
@pytest.mark.parametrize(("last", "told"), [(True, True), (False, False)], ids=["last answer kept", "and gone"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_asked_in_front_of_a_summary_is_known_where_it_must_be_a_question(shown, last, told, language):
    chat = talk(Lab(), language, named=True, tools=False, others=0)
    summary = summary_of("zephyr", 6, language)
    chat.summarise("instruction at the end", summary)
    asked = "Set the burst.\n\n    burst: 4711\n\nand test it"
    kept = chat.history[-2:] if last else []
    step = chat.send([*kept, shown(summary, asked)])
    assert (step.event, step.verdict.summary) == ("compacted", len(kept) + 1)
    assert step.verdict.asked == (asked if told else "")


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_what_stands_behind_a_summary_in_its_message_is_not_asked_where_a_message_follows(wrapped):
    chat = talk(Lab(), "en", named=True, tools=False, others=0)
    summary = summary_of("zephyr", 6)
    chat.summarise("instruction at the end", summary)
    step = chat.send([WRAPPED[wrapped](summary, "Go on from here."), user("Look at the list.\n\nWhich port has it?")])
    assert (step.event, step.verdict.summary, step.verdict.asked) == ("compacted", 1, "")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_summary_that_was_asked_for_like_any_turn_but_without_tools_links_the_message_that_is_left(language):
    chat = talk(Lab(), language, named=False, tools=True, others=2)
    chat.history.append(user("Bitte fasse alles Bisherige zusammen, damit es ohne den Verlauf weitergehen kann."))
    summary = summary_of("zephyr", 6, language)
    chat.lab.answer(chat.send(tools=()), assistant(summary))
    step = chat.send([user(f"<summary>\n{summary}\n</summary>\n\nWeiter mit dem nächsten Punkt.")])
    assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


@pytest.mark.parametrize("task", ["Rate this text from 1 to 10:\n\n{}", "{}\n\nWrite three queries for this."])
@pytest.mark.parametrize(("system", "tools", "orders"), [
    (True, True, ""), (False, True, ""), (True, True, SYSTEM), (False, False, "You judge texts. Answer in JSON only."),
])  # fmt: skip
def test_a_use_of_a_summary_without_the_tools_of_its_session_or_under_orders_of_its_own_is_a_side_call(
    task, system, tools, orders
):
    chat = talk(Lab(), "en", named=False, tools=tools, others=0, system=system)
    summary = summary_of("zephyr", 6)
    chat.summarise("transcript under another system prompt", summary)
    chat.compact(STYLES["summary as user message, tail"], summary, "go on", "Yes, on it goes.")
    first = [{"role": "system", "content": chat.system if orders == SYSTEM else orders}] if orders else []
    step = chat.lab.ask([*first, user(task.format(summary))])
    assert step.event == "side", step.link.why
    assert chat.turn("and now?", "Now it is over.").session.id == chat.session


def ago(history, more=0):
    """`history` with how long ago the user said each of its texts, as clients write it anew with every request."""
    count = len(history) + more
    return [
        m | {"content": f"[{count - n} minutes ago] {m['content']}"} if m["role"] == "user" else m
        for n, m in enumerate(history)
    ]


def timed_chat(*, named):
    """A chat whose user's texts say how long ago they were said, and its history without that."""
    chat, held = Chat(Lab(), named="one" if named else ""), []
    for said, answer in turns("zephyr", 6):
        held.append(user(said))
        chat.lab.answer(chat.send(ago(held)), assistant(answer))
        held.append(assistant(answer))
    return chat, held


@pytest.mark.parametrize("named", [False, True])
def test_orders_in_front_of_the_first_text_that_a_window_keeps_are_no_summary_though_times_changed(named):
    chat, held = Chat(Lab(), system="", named="one" if named else ""), []
    orders = "You are a patient assistant who keeps the books of a trading house, and answers in full sentences."
    for n, (said, answer) in enumerate([*turns("zephyr", 6), ("and now?", "Now it is done.")]):
        shown = ago([*(held[-5:] if n == 6 else held), user(said)], n)
        first = next(at for at, m in enumerate(shown) if m["role"] == "user")
        stamp, _, text = shown[first]["content"].partition("] ")
        shown[first] = user(f"{stamp}] {orders}\n\n{text}")
        step = chat.send(shown)
        chat.lab.answer(step, assistant(answer))
        held += [user(said), assistant(answer)]
    assert step.event == "window", step.link.why


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_summary_made_elsewhere_behind_a_system_prompt_that_changes_is_found_beside_the_last_answer(language):
    chat = Chat(Lab(), named="one")
    for n, (said, answer) in enumerate(turns("zephyr", 6, language)):
        chat.system = f"{CODER}\n<env>\n M src/f{n}.py\n M src/f{n + 1}.py\n</env>"
        chat.turn(said, answer)
    chat.system = f"{CODER}\n<env>\n M src/f9.py\n</env>\n\n{summary_of('zephyr', 2, language)}"
    chat.history = [chat.history[-1], user("go on")]
    step = chat.send()
    assert (step.event, step.verdict.anchor) == ("compacted", 0)


@pytest.mark.parametrize("front", ["its own", "words of somebody"])
def test_a_summary_behind_the_orders_in_front_of_all_is_told_by_itself_and_one_behind_other_words_is_not(front):
    """Its client writes its orders into the first message, and had it summed up in words that nothing tells."""
    orders = "Du hältst die Mühle am Laufen und sagst immer, woher du etwas weißt."
    chat = Chat(Lab(), system="", tools=TOOLS)
    for n, (said, answer) in enumerate(turns("zephyr", 6, "de")):
        chat.turn(said if n else f"{orders}\n\n{said}", answer)
    summary = summary_of("zephyr", 6, "de")
    chat.lab.answer(chat.send([*chat.history, user("Schreib das alles für später auf.")], tools=()), assistant(summary))
    if front != "its own":
        orders = "Das hier hat mir gestern jemand aus der anderen Schicht zugeschickt, lies es bitte."
    step = chat.send([parts(f"{orders}\n\n{summary}", "Wo liegt die Sicherung?")])
    assert (step.link.why == "its last answer told what was said") == (front == "its own"), step.link.why


@pytest.mark.parametrize("told", ["by one", "by two"])
def test_what_a_tool_was_given_and_stands_in_front_of_one_answer_leads_back_to_the_only_chat_that_gave_it(told):
    lab, summary = Lab(), summary_of("zephyr", 6)
    chats = [Chat(lab) for _ in range(1 if told == "by one" else 2)]
    for n, chat in enumerate(chats):
        for said, answer in turns(("zephyr", "amber")[n], 6):
            chat.turn(said, answer)
        asked = [*chat.history, user("Now call write_summary.")]
        lab.answer(chat.send(asked, tools=("write_summary",)), called(lab.call_id(), "write_summary", context=summary))
    last = chats[0].history[-1] if told == "by one" else assistant("Shall I go on with the mill, then?")
    step = chats[0].send([assistant(f"What was before:\n{summary}"), last, user("And what is left to do?")])
    assert step.event == ("compacted" if told == "by one" else "new"), step.link.why


def in_one_text(history):
    return user("\n\n".join(f"{m['role'].upper()}: {m['content']}" for m in history))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_times_in_front_of_what_a_user_said_are_no_loss_in_one_text_nor_when_that_is_taken_back(named, timed):
    chat, held = timed_chat(named=named)
    asked = chat.send([in_one_text(ago(held, 9) if timed else held), user("[1 minutes ago] and now?")])
    assert asked.event == "turn", asked.link.why
    chat.lab.answer(asked, assistant("Now it is done."))
    back = chat.send([*ago(held, 9), user("[1 minutes ago] no, another way")])
    assert (back.event, back.session.id) == ("branch", asked.session.id)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("lost", [slice(0, 2), slice(5, 6), slice(6, 7), slice(10, 11), slice(11, 12)])
def test_what_one_text_leaves_out_is_lost_though_times_stood_in_front_of_it(timed, lost):
    chat, held = timed_chat(named=True)
    del held[lost]
    one = in_one_text(ago(held, 9) if timed else held)
    step = chat.send([one, user("[1 minutes ago] and now? " + "Look at it all. " * 40)])
    assert step.event in LOSSES


@pytest.mark.parametrize("lost", [slice(0, 0), slice(4, 5), slice(6, 7)])
def test_a_note_that_came_and_went_before_a_restart_is_no_loss_in_one_text_and_hides_none(lost):
    chat = Chat(Lab(), named="one", tools=TOOLS)
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        chat.turn(f"{said}\n\n<environment_details>\ntime: 10:0{n}\nopen: f{n}.py\n</environment_details>", answer)
        chat.history[-2] = user(said)
    chat.turn("Write down what we have so far.", summary_of("zephyr", 6))
    chat.lab.restart()
    del chat.history[lost]
    step = chat.send([in_one_text(chat.history), user("and now? " + "Look at it all. " * 60)])
    assert step.event in (LOSSES if lost.stop else {"turn"}), step.link.why


@pytest.mark.parametrize("lost", [slice(0, 0), slice(4, 5)])
def test_one_text_holds_no_pictures_and_what_was_said_with_them_is_there_or_lost(lost):
    chat = Chat(Lab(), named="one", tools=TOOLS)
    for n, (said, answer) in enumerate(turns("zephyr", 5)):
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,iVBORw0KGgo{n}"}}
        chat.history.append({"role": "user", "content": [picture, {"type": "text", "text": said}]})
        chat.lab.answer(chat.send(), assistant(answer))
        chat.history.append(assistant(answer))
    told = [user(m["content"][1]["text"]) if m["role"] == "user" else m for m in chat.history]
    del told[lost]
    step = chat.send([in_one_text(told), user("and now? " + "Look at it all. " * 40)])
    assert step.event in (LOSSES if lost.stop else {"turn"}), step.link.why


@pytest.mark.parametrize("lost", [slice(0, 2), slice(5, 6), slice(10, 12)])
def test_who_takes_a_history_in_one_text_apart_and_leaves_something_out_has_lost_it(lost):
    chat, held = timed_chat(named=True)
    chat.lab.answer(chat.send([in_one_text(held), user("and now?")]), assistant("Now it is done."))
    del held[lost]
    assert chat.send([*ago(held, 9), user("no, another way")]).event in LOSSES


def test_a_history_of_which_one_text_holds_the_first_lines_alone_has_lost_the_others(chat):
    chat.turn("Now look at this:\n" + "\n".join(f"row {n} is {n * 7919}" for n in range(40)), "I have seen it.")
    chat.turn("and now?", "Now it is done.")
    told = "\n\n".join(f"{m['role']}: {m['content'].splitlines()[0]}" for m in chat.history if m.get("content"))
    chat.history = [user(told + "\n\n" + "and so on, " * 200)]
    assert chat.turn("go on", "going on").event not in ("turn", "retry", "branch")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("behind", ["the next question", "nothing"])
def test_a_summary_passed_to_a_tool_of_its_own_is_a_compaction_before_the_next_question_alone(language, behind):
    chat = Chat(Lab(), named="one")
    for said, answer in turns("zephyr", 6, language):
        chat.turn(said, answer)
    summary = summary_of("zephyr", 6, language)
    asked = [*chat.history, user("Now call write_summary.")]
    chat.lab.answer(chat.send(asked, tools=("write_summary",)), called("call_1", "write_summary", context=summary))
    question = turns("omega", 1, language)[0][0]
    step = chat.send([user(f"{summary}\n\n{question}" if behind == "the next question" else summary)])
    assert step.event == ("compacted" if behind == "the next question" else "side"), step.link.why


@pytest.mark.parametrize("tools", [(), TOOLS])
@pytest.mark.parametrize("shown", ["one text", "two parts"])
def test_a_summary_passed_to_a_tool_lent_for_it_is_one_though_its_user_only_nodded(shown, tools):
    chat = Chat(Lab(), tools=tools)
    for project in ("zephyr", "omega"):
        for n, (_, answer) in enumerate(turns(project, 6)):
            chat.turn(f"[2026-03-01 10:0{n}] {'Go on.' if n else 'Yes, do that.'}", answer)
        asked, lent = [*chat.history, user("Write down what is needed to go on.")], ("write_summary", *tools[:2])
        call = called(chat.lab.call_id(), "write_summary", context=summary_of(project, 6))
        chat.lab.answer(chat.send(asked, tools=lent), call)
        told = f"[2026-03-01 10:09] Was vorher geschah, in dieser Sitzung:\n{summary_of(project, 6)}"
        chat.history = [user(f"{told}\n\nYes, do that.") if shown == "one text" else parts(told, "Yes, do that.")]
        step = chat.send()
        assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why
        chat.lab.answer(step, assistant("going on"))
        chat.history.append(assistant("going on"))


def test_a_text_passed_to_a_tool_that_stays_is_no_summary_where_its_user_only_nodded():
    chat, task = Chat(Lab(), tools=TOOLS), summary_of("zephyr", 6)
    for _, answer in turns("zephyr", 6):
        chat.turn("Go on.", answer)
    chat.lab.answer(chat.send([*chat.history, user("Go on.")]), called(chat.lab.call_id(), "run", task=task))
    step = chat.send([user(f"Your task:\n{task}\n\nReport what you find.")])
    assert step.session.id != chat.session, step.link.why


@pytest.mark.parametrize(
    ("parted", "later"), [("one text", False), ("two parts", False), ("messages", False), ("one text", True)]
)
def test_a_summary_that_came_as_an_answer_links_what_only_users_say_if_the_client_goes_on_at_once(parted, later):
    lab = Lab()
    chat = talk(lab, "en", named=False, tools=False, others=1)
    summary = summary_of("zephyr", 8)
    chat.turn("Write it all down.", summary)
    lab.now += 3600 if later else 60
    question = turns("omega", 1)[0][0]
    one = f"Before:\n{summary}"
    ways = {
        "one text": [user(f"{one}\n{question}")], "two parts": [parts(one, question)],
        "messages": [user("[2 minutes ago] so it was"), user(one), user(question)],
    }  # fmt: skip
    step = chat.send(ways[parted])
    assert ((step.event, step.session.id) == ("compacted", chat.session)) is not later, step.link.why


@pytest.mark.parametrize(("heading", "event"), [
    ("Earlier in this conversation:", "compacted"), ("## Earlier in the conversation", "compacted"),
    ("# Context", "compacted"), ("I got this mail today, the second one:", "new"),
    ("# Please review this text", "new"), ("## Translate into German", "new"), ("# Draft for the blog", "new"),
])  # fmt: skip
def test_a_summary_that_came_as_an_answer_may_stand_below_a_heading_but_not_below_what_people_say(heading, event):
    chat = talk(Lab(), "en", named=False, tools=False, others=1)
    summary = summary_of("zephyr", 8)
    chat.turn("Write it all down.", summary)
    step = chat.send([user(f"{heading}\n{summary}\n\n{turns('omega', 1)[0][0]}")])
    assert (step.event, step.session.id == chat.session) == (event, event != "new"), step.link.why


@pytest.mark.parametrize("asked", [
    "In my earlier conversation with support I asked about gateway/retry.py of apollo and its backoff, and about "
    "billing/export.sql and its column. Which values are right?",
    "Earlier in our chat you helped me with web/login.tsx of apollo, its redirect, and ops/backup.sh with its bucket. "
    "Please set both back.",
    "I had a prior conversation about gateway/retry.py and billing/export.sql in project apollo, with 3059 and 1979.",
])  # fmt: skip
def test_who_speaks_of_an_earlier_talk_in_their_own_words_begins_a_chat(asked):
    lab = Lab()
    chat = Chat(lab)
    for said, answer in turns("apollo", 5):
        chat.turn(said, answer)
    step = Chat(lab).send([user(asked)])
    assert step.event == "new", step.link.why


def test_what_a_user_says_again_behind_a_turn_that_failed_is_filed():
    """An agent whose context ran over in the middle of its work: its client compacts, and its user says the same word
    as once before."""
    chat = Chat(Lab(), tools=TOOLS, named="run")
    for said, answer in [*turns("zephyr", 1), ("continue", "The parser is ready."), *turns("zephyr", 1, start=2)]:
        chat.turn(said, answer)
    chat.history.append(user("Set the timeout of the login page to 44 seconds."))
    chat.lab.answer(chat.send(), call := called("call_7f3a", "run", cmd="set timeout 44"))
    chat.history += [call, result("call_7f3a", "set in web/login.tsx")]
    chat.lab.fail(chat.send())
    step = chat.send([user(summary_of("zephyr", [0, 2])), user("continue")])
    assert step.event == "compacted"
    assert [f.message.text for f in step.filed][-1] == "continue"


@pytest.mark.parametrize("named", [False, True])
def test_a_transcript_that_ends_in_what_tells_of_all_is_no_compaction(named):
    chat = Chat(Lab(), named="one" if named else "")
    for said, answer in [*turns("zephyr", 6), ("And all in all?", summary_of("zephyr", 6))]:
        chat.turn(said, answer)
    chat.history = [user(transcript(chat.history)), user("go on")]
    assert chat.send().event not in LOSSES


@pytest.mark.parametrize("order", [1, -1])
def test_a_history_in_one_text_may_show_results_of_calls_at_once_in_another_order(order):
    chat = Chat(Lab(), tools=TOOLS)
    chat.turn(*turns("zephyr", 1)[0])
    chat.history.append(user("Read both of the notes, and say which one is older."))
    calls = [called(f"call_{name}7f3a9c2", "read_file", path=f"notes/{name}.txt") for name in "ab"]
    both = {**calls[0], "tool_calls": [call for each in calls for call in each["tool_calls"]]}
    chat.lab.answer(chat.send(), both)
    results = [result(f"call_{name}7f3a9c2", file_of("zephyr", n)) for n, name in enumerate("ab")]
    chat.history += [both, *results]
    chat.lab.answer(chat.send(), assistant("The first one is older, by two days and an hour."))
    shown = [*chat.history[:-2], *results[::order], assistant("The first one is older, by two days and an hour.")]
    step = chat.send([user(transcript(shown)), user("And which one is longer?")])
    assert (step.event, step.link.why) == ("turn", "its history in one text, and more")


@pytest.mark.parametrize("renewed", [False, True])
def test_who_goes_back_behind_a_summary_in_a_dated_system_prompt_loses_only_what_a_new_one_stands_for(renewed):
    chat = Chat(Lab(), system="Today is 2026-01-02. " + SYSTEM)
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    summary = summary_of("zephyr", 6)
    chat.lab.answer(chat.lab.ask([user(f"Write it down:\n{transcript(chat.history)}")]), assistant(summary))
    chat.system, chat.history = f"Today is 2026-01-02. {SYSTEM}\n\n{summary}", chat.history[-2:]
    for said, answer in turns("omega", 3):
        chat.turn(said, answer)
    if renewed:
        summary = summary_of("omega", 3)
        chat.lab.answer(chat.lab.ask([user(f"Write it down:\n{transcript(chat.history)}")]), assistant(summary))
    chat.system, chat.history = f"Today is 2026-01-03. {SYSTEM}\n\n{summary}", chat.history[:-2]
    assert chat.turn("no, another way", "As you like.").event == ("compacted" if renewed else "branch")


@pytest.mark.parametrize("gone", [0, 3])
def test_times_that_change_in_each_of_many_texts_of_a_user_are_no_loss_and_do_not_hide_one(gone):
    chat = Chat(Lab(), named="one")
    said = [text for text, _ in turns("zephyr", 8)]

    def stamped(texts: list[str], minutes: int) -> list[dict[str, object]]:
        return [user(f"[{minutes + len(texts) - n} minutes ago] {text}") for n, text in enumerate(texts)]

    chat.history = [*stamped(said, 10), assistant("Noted, all of it."), user("and now?")]
    chat.lab.answer(chat.send(), assistant("Now it is done."))
    shown = [*stamped(said[gone:], 20), assistant("Noted, all of it."), user("[10 minutes ago] and now?")]
    chat.history = [*shown, assistant("Now it is done.")]
    assert (chat.turn("go on", "going on").event in LOSSES) is (gone > 0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_summary_that_was_passed_to_a_tool_and_stands_behind_another_system_prompt_is_a_compaction(language):
    chat = Chat(Lab(), system="Today is 2026-01-02.", tools=TOOLS)
    for said, answer in turns("zephyr", 6, language):
        chat.turn(said, answer)
    summary = summary_of("zephyr", 6, language)
    chat.history.append(user("Now call write_summary."))
    call = called(chat.lab.call_id(), "write_summary", context=summary)
    chat.lab.answer(chat.send(tools=(*TOOLS, "write_summary")), call)
    chat.system, chat.history = f"Today is 2026-02-03.\n\n{summary}", chat.history[-3:-1]
    step = chat.turn("go on", "going on")
    assert (step.event, step.session.id) == ("compacted", chat.session)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kept", [4, 6, 8])
def test_a_window_is_told_though_its_client_sends_the_two_oldest_messages_it_keeps_in_the_other_order(kept, named):
    chat, events = Chat(Lab(), named="zephyr" if named else ""), list[str]()
    for said, answer in turns("payments", 7):
        chat.history.append(user(said))
        sent = chat.history[-kept:]
        if len(chat.history) > kept:
            sent[:2] = sent[1::-1]
        step = chat.send(sent)
        chat.lab.answer(step, assistant(answer))
        chat.history.append(assistant(answer))
        events.append(step.event)
    whole = kept // 2
    assert events == ["new", *["turn"] * (whole - 1), *["window"] * (7 - whole)]


def folded(history: list[Wire], note: str) -> Wire:
    """What the user said as parts of one message, a note behind each of what was done; the question comes last."""
    said = [m["content"] for m in history if m["role"] == "user"]
    return parts(*(text for each in said[:-1] for text in (each, note)), said[-1])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("note", ["[what was done: run]", "[what was done: run; what was answered: {answer}]"])
def test_a_history_that_is_folded_into_the_message_that_asks_has_lost_its_results(note, named):
    chat = talk(Lab(), "en", named=named, tools=True, others=2, count=4)
    ran_before = [m for m in chat.history if m["role"] == "tool"]
    step = chat.send([folded([*chat.history, user("What is next?")], note.format(answer=chat.history[-1]["content"]))])
    assert ran_before
    assert (step.event in ("window", "compacted"), step.session.id) == (True, chat.session)
    assert held(step, step.verdict.anchor).endswith("What is next?")


def test_a_window_of_messages_that_bring_the_same_files_again_is_no_summary():
    chat, events = Chat(Lab()), list[str]()
    files = [f"File {n} of the ledger holds part {n * 37} and says what its owner {n} wants of it." for n in range(2)]
    for said, answer in turns("payments", 5):
        step = chat.send([*chat.history[-4:], parts(*files, said)])
        chat.lab.answer(step, assistant(answer))
        chat.history += [user(said), assistant(answer)]
        events.append(step.event)
    assert events == ["new", "turn", "turn", "window", "window"]


def test_a_last_message_of_several_parts_of_which_one_is_edited_is_a_branch():
    chat = Chat(Lab())
    chat.turn("Hello, shall we begin with the log?", "Yes, show me what there is.")
    chat.turn("It shows a restart every hour.", "A timer in ops/restart.timer does it.")
    chat.history.append(parts("Here is the timer:", "OnCalendar=hourly", "What is wrong with it?"))
    chat.lab.answer(chat.send(), assistant("It fires too often, I would say."))
    chat.history[-1] = parts("Here is the timer:", "OnCalendar=hourly", "What would you write instead of that?")
    assert chat.send().event == "branch"


def test_the_anchor_of_a_window_is_the_first_user_text_that_was_kept():
    chat = talk(Lab(), "en", named=False, tools=False, others=0)
    chat.history = chat.history[-5:]
    step = chat.turn("go on", "going on")
    assert step.event == "window"
    assert held(step, step.verdict.anchor) == plain(chat.history[1]["content"])


@pytest.mark.parametrize("summary", ["", summary_of("zephyr", range(5))])
def test_what_stands_for_what_was_lost_is_a_summary_and_no_message_that_a_window_kept(summary):
    chat = talk(Lab(), "en", named=True, tools=False, others=0)
    shown = [*([user(summary)] if summary else []), *chat.history[-4:], user("Which of them is due first?")]
    verdict = chat.send(shown).verdict
    request = wire.read(json.dumps({"messages": chat.wire(shown)}).encode())
    assert verdict.event == ("compacted" if summary else "window")
    assert verdict.summary_in(request) == summary
    assert verdict.question_in(request) == "Which of them is due first?"


@pytest.mark.parametrize("system", [SYSTEM, ""], ids=["orders", "none"])
@pytest.mark.parametrize(("left", "event"), [(4, "window"), (None, "turn")])
def test_what_a_client_shows_in_front_of_all_that_was_said_before_is_asked(left, event, system):
    chat = Chat(Lab(), system=system, named="one")
    for said, answer in turns("zephyr", 5):
        chat.turn(said, answer)
    shown = [user("Which of them is due first?"), *chat.history[-(left or 0) :]]
    step = chat.send(shown)
    request = wire.read(json.dumps({"messages": chat.wire(shown)}).encode())
    assert (step.event, step.session.id) == (event, chat.session), step.link.why
    assert step.verdict.question_in(request) == "Which of them is due first?"


def test_a_summary_in_front_of_an_answer_that_is_to_go_on_is_not_asked():
    chat = talk(Lab(), "en", named=True, tools=False, others=0)
    shown = [user(summary_of("zephyr", range(5))), *chat.history[-4:]]
    verdict = chat.send(shown).verdict
    request = wire.read(json.dumps({"messages": chat.wire(shown)}).encode())
    assert verdict.event == "compacted"
    assert verdict.question_in(request) == chat.history[-2]["content"]


@pytest.mark.parametrize("named", [False, True])
def test_a_window_that_leaves_nothing_but_a_call_and_its_result_has_its_block_behind_them(named):
    chat = talk(Lab(), "en", named=named, tools=True, others=2)
    call = called(chat.lab.call_id(), "read_file", path="zephyr.txt")
    chat.lab.answer(chat.send([*chat.history, user("Read it, please.")]), call)
    left = [call, result(call["tool_calls"][0]["id"], "The file is empty.")]
    step = chat.send(left)
    assert (step.event, step.session.id) == ("window", chat.session)
    body = json.dumps({"messages": chat.wire(left)})
    request = wire.read(body.encode())
    assert place(request, step.verdict.anchor) == (len(request.messages) - 1, "after")


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


def stamped(history, now: int, how: str) -> list[Wire]:
    """What a client sends of its history that tells when each was said, as of now, or what is open beside the last."""
    spoken = [at for at, m in enumerate(history) if m["role"] == "user"]
    dressed = list(history)
    if how == "each":
        for at in spoken:
            dressed[at] = user(f"[{now - at // 2} minutes ago] {history[at]['content']}")
    else:
        dressed[spoken[-1]] = user(f"{history[spoken[-1]]['content']}\n\n<environment>\n10:{now}, open: f{now % 7}.py")
    return dressed


@pytest.mark.parametrize("how", ["each", "last"])
@pytest.mark.parametrize("back", ["what was left", "a summary"])
def test_going_back_to_a_branch_loses_nothing_though_times_in_it_changed_but_a_summary_that_stands_there_does(
    how, back
):
    chat, now = Chat(Lab()), 20
    said = [*turns("zephyr", 8), ("Understood?", "Yes.")]

    def turn(history: list[Wire], n: int) -> str:
        nonlocal now
        now += 1
        history.append(user(said[n][0]))
        step = chat.send(stamped(history, now, how))
        chat.lab.answer(step, assistant(said[n][1]))
        history.append(assistant(said[n][1]))
        return step.event

    first: list[Wire] = []
    assert [turn(first, n) for n in (0, 1, 2, 8)] == ["new", "turn", "turn", "turn"]
    other = first[:2]
    assert [turn(other, n) for n in (4, 5)] == ["branch", "turn"]
    if back == "what was left":
        assert [turn(first, n) for n in (6, 7)] == ["branch", "turn"]
    else:
        summary = (
            "Until now the invoice export, the search ranking and the image resizer of zephyr were set; restart it."
        )
        assert turn([*other[:2], user(f"{summary} {summary_of('zephyr', 6)}"), assistant("Yes.")], 6) == "compacted"


@pytest.mark.parametrize("named", ["", "one"])
def test_an_answer_that_is_asked_for_again_behind_a_summary_in_the_first_message_is_a_retry_after_a_restart(named):
    chat = Chat(Lab(), named=named)
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    style = STYLES["first message and summary in one, tail"]
    assert chat.compact(style, summary_of("zephyr", 6), "go on", "Going on.").event in LOSSES
    assert chat.turn(*turns("zephyr", 1, start=20)[0]).event == "turn"
    chat.lab.restart()
    step = chat.send(chat.history[:-1])
    assert (step.event, step.session.id) == ("retry", chat.session)
    chat.lab.answer(step, assistant("Another answer."))
    chat.history[-1] = assistant("Another answer.")
    assert chat.turn("good", "Shall we?").event == "turn"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["each", "last"])
def test_what_stands_in_a_branch_that_its_client_came_back_to_was_not_taken_back(how, restarts):
    chat, said = Chat(Lab(), named="one"), turns("zephyr", 8)

    def turn(history: list[Wire], n: int) -> set[str]:
        """The texts that count as taken back after it."""
        history.append(user(said[n][0]))
        step = chat.send(stamped(history, 20 + n, how))
        chat.lab.answer(step, assistant(said[n][1]))
        history.append(assistant(said[n][1]))
        return {f.message.text for f in chat.lab.kept[step.session.id].filed if f.key in step.session.abandoned}

    first: list[Wire] = []
    assert [turn(first, n) for n in range(4)] == [set()] * 4
    other = first[:2]
    assert turn(other, 4).issuperset(said[n][1] for n in (1, 2, 3))
    if restarts:
        chat.lab.restart()
    left = turn(first, 5)
    assert said[4][1] in left
    assert not left.intersection(said[n][1] for n in range(4))


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("style", sorted(STYLES.keys() - SILENT))
def test_a_summary_that_was_asked_for_like_a_turn_under_another_system_prompt_links_its_compaction(style, dated):
    """Without tools, and in words that nobody knows, nothing tells such a call from a turn."""
    lab, asked = Lab(), "Fasse das Gespräch für einen Kollegen zusammen, der es fortsetzt, mit Fakten und Namen."
    chat, other = Chat(lab), Chat(lab)
    for n, (mine, theirs) in enumerate(zip(turns("zephyr", 6), turns("otter", 6), strict=True)):
        for each, (said, answer) in ((chat, mine), (other, theirs)):
            each.system = f"{SYSTEM} It is {n} o'clock." if dated else SYSTEM
            each.turn(said, answer)
    history = [{"role": "system", "content": asked}, *chat.history, user("Schreibe sie jetzt auf.")]
    lab.answer(lab.ask(history), assistant(summary_of("zephyr", 6)))
    step = chat.compact(STYLES[style], summary_of("zephyr", 6), "go on", "Going on.")
    assert (step.event in LOSSES, step.session.id) == (True, chat.session), step.link.why


TAKEN_BACK = [
    "summary as user message, tail", "summary as user message, acknowledged, tail", "bare assistant summary",
    "first message, assistant summary, last three", "appended to the system prompt, tail", "the last pair",
]  # fmt: skip


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["each", "last"])
@pytest.mark.parametrize("style", TAKEN_BACK)
def test_a_compaction_that_is_taken_back_is_a_branch_though_times_changed_and_the_next_one_is_a_loss(
    style, how, restarts
):
    long = [(70, 1, 70)] if style == TAKEN_BACK[0] else []  # more texts than are remembered, one time in each
    for count, after, back in ((3, 0, 3), (4, 2, 4), (8, 3, 8), (8, 1, 4), *long):
        chat, now = Chat(Lab(), named="one"), 20

        def turn(said: str, answer: str, chat: Chat = chat) -> str:
            nonlocal now
            now += 1
            chat.history.append(user(said))
            step = chat.send(stamped(chat.history, now, how))
            chat.lab.answer(step, assistant(answer))
            chat.history.append(assistant(answer))
            return step.event

        def shorten(said: str, summary: str, chat: Chat = chat, turn=turn) -> str:
            chat.system, (*chat.history, _) = STYLES[style](chat, summary, said)
            return turn(said, "Going on.")

        for said, answer in turns("zephyr", count):
            turn(said, answer)
        before, system = chat.history[: 2 * back], chat.system
        assert shorten("go on", summary_of("zephyr", count)) in LOSSES
        for said, answer in turns("zephyr", after, start=20):
            assert turn(said, answer) == "turn"
        if restarts:
            chat.lab.restart()
        chat.history, chat.system = before, system
        assert turn("back to where we were before", "All of it is here again.") == "branch", count
        assert turn("good", "Shall we?") == "turn"
        assert shorten("and go on", summary_of("zephyr", [20, *range(back)])) in LOSSES, count


@pytest.mark.parametrize("kept", [2, 4, 5])
def test_a_window_loses_what_it_leaves_out_and_no_text_whose_time_changed(kept):
    chat, full = Chat(Lab(), named="one"), list[Wire]()
    for n, (said, answer) in enumerate(turns("zephyr", 9)):
        sent = stamped([*full[-kept:], user(said)], 20 + n, "each")
        step = chat.send(sent)
        assert step.event == ("new" if not n else "window" if len(full) > kept else "turn"), n
        shown = {m["content"].rpartition("ago] ")[2] for m in sent}
        held = {f.key: f.message.text for f in chat.lab.kept[step.session.id].filed}
        assert not shown & {held[key].rpartition("ago] ")[2] for key in step.verdict.gone}
        chat.lab.answer(step, assistant(answer))
        full += [user(said), assistant(answer)]


@pytest.mark.parametrize("how", ["each", "last"])
@pytest.mark.parametrize("recalled", ["the first", "one after the other", "by turns"])
def test_old_messages_that_are_recalled_beside_a_window_take_no_loss_back_but_the_whole_history_does(how, recalled):
    chat, full = Chat(Lab(), named="one"), list[Wire]()
    for n, (said, answer) in enumerate(turns("zephyr", 12)):
        at = {"the first": 0, "one after the other": 2 * (n - 6), "by turns": 2 * (n % 2) * (n - 6)}[recalled]
        old = full[at : at + 2] if n >= 6 else []
        step = chat.send(stamped([*old, *full[-6:], user(said)], 20 + n, how))
        assert (step.event in LOSSES) == (n >= 4), (n, step.event)
        chat.lab.answer(step, assistant(answer))
        full += [user(said), assistant(answer)]
    assert chat.send(stamped([*full, user("and all of it?")], 40, how)).event in ("branch", "turn")


def test_a_compaction_that_is_taken_back_is_a_loss_where_an_answer_reads_otherwise():
    chat = Chat(Lab(), named="one")
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        chat.history.append(user(said))
        chat.lab.answer(chat.send(stamped(chat.history, 20 + n, "each")), assistant(answer))
        chat.history.append(assistant(answer))
    before = list(chat.history)
    chat.history = [user(summary_of("zephyr", 6)), *before[-2:], user("go on")]
    step = chat.send(stamped(chat.history, 30, "each"))
    assert step.event == "compacted"
    chat.lab.answer(step, assistant("Gladly."))
    before[1] = assistant(summary_of("zephyr", 6))
    assert chat.send(stamped([*before, user("and now?")], 31, "each")).event in LOSSES


@pytest.mark.parametrize("joined", [True, False])
def test_texts_of_a_user_that_are_one_message_now_are_no_loss_and_one_that_is_not_in_it_is(joined):
    chat = Chat(Lab())
    for n in range(3):
        said, answer = turns("zephyr", 1, start=n)[0]
        chat.history.append(user(f"Context: {turns('gamma', 1, start=n)[0][1]}"))
        chat.turn(said, answer)
    one, two, *rest = chat.history
    chat.history = [user(f"{one['content']}\n{two['content'] if joined else ''}"), *rest]
    assert goes_on(chat, "turn" if joined else "window")


def listed(history: list[Wire], last: int, chars: int) -> list[Wire]:
    """The last messages of a history behind a list of the others, of each its beginning, as some clients fold it."""
    told = "\n".join(f"- {m['role']}: {m['content'][:chars]}" for m in history[:-last])
    return [user(f"[{len(history) - last} messages were folded]\n{told}"), assistant("All right."), *history[-last:]]


def test_what_was_folded_into_a_list_is_no_branch_that_was_left_and_is_lost_where_a_list_of_the_list_cuts_it():
    chat, (said, answer) = Chat(Lab()), turns("zephyr", 1)[0]
    chat.turn(said, answer)
    key = chat.lab.kept[chat.session].filed[0].key
    for n in range(1, 5):
        chat.turn(*turns("zephyr", 1, start=n)[0])
    chat.history = listed(chat.history, 6, 400)
    step = chat.turn("and now?", "It waits for its review.")
    assert (step.event, said in chat.history[0]["content"], step.session.abandoned) == ("turn", True, {})
    chat.history = listed(chat.history, 6, 40)
    step = chat.turn("and then?", "Then it ships.")
    assert (step.event, said in chat.history[0]["content"]) == ("compacted", False)
    assert key in step.session.keys
    assert key not in step.session.abandoned


@pytest.mark.parametrize("lost", [True, False])
def test_a_summary_made_anew_beside_all_that_was_said_is_a_compaction_where_some_was_lost_before(lost):
    chat = Chat(Lab(), tools=TOOLS)
    for n in range(4):
        chat.turn(*turns("zephyr", 1, start=n)[0], reads=file_of("zephyr", n))
    if lost:
        chat.history = chat.history[-2:]
        assert chat.turn("and now?", "It waits for its review.").event in LOSSES
    told = "\n".join(f"- {m.get('content') or m['tool_calls'][0]['function']['arguments']}" for m in chat.history)
    chat.summarise("instruction at the end", summary_of("zephyr", 4))
    chat.history = [user(f"<notes>{summary_of('zephyr', 4)}</notes>\n{told}\n\nand then?")]
    step = chat.send()
    assert (step.event, step.session.id) == ("compacted" if lost else "turn", chat.session), step.link.why


def test_the_same_words_twice_with_times_that_change_are_no_loss_and_a_window_over_them_is_one():
    chat, history = Chat(Lab()), list[Wire]()
    for n in range(8):
        said, answer = turns("zephyr", 1, start=n)[0]
        history.append(user("go on" if n in (4, 5) else said))
        step = chat.send(stamped(history, n, "each"))
        assert step.event == ("turn" if n else "new")
        chat.lab.answer(step, assistant(answer))
        history.append(assistant(answer))
    step = chat.send([*stamped(history[6:], 8, "each"), user("[0 minutes ago] and now?")])
    assert step.event in LOSSES


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
        is_turn(chat, pending, said, answer)


def is_turn(chat, pending, said, answer):
    """What is sent for `said` is told as the next turn; the client keeps `said` alone."""
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


@pytest.mark.parametrize("written", [
    "{documents}\n\nQuestion: {said}",
    "<files>\n<file path='a.py'>\n{documents}\n</file>\n</files>\n<userRequest>\n{said}\n</userRequest>",
    "<context>{documents}</context><asked><by>user</by><text>{said}</text></asked>",
])  # fmt: skip
def test_documents_that_change_with_every_request_are_no_loss(chat, written):
    for k in range(4):
        said, answer = turns("zephyr", 1, start=30 + k)[0]
        documents = "Context:\n" + " ".join(f"doc{k}word{n}" for n in range(120))
        is_turn(chat, [user(written.format(documents=documents, said=said))], said, answer)


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


def test_a_note_that_a_client_puts_into_answers_that_it_shows_with_a_tag_is_no_loss(chat):
    def shown(n: int, m: Wire, note: str) -> Wire:
        spoken = m["role"] == "assistant" and m["content"]
        return assistant(f"{m['content']}{note if n % 4 else ''}\n\n<tag>m{n:04}</tag>") if spoken else m

    for k, note in enumerate(("", f"\n\n<note>Look for what may be shortened: {'keep what is in use, ' * 20}</note>")):
        said, answer = turns("zephyr", 1, start=20 + k)[0]
        step = chat.send([*(shown(n, m, note) for n, m in enumerate(chat.history)), user(said)])
        assert (step.event, step.session.id, step.verdict.gone) == ("turn", chat.session, ())
        chat.lab.answer(step, assistant(answer))
        chat.history += [user(said), assistant(answer)]


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


def test_a_compaction_block_that_nothing_follows_gets_a_user_message_behind_it():
    block = {"type": "compaction", "content": "S"}
    body = {"model": "m", "messages": [{"role": "assistant", "content": [block]}]}
    assert place(messages.read(json.dumps(body).encode()), 0) == (0, "after")
    body["messages"][0]["content"].append({"type": "text", "text": "I beg"})
    assert place(messages.read(json.dumps(body).encode()), 0) is None


def test_a_block_rides_in_the_summary_when_a_user_message_holds_it():
    assert spot([user("S"), assistant("ok"), user("go on")], 0) == (0, "inside")
    assert spot([assistant("S"), user("go on")], 0) == (1, "inside")


def test_a_chat_that_gets_its_first_tools_asks_on_in_a_long_message_about_chats():
    chat = talk(Lab(), "en", named=False, tools=False, others=0)
    wish = (
        "The chat history needs a compact mode. "
        + "Rows get twelve pixels, avatars go, dates move into the margin. " * 7
    )
    step = chat.send([*chat.history, user(wish)], tools=("web_search",))
    assert (step.event, step.session.id) == ("turn", chat.session)


def test_of_a_history_rewritten_throughout_few_texts_are_compared(monkeypatch):
    compared = []
    is_alike = compaction_align.is_alike
    monkeypatch.setattr(compaction_align, "is_alike", lambda a, b: compared.append(1) or is_alike(a, b))
    chat = Chat(Lab(), named="x")
    for said, answer in turns("zephyr", 60):
        chat.history += [user(said), assistant(answer)]
    chat.lab.answer(chat.send(chat.history[:-1]), chat.history[-1])
    rewritten = [{**m, "content": f"{n} was {str(m['content'])[:-9]} told"} for n, m in enumerate(chat.history)]
    chat.send([*rewritten, user("And what comes next in it?")])
    assert len(compared) < 2 * len(rewritten)


@pytest.mark.parametrize("stamp", ["[2026-11-23 {}] ", "{} ", "{} " + "w" * 2_000])
def test_a_history_of_thousands_of_messages_that_are_all_others_is_compared_in_linear_time(stamp):
    def seconds(count: int) -> float:
        chat = Chat(Lab(), named="x")
        words = [f"{stamp.format(7 * n % count)} says {n * n} to {n}" for n in range(2 * count)]
        chat.history = [(user if n % 2 == 0 else assistant)(text) for n, text in enumerate(words[:count])]
        chat.lab.answer(chat.send(chat.history[:-1]), chat.history[-1])
        other = [(user if n % 2 == 0 else assistant)(text) for n, text in enumerate(words[count:])]
        gc.disable()  # it takes as long as all other tests have left things behind
        began = time.process_time()
        chat.send([*other, user("And what comes next in it?")])
        took = time.process_time() - began
        gc.enable()
        return took

    assert min(seconds(3_000) for _ in range(2)) < 15 * max(0.05, seconds(500))


def test_a_picture_that_is_gone_counts_once_whatever_short_texts_came():
    chat = Chat(Lab(), named="x")
    chat.turn("Where is the gateway?", "In the cellar, behind the boxes.")
    look = {"type": "text", "text": "What do you see here?"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    chat.history.append({"role": "user", "content": [look, image]})
    chat.lab.answer(chat.send(), assistant("A cat upon a gateway."))
    chat.history.append(assistant("A cat upon a gateway."))
    for said, answer in turns("amber", 4):
        chat.turn(said, answer)
    chat.history[2] = parts(look["text"], "[no image]", "[see above]", "[sorry]")
    del chat.history[4:6]
    chat.history.append(user("And what comes next in it?"))
    assert chat.send().event == "window"


def test_a_file_that_was_written_is_lost_though_the_words_of_its_result_are_said_again():
    chat = Chat(Lab(), tools=TOOLS)
    chat.turn(*turns("amber", 1)[0])
    written = called(
        chat.lab.call_id(), "write_file", path="ports.py", text="INGEST_PORT = 7461  # the firewall's\n" * 9
    )
    chat.history += [user("Write the file, please."), written]
    chat.lab.answer(chat.send(chat.history[:-1]), written)
    chat.history.append(result(str(written["tool_calls"][0]["id"]), "ok"))
    chat.lab.answer(chat.send(), assistant("Written."))
    chat.history.append(assistant("Written."))
    for said, answer in turns("birch", 3):
        chat.turn(said, answer)
    del chat.history[3:6]
    step = chat.send([*chat.history, user("Is it ok that you said 'Written.' and no more?")])
    assert step.event == "window"


def test_a_summary_that_the_model_passed_to_a_tool_stands_for_what_it_sums_up():
    lab = Lab()
    chat = talk(lab, "en", named=False, tools=True, others=1)
    summary = (
        "Things were discussed and some files were read; nothing was left open, and all of it went as it should have."
    )
    asked, call = user("go on with the next one"), called("call_fold", "fold", upto="m9", text=summary)
    lab.answer(chat.send([*chat.history, asked]), call)
    head = [m for m in chat.history if m["role"] == "system"]
    folded = user(f"[Folded section]\n{summary}\n\n<tag>b1</tag>")
    step = chat.send([*head, folded, asked, call, result("call_fold", "Folded 12 messages.")])
    assert (step.event, step.session.id) == ("compacted", chat.session)
    assert "Folded section" in held(step, step.verdict.anchor)


def test_the_anchor_of_a_window_is_where_the_cached_beginning_ends_not_the_first_text_of_all():
    chat = Chat(Lab(), system=CODER.format(date="2026-01-02"), tools=TOOLS)
    for n, (said, answer) in enumerate(turns("zephyr", 8)):
        chat.turn(said, answer, reads=file_of("zephyr", n))
    users = [n for n, m in enumerate(chat.history) if m["role"] == "user"]
    del chat.history[users[4] + 1 : users[5]]  # what was done in the fifth turn
    step = chat.turn("go on with the next file", "going on with it")
    assert step.event == "window"
    assert step.verdict.anchor == users[4] + 1, "the last text before the gap; the system prompt is message 0"


def test_a_gap_behind_kept_answers_has_its_anchor_behind_it():
    chat = Chat(Lab(), system=CODER.format(date="2026-01-02"))
    for said, answer in turns("zephyr", 8):
        chat.turn(said, answer)
    users = [n for n, m in enumerate(chat.history) if m["role"] == "user"]
    del chat.history[users[3] : users[5]]  # two whole turns
    step = chat.turn("go on with the next one", "going on with it")
    assert step.event == "window"
    assert step.verdict.anchor == users[3] + 1, "the sixth turn's text, which stands where the fourth did"


@pytest.mark.parametrize("restarts", [False, True])
def test_calls_that_a_client_had_left_out_and_brings_back_under_other_ids_are_no_summary(restarts):
    lab = Lab()
    chat = Chat(lab, tools=TOOLS, named="one")
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        chat.turn(said, answer, reads=f"{n}: {turns('amber', 9)[n][1]} It is a long file. " * 4 if n < 4 else "")
    bare = [m for m in chat.history if m["role"] == "user" or (m.get("content") and m["role"] != "tool")]
    step = chat.send(stamped([*bare, user(f"which was it? {turns('amber', 1)[0][1]}")], 20, "each"))
    assert step.event in LOSSES
    lab.answer(step, assistant("The gateway's."))
    if restarts:
        lab.restart()
    again = json.loads(json.dumps(chat.history).replace('"call_', '"call_again_'))
    step = chat.send(stamped([*again, user("no, tell me of the export")], 21, "each"))
    assert (step.event, step.session.id) == ("branch", chat.session)


def _named(name: str, text: str) -> Wire:
    return {**user(text), "name": name}


def _prefixed(name: str, text: str) -> Wire:
    return user(f"{name}: {text}")


@pytest.mark.parametrize("say", [_named, _prefixed])
def test_what_one_of_several_said_before_the_first_answer_is_lost_and_no_note_of_the_client(say):
    lab = Lab()
    said = [say("rosa", "My locker is 4471."), say("emil", "I bring the balls."), say("rosa", "When is it open, bot?")]
    lab.answer(first := lab.ask(said), answer := assistant("The hall is open from 17 to 21."))
    step = lab.ask([*said[1:], answer, say("ada", "And who has the key?")])
    assert (step.event, step.session.id) == ("window", first.session.id)
    assert [f.message.text for f in lab.kept[first.session.id].filed if f.key in step.verdict.gone] == [
        wire.read(json.dumps({"messages": said}).encode()).messages[0].text
    ]
    assert not step.session.abandoned


def test_a_note_that_came_with_the_first_message_and_went_is_none():
    lab = Lab()
    note, asked, answer = (
        user("Context: the hall is open from 17 to 21."),
        user("Question: when?"),
        assistant("It opens at 17 sharp."),
    )
    lab.answer(lab.ask([note, asked]), answer)
    step = lab.ask([asked, answer, user("Context: it has two doors."), user("Question: how many doors?")])
    assert step.event == "turn"


@pytest.mark.parametrize("window", [99, 4])
def test_a_workers_answer_where_its_supervisors_call_is_not_shown_is_no_summary(window):
    lab, thread = Lab(), {"x-session-id": "thread"}
    history = [user("Find the output of Ruritania in 2031, and plot it for the report of the board.")]
    events = []
    for n in range(4):
        worker, text = (
            ("researcher", "coder")[n % 2],
            f"The output was {88 + n} billion crowns in 2031, as it is said in file GX-{n}.",
        )
        step = lab.ask([{"role": "system", "content": "You are a supervisor. Name the worker to act next."},
                        *history[-window:]], tools=("route",), headers=thread)  # fmt: skip
        lab.answer(step, called(f"call_{n}", "route", next=worker))
        events.append(step.event)
        aside = lab.ask([{"role": "system", "content": f"You are a {worker}. Be exact with every number."},
                         *history[-window:]], tools=(worker,), headers=thread)  # fmt: skip
        assert aside.event == "side"
        lab.answer(aside, assistant(text))
        history.append(assistant(text))
    assert events == ["new", "turn", "turn", "turn"]
    last = lab.ask([{"role": "system", "content": "You are a supervisor. Name the worker to act next."},
                    *history[-2:], user("And the first file?")], tools=("route",), headers=thread)  # fmt: skip
    assert last.event == "window"
    assert history[1]["content"] in lab.texts(step.session.id)


def asked_in(history: list[Wire]) -> Wire:
    """What a client says of `history` by rules of its own: the first words of what its user asked."""
    asked = (" ".join(m["content"].split())[:200] for m in history if m["role"] == "user")
    count = f"{len(history)} messages were removed to free the context.\nThe user asked, in order:"
    return user("\n".join(["[Summary of the earlier conversation]", count, *(f"  - {each}" for each in asked)]))


def test_a_list_of_what_was_asked_is_a_summary_though_it_holds_the_first_text_whole():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 5):
        chat.turn(said, answer)
    chat.history = [asked_in(chat.history[:2]), *chat.history[2:]]
    step = chat.turn("go on", "I will go on.")
    assert (step.event, step.verdict.summary, step.session.id) == ("compacted", 1, chat.session)


def test_a_list_that_is_listed_again_is_another_summary_and_what_it_cut_off_is_lost():
    chat = Chat(Lab())
    chat.turn("The staging database listens on port 54817, and all that it holds belongs to Marit Solheim.", "I know.")
    for said, answer in turns("zephyr", 5):
        chat.turn(said, answer)
    chat.history = [asked_in(chat.history[:2]), *chat.history[2:]]
    chat.turn("go on", "I will go on.")
    first = chat.history[0]
    chat.history[0] = asked_in([first])
    assert "Marit Solheim" not in chat.history[0]["content"]
    step = chat.turn("and on", "I am going on.")
    assert (step.event, step.session.id, step.verdict.abandoned) == ("compacted", chat.session, ())
    assert step.verdict.gone


def numbered(count: int, last: int = 0) -> list[Wire]:
    """A history of `count` turns whose model numbers the calls of each answer from nought; of the first turns, all but
    the `last`, the results were left out by its client where `last` is given."""
    history = list[Wire]()
    for n in range(count):
        told = f"Gauge {n} of hall {n + 3} stood at {5410 + n} millibar when Marit read it."
        said, answer = turns("zephyr", 1, start=n)[0]
        given = [] if 0 < last <= count - n - 1 else [result("call_0", told)]
        history += [user(said), called("call_0", "read_file", path=f"gauges/{n}.txt"), *given, assistant(answer)]
    return history


def test_a_result_that_is_left_out_is_gone_though_that_of_a_later_call_has_the_same_number():
    chat = Chat(Lab(), tools=TOOLS)
    for n in range(4):
        chat.turn(*turns("zephyr", 1, start=n)[0])
    chat.history = numbered(4)
    chat.history.append(user("and the fifth gauge?"))
    chat.lab.answer(chat.send(), called("call_0", "read_file", path="gauges/4.txt"))
    given = result("call_0", "Gauge 4 of hall 7 stood at 5414 millibar when Marit read it, and at 5399 at night.")
    chat.history = [*numbered(4, last=1), chat.history[-1], called("call_0", "read_file", path="gauges/4.txt"), given]
    step = chat.send()
    assert (step.event, len(step.verdict.gone)) == ("window", 3)


@pytest.mark.parametrize("told", ["The gauge reads 5411 millibar.", "The gauge reads 5411 millibar; Marit noted it."])
def test_a_result_that_is_left_out_is_no_loss_where_its_call_says_the_same(told):
    chat = Chat(Lab(), tools=TOOLS)
    for n in range(3):
        chat.turn(*turns("zephyr", 1, start=n)[0])
    chat.history.append(user("What does the gauge read?"))
    answering = called("call_9f2a7c41", "answer", text="The gauge reads 5411 millibar.")
    chat.lab.answer(chat.send(), answering)
    chat.history += [answering, result("call_9f2a7c41", told)]
    chat.turn("Thank you.", "You are welcome.")
    chat.history = [m for m in chat.history if m["role"] != "tool"]
    step = chat.turn("and now?", "It waits for its review.")
    event = "turn" if told in answering["tool_calls"][0]["function"]["arguments"] else "window"
    assert (step.event, step.verdict.abandoned) == (event, ())


def test_a_short_list_of_what_was_done_that_calls_itself_a_summary_is_one():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 5):
        chat.turn(said, answer)
    chat.history[1:5] = [user("The following is a summary of your previous actions:\n\n[run] ls")]
    step = chat.turn("go on", "I will go on.")
    assert (step.event, step.verdict.summary, step.session.id) == ("compacted", 2, chat.session)


@pytest.mark.parametrize(("kept", "event"), [((1, 2, 3), "window"), ((0, 1, 2, 3), "retry"), ((0, 1, 2), "branch")])
def test_an_answer_that_is_left_out_with_an_older_text_of_the_user_was_not_taken_back(kept, event):
    """Some clients choose anew with every request which messages they send, by role or by what they are about."""
    lab, system = Lab(), {"role": "system", "content": SYSTEM}
    jobs = ("Billing", "The export", "The audit", "The backup")
    said = [user(f"{job} runs on day {n} of each month, at 03:4{n}.") for n, job in enumerate(jobs)]
    answers = [assistant(f"Good, number {n} is written down with its time.") for n in range(4)]
    before = ([], [said[0], answers[0]], [said[0], said[1], answers[1]], said[:3])
    for shown, asked, answer in zip(before, said, answers, strict=True):
        lab.answer(lab.ask([system, *shown, asked]), answer)
    more = [] if event == "retry" else [user("Which of them is the first?")]
    step = lab.ask([system, *(said[n] for n in kept), *more])
    assert (step.session.id, step.event) == ("ses_1", event)


def test_what_stood_before_the_last_turns_is_lost_with_it_though_each_question_begins_with_a_picture():
    chat, asked = Chat(Lab(), named="one"), list[str]()
    for n, (said, answer) in enumerate(turns("zephyr", 8)):
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,iVBORw0KGgo{n}"}}
        chat.history.append({"role": "user", "content": [picture, {"type": "text", "text": said}]})
        chat.lab.answer(chat.send(), assistant(answer))
        chat.history.append(assistant(answer))
        asked.append(said)
    chat.history = [*map(user, asked[:4]), user(summary_of("zephyr", 4)), *chat.history[-8:], user("Go on.")]
    step = chat.send()
    chat.lab.answer(step, assistant("I go on with it."))
    chat.history = [*chat.history[-7:], assistant("I go on with it."), user("And what comes now?")]
    chat.system = f"{SYSTEM}\n\n{summary_of('zephyr', 6)}"
    assert (step.event, chat.send().event) == ("compacted", "compacted")
