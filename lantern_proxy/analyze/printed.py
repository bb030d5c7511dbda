"""Which lines of a tool's output are rows of a listing, and which calls only repeat what is stored elsewhere. Pure.

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
GOING_ON = 2
"""As MANY, for a text that continues another piece of the output, which may contain other rows."""
MOST_CHARS = 240
"""How much of a line is analysed."""

_TIME = re.compile(
    r"[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ]?)?\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?[\])]?\s+"
)
"""A time at the start of a log line."""
_NO_TROUBLE = re.compile(r"\W*(?:INFO|DEBUG|TRACE|NOTICE|WARN|WARNING)\b")
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


def rows(text: str, *, goes_on: bool = False) -> list[tuple[int, int]]:
    """The (start, end) of each row in a tool's output, in order.

    goes_on: it continues an earlier piece of that output
    """
    many = GOING_ON if goes_on else MANY
    spans, at = [], 0
    for line in text.split("\n"):
        spans.append((at, at + len(line)))
        at += len(line) + 1
    said = [text[a : min(b, a + MOST_CHARS)].strip() for a, b in spans]
    numbered = _numbered(said)
    shapes = [*map(_shape, said)]
    counts = Counter(filter(None, shapes))
    changed = next((at for at, line in enumerate(said) if line[:1] in _DIFFS and _DIFF.match(line)), len(said))
    told = [
        number or shape == _LOG or counts[shape] >= many or ("%" in line and _PROGRESS.search(line) is not None)
        for line, shape, number in zip(said, shapes, numbered, strict=True)
    ]
    return [span for at, span in enumerate(spans) if at >= changed or told[at]]


def _numbered(said: Sequence[str]) -> list[bool]:
    """For each line: does it begin with a number of a counted sequence?"""
    numbers = [int(found[1]) if (found := _NUMBERED.match(line)) else None for line in said]
    told = [number for number in numbers if number is not None]
    counted = sum(b == a + 1 for a, b in pairwise(told))
    is_listing = len(told) >= MANY and 2 * counted >= len(told)
    return [is_listing and number is not None for number in numbers]


def _shape(line: str) -> str:
    """What similar lines have in common: symbols, and a placeholder for words; empty for language.

    "internal/store/cart.go:124:  return nil" -> "/:9:"       "b81f02c fix the cart" -> "9 w"
    "Waiting for 3 of 6 replicas" -> "waiting for"            "HIKARI_MAX: 20" -> "w: 2"
    """
    timed = _TIME.match(line) if line[:1] in "0123456789[(" else None
    rest = line[timed.end() :] if timed else line
    if timed and _NO_TROUBLE.match(rest):
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


_LOOKS = frozenset(
    """
    read view open list ls dir tree glob grep rg ag find fd search query fetch get show cat bat head tail less more look
    inspect describe display status stat browse navigate screenshot which whereis type wc du df ps top free uptime env
    printenv date pwd whoami id hostname file diff cmp comm log logs blame history events watch explain version help
    sort uniq cut jq yq awk sed tr column nl xargs echo printf sleep cd dig nslookup host ping netstat ss lsof
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
"""Programs and tools that only read."""
_SHOWS = frozenset(
    """
    list ls tree get show view inspect describe status stat log logs diff blame history events watch search query find
    explain top cat read
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
"""Read-only subcommands of other programs."""
_STAGES = re.compile(r"\|\|?|&&?|;|\n")
_WRITES = re.compile(r"(?<![0-9&])>>?(?! ?/dev/null)(?!&)|\bsed\b[^|]* -i|\b-delete\b|\b-exec\b|\btee\b")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^']*'")
_ASKS = re.compile(r"[\"']\s*(?:select|show|explain|describe|pragma)\b", re.I)
"""A database query in quotes."""
_NOISE = re.compile(r"\d?>&\d|\d?> ?/dev/null|\$\(|[()]")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NAMES_A_COMMAND = frozenset(
    ("bash", "shell", "sh", "zsh", "powershell", "terminal", "console", "exec", "execute", "command", "cmd", "run")
)
_FIRST = 4
"""The verb of a command is among so many first words: `kubectl -n shop get pods`."""


_KEEPS = frozenset(("edit", "write", "patch", "replace", "insert", "create", "update"))
_FILE = re.compile(r"^(?:\w+_?)?(?:path|file|filename): |\*\*\* (?:Add|Update) File: ", re.I | re.M)
"""Name of the argument that names the file to write."""


def stands_elsewhere(tool: str, arguments: str, *, goes_on: bool = False) -> bool:
    """Does a tool call only look something up, or write what is then stored in a file?

    arguments: as cut into passages, without the tool's name. goes_on: not their first piece, which names the file
    """
    named = [word.lower() for word in _WORDS.findall(tool)]
    if not _NAMES_A_COMMAND.intersection(named):
        keeps = not _KEEPS.isdisjoint(named) and (goes_on or _FILE.search(arguments) is not None)
        return keeps or (bool(named) and not _LOOKS.isdisjoint(named[:1] + named[-1:]))
    plain = _NOISE.sub(" ", _QUOTED.sub(lambda quoted: " show " if _ASKS.match(quoted[0]) else "''", arguments))
    stages = [stage.split() for stage in _STAGES.split(plain) if stage.strip()]
    return bool(stages) and not _WRITES.search(plain) and all(map(_only_looks, stages))


def _only_looks(stage: Sequence[str]) -> bool:
    within = stage[stage.index("--") + 1 :] if "exec" in stage and "--" in stage else stage
    words = [word for word in within if "=" not in word and not word.startswith("-")]
    first = [word.rpartition("/")[2] for word in words if word not in ("sudo", "time", "timeout", "command:")]
    return not first or first[0] in _LOOKS or any(word.split("-")[0] in _SHOWS for word in first[1:_FIRST])
