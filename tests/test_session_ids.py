"""Ids that clients send: which of them decides, and what it does not decide."""

import pytest
from chats import SYSTEM, Chat, Lab, Wire, assistant, turns, user

from lantern_proxy.follow import Step

NEXT = user("And which of them is restarted first?")
ORDERS: Wire = {"role": "system", "content": SYSTEM}
RUN = {"x-litellm-session-id": "run-1"}


def say(lab: Lab, *shown: Wire, answer: str = "Noted.", orders: Wire = ORDERS, **how: object) -> Step:
    step = lab.ask([orders, *shown], **how)  # type: ignore[arg-type]
    lab.answer(step, assistant(answer))
    return step


def of_run(lab: Lab, *codes: str, **how: object) -> list[Step]:
    """Conversations of one turn each, all under the id of one run."""
    said = [f"My code is {code}, please find the line that it is for." for code in codes]
    return [say(lab, user(text), headers=RUN, answer=f"{text[11:17]} is found.", **how) for text in said]


# --- the id of a run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affinity", [{}, {"x-session-affinity": "server-3"}])
def test_another_conversation_of_a_run_is_one_though_all_go_to_one_server(affinity: dict[str, str]) -> None:
    lab = Lab()
    first = say(lab, user("My code is 7731-R."), headers=RUN | affinity)
    other = say(lab, user("Where can I park my car?"), headers=RUN | affinity)
    assert other.session.id != first.session.id, other.link.why


def test_an_only_conversation_of_a_run_goes_on_when_it_shows_its_last_question_alone() -> None:
    lab, history = Lab(), list[Wire]()
    for said in ("My code is 7731-R.", "Where can I park my car?"):
        history.append(user(said))
        first = say(lab, *history, headers=RUN)
        history.append(assistant("Noted."))
    step = say(lab, user("Is there a roof over it?"), headers=RUN)
    assert (step.session.id, step.event) == (first.session.id, "compacted"), step.link.why


@pytest.mark.parametrize("other", ["tools", "orders"])
def test_who_goes_on_in_another_way_begins_no_conversation_of_a_run(other: str) -> None:
    """Another mode of its client has other tools, or another system prompt."""
    lab = Lab()
    _, last = of_run(lab, "7731-R", "9942-E")
    orders = {
        "role": "system",
        "content": "You plan journeys by train, step by step, and name each station on the way.",
    }
    how = {"tools": ("plan",)} if other == "tools" else {"orders": orders}
    step = say(lab, user("Where can I park my car?"), headers=RUN, **how)
    assert last.session.id in (step.session.id, step.session.parent), step.link.why


def test_of_a_run_that_speaks_two_protocols_the_only_one_of_its_own_goes_on() -> None:
    lab, history = Lab(), list[Wire]()
    of_run(lab, "7731-R")
    lab.api = "messages"
    for said in ("My code is 9942-E.", "Is the line dead?"):
        history.append(user(said))
        first = say(lab, *history, headers=RUN)
        history.append(assistant("Noted."))
    step = say(lab, user("Where can I park my car?"), headers=RUN)
    assert (step.session.id, step.event) == (first.session.id, "compacted"), step.link.why


def test_who_shows_what_another_said_stays_in_a_conversation_of_the_id_that_is_sent() -> None:
    lab = Lab()
    emil = Chat(lab)
    for said, answer in turns("zephyr", 3):
        emil.turn(said, answer)
    own = {step.session.id for step in of_run(lab, "7731-R", "9942-E")}
    step = lab.ask([ORDERS, *emil.history, NEXT], headers=RUN)
    assert step.session.id != emil.session, step.link.why
    assert own


# --- what is said beside an id -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["turn", "compaction"])
def test_a_compaction_that_a_client_announces_is_a_side_call_whatever_it_goes_on_from(kind: str) -> None:
    chat = Chat(Lab(), named="one")
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    told = {**chat.headers, "x-codex-turn-metadata": f'{{"request_kind": "{kind}"}}'}
    step = chat.lab.ask(chat.wire([*chat.history, NEXT]), headers=told)
    assert step.event == ("side" if kind == "compaction" else "turn"), step.link.why


# --- who is named ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "then"), [("rosa", ""), ("", "rosa"), ("rosa", "rosa"), ("rosa", "emil")])
def test_who_is_named_in_some_requests_only_goes_on_in_one_conversation(first: str, then: str) -> None:
    lab, history = Lab(), list[Wire]()
    for said, answer in turns("zephyr", 4):
        history.append(user(said))
        step = say(lab, *history[-5:], answer=answer, **({"user": first} if first else {}))
        history.append(assistant(answer))
    found = lab.ask([ORDERS, *history[-2:], NEXT], **({"user": then} if then else {}))
    assert (found.session.id == step.session.id) is (then != "emil"), found.link.why


@pytest.mark.parametrize("order", ["Erzeuge einen kurzen Titel.", "会話に短い題名を付けてください。"])
def test_a_conversation_without_a_system_prompt_behind_the_call_for_its_title_is_one_of_its_own(order: str) -> None:
    chat = Chat(Lab(), system="", named="one")

    def titled(said: str) -> Step:
        return say(
            chat.lab, user(said), answer="Zephyr", orders={"role": "system", "content": order}, headers=chat.headers
        )

    for n, (said, answer) in enumerate(turns("zephyr", 4)):
        title, step = titled(said), chat.turn(said, answer)
        assert (title.event, step.event) == (("side", "turn") if n else ("new", "new")), step.link.why
        assert step.session.id == chat.session != title.session.id
        assert titled("Go on, please, with all the rest of it.").event == "side"
