"""Restoring: what was lost comes back, when it is asked for and when it is not; nothing else does."""

import math
import os
import re
import threading
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from msgspec.structs import replace

from lantern_proxy.archive import Archive, Record, RequestRow, SessionRow
from lantern_proxy.chunk import passages, turn_passage
from lantern_proxy.config import Config, EmbedConfig, ReinforceConfig, RestoreConfig
from lantern_proxy.config.retrieval import RetrievalConfig
from lantern_proxy.embed import Embedder, available
from lantern_proxy.pack import WRAPPER_CHARS
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.breaker import Breaker
from lantern_proxy.restore.offers import surroundings_of
from lantern_proxy.restore.question import Evidence, idf_mass, is_answered, parse_question
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.turn import CLIENT, Filed, canonical, item, message

LEXICAL = EmbedConfig(enabled="off")
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SUMMARY = "The user and the assistant set up a billing service and settled a few things."
CHAT = [
    (
        "Hi! I'm starting on a billing service called LedgerFox. The API listens on port 8443 in staging.",
        "LedgerFox it is.",
    ),
    ("We use PostgreSQL 15.4 and the database is named ledger_main.", "Noted: ledger_main on PostgreSQL 15.4."),
    ("Please always write commit messages in the imperative mood.", "Sure, I will do that."),
    ("Our launch is on 2026-03-14, and Priya Raman signs off on releases.", "ACK. I have taken note of that."),
    ("Can you explain how pooling works?", "A pool keeps connections open for later requests. It lends them out."),
    ("I ran the migration and got error LF-2047 in 0007_invoices.sql.", "The file was edited. Run `flyway repair`."),
    ("flyway repair fixed it, thanks!", "Wonderful! Happy to help."),
    ("The rate limit for Acme Corp is 250 requests per minute.", "Okay, 250 requests per minute for Acme Corp."),
    ("Actually, use port 9443 for staging instead, 8443 is taken.", "Changed."),
    ("Store uploads under /var/lib/ledgerfox/uploads.", "Will do."),
    ("I am allergic to peanuts, if we plan the team lunch.", "Thanks for telling me."),
]
TAIL = [("Now sort the imports.", "Done, the imports are sorted."), ("And format the file.", "The file is formatted.")]
FACTS = [
    "LedgerFox", "9443", "15.4", "ledger_main", "imperative", "2026-03-14", "Priya Raman", "LF-2047",
    "0007_invoices.sql", "flyway repair", "250 requests", "/var/lib/ledgerfox/uploads", "peanuts",
]  # fmt: skip


def filed(turns, session="s") -> list[Filed]:
    """Pairs of what the user and the assistant said, as archived messages half a minute apart."""
    said = [(turn, role, text) for turn, pair in enumerate(turns, 1) for role, text in zip(("user", "assistant"), pair)]  # noqa: B905
    return [
        Filed(
            key=f"{session}-{n}",
            position=n,
            turn=turn,
            message=message(role, [item(role, "text", text)], b"{}"),
            created_at=1.7e9 + 30 * n,
        )
        for n, (turn, role, text) in enumerate(said)
    ]


def write(archive, messages, *, tenant="t", session="s", project="", request="r1"):
    turns: dict[int, list[Filed]] = {}
    for f in messages:
        turns.setdefault(f.turn, []).append(f)
    made = [p for f in messages for p in passages(f, session)]
    made += [p for turn in turns.values() if (p := turn_passage(turn, session))]
    (added,) = archive.write(
        [
            Record(
                tenant=tenant,
                project=project,
                session=SessionRow(id=session, api="chat", created_at=1.7e9, last_seen_at=1.7e9),
                request=RequestRow(id=request, at=1.7e9, api="chat", path="/", event="turn"),
                messages=tuple(messages),
                passages=tuple(made),
            )
        ]
    )
    return added


@pytest.fixture
def archive(tmp_path) -> Iterator[Archive]:
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, filed([*CHAT, *TAIL]))
        yield archive


@pytest.fixture
def restorer(archive) -> Iterator[Restorer]:
    restorer = Restorer(archive, Config(embed=LEXICAL), None)
    yield restorer
    restorer.close()


def question_block(folder, messages, asked):
    """Of an archive with these messages, without vectors."""
    with Archive(folder / "a.db") as kept:
        write(kept, messages)
        restorer = Restorer(kept, Config(embed=LEXICAL), None)
        block = restorer.for_question(asked)
        restorer.close()
    return block


def ask(question="", *, present=None, budget=6_000, **more):
    held = (
        canonical(" ".join([SUMMARY, *(text for pair in TAIL for text in pair), question]))
        if present is None
        else present
    )
    given = {
        "tenant": "t",
        "project": "",
        "session": "s",
        "now": 1.7e9 + 9_000,
        "deadline": time.monotonic() + 60,
        **more,
    }
    return Ask(present=held, question=question, summary=SUMMARY, budget_chars=budget, **given)


# at the compaction


def test_the_loss_block_holds_every_lost_fact(restorer):
    restored = restorer.at_compaction(ask())
    assert [fact for fact in FACTS if fact not in restored.text] == []
    assert restored.kind == "loss"
    assert len(restored.text) <= 6_000


def test_a_small_loss_block_holds_most_facts_and_no_filler(restorer):
    restored = restorer.at_compaction(ask(budget=1_500))
    assert sum(fact in restored.text for fact in FACTS) >= 10
    assert "Wonderful" not in restored.text
    assert "ACK" not in restored.text


