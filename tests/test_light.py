"""The light reranker from labelled conversations to the order of a restore, on real archives."""

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from lantern_proxy.bench import pipelines_light as light
from lantern_proxy.bench.datasets import DataError, labelled
from lantern_proxy.bench.pipelines import Query
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.cli.main import cli
from lantern_proxy.compiled import MINILM
from lantern_proxy.compiled_export import sources
from lantern_proxy.config import EmbedConfig, load
from lantern_proxy.rerank.light import SHIPPED_FEATURE, LightError, save
from lantern_proxy.rerank.light import train as train_light
from lantern_proxy.rerank.train import Stopped
from lantern_proxy.restore.features import FEATURES, LEXICAL
from lantern_proxy.restore.light import KNOWN, POOL, SHIPPED, Light, open_light

pytest.importorskip("lightgbm")

NAMES = ["Ada", "Bo", "Cy", "Di", "Eli", "Fay", "Gus", "Hal", "Ivy", "Jo"]
THINGS = ["bicycle", "piano", "garden", "telescope", "kitchen", "novel", "boat", "camera", "workshop", "marathon"]
TALK = ["Wow, a {0}! How is the {0} going?", "Tell me more about the {0}, will you?", "A {0} is a lot of work, right?"]


def conversation(number: int) -> dict:
    """What was done is told once; questions about it repeat its words, and so match better by words alone."""
    pick = random.Random(number)
    candidates, questions = [], []
    for thing in THINGS:
        name, day = pick.choice(NAMES), pick.randint(1, 28)
        lines = [pick.choice(TALK).format(thing) for _ in range(3)]
        lines.insert(pick.randint(0, 3), f"I started with my {thing} on {day} May, {name} helped and it took 3 hours.")
        for line in lines:
            candidates.append(
                {"id": str(len(candidates)), "session": thing, "speaker": "user", "text": line, "at": 1e9}
            )
            if line.startswith("I started"):
                questions.append({"text": f"When did I start with the {thing}?", "gold": [candidates[-1]["id"]]})
    return {"id": f"c{number}", "candidates": candidates, "questions": questions}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("light") / "labelled.jsonl"
    file.write_text("".join(json.dumps(conversation(n)) + "\n" for n in range(8)), "utf-8")
    return file


@pytest.fixture
def settings(tmp_path):
    """Without what the untrained ranking knows of forms, which is all that there is to learn here."""
    file = tmp_path / "lantern.yaml"
    file.write_text("embed: {enabled: 'off'}\nrestore: {weights: {form: 0}}\n", "utf-8")
    return file


def test_each_feature_has_a_name_of_its_own():
    assert len(set(KNOWN)) == len(FEATURES) + 1


def test_the_command_trains_tells_the_gain_on_unseen_conversations_and_writes_a_model(data, settings, tmp_path):
    out = tmp_path / "model.npz"
    given = ["train", "reranker", "--data", str(data), "--out", str(out), "--config", str(settings), "--json"]
    ran = CliRunner().invoke(cli, given)
    assert ran.exit_code == 0, ran.output
    row = json.loads(ran.output)
    assert row["conversations"] == 8
    assert row["n"] == 80
    assert row["mrr"]["after"] > row["mrr"]["before"]
    assert row["helps"]
    model = open_light(str(out))
    assert model is not None
    assert set(model.models[0].features) == {*LEXICAL, SHIPPED_FEATURE}


def test_a_model_changes_the_order_and_nothing_else_and_none_leaves_it_as_it_is(data, settings):
    first, *rest = labelled(data)
    with Resources(load(settings, {})) as resources:
        default = Default(resources)
        parts = [light.collect(default, each, lambda _: None) for each in rest]
        archived = default.archived(first)
        question = Query(first.questions[0].text)
        before = archived.score(question)
        archived.light = Light((light.train(parts),))
        after = archived.score(question)
    assert (before == default.prepare(first)(question)).all()
    assert sorted(before) == pytest.approx(sorted(after))
    assert (before != after).any()


