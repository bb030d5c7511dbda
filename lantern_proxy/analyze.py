"""Text -> terms for the lexical index, specific terms for tags, and sentences. Pure; stems are cached.

A *term* is what the index holds: a Snowball stem of a word, or an identifier, path, number, version or URL kept whole
with its parts beside it. A *specific term* is what a summary cannot paraphrase: `parse_config`, "port 9443", v2.1.3.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import methodcaller

import Stemmer

from lantern_proxy import analyze_native

MAX_TERM_CHARS = 96
_MAX_PARTS = 12
_stem = Stemmer.Stemmer("english", 0).stemWord  # its own cache takes a lock and is slower than lru_cache below

_RUN = re.compile(r"https?://[^\s<>\"'`)\]]+|--?[a-zA-Z][\w-]*|~?\.{0,2}/?\w(?:[\w./:@+'\u2019\\-]*[\w])?")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

_SIGNS_A_WORD = 2
QUESTION_MARKS = ("?", "\uff1f", "\u061f")
"""What ends a question, full-width and Arabic ones included."""


def length_in_words(text: str) -> int:
    """About how many words a text has; of scripts without spaces every two signs count as one."""
    return len(text.split()) + len(_WIDE.findall(text)) // _SIGNS_A_WORD


STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are aren't as at be because been before being below
    between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each
    either else ever few for from further get gets getting got had hadn't has hasn't have haven't having he he'd
    he'll he's her here hers herself him himself his how how's i i'd i'll i'm i've if in into is isn't it it'd
    it'll it's its itself just let's like me more most much my myself no nor not now of off on once only or other
    ought our ours ourselves out over own really same shall she she'd she'll she's should shouldn't so some such
    than that that's the their theirs them themselves then there there's these they they'd they'll they're they've
    this those through to too under until up upon us very was wasn't we we'd we'll we're we've were weren't what
    what's when where where's which while who who's whom whose why will with won't would wouldn't you you'd you'll
    you're you've your yours yourself yourselves im ive dont didnt doesnt cant wont isnt thats whats youre theyre
    """.split()  # noqa: SIM905 - fifty lines of quotes read worse
)
"""Dropped from queries: they carry no evidence of what is asked."""

CHAT_WORDS = frozenset(
    """
    ack noted ok okay yes yeah yep yup no nope sure thanks thank thx ty please pls great good nice cool perfect awesome
    fine right alright hello hi hey bye goodbye morning evening welcome sorry continue proceed go goes going ahead next
    keep do done do it that's well lgtm approved agree agreed correct exactly yay wow haha lol hmm oh ah great!
    works work worked stop wait start resume retry try again lot much appreciated job step sounds look looks make
    sense makes think say tell said told know remind remember recall mention mentioned question answer need want
    help way thing things anything something everything nothing one ones time bit still already back earlier
    previously before ask asked user assistant chat conversation message discussed talked talk discuss
    """.split()  # noqa: SIM905 - fifty lines of quotes read worse
)
"""Words that steer a chat. A message made of nothing else asks for nothing that was lost."""

_LINKS = frozenset(
    """
    is was are were be to of at the a an for on in number no as now use using uses with and by
    """.split()  # noqa: SIM905 - fifty lines of quotes read worse
)
_NO_NAMES = frozenset(
    """
    instead about around roughly nearly almost exactly like likes least then than per
    """.split()  # noqa: SIM905 - fifty lines of quotes read worse
)
_UNNAMED = STOP_WORDS | _NO_NAMES


@lru_cache(maxsize=1 << 14)
def _expand(run: str) -> tuple[str, ...]:
    """One run of characters -> its terms: the whole, lower-cased, and the stems of its parts."""
    run = run.replace("\u2019", "'")
    low = run.lower()
    if low.isascii() and low.isalpha() and (run.islower() or run.isupper() or run[1:].islower()):
        return (_stem(low),)
    if _WIDE.search(low):
        return tuple(low[i : i + 2] for i in range(max(1, len(low) - 1)))
    if "'" in low and low.replace("'", "").isalpha():
        return (_stem(low),)
    whole = low.strip("./:@+'-\\")
    parts = dict.fromkeys(_stem(part.lower()) for part in _PART.findall(run)[:_MAX_PARTS])
    if len(whole) > MAX_TERM_CHARS or whole in parts:
        return tuple(parts)
    return (whole, *parts)


