"""Which items of a session's head are still in the request, but shortened or replaced by a placeholder?"""

from collections import Counter
from collections.abc import Collection, Iterator

from lantern_proxy.compaction.align import Pairs
from lantern_proxy.compaction.diff import Diff, is_user_text
from lantern_proxy.compaction.similarity import bare, has_ellipsis_for, is_alike, is_condensed
from lantern_proxy.history.presentation import shown_as
from lantern_proxy.history.record import before_answer
from lantern_proxy.history.summaries import is_note
from lantern_proxy.history.text import shared_ends, shared_front, terms
from lantern_proxy.turn import Item, plain

_SHORTENED = ("text", "result", "call")
"""Kinds of items that clients shorten."""
_CLEARED_SHARE, _CLEARED_MIN_CHARS = 0.35, 80
"""A tool result of at least this many characters that kept less than this share of its text was cleared."""
_CLEARED_MIN_TERMS, _CLEARED_TERMS_SHARE = 6, 0.2
"""A placeholder may be half as long as a short result that it replaces, but shares hardly any of its words."""
_CLEARED_TEXT_CHARS = 400
"""Shorter texts may just be different ones."""
_PLACEHOLDER_CHARS = 200
_CUT_SHARE, _CUT_MIN_CHARS, _OWN_SHARE = 0.8, 80, 0.6
"""A text was cut if it lost a fifth of its length, at least this many characters, and most of the rest stood at its
ends."""
_SHORT_CUT_SHARE, _SHORT_CUT_MIN_CHARS = 0.67, 40
"""A result may be short: it was cut if it lost a third of its length, and this many characters."""
_OMITTED_MIN_CHARS = 12
"""A text with an ellipsis in its middle was cut if it lost this many characters."""
_FRONT_CHARS, _NOTE_CHARS = 16, 200
"""Characters of its beginning by which a text is found after a note; and most characters of the note."""


def find_cleared(diff: Diff) -> Pairs:
    """(old, new): results and arguments that are short now, texts that were cut, placeholders for texts and media. An
    earlier text that came back is no placeholder, unless the client had taken it back."""
    old, new, taken_back = diff.old, diff.new, {*diff.session.abandoned.values()}
    back = {b for b in diff.returned if diff.request.messages[new[b].at].print not in taken_back}
    replaced = [(a, b) for a, b in diff.replaced if _may_stand_for(old[a].item, new[b].item)]
    times = Counter(new[b].item.print for _, b in replaced)
    return [
        *((a, b) for a, b in diff.shown if _is_cleared(old[a].item, new[b].item) or _is_cut(diff, a, b)),
        *(
            (a, b)
            for a, b in replaced
            if (b not in back and _is_emptied(diff, a, b, often=times[new[b].item.print] > 1))
            or _is_cut(diff, a, b, in_place=True)
        ),
        *_media(diff),
    ]


def _may_stand_for(old: Item, new: Item) -> bool:
    return old.kind == new.kind and (old.kind in ("text", "result") or (old.kind == "call" and old.name == new.name))


def is_all_there(diff: Diff, cleared: Collection[tuple[int, int]]) -> bool:
    """Is nothing gone except what was cleared, and short results whose placeholder was reworded?"""
    if not (diff.gone and cleared):
        return not diff.gone
    reworded = {a for a, b in diff.replaced if _is_reworded(diff.old[a].item, diff.new[b].item)}
    return len(cleared) >= len({*diff.gone} - reworded)


def _is_reworded(old: Item, new: Item) -> bool:
    is_short = max(len(old.text), len(new.text)) < _PLACEHOLDER_CHARS
    return is_short and old.kind == new.kind == "result" and not _is_cleared(old, new)


def _media(diff: Diff) -> Iterator[tuple[int, int]]:
    """Media that are gone, each with the last text that may replace it."""
    last = {diff.new[b].item.role: b for b in diff.fresh if _is_placeholder(diff, b)}
    for a, i in zip(diff.gone, diff.gone_items, strict=True):
        if i.kind == "media" and i.role in last:
            yield a, last[i.role]


def _is_placeholder(diff: Diff, b: int) -> bool:
    """May a short text replace media: those in its message, or the only item that is gone?"""
    new, item = diff.new, diff.new[b].item
    beside = len(diff.gone) == 1 or any(new[n].at == new[b].at for n in (b - 1, b + 1) if 0 <= n < len(new))
    return item.kind == "text" and beside and len(item.text) < _PLACEHOLDER_CHARS


def _is_emptied(diff: Diff, a: int, b: int, *, often: bool) -> bool:
    """Is hardly anything left of a long text, or, if later items are kept, of any result or call, or of a text that has
    the same placeholder as others, or a note in brackets?"""
    old, new = diff.old[a].item, diff.new[b].item
    is_past = (often or old.kind != "text" or is_note(new.text)) and any(after > a for after, _ in diff.pairs)
    return (is_past or len(old.text) >= _CLEARED_TEXT_CHARS) and _is_cleared(old, new)


