"""Asides over the history in another form, and agents that hand over to each other.

What its client never shows again is none of the conversation.
"""

import json
from collections.abc import Callable

import pytest
from chats import STYLES, SYSTEM, TOOLS, Chat, Lab, Wire, assistant, called, result, summary_of, transcript, turns, user

from lantern_proxy.follow import Step, follow, reply
from lantern_proxy.turn import Identity
from lantern_proxy.wire import responses

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


def test_a_step_of_a_turn_without_tools_is_none_beside_it_though_the_client_asks_like_that_in_vain():
    chat = Chat(Lab(), named="x", tools=TOOLS)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
        beside(chat, "next speaker, without tools")
    chat.history.append(user("Go on."))
    step, call = chat.send(), called("call_0001", "read_file", path="notes.txt")
    chat.lab.answer(step, call)
    chat.history += [call, result("call_0001", "Nothing is left to be done.")]
    last = chat.send(tools=())
    assert (beside(chat, "next speaker, without tools").event, last.event) == ("side", "turn")
    assert last.session.id == step.session.id


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
    assert chat.lab.index.sessions[chat.session].asides == {}


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


@pytest.mark.parametrize("dress", ["without its thoughts", "without its sources", "masked"])
def test_a_mode_whose_answers_are_shown_in_another_dress_is_a_turn_however_often_it_is_used(dress):
    chat, events = Chat(Lab()), []
    for n, (said, answer) in enumerate(turns("zephyr", 14)):
        made, shown = {
            "without its thoughts": (f"<think>Let me see {n}.</think>\n\n{answer}", answer),
            "without its sources": (f"{answer}\n\nSources: [1] http://a/{n} [2] http://b/{n}", answer),
            "masked": (answer, answer.replace("zephyr", "<NAME>")),
        }[dress]
        chat.history.append(user(said))
        step = chat.send(tools=("web_search",) if n % 3 == 1 else ())
        chat.lab.answer(step, assistant(made))
        chat.history.append(assistant(shown))
        events.append(step.event)
    assert events == ["new", *["turn"] * 13]
    said = {f.key for f in chat.lab.kept[step.session.id].filed if f.message.role == "user"}
    assert said.isdisjoint(step.session.abandoned)


def test_a_conversation_that_was_handed_over_before_a_restart_is_compacted_under_those_orders():
    chat = Chat(Lab(), named="x")
    chat.system, chat.tools = AGENTS["triage"]
    chat.history.append(user("What does the gateway cost?"))
    step, dated = hand_over(chat, "clerk"), AGENTS["clerk"][0] + " Today is 2026-05-0{}."
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        chat.lab.answer(step, assistant(answer))
        chat.history += [assistant(answer), user(said)]
        chat.system = dated.format(n)
        step = chat.send()
    chat.lab.answer(step, assistant("That is all of it."))
    chat.lab.restart()
    chat.system = dated.format(9)
    step = chat.send([chat.history[0], user(summary_of("zephyr", 6)), user("And now?")])
    assert (step.event, step.session.id) == ("compacted", "ses_1"), step.link.why


@pytest.mark.parametrize(
    "style", ["summary, then the question", "first user message and an assistant summary", "second system message only"]
)
def test_what_was_said_in_another_mode_right_before_a_compaction_is_gone_and_was_not_taken_back(style):
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    chat.tools = ("read_file", "ask_user")
    chat.turn("Plan the move of the data from Bergamo to Como.", "Plan: freeze on the 3rd of May, copy by night.")
    chat.tools = TOOLS
    step = chat.compact(STYLES[style], summary_of("zephyr", 4), "Now do the first step of the plan.", "Done.")
    texts = {f.key: f.message.text for f in chat.lab.kept[chat.session].filed}
    assert any("Plan: freeze" in texts[key] for key in step.verdict.gone)
    assert not any("Plan" in texts[key] for key in step.session.abandoned)


def test_a_client_that_sends_its_last_message_alone_may_offer_other_tools_each_time():
    chat, steps = Chat(Lab(), named="x"), []
    for n, (said, answer) in enumerate(turns("zephyr", 8)):
        chat.history.append(user(said))
        steps.append(chat.send(chat.history[-1:], tools=(*TOOLS, "web_search") if n % 2 else TOOLS))
        chat.lab.answer(steps[-1], assistant(answer))
        chat.history.append(assistant(answer))
    assert "side" not in {step.event for step in steps}
    assert not steps[-1].session.abandoned


