"""Terms, specific terms and sentences."""

# ruff: noqa: RUF001 - letters of other scripts are meant

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lantern_proxy.analyze import informative, key, query_terms, sentences, terms, terms_in_python
from lantern_proxy.analyze.code import is_code, which_are_code
from lantern_proxy.analyze.facts import Stems
from lantern_proxy.analyze.specific import specifics
from lantern_proxy.analyze.standing import is_limit, is_preference, is_rule
from lantern_proxy.restore.present import Present


def _is_code(text: str) -> bool:
    return is_code(text, Stems(()).facts([text])[0])


@pytest.mark.parametrize(
    ("text", "whole", "parts"),
    [
        ("parse_config", "parse_config", {"pars", "config"}),
        ("parseConfig", "parseconfig", {"pars", "config"}),
        ("src/net/backoff.py", "src/net/backoff.py", {"src", "net", "backoff", "py"}),
        ("v2.14.3", "v2.14.3", {"2", "14", "3"}),
        ("127.0.0.1:8484", "127.0.0.1:8484", {"8484"}),
        ("ERR-2047", "err-2047", {"err", "2047"}),
        ("--no-cache", "no-cache", {"cach"}),
    ],
)
def test_an_identifier_is_indexed_whole_and_in_parts(text, whole, parts):
    found = terms(f"see {text}, please")
    assert whole in found
    assert parts <= set(found)


def test_inflected_words_meet_at_one_term():
    assert set(terms("connected")) == set(terms("connecting")) == set(terms("Connections"))


def test_words_without_spaces_between_them_are_indexed_in_pairs():
    assert "東京" in terms("明日は東京へ行く")
    assert set(query_terms("東京")) <= set(terms("明日は東京へ行く"))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("\u7aef\u53e3\u662f8443\uff0c\u4e3b\u673agw-eu-4\u3002", {"8443", "gw-eu-4"}),
        ("\u96fb\u8a71\u756a\u53f7\u306f090-1234-5678\u3067\u3059", {"090-1234-5678"}),
        ("\uc8fc\ubb38\ubc88\ud638\ub294 A-5519\uc785\ub2c8\ub2e4.", {"a-5519"}),
        ("\u5728/etc/hosts\u91cc", {"etc/hosts"}),
    ],
)
def test_a_number_or_a_name_between_words_without_spaces_is_a_term_of_its_own(text, whole):
    assert whole <= set(terms(text))
    assert whole <= {each.lower().strip("/") for each in specifics(text)} | {"090-1234-5678"}
    assert terms(text) == terms_in_python(text)


def test_a_number_that_a_text_without_spaces_holds_stands_in_it():
    assert Present("\u5f20\u4e09\u7684\u7535\u8bdd\u662f13800477041\u3002").specific_terms({key("13800477041")})
    assert not Present("\u5f20\u4e09\u7684\u7535\u8bdd\u662f138004770412\u3002").specific_terms({key("13800477041")})


@pytest.mark.parametrize(
    ("question", "kept", "left_out"),
    [
        ("ゲートウェイのポートは何番でしたか\uff1f", {"ポー", "ート", "何番"}, {"でし", "した", "たか"}),
        ("请问数据库监听的是哪个端口呢\uff1f", {"数据", "监听", "端口"}, {"请问", "的是", "哪个"}),
        ("どうしてですか\uff1f", {"どう"}, set()),
        ("是什么\uff1f", {"什么"}, set()),
    ],
)
def test_pairs_that_hold_only_grammar_are_left_out_of_a_question_while_others_are_left(question, kept, left_out):
    found = set(query_terms(question))
    assert kept <= found
    assert left_out.isdisjoint(found)


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("灯台の見学時間は何時までですか\uff1f", ["灯台", "見学", "学時", "時間", "何時"]),
        ("倉庫の届け先は\uff1f", ["倉庫", "届け", "け先"]),
        ("誰が猫の名前を決めましたか\uff1f", ["が猫", "猫の", "名前", "を決", "決め"]),
    ],
)
def test_a_word_of_japanese_is_asked_for_without_the_particles_beside_it_while_it_has_another_pair(question, asked):
    assert query_terms(question) == asked


