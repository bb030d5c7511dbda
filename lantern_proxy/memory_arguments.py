"""Arguments of the methods of `Lantern`, checked and read: a ValueError names the argument and what it should be."""

import json
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from lantern_proxy.turn import LATEST_S, Request
from lantern_proxy.wire import chat

Wire = Mapping[str, Any]
"""A message in the form of Chat Completions."""
_MOST = 2**63 - 1
"""The largest integer that SQLite can store."""


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}; use a text")
    return value


def count(name: str, value: object) -> int:
    """An integer that SQLite can store."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ValueError(f"{name} is {value!r}; use a whole number, 0 or more")
    return min(int(value), _MOST)


def times_of(times: Iterable[float], messages: int) -> tuple[float, ...]:
    if isinstance(times, str | bytes | Mapping) or not isinstance(times, Iterable):
        raise ValueError(f"times is a {type(times).__name__}; use a list of Unix seconds, one a message")
    checked = tuple(times)
    if len(checked) != messages:
        raise ValueError(f"{len(checked)} times for {messages} messages; give one a message")
    for at, each in enumerate(checked):
        if not isinstance(each, Real) or not abs(each) < LATEST_S:
            raise ValueError(f"times[{at}] is {each!r}; use Unix seconds, or 0 where the time is not known")
    return tuple(float(each) for each in checked)


def read(messages: Sequence[Wire]) -> Request:
    """The record of some messages. ValueError says what is wrong with them."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise ValueError(f"messages is a {type(messages).__name__}; use a list of dicts as chat completions has them")
    dicts = [each if isinstance(each, dict | str) else _as_json(each) for each in messages]
    for at, each in enumerate(dicts):
        if isinstance(each, dict) and not isinstance(each.get("role"), str):
            raise ValueError(f"message {at} has no role; messages are dicts as chat completions has them")
    try:
        body = json.dumps({"model": "", "messages": dicts}, default=_as_json, allow_nan=False)
    except RecursionError:
        raise ValueError(
            "messages hold themselves, or are nested too deep; use the dicts of chat completions"
        ) from None
    return chat.read(body.encode())


def _as_json(value: Any) -> Any:
    """A dict for a value that is none: an object of OpenAI's SDK becomes what the SDK would send for it."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(f"messages hold a {type(value).__name__}, which is no JSON; use the dicts of chat completions")
