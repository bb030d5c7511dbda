"""Chats with questions to measure restoring on: LoCoMo and BEAM as published, cut where a client compacts.

chats(Path("locomo10.json")) -> Chat, ...       compacted(chat, at=50, shape="window") -> Compacted
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lantern_proxy.analyze import CHAT_WORDS, STOP_WORDS, sentences

Shape = Literal["extractive", "abstractive", "window"]
SHAPES: tuple[Shape, ...] = ("extractive", "abstractive", "window")

KEPT_TURNS = 4
"""The recency window: turns that a compaction leaves alone. A turn is a user's message and what follows it."""
SUMMARY_SHARE, SUMMARY_CHARS = 0.1, 2_000
"""An extractive summary has a tenth of what it stands for, and no more than this."""
TOPICS = 12


@dataclass(frozen=True, slots=True)
class Said:
    """One message. id: as the data set's evidence names it; at: Unix seconds."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    turn: int
    at: float


@dataclass(frozen=True, slots=True)
class Probe:
    """A question about a chat. gold: ids of the messages that hold the evidence; answer: "" when there is none."""

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
        """Those whose evidence is lost, all of it."""
        gone = {said.id for said in self.lost}
        return [probe for probe in self.chat.probes if probe.gold and gone.issuperset(probe.gold)]


def chats(path: Path) -> list[Chat]:
    """The chats of a file, or of all .json and .json.gz files of a folder, by name. ValueError for anything else."""
    if path.is_dir():
        files = sorted([*path.glob("*.json"), *path.glob("*.json.gz")])
        if not files:
            raise ValueError(f"{path} holds no .json or .json.gz file")
        return [chat for file in files for chat in chats(file)]
    try:
        raw = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        if isinstance(raw, list) and raw and isinstance(raw[0], dict) and "conversation" in raw[0]:
            return [_locomo(each) for each in raw]
        if isinstance(raw, dict) and "probing_questions" in raw:
            return [_beam(raw, path.name.partition(".")[0])]
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not LoCoMo or BEAM as published: {error!r}") from None
    raise ValueError(f"{path} is neither LoCoMo (a list of conversations) nor BEAM (chat, probing_questions)")


def _locomo(raw: Mapping[str, Any]) -> Chat:
    """Both speakers are people: their turns are a user's, with the name in front and a picture's caption behind."""
    talk: Mapping[str, Any] = raw["conversation"]
    said: list[Said] = []
    numbers = sorted(int(k.split("_")[1]) for k, v in talk.items() if re.fullmatch(r"session_\d+", k) and v)
    for number in numbers:
        begun = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for n, turn in enumerate(talk[f"session_{number}"]):
            picture = f" [picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"{turn['speaker']}: {turn['text']}{picture}"
            at = begun.replace(tzinfo=UTC).timestamp() + 30 * n
            said.append(Said(turn["dia_id"], "user", text, len(said) + 1, at))
    ids = {each.id for each in said}
    probes = [
        Probe(q["question"], tuple(e for e in q.get("evidence", ()) if e in ids), _answer(q), str(q["category"]))
        for q in raw["qa"]
    ]
    return Chat(f"locomo-{raw['sample_id']}", tuple(said), tuple(probes))


def _answer(raw: Mapping[str, Any]) -> str:
    return "" if raw.get("answer") is None else str(raw["answer"])


_TAG = re.compile(r"\s*->->\s*[\d,\s]+$")


def _beam(raw: Mapping[str, Any], name: str) -> Chat:
    said: list[Said] = []
    turn, at = 0, 1.7e9
    for message in (m for batch in raw["chat"] for turn_ in batch["turns"] for m in turn_):
        if message.get("time_anchor"):
            at = max(at, datetime.strptime(message["time_anchor"], "%B-%d-%Y").replace(tzinfo=UTC).timestamp())
        turn += message["role"] == "user"
        at += 30
        said.append(Said(str(message["id"]), message["role"], _TAG.sub("", message["content"]), turn, at))
    probes = []
    for kind, questions in raw["probing_questions"].items():
        for q in questions:
            gold = tuple(dict.fromkeys(map(str, _flat(q.get("source_chat_ids")))))
            told = q.get("answer") or q.get("ideal_answer") or q.get("ideal_summary") or ""
            probes.append(Probe(q["question"], gold, str(told), kind))
    return Chat(name, tuple(said), tuple(probes))


def _flat(ids: Any) -> Iterator[Any]:
    if isinstance(ids, Mapping):
        ids = list(ids.values())
    for each in ids if isinstance(ids, list) else () if ids is None else (ids,):
        yield from _flat(each) if isinstance(each, list | dict) else (each,)


def compacted(chat: Chat, at: int, shape: Shape) -> Compacted:
    """`chat` compacted when `at` percent of its messages were said; the last KEPT_TURNS turns by then are kept."""
    cut = round(len(chat.said) * at / 100)
    past, later = chat.said[:cut], chat.said[cut:]
    last = past[-1].turn if past else 0
    lost = tuple(said for said in past if said.turn <= last - KEPT_TURNS)
    return Compacted(chat, lost, past[len(lost) :], later, _SUMMARISE[shape](lost))


def merged(cuts: Sequence[Compacted]) -> Compacted:
    """All of them as one session that lost what each lost: a long one. Its request is that of the last."""
    lost: list[Said] = []
    probes: list[Probe] = []
    for cut in cuts:
        turn = lost[-1].turn if lost else 0
        lost += [replace(said, id=f"{cut.chat.name} {said.id}", turn=turn + said.turn) for said in cut.lost]
        probes += [replace(p, gold=tuple(f"{cut.chat.name} {gold}" for gold in p.gold)) for p in cut.probes]
    last = cuts[-1]
    kept = tuple(replace(said, turn=lost[-1].turn + n) for n, said in enumerate(last.kept, start=1))
    chat = Chat("merged", (*lost, *kept), tuple(probes))
    return Compacted(chat, tuple(lost), kept, last.later, last.summary)


def _extractive(lost: Sequence[Said]) -> str:
    """First sentences of messages, evenly spread, in their order."""
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
    """A template with the words that most messages share; no model, so it holds no detail."""
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
