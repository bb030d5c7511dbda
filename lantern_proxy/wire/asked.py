"""A question of our own to a model over Chat Completions: its body, its answer's text. Pure.

    body = question("gpt-5-mini", "system", "user", temperature=0, max_tokens=200)
    without_refused(body, b'{"error": {"param": "temperature"}}')    # what to send then; None: nothing to leave out
    text(parsed_answer)                                              # without the thoughts in front of it

Servers differ in what they take beside model and messages: reasoning models refuse a temperature, some a bound.
"""

from collections.abc import Mapping
from typing import Any

_NEEDED = frozenset({"model", "messages"})
REFUSED = frozenset({400, 422})
"""Status codes of a server that names a parameter it does not take."""


def question(model: str, system: str, user: str, **optional: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"model": model, "messages": messages} | optional


def optional_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Its parameters that a server may refuse."""
    return {name: value for name, value in body.items() if name not in _NEEDED}


def without_refused(body: Mapping[str, Any], refusal: bytes) -> dict[str, Any] | None:
    """The body without the optional parameters that a refusal names; None when it names none that was sent."""
    named = [name for name in optional_of(body) if name.encode() in refusal]
    return {name: value for name, value in body.items() if name not in named} if named else None


def text(answer: Any) -> str:
    """What the model says, without what it thought before (`<think>` of open models).

    Raises ValueError for what is no answer of Chat Completions.
    """
    try:
        said = answer["choices"][0]["message"]["content"] or ""
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"this is no answer of chat/completions: {str(answer)[:200]}") from None
    return str(said).rpartition("</think>")[2].strip()
