"""What the writer does when nobody waits for it: passages of turns that are on disk already, and what follows of them.

A turn's messages are archived before its client has the last byte of it. Cutting them into passages, tagging and
indexing costs many times that, so it comes after: when no turn came for a moment, when somebody wants to restore, and
at the latest after a second. A process that is killed before leaves notes (archive_cut.py) from which the next goes on.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from lantern_proxy import chunk
from lantern_proxy.archive import Archive, Record, Uncut
from lantern_proxy.proxy_restorer import MADE_S, LateRestorer
from lantern_proxy.turn import Filed, Passage

QUIET_S = 0.02
"""Cutting starts when no turn came for so long."""
_LATEST_S = 1.0
_AT_ONCE = 8
"""How much is cut at once, in messages of a thousand bytes: a turn that is to be written waits no longer than that."""
_MOST_AT_ONCE = 64
"""The same when somebody waits for all of it, or many turns come at once: fewer transactions."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Passages that were restored into a request, to be settled by the answer that it got."""

    tenant: str
    request: str
    restored: tuple[int, ...]
    answer: str
    at: float


class Cutter:
    """Belongs to the writer's thread."""

    def __init__(self) -> None:
        self._left: deque[tuple[float, Uncut | Settling]] = deque()
        """Each with the moment when it came."""
        self._wanted: list[Future[bool]] = []
        self._recovering = False
        self.crowd = 1
        """How many turns came at once: so many times more messages are cut at once, but no more text."""

    def __len__(self) -> int:
        return len(self._left)

    def open(self, archive: Archive) -> None:
        """Another file, or the same one anew: what is left to do stands in it."""
        self._left.clear()
        self._recovering = True
        self._recover(archive)

    def _recover(self, archive: Archive) -> None:
        found = archive.uncut()
        self._recovering = bool(found)
        for cut in found:
            for messages in _portions(cut.messages):
                self._add(replace(cut, messages=messages))

    def add(self, record: Record, settling: Settling | None) -> None:
        """A record that is on disk."""
        keys = set(record.uncut)
        filed = [f for f in record.messages if f.key in keys]
        for messages in _portions(filed):
            self._add(Uncut(record.tenant, record.project, record.session.id, messages))
        if settling is not None:
            self._add(settling)

    def _add(self, work: Uncut | Settling) -> None:
        self._left.append((time.monotonic(), work))

    def want(self, done: "Future[bool]") -> None:
        """Somebody waits until all is done."""
        self._wanted.append(done)

    @property
    def is_due(self) -> bool:
        return bool(self._wanted) or (bool(self._left) and time.monotonic() - self._left[0][0] > _LATEST_S)

    def _group(self) -> list[Uncut | Settling]:
        group: list[Uncut | Settling] = []
        size, most = 0.0, _MOST_AT_ONCE if self._wanted else _AT_ONCE
        share = 1 if self._wanted else min(self.crowd, _MOST_AT_ONCE // _AT_ONCE)
        for _, work in self._left:
            filed = work.messages if isinstance(work, Uncut) else ()
            size += len(filed) / share + sum(map(_length, filed)) if filed else 1 / share
            if group and size > most:
                break
            group.append(work)
        return group

    def skip(self) -> None:
        """Leave out what cannot be done, for a reason that is not the archive's."""
        for _ in self._group():
            self._left.popleft()

    def some(self, archive: Archive, restorer: LateRestorer) -> list[Callable[[], object]]:
        """Do the next few messages. Raises what the archive raises; then they are tried again.

        returns: what follows of them, which may fail without them
        """
        group = self._group()
        cuts = [(cut, _passages(cut)) for cut in group if isinstance(cut, Uncut)]
        if cuts:
            archive.add_passages(cuts)
        for _ in group:
            self._left.popleft()
        if not self._left and self._recovering:
            self._recover(archive)
        return [partial(_settle, archive, restorer, each) for each in group if isinstance(each, Settling)]

    def tell(self, done: bool) -> None:
        """Those who wait need not wait any longer."""
        for each in self._wanted:
            if not each.done():
                each.set_result(done)
        self._wanted.clear()


def _portions(filed: Sequence[Filed]) -> Iterator[tuple[Filed, ...]]:
    """Messages in order, as many as are cut at once."""
    start, size = 0, 0
    for at, each in enumerate(filed):
        size += _cost(each)
        if at > start and size > _AT_ONCE:
            yield tuple(filed[start:at])
            start, size = at, _cost(each)
    if filed:
        yield tuple(filed[start:])


def _cost(filed: Filed) -> int:
    return 1 + _length(filed)


def _length(filed: Filed) -> int:
    return len(filed.message.raw) // 1_000


def _settle(archive: Archive, restorer: LateRestorer, work: Settling) -> None:
    made = restorer.want()
    if made is not None:
        updates, used = made.result(MADE_S).settle(work.tenant, work.restored, work.answer, work.at)
        archive.of(work.tenant).reinforce(updates, request=work.request, used=used)


def _passages(cut: Uncut) -> list[Passage]:
    return [passage for filed in cut.messages for passage in chunk.passages(filed, cut.session)]
