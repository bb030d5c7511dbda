"""A request that may lack something of its session, and what is due for it."""

import time

from msgspec import Struct

from lantern_proxy.compaction import whole
from lantern_proxy.compaction.place import place
from lantern_proxy.follow import Step
from lantern_proxy.proxy.exchange import Exchange
from lantern_proxy.proxy.ledger import SessionKey
from lantern_proxy.turn import Request
from lantern_proxy.wire.json import Place

Spot = tuple[int, Place]
"""Index of a message, and where in it a block goes."""


class Need(Struct, frozen=True):
    """A request that may lack something, and until when that may be looked for."""

    exchange: Exchange
    request: Request
    step: Step
    deadline: float
    """time.monotonic() value."""
    again: bool = False
    """Is it a retry of a question to which nothing was added, since the client wanted it so then?"""

    @property
    def key(self) -> SessionKey:
        return self.exchange.tenant, self.exchange.session

    @property
    def whole(self) -> Request:
        """The request together with what the upstream holds of the conversation, see compaction.whole().

        The session's head ends with this request by now, so that is left off where the request is only what is new.
        """
        head, request = self.step.session.head, self.request
        return whole(head[: -len(request.messages) or None] if request.delta else head, request)

    @property
    def asked_anew(self) -> int | None:
        """Index of the message that waits for an answer, if a question block may be due for it: the session did not
        hold the message before, or `again`. Else None."""
        asked = self.step.verdict.question_at(self.request)
        is_new = asked is not None and self.step.verdict.kept[asked] is None and self.exchange.event != "retry"
        return asked if is_new or self.again else None

    @property
    def question(self) -> str:
        return self.step.verdict.question_in(self.request)

    @property
    def spent_chars(self) -> int:
        """How many characters of the budget for a loss are used already: clients that lose a little with every request,
        or clear results, have one budget for all of that; a compaction has a new one."""
        if self.exchange.event == "compacted":
            return 0
        return sum(len(restored.text) for restored in self.exchange.shown if restored.kind == "loss")

    @property
    def behind_results(self) -> Spot | None:
        """The place behind new results of tools, where the request ends in them; what is owed goes there when it is
        ready, since the next question may be far."""
        messages, kept = self.request.messages, self.step.verdict.kept
        is_new = kept[-1:] == (None,) and any(i.kind == "result" for i in messages[-1].items)
        return place(self.request, len(messages) - 1) if is_new else None

    def left_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())
