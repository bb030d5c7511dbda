"""litellm as an upstream: an OpenAI client in front, any provider behind. Answers are litellm's own mock responses."""

import json
from importlib.util import find_spec

import httpx
import pytest
from scripted import Upstream, ask, body, config_for, process, respond

from lantern_proxy.config import RouteConfig, UpstreamConfig
from lantern_proxy.upstream.litellm import LitellmTransport, litellm
from lantern_proxy.upstream.via_httpx import litellm_client
from lantern_proxy.wire import CHAT, RESPONSES

pytestmark = pytest.mark.skipif(find_spec("litellm") is None, reason="the extra `litellm` is not installed")

MODEL = "anthropic/claude-sonnet-4-5"
ASK = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "seed": 7}
KEY = {"authorization": "Bearer sk-x"}


def client(**params: object) -> httpx.AsyncClient:
    transport = LitellmTransport(MODEL, {"mock_response": "the port is 7443", **params})
    return httpx.AsyncClient(transport=transport, base_url="http://litellm/v1", headers=KEY)


@pytest.mark.anyio
async def test_another_providers_answer_comes_back_in_openais_shape():
    async with client() as http:
        answer = await http.post("/chat/completions", json=ASK)
    read = CHAT.read_answer(answer.content, streamed=False)
    assert answer.status_code == 200
    assert read.text == "the port is 7443"
    assert answer.json()["usage"]["total_tokens"] > 0


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
async def test_a_body_says_what_is_asked_and_not_where_or_with_whose_key(path, monkeypatch):
    import litellm

    called = {}

    async def call(**arguments):
        called.update(arguments)
        return {}

    monkeypatch.setattr(litellm, "acompletion", call)
    monkeypatch.setattr(litellm, "aresponses", call)
    own = {
        "base_url",
        "api_base",
        "extra_headers",
        "custom_llm_provider",
        "num_retries",
        "aws_bedrock_runtime_endpoint",
    }
    body = {**ASK, "top_p": 0.5, "stream": False, "input": "hi", "api_key": "other", "drop_params": False}
    async with client() as http:
        await http.post(path, json=body | dict.fromkeys(own, "http://elsewhere"))
    assert not own & called.keys()
    assert (called["api_key"], called["model"], called["drop_params"]) == ("sk-x", MODEL, True)
    assert (called["top_p"], called["stream"]) == (0.5, False)


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["openai/m", "huggingface/o/m", "groq/m"])
@pytest.mark.parametrize("names_it", [True, False])
@pytest.mark.parametrize("apart", [True, False])
async def test_a_provider_is_asked_once_and_gets_no_option_of_litellms_own(model, names_it, apart):
    params = {}
    if apart:
        params["custom_llm_provider"], _, model = model.partition("/")
    with Upstream(answer=respond(500, b"{}", ("content-type", "application/json"))) as upstream:
        target = "" if names_it else model
        route = RouteConfig(kind="litellm", target=target, url=f"{upstream.url}/v1", params=params)
        async with litellm_client(UpstreamConfig(), route) as http:
            asked = {"model": model, "messages": ASK["messages"]}
            await http.post("http://litellm/v1/chat/completions", json=asked, headers=KEY)
    (got,) = upstream.got
    assert json.loads(got.body).keys() == {"model", "messages"}


@pytest.mark.parametrize(
    ("target", "params", "limit"),
    [
        ("openai/m", "", "upstream.read_timeout_s is 1"),
        ("groq/m", "", "upstream.read_timeout_s is 1"),
        (MODEL, ", params: {timeout: 2}", "upstream.routes[0].params.timeout is 2"),
    ],
)
def test_who_asks_a_provider_that_is_silent_hears_so_as_of_any_upstream(tmp_path, target, params, limit):
    with Upstream(answer=lambda got, wire: wire.closed()) as upstream:
        route = f'{{model: lite, kind: litellm, target: {target}, url: "{upstream.url}"{params}}}'
        more = f"upstream: {{read_timeout_s: 1, routes: [{route}]}}\n"
        with process(config_for(upstream, tmp_path), more=more) as (_, url):
            answer = ask(url, body("hi", model="lite"))
    assert (answer.status_code, len(upstream.got), answer.json()["type"]) == (504, 1, "error")
    told = f"lantern: upstream litellm did not answer in time (ReadTimeout, {limit})"
    assert answer.json()["error"] == {"type": "upstream_error", "message": told, "code": None}


@pytest.mark.parametrize("target", ["openai/m", "gemini/m"])
def test_of_a_provider_that_says_nothing_a_stream_is_refused_as_a_whole_answer_is(tmp_path, target):
    """litellm asks some of them only when the first chunk is asked for."""
    with Upstream(answer=lambda got, wire: wire.closed()) as upstream:
        route = f'{{model: lite, kind: litellm, target: {target}, url: "{upstream.url}"}}'
        more = f"upstream: {{read_timeout_s: 1, routes: [{route}]}}\n"
        with process(config_for(upstream, tmp_path), more=more) as (_, url):
            answer = ask(url, body("hi", model="lite", stream=True))
    assert (answer.status_code, len(upstream.got)) == (504, 1)
    assert "did not answer in time" in answer.json()["error"]["message"]


