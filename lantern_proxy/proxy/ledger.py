"""The ledger: which block rides in which message, byte for byte, until that message is gone.

Providers cache the beginning of a prompt. A block is placed once, where the compaction broke the cache anyway, and is
put at the same place into every later request of its session.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from lantern_proxy.history.record import chains, place_key
from lantern_proxy.turn import Block, Request, Restored
from lantern_proxy.wire.json import Insert, Place

_KEPT, _KEPT_CHARS = 2_048, 4_000_000
"""Most sessions whose ledgers stay in memory, and most characters of their blocks; the archive has the others."""
_ANSWERED_S, _MOST_CHARS = 600, 4 * _KEPT_CHARS
"""A ledger whose newest block is younger than this may not be archived yet, so it stays in memory, unless the ledgers
hold more than this many characters."""

SessionKey = tuple[str, str]
"""(tenant, session)"""


class _Queue(Struct):
    """Requests of one session that use or wait for its ledger."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class Ledgers:
    """The ledgers of recent sessions.

    read: returns the archived blocks of a session; called in a thread, may raise
    """

    def __init__(self, read: Callable[[SessionKey], list[Block]], *, kept: int = _KEPT) -> None:
        self._read, self._kept = read, kept
        self._ledgers: OrderedDict[SessionKey, list[Block]] = OrderedDict()
        self._chars: dict[SessionKey, int] = {}
        self.chars = 0
        """Characters of all blocks in memory."""
        self._queues: dict[SessionKey, _Queue] = {}
        self._forgets = 0

    def __len__(self) -> int:
        return len(self._ledgers)

    def forget_all(self) -> None:
        self._forgets += 1
        self._ledgers.clear()
        self._chars.clear()
        self.chars = 0

    def is_empty(self, key: SessionKey, *, new: bool = False) -> bool:
        """Is the ledger of a session known to be empty without asking the archive, and not in use?

        new: as in `of`
        """
        if key in self._queues:
            return False
        ledger = self._held(key)
        if ledger is None and new:
            ledger = self._begin(key, [])
            self._make_room()
        return ledger is not None and not ledger

    @asynccontextmanager
    async def of(self, key: SessionKey, *, new: bool = False) -> AsyncIterator[list[Block]]:
        """The ledger of a session, for one request at a time. new: the session has just begun, so the archive has
        nothing of it"""
        queue = self._queues.setdefault(key, _Queue())
        queue.length += 1
        try:
            async with queue.lock:
                ledger = self._held(key)
                if ledger is None:
                    ledger = self._begin(key, [] if new else await self._archived(key))
                before = len(ledger)
                yield ledger
                if len(ledger) != before:
                    self._count(key, ledger)
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[key]
            self._make_room()

    async def _archived(self, key: SessionKey) -> list[Block]:
        """The archived blocks of a session. Read again if forget_all() was called meanwhile, since the archive may no
        longer have them."""
        while True:
            forgets = self._forgets
            found = await asyncio.to_thread(self._read, key)
            if forgets == self._forgets:
                return found

    def _held(self, key: SessionKey) -> list[Block] | None:
        """The ledger of a session if it is in memory; it becomes the most recently used."""
        ledger = self._ledgers.get(key)
        if ledger is not None:
            self._ledgers.move_to_end(key)
        return ledger

    def _begin(self, key: SessionKey, ledger: list[Block]) -> list[Block]:
        self._ledgers[key] = ledger
        self._count(key, ledger)
        return ledger

    def _count(self, key: SessionKey, ledger: Sequence[Block]) -> None:
        if self._ledgers.get(key) is ledger:
            chars = sum(map(_chars, ledger))
            self.chars += chars - self._chars.get(key, 0)
            self._chars[key] = chars

    def _make_room(self) -> None:
        """Drop the least recently used ledgers, except those in use, and those with a block that may not be archived
        yet: it is archived when its request has been answered."""
        if not self._is_full():
            return
        lately = time.time() - _ANSWERED_S
        for oldest in [key for key in self._ledgers if key not in self._queues]:
            if not self._is_full():
                return
            ledger = self._ledgers[oldest]
            if ledger and ledger[-1].created_at > lately and self.chars <= _MOST_CHARS:
                continue
            self.chars -= self._chars.pop(oldest)
            del self._ledgers[oldest]

    def _is_full(self) -> bool:
        return len(self._ledgers) > self._kept or self.chars > _KEPT_CHARS

    def strike(self, key: SessionKey, blocks: Sequence[Block]) -> None:
        """Remove blocks of a request that the upstream refused."""
        ledger = self._ledgers.get(key, [])
        ledger[:] = [block for block in ledger if block not in blocks]
        self._count(key, ledger)


