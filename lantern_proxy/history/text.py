"""What two texts have in common: terms, beginnings and ends, being prompts of the same kind."""

import re
from itertools import pairwise

from lantern_proxy.turn_memo import Memo

_WORD, _SIGNS = re.compile(r"[^\W\u2e80-\U0003ffff]{4,}"), re.compile(r"[\u2e80-\U0003ffff]{2,}")
"""Words of at least four letters; in scripts without spaces, every two adjacent signs."""
_SAME_OPENING_CHARS = 80
_EQUAL_SHARE = 0.6
"""Two texts are mostly equal when they share this much of the longer, from both ends."""


def terms(text: str) -> set[str]:
    """What a text is about, in any language: its longer words, in lower case."""
    low = text.lower()
    words = {*_WORD.findall(low)}
    if not low.isascii():
        words.update(a + b for signs in _SIGNS.findall(low) for a, b in pairwise(signs))
    return words


def breadth(text: str) -> int:
    """The length of a text, with signs of scripts without spaces counted twice."""
    return len(text) if text.isascii() else len(text) + sum(map(len, _SIGNS.findall(text)))


def shared_front(a: str, b: str) -> int:
    """How many characters two texts have in common from their start. By bisection: they may be long, and many."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Backward:
    """A text that is searched from its end in linear time: str.rfind takes the product of both lengths at worst."""

    def __init__(self, text: str) -> None:
        self._signs = text[::-1]

    def rfind(self, part: str, end: int) -> int:
        """As text.rfind(part, 0, end)."""
        size = len(self._signs)
        at = self._signs.find(part[::-1], size - end)
        return size - at - len(part) if at >= 0 else -1


def behind_last(part: str, text: str) -> str:
    """What follows the last occurrence of `part` in `text`; all of `text` if there is none."""
    at = Backward(text).rfind(part, len(text))
    return text[at + len(part) :] if at >= 0 else text


def shared_ends(a: str, b: str) -> int:
    """How many characters two texts share from their fronts and their backs."""
    front = shared_front(a, b)
    return front + shared_front(a[front:][::-1], b[front:][::-1])


def mostly_equal(a: str, b: str) -> bool:
    """Do two texts differ only in the middle, such as in a time or the open files?"""
    short, long = sorted((len(a), len(b)))
    return short >= _EQUAL_SHARE * long and shared_ends(a, b) >= _EQUAL_SHARE * long


def same_system(a: str, b: str) -> bool:
    """Are two system prompts equal, or alike except for dates, documents or an appended summary? An empty one is only
    like an empty one."""
    return a == b or (bool(a and b) and _alike((a, b)))


def _compare(pair: tuple[str, str]) -> bool:
    a, b = pair
    short, long = sorted(pair, key=len)
    if long.startswith(_front(short)) or long.endswith(short):
        return True
    words_a, words_b = _split(a), _split(b)
    shared = len(words_a & words_b)
    if shared >= 0.6 * (len(words_a) + len(words_b) - shared):  # of all: two prompts may share a whole section
        return True
    return mostly_equal(a, b)  # a date in a short one, or in one without spaces


def _front(text: str) -> str:
    """The beginning of a text, as broad as _SAME_OPENING_CHARS letters."""
    front = text[:_SAME_OPENING_CHARS]
    while breadth(front) > _SAME_OPENING_CHARS:
        front = front[:-1]
    return front


def _bag(text: str) -> frozenset[str]:
    return frozenset(text.split())


_split = Memo(_bag, most_bytes=4 << 20, bytes_of=lambda text: 12 * len(text)).__getitem__
_alike = Memo(_compare, most_bytes=4 << 20, bytes_of=lambda pair: sum(map(len, pair))).__getitem__
"""Cached: a client's sessions are told apart by their system prompts with every request."""
