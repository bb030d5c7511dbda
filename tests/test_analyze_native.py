"""The analyser in C gives what the readable one gives, or leaves a text to it. Random texts are seeded."""

import random
import re
import subprocess
import sys
import time

import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from lantern_proxy.analyze import native as analyze_native
from lantern_proxy.analyze import sentences, sentences_in_python, separate_scripts, terms, terms_in_python
from lantern_proxy.analyze.facts import COMMON, Stems
from lantern_proxy.analyze.specific import native_words, specifics, specifics_in_python
from lantern_proxy.signals.words import count, count_in_python

native = pytest.mark.skipif(not analyze_native.AVAILABLE, reason="the C analyser is not there, or PyStemmer is another")

PIECES = [
    *("parse_config", "parseConfig", "HTTPServer", "src/net/backoff.py", "v2.14.3", "127.0.0.1:8484", "ERR-2047"),
    *("--no-cache", "-x", "---abc", "https://example.com/x?y=1)", "http://a", "don't", "Don\u2019t", "they'd've"),
    *("\u660e\u65e5\u306f\u6771\u4eac\u3078\u884c\u304f", "na\u00efve", "\u00c9COLE", "stra\u00dfe", "\u00bd cup"),
    *("\u0663\u0664", "\u2167", "~/a.b", "../x", "...y", "C:\\Users\\me", "a@b.c", "\U0001f642", "e\u0301", "_"),
    *("__init__", "ABCdefGHI", "a1b2c3", "\uad6d\uc5b4", "running", "Relational", "WORDS", "iPhone", "x" * 400),
    *(
        "l'erreur",
        "d\u2019\u00e9t\u00e9",
        "Lizbon'da",
        "stra\u00df",
        "\u00c6r\u00f8",
        "\u0640",
        "l'\u0301",
        "\u00df" * 300,
        "e\u0301" * 250,
    ),
    *(
        "\u043f\u0430\u0440\u043e\u043b\u044f\u043c\u0438",
        "\u0421\u0435\u0440\u0432\u0435\u0440\u044b",
        "\u0432\u0438\u043d\u0438\u043a\u043b\u0456",
        "\u043a\u043e\u043c\u043f'\u044e\u0442\u0435\u0440\u0456\u0432",
    ),
    *(
        "\u03ba\u03c9\u03b4\u03b9\u03ba\u03cc\u03c2",
        "\u0648\u0627\u0644\u0648\u0635\u0641\u0627\u062a",
        "\u0648" * 9,
        "\u05d4\u05d5\u05d4\u05dc\u05e7\u05d5\u05d7\u05d5\u05ea",
    ),
    *(
        "\u0938\u0930\u094d\u0935\u0930\u094b\u0902",
        "\u093e",
        "9\u0301",
        "\u0e20\u0e32\u0e29\u0e32",
        "\u0440" * 90 + "\u044b\u0439",
        "a\u0440\u0438_\u0438\u0439",
    ),
    *("\u7aef\u53e38443", "A/B\u6d4b\u8bd5--\u7248v2.1", "x_\u6771_y", "\u3002\u662f'", "GPU\u5f88\u8d35it's"),
    *("Abc" * 200, "\ud55c" * 500, "a-" * 250, "ABC" * 200, "\u01c5", "\u017f", "\u2028", "\u3000", "\x1c", "\u0410"),
]
HARD = ["\u03a3\u0391\u03a3", "\u0130stanbul", "\u212a", "ab\0c", "http://a\0b", "\ud800", "\U00020000", "\U000e0041"]
"""What is left to the reference."""
BETWEEN = [" ", "\n", ", ", ". ", "", "'", "-", "/", ":", "_", "(", "`", "\u2019", "--", "~", "."]
SPECIFIC = [
    "https://a.b/c?d=1).", "me+x@mail.example.org.", "`a b`", "``a``", "KEY = 'v1", "x=", "/etc/", "~/.ssh/id",
    ".../up", "C:\\Users", "a/b.c/", "my-file.tar.gz", "a.py-x", "2023-05-06", "May 7th, 2023", "Sept. 12",
    "3rd of June 1999", "12 May", "31 December, 20", "10:30:05 p.m", "7 pm", "9AM", "Tuesday", "last weekend",
    "this weeks", "two days ago", "12 months ago", "yesterday", "--flag=a/b", "x--y", "v1", "v1.2x", "1.2.3x",
    "1.2.3.4x", "v1.2.3-rc.1:80", "1.2.3+:8x", "parse_config", "_x_", "a_", "parseConfig", "ParseConfig2b",
    "os.path.join", "a.bc.d", "run()", "HTTP", "ERR-2047-x", "0xFFg", "gpt-4-turbo-", "abc-1", "a\u0663", "#12",
    "#12a", "deadbeef", "deadbee1x", "$1,200.50", "\u20ac5", "80%", "12Mb", "5ms", "3px", "8hx", "1,000,", "Anna",
    "Tom of Wales", "The Hague", "\u00c9mile", "Ren\u00e9e", "OK", "THE", '"a quote"', '"x"', "port is", "port:",
    "instead of", "a", "children", "=", "\u00df", "\u2028", "\x1c", "?", "\n\n",
]  # fmt: skip
"""What the patterns of specific terms are about, and what just misses them."""
ENDINGS = """
    s es ed ing ingly edly eed eedly ies ied ly ational tional enci anci abli entli izer ization ation ator alism
    aliti alli fulness ousli ousness iveness iviti biliti bli ogist ogi fulli lessli li alize icate iciti ical ful
    ness ative al ance ence er ic able ible ant ement ment ent ism ate iti ous ive ize ion e l y ll ' 's 's' us ss bl
    """.split()  # noqa: SIM905 - a list of quotes reads worse
