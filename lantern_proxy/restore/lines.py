"""Splits passages into sentences, finds those that the request lacks, and estimates how much each would be missed.
Pure."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import Literal

from msgspec import Struct

from lantern_proxy.analyze import CHAT_WORDS, STOP_WORDS, ends_asking, estimated_words, sentences, terms
from lantern_proxy.analyze import keys as keys_of
from lantern_proxy.analyze.code import which_are_code
from lantern_proxy.analyze.facts import COMMON, DIGIT, Facts, Stems
from lantern_proxy.analyze.spoken import STAMP
from lantern_proxy.analyze.standing import instruction_kind, is_limit, may_be_instruction
from lantern_proxy.analyze.tool_calls import is_redundant_call
from lantern_proxy.analyze.tool_output import rows
from lantern_proxy.restore.present import Present
from lantern_proxy.signals import speaker_name_end
from lantern_proxy.turn import CLIENT, Passage, canonical

_WORD = re.compile(r"\w+")
_STAMP, _AGO = re.compile(STAMP), re.compile(r"\bago\b")
FILLER = 0.1
"""Sentences with at most this salience have no content ("You're welcome!")."""

Sort = Literal["plain", "rule", "preference", "code", "greeting", "printed"]
"""The category of a sentence, where it matters: see analyze/standing.py, analyze/code.py,
analyze/tool_output.py, analyze/tool_calls.py and `greets`.

