"""Import one tenant's export: docs/archive-format.md says what its lines hold.

    counts = import_rows(archive, "alice", rows, now=now)    # rows: dicts, in the order of export()

Ids of passages belong to one archive, so passages get new ones, and blocks are updated. The embedder makes new vectors.
Existing rows stay as they are, unless the export knows a later state of the session: taking in the same export twice,
or an older one, changes nothing. Others write meanwhile, so each session is taken in by short transactions; after an
interruption, taking in the export again adds the rest.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import structs

from lantern_proxy.archive import Archive
from lantern_proxy.archive.errors import ArchiveError
from lantern_proxy.archive.prune import BLOCKS, batches, with_pause
from lantern_proxy.archive.rows import head_of, name
from lantern_proxy.archive.values import Record, RequestRow, SessionRow
from lantern_proxy.turn import (
    LATEST_S,
    Api,
    Block,
    Filed,
    Head,
    Item,
    Message,
    Passage,
    PassedOver,
    Placed,
    Restored,
    fingerprint,
)

_TYPES = ("session", "message", "passage", "edit", "request", "block")
_TIMES = ("created_at", "last_seen_at", "accessed_at", "at")
_LEAST_S = 1e-9
_ID = "SELECT id FROM passages WHERE tenant = ? AND session = ? AND unit = ? AND hash = ?"
_LOST = "UPDATE requests SET lost = ? WHERE tenant = ? AND id = ?"

Row = Mapping[str, Any]


def import_rows(
    archive: Archive, tenant: str, rows: Iterable[Row], *, now: float, line: int = 1, file: Path | str = "the export"
) -> Counter[str]:
    """Archive `rows` for `tenant`; returns how many of each type there were.

    line, file: line number of the first row, and the file that errors name
    Raises ArchiveError, with the line number, for a row that is not part of an export; sessions before it are kept.
    """
    counts: Counter[str] = Counter()
    for session in _sessions(rows, line, file):
        for kind, found in session.items():
            counts[kind] += len(found)
        faults = archive.faults["record"]
        problem = f"session {session['session'][0]['id']} cannot be stored"
        try:
            intake = _SessionImport(archive, tenant, session)
            intake.write_messages()
            intake.write_passages(now)
        except OverflowError as error:
            raise ArchiveError(f"{problem}: {error}; take the file as `lantern export` wrote it") from None
        if archive.faults["record"] > faults:
            raise ArchiveError(f"{problem}; see the log for its fault")
    return counts


def _sessions(rows: Iterable[Row], first: int, file: Path | str) -> Iterator[dict[str, list[Any]]]:
    """The rows of each session by type, parsed."""
    held: dict[str, list[Any]] = {}
    for line, row in enumerate(rows, start=first):
        kind = row.get("type") if isinstance(row, Mapping) else None
        if kind not in _TYPES or (kind != "session" and not held):
            raise ArchiveError(
                f"line {line} of {file} is no row of an export: its type is {kind!r}, or no session came before it"
            )
        if kind == "session":
            if held:
                yield held
            held = {each: [] for each in _TYPES}
        try:
            held[str(kind)].append(_PARSE[str(kind)](_in_seconds(row)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            fault = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            problem = f"line {line} of {file} is no {kind} of an export: {fault}"
            raise ArchiveError(f"{problem}; take the file as `lantern export` wrote it") from None
    if held:
        yield held


class _SessionImport:
    """One session of an export, taken into the archive in short transactions.

    held: its rows by type, parsed
    """

    def __init__(self, archive: Archive, tenant: str, held: Mapping[str, list[Any]]) -> None:
        self._archive, self._tenant, self._held = archive, tenant, held
        [self._row] = held["session"]
        self._mine, self._exported = archive.of(tenant), _of(SessionRow, self._row)
        self._here = self._mine.session(self._exported.id)
        self._is_newer = self._here is None or self._exported.last_seen_at > self._here.last_seen_at
        """Does the export know a later state of the session?"""
        self._session = self._here if self._here is not None and not self._is_newer else self._exported

    def write_messages(self) -> None:
        """Write the session, without a title, and its messages."""
        row = self._row
        self._write([self._record(head=row["head"] if self._is_newer else Head(), ids=row["ids"])])
        for messages in batches(self._held["message"]):
            uncut = tuple(filed.key for filed in messages if filed.key in row["uncut"])
            self._write([self._record(messages=tuple(messages), uncut=uncut)])

    def write_passages(self, now: float) -> None:
        """Write passages, everything that refers to their ids, and the title last: a session without one was imported
        only in part."""
        forgotten = _forgotten(self._archive, self._tenant, self._session.id, self._held["message"])
        passages = self._passages(forgotten)
        here = self._here
        is_whole = here is not None and not self._is_newer and bool(here.title or forgotten or not self._exported.title)
        known = _ids(self._archive, self._tenant, passages) if is_whole else {}
        present = {request.id for request in self._mine.requests(self._session.id, limit=-1)} if is_whole else set()
        for group in batches(passages):
            self._write([self._record(passages=tuple(group))])
        ids = _ids(self._archive, self._tenant, passages)
        news = [(request, passed) for request, passed in self._held["request"] if request.id not in present]
        self._write_requests(news, ids)
        new_ids = {old: new for old, new in ids.items() if old not in known}
        _what_was_learned(self._archive, self._tenant, self._held, new_ids, now)
        self._write_lost([request for request, _ in news])
        if not (is_whole or forgotten):
            self._write([self._record(title=self._exported.title)])

    def _passages(self, forgotten: Mapping[str, int]) -> list[Passage]:
        """The passages to take in, as they were before any correction. A summary of a turn that would replace a later
        one is left out."""
        first = {edit["passage"]: edit["before"] for edit in reversed(self._held["edit"])}
        own = self._mine.passages(self._session.id, unit="turn") if not self._is_newer else ()
        summaries = {p.turn: p for p in own}
        return [
            structs.replace(p, text=first.get(p.id, p.text))
            for p in self._held["passage"]
            if not _is_of(p, forgotten) and not (p.unit == "turn" and _is_later(summaries.get(p.turn), p))
        ]

    def _write_requests(
        self, news: Sequence[tuple[RequestRow, tuple[PassedOver, ...]]], ids: Mapping[int, int]
    ) -> None:
        """Write requests that are not here yet, oldest first, and all blocks."""
        for requests in batches(news[::-1]):
            renumbered = [(one, tuple(_passed_renumbered(each, ids) for each in passed)) for one, passed in requests]
            self._write([self._record(request, passed=passed) for request, passed in renumbered])
        for blocks in batches(self._held["block"], BLOCKS):
            placed = [structs.replace(block, restored=_renumbered(block.restored, ids)) for block in blocks]
            self._write([self._record(blocks=(block,)) for block in placed])

    def _write_lost(self, requests: Iterable[RequestRow]) -> None:
        lost = [(request.lost, self._tenant, name(request.id)) for request in requests if request.lost]
        for some in batches(lost):
            with with_pause(), self._archive.writing() as db:
                db.conn.executemany(_LOST, some)

    def _record(self, request: RequestRow | None = None, *, title: str = "", **more: Any) -> Record:
        titled = structs.replace(self._session, title=title)
        return Record(tenant=self._tenant, project=self._session.project, session=titled, request=request, **more)

    def _write(self, records: Sequence[Record]) -> None:
        with with_pause():
            self._archive.write(records)


def _forgotten(archive: Archive, tenant: str, session: str, messages: Iterable[Filed]) -> dict[str, int]:
    """key -> turn of those messages that were refused because they are to stay forgotten."""
    here = {filed.key for filed in archive.of(tenant).messages(session)}
    return {filed.key: filed.turn for filed in messages if name(filed.key) not in here}


def _is_of(passage: Passage, forgotten: Mapping[str, int]) -> bool:
    """Was the passage cut from one of these messages, or is it the summary of such a turn?"""
    return passage.message in forgotten or (passage.unit == "turn" and passage.turn in forgotten.values())


def _is_later(here: Passage | None, summary: Passage) -> bool:
    """Is the summary in the archive a different one, and at least as new? After an interrupted import the session is
    here already, but not yet its summaries."""
    return here is not None and here.text != summary.text and here.created_at >= summary.created_at


def _what_was_learned(
    archive: Archive, tenant: str, held: Mapping[str, list[Any]], ids: Mapping[int, int], now: float
) -> None:
    """Write corrections, verdicts, pins and learned values. ids: of the passages that were not here before"""
    mine, last = archive.of(tenant), {p.id: p for p in held["passage"]}
    known = {(edit.after, edit.at) for edit in mine.edits(held["session"][0]["id"])}
    for edit in held["edit"]:
        if (edit["after"], edit["at"]) not in known and (id_ := ids.get(edit["passage"])) and edit["passage"] in last:
            edited = structs.replace(last[edit["passage"]], id=id_, text=edit["after"])
            mine.edit(edited, now=edit["at"])
    for old, passage in last.items():
        if id_ := ids.get(old):
            if passage.verdict:
                mine.feedback("", id_, passage.verdict, now=now)
            if passage.pinned:
                mine.pin(id_, now=now)
    numbers = [(ids[p.id], (p.confidence, p.success, p.accesses, p.accessed_at)) for p in last.values() if p.id in ids]
    for some in batches(numbers):
        with with_pause():
            mine.reinforce(dict(some))


def _ids(archive: Archive, tenant: str, passages: list[Passage]) -> dict[int, int]:
    """Id of a passage in the export -> its id here."""
    ids = {}
    with archive.reading() as db:
        for passage in passages:
            parameters = (name(tenant), name(passage.session), passage.unit, fingerprint(passage.text))
            found = db.conn.execute(_ID, parameters).fetchone()
            if found:
                ids[passage.id] = found[0]
    return ids


def _renumbered(restored: Restored, ids: Mapping[int, int]) -> Restored:
    """`restored` with the ids that passages have here; 0, which is never used, for a removed one."""
    placed = tuple(
        structs.replace(p, passage=structs.replace(p.passage, id=ids.get(p.passage.id, 0))) for p in restored.placed
    )
    return structs.replace(restored, placed=placed)


def _passed_renumbered(passed: PassedOver, ids: Mapping[int, int]) -> PassedOver:
    """`passed` with the ids that passages have here."""
    other = ids.get(passed.other, 0) if passed.reason in ("similar", "echo") else passed.other
    return structs.replace(
        passed, passage=structs.replace(passed.passage, id=ids.get(passed.passage.id, 0)), other=other
    )


# rows -> records


def _in_seconds(row: Row) -> Row:
    """`row` with its times in seconds, whatever unit they have: earlier versions accepted milliseconds and smaller
    units from programs. ValueError for a value that is not a time."""
    return {**row, **{each: _seconds(each, row[each]) for each in _TIMES if each in row}}


def _seconds(name: str, time: float) -> float:
    if not abs(time) < LATEST_S / _LEAST_S:
        raise ValueError(f"{name} is {time}; use Unix seconds")
    while abs(time) >= LATEST_S:
        time /= 1_000
    return time


def _of(kind: Any, row: Row, **more: Any) -> Any:
    """A `kind` made from the fields of `row` that it has. ValueError for a value of the wrong type."""
    return msgspec.convert({**row, **more}, kind)


def _session(row: Row) -> Row:
    if _of(SessionRow, row).api not in get_args(Api):
        raise ValueError(f"api is {row['api']!r}; use {', '.join(get_args(Api))}")
    ids, tools, uncut = tuple(row.get("ids", ())), tuple(row["tools"]), frozenset(row.get("uncut", ()))
    return {**row, "head": head_of(row), "ids": ids, "tools": tools, "uncut": uncut}


def _message(row: Row) -> Filed:
    items = tuple(_of(Item, each, print=bytes.fromhex(each["print"])) for each in row["items"])
    raw = row["raw"].encode("utf-8", "surrogateescape")
    message = Message(row["role"], items, raw, bytes.fromhex(row["print"]))
    flags = {name: bool(row[name]) for name in ("side", "partial")}
    found: Filed = _of(Filed, row, message=message, **flags)
    return found


def _passage(row: Row) -> Passage:
    found: Passage = _of(Passage, row)
    return found


def _edit(row: Row) -> Row:
    return {key: row[key] for key in ("passage", "before", "after", "at")}


def _request(row: Row) -> tuple[RequestRow, tuple[PassedOver, ...]]:
    found: RequestRow = _of(RequestRow, row)
    return found, tuple(
        _of(PassedOver, each, passage=_passage(_in_seconds(each["passage"]))) for each in row.get("passed", ())
    )


def _block(row: Row) -> Block:
    restored = row["restored"]
    placed = tuple(_of(Placed, each, passage=_passage(_in_seconds(each["passage"]))) for each in restored["placed"])
    found: Block = _of(Block, row, restored=_of(Restored, restored, placed=placed))
    return found


_PARSE = {
    "session": _session,
    "message": _message,
    "passage": _passage,
    "edit": _edit,
    "request": _request,
    "block": _block,
}
