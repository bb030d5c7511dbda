"""Branches that are taken up in turn: a cloned chat, two versions of one question, stored answers."""

import itertools
import json

import pytest
from chats import Chat, Lab, Wire, assistant, called, parts, result, summary_of, turns, user
from msgspec.structs import replace

from lantern_proxy.follow import Step
from lantern_proxy.history import head_of
from lantern_proxy.history.branches import states_of
from lantern_proxy.wire import responses


def cloned(rounds: int) -> tuple[Chat, Chat]:
    """Two chats with the same four turns, and turns of their own in turn."""
    a = Chat(Lab())
    for said, answer in turns("zephyr", 4):
        a.turn(said, answer)
    b = Chat(a.lab, history=[*a.history], session=a.session)
    for ours, theirs in zip(turns("amber", rounds), turns("birch", rounds), strict=True):
        assert a.turn(*ours).session.id == b.turn(*theirs).session.id == a.session
    return a, b


def left(chat: Chat, word: str) -> list[str]:
    """Texts with `word` that the session has from branches that were left."""
    session = chat.lab.index.sessions[chat.session]
    texts = {f.key: f.message.text for f in chat.lab.kept[chat.session].filed}
    return [texts[key] for key in session.abandoned if word in texts[key]]


@pytest.mark.parametrize("rounds", [1, 6])
@pytest.mark.parametrize("kept", [5, 100])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_said_on_one_branch_is_none_of_the_other_one_s(rounds, kept, restarts):
    a, b = cloned(rounds)
    a.lab.restarts = restarts
    for n in range(3):
        for chat, own, other in ((a, "amber", "birch"), (b, "birch", "amber")):
            chat.history.append(user(f"And what was number {n} about, {other[0]}?"))
            step = chat.send(chat.history[-kept:])
            assert step.event == ("window" if kept == 5 else "branch"), step.link.why
            assert (len(left(chat, other)), len(left(chat, own))) == (2 * rounds, 0)
            chat.lab.answer(step, assistant(f"It was {n}, and so on."))
            chat.history.append(assistant(f"It was {n}, and so on."))


def test_of_a_compaction_on_a_branch_that_was_left_its_own_messages_are_gone():
    a, _ = cloned(6)
    step = a.compact(
        lambda c, s, q: (c.system, [user(s), *c.history[-2:], user(q)]), summary_of("amber", 6), "Next?", "Yes."
    )
    gone = {f.key: f.message.text for f in a.lab.kept[a.session].filed if f.key in step.verdict.gone}
    assert step.event == "compacted"
    assert any("amber" in text for text in gone.values())
    assert not any("birch" in text for text in gone.values())


def test_two_windows_go_on_by_turns_though_one_has_a_summary_for_a_system_prompt_where_there_was_none():
    one = Chat(Lab(), system="", named="one")
    for said, answer in turns("zephyr", 6):
        one.turn(said, answer)
        one.turn("Go on.", f"I do, {answer}")
    other = Chat(one.lab, system="", named="one", history=[*one.history], session=one.session)
    step = one.compact(lambda c, s, q: (s, [user(q)]), summary_of("zephyr", 6), "And what is next?", "The mill is.")
    assert step.event == "compacted"
    for n, (said, answer) in enumerate(turns("amber", 3)):
        for chat in (other, one):
            step = chat.turn("Go on." if chat is one else said, f"{answer} {n}")
            assert (step.event, step.session.id) == ("branch", one.session), step.link.why


def test_a_user_who_edits_again_and_again_is_on_the_last_branch():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    kept = [*chat.history]
    for n in range(6):
        chat.history = [*kept]
        assert chat.turn(f"Version {n} of what I want.", f"Answer {n}.").event == ("branch" if n else "turn")
    step = chat.turn("Go on with that.", "Gladly.")
    assert (step.event, len(left(chat, "Version "))) == ("turn", 5)
    assert left(chat, "Version 5") == []


