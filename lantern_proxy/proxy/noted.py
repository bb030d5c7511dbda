"""What is noted of a session for its next request: what is owed, what was refused, what its client turned off."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy.proxy.ledger import SessionKey
from lantern_proxy.turn import PassedOver, Restored

_REMEMBERED = 1_024
"""Of how many sessions something is noted."""
_REFUSED_S = 600.0
"""For so many seconds a conversation gets no blocks after its upstream refused a request with blocks for its length,
unless a request is shorter than that one was."""

T = TypeVar("T")


class Late(NamedTuple):
    """A loss block that nobody waited for; None where there was nothing of worth."""

    block: Restored | None
    passed: Sequence[PassedOver]


class Noted(Struct, frozen=True):
    """What is noted of a session for its next request."""

    owed: int | None = None
    """It gets its loss block, or the rest of it, with its next question, since it was late, failed, was cut short or
    had no place: how many of its characters are in the request already. None: nothing is owed."""
    refused: tuple[str, int, float] = ("", 0, 0.0)
    """A request with blocks that was too long for its upstream: its model, its bytes without the blocks, and when that
    was."""
    turned_off: bool = False
    """Did its last question come with `x-lantern-restore: off`?"""
    caught_up: bool = False
    """Are all of its lost turns known to be cut into passages?"""
    late: "Future[Late] | None" = None
    """What is owed, chosen while nobody waits for it."""

    def refuses(self, model: str, size_bytes: int, at: float) -> bool:
        """Would the upstream refuse such a request with blocks, as it refused one that was no longer just now?"""
        its_model, its_bytes, refused_at = self.refused
        return at - refused_at < _REFUSED_S and its_model == model and size_bytes >= its_bytes


_NOTHING = Noted()


class Notes:
    """What is noted of the sessions noted last. For the event loop alone."""

    def __init__(self) -> None:
        self._noted: dict[SessionKey, Noted] = {}

    def of(self, key: SessionKey) -> Noted:
        return self._noted.get(key, _NOTHING)

    def note(self, key: SessionKey, **said: Any) -> None:
        """Note this of a session, as the newest; beyond _REMEMBERED of them the oldest goes."""
        remember(self._noted, key, replace(self.of(key), **said), most=_REMEMBERED)

    def owe(self, key: SessionKey, there_chars: int = 0) -> None:
        """Note that a session's loss block is still to come, but for so many characters of it. What was chosen before
        is another one."""
        self.note(key, owed=there_chars, late=None)

    def accept(self, key: SessionKey) -> None:
        """The upstream took a request with blocks: its conversation may get new ones again."""
        if self.of(key).refused != _NOTHING.refused:
            self.note(key, refused=_NOTHING.refused)

    def forget_chosen(self) -> None:
        """Forget what rests on the archive as it was: that all is cut, and what was chosen while nobody waited."""
        self._noted = {key: replace(noted, caught_up=False, late=None) for key, noted in self._noted.items()}


def remember(keys: dict[SessionKey, T], key: SessionKey, value: T, *, most: int) -> None:
    """Set keys[key], as the newest; beyond `most` of them the oldest goes."""
    keys.pop(key, None)
    keys[key] = value
    if len(keys) > most:
        keys.pop(next(iter(keys)))
