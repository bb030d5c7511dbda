"""One process's metrics as Prometheus text. A module of its own, so that only a scrape imports prometheus_client."""

import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.registry import Collector
from starlette.datastructures import State

from lantern_proxy.archive.file import size_bytes

__all__ = ["CONTENT_TYPE", "text"]


def text(state: State, index_bytes: int) -> str:
    """index_bytes: memory of the BM25 indexes; computing it takes milliseconds, so do it in a thread"""
    registry = CollectorRegistry()
    registry.register(_Tallies(state, index_bytes))
    return generate_latest(registry).decode()


class _Tallies(Collector):
    def __init__(self, state: State, index_bytes: int) -> None:
        self._state = state
        self._index_bytes = index_bytes

    def collect(self) -> Iterator[Metric]:
        proxy = self._state.proxy
        yield _counter("lantern_requests", "Requests of memory paths by event.", "event", proxy.tallies.events)
        yield _counter("lantern_degraded", "What was skipped and why.", "reason", proxy.tallies.degraded)
        yield _counter(
            "lantern_faults",
            "Faults of the archive, of what restores and of the embedder.",
            "kind",
            proxy.writer.opened.faults,
        )
        yield _counter("lantern_redacted", "What was redacted before archiving.", "kind", proxy.privacy.found)
        yield CounterMetricFamily(
            "lantern_restored_passages", "Passages restored for the first time.", proxy.tallies.restored
        )
        yield CounterMetricFamily(
            "lantern_restored_chars", "Characters added to requests, replays included.", proxy.tallies.added_chars
        )
        yield GaugeMetricFamily("lantern_worker_up", "1 while the worker answers.", 1)
        yield GaugeMetricFamily("lantern_queue_depth", "Records that wait for the writer.", proxy.writer.depth)
        yield GaugeMetricFamily(
            "lantern_archive_up", "1 while the archive can be written.", not proxy.writer.opened.problem
        )
        yield GaugeMetricFamily(
            "lantern_archive_bytes",
            "Size of the archive, its write-ahead log included.",
            _size(proxy.config.archive.path),
        )
        yield GaugeMetricFamily("lantern_uptime_seconds", "Seconds since start.", time.time() - self._state.started_at)
        histogram = HistogramMetricFamily(
            "lantern_prepare_seconds", "Time a request spends here before it goes upstream."
        )
        histogram.add_metric([], proxy.tallies.prepare_s.buckets(), proxy.tallies.prepare_s.total)
        yield histogram
        yield from self._more()

    def _more(self) -> Iterator[Metric]:
        proxy = self._state.proxy
        stages = HistogramMetricFamily(
            "lantern_stage_seconds",
            "Time by stage: session, restore, upstream (to its first byte), answer, archive.",
            labels=["stage"],
        )
        for stage, timed in sorted(proxy.tallies.stages.items()):
            stages.add_metric([stage], timed.buckets(), timed.total)
        yield stages
        yield _counter("lantern_blocks", "Blocks added, by kind.", "kind", proxy.tallies.blocks)
        prefix = proxy.tallies.prefix
        yield CounterMetricFamily(
            "lantern_prefix_shared_bytes",
            "Bytes that two requests with blocks begin with alike.",
            prefix.shared,
        )
        yield CounterMetricFamily(
            "lantern_prefix_kept_bytes", "Those of them that went upstream as they did before.", prefix.kept
        )
        yield GaugeMetricFamily("lantern_index_bytes", "BM25 indexes open in memory.", self._index_bytes)
        embedder = proxy.embedder
        yield GaugeMetricFamily(
            "lantern_embedder_up", "1 while vectors are made.", bool(embedder and embedder.state == "ready")
        )


def _counter(name: str, text: str, label: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _size(path: Path) -> int:
    try:
        return size_bytes(path)
    except OSError:
        return 0
