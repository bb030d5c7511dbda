"""What is told by cheap tests and by words is what the plain patterns tell, which are written down here."""

import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lantern_proxy.analyze import (
    _CAPITALS,
    _SENTENCE_ENDS,
    _UNCASED,
    _continues,
    fences,
    sentences,
    standing,
    terms,
    terms_of_parts,
)
from lantern_proxy.analyze.facts import Stems
from lantern_proxy.restore import parsed_statement
from lantern_proxy.restore.lines import _MANY_ROWS, _rows, _template
from lantern_proxy.signals import dates as signals_dates
from lantern_proxy.signals.form import TEXT_FEATURES, form_of, text_features
from lantern_proxy.signals.words import count

FIRST = re.compile(r"\b(?:i|my|me|mine|we|our|us|myself)\b", re.I)
SECOND = re.compile(r"\b(?:you|your|yours)\b", re.I)
TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|ago|recently|since|next"
    r"|this (?:week|month|year|morning|weekend|summer)"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|weekend|(?:19|20)\d\d"
    r"|january|february|march|april|june|july|august|september|october|november|december|\d{1,2}:\d\d"
    r"|\d{4}-\d\d-\d\d|years?|months?|weeks?)\b",
    re.I,
)
BORDER = re.compile(
    rf"(?<=[.!?\u2026{_SENTENCE_ENDS}])[\"')\]*_]{{0,3}}\s+(?=[\"'(\[*_`]{{0,3}}[{_CAPITALS}{_UNCASED}0-9`/~$#@-])"
    rf"|(?<=[\u3002\uff01\uff1f])|(?<=[!?{_SENTENCE_ENDS}])\s+|\n\s*"
)
PIECES = [
    *("I", "I'm", "my", "ME", "We", "you", "You\u2019re", "yours", "yesterday", "last", "this", "week", "morning"),
    *("summer", "12:30", "1:2", "2024-01-02", "1850-12-10", "1999", "always", "never", "don't", "Don\u2019t", "do not"),
    *("from", "now on", "going forward", "when", "ask", "every time", "make sure", "to", "use", "not", "instead of"),
    *("please", "prefer", "we'd rather", "must not", "\u017fince", "la\u017ft", "\u0130", "n\u0131ne", "ma\u212ae"),
    *("sure", "actually", "changed", "switch", "no longer", "stopped", "May 3rd", "$5", "v1.2.3", "`a b`", "foo_bar"),
    *("a.py", "camelCase", "John Smith", "/etc/x", "a-b/c", "caf\u00e9/x", "\u00e9A", "e.g.", "Dr.", "\u3002"),
    *("x\u2026", "!)\"", "?*", "\n", "\n\n", "```\ncode\n```", "~~~", "| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |", "\n| 7 | 8 |"),
    *("whenever", "in", "all", "answers", "any", "replies", "could", "that's a", "red line", "deal-breaker", "write"),
    *("\u00c9t\u00e9", "\u6771\u4eac", "works.", "12", "\x1c", "\u2028", "\ud800", "\u00bd", "A.", "\uff1f", "##", "http://x/z?q"),
]  # fmt: skip
BETWEEN = [" ", " ", " ", "", "-", ".", ", ", ": ", "\n", "! ", ". "]


@pytest.fixture(params=range(4))
def texts(request) -> list[str]:
    chance = random.Random(request.param)
    pieces, between = chance.choices(PIECES, k=60_000), chance.choices(BETWEEN, k=60_000)
    joined, sizes = [a + b for a, b in zip(pieces, between, strict=True)], chance.choices(range(1, 12), k=10_000)
    return ["".join(joined[6 * n : 6 * n + size]) for n, size in enumerate(sizes)]


SORTS = (
    (standing.is_rule, (standing._RULE, standing._RARE_RULE)),
    (standing.is_preference, (standing._PREFERENCE,)),
)


def test_rules_and_preferences_are_found_where_their_patterns_find_them(texts):
    found = 0
    for text in texts:
        for is_one, patterns in SORTS:
            assert is_one(text) == any(pattern.search(text) for pattern in patterns), text
            found += is_one(text)
            assert standing.may_be_instruction(f"It is so. {text}") or not is_one(text)
    assert found > 500