def test_a_mode_whose_requests_failed_is_a_turn_once_they_succeed():
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    for said, answer in turns("amber", 3):
        chat.history.append(user(said))
        chat.lab.fail(chat.send(tools=(*TOOLS, "broken")))
        chat.history.pop()
        chat.turn(said, answer)
    chat.tools = (*TOOLS, "broken")
    assert [chat.turn(said, answer, reads="A row.").event for said, answer in turns("birch", 4)] == ["turn"] * 4


def test_a_request_of_the_conversation_beside_one_in_flight_is_none():
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 6):
        chat.history.append(user(said))
        step = chat.send()
        beside(chat, "sorted, all of it")
        chat.lab.answer(step, assistant(answer))
        chat.history.append(assistant(answer))
        assert (step.event, step.session.side) != ("side", True)


def test_what_goes_on_from_a_stored_answer_had_that_answer():
    lab, asked = Lab(), turns("zephyr", 4)

    def ask(said, tools, history=(), before=""):
        body = {"instructions": SYSTEM, "input": [*history, user(said)], "previous_response_id": before or None,
                "tools": [{"type": "function", "name": name, "parameters": {}} for name in tools]}  # fmt: skip
        request = responses.read(json.dumps(body).encode())
        return follow(lab.index, request, Identity(), now=lab.now, new_id=lambda: "ses_1")

    def answer(step, text):
        parts = [{"type": "output_text", "text": text}]
        message = {"type": "message", "id": lab.call_id(), "role": "assistant", "content": parts}
        body = {"id": f"resp_{message['id']}", "status": "completed", "output": [message]}
        reply(lab.index, step.session, responses.read_answer(json.dumps(body).encode(), streamed=False), now=lab.now)
        return body["id"]

    answer(ask(asked[0][0], TOOLS), asked[0][1])
    history = [user(asked[0][0]), assistant(asked[0][1])]
    stored = answer(ask(asked[1][0], (*TOOLS, "web"), history), asked[1][1])
    for said, told in asked[2:]:
        step = ask(said, TOOLS, before=stored)
        assert (step.event, dict(step.session.abandoned)) == ("turn", {})
        stored = answer(step, told)


@pytest.mark.parametrize("again", ["the same", "other words"])
def test_who_asks_again_behind_a_summary_in_a_new_system_prompt_is_where_the_summary_is(again):
    chat = Chat(Lab(), system="", tools=TOOLS)
    for said, answer in turns("zephyr", 5):
        chat.turn(said, answer)
    chat.system, chat.history = summary_of("zephyr", 5), chat.history[-2:]
    assert chat.turn("Sort the next of them.", "Sorted.").event == "compacted"
    kept = chat.lab.index.sessions[chat.session]
    chat.history = [*chat.history[:-2], user("Sort the next of them." if again == "the same" else "Sort the last one.")]
    step = chat.send()
    assert step.event == ("retry" if again == "the same" else "branch")
    assert step.session.lost
    assert not step.session.asides
    assert step.session.keys >= kept.keys


# --- handing over ---------------------------------------------------------------------------------------------------

AGENTS = {
    "triage": (
        "You find out who knows most about what is asked, and hand over to that agent.",
        ("to_coder", "to_clerk"),
    ),
    "coder": ("You write code in small steps and run the tests after each of them.", ("write_file", "run", "to_clerk")),
    "clerk": ("You answer questions about bills, in one sentence and without any tools.", ()),
}


def hand_over(chat: Chat, to: str, *, renamed: bool = False) -> Step:
    """The model calls for another agent, and that one is asked."""
    call_id = chat.lab.call_id()
    step = chat.send()
    chat.lab.answer(step, called(call_id, f"to_{to}"))
    shown_as = chat.lab.call_id() if renamed else call_id
    chat.history += [called(shown_as, f"to_{to}"), result(shown_as, "Handed over.")]
    chat.system, chat.tools = AGENTS[to]
    return chat.send()


