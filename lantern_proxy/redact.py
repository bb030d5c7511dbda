"""Redaction before archiving: what a detector finds is replaced and counted, and stored nowhere.

    redactor = Redactor(("secrets", "cards"), {})
    redactor.text("card 4111 1111 1111 1111")    -> "card [redacted:card]"
    redactor.found                                -> Counter({"card": 1})

Secrets are found by the patterns of detect-secrets for specific kinds of keys, without its heuristics (entropy, the
word "password"), which fire on ordinary code. Patterns of our own add what it lacks.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from lantern_proxy.turn import Filed, Item
from lantern_proxy.turn_blocks import BLOCK_OPEN, without_blocks

_PEM = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_OWN_SECRETS = {
    "private-key": rf"-----BEGIN {_PEM}.*?(?:-----END {_PEM}|\Z)",
    "anthropic-key": r"\bsk-ant-[A-Za-z0-9_-]{20,}",
    "openai-key": r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}",
    "openai-token": r"sk-[A-Za-z0-9_-]{20,200}?T3BlbkFJ[A-Za-z0-9]{20}",
    "npm-tokens": r":_authToken=\s*(?:npm_\S+|[A-Fa-f0-9-]{36})",
    "google-key": r"\bAIza[A-Za-z0-9_-]{35}\b",
    "github-token": r"\b(?:github_pat_[A-Za-z0-9_]{22,}|gh[pousr]_[A-Za-z0-9]{36,})",
    "jwt": r"\beyJ[A-Za-z0-9_-]{8,}(?:\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})?",
    "lantern-key": r"\blk_[A-Za-z0-9_-]{43}\b",
}
_LEFT_OUT = {
    "Base64 High Entropy String", "Hex High Entropy String", "Secret Keyword", "Public IP (ipv4)", "Private Key",
    "JSON Web Token", "NPM tokens", "OpenAI Token",
}  # fmt: skip
"""Heuristics, and patterns that take quadratic time on a long line, which own patterns above replace."""
_ASSIGNED = r"(?: *)(?:=|:|:=|=>| +|::)(?: *)"
"""What detect-secrets allows between a name and its value: it can divide a run of spaces in many ways."""
_ASSIGNED_AT_ONCE = r"(?: *+(?:=>|:=|::|=|:) *+| ++)"
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}\b")
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-]|\.\d)")
_ISSUERS = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}"
)
"""Visa, Mastercard, American Express, Diners, Discover, JCB, UnionPay; the check digit is verified as well."""
_OPENS_BLOCK = BLOCK_OPEN.encode()
LONGEST_CHARS = 4_096
"""Longest secret: for a text to be cut, so many characters beyond the cut are searched."""


class Cleaner:
    """Makes messages ready for archiving: without our own blocks, redacted, without skipped roles.

    detectors, patterns: as in Redactor; skip_roles: system (developer, too), user, assistant, tool
    """

    def __init__(self, detectors: Sequence[str], patterns: Mapping[str, str], skip_roles: Sequence[str]) -> None:
        self._redactor, self._skipped = Redactor(detectors, patterns), frozenset(skip_roles)
        self._redacted = lru_cache(maxsize=256)(self._redactor.text)  # every request repeats its session's title

    @property
    def found(self) -> Counter[str]:
        """Kind -> number of redactions since the start."""
        return self._redactor.found

    def clean(self, filed: tuple[Filed, ...]) -> tuple[Filed, ...]:
        """Messages as they may be archived; those of skipped roles are left out."""
        if self._skipped:
            filed = tuple(each for each in filed if self._wants(each.message.role))
        filed = tuple(map(_without_blocks, filed))
        return tuple(map(self._redactor.filed, filed)) if self._redactor else filed

    def _wants(self, role: str) -> bool:
        return ("system" if role == "developer" else role) not in self._skipped

    def said(self, text: str, most_chars: int) -> str:
        """The beginning of a user's text, in the form in which a request's question or a session's title may quote it.

        Redacted before it is cut, since no detector recognises half of a secret.
        """
        if "user" in self._skipped:
            return ""
        if not self._redactor:
            return text[:most_chars]
        seen = text[: most_chars + LONGEST_CHARS]
        clean = self._redacted(seen)
        return clean[: room_for(most_chars, clean=len(clean), was_cut=len(seen) == most_chars + LONGEST_CHARS)]


def room_for(most_chars: int, *, clean: int, was_cut: bool) -> int:
    """How many characters may be kept of the redacted beginning of a text.

    clean:   its length after redaction
    was_cut: the text continued, so a secret may have been cut at the end, and the last LONGEST_CHARS are not kept
    """
    return max(0, min(most_chars, clean - LONGEST_CHARS)) if was_cut else most_chars


def _without_blocks(filed: Filed) -> Filed:
    """A message without blocks that Lantern added, if its client sends them back."""
    if _OPENS_BLOCK not in filed.message.raw:
        return filed
    raw = without_blocks(filed.message.raw)
    return filed if raw == filed.message.raw else replace(filed, message=replace(filed.message, raw=raw))


class Redactor:
    """detectors: secrets, cards, emails; patterns: name -> regular expression of more."""

    def __init__(self, detectors: Sequence[str], patterns: Mapping[str, str]) -> None:
        self.found: Counter[str] = Counter()
        """Kind -> number of replacements."""
        self._rules: list[tuple[str, re.Pattern[str], Callable[[str], bool]]] = [
            (name, re.compile(pattern), _always) for name, pattern in patterns.items()
        ]
        if "secrets" in detectors:
            self._rules += [
                (name, re.compile(pattern, re.S), _is_jwt if name == "jwt" else _always)
                for name, pattern in _OWN_SECRETS.items()
            ]
            self._rules += [(name, pattern, _always) for name, pattern in _of_detect_secrets()]
        if "cards" in detectors:
            self._rules.append(("card", _CARD, _is_card))
        if "emails" in detectors:
            self._rules.append(("email", _EMAIL, _always))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def text(self, text: str) -> str:
        """`text` with all findings replaced."""
        for kind, pattern, is_it in self._rules:
            text = pattern.sub(lambda match, kind=kind, is_it=is_it: self._replace(match, kind, is_it), text)  # type: ignore[misc]
        return text

    def _replace(self, match: re.Match[str], kind: str, is_it: Callable[[str], bool]) -> str:
        if not is_it(match[0]):
            return match[0]
        self.found[kind] += 1
        return f"[redacted:{kind}]"

    def filed(self, filed: Filed) -> Filed:
        """A message with all findings replaced; `filed` itself if there are none. Its fingerprint is still that of the
        client's text, so that it is recognised when it comes again."""
        message = filed.message
        items = tuple(self._item(item) for item in message.items)
        counted = self.found.copy()
        raw = self._raw(message.raw)
        self.found = counted  # the text of the items was counted already
        if items == message.items and raw == message.raw:
            return filed
        return replace(filed, message=replace(message, items=items, raw=raw))

    def _item(self, item: Item) -> Item:
        text = self.text(item.text)
        return item if text == item.text else replace(item, text=text)

    def _raw(self, raw: bytes) -> bytes:
        text = raw.decode("utf-8", "surrogateescape")
        try:
            value = json.loads(text, object_pairs_hook=_unique)
            changed = self._walk(value)
            return raw if changed == value else json.dumps(changed, ensure_ascii=True).encode()
        except (ValueError, RecursionError):
            return self.text(text).encode("utf-8", "surrogateescape")

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._walk(each) for key, each in value.items()}
        if isinstance(value, list) and not all(isinstance(each, float) for each in value):
            return [self._walk(each) for each in value]
        encoded = json.dumps(value)
        cleaned = self.text(encoded)
        if cleaned == encoded:
            return value
        return [self._walk(each) for each in value] if isinstance(value, list) else cleaned


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. ValueError for a duplicate name, since only one of its values would be redacted."""
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a name stands twice in an object")
    return found


def _always(text: str) -> bool:
    return True


def _is_jwt(text: str) -> bool:
    """Is it a JSON web token? Text that begins like one is skipped as a whole, not searched from each "eyJ" in it."""
    return "." in text


def _is_card(text: str) -> bool:
    """Is it a number that an issuer may have assigned, with a correct check digit (Luhn)?"""
    digits = re.sub(r"\D", "", text)
    if not _ISSUERS.fullmatch(digits):
        return False
    doubled = (int(d) * 2 if at % 2 else int(d) for at, d in enumerate(reversed(digits)))
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


def _of_detect_secrets() -> Iterator[tuple[str, re.Pattern[str]]]:
    """(kind, pattern) of its plug-ins for a specific kind of key each."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    plugins: dict[str, Any] = get_mapping_from_secret_type_to_class()
    for name, plugin in plugins.items():
        if name not in _LEFT_OUT:
            kind = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
            for pattern in plugin().denylist:
                yield kind, re.compile(pattern.pattern.replace(_ASSIGNED, _ASSIGNED_AT_ONCE), pattern.flags)
