"""Number lists as an option, and figures as JSON, for all benches."""

from collections.abc import Mapping
from typing import Any

import click


class Numbers(click.ParamType[list[int]]):
    """Integers from `least` on, separated by commas: "2000,100_000" -> [2000, 100000]; "" -> []."""

    name = "numbers"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):  # converted already
            return value
        try:
            given = [int(each) for each in value.split(",")] if value else []
        except ValueError:
            self.fail(f"{value!r}; give numbers like 2000,100000", param, ctx)
        if too_small := [each for each in given if each < self._least]:
            self.fail(f"{too_small[0]}; give numbers from {self._least} on", param, ctx)
        return given


def without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """`row` with None for NaN, which JSON does not have."""
    return {name: None if value != value else value for name, value in row.items()}
