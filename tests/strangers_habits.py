"""Habits of apps whose users share a key: what they put around what is said, and what all their users say alike.

Programs of strangers.py from FIRST on have one to three. Each habit is a function of what is said or shown; what it
adds is the same for everybody, or the user's own.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from possible.wire import Msg

FIRST = 100_000
"""The first program that has habits."""
NAMES = ("Rosa", "Emil", "Ines")
QUESTIONS = (
    "What is your name?", "Is it about a contract or about a device? Answer 1 for contract, 2 for device.",
    "Which number does it have?", "Since when does it not work?", "Did you restart it? Answer yes or no.",
    "Shall a colleague call you back?",
)  # fmt: skip
WORDS = ("yes", "no", "1", "2", "Rosa", "since Monday", "none")
DOCUMENT = (
    "Terms of service. A contract runs for two years and may be ended with a notice of a month. A device that is "
    "broken within two years is replaced. Who moves tells us four weeks before. The lamp on the front has to be green."
)
MACRO = (
    "Dear customer, thank you for your message. We have forwarded it to the department in charge, which is going to "
    "answer within two working days. Please have your number ready.\n\nKind regards, your support team"
)
FACTS = ("The warranty is two years.", "The shop closes at 18.", "A reset takes ten seconds.", "Red means no line.")
TOPICS = ("contract", "device", "invoice")
PROFILE = "Profile of the customer: {}, speaks English, tier gold, prefers short answers."

Say = Callable[[random.Random, str, int], str]
Show = Callable[[random.Random, list[Msg], int, Sequence[str]], list[Msg]]


def _form(rng: random.Random, said: str, person: int) -> str:
    name, topic = NAMES[person % len(NAMES)], rng.choice(TOPICS)
    return f"Name: {name}\nTopic: {topic}\nUrgent: {rng.choice(('yes', 'no'))}\nMessage: {said}"


def _pasted(rng: random.Random, said: str, person: int) -> str:
    return f"{DOCUMENT}\n\n{said}" if rng.random() < 0.3 else said


def _word(rng: random.Random, said: str, person: int) -> str:
    return said if any(sign.isdigit() for sign in said) else rng.choice(WORDS)


SAY: dict[str, Say] = {"form": _form, "pasted": _pasted, "few words": _word}
"""(what would be said, the person's number) -> what is said, and kept in the history"""


def _with_last(shown: list[Msg], dress: Callable[[str], tuple[str, ...]]) -> list[Msg]:
    if not shown or shown[-1].role != "user":
        return shown
    return [*shown[:-1], replace(shown[-1], texts=dress(shown[-1].text))]


def _retrieved(rng: random.Random, shown: list[Msg], person: int, numbers: Sequence[str]) -> list[Msg]:
    facts = "\n".join(rng.sample(FACTS, 2))
    return _with_last(shown, lambda text: (f"Context:\n{facts}\n\nQuestion: {text}",))


def _remembered(rng: random.Random, shown: list[Msg], person: int, numbers: Sequence[str]) -> list[Msg]:
    memories = [f"- The user's number is {n}." for n in numbers if rng.random() < 0.3]
    memories += ["- The user prefers short answers."]
    return _with_last(shown, lambda text: ("Memories:\n" + "\n".join(memories), text))


def _parts(rng: random.Random, shown: list[Msg], person: int, numbers: Sequence[str]) -> list[Msg]:
    return [replace(m, texts=(*m.texts, "(sent from the app)")) if m.role == "user" else m for m in shown]


def _group(rng: random.Random, shown: list[Msg], person: int, numbers: Sequence[str]) -> list[Msg]:
    lines = [f"[{NAMES[n % 2]}] {m.text}" if m.role == "user" else f"[Bot] {m.text}" for n, m in enumerate(shown)]
    return [Msg("user", ("You are in a group chat.\n" + "\n".join(lines) + "\nWhat does Bot say?",))]


def _as_json(rng: random.Random, shown: list[Msg], person: int, numbers: Sequence[str]) -> list[Msg]:
    told = [{"role": m.role, "content": m.text} for m in shown]
    return [Msg("user", (json.dumps({"conversation": told}),))]


def _as_xml(rng: random.Random, shown: list[Msg], person: int, numbers: Sequence[str]) -> list[Msg]:
    told = "\n".join(f"<{m.role}>{m.text}</{m.role}>" for m in shown)
    return [Msg("user", (f"<conversation>\n{told}\n</conversation>\nAnswer the last message.",))]


SHOW: dict[str, Show] = {
    "retrieved": _retrieved, "remembered": _remembered, "parts": _parts, "group": _group, "json": _as_json,
    "xml": _as_xml,
}  # fmt: skip
"""(what would be shown, the person's number, their numbers) -> what is sent, and not kept"""
OTHER = ("intake", "macro", "profile", "rolled", "forked")
"""Its first answers are questions that are the same for everybody; an agent's macro stands for some answers; a profile
stands in the system prompt; a summary is summed up again; a chat begins as a copy of another."""
HABITS = (*SAY, *SHOW, *OTHER)


def draw_habits(number: int) -> tuple[str, ...]:
    rng = random.Random(f"{number} habits")
    return tuple(rng.sample(HABITS, rng.randint(1, 3))) if number >= FIRST else ()


def say(habits: Sequence[str], rng: random.Random, said: str, person: int) -> str:
    for habit in habits:
        said = SAY[habit](rng, said, person) if habit in SAY else said
    return said


def answer(habits: Sequence[str], rng: random.Random, turn: int, text: str) -> str:
    """What the bot says in its turn, from 0."""
    if "intake" in habits and turn < len(QUESTIONS):
        return QUESTIONS[turn]
    return MACRO if "macro" in habits and rng.random() < 0.3 else text


def show(
    habits: Sequence[str], rng: random.Random, shown: list[Msg], person: int, numbers: Sequence[str]
) -> list[Msg]:  # fmt: skip
    """One habit writes all into one text; what others put beside the last text stands within that."""
    for habit in sorted(habits, key=lambda each: each in ("group", "json", "xml")):
        if habit in SHOW and not (habit in ("group", "json", "xml") and any(m.call for m in shown)):
            shown = SHOW[habit](rng, shown, person, numbers)
    return shown