@pytest.mark.parametrize("to", [("coder",), ("clerk",), ("coder", "clerk")])
@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("named", ["", "x"])
@pytest.mark.parametrize("back", [False, True])
def test_a_conversation_that_is_handed_over_goes_on_under_other_orders(to, renamed, named, back):
    chat, events = Chat(Lab(), named=named), []
    chat.system, chat.tools = AGENTS["triage"]
    for n, (said, answer) in enumerate(turns("zephyr", 8)):
        chat.history.append(user(said))
        agent = to[n // 2 % len(to)]
        if chat.tools and (back or (chat.system, chat.tools) != AGENTS[agent]):
            step = hand_over(chat, agent, renamed=renamed)
        else:
            step = chat.send()
        chat.lab.answer(step, assistant(answer))
        chat.history.append(assistant(answer))
        events.append(step.event)
        if back:
            chat.system, chat.tools = AGENTS["triage"]
    assert set(events) == {"turn"}
    assert len(chat.lab.kept) == 1
    assert not step.session.abandoned


@pytest.mark.parametrize(
    ("last", "tools", "event"),
    [(None, ("write_file", "run"), "window"), (None, (), "side"), ("Is the last step safe?", ("judge",), "side")],
)
def test_who_takes_a_conversation_over_without_its_calls_goes_on_with_it(last, tools, event):
    """OpenAI Agents' remove_all_tools leaves out every call, also that by which the model hands over."""
    chat = Chat(Lab())
    chat.system, chat.tools = AGENTS["triage"]
    for n, (said, answer) in enumerate(turns("zephyr", 3)):
        chat.turn(said, answer, reads=f"The notes of day {n} name port {9443 + n}." if n == 1 else "")
    chat.history.append(user("Write the export."))
    chat.lab.answer(chat.send(), called(chat.lab.call_id(), "to_coder"))
    chat.history = [m for m in chat.history if m["role"] != "tool" and not m.get("tool_calls")]
    chat.history += [user(last)] if last else []
    chat.system, chat.tools = AGENTS["coder"][0], tools
    step = chat.send()
    assert step.event == event
    assert step.session.lost == (event == "window")


@pytest.mark.parametrize(
    "style", ["summary, then the question", "appended to the system prompt only", "appended to the system prompt, tail"]
)
def test_an_agent_that_takes_over_again_may_come_with_a_summary(style):
    chat = Chat(Lab(), named="x")
    chat.system, chat.tools = AGENTS["coder"]
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    chat.history.append(user("Who pays for it?"))
    step = hand_over(chat, "clerk")
    chat.lab.answer(step, assistant("The office in Como does, at the end of May."))
    chat.history.append(assistant("The office in Como does, at the end of May."))
    chat.system, chat.tools = AGENTS["coder"]
    step = chat.compact(STYLES[style], summary_of("zephyr", 3), "Then write the export.", "Done.")
    assert (step.event, step.session.id) == ("compacted", "ses_1")


def test_a_task_with_the_results_of_calls_and_more_words_is_still_another_use_of_a_conversation():
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    call_id = chat.lab.call_id()
    chat.history.append(user("Read the notes."))
    chat.lab.answer(chat.send(), called(call_id, "read_file", path="notes.txt"))
    chat.history += [called(call_id, "read_file", path="notes.txt"), result(call_id, "The port is 9443.")]
    judge = [{"role": "system", "content": SORT}, *chat.history, user("Is the last step safe?")]
    assert chat.lab.ask(judge).event == "side"
    assert chat.send().event == "turn"


def test_a_suggestion_that_its_user_took_up_is_theirs_and_no_summary():
    """Chats like Open WebUI have questions suggested and searches thought up in between, from what was said last."""
    chat = Chat(Lab(), system="")
    said = [
        "Hello! We plan a trip to Bohinj in June, two adults and a child.",
        "By car from Graz; our child is allergic to hazelnuts, and we have 2350 euros in total.",
        "We booked the apartment by the lake, and the confirmation code of it is BK-77419.",
        "What are the best family-friendly hikes around the lake for a child of six years?",
        "And where can we eat?",
    ]

    def aside(task: str, answer: str) -> Step:
        shown = "\n".join(f"{m['role'].upper()}: {m['content']}" for m in chat.history[-6:])
        step = chat.lab.ask([user(f"### Task:\n{task}\n### Chat History:\n<chat_history>\n{shown}\n</chat_history>")])
        chat.lab.answer(step, assistant(answer))
        return step

    for n, text in enumerate(said):
        chat.history.append(user(text))
        looked = aside("Think of searches that help with the answer.", f'{{"queries": ["bohinj {n}"]}}')
        step = chat.send()
        answer = f"That is a good question about the lake, and the answer number {n} is in the guide."
        chat.lab.answer(step, assistant(answer))
        chat.history.append(assistant(answer))
        assert (step.event, looked.event) == (("turn", "side") if n else ("new", "new"))
        following = [*said, "Is the water warm?"][n + 1]
        wished = aside("Suggest what the user may ask next.", json.dumps({"follow_ups": [following, "Is it far?"]}))
        assert wished.event == "side"


@pytest.mark.parametrize("rounds", [1, 3])
def test_drafts_that_a_client_does_not_keep_are_taken_back_and_not_lost(rounds):
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 2):
        chat.turn(said, answer)
    for n, (said, answer) in enumerate(turns("zephyr", 4, start=2)):
        chat.history.append(user(said))
        drafts = []
        for k in range(rounds):
            draft = assistant(
                f"Draft {k} of answer {n}: one could look at the plan first, and then see about the rest."
            )
            chat.lab.answer(chat.send([*chat.history, *drafts]), draft)
            drafts += [draft, user("That is not valid JSON: expecting value. Correct it.")]
        step = chat.send([*chat.history, *drafts])
        chat.lab.answer(step, assistant(answer))
        chat.history.append(assistant(answer))
        assert (step.event, step.session.id) == ("turn", chat.session)
        after = chat.turn(f"And what of point {n}?", f"Point {n} is settled.")
        assert (after.event, after.session.id) == ("turn", chat.session)
        assert len(after.verdict.abandoned) == 2 * rounds


