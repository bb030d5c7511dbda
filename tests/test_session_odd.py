"""Requests and memories that nobody means to make: a text of one sign, sessions of which only a part is in memory."""

import json
from collections.abc import Callable

import pytest
from clock import is_linear

from lantern_proxy.follow import follow, reply
from lantern_proxy.history.record import Session
from lantern_proxy.session import forget, link
from lantern_proxy.session.from_archive import recall
from lantern_proxy.session.index import SessionIndex
from lantern_proxy.turn import Answer, Filed, Head, Identity, Request
from lantern_proxy.wire import chat


def request(*said: tuple[str, str]) -> Request:
    return chat.read(json.dumps({"model": "m", "messages": [{"role": r, "content": c} for r, c in said]}).encode())


def answer(text: str) -> Answer:
    return Answer(messages=request(("assistant", text)).messages)


@pytest.mark.parametrize("sign", ["\n", "A", "=\n", "- - -\n", "<a>"])
def test_a_long_text_of_one_sign_is_linked_in_linear_time(sign):
    begun = "Summary of the conversation so far, for the model that goes on with it: "

    def linking(count: int) -> Callable[[], object]:
        found = request(("system", "Be kind."), ("user", begun + sign * count + " and that was all."))
        return lambda: link(SessionIndex(), found, Identity(), 0.0)

    assert is_linear(linking)


def test_the_answer_of_a_side_call_that_was_read_from_the_archive_begins_a_chat_of_its_own():
    index, said = (
        SessionIndex(),
        request(("user", "Name this chat, please, in three words"), ("assistant", "Sourdough advice")),
    )
    filed = [
        Filed(key=f"k{n}", position=n, turn=1, message=m, side=True, created_at=1.0)
        for n, m in enumerate(said.messages)
    ]
    side = Session(id="ses_1.side", api="chat", parent="ses_1", side=True, created_at=1.0, last_seen_at=1.0)
    recall(index, side, filed, Head())
    asked = request(("assistant", "Sourdough advice"), ("user", "What does that mean?"))
    assert link(index, asked, Identity(), 2.0).session is None


def test_a_session_that_left_memory_before_its_side_call_holds_nothing_up():
    """Two summaries begin alike; the session of the first is forgotten, its side call was seen later."""
    index, system, sessions = SessionIndex(), "You answer questions about the house and its garden.", []
    frame = (
        "Summary of the conversation so far, written so that the next model can go on with it without any gap at all: "
    )
    for topic in ("the boiler in the cellar", "the roses at the gate"):
        asked = f"Tell me all about {topic}, in order, and do not leave anything out"
        told = f"{topic} is a long story, and I shall tell it from its beginning to the end"
        summed = f"Summarize the conversation.\nuser: {asked}\nassistant: {told}"
        for shown, got in (
            ((("system", system), ("user", asked)), told),
            (
                (("system", "You summarise conversations."), ("user", summed)),
                f"{frame}{topic} was told of, and no more",
            ),
        ):
            at = len(index.sessions)
            step = follow(index, request(*shown), Identity(), now=float(at), new_id=lambda at=at: f"ses_{at}")
            reply(index, step.session, answer(got), now=float(at))
            sessions.append(step.session.id)
    forget(index, sessions[0])
    goes_on = request(("system", system), ("user", f"{frame}the roses at the gate was told of, and no more\n\nGo on?"))
    found = link(index, goes_on, Identity(), 9.0)
    assert found.session is not None
    assert found.session.id == sessions[2]
