"""`lantern bench bm25`, small: what it measures beside, what it says, what it writes."""

import json
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from lantern_proxy.bench import bm25_ours
from lantern_proxy.bench.bm25 import TIMED_BY_STATE, command, queries, synthetic
from lantern_proxy.bench.bm25_lucene import Lucene, jars
from lantern_proxy.bench.bm25_peers import PEERS, release
from lantern_proxy.bench.bm25_records import Records


def bench(*arguments):
    return CliRunner().invoke(command, ["--seconds", "0.05", *arguments])


STATES = ["in turn", "hot", "cold"]


def test_each_engine_gets_a_line_for_each_size_and_state_and_ours_comes_first():
    result = bench("--records", "300,900", "--engines", "fts5", "--json")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [(row["records"], row["state"], row["engine"]) for row in rows] == [
        (n, state, engine) for n in (300, 900) for state in STATES for engine in ("lantern", "fts5")
    ]
    for ours, other in zip(rows[::2], rows[1::2], strict=True):
        assert ours["ratio"] == ours["same"] == 1
        assert other["ratio"] == pytest.approx(other["median_us"] / ours["median_us"], rel=0.1)
        for row in (ours, other):
            assert 0 < row["median_us"] <= row["p99_us"]
            assert row["queries"] >= (20 if row["state"] == "in turn" else 1)


