"""Background work of the writer: cuts archived turns into passages, and does what depends on that.

A turn's messages are archived before its client has the last byte of the answer. Cutting them into passages, tagging
and indexing costs many times that, so it is deferred: until no turn has come for a moment, until a restore needs it
(then that session goes first), and at most for a second. The archive has a list of messages that are not cut yet
(archive/writes.py), from which the next process continues after a kill.
"""

import math
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count

from msgspec import Struct, field
from msgspec.structs import replace

from lantern_proxy import chunk
from lantern_proxy.archive import Archive, Record, Uncut
from lantern_proxy.proxy.lazy_restorer import MADE_S, LazyRestorer
from lantern_proxy.turn import BlockKind, Filed, Passage

QUIET_S = 0.02
"""Cutting starts when no turn has come for so long."""
_LATEST_S = 1.0
_BREATH_S = 0.0001
"""A pause in which the event loop can send a turn's answer: it cannot while cutting holds the interpreter."""
_AT_ONCE = 8
"""How much is cut at once, in messages of a thousand bytes; a new turn may have to wait that long to be written."""
_MOST_AT_ONCE = 64
"""The same if a restore waits for it, or many turns came together: fewer transactions."""
_PORTION, _PORTION_CHARS = 32, 40_000
"""Most passages, and characters of them, that one call of Cutter.some cuts; a long message takes several calls."""
MOST_LEFT_BYTES = 64 << 20
"""Most bytes of messages queued in memory for cutting; the rest is read from the archive's list later."""


class _Begun(Struct):
    """A group that is being cut over several calls. Its passages are stored when all of it is cut."""

    numbers: list[int]
    """The keys of `group` in Cutter._left."""
    group: list["Uncut | Settling"]
    left: Iterator[tuple[int, Passage]]
    """(index in `group`, passage) of what is not cut yet."""
    cut: defaultdict[int, list[Passage]] = field(default_factory=lambda: defaultdict(list))

    def some(self) -> bool:
        """Cut some more; False when nothing was left to cut."""
        chars = 0
        for n, (at, passage) in enumerate(self.left, start=1):
            self.cut[at].append(passage)
            chars += len(passage.text)
            if n == _PORTION or chars >= _PORTION_CHARS:
                return True
        return False


class Settling(Struct, frozen=True):
    """Passages that were restored into a request: whether its answer used them is still to be evaluated."""

    tenant: str
    request: str
    restored: Mapping[int, BlockKind]
    answer: str
    at: float


class Flush(Struct, frozen=True):
    """A caller waits until all messages of a session are cut; those of all the tenant's sessions if `session` is
    empty."""

    tenant: str
    session: str
    done: Future[bool] = field(default_factory=Future)

    def names(self, work: "Uncut | Settling") -> bool:
        return isinstance(work, Uncut) and work.tenant == self.tenant and self.session in ("", work.session)