def test_of_a_group_chat_greetings_are_left_out_and_who_said_it_is_not(tmp_path):
    said = [
        "Ana: Hey Ben! We adopted a grey parrot called Kuro.",
        "Ben: Wow, Ana!",
        "Ben: Thanks so much, Ana! My sister Ilse moved to Trondheim last spring.",
        "Ana: She works at the harbour of Trondheim as a pilot.",
    ]
    with Archive(tmp_path / "group.db", synchronous="normal") as archive:
        write(archive, filed([*((text,) for text in said), *TAIL]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        text = restorer.at_compaction(ask()).text
        restorer.close()
    assert text.split("\n")[2:-1] == [
        "[2023-11-14 user #1] Ana: \u2026 We adopted a grey parrot called Kuro.",
        "[user #3] Ben: \u2026 My sister Ilse moved to Trondheim last spring.",
        "[user #4] Ana: She works at the harbour of Trondheim as a pilot.",
    ]


RECORDS = {
    "a shelf": ("Count the {} shelf", "The {} shelf has 3{n} boxes of brand Zarn-{n}7.", ("north", "south", "east")),
    "a telephone": (
        "{}\u7684\u7535\u8bdd\uff1f",
        "{}\u7684\u7535\u8bdd\u662f13800{n}77{n}1\u3002",
        ("\u5f20\u4e09", "\u674e\u56db", "\u738b\u4e94"),
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_short_answers_of_one_template_come_back(tmp_path, name):
    asked, answer, names = RECORDS[name]
    turns = [(asked.format(each), answer.format(each, n=n)) for n, each in enumerate(names, start=4)]
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, filed(turns))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        text = restorer.at_compaction(ask(present=" ".join(turns[-1]))).text
        restorer.close()
    assert [said for _, said in turns[:-1] if said not in text] == []


STYLE = "The manual is for the drone Pelican 20. British spelling. Active voice. Thanks! Captions below."


@pytest.mark.parametrize(("budget", "whole"), [(6_000, True), (WRAPPER_CHARS + 80, False)])
def test_short_wishes_of_a_message_stay_with_it_where_there_is_room(tmp_path, budget, whole):
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, filed([(STYLE, "Noted.")]))
        restored = Restorer(archive, Config(embed=LEXICAL), None).at_compaction(ask(present="Nothing.", budget=budget))
    assert "Pelican 20" in restored.text
    assert ("British spelling. Active voice." in restored.text, "Captions below." in restored.text) == (whole, whole)
    assert "Thanks" not in restored.text


def test_of_a_group_chat_a_question_block_tells_who_said_it(tmp_path):
    said = ["Ana: Hey Ben! Where does your sister live?", "Ben: Cool! My sister Ilse moved to Trondheim last spring."]
    with Archive(tmp_path / "group.db", synchronous="normal") as archive:
        write(archive, filed([*((text,) for text in said), *TAIL]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        text = restorer.for_question(ask("Where did my sister Ilse move?", budget=1_000)).text
        restorer.close()
    assert "[user #2] Ben: \u2026 My sister Ilse moved to Trondheim last spring." in text


def test_the_newest_value_is_in_even_the_smallest_block(restorer):
    for budget in (500, 700, 1_000):
        text = restorer.at_compaction(ask(budget=budget)).text
        assert "9443" in text


def test_an_echo_of_the_assistant_adds_nothing(restorer):
    restored = restorer.at_compaction(ask())
    assert restored.text.count("250 requests per minute") == 1
    assert "[user #8] The rate limit" in restored.text


def test_what_the_request_holds_is_not_restored(restorer):
    whole = canonical(" ".join(text for pair in [*CHAT, *TAIL] for text in pair))
    assert restorer.at_compaction(ask(present=whole)) is None
    lacking = whole.replace("The rate limit for Acme Corp is 250 requests per minute.", "").replace(
        "Okay, 250 requests per minute for Acme Corp.", ""
    )
    (placed,) = restorer.at_compaction(ask(present=lacking)).placed
    assert placed.text == "The rate limit for Acme Corp is 250 requests per minute."


def test_only_the_sentences_that_are_lost_come_back(tmp_path):
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([("The service is called LedgerFox. Its API listens on port 8443 in staging.", "ACK.")]))
        present = canonical("We talked. The service is called LedgerFox. That was all.")
        (placed,) = Restorer(archive, Config(embed=LEXICAL), None).at_compaction(ask(present=present)).placed
        assert placed.text == "Its API listens on port 8443 in staging."


def test_what_the_request_holds_with_another_time_in_front_is_not_lost(tmp_path):
    said = "The service is called LedgerFox. Its API listens on port 8443 in staging."
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([(f"[2 minutes ago] {said}", "ACK.")]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        assert restorer.at_compaction(ask(present=canonical(f"[9 minutes ago] {said} ACK."))) is None
        lacking = ask(present=canonical("[9 minutes ago] The service is called LedgerFox. ACK."))
        (placed,) = restorer.at_compaction(lacking).placed
        assert placed.text == "Its API listens on port 8443 in staging."
        days = filed([("[2026-03-01 10:07] The gate was shut.", "ACK.")], "days")
        write(archive, days, session="days", request="r2")
        shut = restorer.at_compaction(ask(session="days", present="[2026-03-02 10:09] The gate was shut. ACK."))
        assert shut is not None
        assert "2026-03-01" in shut.text, "when it was is told nowhere else"


def test_a_longer_number_in_the_request_does_not_hide_a_lost_one(tmp_path):
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([("Note KEY-DELTA=1", "ACK KEY-DELTA.")]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        restored = restorer.at_compaction(ask(present="Note KEY-DELTA=18. ACK KEY-DELTA."))
        assert "Note KEY-DELTA=1\n" in restored.text


def test_a_call_whose_arguments_the_request_holds_is_not_lost(tmp_path):
    call = Filed(
        key="c", position=0, turn=1, created_at=1.7e9,
        message=message("assistant", [item("assistant", "call", '{"command": "cat f1.txt"}', name="shell")], b"{}"),
    )  # fmt: skip
    with Archive(tmp_path / "a.db") as archive:
        write(archive, [call])
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        assert restorer.at_compaction(ask(present='shell {"command": "cat f1.txt"}')) is None
        assert "shell: cat f1.txt" in restorer.at_compaction(ask(present="nothing")).text


def test_a_call_of_which_only_a_number_is_gone_is_lost_though_all_its_words_are_said_elsewhere(tmp_path):
    written = '{"path": "notes/3.md", "text": "The staging server of Oulu listens on port 54321."}'
    call = Filed(
        key="c", position=0, turn=1, created_at=1.7e9,
        message=message("assistant", [item("assistant", "call", written, name="write")], b"{}"),
    )  # fmt: skip
    with Archive(tmp_path / "a.db") as archive:
        write(archive, [call])
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        words = "We write the path notes/3.md, a text: the staging server of Oulu, which listens on a port."
        assert "54321" in restorer.at_compaction(ask(present=words)).text
        assert restorer.at_compaction(ask(present=f"{words} It is port 54321.")) is None
        assert restorer.at_compaction(ask(present=f"write {written}")) is None


def test_encoded_data_does_not_flood_the_block(tmp_path):
    noise = (
        "4qvlUg+w44UmAweBwjIDOfYawLByVcpN2f9ocjLAT8WMUZ6Be0+oJfVQvA/recAFp6MSioaB8jnQcX8WgmWDoeopvbdVsfAWRAi3AxrozFFVnxXi0abfrnJz"
        * 12
    )
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([("cat f1", f"file 1 contains KEY-X value=7919 {noise}")]))
        restored = Restorer(archive, Config(embed=LEXICAL), None).at_compaction(ask(present="x"))
        assert "file 1 contains KEY-X value=7919" in restored.text
        assert len(restored.text) < 500


# when a question is known


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("Which port does staging use now?", "9443"),
        ("What is our database named?", "ledger_main"),
        ("Which error did the migration give?", "LF-2047"),
        ("How many requests per minute may Acme Corp make?", "250"),
        ("When is our launch?", "2026-03-14"),
        ("deploy it to the staging port we agreed on", "9443"),
        ("ok and whats the staging port again", "9443"),
        ("and how many requests may Acme Corp make", "250"),
    ],
)
def test_a_literal_question_gets_its_answer_first(restorer, question, fact):
    restored = restorer.for_question(ask(question, budget=2_000))
    assert restored.kind == "question"
    assert any(fact in placed.text for placed in restored.placed[:3])
    assert len(restored.text) <= 2_000


@pytest.mark.parametrize(
    "text",
    [
        "thanks, go on",
        "continue",
        "ok do it",
        "Great, thank you so much!",
        "lgtm, next step please",
        "Now write a function that reverses a linked list.",
        "Add type hints to all functions in this file.",
        "What's the capital of Australia?",
        "Make the button blue and center it.",
        "run the tests",
        "Refactor this:\n```python\nport = 8443\nledger_main = connect(port)\n```",
        "",
        "   \n\t ",
        "\U0001f44d",
    ],
)
def test_chit_chat_and_plain_instructions_add_nothing(restorer, text):
    assert restorer.for_question(ask(text, budget=2_000)) is None


def test_a_long_message_is_read_at_its_telling_sentences(restorer):
    suffix = (
        "\n\nTo suggest changes to a file you MUST return the entire content of the updated file. "
        + "Use the file listing format. " * 60
    )
    restored = restorer.for_question(ask("Which port does staging use now?" + suffix, budget=2_000))
    assert restored is not None
    assert "9443" in restored.text


def test_an_answer_that_the_request_still_holds_is_not_added(restorer):
    question = "How many requests per minute may Acme Corp make?"
    present = canonical(" ".join(text for pair in [*CHAT, *TAIL] for text in pair)) + " " + question
    assert restorer.for_question(ask(question, present=present)) is None


@pytest.mark.parametrize(
    ("kept", "is_there"),
    [
        ("So far Melpasti, Rantinor and Tarwenku were gone through. The platform of Tarwenku is 2.", False),
        ("So far Melpasti and Tarwenku were gone through. The platform of Rantinor is 5.", True),
    ],
)
def test_an_answer_with_the_words_of_a_question_here_and_there_is_none(tmp_path, kept, is_there):
    turns = [("The platform of Rantinor is 5.", "Noted."), ("Let us go on.", "Sure."), ("Sum it up.", kept)]
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, filed(turns))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        with restorer._scope(ask()) as scope:
            fused = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 2.0])
            evidence = Evidence(np.zeros(6), None, fused, {})
            mass = idf_mass(scope, parse_question("What is the platform of Rantinor?"))
            assert is_answered(scope, evidence, mass, 5, [0, 1]) is is_there
        restorer.close()


