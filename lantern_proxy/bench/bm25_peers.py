"""Other BM25 engines, each as build(records) -> search(terms, k). They are measured where they are installed."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lantern_proxy.bm25 import Index

K1, B = 0.9, 0.4

Tokens = npt.NDArray[np.int32]
Search = Callable[[Sequence[str], int], Any]


class Records(Protocol):
    """tokens[starts[i] : starts[i + 1]] are record i, as places in `words`."""

    @property
    def tokens(self) -> Tokens: ...

    @property
    def starts(self) -> npt.NDArray[np.int64]: ...

    @property
    def words(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def terms(self, i: int) -> list[str]: ...


def lantern(records: Records) -> Search:
    index = Index(K1, B)
    for i in range(len(records)):
        index.add(i, records.terms(i))
    return index.search


def bm25s(records: Records) -> Search:
    """Its numba backend; retrieve() is its documented way to ask."""
    from bm25s import BM25  # type: ignore[import-not-found]
    from bm25s.tokenization import Tokenized  # type: ignore[import-not-found]

    ids = [records.tokens[a:b].tolist() for a, b in zip(records.starts[:-1], records.starts[1:], strict=True)]
    retriever = BM25(k1=K1, b=B, method="lucene", backend="numba")
    retriever.index(Tokenized(ids=ids, vocab={w: i for i, w in enumerate(records.words)}), show_progress=False)
    return lambda terms, k: retriever.retrieve([list(terms)], k=k, show_progress=False)


def tantivy(records: Records) -> Search:
    """One segment in memory; a search ends at document addresses, without fetching a stored field."""
    import tantivy as t  # type: ignore[import-not-found]

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
    from rank_bm25 import BM25Okapi  # type: ignore[import-not-found]

    okapi = BM25Okapi([records.terms(i) for i in range(len(records))], k1=K1, b=B)
    return lambda terms, k: np.argsort(okapi.get_scores(list(terms)))[::-1][:k]


def scipy(records: Records) -> Search:
    """Precomputed float32 impacts in a sparse matrix, one column a term; dense sum and argpartition."""
    from scipy.sparse import csc_matrix  # type: ignore[import-untyped]

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


PEERS: dict[str, Callable[[Records], Search]] = {
    "lantern": lantern,
    "bm25s": bm25s,
    "tantivy": tantivy,
    "fts5": fts5,
    "scipy": scipy,
    "rank_bm25": rank_bm25,
}
MOST_RECORDS = {"rank_bm25": 5_000, "fts5": 100_000}
"""Where a peer would take minutes."""


def release(name: str) -> str | None:
    """What of a peer is installed: "0.3.1", or None when it is not."""
    if name == "fts5":
        return f"SQLite {sqlite3.sqlite_version}"
    try:
        both = [version(package) for package in ((name, "numba") if name == "bm25s" else (name,))]
    except PackageNotFoundError:
        return "" if name == "lantern" else None
    return " + numba ".join(both)
