"""Synthetic chat clients: they build request bodies, which the core parses as it does real ones.

lab = Lab()
chat = Chat(lab, system=SYSTEM)
for said, answer in turns("payments", 5):
    chat.turn(said, answer)
step = chat.compact(STYLES["summary as user message"], summary, "go on")
"""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from lantern_proxy.follow import Step, follow, reply
from lantern_proxy.history import head_of
from lantern_proxy.history.record import Session
from lantern_proxy.history.transcript import with_transcript_as_user_text
from lantern_proxy.session import SessionIndex
from lantern_proxy.session.from_archive import recall
from lantern_proxy.turn import Answer, Api, Filed, Head, Request, is_random
from lantern_proxy.wire import chat as wire
from lantern_proxy.wire.headers import identity

Wire = dict[str, Any]

SYSTEM = (
    "You are a helpful assistant for engineers. Be concise, answer in the language of the user, and cite files by path."
)
CODER = (
    "You are a coding agent working inside a terminal. You have tools to read and change files. Work step by step, "
    "verify what you did by running the tests, and never touch files outside of the working directory. Today is {date}."
)
TOOLS = ("read_file", "write_file", "run")


@dataclass
class ArchivedSession:
    """What an archive would hold of one session."""

    session: Session
    filed: list[Filed] = field(default_factory=list)
    head: Head = field(default_factory=Head)
    names: list[str] = field(default_factory=list)
    """Ids that its upstream gave, and those under which its client went on with it."""


class Lab:
    """One tenant's sessions in memory, a clock, and the messages that were archived."""

    restarts = False
    """Does a restart come before each request?"""
    api: Api = "chat"
    """By which the next requests come."""

    def __init__(self) -> None:
        self.index = SessionIndex()
        self.now = 1_700_000_000.0
        self.kept: dict[str, ArchivedSession] = {}
        self._ids = (f"ses_{n}" for n in itertools.count(1))
        self._calls = itertools.count(1)

    def call_id(self) -> str:
        return f"call_{next(self._calls):08x}"

    def ask(self, messages: Sequence[Wire], *, tools: Iterable[str] = (), headers: Mapping[str, str] | None = None,
            **body: Any) -> Step:  # fmt: skip
        """One request, as its client would send it."""
        offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
        data: Wire = {"model": "m", "messages": list(messages), **({"tools": offered} if offered else {}), **body}
        read = wire.read(json.dumps(data, ensure_ascii=False).encode())
        return self.take(replace(read, api=self.api), headers)

    def take(self, request: Request, headers: Mapping[str, str] | None = None) -> Step:
        """One request, as it was read."""
        if self.restarts:
            self.restart()
        self.now += 5
        request = with_transcript_as_user_text(request)
        step = follow(self.index, request, identity(headers or {}), now=self.now, new_id=lambda: next(self._ids))
        self._keep(step.session, step.filed)
        if step.main is not None:
            self._keep(step.main, step.main_filed)
        self.kept[step.session.id].names += [step.link.family] if step.link.family and not step.link.side else []
        return step

    def answer(self, step: Step, *messages: Wire, complete: bool = True) -> tuple[Filed, ...]:
        """The upstream's answer to the request of `step`, one message a choice; not `complete` when it broke off."""
        found = {"id": f"chatcmpl-{next(self._calls)}", "choices": [{"message": m} for m in messages]}
        data = json.dumps(found, ensure_ascii=False).encode()
        return self.told(step, wire.read_answer(data, streamed=False, complete=complete))

    def told(self, step: Step, answer: Answer) -> tuple[Filed, ...]:
        """The upstream's answer to the request of `step`, as it was read."""
        self.now += 1
        session, filed = reply(self.index, step.session, answer, now=self.now)
        assert session is not None
        self._keep(session, filed)
        self.kept[session.id].names += [*answer.ids, *(value for f in filed for value in f.message.ids)]
        return filed

    def fail(self, step: Step) -> None:
        """The upstream had no answer to the request of `step`."""
        reply(self.index, step.session, Answer(messages=()), now=self.now)

    def restart(self) -> None:
        """The process ends, and a new one reads what the archive has."""
        self.index = SessionIndex()
        for kept in sorted(self.kept.values(), key=lambda kept: kept.session.last_seen_at):
            s = kept.session
            row = Session(
                id=s.id, api=s.api, family=s.family, agent=s.agent, parent=s.parent, side=s.side, tools=s.tools,
                title=s.title, created_at=s.created_at, last_seen_at=s.last_seen_at,
            )  # fmt: skip
            shown = [value for f in kept.filed for value in f.message.ids if is_random(value)]
            recall(self.index, row, kept.filed, kept.head, [*kept.names, *shown])

    def _keep(self, session: Session, filed: Sequence[Filed]) -> None:
        kept = self.kept.setdefault(session.id, ArchivedSession(session))
        held = {f.key for f in kept.filed}
        assert not held & {f.key for f in filed}, "a key was filed twice"
        assert len({f.position for f in (*kept.filed, *filed)}) == len(kept.filed) + len(filed), "a position was reused"
        kept.session, kept.filed = session, [*kept.filed, *filed]
        kept.head = head_of(session)

    def texts(self, session: str) -> list[str]:
        """What is filed of a session, in order."""
        return [f.message.text for f in sorted(self.kept[session].filed, key=lambda f: f.position)]


