"""Rows of an archive whose list of tables is damaged, read from its pages without SQLite.

A page states its kind, and a row the size and type of each of its values, but not its table: it may be of every table
whose columns have such types. Tables are STRICT, so hardly any two are alike. (SQLite's file format, sections 1.6
B-tree Pages, 2.1 Record Format and 4 The Write-Ahead Log.)
"""

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from sqlite_utils.db import Database

from lantern_proxy.archive.raw import PLAIN

Value = int | float | bytes | None

_LEAF, _INDEX_LEAF, _INDEX = 13, 10, 2
"""First bytes of pages with rows: of tables, and of indexes and tables without a rowid."""
_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
"""Size in bytes of a value by its serial type, up to type 9."""
_PAGE_BYTES = 4_096
_MOST_BYTES = 1 << 30
"""Most bytes of one row: SQLite accepts no longer one."""
_FRAME, _LOG_HEAD = 24, 32


def has_rowid(db: Database, table: str) -> bool:
    (sql,) = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    return "WITHOUT ROWID" not in sql.upper()


class Table(Struct, frozen=True):
    """The form in which a table's rows are stored."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    """INTEGER, REAL, TEXT or BLOB for each column; ROWID if the rowid holds its value."""
    nullable: tuple[bool, ...]
    least: int
    """Columns of the shortest row: older rows lack columns that were added later."""
    has_rowid: bool

    @classmethod
    def of(cls, db: Database, name: str) -> "Table":
        """The table of that name in `db`."""
        rowid = has_rowid(db, name)
        # (place, name, type, NOT NULL, default, place in the key)
        found = db.execute(f"PRAGMA table_info({name})").fetchall()
        if not rowid:  # the key is stored first, in whatever order the columns are declared
            found.sort(key=lambda column: (column[5] == 0, column[5] or column[0]))
        types = [column[2] for column in found]
        key = [at for at, column in enumerate(found) if column[5]]
        if rowid and [types[at] for at in key] == ["INTEGER"]:
            types[key[0]] = "ROWID"
        needed = [at for at, column in enumerate(found) if column[4] is None and (column[3] or column[5])]
        return cls(
            name, tuple(column[1] for column in found), tuple(types), tuple(not column[3] for column in found),
            max(needed) + 1, rowid,
        )  # fmt: skip

    def fits(self, serials: Sequence[int]) -> bool:
        """May a row with values of these serial types belong to this table?"""
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
    """The pages of a file: the newest committed version of each, in the file or in its log."""

    def __init__(self, file: int, log: int | None) -> None:
        """file, log: descriptors, which the caller closes."""
        self._file, self._log = file, log
        self.size = _size_of_page(file, log)
        self._newer, pages = _committed(log, self.size) if log is not None else ({}, 0)
        self.count = pages or -(-os.fstat(file).st_size // self.size)

    def page(self, number: int) -> bytes:
        """The bytes of a page. Pages count from 1; beyond the end of the file they are zeros."""
        if self._log is not None and number in self._newer:
            data = _read(self._log, self.size, self._newer[number])
        else:
            data = _read(self._file, self.size, (number - 1) * self.size)
        return data.ljust(self.size, b"\0")

    def rows(
        self, tables: Sequence[Table], progress: Callable[[int, int], None]
    ) -> Iterator[tuple[Table, list[Value]]]:
        """(table, values of its first columns) of each row that can be read, for every table that it fits."""
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
        """The row of the cell at `at`, for each of `tables` that it fits."""
        length, at = _varint(data, at + 4 if kind == _INDEX else at)
        rowid, at = _varint(data, at) if kind == _LEAF else (0, at)
        serials, head = _serials(data, at)
        fitting = [table for table in tables if table.fits(serials)]
        if not fitting or length > _MOST_BYTES:
            return
        values = _values(self._payload(data, at, length, kind), head, serials)
        for table in fitting:
            typed = zip(values, table.types, strict=False)
            yield table, [rowid if type_ == "ROWID" else value for value, type_ in typed]

    def _payload(self, data: bytes, at: int, length: int, kind: int) -> bytes:
        """The bytes of a row, overflow pages included. ValueError if some are missing."""
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
    """Bytes of a file; empty if the disk fails to read them."""
    try:
        return os.pread(file, length, at)
    except OSError:
        return b""


def _size_of_page(file: int, log: int | None) -> int:
    """Page size according to the log or the file; if both are damaged, that of Lantern's archives."""
    sizes = [] if log is None else [int.from_bytes(_read(log, 4, 8), "big")]
    head = _read(file, 18, 0)
    if head.startswith(PLAIN):
        sizes.append(int.from_bytes(head[16:], "big"))
    return next((size for size in sizes if 512 <= size <= 65_536 and not size & (size - 1)), _PAGE_BYTES)


def _committed(log: int, size: int) -> tuple[dict[int, int], int]:
    """(offset in the log of each page's newest committed version, number of pages after the last commit)"""
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
    """Offsets of a page's cells."""
    head = start + (12 if data[start] == _INDEX else 8)
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    if head + 2 * count > len(data):
        return
    for at in range(head, head + 2 * count, 2):
        cell = int.from_bytes(data[at : at + 2], "big")
        if head + 2 * count <= cell < len(data):
            yield cell


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(a number of one to nine bytes, offset after it). IndexError beyond the end."""
    value = 0
    for place in range(8):
        value = value << 7 | data[at + place] & 0x7F
        if data[at + place] < 0x80:
            return value, at + place + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


def _serials(data: bytes, at: int) -> tuple[list[int], int]:
    """(serial types of the row that begins at `at`, size of its header). Headers are too short to span two pages."""
    length, place = _varint(data, at)
    serials = []
    while place < at + length:
        serial, place = _varint(data, place)
        serials.append(serial)
    if place != at + length:
        raise ValueError("the head of a row has another length than it says")
    return serials, length


def _values(payload: bytes, at: int, serials: Sequence[int]) -> list[Value]:
    """The values of a row; texts as bytes."""
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
