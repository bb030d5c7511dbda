"""An agent's traffic: its whole, growing history with every call; and facts to be lost."""

import json
from dataclasses import dataclass, field
from itertools import count

_SERIAL = count(1)
_NOISE = (
    "We looked at the module again and moved the parsing of the settings before the network is touched, since the "
    "tests had to wait for a port. The second run was fine on both machines, the third one hung for a while. "
)
_RESULT = "    at step %d of the build: src/module_%d/part_%d.py compiled in %d ms, %d warnings, nothing else to say\n"


def _encoded(role: str, text: str) -> bytes:
    return b'{"role":"%b","content":%b}' % (role.encode(), json.dumps(text).encode())


def prose(chars: int, seed: int) -> str:
    """Text unique to a seed, half prose and half tool output."""
    lines = [f"Note {seed}. ", _NOISE]
    size = len(lines[0]) + len(_NOISE)
    n = 0
    while size < chars:
        n += 1
        lines.append(_RESULT % (n, seed + n, n, (seed * 7 + n) % 900, n % 5) if n % 3 else _NOISE)
        size += len(lines[-1])
    return "".join(lines)[:chars]


@dataclass(slots=True)
class Talk:
    """A conversation that starts with `start_bytes` and ends with `end_bytes`.

    body() is the next request; answer(text) adds the answer and the user's next message.
    """

    model: str
    start_bytes: int
    end_bytes: int
    step_chars: int = 120
    """Length of a turn of the user or a tool."""
    stream: bool = False
    serial: int = field(default_factory=lambda: next(_SERIAL))
    messages: list[bytes] = field(default_factory=list)
    size: int = 0

    def __post_init__(self) -> None:
        self.say("system", f"You are agent {self.serial % 7} and you help with one repository.")
        n = 0
        while self.size < self.start_bytes - 6_000:
            self.say("user" if n % 2 == 0 else "assistant", prose(4_000, self.serial * 1_000 + n))
            n += 1
        self.say("user", prose(max(40, min(6_000, self.start_bytes - self.size - 100)), self.serial * 1_000 + n))

    def say(self, role: str, text: str) -> None:
        self.messages.append(_encoded(role, text))
        self.size += len(self.messages[-1]) + 1

    @property
    def is_over(self) -> bool:
        return self.size >= self.end_bytes

    def body(self) -> bytes:
        stream = b"true" if self.stream else b"false"
        return b'{"model":"%b","stream":%b,"messages":[%b]}' % (
            self.model.encode(), stream, b",".join(self.messages))  # fmt: skip

    def answer(self, text: str) -> None:
        self.say("assistant", text)
        self.say("user", prose(self.step_chars, next(_SERIAL)))


def facts(serial: int, n: int) -> list[tuple[str, str, str]]:
    """(the user's statement, its value, the question for it later)"""
    names = (
        "staging port", "release codename", "backup bucket", "retry budget", "owner of the billing job", "cache key",
    )  # fmt: skip
    found = []
    for at in range(n):
        name, value = f"{names[at % len(names)]} of service {serial}-{at}", f"VAL-{serial}-{at * 37 + 11}"
        found.append((f"Please note: the {name} is {value}. {prose(500, serial * 100 + at)}", value,
                      f"What was the {name}?"))  # fmt: skip
    return found


def compacted(talk: Talk, turns: list[tuple[str, str]]) -> bytes:
    """A request of `talk` after its compaction: a summary without any of the facts, and the turns since."""
    summary = (
        "This session is being continued from a previous conversation that ran out of context. Summary: we noted a "
        "number of settings of the services and looked at the build of several modules; no decision is open."
    )
    messages = [talk.messages[0], _encoded("user", summary)]
    for answer, question in turns:
        messages += [_encoded("assistant", answer), _encoded("user", question)]
    return b'{"model":"%b","messages":[%b]}' % (talk.model.encode(), b",".join(messages))
