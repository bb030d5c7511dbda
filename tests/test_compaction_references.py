"""Clients that send earlier answers as references by id (Responses API): the upstream holds what they say."""

import json

import pytest
from chats import SYSTEM, Lab, summary_of, turns

from lantern_proxy.compaction import whole
from lantern_proxy.follow import Step, follow, reply
from lantern_proxy.turn import LOSSES, Identity, Request
from lantern_proxy.wire import responses


class Referring:
    """A client with its own history, in which answers are references."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.history, self.ids = lab, list[dict](), iter(range(100))
        self.system, self.identity, self.sessions = SYSTEM, Identity(), iter(range(1, 100))

    def request(self) -> Request:
        return responses.read(json.dumps({"model": "m", "instructions": self.system, "input": self.history}).encode())

    def send(self) -> Step:
        self.lab.now += 5
        step = follow(
            self.lab.index, self.request(), self.identity, now=self.lab.now, new_id=lambda: f"ses_{next(self.sessions)}"
        )
        self.lab._keep(step.session, step.filed)
        return step

    def turn(self, said: str, answer: str) -> Step:
        self.history.append({"role": "user", "content": said})
        step, named = self.send(), f"msg_{next(self.ids)}"
        self.history.append({"type": "item_reference", "id": named})
        content = [{"type": "output_text", "text": answer}]
        output = [{"type": "message", "id": named, "role": "assistant", "content": content}]
        found = responses.read_answer(json.dumps({"output": output}).encode(), streamed=False, complete=True)
        session, filed = reply(self.lab.index, step.session, found, now=self.lab.now)
        assert session is not None
        self.lab._keep(session, filed)
        return step


@pytest.fixture(params=[False, True], ids=["", "restarted"])
def client(request: pytest.FixtureRequest) -> Referring:
    """One with six turns behind it."""
    client = Referring(Lab())
    for n, (said, answer) in enumerate(turns("zephyr", 6)):
        assert client.turn(said, answer).event == ("turn" if n else "new")
    if request.param:
        client.lab.restart()
    return client


@pytest.mark.parametrize("kept", range(1, 11))
def test_a_window_over_references_is_one(client, kept):
    client.history = client.history[-kept:]
    assert client.turn("what was first?", "The retry policy.").event == "window"
    assert client.turn("and then?", "The export.").event == "turn"


@pytest.mark.parametrize(("chars", "event"), [(20, "cleared"), (None, "turn")])
def test_answers_that_are_no_references_any_more_are_cleared_where_they_are_short_now(client, chars, event):
    for at, (_, answer) in enumerate(turns("zephyr", 4)):
        text = answer if chars is None else f"{answer[:chars]}…"
        client.history[2 * at + 1] = {"role": "assistant", "content": text}
    assert client.turn("go on", "Yes.").event == event
    assert client.turn("and on", "As you wish.").event == "turn"


def test_what_a_reference_stands_for_is_no_more_missing_than_its_upstream_says(client):
    client.history = client.history[-4:]
    client.history.append({"role": "user", "content": "what was first?"})
    step, request = client.send(), client.request()
    held = whole(step.session.head, request)
    answers = [answer for _, answer in turns("zephyr", 6)]
    assert [m.text for m in held.messages if m.role == "assistant"] == answers[-2:]
    assert len(held.messages) == len(request.messages)


@pytest.mark.parametrize("thinks", [False, True])
def test_a_window_over_references_is_a_loss_and_a_branch_when_it_is_taken_back_though_times_changed(thinks):
    client, held = Referring(Lab()), list[dict]()

    def turn(said: str, answer: str) -> str:
        held.append({"role": "user", "content": said})
        age = next(client.ids)
        client.history = [
            m | {"content": f"[{age + len(held) - n} minutes ago] {m['content']}"} if "content" in m else m
            for n, m in enumerate(held)
        ]
        step, number = client.send(), next(client.ids)
        thought = [{"type": "reasoning", "id": f"rs_{number}", "summary": []}] if thinks else []
        content = [{"type": "output_text", "text": answer}]
        output = [*thought, {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}]
        held.extend({"type": "item_reference", "id": i["id"]} for i in output)
        found = responses.read_answer(json.dumps({"output": output}).encode(), streamed=False, complete=True)
        session, filed = reply(client.lab.index, step.session, found, now=client.lab.now)
        assert session is not None
        client.lab._keep(session, filed)
        return step.event

    for said, answer in turns("zephyr", 6):
        turn(said, answer)
    before, tail = list(held), 6 if thinks else 4
    held[:] = held[-tail:]
    assert turn("what was first?", "The retry policy.") in LOSSES
    assert turn("and then?", "The export.") == "turn"
    held[:] = before
    assert turn("back to where we were before", "All of it is here again.") == "branch"


def test_a_result_that_is_cleared_under_a_new_id_is_told_though_times_changed_beside_a_reference():
    client, held = Referring(Lab()), list[dict]()

    def send() -> Step:
        now = next(client.ids)
        client.history = [
            m | {"content": f"[{now + len(held) - n} minutes ago] {m['content']}"} if "content" in m else m
            for n, m in enumerate(held)
        ]
        return client.send()

    def answer(step: Step, *output: dict) -> None:
        found = responses.read_answer(json.dumps({"output": output}).encode(), streamed=False, complete=True)
        session, filed = reply(client.lab.index, step.session, found, now=client.lab.now)
        assert session is not None
        client.lab._keep(session, filed)

    def turn(said: str, text: str) -> str:
        held.append({"role": "user", "content": said})
        step, named = send(), f"msg_{next(client.ids)}"
        content = [{"type": "output_text", "text": text}]
        answer(step, {"type": "message", "id": named, "role": "assistant", "content": content})
        held.append({"type": "item_reference", "id": named})
        return step.event

    turn("hello", "Good morning.")
    held.append({"role": "user", "content": "read the notes"})
    call = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path": "notes.txt"}'}
    answer(send(), call)
    rows = "\n".join(f"row {n}: the quay of pier {n * 7} is closed" for n in range(20))
    held.extend([call, {"type": "function_call_output", "call_id": "call_1", "output": rows}])
    answer(
        send(),
        {
            "type": "message",
            "id": "msg_read",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "It is read."}],
        },
    )
    held.append({"type": "item_reference", "id": "msg_read"})
    for said, text in turns("zephyr", 3):
        assert turn(said, text) == "turn"
    at = held.index(call)
    held[at] = call | {"call_id": "call_9"}
    held[at + 1] = {"type": "function_call_output", "call_id": "call_9", "output": "[cleared]"}
    assert turn("what stands in row 3?", "The quay of pier 21.") == "cleared"
    assert turn("and in row 4?", "Pier 28.") == "turn"


def test_a_client_that_goes_back_to_a_branch_it_left_has_lost_nothing(client):
    before = [*client.history]
    client.history = client.history[:-2]
    assert client.turn("No, another way: leave the resizer alone.", "Left alone, as it was.").event == "branch"
    client.history = [*before]
    client.history[-2] = {
        "role": "user",
        "content": f"{before[-2]['content']}\n\n<open_files>\nweb/login.tsx\n</open_files>",
    }
    assert client.turn("and now?", "The limiter is next, and then the log.").event == "branch"
    assert client.turn("and then?", "The flags.").event == "turn"


def test_a_conversation_whose_title_came_first_under_its_id_is_one_from_its_second_turn_on():
    client = Referring(Lab())
    client.identity, client.system = Identity(ids=(("x-session-id", "one"),)), "Namen geben, in drei Worten."
    said, answer = turns("zephyr", 1)[0]
    client.turn(said, "Sturm im Protokoll")
    client.system, client.history = SYSTEM, []
    client.turn(said, answer)
    step = client.turn("And what of the other one?", "It stays as it is.")
    assert (step.event, step.session.side) == ("new", False)
    assert client.turn("Good, then go on.", "On we go.").event == "turn"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_window_that_goes_on_with_the_whole_history_lost_nothing_though_another_one_cut_texts_of_it(client, restarts):
    before = [*client.history]
    client.turn("Here we go on with the last one.", "The last one is done.")
    whole_one, client.history = client.history, [*before]
    assert client.turn("Leave it, and do the first one again.", "The first one is done again.").event == "branch"
    for at in (0, 2):
        client.history[at] = {"role": "user", "content": f"{client.history[at]['content'][:40]}… [truncated]"}
    assert client.turn("Then the second one.", "It is done.").event in LOSSES
    if restarts:
        client.lab.restart()
    client.history = whole_one
    assert client.turn("And what is next?", "The mails are.").event == "branch"


@pytest.mark.parametrize(("said", "event"), [("Write down what was said.", "retry"), ("ok", "branch")])
def test_a_compaction_without_an_answer_may_be_taken_back(said, event):
    client = Referring(Lab())
    for n, (_, answer) in enumerate(turns("zephyr", 6)):
        client.turn("ok" if n % 2 else "Go on.", answer)
    before, summary = [*client.history], summary_of("zephyr", 6)
    client.turn("Write down what was said.", summary)
    client.history = [{"role": "assistant", "content": f"This is where we are: {summary}"}]
    client.history.append({"role": "user", "content": "Go on."})
    failed = client.send()
    client.lab.fail(failed)
    client.history = before
    step = client.turn(said, "It is written down.")
    assert (failed.verdict.is_loss, step.event, step.session.id) == (True, event, failed.session.id)
