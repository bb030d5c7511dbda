"""Rows of an archive whose list of tables is damaged, read from its pages without SQLite.

A page says what kind it is, and a row how long and of what type each of its values is, but not of which table: it is of
every one whose columns have such types. Tables are STRICT, so hardly any two are alike. (SQLite's file format, sections
1.6 B-tree Pages, 2.1 Record Format and 4 The Write-Ahead Log.)
"""

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlite_utils.db import Database

from lantern_proxy.archive.raw import PLAIN

Value = int | float | bytes | None

_LEAF, _INDEX_LEAF, _INDEX = 13, 10, 2
"""Pages with rows, by their first byte: of tables, and of indexes and tables without a rowid."""
_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
"""Bytes of a value by its serial type, up to 9."""
_PAGE_BYTES = 4_096
_MOST_BYTES = 1 << 30
"""Of one row: SQLite takes none that is longer."""
_FRAME, _LOG_HEAD = 24, 32


@dataclass(frozen=True, slots=True)
class Table:
    """A table as its rows are written."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    """INTEGER, REAL, TEXT or BLOB; ROWID where the row's own number stands for the value."""
    nullable: tuple[bool, ...]
    least: int
    """Columns of the shortest row: those that were added later are lacking in older ones."""
    has_rowid: bool

    @classmethod
    def of(cls, db: Database, name: str) -> "Table":
        """As `db` has it."""
        (sql,) = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
        has_rowid = "WITHOUT ROWID" not in sql.upper()
        # (place, name, type, NOT NULL, default, place in the key)
        found = db.execute(f"PRAGMA table_info({name})").fetchall()
        if not has_rowid:  # the key comes first, whatever the order in which columns are declared
            found.sort(key=lambda column: (column[5] == 0, column[5] or column[0]))
        types = [column[2] for column in found]
        key = [at for at, column in enumerate(found) if column[5]]
        if has_rowid and [types[at] for at in key] == ["INTEGER"]:
            types[key[0]] = "ROWID"
        needed = [at for at, column in enumerate(found) if column[4] is None and (column[3] or column[5])]
        return cls(
            name, tuple(column[1] for column in found), tuple(types), tuple(not column[3] for column in found),
            max(needed) + 1, has_rowid,
        )  # fmt: skip

    def fits(self, serials: Sequence[int]) -> bool:
        """May a row with values of these serial types be one of this table?"""
        if not self.least <= len(serials) <= len(self.columns):
            return False
        kinds = zip(serials, self.types, self.nullable, strict=False)
        return all(_is_of(serial, type_, nullable) for serial, type_, nullable in kinds)


def _is_of(serial: int, type_: str, nullable: bool) -> bool:
    if serial == 0:
        return nullable or type_ == "ROWID"
    if type_ == "TEXT":
        return serial >= 13 and serial % 2 == 1
    if type_ == "BLOB":
        return serial >= 12 and serial % 2 == 0
    return type_ != "ROWID" and (serial in (1, 2, 3, 4, 5, 6, 8, 9) or (serial == 7 and type_ == "REAL"))


