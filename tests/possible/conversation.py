"""One conversation of a client: what it holds, and what it sends of that."""

import json
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from clients.dialects import Reply
from scripted import filed

from lantern_proxy.wire.http import Arrival
from possible.client import Client
from possible.judge import Judge, Sent, bare
from possible.stage import Stage
from possible.talk import LANGUAGES, Fact, Talk
from possible.wire import PATHS, Call, Json, Msg, answer, body_of

TURN = frozenset({"turn"})
VIEWED = frozenset({"window", "cleared"})
"""What a request may be, where the client keeps everything and sends less of it every time."""
HANDED_OVER = (
    "",
    "You look after what is owed to the house and who pays it when, and leave everything else to the others.",
    "You only speak of what is sent out, when and by whom. Whoever wants to know something else is handed over.",
)
"""What agents are told to whom a conversation was handed over. The first is the one it began with."""
UPDATES = tuple(
    f"Rule {n}: {what}" for n, what in enumerate((
        "write a date as day, month and year, and never in words.", "name the source of each sum that you report.",
        "ask before you change an entry of last year.", "say so where two entries contradict each other.",
    ))
)  # fmt: skip
"""What the versions of a program add to its orders."""
AGENT_SYSTEM = "You are a search agent. Find what is asked for in the files and report it in a few lines."


Window = tuple[list[Msg], str, dict[str, Fact], dict[str, int]]
"""What one window of a client holds of a conversation: Conversation.held, appended, facts, said_in."""


