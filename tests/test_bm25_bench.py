"""`lantern bench bm25`, small: what it measures beside, what it says, what it writes."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner

from lantern_proxy.bench.bm25 import command, queries, synthetic
from lantern_proxy.bench.bm25_peers import release


def bench(*arguments):
    return CliRunner().invoke(command, ["--seconds", "0.05", *arguments])


def test_each_engine_gets_a_line_for_each_size_and_ours_comes_first():
    result = bench("--records", "300,900", "--engines", "fts5", "--json")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [(row["engine"], row["records"]) for row in rows] == [
        ("lantern", 300), ("fts5", 300), ("lantern", 900), ("fts5", 900),
    ]  # fmt: skip
    for row in rows:
        assert 0 < row["median_us"] <= row["p99_us"]
        assert row["queries"] >= 20
    assert rows[0]["ratio"] == rows[0]["same"] == 1


@pytest.mark.skipif(release("scipy") is None, reason="scipy is not installed")
def test_an_engine_with_the_same_formula_gives_the_same_scores():
    rows = [json.loads(line) for line in bench("--records", "2000", "--engines", "scipy", "--json").output.splitlines()]
    assert rows[1]["engine"] == "scipy"
    assert rows[1]["same"] == 1


def test_the_report_holds_the_table_and_a_plot_that_is_well_formed(tmp_path):
    result = bench("--records", "300,900", "--engines", "fts5", "--write", str(tmp_path / "docs"))
    assert result.exit_code == 0
    text = (tmp_path / "docs" / "bm25.md").read_text(encoding="utf-8")
    assert result.output.strip() in text
    assert "| engine | 300 | 900 |" in text
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


@pytest.mark.parametrize(("option", "value"), [("--engines", "lucene"), ("--records", "many")])
def test_what_is_not_known_is_named(option, value):
    result = bench(option, value)
    assert result.exit_code == 2
    assert value in result.output