def _chars(block: Block) -> int:
    return len(block.restored.text) + sum(len(p.text) + len(p.passage.text) for p in block.restored.placed)


def replay(
    blocks: Sequence[Block],
    request: Request,
    kept: Sequence[str | None] = (),
    dressed: Mapping[int, str] = MappingProxyType({}),
) -> list[tuple[Block, Insert]]:
    """The blocks whose anchor is in `request`, and where they go; in the order in which they were made.

    kept, dressed: of the request's messages, as in compaction.Verdict
    A block whose message has had text put around it is returned as a new entry, anchored to the message as it reads
    now, unless `blocks` has that entry already.
    """
    if not blocks:
        return []
    ends = chains(request.messages)
    hashes, alike = [end.hex() for end in ends], _places([m.print.hex() for m in request.messages])
    held = _places([key or place_key(end) for key, end in zip(kept, ends, strict=False)])  # some come back
    is_known = any(kept)
    found = []
    for block in blocks:
        at = _anchor(block, alike.get(block.anchor, ()), hashes, held, is_known=is_known)
        if at is None:
            at = next((at for at in held.get(block.message, ()) if dressed.get(at) == block.anchor), None)
            if at is not None:
                block = replace(block, anchor=request.messages[at].print.hex(), chain=hashes[at])
                at = None if any(_is_same(block, each) for each in blocks) else at
        if at is not None:
            found.append((block, Insert(at, block.place, block.restored.text)))
    return found


def _is_same(a: Block, b: Block) -> bool:
    """Is `b` the entry that `a` would become?"""
    return (a.message, a.anchor, a.restored.text) == (b.message, b.anchor, b.restored.text)


def _places(names: Sequence[str]) -> dict[str, list[int]]:
    """Name -> its indexes in `names`."""
    found: dict[str, list[int]] = {}
    for at, each in enumerate(names):
        found.setdefault(each, []).append(at)
    return found


def _anchor(
    block: Block,
    alike: Sequence[int],
    hashes: Sequence[str],
    held: Mapping[str, Sequence[int]],
    *,
    is_known: bool,
) -> int | None:
    """The index of the message that the block rides in; None: it is gone. Looked for in this order:

    1. The message with the same text after the same history.
    2. The message with the same key in the session. This finds it after something before it was cleared, and tells
       apart messages with the same text ("Go on."). The message that was newest when the block was made may have
       another text by now: clients put things that change, such as the time, next to the text that waits for an answer.
       An older message must have the same text; with another one it is a different message, such as the next summary.
    3. If no keys are known, the first message with the same text: repeating it later does not move the block.

    alike: indexes of messages with the same text; held: key in the session -> indexes; is_known: are any keys known?
    """
    exact = (at for at in alike if hashes[at] == block.chain)
    new = place_key(bytes.fromhex(block.chain))
    key = block.message or new
    named = (at for at in held.get(key, ()) if key == new or at in alike)
    return next(chain(exact, named, () if block.message and is_known else alike), None)


class Anchor(Struct, frozen=True):
    """A message of a request that a block is to ride in."""

    request: Request
    at: int
    """Index of the message."""
    key: str | None
    """The key of the message in its session; None if it is new."""


def block_at(anchor: Anchor, place: Place, restored: Restored, *, session: str, by: str, now: float) -> Block:
    """The ledger's entry for `restored` in the message `anchor`. by: id of the request that it was made for"""
    message, end = anchor.request.messages[anchor.at], chains(anchor.request.messages)[anchor.at]
    return Block(
        session=session, anchor=message.print.hex(), chain=end.hex(), message=anchor.key or place_key(end),
        place=place, restored=restored, request=by, created_at=now,
    )  # fmt: skip