def test_what_its_client_called_for_in_between_is_lost_when_it_goes():
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer, reads="The port of zephyr is 9443, and its certificate ends on 4 May.")
    chat.history[-3:-1] = []
    assert chat.turn("And what of the rest?", "It is settled.").event in ("window", "cleared")


SHORT = {
    "en": [("My bike FR-5519 squeaks", "Front brake or rear?"), ("Rear", "Clean the disc"), ("Done", "Sand the pads"),
           ("Thanks!", "You are welcome!")],
    "zh": [("车架号是FR-5519。", "前刹还是后刹。"), ("后刹。", "清洁。"), ("还是响。", "打磨。"), ("谢谢。", "好。")],
    "ja": [("番号はFR-5519。", "前ですか。"), ("後ろ。", "拭いて。"), ("拭いた。", "削って。"), ("どうも。", "はい。")],
}  # fmt: skip


@pytest.mark.parametrize("line", ["{}: {}", "**{}:** {}", "<{}> {}", "### {}:\n{}\n"])
@pytest.mark.parametrize("language", SHORT)
def test_what_is_asked_of_a_transcript_of_short_lines_under_the_id_of_their_conversation_is_an_aside(language, line):
    """What comes next, a title: chat front ends ask so after every turn, many of them without a system prompt."""
    lab, headers = Lab(), {"x-openwebui-chat-id": "chat-1"}
    history: list = []
    for n, (said, answer) in enumerate(SHORT[language]):
        step = lab.ask([*history, user(said)], headers=headers)
        assert step.event == ("turn" if n else "new")
        lab.answer(step, assistant(answer))
        history += [user(said), assistant(answer)]
        told = "\n".join(line.format(m["role"].upper(), m["content"]) for m in history[-6:])
        beside = lab.ask(
            [user(f"### Task:\nSuggest what to ask next.\n<history>\n{told}\n</history>")], headers=headers
        )
        lab.answer(beside, assistant('{"next": ["?"]}'))
        assert (beside.event, beside.session.parent) == ("side", step.session.id), (n, beside.link.why)


def test_who_quotes_two_lines_of_the_conversation_in_a_question_goes_on_with_it():
    lab, headers = Lab(), {"x-openwebui-chat-id": "chat-1"}
    history: list = []
    for said, answer in SHORT["en"]:
        lab.answer(lab.ask([*history, user(said)], headers=headers), assistant(answer))
        history += [user(said), assistant(answer)]
    step = lab.ask([*history, user("You said to this: Done\nassistant: Sand the pads\nHow long?")], headers=headers)
    assert step.event == "turn"


