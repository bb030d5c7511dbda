"""Labelled conversations of your own, as JSON lines: one conversation a line.

{"id": "a", "candidates": [{"id": "1", "session": "s1", "speaker": "user", "text": "...", "at": 1700000000}],
 "questions": [{"text": "...", "gold": ["1"]}]}
"""

import json
from pathlib import Path
from typing import Any

from lantern_proxy.bench.datasets import Asked, Candidate, Conversation, DataError


def labelled(path: Path) -> list[Conversation]:
    """The conversations of a file. DataError names the line and the fault."""
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line.strip():
            try:
                found.append(_conversation(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                wanted = '{"id", "candidates": [{"id", "session", "speaker", "text"}], "questions": [{"text", "gold"}]}'
                raise DataError(f"{path}:{number}: {error!r}; a line is {wanted}") from None
    if not found:
        raise DataError(f"{path}: holds no conversation; write one JSON object a line")
    return found


def _conversation(raw: dict[str, Any]) -> Conversation:
    candidates = tuple(
        Candidate(id=str(c["id"]), session=str(c["session"]), speaker=str(c["speaker"]), text=str(c["text"]),
                  at=float(c.get("at", 0)))
        for c in raw["candidates"]
    )  # fmt: skip
    known = {candidate.id for candidate in candidates}
    questions = []
    for asked in raw["questions"]:
        gold = frozenset(map(str, asked["gold"]))
        if not gold or not gold <= known:
            raise ValueError(f"question {asked['text'][:40]!r} has evidence {sorted(gold - known)}, no candidate's id")
        questions.append(Asked(text=str(asked["text"]), gold=gold, category=str(asked.get("category", "")),
                               at=float(asked.get("at", 0))))  # fmt: skip
    return Conversation(id=str(raw["id"]), candidates=candidates, questions=tuple(questions))