def terms(text: str) -> list[str]:
    """The terms of `text` in order, repeats kept, lower-cased and stemmed; what the lexical index holds."""
    found = analyze_native.terms(text)
    return terms_in_python(text) if found is None else found


def terms_of_parts(parts: Sequence[str]) -> list[list[str]]:
    """The terms of each of some texts: half of what they cost one by one."""
    found = analyze_native.terms_of_parts(parts)
    return [*map(terms, parts)] if found is None else found


def terms_in_python(text: str) -> list[str]:
    """The same without C: what native/analyze.c must equal, and what serves where it cannot."""
    found: list[str] = []
    for run in _RUN.findall(text):
        found += _expand(run) if len(run) <= 4 * MAX_TERM_CHARS else _expand(run[:MAX_TERM_CHARS])
    return found


def sequence(text: str) -> str:
    """The terms of `text` in order, a line break around each."""
    joined = analyze_native.lines(text)
    within = "\n".join(terms_in_python(text)) if joined is None else joined.decode()
    return f"\n{within}\n"


def query_terms(text: str) -> list[str]:
    """The terms of a question without stop words; repeats dropped, order kept. Empty when nothing is asked for."""
    found: dict[str, None] = {}
    for run in _RUN.findall(text):
        if run.lower().replace("\u2019", "'") not in STOP_WORDS:
            found.update(dict.fromkeys(_expand(run[: 4 * MAX_TERM_CHARS])))
    return list(found)


def is_content(term: str) -> bool:
    """Is a term long enough to say something by itself? Of scripts without spaces every term is two signs."""
    return len(term) > 2 or (len(term) == _SIGNS_A_WORD and _WIDE.match(term) is not None)


_CHAT_STEMS = frozenset(_stem(word) for word in CHAT_WORDS)


def informative(terms_of_query: list[str]) -> list[str]:
    """Those of `query_terms` that name a thing rather than steer the chat."""
    return [term for term in terms_of_query if term not in _CHAT_STEMS and (len(term) > 1 or term.isdigit())]


