"""PISA beside us, through pyterrier-pisa: its defaults, block-max WAND over lists packed by SIMD-BP128, one thread."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import finalize

import numpy as np

from lantern_proxy.bench.bm25_records import K1, B, Records

MOST_HITS = 1000


class Pisa:
    """A search over records, of MOST_HITS hits at most. What PISA writes to disk goes with it."""

    def __init__(self, records: Records) -> None:
        import pyterrier_pisa

        folder = tempfile.mkdtemp(prefix="lantern-pisa-")
        finalize(self, shutil.rmtree, folder, ignore_errors=True)
        with _silence():
            index = pyterrier_pisa.PisaIndex(
                f"{folder}/index", text_field="text", stemmer="none", stops="none", threads=1
            )
            index.index({"docno": str(i), "text": " ".join(records.terms(i))} for i in range(len(records)))
            self._ranker = index.bm25(k1=K1, b=B, num_results=MOST_HITS, threads=1)
        self._retrieve = pyterrier_pisa._pisathon.retrieve
        self._into: dict[str, Any] = {
            "result_qidxs": np.empty(MOST_HITS, np.int32), "result_docnos": np.empty(MOST_HITS, object),
            "result_ranks": np.empty(MOST_HITS, np.int32), "result_scores": np.empty(MOST_HITS, np.float32),
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
    """PISA tells of its progress on both outputs, from C++."""
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
