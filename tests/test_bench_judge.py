"""Metrics by hand, splits as published, and pipelines that find what they should."""

import json
import math
from contextlib import contextmanager
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from test_bench_datasets import BEAM, LOCOMO

from lantern_proxy.bench import judge, metrics
from lantern_proxy.bench.datasets import Candidate, Conversation, Question
from lantern_proxy.bench.pipelines import FACTORIES, Query, UnknownSignal, pipeline
from lantern_proxy.bench.pipelines_product import Tuned
from lantern_proxy.bench.resources import Resources
from lantern_proxy.cli.main import cli
from lantern_proxy.config import Config, EmbedConfig
from lantern_proxy.config.retrieval import RetrievalConfig
from lantern_proxy.embed import available

SAID = [
    "I moved to Lisbon in spring.", "How was the flight?", "Long. My ferret Mochi hated it.",
    "We planted tomatoes and basil on the balcony.", "The marathon is on the third of October.",
]  # fmt: skip
ASKED = [("What is the name of the ferret?", 2), ("When is the marathon?", 4), ("What grows on the balcony?", 3)]
DENSE = {"dense", "rrf", "lantern", "selroute", "agentir"}


def conversation(name: str, questions: int = 3) -> Conversation:
    said = tuple(
        Candidate(id=f"{name}:{n}", session=f"s{n // 2}", speaker="Ann", text=text, at=1.7e9 + n)
        for n, text in enumerate(SAID)
    )
    asked = tuple(Question(text=text, gold=frozenset({f"{name}:{n}"}), category="4") for text, n in ASKED[:questions])
    return Conversation(id=name, candidates=said, questions=asked)


@pytest.fixture(scope="module")
def resources(cache_dir):
    with Resources(Config(embed=EmbedConfig(cache_dir=cache_dir))) as made:
        yield made


def test_tuned_settings_keep_what_tuning_does_not_fit():
    retrieval = RetrievalConfig(recency=0.5, recency_days=7, router="soft")
    with Resources(Config(embed=EmbedConfig(enabled="off"), retrieval=retrieval)) as resources:
        tuned = Tuned(resources).train([conversation(f"c{n}") for n in range(8)])
    assert isinstance(tuned, Tuned)
    kept = tuned._retrieval
    assert (kept.recency, kept.recency_days, kept.router) == (0.5, 7, "rules" if kept.types else "soft")


def test_ndcg_has_exponential_gain_and_a_log2_discount():
    grades = {"a": 3.0, "b": 1.0}
    gained = 1 / math.log2(2) + 7 / math.log2(4)
    ideal = 7 / math.log2(2) + 1 / math.log2(3)
    assert metrics.ndcg(["b", "x", "a"], grades, 10) == pytest.approx(gained / ideal)
    assert metrics.ndcg(["b", "x", "a"], grades, 1) == pytest.approx(1 / 7)


def test_a_hit_needs_one_piece_of_gold_and_recall_all_needs_every_piece():
    ranked, gold = ["x", "a", "y", "b"], {"a", "b"}
    assert metrics.reciprocal_rank(ranked, gold) == 0.5
    assert [metrics.hit(ranked, gold, k) for k in (1, 2)] == [0, 1]
    assert [metrics.recall(ranked, gold, k) for k in (1, 2, 4)] == [0, 0.5, 1]
    assert [metrics.recall_all(ranked, gold, k) for k in (3, 4)] == [0, 1]


def test_the_paired_bootstrap_sees_a_small_difference_that_is_always_there():
    draw = np.random.default_rng(3)
    base = draw.random(200)
    mean, low, high, p = metrics.paired(base + 0.01 + 0.001 * draw.random(200), base)
    assert low <= mean <= high
    assert low > 0
    assert p < 0.01


@pytest.mark.parametrize("n", [3, 30, 3_000])
def test_no_difference_is_beyond_all_doubt(n):
    a, b = np.linspace(1.0, 2.0, n), np.zeros(n)
    assert metrics.paired(a, b)[3] == metrics.paired(b, a)[3] == 2 / 10_001
    assert metrics.paired(a, a)[3] == 1.0
    assert metrics.wilcoxon(a, b)[1] > 0


def test_the_paired_bootstrap_calls_noise_noise():
    draw = np.random.default_rng(4)
    *_, p = metrics.paired(draw.random(200), draw.random(200))
    assert p > 0.05


def test_ten_conversations_are_split_as_the_papers_do():
    ids = [f"conv-{n}" for n in (26, 30, 41, 42, 43, 44, 47, 48, 49, 50)]
    conversations = [Conversation(id=i, candidates=(), questions=()) for i in reversed(ids)]
    found = list(judge.splits(conversations))
    assert len(found) == 5
    for dev, test in found:
        assert len(dev) == len(test) == 5
        assert sorted(dev + test) == ids
    assert sorted(found[0][1]) == [f"conv-{n}" for n in (26, 41, 44, 47, 50)]  # seed 7


