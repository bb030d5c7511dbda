"""Text -> terms for the lexical index, specific terms for tags, and sentences. Pure; stems are cached.

A *term* is what the index holds: a Snowball stem of a word, or an identifier, path, number, version or URL kept whole
with its parts beside it. A *specific term* is what a summary cannot paraphrase: `parse_config`, "port 9443", v2.1.3.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from lantern_proxy.analyze import native
from lantern_proxy.analyze.languages import function_words, korean_stem
from lantern_proxy.analyze.letters import MARKS, fold, light_stem, without_apostrophe

MAX_TERM_CHARS = 96
_MAX_PARTS = 12
_stem = native.stem_word

_RUN = re.compile(
    r"https?://[^\s<>\"'`)\]]+|--?[a-zA-Z][\w-]*|~?\.{0,2}/?\w(?:[\w./:@+'\u2019\\"
    rf"{MARKS}-]*[\w{MARKS}])?"
)
_PART = re.compile(rf"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+(?:[{MARKS}]+[^\W\d_A-Za-z]*)*")
CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Letters of Japanese, Chinese and Korean, as a set for regular expressions."""
_WIDE = re.compile(rf"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff{CJK}]")  # Thai, Lao, Burmese, Khmer, and these

_SCRIPTS = rf"(?P<wide>{_WIDE.pattern}+)|(?:(?!{_WIDE.pattern})(?s:.))+"
"""Runs in scripts without spaces, and the rest: in "端口是8443" the number is a term of its own. Patterns
for such scripts are slow to compile and rarely needed, so they are strings, which `re` compiles at their first use."""
_OUTER_SYMBOLS = re.compile(rf"\A[^\w{MARKS}]+|[^\w{MARKS}]+\Z")
_BORDER = rf"(?<={_WIDE.pattern})(?=[A-Za-z0-9$\u20ac\u00a3#/~-])|(?<=[A-Za-z0-9%/])(?={_WIDE.pattern})"

_GRAMMATICAL = re.compile(
    r"[\u3040-\u309f\u4f55\u8ab0]{1,2}"  # Japanese writes its particles and endings in hiragana
    r"|[的了是吗呢吧啊么在我你他她它们这那个哪什怎为和与就都也还把被请问谁几多少]{1,2}"
)
"""Grammatical characters, the stop words of scripts without spaces."""
_KANJI, _HIRAGANA = r"[\u30a0-\u30ff\u3400-\u9fff]", r"[\u3040-\u309f]"
"""The first also includes katakana."""
_WORD_HIRAGANA = rf"(?![\u306e\u306f\u304c\u3092\u306b\u3078\u3067\u3068\u3082]){_HIRAGANA}"
"""Hiragana that may occur within a word, unlike particles."""
_ACROSS_WORDS = (
    rf"(?=((?<={_KANJI}){_KANJI}{_HIRAGANA}|(?<={_KANJI}{_WORD_HIRAGANA}){_KANJI}{_HIRAGANA}"
    rf"|{_HIRAGANA}{_KANJI}(?={_KANJI}|{_WORD_HIRAGANA}{_KANJI})))"
)
"""The last or first character of a word and the adjacent hiragana, if the word has another pair of its own: other
sentences have other particles there."""
_CHARS_PER_WORD = 2
QUESTION_MARKS = ("?", "\uff1f", "\u061f")
"""Ends of a question, including full-width and Arabic ones."""