printed: output that a tool would give again if asked again (a row of its output, source code, what was written into
a file), or a call that only reads."""


class Line(Struct, frozen=True):
    """One sentence of a passage."""

    start: int
    end: int
    flat: str
    """The text with white space collapsed."""
    keys: tuple[str, ...]
    """Its specific terms, in the form of analyze.key()."""
    words: frozenset[str]
    """Its content words, as index terms."""
    salience: float
    """Roughly how likely it is to be asked for, as a factor: filler 0.05, a plain statement 1, a rule 15."""
    sort: Sort
    addresses: bool
    """It addresses somebody ("you")."""
    of_people: bool
    digits: bool


def lines(passage: Passage) -> tuple[Line, ...]:
    """The sentences of a passage. Costs about 100 us for 300 characters, so cache them."""
    found = []
    row_templates = _rows(passage.text)
    spans = sentences(passage.text)
    texts = [passage.text[start:end] for start, end in spans]
    may_instruct = passage.speaker == "user" and may_be_instruction(passage.text)
    # between people, allergies are a topic like others
    limits = passage.speaker == "user" and not speaker_name_end(passage.text) and is_limit(passage.text)
    all_facts = _STEMS.facts(texts)
    code_lines = which_are_code(texts, all_facts)
    printed = _printed(passage, spans, code_lines)
    parsed = zip(spans, texts, all_facts, _keys_of(passage, spans), code_lines, printed, strict=True)
    for (start, end), text, facts, keys, is_code, is_printed in parsed:
        value = salience(text, facts, passage.speaker, specific=bool(keys))
        if row_templates and _is_mostly_rows(text, row_templates):
            value *= _TABLE_ROW.get(passage.speaker, 0.1)
        sort: Sort = "code" if is_code else (instruction_kind(text) if may_instruct else None) or "plain"
        sort = "preference" if sort == "plain" and limits and is_limit(text) else sort
        sort = "printed" if is_printed else "greeting" if sort == "plain" and greets(text) else sort
        value *= _WORTH.get("code" if is_code else sort, 1.0)
        if passage.speaker == "assistant" and announces(text, facts, specific=bool(keys)):
            value = min(value, 0.05)
        flags, flat = facts.flags, " ".join(text.split())
        addresses, of_people, digits = flags & _YOU != 0, flags & _PEOPLE != 0, flags & DIGIT != 0
        found.append(Line(start, end, flat, keys, facts.words, value, sort, addresses, of_people, digits))
    return tuple(found)


def _printed(passage: Passage, spans: Sequence[tuple[int, int]], coded: Sequence[bool]) -> list[bool]:
    """For each sentence of a tool result or a call: could the tool be asked for it again?"""
    if passage.speaker != "tool":
        name = passage.tools[0] if passage.tools else ""
        arguments = passage.text.removeprefix(f"{name}:").lstrip()
        continued = not passage.text.startswith(f"{name}:")
        return [bool(name) and is_redundant_call(name, arguments, continued=continued)] * len(spans)
    chars = [end - start for start, end in spans]
    if 2 * sum(size for size, code in zip(chars, coded, strict=True) if code) >= sum(chars):
        return [True] * len(spans)
    found = _in_rows(spans, rows(passage.text, continued=passage.part > 0))
    return [code or row for code, row in zip(coded, found, strict=True)]


def _in_rows(spans: Sequence[tuple[int, int]], found: Sequence[tuple[int, int]]) -> list[bool]:
    """For each sentence: does it stand in one of these rows?"""
    starts = [start for start, _ in found]
    middles = [(start + end) // 2 for start, end in spans]
    nearest = [bisect_right(starts, middle) - 1 for middle in middles]
    return [at >= 0 and middle <= found[at][1] for at, middle in zip(nearest, middles, strict=True)]


def rows_after(passage: Passage, of: Sequence[Line], before: str) -> list[bool]:
    """For each line of a tool result: is it a table row that continues `before`, the previous piece of the result?"""
    shift = len(before) + 1
    return _in_rows([(line.start + shift, line.end + shift) for line in of], rows(f"{before}\n{passage.text}"))


def _keys_of(passage: Passage, spans: Sequence[tuple[int, int]]) -> list[tuple[str, ...]]:
    """For each sentence the keys of the tags in it, in the order of the tags."""
    found: list[dict[str, None]] = [{} for _ in spans]
    ends = [end for _, end in spans]
    for tag, tag_key in zip(passage.tags, keys_of(passage.tags), strict=True):
        at = passage.text.find(tag) if tag_key else -1
        while at >= 0 and (n := bisect_left(ends, at + len(tag))) < len(ends):
            start, end = spans[n]
            if at >= start:
                found[n][tag_key] = None
            at = passage.text.find(tag, end if at >= start else max(at + 1, start))
    return [*map(tuple, found)]


_LETTERS, _DIGITS = re.compile(r"[^\W\d]+(?:[ _'-]+[^\W\d]+)*"), re.compile(r"[-+]?\d+(?:[.,]\d+)*")
_MAY_BE_ROW = re.compile(r"[#\d].*[#\d]|\|.*\|")
_MANY_ROWS = 4
_TABLE_ROW = {"user": 0.4}
"""Factor for a row of a table or a log: these are full of specific terms, and hardly any is ever asked for."""


def _template(row: str) -> str:
    """A row without its words and numbers: "| 2011 | 331 |" -> "| # | # |"."""
    return _DIGITS.sub("#", _LETTERS.sub("w", " ".join(row.split())))


def _rows(text: str) -> frozenset[str]:
    """Templates with several numbers or cells that at least four lines of a text share."""
    rows = [row for row in text.splitlines() if _MAY_BE_ROW.search(row)] if text.count("\n") >= _MANY_ROWS - 1 else ()
    counts = Counter(map(_template, rows)) if len(rows) >= _MANY_ROWS else Counter()
    return frozenset(t for t, n in counts.items() if n >= _MANY_ROWS and (t.count("#") >= 2 or t.count("|") >= 2))


def _is_mostly_rows(text: str, templates: frozenset[str]) -> bool:
    """Are at least half of the text's lines rows with one of these templates?"""
    return sum(_template(row) in templates for row in text.splitlines()) * 2 >= text.count("\n") + 1


