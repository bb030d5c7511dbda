"""Normalises letters, marks within words, and inflectional endings, in languages other than English. Pure.

The result for a word depends on that word alone, so that a question and a passage always agree, whatever the language
around it. Accents are removed ("Schlüssel" is "schlussel", "é" is "e"), and a word of another script loses the endings
of that script, by a light stemmer as those of Savoy (2006, "Light stemming approaches for the French, Portuguese,
German and Hungarian languages") and Larkey et al. (2007, "Light stemming for Arabic information retrieval").
"""

# ruff: noqa: RUF001 - letters of other scripts are meant

import unicodedata

MIN_STEM_CHARS = 3
"""Letters that remain at least when an ending is removed."""
MAX_SUFFIX_CHARS = 7
"""Letters of the longest ending."""

MARKS = (
    "".join(
        chr(point)
        for first, last in ((0x300, 0x370), (0x483, 0x488), (0x591, 0x700), (0x900, 0x1100), (0x17B4, 0x17D4))
        for point in range(first, last)
        if unicodedata.category(chr(point)) in ("Mn", "Mc")
    )
    + "\u200c\u200d"
)
"""Accents and vowel signs: they continue a word, and never begin one."""

_SINGLE = {
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ð": "d",
    "Ð": "D", "ł": "l", "Ł": "L", "ı": "i", "ħ": "h", "Ħ": "H", "\u2019": "'",
    "Σ": "σ", "ς": "σ",
    "ё": "е", "Ё": "Е", "й": "и", "Й": "И", "і": "и", "І": "И", "ї": "и", "Ї": "И", "є": "е", "Є": "Е", "ґ": "г",
    "Ґ": "Г", "ў": "у", "Ў": "У",
    "ך": "כ", "ם": "מ", "ן": "נ", "ף": "פ", "ץ": "צ",
    "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ی": "ي", "ة": "ه", "ک": "ك", "ـ": "",
    "\u0901": "\u0902", "\u093c": "",
}  # fmt: skip
"""Letters whose base letter Unicode does not give, and those with several spellings."""
_BASES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyzΑΕΗΙΟΥΩαεηιουω"


def _folds() -> dict[int, str]:
    """Code point -> its letters in terms: none for accents and vowel points."""
    found = {point: "" for point in map(ord, MARKS) if point < 0x700 or point > 0x2000}
    for first, last in ((0xC0, 0x250), (0x386, 0x3CF), (0x958, 0x960), (0x1E00, 0x2000)):
        for point in range(first, last):
            base = unicodedata.normalize("NFD", chr(point))[0]
            if base != chr(point) and (base in _BASES or first == 0x958):
                found[point] = base
    return found | {ord(letter): others for letter, others in _SINGLE.items()}


FOLDS = _folds()
_NO_MARKS = dict.fromkeys(map(ord, MARKS))

_SUFFIXES = """
а я ы и у ю о е ь ов ев ив ом ем ои еи ою ею ью ам ям ами ями ах ях ия ие ии ию ием ием иям иями иях ови еви
ыи ая яя ое ее ые ого его ому ему ым им ую юю ых их ыми ими
ет ит ут ют ат ят ешь ишь ете ите ем им ает ают яет яют ует уют ал ала ало али ять ать ить еть ил ила
ило или ел ела ели ан ана ано аны ани ен ена ено ены ени ав ив ила ае ають уе ують ить ять яе яють ав ила вать
ется ются ится ятся аться иться яться ался алась ались ился илась илось ились ается
аются уется уются аеться аються уеться уються
анныи енныи анная енная анное енное анные енные анного енного анных енных
ος ου ο ον οι ους ων α ας ες η ης ην ι ις ια ιου ιων ιας ιες μα ματος ματα ματων ω εις ει ουμε ετε ουν αν ε αω αμε ατε
ησα ησε ησαν ηθηκε ηθηκαν ισα ισε ισαν ιστηκε ιστηκαν θηκε θηκαν εται ονται αται ουνται
ها ان ات ون ين يه ه ي تها اتها اته ياته يات يون يين هم نا كم
ימ ות ה י יו יה נו יכ ית
ों ो े ू ु ी ि ा ं ाओं ुओं ियों ियां ियो ें ाएं ुएं एं ेगा ेगी ेंगे ओं ए
"""
_PREFIXES = "ال وال بال كال فال لل و ה ו"

SUFFIXES = frozenset(_SUFFIXES.translate(FOLDS).split())
"""Cyrillic (Russian, Ukrainian), Greek, Arabic, Hebrew and Devanagari (Hindi); no two scripts share a letter."""
PREFIXES = frozenset(_PREFIXES.translate(FOLDS).split())
"""Arabic and Hebrew articles, and what is written together with them; removed one after the other."""
ELIDED_WORDS = frozenset("l d j n s c m t qu jusqu lorsqu puisqu dell nell all sull dall un quest quell".split())  # noqa: SIM905
"""Elided words before an apostrophe in French and Italian."""
APOSTROPHE_SUFFIXES = frozenset(
    "a e i u da de ta te dan den tan ten in un nin nun ya ye yi yu la le yla yle na ne nda nde".split()  # noqa: SIM905
)
"""Suffixes after an apostrophe in Turkish."""


def fold(run: str) -> str:
    """A run of characters with equivalent letters unified."""
    return run if run.isascii() else run.translate(FOLDS)


def bare(text: str) -> str:
    """`text` without its MARKS."""
    return text if text.isascii() else text.translate(_NO_MARKS)


def without_apostrophe(word: str) -> str:
    """A folded lower-case word without what an apostrophe joins to it: "l'erreur", "Lizbon'da"."""
    head, _, tail = word.partition("'")
    if tail and head in ELIDED_WORDS:
        return tail
    return head if head and tail in APOSTROPHE_SUFFIXES else word


def light_stem(word: str) -> str:
    """A folded lower-case non-ASCII word without its endings, with at least MIN_STEM_CHARS letters left.

    One ending after the other: a word without an ending may look as if it had one ("отдел"), but loses it in all of its
    forms.
    """
    for n in range(min(MAX_SUFFIX_CHARS, len(word) - MIN_STEM_CHARS), 0, -1):
        if word[-n:] in SUFFIXES:
            return light_stem(word[:-n])
    return _without_prefixes(word)


def _without_prefixes(word: str) -> str:
    for n in range(min(MIN_STEM_CHARS, len(word) - MIN_STEM_CHARS), 0, -1):
        if word[:n] in PREFIXES:
            return _without_prefixes(word[n:])
    return word