@pytest.mark.parametrize(
    "asked", ["{} I need to write the firewall rules.", "The review of the rules is due. {}", "{}"]
)
def test_a_question_is_answered_also_beside_a_sentence_that_says_what_it_is_for(tmp_path, asked):
    """The words of that sentence, which stand nowhere in the archive, do not make the evidence weak."""
    named = enumerate(("alder", "birch", "cedar"), start=7101)
    said = [(f"The {name} service listens on port {port}.", "Noted.") for name, port in named]
    said += [(f"Tell me about soil {n} in gardens.", f"Soil {n} needs water and compost.") for n in range(12)]
    question = asked.format("Which ports do alder, birch and cedar listen on?")
    block = question_block(tmp_path, filed(said), ask(question, present=question))
    assert block is not None
    assert all(port in block.text for port in ("7101", "7102", "7103"))


def test_admission_decides_how_good_the_evidence_must_be(archive):
    question = "Which database was it?"
    strict = Restorer(archive, Config(embed=LEXICAL, restore=RestoreConfig(admission=1.0)), None)
    lax = Restorer(archive, Config(embed=LEXICAL, restore=RestoreConfig(admission=0.0)), None)
    assert strict.for_question(ask(question)) is None
    assert "ledger_main" in lax.for_question(ask(question)).text


def test_a_passage_shown_in_a_replayed_block_is_not_added_again(restorer):
    question = "Which port does staging use now?"
    first = restorer.for_question(ask(question, budget=2_000))
    replayed = ask(
        question, budget=2_000, present=canonical(SUMMARY + question) + " " + " ".join(p.text for p in first.placed),
        shown=frozenset(p.passage.id for p in first.placed),
    )  # fmt: skip
    again = restorer.for_question(replayed)
    assert again is None or not {p.text for p in again.placed} & {p.text for p in first.placed}


# what holds for both


@pytest.mark.parametrize("recipe", ["default", "lantern"])
@pytest.mark.parametrize("budget", [0, 100, 261, 300, 400, 999, 2_500])
def test_the_budget_is_never_exceeded(archive, recipe, budget):
    restorer = Restorer(archive, Config(embed=LEXICAL, restore=RestoreConfig(recipe=recipe, admission=0.0)), None)
    loss = restorer.at_compaction(ask(budget=budget))
    assert (loss is not None) or budget < 999
    for restored in (loss, restorer.for_question(ask("Which port is it?", budget=budget))):
        assert restored is None or 0 < len(restored.text) <= budget