class Pages:
    """The pages of a file, as they stand in it or, newer, in its log."""

    def __init__(self, file: int, log: int | None) -> None:
        """file, log: descriptors, which stay the caller's."""
        self._file, self._log = file, log
        self.size = _size_of_page(file, log)
        self._newer, pages = _committed(log, self.size) if log is not None else ({}, 0)
        self.count = pages or -(-os.fstat(file).st_size // self.size)

    def page(self, number: int) -> bytes:
        """They count from 1; what is beyond the end of the file is zeros."""
        if self._log is not None and number in self._newer:
            data = _read(self._log, self.size, self._newer[number])
        else:
            data = _read(self._file, self.size, (number - 1) * self.size)
        return data.ljust(self.size, b"\0")

    def rows(
        self, tables: Sequence[Table], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[Table, list[Value]]]:
        """(table, values of its first columns) of each row that can be read, once for each table that it fits."""
        for number in range(1, self.count + 1):
            data = self.page(number)
            start = 100 if number == 1 else 0
            kind = data[start]
            if kind in (_LEAF, _INDEX_LEAF, _INDEX):
                mine = [table for table in tables if table.has_rowid == (kind == _LEAF)]
                for at in _cells(data, start):
                    with contextlib.suppress(IndexError, ValueError):  # a damaged cell
                        yield from self._fitting(data, at, kind, mine)
            progress(number, self.count)

    def _fitting(self, data: bytes, at: int, kind: int, tables: Sequence[Table]) -> Iterator[tuple[Table, list[Value]]]:
        """The row whose cell is at `at`, for each of `tables` that it fits."""
        length, at = _varint(data, at + 4 if kind == _INDEX else at)
        rowid, at = _varint(data, at) if kind == _LEAF else (0, at)
        serials, head = _serials(data, at)
        fitting = [table for table in tables if table.fits(serials)]
        if not fitting or length > _MOST_BYTES:
            return
        values = _values(self._payload(data, at, length, kind), head, serials)
        for table in fitting:
            named = zip(values, table.types, strict=False)
            yield table, [rowid if type_ == "ROWID" else value for value, type_ in named]

    def _payload(self, data: bytes, at: int, length: int, kind: int) -> bytes:
        """The bytes of a row, also where they go on in other pages. ValueError where some are missing."""
        most = self.size - 35 if kind == _LEAF else (self.size - 12) * 64 // 255 - 23
        if length <= most:
            found = data[at : at + length]
        else:
            least = (self.size - 12) * 32 // 255 - 23
            here = least + (length - least) % (self.size - 4)
            here = here if here <= most else least
            parts, next_ = [data[at : at + here]], int.from_bytes(data[at + here : at + here + 4], "big")
            for _ in range(-(-(length - here) // (self.size - 4))):
                if not 1 < next_ <= self.count:
                    raise ValueError("a row ends in no page")
                more = self.page(next_)
                parts.append(more[4:])
                next_ = int.from_bytes(more[:4], "big")
            found = b"".join(parts)[:length]
        if len(found) != length:
            raise ValueError("a row is cut short")
        return found


def _read(file: int, length: int, at: int) -> bytes:
    """What a disk at fault does not give is empty."""
    try:
        return os.pread(file, length, at)
    except OSError:
        return b""


def _size_of_page(file: int, log: int | None) -> int:
    """As the log says or the file; what Lantern's archives have where both are damaged."""
    said = [] if log is None else [int.from_bytes(_read(log, 4, 8), "big")]
    head = _read(file, 18, 0)
    if head.startswith(PLAIN):
        said.append(int.from_bytes(head[16:], "big"))
    return next((size for size in said if 512 <= size <= 65_536 and not size & (size - 1)), _PAGE_BYTES)


def _committed(log: int, size: int) -> tuple[dict[int, int], int]:
    """Where in the log the newest committed version of each page is, and how many pages the last commit left."""
    salts = _read(log, 8, 16)
    at, found, waiting, pages = _LOG_HEAD, dict[int, int](), dict[int, int](), 0
    while len(head := _read(log, _FRAME, at)) == _FRAME and head[8:16] == salts:
        waiting[int.from_bytes(head[:4], "big")] = at + _FRAME
        if left := int.from_bytes(head[4:8], "big"):
            found.update(waiting)
            waiting.clear()
            pages = left
        at += _FRAME + size
    return found, pages


def _cells(data: bytes, start: int) -> Iterator[int]:
    """Where the cells of a page begin."""
    head = start + (12 if data[start] == _INDEX else 8)
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    if head + 2 * count > len(data):
        return
    for at in range(head, head + 2 * count, 2):
        cell = int.from_bytes(data[at : at + 2], "big")
        if head + 2 * count <= cell < len(data):
            yield cell


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(a number of one to nine bytes, where what follows it begins). IndexError beyond the end."""
    value = 0
    for place in range(8):
        value = value << 7 | data[at + place] & 0x7F
        if data[at + place] < 0x80:
            return value, at + place + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


def _serials(data: bytes, at: int) -> tuple[list[int], int]:
    """(the serial types of a row that begins at `at`, bytes of its head). A head is short: it is never in two pages."""
    length, place = _varint(data, at)
    serials = []
    while place < at + length:
        serial, place = _varint(data, place)
        serials.append(serial)
    if place != at + length:
        raise ValueError("the head of a row has another length than it says")
    return serials, length


def _values(payload: bytes, at: int, serials: Sequence[int]) -> list[Value]:
    """Texts as their bytes."""
    values = list[Value]()
    for serial in serials:
        width = (serial - 12) // 2 if serial >= 12 else _WIDTHS[serial]
        values.append(_value(payload[at : at + width], serial))
        at += width
    if at != len(payload):
        raise ValueError("a row has another length than its values")
    return values


def _value(data: bytes, serial: int) -> Value:
    if serial == 0:
        return None
    if serial == 7:
        return float(struct.unpack(">d", data)[0])
    if serial in (8, 9):
        return serial - 8
    return data if serial >= 12 else int.from_bytes(data, "big", signed=True)