def test_a_block_takes_each_passage_at_the_better_of_its_two_places(data, settings):
    first, *rest = labelled(data)
    seen = {}

    def look(ranked):
        seen.update(before=ranked.fused, dealt=model(ranked), either=model.best_of_both(ranked))
        return ranked.fused

    with Resources(load(settings, {})) as resources:
        default = Default(resources)
        model = Light((light.train([light.collect(default, each, lambda _: None) for each in rest]),))
        archived = default.archived(first)
        archived.light = look
        archived.score(Query(first.questions[0].text))
    assert (seen["dealt"] < seen["before"]).any()
    assert (seen["dealt"] > seen["before"]).any()
    assert (seen["either"] == np.maximum(seen["dealt"], seen["before"])).all()


def test_a_model_that_needs_vectors_leaves_the_order_alone_where_there_are_none(data, settings):
    first = labelled(data)[0]
    model = light.train([light.collect(Default(Resources(load(settings, {}))), first, lambda _: None)])
    wants = Light((replace(model, trees=replace(model.trees, features=FEATURES)),))
    with Resources(load(settings, {})) as resources:
        archived = Default(resources).archived(first)
        before = archived.score(Query("When did I start with the piano?"))
        archived.light = wants
        assert (archived.score(Query("When did I start with the piano?")) == before).all()


def test_what_the_shipped_model_says_is_what_a_trained_one_starts_from(data, settings):
    """Questions without evidence teach nothing."""
    first = labelled(data)[0]
    with Resources(load(settings, {})) as resources:
        part = light.collect(Default(resources), first, lambda _: None)
    (shipped,) = (each for each in open_light(SHIPPED).models if set(each.features) == set(LEXICAL))
    own = part.table[:, [part.features.index(name) for name in shipped.features]]
    assert part.table[:, part.features.index(SHIPPED_FEATURE)] == pytest.approx(shipped.scores(own))
    nothing = train_light(part.features, part.table, np.zeros_like(part.gold), part.groups, rounds=1)
    assert (nothing.network.scores(part.table)).argsort().tolist() == shipped.scores(own).argsort().tolist()


def test_a_model_that_does_without_the_shipped_one_is_served_as_it_was(data, settings, tmp_path):
    first, *rest = labelled(data)
    with Resources(load(settings, {})) as resources:
        default = Default(resources)
        parts = [light.collect(default, each, lambda _: None) for each in rest]
        alone = [dataclasses.replace(part, features=part.features[:-1], table=part.table[:, :-1]) for part in parts]
        archived, question = default.archived(first), Query(first.questions[0].text)
        found = []
        for each in (alone, parts):
            save(light.train(each), tmp_path / "model.npz", {})
            archived.light = open_light(str(tmp_path / "model.npz"))
            found.append(archived.score(question))
    assert SHIPPED_FEATURE not in alone[0].features
    assert sorted(found[0]) == pytest.approx(sorted(found[1]))


def test_evidence_that_is_no_candidate_is_refused_with_its_line(tmp_path):
    bad = conversation(1)
    bad["questions"][0]["gold"] = ["nowhere"]
    file = tmp_path / "bad.jsonl"
    file.write_text(json.dumps(conversation(0)) + "\n" + json.dumps(bad), "utf-8")
    with pytest.raises(DataError, match=r"bad\.jsonl:2: .*nowhere"):
        labelled(file)


def test_one_conversation_is_not_enough_to_learn_from(tmp_path, settings):
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(conversation(0)), "utf-8")
    ran = CliRunner().invoke(cli, ["train", "reranker", "--data", str(file), "--config", str(settings)])
    assert ran.exit_code == 1
    assert "one conversation is not enough" in ran.output


@pytest.mark.parametrize("command", ["reranker", "evidence-reranker"])
@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("notes.txt", "not json", "notes.txt: is not JSON (Expecting value: line 1 column 1"),
        (
            "lines.jsonl",
            json.dumps(conversation(0)) + "\nnot json",
            "lines.jsonl:2: is not JSON at column 1 (Expecting value);",
        ),
        (
            "mine.json",
            '{"questions": []}',
            "is JSON that begins with '{\"questions\": []}', as no known collection does",
        ),
        ("none.json", "[]", "none.json: is JSON that begins with '[]', as no known collection does"),
        (
            "part.json",
            '[{"conversation": {}, "sample_id": "a"}]',
            "part.json: sample a lacks what LoCoMo has (KeyError('qa'))",
        ),
    ],
)
def test_a_file_of_no_known_format_is_told_where_it_breaks_and_what_is_read(
    tmp_path, settings, name, text, told, command
):
    (tmp_path / name).write_text(text, "utf-8")
    given = ["--data", str(tmp_path / name), "--out", str(tmp_path / "made"), "--config", str(settings)]
    ran = CliRunner().invoke(cli, ["train", command, *given])
    assert ran.exit_code == 1
    assert told in ran.output
    formats = "labelled conversations as JSON lines (.jsonl), LoCoMo's or LongMemEval's JSON file, or BEAM's folder"
    assert ran.output.endswith(f". --data takes {formats}\n")