_DECIDED, _CHANGED, _WHEN, _FIRST, _YOU, _PEOPLE = 8, 16, 32, 64, 128, 256
"""Flags of a sentence that contains one of these words."""
CONTENT_WORDS = {"user": 3}
"""From this many content words on, a user's sentence has content, however it opens: "Glad you sold the blue boat". An
assistant's sentence with such an opening only repeats or promises."""
_FILLER = re.compile(
    r"^\W*(?:ack\b|ok(?:ay)?\b|thanks?\b|thank you|you'?re welcome|great\b|sure\b|of course|certainly|absolutely"
    r"|got it|understood|noted\b|will do\b|no problem|sounds|hello\b|hi\b|hey\b|bye\b|good (?:morning|night|luck)"
    r"|glad|happy to|let me know|feel free|i(?:'d| would) be happy|i hope"
    r"|i(?:'ll| will| have|'ve) (?:keep|remember|note|taken note)"
    r"|if you (?:have|need|want)|wow\b|cool\b|nice\b|awesome|that'?s (?:great|awesome|cool|amazing|wonderful|good)"
    r"|congrat|done with|here(?:'s| is| are)\b|please (?:do|go|let))",
    re.I,
)
"""Openings of sentences without content: a greeting, thanks, a promise to remember."""
GREETING_CHARS = 80
_GREETING = re.compile(
    r"\W*+(?:[A-Z][\w.'\u2019-]{1,30}: \W*+)?(?:(?:"  # the speaker's name
    # "hey", "thanks", "good night", "no worries", "wow"
    r"(?i:(?:hey|hi|hello|bye(?:[- ]bye)?|goodbye|see you|good (?:morning|evening|night|luck|job)|cheers|thanks"
    r"|thank you|thx|(?:you['\u2019]?re )?welcome|no (?:worries|problem)|way to go|well done|congrat\w*|w[oh]+[aw]h?)"
    # "there", "so much"
    r"(?: (?:there|again|so much|very much|a lot|a bunch|everyone|everybody|guys|all|both|for that|for sharing))*)"
    r"(?:\W+[A-Z][\w'\u2019-]*)?"  # the addressee's name
    # "haha", "great"
    r"|(?i:long time no see|yay|wo{2,}|aw+|oh|ha(?:ha)+|cool|nice|great|awesome|amazing"
    # sounds, abbreviations, and words for a shrug or a nod
    r"|he(?:he)+|hm+|ugh+|omf?g|lo+l|lmao|rofl|wtf|idk|(?:i have )?no (?:idea|clue)|fair enough"
    r"|good (?:point|call|one)|i see|gotcha|my bad)"
    # the same in other languages
    r"|(?i:hallo|tsch\u00fcss|super|(?:vielen |besten )?danke?(?: sch\u00f6n| sehr| dir| ihnen)?"
    r"|sch\u00f6nen (?:tag|abend)(?: noch)?|hola|(?:muchas |mil )?gracias|bonjour|salut|merci(?: beaucoup)?"
    r"|ol\u00e1|(?:muito )?obrigad[oa]|ciao|(?:mille )?grazie|bedankt|dank je(?: wel)?|dzi\u0119k(?:uj\u0119|i)"
    r"|\u0441\u043f\u0430\u0441\u0438\u0431\u043e|\u043f\u0440\u0438\u0432\u0435\u0442|te\u015fekk\u00fcrler)"
    r"|\uac10\uc0ac\ud569\ub2c8\ub2e4|\uace0\ub9c8\uc6cc\uc694|\uc548\ub155\ud558\uc138\uc694"
    r"|\u3042\u308a\u304c\u3068\u3046(?:\u3054\u3056\u3044\u307e\u3059)?|\u3053\u3093\u306b\u3061\u306f|\u8c22\u8c22\u4f60?|\u4f60\u597d"
    r")(?![\w'\u2019])\W*+){1,4}"
)
"""Purely social sentences, after a speaker's name if there is one."""


def greets(text: str) -> bool:
    """Does the sentence only greet, thank, cheer, laugh or shrug? "Ana: Hey Ben!", "omg", "no idea"."""
    return len(text) < GREETING_CHARS and _GREETING.fullmatch(text) is not None