def test_a_query_holds_no_stop_words_and_no_repeats():
    assert query_terms("What is the port, and which port was it?") == ["port"]


@pytest.mark.parametrize(
    "text", ["thanks, go on", "continue", "ok do it", "Yes please!", "Great, thank you so much", "lgtm, next"]
)
def test_chit_chat_holds_nothing_informative(text):
    assert informative(query_terms(text)) == []


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("Use port 9443 for staging.", "port 9443"),
        ("The port is 9443 now.", "port is 9443"),
        ("I have 5 children.", "5 children"),
        ("Note DETAIL-X-DELTA=18.", "DETAIL-X-DELTA=18"),
        ("It is in /srv/app/config.yaml.", "/srv/app/config.yaml"),
        ("Edit src/net/backoff.py next.", "src/net/backoff.py"),
        ("We pinned v2.14.3 today.", "v2.14.3"),
        ("It failed with ERR_TIMEOUT again.", "ERR_TIMEOUT"),
        ("Launch is on 2026-03-14.", "2026-03-14"),
        ("Launch is on March 14, 2026.", "March 14, 2026"),
        ("I asked Maria Lopez about it.", "Maria Lopez"),
        ("Run `make test-all` first.", "make test-all"),
        ("Pass --no-cache to it.", "--no-cache"),
        ("See https://example.com/x?y=1 for it.", "https://example.com/x?y=1"),
        ("It costs $1,200 a year.", "costs $1,200"),
    ],
)
def test_a_specific_term_comes_with_what_it_belongs_to(text, term):
    assert term in specifics(text)


def test_the_first_word_of_a_sentence_is_no_name():
    assert specifics("Running is fun. Nothing else helps.") == []


def test_one_value_written_in_two_ways_has_one_key():
    assert key("port is 9443") == key("Port: 9443") == key("port = 9443") == "port 9443"


def test_numbers_versions_and_abbreviations_do_not_end_a_sentence():
    text = "We use v2.14.3 on 10.0.0.1, e.g. for Dr. Smith. It costs 3.50 USD."
    assert [text[a:b] for a, b in sentences(text)] == [
        "We use v2.14.3 on 10.0.0.1, e.g. for Dr. Smith.",
        "It costs 3.50 USD.",
    ]


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("Какое значение имеет пароль для Dopasvik?", ["знач", "парол", "dopasvik"]),
        ("Welchen Wert hat das Kennwort von Normelran?", ["wert", "kennwort", "normelran"]),
        ("Quel est le mot de passe de la base ?", ["mot", "pass", "base"]),
        ("¿Cuál es el puerto del servidor?", ["puerto", "servidor"]),
        ("Який пароль має сервер?", ["парол", "сервер"]),
        ("Sunucunun şifresi nedir ve kim biliyor?", ["sunucunun", "sifresi", "biliyor"]),
        ("Ποιος είναι ο κωδικός της βάσης;", ["κωδικ", "βασ"]),
        ("ما هي كلمة المرور للخادم؟", ["كلم", "مرور", "خادم"]),
        ("सर्वर का पासवर्ड क्या है?", ["सर्वर", "पासवर्ड"]),
        ("회의는 언제예요?", ["회의"]),
        ("등대에서 몇 시에 만나요?", ["등대", "시에", "만나"]),
        ("창고의 비밀번호가 뭐였죠?", ["창고", "비밀", "밀번", "번호"]),
    ],
)
def test_a_question_in_another_language_is_asked_without_its_function_words(question, asked):
    assert query_terms(question) == asked


def test_english_questions_keep_words_that_are_function_words_elsewhere():
    assert query_terms("What was the size of the die in the van?") == ["size", "die", "van"]
    assert query_terms("die") == ["die"]


