"""Whose request is it, and what is known of that tenant's sessions: in memory, backed by the archive."""

import asyncio
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NamedTuple

from lantern_proxy.archive import Archive, ArchiveError, SessionRow
from lantern_proxy.config import Config, tenant_named
from lantern_proxy.history.record import Session, chains, place_key, spoken
from lantern_proxy.proxy.opened import Opened
from lantern_proxy.session import RECENT_S, WEAK_IDS, Known, Link, forget, link
from lantern_proxy.session.known import is_named, side_id
from lantern_proxy.session.recalled import recall
from lantern_proxy.session_rows import session_of
from lantern_proxy.turn import Filed, Head, Identity, Request

log = logging.getLogger("lantern.proxy")

_SESSIONS, _BYTES = 4_096, 192 << 20
"""Most sessions of all tenants in memory, and most bytes that they take: beyond, the tenant seen longest ago is
dropped."""
_RECENT = 32
"""How many sessions of a tenant, those seen last, are read from the archive when a request fits none in memory."""
_PROBED = 20
"""How many of a request's last messages are looked up in the archive when it fits no session in memory."""
_MOST_BROUGHT = 8
"""Most sessions that are brought to memory since they hold such a message. What more of them hold proves nothing."""
_REFRESHED = ("eyJ", "sk-ant-oat")
"""How tokens begin that a client gets by signing in: JSON web tokens, and Anthropic's."""
_Archived = tuple[Session, list[Filed], Head, list[str]]
"""A session, its messages, what its client shows of it, and the ids that lead to it: as recall() takes them."""


class _Sought(NamedTuple):
    """What sessions of the archive are looked for by: any of it leads to one."""

    values: Sequence[str]
    """Their names, ids that an upstream minted, keys of messages."""
    prints: Sequence[bytes] = ()
    """Fingerprints of messages."""


Partition = tuple[str, str]
"""(tenant, project): nothing is ever linked across two of them."""


@dataclass(slots=True)
class _Mine:
    """What is known of one tenant's project."""

    known: Known = field(default_factory=Known)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading: "asyncio.Task[None] | None" = None
    """Reads the sessions seen last from the archive, once in the life of this record."""
    is_read: bool = False
    """Has `reading` read them from the archive? Then it only has to bring them to memory."""