def is_filler(line: Line, speaker: str) -> bool:
    """Does the sentence only greet, thank, agree or promise to remember? "ok take the 14th" does more."""
    if greets(line.flat):
        return True
    says_more = speaker in CONTENT_WORDS and (line.digits or bool(line.keys) or _has_content(line.words, speaker))
    return len(line.flat) < GREETING_CHARS and _FILLER.match(line.flat) is not None and not says_more


def _has_content(words: frozenset[str], speaker: str) -> bool:
    """Are there enough content words for a statement, however the sentence opens?"""
    return sum([len(word) > 2 for word in words]) >= CONTENT_WORDS.get(speaker, inf)


_TAKES_BACK = re.compile(
    r"\W*(?:(?:ok(?:ay)?|oh|ah|hm+|well|so|and|but)\b\W*){0,2}"  # "ok so not that"
    r"(?:no|nope|not|wait|hold on|stop|actually|scratch that|on second thought|sorry|rather|better"
    r"|nein|doch|halt|warte|non|attends|plut\u00f4t|espera|mejor|n\u00e3o|aspetta|meglio|\u043d\u0435\u0442)\b"
    r"|\W*(?:\u3044\u3084|\u3084\u3063\u3071\u308a|\u4e0d|\u7b49\u4e00\u4e0b)",
    re.I,
)
"""Openings of sentences that take back the one before: "No wait, keep it"."""


def takes_back(text: str) -> bool:
    """May the sentence take back the one before? Alone it says little; the one before is wrong without it."""
    return _TAKES_BACK.match(text) is not None


_STEMS = Stems(
    (flag, terms(words))
    for flag, words in {
        COMMON: " ".join(STOP_WORDS | CHAT_WORDS),
        _DECIDED: "decide decided decision agreed chose choose chosen must should always never prefer preferred"
        " preference favorite favourite important remember note deadline actually instead changed change"
        " switch switched longer renamed moved set named name called password token key secret because cause"
        " fixed failed fails error exception requires required allergic allergy born birthday live lives work"
        " works budget limit limited use uses rename",
        _CHANGED: "actually instead changed change switch switched longer correction update updated rather",
        _WHEN: "yesterday today tomorrow tonight last next ago since week month year weekend",
        _FIRST: "I I'm I've I'd my we we're we've our me mine",
        _YOU: "you your you're you've you'd yours",
        _PEOPLE: "mother mom father dad sister brother son daughter child children kids wife husband partner friend"
        " family girlfriend boyfriend cousin grandma grandmother grandpa uncle aunt colleague boss team customer client"
        " dog cat pet",
    }.items()
)
_FIGURES = {"user": 0.7}
"""Factor for a line of mostly digits and symbols."""
_SPEAKERS = {"user": 1.0, "assistant": 0.3, "tool": 0.4, CLIENT: 0.4}
_FIRST_PERSON = {"user": 1.4, "assistant": 2.4, "tool": 1.0}
"""An assistant's statements about itself or both sides (a choice, a promise) are worth far more than its general
advice."""
_ANNOUNCES = re.compile(
    r"\W*(?:(?:ok(?:ay)?|now|first|next|then|so|great|good|alright|perfect),? )*"  # "Great, now "
    # "let me first ", "I'm going to "
    r"(?:let me (?:now |first |also |quickly )?|let['\u2019]s (?:now |first )?"
    r"|i(?:['\u2019]ll| will| need to|['\u2019]m going to| want to| should)(?: now| first| also| next)? )"
    # "look", "run"
    r"(?:look|check|see|read|find|search|examine|explore|inspect|view|open|run|start|begin|take|verify|test|list"
    r"|understand|try|continue|get|fetch|grep|review)\b",
    re.I,
)
"""What an assistant says before it calls a tool: "Okay, let me check the tests"."""
_DOING = re.compile(
    r"(?:looking (?:at|into|for|up)|(?:check|see|read|search|examin|explor|inspect|open|runn|start|verify|test|list"
    r"|fetch|grepp|review|compar|writ|updat|edit)ing)\b",
    re.I,
)
"""The same, shorter: "Running the tests."."""
_WORTH: Mapping[Sort, float] = {"rule": 15.0, "preference": 4.0, "code": 0.2}
"""Factors for rules and preferences, and for code, which is full of specific terms and is kept in files anyway."""


