"""Parses a sentence for comparing statements: its words, its values, and whether it says that something changed.
Pure."""

# ruff: noqa: RUF001 - letters of other languages are meant

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from lantern_proxy.analyze import CJK, STOP_WORDS, folded, terms
from lantern_proxy.analyze.languages import ANY_FUNCTION_WORDS
from lantern_proxy.turn_memo import Memo

_TO = r"\b[^.?!]{0,60}?\bto"
_ENDED_IN_OTHER_LANGUAGES = (
    r"nicht mehr|kein\w* mehr|ya no|non più|não \w+ mais|já não|niet meer|już nie|больше не|уже не|n(?:e |')\w+ plus"
)
_NOW_IN_OTHER_LANGUAGES = (
    "jetzt|nun|ab sofort|statt|anstatt|stattdessen|sondern|maintenant|désormais|plutôt|au lieu|ahora|en vez|en lugar"
    "|ora|adesso|invece|agora|em vez|voortaan|nu|in plaats|teraz|zamiast|теперь|вместо|artık|yerine"
)
"""The same in other languages, a word or two each. A change in other words goes unnoticed, and both statements are
kept."""
_BACK = r"(?:(?<!.)|(?<=\bis )|(?<=\bare ))back to|back to(?= \d)"
"""As in "the port is back to 3001" and "replicas back to 3", but not in "a flight back to Oslo"."""
CUE = re.compile(
    # "actually", "no longer"
    r"\b(?:actually|instead(?: of)?|rather than|no longer|not any ?more|anymore|correction|scratch that"
    # "changed the port to", "migrated to", "bumped it to"
    rf"|chang(?:e|ed|es|ing)(?:{_TO}|{_TO[:-2]}from)|(?:switch|mov|migrat)(?:e|ed|es|ing)?{_TO}"
    rf"|(?:updated?|bump(?:ed)?){_TO}"
    # "on second thought", "replaced", "pushed back to", "is now"; but "now run test 5" only comes next
    r"|on second thought|(?<=\w )now"
    r"|renam(?:e|ed|ing)|replac(?:e|ed|es|ing)|changed my mind|postponed|rescheduled|pushed (?:back )?to"
    r"|from now on|sorry, (?:it|i) (?:is|meant)|i meant|make (?:it|that|the)"
    rf"|{_BACK}|désormais|voortaan|ab sofort|(?<=\w )(?:{_NOW_IN_OTHER_LANGUAGES})|{_ENDED_IN_OTHER_LANGUAGES})\b",
    re.I,
)
"""Words that signal a change."""
_ENDED = re.compile(
    r"\b(?:no longer|not any ?more|anymore|stopped|dropped|got rid of|removed|quit|gave up|abandoned"
    rf"|{_ENDED_IN_OTHER_LANGUAGES})\b",
    re.I,
)
"""Words that say that something is over and nothing replaces it."""
_ENDED_SIGNS = (
    "no longer", "not any", "anymore", "stopped", "dropped", "got rid of", "removed", "quit", "gave up", "abandoned",
    "mehr", "ya no", "più", "mais", "já não", "meer", "już nie", "больше не", "уже не", "plus",
)  # fmt: skip
_CUE_SIGNS = (
    "actually", "instead", "rather than", "correction", "scratch that", "chang", "switch", "mov", "migrat", "updat",
    "bump", "second thought", "renam", "replac", "postponed", "rescheduled", "pushed", "sorry, ", "i meant", "make ",
    "back to", "now", *_NOW_IN_OTHER_LANGUAGES.split("|"), *_ENDED_SIGNS,
)  # fmt: skip
"""Every match of _ENDED (or CUE) contains one of these; looking for them costs a tenth of matching the patterns."""
_PLAIN = r"[a-z]++(?![\w/@-]|\.\w)"
"""A lower-case word that begins no value. Most words are such, and they are skipped at once."""
_WRITTEN = (
    "[\u3007\u96f6\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u767e\u5343\u4e07\u842c\u4e24\u5169]"
)
"""A Chinese or Japanese numeral."""
_UNSPACED = f"[{CJK}]"
"""A letter of a script in which a number follows a word without a space."""
_START = rf"(?:\b|(?<={_UNSPACED}))"
_VALUE = (
    rf"(?:{_START}(?=\w)(?!{_PLAIN})|(?=[^\w\s]))(?:"  # nothing starts in the middle of a word
    # /etc/hosts, ~/notes.md, src/main.rs, ann@corp.example
    r"(?P<path>(?<![\w/])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)*|\b[\w-]+(?:/[\w.-]+)+|\b[\w.+-]{1,60}+@[\w-]+(?:\.[\w-]+)+)"
    # 2024-05-03, 3rd May, May 3, 2024, Monday, 5 p.m., 17:30
    r"|(?P<date>\b\d{4}-\d\d-\d\d\b|\b(?:\d{1,2}(?:st|nd|rd|th)? )?(?:January|February|March|April|May|June|July|August"
    r"|September|October|November|December)\b(?: \d{1,2}(?:st|nd|rd|th)?\b)?(?:,? \d{4}\b)?"
    r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b|\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b|\b\d{1,2}:\d\d\b)"
    # 9443, $1,200.50, v2.1, 15%
    rf"|(?P<number>[$\u20ac\u00a3]?{_START}v?\d+(?:[.,]\d+)*%?)"
    # `a b`, user_id, main.py, parseConfig, and names within a sentence
    r"|(?P<name>`[^`\n]{1,60}`|\b\w+_\w+\b|\b\w+\.(?:py|js|ts|go|rs|md|json|ya?ml|toml|sql|db|txt)\b|\b[a-z]+[A-Z]\w*\b"
    r"|(?<=[\w,] )(?:[A-Z]\w+(?: [A-Z]\w+)*|(?!I\b)[A-Z]\b)))"
    # scripts without spaces: weekdays of Chinese, Japanese and Korean
    r"|(?P<weekday>(?:\u661f\u671f|\u793c\u62dc|\u79ae\u62dc|\u5468|\u9031)[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u65e5\u5929]"
    r"|[\u6708\u706b\u6c34\u6728\u91d1\u571f\u65e5]\u66dc|[\uc6d4\ud654\uc218\ubaa9\uae08\ud1a0\uc77c]\uc694\uc77c)"
    # and written-out numbers before their unit: month, day, number, hour, year, money, people, nights
    rf"|(?P<written>{_WRITTEN}+(?=[\u6708\u65e5\u53f7\u865f\u70b9\u9ede\u65f6\u6642\u5206\u5e74\u5143\u5186\u5713\u5757\u4eba\u540d\u4f4d\u665a\u6cca\u697c\u968e])"
    rf"|{_WRITTEN}{{3,}})"
)
"""A value: what two statements about the same may differ in. The group that matches is its sort."""
_PIECES = re.compile(rf"(?:{_PLAIN}\s*+|\s++)*+(?:{_VALUE}|[A-Za-z]++|.|\Z)", re.S)
"""A value or anything else, and the plain words before it, which are skipped at once."""
_WORD = re.compile(r"\w+")
_BEHIND = re.compile(rf"\s*([\u30a0-\u30ff]+|{_UNSPACED}|(?:(?!{_UNSPACED})\w)+)")
"""The word behind a number; in a script without spaces one letter, or a word in katakana."""
_PIECE = re.compile(r"\w+|[=,;:()\u2014\u3001\uff0c\uff1b\uff1a]")
_LINKING = frozenset(
    """
    a an the this that it s so
    is are was were be been being am has have had will would to of for in on at with from by as about there
    use uses used using set listen listens run runs
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
"""Words that two statements about the same need not share. None of them forbids or limits anything. Only English has
such a list: in other languages every word counts."""
_CHANGING = _LINKING | frozenset(
    f"""
    actually instead rather than no not longer any more anymore correction sorry meant now still changed change
    moves switch switched move moved migrate migrated update updated bump bumped renamed rename replaced replace
    postponed rescheduled pushed back make made let lets go going went forget please ok okay yes
    stopped dropped got rid removed quit gave up abandoned
    nicht kein keine mehr ya più mais já não non niet meer już nie больше не уже а plus pas ne lieu de des al
    plaats van del vez lugar à au y {_NOW_IN_OTHER_LANGUAGES.replace("|", " ")} değil
    """.split()
)
"""Words that a newer statement may have although the older one lacks them."""
OWN = frozenset(("i", "we", "my", "our"))
"""Words for the speaker: a newer statement need not repeat them."""
_ASIDE = re.compile(
    r"on second thought|(?:i|we)(?:'ve| have)?(?= (?:chang|mov|switch|renam|replac|bump|push|postpon|updat|migrat))",
    re.I,
)
"""Phrases of a newer statement that are not about its subject; they are dropped."""
_NOT = frozenset("not nicht kein keine pas no non não niet nie не değil".split())  # noqa: SIM905
_UNIT_WORDS = frozenset(
    """
    euro euros eur usd dollar dollars pounds kr kg g mg ml l km m cm mm kb mb gb tb ms s min h minutes hours days
    seconds degrees
    """.split()  # noqa: SIM905
)
"""Words that are a unit after a number even if a word precedes it: "costs 45 euros". In "ticket 45 closed" the number
is the name of a record."""
_STATED = ("number", "date", "$", "\u20ac", "\u00a3", "%")
_IS = frozenset("is are was = : ist sind est sont es son è é są это".split())  # noqa: SIM905
"""Words before a value that is stated without a signal of change: "The deadline is 10 May"."""


class Value(NamedTuple):
    """A value and its position in the sentence."""

    text: str
    """Lower case."""
    sort: str
    before: str
    """The word right before a number, which may make it the name of a record: "room 12"."""
    unit: str
    """The word right after a number."""
    tail: tuple[str, ...]
    """The words after that, to the end of its clause."""
    head: frozenset[str]
    """The words of the sentence up to that end."""
    other_values: frozenset[str]
    """The other values of the sentence up to that end."""
    after_to: bool
    """It is right after "to"."""
    negated: bool
    """As in "not 5432"."""
    stated: bool
    """It is a number or a date right after "is" or a colon."""


class ParsedStatement:
    """A sentence parsed for comparison. What few comparisons need is computed on first access."""

    __slots__ = (
        "_kinds",
        "_located_values",
        "_says_changed",
        "_says_ended",
        "_text",
        "_words",
        "_words_and_values",
        "all_values",
        "frame",
        "tokens",
        "values",
    )

    def __init__(self, text: str) -> None:
        values: dict[str, set[str]] = {}
        """Sort of value -> its values, lower case."""
        rest, at = [], 0
        for match in _values(text):
            sort = match.lastgroup or ""
            values.setdefault(sort, set()).add(_plain(match))
            rest.append(text[at : match.start(sort)])
            at = match.end()
        self._text = text
        self.values = {sort: frozenset(found) for sort, found in values.items()}
        """Sort of value -> those in it, lower case."""
        self.all_values: frozenset[str] = frozenset().union(*values.values())
        self.frame = tuple(_WORD.findall(" ".join([*rest, text[at:]]).lower()))
        """The words of the sentence without its values: equal for two sentences that differ only in values."""
        self.tokens = self.all_values.union(self.frame, *map(str.split, self.all_values))
        """The words and values of the sentence as written, and the single words of values, lower case."""
        self._words: frozenset[str] | None = None
        self._words_and_values: frozenset[str] | None = None
        self._kinds: frozenset[tuple[str, str, str]] | None = None
        self._located_values: tuple[Value, ...] | None = None
        self._says_changed: bool | None = None
        self._says_ended: bool | None = None

    @property
    def words(self) -> frozenset[str]:
        """Stems of the words of the sentence, without values and linking words."""
        if self._words is None:
            self._words = frozenset(map(_stem, self.frame)) - {""}
        return self._words

    @property
    def words_and_values(self) -> frozenset[str]:
        """`words` and the values of the sentence."""
        if self._words_and_values is None:
            self._words_and_values = self.words | self.all_values
        return self._words_and_values

    @property
    def kinds(self) -> frozenset[tuple[str, str, str]]:
        """(value, sort, unit) of its values. Faster than `located_values` for a long text."""
        if self._kinds is None:
            found = [(_plain(match), _sort(match), match.end()) for match in _values(self._text)]
            self._kinds = frozenset((value, sort, _unit(self._text, end, sort)) for value, sort, end in found)
        return self._kinds

    @property
    def located_values(self) -> tuple[Value, ...]:
        """The values of the sentence in order, each with its surrounding words."""
        if self._located_values is None:
            self._located_values = tuple(_locate_values(self._text))
        return self._located_values

    @property
    def says_changed(self) -> bool:
        """Does the sentence say that something changed? See CUE."""
        if self._says_changed is None:
            self._says_changed = _holds(folded(self._text), _CUE_SIGNS) and CUE.search(self._text) is not None
        return self._says_changed

    @property
    def says_ended(self) -> bool:
        """Does the sentence say that something is over?"""
        if self._says_ended is None:
            self._says_ended = _holds(folded(self._text), _ENDED_SIGNS) and _ENDED.search(self._text) is not None
        return self._says_ended


def _unit(text: str, at: int, sort: str) -> str:
    """The word right after a number that ends at `at`, unless a space and a word without content follow."""
    behind = _BEHIND.match(text, at) if sort == "number" else None
    if behind is None:
        return ""
    word = behind[1].lower()
    if behind.start(1) == at:
        return _stem_or_value(word) or word
    no_unit = word in STOP_WORDS or (word in ANY_FUNCTION_WORDS and word not in _UNIT_WORDS)
    return "" if no_unit else _stem_or_value(word)


def _values(text: str) -> list[re.Match[str]]:
    """The values of a text in order, as matches whose last group is the sort."""
    return [match for match in _PIECES.finditer(text) if match.lastgroup]


def _written(match: re.Match[str]) -> str:
    return match[match.lastgroup or 0]


def _plain(match: re.Match[str]) -> str:
    return _written(match).strip("`").rstrip(".").lower()


@lru_cache(maxsize=1 << 13)
def _stem(word: str) -> str:
    """The stem of a word; empty for a linking word."""
    return "" if word in _LINKING else next(iter(terms(word)), word)


CHANGE_STEMS = frozenset(map(_stem, _CHANGING))
UNITS = frozenset(map(_stem, _UNIT_WORDS)) - {""}


Piece = str | re.Match[str]
"""A word or a mark in lower case, or a value."""


def _locate_values(text: str) -> Iterator[Value]:
    """The values of a text in order."""
    pieces = _pieces_of(_ASIDE.sub(lambda match: " " * len(match.group()), text))
    for n, piece in enumerate(pieces):
        if not isinstance(piece, str):
            yield _value_at(n, piece, pieces)


def _pieces_of(text: str) -> list[Piece]:
    pieces: list[Piece] = []
    at = 0
    for match in _values(text):
        pieces += [*_PIECE.findall(text[at : match.start(match.lastgroup or 0)].lower()), match]
        at = match.end()
    return pieces + _PIECE.findall(text[at:].lower())


def _value_at(n: int, match: re.Match[str], pieces: Sequence[Piece]) -> Value:
    """The value `match`, which is piece `n`, with what surrounds it up to the next mark."""
    sort, last, just_before = _sort(match), pieces[n - 1] if n else "", pieces[max(0, n - 2) : n]
    end = next((m for m in range(n + 1, len(pieces)) if _is_mark(pieces[m])), len(pieces))
    following = pieces[n + 1 : end]
    counts = sort == "number" and bool(following and isinstance(following[0], str) and _stem_or_value(following[0]))
    words = [each for each in pieces[:end] if isinstance(each, str) and not _is_mark(each)]
    values = [each for each in pieces[:end] if not isinstance(each, str)]
    return Value(
        text=_plain(match),
        sort=sort,
        before=_stem_or_value(last) if sort == "number" and isinstance(last, str) and _WORD.match(last) else "",
        after_to="to" in just_before,
        unit=_stem_or_value(following[0]) if counts else "",
        tail=tuple(filter(None, map(_stem_or_value, following[counts:]))),
        head=frozenset(map(_stem_or_value, words)) - {""},
        other_values=frozenset(map(_plain, values)) - {_plain(match)},
        negated=last in _NOT,
        stated=sort in _STATED and any(each in _IS for each in just_before),
    )


def _is_mark(piece: Piece) -> bool:
    return isinstance(piece, str) and not _WORD.match(piece)


def _stem_or_value(piece: Piece) -> str:
    """A word's stem or a value; empty for a word that signals a change."""
    if not isinstance(piece, str):
        return _plain(piece)
    return "" if piece in _CHANGING else _stem(piece)


def _sort(match: re.Match[str]) -> str:
    """The sort of a value: it can only be replaced by one of the same sort."""
    sort, text = match.lastgroup or "", _written(match)
    if sort == "date":
        return "time" if ":" in text or text[-1] in "mM." else "weekday" if text.endswith("day") else "date"
    if sort == "number":
        sign = text[0] if not text[0].isdigit() else text[-1]
        return "address" if text.count(".") > 2 else sort if sign.isdigit() else sign
    return "path" if "@" not in text and sort == "path" else "id" if sort == "name" and not _is_name(text) else sort


def _is_name(text: str) -> bool:
    return text.replace(" ", "").isalpha() and text[0].isupper()


def _holds(text: str, signs: Sequence[str]) -> bool:
    return any(sign in text for sign in signs)


parse_statement = Memo(ParsedStatement, most_bytes=6 << 20, bytes_of=lambda text: 2_000 + 12 * len(text)).__getitem__
"""Cached, since the same lost statements are compared in every restore."""
