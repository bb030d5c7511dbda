"""A scripted model for `lantern bench proxy`, in a process of its own, so that only a proxy's own cost is measured.

    python -m lantern_proxy.bench.proxy_upstream PORT        prints the port it listens on, serves until stdin ends

The request's model says how to answer: script(chars=200, chunks=20, gap_us=5000) -> "say-200-20-5000". Without chunks
the answer is one JSON body; with chunks an event stream, each event with the moment (time.monotonic_ns) it was sent.
"""

import asyncio
import json
import re
import sys
import time
from typing import cast

import httptools

_SCRIPT = re.compile(rb"say-(\d+)-(\d+)-(\d+)")
_MARGIN = 4_096
"""The model's name is within so many bytes of the body's beginning or end, wherever a gateway moves it."""
_FRAME = '{"id":"chatcmpl-%d","object":"chat.completion%s","created":0,"model":"m","choices":[{"index":0,%s}]%s}'
_USAGE = ',"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'
_WORDS = "the proxy keeps what was said and gives it back when it is asked for, no more and no less; "


def script(*, chars: int = 200, chunks: int = 0, gap_us: int = 0) -> str:
    """The model name to request. chars: length of the answer; chunks: number of events; gap_us: time between two"""
    return f"say-{chars}-{chunks}-{gap_us}"


def text(chars: int, serial: int) -> str:
    """A unique answer."""
    return f"answer {serial}: {_WORDS * (chars // len(_WORDS) + 1)}"[: max(chars, 20)]


def answer_text(body: bytes, *, streamed: bool) -> str:
    """The text of an answer of the scripted model."""
    try:
        if not streamed:
            return str(json.loads(body)["choices"][0]["message"]["content"])
        events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
        return "".join(str(event["choices"][0]["delta"].get("content") or "") for event in events)
    except (ValueError, KeyError, IndexError, TypeError):
        return ""


class Connection(asyncio.Protocol):
    """A connection from a client or a proxy."""

    serial = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another base
        self._parser = httptools.HttpRequestParser(self)
        self._head, self._tail, self._gone = b"", b"", False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._head, self._tail = b"", b""

    def on_body(self, body: bytes) -> None:
        if len(self._head) < _MARGIN:
            self._head += body[:_MARGIN]
        self._tail = (self._tail + body)[-_MARGIN:]

    def on_message_complete(self) -> None:
        found = _SCRIPT.search(self._head) or _SCRIPT.search(self._tail)
        chars, chunks, gap_us = map(int, found.groups()) if found else (20, 0, 0)
        Connection.serial += 1
        if chunks:
            asyncio.get_running_loop().create_task(self._stream(chars, chunks, gap_us / 1e6, Connection.serial))
            return
        choice = f'"message":{{"role":"assistant","content":"{text(chars, Connection.serial)}"}},"finish_reason":"stop"'
        body = (_FRAME % (Connection.serial, "", choice, _USAGE)).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)

    async def _stream(self, chars: int, chunks: int, gap_s: float, serial: int) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        whole, due = text(chars, serial), time.monotonic()
        step = -(-len(whole) // chunks)
        for at in range(0, len(whole), step):
            stamp = f"@{time.monotonic_ns()}@" if gap_s else ""
            delta = f'"delta":{{"role":"assistant","content":"{whole[at : at + step]}{stamp}"}},"finish_reason":null'
            self._event(_FRAME % (serial, ".chunk", delta, ""))
            if gap_s and not self._gone:
                due += gap_s
                await asyncio.sleep(due - time.monotonic())
        self._event(_FRAME % (serial, ".chunk", '"delta":{},"finish_reason":"stop"', ""))
        self._event("[DONE]")
        self._transport.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))


async def serve(port: int) -> None:
    """Serve until stdin ends, so that the process never outlives its parent."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    if sys.platform != "win32":
        import uvloop

        uvloop.install()
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
