"""One OpenTelemetry span per request of a memory path, by the gen_ai conventions. Off unless configured.

    chat gpt-5                     CLIENT; gen_ai.request.model, gen_ai.conversation.id, gen_ai.usage.*, ...
      lantern session              INTERNAL; which session, and what was lost
      lantern restore              INTERNAL; only if one was tried
      lantern upstream             INTERNAL; up to the first byte of the answer
      lantern answer               INTERNAL; up to its last

Spans are made after the answer, from times that are measured anyway, so they do not slow a request down. They hold no
text. A client's `traceparent` makes them part of its trace.
"""

import logging
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from lantern_proxy import __version__
from lantern_proxy.config import TraceConfig
from lantern_proxy.config.check import ConfigError

log = logging.getLogger("lantern.trace")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROVIDERS = {"chat": "openai", "responses": "openai", "messages": "anthropic"}
_ERROR = 400
_USAGE = re.compile(rb'"(prompt|input|completion|output)_tokens"\s*:\s*(\d{1,12})')
_SIDES = {b"prompt": "input", b"input": "input", b"completion": "output", b"output": "output"}
_HEAD, _TAIL = 4_096, 16_384
"""Bytes at both ends of an answer that are searched for its usage: Anthropic's streams report the prompt's first."""


def is_on(config: TraceConfig, environ: Mapping[str, str] = os.environ) -> bool:
    """Is a collector configured? Finding out imports nothing of OpenTelemetry."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if config.otlp_endpoint:
        return True
    if not any(environ.get(name) for name in _ENDPOINTS):
        return False
    if not _installed():  # the variable may be meant for other programs on this machine
        log.warning('OTEL_EXPORTER_OTLP_ENDPOINT is set, but nothing is traced; pip install "lantern-proxy[otel]"')
    return _installed()


def check(config: TraceConfig) -> None:
    """Raise ConfigError if spans are configured and the packages are missing."""
    if is_on(config) and not _installed():
        raise ConfigError("trace.otlp_endpoint", 'needs OpenTelemetry; pip install "lantern-proxy[otel]"')


def _installed() -> bool:
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.sdk") is not None


class Tracer:
    """Is called for each request (proxy.Proxy.listeners), and sends spans from its own thread. Must be closed.

    exporter: by default OTLP over HTTP. Raises ConfigError if the packages are missing.
    """

    def __init__(self, config: TraceConfig, *, exporter: Any = None) -> None:
        check(config)
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        service = os.environ.get("OTEL_SERVICE_NAME") or config.service_name
        resource = Resource.create({"service.name": service, "service.version": __version__})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter(config)))
        self._tracer = self._provider.get_tracer("lantern_proxy", __version__)
        self._api = trace

    def on_request(self, exchange: Any, status: int) -> None:
        """Make the spans of a completed request."""
        trace, request = self._api, exchange.request
        if request is None:
            return
        at = _ns(exchange.at)
        span = self._tracer.start_span(
            f"chat {request.model}".strip(), context=_parent(exchange.arrival.header("traceparent")),
            kind=trace.SpanKind.CLIENT, attributes=_attributes(exchange, status), start_time=at,
        )  # fmt: skip
        if not 0 < status < _ERROR:
            span.set_status(trace.Status(trace.StatusCode.ERROR))
            span.set_attribute("error.type", str(status) if status else "no_answer")
        within = trace.set_span_in_context(span)
        for stage, seconds in exchange.laps:
            part = self._tracer.start_span(f"lantern {stage}", context=within, start_time=at)
            at += _ns(seconds)
            part.end(at)
        span.end(at)

    def flush(self) -> None:
        self._provider.force_flush()

    def close(self) -> None:
        """Send the remaining spans, and stop."""
        self._provider.shutdown()


def _exporter(config: TraceConfig) -> Any:
    """An exporter to the configured endpoint; without one it reads OTEL_... itself."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    if not config.otlp_endpoint:
        return OTLPSpanExporter()
    return OTLPSpanExporter(endpoint=f"{config.otlp_endpoint.rstrip('/').removesuffix('/v1/traces')}/v1/traces")


def _parent(traceparent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None


def _attributes(exchange: Any, status: int) -> dict[str, Any]:
    request = exchange.request
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(request.api, request.api),
        "gen_ai.request.model": request.model,
        "gen_ai.conversation.id": exchange.session,
        "http.response.status_code": status,
        "lantern.request": exchange.id,
        "lantern.event": exchange.event,
        "lantern.restored": exchange.restored,
        "lantern.chars": exchange.chars,
        "lantern.degraded": list(dict.fromkeys(exchange.degraded)),
    }
    return {name: value for name, value in attributes.items() if value not in ("", [])} | usage(exchange.answered)


def usage(answer: bytes) -> dict[str, int]:
    """gen_ai.usage.input_tokens and .output_tokens as last reported by the upstream; without those it did not report.

    Quotes inside a string are escaped, so the model's text is not taken for them.
    """
    looked_at = answer if len(answer) <= _HEAD + _TAIL else answer[:_HEAD] + answer[-_TAIL:]
    return {f"gen_ai.usage.{_SIDES[side]}_tokens": int(count) for side, count in _USAGE.findall(looked_at)}


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
