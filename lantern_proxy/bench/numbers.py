"""What the benches share of numbers: a list of them as an option, and figures as JSON."""

from collections.abc import Mapping
from typing import Any

import click


class Numbers(click.ParamType[list[int]]):
    """Whole numbers with commas between them: "2000,100_000" -> [2000, 100000]; "" -> []."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):  # converted already
            return value
        try:
            return [int(each) for each in value.split(",")] if value else []
        except ValueError:
            self.fail(f"{value!r}; give numbers like 2000,100000", param, ctx)


NUMBERS = Numbers()


def without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """`row` with None for NaN, which is no JSON."""
    return {name: None if value != value else value for name, value in row.items()}
