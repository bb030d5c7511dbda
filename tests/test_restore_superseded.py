"""Contradictions: what a later statement replaces is left out or marked; what only looks like one stays."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from test_restore import LEXICAL, ask, filed, write

from lantern_proxy.archive import Archive
from lantern_proxy.config import Config, RestoreConfig
from lantern_proxy.restore.parsed_statement import ParsedStatement
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.restore.superseded import Changes, Statement, statements_of_request, superseded

REPLACED = [
    ("The API listens on port 8443 in staging.", "Actually, use port 9443 for staging instead, 8443 is taken."),
    ("Our launch is on 2026-03-14.", "The launch has moved to 2026-04-01."),
    ("We use PostgreSQL 15.4 for the ledger.", "We switched the ledger to PostgreSQL 16.1."),
    ("Store uploads under /var/lib/a/uploads.", "Store uploads under /srv/uploads instead of /var/lib/a/uploads."),
    ("The deadline is May 3.", "The deadline is May 10."),
    ("We use Redis for caching.", "We no longer use Redis."),
    ("The main table is called user_accounts.", "I renamed user_accounts to member_accounts."),
    (
        "The rate limit for Acme is 250 requests per minute.",
        "Correction: the rate limit for Acme is 300 requests per minute.",
    ),
    ("My sister lives in Oslo.", "My sister moved to Bergen, she no longer lives in Oslo."),
    ("The budget for the kitchen is $4,000.", "On second thought, make the kitchen budget $5,500."),
    ("Ticket T-117 was moved to column 2.", "Ticket T-117 was moved to column 3."),
    ("Priya Raman signs off on releases.", "From now on Tom Keller signs off on releases, not Priya Raman."),
]
BOTH_STAY = [
    ("The web server listens on port 80.", "The metrics server listens on port 9100."),
    ("File 1 contains KEY-X value=7919.", "File 2 contains KEY-Y value=1234."),
    ("Alice's limit is 250.", "Bob's limit is 300."),
    ("We use PostgreSQL 15.4 for the ledger.", "Actually, can you sort the imports of main.py?"),
    ("The launch is on 2026-03-14.", "The party is on 2026-04-01."),
    ("Server A runs on 10.0.0.1.", "Server B runs on 10.0.0.2."),
    ("I changed the tyre of the car on 3 May.", "I washed the car on 10 May."),
    ("The staging port is 8443.", "The production port is 443 instead."),
    ("My daughter is 7.", "My son is 9 now."),
    ("I renamed load_first to fetch_first.", "I renamed load_second to fetch_second."),
    ("Ticket T-117 was moved to column 2.", "Ticket T-118 was moved to column 3."),
]


CORPUS = [
    line.split("\t") for line in (Path(__file__).parent / "data" / "statements.tsv").read_text("utf-8").splitlines()
]
"""R: the second replaces the first whole; P: in part, since the first says more; N: both hold."""


def said(*texts, by_user=True):
    return [Statement(text, n + 1, (float(n), 0, 0), by_user) for n, text in enumerate(texts)]


def turns(statements, *late):
    return {i: newer.turn for i, newer in superseded(statements, *late).items()}


def test_no_statement_is_given_up_or_marked_for_one_that_leaves_it_true():
    found = {(sort, old, new): superseded(said(old, new)).get(0) for sort, old, new in CORPUS}
    assert not [pair for (sort, *pair), newer in found.items() if sort == "N" and newer]
    assert not [pair for (sort, *pair), newer in found.items() if sort == "P" and newer and newer.whole]


def test_most_true_replacements_of_the_corpus_are_seen():
    changed = [superseded(said(old, new)) for sort, old, new in CORPUS if sort != "N"]
    assert sum(map(bool, changed)) >= 0.85 * len(changed)


def test_what_is_replaced_whole_is_not_marked_for_a_later_change_of_a_part():
    told = said("The port is 5432.", "The port is now 5433.", "Of the web, the port is now 80.", "The port is 5434.")
    assert superseded(told)[0] == (2, 1, True)


@pytest.mark.parametrize("row", ["| 4 | 79 | 104 |", "| 4 | 79 | 110 |"])
def test_a_row_of_a_table_stays_when_a_cell_of_it_changed(restorer, row):
    table = f"| room | low season | high season |\n| --- | --- | --- |\n{row}\n| 5 | 82 | 120 |"
    talk = [(table, "Noted."), ("Room 4 costs 109 in high season now, not 104.", "Changed."), TALK[1]]
    text = restorer(*talk).at_compaction(ask(present="Nothing.")).text
    assert row in text
    assert "109" in text


@pytest.mark.parametrize(("old", "new"), REPLACED)
def test_a_later_statement_replaces_an_earlier_one(old, new):
    assert turns(said(old, "Something else was said on the 7th.", new)) == {0: 3}


@pytest.mark.parametrize(("old", "new"), BOTH_STAY)
def test_what_only_looks_like_a_contradiction_stays(old, new):
    assert superseded(said(old, new)) == {}


@pytest.mark.parametrize(("old", "new"), REPLACED)
def test_an_earlier_statement_replaces_nothing(old, new):
    old_now_later = [Statement(old, 2, (2.0, 0, 0), False), Statement(new, 1, (1.0, 0, 0), True)]
    assert superseded(old_now_later) == {}


def test_what_an_assistant_says_replaces_nothing():
    assert superseded(said(*REPLACED[0], by_user=False)) == {}


def test_the_newest_of_three_values_wins():
    assert turns(said("The deadline is May 3.", "The deadline is May 10.", "The deadline is May 17.")) == {0: 3, 1: 3}


@pytest.mark.parametrize(
    "texts",
    [
        ("Use port 8080 for staging.", "Use port 9443 instead of 8080 for staging.", "Use port 9550 instead of 9443."),
        ("The budget is 500 euros.", "The budget is now 650 euros.", "Make it 700 euros instead of 650."),
        ("Port is 8080.", "9443 instead of 8080 from now on.", "9550 instead of 9443 from now on."),
    ],
)
def test_a_value_that_was_changed_twice_is_replaced_by_the_last_one_whether_or_not_that_says_the_rest_again(texts):
    assert turns(said(*texts)) == {0: 3, 1: 3}


@pytest.mark.parametrize(
    "texts",
    [
        ("The ingest service listens on port 5432.", "Change the port from 5432 to 6000.", "Make it 7000 instead."),
        ("The port of the shop is 5432.", "The port is now 6000.", "Change the port to 7000 instead."),
        ("The meeting with Petrov is on Monday.", "The meeting moved to Tuesday.", "Actually make it Wednesday."),
        ("The trip may cost 500 euros.", "Bump the trip from 500 to 650 euros.", "Now make it 700 euros."),
    ],
)
def test_a_last_change_replaces_the_first_value_too_though_it_repeats_neither_the_rest_nor_the_value_before(texts):
    assert turns(said(*texts)) == {0: 3, 1: 3}


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        # a pause: it is no longer clear what is meant
        (("The port is 5432.", "Change the port from 5432 to 6000.", "We sing.", "It rains.", "Make it 7 instead."), 2),
        (("The port is 5432.", "Change the port from 5432 to 6000.", "Make it 30 minutes instead."), 2),
        # two values changed, and only one of them once more
        (("Use port 5432 with 30 workers.", "Now use port 6000 with 40 workers.", "Now use 50 workers."), 2),
    ],
)
def test_a_last_change_of_something_else_leaves_the_first_value_to_the_one_before(texts, found):
    assert turns(said(*texts)).get(0) in (found, None)


def test_a_question_block_marks_the_first_of_three_values_with_the_last_one_that_a_block_shows(tmp_path):
    told = ["The ingest service listens on port 5432.", "Change the port from 5432 to 6000.", "Make it 7000 instead."]
    talk = [(f"We put plank {n} into the shed.", f"Plank {n} has its place.") for n in range(20)]
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed([*((each, "Noted.") for each in told), *talk]))
        restorer = Restorer(kept, Config(embed=LEXICAL), None)
        asked = ask("Which port does the ingest service use?", present="Nothing.")
        last = next(each.passage.id for each in restorer.for_question(asked).placed if each.text == told[2])
        text = restorer.for_question(replace(asked, shown=frozenset((last,)))).text
        restorer.close()
    assert f"user #1, but see turn 3] {told[0]}" in text


def test_a_change_without_a_subject_is_of_its_own_session():
    told = said("The port is 5432.", "Make it 7000 instead.")
    assert turns(told) == {0: 2}
    assert turns([told[0], told[1]._replace(session="other")]) == {}


def test_a_value_is_the_same_wherever_it_stands_in_a_sentence():
    old = Changes("The florist: Tulpina, ask for Johanna.")
    assert old.names_old_value("Johanna fell ill.")
    assert not old.has_other_value("She worked at Tulpina.")
    assert old.has_other_value("She works at Rosetta.")


@pytest.mark.parametrize(
    "texts",
    [
        ("The API listens on port 8443.", "The API listens on port 9443 now.", "The API is back to port 8443."),
        ("The rehearsal is at 18:00.", "The rehearsal moved to 18:30.", "Actually the rehearsal is back to 18:00."),
        ("Deploy gateway with 3 replicas.", "Deploy gateway with 5 replicas.", "Set gateway back to 3 replicas."),
        ("The deadline is May 3.", "The deadline is May 10.", "The deadline is May 3."),
    ],
)
def test_what_changed_and_changed_back_holds_and_only_what_was_between_does_not(texts):
    assert turns(said(*texts)) == {1: 3}


@pytest.mark.parametrize(
    "texts",
    [
        ("My flight to Oslo is at 7:40.", "My flight back to Oslo is at 19:20."),
        ("The drive to Graz takes 2 hours.", "The drive back to Graz takes 3 hours."),
        ("We fly to Rome on May 3.", "We fly back to Rome on May 9."),
    ],
)
def test_a_way_back_replaces_no_way_there(texts):
    assert turns(said(*texts)) == {}


def test_what_comes_too_late_replaces_nothing():
    told = said("The port is 3001.", "The port is 3002.", "The port is 3003.")
    late = iter([False, False, True])
    assert turns(told, lambda: next(late)) == {0: 2}


@pytest.mark.parametrize("row", ["The port is {}.", "Actually change the port from {} to 1."])
def test_many_rows_that_read_alike_are_compared_in_linear_time(row):
    def seconds(count: int) -> float:
        told = said(*(row.format(3_000 + n) for n in range(count)))
        began = time.process_time()
        superseded(told)
        return time.process_time() - began

    seconds(100)
    assert seconds(6_000) < 12 * seconds(1_000)


def test_of_a_request_statements_are_read_and_questions_are_not():
    told = "Long ago. We switched to tabs. Fine.\nNo longer\nby 3 May."
    found = list(statements_of_request("Is it 8443? Use port 9443 for staging.", told))
    assert found == ["Use port 9443 for staging.", "We switched to tabs.", "No longer"]


WEIGHT = [("Never give ibuprofen to Tom, he weighs 31 kg.", "OK."), ("Actually Tom weighs 33 kg now.", "Thanks.")]
TALK = [("The API listens on port 8443 in staging.", "Noted."), ("The office dog is called Bruno.", "Hello Bruno.")]
CHANGE = "Actually, the API listens on port 9443 in staging, 8443 is taken."


@pytest.fixture
def restorer(tmp_path):
    archives = []

    def open_with(*turns):
        archive = Archive(tmp_path / f"{len(archives)}.db", synchronous="normal")
        archives.append(archive)
        write(archive, filed(list(turns)))
        return Restorer(archive, Config(embed=LEXICAL, restore=RestoreConfig(admission=0.0)), None)

    yield open_with
    for archive in archives:
        archive.close()


def test_the_loss_block_has_the_newest_value_only(restorer):
    text = restorer(*TALK, (CHANGE, "Changed.")).at_compaction(ask(present="Nothing.")).text
    assert "9443" in text
    assert "8443 in staging" not in text
    assert "Bruno" in text


def test_a_value_that_the_request_itself_replaces_is_not_restored_as_if_it_held(restorer):
    restored = restorer(*TALK).at_compaction(ask(present=f"Nothing. {CHANGE}", users_text=CHANGE))
    assert "8443 in staging" not in restored.text
    block = restorer(*TALK).for_question(ask(f"{CHANGE} Which port did the API have?", present="Nothing."))
    assert "[2023-11-14 user #1, superseded by this request] The API listens on port 8443" in block.text


def test_a_rule_whose_number_changed_stays_beside_the_change(restorer):
    talk = [
        ("Never refund more than 150 EUR without asking me.", "Understood."),
        ("The limit without asking me is now 120 EUR.", "Noted."),
    ]
    text = restorer(*talk).at_compaction(ask(present="Nothing.")).text
    assert text.index("Never refund more than 150 EUR") < text.index("is now 120 EUR")


def test_what_stands_in_a_block_replaces_nothing(restorer):
    """It comes from before, and its entries stand one behind the other."""
    talk = [
        ("I no longer eat meat.", "Noted."),
        ("The check-up is on 17 June.", "The check-up with Dr. Pell is on 17 June at 9:00."),
        *TALK,
    ]
    about = restorer(*talk)
    asked = ask("When is the check-up with Dr. Pell?", present="Nothing.")
    loss = about.at_compaction(asked)
    assert "no longer" in loss.text
    block = about.for_question(replace(asked.with_blocks([loss]), shown=frozenset(), present="Nothing."))
    assert "17 June" in block.text
    assert "superseded" not in block.text


def test_a_question_block_marks_the_older_value(restorer):
    block = restorer(*TALK, (CHANGE, "Changed.")).for_question(
        ask("Which port does the API use in staging?", present="Nothing.")
    )
    assert "user #1, superseded by turn 3] The API listens on port 8443" in block.text
    assert "[user #3] Actually, the API listens on port 9443" in block.text


def test_what_is_changed_in_part_stays_with_what_changes_it(restorer):
    about = restorer(*WEIGHT, *TALK)
    text = about.at_compaction(ask(present="Nothing.")).text
    assert text.index("Never give ibuprofen to Tom") < text.index("Tom weighs 33 kg")
    block = about.for_question(ask("May Tom have ibuprofen?", present="Nothing."))
    assert "user #1, but see turn 2] Never give ibuprofen to Tom, he weighs 31 kg" in block.text
    assert "superseded" not in block.text


def test_a_question_block_marks_a_value_whose_change_the_loss_block_shows(restorer):
    talk = [
        ("The technician comes to the house in Leeds on Thursday.", "Booked. Which door should he take?"),
        ("Actually, the technician comes to the house in Leeds on Friday, not Thursday.", "Friday it is."),
        ("The gate has a keypad.", "Noted."),
    ]
    about = restorer(*talk)
    asked = ask("When does the technician come to the house in Leeds?", present="Nothing.")
    loss = about.at_compaction(asked)
    assert "Friday, not Thursday" in loss.text
    assert "on Thursday" not in loss.text
    block = about.for_question(asked.with_blocks([loss]))
    assert "user #1, superseded by turn 2] The technician comes to the house in Leeds on Thursday" in block.text


@pytest.mark.parametrize(
    "said", ["Actually, use port 9100 for Kestrel, not 9000.", "Kestrel: port 9100 instead of 9000."]
)
def test_an_order_that_replaces_all_that_it_names_needs_no_block(tmp_path, said):
    told = [("Kestrel listens on port 9000.", "Noted."), *((f"Point {n} of the agenda.", "Done.") for n in range(20))]
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed(told))
        restorer = Restorer(kept, Config(embed=LEXICAL), None)
        asked = ask(said, present=f"Nothing. {said}")
        assert restorer.for_question(asked) is None
        assert ("superseded", 0) in {(passed.reason, passed.other) for passed in asked.passed.told}
        question = f"{said} Which port did Kestrel have?"
        assert "port 9000" in restorer.for_question(ask(question, present=f"Nothing. {question}")).text


def test_an_order_that_replaces_a_part_of_what_it_names_gets_the_rest(tmp_path):
    told = [
        ("Kestrel listens on port 9000.", "Noted."), ("Port changes of Kestrel need a word with Odile.", "Noted."),
        *((f"Point {n} of the agenda.", "Done.") for n in range(20)),
    ]  # fmt: skip
    said = "Actually, use port 9100 for Kestrel, not 9000."
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed(told))
        block = Restorer(kept, Config(embed=LEXICAL), None).for_question(ask(said, present=f"Nothing. {said}"))
    assert "Odile" in block.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\u6211\u4eec\u7684\u4f1a\u8bae\u5b9a\u5728\u661f\u671f\u4e09", "\u6539\u5230\u661f\u671f\u4e94"),
        ("\u4e88\u7d04\u306f\u571f\u66dc\u65e5\u3067\u3059", "\u6708\u66dc\u65e5\u306b\u5909\u66f4"),
        (
            "\ud68c\uc758\ub294 \uc218\uc694\uc77c\uc785\ub2c8\ub2e4",
            "\uae08\uc694\uc77c\ub85c \ubc14\uafd4 \uc8fc\uc138\uc694",
        ),
        ("\u95e8\u724c\u662f\u4e09\u5341\u4e8c\u53f7", "\u95e8\u724c\u662f\u56db\u5341\u53f7"),
        ("\u5c3e\u53f7\u662f\u516b\u516b\u4e00\u4e8c", "\u5c3e\u53f7\u662f\u4e5d\u4e00\u4e03\u4e09"),
    ],
)
def test_weekdays_and_written_numbers_between_words_without_spaces_are_values(old, new):
    assert Changes(old).has_other_value(new)
    assert not Changes(old).has_other_value(old)
    assert not Changes(old).has_other_value("\u597d\u7684")


def test_a_long_text_of_plain_words_is_read_in_time_that_grows_with_it():
    began = time.perf_counter()
    ParsedStatement("word " * 4_000)
    short = time.perf_counter() - began
    began = time.perf_counter()
    ParsedStatement("word " * 16_000)
    assert time.perf_counter() - began < 10 * short


def test_a_stop_word_behind_a_number_is_no_unit():
    assert Changes("The share of waste is 11.9.").has_same_unit("It's 8.1 really.")
    assert not Changes("The share of waste is 11.9.").has_same_unit("It's 8.1 litres.")
    assert not Changes("The insulin went to ward 4A.").has_same_unit("The code is 3390.")


def test_a_function_word_of_another_language_behind_a_number_is_no_unit():
    assert Changes("Die Pumpe kostet 34.200 mit Einbau.").has_same_unit("Preis dann 36.500")
    assert Changes("La pompe pèse 45 kg.").has_same_unit("Elle pèse 41 kg.")


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ("豆は月40キロ、1キロ2,600円です。", "30キロから始めます", "席は18席です"),
        ("鯖サンドは950円。", "母が高いと言ったので、880円にしました。", "検査は3月24日です。"),
        ("会费每人260元。", "改成每人240元吧", "一共有12位"),
    ],
)
def test_a_number_within_a_text_without_spaces_has_the_unit_right_behind_it(old, new, other):
    assert Changes(old).has_same_unit(new)
    assert not Changes(old).has_same_unit(other)