@pytest.mark.parametrize("kept", [3, 100])
def test_short_words_that_were_said_often_on_a_branch_that_was_left_do_not_lead_back_to_it(kept):
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 2):
        chat.turn(said, answer)
    before = [*chat.history]
    for n in range(6):
        chat.turn("Continue.", f"Part {n} of the old story about the harbour.")
    chat.history = [*before]
    chat.turn("No: write it about the mountains, with a hut in it.", "The hut of Bormio stands at 2400 m.")
    chat.turn("And who lives there, in the hut of Bormio?", "An old guide named Ulisse, of Bormio.")
    for n in range(3):
        chat.history.append(user("Continue."))
        step = chat.send(chat.history[-kept:])
        assert kept == 3 or step.event == "turn"
        assert left(chat, "Bormio") == []
        chat.lab.answer(step, assistant(f"And so on, mountain part {n}."))
        chat.history.append(assistant(f"And so on, mountain part {n}."))


def test_former_states_hold_no_former_states():
    a, b = cloned(6)
    session = a.lab.index.sessions[a.session]
    assert len(session.forks) == 1
    assert all(not each.forks and each.before_form is None for each in session.forks)
    assert b.session == a.session


def test_a_branch_that_was_left_counts_as_memory():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 2):
        chat.turn(said, answer)
    before = [*chat.history]
    chat.turn(f"Read this: {'word ' * 20_000}", "Read.")
    held = chat.lab.index.sizes[chat.session]
    chat.history = before
    chat.turn("Leave it.", "Gladly.")
    assert chat.lab.index.sizes[chat.session] > held


# --- answers that the upstream stores ------------------------------------------------------------------------------