class Told:
    """A search that writes down what it is asked, and when others were asked between."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def __call__(self, terms, k):
        self.log.append((self.name, *terms))


def test_in_turn_is_twenty_for_each_and_hot_is_the_same_again_and_cold_is_each_once():
    questions = [[str(i)] for i in range(60)]
    asked = {}
    for state, ask in TIMED_BY_STATE.items():
        log = []
        times = ask({name: Told(log, name) for name in "ab"}, questions, 100)
        asked[state] = log
        assert {name: len(t) for name, t in times.items()} == dict.fromkeys(
            "ab", {"in turn": 180, "hot": 180, "cold": 50}[state]
        )
    assert asked["in turn"][:22] == [("a", "19"), *(("a", str(i)) for i in range(20)), ("b", "19")]
    assert asked["hot"][:9] == [("a", "0")] * 4 + [("b", "0")] * 4 + [("a", "1")]
    assert asked["cold"] == [(name, str(i)) for i in range(50) for name in "ab"]


def test_an_engine_that_has_had_its_time_is_asked_no_more():
    for ask in TIMED_BY_STATE.values():
        times = ask({name: lambda terms, k: time.sleep(0.005) for name in "ab"}, [["x"]] * 60, 0.05)
        assert all(1 <= len(t) <= 20 for t in times.values())


def test_figures_of_a_release_without_states_are_kept_as_those_in_turn(tmp_path):
    path = tmp_path / "figures.json"
    bench("--records", "300", "--engines", "fts5", "--part", "peers", "--merge", str(path))
    held = json.loads(path.read_text(encoding="utf-8"))
    assert [row["state"] for row in held["peers"]] == [state for state in STATES for _ in range(2)]
    held["peers"] = [{key: row[key] for key in row if key != "state"} | {"records": 77} for row in held["peers"][:2]]
    path.write_text(json.dumps(held), encoding="utf-8")
    result = bench("--records", "300", "--engines", "fts5", "--part", "peers", "--merge", str(path))
    in_turn, hot, cold = result.output.split("| engine | ")[1:]
    assert in_turn.startswith("77 | 300 |")
    assert hot.startswith("300 |")
    assert cold.startswith("300 |")


@pytest.mark.skipif(release("scipy") is None, reason="scipy is not installed")
def test_an_engine_with_the_same_formula_gives_the_same_scores():
    rows = [json.loads(line) for line in bench("--records", "2000", "--engines", "scipy", "--json").output.splitlines()]
    assert rows[1]["engine"] == "scipy"
    assert rows[1]["same"] == 1


@pytest.mark.skipif(release("lucene") is None, reason="Lucene is not installed")
def test_lucene_gives_the_same_scores_where_it_keeps_lengths_exactly_and_is_timed_by_itself():
    records = synthetic(300)
    short = Records(records.tokens[: 300 * 20], np.arange(301) * 20, records.words)  # it rounds lengths from 40 on
    lucene = Lucene(short, warm_s=0)
    for question in queries(records, 5):
        ids, scores = lucene(question, 10)
        best = PEERS["lantern"](short)(question, 10)[1]
        assert len(ids) == len(best)
        assert scores == pytest.approx(best, rel=1e-4)
        assert lucene.timed_us(question, 10) > 0


@pytest.mark.skipif(release("pisa") is None, reason="PISA is not installed")
def test_pisa_finds_mostly_what_we_find():
    records = synthetic(2000)
    pisa, ours = PEERS["pisa"](records), PEERS["lantern"](records)
    for question in queries(records, 5):
        found = {int(name) for name in pisa(question, 10)[0]}
        assert len(found & set(ours(question, 10)[0].tolist())) >= 5  # its idf is another


def test_what_is_not_installed_is_told_with_how_to_install_it(monkeypatch):
    monkeypatch.setenv("LANTERN_LUCENE", "/nowhere")
    jars.cache_clear()
    try:
        result = bench("--records", "300", "--engines", "lucene", "--json")
    finally:
        jars.cache_clear()
    assert "lucene: skipped, not installed (Debian: liblucene8-java" in result.output
    assert '"engine": "lantern"' in result.output


def test_the_report_holds_the_table_and_a_plot_that_is_well_formed(tmp_path):
    result = bench("--records", "300,900", "--engines", "fts5", "--write", str(tmp_path / "docs"))
    assert result.exit_code == 0
    text = (tmp_path / "docs" / "bm25.md").read_text(encoding="utf-8")
    tables = result.stdout[result.stdout.index("In turn. ") :]
    assert all(part.strip() in text for part in tables.split("| records"))
    assert text.count("| engine | 300 | 900 |") == len(STATES)
    assert text.count("\n| 300 | ") == text.count("\n| 900 | ") == 1  # ours alone
    svg = ElementTree.parse(tmp_path / "docs" / "bm25.svg").getroot()
    assert len(svg.findall("{http://www.w3.org/2000/svg}polyline")) == 2


def test_queries_have_nine_terms_and_half_of_them_are_common():
    records = synthetic(3000)
    df = {}
    for i in range(len(records)):
        for term in set(records.terms(i)):
            df[term] = df.get(term, 0) + 1
    for question in queries(records, 20):
        assert len(question) == 9
        assert sum(df[term] > 0.04 * 3000 for term in question) == 5
        assert all(df[term] > 0 for term in question)


def test_a_locomo_file_is_measured_with_its_own_questions(tmp_path):
    turns = [{"speaker": "Ann", "text": f"the {word} retry policy of Monday"} for word in ("old", "new", "odd")] * 40
    sample = {
        "conversation": {"session_1": turns, "speaker_a": "Ann"},
        "qa": [{"question": "Which retry policy?"}] * 30,
    }
    (tmp_path / "turns.json").write_text(json.dumps([sample]), encoding="utf-8")
    output = bench("--records", "300", "--engines", "fts5", "--locomo", str(tmp_path / "turns.json"), "--json").output
    assert [json.loads(line)["records"] for line in output.splitlines()] == [120] * 6 + [300] * 6
    (tmp_path / "turns.json").write_text("[1]", encoding="utf-8")
    result = bench("--records", "300", "--locomo", str(tmp_path / "turns.json"))
    assert result.exit_code == 2
    assert "is no LoCoMo file" in result.output


def test_what_is_said_of_ours_alone_is_measured():
    records = synthetic(1500)
    alone = bm25_ours.measure_alone(records, queries(records, 20), adds=200)
    assert 0 < alone.add_p50_us <= alone.add_p99_us
    assert 0 < alone.busy_add_p50_us <= alone.busy_add_p99_us
    assert alone.hot_us > 0 < alone.cold_us
    assert alone.floor_us > 0
    assert 100 < alone.bytes_a_record < 5000
    assert alone.noise >= 1


def test_of_a_page_that_is_there_only_the_section_of_figures_is_written(tmp_path):
    page = tmp_path / "bm25.md"
    page.write_text("# BM25\n\nWritten by hand.\n\n## How it works\n\nBlocks.\n", encoding="utf-8")
    for _ in range(2):
        assert (
            bench("--records", "100", "--engines", "fts5", "--seconds", "0.1", "--write", str(tmp_path)).exit_code == 0
        )
        text = page.read_text(encoding="utf-8")
        assert text.startswith("# BM25\n\nWritten by hand.\n\n## How it works\n\nBlocks.\n\n## All figures\n")
        assert text.count("## All figures") == text.count("### Ours alone") == 1


@pytest.mark.parametrize("part", ["peers", "ours"])
def test_what_is_measured_is_kept_and_told_at_once(tmp_path, monkeypatch, part):
    def stopped(n):
        if n == 900:
            raise KeyboardInterrupt
        return synthetic(n)

    monkeypatch.setattr("lantern_proxy.bench.bm25.synthetic", stopped)
    kept = tmp_path / "rows.json"
    given = ["--records", "300,900", "--engines", "fts5", "--part", part, "--merge", str(kept)]
    assert bench(*given).exit_code == 1
    held = json.loads(kept.read_text())
    assert (len(held["peers"]), len(held["alone"])) == ((6, 0) if part == "peers" else (0, 1))
    told = bench(*given)
    assert told.stderr.startswith("300 records\n" if part == "peers" else "ours alone\n")
    assert told.stdout.count("300 records  ") == (6 if part == "peers" else 0)


def test_a_file_of_something_else_is_refused_before_anything_is_measured(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine", encoding="utf-8")
    result = bench("--records", "300", "--engines", "fts5", "--json", "--merge", str(path))
    assert (result.exit_code, result.stdout, path.read_text(encoding="utf-8")) == (2, "", "mine")
    assert "holds no figures of this command" in result.stderr


@pytest.mark.parametrize(("option", "value"), [("--records", "99"), ("--records", "0"), ("--seconds", "0")])
def test_too_little_to_measure_with_is_refused(option, value):
    result = bench(option, value, "--engines", "fts5")
    assert result.exit_code == 2
    assert value in result.output


@pytest.mark.parametrize(("option", "value"), [("--engines", "solr"), ("--records", "many")])
def test_what_is_not_known_is_named(option, value):
    result = bench(option, value)
    assert result.exit_code == 2
    assert value in result.output
