"""A scripted model for `lantern demo`, and the servers of it and of the proxy."""

import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lantern_proxy.demo.script import Chat, Detail, Wire
from lantern_proxy.turn_blocks import strip_block

UNKNOWN = "I do not know."
SUMMARISE = (
    "Write a summary of the conversation so far, so that another assistant can go on with the work. Keep the goal, "
    "what was decided, what is done and what comes next. Answer with the summary only."
)
MODEL = "scripted-1"
_HEADER = re.compile(r"^\[[^\]\n]*#\d+[^\]\n]*\]\s*")
"""The date, speaker and turn before a passage in a block, which a model would not quote."""


class DemoError(RuntimeError):
    """The demo cannot continue: a server did not start, or an answer was altered on its way."""


def answer_from(texts: Sequence[str], detail: Detail) -> str:
    """The first sentence of `texts` that holds the answer, else UNKNOWN: what a model without a memory can say."""
    for text in texts:
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text):
            if detail.answer in sentence:
                return _HEADER.sub("", sentence.strip())
    return UNKNOWN


def upstream(script: Chat) -> Starlette:
    """A model that knows only its script: POST /v1/chat/completions, streamed or not.

    It answers a line of the script with the next line, a request for a summary with the script's summary, and a
    question about a detail with a sentence from the request, or UNKNOWN. `.state.received` keeps every body.
    """
    replies = dict(script.turns)
    questions = {words: detail for detail in script.details for words in (detail.literal, detail.other)}

    def reply(messages: Sequence[Wire]) -> str:
        last = strip_block(messages[-1]["content"]).strip()
        if last == SUMMARISE:
            return script.summary
        if detail := questions.get(last):
            return answer_from([each["content"] for each in messages], detail)
        return replies.get(last, "All right.")

    async def completions(request: Request) -> Response:
        body = json.loads(await request.body())
        request.app.state.received.append(body)
        number = len(request.app.state.received)
        text = reply(body["messages"])
        if body.get("stream"):
            return StreamingResponse(_events(text, number), media_type="text/event-stream")
        return JSONResponse(_completion(text, number))

    served = Starlette(routes=[Route("/v1/chat/completions", completions, methods=["POST"])])
    served.state.received = []
    return served


@contextmanager
def serving(asgi: Any) -> Iterator[str]:
    """Serve `asgi` on a free port of 127.0.0.1 in a thread, yield its URL, and stop after the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(asgi, log_config=None, ws="none", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, args=([listener],), name="demo-server", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise DemoError("a server did not start")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()


def _completion(text: str, number: int) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": f"chatcmpl-demo-{number}", "object": "chat.completion", "model": MODEL, "choices": [choice]}


async def _events(text: str, number: int) -> AsyncIterator[str]:
    """Server-sent events of a streamed completion, one per word."""
    head = {"id": f"chatcmpl-demo-{number}", "object": "chat.completion.chunk", "model": MODEL}
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": word}, None) for word in re.findall(r"\S+\s*|\s+", text)]
    for delta, finish in [*deltas, ({}, "stop")]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        yield f"data: {json.dumps(head | {'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"
