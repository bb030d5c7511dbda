"""Finds the headings above each line of a passage, and the tables in it with their headers. Pure."""

import re
from collections.abc import Sequence

from lantern_proxy.restore.lines import Line
from lantern_proxy.turn import Passage

_WORD = re.compile(r"\w+")
_CELLS = re.compile(r"\s*\|\s*|\t+| {2,}|[,;](?! )")
_MAY_BE_CELLS = re.compile(r"[|\t]|  |[,;](?! )")
_LEAST_ROWS = 2


def tables(passage: Passage, of: Sequence[Line]) -> list[tuple[int, ...]]:
    """The tables in a passage, each as its line numbers with the header first: adjacent lines with the same number of
    cells, separated by bars, tabs, wide gaps, or commas without a space. Horizontal rules do not count as lines."""
    found: list[list[int]] = []
    if not _MAY_BE_CELLS.search(passage.text):
        return []
    before, end = 0, 0
    for i, line in enumerate(of):
        text = passage.text[line.start : line.end]
        if not _WORD.search(text):
            continue
        cells = 0 if "\n" in text else len(_CELLS.split(text.strip().strip("|").strip()))
        ruled = _WORD.search(passage.text, end, line.start) is None
        if cells > 1 and cells == before and ruled:
            found[-1].append(i)
        elif cells > 1:
            found.append([i])
        before, end = cells, line.end
    return [tuple(each) for each in found if len(each) > _LEAST_ROWS]


_OPENS = (":", "{", "[", "(", "\uff1a")
"""Endings of a line that introduces the lines below it."""
_SECTION = re.compile(r"\[\[?[A-Za-z_][\w .\"':/-]*\]?\]$", re.M)
"""A line that opens a section of a configuration file: `[server.tls]`, `[[job]]`."""
_ITEM = r"[ \t]*(?:[-*+\u2022]|\d+[.)])(?:[ \t]|$)"
_MAY_HEAD = re.compile(rf"[:{{(\[\uff1a][*_ ]*\n|^#|^{_SECTION.pattern}|^{_ITEM}.*\n[ \t]", re.M)
_LIST = re.compile(rf"{_ITEM}|[ \t]*(?:>[ \t]|\|[ \t|])")
_IS_ITEM = re.compile(_ITEM)
HEAD_CHARS = 120
"""Most characters of a heading."""


def headings(passage: Passage, of: Sequence[Line]) -> list[int]:
    """For each line the index of its heading, the line above that says what it belongs to; -1 if there is none.

    Headings are "Week 2:" above its items, the key of an object, a document heading, `[server]` above its settings, "-
    Tomas" above indented lines, and in a record without a name, such as `[[job]]`, its first line. They are recognised
    by indentation, list marks, colons and brackets.
    """
    text, found, open_ = passage.text, list[int](), list[tuple[int, int]]()
    record: int | None = None
    if not _MAY_HEAD.search(text):
        return [-1] * len(of)
    for i, line in enumerate(of):
        start = text.rfind("\n", 0, line.start) + 1
        first = not text[start : line.start].strip()  # otherwise the sentence begins within its line
        line_text = text[start : line.end]
        headed = line_text.startswith("#") or (line_text.startswith("[") and _SECTION.match(line_text) is not None)
        depth = _depth(line_text, headed=headed)
        if first:
            open_ = _still_open(open_, depth)
        found.append(next((at for at, over in reversed(open_) if over < depth), -1) if open_ else -1)
        heads_others = line.flat.rstrip("*_ ").endswith(_OPENS) or headed
        if (heads_others or (first and _IS_ITEM.match(line_text))) and len(line.flat) <= HEAD_CHARS:
            open_.append((i, depth))
        elif record is not None:
            open_.append((i, record))
        is_unnamed = found[-1] >= 0 and heads_others and not _WORD.search(line.flat)
        record = depth if is_unnamed or line_text.startswith("[[") or line_text.strip() == "-" else None
    return found


def _depth(line_text: str, *, headed: bool) -> int:
    """How deep a line stands: 2 if it is not indented, one more with a list mark, less than 0 for most headings.

    headed: is it the heading of a document, or does it open a section of a configuration file?
    """
    if headed:
        return line_text.find(" ") - 8 if line_text.startswith("#") else -1
    return len(line_text) - len(line_text.lstrip()) + 2 + (1 if _LIST.match(line_text) else 0)


def _still_open(open_: list[tuple[int, int]], depth: int) -> list[tuple[int, int]]:
    """The headings that a line of this depth does not close. open_: (number of the line, its depth), outermost first"""
    while open_ and open_[-1][1] >= depth:
        open_.pop()
    # above an unindented paragraph only those of the document are left
    return [each for each in open_ if each[1] < 0] if depth == 2 else open_


def headings_above(i: int, of: Sequence[int]) -> list[int]:
    """The headings of line `i`, the nearest first. of: see headings()"""
    found = list[int]()
    while of[i] >= 0:
        i = of[i]
        found.append(i)
    return found


def needed_headings(passage: Passage, of: Sequence[Line]) -> list[list[int]]:
    """For each line what a reader needs above it: its headings, the nearest first, and its table's header."""
    over = headings(passage, of)
    found = [headings_above(i, over) for i in range(len(of))]
    for header, *below in tables(passage, of):
        for row in below:
            found[row].append(header)
    return found
