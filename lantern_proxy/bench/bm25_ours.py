"""`lantern bench bm25` for our index alone: appends during searches, cold caches, memory, bandwidth."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lantern_proxy.bench.bm25_peers import add_all
from lantern_proxy.bench.bm25_records import COMMON, K1, B, K, Records
from lantern_proxy.bm25 import Index

THREADS, BUFFER_BYTES = 4, 64 << 20


@dataclass(frozen=True, slots=True)
class AloneFigures:
    """Microseconds, unless the name says otherwise."""

    records: int
    add_p50_us: float
    add_p99_us: float
    """From terms to a searchable record, with no other load."""
    busy_add_p50_us: float
    busy_add_p99_us: float
    """The same while four threads search."""
    hot_us: float
    """Median of queries when asked for the second time in a row."""
    cold_us: float
    """Median after 64 MB of other memory were touched before each query."""
    floor_us: float
    """Time to read the postings of such a query at memory bandwidth, which is measured by a copy."""
    noise: float
    """p99 / p50 of a constant loop as long as a query: the machine's share in our p99."""
    bytes_a_record: float


def measure_alone(records: Records, questions: Sequence[Sequence[str]], adds: int = 2000) -> AloneFigures:
    n, before = len(records), max(0, len(records) - adds)
    with Index(K1, B) as index:
        add_all(index, records, before)
        alone = [timed_add(index, i, records.terms(i)) for i in range(before, n)]
        bytes_a_record = index.size_bytes / n
        hot = []
        for question in questions:
            search(index, question)
            hot.append(search(index, question))
        cold = cold_times(index, questions[:50])
        noise = np.percentile([timed_loop(float(np.median(hot))) for _ in range(500)], [50, 99])
        busy = busy_adds(index, records, questions, min(adds, n))
    return AloneFigures(
        n, *percentiles(alone), *percentiles(busy), round(float(np.median(hot)), 1), round(float(np.median(cold)), 1),
        round(bytes_of(records, questions) / bandwidth() * 1e6, 1), round(noise[1] / noise[0], 2),
        round(bytes_a_record, 1),
    )  # fmt: skip


def percentiles(times: Sequence[float]) -> tuple[float, float]:
    p50, p99 = np.percentile(times, [50, 99])
    return round(float(p50), 1), round(float(p99), 1)


def timed_add(index: Index, doc_id: int, terms: Sequence[str]) -> float:
    begun = time.perf_counter_ns()
    index.add(doc_id, terms)
    return (time.perf_counter_ns() - begun) / 1e3


def search(index: Index, question: Sequence[str]) -> float:
    begun = time.perf_counter_ns()
    index.search(question, K)
    return (time.perf_counter_ns() - begun) / 1e3


def cold_times(index: Index, questions: Sequence[Sequence[str]]) -> list[float]:
    buffer, times = np.zeros(BUFFER_BYTES // 8, np.int64), []
    for question in questions:
        buffer += 1
        times.append(search(index, question))
    return times


def timed_loop(about_us: float) -> float:
    begun = time.perf_counter_ns()
    for _ in range(int(about_us * 20)):
        pass
    return (time.perf_counter_ns() - begun) / 1e3


def busy_adds(index: Index, records: Records, questions: Sequence[Sequence[str]], adds: int) -> list[float]:
    """The first records are added again under new ids, while four threads search continuously."""
    stop = threading.Event()

    def search_until_stopped(first: int) -> None:
        at = first
        while not stop.is_set():
            index.search(questions[at % len(questions)], K)
            at += THREADS

    threads = [threading.Thread(target=search_until_stopped, args=(first,)) for first in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        return [timed_add(index, len(records) + i, records.terms(i)) for i in range(adds)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def bytes_of(records: Records, questions: Sequence[Sequence[str]]) -> float:
    """Bytes read by an average query: 4 bits per record of a common term, 5 bytes per posting of another."""
    share = records.shares()
    place = {word: i for i, word in enumerate(records.words)}
    read = [[0.5 if (df := share[place[term]]) > COMMON else 5 * df for term in question] for question in questions]
    return float(np.mean([sum(one) for one in read])) * len(records)


def bandwidth() -> float:
    """Bytes per second that one thread reads and writes, the best of five."""
    source = np.ones(BUFFER_BYTES // 4, np.int64)
    into, best = np.empty_like(source), np.inf
    for _ in range(5):
        begun = time.perf_counter()
        np.copyto(into, source)
        best = min(best, time.perf_counter() - begun)
    return 2 * source.nbytes / best


def table(rows: Sequence[AloneFigures]) -> str:
    lines = [
        "| records | add p50, p99 | add while 4 threads search | query hot, cold | floor by bandwidth | "
        "p99 / p50 of a fixed loop | bytes a record |",
        "| ---: " * 7 + "|",
    ]
    lines += [
        f"| {r.records:,} | {r.add_p50_us:,.1f}, {r.add_p99_us:,.1f} | {r.busy_add_p50_us:,.1f}, "
        f"{r.busy_add_p99_us:,.1f} | {r.hot_us:,.1f}, {r.cold_us:,.1f} | {r.floor_us:,.1f} | {r.noise:.1f} | "
        f"{r.bytes_a_record:,.0f} |"
        for r in rows
    ]
    return "\n".join(lines)
