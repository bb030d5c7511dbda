"""Other BM25 engines, each as build(records) -> search(terms, k). Those that are installed are measured."""

import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from weakref import finalize

import numpy as np

from lantern_proxy.bench import bm25_lucene
from lantern_proxy.bench.bm25_records import K1, B, Records, Search
from lantern_proxy.bm25 import Index

PISA_HITS = 1000


def lantern(records: Records) -> Search:
    index = Index(K1, B)
    add_all(index, records, len(records))
    return index.search


def add_all(index: Index, records: Records, n: int) -> None:
    """The first n records, ten thousand at a time."""
    for first in range(0, n, 10_000):
        ids = range(first, min(first + 10_000, n))
        lines = ["\n".join(records.terms(i)).encode() for i in ids]
        index.add_lines(ids, [0.0] * len(ids), lines)


def bm25s(records: Records) -> Search:
    """Its numba backend; retrieve() is its documented interface."""
    from bm25s import BM25
    from bm25s.tokenization import Tokenized

    ids = [records.tokens[a:b].tolist() for a, b in zip(records.starts[:-1], records.starts[1:], strict=True)]
    retriever = BM25(k1=K1, b=B, method="lucene", backend="numba")
    retriever.index(Tokenized(ids=ids, vocab={w: i for i, w in enumerate(records.words)}), show_progress=False)
    return lambda terms, k: retriever.retrieve([list(terms)], k=k, show_progress=False)


def tantivy(records: Records) -> Search:
    """One segment in memory; a search returns document addresses, without fetching stored fields."""
    import tantivy as t

    builder = t.SchemaBuilder()
    builder.add_text_field("text", stored=False, index_option="freq")
    schema = builder.build()
    index = t.Index(schema)
    writer = index.writer(heap_size=1_000_000_000, num_threads=1)
    for i in range(len(records)):
        writer.add_document(t.Document(text=" ".join(records.terms(i))))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher, should = index.searcher(), t.Occur.Should

    def search(terms: Sequence[str], k: int) -> Any:
        clauses = [(should, t.Query.term_query(schema, "text", term, "freq")) for term in terms]
        return searcher.search(t.Query.boolean_query(clauses), k, count=False).hits

    return search