def user(text: str) -> Wire:
    return {"role": "user", "content": text}


def parts(*texts: str) -> Wire:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def assistant(text: str) -> Wire:
    return {"role": "assistant", "content": text}


def called(call_id: str, name: str, **arguments: str) -> Wire:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result(call_id: str, text: str) -> Wire:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@dataclass
class Chat:
    """One client with its own history. `named`: it sends an explicit session id."""

    lab: Lab
    system: str = SYSTEM
    tools: tuple[str, ...] = ()
    named: str = ""
    history: list[Wire] = field(default_factory=list)
    session: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"x-session-id": self.named} if self.named else {}

    def wire(self, history: Sequence[Wire]) -> list[Wire]:
        return [{"role": "system", "content": self.system}, *history] if self.system else list(history)

    def send(self, history: Sequence[Wire] | None = None, **more: Any) -> Step:
        history = self.history if history is None else history
        step = self.lab.ask(self.wire(history), tools=more.pop("tools", self.tools), headers=self.headers, **more)
        return step

    def turn(self, said: str, answer: str, *, reads: str = "") -> Step:
        """The user says something, maybe the model reads a file, and it answers."""
        self.history.append(user(said))
        first = step = self.send()
        if reads:
            call_id = self.lab.call_id()
            call = called(call_id, "read_file", path=f"notes/{call_id}.txt")
            self.lab.answer(step, call)
            self.history += [call, result(call_id, reads)]
            step = self.send()
            assert step.event == "turn", step
        self.lab.answer(step, assistant(answer))
        self.history.append(assistant(answer))
        self.session = self.session or first.session.id
        return first

    def summarise(self, how: str, summary: str) -> Step | None:
        """The summarising call that the client makes before it compacts; None when it makes it elsewhere."""
        call = SUMMARY_CALLS[how](self)
        if call is None:
            return None
        messages, tools = call
        step = self.lab.ask(messages, tools=tools, headers=self.headers)
        self.lab.answer(step, assistant(summary))
        return step

    def compact(self, style: "Style", summary: str, said: str, answer: str) -> Step:
        """Rewrite the history in `style`, say something more, and take the answer."""
        system, history = style(self, summary, said)
        self.system, self.history = system, history
        step = self.send()
        self.lab.answer(step, assistant(answer))
        self.history.append(assistant(answer))
        return step


Style = Callable[[Chat, str, str], tuple[str, list[Wire]]]


# --- what is talked about ------------------------------------------------------------------------------------------

