"""The days named in a text, with relative ones resolved against the day it was said. Pure; days count from 1970, UTC.

spans("we met last Friday, not on 7 May 2023", at=1_683_554_160)    the Friday before 8 May 2023, and 7 May 2023
"""

import re
from collections.abc import Sequence
from datetime import date, timedelta

from lantern_proxy.analyze import folded
from lantern_proxy.signals.words import Counts, count

Span = tuple[int, int]
"""First and last day, inclusive."""

DAY_S = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "couple of": 2, "few": 3}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}

_MONTH = (
    r"(?P<{0}>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b"
)
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_BEGINS = (
    r"\d|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|in |of |on |during |since |early |late |mid |last |this |next "
    r"|past |yesterday|to[dmn]|an? |one |two |three |four |five |six |few |couple "
)
"""Beginnings of the alternatives of _DATE; checking these first halves the time."""
_DATE = re.compile(
    rf"\b(?=[\da-fijlmnopsty])(?={_BEGINS})(?:"
    + "|".join(
        (
            r"(?P<iso>\d{4}-\d\d-\d\d)\b",
            r"(?P<d1>\d{1,2})(?:st|nd|rd|th)?(?: of)? " + _MONTH.format("m1") + r"(?:,? (?P<y1>\d{4})\b)?",
            _MONTH.format("m2") + r"\.? (?P<d2>\d{1,2})(?:st|nd|rd|th)?\b(?:,? (?P<y2>\d{4})\b)?",
            _MONTH.format("m3") + r",? (?P<y3>\d{4})\b",
            r"(?:in|of|during|since|last|this|early|late|mid) " + _MONTH.format("m4"),
            r"(?:in|of|during|since) (?P<y4>(?:19|20)\d\d)\b",
            r"(?P<near>yesterday|today|tonight|tomorrow|this morning|last night)\b",
            rf"(?P<which>last|this|next|past) (?P<unit>weekend|week|month|year|{_WEEKDAY})\b",
            r"(?P<n>\d{1,2}|an?|one|two|three|four|five|six|few|couple of) (?P<ago>day|week|month|year)s? ago\b",
            rf"on (?P<weekday>{_WEEKDAY})\b",
        )
    )
    + ")"
)
"""For lower-case text: takes a third of the time of ignoring case."""


def day_of(at: float) -> int:
    """The number of the day of `at` (Unix seconds), counted from 1970, UTC."""
    return int(at // DAY_S)


def spans(text: str, at: float, counts: Counts | None = None) -> list[Span]:
    """The days that `text`, said `at` (Unix seconds), names; in order. A month without a year is the most recent one.
    Empty if `at` is no valid date, for example in milliseconds.

    counts: of this text, if known
    """
    counts = counts or count([text])[0]
    if not (counts.days or counts.years):
        return []
    try:
        today = date.fromordinal(_EPOCH + day_of(at))
    except (ValueError, OverflowError):
        return []
    found = []
    for match in _DATE.finditer(folded(text)):
        try:
            first, last = _read(match, today)
        except (ValueError, OverflowError):  # 31 June; tomorrow, on the last day there is
            continue
        found.append((first.toordinal() - _EPOCH, last.toordinal() - _EPOCH))
    return found


def closeness(question_spans: Sequence[Span], passage_spans: Sequence[Span]) -> float:
    """How close the days of two texts are, 0..1: 1 for equal ones, less for a wider span around, 1/e a week apart."""
    return max((_span_closeness(a, b) for a in question_spans for b in passage_spans), default=0.0)


def _span_closeness(a: Span, b: Span) -> float:
    gap = max(0, a[0] - b[1], b[0] - a[1])
    if gap > 60:
        return 0.0
    shorter, longer = sorted((a[1] - a[0] + 1, b[1] - b[0] + 1))
    return float((shorter / longer) ** 0.25 * 2.718281828 ** (-gap / 7))


def _read(match: re.Match[str], today: date) -> tuple[date, date]:
    found = match.groupdict()
    if found["iso"]:
        return _single_day(date.fromisoformat(found["iso"]))
    for n in "12":
        if found["m" + n]:
            month, year = _month(found["m" + n]), int(found["y" + n] or 0)
            return _single_day(date(year or _year_of(month, today), month, int(found["d" + n])))
    if found["m3"]:
        return _whole_month(int(found["y3"]), _month(found["m3"]))
    if found["m4"]:
        month = _month(found["m4"])
        return _whole_month(_year_of(month, today), month)
    if found["y4"]:
        return date(int(found["y4"]), 1, 1), date(int(found["y4"]), 12, 31)
    return _relative(found, today)


def _relative(found: dict[str, str | None], today: date) -> tuple[date, date]:
    if near := found["near"]:
        return _single_day(today + timedelta({"yesterday": -1, "last night": -1, "tomorrow": 1}.get(near, 0)))
    if found["ago"]:
        number = found["n"] or ""
        unit = _UNIT_DAYS[found["ago"]]
        middle = today - timedelta(unit * (int(number) if number.isdigit() else _NUMBERS[number]))
        return middle - timedelta(unit // 3), middle + timedelta(unit // 3)
    if found["weekday"]:
        return _single_day(today - timedelta((today.weekday() - _DAYS.index(found["weekday"][:3])) % 7))
    which, unit_name = found["which"] or "", found["unit"] or ""
    step = {"next": 1, "this": 0}.get(which, -1)
    if unit_name in ("week", "weekend"):
        monday = today - timedelta(today.weekday()) + timedelta(7 * step)
        return monday + timedelta(5 if unit_name == "weekend" else 0), monday + timedelta(6)
    if unit_name == "month":
        month = today.year * 12 + today.month - 1 + step
        return _whole_month(month // 12, month % 12 + 1)
    if unit_name == "year":
        return date(today.year + step, 1, 1), date(today.year + step, 12, 31)
    back = (today.weekday() - _DAYS.index(unit_name[:3])) % 7
    return _single_day(today - timedelta(back or 7) if step < 0 else today + timedelta(-back % 7 or 7 * step))


def _single_day(day: date) -> tuple[date, date]:
    return day, day


def _month(name: str) -> int:
    return _MONTHS.index(name[:3]) + 1


def _year_of(month: int, today: date) -> int:
    """The year of the most recent such month."""
    return today.year if month <= today.month else today.year - 1


def _whole_month(year: int, month: int) -> tuple[date, date]:
    after = date(year + month // 12, month % 12 + 1, 1)
    return date(year, month, 1), after - timedelta(1)
