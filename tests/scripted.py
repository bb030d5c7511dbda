"""A scripted upstream, and the real app under a real server: what the tests of the proxy talk to.

    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        upstream.answer = respond(200, b"{}")
        httpx.post(f"{url}/v1/chat/completions", ...)
        upstream.got[-1].body

The upstream is a bare socket server, so that it can answer with any bytes and see when its connection ends.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path

import httpx
import uvicorn

from lantern_proxy import app
from lantern_proxy.app_http1 import ClientConnection
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig, RestoreConfig, UpstreamConfig

REASONS = {200: b"OK"}
http = httpx.Client(timeout=60, cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])))
"""One client for all tests: to make one takes longer than most requests."""


@dataclass
class ReceivedRequest:
    """A request as it reached the upstream."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def data(self):
        return json.loads(self.body)

    @property
    def texts(self) -> str:
        return json.dumps(self.data.get("messages"), ensure_ascii=False)


@dataclass
class Wire:
    """The connection that a request came by."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, *headers: tuple[str, str]) -> None:
        lines = [b"HTTP/1.1 %d %s" % (status, REASONS.get(status, b"Some Reason"))]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
        await self.send(b"\r\n".join(lines) + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def closed(self) -> None:
        """Returns when the other side ends the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65_536):
                pass

    def reset(self) -> None:
        self.writer.transport.abort()


Answer = Callable[[ReceivedRequest, Wire], Awaitable[None]]


def respond(status: int, body: bytes, *headers: tuple[str, str], length: bool = True) -> Answer:
    """One whole body. length: with a content-length"""

    async def answer(got: ReceivedRequest, wire: Wire) -> None:
        extra = [("content-length", str(len(body)))] if length else []
        await wire.head(status, *headers, *extra)
        if got.method != "HEAD":
            await wire.send(body)

    return answer


SSE = ("content-type", "text/event-stream; charset=utf-8")
CHUNKED = ("transfer-encoding", "chunked")


def stream(*chunks: bytes, headers: tuple[tuple[str, str], ...] = (), status: int = 200) -> Answer:
    """Each of `chunks` as one HTTP chunk."""

    async def answer(got: ReceivedRequest, wire: Wire) -> None:
        await wire.head(status, SSE, CHUNKED, *headers)
        for chunk in chunks:
            await wire.chunk(chunk)
        await wire.send(b"0\r\n\r\n")

    return answer


def completion(text: str, id_: str = "chatcmpl-1", **message) -> bytes:
    message = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"id": id_, "object": "chat.completion", "model": "m", "choices": [choice]}).encode()


def events(text: str, id_: str = "chatcmpl-1", pieces: int = 4) -> list[bytes]:
    """A streamed completion, one event a chunk, [DONE] at the end."""
    step = max(1, -(-len(text) // pieces))
    deltas = [{"content": text[at : at + step]} for at in range(0, len(text), step)]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in [{"role": "assistant"}, *deltas]]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    frame = {"id": id_, "object": "chat.completion.chunk", "model": "m"}
    return [*(f"data: {json.dumps({**frame, 'choices': [c]})}\n\n".encode() for c in choices), b"data: [DONE]\n\n"]


def reply_to(got: ReceivedRequest) -> str:
    """What the scripted model says: a text that names the last user message."""
    last = next((m for m in reversed(got.data["messages"]) if m.get("role") == "user"), {})
    content = last.get("content")
    text = content if isinstance(content, str) else json.dumps(content)
    return f"I heard: {text.split('<restored_context')[0].strip()}"


async def echo(got: ReceivedRequest, wire: Wire) -> None:
    """Answers a chat completion, streamed when asked to; anything else with {}."""
    if not got.target.split("?")[0].endswith("/chat/completions"):
        await respond(200, b"{}", ("content-type", "application/json"))(got, wire)
        return
    text = reply_to(got)
    id_ = f"chatcmpl-{abs(hash(got.body)):x}"
    if got.data.get("stream"):
        await stream(*events(text, id_))(got, wire)
    else:
        await respond(200, completion(text, id_), ("content-type", "application/json"))(got, wire)


@dataclass
class Upstream:
    """A server on a free loopback port, in a thread of its own."""

    answer: Answer = echo
    got: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Upstream":
        started = threading.Event()
        self._loop = asyncio.new_event_loop()

        async def start() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 26, backlog=512)
            self.port = self._server.sockets[0].getsockname()[1]
            started.set()

        def run() -> None:
            self._starting = self._loop.create_task(start())
            self._loop.run_forever()
            self._server.close()  # else the port stays open until the garbage is collected, and answers nobody
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert started.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while (got := await _read(reader)) is not None:
                self.got.append(got)
                await self.answer(got, Wire(reader, writer))
        writer.close()


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers = []
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    got = ReceivedRequest(method, target, headers, b"")
    if got.header("transfer-encoding"):
        while size := int(await reader.readline(), 16):
            got.body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        got.body = await reader.readexactly(int(got.header("content-length") or 0))
    return got


