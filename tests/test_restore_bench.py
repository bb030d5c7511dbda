"""`lantern bench restore`: what counts as restored, and that the command measures the product."""

import json
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner
from test_bench_datasets import BEAM

from lantern_proxy.bench import judged, restore, restore_score
from lantern_proxy.bench import pipelines_light as light
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.bench.restore_chats import (
    KEPT_TURNS,
    SHAPES,
    ChatMessage,
    Probe,
    chats,
    compacted,
    conversations,
    merged,
)
from lantern_proxy.bench.restore_recipes import archived_chats
from lantern_proxy.config import Config, EmbedConfig
from lantern_proxy.rerank.light import load
from lantern_proxy.restore.light import KNOWN

TALK = [
    ("Ana", "Hey! The harbour crane is rented for 4,200 euros a month."),
    ("Ben", "Wow, nice!"),
    ("Ana", "My sister Ilse moved to Trondheim last spring. What about you?"),
    ("Ben", "I still bake bread on Sundays, mostly rye."),
    ("Ana", "The boiler room code is 7719, keep it safe."),
    ("Ben", "Okay!"),
    *(("Ana" if n % 2 else "Ben", f"Some words about weather number {n}, clouds and rain.") for n in range(14)),
]
ASKED = [
    ("What does the harbour crane cost?", "D1:1", "4,200 euros"),
    ("Where did Ilse move?", "D1:3", "Trondheim"),
    ("What is the code of the boiler room?", "D1:5", "7719"),
    ("What was said last?", "D1:20", "rain"),
]


@pytest.fixture
def data(tmp_path):
    turns = [{"speaker": who, "dia_id": f"D1:{n}", "text": text} for n, (who, text) in enumerate(TALK, 1)]
    questions = [{"question": q, "evidence": [e], "answer": a, "category": 1} for q, e, a in ASKED]
    talk = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"sample_id": "t", "conversation": talk, "qa": questions}]))
    return path


@pytest.fixture
def run(data, tmp_path):
    def run(*options):
        given = ["--data", str(data), "--keep", str(tmp_path / "kept"), "--no-dense", "--json", *options]
        result = CliRunner().invoke(restore.command, given)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout.strip().splitlines()[-1])

    return run


@pytest.mark.parametrize("query", ["question", "context", "both"])
@pytest.mark.parametrize("measure", ["evidence", "facts", "admission"])
def test_a_run_tells_how_far_it_is(run, monkeypatch, measure, query):
    bars = []

    @contextmanager
    def bar(label, total):
        bars.append([label, 0, total])

        def advance(steps):
            bars[-1][1] += steps

        yield advance

    monkeypatch.setattr(restore, "progress", bar)
    told = run("--measure", measure, "--query", query)
    label, done, total = bars[-1]
    assert label == "asking: default"
    assert done == total == told["n"] > 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at", [30, 50, 70])
def test_a_compaction_keeps_the_last_turns_and_loses_the_rest(data, at, shape):
    (chat,) = chats(data)
    cut = compacted(chat, at, shape)
    assert len(cut.kept) == KEPT_TURNS
    assert (*cut.lost, *cut.kept, *cut.later) == chat.messages
    assert bool(cut.summary) == (shape != "window")
    gone = {said.id for said in cut.lost}
    assert all(set(probe.gold) <= gone for probe in cut.probes)


def test_a_chat_of_beam_has_its_roles_turns_and_answers(tmp_path):
    asked = {"question": "Which port?", "ideal_answer": "9444", "source_chat_ids": {"new": [[2]]}}
    (tmp_path / "one.json").write_text(json.dumps(BEAM | {"probing_questions": {"update": [asked, {"question": "?"}]}}))
    (chat,) = chats(tmp_path)
    assert [(said.role, said.turn, said.text) for said in chat.messages] == [
        ("user", 1, "My port is 9443."), ("assistant", 1, "Noted ->-> as you say."), ("user", 2, "Now it is 9444."),
    ]  # fmt: skip
    assert chat.probes == (Probe("Which port?", ("2",), "9444", "update"),)
    assert [later.at > said.at for said, later in pairwise(chat.messages)] == [True, True]