def test_an_interval_is_that_of_the_mean_which_is_told():
    """A conversation that stands in each test half, and in small ones, has a larger share in the mean."""

    def outcomes(name, n, right):
        return [judge.Outcome(name, q, "", 1.0, {"mrr": float(right), "one": 1.0}) for q in range(n)]

    often, once = outcomes("often", 100, right=False), outcomes("once", 300, right=True)
    found = judge.report([often, often, often, [*often, *once]])
    assert found.means["mrr"] == pytest.approx(0.75 / 4)
    low, high = found.intervals["mrr"]
    assert low < found.means["mrr"] < high
    assert found.intervals["one"] == pytest.approx((1.0, 1.0))


def test_a_pipeline_that_learns_never_sees_the_conversations_that_it_is_judged_on():
    conversations = [conversation(f"c{n}") for n in range(5)]
    seen: list[tuple[set[str], set[str]]] = []

    class Learner:
        def __init__(self, taught=frozenset()):
            self.taught = taught
            self.judged = set()

        def train(self, given):
            made = Learner(frozenset(c.id for c in given))
            seen.append((made.taught, made.judged))
            return made

        def prepare(self, given):
            self.judged.add(given.id)
            return lambda query: np.arange(float(len(given.candidates)))

    runs = judge.by_splits(Learner(), conversations, judge.locomo, lambda n: None)
    assert len(runs) == len(seen) == 5
    for taught, judged in seen:
        assert len(taught) == 2
        assert len(judged) == 3
        assert not taught & judged


def test_sessions_are_ranked_by_their_best_turn_and_then_by_the_next_ones():
    scores, group = np.array([1.0, 5.0, 4.0, 5.0]), np.array([0, 1, 1, 2])
    assert judge.by_group(scores, group).tolist() == [0, 4, 4]
    assert judge.by_group(scores, group, share=0.5).tolist() == [0, 4 + 0.5 * 3, 4]


@pytest.mark.parametrize("name", FACTORIES)
def test_every_pipeline_finds_what_the_words_say(name, resources):
    if name in DENSE and not available():
        pytest.skip("the extra `dense` is not installed")
    made = pipeline(name, resources)
    outcomes = list(judge.judge(made, [conversation("c")], judge.locomo, lambda n: None))
    assert np.mean([o.values["turn.recall@10"] for o in outcomes]) == 1
    assert np.mean([o.values["turn.mrr"] for o in outcomes]) > (0.5 if name != "lantern" else 0.3)


@pytest.mark.parametrize("name", FACTORIES)
def test_every_pipeline_scores_every_candidate_of_a_question_without_words(name, resources):
    if name in DENSE and not available():
        pytest.skip("the extra `dense` is not installed")
    score = pipeline(name, resources).prepare(conversation("c"))
    for text in ("", "?", "it", "zzzz qqqq"):
        found = score(Query(text))
        assert found.shape == (len(SAID),)
        assert np.isfinite(found).all()


def test_a_signal_that_a_pipeline_does_not_have_is_refused_with_those_it_has(resources):
    with pytest.raises(UnknownSignal, match="pipeline rrf has no signal votes; it has bm25, vector"):
        pipeline("rrf", resources, frozenset({"votes"}))


@pytest.fixture
def run(tmp_path, cache_dir):
    (tmp_path / "lantern.yaml").write_text(f"embed: {{cache_dir: {cache_dir}}}\n")

    def call(*arguments):
        return CliRunner().invoke(cli, ["bench", *arguments, "--config", str(tmp_path / "lantern.yaml")])

    return call


def test_bench_locomo_tells_turns_sessions_intervals_and_the_comparison(run, tmp_path):
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([*LOCOMO, {**LOCOMO[0], "sample_id": "conv-2"}]))
    given = ["locomo", "--data", str(path), "--pipeline", "bm25", "--against", "fts5", "--json"]
    row = json.loads(run(*given).stdout)
    assert row["turn"] == {"mrr": 1.0, "hit@1": 1.0, "recall@10": 1.0}
    assert set(row["session"]) == {"hit@1", "hit@5", "hit@10", "mrr", "ra@5"}
    assert (row["n"], row["ci"]["turn"]["mrr"], row["ms_per_query"] > 0) == (4, [1.0, 1.0], True)
    assert set(row["against"]["turn"]["mrr"]) == {"difference", "low", "high", "p"}
    assert json.loads(run(*given, "--protocol", "convmemory").stdout)["n"] == [2, 2, 2, 2, 2]


def test_a_pipeline_that_learns_says_where_it_was_not_trained(run, tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps(BEAM))
    ran = run("beam", "--data", str(tmp_path), "--pipeline", "trained", "--pipeline", "default", "--json")
    assert ran.exit_code == 0, ran.output
    assert "trained: only `locomo --protocol convmemory` trains; this is the default, as configured\n" in ran.stderr


def test_a_file_in_place_of_a_folder_is_told_and_the_reverse(run, tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(BEAM))
    ran = run("beam", "--data", str(file))
    assert (ran.exit_code, f"'--data': {file} is a file; name a folder" in ran.stderr) == (2, True)
    ran = run("locomo", "--data", str(tmp_path))
    assert (ran.exit_code, f"'--data': {tmp_path} is a folder; name a file" in ran.stderr) == (2, True)


