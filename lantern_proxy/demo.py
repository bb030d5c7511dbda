"""A chat that is compacted and asked about: the script, six ways to compact it, a scripted upstream, and the play.

    chat()                       the 60 turns that ship with Lantern, their summary, six details that it loses
    SHAPES[name](history, summary, question)  -> the messages of the first request after a compaction
    upstream(chat())             a Starlette app that answers by the script, and questions only from what it was sent
    play(chat(), ...)            all of it through real servers on 127.0.0.1: `lantern demo` shows the Story

No key and no network. Without Lantern means: the same request, sent straight to the same upstream.
"""

import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lantern_proxy.config import Config
from lantern_proxy.turn import BLOCK_CLOSE, BLOCK_OPEN, strip_block

Wire = dict[str, str]
"""One message as chat completions has it: {"role": ..., "content": ...}."""
Words = Literal["literal", "other"]
Shape = Callable[[Sequence[Wire], str, str], list[Wire]]

UNKNOWN = "I do not know."
SUMMARISE = (
    "Write a summary of the conversation so far, so that another assistant can go on with the work. Keep the goal, "
    "what was decided, what is done and what comes next. Answer with the summary only."
)
MODEL = "scripted-1"
_BLOCK = re.compile(re.escape(BLOCK_OPEN) + r"\b.*?" + re.escape(BLOCK_CLOSE), re.S)
_HEADER = re.compile(r"^\[[^\]\n]*#\d+[^\]\n]*\]\s*")
"""Date, speaker and turn that a passage has in a block; a model would not quote it."""
_KEPT_CHARS = 4_000
"""What the silently truncating client keeps: with 4,000 of 20,000 characters, the last fifth."""


class DemoError(RuntimeError):
    """The play cannot go on: a server did not start, or an answer came back altered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """Something said once, early, and lost in the summary."""

    id: str
    about: str
    turn: int
    """Where it is said, from 1."""
    speaker: Literal["user", "assistant"]
    answer: str
    """Stands in that one message and nowhere else."""
    literal: str
    """A question in the words of the statement."""
    other: str
    """The same question in other words."""

    def question(self, words: Words) -> str:
        return self.literal if words == "literal" else self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A scripted conversation."""

    title: str
    system: str
    turns: tuple[tuple[str, str], ...]
    """What the user says, what the assistant answers."""
    summary: str
    details: tuple[Detail, ...]

    @property
    def history(self) -> list[Wire]:
        """The whole conversation as a client would send it, the system prompt first."""
        spoken = [
            _say(role, text) for turn in self.turns for role, text in zip(("user", "assistant"), turn, strict=True)
        ]
        return [_say("system", self.system), *spoken]


def chat() -> Chat:
    """The chat that ships with Lantern."""
    raw = json.loads(files("lantern_proxy").joinpath("data/demo_chat.json").read_text("utf-8"))
    return Chat(
        title=raw["title"],
        system=raw["system"],
        turns=tuple((turn["user"], turn["assistant"]) for turn in raw["turns"]),
        summary=raw["summary"],
        details=tuple(Detail(**detail) for detail in raw["details"]),
    )


# Six ways to compact. Each takes the whole history (system prompt first), the summary and the next question.


