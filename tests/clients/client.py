"""What is known of a client before it runs, and what its driver is given."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Protocol = Literal["chat", "responses", "messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A row of the table."""

    name: str
    family: str
    protocol: Protocol
    drive: "Drive"
    pip: tuple[str, ...] = ()
    """Pinned requirements."""
    npm: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)
    """The oldest Python that its packages take."""
    package: str = ""
    """Which of the requirements is the client itself; by default the first."""
    shares: str = ""
    """Name of an installation that it shares with others, whose requirements are the same."""
    tools: bool = True
    """It can run a shell command for the model."""
    losses: frozenset[str]
    """What its way of forgetting may be called: compacted, window, cleared."""
    compactions: int = 1
    """At least so many losses must be seen."""
    quick: bool = False
    """Installs in seconds, so that CI drives it."""
    full_tokens: int = 150_000
    """What the upstream reports as the size of a request when the window is to look full."""
    refused: bool = False
    """A request that is too long is refused, as providers do; otherwise its reported size alone tells."""
    limit_s: float = 240

    @property
    def version(self) -> str:
        """Of the package that is the client."""
        requirement = next(each for each in (*self.pip, *self.npm) if each.startswith(self.package))
        return requirement.rpartition("==" if self.pip else "@")[2]


class ClientError(RuntimeError):
    """The client ended with an error, or not in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a client: where it is, whom it calls and what the user says."""

    client: Client
    folder: Path
    """Where it is installed."""
    home: Path
    """An empty home of its own, with its working directory in `home / "work"`."""
    url: str
    """Root of the endpoint, without /v1."""
    lines: tuple[str, ...]
    deadline: float
    """time.monotonic() value."""

    @property
    def work(self) -> Path:
        return self.home / "work"

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """A bare environment: nothing of the person who runs this reaches a client, and only loopback is reached by it.

        The proxy that it names does not exist: what asks for an outside address is refused at once.
        """
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
        path = f"{self.folder / 'bin'}:{self.folder / 'node_modules/.bin'}:{os.environ['PATH']}"
        home = str(self.home)
        own = {"PATH": path, "HOME": home, "XDG_CONFIG_HOME": f"{home}/.config", "TMPDIR": f"{home}/tmp"}
        nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
        loopback = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        quiet = {"DO_NOT_TRACK": "1", "CI": "1", "NO_COLOR": "1", "TERM": "dumb"}
        return {**kept, **own, **nowhere, **loopback, **quiet, **extra}

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, at least one."""
        return max(1.0, self.deadline - time.monotonic())

    def start(self, command: Sequence[str], env: Mapping[str, str], *, silent: bool = False) -> "subprocess.Popen[str]":
        """`command` in the working directory, in a process group of its own. `silent`: nothing is said to it."""
        return subprocess.Popen(
            command, cwd=self.work, env=self.environment(env), text=True, start_new_session=True,
            stdin=subprocess.DEVNULL if silent else subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=(self.home / "stderr").open("w"),
        )  # fmt: skip

    def run(self, command: Sequence[str], env: Mapping[str, str], said: str = "") -> str:
        """Standard output of `command` to its end; `said` goes to its standard input."""
        process = self.start(command, env, silent=not said)
        try:
            out, _ = process.communicate(said or None, timeout=self.left_s)
        except subprocess.TimeoutExpired:
            raise ClientError(f"{command[0]} did not end in time") from None
        finally:
            end(process)
        if process.returncode:
            complaint = (self.home / "stderr").read_text().strip() or out.strip()
            raise ClientError(f"{command[0]} ended with {process.returncode}: {complaint[-600:]}")
        return out


def end(process: "subprocess.Popen[str]") -> None:
    """Ends a process that we started, and what it left in its own group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


Drive = Callable[[Job], list[str]]
"""Plays the user's lines through the client; returns the final answer to each line."""
