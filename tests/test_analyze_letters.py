"""Words of other languages: one word in several forms is one term, on its own, whatever stands around it."""

# ruff: noqa: RUF001 - letters of other scripts are meant

import unicodedata

import pytest

from lantern_proxy.analyze import terms, terms_in_python
from lantern_proxy.analyze.facts import Stems
from lantern_proxy.analyze.letters import FOLDS, MARKS, MAX_SUFFIX_CHARS, MIN_STEM_CHARS, PREFIXES, SUFFIXES, light_stem


@pytest.mark.parametrize(
    "forms",
    [
        "пароль пароли паролей паролями",
        "Сервер серверы серверов серверами",
        "платёжного платежный платёжных",
        "печатает печатают",
        "сертифікат сертифікати сертифікатом",
        "порт порта порты портами",
        "отдел отдела отделов",
        "область области областям",
        "запись записи записью",
        "сервер серверів сервери",
        "κωδικός κωδικούς κωδικό",
        "διακομιστής διακομιστές διακομιστή",
        "الوصفة وصفة وصفات والوصفات",
        "हिसाब हिसाबों",
        "सर्वर सर्वरों",
        "कुत्ता कुत्ते कुत्तों",
        "Passwort Passwörter",
        "contraseña contraseñas contrasena",
        "erreur l'erreur l’erreurs",
        "été d'été",
        "straße Strasse",
        "İstanbul İstanbul'da istanbul'dan",
        "ההודעה הודעה",
    ],
)
def test_forms_of_a_word_are_one_term(forms):
    assert len({*terms(forms)}) == 1, terms(forms)
    assert terms(forms) == terms_in_python(forms)


@pytest.mark.parametrize("text", ["Schlüssel für Łódź", "où été", "Сергей йод", "κωδικούς", "Œuvre"])
def test_letters_written_as_letter_and_accent_are_the_same_letters(text):
    assert terms(unicodedata.normalize("NFD", text)) == terms(unicodedata.normalize("NFC", text))


def test_english_words_are_what_they_were():
    assert terms("don't John's they'd've c'mon 9's") == ["don't", "john", "they'd'v", "mon", "9's", "9", "s"]


def test_a_word_with_vowel_signs_is_one_word_and_prose():
    (facts,) = Stems(()).facts(["बैकअप सर्वर का पासवर्ड"])
    assert facts == Stems(()).facts_in_python("बैकअप सर्वर का पासवर्ड")
    assert (facts.pieces, facts.plain, facts.prose) == (4, 3, 3)


def test_identifiers_keep_their_whole_beside_their_parts():
    assert terms("größe_max") == ["grosse_max", "gross", "max"]
    assert terms("порт_базы") == ["порт_базы", "порт", "баз"]


def test_signs_that_are_no_letters_alone_are_no_term():
    assert terms("\u0640 \u0640\u0640") == []


def test_endings_are_as_long_as_they_are_looked_for_and_written_as_words_are():
    assert max(map(len, SUFFIXES)) <= MAX_SUFFIX_CHARS
    assert max(map(len, PREFIXES)) <= MIN_STEM_CHARS
    assert all(ending.translate(FOLDS) == ending for ending in SUFFIXES | PREFIXES)
    assert all(len(light_stem(letter * 2 + "".join(SUFFIXES))) >= MIN_STEM_CHARS for letter in "баΩ")


def test_marks_begin_no_word():
    assert terms(f"{MARKS[0]} {MARKS[-1]}") == []