_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)"
)
_EXTENSION = (
    r"(?:py|pyi|js|mjs|jsx|ts|tsx|md|rst|json|jsonl|ya?ml|toml|txt|c|h|cc|cpp|hpp|rs|go|java|kt|rb|php|sh|bash|sql|html?"
    r"|css|scss|db|sqlite|csv|tsv|ini|cfg|conf|log|lock|env|xml|ipynb|pdf|png|jpe?g|svg|gz|zip|tf|proto|swift|vue)"
)
_PLAIN = (
    r"(?!(?:last|next|this|yesterday|tomorrow|a|an|one|two|three|four|five|six|few|[a-f]{7,40})\b)"
    r"[a-z]++(?![\w.@+\-/:=(\\]| =)"
)
"""A word in lower case that none of the kinds below begins with: most are such, and they are passed over at once."""
_SPECIFIC = re.compile(
    rf"(?:\b(?=\w)(?!{_PLAIN})|(?=[^\w\s]))(?:"  # nothing begins in the middle of a word
    + "|".join(
        f"(?P<{name}>{pattern})"
        for name, pattern in {
            "url": r"\bhttps?://[^\s<>\"'`)\]]+",
            "mail": r"\b[\w.+-]+@[\w-]+\.[\w.-]*\w",
            "code": r"(?<!`)`[^`\n]{2,80}`(?!`)",
            "assign": r"\b[A-Za-z_][\w.\-]*[ ]?=[ ]?[\"']?[\w./:@%+$-]*\w",
            "path": rf"(?<![\w/])(?:~|\.{{1,2}})?(?:/[\w.@+-]*\w)+/?|\b[A-Za-z]:\\[^\s\"'<>|]+"
            rf"|\b\w[\w.@+-]*(?:/[\w.@+-]*\w)+|\b[\w-]+(?:\.[\w-]+)*\.{_EXTENSION}\b",
            "date": rf"\b\d{{4}}-\d\d-\d\d\b|\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?\b"
            rf"|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?\b|\b{_MONTH} \d{{4}}\b"
            r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b|\b\d{1,2}:\d\d(?::\d\d)?(?: ?[apAP]\.?[mM]\b)?"
            r"|\b\d{1,2} ?[apAP][mM]\b"
            r"|\b(?:last|next|this) (?:week|month|year|weekend|summer|winter|spring|fall|night)\b|\byesterday\b"
            r"|\btomorrow\b|\b(?:\d+|a|an|one|two|three|four|five|six|few) (?:days?|weeks?|months?|years?) ago\b",
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
"""The word that ends a text, seen from the text's end: the text is turned round."""
_AFTER = re.compile(r"[\s-]?([A-Za-z][\w-]*)")
_STARTS = re.compile(r"(?:^|[.!?:;\n\"(*#>\]-])\s*$")


def specifics(text: str) -> list[str]:
    """The specific terms of `text` as written, first come first, no repeats.

    A number comes with the word it belongs to ("port 9443", "5 children"); a capitalised word counts as a name unless
    it opens a sentence.
    """
    found: dict[str, None] = {}
    for window in _WINDOW.findall(_ENDLESS.sub(" ", text)):
        for match in _SPECIFIC.finditer(window):
            term = _named(match, window)
            if term and len(term) <= 120:
                found.setdefault(term)
    return list(found)


_ENDLESS = re.compile(r"(?<!\S)\S{301,}|(?<!\s)\s{301,}")
_WINDOW = re.compile(r".{1,1000}(?=\s|\Z)|.{1,1000}", re.S)
"""The pattern above looks ahead: windows keep its time linear in the text, whatever the text."""


def _named(match: re.Match[str], text: str) -> str:
    """The specific term of one match with what it belongs to, or "" when it is none."""
    kind, term = match.lastgroup, match.group()
    if kind == "number":
        return _with_its_name(match, text)
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


def _with_its_name(match: re.Match[str], text: str) -> str:
    """As written: "port is 9443", "5 children"; a number that belongs to no word stays bare."""
    term, start = match.group(), max(0, match.start() - 40)
    before = text[start : match.start()]
    for _ in range(3):
        found = _BEFORE.match(before[::-1])
        if found is None:
            break
        word, at = found.group(1)[::-1].lower(), len(before) - found.end()
        if word not in _LINKS:
            if word not in _UNNAMED:
                return text[start + at : match.end()]
            break
        before = before[:at]
    after = _AFTER.match(text, match.end())
    return term + after.group() if after and after.group(1).lower() not in _UNNAMED else term


_BREAKS = str.maketrans(dict.fromkeys("\"'`=:,;()[]{}<>", " "))
_NOT_IN_KEYS = _LINKS | {""}
_without_marks = methodcaller("strip", ".!?*")


def key(term: str) -> str:
    """The form in which two specific terms are the same: "Port: 9443" and "port is 9443" -> "port 9443"."""
    words = map(_without_marks, term.lower().translate(_BREAKS).split())
    return " ".join([word for word in words if word not in _NOT_IN_KEYS])


_MAY_END = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\n]")
_SENTENCE_END = re.compile(
    r"[.!?\u2026][\"')\]*_]{0,3}\s+(?=[\"'(\[*_`]{0,3}[A-Z0-9\u00c0-\u00de`/~$#@-])|[\u3002\uff01\uff1f]"
    r"|[!?]\s+|\n\s*"
)
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|Mr|Mrs|Ms|Dr|Prof|St|No|Fig|approx|cf|[A-Z])\.$")


def sentences(text: str) -> list[tuple[int, int]]:
    """Where the sentences of `text` stand: (start, end), in order, without the white space between them.

    A line is a sentence of its own; numbers, versions and abbreviations do not end one. A ``` fence is one piece.
    """
    spans: list[tuple[int, int]] = []
    for start, end, fenced in fences(text):
        if fenced:
            spans.append((start, end))
            continue
        at = start
        for sign in _MAY_END.finditer(text, start, end):  # found fast; the pattern is tried nowhere else
            border = _SENTENCE_END.match(text, sign.start(), end) if sign.start() >= at else None
            if border is None:
                continue
            stop = border.start() + (sign.group() != "\n")
            between = text[stop : border.end()]
            if between and "\n" not in between and _ABBREVIATION.search(text, max(at, stop - 8), stop):
                continue
            spans.append((at, stop + len(between.rstrip())))
            at = border.end()
        spans.append((at, end))
    return [(start, end) for start, end in (_trim(text, a, b) for a, b in spans) if end > start]


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)


def fences(text: str) -> list[tuple[int, int, bool]]:
    """`text` as consecutive spans (start, end, is it a fenced code block?)."""
    spans, at = [], 0
    for match in _FENCE.finditer(text) if "```" in text or "~~~" in text else ():
        if match.start() > at:
            spans.append((at, match.start(), False))
        spans.append((match.start(), match.end(), True))
        at = match.end()
    if at < len(text):
        spans.append((at, len(text), False))
    return spans