def test_merged_chats_are_one_session_whose_questions_keep_their_evidence(data):
    (chat,) = chats(data)
    cut = compacted(chat, 70, "window")
    both = merged([cut, compacted(replace(chat, name="other"), 70, "window")])
    turns = [said.turn for said in (*both.lost, *both.kept)]
    assert turns == sorted(turns)
    assert len({said.id for said in both.lost}) == len(both.lost) == 2 * len(cut.lost)
    assert len(both.probes) == 2 * len(cut.probes) > 0
    texts = {said.id: said.text for said in both.lost}
    assert [texts[p.gold[0]] for p in both.probes] == 2 * [
        said.text for probe in cut.probes for said in cut.lost if said.id == probe.gold[0]
    ]


def test_a_turn_is_restored_when_all_that_it_says_stands_in_the_block():
    said = ChatMessage(
        "1", "user", "Wow! The crane costs 4,200 euros. It is rented from Olsen in Bergen. Great!", 1, 0.0
    )
    wanted = restore_score.evidence(said, Probe("How much?", ("1",), "4,200", "1"), {})
    assert wanted == ["The crane costs 4,200 euros.", "It is rented from Olsen in Bergen."]
    assert restore_score.all_restored(["The crane costs\n4,200 euros. It is rented from Olsen in Bergen."], wanted)
    assert not restore_score.all_restored(["The crane costs 4,200 euros."], wanted)


def test_of_a_long_turn_the_sentences_that_answer_count():
    padding = "The weather is described here at some length and without any need. " * 20
    said = ChatMessage("1", "assistant", f"{padding}Ilse moved to Trondheim. {padding}", 1, 0.0)
    wanted = restore_score.evidence(said, Probe("Where is Ilse?", ("1",), "Trondheim", "1"), {})
    assert wanted == ["Ilse moved to Trondheim."]


def test_facts_are_values_with_the_words_they_were_said_with(data):
    (chat,) = chats(data)
    found = restore_score.facts(compacted(chat, 70, "window"))
    crane = next(fact for fact in found if fact.value.startswith("4,200") or "crane" in fact.context)
    assert not restore_score.restored(crane, ["Something else costs 14,200 euros."])
    assert restore_score.restored(crane, [TALK[0][1]])


def test_the_recipes_answer_the_same_questions(run):
    rows = {recipe: run("--recipe", recipe, "--at", "70") for recipe in ("default", "lantern", "newest", "fts5")}
    assert {row["n"] for row in rows.values()} == {3}
    assert rows["default"]["evidence_recall"] == 1.0
    for row in rows.values():
        assert {"evidence_recall", "all_evidence", "answer_containment", "n", "chars", "ms", "ci"} <= set(row)
        assert row["chars"] <= 6_000


def test_a_smaller_budget_restores_less(run):
    assert run("--budget", "0")["evidence_recall"] == 0.0
    assert run("--query", "context", "--budget", "420")["evidence_recall"] < 1.0


def test_a_question_beside_a_loss_block_counts_what_both_hold_and_costs_its_own_block(run, data):
    settings = data.with_name("small.yaml")
    settings.write_text("restore: {budget_chars: 320}\n")  # room for one of the three
    options = ("--config", str(settings), "--budget", "320")
    first, asked, both = (run(*options, "--query", query) for query in ("context", "question", "both"))
    assert first["evidence_recall"] < both["evidence_recall"] == asked["evidence_recall"] == 1.0
    assert both["chars"] < asked["chars"]  # what stands in the first block is not restored twice


def test_facts_and_admission_are_measured_too(run):
    assert run("--measure", "facts")["evidence_recall"] > 0
    kinds = run("--measure", "admission", "--at", "70")["kinds"]
    assert kinds["asking"] == [1.0, 3]
    assert kinds["ordinary"][0] <= 0.5


def test_a_recipe_is_tested_against_another_on_the_same_questions(run):
    alone = run("--recipe", "newest", "--at", "70", "--budget", "300")
    told = run("--recipe", "default", "--at", "70", "--budget", "300", "--against", "newest")
    assert told["against"]["evidence_recall"] == alone["evidence_recall"]
    assert told["against"]["difference"] == round(told["evidence_recall"] - alone["evidence_recall"], 4)
    assert 0 < told["against"]["p_wilcoxon"] <= 1


