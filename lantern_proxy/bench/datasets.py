"""Readers of test collections into one form: conversations with questions whose evidence is known.

    locomo(path)        LoCoMo (Maharana et al. 2024), the JSON that its authors publish
    beam(folder)        BEAM (long chats with probing questions), one JSON or JSON.gz file a chat
    longmemeval(path)   LongMemEval (Wu et al. 2024), longmemeval_s.json and its kin
    ir(folder)          any collection in BEIR's layout: corpus.jsonl, queries.jsonl, qrels.tsv
    labelled(path)      conversations of your own, as JSON lines

Nothing is downloaded: the files are the user's to fetch. What cannot be read is a DataError, and so are two
conversations of one name, or two candidates of one id: what is told of one would be told of the other.
"""

import csv
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal


class DataError(ValueError):
    """An invalid data file. The message names the file, the fault and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An item to be found: a message of a conversation, or a document."""

    id: str
    session: str
    speaker: str
    text: str
    at: float = 0.0
    """Unix seconds; 0 if the data has no time."""

    @property
    def text_with_speaker(self) -> str:
        """The text after the speaker's name, if there is one."""
        return f"{self.speaker}: {self.text}" if self.speaker else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and its evidence. A pipeline may only look at `text` and `at`."""

    text: str
    gold: frozenset[str]
    """Ids of candidates; never empty."""
    category: str
    answer: str = ""
    """The data's answer, if it has one."""
    at: float = 0.0
    """Unix seconds when it is asked; 0 if unknown."""
    grades: Mapping[str, float] = field(default_factory=dict)
    """Id -> graded relevance; empty: everything in `gold` has grade 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Candidates in the order they were said, and the questions about them."""

    id: str
    candidates: tuple[Candidate, ...]
    questions: tuple[Question, ...]


def published(path: Path) -> Literal["locomo", "beam", ""]:
    """Which of the two formats a file has. DataError if it is no JSON."""
    raw = _json(path)
    if isinstance(raw, list) and raw and isinstance(raw[0], dict) and "conversation" in raw[0]:
        return "locomo"
    return "beam" if isinstance(raw, dict) and "probing_questions" in raw else ""


def locomo(path: Path) -> list[Conversation]:
    """Conversations of LoCoMo by sample id. Questions without existing evidence are left out; all categories are kept.

    The caption of a shared picture is part of its message's text.
    """
    samples = _json(path)
    if not isinstance(samples, list) or not all(isinstance(s, dict) and "conversation" in s for s in samples):
        raise DataError(f"{path}: is not LoCoMo's list of samples; fetch locomo10.json of snap-research/locomo")
    return refuse_duplicates(
        (path, each) for each in sorted((_locomo_sample(s, path) for s in samples), key=lambda c: c.id)
    )


def _locomo_sample(sample: Mapping[str, Any], path: Path) -> Conversation:
    try:
        candidates = tuple(_locomo_turns(sample["conversation"]))
        known = {candidate.id for candidate in candidates}
        asked = [(qa, frozenset(qa["evidence"]) & known) for qa in sample["qa"]]
        questions = tuple(
            Question(
                text=_string(qa, "question"), gold=gold, category=str(qa["category"]), answer=_answer(qa, "answer")
            )
            for qa, gold in asked
            if gold
        )
        return Conversation(id=str(sample["sample_id"]), candidates=candidates, questions=questions)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = sample.get("sample_id")
        raise DataError(f"{path}: sample {name} lacks what LoCoMo has ({error!r}); use its own JSON") from None


def _locomo_turns(conversation: Mapping[str, Any]) -> Iterator[Candidate]:
    sessions = [name for name, turns in conversation.items() if isinstance(turns, list)]
    for session in sorted(sessions, key=lambda name: int(name.rpartition("_")[2])):
        at = _time(conversation.get(f"{session}_date_time", ""), "%I:%M %p on %d %B, %Y")
        for turn in conversation[session]:
            caption = turn.get("blip_caption", "")
            text = f"{_string(turn, 'text')} [picture: {caption}]" if caption else _string(turn, "text")
            yield Candidate(id=turn["dia_id"], session=session, speaker=_string(turn, "speaker"), text=text, at=at)


def beam(folder: Path) -> list[Conversation]:
    """Chats of BEAM, by file name. A batch is a session; the generator's tag is removed from user messages.

    folder: with the chats, or the file of one
    """
    files = [folder] if folder.is_file() else sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not files:
        raise DataError(f"{folder}: holds no .json or .json.gz file; name the folder with BEAM's chats")
    return refuse_duplicates((file, _beam_chat(file)) for file in files)


_TAG = re.compile(r"\s*->->\s*[\d,.\s]+$")
"""A tag of BEAM's generator at the end of a message: `->-> 1,1`."""