@pytest.mark.parametrize("window", [5, 99])
def test_a_conversation_whose_stages_have_prompts_and_tools_of_their_own_goes_on_once_their_answers_are_shown(window):
    """Flow bots: the first request of a stage may be an aside, what a user says to its answer is not."""
    lab, history, steps = Lab(), [], []
    for n, (said, answer) in enumerate(turns("zephyr", 9)):
        stage = n // 3
        history.append(user(said))
        system = {"role": "system", "content": (SYSTEM, SORT, NEXT)[stage]}
        steps.append(lab.ask([system, *history[-window:]], tools=[f"{tool}_{stage}" for tool in TOOLS]))
        lab.answer(steps[-1], assistant(answer))
        history.append(assistant(answer))
    assert all(step.event != "side" for n, step in enumerate(steps) if n % 3)
    assert len({step.session.id for step in steps if step.event != "side"}) == 1
    assert steps[-1].event == ("turn" if window > 20 else "window")


def test_a_short_prompt_that_goes_on_otherwise_with_every_turn_is_the_conversations_behind_a_compaction_too():
    def prompt(n: int) -> str:
        state = f"cwd=/srv/{n}\nUptime {n * 7}s; nonce {n * 2654435761 % 2**48:x}"
        return f"You are a helpful assistant.\nNow: 10:{n:02d} {state}"

    chat = Chat(Lab(), named="x")
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        chat.system = prompt(n)
        chat.turn(said, answer)
    orders = {"role": "system", "content": "You are a helpful translator. Answer in French."}
    assert chat.lab.ask([orders, user("How are you?")], headers=chat.headers).event == "side"
    chat.system, chat.history = prompt(9), []
    step = chat.turn(f"{summary_of('zephyr', 6)}\n\nAnd now?", "Now it is done.")
    assert (step.event, step.session.id) == ("compacted", chat.session)


@pytest.mark.parametrize("count", [8, 6])
def test_what_reads_over_a_conversation_under_orders_of_its_own_is_no_turn_though_no_word_says_so(count):
    """In any language: nobody asks anything in a history that ends in an answer."""
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    orders = {"role": "system", "content": "Gib den gesamten Dialog in höchstens fünf Sätzen wieder."}
    read = chat.lab.ask([orders, *chat.history[:count]])
    assert read.event == "side", read.link.why
    chat.lab.answer(read, assistant("Es ging um zephyr."))
    assert chat.turn("And the ports?", "They stay.").event == "turn"


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("heading", ["Summary of conversation earlier: {}", "总结此前的对话:{}"])
def test_a_summary_in_a_system_prompt_where_there_was_none_is_the_conversations_not_a_call_for_one(seen, heading):
    chat = Chat(Lab(), system="")
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    summary = summary_of("zephyr", 5)
    if seen:
        chat.summarise("transcript under another system prompt", summary)
    chat.system, chat.history = heading.format(summary), chat.history[-2:]
    for n, said in enumerate(("Which knob was it?", "And its number?")):
        step = chat.turn(said, "The burst.")
        assert (step.event, step.session.id) == ("turn" if n else "compacted", chat.session), step.link.why


def test_a_summary_that_is_brought_up_to_date_with_the_last_turns_is_a_side_call():
    chat = Chat(Lab(), system="")
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    chat.summarise("transcript under another system prompt", summary := summary_of("zephyr", 5))
    orders = {"role": "system", "content": f"You summarize a conversation. Its summary so far: {summary}"}
    again = chat.lab.ask(
        [orders, *chat.history[-4:], user("Now extend the summary by the messages of the conversation.")]
    )
    assert again.event == "side", again.link.why


WISHES = ("把上面的对话整理成结构化摘要。", "Now write a summary of the above.", "Schreibe eine Zusammenfassung.")


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("in_front", [False, True])
@pytest.mark.parametrize("tools", [TOOLS, ()])
def test_a_transcript_under_the_same_prompt_and_tools_with_a_wish_for_a_summary_is_a_side_call(wish, in_front, tools):
    chat, told = Chat(Lab(), tools=tools), ""
    for said, answer in turns("zephyr", 25):
        chat.turn(said, answer)
    for n in range(2):
        before = f"<previous-summary>\n{told}\n</previous-summary>\n" if told and not in_front else ""
        lines = f"{before}<conversation>\n{transcript(chat.history[1:-3])}\n</conversation>"
        step = chat.send([user(f"{wish}\n\n{lines}" if in_front else f"{lines}\n\n{wish}")])
        assert (step.event, step.session.parent) == ("side", chat.session), (n, step.link.why)
        chat.lab.answer(step, assistant(told := summary_of("zephyr", 3 + n)))
        chat.history[1:-3] = [assistant(f"[compacted summary]\n{told}")]
        for at, (said, answer) in enumerate(turns("amber", 3, start=3 * n)):
            step = chat.turn(said, answer)
            assert (step.event, step.session.id) == ("turn" if at else "compacted", chat.session), (n, step.link.why)


