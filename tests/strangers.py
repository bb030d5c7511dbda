"""Programs whose users all share one key, in three protocols: does a request lead to what another user said?

    PYTHONPATH=tests .venv/bin/python -m strangers [--programs A:B] [--restarts] [--story]

The bots of crowd.py speak one protocol and send no ids. These programs name their chats, their users, all by one
name, or nobody; they show windows, summaries, documents, examples; they have titles made and messages sorted, take back
what was said, ask again what failed, go on from stored answers, and call for tools by numbers. Those from 100,000 on
have habits of real apps, too (strangers_habits.py). Each user says numbers that nobody else says.
tests/test_session_crowd.py plays some.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chats import SYSTEM, Lab
from clients.dialects import Reply
from crowd import Found, total
from possible.draw import numbers
from possible.wire import Dress, Json, Msg, answer, body_of
from strangers_habits import PROFILE, draw_habits, say, show
from strangers_habits import answer as answered

from lantern_proxy.follow import Step
from lantern_proxy.wire import chat, messages, responses

WIRES: dict[str, Any] = {"chat": chat, "responses": responses, "messages": messages}
STOCK = (
    "Hi", "Hello, I need some help with my contract.", "ok", "Yes, please do that.", "No.", "Thanks.", "Go on.",
    "When are you open on weekdays?", "It still does not work, what else can I try?", "Please look it up for me.",
    "Can you explain to me how the lamp on the front of the device has to be read?",
)  # fmt: skip
OWN = ("My contract is {}.", "{}", "Please note {} for me, I need it later.", "It is {}, as I said to your colleague.")
GREETING = "Hello! How can I help you today?"
CANNED = (
    GREETING, "Noted.", "OK.", "Please restart the device and wait until all lamps are on.",
    "We are open from 9 to 18, on Saturdays until noon.", "I will forward your request to a colleague, please hold on.",
    "The lamp on the front shows green when all is well, and red when the line to the exchange is broken.",
)  # fmt: skip
ECHOED = ("Thank you, I found {}.", "I have noted {} for you. What else can I do?")
HOURS = "weekdays 9-18, saturdays 9-12"
DOCUMENT = "From the manual: the device is restarted by its button on the back, which has to be held for ten seconds."
EXAMPLES = ("How long is the warranty?", "Two years, from the day on which you bought it.",
            "Can I park at the shop?", "Yes, behind the house, for an hour.")  # fmt: skip
TITLE = "Write a title of at most five words for this conversation."
SORT = "You sort messages of customers. Answer with one word: contract, device, hours or other."
READ = "You are an agent that reads manuals."
TASK = "Find out in the manual how the lamp on the front of the device has to be read, and report it."
SUMMARISE = "Summarize the conversation so far for a colleague who goes on with it. Keep all numbers and names."
TOLD = "The customer of case {} asked for help. {} The matter is still open, and a colleague is going to call back."
STORED = ("chain", "conversation")
IDS = {
    "chat": ("none", "none", "header", "affinity of all", "key of all", "key", "person", "metadata"),
    "responses": ("none", "header", "key of all", "person", "agent", *STORED),
    "messages": ("none", "none", "header", "person", "session", "agent"),
}

View = Callable[[list[Msg], str], list[Msg]]
"""(history, its summary) -> what is shown of it"""


def tail(history: Sequence[Msg], count: int) -> list[Msg]:
    """The last messages, and the call of a result that would come first."""
    at = max(0, len(history) - count)
    while at and history[at].role == "result":
        at -= 1
    return [*history[at:]]


def cleared(history: Sequence[Msg]) -> list[Msg]:
    old = [replace(m, texts=("[cleared]",)) if m.role == "result" else m for m in history[:-3]]
    return [*old, *history[-3:]]


def in_one_text(history: Sequence[Msg]) -> list[Msg]:
    return [Msg("user", ("\n".join(f"{m.role}: {m.text or m.call}" for m in history),))]


VIEWS: dict[str, View] = {
    "whole": lambda h, _: h,
    **{f"last {count}": lambda h, _, count=count: tail(h, count) for count in (1, 2, 3, 4, 6)},  # type: ignore[misc]
    "first and last": lambda h, _: [*h[:2], *tail(h, 4)] if len(h) > 6 else h,
    "cleared": lambda h, _: cleared(h),
    "users": lambda h, _: [m for m in h if m.role == "user"] if h[-1].role == "user" else h,
    "one text": lambda h, _: in_one_text(h),
    "summary, last 1": lambda h, told: [Msg("user", (told,)), *tail(h, 1)] if told else h,
    "summary, last 3": lambda h, told: [Msg("user", (told,)), *tail(h, 3)] if told else h,
    "summary by assistant": lambda h, told: [Msg("assistant", (told,)), *tail(h, 1)] if told else h,
    "summary in system": lambda h, told: [Msg("system", (told,)), *tail(h, 2)] if told else h,
    "summary and question": lambda h, told: (
        [Msg("user", (told, h[-1].text))] if told and h[-1].role == "user" else h
    ),
}  # fmt: skip
INCIDENTS = ("title", "sort", "speaker", "summarise", "agent", "again", "edit", "failed")
"""A title is made, a message sorted, the next speaker chosen, a summary made, an agent sent; the last question is asked
again, an earlier one edited; the upstream does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a program talks, and what it shows of it."""

    number: int
    api: str
    ids: str
    named: float
    """Share of requests with an id."""
    view: str
    system: str
    """stable, dated, named (by its user), documents (some for each question) or none"""
    chats: int
    turns: int
    people: int
    at_once: bool
    """Its users talk at the same time, not one after the other."""
    canned: tuple[str, ...]
    own: float
    """Share of messages with a number of their user's."""
    echoed: float
    """Share of those that the answer repeats."""
    calls: str
    """none, numbered (each has the same id) or minted"""
    begins: tuple[str, ...]
    """What each chat opens with: examples, a greeting."""
    incidents: tuple[str, ...]
    habits: tuple[str, ...]
    """See strangers_habits.py."""


