"""Are two items the same but for their presentation? Two texts, or calls and results with one id.

A text may have lost or gained an end, a note or a time, been tidied up, or have an ellipsis in its middle.
"""

import re

from lantern_proxy.analyze.spoken import without_stamp
from lantern_proxy.history.text import mostly_equal, shared_ends, shared_front
from lantern_proxy.turn import Item, plain
from lantern_proxy.turn_memo import Memo

_ELLIPSIS = re.compile(r"\.{3}|…|(?<![./\\])\.\.(?![./\\])")  # two points are one, too, but not those of a path
_ELLIPSIS_CHARS = 40
"""Most characters that replace the middle of a text: an ellipsis, which may say how much was left out."""
MARK_CHARS, _MIN_ALIKE = 8, 8
"""Characters of the beginning and end by which a text is found; and least length of texts that may match without being
equal."""
_CONDENSED_WORDS, _CONDENSED_SHARE = 3, 0.25
"""Least words, and share of its words, that a text of which words were left out has kept."""
_NO_WORD = re.compile(r"\W+")
_CLOSED, _CLOSED_CHARS = re.compile(r"(?:\s*</[\w:.-]+>)+\Z"), 200
_NO_WORD_ASCII = bytes(code for code in range(128) if _NO_WORD.match(chr(code)))


def _words(text: str) -> str:
    if text.isascii():  # a twentieth of the time
        return text.encode().translate(None, _NO_WORD_ASCII).decode()
    return "".join(_NO_WORD.split(text))


_behind_stamp = Memo(without_stamp, most_bytes=4 << 20, bytes_of=lambda text: 2 * len(text)).__getitem__
bare = Memo(_words, most_bytes=4 << 20, bytes_of=lambda text: 2 * len(text)).__getitem__
"""A text without what stands between its words. Cached, as in history/presentation.py."""


def is_alike(a: Item, b: Item) -> bool:
    """Are both the same item: do they share a minted id, or did a text gain or lose something at its beginning or end,
    or was it reformatted?

    Editors put open files in front of what their user says, and tags around both, while it is the last message.
    """
    if b.kind != "ref" and (a.kind != b.kind or a.role != b.role):
        return False
    if b.kind != "text":
        return not {*a.ids}.isdisjoint(b.ids)
    short, long = unstamped(a), unstamped(b)
    if len(short) > len(long):
        short, long = long, short
    if len(short) < _MIN_ALIKE:
        return False
    if long.startswith(short) or long.endswith(short) or (long[-1] == ">" and _unclosed(long).endswith(short)):
        return True
    return len(long) < 2 * len(short) and bare(short) == bare(long)


def _unclosed(text: str) -> str:
    """`text` without closing tags at its end."""
    closed = _CLOSED.search(text, max(0, len(text) - _CLOSED_CHARS))
    return text[: closed.start()] if closed else text


def unstamped(i: Item) -> str:
    """A text without the time that its client writes in front of user texts, anew with every request."""
    text = plain(i.text)
    return text if i.role != "user" or text[:1] not in ("[", "(") else _behind_stamp(text)


def is_patched(old: Item, new: Item) -> bool:
    """Did a client only insert something into a text, or replace its middle by an ellipsis?"""
    if not _are_texts(old, new):
        return False
    if ends_of(old) != ends_of(new):
        return False  # as nearly all of thousands that begin with one date: both look for no less
    before, after = plain(old.text), plain(new.text)
    return _holds_insertion(before, after) or has_ellipsis_for(before, after)


def is_mostly(old: Item, new: Item) -> bool:
    """Is a text unchanged except for something in its middle: a time, the open files?"""
    return _are_texts(old, new) and mostly_equal(plain(old.text), plain(new.text))


def is_behind_note(old: Item, new: Item) -> bool:
    """Is a text unchanged except for the note in front of it? The note may be far longer than the text."""
    front, _, said = old.text.rpartition("\n\n")
    return (
        bool(front and plain(said))
        and _are_texts(old, new)
        and ends_of(old) == ends_of(new)
        and (new.text.rpartition("\n\n")[2] == said)
    )


def is_condensed(old: Item, new: Item) -> bool:
    """Is a text what is_condensed_from() says?"""
    return _are_texts(old, new) and is_condensed_from(plain(old.text), plain(new.text))


def is_condensed_from(before: str, after: str) -> bool:
    """Are the words of a text some of those that it had, in their order? Some clients leave out each that seems to say
    little. What is missing in one place alone was a note there."""
    had, left = before.split(), after.split()
    if not max(_CONDENSED_WORDS, _CONDENSED_SHARE * len(had)) <= len(left) < len(had):
        return False
    if shared_ends(before, after) >= len(after):
        return False
    rest = iter(had)
    return all(word in rest for word in left)


def _are_texts(old: Item, new: Item) -> bool:
    return old.kind == new.kind == "text" and old.role == new.role


def _holds_insertion(before: str, after: str) -> bool:
    """Did a client insert something into a text, after its words and before a note?"""
    half = len(before) // 2
    if len(after) <= len(before) or not (after.startswith(before[:half]) or after.endswith(before[half:])):
        return False
    front = shared_front(before, after)
    if not MARK_CHARS <= front <= len(before) - MARK_CHARS:
        return False
    return after.endswith(before[front:])


def ends_of(i: Item) -> tuple[str, str]:
    text = plain(i.text)
    return text[:MARK_CHARS], text[-MARK_CHARS:]


def has_ellipsis_for(before: str, after: str, *, one_end: bool = False) -> bool:
    """Is `after` the beginning and the end of `before`, with an ellipsis and little else in place of the middle?

    one_end: only one of the two ends need be there
    """
    if ".." not in after and "…" not in after:  # as in nearly all
        return False
    front = shared_front(before, after)
    back = shared_front(before[front:][::-1], after[front:][::-1])
    start, end = max(0, front - 2), len(after) - back + 2  # a text may go on with a point where the ellipsis stands
    lost = before[front : len(before) - back]
    own = (max if one_end else min)(front, back) >= MARK_CHARS and end - start <= _ELLIPSIS_CHARS
    marked = any(found.end() <= end for found in _ELLIPSIS.finditer(after, start, end + 1))
    return own and marked and not _ELLIPSIS.search(lost)