_ODD_CASES = (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s"), ("\u212a", "k"))
"""Characters that `re.I` matches with an ASCII letter, besides both cases of the letter."""


def ends_asking(text: str) -> bool:
    """Does it end with a question mark, ignoring quotation marks, brackets or emphasis after it?"""
    return text.rstrip(")\"' *").endswith(QUESTION_MARKS)


def estimated_words(pieces: int, wide: int) -> int:
    """Approximate number of words in a text of so many pieces; two characters of scripts without spaces count as
    one."""
    return pieces + wide // _CHARS_PER_WORD


def count_wide_chars(text: str) -> int:
    """Number of characters of scripts without spaces."""
    return len(_WIDE.findall(text))


STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are aren't as at be because been before being below
    between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each
    either else ever few for from further get gets getting got had hadn't has hasn't have haven't having he he'd
    he'll he's her here hers herself him himself his how how's i i'd i'll i'm i've if in into is isn't it it'd
    it'll it's its itself just let's like many me more most much my myself no nor not now of off on once only or other
    ought our ours ourselves out over own really same shall she she'd she'll she's should shouldn't so some such
    than that that's the their theirs them themselves then there there's these they they'd they'll they're they've
    this those through to too under until up upon us very was wasn't we we'd we'll we're we've were weren't what
    what's when where where's which while who who's whom whose why will with won't would wouldn't you you'd you'll
    you're you've your yours yourself yourselves im ive dont didnt doesnt cant wont isnt thats whats youre theyre
    whos wheres whens whys hows
    """.split()  # noqa: SIM905 - fifty lines of quotes read worse
)
"""Dropped from queries, since they say nothing about what is asked."""

CHAT_WORDS = frozenset(
    """
    ack noted ok okay yes yeah yep yup no nope sure thanks thank thx ty please pls great good nice cool perfect awesome
    fine right alright hello hi hey bye goodbye morning evening welcome sorry continue proceed go goes going ahead next
    keep do done do it that's well lgtm approved agree agreed correct exactly yay wow haha lol hmm oh ah great!
    works work worked stop wait start resume retry try again lot much appreciated job step sounds look looks make
    sense makes think say tell said told know remind remember recall mention mentioned question answer need want
    help way thing things anything something everything nothing one ones time bit still already back earlier
    previously before btw ask asked user assistant chat conversation message discussed talked talk discuss
    """.split()  # noqa: SIM905 - fifty lines of quotes read worse
)
"""Words that steer a chat. A message of nothing else asks for nothing that was lost."""

LINKS = frozenset(
    """
    is was are were be to of at the a an for on in number no as now use using uses with and by
    """.split()  # noqa: SIM905 - fifty lines of quotes read worse
)
"""Words between a name and its value: "port is 9443" and "port 9443" are the same specific term, see key()."""


@lru_cache(maxsize=1 << 14)
def _expand(run: str) -> tuple[str, ...]:
    """The terms of one run of characters: the whole run in lower case, and the stems of its parts."""
    run = fold(run)
    low = run.lower()
    if not low:
        return ()
    if low.isascii() and low.isalpha() and (run.islower() or run.isupper() or run[1:].islower()):
        return (_stem(low),)
    if _WIDE.search(low):
        return tuple(_expand_by_script(run))
    if "'" in low and low.replace("'", "").isalpha():
        return (_stemmed(without_apostrophe(low)),)
    found = _PART.findall(run)[:_MAX_PARTS]
    if found == [run]:
        return (_stemmed(low),)
    whole = low.strip("./:@+'-\\")
    parts = dict.fromkeys(_stemmed(part.lower()) for part in found)
    if len(whole) > MAX_TERM_CHARS or whole in parts:
        return tuple(parts)
    return (whole, *parts)


def _expand_by_script(run: str) -> Iterator[str]:
    """The terms of a run with characters of scripts without spaces: each two of these, and the terms of the rest."""
    for part in re.finditer(_SCRIPTS, run):
        if part["wide"]:
            chars = part.group().lower()
            yield from (chars[i : i + 2] for i in range(max(1, len(chars) - 1)))
        elif bare := _OUTER_SYMBOLS.sub("", part.group()):
            yield from _expand(bare)


def separate_scripts(text: str) -> str:
    """`text` with a space between characters of scripts without spaces and adjacent words and numbers."""
    return text if text.isascii() or not _WIDE.search(text) else re.sub(_BORDER, " ", text)


def _stemmed(word: str) -> str:
    return _stem(word) if word.isascii() else light_stem(word)


def terms(text: str) -> list[str]:
    """The terms of `text` in order with repeats, lower-cased and stemmed, as in the lexical index."""
    found = native.terms(text)
    return terms_in_python(text) if found is None else found


def terms_of_parts(parts: Sequence[str]) -> list[list[str]]:
    """The terms of each text; half the cost of one call each."""
    found = native.terms_of_parts(parts)
    return [*map(terms, parts)] if found is None else found


def terms_in_python(text: str) -> list[str]:
    """As `terms`, without C: the reference for native/analyze.c, and the fallback."""
    found: list[str] = []
    for run in _RUN.findall(text):
        found += _expand(run) if len(run) <= 4 * MAX_TERM_CHARS else _expand(run[:MAX_TERM_CHARS])
    return found


def sequence(text: str) -> str:
    """The terms of `text` in order, each with a line break before and after it."""
    joined = native.lines(text)
    within = "\n".join(terms_in_python(text)) if joined is None else joined.decode()
    return f"\n{within}\n"


def query_terms(text: str) -> list[str]:
    """The terms of a question without stop words and repeats, in order; empty if nothing is asked for."""
    found: dict[str, None] = {}
    runs = _RUN.findall(text)
    lows = [run.lower() for run in runs]
    others = function_words(lows, STOP_WORDS)
    for run, low in zip(runs, lows, strict=True):
        low = low.replace("\u2019", "'")
        if low not in STOP_WORDS and low not in others:
            found.update(dict.fromkeys(_expand(korean_stem(run[: 4 * MAX_TERM_CHARS]))))
    if text.isascii():
        return [*found]
    across = set(re.findall(_ACROSS_WORDS, text))
    return [term for term in found if not (term in across or _GRAMMATICAL.fullmatch(term))] or list(found)


def is_content(term: str) -> bool:
    """Is a term long enough to be meaningful by itself? In scripts without spaces every term is two characters."""
    return len(term) > 2 or (len(term) == _CHARS_PER_WORD and _WIDE.match(term) is not None)


_CHAT_STEMS = frozenset(_stem(word) for word in CHAT_WORDS)


def informative(terms_of_query: list[str]) -> list[str]:
    """Those of `query_terms` that name something rather than steer the chat."""
    return [term for term in terms_of_query if term not in _CHAT_STEMS and (len(term) > 1 or term.isdigit())]


_FULL_WIDTH = "\u201c\u201d\u3001\u3002\u300a\u300b\u300c\u300d\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
_SEPARATORS = str.maketrans(dict.fromkeys("\"'`=:,;()[]{}<>" + _FULL_WIDTH, " "))
_KEY_STOP_WORDS = LINKS | {""}


def key(term: str) -> str:
    """The normal form of a specific term: "Port: 9443" and "port is 9443" -> "port 9443"."""
    return _key(separate_scripts(term).lower().translate(_SEPARATORS))


def keys(terms: Sequence[str]) -> list[str]:
    """The key of each; half the cost of one call each."""
    parts = separate_scripts("\0".join(terms)).lower().translate(_SEPARATORS).split("\0") if terms else []
    return [*map(_key, parts)] if len(parts) == len(terms) else [*map(key, terms)]


def _key(low: str) -> str:
    return " ".join([bare for word in low.split() if (bare := word.strip(".!?*")) not in _KEY_STOP_WORDS])


_CAPITALS = (
    "A-Z\u00c0-\u00de"
    + "".join(chr(c) for c in range(0x100, 0x180) if chr(c).isupper())
    + "\u0391-\u03ab\u0400-\u042f\u0531-\u0556"
)
"""Latin, Greek, Cyrillic and Armenian. Scripts without capitals begin a sentence with any of their letters."""
_UNCASED = "\u05d0-\u05ea\u0620-\u064a\u0671-\u06d3\u0904-\u0939\u0985-\u09b9"
_SENTENCE_ENDS = "\u061f\u06d4\u0964"
"""Question mark and full stop of Arabic and Urdu, the danda of Hindi and Bengali."""
_MAY_END = re.compile(rf"[.!?\u2026\u3002\uff01\uff1f{_SENTENCE_ENDS}\n]")
_SENTENCE_END = re.compile(
    rf"[.!?\u2026{_SENTENCE_ENDS}][\"')\]*_]{{0,3}}\s+(?=[\"'(\[*_`]{{0,3}}[{_CAPITALS}{_UNCASED}0-9`/~$#@-])|[\u3002\uff01\uff1f]"
    rf"|[!?{_SENTENCE_ENDS}]\s+|\n\s*"
)
_ABBREVIATION = re.compile(
    r"\b(?:e\.g|i\.e|etc|vs|Mr|Mrs|Ms|Dr|Prof|St|No|Fig|approx|cf|bzw|ggf|evtl|inkl|vgl|Hr|Sr|Sra|Dra|Mme|[A-Zdopuz]"
    # street, square, avenue, estate, in front of their names
    r"|ul|al|pl|os|[aA]v|\u0443\u043b|\u0432\u0443\u043b|\u043f\u0440|\u043f\u043b|\u043f\u0435\u0440|\u0431\u0443\u043b)\.$"
)
_SHORT_WORD = re.compile(r"(?<!\w)(?:(?![0-9_])\w){1,4}\.$")
"""Possible abbreviations before a number: "cl. 9.3", "Sept. 3". A sentence may end like this, too, but two joined
sentences lose nothing, while half of a reference misleads."""
_ITEM = re.compile(r"([0-9]{1,2})\.")
"""The number of a list item, before the next item."""
_ORDINAL = re.compile(r"(?<!\w)[0-9]{1,2}\.$")
_ORDINAL_MONTHS = (
    "Januar", "J\u00e4nner", "Februar", "M\u00e4rz", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober",
    "November", "Dezember",
)  # fmt: skip
"""German months, which follow an ordinal: "25. Juli". In other languages with ordinal dates, months are lower case."""


def sentences(text: str) -> list[tuple[int, int]]:
    """The (start, end) of each sentence of `text`, in order, without surrounding white space.

    Each line is at least one sentence; numbers, versions and abbreviations do not end one. A ``` fence is a single
    piece.
    """
    spans: list[tuple[int, int]] = []
    for start, end, fenced in fences(text):
        if fenced:
            spans.append(_trim(text, start, end))
            continue
        within = text[start:end]
        found = native.sentences(within)
        found = sentences_in_python(within) if found is None else found
        spans += [(start + a, start + b) for a, b in found] if start else found
    return spans


def sentences_in_python(text: str) -> list[tuple[int, int]]:
    """As `sentences`, for a text without fences and without C: the reference for native/sentences.c."""
    spans: list[tuple[int, int]] = []
    at = _past_spaces(text, 0)
    for sign in _MAY_END.finditer(text):  # found fast; the pattern is tried nowhere else
        border = _SENTENCE_END.match(text, sign.start()) if sign.start() >= at else None
        if border is None:
            continue
        stop = border.start() + (sign.group() != "\n")
        between = text[stop : border.end()]
        if between and "\n" not in between and _continues(text, at, stop, border.end()):
            continue
        spans.append((at, stop + len(between.rstrip())))
        at = _past_spaces(text, border.end())
    spans.append((at, len(text)))
    return [(start, end) for start, end in (_trim(text, a, b) for a, b in spans) if end > start]


def _continues(text: str, at: int, stop: int, next_start: int) -> bool:
    """Does the sentence that begins at `at` continue after the full stop at `stop`? next_start: where the next word
    begins"""
    start = max(at, stop - 8)
    if _ABBREVIATION.search(text, start, stop) or _ITEM.fullmatch(text, at, stop):
        return True
    if "0" <= text[next_start : next_start + 1] <= "9" and _SHORT_WORD.search(text, start, stop):
        item, next_one = _ITEM.match(text, at), _ITEM.match(text, next_start)
        return item is None or next_one is None or int(next_one[1]) != int(item[1]) + 1
    return text.startswith(_ORDINAL_MONTHS, next_start) and _ORDINAL.search(text, start, stop) is not None


def _past_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    start = min(end, _past_spaces(text, start))
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


def folded(text: str) -> str:
    """`text` in lower case: it contains an ASCII word wherever the word's pattern would match with `re.I`.

    So cheap substring tests can precede patterns.
    """
    if not text.isascii():
        for sign, letter in _ODD_CASES:
            text = text.replace(sign, letter)
    return text.lower()
