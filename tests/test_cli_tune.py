"""`lantern tune` on a real archive: labels from a file and from feedback."""

import json

import pytest
import yaml
from click.testing import CliRunner
from msgspec.structs import replace

from lantern_proxy import Lantern
from lantern_proxy.archive import Archive, Record, RequestRow, SessionRow
from lantern_proxy.cli.main import cli
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig, load
from lantern_proxy.tune_label import Label, of_feedback
from lantern_proxy.turn import Block, Passage, Placed, Restored

THINGS = [
    "kettle", "ladder", "lantern", "violin", "saddle", "anchor", "mirror", "hammer", "basket", "pillow", "carpet",
    "bucket", "candle", "shovel", "wallet", "ticket", "helmet", "folder", "bottle", "button", "magnet", "puzzle",
    "ribbon", "rocket", "hat", "desk", "lamp", "fork", "spoon", "drum",
]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    said = []
    for n, thing in enumerate(THINGS):
        said += [
            {"role": "user", "content": f"I keep the {thing} in room {n + 10}, behind the door."},
            {"role": "assistant", "content": f"Good to know where that is, number {n} on my list."},
        ]
    with Lantern(config) as lantern:
        lantern.archive("chat", said)
    (tmp_path / "lantern.yaml").write_text("embed: {enabled: off}\n")

    def call(*arguments):
        given = ["tune", "--archive", str(config.archive.path), "--config", str(tmp_path / "lantern.yaml")]
        return CliRunner().invoke(cli, [*given, *arguments])

    return call


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "labelled.jsonl"
    rows = [
        {"question": f"Where do I keep the {thing}?", "relevant": [f"the {thing} in room"], "session": "chat"}
        for thing in THINGS
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def test_settings_that_are_right_already_are_left_alone(run, labels):
    result = run("--data", str(labels))
    assert result.exit_code == 1
    assert "30 of 30 labelled questions, 5 folds" in result.output
    assert "this does not help: keep the settings" in result.output


def test_forced_settings_are_a_config_that_loads(run, labels, tmp_path):
    out = tmp_path / "part.yaml"
    result = run("--data", str(labels), "--force", "--output", str(out), "--json")
    told = json.loads(result.stdout)
    assert (told["n"], told["helps"], told["before"]) == (30, False, 1.0)
    assert yaml.safe_load(out.read_text()) == told["settings"]
    assert (told["vectors"], load(out, {}).retrieval.tau) == (False, Config().retrieval.tau)
    assert "measured without vectors: retrieval.tau" in run("--data", str(labels), "--force").output


def test_questions_that_are_left_out_are_named_with_the_reason(run, labels, tmp_path):
    path = tmp_path / "more.jsonl"
    path.write_text('{"question": "Where is the zebra?", "relevant": ["the zebra in room"]}\n' + labels.read_text())
    result = run("--data", str(path), "--json")
    assert json.loads(result.stdout)["n"] == 30
    assert "1 of 31 labelled questions are left out, since no passage has what is relevant" in result.stderr
    assert "more.jsonl: line 1\n" in result.stderr
    assert "left out" not in run("--data", str(labels)).output


def test_a_label_that_is_none_is_refused_with_its_line(run, tmp_path):
    path = tmp_path / "labelled.jsonl"
    path.write_text('{"question": "Where?", "relevant": ["x"]}\n{"question": "Where?"}\n')
    result = run("--data", str(path))
    assert result.exit_code == 1
    assert "line 2 is no label; write" in result.output


@pytest.mark.parametrize("line", ['{"question": "Where?", "relevant": ["x"], "session": ["chat"]}', "[1]", "7"])
def test_a_session_that_is_no_name_and_a_line_that_is_no_object_are_refused(run, tmp_path, line):
    path = tmp_path / "labelled.jsonl"
    path.write_text(line + "\n")
    result = run("--data", str(path))
    assert result.exit_code == 1
    assert "line 1 is no label; write" in result.output


def test_labels_that_are_no_text_are_named(run, tmp_path):
    path = tmp_path / "labelled.jsonl"
    path.write_bytes(b"\xff\xfe")
    assert "labelled.jsonl: is not UTF-8 text" in run("--data", str(path)).output


def test_a_question_may_hold_a_line_separator(run, labels):
    rows = [json.loads(line) for line in labels.read_text().splitlines()]
    rows[0]["question"] = "Where do I keep\u2028the kayak?"
    labels.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")
    assert "of 30 labelled questions" in run("--data", str(labels)).output


def test_labels_may_begin_with_a_byte_order_mark(run, labels):
    labels.write_text(labels.read_text(), "utf-8-sig")
    assert "30 of 30 labelled questions" in run("--data", str(labels)).output


def test_without_enough_labels_it_says_how_many_it_takes(run):
    result = run()
    assert "0 labelled questions are too few to learn from; give 25 or more" in result.output


def test_what_was_called_useful_long_ago_is_learnt_from(tmp_path):
    passage = Passage(session="s", message="m", position=0, part=0, turn=1, speaker="user", text="Staging is on 9443.")
    row = SessionRow(id="s", api="chat", created_at=1.0, last_seen_at=1.0)
    asked = RequestRow(id="old", at=1.0, api="chat", path="", event="turn", query="Which port is it?", restored=1)
    other = replace(asked, query="And now?", restored=0)
    later = [Record(tenant="t", session=row, request=replace(other, id=f"r{n}", at=2.0 + n)) for n in range(10_000)]
    with Archive(tmp_path / "a.db", vectors=False) as archive:
        [(kept,)] = archive.write([Record(tenant="t", session=row, request=asked, passages=(passage,))])
        placed = Placed(passage=kept, text=kept.text, rank=1, score=1.0, signals={})
        block = Block(
            session="s", anchor="aa", chain="bb", place="inside", request="old", created_at=1.0,
            restored=Restored(kind="question", text="block", placed=(placed,), considered=1, ms=1.0),
        )  # fmt: skip
        archive.write([Record(tenant="t", session=row, request=asked, blocks=(block,)), *later])
        archive.of("t").feedback("old", kept.id, "useful", now=2.0)
        assert of_feedback(archive, "t") == [Label("Which port is it?", (kept.id,), "s", "request old")]
        assert of_feedback(archive, "u") == []