@pytest.mark.parametrize("recipe", ["default", "lantern"])
def test_the_same_request_gives_the_same_bytes(archive, recipe):
    config = Config(embed=LEXICAL, restore=RestoreConfig(recipe=recipe))
    texts = {Restorer(archive, config, None).at_compaction(ask()).text for _ in range(3)}
    assert len(texts) == 1


def test_no_tenant_sees_another_tenants_words(archive):
    write(archive, filed([("Our secret port is 7777 in staging.", "Noted.")]), tenant="other", request="r2")
    for scope in ("session", "project", "tenant"):
        restorer = Restorer(archive, Config(embed=LEXICAL, restore=RestoreConfig(scope=scope, admission=0.0)), None)
        for restored in (restorer.at_compaction(ask()), restorer.for_question(ask("Which port does staging use?"))):
            assert "7777" not in restored.text
        assert "9443" not in restorer.at_compaction(ask(tenant="other")).text


def test_the_scope_decides_which_sessions_may_give(archive):
    write(archive, filed([("The printer is on port 9100.", "OK.")], "near"), session="near", project="p", request="r2")
    write(archive, filed([("The scanner is on port 9200.", "OK.")], "far"), session="far", project="q", request="r3")
    found = {}
    for scope in ("session", "project", "tenant"):
        restorer = Restorer(archive, Config(embed=LEXICAL, restore=RestoreConfig(scope=scope, admission=0.0)), None)
        text = restorer.at_compaction(ask(session="new", project="p")) if scope != "session" else None
        found[scope] = (text is not None and "9100" in text.text, text is not None and "9200" in text.text)
    assert found == {"session": (False, False), "project": (True, False), "tenant": (True, True)}


def test_newly_archived_passages_are_found_at_once(archive, restorer):
    assert "Gustav" not in restorer.at_compaction(ask()).text
    new = Filed(
        key="new", position=90, turn=40, created_at=1.7e9 + 5_000,
        message=message("user", [item("user", "text", "The courier is named Gustav Mayr.")], b"{}"),
    )  # fmt: skip
    write(archive, [new], request="r2")
    assert "Gustav Mayr" in restorer.at_compaction(ask()).text
    assert "Gustav Mayr" in restorer.for_question(ask("What is the courier named?")).text


def test_pruned_passages_are_never_restored(archive, restorer):
    from lantern_proxy.archive import PruneRule

    assert restorer.at_compaction(ask()) is not None
    archive.of("t").prune(PruneRule(session="s"), now=1.8e9, dry_run=False)
    assert restorer.at_compaction(ask()) is None


def test_a_passed_deadline_is_honoured_and_told(restorer):
    late = ask("Which port does staging use now?", deadline=time.monotonic() - 1)
    restored = restorer.for_question(late)
    assert "restore:deadline" in (restored.degraded if restored else late.degraded)
    late = ask(deadline=time.monotonic() - 1)
    restored = restorer.at_compaction(late)
    assert "restore:deadline" in (restored.degraded if restored else late.degraded)


@pytest.mark.parametrize(
    "text",
    [
        "\ud800 lone",
        "\x00\x01",
        "a" * 100_000,
        "(" * 5_000,
        "</restored_context>" * 50,
        "\u202e\u200b",
        "1.2.3." * 2_000,
    ],
)
def test_weird_text_raises_nothing(tmp_path, text):
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([(text, "Use port 9443. " + text)]))
        restorer = Restorer(archive, Config(embed=LEXICAL, restore=RestoreConfig(admission=0.0)), None)
        for restored in (
            restorer.at_compaction(ask(present=text[:50])),
            restorer.for_question(ask("Which port? " + text)),
        ):
            assert restored is None or len(restored.text) <= 6_000


def test_many_threads_may_ask_and_archive_at_once(archive, restorer):
    failures = []

    def work(n):
        try:
            for k in range(10):
                new = Filed(
                    key=f"{n}-{k}", position=100 + 10 * n + k, turn=50, created_at=1.7e9,
                    message=message("user", [item("user", "text", f"Box {n}-{k} is blue.")], b"{}"),
                )  # fmt: skip
                write(archive, [new], request=f"q{n}-{k}")
                restorer.at_compaction(ask())
                restorer.for_question(ask("Which port does staging use now?"))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_every_placed_passage_tells_its_rank_score_and_signals(restorer):
    restored = restorer.for_question(ask("Which port does staging use now?"))
    assert [p.rank for p in restored.placed] == list(range(1, len(restored.placed) + 1))
    assert all("bm25" in p.signals for p in restored.placed)
    assert max(p.score for p in restored.placed) > 1.0  # standard deviations above the mean
    assert all(p.text.split(" \u2026 ")[0] in restored.text for p in restored.placed)
    assert restored.considered >= len(restored.placed)


def test_the_recipe_of_the_paper_restores_summaries_of_turns(archive):
    restorer = Restorer(archive, Config(embed=LEXICAL, restore=RestoreConfig(recipe="lantern")), None)
    restored = restorer.at_compaction(ask("Which port does staging use now?", budget=900))
    assert {p.passage.unit for p in restored.placed} == {"turn"}
    assert "9443" in restored.text
    assert {"bm25", "keywords", "importance"} <= set(restored.placed[0].signals)
    assert restorer.for_question(ask("Which port does staging use now?")) is None


# after the answer


def test_a_used_passage_gains_and_an_unused_one_loses(archive, restorer):
    restored = restorer.for_question(ask("Which port does staging use now?"))
    used = next(p.passage.id for p in restored.placed if "9443" in p.text)
    ids = [p.passage.id for p in restored.placed]
    blocks = dict.fromkeys(ids, "question")
    updates, was_used = restorer.settle("t", blocks, "Staging uses port 9443.", 1.7e9 + 100)
    assert set(updates) == set(was_used) == set(ids)
    assert was_used[used]
    assert updates[used] == (pytest.approx(0.65), pytest.approx(0.55), 1, 1.7e9 + 100)
    assert all(
        update[0] == pytest.approx(0.48) for id_, update in updates.items() if id_ != used and "9443" not in str(id_)
    )
    archive.of("t").reinforce(updates)
    assert archive.of("t").passages_by_id([used])[used].confidence == pytest.approx(0.65)