_BEAM_ANSWERS = ("answer", "ideal_answer", "ideal_summary")


def _beam_chat(file: Path) -> Conversation:
    chat = _json(file)
    try:
        candidates = tuple(_beam_messages(chat["chat"]))
        known = {candidate.id for candidate in candidates}
        questions = tuple(
            Question(text=_string(each, "question"), gold=gold, category=category, answer=_answer(each, *_BEAM_ANSWERS))
            for category, asked in chat["probing_questions"].items()
            for each in asked
            if (gold := frozenset(map(str, _leaves(each.get("source_chat_ids")))) & known)
        )
        return Conversation(id=file.name.partition(".")[0], candidates=candidates, questions=questions)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{file}: lacks what a chat of BEAM has ({error!r}); use its own JSON") from None


def _beam_messages(batches: Sequence[Mapping[str, Any]]) -> Iterator[Candidate]:
    at = 0.0
    for number, batch in enumerate(batches, start=1):
        for group in batch["turns"]:
            for each in group:
                at = _time(each.get("time_anchor") or batch.get("time_anchor") or "", "%B-%d-%Y") or at
                text = _TAG.sub("", _string(each, "content"))
                session, speaker = f"session_{number}", _string(each, "role")
                yield Candidate(id=str(each["id"]), session=session, speaker=speaker, text=text, at=at)


def longmemeval(path: Path) -> list[Conversation]:
    """Each question of LongMemEval with its haystack. Unanswerable ones (`..._abs`) are left out, as in the paper's
    retrieval results. Candidates are messages; gold are all messages of the answering sessions."""
    items = _json(path)
    known = isinstance(items, list) and all(isinstance(i, dict) and "haystack_sessions" in i for i in items)
    if not (known and items):
        raise DataError(f"{path}: is not LongMemEval's list of questions; fetch longmemeval_s.json of its authors")
    answerable = [item for item in items if not str(item.get("question_id", "")).endswith("_abs")]
    return refuse_duplicates((path, _haystack(item, path)) for item in answerable)


def _haystack(item: Mapping[str, Any], path: Path) -> Conversation:
    try:
        sessions = zip(item["haystack_session_ids"], item["haystack_dates"], item["haystack_sessions"], strict=True)
        candidates = tuple(
            Candidate(id=f"{n}#{name}#{place}", session=f"{n}#{name}", speaker=_string(each, "role"),
                      text=_string(each, "content"), at=_day(date))
            for n, (name, date, session) in enumerate(sessions)
            for place, each in enumerate(session)
        )  # fmt: skip
        answering = frozenset(item["answer_session_ids"])
        gold = frozenset(c.id for c in candidates if c.session.partition("#")[2] in answering)
        at = _day(item.get("question_date", ""))
        asked = Question(text=_string(item, "question"), gold=gold, category=_string(item, "question_type"), at=at)
        return Conversation(id=_string(item, "question_id"), candidates=candidates, questions=(asked,) if gold else ())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = item.get("question_id")
        raise DataError(f"{path}: question {name} lacks what LongMemEval has ({error!r}); use its own JSON") from None


def ir(folder: Path) -> list[Conversation]:
    """A collection in BEIR's layout as one conversation without sessions: corpus.jsonl, queries.jsonl, qrels.tsv or
    qrels/test.tsv, each optionally with .gz. Queries without a relevant document are left out."""
    candidates = tuple(
        Candidate(id=str(d["_id"]), session="", speaker="", text=f"{d.get('title', '')} {d['text']}".strip())
        for d in _lines(_existing(folder, "corpus.jsonl"))
    )
    known = {candidate.id for candidate in candidates}
    grades: dict[str, dict[str, float]] = {}
    for query, document, grade in _qrels(_existing(folder, "qrels.tsv", "qrels/test.tsv")):
        if grade > 0 and document in known:
            grades.setdefault(query, {})[document] = grade
    questions = tuple(
        Question(text=q["text"], gold=frozenset(relevant), category="", grades=relevant)
        for q in _lines(_existing(folder, "queries.jsonl"))
        if (relevant := grades.get(str(q["_id"]), {}))
    )
    whole = Conversation(id=folder.resolve().name, candidates=candidates, questions=questions)
    return refuse_duplicates([(_existing(folder, "corpus.jsonl"), whole)])


MAX_GRADE = 100
"""Highest grade of a document."""


def _qrels(path: Path) -> Iterator[tuple[str, str, float]]:
    rows = csv.reader(lines_of(_text(path)), delimiter="\t")
    for number, row in enumerate(rows, start=1):
        if not row or (number == 1 and row[:1] == ["query-id"]):
            continue
        try:
            query, document, grade = row[0], row[1], float(row[2])
        except (IndexError, ValueError):
            raise DataError(f"{path}: line {number} is {row}; use query-id, corpus-id, score") from None
        if not grade <= MAX_GRADE:
            raise DataError(
                f"{path}: line {number} has the score {row[2]}; a gain of 2^score takes {MAX_GRADE} at most"
            )
        yield query, document, grade