def test_who_asks_a_provider_that_cannot_be_reached_hears_so_and_what_a_provider_refuses_is_its_own(tmp_path):
    with Upstream(answer=respond(422, b'{"error": {"message": "no such unit"}}')) as upstream:
        lost = f'{{model: lost, kind: litellm, target: {MODEL}, url: "http://127.0.0.1:9"}}'
        there = f'{{model: there, kind: litellm, target: openai/m, url: "{upstream.url}"}}'
        with process(config_for(upstream, tmp_path), more=f"upstream: {{routes: [{lost}, {there}]}}\n") as (_, url):
            unreached, refused = (ask(url, body("hi", model=model)) for model in ("lost", "there"))
    assert unreached.status_code == 502
    assert unreached.json()["error"]["message"].startswith("lantern: upstream litellm cannot be reached: ")
    assert (refused.status_code, refused.json()["type"]) == (422, "error")
    assert "no such unit" in refused.json()["error"]["message"]
    assert "lantern:" not in refused.text


@pytest.mark.anyio
async def test_a_warning_of_litellms_is_logged_once(caplog):
    calls = await litellm()
    assert [calls.verbose_logger.handlers, calls._logging.verbose_router_logger.handlers] == [[], []]
    calls.verbose_logger.warning("a gauge is out")
    assert caplog.text.count("a gauge is out") == 1


@pytest.mark.anyio
async def test_what_a_provider_answers_wrongly_is_told_without_a_stack_trace():
    with Upstream() as upstream:  # it answers in OpenAI's form
        route = RouteConfig(kind="litellm", target=MODEL, url=upstream.url)
        async with litellm_client(UpstreamConfig(), route) as http:
            answer = await http.post("http://litellm/v1/chat/completions", json=ASK, headers=KEY)
    assert answer.status_code >= 500
    assert "Traceback" not in answer.text


def test_no_log_holds_what_was_said_though_litellm_would_write_it(tmp_path):
    with Upstream() as upstream:
        route = f'{{model: lite, kind: litellm, target: openai/m, url: "{upstream.url}/v1"}}'
        more = f"upstream: {{routes: [{route}]}}\nlog: {{level: debug, json: true}}\n"
        with process(config_for(upstream, tmp_path), more=more) as (serve, url):
            answer = ask(url, body("the word is CANARY-7", model="lite"))
            serve.terminate()
            lines = serve.stderr.read().splitlines()
    assert (answer.status_code, len(upstream.got)) == (200, 1)
    assert not [line for line in lines if "CANARY-7" in line]
    assert all(json.loads(line) for line in lines)


@pytest.mark.anyio
async def test_a_model_that_names_an_address_is_refused_where_the_client_chooses_it():
    transport = LitellmTransport("", {"mock_response": "no"})
    async with httpx.AsyncClient(transport=transport, base_url="http://litellm/v1") as http:
        answer = await http.post("/chat/completions", json={**ASK, "model": "oobabooga/http://127.0.0.1:9"})
    assert (answer.status_code, answer.json()["type"]) == (400, "error")
    assert "use a name" in answer.json()["error"]["message"]


@pytest.mark.anyio
async def test_a_stream_comes_as_events_in_pieces_and_ends_with_done():
    async with client() as http, http.stream("POST", "/chat/completions", json={**ASK, "stream": True}) as answer:
        pieces = [piece async for piece in answer.aiter_raw()]
    read = CHAT.read_answer(b"".join(pieces), streamed=True)
    assert read.text == "the port is 7443"
    assert read.complete
    assert len(pieces) > 3
    assert pieces[-1] == b"data: [DONE]\n\n"


@pytest.mark.anyio
async def test_the_responses_api_works_in_front_of_a_provider_that_has_none():
    async with client() as http:
        answer = await http.post("/responses", json={"model": "gpt-4o", "input": "hi"})
    assert RESPONSES.read_answer(answer.content, streamed=False).text == "the port is 7443"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("mock", "status"), [("litellm.RateLimitError", 429), ("litellm.ContextWindowExceededError", 400)]
)
async def test_a_providers_refusal_keeps_its_status(mock: str, status: int):
    async with client(mock_response=mock) as http:
        answer = await http.post("/chat/completions", json=ASK)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/embeddings", b"{}", 404), ("/chat/completions", b"{", 400), ("/chat/completions", b"[]", 400)],
)
async def test_what_it_cannot_serve_is_refused_with_the_reason(path: str, body: bytes, status: int):
    async with client() as http:
        answer = await http.post(path, content=body)
    assert answer.status_code == status
    assert json.loads(answer.content)["error"]["message"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
