"""A chat that is compacted and asked about: the script, six ways to compact it, a scripted upstream, and the player.

    chat()                       the 60 turns that ship with Lantern, their summary, six details that it loses
    SHAPES[name](history, summary, question)  -> the messages of the first request after a compaction
    upstream(chat())             a Starlette app that answers from the script, and questions only from what it was sent
    play(chat(), ...)            all of it through real servers on 127.0.0.1: `lantern demo` shows the Story

No key and no network. "Without Lantern" is the same request, sent straight to the same upstream.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct

from lantern_proxy.archive import Archive
from lantern_proxy.config import ArchiveConfig, Config
from lantern_proxy.demo.model import MODEL, SUMMARISE, UNKNOWN, DemoError, serving, upstream
from lantern_proxy.demo.script import SHAPES, SUMMARISED, Chat, Detail, Wire, Words, chat, say
from lantern_proxy.turn_blocks import BLOCK_CLOSE, BLOCK_OPEN

__all__ = [
    "MODEL", "SHAPES", "SUMMARISE", "SUMMARISED", "UNKNOWN", "Chat", "DemoError", "Detail", "Outcome", "Story", "Tell",
    "Wire", "Words", "chat", "configured", "play", "say", "serving", "upstream",
]  # fmt: skip

_BLOCK = re.compile(re.escape(BLOCK_OPEN) + r"\b.*?" + re.escape(BLOCK_CLOSE), re.S)


class Outcome(Struct, frozen=True, kw_only=True):
    """One lost detail, asked for with and without Lantern."""

    detail: Detail
    question: str
    without: str
    """The model's answer to the client's own request."""
    answer: str
    """Its answer to the request that Lantern sent."""
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


class Story(Struct, frozen=True, kw_only=True):
    """The course of the demo, from the first turn to the last question."""

    shape: str
    words: Words
    turns: int
    messages: int
    history_chars: int
    compacted_chars: int
    """Characters of the client's first request after the compaction."""
    played_s: float
    """Seconds that all turns took, the scripted upstream included."""
    embedder: str
    """Its state when the questions were asked: off, warming, ready or failed."""
    outcomes: tuple[Outcome, ...]
    stranger: int
    """Details that a second credential got from the same requests. Must be 0."""


_WAIT_S = 60.0
"""Most seconds to wait for the embedder, and then for the vectors of what was said."""
Tell = Callable[[str, int, int], None]
"""(what is being done, steps done, steps in all)"""


def play(script: Chat, shape: str, words: Words, config: Config, *, tell: Tell = lambda *_: None) -> Story:
    """Play the chat through a proxy of `config`, compact it in `shape`, ask for every detail with and without Lantern.

    config: its archive is used as it is; its upstream is replaced by the scripted one
    """
    from lantern_proxy.app import create  # here, since the script, the shapes and the upstream need no proxy

    model = upstream(script)
    with serving(model) as model_url:
        upstreams = replace(config.upstream, openai=f"{model_url}/v1")
        proxy = create(replace(config, upstream=upstreams))
        with serving(proxy) as url, httpx.Client(timeout=60) as http:
            direct, through = _Caller(http, model_url, "sk-demo"), _Caller(http, url, "sk-demo")
            started = time.monotonic()
            _converse(script, through, tell)
            played_s = time.monotonic() - started
            if shape in SUMMARISED:
                through.ask([*script.history, say("user", SUMMARISE)], stream=False)
            state = _await_vectors(http, url, config.archive, tell)
            outcomes = _interrogate(script, shape, words, direct, through, model.state.received, tell)
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
        compacted_chars=_chars(_compact(script, shape, outcomes[0].question)),
        played_s=played_s,
        embedder=state,
        outcomes=outcomes,
        stranger=overheard,
    )


class _Reply(Struct, frozen=True):
    text: str
    headers: Mapping[str, str]


class _Caller(Struct, frozen=True):
    """One client: the URL it calls, and its key."""

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
    """Play all turns, each request with the whole history, as clients do; every other one is streamed."""
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
    direct: _Caller,
    through: _Caller,
    received: Sequence[Mapping[str, Any]],
    tell: Tell,
) -> tuple[Outcome, ...]:
    """Ask for every detail, one after the other, in the compacted conversation."""
    exchanged: list[Wire] = []
    outcomes: list[Outcome] = []
    for at, detail in enumerate(script.details):
        tell("asking for lost details", at, len(script.details))
        question = detail.question(words)
        start = _compact(script, shape, script.details[0].question(words))
        messages = start if not exchanged else [*start, *exchanged, say("user", question)]
        without = direct.ask(messages, stream=False).text
        reply = through.ask(messages, stream=at % 2 == 0)
        sent = received[-1]["messages"]
        outcomes.append(_outcome(detail, question, without, reply, [each["content"] for each in sent]))
        exchanged += [say("user", question)] * bool(exchanged) + [say("assistant", reply.text)]
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


def _await_vectors(http: httpx.Client, url: str, kept: ArchiveConfig, tell: Tell) -> str:
    """Wait while the embedder compiles its model or has passages to embed; returns its state at the end."""
    deadline = time.monotonic() + _WAIT_S
    with Archive(kept.path, read_only=True, key=kept.key()) as archive:
        while True:
            embedder = http.get(f"{url}/lantern/health").json().get("embedder") or {}
            state = embedder.get("state", "off")
            has_work = bool(archive.uncut(1) or archive.unembedded(1))
            if not (state == "warming" or (state == "ready" and has_work)) or time.monotonic() > deadline:
                return str(state)
            tell(f"waiting for the embedder ({embedder.get('detail') or state})", 0, 1)
            time.sleep(0.1)


def _compact(script: Chat, shape: str, question: str) -> list[Wire]:
    return SHAPES[shape](script.history, script.summary, question)


def _chars(messages: Sequence[Wire]) -> int:
    return sum(len(each["content"]) for each in messages)


def _streamed(events: str) -> str:
    """The text of a streamed completion."""
    lines = [line[6:] for line in events.splitlines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines)


def configured(config: Config, directory: Path, *, dense: bool) -> Config:
    """`config` with its archive in `directory`, and without the embedder if `dense` is false.

    A restore gets four seconds, so that a machine that is busy starting two servers does not spoil the demo; the
    milliseconds shown are those it took.
    """
    embed = config.embed if dense else replace(config.embed, enabled="off")
    restore = replace(config.restore, deadline_ms=max(config.restore.deadline_ms, 4_000))
    return replace(config, archive=replace(config.archive, path=directory / "demo.db"), embed=embed, restore=restore)
