"""Agents whose client writes every step into the only text of a request: one session, its losses told, no other's."""

import json

import pytest
from chats import SYSTEM, Lab, assistant, called, summary_of, user

from lantern_proxy.turn import LOSSES

PLACES = ("the harbour office", "the tide gauge", "the crane hall", "the cold store", "the customs shed",
          "the fuel jetty", "the rope loft", "the dry dock")  # fmt: skip
SUM_UP = "You condense the notes of a surveyor. Keep what matters of them."


class Surveyor:
    """Its model says what it saw and where to go; its client writes that, what was found there and what is next to see
    between a task and the time. cut: how many signs of a field are shown"""

    def __init__(
        self, lab: Lab, name: str, *, named: bool = False, calls: bool = False, tags: bool = False,
        sections: bool = False, cut: int = 1_000,
    ) -> None:  # fmt: skip
        self.lab, self.name, self.calls, self.tags, self.sections, self.cut = lab, name, calls, tags, sections, cut
        self.headers = {"x-session-id": name} if named else {}
        self.steps: list[str] = []
        self.count, self.memory, self.session = 0, "", ""

    def text(self) -> str:
        return (
            f"[task]\nSurvey the port of {self.name} and write a report.\n[/task]\n[notes]\n{self.memory}\n"
            + "\n".join(self.steps)
            + f"\n[/notes]\n[view]\n{PLACES[self.count % 8]} of {self.name}\nstep {self.count}\n[/view]"
        )

    def send(self, *notes: str):
        step = self.lab.ask(
            [{"role": "system", "content": SYSTEM}, user(self.text()), *map(user, notes)], headers=self.headers
        )
        self.session = self.session or step.session.id
        return step

    def answer(self, step) -> None:
        here, there = PLACES[self.count % 8], PLACES[(self.count + 1) % 8]
        said = {
            "thoughts": f"I wonder about {self.name}.",
            "seen": f"In {here} of {self.name} I counted {self.count + 31} bollards of iron",
            "plan": f"From here I go on to {there} and look at its doors, number {self.count}",
        }
        record = "".join(f"  <{name}>{text}</{name}>\n" for name, text in said.items())
        text = f"<report>\n{record}</report>\n" if self.tags else json.dumps(said)
        if self.sections:
            text = "".join(f"=== {name} ===\n{text}\n\n" for name, text in said.items())
        self.lab.answer(step, called(self.lab.call_id(), "note", **said) if self.calls else assistant(text))
        shown = (said["seen"][: self.cut], said["plan"][: self.cut])
        self.steps.append("\n".join((*shown, f"Found: plate {self.name}-{self.count}77 on the wall")))
        self.count += 1

    def go(self, *notes: str):
        step = self.send(*notes)
        self.answer(step)
        return step

    def sum_up(self, kept: int, summary: str):
        messages = [{"role": "system", "content": SUM_UP}, user("[notes]\n" + "\n".join(self.steps) + "\n[/notes]")]
        step = self.lab.ask(messages, headers=self.headers)
        self.lab.answer(step, assistant(summary))
        self.memory, self.steps = f"<memory>{summary}</memory>", self.steps[-kept:]
        return step


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "form", [{}, {"calls": True}, {"tags": True}, {"sections": True}], ids=["JSON", "call", "tags", "sections"]
)
@pytest.mark.parametrize("cut", [1_000, 60])
@pytest.mark.parametrize("restarted", [False, True])
def test_steps_are_turns_their_summary_is_a_side_call_and_what_it_leaves_out_is_lost(named, form, cut, restarted):
    lab = Lab()
    agents = [Surveyor(lab, name, named=named, cut=cut, **form) for name in ("Varnholm", "Quillsund")]
    assert [agent.go().event for agent in agents] == ["new", "new"]
    for n in range(1, 12):
        if restarted and n in (3, 9):
            lab.restart()
        for agent in agents:
            if n in (5, 9):
                step = agent.sum_up(2, summary_of(agent.name, n))
                assert (step.event, step.session.parent) == ("side", agent.session), (n, step.link.why)
            step = agent.go(*["You are in the same place as before."] * (n == 7))
            expected = "compacted" if n in (5, 9) else "turn"
            assert (step.event, step.session.id) == (expected, agent.session), (n, step.link.why)
            assert step.verdict.anchor == (1 if n in (5, 9) else None)
    for agent in agents:
        own = "\n".join(lab.texts(agent.session))
        assert all(f"{agent.name}-{n}77" in own for n in range(11))
        assert "calls" in form or all(f"counted {n + 31} b" in own for n in range(12))
        assert own.count("write a report") == 1
        assert not any(other.name in own for other in agents if other is not agent)