class Conversation:
    """What a client knows of one conversation. name: unlike those of its neighbours"""

    def __init__(self, client: Client, stage: Stage, key: str, judge: Judge, name: str, taken: set[str]) -> None:
        self.client, self.judge, self.name = client, judge, name
        self.rng = random.Random(f"{client.number} {name}")
        self.talk = Talk(self.rng, client.language, taken)
        self.words = LANGUAGES[client.language]
        self.held: list[Msg] = []
        self.appended = ""
        """What stands behind the system prompt: a summary."""
        self.earlier: list[str] = []
        self.facts: dict[str, Fact] = {}
        """Those that were said and not taken back, by value."""
        self.said_in: dict[str, int] = {}
        """Value -> number of its message."""
        self.view: Callable[[Sequence[Msg]], list[Msg]] | None = None
        """What is sent of what is held, where the client keeps everything."""
        self.agent = 0
        """Who speaks with the user: a place in HANDED_OVER."""
        self.version = 0
        """How often its program was updated."""
        self.window: Window | None = None
        """What another window holds, if there is one."""
        self.numbers = count(1)
        self._stage, self._key = stage, key
        self._nth, self._clock = 0, 0
        self._response, self._chained = "", 0

    # --- what is said ------------------------------------------------------------------------------------------------

    def user(self, *, question: Fact | None = None) -> Msg:
        """A message with a detail in it, a nod, or a question after one."""
        number, image = next(self.numbers), self.client.images and self.rng.random() < 0.4
        if question:
            return Msg("user", (question.asked,), image=image, number=number)
        if self.client.terse and self.rng.random() < 0.8:
            return Msg("user", (self.rng.choice(self.words.nods),), number=number)
        long = self.client.style == "users_cut_short" and self.rng.random() < 0.5
        return Msg("user", (self.talk.message(self.note(number), 900 if long else 0),), image=image, number=number)

    def note(self, number: int) -> Fact:
        """A detail that message `number` says."""
        fact = self.talk.fact()
        self.facts[fact.value], self.said_in[fact.value] = fact, number
        return fact

    def reply(self) -> tuple[Reply, Fact]:
        """An answer of the model; its detail counts once the client has it (`keep`)."""
        fact = self.talk.fact()
        return Reply(text=self.talk.message(fact, 500 if self.client.style == "answers_cut_short" else 0)), fact

    def keep(self, m: Msg, fact: Fact | None = None) -> None:
        """Hold an answer."""
        number, thought = next(self.numbers), "I think about it." if self.client.thinks else ""
        if fact:
            self.facts[fact.value], self.said_in[fact.value] = fact, number
        self.held.append(replace(m, number=number, thought=thought))

    def take_back(self, at: int) -> None:
        """Forget what was said from held[at] on."""
        gone = {m.number for m in self.held[at:]}
        for value in [value for value, number in self.said_in.items() if number in gone]:
            del self.facts[value], self.said_in[value]
        del self.held[at:]
        self.judge.take_back("\n".join(m.text for m in self.held))

    def open_window(self) -> None:
        """Open another window with the same history."""
        self.window = [*self.held], self.appended, dict(self.facts), dict(self.said_in)

    def change_window(self) -> None:
        """Go on in the other window."""
        assert self.window is not None
        now = self.held, self.appended, self.facts, self.said_in
        (self.held, self.appended, self.facts, self.said_in), self.window = self.window, now
        self.judge.take_back("\n".join([self.appended, *(m.text for m in self.held)]))

    @property
    def has_tools(self) -> bool:
        """May its model use tools now?"""
        return bool(self._tools())

    def start_chain_anew(self) -> None:
        self._response = ""

    def missing(self) -> list[Fact]:
        """Details that are not in what it sends."""
        shown = bare("\n".join([self.appended, *(m.text for m in (self.view(self.held) if self.view else self.held))]))
        return [fact for value, fact in self.facts.items() if bare(value) not in shown]

    def change_style(self) -> None:
        """Shorten in the other way the next time, if there is one."""
        if self.client.also:
            self.client = replace(self.client, style=self.client.also, also=self.client.style)

    # --- turns -------------------------------------------------------------------------------------------------------

    async def turn(
        self, op: str = "turn", right: Iterable[str] = TURN, *, said: Msg | None = None, question: Fact | None = None,
        gate: Callable[[], Awaitable[object]] | None = None,
    ) -> None:  # fmt: skip
        """The user says something, perhaps tools are used, the model answers. gate: awaited before the first answer"""
        self.held.append(said or self.user(question=question))
        most, often = (6, 0.8) if self.client.terse else (1, 0.5)
        for _ in range(most if self.client.tools and not question and not gate else 0):
            if self.rng.random() >= often:
                break
            at_once = self.rng.randint(1, 3) if self.client.at_once else 1
            first, *beside = [{"path": f"notes/{self.rng.randrange(10**6)}.txt"} for _ in range(at_once)]
            await self.call("read", first, op, right, beside=beside)
            calls = self.held[-1].calls
            for call in self.rng.sample(calls, at_once) if at_once > 1 else calls:
                self.result(call, lambda number: self.talk.result(self.note(number)))
            op, right = "result", TURN
        if question:
            self.keep(await self.send(self.held, right, op, asked=question))
            return
        reply, fact = self.reply()
        self.keep(await self.send(self.held, right, op, reply=reply, gate=gate), fact)

    async def call(
        self, tool: str, arguments: Json, op: str = "turn", right: Iterable[str] = TURN, *, beside: Sequence[Json] = ()
    ) -> Call:
        """The model calls a tool. beside: arguments with which it calls the tool at once, too"""
        reply = Reply(tool=tool, arguments=json.dumps(arguments), beside=(*map(json.dumps, beside),))
        self.keep(await self.send(self.held, right, op, reply=reply))
        called = self.held[-1].call
        assert called is not None
        return called

    def result(self, call: Call, text: Callable[[int], str]) -> None:
        """Hold what the tool gave. text: of the number of its message"""
        number = next(self.numbers)
        self.held.append(Msg("result", (text(number),), call=call, number=number))

    # --- requests ----------------------------------------------------------------------------------------------------

    async def send(
        self, history: Sequence[Msg], right: Iterable[str], op: str, *, reply: Reply | None = None,
        asked: Fact | None = None, cut: bool = False, again: bool = False, status: int = 200, complete: bool = True,
        more: Json | None = None, gate: Callable[[], Awaitable[object]] | None = None,
    ) -> Msg:  # fmt: skip
        """A request of the conversation, and the model's answer.

        right: the events that may be told of it
        cut:   with this request the client shortens its history
        again: it was sent before
        """
        self._clock += not again
        viewed = self.view(history) if self.view else list(history)
        system = "\n\n".join(part for part in (self._system(), self.appended) if part)
        messages, body_more = self._dressed(viewed), more or {}
        new = messages
        if self._response and not again:
            new, body_more = messages[self._chained :], body_more | {"previous_response_id": self._response}
        is_cut = viewed != [*history]
        sent = Sent(
            op=op, right=VIEWED.union(right) if is_cut else frozenset(right), cut=cut or is_cut, asked=asked,
            facts=dict(self.facts), held="\n".join([system, *(m.text for m in messages)]),
            is_delta=new is not messages,
        )  # fmt: skip
        body = self._body(system, new, self._tools(), body_more)
        said, response = await self._send(sent, body, reply, status=status, complete=complete, gate=gate)
        if self.client.ids == "chain" and status == 200:
            self._response, self._chained = response, len(history) + 1
        return said

    async def send_side(
        self, history: Sequence[Msg], right: Iterable[str], op: str, *, reply: Reply, system: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> Msg:  # fmt: skip
        """A request that is not part of the conversation. system, tools: None for the conversation's own"""
        self._clock += 1
        opening = "\n\n".join(part for part in (self._system(), self.appended) if part) if system is None else system
        body = self._body(opening, history, self._tools() if tools is None else tools, {})
        said, _ = await self._send(Sent(op=op, right=frozenset(right), side=True), body, reply)
        return said

    def shown(self) -> list[Msg]:
        """What it holds, as its next request would say it."""
        return self._dressed(self.view(self.held) if self.view else self.held)

    async def _send(
        self, sent: Sent, body: Json, reply: Reply | None, *, status: int = 200, complete: bool = True,
        gate: Callable[[], Awaitable[object]] | None = None,
    ) -> tuple[Msg, str]:  # fmt: skip
        api = self.client.api
        data = json.dumps(body, ensure_ascii=bool(self._nth % 2)).encode()
        headers = [(b"authorization", f"Bearer {self._key}".encode()), (b"content-type", b"application/json")]
        if self.client.ids == "header":
            headers.append((b"x-session-id", self._id.encode()))
        arrival = Arrival(method="POST", path=PATHS[api], query=b"", headers=tuple(headers), body=data)
        with self._stage.request() as proxy:
            exchange = await proxy.prepare(arrival)
            if gate:
                await gate()
            if sent.asked:
                found = sent.asked.value in json.dumps(json.loads(exchange.body), ensure_ascii=False)
                reply = Reply(text=f"{sent.asked.said if found else '?'} {self.talk.filler(1)}")
            reply = reply or Reply()
            thought = f"<think>\n{self.talk.filler(2)}\n</think>\n\n" if reply.text and self.client.thinks_aloud else ""
            answered, said, response = answer(api, body, replace(reply, text=thought + reply.text))
            said = replace(said, texts=(reply.text,)) if thought else said
            if status != 200:
                answered = b'{"error": {"message": "overloaded", "type": "server_error"}}'
            if not complete:
                answered = answered[: len(answered) * 2 // 3]
            streamed = self.client.stream and status == 200
            await filed(proxy.file(exchange, status, answered, streamed=streamed, complete=complete))
        self.judge.look(sent, data, exchange, answer=said.text if status == 200 else "")
        return said, response

    @property
    def _id(self) -> str:
        return f"id-{self.client.number}-{self.name}"

    def _tools(self) -> tuple[str, ...]:
        if self.agent:
            return ("write", "hand_over") if self.agent == 1 else ()
        more = ("hand_over",) if "handed_over" in self.client.incidents else ()
        more += tuple(f"added_{n}" for n in range(self.version))
        return ("read", "search", *more) if self.client.tools else ()

    def _body(self, system: str, messages: Sequence[Msg], tools: Sequence[str], more: Json) -> Json:
        self._nth += 1
        c = self.client
        named: Json = {}
        if c.ids == "key":
            named = {"prompt_cache_key": self._id}
        elif c.ids == "metadata":
            user = {"user_id": f"user_x_account__session_{self._id}"}
            named = {"metadata": user if c.api == "messages" else {"session_id": self._id}}
        return body_of(c.api, system, messages, c.dress, tools=tools, stream=c.stream, nth=self._nth) | named | more

    def _system(self) -> str:
        base, now = HANDED_OVER[self.agent] or self._orders, self._clock
        if self.client.system == "dated":
            return f"{base}\nToday is 2026-03-{now % 28 + 1:02d} {now % 24:02d}:{now * 7 % 60:02d}."
        if self.client.system == "git":
            files = "\n".join(f" M src/f{(now + k) % 9}.py" for k in range(now % 5))
            return f"{base}\n<env>\nbranch: main\nstatus:\n{files}\n</env>"
        return base if self.client.system == "stable" else ""

    @property
    def _orders(self) -> str:
        """The program's, as it is now."""
        return "\n".join([self.words.system, *UPDATES[: self.version]])

    def _dressed(self, history: Sequence[Msg]) -> list[Msg]:
        """Messages with what the client writes around what its user says."""
        out, spoken = list(history), [at for at, m in enumerate(history) if m.role == "user" and m.texts]
        now, stamps = self._clock, self.client.stamps
        if self.client.system == "in_user" and spoken:
            out[spoken[0]] = _before(out[spoken[0]], f"{self._orders}\n\n")
        for at in spoken if stamps in ("each", "relative") else ():
            if number := out[at].number:
                past = (
                    f"[2026-03-01 10:{number % 60:02d}] " if stamps == "each" else f"[{now - number // 2} minutes ago] "
                )
                out[at] = _before(out[at], past)
        if stamps == "last" and spoken:
            m, state = out[spoken[-1]], f"time: 10:{now % 60:02d}\nopen: f{now % 7}.py"
            around = f"{m.texts[-1]}\n\n<environment_details>\n{state}\n</environment_details>"
            out[spoken[-1]] = replace(m, texts=(*m.texts[:-1], around))
        return out


def _before(m: Msg, text: str) -> Msg:
    return replace(m, texts=(text + m.texts[0], *m.texts[1:]))
