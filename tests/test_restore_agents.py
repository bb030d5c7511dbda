"""Blocks of agents' sessions: few words of a user, many calls, much that was printed."""

from collections.abc import Iterator

import pytest
from test_restore import LEXICAL, ask, write

from lantern_proxy.archive import Archive
from lantern_proxy.config import Config
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.turn import Filed, item, message

LISTING = "\n".join(
    f"src/stage_{n}/pool_{n * 7}.py:{n * 13}: self.release(lease_{n}, limit={n}00)" for n in range(1, 30)
)
SOURCE = "\n".join(f"{n:>5}\u2192    limit_{n} = take(lease_{n}, {n * 50})" for n in range(1, 40))
TESTS = "\n".join(f"--- PASS: TestPool{n} (0.{n}s)" for n in range(10, 50))
STEPS: list[tuple[str, str, str]] = [
    ("user", "", "the nightly export fails, find out why. never write to db-04, finance reads from it"),
    ("call", "Bash", "grep -rn release src | head -40"),
    ("tool", "Bash", LISTING),
    ("call", "Read", "src/stage_3/pool.py"),
    ("tool", "Read", SOURCE),
    ("call", "Bash", "python export.py --dry-run"),
    ("tool", "Bash", f"{TESTS}\nERROR volume vol-7716 is full\n"),
    ("assistant", "", "The export fails since volume vol-7716 is full. It holds dumps of 2024 that nobody removes."),
    ("user", "", "remove the dumps older than 30 days then. and mute the alarm for tonight? no wait, keep it"),
    ("call", "Bash", "find /dumps -mtime +30 -delete"),
    ("tool", "Bash", LISTING.replace("release", "expire")),
    ("assistant", "", "Removed the dumps older than 30 days: 412 files. The alarm stays."),
    ("user", "", "the export must be done by 06:30, Tamsin sends it to the auditors"),
    ("call", "Bash", "git log --oneline"),
    ("tool", "Bash", TESTS.replace("PASS", "SKIP")),
    ("assistant", "", "It is scheduled for 04:10 and takes 35 minutes, so Tamsin has it by 06:30 for the auditors."),
]


def of(steps: list[tuple[str, str, str]], session: str = "s") -> list[Filed]:
    made, turn = [], 0
    for n, (who, tool, text) in enumerate(steps):
        turn += who == "user"
        role = "assistant" if who == "call" else who
        kind = {"call": "call", "tool": "result"}.get(who, "text")
        said = message(role, [item(role, kind, text, name=tool)], b"{}")
        made.append(Filed(key=f"{session}-{n}", position=n, turn=turn, message=said, created_at=1.7e9 + n))
    return made


@pytest.fixture
def restorer(tmp_path) -> Iterator[Restorer]:
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, of(STEPS))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        yield restorer
        restorer.close()


def test_the_loss_block_holds_what_was_said_and_found_and_nothing_that_was_printed_by_the_row(restorer):
    block = restorer.at_compaction(ask(present="A summary.")).text
    for said in ("never write to db-04", "vol-7716", "30 days", "06:30", "412 files", "04:10"):
        assert said in block
    for printed in ("lease_", "self.release", "TestPool", "src/stage_", "git log"):
        assert printed not in block


def test_what_takes_back_a_wish_stands_beside_it(restorer):
    assert "mute the alarm for tonight? no wait, keep it" in restorer.at_compaction(ask(present="A summary.")).text


def test_a_question_brings_what_answers_it_and_no_output_beside_it(restorer):
    asked = ask("Which volume was full when the export failed?", present="A summary.")
    block = restorer.for_question(asked).text
    assert "vol-7716" in block
    assert not any(printed in block for printed in ("lease_", "TestPool", "src/stage_", "04:10"))
    assert "weak" in {passed.reason for passed in asked.passed.told}


def test_what_was_printed_answers_a_question_that_names_it(restorer):
    block = restorer.for_question(ask("What was the release limit of lease_17 in stage_17?", present="A summary.")).text
    assert "limit=1700" in block
    assert "limit=1800" not in block