def test_words_of_person_and_time_are_counted_as_their_patterns_find_them(texts):
    timed = 0
    for text in texts:
        found = dict(zip(TEXT_FEATURES, text_features(text), strict=True))
        words = len(re.findall(r"[^\W\d_]+(?:['\u2019][a-z]+)?", text)) + 1
        times = len(TIME.findall(text))
        assert found["first_person"] == len(FIRST.findall(text)) / words, text
        assert found["second_person"] == len(SECOND.findall(text)) / words, text
        assert found["time_words"] == min(8, times), text
        assert form_of(text, "user").dated == min(2, times) / 2
        timed += times
    assert timed > 4_000


def test_sentences_end_where_their_pattern_says(texts):
    for text in texts:
        assert sentences(text) == plain_sentences(text), text


def plain_sentences(text: str) -> list[tuple[int, int]]:
    """As analyze.sentences, with one search for borders."""
    spans: list[tuple[int, int]] = []
    for start, end, fenced in fences(text):
        at = start
        for border in () if fenced else BORDER.finditer(text, start, end):
            between, stop = border.group(), border.start()
            if between and "\n" not in between and _continues(text, at, stop, border.end()):
                continue
            spans.append((at, stop + len(between.rstrip())))
            at = border.end()
        spans.append((at, end))
    trimmed = [(b - len(text[a:b].lstrip()), a + len(text[a:b].rstrip())) for a, b in spans]
    return [(start, end) for start, end in trimmed if end > start]


def test_a_statement_says_that_something_changed_or_ended_where_its_pattern_does(texts):
    changes = 0
    for text in texts:
        read = parsed_statement.parse_statement(text)
        assert read.says_changed == bool(parsed_statement.CUE.search(text)), text
        assert read.says_ended == bool(parsed_statement._ENDED.search(text)), text
        changes += read.says_changed
    assert changes > 500


def test_values_are_those_of_the_pattern_without_its_guard_tried_at_every_place(texts):
    guarded = parsed_statement._VALUE
    plain = re.compile("(?:" + guarded[guarded.index("(?P<path>") :])
    for text in texts:
        found = [(m.lastgroup, m.span(m.lastgroup)) for m in parsed_statement._values(text)]
        assert found == [(m.lastgroup, m.span()) for m in plain.finditer(text)], text


def test_days_are_found_where_their_pattern_finds_them(texts):
    chance, ways = (
        random.Random(1),
        ["a month ago", "On MONDAY", "3rd of may", "in 1999", "la\u017ft n\u0131ght", "2024-01-02"],
    )
    found = left_out = 0
    for text in texts:
        told = text + chance.choice(["", "", " "]) + chance.choice(["", *ways])
        (counts,), names = count([told]), bool(re.compile(signals_dates._DATE.pattern, re.I).search(told))
        may = counts.days or counts.years
        assert may or not names, told
        found, left_out = found + names, left_out + (not may)
    assert found > 1_000
    assert left_out > 500


def test_rows_of_tables_are_found_as_when_every_line_is_looked_at(texts):
    for text in texts:
        every = [_template(row) for row in text.splitlines()] if text.count("\n") >= _MANY_ROWS - 1 else []
        many = {t for t in every if every.count(t) >= _MANY_ROWS and (t.count("#") >= 2 or t.count("|") >= 2)}
        assert _rows(text) == many, text


def test_prose_is_told_as_when_every_piece_is_looked_at(texts):
    for text in texts:
        facts = Stems(()).facts_in_python(text)
        for share in (0.35, 0.6):
            assert facts.is_prose(share) == (facts.prose / max(1, facts.pieces) >= share), text


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=6))
@settings(max_examples=500, deadline=None)
@example([])
@example(["", ""])
@example(["a1 " * 100_000, "b2c3d4 " * 50_000])
@example(["x" * 400] * 500)
def test_terms_of_parts_are_the_terms_of_each(parts):
    assert terms_of_parts(parts) == [terms(part) for part in parts]
