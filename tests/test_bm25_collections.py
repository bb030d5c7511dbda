"""The index on published collections: set LANTERN_TEST_IR to a folder that holds scifact, cranfield, cisi and npl in
BEIR's form (corpus.jsonl.gz, queries.jsonl, qrels.tsv each), beside Lucene, and bm25s with Lucene's formula."""

import gzip
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from lantern_proxy.bench.bm25 import command
from lantern_proxy.bench.bm25_collections import compare, read
from lantern_proxy.bench.bm25_peers import release
from lantern_proxy.bm25 import Index, kernels

FOLDER = Path(os.environ.get("LANTERN_TEST_IR") or "none")
KERNELS = kernels()
needs_collections = pytest.mark.skipif(not FOLDER.is_dir(), reason="LANTERN_TEST_IR names no folder of collections")


@needs_collections
@pytest.mark.parametrize("name", ["scifact", "cranfield", "cisi", "npl"])
@pytest.mark.parametrize("peer", ["lucene", "bm25s"])
def test_ndcg_is_that_of_lucene(name, peer):
    if release(peer) is None:
        pytest.skip(f"{peer} is not installed")
    ours, theirs = (row.ndcg for row in compare(FOLDER / name, ["lantern", peer]))
    assert ours > 0.2
    assert abs(ours - theirs) < 0.005


@needs_collections
@pytest.mark.parametrize("name", ["scifact", "cranfield", "cisi", "npl"])
def test_all_kernels_agree_on_a_collection(name):
    collection = read(FOLDER / name)
    indexes = [Index(0.9, 0.4, kernel) for kernel in KERNELS]
    for index in indexes:
        for slot, text in enumerate(collection.texts):
            index.add(slot, text)
    for query in collection.queries:
        first, *others = (index.search(query, 10) for index in indexes)
        for ids, scores in others:
            assert (ids.tolist(), scores.tolist()) == (first[0].tolist(), first[1].tolist())


def write(folder):
    """Two documents, of which the second answers the one question that is judged."""
    folder.mkdir()
    docs = [
        {"_id": "a", "title": "", "text": "unlike it"},
        {"_id": "b", "title": "retry", "text": "policies of Monday"},
    ]
    with gzip.open(folder / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(doc) + "\n" for doc in docs)
    asked = [{"_id": "q", "text": "Which retry policy?"}, {"_id": "not judged", "text": "unlike"}]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)) + "\n", encoding="utf-8")
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tb\t1\n", encoding="utf-8")


def test_collections_of_a_folder_are_rated(tmp_path):
    write(tmp_path / "small")
    result = CliRunner().invoke(command, ["--collections", str(tmp_path), "--engines", "lantern"])
    assert "| nDCG@10 | documents | queries | lantern |" in result.output
    assert "| small | 2 | 1 | 1.0000 |" in result.output


def test_a_collection_is_found_as_beir_has_it_without_gz(tmp_path):
    write(tmp_path / "small")
    packed = tmp_path / "small" / "corpus.jsonl.gz"
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    result = CliRunner().invoke(command, ["--collections", str(tmp_path), "--engines", "lantern"])
    assert "| small | 2 | 1 | 1.0000 |" in result.output


def test_a_collection_without_a_judged_question_is_told_by_its_folder(tmp_path):
    write(tmp_path / "small")
    (tmp_path / "small" / "qrels.tsv").write_text("q\tb\t0\n", encoding="utf-8")
    result = CliRunner().invoke(command, ["--collections", str(tmp_path), "--engines", "lantern", "--json"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "small: no question has a relevant document" in result.stderr


def test_a_folder_without_collections_is_named(tmp_path):
    result = CliRunner().invoke(command, ["--collections", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds no NAME/corpus.jsonl (or .gz)" in result.output


@pytest.mark.parametrize(
    ("file", "content"), [("queries.jsonl", "{"), ("queries.jsonl", '{"id": 1}'), ("qrels.tsv", "q")]
)
def test_a_collection_that_cannot_be_read_is_told_with_its_file(tmp_path, file, content):
    write(tmp_path / "small")
    (tmp_path / "small" / file).write_text(content, encoding="utf-8")
    result = CliRunner().invoke(command, ["--collections", str(tmp_path), "--engines", "lantern"])
    assert (result.exit_code, "Traceback" in result.output) == (1, False)
    assert f"small/{file}: line 1" in result.output
