"""Clients that write their history into the only text of every request: one session, its losses told, no other's."""

import pytest
from chats import SYSTEM, TOOLS, Chat, Lab, assistant, summary_of, turns, user

from lantern_proxy.follow import Step
from lantern_proxy.turn import LOSSES

TEMPLATES = {
    "a prompt": "The following is a talk of a human and an AI.\n\nCurrent conversation:\n{history}\n{said}\nAI:",
    "nothing around it": "{history}\n{said}\nAI:",
    "orders behind it": "You are a bot.\n{history}\n{said}\nAnswer in one line of JSON, and be brief.\nAI:",
    "tags": "<chat>\n{history}\n{said}\n<|assistant|>",
}


class Teller:
    """A client with a memory of lines. last: of how many lines the model is told, 0: all"""

    def __init__(
        self, lab: Lab, template: str = "a prompt", *, named: str = "", system: str = "", last: int = 0
    ) -> None:
        self.lab, self.template, self.last, self.system = lab, template, 0, system
        self.headers = {"x-session-id": named} if named else {}
        self.lines: list[str] = []
        self.session = ""

    def send(self, said: str) -> Step:
        user_name = "<|user|>" if self.template == "tags" else "Human:"
        history = "\n".join(self.lines[-self.last :] if self.last else self.lines)
        text = TEMPLATES[self.template].format(history=history, said=f"{user_name} {said}")
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self.lab.ask([*system, user(text)], headers=self.headers)

    def turn(self, said: str, answer: str) -> Step:
        step = self.send(said)
        self.lab.answer(step, assistant(answer))
        names = ("<|user|>", "<|assistant|>") if self.template == "tags" else ("Human:", "AI:")
        self.lines += [f"{names[0]} {said}", f"{names[1]} {answer}"]
        self.session = self.session or step.session.id
        return step


class Dated(Teller):
    """One whose history says how long ago the human spoke, each time anew."""

    def send(self, said: str) -> Step:
        held, count = self.lines, len(self.lines)
        self.lines = [line.replace("Human:", f"Human: [{count - n} minutes ago]") for n, line in enumerate(held)]
        step = super().send(f"[0 minutes ago] {said}")
        self.lines = held
        return step