def test_what_the_request_said_itself_proves_no_use(restorer):
    question = "Is it true that staging uses port 9443?"
    restored = restorer.for_question(ask(question))
    ids = [p.passage.id for p in restored.placed]
    updates, was_used = restorer.settle("t", dict.fromkeys(ids, "question"), "Yes: port 9443.", 1.7e9)
    assert all(update[0] <= 0.5 for update in updates.values())
    assert not any(was_used.values())


def test_what_nobody_asked_for_is_restored_however_often_no_answer_says_it(archive, restorer):
    first = {p.passage.id for p in restorer.at_compaction(ask()).placed}
    for n in range(40):
        updates, _ = restorer.settle("t", dict.fromkeys(first, "loss"), "Fine.", 1.7e9 + n)
        archive.of("t").reinforce(updates)
    assert {p.passage.id for p in restorer.at_compaction(ask()).placed} == first
    assert all(each.confidence == 0.5 for each in archive.of("t").passages_by_id([*first]).values())


def test_what_a_question_brought_in_vain_still_comes_when_it_is_asked_for(archive, restorer):
    question = ask("Which port does staging use now?")
    first = restorer.for_question(question)
    for n in range(40):
        updates, _ = restorer.settle("t", {p.passage.id: "question" for p in first.placed}, "Fine.", 1.7e9 + n)
        archive.of("t").reinforce(updates)
    assert "9443" in restorer.for_question(question).text


def test_a_passage_below_the_minimum_is_not_restored(archive):
    config = Config(embed=LEXICAL, reinforce=ReinforceConfig(minimum=0.15))
    restorer = Restorer(archive, config, None)
    ids = [p.passage.id for p in restorer.at_compaction(ask()).placed]
    archive.of("t").reinforce(dict.fromkeys(ids, (0.1, 0.0, 9, 1700000000.0)))
    restored = restorer.at_compaction(ask())
    assert restored is None or not set(ids) & {p.passage.id for p in restored.placed}


# vectors


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    if not available():
        pytest.skip("the extra `dense` is not installed")
    cache = Path(os.environ.get("LANTERN_TEST_CACHE") or Path(__file__).resolve().parent.parent / ".cache" / "embed")
    with Embedder(MODEL, cache) as embedder:
        embedder.start()
        assert embedder.wait(240), embedder.detail
        yield embedder


def embed_all(archive, embedder):
    rows = archive.unembedded(1_000)
    sessions = {id_: archive.of(tenant).passages_by_id([id_])[id_].session for tenant, id_, _ in rows}
    vectors = embedder.embed([text for _, _, text in rows])
    archive.add_vectors(
        embedder.name, embedder.dim, [(t, sessions[i], i, v) for (t, i, _), v in zip(rows, vectors, strict=True)]
    )


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("What food must be avoided when the group eats?", "peanuts"),
        ("Who has to approve before we ship?", "Priya Raman"),
        ("How should I phrase what goes into git?", "imperative"),
    ],
)
def test_a_question_in_other_words_finds_its_answer(archive, embedder, question, fact):
    embed_all(archive, embedder)
    restorer = Restorer(archive, Config(restore=RestoreConfig(admission=0.2)), embedder)
    restored = restorer.for_question(ask(question, budget=1_000))
    assert fact in restored.text
    assert "vector" in restored.placed[0].signals
    assert restored.degraded == ()


def test_a_question_without_one_shared_word_finds_its_answer(tmp_path, embedder):
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([*CHAT, ("My daughter Ada was born on the 9th of June.", "Lovely!"), *TAIL]))
        embed_all(archive, embedder)
        restored = Restorer(archive, Config(), embedder).for_question(ask("When is my child's birthday?", budget=600))
        assert "9th of June" in restored.text


@pytest.mark.parametrize(
    "text",
    ["thanks, go on", "Write unit tests for the parser class.", "What's the capital of Australia?", "run the tests"],
)
def test_vectors_do_not_make_chit_chat_a_question(archive, embedder, text):
    embed_all(archive, embedder)
    assert Restorer(archive, Config(), embedder).for_question(ask(text)) is None


class CountedEmbedder:
    """Says of every question the same, and remembers which it was asked."""

    adapted = False
    name, state, detail, dim, recipe = "counted", "ready", "", 4, ""

    def __init__(self):
        self.asked: list[str] = []

    def embed_question(self, text):
        self.asked.append(text)
        return np.array([1, 0, 0, 0], np.float32), None


def test_a_question_that_is_expected_is_embedded_once(archive):
    embedder = CountedEmbedder()
    chance = np.random.default_rng(1)
    rows = archive.unembedded(1_000)
    archive.add_vectors("counted", 4, [(t, "s", i, chance.random(4).astype(np.float32)) for t, i, _ in rows])
    config = Config(restore=RestoreConfig(admission=0.0), retrieval=RetrievalConfig(tau=1.0))
    restorer = Restorer(archive, config, embedder)
    restorer.expect("What is the database called?")
    assert "vector" in restorer.for_question(ask("What is the database called?")).placed[0].signals
    assert len(embedder.asked) == 1
    restorer.expect("thanks")  # asks for nothing
    restorer.for_question(ask("Who has to approve before we ship?"))
    assert len(embedder.asked) == 2


def test_a_question_behind_the_name_of_who_asks_is_embedded_once(tmp_path):
    embedder, said = CountedEmbedder(), "Mirko: Where does the attic key hang?"
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed(GROUP))
        chance = np.random.default_rng(1)
        rows = kept.unembedded(1_000)
        kept.add_vectors("counted", 4, [(t, "s", i, chance.random(4).astype(np.float32)) for t, i, _ in rows])
        restorer = Restorer(kept, Config(retrieval=RetrievalConfig(tau=1.0)), embedder)
        restorer.expect(said)
        assert restorer.for_question(ask(said, present="Nothing.", budget=1_500)) is not None
        restorer.close()
    assert embedder.asked == ["Where does the attic key hang?"]