def test_without_decay_an_old_turn_is_as_important_as_a_new_one(data, tmp_path):
    (chat,) = chats(data)
    cut = compacted(chat, 70, "window")
    spread = {}
    for days in (0.0, 0.001):
        folder = tmp_path / str(days)
        folder.mkdir()
        settings = restore.configured(None, days, Config())
        with archived_chats([cut], folder, settings, dense=False, advance=lambda n: None) as played:
            block = played.restored(cut, "lantern", "", 6_000)
            values = [placed.signals["importance"] for placed in block.placed]
            spread[days] = max(values) / min(values)
    assert spread[0.0] < 1.5
    assert spread[0.001] > 3


def test_a_file_that_is_neither_is_named(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    result = CliRunner().invoke(restore.command, ["--data", str(tmp_path / "x.json")])
    assert result.exit_code == 1
    assert "x.json is neither LoCoMo" in result.output


def test_a_folder_that_holds_another_chat_of_that_name_is_refused(run, data, tmp_path):
    run("--at", "70")
    data.write_text(data.read_text().replace("D1:", "D2:").replace("rain", "snow"))
    given = ["--data", str(data), "--keep", str(tmp_path / "kept"), "--no-dense", "--json", "--at", "70"]
    result = CliRunner().invoke(restore.command, given)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "bench.db holds another chat with the name locomo-t" in result.stderr


def test_two_chats_of_one_name_in_a_folder_are_refused_with_both_files(data, tmp_path):
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "a.json").write_text(data.read_text())
    (folder / "b.json").write_text(data.read_text().replace("rain", "snow"))
    for command in (restore.command, judged.command):
        result = CliRunner().invoke(
            command, ["--data", str(folder), "--no-dense", "--model", "m", "--model-url", "http://127.0.0.1:1/v1"]
        )
        assert (result.exit_code, result.stdout) == (1, "")
        assert (
            f"{folder / 'b.json'}: locomo-t is the name of another conversation of {folder / 'a.json'}" in result.stderr
        )


@pytest.mark.parametrize("more", [(), ("--merge",), ("--measure", "facts")])
def test_chats_too_short_to_lose_anything_leave_nothing_to_measure(tmp_path, more):
    turns = [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": "Hello."} for n in range(2)]
    sample = {"sample_id": "t", "conversation": {"session_1": turns}, "qa": []}
    (tmp_path / "talk.json").write_text(json.dumps([sample]))
    result = CliRunner().invoke(restore.command, ["--data", str(tmp_path / "talk.json"), "--no-dense", "--json", *more])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "talk.json: at 50 % no chat has lost what --measure" in result.stderr


@pytest.fixture
def many(data):
    """Three chats with other names and numbers."""
    (sample,) = json.loads(data.read_text())
    told = json.dumps(sample)
    others = [told.replace("7719", f"{n}719").replace("Ilse", name) for n, name in ((3, "Maren"), (4, "Jorun"))]
    samples = [json.loads(each) | {"sample_id": f"t{n}"} for n, each in enumerate([told, *others])]
    data.write_text(json.dumps(samples))
    return data


def test_a_trained_recipe_orders_each_chat_by_a_model_of_the_others(many, tmp_path):
    pytest.importorskip("lightgbm")
    config, found = Config(embed=EmbedConfig(enabled="off")), conversations(many)
    files = restore.trained(found, config, tmp_path)
    assert list(files) == [chat.name for chat in chats(many)]
    with Resources(config) as resources:
        parts = [light.collect(Default(resources), each, lambda n: None) for each in found]
    for n, file in enumerate(files.values()):
        others = light.train([part for m, part in enumerate(parts) if m != n])
        table = parts[n].table
        assert load(file, KNOWN).scores(table).tolist() == others.scores(table).tolist()


def test_a_trained_recipe_is_tested_against_the_default(many, run):
    pytest.importorskip("lightgbm")
    told = run("--recipe", "trained", "--against", "default", "--at", "70")
    assert told["n"] == 9
    assert told["against"]["evidence_recall"] == run("--at", "70")["evidence_recall"]


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [(("--merge",), 2, "leave out --merge"), ((), 1, "1 of 1 chats have questions to learn from")],
)
def test_a_trained_recipe_needs_other_chats(data, more, code, says):
    given = ["--data", str(data), "--no-dense", "--recipe", "trained", *more]
    result = CliRunner().invoke(restore.command, given)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr


def test_blocks_are_measured_with_the_settings_of_a_file(run, tmp_path):
    file = tmp_path / "lantern.yaml"
    file.write_text("restore: {admission: 1.0}\n")
    assert run("--at", "70", "--config", str(file))["chars"] < run("--at", "70")["chars"]