def salience(text: str, facts: Facts, speaker: str, *, specific: bool) -> float:
    """How likely a sentence is to be asked for, judged by its form (hand-made rules, no model, nothing learned).

    facts: of the sentence, with the flags above. specific: does it contain specific terms?
    """
    says_little = estimated_words(facts.pieces, facts.wide) <= 2
    if says_little and not _WORD.search(text):
        return 0.02  # a rule below a table's header
    if says_little and len(text) > 100 and " " not in text and "\n" not in text and not text.startswith("http"):
        return 0.02  # encoded data, minified code
    if says_little and not specific and len(text) < 40:
        return 0.05
    if len(text) < 160 and _FILLER.match(text) and not _has_content(facts.words, speaker):
        return 0.3 if specific or (speaker in CONTENT_WORDS and facts.flags & DIGIT) else 0.05
    value = _SPEAKERS.get(speaker, 1.0)
    if facts.pieces >= 4 and not facts.is_prose(0.35):
        value *= _FIGURES.get(speaker, 0.3)
    if ends_asking(text):
        value *= 0.35
    if facts.flags & _FIRST:
        value *= _FIRST_PERSON.get(speaker, 1.4)
    elif speaker == "assistant" and text.startswith(("-", "*", "#", "|", "`")):
        value *= 0.7
    for sign, factor in ((_DECIDED, 1.5), (_CHANGED, 1.3), (_WHEN, 1.2)):
        if facts.flags & sign:
            value *= factor
    return value


def announces(text: str, facts: Facts, *, specific: bool) -> bool:
    """Does an assistant only say what it looks at next? "Running costs are 40 euros" says more."""
    if _ANNOUNCES.match(text):
        return True
    return len(text) < GREETING_CHARS and not (specific or facts.flags & DIGIT) and _DOING.match(text) is not None


def lost_lines(some: Sequence[tuple[Passage, Sequence[Line]]], present: Present) -> list[tuple[int, ...]]:
    """For each passage the indices of the lines that the request lacks; all are looked up at once."""
    is_call = [bool(passage.tools) and passage.speaker != "tool" for passage, _ in some]
    said = [
        without_age_stamp(line.flat) for (_, of), call in zip(some, is_call, strict=True) if not call for line in of
    ]
    held = iter(present.holds(said))
    return [
        _lost_of_call(passage, of, present) if call else tuple([i for i in range(len(of)) if not next(held)])
        for (passage, of), call in zip(some, is_call, strict=True)
    ]


def _lost_of_call(passage: Passage, of: Sequence[Line], present: Present) -> tuple[int, ...]:
    """The lost lines of a tool call, whose arguments may be formatted differently in the request: all if more than a
    tenth of its words are missing, else those with a missing specific term."""
    words = _WORD.findall(passage.text.lower())
    if sum(present.words(words)) < 0.9 * len(words):
        return tuple(range(len(of)))
    held = present.specific_terms({each for line in of for each in line.keys})
    return tuple(i for i, line in enumerate(of) if not held.issuperset(line.keys))


def without_age_stamp(flat: str) -> str:
    """The text without a leading relative time ("2 hours ago"), which some clients rewrite in every request."""
    stamp = _STAMP.match(flat) if flat[:1] in ("[", "(") else None
    return flat[stamp.end() :] if stamp and _AGO.search(stamp[0]) else flat


def flattened(text: str) -> str:
    """`text` in the form of Present.text: canonical, on one line. Returns the same object if nothing changes, to save
    memory."""
    short = canonical(text)
    return text if short == text else short
