"""One client, twice: straight to the scripted upstream, and through Lantern. Everything listens on loopback."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from clients.client import Client, ClientError, Job
from clients.talk import FILES, turns
from clients.tap import Call, Tap
from clients.upstream import Received, Script

ROOT = Path(__file__).resolve().parents[2]

DEADLINE_MS = 3_000
"""What restoring may take here. What is restored is looked at, not how fast, and a client beside it takes the cores."""

_homes: set[Path] = set()
"""Homes of the clients that run."""


@dataclass(frozen=True, slots=True)
class Played:
    """What one run of a client left."""

    answers: list[str]
    """What the client gave its user, one a turn."""
    calls: list[Call]
    """What the client sent and got, in order."""
    received: dict[str, Received]
    """Number of a call -> what reached the upstream of it."""
    sessions: list[dict[str, Any]]
    """Rows of /lantern/api/sessions, each with its requests; none for a straight run."""
    log: str
    """What Lantern wrote to its standard error."""


def play(client: Client, folder: Path, *, lantern: bool) -> Played:
    """One run. Raises ClientError when the client ends with an error or takes longer than its limit."""
    script = Script(turns(tools=client.tools), client.full_tokens, client.refused)
    with (
        _scratch() as scratch,
        _serving(script.app()) as upstream,
        _proxied(upstream, scratch, wanted=lantern) as target,
    ):
        tap = Tap(target)
        with _serving(tap) as url:
            job = _job(client, folder, scratch, url)
            _homes.add(job.home)
            try:
                answers = client.drive(job)
            finally:
                _homes.discard(job.home)
                _end_left_behind(job.home)
        rows = _archived(target) if lantern else []
        log = (scratch / "lantern.log").read_text() if lantern else ""
    return Played(answers, tap.calls, {r.tap: r for r in script.received}, rows, log)


def _job(client: Client, folder: Path, scratch: Path, url: str) -> Job:
    """A home with the files that the conversation reads."""
    home = scratch / "home"
    for name in ("work", "tmp", ".config"):
        (home / name).mkdir(parents=True)
    for name, text in FILES.items():
        (home / "work" / name).write_text(text)
    lines = tuple(turn.said for turn in turns(tools=client.tools))
    deadline = time.monotonic() + client.limit_s
    return Job(client=client, folder=folder, home=home, url=url, lines=lines, deadline=deadline)


def end_clients() -> None:
    """Ends every client that runs just now; what plays it then raises ClientError."""
    for home in [*_homes]:
        _end_left_behind(home)


def _end_left_behind(home: Path) -> None:
    """Ends the processes that the client left, a daemon for instance: those whose HOME is this run's own folder."""
    mine = f"HOME={home}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mine in entry.read_bytes().split(b"\0"):
                os.kill(int(entry.parent.name), signal.SIGKILL)


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lantern-client-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serving(app: Any) -> Iterator[str]:
    """`app` on a free port of loopback, in a thread; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", ws="none", access_log=False, timeout_graceful_shutdown=2)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@contextmanager
def _proxied(upstream: str, scratch: Path, *, wanted: bool) -> Iterator[str]:
    """The URL of a fresh Lantern in front of `upstream`; `upstream` itself when none is wanted."""
    if not wanted:
        yield upstream
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    env = os.environ | {
        "LANTERN_PORT": str(port), "LANTERN_ARCHIVE": str(scratch / "lantern.db"),
        "LANTERN_OPENAI_UPSTREAM": f"{upstream}/v1", "LANTERN_ANTHROPIC_UPSTREAM": upstream,
    }  # fmt: skip
    config = scratch / "lantern.yaml"
    config.write_text(f"restore: {{deadline_ms: {DEADLINE_MS}}}\n")
    command = [sys.executable, "-m", "lantern_proxy", "serve", "--config", str(config)]
    with (scratch / "lantern.log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield _awaited(f"http://127.0.0.1:{port}", process, scratch / "lantern.log")
        finally:
            process.terminate()
            process.wait(20)


def _awaited(url: str, process: "subprocess.Popen[bytes]", log: Path) -> str:
    """`url` as soon as its /lantern/health answers."""
    for _ in range(300):
        if process.poll() is not None:
            raise ClientError(f"lantern ended at its start: {log.read_text()[-600:]}")
        try:
            if httpx.get(f"{url}/lantern/health", timeout=2).status_code == 200:
                return url
        except httpx.TransportError:
            time.sleep(0.1)
    raise ClientError(f"lantern does not answer at {url}: {log.read_text()[-600:]}")


def _archived(url: str) -> list[dict[str, Any]]:
    """Every session in the archive, its requests with it."""
    with httpx.Client(base_url=f"{url}/lantern/api", timeout=10) as http:
        rows = http.get("/sessions", params={"limit": 200}).raise_for_status().json()
        return [http.get(f"/sessions/{r['id']}", params={"limit": 500}).raise_for_status().json() for r in rows]
