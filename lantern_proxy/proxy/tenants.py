"""Which tenant a request belongs to, and that tenant's sessions: in memory, backed by the archive."""

import asyncio
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from functools import partial
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, field

from lantern_proxy.archive import Archive, ArchiveError, SessionRow
from lantern_proxy.config import Config, tenant_named
from lantern_proxy.history.record import Session, chains, place_key, spoken
from lantern_proxy.proxy.open_archive import Opened
from lantern_proxy.session import RECENT_S, WEAK_IDS, Link, SessionIndex, forget, link
from lantern_proxy.session.from_archive import recall
from lantern_proxy.session.index import is_named, side_id
from lantern_proxy.session_rows import session_of
from lantern_proxy.turn import Filed, Head, Identity, Request

log = logging.getLogger("lantern.proxy")

_SESSIONS, _BYTES = 4_096, 192 << 20
"""Most sessions in memory, of all tenants, and most bytes that they take; beyond that the least recently seen tenant is
dropped."""
_RECENT = 32
"""How many of a tenant's most recent sessions are read from the archive when a request fits none in memory."""
_PROBED = 20
"""How many of a request's last messages are looked up in the archive when it fits no session in memory."""
_MOST_BROUGHT = 8
"""Most sessions that are loaded because they hold such a message. A message that more of them hold proves nothing."""
_REFRESHED = ("eyJ", "sk-ant-oat")
"""Prefixes of tokens that clients get by signing in: JSON web tokens, and Anthropic's."""
_Archived = tuple[Session, list[Filed], Head, list[str]]
"""A session, its messages, its head, and the ids that lead to it: the arguments of recall()."""


class _Sought(NamedTuple):
    """What archived sessions are looked up by; each of these may find a session."""

    values: Sequence[str]
    """Session names, ids that an upstream minted, keys of messages."""
    prints: Sequence[bytes] = ()
    """Fingerprints of messages."""


Partition = tuple[str, str]
"""(tenant, project): nothing is ever linked across two of them."""


class _Mine(Struct):
    """What is known of one tenant's project."""

    index: SessionIndex = field(default_factory=SessionIndex)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading: "asyncio.Task[None] | None" = None
    """Loads the most recent sessions from the archive, once in the lifetime of this object."""
    is_read: bool = False
    """Has `reading` finished with the archive, and is only building the sessions in memory?"""