BEGINNINGS = """
    gener commun arsen past univers later emerg organ inter succ proc exc inn out cann herr earr even y ay add egg d
    ti sk new how id gent ug ear on sing atlas cosmos bias and relat hop decid
    """.split()  # noqa: SIM905 - a list of quotes reads worse
specific = st.lists(st.sampled_from([*SPECIFIC, *HARD, *BETWEEN]) | st.text(max_size=4), max_size=20).map("".join)
mixed = st.lists(st.sampled_from([*PIECES, *HARD, *BETWEEN]) | st.text(max_size=8), max_size=12).map("".join)


def text_of(chance: random.Random) -> str:
    if chance.random() < 0.3:
        limit = chance.choice((0x80, 0x250, 0x3000, 0x20000))
        return "".join(chr(chance.randrange(limit)) for _ in range(chance.randint(0, 60))).replace("\0", "")
    return "".join(chance.choice(PIECES) + chance.choice(BETWEEN) for _ in range(chance.randint(1, 12)))


def specific_text_of(chance: random.Random) -> str:
    few = chance.sample([*SPECIFIC, *PIECES[:18], *BETWEEN], chance.randint(2, 40))
    return "".join(chance.choice(few) + chance.choice(("", " ", " ")) for _ in range(chance.choice((4, 20, 300))))


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
def test_c_gets_of_every_code_point_what_this_python_says_of_it():
    lib = analyze_native.lib
    says = {
        lib.ANALYZE_ALPHA: str.isalpha,
        lib.ANALYZE_WORD: lambda c: c.isalnum() or c == "_",
        lib.ANALYZE_SPACE: str.isspace,
        lib.ANALYZE_DIGIT: str.isdecimal,
        lib.ANALYZE_WIDE: lambda c: any(first <= ord(c) <= last for first, last in analyze_native._WIDE),
    }
    n = analyze_native._CODE_POINTS
    tables = analyze_native.unicode_tables(n)
    kinds = bytes(analyze_native.ffi.buffer(tables.kind, n))
    lower = dict(zip(tables.upper[0 : tables.n_upper], tables.lower[0 : tables.n_upper], strict=True))
    for point, kind in enumerate(kinds):
        c = chr(point)
        if kind != lib.ANALYZE_OTHER:
            assert [flag for flag in says if kind & flag] == [flag for flag, has in says.items() if has(c)], point
            assert lower.get(point, point) == ord(c.lower()), point


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
@pytest.mark.parametrize("seed", range(4))
def test_c_gives_the_specific_terms_of_the_reference_on_a_thousand_texts(seed):
    chance, words, served = random.Random(seed), native_words(), 0
    for _ in range(1_000):
        text = specific_text_of(chance)
        found = analyze_native.specifics(separate_scripts(text), words)
        served += found is not None
        assert found is None or found == specifics_in_python(text), text
    assert served > 900


@given(specific)
@settings(max_examples=1_000, deadline=None)
def test_specific_terms_are_those_of_the_reference_whatever_serves_them(text):
    assert specifics(text) == specifics_in_python(text)


@native
@pytest.mark.parametrize(
    "text", ["word 12 " * 50_000, "a/" * 100 + " ", "x" * 301, " " * 301, "\u6771 " * 5_000 + "port 1"]
)
def test_specific_terms_of_large_texts_and_of_those_without_an_end_are_the_references(text):
    assert specifics(text) == specifics_in_python(text)


STEMS = Stems([(COMMON, ["a", "the", "it's"]), (8, ["run", "port"]), (16, ["port", "\u6771\u4eac", "na\u00efv"])])
COUNTED = [
    "I", "my", "You", "YOURS", "yesterday", "Last", "MAY", "la\u017ft", "n\u0131ght", "1999", "2099",
    "\u0661\u0662\u0663\u0664", "?", "!?", "...", "\u2026", "this m", "th\u0131\u017f ", "THIS S", ":1", "-7", "f(x)",
    "{", "};", "(word)", "**Bold**", "'tis,",
]  # fmt: skip
counted = st.sampled_from([*COUNTED, *SPECIFIC, *HARD, *BETWEEN]) | st.text(max_size=4)