def test_bench_cascade_tells_what_each_tau_saves_and_costs(run, tmp_path):
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([{**LOCOMO[0], "sample_id": f"conv-{n}"} for n in range(3)]))
    rows = [json.loads(line) for line in run("cascade", "--data", str(path), "--json").stdout.splitlines()]
    skipped = [row["skipped"] for row in rows]
    assert skipped == sorted(skipped, reverse=True)
    assert {row["n"] for row in rows} == {6}
    assert all(row["low"] <= row["difference"] <= row["high"] for row in rows)


@pytest.mark.parametrize("question", ["", "?"])
def test_bench_cascade_without_a_question_has_nothing_to_measure(run, tmp_path, question):
    path = tmp_path / "locomo.json"
    asked = [LOCOMO[0] | {"qa": [LOCOMO[0]["qa"][0] | {"question": question}]}]
    path.write_text(json.dumps(asked if question else []))
    ran = run("cascade", "--data", str(path), "--json")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "locomo.json: no question has words and evidence" in ran.stderr


def test_bench_cascade_tells_how_far_it_is(run, tmp_path, monkeypatch):
    told = []

    @contextmanager
    def bar(what, total, quiet):
        told.append(total)
        yield told.append

    monkeypatch.setattr("lantern_proxy.cli.bench.counting", bar)
    (tmp_path / "locomo.json").write_text(json.dumps(LOCOMO))
    assert run("cascade", "--data", str(tmp_path / "locomo.json")).stdout.count("tau ") == 10
    assert told == [2, 1, 1]


def test_a_plot_has_a_bar_and_a_whisker_for_each_pipeline_and_metric(run, tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps(BEAM))
    given = ["beam", "--data", str(tmp_path), "--pipeline", "fts5", "--pipeline", "bm25"]
    result = run(*given, "--plot", str(tmp_path / "beam.svg"))
    svg = ElementTree.fromstring((tmp_path / "beam.svg").read_text())
    assert len([each for each in svg if each.get("stroke") == "black"]) == 4
    assert "| fts5 | 1.000 |" in result.output


def test_bench_beam_tells_each_category(run, tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps(BEAM))
    row = json.loads(run("beam", "--data", str(tmp_path), "--pipeline", "fts5", "--json").stdout)
    assert row["categories"] == {"knowledge_update": {"recall@10": 1.0, "ndcg@10": pytest.approx(row["ndcg@10"])}}


def test_bench_says_in_one_line_what_is_wrong_with_the_data(run, tmp_path):
    (tmp_path / "x.json").write_text("[]")
    result = run("longmemeval", "--data", str(tmp_path / "x.json"), "--pipeline", "bm25")
    assert result.exit_code == 1
    assert "is not LongMemEval's list of questions" in result.output
    assert result.output.count("\n") == 1


def test_ir_is_judged_by_its_grades():
    ranked = judge.Rankings(["b", "a"], [])
    asked = Question(text="", gold=frozenset({"a", "b"}), category="", grades={"a": 2.0, "b": 1.0})
    assert judge.ir(ranked, asked, frozenset())["ndcg@10"] < 1


@pytest.mark.parametrize("n", [1, 2, 5, 12, 25, 26, 60, 400])
@pytest.mark.parametrize("ties", [False, True])
def test_wilcoxon_agrees_with_scipy(n, ties):
    stats = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(n)
    a, b = draw.random(n) + 0.1, draw.random(n)
    if ties:
        a, b = np.round(4 * a), np.round(4 * b)
    if not (a != b).any():
        pytest.skip("no difference was drawn")
    tied = len(np.unique(np.abs((a - b)[a != b]))) < (a != b).sum()
    exact = (a != b).sum() <= metrics.EXACT and not tied
    known = stats.wilcoxon(a[a != b], b[a != b], method="exact" if exact else "asymptotic")
    found = metrics.wilcoxon(a, b)
    assert found == pytest.approx((known.statistic, known.pvalue), rel=1e-9)


def test_wilcoxon_of_few_by_hand():
    """All of five differences positive: two of the 32 ways to give signs are as far out."""
    a = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert metrics.wilcoxon(a, np.zeros(5)) == (0.0, 2 / 32)
    assert metrics.wilcoxon(a, a) == (0.0, 1.0)
    with pytest.raises(ValueError, match="5 and 4"):
        metrics.wilcoxon(a, a[:4])


def test_differences_that_are_equal_but_for_the_noise_of_floats_are_tied():
    noisy, none = np.array([0.1 + 0.2, -0.3, 0.6, 0.9 - 0.6, 1 - 0.9 - 0.1]), np.zeros(5)
    assert metrics.wilcoxon(noisy, none) == metrics.wilcoxon(np.array([3.0, -3.0, 6.0, 3.0, 0.0]), none)


@pytest.mark.skipif(not available(), reason="the extra `dense` is not installed")
def test_one_signal_that_is_left_out_takes_no_other_with_it(resources):
    def scores(*without):
        score = pipeline("default", resources, frozenset(without)).prepare(conversation("c"))
        return [score(Query(text)).tolist() for text, _ in ASKED]

    assert scores("vector") != scores("vector", "late") != scores("late")
