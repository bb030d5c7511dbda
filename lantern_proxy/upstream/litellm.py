"""Any provider behind an OpenAI client: an httpx transport that calls litellm instead of a server.

    httpx.AsyncClient(transport=LitellmTransport("bedrock/claude", {})).post(".../chat/completions", json={...})

The rest of Lantern sees an ordinary upstream: bytes in, bytes and events out, provider errors with their status, and
httpx's own errors if there is no answer.
litellm takes seconds to import, so it is imported on the first call.
"""

import logging
import os
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any

import anyio.to_thread
import httpx
import msgspec

from lantern_proxy.wire.http import failure

_OTHER_PARAMETERS = frozenset({"thinking", "top_k", "min_p", "repetition_penalty"})
"""Parameters of other providers that clients add to a body."""
_EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class LitellmTransport(httpx.AsyncBaseTransport):
    """Sends each request to litellm's `model`, of whatever provider."""

    def __init__(self, model: str, params: Mapping[str, Any]) -> None:
        """model: as litellm writes it, "anthropic/claude-sonnet-4-5"; empty: the client's own.
        params: more arguments of litellm's call (api_base, timeout, mock_response ...); they override the client's."""
        self._model, self._params = model, dict(params)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = {"chat/completions": "acompletion", "responses": "aresponses"}.get(_api_of(request.url.path))
        if request.method != "POST" or call is None:
            return _refusal(404, f"a litellm upstream serves chat/completions and responses, not {request.url.path}")
        try:
            body = msgspec.json.decode(await request.aread())
        except msgspec.DecodeError as error:
            return _refusal(400, f"body is not JSON: {error}")
        if not isinstance(body, dict):
            return _refusal(400, "body is not a JSON object")
        if not self._model and "://" in str(body.get("model")):
            return _refusal(400, f"model is {body['model']!r}; use a name: litellm would ask at the URL in it")
        try:
            calls = await litellm()
            answer = await getattr(calls, call)(**self._arguments(request, body, _members(call)))
            if body.get("stream") is True:  # some providers, such as Gemini, are only called for the first chunk
                first = await anext(answer, None)
                return httpx.Response(200, headers=_EVENTS, stream=_Events(first, answer, request))
        except Exception as error:
            if fault := _connection_error_of(error):
                raise type(fault)(str(fault)) from error
            return _failure(error)
        return _response(200, _json(answer))

    def _arguments(self, request: httpx.Request, body: Mapping[str, Any], members: frozenset[str]) -> dict[str, Any]:
        """The arguments of litellm's call: the client's parameters and key, without those the provider does not know.

        members: the parameters that a body may hold. Others would be arguments of litellm itself, such as the address
        and the key. There are no retries: the client retries, as with any upstream.
        """
        key = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key", "")
        named = {"model": self._model} if self._model else {}
        parameters = {name: value for name, value in body.items() if name in members}
        arguments = {"drop_params": True, **parameters, **({"api_key": key} if key else {}), **named}
        # for Hugging Face litellm does not retry anyway, and would send this as a parameter of the body
        provider = self._params.get("custom_llm_provider") or str(arguments.get("model")).partition("/")[0]
        once = {} if provider == "huggingface" else {"max_retries": 0}
        return {**arguments, **once, **self._params}


async def litellm() -> Any:
    """The module, with its price list read from its package instead of fetched."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return await anyio.to_thread.run_sync(_import)


def _import() -> Any:
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).handlers.clear()  # they would log each line twice, and never as JSON
    return litellm


@cache
def _members(call: str) -> frozenset[str]:
    """The parameters of a body: those typed in OpenAI's own package, which litellm requires, and _OTHER_PARAMETERS."""
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as responses

    body: Any = (
        chat.CompletionCreateParamsStreaming if call == "acompletion" else responses.ResponseCreateParamsStreaming
    )
    return _OTHER_PARAMETERS.union(body.__required_keys__, body.__optional_keys__)


def _api_of(path: str) -> str:
    """The API of litellm that a path names; "" if none."""
    return next((ending for ending in ("chat/completions", "responses") if path.endswith(ending)), "")


class _Events(httpx.AsyncByteStream):
    """litellm's chunks as server-sent events, each as it arrives. first: the first chunk; None if there is none"""

    def __init__(self, first: Any, chunks: Any, request: httpx.Request) -> None:
        self._first, self._chunks = first, chunks
        self._is_chat = _api_of(request.url.path) == "chat/completions"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if self._first is not None:
                yield self._told(self._first)
            async for chunk in self._chunks:
                yield self._told(chunk)
        except Exception as error:  # the head has been sent: report the error in the stream, as providers do
            yield b"data: " + msgspec.json.encode(_error_body(error)) + b"\n\n"
            return
        if self._is_chat:
            yield b"data: [DONE]\n\n"

    def _told(self, chunk: Any) -> bytes:
        return b"data: " + _json(chunk) + b"\n\n" if self._is_chat else _event(chunk)

    async def aclose(self) -> None:
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


def _event(chunk: Any) -> bytes:
    kind = str(getattr(chunk, "type", "") or "message")
    return b"event: " + kind.rpartition("ResponsesAPIStreamEvents.")[2].encode() + b"\ndata: " + _json(chunk) + b"\n\n"


def _json(answer: Any) -> bytes:
    """A pydantic model of litellm as the JSON that OpenAI would send."""
    return (
        str(answer.model_dump_json(exclude_none=True)).encode()
        if hasattr(answer, "model_dump_json")
        else msgspec.json.encode(answer)
    )


def _connection_error_of(error: BaseException | None) -> httpx.TransportError | None:
    """The connection error that caused litellm's error; None if a provider refused."""
    while error is not None and not isinstance(error, httpx.TransportError):
        error = error.__cause__ or error.__context__
    return error


def _failure(error: Exception) -> httpx.Response:
    """The provider's refusal with its own status and retry-after; 502 for errors without a status."""
    response = getattr(error, "response", None)
    kept = (
        {"retry-after": response.headers["retry-after"]}
        if response is not None and "retry-after" in response.headers
        else {}
    )
    refused = _response(_status(error) or 502, msgspec.json.encode(_error_body(error)))
    refused.headers.update(kept)
    return refused


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and 400 <= status < 600 else None


def _error_body(error: Exception) -> dict[str, object]:
    """An error of litellm in the form of a provider's, without the stack trace at the end of some messages."""
    message = str(error).partition("\nTraceback (most recent call last)")[0]
    is_providers = _status(error) is not None and _connection_error_of(error) is None
    return failure(type(error).__name__, message if is_providers else f"lantern: {message}")


def _refusal(status: int, message: str) -> httpx.Response:
    return _response(status, msgspec.json.encode(failure("invalid_request_error", f"lantern: {message}")))


def _response(status: int, data: bytes) -> httpx.Response:
    """A response whose body is still to be read, as if it came over the network."""
    headers = {"content-type": "application/json", "content-length": str(len(data))}
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(data))