def draw(number: int) -> Program:
    """The program of that number."""
    rng = random.Random(number)
    api = rng.choice(("chat", "chat", "responses", "messages"))
    ids = rng.choice(IDS[api])
    return Program(
        number=number, api=api, ids=ids, named=rng.choice((1.0, 0.5)) if ids == "person" else 1.0,
        view="new" if ids in STORED else rng.choice(("whole", *VIEWS)),
        system=rng.choice(("stable", "stable", "dated", "named", "documents", "none")),
        chats=rng.randint(2, 6), turns=rng.randint(3, 9), people=rng.randint(2, 4), at_once=rng.random() < 0.6,
        canned=tuple(rng.sample(CANNED, rng.randint(1, 6))), own=rng.choice((0.2, 0.4, 0.6)),
        echoed=rng.choice((0.0, 0.3, 0.7)), calls=rng.choice(("none", "none", "numbered", "minted")),
        begins=(*(EXAMPLES if rng.random() < 0.15 else ()), *(("", GREETING) if rng.random() < 0.15 else ())),
        incidents=tuple(rng.sample(INCIDENTS[: 5 if ids in STORED else None], rng.randint(0, 4))),
        habits=draw_habits(number),
    )  # fmt: skip


@dataclass
class Talk:
    """One user's chat."""

    number: int
    person: int
    history: list[Msg]
    numbers: list[str] = field(default_factory=list)
    """What this user said and nobody else."""
    summary: str = ""
    stored: str = ""
    """The id of the last answer."""
    shared: frozenset[str] = frozenset()
    """Numbers of the chat of which this one is a copy."""
    sent: int = 0
    """Messages that the upstream has stored."""


def play(program: Program, *, restarts: bool = False) -> Found:
    """All its chats, from beginning to end. restarts: before each request"""
    return _Play(program, restarts=restarts).run()