class Tenants:
    """The sessions of all tenants."""

    def __init__(self, config: Config, opened: Opened | None = None, *, sessions: int = _SESSIONS) -> None:
        """opened:   the archive behind what is in memory; None: nothing is archived
        sessions: most sessions in memory
        """
        self._opened = opened
        self.named = partial(tenant_named, config.owners())
        """The tenant that the config names for a credential; "" for none."""
        self._salt = secrets.token_bytes(32)
        self._told = False
        self._most = sessions
        self.own_wait_s = 1.0
        """Most seconds that a request waits for its own session to be loaded."""
        self.recent_wait_s = 0.15
        """Most seconds that a request waits for the most recent sessions to be read, which only its words or a summary
        could link it to. Once they are read, it waits for them as for its own."""
        self._mine: OrderedDict[Partition, _Mine] = OrderedDict()

    def forget_all(self) -> None:
        """Forget all sessions: a new archive file does not hold them, so the next requests archive them again."""
        self._mine.clear()

    def let_go(self, tenant: str, project: str, session: str) -> None:
        """Forget a session of which nothing is archived, and its tenant if it has no other."""
        if (mine := self._mine.get((tenant, project))) is not None:
            forget(mine.index, session)
            if not mine.index.sessions and not mine.lock.locked():
                del self._mine[tenant, project]

    def of(self, credential: str) -> str:
        """The tenant of a credential: the config's name for it, else its HMAC under the archive's secret.

        While there is no archive, a secret of this process is used, and nothing is stored under the result.
        """
        if named := self.named(credential):
            return named
        if not self._told and credential.startswith(_REFRESHED):
            self._told = True
            log.warning(
                "a client sends a token that is renewed every few hours, and each is a tenant of its own; name all "
                'credentials of one person: tenants: {me: {keys_sha256: ["*"]}}'
            )
        archive = self._opened.archive if self._opened else None
        if archive is not None:
            return archive.tenant_of(credential)
        bare = credential.encode("utf-8", "surrogatepass")
        return f"t_{hmac.digest(self._salt, bare, 'sha256').hex()[:24]}"

    def index_of(self, key: Partition) -> SessionIndex | None:
        """The sessions of `key` in memory; None when they were dropped."""
        mine = self._mine.get(key)
        return mine.index if mine else None

    async def locate(
        self, key: Partition, request: Request, identity: Identity, now: float
    ) -> tuple[SessionIndex, Link]:
        """The sessions of `key`, and which of them the request belongs to: pass both to follow() before awaiting
        anything else.

        If memory has no session for the request, or little evidence for the one that it has, the archive is asked:

        1. for the session that the request names, before its content is compared with anything,
        2. for sessions that hold its ids and messages,
        3. once, for the most recent sessions. Until these are loaded, content proves nothing, since the request's own
           session may hold the same as another one.
        """
        mine = self._mine.get(key)
        if mine is None:
            mine = self._mine[key] = _Mine()
        self._mine.move_to_end(key)
        if named := _named(request, identity):
            await self._bring_named(mine, key, named)
        found = link(mine.index, request, identity, now)
        if found.session is None:
            self._make_room()
        elif not (found.scanty or (found.by_content and (mine.reading is None or not mine.reading.done()))):
            return mine.index, found
        return mine.index, await self._brought(mine, key, request, identity, now, found)

    async def _bring_named(self, mine: _Mine, key: Partition, named: str) -> None:
        """Load the session with an explicit id, unless it is in memory."""
        if is_named(mine.index, named) or self._opened is None:
            return
        async with mine.lock:
            if not is_named(mine.index, named):  # a task that was waited for may have loaded it
                await _at_most(self.own_wait_s, asyncio.create_task(self._bring(mine, key, _Sought([named]))))

    async def _brought(
        self, mine: _Mine, key: Partition, request: Request, identity: Identity, now: float, found: Link
    ) -> Link:
        """Where the request belongs after asking the archive: steps 2 and 3 of locate(). It is linked again after each
        wait in which sessions were loaded.

        found: where it belongs according to memory alone
        """
        index, seen = mine.index, mine.index.changes

        def anew(found: Link) -> Link:
            nonlocal seen
            if index.changes == seen:
                return found
            seen = index.changes
            return link(index, request, identity, now)

        async with mine.lock:
            found = anew(found)
            sought = _sought_for(request, identity) if found.session is None or found.scanty else _Sought(())
            if any(sought):
                await _at_most(self.own_wait_s, asyncio.create_task(self._bring(mine, key, sought)))
                found = anew(found)
            if mine.reading is None and (found.session is None or found.scanty or found.by_content):
                mine.reading = asyncio.create_task(self._bring(mine, key, None))
            if mine.reading is not None and not mine.reading.done():
                await _at_most(self.recent_wait_s, mine.reading)
                if mine.is_read:
                    await _at_most(self.own_wait_s, mine.reading)
                found = anew(found)
        return found

    def _make_room(self) -> None:
        """Make room for a new session: drop the least recently seen tenants, except the current one and those that wait
        for an answer."""
        many = sum(len(mine.index.sessions) for mine in self._mine.values())
        held = self.size_bytes
        for key in list(self._mine)[:-1]:
            if many <= self._most and held <= _BYTES:
                return
            mine = self._mine[key]
            index = mine.index
            if not (mine.lock.locked() or any(index.in_flight.values())):
                many, held = many - len(index.sessions), held - index.size_bytes
                del self._mine[key]

    @property
    def size_bytes(self) -> int:
        """Roughly how many bytes the sessions in memory take."""
        return sum(mine.index.size_bytes for mine in self._mine.values())

    def rest(self, now: float) -> None:
        """Drop sessions that were not used for RECENT_S; called when no requests come. Only ids and histories lead to
        such sessions, and by these the archive finds them as well."""
        for key, mine in list(self._mine.items()):
            old = [s.id for s in mine.index.sessions.values() if now - s.last_seen_at > RECENT_S]
            forget(mine.index, *old)
            if not mine.index.sessions and not mine.lock.locked():
                del self._mine[key]

    async def _bring(self, mine: _Mine, key: Partition, sought: _Sought | None) -> None:
        """Load the sessions that `sought` finds in the archive; None: the most recent ones."""
        held = frozenset(mine.index.sessions)
        found = await asyncio.to_thread(self._read, key, sought, held)
        mine.is_read = mine.is_read or sought is None
        for session, filed, head, ids in found:
            if session.id not in mine.index.sessions:
                recall(mine.index, session, filed, head, ids)
                await asyncio.sleep(0)  # one after the other: streams go on in between

    def _read(self, key: Partition, sought: _Sought | None, held: Set[str]) -> list[_Archived]:
        """The archived sessions that `sought` finds (None: the most recent ones), without those in `held`; oldest
        first."""
        tenant, project = key
        archive = self._opened.archive if self._opened else None
        if archive is None:
            return []
        try:
            mine = archive.of(tenant)
            rows = [row for row in _rows(archive, tenant, project, sought) if row.id not in held]
            rows.sort(key=lambda row: row.last_seen_at)
            return [
                (session_of(row), mine.messages(row.id), mine.head(row.id), mine.ids(row.id)) for row in rows
            ]  # fmt: skip
        except ArchiveError as error:
            log.warning("sessions in the archive cannot be read: %s", error)
            return []