def _is_cleared(old: Item, new: Item) -> bool:
    """Did a result, a call or a replaced text keep less than a third of its length? A result also counts if it kept
    hardly a word."""
    if old.print == new.print or old.kind not in _SHORTENED or (old.kind == "text" and is_alike(old, new)):
        return False
    before, after = plain(old.text), plain(new.text)
    if len(before) < _CLEARED_MIN_CHARS or len(after) >= len(before):
        return False
    return len(after) < _CLEARED_SHARE * len(before) or (old.kind == "result" and _tells_other(before, after))


def _tells_other(before: str, after: str) -> bool:
    """Is `after` about something else than `before`, so that it is no shorter version of it?"""
    found = terms(before)
    return len(found) >= _CLEARED_MIN_TERMS and len(found & terms(after)) < _CLEARED_TERMS_SHARE * len(found)


def _is_cut(diff: Diff, a: int, b: int, *, in_place: bool = False) -> bool:
    """Was part of a text left out, at its end or in its middle, or words all over it? A mark may stand in its place.

    A text of the last turn, and the last result, may lose what their client had appended. A text of the last turn
    counts as cut if an ellipsis stands in its middle, or if it ends within a word or a sentence.

    in_place: both stand alone between the same neighbours; then one of its ends and an ellipsis are enough
    """
    old, new = diff.old[a].item, diff.new[b].item
    if old.print == new.print or old.kind not in _SHORTENED or old.kind != new.kind:
        return False
    before = plain(old.text)
    after = _without_note(before, plain(new.text))
    omits = len(before) - len(after) >= _OMITTED_MIN_CHARS and has_ellipsis_for(before, after, one_end=in_place)
    cut = omits or (_is_shorter(old.kind, before, after) and _is_of(before, after))
    if not cut and not (_lost_a_part(before, after) and is_condensed(old, new)):
        return False
    if old.kind == "text" and (after in _behind_thoughts(old) or _is_in_front_now(diff, before, after, diff.new[b].at)):
        return False
    if old.kind == "text":
        return omits or a < diff.last_turn or _ends_within(old.text, new.text)
    if old.kind == "call":
        return True
    was_last = diff.old[a].at == len(before_answer(diff.session)) - 1
    return not (was_last and before.startswith(plain(new.text)))


def _lost_a_part(before: str, after: str) -> bool:
    """Is a fifth of a text gone, and enough of it to tell something?"""
    return len(after) <= min(_CUT_SHARE * len(before), len(before) - _OMITTED_MIN_CHARS)


def _behind_thoughts(i: Item) -> list[str]:
    """An answer without the reasoning at its beginning: leaving that out loses nothing that was said."""
    return [plain(text) for text in shown_as(i.text)[1:]] if i.role == "assistant" else []


def _is_in_front_now(diff: Diff, before: str, after: str, at: int) -> bool:
    """Does the lost beginning of a text stand in the user's first text now? Some clients write their orders in front of
    the first user text, and this was the first one until omitted messages came back.

    at: index of its message
    """
    first = next(filter(is_user_text, diff.new), None)
    kept = shared_front(before[::-1], after[::-1])
    front = after[: len(after) - kept]  # a time
    lost = before[len(front) : len(before) - kept].strip()
    if first is None or first.at >= at or not before.startswith(front):
        return False
    return bool(lost) and lost in plain(first.item.text)


def _ends_within(before: str, after: str) -> bool:
    """Was a text cut off within a word, or within a sentence, whose next word begins with a small letter?"""
    if not before.startswith(after) or not after[-1:].isalnum():
        return False
    behind = before[len(after) : len(after) + 2]
    return behind[:1].isalnum() or (behind[:1] == " " and behind[1:].islower())


def _is_shorter(kind: str, before: str, after: str) -> bool:
    short = kind == "result" and len(after) <= _SHORT_CUT_SHARE * len(before)
    least = _SHORT_CUT_MIN_CHARS if short else _CUT_MIN_CHARS
    return len(after) <= min(_CUT_SHARE * len(before), len(before) - least)


def _is_of(before: str, after: str) -> bool:
    """Did most of `after` stand at the ends of `before`, whatever separates its words now?"""
    return any(shared_ends(a, b) >= _OWN_SHARE * len(b) for a, b in ((before, after), (bare(before), bare(after))))


def _without_note(before: str, after: str) -> str:
    """`after` without a note that its client wrote in front of the beginning of `before`."""
    at = after.find(before[:_FRONT_CHARS], 0, _NOTE_CHARS) if len(before) >= _FRONT_CHARS else -1
    return after[at:] if at > 0 else after
