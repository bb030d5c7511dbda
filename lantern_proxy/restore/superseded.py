"""Which statements does a later one replace? Pure; it errs on the side of keeping both.

A later statement of the user replaces an earlier one when the two are the same but for one value:

    it says that something changed   "now", "instead of", "no longer", "statt", ...
    it is about the same             up to its value it has no word that the older one lacks
    it has another value             of the same sort and unit, which names no record: the older value is named, or both
                                     stand at the end of their clause ("My son Ben is now 9" says nothing of Max)

The older one is replaced *whole* when the newer also has all of its words and values but the one that changed. Else it
says more, as "Never give ibuprofen to Tom, he weighs 31 kg" does: it is true but for a part, and stays.
"""

# ruff: noqa: RUF001 - letters of other languages are meant

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from lantern_proxy.analyze import ends_asking, folded, sentences, terms
from lantern_proxy.restore.cover import never
from lantern_proxy.turn_memo import Memo

_TO = r"\b[^.?!]{0,60}?\bto"
_ENDED_ELSEWHERE = (
    r"nicht mehr|kein\w* mehr|ya no|non più|não \w+ mais|já não|niet meer|już nie|больше не|уже не|n(?:e |')\w+ plus"
)
_NOW_ELSEWHERE = (
    "jetzt|nun|ab sofort|statt|anstatt|sondern|maintenant|désormais|plutôt|au lieu|ahora|en vez|en lugar|ora|adesso"
    "|invece|agora|em vez|voortaan|nu|in plaats|teraz|zamiast|теперь|вместо|artık|yerine"
)
"""In other languages a word or two of each: without one nothing is replaced, and both statements stay."""
_CUE = re.compile(
    # "actually", "no longer"
    r"\b(?:actually|instead(?: of)?|rather than|no longer|not any ?more|anymore|correction|scratch that"
    # "changed the port to", "migrated to", "bumped it to"
    rf"|chang(?:e|ed|es|ing)(?:{_TO}|{_TO[:-2]}from)|(?:switch|mov|migrat)(?:e|ed|es|ing)?{_TO}"
    rf"|(?:updated?|bump(?:ed)?){_TO}"
    # "on second thought", "replaced", "pushed back to", "is now"; but "now run test 5" only comes next
    r"|on second thought|(?<=\w )now"
    r"|renam(?:e|ed|ing)|replac(?:e|ed|es|ing)|changed my mind|postponed|rescheduled|pushed (?:back )?to"
    r"|from now on|sorry, (?:it|i) (?:is|meant)|i meant|make (?:it|that|the)"
    rf"|désormais|voortaan|ab sofort|(?<=\w )(?:{_NOW_ELSEWHERE})|{_ENDED_ELSEWHERE})\b",
    re.I,
)
"""Words that say that something is otherwise now."""
_ENDED = re.compile(
    r"\b(?:no longer|not any ?more|anymore|stopped|dropped|got rid of|removed|quit|gave up|abandoned"
    rf"|{_ENDED_ELSEWHERE})\b",
    re.I,
)
"""Words that say that something is over, with nothing in its place."""
_ENDED_SIGNS = (
    "no longer", "not any", "anymore", "stopped", "dropped", "got rid of", "removed", "quit", "gave up", "abandoned",
    "mehr", "ya no", "più", "mais", "já não", "meer", "już nie", "больше не", "уже не", "plus",
)  # fmt: skip
_CUE_SIGNS = (
    "actually", "instead", "rather than", "correction", "scratch that", "chang", "switch", "mov", "migrat", "updat",
    "bump", "second thought", "renam", "replac", "postponed", "rescheduled", "pushed", "sorry, ", "i meant", "make ",
    "now", *_NOW_ELSEWHERE.split("|"), *_ENDED_SIGNS,
)  # fmt: skip
"""What each of the two holds one of: the patterns cost ten times as much as to look for it."""
_PLAIN = r"[a-z]++(?![\w/@-]|\.\w)"
"""A word in lower case that no value begins with: most are such, and they are passed over at once."""
_WRITTEN = (
    "[\u3007\u96f6\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u767e\u5343\u4e07\u842c\u4e24\u5169]"
)
"""A numeral of Chinese or Japanese."""
_VALUES = re.compile(
    rf"(?:\b(?=\w)(?!{_PLAIN})|(?=[^\w\s]))(?:"  # nothing begins in the middle of a word
    # /etc/hosts, ~/notes.md, src/main.rs, ann@corp.example
    r"(?P<path>(?<![\w/])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)*|\b[\w-]+(?:/[\w.-]+)+|\b[\w.+-]{1,60}+@[\w-]+(?:\.[\w-]+)+)"
    # 2024-05-03, 3rd May, May 3, 2024, Monday, 5 p.m., 17:30
    r"|(?P<date>\b\d{4}-\d\d-\d\d\b|\b(?:\d{1,2}(?:st|nd|rd|th)? )?(?:January|February|March|April|May|June|July|August"
    r"|September|October|November|December)\b(?: \d{1,2}(?:st|nd|rd|th)?\b)?(?:,? \d{4}\b)?"
    r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b|\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b|\b\d{1,2}:\d\d\b)"
    # 9443, $1,200.50, v2.1, 15%
    r"|(?P<number>[$\u20ac\u00a3]?\bv?\d+(?:[.,]\d+)*%?)"
    # `a b`, user_id, main.py, parseConfig, and names within a sentence
    r"|(?P<name>`[^`\n]{1,60}`|\b\w+_\w+\b|\b\w+\.(?:py|js|ts|go|rs|md|json|ya?ml|toml|sql|db|txt)\b|\b[a-z]+[A-Z]\w*\b"
    r"|(?<=[\w,] )(?:[A-Z]\w+(?: [A-Z]\w+)*|(?!I\b)[A-Z]\b)))"
    # where words stand without spaces between them: weekdays of Chinese, Japanese and Korean
    r"|(?P<weekday>(?:\u661f\u671f|\u793c\u62dc|\u79ae\u62dc|\u5468|\u9031)[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u65e5\u5929]"
    r"|[\u6708\u706b\u6c34\u6728\u91d1\u571f\u65e5]\u66dc|[\uc6d4\ud654\uc218\ubaa9\uae08\ud1a0\uc77c]\uc694\uc77c)"
    # and numbers that are written out, before what they count: month, day, number, hour, year, money, people, nights
    rf"|(?P<written>{_WRITTEN}+(?=[\u6708\u65e5\u53f7\u865f\u70b9\u9ede\u65f6\u6642\u5206\u5e74\u5143\u5186\u5713\u5757\u4eba\u540d\u4f4d\u665a\u6cca\u697c\u968e])"
    rf"|{_WRITTEN}{{3,}})"
)
"""What one statement may say otherwise than another; the group is the value's sort."""
_WORD = re.compile(r"\w+")
_PIECE = re.compile(r"\w+|[=,;:()\u2014\u3001\uff0c\uff1b\uff1a]")
_LINKING = frozenset(
    """
    a an the this that it s so
    is are was were be been being am has have had will would to of for in on at with from by as about there
    use uses used using set listen listens run runs
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
"""What two statements of the same need not share. None of it forbids or limits anything, and only English has such a
list: in other languages every word counts."""
_CHANGING = _LINKING | frozenset(
    f"""
    actually instead rather than no not longer any more anymore correction sorry meant now still changed change
    moves switch switched move moved migrate migrated update updated bump bumped renamed rename replaced replace
    postponed rescheduled pushed make made let lets go going went forget please ok okay yes
    stopped dropped got rid removed quit gave up abandoned
    nicht kein keine mehr ya più mais já não non niet meer już nie больше не уже а plus pas ne lieu de des al
    plaats van del vez lugar à au y {_NOW_ELSEWHERE.replace("|", " ")} değil
    """.split()
)
"""What a newer statement may have that the older one lacks."""
_OWN = frozenset(("i", "we", "my", "our"))
"""Who speaks: a newer statement need not say so again."""
_ASIDE = re.compile(
    r"on second thought|(?:i|we)(?:'ve| have)?(?= (?:chang|mov|switch|renam|replac|bump|push|postpon|updat|migrat))",
    re.I,
)
"""What a newer statement has beside what it is about."""
_NOT = frozenset("not nicht kein keine pas no non não niet nie не değil".split())  # noqa: SIM905
_UNIT_WORDS = frozenset(
    """
    euro euros eur usd dollar dollars pounds kr kg g mg ml l km m cm mm kb mb gb tb ms s min h minutes hours days
    seconds degrees
    """.split()  # noqa: SIM905
)
"""What may stand behind a number that a word stands before: "costs 45 euros", and not "ticket 45 closed"."""
_STATED = ("number", "date", "$", "\u20ac", "\u00a3", "%")
_IS = frozenset("is are was = : ist sind est sont es son è é są это".split())  # noqa: SIM905
"""What a value stands behind where nothing says that it changed: "The deadline is 10 May"."""
MOST_CHARS, HELD_CHARS, MOST_RIVALS, MOST_ALIKE = 400, 6_000, 400, 40
"""Of a sentence that is read; of the question; of the earlier statements that one is compared with, the newest; and of
those that read alike, or that one replaces."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence and where it was said. turn: 0 for the request itself."""

    text: str
    turn: int
    order: tuple[float, int, int]
    """Increases with time."""
    by_user: bool


class Newer(NamedTuple):
    """What replaces a statement."""

    turn: int
    """0: the request itself."""
    statement: int
    """Its index."""
    whole: bool
    """It has all of the older statement but the value that changed. Else that one says more, and holds in part."""


class _Value(NamedTuple):
    """A value, and where it stands in its sentence."""

    text: str
    """Lower case."""
    sort: str
    before: str
    """The word right before a number, which may make it the name of a record: "room 12"."""
    unit: str
    """The word right behind a number."""
    tail: tuple[str, ...]
    """The words behind that, to the end of its clause."""
    head: frozenset[str]
    """The words of the sentence to that end."""
    beside: frozenset[str]
    """The other values of the sentence to that end."""
    moved: bool
    """Right behind "to"."""
    denied: bool
    """"not 5432"."""
    stated: bool
    """A number or a date right behind "is" or a colon."""


class _Read:
    """A sentence as statements are compared. What few comparisons ask for is computed when it is asked for."""

    __slots__ = ("_ended", "_has_words", "_says_so", "_text", "_told", "_words", "every", "frame", "has", "values")

    def __init__(self, text: str) -> None:
        values: dict[str, set[str]] = {}
        rest, at = [], 0
        for match in _VALUES.finditer(text):
            values.setdefault(match.lastgroup or "", set()).add(_plain(match))
            rest.append(text[at : match.start()])
            at = match.end()
        self._text = text
        self.values = {sort: frozenset(found) for sort, found in values.items()}
        """Sort of value -> those in it, lower case."""
        self.every: frozenset[str] = frozenset().union(*values.values())
        self.frame = tuple(_WORD.findall(" ".join([*rest, text[at:]]).lower()))
        """Its words with values left out: equal when two sentences differ in values only."""
        self.has = self.every.union(self.frame, *map(str.split, self.every))
        """Its words and values as they stand there, and the words of names, lower case."""
        self._words: frozenset[str] | None = None
        self._has_words: frozenset[str] | None = None
        self._told: tuple[_Value, ...] | None = None
        self._says_so: bool | None = None
        self._ended: bool | None = None

    @property
    def words(self) -> frozenset[str]:
        """Stems of its words but for the values and what links them."""
        if self._words is None:
            self._words = frozenset(map(_stem, self.frame)) - {""}
        return self._words

    @property
    def has_words(self) -> frozenset[str]:
        """Stems of its words, and its values."""
        if self._has_words is None:
            self._has_words = self.words | self.every
        return self._has_words

    @property
    def told(self) -> tuple[_Value, ...]:
        """Its values where they stand."""
        if self._told is None:
            self._told = tuple(_told(self._text))
        return self._told

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


def _plain(match: re.Match[str]) -> str:
    return match.group().strip("`").rstrip(".").lower()


@lru_cache(maxsize=1 << 13)
def _stem(word: str) -> str:
    """Empty for a word that only links."""
    return "" if word in _LINKING else next(iter(terms(word)), word)


_CHANGE_STEMS = frozenset(map(_stem, _CHANGING))
_UNITS = frozenset(map(_stem, _UNIT_WORDS)) - {""}


def _told(text: str) -> Iterator[_Value]:
    """The values of a text in order."""
    pieces: list[str | re.Match[str]] = []
    at = 0
    text = _ASIDE.sub(lambda match: " " * len(match.group()), text)
    for match in _VALUES.finditer(text):
        pieces += [*_PIECE.findall(text[at : match.start()].lower()), match]
        at = match.end()
    pieces += _PIECE.findall(text[at:].lower())
    for n, piece in enumerate(pieces):
        if not isinstance(piece, str):
            sort, last, next_ = _sort(piece), pieces[n - 1] if n else "", n + 1
            end = next((m for m in range(next_, len(pieces)) if _is_mark(pieces[m])), len(pieces))
            behind = pieces[next_:end]
            counts = sort == "number" and bool(behind and isinstance(behind[0], str) and _says(behind[0]))
            told = [_says(each) for each in behind[counts:]]
            yield _Value(
                text=_plain(piece),
                sort=sort,
                before=_says(last) if sort == "number" and isinstance(last, str) and _WORD.match(last) else "",
                moved="to" in pieces[max(0, n - 2) : n],
                unit=_says(behind[0]) if counts else "",
                tail=tuple(each for each in told if each),
                head=frozenset(_says(each) for each in pieces[:end] if isinstance(each, str) and not _is_mark(each))
                - {""},
                beside=frozenset(_plain(each) for each in pieces[:end] if not isinstance(each, str)) - {_plain(piece)},
                denied=last in _NOT,
                stated=sort in _STATED and any(each in _IS for each in pieces[max(0, n - 2) : n]),
            )


def _is_mark(piece: str | re.Match[str]) -> bool:
    return isinstance(piece, str) and not _WORD.match(piece)


def _says(piece: str | re.Match[str]) -> str:
    """What a word or value says; empty for a word of change."""
    if not isinstance(piece, str):
        return _plain(piece)
    return "" if piece in _CHANGING else _stem(piece)


def _sort(match: re.Match[str]) -> str:
    """Of a value, as far as one of it may stand for another."""
    sort, text = match.lastgroup or "", match.group()
    if sort == "date":
        return "time" if ":" in text or text[-1] in "mM." else "weekday" if text.endswith("day") else "date"
    if sort == "number":
        sign = text[0] if not text[0].isdigit() else text[-1]
        return "address" if text.count(".") > 2 else sort if sign.isdigit() else sign
    return "path" if "@" not in text and sort == "path" else "id" if sort == "name" and not _is_name(text) else sort


def _is_name(text: str) -> bool:
    return text.replace(" ", "").isalpha() and text[0].isupper()


def superseded(statements: Sequence[Statement], late: Callable[[], bool] = never) -> dict[int, Newer]:
    """Index of each replaced statement -> the newest that replaces it.

    late: asked before each, the oldest first; once it says so, the newer ones replace nothing
    """
    read: dict[int, _Read] = {}
    about, frames = _About(read), dict[tuple[str, ...], list[int]]()
    replaced: dict[int, Newer] = {}
    for i in sorted(range(len(statements)), key=lambda i: statements[i].order):
        if late():
            break
        said = statements[i]
        now = read[i] = _read(said.text)
        rivals = _rivals(now, about, frames) if said.by_user else ()
        earlier = (j for j in rivals if statements[j].order[:2] < said.order[:2])
        still = (j for j in earlier if j not in replaced or not replaced[j].whole)
        for j in islice((j for j in still if _replaces(now, read[j])), MOST_ALIKE):
            replaced[j] = Newer(said.turn, i, _is_whole(now, read[j]))
        about.add(i)
        frames.setdefault(now.frame, []).append(i)
    return {j: _newest(newer, replaced) for j, newer in replaced.items()}


def _newest(newer: Newer, replaced: Mapping[int, Newer]) -> Newer:
    """What replaced the newer statement whole since then, if anything did."""
    while (later := replaced.get(newer.statement)) and later.whole:
        newer = later._replace(whole=newer.whole)
    return newer


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
            for stem in (*each.words, *each.every) if each.values else ():
                self._of.setdefault(stem, []).append(i)
        self._waiting.clear()
        told = [i for stem in (*(now.words - _CHANGE_STEMS), *now.every) for i in self._of.get(stem, ())[-MOST_RIVALS:]]
        return dict.fromkeys(sorted(told, reverse=True)[:MOST_RIVALS])


def _rivals(now: _Read, about: _About, frames: Mapping[tuple[str, ...], list[int]]) -> Iterable[int]:
    """Earlier statements that it may replace."""
    if not now.values:
        return ()
    if now.says_so or now.ended:
        return about.like(now)
    same = frames.get(now.frame)
    return same[: -MOST_ALIKE - 1 : -1] if same and now.words else ()


def _replaces(now: _Read, old: _Read) -> bool:
    """Is the newer about the same, with another value, or with none since it is over?"""
    if now.ended and now.every <= old.every:
        over = now.words - _CHANGE_STEMS
        return over <= old.words and (bool(over) or now.every == old.every)
    if now.says_so and not any(new.head <= old.has_words for new in now.told):
        return False
    gone, come = old.every - now.has, now.every - old.has
    if not now.says_so:
        alike = now.frame == old.frame and len(gone) == 1 == len(come)
        return alike and any(new.text in come and new.stated for new in now.told)
    return any(
        new.text in come and come.isdisjoint(new.beside) and not new.denied and _changes(now, new, old, gone)
        for new in now.told
    )


def _changes(now: _Read, new: _Value, old: _Read, gone: AbstractSet[str]) -> bool:
    """Does this value of the newer stand for one of the older?"""
    if not new.head <= old.has_words:
        return False
    if any(_names(now, new, before) for before in old.told):
        return True
    is_of_it = not now.ended and not new.head.isdisjoint(old.words)
    return is_of_it and any(_stands_for(new, before) for before in old.told if before.text in gone)


def _names(now: _Read, new: _Value, old: _Value) -> bool:
    """Does the newer sentence name the old value as one that `new` stands for, and not as the name of a record?"""
    named = next((each for each in now.told if old.text in (each.text, *each.text.split())), None)
    if named is None or named == new:
        return False
    is_record = named.before and named.before != new.before and not named.denied
    return new.sort == old.sort and not is_record and (not new.unit or not old.unit or new.unit == old.unit)


def _stands_for(new: _Value, old: _Value) -> bool:
    """Are they of one sort and unit, at the end of their clause or counts of the same, and no names of records?"""
    goes_on = old.tail if new.sort == "name" or old.before else new.tail and old.tail
    if (new.sort, new.unit, new.tail) != (old.sort, old.unit, goes_on):
        return False
    is_measure = bool(new.unit) and (new.unit in _UNITS or not (new.before or old.before))
    if (new.unit or new.tail) and not is_measure:
        return False
    if new.unit in _UNITS:
        return True
    return new.before == old.before and (new.moved or bool(new.unit) or not new.before)


def _is_whole(now: _Read, old: _Read) -> bool:
    """Has the newer all of the older but the value that changed? Then nothing is lost without that."""
    gone, come = old.every - now.has, now.every - old.has
    changed = [before for before in old.told if before.text in gone]
    values = [new for new in now.told if new.text in come]
    only = len(gone) <= 1 and all(_stands_for(new, before) for new in values for before in changed)
    return now.says_so and only and old.words - _OWN <= now.words | now.every


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
        _ = read.words, read.says_so, read.ended


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