@pytest.mark.parametrize("asked", ["What does the summary say of the port?", "Go on with the port."])
def test_a_text_that_calls_itself_a_summary_in_front_of_what_was_said_is_no_call_for_one(asked):
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 5):
        chat.turn(said, answer)
    assert chat.send([user(f"Summary so far:\n{transcript(chat.history[:-2])}\n\n{asked}")]).event != "side"


@pytest.mark.parametrize(
    "first", ["Needs the user's consent.", "pending", "line 1 of the log: it starts with the port"]
)
@pytest.mark.parametrize("dropped", [True, False])
def test_the_result_that_a_call_gets_in_place_of_the_one_it_waited_with_is_filed(first, dropped):
    """A consent, work in the background: clients write it where the first one stood, under the same id."""
    chat = Chat(Lab(), tools=TOOLS)
    chat.turn("Book the van for Monday.", "Which one?")
    chat.history += [user("The big one."), called("call_7", "run", what="van"), result("call_7", first)]
    chat.lab.answer(chat.lab.ask(chat.wire(chat.history[:-2]), tools=TOOLS), chat.history[-2])
    chat.lab.answer(chat.send(), assistant("I wait."))
    last = (
        f"{first} and then: booked under VX-9913, the driver is Olaf Brandt."
        if "line" in first
        else "It is VX-9913 now."
    )
    chat.history[-1] = result("call_7", last)
    if not dropped:
        chat.history += [assistant("I wait."), user("And?")]
    step = chat.send()
    assert step.session.id == chat.session
    assert last in chat.lab.texts(chat.session)
    again = chat.lab.texts(chat.session).count(last)
    chat.lab.answer(step, assistant("Booked."))
    chat.history.append(assistant("Booked."))
    assert chat.turn("Thanks.", "Welcome.").event == "turn"
    assert chat.lab.texts(chat.session).count(last) == again == 1


def test_what_a_client_writes_for_a_result_that_it_cleared_is_not_filed():
    chat = Chat(Lab(), tools=TOOLS)
    for n, (said, answer) in enumerate(turns("zephyr", 3)):
        chat.turn(said, answer, reads=f"The file says {n * 7919 + 1000} " * 20)
    for at, m in enumerate(chat.history[:-4]):
        if m["role"] == "tool":
            chat.history[at] = {**m, "content": "[cleared to save room]"}
    step = chat.turn("Go on.", "I go on.")
    assert step.event == "cleared"
    assert "[cleared to save room]" not in chat.lab.texts(chat.session)


@pytest.mark.parametrize("named", ["", "one"])
def test_a_side_call_goes_on_though_its_question_is_shown_with_more_behind_it(named):
    """It was none then: what its client has put behind the question since is as long as that."""
    chat = Chat(Lab(), tools=TOOLS, named=named)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    other = {"role": "system", "content": "You look things up for somebody else, and answer from what was said."}
    asked, answer = "Which number has the backoff of the retry policy?", "It is 3059, as it was set."
    step = chat.lab.ask([other, *chat.history, user(asked)], headers=chat.headers)
    assert step.event == "side"
    chat.lab.answer(step, assistant(answer))
    shown = user(f"{asked}\n\n<environment>{'The file web/login.tsx is open at line 7. ' * 5}</environment>")
    more = [other, *chat.history, shown, assistant(answer), user("And what was it before?")]
    step = chat.lab.ask(more, headers=chat.headers)
    assert (step.event, step.session.id) == ("turn", chat.session), step.link.why


NOTES = (
    "Put down notes of this session, for whoever takes over from you in a moment.\n\nDo not call any tools and leave "
    "the task as it is: what you answer is kept as it stands and is all that the next one gets to see. Name what was "
    "asked for and how far it has come, what has to be kept to, every path, port, branch and number that nobody could "
    "guess, what was decided and for which reason, and what comes next. Plain points, one a line, no more around them."
)
RECAP = "Your job now: a detailed summary of the conversation up to here, with every decision in it."