def test_recall_counts_evidence_that_is_not_among_the_candidates():
    part = light.Examples(
        "c", ("a",), np.zeros((3, 1), np.float32), np.array([False, True, False]), [3], np.array([3.0, 2.0, 1.0]), [1]
    )
    assert light.measure(part, part.before).tolist() == [[0.5, 0.0, 0.5]]


def test_what_is_told_of_a_model_is_what_it_does_to_the_best_and_no_more():
    n = POOL + 2
    gold = np.zeros(n, bool)
    gold[-1] = True
    cells = np.zeros((2 * n, 1), np.float32)
    part = light.Examples("c", ("a",), cells, np.tile(gold, 2), [n, n], np.zeros(2 * n), [0, 0])
    favours_the_last = np.tile(np.arange(n, dtype=np.float64), 2)
    assert light.measure(part, light.pool_first(part, favours_the_last))[:, 0].tolist() == [1 / n, 1 / n]
    assert light.measure(part, favours_the_last)[:, 0].tolist() == [1.0, 1.0]


def test_the_embedder_of_a_fold_is_chosen_without_the_conversations_that_it_is_measured_on():
    """By the second one's vectors the first conversation is ranked so well that it is the better one of all."""

    def seen(found: list[bool], untrained: list[float]) -> light.RankedExamples:
        parts = []
        for has_gold in found:
            cells = np.tile(np.linspace(1, 0, 10, dtype=np.float32), 30)[:, None]
            gold = (cells[:, 0] == 1) & has_gold
            parts.append(
                light.Examples("c", (FEATURES[0],), cells, gold, [10] * 30, np.zeros(300), [not has_gold] * 30)
            )
        return light.RankedExamples(None, parts, EmbedConfig(), [np.full((30, 3), each) for each in untrained])  # type: ignore[arg-type]

    first = seen([False, True, True, True], [0.5, 0.5, 0.5, 0.5])
    second = seen([True, False, True, True], [1.0, 0.45, 0.45, 0.45])
    learned = light.TrainingData([first, second])
    assert learned.best(learned.all_parts) is second
    after = [float(found[:, 2].mean()) for _, found in light.cross_validated(learned)]
    assert after == [0.0, 0.0, 1.0, 1.0]  # by what the first one finds of the first, and the second of the others


def test_a_conversation_is_never_both_learned_from_and_measured_on(data, settings):
    for command, more in (("reranker", []), ("evidence-reranker", ["--out", str(data.parent / "model")])):
        given = ["train", command, "--data", str(data), "--data", str(data), "--config", str(settings), *more]
        ran = CliRunner().invoke(cli, given)
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert "conversation c0 is twice in --data" in ran.stderr
        renamed = data.with_name("renamed.jsonl")
        renamed.write_text(data.read_text("utf-8").replace('"id": "c0"', '"id": "other"'), "utf-8")
        given[given.index(str(data), 4)] = str(renamed)
        ran = CliRunner().invoke(cli, given)
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert "conversation other is twice in --data, also as c0" in ran.stderr


def test_conversations_of_one_name_are_each_compared_with_their_own_order(data, settings, tmp_path):
    def told(*files):
        given, n = [], 0
        for name, ids in enumerate(files):
            (file := tmp_path / f"{name}.jsonl").write_text(
                "\n".join(json.dumps(conversation(n + at) | {"id": i}) for at, i in enumerate(ids)), "utf-8"
            )
            given, n = [*given, "--data", str(file)], n + len(ids)
        ran = CliRunner().invoke(cli, ["train", "reranker", *given, "--config", str(settings), "--json"])
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    assert told("ab", "cd") == told("ab", "ab")


