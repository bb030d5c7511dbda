"""nDCG@10 of our index, and of engines with Lucene's formula, on collections in BEIR's format, analysed alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from lantern_proxy.analyze import query_terms, terms
from lantern_proxy.bench.bm25_peers import PEERS, release
from lantern_proxy.bench.bm25_records import Records
from lantern_proxy.bench.datasets import DataError, ir
from lantern_proxy.bench.metrics import ndcg

ENGINES = ("lantern", "lucene", "bm25s")
DEPTH = 10


@dataclass(frozen=True, slots=True)
class Collection:
    """grades: for each query, document id -> grade. Queries without a relevant document are left out."""

    name: str
    ids: list[str]
    texts: list[list[str]]
    queries: list[list[str]]
    grades: list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class Quality:
    collection: str
    engine: str
    release: str
    documents: int
    queries: int
    ndcg: float


def folders(folder: Path) -> list[Path]:
    """The subfolders with a collection. click.BadParameter if there is none."""
    found = sorted({path.parent for name in ("corpus.jsonl", "corpus.jsonl.gz") for path in folder.glob(f"*/{name}")})
    if not found:
        raise click.BadParameter(f"--collections {folder} holds no NAME/corpus.jsonl (or .gz), as BEIR's sets have")
    return found


def read(folder: Path) -> Collection:
    """A collection of datasets.ir, analysed like the archive's passages and questions. Raises DataError, also if no
    question has a relevant document."""
    (whole,) = ir(folder)
    if not whole.questions:
        raise DataError(f"{folder}: no question has a relevant document; nothing to measure")
    return Collection(
        folder.name,
        [each.id for each in whole.candidates],
        [terms(each.text) for each in whole.candidates],
        [query_terms(asked.text) for asked in whole.questions],
        [dict(asked.grades) for asked in whole.questions],
    )


def compare(folder: Path, engines: Sequence[str]) -> Iterator[Quality]:
    """The collection of a folder, by one engine after the other. Raises DataError."""
    collection = read(folder)
    records, word_of = Records.of(collection.texts)
    for engine in engines:
        search = PEERS[engine](records)
        values = []
        for query, grades in zip(collection.queries, collection.grades, strict=True):
            known = [word_of[term] for term in query if term in word_of]
            best = np.asarray(search(known, DEPTH)[0]).ravel() if known else ()
            values.append(ndcg([collection.ids[int(place)] for place in best], grades, DEPTH))
        yield Quality(
            collection.name, engine, release(engine) or "", len(collection.ids), len(values),
            round(float(np.mean(values)), 4),
        )  # fmt: skip


def table(rows: Sequence[Quality]) -> str:
    """Markdown: one line per collection, one column per engine."""
    engines = list(dict.fromkeys(row.engine for row in rows))
    titles = [f"{row.engine} {row.release}".strip() for row in rows[: len(engines)]]
    lines = [f"| nDCG@{DEPTH} | documents | queries | " + " | ".join(titles) + " |"]
    lines.append("| --- " + "| ---: " * (2 + len(engines)) + "|")
    for name in dict.fromkeys(row.collection for row in rows):
        of = [row for row in rows if row.collection == name]
        cells = " | ".join(f"{row.ndcg:.4f}" for row in of)
        lines.append(f"| {name} | {of[0].documents:,} | {of[0].queries:,} | {cells} |")
    return "\n".join(lines)
