"""State of restores: what is known of one request (`Need`), and what is remembered of its session (`SessionState`).

need = Need(exchange, request, step, deadline)
states.of(need.key).owed       # is its loss block still due?
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.compaction import whole
from lantern_proxy.compaction.placement import place
from lantern_proxy.follow import Step
from lantern_proxy.proxy.exchange import Exchange
from lantern_proxy.proxy.ledger import SessionKey
from lantern_proxy.turn import PassedOver, Request, Restored
from lantern_proxy.wire.json import Place

_REMEMBERED = 1_024
"""Most sessions whose state is remembered."""
_REFUSED_S = 600.0
"""After the upstream refused a request for its blocks, the session gets no blocks for so many seconds, unless a request
is shorter than that one was."""
REFUSED = "restore:refused"
"""Why such a request carries no blocks, in `degraded`."""

Spot = tuple[int, Place]
"""Index of a message, and where in it a block goes."""

T = TypeVar("T")


class Need(Struct, frozen=True):
    """A request that may lack something of its session, and the deadline for restoring it."""

    exchange: Exchange
    request: Request
    step: Step
    deadline: float
    """time.monotonic() value."""
    again: bool = False
    """Is it a retry of a question that came with `x-lantern-restore: off` before?"""

    @property
    def key(self) -> SessionKey:
        return self.exchange.tenant, self.exchange.session

    @property
    def whole(self) -> Request:
        """The request, preceded by what the upstream already holds of the conversation: see compaction.whole().

        A request that carries only what is new (`delta`) is the end of the session's head by now; it is not repeated.
        """
        head, request = self.step.session.head, self.request
        return whole(head[: -len(request.messages) or None] if request.delta else head, request)

    @property
    def new_question_at(self) -> int | None:
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
        """Characters of the loss budget that are used already. Clients that drop or clear a little with every request
        have one budget for all of it; a compaction starts a new one."""
        if self.exchange.event == "compacted":
            return 0
        return sum(len(restored.text) for restored in self.exchange.shown if restored.kind == "loss")

    @property
    def behind_results(self) -> Spot | None:
        """The place after new tool results, if the request ends in them. An owed block that is ready goes there, since
        the next question may be many requests away."""
        messages, kept = self.request.messages, self.step.verdict.kept
        is_new = kept[-1:] == (None,) and any(i.kind == "result" for i in messages[-1].items)
        return place(self.request, len(messages) - 1) if is_new else None

    def left_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())


class Late(NamedTuple):
    """A loss block that was chosen after its request had been sent; None if nothing was worth restoring."""

    block: Restored | None
    passed: Sequence[PassedOver]


class SessionState(Struct, frozen=True):
    """What is remembered of a session between two of its requests."""

    owed: int | None = None
    """The session gets its loss block, or the rest of it, with its next question, since it was late, failed, was cut
    short or had no place: how many of its characters are in the request already. None: nothing is owed."""
    refused: tuple[str, int, float] = ("", 0, 0.0)
    """The last request that the upstream refused with blocks and took without: its model, its bytes without the blocks,
    and when that was."""
    turned_off: bool = False
    """Did the last question come with `x-lantern-restore: off`?"""
    caught_up: bool = False
    """Are all turns that it lost known to be cut into passages?"""
    late: "Future[Late] | None" = None
    """The owed block, as it is chosen in the background."""

    def refuses(self, model: str, size_bytes: int, at: float) -> bool:
        """Would the upstream refuse such a request with blocks, as it just refused one that was no longer?"""
        its_model, its_bytes, refused_at = self.refused
        return at - refused_at < _REFUSED_S and its_model == model and size_bytes >= its_bytes


_INITIAL = SessionState()


class SessionStates:
    """The states of the sessions that changed last. For the event loop alone."""

    def __init__(self) -> None:
        self._states: dict[SessionKey, SessionState] = {}

    def of(self, key: SessionKey) -> SessionState:
        return self._states.get(key, _INITIAL)

    def update(self, key: SessionKey, **changes: Any) -> None:
        """Change these fields of a session's state. Beyond _REMEMBERED sessions, the one changed longest ago is
        forgotten."""
        remember(self._states, key, replace(self.of(key), **changes), most=_REMEMBERED)

    def owe(self, key: SessionKey, there_chars: int = 0) -> None:
        """A session's loss block is still due, except for so many characters of it. A block that was chosen in the
        background for an earlier loss is dropped."""
        self.update(key, owed=there_chars, late=None)

    def accept(self, key: SessionKey) -> None:
        """The upstream took a request with blocks: its conversation may get new ones again."""
        if self.of(key).refused != _INITIAL.refused:
            self.update(key, refused=_INITIAL.refused)

    def forget_archived(self) -> None:
        """Forget what was read from an archive that may have changed: that all turns are cut, and blocks chosen in the
        background."""
        self._states = {key: replace(state, caught_up=False, late=None) for key, state in self._states.items()}


def remember(keys: dict[SessionKey, T], key: SessionKey, value: T, *, most: int) -> None:
    """Set keys[key] as the newest entry. Beyond `most` entries the oldest is dropped."""
    keys.pop(key, None)
    keys[key] = value
    if len(keys) > most:
        keys.pop(next(iter(keys)))
