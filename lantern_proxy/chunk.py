"""Turn -> passages, summary, tags, kind. Pure.

A passage is a verbatim piece of one message, cut at the coarsest natural border available: code fence, blank line,
line, sentence, white space. Passages of a message do not overlap, and no number, path or URL is cut in two.
"""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count

from msgspec.structs import replace

from lantern_proxy.analyze import fences, folded, sentences, terms
from lantern_proxy.analyze.specific import specifics
from lantern_proxy.analyze.spoken import has_words, parts
from lantern_proxy.analyze.standing import is_rule
from lantern_proxy.turn import CLIENT, Filed, Item, Message, Passage, PassageKind, without_reminders
from lantern_proxy.turn_blocks import strip_block

MAX_CHARS = 1_200
"""Longest passage in characters; a single longer word, path or URL stays whole up to ten times this."""
GOOD_CHARS = 800
"""A passage ends at the next natural border after this many characters."""
MAX_TAGS = 32
SUMMARY_CHARS, MESSAGE_CHARS = 1_200, 500
"""The extractive summary of the LANTERN paper: 500 characters per message, cut at 1,200."""

_LONG_RUN = 120
_RUN = re.compile(rf"\S{{{_LONG_RUN},}}")
_ALPHABET = re.compile(r"[A-Za-z0-9+/=_-]{100,}")
_CHANGE = re.compile(r"[a-z][A-Z0-9]|[A-Z][0-9]|[0-9][A-Za-z]|[A-Z][a-z](?=[A-Z0-9])")
_BREAK = re.compile(r"[,;{}()\[\]|&]+")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


def passages(filed: Filed, session: str) -> tuple[Passage, ...]:
    """The passages of one archived message, in order; none for side calls, system text, media and reasoning."""
    return tuple(one_by_one(filed, session))


def one_by_one(filed: Filed, session: str) -> Iterator[Passage]:
    """The same one at a time, for a caller that does other work in between."""
    if filed.side or filed.message.role in ("system", "developer"):
        return
    part = count()
    for item, speaker, text in _speakers(filed.message):
        for start, end, noise in pieces(text):
            yield _passage(filed, session, item, next(part), speaker, text[start:end], noise)


def _speakers(message: Message) -> list[tuple[Item, str, str]]:
    """(item, speaker, text) of each item. Parts of a user message may be the client's or a tool's."""
    read: list[tuple[Item, str, str]] = [
        (item, "tool" if item.kind == "result" else message.role, readable(item)) for item in message.items
    ]
    if message.role != "user":
        return read
    split: list[tuple[Item, str, str]] = []
    for item, speaker, text in read:
        spans = parts(text) if item.kind == "text" else ()
        split += [(item, voice, text[start:end]) for start, end, voice in spans] or [(item, speaker, text)]
    others = {speaker for _, speaker, text in split if has_words(text)}
    return read if others == {CLIENT} else split


def _passage(filed: Filed, session: str, item: Item, part: int, speaker: str, text: str, noise: bool) -> Passage:
    indexed = text[:64] if noise else text
    return Passage(
        session=session,
        message=filed.key,
        position=filed.position,
        part=part,
        turn=filed.turn,
        speaker=speaker,
        text=text,
        kind="episodic" if item.kind == "text" and speaker != filed.message.role else kind(text, item),
        tags=() if noise else tuple(specifics(text)[:MAX_TAGS]),
        tools=(item.name,) if item.kind in ("call", "result") and item.name else (),
        terms=tuple(terms(f"{speaker} {spoken_date(filed.created_at)} {indexed}")),
        created_at=filed.created_at,
    )


def reword(passage: Passage, text: str) -> Passage:
    """`passage` with another text, and the tags and terms of that."""
    speaker = "" if passage.unit == "turn" else passage.speaker
    indexed = f"{speaker} {spoken_date(passage.created_at)} {text}"
    return replace(passage, text=text, tags=tuple(specifics(text)[:MAX_TAGS]), terms=tuple(terms(indexed)))


def reanalysed(passage: Passage) -> Passage:
    """An archived passage with the tags and terms that it would get today. Encoded data keeps its own."""
    return passage if _ALPHABET.fullmatch(passage.text) else reword(passage, passage.text)


