"""Messages presented in another way: answers reformatted, questions without the context put around them.

Examples: the arguments of a call as a text, JSON written anew, one field of it alone, a text without its reasoning.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from lantern_proxy.turn import Item, canonical, plain
from lantern_proxy.turn_memo import Memo

_MIN_CHARS = 8
"""Texts with fewer letters and digits have to be equal."""
_MOST_ADDED = 4
"""An answer may be shown with this many times its own letters around it; a longer text only quotes it."""
_CALL_CHARS = 400
"""Most characters around the id of a call that a client writes into a text: names of fields, of the tool."""
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.S)
_SIGNS = {"n": "\n", "r": "\n", "t": "\t", "b": "", "f": ""}
_READ_CHARS = 200_000
"""Most characters of a text that are decoded."""
_NO_WORD = re.compile(r"[\W_]+")
_THOUGHT = re.compile(r"\s*<(\w[\w-]{0,40})>.*?</\1>", re.S)
_TAG, _CLOSING = re.compile(r"<(\w[\w-]{0,40})>"), re.compile(r"</(\w[\w-]{0,40})>")


def is_same_answer(produced: Iterable[Item], shown: Iterable[Item]) -> bool:
    """Is what the client shows the answer that the upstream produced, or everything said in one part of it?

    Prose that merely mentions what was passed to a tool is not; a text that holds the ids of the calls is.
    """
    made, seen = [i for i in produced if i.kind in ("text", "call")], [i for i in shown if i.kind in ("text", "call")]
    if _writes_calls(made, seen):
        return True
    before, after = _words(made), _words(seen)
    if not before or not after:
        return False
    if _stands_in(after, before):
        return True
    prose = all(i.kind == "call" for i in made) and not any(_is_structured(i) for i in seen)
    quoted = sum(map(len, after)) > _MOST_ADDED * sum(map(len, before))
    return not prose and not quoted and _stands_in(before, after)


def was_asked_with(text: str, asked: str) -> bool:
    """Was `text` asked with documents, notes or a form before or after it (`asked`), which its client removes later?
    Both are canonical."""
    if len(text) < _MIN_CHARS:
        return bool(text) and (asked.startswith(text) or asked.endswith(text))
    return text in asked


def _writes_calls(made: Sequence[Item], seen: Sequence[Item]) -> bool:
    """Do texts hold the minted id of each produced call, and not much more than the calls?"""
    calls = [i for i in made if i.kind == "call"]
    if not calls or any(i.kind != "text" for i in seen):
        return False
    whole = "\n".join(i.text for i in seen)
    if len(whole) > _MOST_ADDED * sum(len(i.text) for i in made) + _CALL_CHARS * len(calls):
        return False
    return all(any(len(value) >= _MIN_CHARS and value in whole for value in i.ids) for i in calls)


def strings_of(text: str, *, listed: bool = True) -> Iterator[str]:
    """Every string within a JSON text, without field names; the text itself if it is no JSON.

    listed: also strings in lists; if not, only those whose field names say that they are summaries
    """
    start, end = text.find("{"), text.rfind("}")
    try:
        pending = [msgspec.json.decode(text[start : end + 1] if 0 <= start < end else text)]
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # half a character, too: clients cut texts
        pending = [text]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value if listed else _summaries_in(value)


def _summaries_in(listed: Iterable[Any]) -> list[Any]:
    records = (each for each in listed if isinstance(each, dict))
    return [value for each in records for name, value in each.items() if "summar" in name.lower()]


def parts_of(text: str) -> Iterator[str]:
    """Every string within a JSON text, else the text itself; and the parts of each, within tags and between them.
    Clients keep the summary of an answer without the reasoning in front of it. Lists are left out, since they hold
    separate facts or suggestions, except for summaries of parts of a history."""
    for each in strings_of(text, listed=False):
        yield each
        yield from _tagged(each[:_READ_CHARS])


def shown_as(text: str) -> list[str]:
    """What clients show of an answer: all of it, or what follows the tags it begins with, in which models think. A
    summary may be entirely within tags."""
    found = _THOUGHT.match(text)
    rest = text[found.end() :].strip() if found else ""
    return [text, rest] if rest else [text]


def _tagged(text: str) -> Iterator[str]:
    start, closed = 0, {found[1]: found.start() for found in _CLOSING.finditer(text)}
    found = _TAG.search(text)
    while found:
        name = found[1]
        if closed.get(name, -1) < found.end():
            found = _TAG.search(text, found.end())
            continue
        end = text.index(f"</{name}>", found.end())
        yield text[start : found.start()]
        yield text[found.end() : end]
        start = end + len(name) + 3
        found = _TAG.search(text, start)
    if start:
        yield text[start:]


def _read(text: str) -> str:
    if "\\" not in text or '"' not in text:
        return plain(text)
    return f"{plain(text)}\n{canonical(decoded(text[:_READ_CHARS]))}"


def decoded(text: str) -> str:
    """`text` with the escapes of JSON decoded."""
    read = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _SIGNS.get(m[2], m[2]), text)
    return read.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


unescaped = Memo(_read, most_bytes=4 << 20, bytes_of=lambda text: 3 * len(text)).__getitem__
"""Canonical text, followed by the same with the strings of JSON in it decoded: line breaks, quotation marks and
non-ASCII letters are escaped there."""


def _words(items: Iterable[Item]) -> list[str]:
    """Each string in the items, reduced to its letters and digits."""
    return [text for i in items for text in _words_of(i.text)]


def _told(text: str) -> tuple[str, ...]:
    found = (_NO_WORD.sub("", canonical(each)).lower() for each in strings_of(text))
    return tuple(each for each in found if each)


_words_of = Memo(_told, most_bytes=4 << 20, bytes_of=lambda text: 2 * len(text)).__getitem__
"""Cached, since many answers are compared with many if a history was rewritten."""


def _stands_in(less: list[str], more: list[str]) -> bool:
    whole = "\n".join(more)
    return less == more or (sum(map(len, less)) >= _MIN_CHARS and all(text in whole for text in less))


def _is_structured(i: Item) -> bool:
    return i.kind == "call" or i.text.lstrip().startswith(("{", "[", "```"))
