"""The specific terms of a text: what a summary cannot paraphrase, such as `parse_config`, "port 9443", v2.1.3. Pure.

native/specifics.c gives the same result where it is available; the reference is here.
"""

import re
from functools import lru_cache
from typing import Any

from lantern_proxy.analyze import CHAT_WORDS, LINKS, STOP_WORDS, native, separate_scripts

_NO_NUMBER_NAMES = frozenset(
    """
    instead about around roughly nearly almost exactly like likes least then than per
    """.split()  # noqa: SIM905 - fifty lines of quotes read worse
)
_UNNAMED = STOP_WORDS | _NO_NUMBER_NAMES
_MONTHS = (
    "Jan", "January", "Feb", "February", "Mar", "March", "Apr", "April", "May", "Jun", "June", "Jul", "July", "Aug",
    "August", "Sep", "Sept", "September", "Oct", "October", "Nov", "November", "Dec", "December",
)  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WHICH, _DAYS = ("last", "next", "this"), ("yesterday", "tomorrow")
_PERIODS = ("week", "month", "year", "weekend", "summer", "winter", "spring", "fall", "night")
_COUNTS = ("a", "an", "one", "two", "three", "four", "five", "six", "few")
_UNITS = ("day", "days", "week", "weeks", "month", "months", "year", "years")
_EXTENSIONS = (
    "py", "pyi", "js", "mjs", "jsx", "ts", "tsx", "md", "rst", "json", "jsonl", "yml", "yaml", "toml", "txt", "c", "h",
    "cc", "cpp", "hpp", "rs", "go", "java", "kt", "rb", "php", "sh", "bash", "sql", "htm", "html", "css", "scss", "db",
    "sqlite", "csv", "tsv", "ini", "cfg", "conf", "log", "lock", "env", "xml", "ipynb", "pdf", "png", "jpg", "jpeg",
    "svg", "gz", "zip", "tf", "proto", "swift", "vue",
)  # fmt: skip


def _one_of(words: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(words)})"


_MONTH = _one_of(_MONTHS)
_PLAIN = (
    rf"(?!(?:{_one_of((*_WHICH, *_DAYS, *_COUNTS))}|[a-f]{{7,40}})\b)"
    r"[a-z]++(?![\w.@+\-/:=(\\]| =)"
)
"""A lower-case word that begins none of the kinds below; most words are such and are skipped at once."""
_SPECIFIC = re.compile(
    rf"(?:\b(?=\w)(?!{_PLAIN})|(?=[^\w\s]))(?:"  # nothing starts in the middle of a word
    + "|".join(
        f"(?P<{name}>{pattern})"
        for name, pattern in {
            "url": r"\bhttps?://[^\s<>\"'`)\]]+",
            "mail": r"\b[\w.+-]+@[\w-]+\.[\w.-]*\w",
            "code": r"(?<!`)`[^`\n]{2,80}`(?!`)",
            "assign": r"\b[A-Za-z_][\w.\-]*[ ]?=[ ]?[\"']?[\w./:@%+$-]*\w",
            "path": rf"(?<![\w/])(?:~|\.{{1,2}})?(?:/[\w.@+-]*\w)+/?|\b[A-Za-z]:\\[^\s\"'<>|]+"
            rf"|\b\w[\w.@+-]*(?:/[\w.@+-]*\w)+|\b[\w-]+(?:\.[\w-]+)*\.{_one_of(_EXTENSIONS)}\b",
            "date": rf"\b\d{{4}}-\d\d-\d\d\b|\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?\b"
            rf"|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?\b|\b{_MONTH} \d{{4}}\b"
            rf"|\b{_one_of(_WEEKDAYS)}\b|\b\d{{1,2}}:\d\d(?::\d\d)?(?: ?[apAP]\.?[mM]\b)?|\b\d{{1,2}} ?[apAP][mM]\b"
            rf"|\b{_one_of(_WHICH)} {_one_of(_PERIODS)}\b|\b{_one_of(_DAYS)}\b"
            rf"|\b(?:\d+|{_one_of(_COUNTS)}) {_one_of(_UNITS)} ago\b",
            "flag": r"(?<![\w-])--[a-zA-Z][\w-]*(?:=[\w./:-]+)?",
            "version": r"\bv?\d+\.\d+(?:\.\d+)+(?:[-+][\w.]*\w)?(?::\d+)?\b|\bv\d+(?:\.\d+)*\b",
            "id": r"\b[A-Za-z]\w*_\w+\b|\b[a-z]+[A-Z]\w*\b|\b[A-Z][a-z]+(?:[A-Z][a-z0-9]*)+\b"
            r"|\b[A-Za-z_]\w+(?:\.[a-zA-Z_]\w+)+\b"
            r"|\b\w+\(\)|\b[A-Z][A-Z0-9]+(?:-[A-Z0-9]+)*\b|\b0x[0-9a-fA-F]+\b|\b[A-Za-z]+(?:-[A-Za-z0-9]+)*-?\d[\w-]*\b|#\d+\b"
            r"|\b[0-9a-f]{7,40}\b",
            "number": r"[$\u20ac\u00a3]?\b\d[\d,]*(?:\.\d+)?(?:%|[kKmMgG][bB]?\b|ms\b|s\b|h\b|px\b)?",
            "name": r"\b[A-Z][a-z\u00e0-\u00ff]+(?: (?:of |the |de |van )?[A-Z][a-z\u00e0-\u00ff]+)*",
            "quote": r"\"[^\"\n]{2,60}\"",
        }.items()
    )
    + ")"
)
_BEFORE = re.compile(r"\n?[\s:=(\"'#]{0,3}([\w.-]*[A-Za-z])")
"""The last word of a text, matched from its end: the text is reversed."""
_AFTER = re.compile(r"[\s-]?([A-Za-z][\w-]*)")
_STARTS = re.compile(r"(?:^|[.!?:;\n\"(*#>\]-])\s*$")