def at_work(behind: str) -> tuple[Chat, list[Wire]]:
    """A chat, and a history of it that ends in what is named."""
    chat = Chat(Lab(), tools=TOOLS)
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    if behind == "an answer":
        return chat, chat.history
    chat.history.append(user(turns("zephyr", 1, start=3)[0][0]))
    if behind == "a question":
        return chat, chat.history
    step = chat.send()
    if behind == "a question that was refused":
        chat.lab.fail(step)
        return chat, chat.history
    call = called(chat.lab.call_id(), "read_file", path="notes/zephyr.txt")
    chat.lab.answer(step, call)
    chat.history += [call, result(call["tool_calls"][0]["id"], "zephyr: port 4417, branch heron/9")]
    return chat, chat.history


@pytest.mark.parametrize(("wish", "behind", "event"), [
    (NOTES, "a question", "side"), (NOTES, "a result", "side"), (NOTES, "an answer", "turn"),
    (RECAP, "a result", "side"), (RECAP, "a question that was refused", "side"), (RECAP, "a question", "turn"),
    (RECAP, "an answer", "turn"),
])  # fmt: skip
def test_a_summary_wished_for_under_prompt_and_tools_while_the_model_is_at_work_is_its_clients(wish, behind, event):
    chat, history = at_work(behind)
    step = chat.send([*history, user(wish)])
    assert (step.event, step.link.side) == (event, event == "side"), step.link.why
    chat.lab.answer(step, assistant(summary_of("zephyr", 3)))
    chat.history = [user(f"What was done before:\n{summary_of('zephyr', 3)}\n\n{history[-1].get('content')}")]
    if event == "side":
        step = chat.send()
        assert (step.event, step.session.id) == ("compacted", chat.session), step.link.why


@pytest.mark.parametrize("wish", [NOTES, RECAP])
def test_a_person_who_asks_for_a_summary_while_the_model_is_at_work_goes_on_with_it(wish):
    chat, history = at_work("a result")
    chat.history = [*history, user(wish)]
    chat.lab.answer(chat.send(), assistant(summary_of("zephyr", 3)))
    chat.history.append(assistant(summary_of("zephyr", 3)))
    for said, answer in turns("zephyr", 3, start=4):
        step = chat.turn(said, answer)
        assert (step.event, step.session.id) == ("turn", chat.session), step.link.why


def test_a_summary_is_asked_for_again_after_a_failure_though_the_prompt_holds_the_summary_of_before():
    chat, tell = Chat(Lab(), tools=TOOLS, named="one"), "Write down what matters, for somebody else who goes on."
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    told = summary_of("zephyr", 4)
    chat.lab.answer(chat.lab.ask([user(transcript(chat.history))], headers=chat.headers), assistant(told))
    chat.history = [{"role": "system", "content": told}]
    for said, answer in turns("amber", 4):
        chat.turn(said, answer)
    for n in range(2):
        asked = [{"role": "system", "content": tell}, *chat.history, user("Write a summary of our conversation.")]
        step = chat.lab.ask(asked, tools=TOOLS, headers=chat.headers)
        assert (step.event, step.session.parent) == ("side", chat.session), (n, step.link.why)
        chat.lab.answer(step, assistant(summary_of("amber", range(n, 4))))
        step = chat.send([user(f"{summary_of('amber', range(n, 4))}\n\nGo on.")])
        assert step.event == "compacted"
        chat.lab.fail(step)


@pytest.mark.parametrize(
    ("own", "system", "shown"),
    [
        ("", "Rate the answers.", lambda said: said[2:]),
        ("", "Summarize the conversation for a colleague.", lambda said: said[2:-1]),
        (SYSTEM, "Summarize the conversation for a colleague.", lambda said: [*said[2:], user("Now write it.")]),
    ],
)
def test_what_is_made_of_the_end_of_a_conversation_under_another_prompt_is_no_turn_of_it(
    own: str, system: str, shown: Callable[[list[Wire]], list[Wire]]
) -> None:
    chat = Chat(Lab(), system=own)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    chat.system = system
    step = chat.send(shown(chat.history))
    assert (step.event, step.session.parent) == ("side", chat.session), step.link.why