@given(st.lists(st.lists(counted, max_size=12).map("".join), max_size=4))
@settings(max_examples=1_000, deadline=None)
def test_what_is_counted_of_texts_is_what_the_references_count_whatever_serves_them(texts):
    assert STEMS.facts(texts) == [STEMS.facts_in_python(text) for text in texts]
    assert count(texts) == [count_in_python(text) for text in texts]


@native
@pytest.mark.parametrize("seed", range(4))
def test_c_counts_what_the_references_count_in_a_thousand_texts(seed):
    chance, some = random.Random(seed), [*COUNTED, *SPECIFIC, *PIECES[:18], *BETWEEN]
    texts = ["".join(chance.choice(some) for _ in range(chance.randint(0, 60))) for _ in range(1_000)]
    assert STEMS.facts(texts) == [STEMS.facts_in_python(text) for text in texts]
    assert count(texts) == [count_in_python(text) for text in texts]


ENDING = [
    ".", "!", "?", "\u2026", "\u3002", "\uff01", "\n", "\n\n", " ", "  ", "\t", "\u2028", '"', "')", "]", "*", "_", "`",
    "(", "[", "25", "Juli", "M\u00e4rz", "Art", "Sept", "a4", "z_", "godz", "\u0142\u00f3dz", "\u0663", "z", "s", "'",
    "bzw", "Mr", "e.g", "i.e", "etc", "approx", "Prof", "No", "A", "B", "a", "\u00e9", "\u00c9", "\u00d7", "\u00df",
    "9", "~", "#", "-", "The", "word", "\u6771", "\U0001f642", "\u061f", "\u06d4", "\u0964", "\u0391", "\u03b1",
    "\u0410", "\u0430", "\u0141", "\u0142", "\u0138", "\u0149", "\u0178", "\u017d", "\u017f", "\u0531", "\u05d0",
    "\u0645", "\u0905",
]  # fmt: skip
"""What ends sentences, what may stand around it, and what looks like it."""


@native
@pytest.mark.parametrize("seed", range(4))
def test_c_finds_the_sentences_of_the_reference_in_ten_thousand_texts(seed):
    chance = random.Random(seed)
    for _ in range(10_000):
        few = chance.sample(ENDING, chance.randint(2, len(ENDING)))
        text = "".join(chance.choice(few) for _ in range(chance.randint(0, 40)))
        assert analyze_native.sentences(text) == sentences_in_python(text), text


@given(st.lists(st.sampled_from([*ENDING, *HARD]) | st.text(max_size=4), max_size=20).map("".join))
@settings(max_examples=1_000, deadline=None)
def test_sentences_are_those_of_the_reference_whatever_serves_them(text):
    text = re.sub("`{3,}|~{3,}", "``", text)
    assert sentences(text) == sentences_in_python(text)


def test_sentences_between_fences_stand_where_they_stand_in_the_text():
    text = "\u00c9t\u00e9 one. Two!\n```\na. B\n```\nThree. Four"
    assert [text[start:end] for start, end in sentences(text)] == [
        "\u00c9t\u00e9 one.", "Two!", "```\na. B\n```", "Three.", "Four",
    ]  # fmt: skip


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
        if name == "sentences_of":
            raise AttributeError(name)
        return getattr(lib, name)
lib, built.lib = built.lib, Before()
from lantern_proxy.analyze import terms_of_parts
print(terms_of_parts(["two ports", "one gate"]))
"""
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=60)
    assert found.stdout == "[['two', 'port'], ['one', 'gate']]\n", found.stderr


@pytest.mark.skipif(not analyze_native.AVAILABLE, reason="only C has tables")
def test_tables_that_two_threads_make_at_once_are_both_kept():
    """One of them stays in the cache. It once pointed into memory that was freed with the other's arrival."""
    one, other = (analyze_native.unicode_tables.__wrapped__(0x80) for _ in range(2))
    # others: they take what is free
    others = [analyze_native.ffi.new("char[]", b"\xff" * n) for n in range(0x60, 0xC0) for _ in range(20)]
    assert bytes(analyze_native.ffi.buffer(one.kind, 0x80)) == bytes(analyze_native.ffi.buffer(other.kind, 0x80))
    assert others


@pytest.mark.parametrize("cut", [sentences, sentences_in_python])
def test_what_stands_before_many_short_words_with_numbers_is_read_once(cut):
    def seconds(chars: int) -> float:
        text = " " * chars + "ab. 1 " * (chars // 6)
        began = time.process_time()
        cut(text)
        return time.process_time() - began

    assert min(seconds(32_000) for _ in range(3)) < 10 * max(0.002, min(seconds(8_000) for _ in range(3)))