class Cutter:
    """Cuts archived messages into passages, a few at a time. Belongs to the writer's thread."""

    def __init__(self) -> None:
        self._left: OrderedDict[int, tuple[float, Uncut | Settling]] = OrderedDict()
        """Sequence number -> (time.monotonic() of its arrival, the work), oldest first."""
        self._left_bytes = 0
        self._count = count()
        self._begun: _Begun | None = None
        self._flushes: list[Flush] = []
        self._recovering = False
        self.crowd = 1
        """How many turns came together: so many times as many messages are cut at once, but no more text."""

    def __len__(self) -> int:
        return len(self._left)

    def open(self, archive: Archive) -> None:
        """Continue with another file, or the same one opened again: unfinished work is listed in it."""
        self._left.clear()
        self._left_bytes = 0
        self._begun = None
        self._recovering = True
        self._recover(archive)

    def look_again(self) -> None:
        """Cut what the archive lists as uncut, too, once nothing else is left. For any thread."""
        self._recovering = True

    def _recover(self, archive: Archive) -> None:
        found = archive.uncut()
        self._recovering = bool(found)
        for cut in found:
            for messages in _portions(cut.messages):
                self._add(replace(cut, messages=messages))

    def add(self, record: Record, settling: Settling | None) -> None:
        """Queue an archived record whose messages are to be cut."""
        keys = set(record.uncut)
        filed = [f for f in record.messages if f.key in keys]
        if filed and self._left_bytes > MOST_LEFT_BYTES:
            self._recovering, filed = True, []
        for messages in _portions(filed):
            self._add(Uncut(record.tenant, record.project, record.session.id, messages))
        if settling is not None:
            self._add(settling)

    def _add(self, work: Uncut | Settling) -> None:
        self._left[next(self._count)] = time.monotonic(), work
        self._left_bytes += _bytes_of(work)

    def _done_with(self, numbers: Sequence[int]) -> None:
        for n in numbers:
            self._left_bytes -= _bytes_of(self._left.pop(n)[1])

    def want(self, flush: Flush) -> None:
        """Cut what `flush` names first, and resolve it when that is done."""
        self._flushes.append(flush)

    @property
    def is_due(self) -> bool:
        came_at = next(iter(self._left.values()))[0] if self._left else math.inf
        return bool(self._flushes) or time.monotonic() - came_at > _LATEST_S

    def give_way(self) -> None:
        """Pause so that the answer of the turn just written can go out. When many turns come at once, no pause is
        needed: their answers are sent while the next ones are written."""
        if self.crowd == 1 and self.is_due:
            time.sleep(_BREATH_S)

    def tell(self) -> None:
        """Resolve the flushes that are done: none of the work left is named by them."""
        for flush in tuple(self._flushes):
            if not self._recovering and not any(flush.names(work) for _, work in self._left.values()):
                self._flushes.remove(flush)
                _tell(flush.done, True)

    def _group(self) -> list[int]:
        """Keys of what is cut next: what a flush waits for, else the oldest."""
        most = _MOST_AT_ONCE if self._flushes else _AT_ONCE
        share = 1 if self._flushes else min(self.crowd, _MOST_AT_ONCE // _AT_ONCE)
        items = self._left.items() if self._flushes else ()
        wanted = [n for n, (_, work) in items if any(flush.names(work) for flush in self._flushes)]
        group: list[int] = []
        size = 0.0
        for n in wanted or self._left:
            work = self._left[n][1]
            filed = work.messages if isinstance(work, Uncut) else ()
            size += len(filed) / share + sum(map(_length, filed)) if filed else 1 / share
            if group and size > most:
                break
            group.append(n)
        return group

    def skip(self, archive: Archive) -> None:
        """Cut one message at a time after a group failed for a reason other than the archive. A message that cannot be
        cut at all gets no passages and is not tried again. Raises what the archive raises."""
        numbers = self._begun.numbers if self._begun else self._group()
        works = [self._left[n][1] for n in numbers]
        self._begun = None
        self._done_with(numbers)
        self.tell()
        for cut in (each for each in works if isinstance(each, Uncut)):
            for one in (replace(cut, messages=(filed,)) for filed in cut.messages):
                try:
                    passages = [passage for _, passage in _passages([one])]
                except Exception:
                    passages = []
                archive.add_passages([(one, passages)])

    def some(self, archive: Archive, restorer: LazyRestorer) -> list[Callable[[], object]]:
        """Cut the next few messages, or a part of a long one. Raises what the archive raises; they are then tried
        again.

        returns: follow-up work (evaluating what was restored), each piece of which may fail by itself
        """
        if self._begun is None:
            numbers = self._group()
            works = [self._left[n][1] for n in numbers]
            self._begun = _Begun(numbers, works, _passages(works))
        begun = self._begun
        if begun.some():
            return []
        group = begun.group
        cuts = [(cut, begun.cut[at]) for at, cut in enumerate(group) if isinstance(cut, Uncut)]
        if cuts:
            archive.add_passages(cuts)
        self._begun = None
        self._done_with(begun.numbers)
        if not self._left and self._recovering:
            self._recover(archive)
        self.tell()
        return [partial(_settle, archive, restorer, each) for each in group if isinstance(each, Settling)]

    def give_up(self) -> None:
        """Nothing can be cut now: resolve all flushes with False."""
        for flush in self._flushes:
            _tell(flush.done, False)
        self._flushes.clear()


def _tell(done: "Future[bool]", is_done: bool) -> None:
    if not done.done():
        done.set_result(is_done)


def _portions(filed: Sequence[Filed]) -> Iterator[tuple[Filed, ...]]:
    """The messages in order, in portions that are cut in one go."""
    start, size = 0, 0
    for at, each in enumerate(filed):
        size += _cost(each)
        if at > start and size > _AT_ONCE:
            yield tuple(filed[start:at])
            start, size = at, _cost(each)
    if filed:
        yield tuple(filed[start:])


def _cost(filed: Filed) -> int:
    """How much of _AT_ONCE a message takes up."""
    return 1 + _length(filed)


def _length(filed: Filed) -> int:
    """Size of a message in whole thousands of bytes."""
    return len(filed.message.raw) // 1_000


def _bytes_of(work: Uncut | Settling) -> int:
    return sum([len(filed.message.raw) for filed in work.messages]) if isinstance(work, Uncut) else 0


def _settle(archive: Archive, restorer: LazyRestorer, work: Settling) -> None:
    """Raise or lower the confidence of restored passages, depending on whether the answer used them."""
    made = restorer.want()
    if made is not None:
        updates, used = made.result(MADE_S).settle(work.tenant, work.restored, work.answer, work.at)
        archive.of(work.tenant).reinforce(updates, request=work.request, used=used)


def _passages(group: Sequence["Uncut | Settling"]) -> Iterator[tuple[int, Passage]]:
    """(index in `group`, passage) of all messages to be cut; lazy."""
    for at, cut in enumerate(group):
        if isinstance(cut, Uncut):
            for filed in cut.messages:
                yield from ((at, passage) for passage in chunk.one_by_one(filed, cut.session))
