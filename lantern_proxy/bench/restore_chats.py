"""Chats with questions for measuring restores: LoCoMo and BEAM as published, cut where a client would compact.

chats(Path("locomo10.json")) -> Chat, ...       compacted(chat, at=50, shape="window") -> Compacted
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lantern_proxy.analyze import CHAT_WORDS, STOP_WORDS, sentences
from lantern_proxy.bench.datasets import Conversation, DataError, beam, locomo, published, refuse_duplicates

Shape = Literal["extractive", "abstractive", "window"]
SHAPES: tuple[Shape, ...] = ("extractive", "abstractive", "window")

KEPT_TURNS = 4
"""The recency window: turns that a compaction keeps. A turn is a user's message and what follows it."""
SUMMARY_SHARE, SUMMARY_CHARS = 0.1, 2_000
"""An extractive summary has a tenth of the length of what it replaces, up to a maximum."""
TOPICS = 12


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. id: as in the data set's evidence; at: Unix seconds."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    turn: int
    at: float


@dataclass(frozen=True, slots=True)
class Probe:
    """A question about a chat. gold: ids of messages with its evidence, never empty; answer: "" if there is none."""

    text: str
    gold: tuple[str, ...]
    answer: str
    kind: str


@dataclass(frozen=True, slots=True)
class Chat:
    name: str
    messages: tuple[ChatMessage, ...]
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """A chat cut at its compaction: what the client dropped, what it sends, what comes later."""

    chat: Chat
    lost: tuple[ChatMessage, ...]
    kept: tuple[ChatMessage, ...]
    later: tuple[ChatMessage, ...]
    summary: str
    """Empty for a sliding window."""

    @property
    def probes(self) -> list[Probe]:
        """Those whose evidence is completely lost."""
        gone = {message.id for message in self.lost}
        return [probe for probe in self.chat.probes if gone.issuperset(probe.gold)]


def chats(path: Path) -> list[Chat]:
    """The same as chats: `chat.name` is the conversation's id."""
    return [_chat(each) for each in conversations(path)]


def conversations(path: Path) -> list[Conversation]:
    """Those of a file, or of all .json and .json.gz files of a folder, by name. DataError for anything else, and for
    two of the same name, which would be archived as one chat."""
    if path.is_dir():
        files = sorted([*path.glob("*.json"), *path.glob("*.json.gz")])
        if not files:
            raise DataError(f"{path} holds no .json or .json.gz file")
        return refuse_duplicates((file, each) for file in files for each in conversations(file))
    kind = published(path)
    if kind == "locomo":
        return [replace(each, id=f"locomo-{each.id}") for each in locomo(path)]
    if kind == "beam":
        return beam(path)
    raise DataError(f"{path} is neither LoCoMo (a list of conversations) nor BEAM (chat, probing_questions)")


def _chat(read: Conversation) -> Chat:
    """Where both speakers are people, their turns are user messages with the name in front. A message takes 30 s."""
    messages: list[ChatMessage] = []
    turn, at = 0, 1.6e9
    for each in read.candidates:
        at = max(at + 30, each.at)
        role, text = (
            (each.speaker, each.text) if each.speaker in ("user", "assistant") else ("user", each.text_with_speaker)
        )
        turn += role == "user"
        messages.append(ChatMessage(each.id, "assistant" if role == "assistant" else "user", text, turn, at))
    order = {each.id: n for n, each in enumerate(read.candidates)}
    probes = [Probe(q.text, tuple(sorted(q.gold, key=order.__getitem__)), q.answer, q.category) for q in read.questions]
    return Chat(read.id, tuple(messages), tuple(probes))


def compacted(chat: Chat, at: int, shape: Shape) -> Compacted:
    """`chat` compacted after `at` percent of its messages; the last KEPT_TURNS turns before that are kept."""
    cut = round(len(chat.messages) * at / 100)
    past, later = chat.messages[:cut], chat.messages[cut:]
    last = past[-1].turn if past else 0
    lost = tuple(message for message in past if message.turn <= last - KEPT_TURNS)
    return Compacted(chat, lost, past[len(lost) :], later, _SUMMARISE[shape](lost))


def merged(cuts: Sequence[Compacted]) -> Compacted:
    """All of them as one long session that lost what each lost. Its request is that of the last."""
    lost: list[ChatMessage] = []
    probes: list[Probe] = []
    for cut in cuts:
        turn = lost[-1].turn if lost else 0
        lost += [replace(message, id=f"{cut.chat.name} {message.id}", turn=turn + message.turn) for message in cut.lost]
        probes += [replace(p, gold=tuple(f"{cut.chat.name} {gold}" for gold in p.gold)) for p in cut.probes]
    last, turn = cuts[-1], lost[-1].turn if lost else 0
    kept = tuple(replace(message, turn=turn + n) for n, message in enumerate(last.kept, start=1))
    chat = Chat("merged", (*lost, *kept), tuple(probes))
    return Compacted(chat, tuple(lost), kept, last.later, last.summary)


def _extractive(lost: Sequence[ChatMessage]) -> str:
    """First sentences of messages, evenly spaced, in their order."""
    room = min(SUMMARY_CHARS, int(SUMMARY_SHARE * sum(len(message.text) for message in lost)))
    first = [message.text[a:b] for message in lost for a, b in sentences(message.text)[:1]]
    mean = sum(map(len, first)) / max(1, len(first)) + 1
    step = max(1, round(len(first) * mean / max(1, room)))
    return "Summary of the conversation so far:\n" + _within(first[::step], room)


def _within(lines: Iterable[str], room: int) -> str:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept)


_WORD = re.compile(r"[a-z][a-z'-]{3,}")


def _abstractive(lost: Sequence[ChatMessage]) -> str:
    """A template with the words that most messages share; made without a model, so it contains no detail."""
    counts = Counter(word for message in lost for word in set(_WORD.findall(message.text.lower())))
    topics = [word for word, _ in counts.most_common(200) if word not in STOP_WORDS | CHAT_WORDS][:TOPICS]
    users = sum(message.role == "user" for message in lost)
    return (
        f"Summary of the conversation so far: {users} messages of the user and {len(lost) - users} answers. They were "
        f"about {', '.join(topics)}. The conversation goes on below."
    )


def _no_summary(lost: Sequence[ChatMessage]) -> str:
    return ""


_SUMMARISE = {"extractive": _extractive, "abstractive": _abstractive, "window": _no_summary}