@pytest.mark.parametrize(
    "text",
    [
        "Порт занят.|Сегодня проверим ещё раз.|Для Ивана всё готово.",
        "Όλα έτοιμα.|Πάμε.",
        "To jest brama.|Łódź czeka.|Śpimy.",
        "كلمة المرور نحاس.|ما هي؟|شكرا",
        "पासवर्ड तांबा है।|धन्यवाद।",
        "Wir verschieben auf den 25. Juli.|Dann geht es weiter.",
        "Am 3. M\u00e4rz 2026 um 15 Uhr.|Der Port ist 25.|Bitte merken.",
        "Siehe Art. 7 und Abs. 2, max. 3 Zeilen.|Danach z. B. Anhang 4.|Ende.",
        "On Sept. 3 we met Max.|He ran in August.",
        "The cap is in cl. 9.3, by para. 3 of the letter.|See eq. 4.7 and No. 7.|All were there.|9 left.",
        "Odbi\u00f3r po godz. 16, poz. 14 w katalogu.|Cena 43 z\u0142.",
        "1. Apply it.|2. Deploy the worker, no. 3 only.|3. Turn it on.|4. Wait for all tenants.|12 of them wait.",
        "1. The rent is due on Sept. 3.|2. See Art. 7.|3. We meet on Oct. 12.",
        "That is Anna's.|He took it.",
        "We meet at ul. D\u0142uga 14.|Bring the key to av. Brasil 3.|I met Al.|He waits.",
        "Склад на ул. Ленина.|Ключ на пр. Мира.",
    ],
)
def test_sentences_end_in_other_alphabets_too_and_not_at_days_and_numbered_things(text):
    joined = text.replace("|", " ")
    assert [joined[a:b] for a, b in sentences(joined)] == text.split("|")


def test_a_fenced_block_is_one_sentence():
    text = "Look:\n```python\na = 1\n\nb = 2.\n```\nDone."
    assert [text[a:b] for a, b in sentences(text)] == ["Look:", "```python\na = 1\n\nb = 2.\n```", "Done."]


@given(st.text())
def test_any_text_has_terms_and_sentences_that_stand_in_it_in_order(text):
    terms(text)
    specifics(text)
    spans = sentences(text)
    assert all(a < b for a, b in spans)
    assert all(spans[i][1] <= spans[i + 1][0] for i in range(len(spans) - 1))
    said = "".join(text[a:b] for a, b in spans)
    assert "".join(said.split()) == "".join(text.split())