# --- the proxy -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def unused_port() -> Iterator[int]:
    """A port that nobody listens on, kept from others while the block runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


PATIENT_MS = 20_000
"""restore.deadline_ms of tests that are not about it."""


def config_for(upstream: Upstream, folder: Path, /, **sections) -> Config:
    """The defaults, without an embedder, with the archive in `folder` and time for slow disks and busy cores."""
    base = {
        "archive": ArchiveConfig(path=folder / "lantern.db", hold_ms=10_000),
        "upstream": UpstreamConfig(openai=f"{upstream.url}/v1", anthropic=upstream.url),
        "embed": EmbedConfig(enabled="off"),
        "restore": RestoreConfig(deadline_ms=PATIENT_MS),
    }
    return Config(**(base | sections))


@contextlib.contextmanager
def serving(config: Config, **parts) -> Iterator[str]:
    """The app on a free port, served as `lantern serve` does. Yields its URL."""
    settings = uvicorn.Config(
        app.create(config, **parts), host="127.0.0.1", port=0, http=ClientConnection, loop="uvloop", ws="none",
        lifespan="on", log_config=None, access_log=False, server_header=False, date_header=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started or not thread.is_alive())
    assert server.started
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive(), "the server does not stop"


@contextlib.contextmanager
def process(config: Config, *arguments: str, more: str = "", **options) -> Iterator[tuple[subprocess.Popen, str]]:
    """`lantern serve` as a process of its own; ended when the block ends. Yields it and its URL. more: YAML"""
    environ = os.environ | {
        "LANTERN_ARCHIVE": str(config.archive.path), "LANTERN_OPENAI_UPSTREAM": config.upstream.openai,
        "LANTERN_ANTHROPIC_UPSTREAM": config.upstream.anthropic, "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    settings = config.archive.path.parent / "lantern.yaml"
    archive = f"archive: {{hold_ms: {config.archive.hold_ms}, synchronous: {config.archive.synchronous}}}\n"
    patient = "" if "restore:" in more else f"restore: {{deadline_ms: {PATIENT_MS}}}\n"
    settings.write_text("embed: {enabled: 'off'}\n" + archive + patient + more)
    command = [sys.executable, "-m", "lantern_proxy", "serve", "--port", "0", "--json", "--config", str(settings)]
    command += arguments
    serve = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    try:
        banner = serve.stdout.readline()
        assert banner, serve.stderr.read()
        yield serve, json.loads(banner)["url"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            serve.send_signal(signal.SIGKILL)
        serve.wait(10)
        serve.stdout.close()
        serve.stderr.close()


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> object:
    """The first true value of `condition`; the last one when it never comes."""
    until = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < until:
        time.sleep(0.005)
    return value


def body(*messages, stream: bool = False, **more) -> dict:
    """A chat completion request. messages: dicts, or texts by user and assistant in turn."""
    roles = ("user", "assistant")
    found = [m if isinstance(m, dict) else {"role": roles[at % 2], "content": m} for at, m in enumerate(messages)]
    return {"model": "m", "messages": found, **({"stream": True} if stream else {}), **more}


def ask(url: str, request: dict, key: str = "sk-one", **headers: str) -> httpx.Response:
    """POST a chat completion, read to its end."""
    headers = {"authorization": f"Bearer {key}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return http.post(f"{url}/v1/chat/completions", json=request, headers=headers)


def lantern_headers(response: httpx.Response) -> dict[str, str]:
    """The x-lantern-* headers of an answer, without that prefix."""
    names = [name for name in response.headers if name.startswith("x-lantern-")]
    return {name.removeprefix("x-lantern-"): response.headers[name] for name in names}


COMPACTED = ("Summary of the conversation so far: we talked about services.", "Good.")
"""What a client sends in place of a chat."""


def compacted_chat(url: str, session: str, said: Iterable[str], question: str, key: str = "sk-one") -> dict[str, str]:
    """Play a chat, then a summary of it with a question; the x-lantern-* headers of that last request."""
    history: list[str] = []
    for text in said:
        history.append(text)
        answer = ask(url, body(*history), key=key, x_lantern_session=session).json()
        history.append(answer["choices"][0]["message"]["content"])
    return lantern_headers(ask(url, body(*COMPACTED, question), key=key, x_lantern_session=session))


def archive_bytes(path: Path) -> bytes:
    """All bytes of an archive and of the files beside it (write-ahead log, snapshots)."""
    return b"".join(part.read_bytes() for part in path.parent.glob(path.name + "*"))


async def filed(filing: "Awaitable[Future[bool] | None]") -> bool:
    """Wait until the writer has stored what Proxy.file returned; True also if there is nothing to archive."""
    writing = await filing
    return writing is None or await asyncio.wrap_future(writing)