def test_a_channel_that_is_not_ready_is_told(archive):
    cold = Embedder(MODEL, "/nonexistent")
    restored = Restorer(archive, Config(), cold).for_question(ask("What is the database called?"))
    assert restored.degraded == ("dense:off",)
    asked = ask("What is the database called?")
    assert Restorer(archive, Config(embed=LEXICAL), None).for_question(asked).degraded == ()
    asked = ask("thanks, go on")
    Restorer(archive, Config(), None).for_question(asked)
    assert asked.degraded == []


def test_the_breaker_opens_after_failures_in_a_row_and_closes_by_itself():
    breaker = Breaker(limit=3, rest_s=30)
    for ok in (False, False, True, False, False):
        breaker.record(ok, 100.0)
    assert not breaker.open(100.0)
    breaker.record(False, 100.0)
    assert breaker.open(129.0)
    assert not breaker.open(131.0)


@pytest.mark.parametrize(
    ("text", "reacts", "points"),
    [
        ("Which port did we choose for staging?", False, False),
        ("Wow, that sounds great! What is it about?", True, True),
        ("Nate: Thanks, Joanna! Where did you go?", True, True),
        ("Thanks! Which port did we choose for staging?", True, False),
        ("Right-click menus are broken, which file renders the toolbar?", False, False),
        ("Thankfully the build passed; why was the cache key renamed?", False, False),
    ],
)
def test_what_takes_up_the_last_message_is_told_from_a_question_that_stands_alone(text, reacts, points):
    read = parse_question(text)
    assert (read.reacts, read.unspecific) == (reacts, points)


@pytest.mark.parametrize("sign", ["!", "! ", "``` ", "\u200b", "A.: "])
def test_a_question_of_signs_is_read_in_linear_time(sign):
    def seconds(chars: int) -> float:
        began = time.process_time()
        parse_question(sign * (chars // len(sign)))
        return time.process_time() - began

    seconds(1_000)
    assert min(seconds(8_000) for _ in range(3)) < 25 * max(0.002, min(seconds(1_000) for _ in range(3)))


def test_neither_words_nor_vectors_see_how_a_question_is_asked():
    plain = parse_question("the oak staircase")
    asked = parse_question("Can you give me a brief summary of the oak staircase across our conversations?")
    assert asked.terms == plain.terms
    assert asked.subject.strip("?") == plain.subject


def test_of_two_that_fit_a_question_alike_the_one_that_tells_more_comes_first(tmp_path):
    said = [
        ("Those peppers are nice, they really are very nice, you know how it is.", "ok"),
        ("We ordered 40 peppers of Kowalski Seeds in March for the garden of Ana.", "ok"),
    ]
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed(said))
        restored = Restorer(kept, Config(embed=LEXICAL), None).for_question(ask("What about the peppers?", present=""))
    assert restored.placed[0].passage.turn == 2


@pytest.mark.parametrize("form", ["{said}", "{state}\n\n{said}", "{said}\n\n{state}"])
def test_an_answer_to_a_question_is_one_wherever_its_client_writes_the_state(tmp_path, form):
    state = "<environment_details>\n# Open Tabs\nsrc/main.py\n</environment_details>"
    talk = [("Let us plan the trip.", "Which town would you like?"), (form.format(said="Lugano", state=state), "Fine.")]
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed(talk))
        scope = Scope(Key("t", None, "s"))
        scope.catch_up(kept, math.inf)
        said = {read.passage.text: row for row, read in enumerate(scope.passages) if read.passage.speaker != CLIENT}
        told = [text for text, row in said.items() if surroundings_of(scope, row).answers]
        scope.index.close()
    assert told == ["Lugano"]


@pytest.mark.parametrize("session", ["s", None])
def test_an_answer_to_a_question_is_one_though_another_session_said_something_meanwhile(tmp_path, session):
    talk = filed([("Let us plan the trip.", "Which town would you like?"), ("Lugano", "Fine.")])
    others = filed([("We sing.", "Two songs."), ("Which one?", "The short one.")], session="other")
    with Archive(tmp_path / "a.db") as kept:
        for n, (one, other) in enumerate(zip(talk, others, strict=True)):
            write(kept, [one], request=f"r{n}")
            write(kept, [other], session="other", request=f"o{n}")
        scope = Scope(Key("t", None, session))
        scope.catch_up(kept, math.inf)
        told = [read.flat for row, read in enumerate(scope.passages) if surroundings_of(scope, row).answers]
        scope.index.close()
    assert told == ["Lugano", *(["The short one."] if session is None else [])]


def test_an_agent_reports_of_a_result_though_its_client_writes_the_state_behind_it(tmp_path):
    result = [item("user", "text", "[read_file for 'main.py'] Result:\nPORT = 8443")]
    state = [item("user", "text", "<environment_details>\nsrc/main.py\n</environment_details>")]
    first, answer, result_of, report = filed([("Which port is it?", "I look."), ("", "It listens on port 8443.")])
    with Archive(tmp_path / "a.db") as kept:
        write(
            kept, [first, answer, structs.replace(result_of, message=message("user", [*result, *state], b"{}")), report]
        )
        scope = Scope(Key("t", None, "s"))
        scope.catch_up(kept, math.inf)
        speakers = [read.passage.speaker for read in scope.passages]
        reports = [surroundings_of(scope, row).reports for row in range(len(scope))]
        scope.index.close()
    assert speakers == ["user", "assistant", "tool", "client", "assistant"]
    assert reports == [False, False, False, False, True]


