"""One measured line of `lantern bench proxy`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Times in milliseconds, proxied minus direct at the same quantile; first: until the first byte of the body;
    delay: from the moment an event was sent until it was here; NaN: not measured."""

    gateway: str
    memory: str
    size_bytes: int
    growing: bool
    chunks: int
    gap_us: int
    concurrency: int
    busy: bool
    asked: int
    errors: int
    direct_ms: float
    added_p50_ms: float
    added_p95_ms: float
    added_p99_ms: float
    first_p50_ms: float
    first_p95_ms: float
    delay_p50_ms: float
    delay_p99_ms: float
    per_s: float
    per_core_s: float
    """Requests that one second of the gateway's CPU time serves."""
    cpu_ms: float
    """Its CPU time a request, archiving included."""
    rss_mb: float

    @property
    def kind(self) -> str:
        """What was asked, for people."""
        size = f"{self.size_bytes / 1000:g} KB" if self.size_bytes < 1_000_000 else f"{self.size_bytes / 1e6:g} MB"
        answer = (
            "" if not self.chunks else ", streamed" if not self.gap_us else f", a piece every {self.gap_us / 1000:g} ms"
        )
        history = "" if self.growing else ", unrelated"
        return f"{size}{history}{answer}" + (", embedder busy" if self.busy else "")

    def line(self) -> str:
        """For a terminal, while it is measured."""
        return (
            f"{self.gateway:9} {self.memory:8} {self.kind:34} x{self.concurrency:<4} n={self.asked:<6} "
            f"direct {self.direct_ms:7.2f}  added {self.added_p50_ms:7.2f} {self.added_p95_ms:7.2f} "
            f"{self.added_p99_ms:7.2f}  first {self.first_p50_ms:6.2f}  delay p99 {self.delay_p99_ms:6.2f}  "
            f"{self.per_s:7.0f}/s {self.per_core_s:7.0f}/core-s {self.cpu_ms:6.2f} ms cpu {self.rss_mb:5.0f} MB"
            + (f"  {self.errors} ERRORS" if self.errors else "")
        )