def test_a_window_of_steps_loses_those_that_it_leaves_out():
    agent = Surveyor(Lab(), "Varnholm")
    for n in range(8):
        agent.steps = agent.steps[-3:]
        step = agent.go()
        assert (step.event in LOSSES, step.session.id) == (n > 3, agent.session), (n, step.event)
        assert (step.event == "window") is (n > 3)


def test_one_thought_beside_the_name_of_a_tool_tells_a_step_and_asked_again_with_fewer_of_them_some_are_lost():
    """The upstream refuses what is too long; the client leaves out the oldest step and asks again."""
    lab = Lab()
    steps, events, sessions = [], [], set()
    for n in range(9):
        refused = len(steps) == 5
        for shown in (steps, steps[1:])[: 1 + refused]:
            text = "## question\nWhich doors does the port have?\n## past\n" + "\n".join(shown)
            step = lab.ask([{"role": "system", "content": SYSTEM}, user(text)])
            if shown is steps and refused:
                lab.fail(step)
            events.append(step.event)
            sessions.add(step.session.id)
        steps = steps[refused:]
        made = {"thought": f"Let me look at {PLACES[n % 8]} as the next one, number {n}", "tool": "look", "at": f"{n}"}
        lab.answer(step, assistant("".join(f"[[ {name} ]]\n{text}\n" for name, text in made.items())))
        told = "\n".join(f"{name}_{n}: {text}" for name, text in made.items())
        steps.append(f"{told}\nseen_{n}: a plate on the wall says {n}77")
    assert (events, len(sessions)) == (["new", *["turn"] * 5, "window", *["turn", "window"] * 3], 1)


@pytest.mark.parametrize("form", ["**{}**\n{}\n\n", "## {}\n{}\n\n", "- {}:\n{}\n", "JSON"])
def test_what_a_stranger_quotes_of_an_answer_for_people_is_no_step(form):
    lab, history = Lab(), [{"role": "system", "content": SYSTEM}]
    for n in range(5):
        history.append(user(f"Can you help me with bed {n} of the garden at Elm Street {n}?"))
        step = lab.ask(history)
        told = {
            "Overview": f"Bed {n} of the herbs lies along the southern wall of the house.",
            "Costs": f"{n + 412} euros",
        }
        told |= {} if form == "JSON" else {"Steps": f"First we dig in month {n}, then we put the wood around it."}
        said = json.dumps(told) if form == "JSON" else "".join(form.format(*each) for each in told.items())
        lab.answer(step, assistant(said))
        history.append(assistant(said))
    for quoted in ([said], [history[-3]["content"], said]):
        asked = "\n\n".join(["Can you help my landlord with this letter?", *quoted])
        step = lab.ask([history[0], user(asked)])
        assert step.event == "new", step.link.why


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_stranger_quotes_of_answers_in_json_is_no_step(count):
    """Whose request shows nothing of the task asks for something else."""
    lab, history = Lab(), [{"role": "system", "content": SYSTEM}]
    for n in range(6):
        history.append(user(f"Tell me about bed {n}, code 77{n}" if n else "Can you help me with my garden at Elm 31?"))
        step = lab.ask(history)
        told = {
            "overview": f"Bed {n} lies along the southern wall of the house.",
            "costs": f"The soil comes to {n + 400} euros.",
        }
        lab.answer(step, assistant(json.dumps(told)))
        history.append(assistant(json.dumps(told)))
    quoted = [history[n]["content"] for n in (-3, -1)][-count:]
    other = lab.ask([history[0], user("\n".join(["Can you help me to compare these?", *quoted]))])
    assert other.event == "new", other.link.why


