"""The prefix that two successive histories share, found without comparing all of it.

Clients send their whole history with every request, and messages read before are the same objects
(wire/incremental.py). Those are compared by identity, all at once; only what follows, or came in another form, is
examined.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, wraps
from itertools import compress
from operator import is_not
from typing import Any, TypeVar

from lantern_proxy.turn import SYSTEM, Message, fingerprint

_A = TypeVar("_A")
_B = TypeVar("_B")

_SLOTS = 61
_LOOK_BACK = 32
"""A request is recognised as continuing the previous one if it has at most this many messages more."""

chain_on = lru_cache(maxsize=16_384)(fingerprint)
_known: list[tuple[tuple[Message, ...], tuple[bytes, ...]]] = [((), ())] * _SLOTS
"""The latest histories and their chain hashes, each in the slot of its last message."""
_latest: list[tuple[tuple[Message, ...], tuple[bytes, ...]]] = [((), ())]
"""The most recent of them: one request is asked for several times."""
_answers: list[list[tuple[Any, Any, bool]]] = []
"""The last answer of each function decorated by `remember_last`."""


def chain_hashes(messages: tuple[Message, ...]) -> tuple[bytes, ...]:
    """Chain hash up to each message: h_i = H(h_(i-1), fingerprint_i); system and empty messages leave it unchanged."""
    before, hashes = _latest[0]
    if messages is before:
        return hashes
    known = _beginning(messages)
    if len(known) == len(messages):
        return known
    found, chain = [], known[-1] if known else b""
    for m in messages[len(known) :]:
        chain = chain_after(chain, m)
        found.append(chain)
    hashes = (*known, *found)
    _known[_slot(messages[-1])] = _latest[0] = messages, hashes
    return hashes


def chain_after(chain: bytes, m: Message) -> bytes:
    """The chain hash of a history after `m`."""
    return chain_on(chain, m.print) if m.print and m.role not in SYSTEM else chain


def forget_all() -> None:
    """Drop everything cached: what was forgotten must not stay in memory either."""
    _known[:] = [((), ())] * _SLOTS
    _latest[0] = (), ()
    for latest in _answers:
        latest[0] = None, None, False


def remember_last(ask: Callable[[_A, _B], bool]) -> Callable[[_A, _B], bool]:
    """`ask` with its last answer cached: it is called up to five times with one session and request."""
    latest: list[tuple[_A | None, _B | None, bool]] = [(None, None, False)]
    _answers.append(latest)

    @wraps(ask)
    def answer(a: _A, b: _B) -> bool:
        before_a, before_b, known = latest[0]
        if before_a is not a or before_b is not b:
            known = ask(a, b)
            latest[0] = a, b, known
        return known

    return answer


def _beginning(messages: tuple[Message, ...]) -> tuple[bytes, ...]:
    """The known chain hashes of the longest known beginning of `messages`."""
    for end in range(len(messages), max(0, len(messages) - _LOOK_BACK), -1):
        before, hashes = _known[_slot(messages[end - 1])]
        if len(before) == end and before == messages[:end]:
            return hashes
    return ()


def _slot(message: Message) -> int:
    return id(message) // 16 % _SLOTS


def changed(before: Sequence[object], now: Sequence[object]) -> Iterator[int]:
    """Places at which two sequences, as far as both go, hold different objects."""
    return compress(range(len(before)), map(is_not, before, now))


def is_same_message(a: Message, b: Message) -> bool:
    """Is `b` the same as `a`, at the same place? System messages may change from one request to the next."""
    if a.role in SYSTEM and b.role in SYSTEM:
        return True
    return a.role == b.role and (a.print == b.print if a.print and b.print else a.raw == b.raw)
