"""The demo: its script is fair, its six compactions lose what they should, and the whole of it runs."""

import json
import os
import re
import sqlite3
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from lantern_proxy import demo
from lantern_proxy.analyze import query_terms, terms
from lantern_proxy.cli import main as cli
from lantern_proxy.compiled import available

SCRIPT = demo.chat()
DETAILS = {detail.id: detail for detail in SCRIPT.details}


def test_the_chat_has_sixty_turns_and_six_details_and_a_believable_length():
    assert len(SCRIPT.turns) == 60
    assert len(SCRIPT.details) == 6
    assert 18_000 < sum(len(message["content"]) for message in SCRIPT.history) < 30_000
    assert len({text for turn in SCRIPT.turns for text in turn}) == 120


@pytest.mark.parametrize("detail", SCRIPT.details, ids=lambda d: d.id)
def test_a_detail_is_said_once_early_and_neither_summary_nor_questions_give_it_away(detail):
    spoken = [text for turn in SCRIPT.turns for text in turn]
    said = [at for at, text in enumerate(spoken) if detail.answer.lower() in text.lower()]
    assert said == [(detail.turn - 1) * 2 + (detail.speaker == "assistant")]
    assert 1 < detail.turn <= 25
    for text in (SCRIPT.summary, SCRIPT.system, *(d.literal + d.other for d in SCRIPT.details)):
        assert detail.answer.lower() not in text.lower()


@pytest.mark.parametrize("detail", SCRIPT.details, ids=lambda d: d.id)
def test_the_question_in_other_words_shares_at_most_one_word_with_the_statement(detail):
    statement = SCRIPT.turns[detail.turn - 1][detail.speaker == "assistant"]
    assert len(set(query_terms(detail.other)) & set(terms(statement))) <= 1
    assert len(set(query_terms(detail.literal)) & set(terms(statement))) >= 3


@pytest.mark.parametrize("shape", demo.SHAPES)
def test_every_compaction_loses_all_six_details_and_most_of_the_text(shape):
    messages = demo.SHAPES[shape](SCRIPT.history, SCRIPT.summary, "And now?")
    text = "\n".join(message["content"] for message in messages)
    assert messages[-1] == {"role": "user", "content": "And now?"}
    assert not [detail.id for detail in SCRIPT.details if detail.answer in text]
    assert len(text) < 6_000


def test_the_six_compactions_differ_as_their_names_say():
    made = {name: shape(SCRIPT.history, SCRIPT.summary, "And now?") for name, shape in demo.SHAPES.items()}
    assert SCRIPT.summary in made["user-summary"][1]["content"]
    assert [m["role"] for m in made["assistant-summary"][:3]] == ["system", "user", "assistant"]
    assert made["assistant-summary"][1] == SCRIPT.history[1]
    assert made["assistant-summary"][2]["content"] == SCRIPT.summary
    assert all(m in [*SCRIPT.history, made["truncated"][-1]] for m in made["truncated"])
    assert SCRIPT.summary in made["system-summary"][0]["content"]
    assert "session is being continued" in made["continued"][1]["content"]
    assert len(made["continued"]) == 3
    assert len(made["last-six"]) == 6
    assert made["last-six"][0]["role"] == "assistant"


def ask(messages, stream=False):
    client = TestClient(demo.upstream(SCRIPT))
    return client.post("/v1/chat/completions", json={"model": "m", "messages": messages, "stream": stream})


def user(text):
    return {"role": "user", "content": text}


def test_the_upstream_follows_its_script_streamed_or_not():
    said, answered = SCRIPT.turns[3]
    assert ask([user(said)]).json()["choices"][0]["message"]["content"] == answered
    streamed = ask([user(said)], stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert demo._streamed(streamed.text) == answered
    assert ask([user(demo.SUMMARISE)]).json()["choices"][0]["message"]["content"] == SCRIPT.summary


@pytest.mark.parametrize("detail", SCRIPT.details, ids=lambda d: d.id)
def test_the_upstream_knows_a_detail_only_when_it_was_sent(detail):
    for question in (detail.literal, detail.other):
        told = ask([*SCRIPT.history, user(question)]).json()["choices"][0]["message"]["content"]
        assert detail.answer in told
        assert ask([user(question)]).json()["choices"][0]["message"]["content"] == demo.UNKNOWN


def test_the_upstream_finds_a_detail_in_a_block_that_rides_inside_the_question():
    detail = DETAILS["port"]
    block = "<restored_context>the firewall only lets 7461 through</restored_context>"
    told = ask([user(f"{detail.literal}\n\n{block}")]).json()["choices"][0]["message"]["content"]
    assert "7461" in told


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Runs `lantern demo` without the embedder, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(cli.cli, ["demo", "--no-dense", *arguments])

    return run


def test_the_demo_gives_all_six_details_back_and_none_to_another_key(play):
    result = play("--json", "--shape", "continued", "--words", "other")
    *details, whole = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["detail"]["id"] for row in details] == [detail.id for detail in SCRIPT.details]
    assert all(row["was_lost"] and row["is_back"] for row in details)
    assert all(row["without"] == demo.UNKNOWN for row in details)
    assert (whole["back"], whole["of"], whole["stranger"]) == (6, 6, 0)
    assert details[0]["event"] == "compacted"
    assert details[0]["chosen"]
    assert result.exit_code == 0


