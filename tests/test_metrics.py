"""What Prometheus, Grafana and an OpenTelemetry collector are told, by the real app."""

import gzip
import json
import re
from pathlib import Path

import httpx
import pytest
from scripted import COMPACTED, Upstream, ask, body, compacted_chat, config_for, lantern_headers, serving, wait_for

from lantern_proxy import app
from lantern_proxy.config import TraceConfig
from lantern_proxy.trace import Tracer, is_on, usage

DASHBOARD = Path(__file__).parent.parent / "docs" / "grafana.json"
FACTS = [f"Fact {n}: service s{n} listens on port {4000 + n}, ticket OPS-{900 + n}." for n in range(10)]


def converse(url: str) -> dict[str, str]:
    question = "Which port has s3?"
    first = compacted_chat(url, "m-1", FACTS, question)
    lantern_headers(ask(url, body(*COMPACTED, question, f"I heard: {question}", "thanks"), x_lantern_session="m-1"))
    return first


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path_factory.mktemp("metrics"))) as url:
        last = converse(url)
        assert last["event"] == "compacted"

        def all_told() -> str:
            text = httpx.get(f"{url}/lantern/metrics").text
            return text if 'lantern_stage_seconds_count{stage="answer"} 12.0' in text else ""

        text = str(wait_for(all_told))
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values, last


def test_each_stage_of_a_request_is_timed(scraped):
    values, _ = scraped
    assert {name: values[f'lantern_stage_seconds_count{{stage="{name}"}}'] for name in ("session", "upstream")} == {
        "session": 12.0,
        "upstream": 12.0,
    }
    assert values['lantern_stage_seconds_count{stage="archive"}'] == 12.0
    assert values['lantern_stage_seconds_sum{stage="upstream"}'] > 0


def test_blocks_and_the_prefix_they_keep_are_counted(scraped):
    values, last = scraped
    assert values['lantern_blocks_total{kind="loss"}'] == 1.0
    assert values["lantern_restored_passages_total"] == int(last["restored"])
    assert values["lantern_prefix_shared_bytes_total"] > 0
    assert values["lantern_prefix_kept_bytes_total"] == values["lantern_prefix_shared_bytes_total"]
    assert values["lantern_index_bytes"] > 0
    assert values["lantern_archive_bytes"] > 0


def test_the_dashboard_asks_only_for_what_there_is(scraped):
    values, _ = scraped
    there = {name.partition("{")[0] for name in values}
    board = json.loads(DASHBOARD.read_text())
    wanted = set(re.findall(r"lantern_[a-z_]+", json.dumps(board)))
    wanted |= {name for target in targets(board) for name in re.findall(r"lantern_[a-z_]+", target["expr"])}
    optional = {"lantern_degraded_total", "lantern_faults_total"}  # there once something was skipped
    assert wanted - there - optional == set()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def targets(board: dict) -> list[dict]:
    return [target for panel in board["panels"] for target in panel["targets"]]


def test_labels_in_the_dashboard_are_labels_that_are_told(scraped):
    values, _ = scraped
    labels = {label for name in values for label in re.findall(r"(\w+)=\"", name)} | {"job", "instance", "le"}
    for target in targets(json.loads(DASHBOARD.read_text())):
        for names in re.findall(r"by \(([^)]*)\)", target["expr"]):
            assert {name.strip() for name in names.split(",")} <= labels | {"reason", "kind"}


def test_nothing_is_traced_unless_a_collector_is_named():
    assert not is_on(TraceConfig(), {})
    assert is_on(TraceConfig(otlp_endpoint="http://127.0.0.1:4318"), {})
    assert not is_on(TraceConfig(otlp_endpoint="http://127.0.0.1:4318"), {"OTEL_SDK_DISABLED": "true"})


def test_without_a_collector_opentelemetry_is_not_even_imported():
    import subprocess
    import sys

    code = (
        "import sys; from lantern_proxy import app; from lantern_proxy.config import Config; app.create(Config()); "
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "False"


def test_a_request_is_one_span_with_its_stages_and_holds_no_text(tmp_path):
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    tracer = Tracer(TraceConfig(), exporter=kept)
    with Upstream() as upstream:
        made = app.create(config_for(upstream, tmp_path))
        with serving_app(made) as url:
            made.state.proxy.listeners.append(tracer.on_request)
            parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            mine = lantern_headers(ask(url, body("a secret word: BLUEBERRY-7"), traceparent=parent))
            wait_for(lambda: (tracer.flush(), kept.get_finished_spans())[1])
    tracer.close()
    spans = {span.name: span for span in kept.get_finished_spans()}
    whole = spans["chat m"]
    assert whole.attributes["gen_ai.operation.name"] == "chat"
    assert whole.attributes["gen_ai.request.model"] == "m"
    assert whole.attributes["gen_ai.conversation.id"] == mine["session"]
    assert whole.attributes["lantern.request"] == mine["request"]
    assert whole.attributes["http.response.status_code"] == 200
    assert f"{whole.context.trace_id:032x}" == parent.split("-")[1]
    assert f"{whole.parent.span_id:016x}" == parent.split("-")[2]
    for stage in ("session", "upstream", "answer"):
        part = spans[f"lantern {stage}"]
        assert part.parent.span_id == whole.context.span_id
        assert whole.start_time <= part.start_time <= part.end_time <= whole.end_time
    assert "BLUEBERRY" not in "".join(span.to_json() for span in spans.values())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b'{"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}}', (12, 3)),
        (b'data: {"response": {"usage": {"input_tokens": 7, "output_tokens": 9}}}\n\n', (7, 9)),
        (
            b'data: {"message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}\n\n' + b"x" * 50_000
            + b'\n\ndata: {"type": "message_delta", "usage": {"output_tokens": 40}}\n\n',
            (5, 40),
        ),
        (b'{"choices": [{"message": {"content": "\\"input_tokens\\": 99"}}]}', ()),
        (b'{"usage": {"cache_read_input_tokens": 4}}', ()),
        (b"", ()),
    ],
)  # fmt: skip
def test_usage_is_what_the_upstream_told_last(answer, told):
    assert tuple(usage(answer).values()) == told
    assert list(usage(answer)) == ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"][: len(told)]


def serving_app(made):
    from lantern_proxy.demo import serving as serve

    return serve(made)


def test_spans_go_to_the_collector_that_the_config_names(tmp_path):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")
    with Upstream() as upstream, Upstream() as collector:
        config = config_for(upstream, tmp_path, trace=TraceConfig(otlp_endpoint=collector.url))
        with serving(config) as url:
            ask(url, body("hello"))
        assert wait_for(lambda: [got for got in collector.got if got.target == "/v1/traces"])
    sent = collector.got[0]
    spans = gzip.decompress(sent.body) if sent.header("content-encoding") == "gzip" else sent.body
    assert b"gen_ai.request.model" in spans
