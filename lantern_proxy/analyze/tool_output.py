"""Which lines of a tool's output are rows of a listing? Pure.

Listings, logs, tables, search results, progress, source code with line numbers: each of their lines is like the others.
They are full of names and numbers, hardly one is ever asked for, and the tool can print them again. A line that stands
out among them, such as an error, is no row.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

MANY = 4
"""Least number of lines of one shape that are rows."""
MANY_CONTINUED = 2
"""As MANY, for a text that continues another piece of the output, which may contain other rows."""
MOST_CHARS = 240
"""How much of a line is analysed."""

_TIME = re.compile(
    r"[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ]?)?\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[\])]?\s+"
)
"""A time at the start of a log line."""
_HARMLESS_LEVEL = re.compile(r"\W*(?:INFO|DEBUG|TRACE|NOTICE|WARN|WARNING)\b")
_NUMBERED = re.compile(r"(\d{1,6})(?:[ \t]*[\u2192|:]|\t|  |$)")
"""A line number in front of a line of source code, as tools print it."""
_PATH = re.compile(r"[\w.@~+-]*(?:/[\w.@~+*-]*)+")
_DIGITS, _LETTERS = re.compile(r"[^\W\d][\w.-]*?\d[\w.-]*|\d[\w.-]*"), re.compile(r"[^\W\d][\w.-]*")
"""Runs of a piece with a digit in them, and without."""
_BULLET = re.compile(r"(?:[-*+>#\u2022]+|\d+[.)]) ")
_COLUMNS = re.compile(r"(?:\t|  +)(?=\S)")
_PROGRESS = re.compile(r"\d ?%.*(?:\d ?/ ?\d|[#=\u2588]{3}|\beta\b|B/s)", re.I)
_DIFF = re.compile(r"@@ .*@@|diff --git |index [0-9a-f]{7,40}\.\.|(?:---|\+\+\+) (?:[ab]/|/dev/null)")
_DIFFS = ("@", "d", "i", "-", "+")
"""First characters of such lines, which decide for most lines."""
_LOG = "log"
"""Shape of a log line that reports no problem: one is a row anywhere."""
_FRAME_LINES = 4
"""Most lines from one frame with its source code to the next."""
_CALLED = re.compile(r"at (?:async )?[\w$.<>/ ]+\(.*\)$|at .*:\d+:\d+\)?$|\.\.\. \d+ more$")
_CALLS = re.compile(r'File ".*", line \d+')
"""Frames of a stack trace: below their error, the innermost first, and above it, the innermost last. All but the
innermost are rows."""


def rows(text: str, *, continued: bool = False) -> list[tuple[int, int]]:
    """The (start, end) of each row in a tool's output, in order.

    continued: it continues an earlier piece of that output
    """
    least = MANY_CONTINUED if continued else MANY
    spans, at = [], 0
    for line in text.split("\n"):
        spans.append((at, at + len(line)))
        at += len(line) + 1
    lines = [text[a : min(b, a + MOST_CHARS)].strip() for a, b in spans]
    numbered = _numbered(lines)
    shapes = [*map(_shape, lines)]
    counts = Counter(filter(None, shapes))
    diff_start = next((at for at, line in enumerate(lines) if line[:1] in _DIFFS and _DIFF.match(line)), len(lines))
    inner, outer = _frames(lines)
    is_row = [
        at in outer
        or (at not in inner and (number or shape == _LOG or counts[shape] >= least))
        or ("%" in line and _PROGRESS.search(line) is not None)
        for at, (line, shape, number) in enumerate(zip(lines, shapes, numbered, strict=True))
    ]
    return [span for at, span in enumerate(spans) if at >= diff_start or is_row[at]]


def _frames(lines: Sequence[str]) -> tuple[set[int], set[int]]:
    """(lines that are the innermost frame of a stack trace, the other frames)"""
    called = {at for at, line in enumerate(lines) if line.startswith(("at ", "... ")) and _CALLED.match(line)}
    calls = {at for at, line in enumerate(lines) if line.startswith("File ") and _CALLS.match(line)}
    outer = {at for at in called if at - 1 in called}
    outer |= {at for at in calls if not calls.isdisjoint(range(at + 1, at + _FRAME_LINES))}
    return (called | calls) - outer, outer


def _numbered(lines: Sequence[str]) -> list[bool]:
    """For each line: does it begin with a number of a counted sequence?"""
    numbers = [int(found[1]) if (found := _NUMBERED.match(line)) else None for line in lines]
    present = [number for number in numbers if number is not None]
    counted = sum(b == a + 1 for a, b in pairwise(present))
    is_listing = len(present) >= MANY and 2 * counted >= len(present)
    return [is_listing and number is not None for number in numbers]


def _shape(line: str) -> str:
    """What similar lines have in common: symbols, and a placeholder for words; empty for language.

    "internal/store/cart.go:124:  return nil" -> "/:9:"       "b81f02c fix the cart" -> "9 w"
    "Waiting for 3 of 6 replicas" -> "waiting for"            "HIKARI_MAX: 20" -> "w: 2"
    """
    timed = _TIME.match(line) if line[:1] in "0123456789[(" else None
    rest = line[timed.end() :] if timed else line
    if timed and _HARMLESS_LEVEL.match(rest):
        return _LOG
    bullet = None if rest[:1].isalpha() else _BULLET.match(rest)
    rest = rest[bullet.end() :] if bullet else rest
    pieces = rest.split(None, 2)[:2]
    if not pieces:
        return ""
    columns = len(_COLUMNS.findall(rest)) if "  " in rest or "\t" in rest else 0
    if bars := rest.count("|"):
        return f"{bars} bars"
    first = _skeleton(pieces[0])
    if timed:
        return " ".join((":", first, *map(_skeleton, pieces[1:])))
    if columns and (len(pieces) == 1 or columns > 1 or first != "w"):
        return f"{columns if columns > 1 else first} columns"
    if first == "w":  # probably prose: rows begin with the same words, or with names
        return " ".join([each.lower() if each.isalpha() else _skeleton(each) for each in pieces]) if pieces[1:] else ""
    return first if first != "w:" or len(pieces) < 2 else f"w: {len(rest.split())}"


def _skeleton(piece: str) -> str:
    """`12:04:31` -> "9:9:9", `src/a/b:12:` -> "/:9:", `retry_count` and "said," -> "w"."""
    if piece.isalpha():
        return "w"
    found = _DIGITS.sub("9", _PATH.sub("/", piece) if "/" in piece else piece)
    found = _LETTERS.sub("w", found)
    return found.rstrip(".,;!?") or found