@pytest.mark.parametrize(
    "piece",
    ["a", "a_", "1.", "/a", "A ", "`", "https://", "-", "<", "x=y", " ", "\n", '"', "Aa", "a-", "1,", "@.", "e.g. "],
)
def test_endless_text_takes_time_in_proportion(piece):
    """Quadratic patterns would take hours here; pytest's timeout is the judge."""
    text = piece * (120_000 // len(piece))
    terms(text)
    specifics(text)
    sentences(text)
    is_rule(text)
    is_preference(text)
    _is_code(text)


@pytest.mark.parametrize("text", ["<" + "a" * 1_000_000, "@" + "a" * 1_000_000 + "!", "import " + "a." * 500_000 + "!"])
def test_an_endless_name_takes_time_in_proportion(text):
    _is_code(text)


@pytest.mark.parametrize("text", [
    "Always run the linter first.", "never push to main", "Use tabs. Never spaces.", "From now on, use pnpm.",
    "Also, please don't reformat the files.", "Do not touch the migrations!", "We never deploy on Fridays.",
    "It works now.\nGoing forward, answer in French.", "Every time you change the schema, write a migration.",
    "Please use uv, not pip.",
    "Make sure you always quote the path.", "Cite the source when I ask: whenever you quote, too.",
    "Whenever you need a port, ask Mia.", "Never again push to main.", "We always wash our hands first.",
    "Don't install anything.", "Do not begin with a greeting.",
    "Use tabs and not spaces.", "Can you use metric units instead of imperial?", "I decided to use uv instead of pip.",
    "Whenever you want to delete a file, ask first.", "Whenever you can, use the standard library.",
    "Whenever you're ready to commit, run the tests first.", "Whenever you need help, stop and ask me.",
    "Use pytest instead of unittest, ok?", "Use metric, not imperial units (why? because Europe).",
    "Use uv but never pip.", "Use Postgres for it, not SQLite.", "Use the new API, but not for auth.",
    "Don't even touch the config.", "Don't expect a database in the tests.", "Don't blame people in postmortems.",
    "We always look at the logs first.", "We never want secrets in the repo.", "We never need to support Python 2.",
    "Never fails silently: every error must be raised.", "Never in a commit message mention AI.",
    "One rule for the minutes: names in full.", "And a small wish: tell me the price first.",
    "New house rule: shoes off.", "No footnotes in the programme, please.", "Please no abbreviations.",
    "No sherry in the trifle please, Ada drives.",
    "Go step by step, don't give me the solution before I tried.", "Be brief, and do not use tables.",
    "She must never get aspirin with it.", "The lid must not be opened before noon.",
    "Quiz me on the verbs, don't tell me the answer.", "Run them all, don't ask me before each.",
])  # fmt: skip
def test_a_rule_is_told_from_what_happens_to_hold_its_words(text):
    assert is_rule(text)


@pytest.mark.parametrize("text", [
    "I have always liked it.", "Never mind.", "Don't worry about it.", "Always happy to help!", "She never came back.",
    "He said that he would never agree.", "I don't like it.", "It always fails here", "Never say never!", "",
    "Always wanted to see Rome!", "Always makes me smile.", "Never went there.", "Never seen snow before.",
    "Never again!", "We never met.", "We always look forward to it.", "Whenever you need help, just let me know.",
    "Don't remember exactly.", "I've tried to use caching, but it's not working.",
    "I can't say if they use them or not.", "What if I use a webcam instead of the built-in one?",
    "Please no rush.", "No problem, please go on.", "No, please.", "The rule of the club is older.", "No one came.",
    "The firewall rule: tcp 22.", "Best wishes: Ada", "Which rules: ours or theirs?",
    "No worries, please take your time.", "A rule of thumb: three eggs each.",
    "My wish list: a bike and a tent.", "Our rule engine: the old one.", "Is there no bus on Sunday, please?",
    "I see no button, please.", "The linter has one rule violation: tabs.",
    "You broke a rule: off-side.",
    "It's late already, don't call.", "The neighbours, who moved in May, do not pay.", "Don't give up.",
    "It must not have rained for weeks.",
    "Working title is The Otter, don't laugh.", "Bram paid 900 for it, don't tell Ada.",
    "Found it in the oven, don't ask me.", "And the flights are paid for, don't call the bank.",
])  # fmt: skip
def test_what_tells_of_always_and_never_is_no_rule(text):
    assert not is_rule(text)


@pytest.mark.parametrize("text", [
    "```python\nport = 9443\n```", "conn = sqlite3.connect('a.db')", "def connect(path):", "<h2>Offers</h2>",
    "import numpy as np", "from os import path", "return jsonify({'found': rows})", "conn.close();", "for row in rows:",
    "// close it", "# close the file", "padding-top: 50px;", "SELECT * FROM rows", 'raise ValueError("Must be one.")',
    "@app.route('/rows')", "const rows = await found.json()", "except KeyError:",
])  # fmt: skip
def test_code_is_told_from_prose_and_settings(text):
    assert _is_code(text)


@pytest.mark.parametrize("text", [
    "The port is 9443 (staging) or 80 (production).", "PORT=9443", "port = 9443", "Let me see the return value.",
    "Try again for me:",
    "We meet at 9:00 (room 4), 10:00 (room 5) and 11:00.", "- **Deadline:** 3 May (two weeks)", "port: 9443", "x < 3",
    "I keep users(id, name) and orders(id, user_id, total) apart, as you said.", "/srv/app/main.py", "git push -f", "",
    "KeyError: 'port'", "See https://example.org/a?b=c",
    "For \u03bc = 3: (2, 5).", "So tr(M) = 7; det(M) = 12.", "Then (y - 1)(y + 4) = 0.",
])  # fmt: skip
def test_prose_and_settings_are_no_code(text):
    assert not _is_code(text)


def test_what_a_program_holds_between_its_lines_belongs_to_it():
    program = ["def connect(path):", "db.connect(path, limit=3)", '"port"', "The port must be free before that."]
    said = [*program, *["And this is what I would like to have instead of it, please."] * 3]
    assert which_are_code(program, Stems(()).facts(program)) == [True, True, True, False]
    assert which_are_code(said, Stems(()).facts(said))[2] is False
    assert which_are_code([], []) == []


@pytest.mark.parametrize(("text", "code"), [
    ('<result of="call 4">The kiln in room 12 is at 1240 degrees, and Pia turns it off.', False),
    ("<task>Order the oak for the stairs by Friday.</task>", False),
    ('<div class="wide" id="offers"><h2>Offers</h2>', True), ("<h2>Offers of the week</h2>", True),
])  # fmt: skip
def test_a_tag_around_a_text_makes_no_program_of_its_first_sentence(text, code):
    lines = [text, "It cools for two days.</result>"]
    assert which_are_code(lines, Stems(()).facts(lines))[0] is code


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("Use British spelling and cite clause numbers whenever you refer to a clause.", True),
        ("Currency is the euro, and write decimals with a comma in anything I paste into the report.", True),
        ("I dislike unwrap(), replace it with proper errors wherever you touch a file.", True),
        ("Add the source in all answers.", True),
        ("The data centre must be within the EU, that's a red line.", True),
        ("Could you always answer in full sentences?", True),
        ("Kannst du mir bitte immer in ganzen Sätzen antworten?", True),
        ("Tell me about it whenever you want.", False),
        ("Mom smiles every time you call.", False),
        ("Give me all messages from Anna.", False),
        ("Check all answers.", False),
        ("Could you tell me everything you know about cats?", False),
        ("The red line goes to the airport.", False),
        ("Kannst du mir noch immer helfen?", False),
    ],
)
def test_an_order_for_each_time_is_a_rule(text, is_one):
    assert is_rule(text) == is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("Liv is allergic to shellfish.", True), ("Fenja hat eine Erdnussallergie.", True), ("小顾对花生过敏。", True),
        ("El inspector es celíaco.", True), ("We are vegan now.", True), ("I like the vegetables.", False),
        ("Las Vegas is hot.", False), ("She was tolerant.", False),
    ],
)  # fmt: skip
def test_an_allergy_or_a_diet_is_a_limit(text, is_one):
    assert is_limit(text) == is_one


def test_a_preference_is_the_speakers_own():
    assert all(
        map(
            is_preference, ("I prefer tabs.", "We'd rather wait.", "My preference is Postgres.", "One preference: oak.")
        )
    )
    assert not any(map(is_preference, ("Some prefer tabs.", "It is rather slow.", "The preferred port is 80.")))


def test_enrichment_names_the_kind_and_the_action_but_never_repeats_what_is_said():
    from lantern_proxy.bench.pipelines_routed import enrich, table

    assert "anim" in enrich(terms("my dog"))
    assert "purchas" in enrich(terms("I bought it, I will buy more"))
    assert "anim" not in enrich(terms("my dog is an animal"))
    assert enrich(["zzgrk"]) == []
    assert all(found and own not in found for own, found in table().items())


@pytest.mark.parametrize("term", [
    "next week", "yesterday", "three days ago", "deadbeef", "key = value", "key=value", "lib/a", "me@example.org",
    "run()", "os.path", "camelCase", "main.py", "x-1", "http://a.b", "c:\\dir",
])  # fmt: skip
def test_a_term_that_begins_like_a_plain_word_is_found_among_them(term):
    assert any(found.endswith(term) for found in specifics(f"so it was {term} and not the rest"))