def test_the_same_step_again_is_a_retry():
    agent = Surveyor(Lab(), "Varnholm")
    for _ in range(3):
        agent.go()
    first = agent.send()
    again = agent.send()
    assert (first.event, again.event, again.session.id) == ("turn", "retry", agent.session)
    agent.answer(again)
    agent.count, shown = agent.count - 1, agent.steps.pop()
    again = agent.send()
    assert (again.event, again.session.id) == ("retry", agent.session)
    agent.answer(again)
    assert agent.steps[-1] == shown
    assert agent.go().event == "turn"


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("tags", [False, True])
def test_steps_that_are_judged_under_the_same_orders_in_another_text_are_a_side_call(named, tags):
    agent = Surveyor(Lab(), "Varnholm", named=named, tags=tags)
    for n in range(8):
        agent.steps = agent.steps[-4:]
        step = agent.go()
        assert (step.event in LOSSES, step.session.id) == (n > 4, agent.session), (n, step.event, step.link.why)
        if n > 1:
            task = "Here is what a surveyor did. Say in a word how well it went.\n" + "\n".join(agent.steps)
            messages = [{"role": "system", "content": SYSTEM}, user(task)]
            judged = agent.lab.ask(messages, headers=agent.headers)
            assert (judged.event, judged.session.parent) == ("side", agent.session), (n, judged.link.why)
            agent.lab.answer(judged, assistant("Well."))


@pytest.mark.parametrize("text", ["<html><head><title>{0}</title></head><p>{1}</p></html>", "<p>{0}</p>\n<p>{1}</p>"])
def test_a_page_that_is_given_to_its_model_again_is_no_step(text):
    lab = Lab()
    page = text.format("A page about the doors of old harbours", "The doors of old harbours are made of oak.")
    first = lab.ask([{"role": "system", "content": SYSTEM}, user("Write a page about doors.")])
    lab.answer(first, assistant(page))
    step = lab.ask([{"role": "system", "content": SYSTEM}, user(f"Write a page about doors.\n{page}\nMake it longer.")])
    assert (step.event, step.session.id != first.session.id) == ("new", True), step.link.why


def test_two_runs_of_one_task_share_nothing():
    lab = Lab()
    one, other = Surveyor(lab, "Varnholm"), Surveyor(lab, "Varnholm")
    for agent in (one, other):
        agent.session = agent.send().session.id
    assert one.session != other.session
    sent = [agent.send() for agent in (one, other)]
    assert not any(step.verdict.is_loss for step in sent)


def test_an_answer_that_is_worked_over_again_and_again_is_no_history():
    """Each request shows the last draft and another source: what the draft leaves out is not lost."""
    lab, draft = Lab(), ""
    for n in range(6):
        text = f"Work this source into the draft.\nDraft:\n{draft}\nSource:\n{PLACES[n]} has {n + 40} doors of oak."
        step = lab.ask([{"role": "system", "content": SYSTEM}, user(text)])
        assert step.event in ("new", "turn"), (n, step.event)
        made = {"title": "On the doors of old harbours", "body": f"It is about {n} places, the last being {PLACES[n]}"}
        lab.answer(step, assistant(json.dumps(made)))
        draft = "\n".join(made.values())


def test_another_use_of_one_answer_is_a_session_of_its_own():
    lab = Lab()
    agent = Surveyor(lab, "Varnholm")
    agent.go()
    step = lab.ask([{"role": "system", "content": SUM_UP}, user(f"Translate:\n{agent.steps[0]}")])
    assert (step.event, step.session.id != agent.session) == ("new", True)


def test_of_two_runs_that_began_alike_the_one_goes_on_that_got_most_of_what_is_shown():
    lab = Lab()
    one, other = Surveyor(lab, "Varnholm"), Surveyor(lab, "Varnholm", named=True)
    for agent in (one, one, one, one, other, other):
        agent.go()
    assert other.session != one.session
    step = one.go()
    assert (step.event, step.session.id) == ("turn", one.session), step.link.why


def test_steps_that_come_by_another_protocol_are_those_of_another():
    agent = Surveyor(Lab(), "Varnholm")
    for _ in range(3):
        agent.go()
    agent.lab.api = "messages"
    step = agent.send()
    assert (step.event, step.session.id != agent.session) == ("new", True), step.link.why


@pytest.mark.parametrize("told", [True, False])
def test_a_few_of_many_steps_are_a_side_call_where_their_task_stands_there_too(told):
    agent = Surveyor(Lab(), "Varnholm")
    for _ in range(8):
        agent.go()
    task = agent.text().partition("[notes]")[0] if told else "Here is what a surveyor did.\n"
    asked = "Say in a word how well it went.\n" + task + "\n".join(agent.steps[-3:])
    judged = agent.lab.ask([{"role": "system", "content": SUM_UP}, user(asked)])
    assert (judged.event, judged.session.parent == agent.session) == ("side" if told else "new", told), judged.link.why