class Tenants:
    """What is known of everyone's sessions."""

    def __init__(self, config: Config, opened: Opened | None = None, *, sessions: int = _SESSIONS) -> None:
        """opened: the archive behind what is in memory; None: nothing is archived

        sessions: most sessions in memory
        """
        self._opened = opened
        self.named = partial(tenant_named, config.owners())
        """The tenant that the config names for a credential; empty when it names none."""
        self._salt = secrets.token_bytes(32)
        self._told = False
        self._most = sessions
        self.own_wait_s = 1.0
        """Most seconds that a request waits for what the archive has of its own session."""
        self.recent_wait_s = 0.15
        """Most seconds that a request waits until the sessions seen last are read, to which only words or a summary
        could trace it. Until what was read is brought to memory it waits as for its own."""
        self._mine: OrderedDict[Partition, _Mine] = OrderedDict()

    def forget_all(self) -> None:
        """Forget all sessions: another archive file does not hold them, so the next requests file them anew."""
        self._mine.clear()

    def let_go(self, tenant: str, project: str, session: str) -> None:
        """Forget a session of which nothing is archived, and its tenant where that was the only one."""
        if (mine := self._mine.get((tenant, project))) is not None:
            forget(mine.known, session)
            if not mine.known.sessions and not mine.lock.locked():
                del self._mine[tenant, project]

    def of(self, credential: str) -> str:
        """The tenant that a credential stands for: the config's name for it, else its HMAC under the archive's secret.

        While there is no archive a secret of this process serves, and nothing is kept under it.
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

    def remembered(self, key: Partition) -> Known | None:
        """What memory has of `key`; None when it was dropped."""
        mine = self._mine.get(key)
        return mine.known if mine else None

    async def known(self, key: Partition, request: Request, identity: Identity, now: float) -> tuple[Known, Link]:
        """The sessions of `key`, and which of them the request belongs to: for follow(), before anything else is
        awaited.

        Where memory does not know the request's session, or little speaks for the one it has, the archive is asked:

        1. for the session that the request names, before its content is compared with anything,
        2. for sessions that hold its ids and messages,
        3. once, for the sessions seen last. Until these are here content proves nothing, since what one session holds
           may stand in the request's own, too.
        """
        mine = self._mine.get(key)
        if mine is None:
            mine = self._mine[key] = _Mine()
        self._mine.move_to_end(key)
        if named := _named(request, identity):
            await self._bring_named(mine, key, named)
        found = link(mine.known, request, identity, now)
        if found.session is None:
            self._make_room()
        elif not (found.scanty or (found.by_content and (mine.reading is None or not mine.reading.done()))):
            return mine.known, found
        return mine.known, await self._brought(mine, key, request, identity, now, found)

    async def _bring_named(self, mine: _Mine, key: Partition, named: str) -> None:
        """Bring the session of an explicit id to memory, where it is not there yet."""
        if is_named(mine.known, named) or self._opened is None:
            return
        async with mine.lock:
            if not is_named(mine.known, named):  # as one that was waited for may have brought it
                await _at_most(self.own_wait_s, asyncio.create_task(self._bring(mine, key, _Sought([named]))))

    async def _brought(
        self, mine: _Mine, key: Partition, request: Request, identity: Identity, now: float, found: Link
    ) -> Link:
        """Where the request belongs after a look into the archive: steps 2 and 3 of known(). It is linked anew after
        each wait in which sessions came.

        found: where it belongs by what is in memory
        """
        known, seen = mine.known, mine.known.changes

        def anew(found: Link) -> Link:
            nonlocal seen
            if known.changes == seen:
                return found
            seen = known.changes
            return link(known, request, identity, now)

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
        """Make room for a session that may come: let go of the tenants seen longest ago, but for the last one and those
        that wait for an answer."""
        many = sum(len(mine.known.sessions) for mine in self._mine.values())
        held = self.size_bytes
        for key in list(self._mine)[:-1]:
            if many <= self._most and held <= _BYTES:
                return
            mine = self._mine[key]
            known = mine.known
            if not (mine.lock.locked() or any(known.in_flight.values())):
                many, held = many - len(known.sessions), held - known.size_bytes
                del self._mine[key]

    @property
    def size_bytes(self) -> int:
        """Roughly how many bytes the sessions in memory take."""
        return sum(mine.known.size_bytes for mine in self._mine.values())

    def rest(self, now: float) -> None:
        """Let go of sessions that were not used for RECENT_S. Called when nobody asks. Only ids and histories lead to
        such sessions, and by these the archive finds them, too."""
        for key, mine in list(self._mine.items()):
            old = [s.id for s in mine.known.sessions.values() if now - s.last_seen_at > RECENT_S]
            forget(mine.known, *old)
            if not mine.known.sessions and not mine.lock.locked():
                del self._mine[key]

    async def _bring(self, mine: _Mine, key: Partition, sought: _Sought | None) -> None:
        """Bring the sessions that `sought` leads to from the archive to memory; None: those seen last."""
        held = frozenset(mine.known.sessions)
        found = await asyncio.to_thread(self._read, key, sought, held)
        mine.is_read = mine.is_read or sought is None
        for session, filed, head, ids in found:
            if session.id not in mine.known.sessions:
                recall(mine.known, session, filed, head, ids)
                await asyncio.sleep(0)  # one after the other: streams go on in between

    def _read(self, key: Partition, sought: _Sought | None, held: Set[str]) -> list[_Archived]:
        """The archived sessions that `sought` leads to (None: those seen last), without those in `held`; oldest
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
    """Wait for `task`, which goes on when that takes too long."""
    await asyncio.wait([task], timeout=seconds)


def _rows(archive: Archive, tenant: str, project: str, sought: _Sought | None) -> Iterable[SessionRow]:
    """The sessions that `sought` leads to (None: those seen last), each with its side calls, or what it belongs to: a
    summary is an answer of the one and stands in the other.

    Names lead to half of them at most: models may number their calls, and then many sessions hold each number.
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
    """The most specific explicit id, by which link() looks first; empty where there is none."""
    return next((value for name, value in (*identity.ids, *request.ids) if name not in WEAK_IDS), "")


def _sought_for(request: Request, identity: Identity) -> _Sought:
    """What the archive may know the request's session by: explicit ids, minted ids, names and texts of its last
    messages."""
    values = {value for _, value in (*identity.ids, *request.ids)}
    values |= {value for m in request.messages for value in m.ids}
    if all(m.role != "assistant" for m in request.messages):
        return _Sought(sorted(values))
    values |= {place_key(chain) for chain in chains(request.messages)[-_PROBED:]}
    last = spoken(request.messages)[: -_PROBED - 1 : -1]
    return _Sought(sorted(values), [m.print for m in last if m.print])