def fts5(records: Records) -> Search:
    """SQLite's own, in memory, without a copy of the text."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE records USING fts5(text, content='', detail=column, tokenize='ascii')")
    rows = ((i, " ".join(records.terms(i))) for i in range(len(records)))
    db.executemany("INSERT INTO records (rowid, text) VALUES (?, ?)", rows)
    db.execute("INSERT INTO records (records) VALUES ('optimize')")
    sql = "SELECT rowid, rank FROM records WHERE records MATCH ? ORDER BY rank LIMIT ?"
    return lambda terms, k: db.execute(sql, (" OR ".join(f'"{term}"' for term in terms), k)).fetchall()


def rank_bm25(records: Records) -> Search:
    from rank_bm25 import BM25Okapi

    okapi = BM25Okapi([records.terms(i) for i in range(len(records))], k1=K1, b=B)
    return lambda terms, k: np.argsort(okapi.get_scores(list(terms)))[::-1][:k]


def scipy(records: Records) -> Search:
    """Precomputed float32 impacts in a sparse matrix, one column per term; dense sum and argpartition."""
    from scipy.sparse import csc_matrix

    n = len(records)
    lengths = np.diff(records.starts)
    slots = np.repeat(np.arange(n, dtype=np.int32), lengths)
    counts = csc_matrix((np.ones(len(slots), np.float32), (slots, records.tokens)), shape=(n, len(records.words)))
    counts.sum_duplicates()
    df = np.diff(counts.indptr)
    idf = np.log(1 + (n - df + 0.5) / (df + 0.5))
    norm = K1 * (1 - B + B * lengths / lengths.mean())
    tf = counts.data
    counts.data = (np.repeat(idf, df) * tf / (tf + norm[counts.indices])).astype(np.float32)
    column = {word: i for i, word in enumerate(records.words)}

    def search(terms: Sequence[str], k: int) -> tuple[Any, Any]:
        scores = np.zeros(n, np.float32)
        for term, times in Counter(terms).items():
            if term in column:
                a, b = counts.indptr[column[term]], counts.indptr[column[term] + 1]
                scores[counts.indices[a:b]] += times * counts.data[a:b]
        best = np.argpartition(scores, -k)[-k:] if k < n else np.arange(n)
        best = best[np.argsort(scores[best])[::-1]]
        return best, scores[best]

    return search


class Pisa:
    """PISA, through pyterrier-pisa: its defaults, block-max WAND over lists packed by SIMD-BP128, one thread.

    A search returns at most PISA_HITS. PISA's files are removed with the object.
    """

    def __init__(self, records: Records) -> None:
        import pyterrier_pisa

        folder = tempfile.mkdtemp(prefix="lantern-pisa-")
        finalize(self, shutil.rmtree, folder, ignore_errors=True)
        with _silence():
            index = pyterrier_pisa.PisaIndex(
                f"{folder}/index", text_field="text", stemmer="none", stops="none", threads=1
            )
            index.index({"docno": str(i), "text": " ".join(records.terms(i))} for i in range(len(records)))
            self._ranker = index.bm25(k1=K1, b=B, num_results=PISA_HITS, threads=1)
        self._retrieve = pyterrier_pisa._pisathon.retrieve
        self._into: dict[str, Any] = {
            "result_qidxs": np.empty(PISA_HITS, np.int32), "result_docnos": np.empty(PISA_HITS, object),
            "result_ranks": np.empty(PISA_HITS, np.int32), "result_scores": np.empty(PISA_HITS, np.float32),
        }  # fmt: skip

    def __call__(self, terms: Sequence[str], k: int) -> tuple[Any, Any]:
        """Names of records and scores, best first: its transform() without the tables of pandas around it."""
        n = self._retrieve(
            self._ranker._ctxt, self._ranker.query_algorithm.value, [(0, " ".join(terms))], k=k, threads=1,
            query_weighted=0, pretokenised=False, **self._into,
        )  # fmt: skip
        return self._into["result_docnos"][:n].copy(), self._into["result_scores"][:n].copy()


@contextmanager
def _silence() -> Iterator[None]:
    """PISA prints its progress to both outputs, from C++."""
    kept = [os.dup(fd) for fd in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for fd in (1, 2):
            os.dup2(nothing, fd)
        yield
    finally:
        for fd, old in zip((1, 2), kept, strict=True):
            os.dup2(old, fd)
            os.close(old)
        os.close(nothing)


PEERS: dict[str, Callable[[Records], Search]] = {
    "lantern": lantern,
    "bm25s": bm25s,
    "tantivy": tantivy,
    "lucene": bm25_lucene.Lucene,
    "pisa": Pisa,
    "fts5": fts5,
    "scipy": scipy,
    "rank_bm25": rank_bm25,
}
MOST_RECORDS = {"rank_bm25": 5_000, "fts5": 100_000}
"""Limits for peers that would take minutes."""


PACKAGES = {"bm25s": ("bm25s", "numba"), "pisa": ("pyterrier-pisa",)}


def release(name: str) -> str | None:
    """The installed version of a peer, such as "0.3.1"; None if it is not installed."""
    if name == "lucene":
        return bm25_lucene.release()
    if name == "fts5":
        return f"SQLite {sqlite3.sqlite_version}"
    try:
        both = [version(package) for package in PACKAGES.get(name, (name,))]
    except PackageNotFoundError:
        return "" if name == "lantern" else None
    return " + numba ".join(both)


def how_to_install(name: str) -> str:
    return {
        "lucene": "Debian: liblucene8-java and openjdk-17-jdk-headless",
        "pisa": "pip install pyterrier-pisa",
        "bm25s": "pip install bm25s numba",
    }.get(name, f"pip install {name}")