def test_all_there_is_comes_back_where_it_was_printed(tmp_path):
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, of([("call", "Bash", "cat notes.txt"), ("tool", "Bash", "\n".join(TESTS.split("\n")[:6]))]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        block = restorer.at_compaction(ask(present="A summary."))
        restorer.close()
    assert "cat notes.txt" in block.text


def test_the_last_row_of_a_long_output_is_a_row_though_its_passage_holds_no_other(tmp_path):
    listing = [f"{n:04x}abc{n} drop the {word} of {word}_{n}" for n in range(60) for word in ("cart",)]
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        for n in range(40, 60):  # one of these lengths leaves a single row behind
            steps = [("user", "", f"look at Kestrel-{n}"), ("tool", "Bash", "\n".join(listing[:n]))]
            write(archive, of([*steps, ("assistant", "", f"Kestrel-{n} drops it.")], f"s{n}"), session=f"s{n}")
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        blocks = [restorer.at_compaction(ask(present="A summary.", session=f"s{n}")).text for n in range(40, 60)]
        restorer.close()
    assert not [block for block in blocks if "drop the cart" in block]


SETTINGS = """services:
  api:
    environment:
      REQUEST_TIMEOUT: 45s
    deploy:
      replicas: 3
  worker:
    environment:
      REQUEST_TIMEOUT: 300s
    deploy:
      replicas: 5
"""
SECTIONS = """[server.tls]
cert = "/etc/quay/tls.pem"
min_version = "1.2"

[storage.compaction]
enabled = true
max_segment_mb = 96
"""
LOOKED: list[tuple[str, str, str]] = [
    ("user", "", "look at the settings of quay before you change them, Oda reads along"),
    ("call", "Read", "deploy/compose.yaml"),
    ("tool", "Read", SETTINGS),
    ("call", "Read", "quay.toml"),
    ("tool", "Read", SECTIONS),
    ("assistant", "", "Both are as Oda described them."),
    ("user", "", "how would you roll it out?"),
    (
        "assistant",
        "",
        "Deploy the worker first, with the old settings. Turn refunds on for tenant 12 and watch"
        " refunds_failed_total for 30 minutes. Then write to everybody in the company.",
    ),
    ("user", "", "the canary is tenant 31, since tenant 12 complains about everything"),
    ("assistant", "", "Tenant 31 is the canary."),
    ("user", "", "set the memory limit of checkout to 768Mi"),
    ("call", "Bash", "kubectl set resources deploy/checkout --limits=memory=768Mi"),
    ("tool", "Bash", "deployment.apps/checkout resource requirements updated"),
    ("user", "", "finance capped us, the memory limit of checkout has to be 640Mi"),
    ("call", "Bash", "kubectl set resources deploy/checkout --limits=memory=640Mi"),
    ("tool", "Bash", "deployment.apps/checkout resource requirements updated"),
]


@pytest.fixture
def looked(tmp_path) -> Iterator[Restorer]:
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, of([*LOOKED, *STEPS]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        yield restorer
        restorer.close()


@pytest.mark.parametrize(
    ("question", "shown", "hidden"),
    [
        ("What is the REQUEST_TIMEOUT of the worker?", ["services:", "worker:", "REQUEST_TIMEOUT: 300s"], ["45s"]),
        ("What is the min_version of tls?", ["[server.tls]", 'min_version = "1.2"'], ["enabled"]),
    ],
)
def test_a_setting_comes_with_what_it_belongs_to_also_where_the_request_has_those_words(
    looked, question, shown, hidden
):
    text = looked.for_question(ask(question, present="services: worker: [server.tls]")).text
    assert [each for each in (*shown, *hidden) if each in text] == shown


def test_what_is_left_of_an_answer_that_a_block_shows_is_no_evidence_beside_what_the_block_tells(looked):
    asked = ask("Which tenant is the canary?", present="Nothing.", budget=2_000)
    loss = looked.at_compaction(asked)
    assert "the canary is tenant 31" in loss.text
    assert "refunds_failed_total" in loss.text
    assert "Then write to" not in loss.text
    assert looked.for_question(asked.with_blocks([loss])) is None


def test_an_old_value_says_where_a_block_shows_the_new_one(looked):
    first = looked.for_question(ask("What has finance capped?", present="Nothing.", budget=600))
    assert "has to be 640Mi" in first.text
    asked = ask("What is the memory limit of checkout?", present="Nothing.", budget=2_000)
    text = looked.for_question(asked.with_blocks([first])).text
    old = [line for line in text.splitlines() if "768Mi" in line]
    assert old
    assert all("but see turn" in line.partition("] ")[0] for line in old)


TABLE = "\n".join(
    [
        " plan   | month   | cancelled",
        "--------+---------+----------",
        *(f" {plan:<6} | 2024-0{n} | {n}{n * 7}" for n in (4, 5, 6) for plan in ("basic", "family", "pro")),
        "(9 rows)",
    ]
)
ANALYSED: list[tuple[str, str, str]] = [
    ("user", "", "look at who left in spring, and leave Malta out"),
    ("call", "Sql", "select plan, month, cancelled from left"),
    ("tool", "Sql", TABLE),
    ("assistant", "", "Pro lost most of all in May."),
]


@pytest.fixture
def analysed(tmp_path) -> Iterator[Restorer]:
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, of([*ANALYSED, *STEPS]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        yield restorer
        restorer.close()


def test_what_stands_around_the_rows_of_a_table_is_no_evidence_without_them(analysed):
    restored = analysed.for_question(ask("What does cancelled mean in a contract of a family?", present="Nothing."))
    assert restored is None or not [mark for mark in ("(9 rows)", "----") if mark in restored.text]


def test_what_an_assistant_only_looks_at_next_is_no_evidence(tmp_path):
    rule = "the export drops messages. don't restart the pods, we would lose the queue"
    said = [("user", "", rule), ("assistant", "", "I will not restart the pods. Reading the logs of the consumer.")]
    with Archive(tmp_path / "lantern.db", synchronous="normal") as archive:
        write(archive, of([*said, *STEPS]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        asked = ask("Can we just restart the pods?", present="Nothing.")
        loss = restorer.at_compaction(asked)
        assert "don't restart the pods" in loss.text
        beside = restorer.for_question(asked.with_blocks([loss]))
        restorer.close()
    assert beside is None
