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
from lantern_proxy.bench.datasets import Conversation, DataError, beam, locomo, published, unmixed

Shape = Literal["extractive", "abstractive", "window"]
SHAPES: tuple[Shape, ...] = ("extractive", "abstractive", "window")

KEPT_TURNS = 4
"""The recency window: turns that a compaction keeps. A turn is a user's message and what follows it."""
SUMMARY_SHARE, SUMMARY_CHARS = 0.1, 2_000
"""An extractive summary has a tenth of the length of what it replaces, up to a maximum."""
TOPICS = 12


@dataclass(frozen=True, slots=True)
class Said:
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
    said: tuple[Said, ...]
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """A chat cut at its compaction: what the client dropped, what it sends, what comes later."""

    chat: Chat
    lost: tuple[Said, ...]
    kept: tuple[Said, ...]
    later: tuple[Said, ...]
    summary: str
    """Empty for a sliding window."""

    @property
    def probes(self) -> list[Probe]:
        """Those whose evidence is completely lost."""
        gone = {said.id for said in self.lost}
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
        return unmixed((file, each) for file in files for each in conversations(file))
    kind = published(path)
    if kind == "locomo":
        return [replace(each, id=f"locomo-{each.id}") for each in locomo(path)]
    if kind == "beam":
        return beam(path)
    raise DataError(f"{path} is neither LoCoMo (a list of conversations) nor BEAM (chat, probing_questions)")


def _chat(read: Conversation) -> Chat:
    """Where both speakers are people, their turns are user messages with the name in front. A message takes 30 s."""
    said: list[Said] = []
    turn, at = 0, 1.6e9
    for each in read.candidates:
        at = max(at + 30, each.at)
        role, text = (each.speaker, each.text) if each.speaker in ("user", "assistant") else ("user", each.said)
        turn += role == "user"
        said.append(Said(each.id, "assistant" if role == "assistant" else "user", text, turn, at))
    order = {each.id: n for n, each in enumerate(read.candidates)}
    probes = [Probe(q.text, tuple(sorted(q.gold, key=order.__getitem__)), q.answer, q.category) for q in read.questions]
    return Chat(read.id, tuple(said), tuple(probes))


def compacted(chat: Chat, at: int, shape: Shape) -> Compacted:
    """`chat` compacted after `at` percent of its messages; the last KEPT_TURNS turns before that are kept."""
    cut = round(len(chat.said) * at / 100)
    past, later = chat.said[:cut], chat.said[cut:]
    last = past[-1].turn if past else 0
    lost = tuple(said for said in past if said.turn <= last - KEPT_TURNS)
    return Compacted(chat, lost, past[len(lost) :], later, _SUMMARISE[shape](lost))


def merged(cuts: Sequence[Compacted]) -> Compacted:
    """All of them as one long session that lost what each lost. Its request is that of the last."""
    lost: list[Said] = []
    probes: list[Probe] = []
    for cut in cuts:
        turn = lost[-1].turn if lost else 0
        lost += [replace(said, id=f"{cut.chat.name} {said.id}", turn=turn + said.turn) for said in cut.lost]
        probes += [replace(p, gold=tuple(f"{cut.chat.name} {gold}" for gold in p.gold)) for p in cut.probes]
    last, turn = cuts[-1], lost[-1].turn if lost else 0
    kept = tuple(replace(said, turn=turn + n) for n, said in enumerate(last.kept, start=1))
    chat = Chat("merged", (*lost, *kept), tuple(probes))
    return Compacted(chat, tuple(lost), kept, last.later, last.summary)


def _extractive(lost: Sequence[Said]) -> str:
    """First sentences of messages, evenly spaced, in their order."""
    room = min(SUMMARY_CHARS, int(SUMMARY_SHARE * sum(len(said.text) for said in lost)))
    first = [said.text[a:b] for said in lost for a, b in sentences(said.text)[:1]]
    mean = sum(map(len, first)) / max(1, len(first)) + 1
    step = max(1, round(len(first) * mean / max(1, room)))
    return "Summary of the conversation so far:\n" + _filled(first[::step], room)


def _filled(lines: Iterable[str], room: int) -> str:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept)


_WORD = re.compile(r"[a-z][a-z'-]{3,}")


def _abstractive(lost: Sequence[Said]) -> str:
    """A template with the words that most messages share; made without a model, so it contains no detail."""
    counts = Counter(word for said in lost for word in set(_WORD.findall(said.text.lower())))
    topics = [word for word, _ in counts.most_common(200) if word not in STOP_WORDS | CHAT_WORDS][:TOPICS]
    users = sum(said.role == "user" for said in lost)
    return (
        f"Summary of the conversation so far: {users} messages of the user and {len(lost) - users} answers. They were "
        f"about {', '.join(topics)}. The conversation goes on below."
    )


def _none(lost: Sequence[Said]) -> str:
    return ""


_SUMMARISE = {"extractive": _extractive, "abstractive": _abstractive, "window": _none}