async def _at_most(seconds: float, task: "asyncio.Task[None]") -> None:
    """Wait for `task`, at most so long; it then continues on its own."""
    await asyncio.wait([task], timeout=seconds)


def _rows(archive: Archive, tenant: str, project: str, sought: _Sought | None) -> Iterable[SessionRow]:
    """The sessions that `sought` finds (None: the most recent ones), each with its side calls or with the session that
    it is a side call of: a summary is an answer in the one and appears in the other.

    At most half of them are found by names: models may number their calls, and then many sessions hold each number.
    """
    mine = archive.of(tenant)

    def own(ids: Iterable[str]) -> Iterable[SessionRow]:
        return (row for row in map(mine.session, ids) if row is not None and row.project == project)

    if sought is None:
        rows = mine.sessions(limit=_RECENT, project=project)
    else:
        named, saying = mine.holders(sought.values), mine.saying(sought.prints, _MOST_BROUGHT)
        rows = [*islice(own(dict.fromkeys([*named[: _MOST_BROUGHT // 2], *saying])), _MOST_BROUGHT)]
    kin = {id for row in rows for id in (row.parent, side_id(row.id))} - {"", *(row.id for row in rows)}
    return [*rows, *own(sorted(kin))]


def _named(request: Request, identity: Identity) -> str:
    """The most specific explicit id, which link() looks for first; "" if there is none."""
    return next((value for name, value in (*identity.ids, *request.ids) if name not in WEAK_IDS), "")


def _sought_for(request: Request, identity: Identity) -> _Sought:
    """What may identify the request's session in the archive: explicit ids, minted ids, names and texts of its last
    messages."""
    values = {value for _, value in (*identity.ids, *request.ids)}
    values |= {value for m in request.messages for value in m.ids}
    if all(m.role != "assistant" for m in request.messages):
        return _Sought(sorted(values))
    values |= {place_key(chain) for chain in chains(request.messages)[-_PROBED:]}
    last = spoken(request.messages)[: -_PROBED - 1 : -1]
    return _Sought(sorted(values), [m.print for m in last if m.print])