def summary_as_user(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The summary in a user message of its own, then the last exchange: as pi, Cline and LangChain do."""
    said = f"The conversation history before this point was compacted into the following summary:\n\n{summary}"
    return [history[0], _say("user", said), *history[-2:], _say("user", question)]


def summary_as_assistant(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The first user message is kept and the assistant seems to have answered it with the summary."""
    return [history[0], history[1], _say("assistant", summary), *history[-2:], _say("user", question)]


def truncated(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The oldest messages are dropped without a word until the rest fits: trim_messages and other windows."""
    first, room = len(history), _KEPT_CHARS
    while first > 1 and (room := room - len(history[first - 1]["content"])) >= 0:
        first -= 1
    return [history[0], *history[first:], _say("user", question)]


def summary_in_system(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The summary is appended to the system prompt, the last two exchanges stay."""
    system = f"{history[0]['content']}\n\nSummary of the conversation so far:\n{summary}"
    return [_say("system", system), *history[-4:], _say("user", question)]


def continued(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """A message that the session is being continued, and the last message only: as Claude Code does."""
    said = (
        "This session is being continued from a previous conversation that ran out of context. The conversation is "
        f"summarized below:\n{summary}\n\nPlease continue from where we left it off, without asking further questions."
    )
    return [history[0], _say("user", said), _say("user", question)]


def last_six(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The last six messages and nothing else, not even the system prompt; the first of them is an assistant's."""
    return [*history[-5:], _say("user", question)]


SHAPES: Mapping[str, Shape] = {
    "user-summary": summary_as_user,
    "assistant-summary": summary_as_assistant,
    "truncated": truncated,
    "system-summary": summary_in_system,
    "continued": continued,
    "last-six": last_six,
}
SUMMARISED = frozenset({"user-summary", "assistant-summary", "system-summary", "continued"})
"""Shapes whose client asks the model for a summary first."""


def answer_from(texts: Sequence[str], detail: Detail) -> str:
    """The first sentence of `texts` that holds the answer, else UNKNOWN. What a model without a memory could say."""
    for text in texts:
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text):
            if detail.answer in sentence:
                return _HEADER.sub("", sentence.strip())
    return UNKNOWN


def upstream(script: Chat) -> Starlette:
    """A model that knows its script and nothing else: POST /v1/chat/completions, streamed or not.

    It answers a line of the script with the next line, a request for a summary with the script's summary, and a
    question about a detail with a sentence of what it was sent, or UNKNOWN. `.state.received` keeps every body.
    """
    replies = dict(script.turns)
    questions = {words: detail for detail in script.details for words in (detail.literal, detail.other)}

    def reply(messages: Sequence[Wire]) -> str:
        last = strip_block(messages[-1]["content"]).strip()
        if last == SUMMARISE:
            return script.summary
        if detail := questions.get(last):
            return answer_from([each["content"] for each in messages], detail)
        return replies.get(last, "All right.")

    async def completions(request: Request) -> Response:
        body = json.loads(await request.body())
        request.app.state.received.append(body)
        number = len(request.app.state.received)
        text = reply(body["messages"])
        if body.get("stream"):
            return StreamingResponse(_events(text, number), media_type="text/event-stream")
        return JSONResponse(_completion(text, number))

    served = Starlette(routes=[Route("/v1/chat/completions", completions, methods=["POST"])])
    served.state.received = []
    return served


@contextmanager
def serving(asgi: Any) -> Iterator[str]:
    """Serve `asgi` on a free port of 127.0.0.1 in a thread, yield its URL, and stop with the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(asgi, log_config=None, ws="none", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, args=([listener],), name="demo-server", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise DemoError("a server did not start")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One lost detail, asked for with and without Lantern."""

    detail: Detail
    question: str
    without: str
    """What the model answered to the client's own request."""
    answer: str
    """What it answered to the request that Lantern sent."""
    request: str
    """Id for `lantern why`."""
    event: str
    restored: int
    """Passages in the blocks of this request, replayed ones included."""
    chars: int
    """Characters that Lantern added to this request."""
    ms: float
    """Milliseconds that the request spent in Lantern before it went upstream."""
    degraded: str
    blocks: tuple[str, ...]
    """The restored blocks exactly as they reached the model."""

    @property
    def was_lost(self) -> bool:
        return self.detail.answer not in self.without

    @property
    def is_back(self) -> bool:
        return self.detail.answer in self.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happened, from the first turn to the last question."""

    shape: str
    words: Words
    turns: int
    messages: int
    history_chars: int
    compacted_chars: int
    """Of the client's first request after the compaction."""
    played_s: float
    """Seconds that all turns took, the scripted upstream included."""
    embedder: str
    """Its state when the questions were asked: off, warming, ready or failed."""
    outcomes: tuple[Outcome, ...]
    stranger: int
    """Details that a second credential got out of the same requests. Must be 0."""


Tell = Callable[[str, int, int], None]
"""(what is being done, steps done, steps in all)"""


def play(
    script: Chat, shape: str, words: Words, config: Config, *, wait_s: float = 60.0, tell: Tell = lambda *_: None
) -> Story:
    """Play the chat through a proxy of `config`, compact it in `shape`, ask for every detail with and without Lantern.

    config: its archive is used as it is; its upstream is replaced by the scripted one
    wait_s: most seconds to wait for the embedder, and then for the vectors of what was said
    """
    from lantern_proxy.app import create  # the script, the shapes and the upstream need no proxy

    model = upstream(script)
    with serving(model) as model_url:
        upstreams = replace(config.upstream, openai=f"{model_url}/v1")
        proxy = create(replace(config, upstream=upstreams))
        with serving(proxy) as url, httpx.Client(timeout=60) as http:
            straight, through = _Caller(http, model_url, "sk-demo"), _Caller(http, url, "sk-demo")
            started = time.monotonic()
            _converse(script, through, tell)
            played_s = time.monotonic() - started
            if shape in SUMMARISED:
                through.ask([*script.history, _say("user", SUMMARISE)], stream=False)
            state = _await_vectors(http, url, wait_s, tell)
            asked = _interrogate(script, shape, words, straight, through, model.state.received, tell)
            stranger = _Caller(http, url, "sk-somebody-else")
            overheard = sum(
                detail.answer in stranger.ask(_compact(script, shape, detail.question(words)), stream=False).text
                for detail in script.details
            )
    return Story(
        shape=shape,
        words=words,
        turns=len(script.turns),
        messages=len(script.history),
        history_chars=_chars(script.history),
        compacted_chars=_chars(_compact(script, shape, asked[0].question)),
        played_s=played_s,
        embedder=state,
        outcomes=asked,
        stranger=overheard,
    )


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Caller:
    """One client: where it calls and with which key."""

    http: httpx.Client
    url: str
    key: str

    def ask(self, messages: Sequence[Wire], *, stream: bool) -> _Reply:
        body = {"model": MODEL, "messages": list(messages), "stream": stream}
        answer = self.http.post(
            f"{self.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {self.key}"}
        )
        answer.raise_for_status()
        text = _streamed(answer.text) if stream else answer.json()["choices"][0]["message"]["content"]
        return _Reply(text, answer.headers)


def _converse(script: Chat, through: _Caller, tell: Tell) -> None:
    """All turns, each request with the whole history, as clients do; every other one streamed."""
    history = script.history
    for at in range(len(script.turns)):
        tell("playing the chat through Lantern", at, len(script.turns))
        sent = history[: 2 * at + 2]
        heard = through.ask(sent, stream=at % 2 == 1).text
        if heard != script.turns[at][1]:
            raise DemoError(f"turn {at + 1} came back altered: {heard[:80]!r}")


def _interrogate(
    script: Chat,
    shape: str,
    words: Words,
    straight: _Caller,
    through: _Caller,
    received: Sequence[Mapping[str, Any]],
    tell: Tell,
) -> tuple[Outcome, ...]:
    """Ask for every detail, one after the other in the compacted conversation."""
    said: list[Wire] = []
    outcomes: list[Outcome] = []
    for at, detail in enumerate(script.details):
        tell("asking for lost details", at, len(script.details))
        question = detail.question(words)
        start = _compact(script, shape, script.details[0].question(words))
        messages = start if not said else [*start, *said, _say("user", question)]
        without = straight.ask(messages, stream=False).text
        reply = through.ask(messages, stream=at % 2 == 0)
        sent = received[-1]["messages"]
        outcomes.append(_outcome(detail, question, without, reply, [each["content"] for each in sent]))
        said += [_say("user", question)] * bool(said) + [_say("assistant", reply.text)]
    return tuple(outcomes)


def _outcome(detail: Detail, question: str, without: str, reply: _Reply, sent: Sequence[str]) -> Outcome:
    headers = reply.headers
    return Outcome(
        detail=detail,
        question=question,
        without=without,
        answer=reply.text,
        request=headers.get("x-lantern-request", ""),
        event=headers.get("x-lantern-event", ""),
        restored=int(headers.get("x-lantern-restored", "0")),
        chars=int(headers.get("x-lantern-chars", "0")),
        ms=float(headers.get("x-lantern-ms", "0")),
        degraded=headers.get("x-lantern-degraded", ""),
        blocks=tuple(block for text in sent for block in _BLOCK.findall(text)),
    )


def _await_vectors(http: httpx.Client, url: str, wait_s: float, tell: Tell) -> str:
    """Wait while the embedder compiles its model or has passages to embed; its state at the end."""
    deadline = time.monotonic() + wait_s
    while True:
        embedder = http.get(f"{url}/lantern/health").json().get("embedder") or {}
        busy = embedder.get("state") == "warming" or (embedder.get("state") == "ready" and embedder.get("pending"))
        if not busy or time.monotonic() > deadline:
            return str(embedder.get("state", "off"))
        tell(f"waiting for the embedder ({embedder.get('detail') or embedder.get('state')})", 0, 1)
        time.sleep(0.1)


def _compact(script: Chat, shape: str, question: str) -> list[Wire]:
    return SHAPES[shape](script.history, script.summary, question)


def _say(role: str, text: str) -> Wire:
    return {"role": role, "content": text}


def _chars(messages: Sequence[Wire]) -> int:
    return sum(len(each["content"]) for each in messages)


def _completion(text: str, number: int) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": f"chatcmpl-demo-{number}", "object": "chat.completion", "model": MODEL, "choices": [choice]}


async def _events(text: str, number: int) -> AsyncIterator[str]:
    """Server-sent events of a streamed completion, one a word."""
    head = {"id": f"chatcmpl-demo-{number}", "object": "chat.completion.chunk", "model": MODEL}
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": word}, None) for word in re.findall(r"\S+\s*|\s+", text)]
    for delta, finish in [*deltas, ({}, "stop")]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        yield f"data: {json.dumps(head | {'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"


def _streamed(events: str) -> str:
    """The text of a streamed completion."""
    lines = [line[6:] for line in events.splitlines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines)


def configured(config: Config, directory: Path, *, dense: bool) -> Config:
    """`config` with its archive in `directory`, and without the embedder when `dense` is false.

    A restore gets four seconds, so that a machine that is busy starting two servers does not spoil the show; the
    milliseconds that are shown are those it took.
    """
    embed = config.embed if dense else replace(config.embed, enabled="off")
    restore = replace(config.restore, deadline_ms=max(config.restore.deadline_ms, 4_000))
    return replace(config, archive=replace(config.archive, path=directory / "demo.db"), embed=embed, restore=restore)
