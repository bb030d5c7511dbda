"""A Chat Completions call that Lantern itself makes: the request body, and the text of the answer. Pure.

    body = request_body("gpt-5-mini", "system", "user", temperature=0, max_tokens=200)
    without_refused(body, b'{"error": {"param": "temperature"}}')    # the body to send instead; None: nothing to drop
    text(parsed_answer)                                              # without the reasoning before it

Servers differ in the optional parameters they accept: reasoning models refuse a temperature, some refuse max_tokens.
"""

from collections.abc import Mapping
from typing import Any

_NEEDED = frozenset({"model", "messages"})
REFUSED = frozenset({400, 422})
"""Status codes with which a server rejects a parameter it does not support."""


def request_body(model: str, system: str, user: str, **optional: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"model": model, "messages": messages} | optional


def optional_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the body that a server may refuse."""
    return {name: value for name, value in body.items() if name not in _NEEDED}


def without_refused(body: Mapping[str, Any], refusal: bytes) -> dict[str, Any] | None:
    """The body without the optional parameters that a refusal names; None if it names none of those sent."""
    refused = [name for name in optional_of(body) if name.encode() in refusal]
    return {name: value for name, value in body.items() if name not in refused} if refused else None


def text(answer: Any) -> str:
    """The model's text without its reasoning (`<think>...</think>` of open models).

    Raises ValueError if the answer is not a chat completion.
    """
    try:
        content = answer["choices"][0]["message"]["content"] or ""
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"this is no answer of chat/completions: {str(answer)[:200]}") from None
    return str(content).rpartition("</think>")[2].strip()