def specifics(text: str) -> list[str]:
    """The specific terms of `text` as written, in order of first appearance, no repeats; see separate_scripts().

    A number is combined with the word it belongs to ("port 9443", "5 children"); a capitalised word counts as a name
    unless it opens a sentence.
    """
    found = native.specifics(separate_scripts(text), native_words()) if native.AVAILABLE else None
    return specifics_in_python(text) if found is None else found


@lru_cache(maxsize=1)
def native_words() -> Any:
    """The word lists that the C code needs."""
    sorts = {
        "LINK": LINKS, "UNNAMED": _UNNAMED, "STOP": STOP_WORDS, "CHAT": CHAT_WORDS, "MONTH": _MONTHS,
        "WEEKDAY": _WEEKDAYS, "EXTENSION": _EXTENSIONS, "WHICH": _WHICH, "PERIOD": _PERIODS, "COUNT": _COUNTS,
        "UNIT": _UNITS, "DAY": _DAYS,
    }  # fmt: skip
    return native.lexicon((f"SPECIFICS_{sort}", words) for sort, words in sorts.items())


def specifics_in_python(text: str) -> list[str]:
    """As `specifics`, without C."""
    found: dict[str, None] = {}
    for window in _WINDOW.findall(_OVERLONG.sub(" ", separate_scripts(text))):
        for match in _SPECIFIC.finditer(window):
            term = _named(match, window)
            if term and len(term) <= 120:
                found.setdefault(term)
    return list(found)


_OVERLONG = re.compile(r"(?<!\S)\S{301,}|(?<!\s)\s{301,}")
_WINDOW = re.compile(r".{1,1000}(?=\s|\Z)|.{1,1000}", re.S)
"""The pattern above looks ahead: limited windows keep its time linear for any text."""


def _named(match: re.Match[str], text: str) -> str:
    """The specific term of one match with its name or unit; "" if it is none."""
    kind, term = match.lastgroup, match.group()
    if kind == "number":
        return _with_name_or_unit(match, text)
    if kind == "name":
        return "" if _opens_sentence(match, text) or term.lower() in STOP_WORDS else term
    if (
        kind == "id"
        and term.isalpha()
        and term.isupper()
        and (term.lower() in STOP_WORDS or term.lower() in CHAT_WORDS)
    ):
        return ""
    return term.strip('`"').rstrip(".,:;") if kind in ("code", "quote", "url") else term


def _opens_sentence(match: re.Match[str], text: str) -> bool:
    """Is this a single capitalised word at the start of a sentence? Two in a row are a name even there."""
    return " " not in match.group() and bool(_STARTS.search(text[max(0, match.start() - 4) : match.start()]))


def _with_name_or_unit(match: re.Match[str], text: str) -> str:
    """As written: "port is 9443", "5 children"; a number that belongs to no word stays bare."""
    term, start = match.group(), max(0, match.start() - 40)
    before = text[start : match.start()]
    for _ in range(3):
        found = _BEFORE.match(before[::-1])
        if found is None:
            break
        word, at = found.group(1)[::-1].lower(), len(before) - found.end()
        if word not in LINKS:
            if word not in _UNNAMED:
                return text[start + at : match.end()]
            break
        before = before[:at]
    after = _AFTER.match(text, match.end())
    return term + after.group() if after and after.group(1).lower() not in _UNNAMED else term
