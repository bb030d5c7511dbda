"""The chat that `lantern demo` plays: 60 turns, their summary, details that it loses, and six ways to compact it."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Literal

from msgspec import Struct

Wire = dict[str, str]
"""One message in the form of Chat Completions: {"role": ..., "content": ...}."""
Words = Literal["literal", "other"]
Shape = Callable[[Sequence[Wire], str, str], list[Wire]]

_KEPT_CHARS = 4_000
"""What the silently truncating client keeps: 4,000 of 20,000 characters, the last fifth."""


class Detail(Struct, frozen=True, kw_only=True):
    """Something said once, early, and lost in the summary."""

    id: str
    about: str
    turn: int
    """The turn in which it is said, from 1."""
    speaker: Literal["user", "assistant"]
    answer: str
    """Occurs in that one message and nowhere else."""
    literal: str
    """A question in the words of the statement."""
    other: str
    """The same question in other words."""

    def question(self, words: Words) -> str:
        return self.literal if words == "literal" else self.other


class Chat(Struct, frozen=True, kw_only=True):
    """A scripted conversation."""

    title: str
    system: str
    turns: tuple[tuple[str, str], ...]
    """(what the user says, what the assistant answers) for each turn."""
    summary: str
    details: tuple[Detail, ...]

    @property
    def history(self) -> list[Wire]:
        """The whole conversation as a client would send it, the system prompt first."""
        spoken = [
            say(role, text) for turn in self.turns for role, text in zip(("user", "assistant"), turn, strict=True)
        ]
        return [say("system", self.system), *spoken]


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
    """The summary in a user message of its own, then the last exchange, as pi, Cline and LangChain do."""
    notice = f"The conversation history before this point was compacted into the following summary:\n\n{summary}"
    return [history[0], say("user", notice), *history[-2:], say("user", question)]


def summary_as_assistant(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The first user message is kept, and the assistant seems to have answered it with the summary."""
    return [history[0], history[1], say("assistant", summary), *history[-2:], say("user", question)]


def truncated(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The oldest messages are silently dropped until the rest fits, as by trim_messages and other windows."""
    first, room = len(history), _KEPT_CHARS
    while first > 1 and (room := room - len(history[first - 1]["content"])) >= 0:
        first -= 1
    return [history[0], *history[first:], say("user", question)]


def summary_in_system(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The summary is appended to the system prompt; the last two exchanges stay."""
    system = f"{history[0]['content']}\n\nSummary of the conversation so far:\n{summary}"
    return [say("system", system), *history[-4:], say("user", question)]


def continued(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """A message that the session is being continued, and the last message only, as Claude Code does."""
    notice = (
        "This session is being continued from a previous conversation that ran out of context. The conversation is "
        f"summarized below:\n{summary}\n\nPlease continue from where we left it off, without asking further questions."
    )
    return [history[0], say("user", notice), say("user", question)]


def last_six(history: Sequence[Wire], summary: str, question: str) -> list[Wire]:
    """The last six messages and nothing else, not even the system prompt; the first of them is an assistant's."""
    return [*history[-5:], say("user", question)]


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


def say(role: str, text: str) -> Wire:
    return {"role": role, "content": text}
