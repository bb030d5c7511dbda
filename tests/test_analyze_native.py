"""The analyser in C gives what the readable one gives, or leaves a text to it. Random texts are seeded."""

import random
import subprocess
import sys

import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from lantern_proxy import analyze_native
from lantern_proxy.analyze import terms, terms_in_python

native = pytest.mark.skipif(not analyze_native.SERVES, reason="the C analyser is not there, or PyStemmer is another")

PIECES = [
    *("parse_config", "parseConfig", "HTTPServer", "src/net/backoff.py", "v2.14.3", "127.0.0.1:8484", "ERR-2047"),
    *("--no-cache", "-x", "---abc", "https://example.com/x?y=1)", "http://a", "don't", "Don\u2019t", "they'd've"),
    *("\u660e\u65e5\u306f\u6771\u4eac\u3078\u884c\u304f", "na\u00efve", "\u00c9COLE", "stra\u00dfe", "\u00bd cup"),
    *("\u0663\u0664", "\u2167", "~/a.b", "../x", "...y", "C:\\Users\\me", "a@b.c", "\U0001f642", "e\u0301", "_"),
    *("__init__", "ABCdefGHI", "a1b2c3", "\uad6d\uc5b4", "running", "Relational", "WORDS", "iPhone", "x" * 400),
    *("Abc" * 200, "\ud55c" * 500, "a-" * 250, "ABC" * 200, "\u01c5", "\u017f", "\u2028", "\u3000", "\x1c", "\u0410"),
]
HARD = ["\u03a3\u0391\u03a3", "\u0130stanbul", "\u212a", "ab\0c", "http://a\0b", "\ud800", "\U00020000", "\U000e0041"]
"""What is left to the reference."""
BETWEEN = [" ", "\n", ", ", ". ", "", "'", "-", "/", ":", "_", "(", "`", "\u2019", "--", "~", "."]
ENDINGS = """
    s es ed ing ingly edly eed eedly ies ied ly ational tional enci anci abli entli izer ization ation ator alism
    aliti alli fulness ousli ousness iveness iviti biliti bli ogist ogi fulli lessli li alize icate iciti ical ful
    ness ative al ance ence er ic able ible ant ement ment ent ism ate iti ous ive ize ion e l y ll ' 's 's' us ss bl
    """.split()  # noqa: SIM905 - a list of quotes reads worse
BEGINNINGS = """
    gener commun arsen past univers later emerg organ inter succ proc exc inn out cann herr earr even y ay add egg d
    ti sk new how id gent ug ear on sing atlas cosmos bias and relat hop decid
    """.split()  # noqa: SIM905 - a list of quotes reads worse
mixed = st.lists(st.sampled_from([*PIECES, *HARD, *BETWEEN]) | st.text(max_size=8), max_size=12).map("".join)


def text_of(chance: random.Random) -> str:
    if chance.random() < 0.3:
        limit = chance.choice((0x80, 0x250, 0x3000, 0x20000))
        return "".join(chr(chance.randrange(limit)) for _ in range(chance.randint(0, 60))).replace("\0", "")
    return "".join(chance.choice(PIECES) + chance.choice(BETWEEN) for _ in range(chance.randint(1, 12)))


def word_of(chance: random.Random) -> str:
    start = chance.choice(BEGINNINGS) if chance.random() < 0.5 else ""
    letters = "".join(chance.choice("aeiouyybcdfghklmnprstvwxz'\u00e9") for _ in range(chance.randint(0, 6)))
    return start + letters + "".join(chance.choice(ENDINGS) for _ in range(chance.randint(0, 3)))


@native
@pytest.mark.parametrize("seed", range(4))
def test_c_gives_the_terms_of_the_reference_on_ten_thousand_texts(seed):
    chance, served = random.Random(seed), 0
    for _ in range(10_000):
        text = text_of(chance)
        found = analyze_native.terms(text)
        served += found is not None
        assert found is None or found == terms_in_python(text), text
    assert served > 9_000


@native
def test_c_stems_a_hundred_thousand_words_as_snowball_does():
    chance, stem = random.Random(1), Stemmer.Stemmer("english").stemWord
    words = ["x" + word_of(chance).strip("'") + "y" if n % 9 == 0 else word_of(chance) for n in range(100_000)]
    for word in filter(None, words):
        assert analyze_native.stem(word) == stem(word)


@given(mixed)
@settings(max_examples=1_000, deadline=None)
def test_terms_are_those_of_the_reference_whatever_serves_them(text):
    assert terms(text) == terms_in_python(text)


@native
@pytest.mark.parametrize("text", HARD)
def test_what_c_cannot_tell_is_left_to_the_reference(text):
    assert analyze_native.terms(f"see {text} here") is None
    assert terms(f"see {text} here") == terms_in_python(f"see {text} here")


@native
def test_all_of_unicode_is_classified_as_this_python_does():
    for first in range(0, 0x110000, 64):
        text = " ".join(f"{chr(c)} a{chr(c)}B {chr(c)}'1" for c in range(first, first + 64))
        assert terms(text) == terms_in_python(text)


@native
@pytest.mark.parametrize("text", ["word " * 300_000, "\u6771" * 300_000, "a1" * 300_000, "\u023a1 " * 100_000])
def test_a_large_text_has_all_its_terms(text):
    assert analyze_native.terms(text) == terms_in_python(text)


@native
def test_a_library_that_was_built_before_its_newest_function_is_left_alone():
    told = """
import lantern_proxy._bm25 as built
class Before:
    def __getattr__(self, name):
        if name == "analyze_parts":
            raise AttributeError(name)
        return getattr(lib, name)
lib, built.lib = built.lib, Before()
from lantern_proxy.analyze import terms_of_parts
print(terms_of_parts(["two ports", "one gate"]))
"""
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=60)
    assert found.stdout == "[['two', 'port'], ['one', 'gate']]\n", found.stderr