class _Play:
    def __init__(self, program: Program, *, restarts: bool) -> None:
        self.p, self.rng, self.lab, self.found = program, random.Random(f"{program.number} talk"), Lab(), Found()
        self.lab.restarts = restarts
        begun = [Msg(("user", "assistant")[n % 2], (text,)) for n, text in enumerate(program.begins) if text]
        self.began = len(begun)
        self.talks = [Talk(n, n % program.people, [*begun]) for n in range(program.chats)]
        self.nth = 0

    def run(self) -> Found:
        order = [talk for talk in self.talks for _ in range(self.p.turns)]
        if self.p.at_once:
            self.rng.shuffle(order)
        for talk in order:
            if "forked" in self.p.habits and self.p.ids != "conversation" and not talk.sent and self.rng.random() < 0.5:
                self._fork(talk)
            for what in self.p.incidents if talk.sent else ():
                if self.rng.random() < 0.2:
                    self._meet(what, talk)
            self._turn(talk)
        return self.found

    def _fork(self, talk: Talk) -> None:
        """The chat begins as a copy of another one, which is then no secret of that."""
        if begun := [t for t in self.talks if len(t.history) > 2 and t.history[-1].role == "assistant"]:
            other = self.rng.choice(begun)
            talk.history[:] = other.history
            if self.p.view == "new":
                talk.stored, talk.sent = other.stored, other.sent
            talk.shared = frozenset(other.numbers) | other.shared

    def _turn(self, talk: Talk) -> None:
        answer = self._say(talk)
        if self.p.calls != "none" and self.rng.random() < 0.3:
            of = self.rng.choice(("hours", "contract"))
            call = self._ask(talk, Reply(tool="run", arguments=json.dumps({"of": of}))).call
            told = f"contract {talk.numbers[0]}" if of == "contract" and talk.numbers else HOURS
            talk.history.append(Msg("result", (told,), call=call))
        self._ask(talk, Reply(answer))
        if len(talk.history) > 6 and (not talk.summary or ("rolled" in self.p.habits and self.rng.random() < 0.3)):
            self._sum_up(talk)

    def _say(self, talk: Talk) -> str:
        """The user says something; what the model is going to answer."""
        rng, p = self.rng, self.p
        said, answer = rng.choice(STOCK), rng.choice(p.canned)
        if rng.random() < p.own:
            talk.numbers.append(number := f"{rng.randrange(10**8):08d}")
            said = rng.choice(OWN).format(number)
            answer = rng.choice(ECHOED).format(number) if rng.random() < p.echoed else answer
        talk.history.append(Msg("user", (say(p.habits, rng, said, talk.person),)))
        return answered(p.habits, rng, sum(m.role == "user" for m in talk.history[self.began :]) - 1, answer)

    def _sum_up(self, talk: Talk) -> None:
        told = (f"The number {number} was told." for number in talk.numbers if self.rng.random() < 0.5)
        before = f"Before that: {talk.summary} " if talk.summary and "rolled" in self.p.habits else ""
        talk.summary = before + TOLD.format(f"{self.p.number}-{talk.number}", " ".join(told))

    def _meet(self, what: str, talk: Talk) -> None:
        h, system = talk.history, self._system(talk)
        users = [n for n, m in enumerate(h) if m.role == "user" and n >= self.began]
        if what == "title":
            self._aside(talk, TITLE, [h[users[-1]]] if users else h, "Question of a customer")
        elif what == "sort":
            self._aside(talk, SORT, h, "device")
        elif what == "speaker":
            self._aside(talk, system, [*h, Msg("user", ("Who speaks next?",))], "The customer.")
        elif what == "summarise":
            self._sum_up(talk)
            with_history = system, [*h, Msg("user", (SUMMARISE,))]
            self._aside(talk, *self.rng.choice((with_history, (SUMMARISE, in_one_text(h)))), talk.summary)
        elif what == "agent":
            self._aside(talk, READ, [Msg("user", (TASK,))], "Green is well.", f"agent-{talk.number}")
        elif what == "failed":
            self._say(talk)
            self.lab.fail(self._send(talk)[0])
            del h[len(h) - self.rng.randint(0, 1) :]
        elif what == "edit" and users:
            del h[self.rng.choice(users) :]
        elif what == "again" and len(users) and h[-1].role == "assistant" and not h[-1].call:
            again = self.rng.choice((h.pop().text, *self.p.canned))
            self._ask(talk, Reply(again))

    def _ask(self, talk: Talk, says: Reply) -> Msg:
        step, body = self._send(talk)
        data, made, talk.stored = answer(self.p.api, body, says)
        if made.call and self.p.calls == "numbered":
            data = data.replace(made.call.id.encode(), b"functions.run:0")
            made = replace(made, call=replace(made.call, id="functions.run:0"))
        self.lab.told(step, WIRES[self.p.api].read_answer(data, streamed=False))
        talk.history.append(made)
        talk.sent = len(talk.history)
        return made

    def _system(self, talk: Talk) -> str:
        more = {"dated": f" It is {self.nth} o'clock.", "named": f" You speak to customer {talk.person}."}
        document = f" {DOCUMENT}" if self.p.system == "documents" and self.rng.random() < 0.5 else ""
        profile = f" {PROFILE.format(talk.person)}" if "profile" in self.p.habits else ""
        return "" if self.p.system == "none" else SYSTEM + more.get(self.p.system, "") + document + profile

    def _send(self, talk: Talk) -> tuple[Step, Json]:
        shown = talk.history[talk.sent :] if self.p.view == "new" else VIEWS[self.p.view](talk.history, talk.summary)
        system = [self._system(talk), *(m.text for m in shown if m.role == "system")]
        tools = () if self.p.calls == "none" else ("run",)
        said = show(self.p.habits, self.rng, [m for m in shown if m.role != "system"], talk.person, talk.numbers)
        body = self._body("\n\n".join(filter(None, system)), said, tools)
        if self.p.ids == "chain" and talk.stored:
            body["previous_response_id"] = talk.stored
        elif self.p.ids == "conversation":
            body["conversation"] = f"conv_{talk.number:08x}"
        return self._follow(talk, body, self._name(talk, body)), body

    def _aside(self, talk: Talk, system: str, shown: Sequence[Msg], says: str, agent: str = "") -> None:
        body = self._body(system, shown, ())
        headers = self._name(talk, body) | ({"x-agent-id": agent} if agent and self.p.ids == "agent" else {})
        step = self._follow(talk, body, headers)
        data, *_ = answer(self.p.api, body, Reply(says))
        self.lab.told(step, WIRES[self.p.api].read_answer(data, streamed=False))

    def _body(self, system: str, shown: Sequence[Msg], tools: Sequence[str]) -> Json:
        return body_of(self.p.api, system, shown, Dress(), tools=tools, stream=False, nth=self.nth)

    def _name(self, talk: Talk, body: Json) -> dict[str, str]:
        """The headers that say whose request it is, where the body does not."""
        ids, one, person = self.p.ids, f"chat-{self.p.number}-{talk.number}", f"person-{talk.person}"
        if self.rng.random() >= self.p.named:
            return {}
        if ids == "person":
            body |= {"metadata": {"user_id": person}} if self.p.api == "messages" else {"user": person}
        elif ids == "session":
            body["metadata"] = {"user_id": f"user_1_session_{talk.number:08d}"}
        elif ids == "metadata":
            body["metadata"] = {"session_id": one}
        elif ids.startswith("key"):
            body["prompt_cache_key"] = "all" if ids == "key of all" else one
        headers = {"header": ("x-session-id", one), "agent": ("x-claude-code-session-id", one),
                   "affinity of all": ("x-session-affinity", "all")}  # fmt: skip
        return dict([headers[ids]]) if ids in headers else {}

    def _follow(self, talk: Talk, body: Json, headers: dict[str, str]) -> Step:
        self.nth += 1
        step = self.lab.take(WIRES[self.p.api].read(json.dumps(body).encode()), headers)
        if step.event == "side":  # nothing is restored into it
            return step
        seen, held = json.dumps(body), "\n".join(self.lab.texts(step.session.id))
        others = [t for t in self.talks if t is not talk and (self.p.ids != "person" or t.person != talk.person)]
        # nothing that was said on another branch comes back
        left = step.session.abandoned if "forked" in self.p.habits else ()
        filed = self.lab.kept[step.session.id].filed
        given = "\n".join(f.message.text for f in filed if f.key not in left)
        told = (n for other in others for n in other.numbers if n in given and n not in talk.shared)
        strangers = [n for n in told if n not in seen]
        lost = [n for n in talk.numbers if n not in seen]
        kept = sum(n in held for n in lost)
        self.found.counts.update(requests=1, strangers=bool(strangers), lost=len(lost), found=kept)
        what = f"chat {talk.number}: {step.event} in {step.session.id} ({step.link.why}); own {kept} of {len(lost)}"
        self.found.story.append(f"{what}{'; OF A STRANGER' if strangers else ''}: {headers} {seen}")
        return step


def main() -> None:
    parser = argparse.ArgumentParser(prog="strangers", description=__doc__)
    parser.add_argument("--programs", type=numbers, default="0:1000", metavar="A:B", help="from A to before B; 0:1000")
    parser.add_argument("--restarts", action="store_true", help="restart before each request")
    parser.add_argument("--story", action="store_true", help="tell every request of every program")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in args.programs:
        found = play(draw(number), restarts=args.restarts)
        counts += total([found])
        if args.story or found.counts["strangers"]:
            print(f"\n{draw(number)}", *(line for line in found.story if args.story or "STRANGER" in line), sep="\n")
    print(dict(counts))


if __name__ == "__main__":
    main()