class Stored:
    """Clients of one key that say only what is new, and behind which answer."""

    def __init__(self) -> None:
        self.lab = Lab()

    def ask(self, said: str, before: str = "", named: str = "", **more: object) -> Step:
        data = {"input": [user(said)], "previous_response_id": before or None, **more}
        request = responses.read(json.dumps(data).encode())
        return self.lab.take(request, {"x-session-id": named} if named else {})

    def turn(self, said: str, before: str = "", named: str = "", **more: object) -> tuple[Step, str]:
        """The request, and what its answer is called."""
        step = self.ask(said, before, named, **more)
        number = self.lab.call_id()
        content = [{"type": "output_text", "text": f"{said} That is noted."}]
        output = [{"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}]
        data = {"id": f"resp_{number}", "status": "completed", "output": output}
        self.lab.told(step, responses.read_answer(json.dumps(data).encode(), streamed=False))
        return step, f"resp_{number}"

    def talk(self, about: str, count: int, before: str = "") -> list[str]:
        """What the answers of so many turns are called."""
        names: list[str] = []
        for n in range(count):
            _, name = self.turn(f"Point {n} of {about}.", names[-1] if names else before)
            names.append(name)
        return names

    @staticmethod
    def shows(step: Step) -> list[str]:
        return [e.message.text for e in step.session.head if not e.produced]


@pytest.mark.parametrize("form", [
    {}, {"instructions": "Answer in one word."}, {"tools": [{"type": "function", "name": "look_up", "parameters": {}}]},
], ids=["nothing", "orders", "tools"])  # fmt: skip
@pytest.mark.parametrize(
    "said", ["Which part do I need?", "Summarise our conversation so far.", "Give this chat a title."]
)
def test_whatever_is_added_to_a_conversation_that_the_upstream_holds_is_its_next_turn(form, said):
    stored, tools = Stored(), [{"type": "function", "name": "read_file", "parameters": {}}]
    whole = {"conversation": "conv_71", "instructions": "You look after pumps.", "tools": tools}
    first, _ = stored.turn("Here is the manual of the pump.", **whole)
    stored.turn("Read it.", **whole)
    for step, _ in (stored.turn(said, conversation={"id": "conv_71"}, **form), stored.turn("Go on.", **whole)):
        assert (step.event, step.session.id) == ("turn", first.session.id), step.link.why
    other, _ = stored.turn("Which part do I need?", **(whole | {"conversation": "conv_72"}))
    assert (other.event, other.session.id == first.session.id) == ("new", False)


def test_a_conversation_of_the_upstream_is_no_chat_that_is_called_the_same():
    stored = Stored()
    stored.ids = stored.lab._ids
    asked = user("Is this a complaint? My pump is loud.")
    chat = stored.lab.ask([asked], metadata={"conversation_id": "conv_71"})
    stored.lab.answer(chat, assistant("No."))
    first, _ = stored.turn("My pump is loud.", conversation="conv_71")
    later, _ = stored.turn("Which valve does it have?", conversation="conv_71")
    assert (first.event, later.event) == ("new", "turn")
    assert later.session.id == first.session.id != chat.session.id


def test_who_names_a_stored_answer_goes_on_behind_it_under_whatever_id():
    stored = Stored()
    first, name = stored.turn("Here is the pump.", named="one")
    step = stored.ask("Which valve does it have?", name, named="two")
    assert (step.event, step.session.id) == ("turn", first.session.id), step.link.why


@pytest.mark.parametrize("restarts", [False, True])
def test_who_begin_behind_one_stored_answer_have_conversations_of_their_own(restarts):
    stored = Stored()
    stored.lab.restarts = restarts
    primer = stored.turn("Here is the manual of the pump.")[1]
    last = {who: stored.turn(f"I am {who}.", primer) for who in ("Rosa", "Emil", "Ida")}
    for who, (first, name) in last.items():
        step, _ = stored.turn("Which part do I need?", name)
        assert (step.event, step.session.id) == ("turn", first.session.id)
        assert not any(other in text for other in last if other != who for text in stored.shows(step))
    assert len({first.session.id for first, _ in last.values()}) == 3


@pytest.mark.parametrize("restarts", [False, True])
def test_who_goes_back_to_a_stored_answer_is_on_a_branch_and_may_come_back(restarts):
    stored = Stored()
    stored.lab.restarts = restarts
    names = stored.talk("the harbour", 5)
    there, other = stored.turn("And of the bridge?", names[2])
    assert there.event == "branch"
    assert stored.shows(there) == ["Point 0 of the harbour.", "Point 1 of the harbour.", "Point 2 of the harbour.",
                                   "And of the bridge?"]  # fmt: skip
    assert len(there.session.abandoned) == 4
    further, _ = stored.turn("Who built it?", other)
    assert (further.event, further.session.abandoned) == ("turn", there.session.abandoned)
    back, _ = stored.turn("And point 5?", names[-1])
    assert (back.event, back.session.id) == ("branch", there.session.id)
    assert stored.shows(back) == [*(f"Point {n} of the harbour." for n in range(5)), "And point 5?"]
    assert len(back.session.abandoned) == 4


def test_a_client_that_shows_answers_by_their_ids_comes_back_to_a_branch_that_it_left():
    """What its user said tells no branch: it has another time with every request."""
    stored, clock = Stored(), itertools.count(10)

    def turn(history: list[tuple[str, str]], said: str) -> Step:
        now = next(clock)
        shown = [(user(f"[{now - 2 * n} minutes ago] {text}"), name) for n, (text, name) in enumerate(history)]
        before = [item for asked, name in shown for item in (asked, {"type": "item_reference", "id": name})]
        step, name = stored.turn(said, input=[*before, user(f"[0 minutes ago] {said}")])
        history.append((said, name.replace("resp_", "msg_")))
        return step

    history = list[tuple[str, str]]()
    first, *_ = [turn(history, f"Point {n} of the harbour.") for n in range(4)]
    other = history[:-1]
    assert turn(other, "Leave the harbour. Who built the bridge?").event == "branch"
    back = turn(history, "And what is point 4?")
    assert (back.event, back.session.id) == ("branch", first.session.id), back.link.why
    assert [f.message.text for f in back.filed] == ["[0 minutes ago] And what is point 4?"]


@pytest.mark.parametrize("count", [1, 2])
def test_what_got_no_answer_may_be_asked_again_behind_the_same_stored_one(count):
    stored = Stored()
    names = stored.talk("the harbour", count)
    stored.lab.fail(stored.ask("And of the bridge?", names[-1]))
    step, _ = stored.turn("And of the bridge?", names[-1])
    assert (step.event, dict(step.session.abandoned)) == ("turn", {})


def test_behind_a_stored_answer_of_a_branch_that_was_let_go_another_conversation_begins():
    stored = Stored()
    names = stored.talk("the harbour", 2)
    ends = [stored.talk(f"branch {n}", 2, names[-1])[-1] for n in range(7)]
    step, _ = stored.turn("Go on.", ends[1])
    assert (step.event, stored.shows(step)) == ("new", ["Go on."])
    assert stored.turn("Go on.", ends[5])[0].event == "branch"


def behind_thought(answer: str) -> dict[str, str]:
    return assistant(f"<think>\nThey want it short, so I say little.\n</think>\n\n{answer}")


@pytest.mark.parametrize(("kept", "event"), [(4, "retry"), (2, "window")])
def test_a_summary_that_stood_for_nothing_that_is_gone_may_be_taken_back_but_not_with_what_it_stood_for(kept, event):
    lab, summary = Lab(), summary_of("zephyr", 2)
    chat = Chat(lab, named="one")
    for said, answer in turns("zephyr", 2):
        chat.history.append(user(said))
        lab.answer(chat.send(), behind_thought(answer))  # which its client leaves out
        chat.history.append(assistant(answer))
    asked = lab.ask(chat.wire([*chat.history, user("Write down what was said.")]), headers=chat.headers)
    lab.answer(asked, assistant(summary))
    first, *rest = chat.history
    shown = [first, assistant(f"<summary>\n{summary}\n</summary>"), *rest[-kept + 1 :]]
    lab.fail(chat.send([*shown, user("And now the third one, please.")]))  # the upstream found it too long
    step = chat.send([first, *rest[-kept + 1 :], user("Write down what was said.")])
    assert step.event == event, step.verdict


def test_who_takes_back_a_compaction_that_failed_goes_on_with_the_summary_of_before():
    chat = Chat(Lab())
    for n, theme in enumerate(("zephyr", "amber", "birch")):
        for said, answer in turns(theme, 5):
            chat.turn(said, answer)
        told, (*whole, asked, last) = summary_of(theme, range(n, 5)), chat.history
        wished = [*whole, parts(asked["content"], "Schreib auf, was gesagt wurde."), last]
        chat.lab.answer(chat.send(wished), assistant(told))
        said = f"This session is being continued from a previous conversation.\n{told}\n\n{asked['content']}"
        chat.history = [user(said), last, user("And now?")]
        failed = chat.send()
        chat.lab.fail(failed)
        again = chat.send(wished)
        assert (failed.event, again.verdict.is_loss, again.session.id) == ("compacted", False, chat.session), n
        chat.lab.answer(again, assistant(told))
        step = chat.send()
        assert step.session.id == chat.session
        chat.lab.answer(step, assistant("Now the rest."))
        chat.history.append(assistant("Now the rest."))


def test_a_call_that_a_client_puts_in_front_of_each_summary_leads_to_no_branch_that_begins_with_one():
    chat = Chat(Lab(), named="one", tools=("recall",))

    def recalled(summary: str) -> list[Wire]:
        call_id = chat.lab.call_id()
        return [user("..."), called(call_id, "recall"), result(call_id, summary)]

    def talk(theme: str, count: int) -> list[str]:
        return [chat.turn(said, answer).event for said, answer in turns(theme, count)]

    talk("zephyr", 4)
    chat.history = [*recalled(summary_of("zephyr", 4)), *chat.history[-1:]]
    assert talk("amber", 2) == ["compacted", "turn"]
    before = [*chat.history]
    talk("birch", 1)
    chat.history = before
    assert talk("cedar", 1) == ["branch"]
    chat.history = [user(f"Summary so far: {summary_of('amber', 2)}"), assistant("OK."), *chat.history[-1:]]
    assert talk("dune", 4) == ["compacted", "turn", "turn", "turn"]
    chat.history = [*recalled(summary_of("dune", 4)), *chat.history[-1:]]
    assert talk("elm", 1) == ["compacted"]
    assert left(chat, "birch")
    assert not left(chat, "dune")


def test_of_two_windows_each_goes_on_behind_its_answer_without_the_thoughts_though_its_user_only_nods():
    lab = Lab()
    a = Chat(lab)
    for said, answer in turns("zephyr", 3):
        a.turn(said, answer)
    b = Chat(lab, history=[*a.history])
    answers, events = iter([*turns("amber", 4), *turns("birch", 4)]), []
    for chat, said in [(a, "continue"), (b, "Go on."), (b, "continue"), (a, "Yes, do that."), (b, "ok")]:
        chat.history.append(user(said))
        step, answer = chat.send(), next(answers)[1]
        lab.answer(step, behind_thought(answer))
        chat.history.append(assistant(answer))
        events.append(step.event)
    assert events == ["turn", "branch", "turn", "branch", "branch"], step.link.why


def windowed(lab: Lab, word: str, count: int, *, last: int) -> Chat:
    """A chat that shows only its last messages."""
    chat = Chat(lab)
    for said, answer in turns(word, count):
        chat.history.append(user(said))
        step = chat.send(chat.history[-last:])
        lab.answer(step, assistant(answer))
        chat.history.append(assistant(answer))
        chat.session = chat.session or step.session.id
    return chat


@pytest.mark.parametrize("restarts", [False, True])
def test_a_copy_that_goes_on_from_a_place_which_no_window_shows_any_more_is_a_session_of_its_own(restarts):
    lab = Lab()
    chat = windowed(lab, "zephyr", 6, last=3)
    lab.restarts = restarts
    copy = Chat(lab, history=chat.history[2:4])
    step = copy.send([*copy.history, user("Which one is the third?")])
    assert (step.event, step.session.id == chat.session) == ("new", False), step.link.why
    assert chat.send([*chat.history[-2:], user("Go on.")]).session.id == chat.session


def test_a_window_goes_on_from_before_an_aside_or_with_another_answer_to_its_last_question():
    lab = Lab()
    chat = windowed(lab, "zephyr", 6, last=3)
    asked = [*chat.history[-2:], user("Who speaks next, the user or you?")]
    lab.answer(chat.send(asked), assistant("The user does, I believe."))
    step = chat.send([*chat.history[-2:], user("Go on with that.")])
    assert step.session.id == chat.session, step.link.why
    others = [assistant(f"There are {n} of them, and the last one is new.") for n in ("three", "four")]
    steps = [step, chat.send([*chat.history[-2:], user("Go on with that.")])]
    for each, answer in zip(steps, others, strict=True):
        lab.answer(each, answer)
    for answer in others:
        shown = [user("Go on with that."), answer, user("Thanks.")]
        assert chat.send(shown).session.id == chat.session


def test_what_came_after_the_place_to_which_a_window_goes_back_is_abandoned():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 4):
        chat.turn(said, answer)
    left = chat.history[4:]
    step = chat.send([user("Notes of a colleague."), *chat.history[2:4], user("And how many of them are there?")])
    assert (step.event, step.session.id) == ("window", chat.session), step.verdict
    told = {f.key: f.message.text for f in chat.lab.kept[chat.session].filed}
    assert [told[key] for key in step.session.abandoned] == [m["content"] for m in left]


def test_a_branch_goes_on_though_the_other_one_asked_the_same_and_its_own_question_came_with_documents():
    a, b = cloned(1)
    again, answer = "Which of them is restarted first?", "The second one is restarted first."
    a.turn(again, answer)
    dressed = user(f"Context:\nA reset takes ten seconds.\n\nQuestion: {again}")
    step = b.send([*b.history[:-2], dressed])
    b.lab.answer(step, assistant(answer))
    shown = [*b.history[:-2], user(again), assistant(answer), user("Thanks.")]
    step = b.send(shown)
    assert step.event == "turn", step.verdict


def test_a_result_that_the_other_branch_looked_up_again_leads_to_nobody():
    lab = Lab()
    call = called("functions.run:0", "run", of="contract")
    read = result("functions.run:0", "contract 4711")
    found = [user("Look up the contract."), call, read]
    shown = [*found, assistant("I have it, and it is open.")]
    cleared = [*shown[:2], result("functions.run:0", "[cleared]"), shown[3]]
    sessions = set()

    def goes_on(*messages: Wire) -> Step:
        *asked, answer = messages
        step = lab.ask(asked, tools=["run"])
        lab.answer(step, answer)
        sessions.add(step.session.id)
        return step

    goes_on(*shown[:1], shown[1])
    goes_on(*found, shown[3])
    one = [user("Once more, please."), call, read]
    goes_on(*shown, *one[:2])
    goes_on(*cleared, *one, assistant("It is still open, as it was."))
    goes_on(*shown, user("Who signed it?"), assistant("Rosa Engel signed it."))
    goes_on(*cleared, user("Who signed it?"), assistant("Rosa Engel signed it."), user("When?"), assistant("In May."))
    step = lab.ask([*shown, user("What does it cost?")], tools=["run"])
    assert {*sessions, step.session.id} == {step.session.id}
    told = {f.key: f.message.text for f in lab.kept[step.session.id].filed}
    left = {told[key] for key in step.session.abandoned}
    assert left >= {"It is still open, as it was.", "Rosa Engel signed it.", "In May."}, step.verdict


def test_a_stored_answer_keeps_its_place_where_its_client_then_shows_the_history_itself():
    stored = Stored()
    names = stored.talk("the pump", 2)
    said = [f"Point {n} of the pump." for n in range(2)]
    whole = [message for text in said for message in (user(text), assistant(f"{text} That is noted."))]
    step, _ = stored.turn("", input=[*whole, user("Who speaks next?")])
    assert (step.event, step.session.id) == ("turn", "ses_1"), step.link.why
    one, _ = stored.turn("What does it weigh?", names[1])
    other, _ = stored.turn("What does it cost?", names[1])
    assert (one.session.id, other.session.id, other.event) == ("ses_1", "ses_1", "branch")
    assert stored.shows(other) == [*said, "What does it cost?"]
    assert len(other.session.abandoned) == 4


def test_an_aside_with_the_whole_history_is_no_other_conversation_behind_its_first_answer():
    stored = Stored()
    (name,) = stored.talk("the pump", 1)
    shown = [user("Point 0 of the pump."), assistant("Point 0 of the pump. That is noted.")]
    stored.turn("", input=[*shown, user("Who speaks next?")])
    step, _ = stored.turn("What does it weigh?", name)
    assert step.session.id == "ses_1", step.link.why


@pytest.mark.parametrize(("named", "edited", "known"), [
    (False, False, True), (False, True, False), (True, False, True), (True, True, True),
])  # fmt: skip
def test_after_a_restart_a_stored_answer_without_its_names_leads_back_only_where_no_branch_was_left(
    named, edited, known
):
    """An earlier version archived none."""
    lab = Lab()

    def turn(said: str, before: str = "") -> tuple[Step, str]:
        data = {"input": [user(said)], "previous_response_id": before or None}
        step = lab.take(responses.read(json.dumps(data).encode()))
        name = f"resp_{lab.call_id()}"
        content = [{"type": "output_text", "text": f"{said} That is noted."}]
        output = [{"type": "message", "id": f"msg_{name}", "role": "assistant", "content": content}]
        answer = {"id": name, "status": "completed", "output": output}
        lab.told(step, responses.read_answer(json.dumps(answer).encode(), streamed=False))
        return step, name

    name = before = ""
    for n in range(3):
        before = name
        first, name = turn(f"Point {n} of the pump.", name)
    if edited:
        turn("What does it weigh?", before)
    for kept in () if named else lab.kept.values():
        kept.filed = [replace(f, names=()) for f in kept.filed]
    lab.restart()
    step, _ = turn("What does it cost?", name)
    assert (step.session.id == first.session.id) is known, step.link.why
    assert len(step.session.abandoned) == (2 if edited and known else 0)


def test_a_session_has_its_branches_and_the_names_of_its_answers_after_restarts_too():
    stored = Stored()
    names = stored.talk("the harbour", 3)
    _, there = stored.turn("And of the bridge?", names[1])
    stored.turn("And what of point 3?", names[-1])
    stored.turn("Who built it?", there)

    def states() -> list[tuple[object, ...]]:
        session = stored.lab.index.sessions["ses_1"]
        return [
            (s.keys, {*s.abandoned}, s.position, s.chain, [(e.key, e.names, e.altered) for e in s.head])
            for s in (session, *session.forks)
        ]

    before = states()
    assert len(before) > 1
    for _ in range(2):
        stored.lab.restart()
        assert states() == before
        stored.lab.kept["ses_1"].head = head_of(stored.lab.index.sessions["ses_1"])


def test_a_copy_in_which_all_was_said_that_was_said_in_the_other_one_is_left_for_the_other_one():
    a, answer = Chat(Lab()), "We are open from 9 to 18, on Saturdays until noon."
    for said, told in turns("zephyr", 2):
        a.turn(said, told)
    b = Chat(a.lab, history=[*a.history], session=a.session)
    a.turn("Thanks.", answer)
    for said in "My contract is 4711.", "Thanks.":
        assert b.turn(said, answer).session.id == a.session
    a.turn("Thanks.", answer)
    assert left(a, "4711") == ["My contract is 4711."]


@pytest.mark.parametrize(("first", "then"), [
    (("Notes: none.", "My contract is 4711."), ("Notes: none.", "When do you open?")),
    (("My contract is 4711.", "(sent from the app)"), ("When do you open?", "(sent from the app)")),
], ids=["a memory in front", "a note behind each"])  # fmt: skip
def test_a_question_that_was_replaced_beside_a_text_that_stays_is_abandoned(first, then):
    chat = Chat(Lab())
    note = () if "app" not in first[-1] else (first[-1],)
    for said, answer in turns("zephyr", 2):
        chat.history.append(parts(said, *note))
        chat.lab.answer(chat.send(), assistant(answer))
        chat.history.append(assistant(answer))
    chat.lab.fail(chat.send([*chat.history, parts(*first)]))
    step = chat.send([*chat.history, parts(*then)])
    told = {f.key: f.message.text for f in chat.lab.kept[step.session.id].filed}
    assert any("4711" in told[key] for key in step.session.abandoned), step.verdict
    assert any("When do you open?" in f.message.text for f in step.filed)


def test_a_window_goes_on_though_the_times_in_it_move_and_its_answers_come_without_their_thoughts():
    lab, sessions, said = Lab(), [], [("Go on.", answer) for _, answer in turns("amber", 10)]
    for n, (_, answer) in enumerate(said):
        shown, now = (
            said[0 if n < 7 else 5 : n + 1],
            [],
        )  # of the first seven all was shown, then the last two, and more
        for ago, (asked, answered) in zip(range(len(shown), 0, -1), shown, strict=True):
            now += [user(f"[{ago} minutes ago] {asked}"), assistant(answered)]
        step = Chat(lab).send(now[:-1])
        lab.answer(step, assistant(f"<think>\nWhat did they say of it?\n</think>\n\n{answer}"))
        sessions.append(step.session.id)
    assert len(set(sessions)) == 1


def test_a_copy_goes_on_from_before_a_result_was_cleared_where_the_other_one_has_it_cleared_by_now():
    lab, calls = Lab(), [called(value, "run", of="hours") for value in ("call_1a2b3c4d5e", "call_6f7a8b9c0d")]
    found = [result(value, "weekdays 9-18, saturdays 9-12") for value in ("call_1a2b3c4d5e", "call_6f7a8b9c0d")]
    greeted, noted = assistant("Hello! How can I help you today?"), assistant("I have noted that.")
    said = [user("No."), calls[0], found[0], greeted, user("My contract is 05545555."), noted, user("And your hours?"),
            calls[1], found[1], greeted]  # fmt: skip
    for at in (1, 3, 5, 7, 9):
        shown = [result("call_1a2b3c4d5e", "[cleared]") if m is found[0] and at > 5 else m for m in said[:at]]
        lab.answer(lab.ask(shown, tools=("run",)), said[at])
    step = lab.ask([*said[:4], user("47139863")], tools=("run",))
    texts = {f.key: f.message.text for f in lab.kept[step.session.id].filed}
    assert step.event == "branch"
    assert "My contract is 05545555." in [texts[key] for key in step.session.abandoned]


def test_a_client_may_take_back_a_compaction_until_it_is_answered() -> None:
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    before, summary = chat.lab.index.sessions[chat.session].head, summary_of("zephyr", 6)
    chat.summarise("instruction at the end", summary)
    for answer in ("", "I go on with it."):
        step = chat.send([user(summary), user("Go on.")])
        assert (step.event, step.session.id) == ("compacted" if not answer else "retry", chat.session)
        assert before in [state.head for state in states_of(step.session)]
        chat.lab.answer(step, assistant(answer)) if answer else chat.lab.fail(step)
    assert before not in [state.head for state in states_of(chat.lab.index.sessions[chat.session])]