def test_the_demo_does_not_call_a_machine_busy_that_has_no_embedder(play):
    told = " ".join(play().output.split())
    assert "Embedder: off" in told
    assert "dense:off" not in told


def test_the_demo_shows_both_answers_the_block_and_the_reasons(play):
    result = play("--shape", "last-six")
    assert result.exit_code == 0
    told = " ".join(result.stdout.split())
    assert "I do not" in told
    assert "<restored_context" in told
    assert "7461" in told
    assert "6 of 6 (without: 0)" in told
    assert "salience" in told


def test_the_demo_keeps_its_archive_where_it_was_told_and_nowhere_else(play, tmp_path):
    assert play("--keep", "kept").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    kept = str(tmp_path / "kept" / "user-summary" / "demo.db")
    shown = CliRunner().invoke(cli.cli, ["why", "last", "--archive", kept])
    assert shown.exit_code == 0
    assert "question block" in shown.stdout or "loss block" in shown.stdout
    again = play("--keep", "kept")
    assert again.exit_code == 1
    assert "is there already" in again.stderr


def test_the_commands_to_look_into_a_kept_archive_can_be_pasted_whatever_its_folder_is_called(play):
    told = play("--keep", "my demo").stdout
    assert told.count("--archive 'my demo/user-summary/demo.db'") == 3


def test_what_the_answer_used_of_a_block_is_noted_beside_it(play, tmp_path):
    result = play("--keep", "kept", "--json")
    first = json.loads(result.stdout.splitlines()[0])
    kept = str(tmp_path / "kept" / "user-summary" / "demo.db")
    shown = CliRunner().invoke(cli.cli, ["why", first["request"], "--archive", kept, "--json"])
    told = json.loads(shown.stdout)
    used = {mark["passage"] for mark in told["marks"] if mark["used"]}
    placed = {p["passage"]["id"]: p["text"] for block in told["blocks"] for p in block["restored"]["placed"]}
    assert used
    assert all(first["detail"]["answer"] in placed[id_] for id_ in used)
    assert all(mark["used"] is not None for mark in told["marks"])


@pytest.mark.skipif(not available(), reason="the extra `dense` is not installed")
def test_the_demo_asks_when_everything_that_was_said_has_its_vector(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = os.environ.get("LANTERN_TEST_CACHE") or Path(__file__).parent.parent / ".cache" / "embed"
    Path("lantern.yaml").write_text(json.dumps({"embed": {"cache_dir": str(cache)}}))
    result = CliRunner().invoke(cli.cli, ["demo", "--config", "lantern.yaml", "--keep", "kept"])
    assert "Embedder: ready" in " ".join(result.output.split()), result.output
    with sqlite3.connect("kept/user-summary/demo.db") as db:
        waiting = "SELECT count(*) FROM passages WHERE turn <= 60 AND embedded = ? AND session = ("
        waiting += "SELECT session FROM messages GROUP BY session ORDER BY count(*) DESC LIMIT 1)"
        without, having = (db.execute(waiting, (embedded,)).fetchone()[0] for embedded in (0, 1))
    assert having > 100
    assert without == 0


@pytest.mark.skipif(find_spec("sqlcipher3") is None, reason="the extra `encrypted` is not installed")
def test_the_demo_plays_with_the_settings_of_an_encrypted_archive(play, tmp_path):
    (tmp_path / "lantern.yaml").write_text(json.dumps({"archive": {"key_file": "key"}}))
    (tmp_path / "key").write_text("ab" * 32)
    result = play("--config", "lantern.yaml", "--keep", "kept")
    assert result.exit_code == 0, result.output
    assert "6 of 6" in result.output
    assert b"SQLite format" not in (tmp_path / "kept/user-summary/demo.db").read_bytes()


def test_both_servers_end_with_the_block_and_listen_on_loopback_only():
    import httpx

    with demo.serving(demo.upstream(SCRIPT)) as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert httpx.post(f"{url}/v1/chat/completions", json={"messages": [user("?")]}).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
