"""Answers that the upstream stores and a client fetches later: GET /v1/responses/{id}, after `background: true`."""

import re
from collections import OrderedDict

from starlette.types import Message, Send

from lantern_proxy.proxy.exchange import Exchange
from lantern_proxy.turn import Answer
from lantern_proxy.wire.http import Arrival

_FETCHED = re.compile(r"/responses/([^/]+)$")
_MOST, _MOST_BYTES = 256, 64 << 20
"""Most requests that are kept until their answers are fetched, and most bytes of their bodies; the oldest go first."""
_COPIED_BYTES = 64 << 20


class Awaited:
    """Requests whose answers have not come, by tenant and id of the answer."""

    def __init__(self) -> None:
        self._exchanges: OrderedDict[tuple[str, str], Exchange] = OrderedDict()

    def note(self, exchange: Exchange, answer: Answer) -> None:
        """Keep a request of Responses until its answer has come."""
        if exchange.request is None or exchange.request.api != "responses":
            return
        keys = [(exchange.tenant, id_) for id_ in answer.ids]
        for key in keys:
            self._exchanges.pop(key, None)
        if answer.complete:
            return
        self._exchanges |= dict.fromkeys(keys, exchange)
        while len(self._exchanges) > _MOST or sum(len(e.plain) for e in self._exchanges.values()) > _MOST_BYTES:
            self._exchanges.popitem(last=False)

    def asked_by(self, arrival: Arrival, tenant: str) -> Exchange | None:
        """The request whose answer a GET asks for; None if that is not awaited."""
        found = _FETCHED.search(arrival.path)
        return self._exchanges.get((tenant, found[1])) if found and arrival.method == "GET" else None

    def __len__(self) -> int:
        return len(self._exchanges)

    def clear(self) -> None:
        self._exchanges.clear()


class AnswerCopy:
    """Sends an answer on, and keeps a copy of it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.is_whole = False
        """Was it a success, and has all of it been sent?"""
        self._succeeds = False

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.start":
            self.headers, self._succeeds = dict(message["headers"]), message["status"] == 200
        elif len(self.body) < _COPIED_BYTES:
            self.body += message.get("body", b"")
            self.is_whole = self._succeeds and not message.get("more_body", False)