def _existing(folder: Path, *names: str) -> Path:
    for name in names:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.exists():
                return file
    raise DataError(f"{folder}: holds no {' and no '.join(names)} (or .gz); use a collection in BEIR's layout")


def _lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON lines file; DataError for one without _id or text."""
    found = []
    for number, line in enumerate(lines_of(_text(path)), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}: line {number} is not JSON ({error})") from None
            if not isinstance(row, dict) or "_id" not in row or not isinstance(row.get("text"), str):
                raise DataError(f"{path}: line {number} is no object with _id and text")
            found.append(row)
    return found


def lines_of(text: str) -> list[str]:
    """The lines of a file. `splitlines` would also break at U+2028 and U+0085, which may occur in JSON strings."""
    return text.split("\n")


def _json(path: Path) -> Any:
    text = _text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error})") from None


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; the data is yours to fetch, see docs/retrieval.md") from None
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def refuse_duplicates(found: Iterable[tuple[Path, Conversation]]) -> list[Conversation]:
    """The conversations of some files. DataError if two have the same name, or two candidates of one have the same
    id."""
    files: dict[str, Path] = {}
    read: list[Conversation] = []
    for file, each in found:
        if each.id in files:
            other_place = "it" if file == files[each.id] else files[each.id]
            raise DataError(
                f"{file}: {each.id} is the name of another conversation of {other_place}; give each its own name"
            )
        (again, times), *_ = Counter(candidate.id for candidate in each.candidates).most_common(1) or [("", 0)]
        if times > 1:
            raise DataError(f"{file}: {again} is the id of {times} candidates of {each.id}; give each an id of its own")
        files[each.id] = file
        read.append(each)
    return read


def _string(row: Mapping[str, Any], name: str) -> str:
    """The text in that field of `row`. TypeError if it is no text."""
    text = row[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is no text in {row!r:.100}")
    return text


def _answer(asked: Mapping[str, Any], *names: str) -> str:
    return next((str(asked[name]) for name in names if asked.get(name) not in (None, "")), "")


def _leaves(value: Any) -> Iterator[Any]:
    """All values in nested lists and dicts."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Iterable) and not isinstance(value, str):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield value


def _day(text: str) -> float:
    """LongMemEval writes `2023/05/20 (Sat) 02:21`."""
    return _time(re.sub(r"\s*\(\w+\)\s*", " ", text), "%Y/%m/%d %H:%M")


def _time(text: str, form: str) -> float:
    """Unix seconds, UTC; 0 if the text has another format."""
    try:
        return datetime.strptime(text.strip(), form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def labelled(path: Path) -> list[Conversation]:
    """Conversations of your own, one a line; DataError names the line and the fault.

    {"id": "a", "candidates": [{"id": "1", "session": "s1", "speaker": "user", "text": "...", "at": 1700000000}],
     "questions": [{"text": "...", "gold": ["1"]}]}
    """
    found: list[Conversation] = []
    for number, line in enumerate(lines_of(_text(path)), start=1):
        if line.strip():
            try:
                found.append(_conversation(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                wanted = '{"id", "candidates": [{"id", "session", "speaker", "text"}], "questions": [{"text", "gold"}]}'
                wrong = f"has no {error}" if isinstance(error, KeyError) else str(error)
                if isinstance(error, json.JSONDecodeError):
                    wrong = f"is not JSON at column {error.colno} ({error.msg})"
                raise DataError(f"{path}:{number}: {wrong}; a line is {wanted}") from None
    if not found:
        raise DataError(f"{path}: holds no conversation; write one JSON object a line")
    return refuse_duplicates((path, each) for each in found)


def _conversation(raw: dict[str, Any]) -> Conversation:
    candidates = tuple(
        Candidate(id=str(c["id"]), session=str(c["session"]), speaker=str(c["speaker"]), text=_string(c, "text"),
                  at=float(c.get("at", 0)))
        for c in raw["candidates"]
    )  # fmt: skip
    known = {candidate.id for candidate in candidates}
    questions = []
    for asked in raw["questions"]:
        gold = frozenset(map(str, asked["gold"]))
        if not gold or not gold <= known:
            raise ValueError(f"question {asked['text'][:40]!r} has evidence {sorted(gold - known)}, no candidate's id")
        questions.append(Question(text=_string(asked, "text"), gold=gold, category=str(asked.get("category", "")),
                               answer=_answer(asked, "answer"), at=float(asked.get("at", 0))))  # fmt: skip
    return Conversation(id=str(raw["id"]), candidates=candidates, questions=tuple(questions))