_SUBJECTS = (
    ("retry policy", "gateway/retry.py", "backoff"), ("invoice export", "billing/export.sql", "column"),
    ("login page", "web/login.tsx", "redirect"), ("nightly backup", "ops/backup.sh", "bucket"),
    ("search ranking", "search/rank.py", "boost"), ("image resizer", "media/resize.rs", "quality"),
    ("rate limiter", "edge/limit.go", "burst"), ("audit log", "audit/log.py", "retention"),
    ("feature flags", "flags/rules.yaml", "rollout"), ("mail templates", "mail/welcome.html", "subject"),
    ("cache eviction", "cache/lru.c", "capacity"), ("job scheduler", "jobs/cron.py", "interval"),
)  # fmt: skip
_SAID = {
    "en": (
        "In project {project} the {subject} lives in {path}; please set its {knob} to {number} and tell me why.",
        "Done: {path} of {project} now has {knob} = {number}. It is read once at start, so restart the worker.",
        "Summary: in {project} the {subject} in {path} got {knob} {number}; the worker has to be restarted after it.",
    ),
    "de": (
        "Im Projekt {project} liegt das Modul {subject} in {path}; bitte setze {knob} auf {number} und begründe es.",
        "Erledigt: {path} von {project} enthält jetzt {knob} = {number}. Der Wert wird nur beim Start gelesen.",
        "Bisher: im Projekt {project} wurde {subject} in {path} auf {knob} {number} gestellt, danach Neustart nötig.",
    ),
    "zh": (
        "在项目{project}里,{subject}模块位于{path};请把{knob}改成{number},并说明这样做的原因。",
        "已完成:{project}的{path}现在把{knob}设为{number}。这个值只在启动时读取,所以要重启工作进程。",
        "到目前为止:项目{project}的{subject}({path})已把{knob}改为{number},之后需要重启。",
    ),
}


def turns(project: str, count: int, language: str = "en", *, start: int = 0) -> list[tuple[str, str]]:
    """`count` pairs (said, answered) about one project, no two alike."""
    return [(_say(0, project, n, language), _say(1, project, n, language)) for n in range(start, start + count)]


def summary_of(project: str, numbers: int | Iterable[int], language: str = "en") -> str:
    """A summary of the turns `numbers` (so many, when it is one number) that leaves out every other one."""
    chosen = range(numbers) if isinstance(numbers, int) else list(numbers)
    return " ".join(_say(2, project, n, language) for n in chosen[::2])


def _say(which: int, project: str, n: int, language: str) -> str:
    subject, path, knob = _SUBJECTS[n % len(_SUBJECTS)]
    number = 1000 + (sum(map(ord, project)) * 31 + n * 7919) % 8999
    return _SAID[language][which].format(project=project, subject=subject, path=path, knob=knob, number=number)


# --- how clients ask for a summary ---------------------------------------------------------------------------------

_ASK = {
    "instruction": "Your task is to create a detailed summary of the conversation so far, so that work can go on "
    "from it without the history. "
    + "Keep every path, name, decision and open task, in the order in which they came up. "
    * 6,
    "other system": "Summarize the conversation for a colleague who goes on with it. Keep facts and names.",
    "German": "Fasse das bisherige Gespräch für die Fortsetzung zusammen. "
    + "Behalte Pfade, Namen und Entscheidungen bei. " * 10,
}


def transcript(history: Sequence[Wire]) -> str:
    return "\n".join(f"[{m['role']}]: {m['content']}" for m in history if m.get("content"))


def _instructed(words: str) -> Callable[[Chat], tuple[list[Wire], tuple[str, ...]] | None]:
    return lambda chat: (chat.wire([*chat.history, user(words)]), chat.tools)


SUMMARY_CALLS: dict[str, Callable[[Chat], tuple[list[Wire], tuple[str, ...]] | None]] = {
    "made elsewhere": lambda chat: None,
    "instruction at the end": _instructed(_ASK["instruction"]),
    "instruction at the end, no tools": lambda chat: (chat.wire([*chat.history, user(_ASK["instruction"])]), ()),
    "transcript under another system prompt": lambda chat: (
        [{"role": "system", "content": _ASK["other system"]}, user(transcript(chat.history))], ()),
    "transcript in one message, no system prompt": lambda chat: (
        [user(f"{_ASK['other system']}\n\n{transcript(chat.history)}")], ()),
    "history under another system prompt": lambda chat: (
        [{"role": "system", "content": _ASK["other system"]}, *chat.history, user("Now write it.")], ()),
    "German transcript": lambda chat: ([user(f"{_ASK['German']}\n\n{transcript(chat.history)}")], ()),
}  # fmt: skip


# --- how clients compact -------------------------------------------------------------------------------------------


def _tail(history: Sequence[Wire], count: int) -> list[Wire]:
    """The last messages, from the first that is no tool result."""
    kept = list(history[-count:])
    while kept and kept[0]["role"] == "tool":
        kept.pop(0)
    return kept