def test_conversations_without_questions_are_left_out_and_two_with_some_are_needed(tmp_path, settings):
    silent = [conversation(n) | {"questions": []} for n in (8, 9)]
    file = tmp_path / "labelled.jsonl"
    given = ["train", "reranker", "--data", str(file), "--config", str(settings), "--json"]
    file.write_text("\n".join(json.dumps(each) for each in [*silent, conversation(0), conversation(1)]), "utf-8")
    ran = CliRunner().invoke(cli, given)
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["conversations"] == 2
    file.write_text("\n".join(json.dumps(each) for each in [*silent, conversation(0)]), "utf-8")
    ran = CliRunner().invoke(cli, given)
    assert ran.exit_code == 1
    assert "1 of 3 conversations have questions to learn from" in ran.stderr


def test_nothing_to_learn_from_is_told_and_not_a_fault(settings):
    with pytest.raises(LightError, match="no conversation has a question to learn from"):
        light.Trained(Resources(load(settings, {}))).train([])


def test_a_file_for_which_there_is_no_folder_is_refused_before_anything_is_measured(data, settings, tmp_path):
    out = tmp_path / "missing" / "model.npz"
    ran = CliRunner().invoke(
        cli, ["train", "reranker", "--data", str(data), "--out", str(out), "--config", str(settings)]
    )
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert f"the folder {out.parent} does not exist" in ran.stderr


@pytest.fixture
def train_evidence(data, settings, tmp_path):
    def call(*given, data=data, out=tmp_path / "deep" / "model"):
        return CliRunner().invoke(
            cli,
            ["train", "evidence-reranker", "--data", str(data), "--config", str(settings), "--out", str(out), *given],
        )

    return call


def test_what_the_evidence_reranker_cannot_do_with_is_told_before_anything_is_ranked(
    train_evidence, tmp_path, monkeypatch
):
    def ranked(*_):
        raise AssertionError

    monkeypatch.setattr("lantern_proxy.bench.pipelines_evidence.examples", ranked)
    (tmp_path / "file").write_text("")
    ran = train_evidence(out=tmp_path / "file" / "model")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert f"{tmp_path / 'file' / 'model'}: not a directory" in ran.stderr
    for option in ("--base", "--teacher"):
        ran = train_evidence(option, str(tmp_path / "gone" / "model"))
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert f"{tmp_path / 'gone' / 'model'} is no folder with a model's config.json" in ran.stderr
    silent = tmp_path / "silent.jsonl"
    silent.write_text("\n".join(json.dumps(conversation(n) | {"questions": []}) for n in range(2)))
    ran = train_evidence(data=silent)
    assert (ran.exit_code, "which is held out, has no question" in ran.stderr) == (1, True)


def test_what_was_learned_until_a_stop_is_saved(train_evidence, tmp_path, monkeypatch):
    class Model:
        def save_pretrained(self, folder):
            (Path(folder) / "saved").touch()

    def train(*_):
        raise Stopped(Model())

    monkeypatch.setattr("lantern_proxy.rerank.train.train", train)
    ran = train_evidence("--base", str(sources(MINILM)[0][0]))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert (tmp_path / "deep" / "model" / "saved").exists()
    assert "stopped; what was learned by then is in" in ran.stderr


def array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"PK\x03\x04"),
        lambda path: path.write_text("mine"),
        array,
        lambda path: np.savez(path, meta=np.array("[1]")),
        lambda path: np.savez(path, meta=np.array('{"version": 4}')),
    ],
)
def test_a_file_that_is_no_model_is_told_by_name(tmp_path, write):
    path = tmp_path / "model.npz"
    write(path)
    with pytest.raises(LightError, match=r"model\.npz: "):
        open_light(str(path))


def test_a_file_that_wants_the_shipped_model_and_not_what_that_looks_at_is_refused(data, settings, tmp_path):
    with Resources(load(settings, {})) as resources:
        part = light.collect(Default(resources), labelled(data)[0], lambda _: None)
    few = dataclasses.replace(part, features=part.features[-2:], table=part.table[:, -2:])
    save(light.train([few]), tmp_path / "model.npz", {})
    with pytest.raises(LightError, match="train it again"):
        open_light(str(tmp_path / "model.npz"))
