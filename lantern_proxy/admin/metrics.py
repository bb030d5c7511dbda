"""Prometheus text, and the snapshot behind /lantern/health. Reads the proxy's own tallies; keeps none."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response

from lantern_proxy.archive_file import size_bytes


def snapshot(state: State) -> dict[str, Any]:
    """What serves and what does not; JSON-able."""
    proxy = state.proxy
    writer, embedder = proxy.writer, proxy.embedder
    problem = writer.problem
    return {
        "status": "degraded" if problem else "ok",
        "uptime_s": round(time.time() - state.started_at, 1),
        "archive": {
            "path": str(proxy.config.archive.path), "ok": not problem, "problem": problem, "waiting": writer.depth,
        },
        "embedder": {
            "state": embedder.state if embedder else "off",
            "detail": embedder.detail if embedder else "not installed or turned off",
        },
        "bm25": {"kernel": proxy.kernel},
        "events": dict(proxy.tallies.events),
        "degraded": dict(proxy.tallies.degraded),
        "faults": dict(writer.faults),
    }  # fmt: skip


async def prometheus(request: Request) -> Response:
    """GET /lantern/metrics."""
    registry = CollectorRegistry()
    registry.register(_Tallies(request.app.state))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Tallies(Collector):
    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        proxy = self._state.proxy
        yield _counter("lantern_requests", "Requests of memory paths by event.", "event", proxy.tallies.events)
        yield _counter("lantern_degraded", "What was skipped and why.", "reason", proxy.tallies.degraded)
        yield _counter("lantern_faults", "Faults of the archive and the embedder.", "kind", proxy.writer.faults)
        yield CounterMetricFamily(
            "lantern_restored_passages", "Passages restored for the first time.", proxy.tallies.restored
        )
        yield CounterMetricFamily(
            "lantern_restored_chars", "Characters added to requests, replays included.", proxy.tallies.added_chars
        )
        yield GaugeMetricFamily("lantern_queue_depth", "Records that wait for the writer.", proxy.writer.depth)
        yield GaugeMetricFamily("lantern_archive_up", "1 while the archive can be written.", not proxy.writer.problem)
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