def test_the_state_that_a_client_writes_into_every_message_takes_no_room_from_what_its_user_said(tmp_path):
    def state(n: int) -> str:
        tabs = "\n".join(f"src/part_{(n + k) % 9}/view_{n * k % 7}.py" for k in range(6))
        return f"<environment_details>\n# Open Tabs\n{tabs}\n# Time\n3/1/2026, 10:{n:02d}:12 PM\n</environment_details>"

    facts = [f"The {name} ships through gate {n + 3}." for n, name in enumerate(["mill", "foundry", "dairy", "quarry"])]
    said = [(f"{facts[n % 4] if n < 4 else 'Go on, please.'}\n\n{state(n)}", "ok") for n in range(30)]
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed(said))
        block = Restorer(kept, Config(embed=LEXICAL), None).at_compaction(ask(budget=1_500))
        assert block is not None
        assert all(fact in block.text for fact in facts)
        assert sum(len(p.text) for p in block.placed if p.passage.speaker == CLIENT) <= 150
        asked = Restorer(kept, Config(embed=LEXICAL), None).for_question(
            ask("Which tabs were open besides src/part_4/view_0.py?")
        )
        assert asked is not None
        assert "[client #" in asked.text
        assert not re.search(r"^\[[^\]]*\buser #[^\[]*Open Tabs", asked.text, re.M)


NAMED = [
    ("For Kuborsel, the password is pewter-gamel.", "Noted."),
    ("The depot of Tinormel opens at 7:45.", "Noted."),
    ("Let us look at the weather first.", "It rains. Most Danish depots close tomorrow."),
    *((f"We talked about point {n} of the agenda.", f"Point {n} is done.") for n in range(20)),
]


@pytest.mark.parametrize(
    ("said", "comes"),
    [
        ("Write the password of Kuborsel into the report.", "pewter-gamel"),
        ("Now tell the driver when Tinormel opens.", "7:45"),
        ("Send somebody to Tinormel.", "7:45"),
        ("Call Tinormel tonight.", "7:45"),
        ("Write the password into the report.", ""),
        ("Go on with the agenda, please.", ""),
        ("Thanks, Kuborsel! See you.", ""),
        ("See you tomorrow.", ""),
        ("How do you say 'cheers' in Danish?", ""),
        ("Translate it into Danish.", ""),
    ],
)
def test_an_order_that_names_something_lost_gets_what_was_said_of_it(tmp_path, said, comes):
    block = question_block(tmp_path, filed(NAMED), ask(said))
    assert (comes in block.text and len(block.placed) == 1) if comes else block is None


IN_SMALL_LETTERS = [
    ("birch listens on 7411 and needs the cache beside it.", "Noted."),
    ("spruce is on 7422, it waits for the database.", "Noted."),
    ("The spare key is with the neighbour who has a parrot.", "Noted."),
    ("Die drohne habe ich f\u00fcr 1180 gekauft.", "Notiert."),
    ("Les courges ont besoin de 3 litres d'eau.", "C'est not\u00e9."),
    ("I added two panes, so it is 12 in all.", "Noted."),
    ("```\nretries = 9\n```", "Noted."),
    ("Could the lantern be worth 300?", "Hardly."),
]
AGENDA = [(f"We talked about point {n} of the agenda.", f"Point {n} is done.") for n in range(20)]
SPREAD = [each for told, point in zip_longest(IN_SMALL_LETTERS, AGENDA) for each in (told, point) if each]
"""Two statements in a row would be one and its correction."""


@pytest.mark.parametrize(
    ("said", "comes"),
    [
        ("Write a docker compose for birch and spruce with the right ports", ["7411", "7422"]),
        ("draft a readiness probe for birch", ["7411"]),
        ("tell the guests in a note where the spare key is", ["parrot"]),
        ("mach den abschreibungsplan f\u00fcr die drohne", ["1180"]),
        ("\u00e9cris le programme d'arrosage pour les courges", ["3 litres"]),
        ("draft a note for the neighbour", []),  # it is the subject of nothing
        ("suggest two warm dishes for the guests", []),  # a number is no name
        ("add all retries", []),
        ("draw me a lantern", []),
        ("go on with the agenda", []),
    ],
)
def test_an_order_that_names_something_in_small_letters_gets_what_its_user_said_of_it(tmp_path, said, comes):
    block = question_block(tmp_path, filed(SPREAD), ask(said))
    assert all(each in block.text for each in comes) if comes else block is None


def test_what_the_request_names_in_small_letters_is_no_reason_for_a_block(tmp_path):
    said = "draft a readiness probe for birch"
    asked = ask(said, present=canonical(f"birch is up again. {said}"))
    assert question_block(tmp_path, filed(SPREAD), asked) is None


def test_an_order_that_names_many_things_gets_what_was_said_of_each(tmp_path):
    """A name in many passages is a topic; several names in one passage each are not."""
    ports = {"birch": 7411, "spruce": 7422, "alder": 7433, "cedar": 7444, "rowan": 7455}
    told = [(f"{name} listens on {port} and is new.", "Noted.") for name, port in ports.items()]
    said = "Write a compose file for birch, spruce, alder, cedar and rowan, with the ports"
    block = question_block(tmp_path, filed([*told, *AGENDA]), ask(said))
    assert all(f"listens on {port}" in block.text for port in ports.values())


def test_a_second_name_is_another_word_of_an_order(tmp_path):
    """Every noun of German looks like a name."""
    told = [(f"Die Lieferadresse von {name} ist Tor 30 am Hafen.", "Notiert.") for name in ("Tinormel", "Kuborsel")]
    talk = [(f"Punkt {n} der Liste ist fertig.", f"Gut, Punkt {n}.") for n in range(20)]
    said = "Trage Lieferadresse von Kuborsel in den Bericht ein."
    present = canonical(f"Es ging um Kuborsel, um jede Lieferadresse und um den Bericht. {said}")
    block = question_block(tmp_path, filed([*told, *talk]), ask(said, present=present))
    assert [placed.text for placed in block.placed] == [told[1][0]]


def test_an_order_gets_no_more_of_a_name_that_the_request_tells_of(tmp_path):
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed(NAMED))
        restorer = Restorer(kept, Config(embed=LEXICAL), None)
        told = canonical(f"Kuborsel and Tinormel are in it. {SUMMARY}")
        assert (
            restorer.for_question(ask("Send somebody to Tinormel.", present=f"{told} Send somebody to Tinormel."))
            is None
        )
        said = "Write when Tinormel opens."
        assert "7:45" in restorer.for_question(ask(said, present=f"{told} {said}")).text


