"""Which statements does a later one replace? Pure; it errs on the side of keeping both.

A later statement of the user replaces an earlier one when it

    says so      "actually", "instead of", "changed to", "no longer", ... and either names the old value or shares what
                 the old one is about, with another value of the same sort; or
    reads so     word for word the same but for one value: "The deadline is 3 May." - "The deadline is 10 May."

Two statements that only look alike ("port 80 for the web, port 81 for metrics") both stay: in a block the later one
stands below, and its preamble says what that means.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lantern_proxy.analyze import STOP_WORDS, ends_asking, folded, sentences, terms
from lantern_proxy.restore.cover import never
from lantern_proxy.turn_memo import Memo

_TO = r"\b[^.?!]{0,60}?\bto"
_CUE = re.compile(
    # "actually", "no longer"
    r"\b(?:actually|instead(?: of)?|rather than|no longer|not any ?more|anymore|correction|scratch that"
    # "changed the port to", "migrated to", "bumped it to"
    rf"|chang(?:e|ed|es|ing)(?:{_TO}|{_TO[:-2]}from)|(?:switch|mov|migrat)(?:e|ed|es|ing)?{_TO}"
    rf"|(?:updated?|bump(?:ed)?){_TO}"
    # "on second thought", "replaced", "pushed back to", "now uses"
    r"|on second thought"
    r"|renam(?:e|ed|ing)|replac(?:e|ed|es|ing)|changed my mind|postponed|rescheduled|pushed (?:back )?to|from now on"
    r"|sorry, (?:it|i) (?:is|meant)|i meant|make (?:it|that)|now (?:is|uses?|at|on)|is now|are now|uses? now)\b",
    re.I,
)
"""Words that say that something is otherwise now."""
_ENDED = re.compile(
    r"\b(?:no longer|not any ?more|anymore|stopped|dropped|got rid of|removed|quit|gave up|abandoned)\b", re.I
)
"""Words that say that something is over, with nothing in its place."""
_CUE_SIGNS = (
    "actually", "instead", "rather than", "no longer", "not any", "anymore", "correction", "scratch that", "chang",
    "switch", "mov", "migrat", "updat", "bump", "second thought", "renam", "replac", "postponed", "rescheduled",
    "pushed", "sorry, ", "i meant", "make it", "make that", "now",
)  # fmt: skip
_ENDED_SIGNS = (
    "no longer", "not any", "anymore", "stopped", "dropped", "got rid of", "removed", "quit", "gave up", "abandoned",
)  # fmt: skip
"""What each of the two holds one of: the patterns cost ten times as much as to look for it."""
_PLAIN = r"[a-z]++(?![\w/-]|\.\w)"
"""A word in lower case that no value begins with: most are such, and they are passed over at once."""
_WRITTEN = (
    "[\u3007\u96f6\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u767e\u5343\u4e07\u842c\u4e24\u5169]"
)
"""A numeral of Chinese or Japanese."""
_VALUES = re.compile(
    rf"(?:\b(?=\w)(?!{_PLAIN})|(?=[^\w\s]))(?:"  # nothing begins in the middle of a word
    # /etc/hosts, ~/notes.md, src/main.rs
    r"(?P<path>(?<![\w/])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)*|\b[\w-]+(?:/[\w.-]+)+)"
    # 2024-05-03, 3rd May, May 3, 2024, Monday, 5 p.m., 17:30
    r"|(?P<date>\b\d{4}-\d\d-\d\d\b|\b(?:\d{1,2}(?:st|nd|rd|th)? )?(?:January|February|March|April|May|June|July|August"
    r"|September|October|November|December)\b(?: \d{1,2}(?:st|nd|rd|th)?\b)?(?:,? \d{4}\b)?"
    r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b|\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b|\b\d{1,2}:\d\d\b)"
    # 9443, $1,200.50, v2.1, 15%
    r"|(?P<number>[$\u20ac\u00a3]?\bv?\d+(?:[.,]\d+)*%?)"
    # `a b`, user_id, main.py, parseConfig, and names within a sentence
    r"|(?P<name>`[^`\n]{1,60}`|\b\w+_\w+\b|\b\w+\.(?:py|js|ts|go|rs|md|json|ya?ml|toml|sql|db|txt)\b|\b[a-z]+[A-Z]\w*\b"
    r"|(?<=[\w,] )[A-Z]\w+(?: [A-Z]\w+)*))"
    # where words stand without spaces between them: weekdays of Chinese, Japanese and Korean
    r"|(?P<weekday>(?:\u661f\u671f|\u793c\u62dc|\u79ae\u62dc|\u5468|\u9031)[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u65e5\u5929]"
    r"|[\u6708\u706b\u6c34\u6728\u91d1\u571f\u65e5]\u66dc|[\uc6d4\ud654\uc218\ubaa9\uae08\ud1a0\uc77c]\uc694\uc77c)"
    # and numbers that are written out, before what they count: month, day, number, hour, year, money, people, nights
    rf"|(?P<written>{_WRITTEN}+(?=[\u6708\u65e5\u53f7\u865f\u70b9\u9ede\u65f6\u6642\u5206\u5e74\u5143\u5186\u5713\u5757\u4eba\u540d\u4f4d\u665a\u6cca\u697c\u968e])"
    rf"|{_WRITTEN}{{3,}})"
)
"""What one statement may say otherwise than another; the group is the value's sort."""
_WORD = re.compile(r"\w+")
_EMPTY = STOP_WORDS | frozenset(
    """
    actually instead rather longer changed change switch switched moved move correction update updated please ok okay
    let lets use uses using used make set go going went want need sorry meant anymore new old still currently today
    right so yes no well also replace replaced rename renamed thought second mind from to
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
SHARED = 2
"""Content words that a change without the old value must share with what it changes."""
MOST_CHARS, HELD_CHARS, MOST_RIVALS = 400, 6_000, 400
"""Of a sentence that is read; of the question; and of the earlier statements that one is compared with, the newest."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence and where it was said. turn: 0 for the request itself."""

    text: str
    turn: int
    order: tuple[float, int, int]
    """Increases with time."""
    by_user: bool


class _Read:
    """A sentence as statements are compared. What few comparisons ask for is computed when it is asked for."""

    __slots__ = ("_about", "_ended", "_says_so", "_text", "every", "frame", "values")

    def __init__(self, text: str) -> None:
        values: dict[str, set[str]] = {}
        rest, at = [], 0
        for match in _VALUES.finditer(text):
            values.setdefault(match.lastgroup or "", set()).add(match.group().strip("`").lower())
            rest.append(text[at : match.start()])
            at = match.end()
        self._text = text
        self.values = {sort: frozenset(found) for sort, found in values.items()}
        """Sort of value -> those in it, lower case."""
        self.every: frozenset[str] = frozenset().union(*values.values())
        self.frame = tuple(_WORD.findall(" ".join([*rest, text[at:]]).lower()))
        """Its words with values left out: equal when two sentences differ in values only."""
        self._about: frozenset[str] | None = None
        self._says_so: bool | None = None
        self._ended: bool | None = None

    @property
    def about(self) -> frozenset[str]:
        """Stems of its content words but for the values."""
        if self._about is None:
            told = [word for word in self.frame if len(word) > 2 and word not in _EMPTY]
            self._about = frozenset(terms(" ".join(told)))
        return self._about

    @property
    def says_so(self) -> bool:
        if self._says_so is None:
            self._says_so = _holds(folded(self._text), _CUE_SIGNS) and _CUE.search(self._text) is not None
        return self._says_so

    @property
    def ended(self) -> bool:
        if self._ended is None:
            self._ended = _holds(folded(self._text), _ENDED_SIGNS) and _ENDED.search(self._text) is not None
        return self._ended


def superseded(statements: Sequence[Statement], late: Callable[[], bool] = never) -> dict[int, int]:
    """Index of each replaced statement -> turn of the newest that replaces it (0: the request itself).

    late: asked before each, the oldest first; once it says so, the newer ones replace nothing
    """
    read: dict[int, _Read] = {}
    about, frames = _About(read), dict[tuple[str, ...], list[int]]()
    replaced: dict[int, int] = {}
    for i in sorted(range(len(statements)), key=lambda i: statements[i].order):
        if late():
            break
        said = statements[i]
        now = read[i] = _read(said.text)
        for j in _rivals(now, about, frames) if said.by_user else ():
            if statements[j].order[:2] < said.order[:2] and _replaces(now, read[j]):
                replaced[j] = said.turn
        about.add(i)
        frames.setdefault(now.frame, []).append(i)
    return replaced


class _About:
    """Statements by their stems and values. They wait until one that tells of a change asks for them."""

    def __init__(self, read: Mapping[int, _Read]) -> None:
        self._read = read
        self._of: dict[str, list[int]] = {}
        self._waiting: list[int] = []

    def add(self, i: int) -> None:
        self._waiting.append(i)

    def like(self, now: _Read) -> Iterable[int]:
        """Those that share a stem or a value with `now`."""
        for i in self._waiting:
            each = self._read[i]
            for stem in (*each.about, *each.every) if each.values else ():
                self._of.setdefault(stem, []).append(i)
        self._waiting.clear()
        told = [i for stem in (*now.about, *now.every) for i in self._of.get(stem, ())[-MOST_RIVALS:]]
        return dict.fromkeys(told[-MOST_RIVALS:])


def _rivals(now: _Read, about: _About, frames: Mapping[tuple[str, ...], list[int]]) -> Iterable[int]:
    """Earlier statements that it may replace."""
    if not now.values:
        return ()
    if now.says_so or now.ended:
        return about.like(now)
    same = frames.get(now.frame)
    return same[-MOST_RIVALS:] if same and now.about else ()


def _replaces(now: _Read, old: _Read) -> bool:
    if now.frame == old.frame and now.about:  # two values that differ make another record
        return len(now.every - old.every) == 1 == len(old.every - now.every)
    shared = now.about & old.about
    if now.ended and now.every & old.every and (shared or not now.about):
        return True
    same_sort = [sort for sort in now.values if old.values.get(sort) and now.values[sort] - old.values[sort]]
    if not now.says_so or not same_sort:
        return False
    if any(now.values[sort] & old.values[sort] for sort in same_sort):  # it names the old value
        return bool(shared) or not now.about or len(old.about) <= 1
    needed = min(SHARED, len(old.about))
    return needed > 0 and len(shared) >= needed and 2 * len(shared) >= min(len(now.about), len(old.about))


class Changes:
    """What of an older text a newer one may say otherwise, whether or not it has a sign of a change."""

    def __init__(self, old: str) -> None:
        self._old = _read(old)

    def has_other(self, new: str) -> bool:
        """Has it a value that the older text has not, of a sort of which that has another?"""
        later, before = _read(new).values, self._old.values
        return any(later[sort] - before[sort] for sort in later.keys() & before.keys())

    def is_named(self, new: str) -> bool:
        """Does it name a value of the older text?"""
        return not _read(new).every.isdisjoint(self._old.every)


def prepare(flat: str) -> None:
    """Compute ahead what `superseded` remembers of a sentence."""
    if len(flat) <= MOST_CHARS:
        read = _read(flat)
        _ = read.about, read.says_so, read.ended


_read = Memo(_Read, most_bytes=6 << 20, bytes_of=lambda text: 2_000 + 12 * len(text)).__getitem__
"""Remembered, since what was lost is looked at again with every block."""


def _holds(text: str, signs: Sequence[str]) -> bool:
    return any(sign in text for sign in signs)


def of_request(question: str, told: str) -> Iterator[str]:
    """Sentences of the request that may replace what was lost: the question's, and those that tell of a change."""
    found = [question[a:b] for a, b in sentences(question[:HELD_CHARS])]
    for text in told.splitlines():
        found += [change for a, b in sentences(text) if _CUE.search(change := text[a:b])]
    yield from (each for each in dict.fromkeys(found) if len(each) <= MOST_CHARS and not ends_asking(each))