def _first_text(message: Wire) -> str:
    content = message["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


def _user_messages(history: Sequence[Wire]) -> list[Wire]:
    return [m for m in history if m["role"] == "user"]


_CONTINUED = "This session is being continued from a previous conversation that ran out of context."
STYLES: dict[str, Style] = {
    "summary as user message, tail": lambda c, s, q: (c.system, [user(s), *_tail(c.history, 3), user(q)]),
    "summary as user message, acknowledged, tail": lambda c, s, q: (
        c.system, [user(s), assistant("Got it."), *_tail(c.history, 4), user(q)]),
    "first user message and an assistant summary": lambda c, s, q: (c.system, [c.history[0], assistant(s), user(q)]),
    "bare assistant summary": lambda c, s, q: (c.system, [assistant(s), user(q)]),
    "bare assistant summary, tail": lambda c, s, q: (c.system, [assistant(s), *_tail(c.history, 2), user(q)]),
    "first message, assistant summary, last three": lambda c, s, q: (
        c.system, [c.history[0], assistant(s), *_tail(c.history, 3), user(q)]),
    "second system message, tail": lambda c, s, q: (
        c.system, [{"role": "system", "content": s}, *_tail(c.history, 4), user(q)]),
    "second system message only": lambda c, s, q: (c.system, [{"role": "system", "content": s}, user(q)]),
    "appended to the system prompt, tail": lambda c, s, q: (f"{c.system}\n\n{s}", [*_tail(c.history, 4), user(q)]),
    "in front of the system prompt, tail": lambda c, s, q: (
        "\n\n".join((s, c.system.rpartition("\n\n")[2])), [*_tail(c.history, 4), user(q)]),
    "appended to the system prompt only": lambda c, s, q: (f"{c.system}\n\n{s}", [user(q)]),
    "first message, untagged user summary, tail": lambda c, s, q: (
        c.system, [c.history[0], user(s), *_tail(c.history, 3), user(q)]),
    "first message and summary in one, tail": lambda c, s, q: (
        c.system, [parts(_first_text(c.history[0]), s), *_tail(c.history, 3), user(q)]),
    "user messages replayed, summary last": lambda c, s, q: (c.system, [*_user_messages(c.history), user(s), user(q)]),
    "user messages replayed": lambda c, s, q: (c.system, [*_user_messages(c.history), user(q)]),
    "skipped messages": lambda c, s, q: (
        c.system, [*c.history[:2], user(f"Skipped {len(c.history) - 6} messages."), *_tail(c.history, 4), user(q)]),
    "session continued and the last message": lambda c, s, q: (c.system, [user(f"{_CONTINUED}\n{s}"), user(q)]),
    "session continued, all in one message": lambda c, s, q: (c.system, [user(f"{_CONTINUED}\n{s}\n\n{q}")]),
    "summary and question in one message": lambda c, s, q: (c.system, [user(f"{s}\n\n{q}")]),
    "summary, then the question": lambda c, s, q: (c.system, [user(s), user(q)]),
    "summary, acknowledged, question": lambda c, s, q: (c.system, [user(s), assistant("Understood."), user(q)]),
    "last six only": lambda c, s, q: (c.system, [*_tail(c.history, 6), user(q)]),
    "window from an assistant message": lambda c, s, q: (c.system, [*c.history[-5:], user(q)]),
    "the last pair": lambda c, s, q: (c.system, [*c.history[-2:], user(q)]),
    "last answer only": lambda c, s, q: (c.system, [c.history[-1], user(q)]),
    "last message only": lambda c, s, q: (c.system, [user(q)]),
}  # fmt: skip

SILENT = {
    "user messages replayed", "last six only", "window from an assistant message", "the last pair", "last answer only",
    "last message only", "skipped messages",
}  # fmt: skip
"""Styles without a summary."""


def summarised_chat(named: str) -> tuple[Chat, str]:
    """A chat of eight turns that its client has compacted, and the summary of it."""
    chat = Chat(Lab(), named=named)
    for said, answer in turns("zephyr", 8):
        chat.turn(said, answer)
    summary = summary_of("zephyr", [1, 2, 5])
    chat.summarise("instruction at the end", summary)
    chat.compact(STYLES["summary, then the question"], summary, "Go on.", "I go on with it.")
    return chat, summary