@pytest.mark.parametrize("template", ["a prompt", "nothing around it", "orders behind it"])
def test_times_that_change_in_a_history_in_one_text_are_no_loss_and_hide_none(template):
    lab = Lab()
    teller = Dated(lab, template, named="one")
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        assert teller.turn(said, answer).event == ("turn" if n else "new")
    teller.last = 6
    assert teller.send("what was first?").event in LOSSES


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("named", ["", "one"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_history_in_one_text_is_one_session_that_loses_nothing_until_lines_are_left_out(template, named, restarted):
    lab = Lab()
    teller, other = Teller(lab, template, named=named), Teller(lab, template, named=named and "other")
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        assert teller.turn(said, answer).event == ("turn" if n else "new")
        assert other.turn(*turns("gamma", 1, start=n)[0]).session.id != teller.session
    if restarted:
        lab.restart()
    assert teller.turn("and now?", "Now it is done.").event == "turn"
    teller.last = 6
    step = teller.turn("what was first?", "The retry policy was.")
    assert (step.event, step.session.id, step.verdict.anchor) == ("window", teller.session, 0)
    assert step.verdict.asked.startswith(("Human: what was first?", "<|user|> what was first?"))
    teller.last = 8
    assert teller.turn("and then?", "Then the export.").event == "turn"
    assert other.turn("and yours?", "Mine, too.").session.id == other.session


def test_each_line_is_filed_once_as_it_was_written():
    teller = Teller(Lab(), "nothing around it")
    code = "look at this:\n\n    def f():\n\n        return 1"
    for said, answer in [("hello there, how are you?", "Fine."), (code, "It returns 1."), ("and why?", "Because.")]:
        teller.turn(said, answer)
    texts = teller.lab.texts(teller.session)
    assert [text.removesuffix("\nAI:").strip() for text in texts] == [
        "Human: hello there, how are you?", "Fine.", f"Human: {code}", "It returns 1.", "Human: and why?", "Because.",
    ]  # fmt: skip


def test_the_same_text_again_is_a_retry_and_another_last_line_is_a_branch():
    teller = Teller(Lab())
    for said, answer in turns("zephyr", 4):
        teller.turn(said, answer)
    step = teller.send("one thing more, please")
    teller.lab.fail(step)
    assert teller.send("one thing more, please").event == "retry"
    teller.lab.answer(teller.send("one thing more, please"), assistant("Here it is."))
    assert teller.send("one thing more, please").event == "retry"
    del teller.lines[-2:]
    assert teller.turn("another way then", "As you like.").event == "branch"


def test_orders_behind_a_cue_that_ends_in_a_space_stand_in_no_line_and_break_no_session():
    lab, lines, steps = Lab(), list[str](), []
    for said, answer in turns("zephyr", 5):
        now = "\n".join([*lines, f"### Human: {said}"])
        orders = "Answer in one sentence, and in English."
        step = lab.ask([user(f"A talk of a human and an AI.\n\n{now}\nAI: \n\n{orders}")])
        lab.answer(step, assistant(answer))
        lines += [f"### Human: {said}", f"AI: {answer}"]
        steps.append(step)
    assert [step.event for step in steps] == ["new", "turn", "turn", "turn", "turn"]
    assert not any("Answer in one sentence" in f.message.text for step in steps[1:] for f in step.filed)


@pytest.mark.parametrize("names", [("user", "assistant"), ("Human", "AI")])
@pytest.mark.parametrize("task", ["before", "behind"])
@pytest.mark.parametrize("named", ["", "one"])
def test_a_transcript_of_messages_is_no_turn_of_them(names, task, named):
    chat = Chat(Lab(), named=named)
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    pasted = "\n".join(f"{names[m['role'] == 'assistant']}: {m['content']}" for m in chat.history)
    told = "Three questions that may come next:"
    step = chat.send([user(f"{told}\n{pasted}" if task == "before" else f"{pasted}\n{told}")], tools=())
    assert step.event not in {"turn", "branch", *LOSSES} or step.session.id != chat.session


def test_a_question_and_its_answer_pasted_without_names_are_a_chat_of_their_own():
    lab = Lab()
    chat = Chat(lab)
    (said, answer), (more, _) = turns("zephyr", 2)
    chat.turn(said, answer)
    step = Chat(lab).send([user(f"{said}\n\n{answer}\n\n{more}")])
    assert (step.event, step.session.id != chat.session) == ("new", True)


def test_a_greeting_that_many_scripts_share_joins_none_of_them():
    lab = Lab()
    first, second, third = (Teller(lab) for _ in range(3))
    for teller in (first, second, third):
        assert teller.turn("hello", "Hello! How can I help you today?").event == "new"
    said = {teller: turns(project, 3) for teller, project in ((first, "zephyr"), (second, "gamma"), (third, "omega"))}
    for n in range(3):
        for teller in (first, second):
            assert teller.turn(*said[teller][n]).event == "turn"
    own = {text for teller in (first, second) for text in lab.texts(teller.session)}
    assert lab.kept.keys() >= {first.session, second.session}
    for session in lab.kept:
        projects = {name for name in ("zephyr", "gamma") for text in lab.texts(session) if name in text}
        assert len(projects) <= 1, own


def test_a_prompt_of_a_batch_that_begins_like_another_is_a_session_of_its_own():
    lab = Lab()
    prompt = "Classify the text by mood, and give one word as your answer.\nText: {}\nMood:"
    sessions = set()
    for said, answer in turns("zephyr", 6):
        step = lab.ask([user(prompt.format(said))])
        lab.answer(step, assistant(answer))
        sessions.add(step.session.id)
    assert len(sessions) == 6


def test_other_tools_or_another_system_prompt_make_a_script_no_turn():
    lab = Lab()
    teller = Teller(lab, system=SYSTEM)
    for said, answer in turns("zephyr", 3):
        teller.turn(said, answer)
    before, teller.system = teller.system, "You name things. Give a title of five words, no more, and nothing else."
    assert teller.send("and now?").event in ("side", "new")
    teller.system = before
    text = TEMPLATES["a prompt"].format(history="\n".join(teller.lines), said="Human: and now?")
    step = lab.ask([{"role": "system", "content": SYSTEM}, user(text)], tools=TOOLS)
    assert step.event in ("side", "new")


@pytest.mark.parametrize("last", [2, 4])
def test_scripts_that_end_in_the_same_words_are_not_taken_for_each_other_when_their_windows_show_no_more(last):
    lab = Lab()
    ends = [("is that all there is to it?", "That is all. Anything else?"), ("no, thank you", "You are welcome.")]
    tellers = {name: Teller(lab) for name in ("zephyr", "gamma")}
    for name, teller in tellers.items():
        for said, answer in [*turns(name, 6), *ends]:
            teller.turn(said, answer)
        teller.last = last
    for name, teller in tellers.items():
        step = teller.send("one thing more, please")
        other = tellers["gamma" if name == "zephyr" else "zephyr"]
        assert step.session.id != other.session, step.link.why


def test_a_script_that_is_not_known_gets_nothing_of_one_that_ended_in_the_same_words():
    lab = Lab()
    known, unknown = Teller(lab), Teller(lab)
    for said, answer in [*turns("zephyr", 6), ("no, thank you", "You are welcome.")]:
        known.turn(said, answer)
    for said, answer in [*turns("gamma", 6), ("no, thank you", "You are welcome.")]:
        unknown.lines += [f"Human: {said}", f"AI: {answer}"]
    assert unknown.send("one thing more, please").session.id != known.session


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("task", ["A title for this talk:", "Task: name three things that may come next."])
@pytest.mark.parametrize("named", ["", "one"])
def test_a_task_behind_a_script_is_no_turn_of_it(template, task, named):
    lab = Lab()
    teller = Teller(lab, template, named=named)
    for said, answer in turns("zephyr", 4):
        teller.turn(said, answer)
    step = lab.ask([user("\n".join([*teller.lines, task]))], headers=teller.headers)
    assert step.event not in {"turn", "branch", *LOSSES} or step.session.id != teller.session, step.link.why


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("named", ["", "one"])
def test_a_window_of_lines_that_begins_with_an_answer_is_followed_line_by_line(template, named):
    teller = Teller(Lab(), template, named=named)
    for said, answer in turns("zephyr", 6):
        teller.turn(said, answer)
    teller.last = 5
    first = teller.turn("and now?", "Now it is done, as you wanted it.")
    teller.last = 7
    same = teller.turn("what else is there to do?", "There is the export, which somebody has to start by hand.")
    teller.last = 8
    moved = teller.turn("who does that?", "Nobody does that.")
    assert [step.event for step in (first, same, moved)] == ["window", "turn", "window"]
    assert {step.session.id for step in (first, same, moved)} == {teller.session}


SUMMARY_CALL = "Sum up the new lines, adding to the summary.\n\nCurrent summary:\n{}\n\nNew lines:\n{}\n\nNew summary:"


class Summariser(Teller):
    """One that has a summary made of the lines that it tells its model no more. kept: how many it still tells"""

    def __init__(self, lab: Lab, template: str = "a prompt", *, named: str = "", kept: int = 0) -> None:
        super().__init__(lab, template, named=named)
        self.kept, self.summary = kept, ""

    def sum_up(self, summary: str) -> Step:
        lines = [line for line in self.lines if not line.startswith("System:")]
        end = max(0, len(lines) - self.kept)
        text = SUMMARY_CALL.format(self.summary, "\n".join(lines[:end]))
        step = self.lab.ask([user(text)], headers=self.headers)
        self.lab.answer(step, assistant(summary))
        self.summary, self.lines = summary, [f"System: {summary}", *lines[end:]]
        return step


@pytest.mark.parametrize("template", ["a prompt", "nothing around it", "orders behind it"])
@pytest.mark.parametrize("named", ["", "one"])
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
@pytest.mark.parametrize("restarted", [False, True])
def test_summaries_of_lines_are_side_calls_and_what_they_leave_out_is_lost(template, named, kept, restarted):
    lab = Lab()
    tellers = {name: Summariser(lab, template, named=named and name, kept=kept) for name in ("zephyr", "gamma")}
    said = {name: turns(name, 8) for name in tellers}
    for name, teller in tellers.items():
        for n in range(2):
            teller.turn(*said[name][n])
    for n in range(2, 8):
        for name, teller in tellers.items():
            assert teller.sum_up(summary_of(name, 2 * n)).event == "side"
            if restarted and n == 4:
                lab.restart()
            step = teller.turn(*said[name][n])
            assert (step.event in LOSSES, step.session.id) == (True, teller.session), (n, step.event, step.link.why)
            assert step.verdict.anchor == 0
    for name, teller in tellers.items():
        own = "\n".join(lab.texts(teller.session))
        assert all(each in own for turn in said[name] for each in turn)
        assert "gamma" not in own or name == "gamma"


@pytest.mark.parametrize("template", ["a prompt", "nothing around it"])
def test_lines_for_which_a_summary_stands_were_compacted_and_others_a_window(template):
    lab = Lab()
    summed, cut = Summariser(lab, template, kept=3), Teller(lab, template)
    for n in range(4):
        summed.turn(*turns("zephyr", 1, start=n)[0])
        cut.turn(*turns("gamma", 1, start=n)[0])
    cut.last = 5
    for n in range(4, 7):
        summed.sum_up(summary_of("zephyr", 2 * n))
        assert summed.turn(*turns("zephyr", 1, start=n)[0]).event == "compacted"
        assert cut.turn(*turns("gamma", 1, start=n)[0]).event == "window"


def test_a_summary_call_of_short_lines_is_a_side_call_by_the_summary_that_it_quotes():
    teller = Summariser(Lab())
    teller.turn(*turns("zephyr", 1)[0])
    for n, (said, answer) in enumerate([("go on", "Done."), ("and now?", "All done."), ("more", "No.")], start=1):
        assert teller.sum_up(summary_of("zephyr", 2 * n)).event == "side"
        step = teller.turn(said, answer)
        assert (step.event, step.session.id) == ("compacted", teller.session)


def test_scripts_that_begin_with_the_same_words_and_summary_are_not_taken_for_each_other():
    lab = Lab()
    greeting = ("Hello there, can you help me today?", "Hello! Of course, how can I help you today?")
    summary = "The human greets the AI and asks for its help, and the AI says that it will gladly help."
    tellers = {name: Summariser(lab) for name in ("zephyr", "gamma")}
    for teller in tellers.values():
        teller.turn(*greeting)
        teller.sum_up(summary)
    for n in range(3):
        for name, teller in tellers.items():
            teller.turn(*turns(name, 1, start=n)[0])
            teller.sum_up(f"{summary} {summary_of(name, 2 * n + 1)}")
    for session in lab.kept:
        texts = "\n".join(lab.texts(session))
        assert not ("zephyr" in texts and "gamma" in texts)


def test_an_unknown_script_gets_nothing_of_one_that_said_the_same_last():
    lab = Lab()
    known, unknown = Summariser(lab), Summariser(lab)
    last = ("thank you very much for all of it", "You are welcome, have a nice day and come back soon!")
    known.turn(*last)
    known.sum_up(summary_of("zephyr", 4))
    known.turn(*turns("zephyr", 1)[0])
    unknown.lines = [f"Human: {last[0]}", f"AI: {last[1]}"]
    unknown.sum_up(summary_of("gamma", 4))
    assert unknown.send("one thing more, please").session.id != known.session


def test_a_summary_that_two_scripts_got_gives_a_third_nothing_of_theirs():
    lab = Lab()
    summary = "The human greets the AI and asks for its help, and the AI says that it will gladly help."
    for name in ("zephyr", "gamma"):
        teller = Summariser(lab)
        teller.turn(*turns(name, 1)[0])
        teller.sum_up(summary)
    third = Summariser(lab)
    third.lines = [f"System: {summary}"]
    assert third.send("what did we speak of?").event == "new"


class Instructed(Teller):
    """One for whom the system says it all, behind instructions of its own."""

    def send(self, said: str) -> Step:
        lines = [line.replace(": ", ":\n", 1) for line in [*self.lines[-self.last :], f"Human: {said}"]]
        text = "\n".join(f"||>{line}" for line in lines)
        wire = [f"||>Instructions:\n{SYSTEM}\n\n", f"{text}\n||>AI:\n"]
        return self.lab.ask([{"role": "system", "content": text} for text in wire], headers=self.headers)


@pytest.mark.parametrize("named", ["", "one"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_script_that_the_system_tells_is_followed_as_if_the_user_told_it(named, restarted):
    lab = Lab()
    tellers = {name: Instructed(lab, named=named and name) for name in ("zephyr", "gamma")}
    said = {name: turns(name, 7) for name in tellers}
    for n in range(7):
        if restarted and n == 4:
            lab.restart()
        for name, teller in tellers.items():
            teller.last = 0 if n < 4 else 5
            step = teller.turn(*said[name][n])
            expected = "new" if not n else "turn" if n < 3 or teller.last == 0 else "window"
            assert (step.event, step.session.id) == (expected, teller.session), (n, step.link.why)
            assert n < 4 or step.verdict.anchor == 1
    for name, teller in tellers.items():
        own = "\n".join(lab.texts(teller.session))
        assert all(each in own for turn in said[name] for each in turn)


def test_a_system_prompt_that_has_the_model_speak_first_is_no_script():
    lab = Lab()
    prompt = {"role": "system", "content": f"{SYSTEM}\nYou speak first. Tell the user what you are there for."}
    hello = "Hello! I am here to look after the gateway. What shall I do for you today?"
    lab.answer(lab.ask([prompt]), assistant(hello))
    assert lab.ask([prompt, assistant(hello), user("Set the backoff to 4, please.")]).event == "turn"
