"""Confidence and success of a passage after it was restored. Pure; rates from the LANTERN paper."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import fields


class Rates(Struct, frozen=True, kw_only=True):
    """How fast confidence moves. The defaults are the paper's."""

    gain: float = 0.15
    loss: float = 0.02
    floor: float = 0.1
    minimum: float = 0.15
    ema: float = 0.1

    @classmethod
    def of(cls, settings: Any) -> "Rates":
        """The rates in the `reinforce:` section of a config."""
        return cls(**{each.name: getattr(settings, each.name) for each in fields(cls)})


def used(own_keys: Iterable[str], answer_key: str) -> bool:
    """Does an answer contain one of a passage's own specific terms? Both in the form of analyze.key().

    own_keys: terms of the passage that were nowhere in the request, so that only the passage can have supplied them
    """
    padded = f" {answer_key} "
    return any(f" {key} " in padded for key in own_keys if len(key) > 1)


def settle(confidence: float, success: float, was_used: bool, rates: Rates) -> tuple[float, float]:
    """(confidence, success) after one restore: used gains `gain`, unused loses `loss`; success is an EMA of use."""
    moved = confidence + rates.gain if was_used else confidence - rates.loss
    return min(1.0, max(rates.floor, moved)), success + rates.ema * (float(was_used) - success)


REFUSED = frozenset({"wrong", "outdated"})
"""Verdicts after which a passage is not restored."""


def retrievable(confidence: float, rates: Rates) -> bool:
    """Is a passage trusted enough to be restored?"""
    return confidence >= rates.minimum
