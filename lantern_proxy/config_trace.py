"""The `trace:` section: spans for an OpenTelemetry collector."""

from dataclasses import dataclass
from typing import Annotated

from lantern_proxy.config_check import Like, Section, Url


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConfig(Section):
    """The `trace:` section. Spans hold no text of a message and no credential."""

    otlp_endpoint: Annotated[str, Url(optional=True)] = ""
    """A collector's OTLP address over HTTP, "http://127.0.0.1:4318"; needs the extra `otel`. Empty: what
    OTEL_EXPORTER_OTLP_ENDPOINT says, and without that nothing is traced."""
    service_name: Annotated[str, Like(r"\S+", "use a name without spaces")] = "lantern"
    """What the spans are of. OTEL_SERVICE_NAME overrides."""
