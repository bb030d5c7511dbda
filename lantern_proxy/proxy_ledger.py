"""The ledger: which block rides inside which message, byte for byte, until that message is gone.

Providers cache the beginning of a prompt. A block is placed once, where the compaction broke the cache anyway, and is
put at the same place into every later request of its session (DESIGN section 2, cache contract).
"""

from collections.abc import Sequence

from lantern_proxy.history import chains
from lantern_proxy.turn import Block, Request, Restored
from lantern_proxy.wire.json import Insert, Place


def replay(blocks: Sequence[Block], request: Request) -> list[tuple[Block, Insert]]:
    """The blocks whose anchor is in `request`, and where they go; in the order in which they were made."""
    hashes = [chain.hex() for chain in chains(request.messages)]
    prints = [m.print.hex() for m in request.messages]
    found = []
    for block in blocks:
        at = _anchor(block, prints, hashes)
        if at is not None:
            found.append((block, Insert(at, block.place, block.restored.text)))
    return found


def _anchor(block: Block, prints: Sequence[str], hashes: Sequence[str]) -> int | None:
    """The message with the anchor's fingerprint; of several the one after the same history, else the last."""
    alike = [at for at, print in enumerate(prints) if print == block.anchor]
    exact = [at for at in alike if hashes[at] == block.chain]
    return (exact or alike)[-1] if alike else None


def entry(session: str, request: Request, at: int, place: Place, restored: Restored, *, by: str, now: float) -> Block:
    """A new entry: `restored` at message `at`. by: id of the request that made it."""
    return Block(
        session=session, anchor=request.messages[at].print.hex(), chain=chains(request.messages)[at].hex(), place=place,
        restored=restored, request=by, created_at=now,
    )  # fmt: skip