def spoken_date(at: float) -> str:
    """The day of `at` (Unix seconds, UTC) as people write it: "8 may 2023"; "" for 0 or an invalid time."""
    return _spoken(int(at // 86_400)) if 0 < at < 1e11 else ""


@lru_cache(maxsize=256)
def _spoken(days: int) -> str:
    day = datetime.fromtimestamp(days * 86_400, UTC)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def readable(item: Item) -> str:
    """The searchable text of an item: prose, results, and a call as `shell: cat f1.txt`; else ""."""
    if item.kind in ("text", "result", "compaction"):
        return without_reminders(strip_block(item.text), "\n").strip()
    if item.kind == "call":
        return f"{item.name}: {_arguments(item.text)}".strip(": \n")
    return ""


def _arguments(text: str) -> str:
    """JSON arguments as a person would write them; anything else stays as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict):
        return _plain(value)
    if len(value) == 1:
        return _plain(next(iter(value.values())))
    is_long = any(isinstance(part, str) and len(part) > 80 for part in value.values())
    return ("\n" if is_long else ", ").join(f"{name}: {_plain(part)}" for name, part in value.items())


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False)


def pieces(text: str) -> Iterator[tuple[int, int, bool]]:
    """Cut `text` into (start, end, is it noise?), in order, without overlap, each at most about MAX_CHARS.

    Noise is an unbroken run of encoded data. It gets a piece of its own, of which only the first MAX_CHARS are kept
    (the archive has the whole message), so that the words around it form short, complete pieces.
    """
    at = 0
    for run in _RUN.finditer(text) if max(map(len, text.split()), default=0) >= _LONG_RUN else ():
        noise = _noise(run.group())
        if noise is None:
            continue
        start, end = run.start() + noise[0], run.start() + noise[1]
        yield from ((a, b, False) for a, b in _cut(text, at, start))
        yield start, min(end, start + MAX_CHARS), True
        at = end
    yield from ((a, b, False) for a, b in _cut(text, at, len(text)))


def _noise(run: str) -> tuple[int, int] | None:
    """(start, end) of encoded data in an unbroken run; None if the run is a path, a URL, minified code ..."""
    for match in _ALPHABET.finditer(run):
        data = match.group()
        few = len(set(data)) <= 4
        encoded = len(_CHANGE.findall(data)) > 0.15 * len(data)
        single = "/" not in data and "-" not in data and "_" not in data and any(c.isdigit() for c in data)
        if few or encoded or single:
            return match.start(), match.end()
    return None


def _cut(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Natural pieces of text[start:end], merged as long as they fit."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if end - start <= MAX_CHARS:
        return [(start, end)] if end > start else []
    merged: list[tuple[int, int]] = []
    for a, b in _borders(text, start, end):
        if merged and b - merged[-1][0] <= MAX_CHARS and merged[-1][1] - merged[-1][0] < GOOD_CHARS:
            merged[-1] = (merged[-1][0], b)
        else:
            merged.append((a, b))
    return merged


def _borders(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Pieces of at most MAX_CHARS, cut at the coarsest border possible: fence, paragraph, sentence, space."""
    for a, b, fenced in fences(text[start:end]):
        for c, d in _paragraphs(text, start + a, start + b, r"\n" if fenced and b - a > MAX_CHARS else r"\n[ \t]*\n"):
            if d - c <= MAX_CHARS or (fenced and b - a <= MAX_CHARS):
                yield c, d
            else:
                yield from _finer(text, c, d)


def _paragraphs(text: str, start: int, end: int, border: str) -> Iterator[tuple[int, int]]:
    at = start
    for match in re.compile(border).finditer(text, start, end):
        if text[at : match.start()].strip():
            yield at, match.start()
        at = match.end()
    if text[at:end].strip():
        yield at, end


def _finer(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Pieces of a paragraph longer than MAX_CHARS: sentences, then words, then after brackets and commas."""
    for a, b in sentences(text[start:end]):
        if b - a <= MAX_CHARS:
            yield start + a, start + b
            continue
        for word in re.finditer(r"\S+", text[start + a : start + b]):
            c, d = start + a + word.start(), start + a + word.end()
            yield from [(c, d)] if d - c <= MAX_CHARS else _unbroken(text, c, d)


def _unbroken(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Pieces of an unbroken run: a URL or path as a whole, minified code after its brackets."""
    if text.startswith(("http://", "https://", "/"), start) and end - start <= 10 * MAX_CHARS:
        yield start, end
        return
    at = start
    for match in _BREAK.finditer(text, start, end):
        if match.end() - at >= 40:
            yield at, match.end()
            at = match.end()
    for a in range(at, end, 10 * MAX_CHARS):
        yield a, min(end, a + 10 * MAX_CHARS)


def turn_passage(turn: Sequence[Filed], session: str) -> Passage | None:
    """The extractive summary of one whole turn as a passage of unit "turn", which the recipe `lantern` ranks."""
    kept = [f for f in turn if not f.side and f.message.role not in ("system", "developer")]
    text = summarise(kept)
    if not text:
        return None
    last = kept[-1]
    return Passage(
        session=session,
        message=last.key,
        position=kept[0].position,
        part=0,
        turn=last.turn,
        speaker="turn",
        text=text,
        unit="turn",
        tags=tuple(specifics(text)[:MAX_TAGS]),
        tools=tuple(dict.fromkeys(i.name for f in kept for i in f.message.calls if i.name)),
        terms=tuple(terms(f"{spoken_date(last.created_at)} {text}")),
        created_at=last.created_at,
    )


_STEP = re.compile(r"\s*(?:(?:\d+[.)]|[$>#]) |(?:first|then|next|finally|run|install|execute)\b)", re.I)
_FACTS = re.compile(
    r"\b(?:prefer|always|never|favou?rite|my name|call me|i am|i'm a|i live|means|is called|uses?|is set to|default)\b"
)
"""For text in lower case: three times as fast as ignoring case."""
_FACT_PARTS = (
    "prefer", "always", "never", "favo", "my name", "call me", "i am", "i'm a", "i live", "means", "is called", "use",
    "is set to", "default",
)  # fmt: skip
"""Every text in which the pattern finds something contains one of these; searching for them first is faster."""


def kind(text: str, item: Item) -> PassageKind:
    """How-to and commands are procedural; lasting facts, rules and preferences semantic; events episodic."""
    if item.kind == "text" and item.role == "user" and "```" not in text and is_rule(text):
        return "semantic"
    if item.kind == "call" or "```" in text or any(map(_STEP.match, text.split("\n"))):
        return "procedural"
    return "semantic" if item.kind == "text" and _states_a_fact(text) else "episodic"


def _states_a_fact(text: str) -> bool:
    low = folded(text)
    return any(map(low.__contains__, _FACT_PARTS)) and _FACTS.search(low) is not None


def summarise(turn: Sequence[Filed]) -> str:
    """The extractive summary of a turn as in the LANTERN paper: speaker and first 500 characters of each message, then
    the tools and files that it names, cut at 1,200 characters at a word."""
    lines, tools, files = [], dict[str, None](), dict[str, None]()
    for filed in turn:
        for item in filed.message.items:
            if item.kind == "call":
                tools.setdefault(item.name)
            files.update(
                dict.fromkeys(t for t in specifics(item.text[:4_000]) if "/" in t or re.search(r"\.\w{1,5}$", t))
            )
        text = " ".join(" ".join(readable(i) for i in filed.message.items if i.kind != "call").split())
        if text:
            lines.append(f"{filed.message.role}: {shorten(text, MESSAGE_CHARS)}")
    if tools:
        lines.append("tools: " + ", ".join(tools))
    if files:
        lines.append("files: " + ", ".join(list(files)[:12]))
    return shorten("\n".join(lines), SUMMARY_CHARS)


def shorten(text: str, max_chars: int) -> str:
    """At most `max_chars` of `text`, cut at white space if there is any."""
    if len(text) <= max_chars:
        return text
    return (
        re.sub(r"\s+\S*$", "", text[: max_chars + 1], count=1)[:max_chars]
        if re.search(r"\s", text[:max_chars])
        else text[:max_chars]
    )
