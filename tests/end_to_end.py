"""Scripted chats played through the real proxy, compacted, and asked about: what reached the model?

with stage(told("family").chat, folder) as played:   # 60 turns through uvicorn, archived, embedded
    with played.restarted("truncated") as client:    # a copy of the archive, a proxy that serves it
        seen = client.ask(messages)                  # the body as the upstream got it, and its blocks
"""

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from lantern_proxy import app, demo
from lantern_proxy.archive import Archive
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig, RestoreConfig, UpstreamConfig
from lantern_proxy.turn_blocks import BLOCK_OPEN

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("LANTERN_TEST_CACHE") or REPOSITORY / ".cache" / "embed")
CHATS = ("backend", "family", "research")
KEY = "sk-of-the-client"
STRANGER = "sk-of-somebody-else"
NEUTRAL = "Right, where were we?"
DEADLINE_MS, WAIT_S = 30_000, 30.0
"""Of a restore, and of the look into the archive for the session: a busy machine must not decide what is found. How
long they take is measured elsewhere."""
WORDS: tuple[demo.Words, ...] = ("literal", "other")


@dataclass(frozen=True, slots=True)
class Told:
    """A chat of tests/data/chats, or the one that ships."""

    name: str
    chat: demo.Chat
    chatter: tuple[str, ...]
    """Later messages that ask for nothing of what was lost."""


def told(name: str) -> Told:
    """`demo` or the name of a file in tests/data/chats."""
    if name == "demo":
        return Told(name, demo.chat(), told(CHATS[0]).chatter)
    raw = json.loads((REPOSITORY / "tests" / "data" / "chats" / f"{name}.json").read_text("utf-8"))
    chat = demo.Chat(
        title=raw["title"],
        system=raw["system"],
        turns=tuple((turn["user"], turn["assistant"]) for turn in raw["turns"]),
        summary=raw["summary"],
        details=tuple(demo.Detail(**detail) for detail in raw["details"]),
    )
    return Told(name, chat, tuple(raw["chatter"]))


@dataclass(frozen=True, slots=True)
class Seen:
    """One request: what the upstream got of it, and what Lantern says of it."""

    sent: tuple[str, ...]
    """The messages of the body that reached the upstream."""
    answer: str
    event: str
    chars: int
    ms: float
    degraded: str
    request: str

    @property
    def text(self) -> str:
        return "\n".join(self.sent)

    @property
    def asked(self) -> bool:
        """Does the last message carry a block? A turn after the compaction this can only be a question block."""
        return BLOCK_OPEN in self.sent[-1]


@dataclass
class Client:
    """One program with one key, through a proxy that serves."""

    http: httpx.Client
    url: str
    received: list[dict[str, Any]]
    archive: Path
    key: str = KEY
    count: int = 0

    def ask(self, messages: Sequence[demo.Wire]) -> Seen:
        """Every other request is streamed."""
        self.count += 1
        stream = self.count % 2 == 0
        body = {"model": demo.MODEL, "messages": list(messages), "stream": stream}
        headers = {"authorization": f"Bearer {self.key}"}
        reply = self.http.post(f"{self.url}/v1/chat/completions", json=body, headers=headers)
        reply.raise_for_status()
        told = reply.headers
        return Seen(
            sent=tuple(each["content"] for each in self.received[-1]["messages"]),
            answer=demo._streamed(reply.text) if stream else reply.json()["choices"][0]["message"]["content"],
            event=told["x-lantern-event"],
            chars=int(told["x-lantern-chars"]),
            ms=float(told["x-lantern-ms"]),
            degraded=told.get("x-lantern-degraded", ""),
            request=told["x-lantern-request"],
        )

    def blocks(self, seen: Seen) -> dict[str, str]:
        """Kind -> text of the blocks that are new in this request."""
        with Archive(self.archive, read_only=True) as archive:
            why = archive.of(archive.tenant_of(self.key)).why(seen.request)
        return {block.restored.kind: block.restored.text for block in why.blocks} if why else {}


@dataclass
class Stage:
    """A chat that was played: its archive after the last turn, to start other proxies with."""

    chat: demo.Chat
    folder: Path
    http: httpx.Client
    received: list[dict[str, Any]]
    config: Config
    copies: int = 0

    @contextmanager
    def restarted(self, shape: str, *, dense: bool = True) -> Iterator[Client]:
        """A new proxy on a copy of the archive: the compaction is the first that it sees."""
        self.copies += 1
        path = self.folder / f"copy{self.copies}.db"
        shutil.copy(self.folder / ("summarised.db" if shape in demo.SUMMARISED else "played.db"), path)
        config = replace(self.config, archive=replace(self.config.archive, path=path))
        if not dense:
            config = replace(config, embed=EmbedConfig(enabled="off"))
        with serving(config, self.http) as url:
            yield Client(self.http, url, self.received, path)
        path.unlink()

    def compacted(self, shape: str, question: str) -> list[demo.Wire]:
        return demo.SHAPES[shape](self.chat.history, self.chat.summary, question)


@contextmanager
def serving(config: Config, http: httpx.Client) -> Iterator[str]:
    """The real proxy of `config` on loopback, with its embedder ready."""
    served = app.create(config)
    with demo.serving(served) as url:
        tenants = served.state.proxy.tenants
        tenants.own_wait_s = tenants.recent_wait_s = WAIT_S
        deadline = time.monotonic() + 240
        while (embedder := http.get(f"{url}/lantern/health").json()["embedder"])["state"] == "warming":
            assert time.monotonic() < deadline, embedder
            time.sleep(0.01)
        assert embedder["state"] == ("off" if config.embed.enabled == "off" else "ready"), embedder
        yield url


@contextmanager
def stage(chat: demo.Chat, folder: Path, *, dense: bool = True) -> Iterator[Stage]:
    """Play `chat` turn by turn through the real proxy and keep its archive, with a vector for every passage.

    Kept twice: after the last turn, and after the client's summarising call on top of that.
    """
    model = demo.upstream(chat)
    received = model.state.received
    with demo.serving(model) as model_url, httpx.Client(timeout=60) as http:
        config = Config(
            archive=ArchiveConfig(path=folder / "live.db", synchronous="normal"),
            upstream=UpstreamConfig(openai=f"{model_url}/v1"),
            restore=RestoreConfig(deadline_ms=DEADLINE_MS),
            embed=EmbedConfig(enabled="on" if dense else "off", cache_dir=CACHE),
        )
        with serving(config, http) as url:
            client = Client(http, url, received, config.archive.path)
            for turn, (_, answer) in enumerate(chat.turns):
                seen = client.ask(chat.history[: 2 * turn + 2])
                assert seen.answer == answer
                assert not seen.chars
            await_vectors(config)
        shutil.copy(config.archive.path, folder / "played.db")
        with serving(config, http) as url:
            summarising = [*chat.history, demo.say("user", demo.SUMMARISE)]
            assert Client(http, url, received, config.archive.path).ask(summarising).answer == chat.summary
            await_vectors(config)
        shutil.copy(config.archive.path, folder / "summarised.db")
        yield Stage(chat, folder, http, received, config)


def await_vectors(config: Config) -> None:
    """Until everything is cut into passages, and every passage has its vector."""
    deadline = time.monotonic() + 120
    with Archive(config.archive.path, read_only=True) as archive:
        while archive.uncut(1) or (config.embed.enabled == "on" and archive.unembedded(1)):
            assert time.monotonic() < deadline, "the embedder did not keep up"
            time.sleep(0.02)