def test_a_request_that_is_too_long_to_be_read_in_time_costs_no_index(restorer):
    assert restorer.for_question(ask("Which port does the ingest service use?")) is not None
    late = replace(ask("", present="word " * 200_000), deadline=time.monotonic() - 0.001)
    assert restorer.at_compaction(late) is None
    assert "restore:deadline" in late.degraded
    assert len(restorer._scopes) == 1


PEOPLE = [
    ("Zawadi: My father's feet hurt since the wedding.", "Baraka: Tell him to soak them in salt."),
    ("Zawadi: He did, in the blue bucket, for an hour.", "Baraka: And the doctor in Moshi?"),
    *((f"Zawadi: The hens laid {n + 3} eggs again.", f"Baraka: That makes {n + 4} with mine.") for n in range(12)),
]


def test_a_question_that_goes_on_with_what_was_just_said_among_people_gets_no_block(tmp_path):
    """What it names little of is what was just said; alone, it is what may have been said long ago."""
    told = [*PEOPLE, ("Zawadi: You are your father's son.", "Baraka: So they say.")]
    with Archive(tmp_path / "a.db") as kept:
        write(kept, [structs.replace(f, message=message("user", f.message.items, b"{}")) for f in filed(told)])
        restorer = Restorer(kept, Config(embed=LEXICAL), None)
        assert restorer.for_question(ask("You're your father's son. How are the feet?", present="Nothing.")) is None
        assert "feet hurt" in restorer.for_question(ask("How are the feet of my father?", present="Nothing.")).text
        restorer.close()


def test_a_letter_that_no_passage_has_is_no_name(tmp_path):
    told = ("The semitone below the keynote is H for us, the German way.", "Noted, H below the keynote.")
    talk = [(f"We sang piece {n + 30} today in the loft.", f"Piece {n + 30}.") for n in range(16)]
    block = question_block(
        tmp_path,
        filed([*talk[:6], told, *talk[6:]]),
        ask("Which note lies a semitone below C?", present="Nothing.", budget=500),
    )
    assert told[0] in block.text


LETTERS = "ABCDEFGHIJKLMNOPQRST"


@pytest.mark.parametrize("letter", ["B", "K", "T"])
def test_a_name_of_one_letter_is_found(tmp_path, letter):
    guests = (
        "Abel Bruno Carla Dario Elke Falk Greta Hanno Ilse Jost Karin Lothar Mila Nuno Olga Pavel Rosa Sven Tilda Ulf"
    )
    named = zip(LETTERS, guests.split(), strict=True)
    tables = [(f"Table {name} is for {guest} and family.", "Noted.") for name, guest in named]
    block = question_block(tmp_path, filed(tables), ask(f"Who sits at table {letter}?", present="Nothing.", budget=900))
    best = min(block.placed, key=lambda placed: placed.rank)
    assert best.text.startswith(f"Table {letter} is")


GROUP = [
    ("Mirko: The boiler man wants 240 for the valve.", "Noted, 240 for the valve."),
    ("Jorunn: Mirko will pay him on Friday.", "Noted."),
    ("Mirko: The attic key hangs behind the clock.", "Noted."),
    *((f"{'Mirko' if n % 2 else 'Jorunn'}: We read page {n + 30} today.", f"Page {n + 30}.") for n in range(14)),
]


@pytest.mark.parametrize(
    ("said", "comes"),
    [
        ("Mirko: And what did you say?", ""),
        ("Mirko: So who looks at it?", ""),
        ("Mirko: Where does the attic key hang?", "clock"),
        ("Jorunn: Does Mirko pay the boiler man?", "Friday"),
        ("Minutes: What did Mirko say of the valve?", "240"),
    ],
)
def test_the_name_of_who_asks_is_not_what_is_asked_for(tmp_path, said, comes):
    """It stands before half of what was said, and was all that these questions named."""
    block = question_block(tmp_path, filed(GROUP), ask(said, present="Nothing.", budget=1_500))
    assert comes in block.text if comes else block is None


def test_a_heading_in_front_of_a_question_is_asked_for_though_a_message_begins_with_it(tmp_path):
    rooms = [
        ("Kitchen: the tiles are 41 a square metre.", "Noted."),
        ("Bathroom: the tiles are 67 a square metre.", "Noted."),
    ]
    talk = [(f"We put {n + 30} planks into the shed.", f"Good, {n + 30}.") for n in range(14)]
    block = question_block(
        tmp_path,
        filed([*talk[:5], rooms[0], *talk[5:9], rooms[1], *talk[9:]]),
        ask("Kitchen: what do the tiles cost?", present="Nothing.", budget=300),
    )
    assert min(block.placed, key=lambda placed: placed.rank).text == rooms[0][0]


@pytest.mark.parametrize("is_bot", [True, False])
def test_among_people_alone_who_names_something_gives_no_order(tmp_path, is_bot):
    said = "Jorunn: Tell the Hvalerby people about the boiler."
    told = [("Mirko: The ferry to Hvalerby leaves at 6:35.", "Jorunn: I never was there."), *GROUP]
    messages = filed(told)
    if not is_bot:
        messages = [structs.replace(f, message=message("user", f.message.items, b"{}")) for f in messages]
    block = question_block(tmp_path, messages, ask(said, present="Nothing.", budget=1_500))
    assert "6:35" in block.text if is_bot else block is None


def test_a_user_leads_in_to_what_they_ask_an_assistant(restorer):
    assert "9443" in restorer.for_question(ask("The tests pass. Which port does staging use?", budget=2_000)).text


def test_a_user_with_a_name_in_front_leads_in_to_what_they_ask_an_assistant(tmp_path):
    said = [("Anna: My dentist is Dr. Okafor in Lund.", "Noted, Dr. Okafor in Lund is your dentist."), *PEOPLE[4:]]
    told = [(a.replace("Zawadi", "Anna"), b.replace("Baraka: ", "")) for a, b in said]
    with Archive(tmp_path / "a.db") as kept:
        write(kept, filed(told))
        restorer = Restorer(kept, Config(embed=LEXICAL), None)
        asked = ask("Anna: My tooth hurts. Who is my dentist?", present="Nothing.")
        assert "Okafor" in restorer.for_question(asked).text
        restorer.close()
