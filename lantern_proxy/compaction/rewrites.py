"""Was a history only rewritten, or taken back by its client? Then nothing was lost, though items are gone.

Each question is about the items of the head that the request lacks (Diff.gone), and there are some.
"""

import msgspec

from lantern_proxy.compaction.align import alike_among
from lantern_proxy.compaction.diff import Diff, is_user_text, untimed_text
from lantern_proxy.compaction.lines import is_made_of, stands_in
from lantern_proxy.history.containment import Haystack
from lantern_proxy.history.embedded import SPEAKER
from lantern_proxy.history.presentation import strings_of
from lantern_proxy.history.record import answers_of, chains, place_key
from lantern_proxy.history.summaries import is_long_text, is_marked
from lantern_proxy.history.text import mostly_equal
from lantern_proxy.turn import Item, Message, item, plain

_TEXTS_TOLD = 4
"""How many user texts are looked for among earlier ones."""


# --- taken back: a branch ------------------------------------------------------------------------------------------


def is_gone_back(diff: Diff) -> bool:
    """Does the request continue from an earlier point of the session, one its head is no longer at?

    References in front of the question do not count: they have other fingerprints than the answers that they name.
    What its client had cleared may be all that came back: a copy goes on from the middle, and what it shows in full is
    still short in the other one.
    """
    return bool(diff.returned or _is_uncleared(diff)) and _is_known_place(diff)


def _is_uncleared(diff: Diff) -> bool:
    """Is a message that the head shows otherwise than it was filed shown as it was, and where it was?"""
    altered = {e.key: e.message.print for e in diff.session.head if e.altered}
    places = zip(chains(diff.request.messages), diff.request.messages, strict=True) if altered else ()
    return any(altered.get(place_key(chain), m.print) != m.print for chain, m in places)


def is_put_back(diff: Diff) -> bool:
    """Does the request show messages that the head lacks, all of them as the session showed them once? Its client took
    back a history that it had shortened."""
    found = {b for _, b in diff.matched}
    return any(b not in found for b in range(diff.pending)) and _is_known_place(diff)


def _is_known_place(diff: Diff) -> bool:
    """Was everything in front of the question shown before, message by message? Of the last answer, which may be shown
    for the first time or by its name, it is enough that it was told."""
    messages, at = diff.request.messages, diff.new[diff.pending - 1].at if diff.pending else 0
    places = chains(messages) if at else []
    while at and place_key(places[at]) not in diff.session.keys and _is_told(diff, messages[at]):
        at -= 1
    return diff.pending > 0 and place_key(chains(messages)[at]) in diff.session.keys


def _is_told(diff: Diff, shown: Message) -> bool:
    """Was a message answered in this session, in these words, or is it shown by its name?"""
    named = {name for names in (*diff.session.before, *answers_of(diff.session.head)) for name in names}
    is_answer = shown.role == "assistant" or any(i.kind == "ref" for i in shown.items)
    return is_answer and bool(shown.items) and all(i.kind == "ref" or i.print in named for i in shown.items)


def is_improved(diff: Diff) -> bool:
    """Is only the talk gone between the user's question and its final answer?

    Examples: a draft and its criticism, an answer that was invalid JSON. Tool calls are no such talk, and the request
    must also keep the answer before the question, since a client that keeps only the first message and the last two
    would look the same.
    """
    first, last = diff.gone[0], diff.gone[-1]
    inside = first > 1 and last + 1 < len(diff.old) and last + 1 - first == len(diff.gone)
    if not inside or {i.kind for i in diff.gone_items} != {"text"} or diff.gone_items[-1].role != "user":
        return False
    found = {a for a, _ in diff.pairs}
    asked, answer, before = diff.old[first - 1], diff.old[last + 1], diff.old[first - 2]
    shown = {first - 2, first - 1, last + 1} <= found
    is_last = answer.at >= diff.answer and diff.session.head[answer.at].produced
    return shown and is_last and is_user_text(asked) and before.item.role == "assistant"


def is_told_again(diff: Diff) -> bool:
    """Does earlier history stand in place of the gone: answers unchanged, user texts perhaps with small changes?

    Clients that write times into user texts never show the same history twice. The first of these texts might be a
    summary. In front of an answer that came back with everything before it, a text of the client's own stands for
    nothing: it may be what its user made of an answer.
    """
    unpaired = [diff.new[b].item for b in sorted([*diff.fresh, *diff.returned]) if b < diff.pending]
    answers = [i for i in unpaired if i.role == "assistant" and i.kind in ("text", "ref")]
    users = [plain(i.text) for i in unpaired if i.role == "user" and i.kind == "text"]
    goes_back = diff.pairs and diff.is_rewound and 0 < len(users) <= len(answers)
    is_back = _is_taken_back(diff)
    if not unpaired or not (goes_back or is_back):
        return False
    shown = {name for names in diff.session.before for name in names}
    told = {text for text, who in diff.said if who == "assistant"}
    if not all(i.kind == "ref" or i.print in shown or plain(i.text) in told for i in answers[-1 if is_back else 0 :]):
        return False
    before = [text for text, who in diff.said if who == "user"]
    return all(any(text in old or mostly_equal(old, text) for old in before) for text in users[:_TEXTS_TOLD])


def _is_taken_back(diff: Diff) -> bool:
    """Are answers back that were lost, together with everything shown before them, from the beginning up to some point?

    A client that recalls a few old messages beside a window leaves out what stood between.
    """
    shown = answers_of(diff.session.head)
    told = (*diff.session.before, *shown)
    names = {value: each[0] for each in reversed(told) for value in each}

    def known_as(*called: bytes | str) -> bytes | str | None:
        return next((names[value] for value in reversed(called) if value in names), None)

    found = dict.fromkeys(known_as(s.item.print, *s.item.ids) for s in diff.new[: diff.pending])
    found.pop(None, None)
    since = {known_as(*each) for each in shown}
    as_before = [*dict.fromkeys(known_as(*each) for each in told)]
    return not since.issuperset(found) and [*found] == as_before[: len(found)]


def is_undone(diff: Diff) -> bool:
    """Did a client remove a summary that it had inserted, and bring back each answer that was shown before the loss?
    What followed may be gone, too."""
    last = max((a for a, _ in diff.pairs), default=-1)
    inside = [diff.old[a] for a in diff.gone if a < last]
    if not inside or any(diff.session.head[seat.at].produced or seat.item.kind != "text" for seat in inside):
        return False
    long = [text for text, who in diff.said if who in ("side", "assistant") and is_long_text(text)]
    told = [[text for text in long if text in plain(seat.item.text)] for seat in inside]
    made = {item("assistant", "text", text).print for texts in told for text in texts}
    now = made.union(*((s.item.print, *s.item.ids) for s in diff.new))
    return all(told) and bool(diff.session.before) and not any(map(now.isdisjoint, diff.session.before))


def is_parted(diff: Diff) -> bool:
    """Was the first of the gone texts, into which the history had been joined, split into messages again?

    Everything before the text that waits for an answer must be part of it, and at most one turn may have followed it.
    """
    if diff.pairs or diff.last_turn:
        return False
    texts = [s.item for s in diff.new[: diff.pending] if s.item.kind in ("text", "result")]
    told = any(i.role == "assistant" for i in texts)
    return told and is_made_of(plain(diff.old[0].item.text), map(untimed_text, texts))


# --- written otherwise: the session goes on ------------------------------------------------------------------------


def is_joined(diff: Diff) -> bool:
    """Does everything that is gone stand within new texts, so that it was only joined? No text can hold a picture."""
    calls = [i for i in diff.gone_items if i.kind == "call"]
    others = [(a, i) for a, i in zip(diff.gone, diff.gone_items, strict=True) if i.kind not in ("call", "media")]
    if not others or any(i.kind not in ("text", "result") for _, i in others):
        return False
    redressed = [b for a, b in diff.matched if diff.old[a].item.print != diff.new[b].item.print]
    texts = (diff.new[b].item for b in (*diff.fresh, *redressed))
    whole = Haystack("\n".join(plain(i.text) for i in texts if i.kind == "text"))
    if sum(len(plain(i.text)) for _, i in others if not _was_redressed(i)) > len(whole.text):
        return False
    told = all(
        stands_in(whole, untimed_text(i), notes=False)
        or stands_in(whole, i.text, notes=a >= diff.last_turn or _was_redressed(i))
        for a, i in others
    )
    # what was passed to a tool may be long: a file that was written, of which the result says "ok"
    passed = (text for i in calls for text in map(plain, strings_of(i.text)) if is_long_text(text))
    return told and all(text in whole for text in passed)


def is_echoed(diff: Diff) -> bool:
    """Are only results gone that repeat the arguments of their call, which is kept? Tools by which a model answers
    return what is passed to them."""
    passed: dict[str, list[str]] = {}
    for a, _ in diff.matched:
        call = diff.old[a].item
        if call.kind == "call":
            passed |= {value: [*map(plain, strings_of(call.text))] for value in call.ids}
    return all(
        i.kind == "result" and any(plain(i.text) in text for value in i.ids for text in passed.get(value, ()))
        for i in diff.gone_items
    )


def _was_redressed(i: Item) -> bool:
    """Did its client show a user text otherwise than it was filed, perhaps without a note, before the session was
    loaded from the archive? Then only the filed text is known."""
    return i.role == "user" and i.print != item(i.role, i.kind, i.text).print


def is_edited(diff: Diff) -> bool:
    """Is the text that waits for an answer a gone text with an addition?"""
    return alike_among(diff.gone_items, [diff.new[b].item for b in diff.fresh if b >= diff.pending])


def is_rewritten(diff: Diff) -> bool:
    """Is only a note of the last turn gone, or its answer, or were texts replaced one by one?"""
    if set(diff.gone) == {a for a, _ in diff.replaced}:
        return not (diff.session.lost and _is_summed_up_anew(diff))
    if min(diff.gone) < diff.last_turn or _lacks_speaker(diff):
        return False
    if not diff.is_rewound:
        return all(i.kind != "result" for i in diff.gone_items) and not (_lacks_line(diff) or _is_thinned_out(diff))
    return diff.is_answer_gone and any(diff.new[b].item.role == "assistant" for b in (*diff.fresh, *diff.returned))


def _is_summed_up_anew(diff: Diff) -> bool:
    """Did one text that calls itself a summary replace another? If no model made it, only this shows that the client
    compacted again."""
    pairs = ((diff.old[a].item, diff.new[b].item) for a, b in diff.replaced)
    return any(i.kind == j.kind == "text" and is_marked(i.text) and is_marked(j.text) for i, j in pairs)


def _lacks_speaker(diff: Diff) -> bool:
    """Is a message gone of one of several people who speak as users? Such a speaker is named in a field, or in front of
    the text as in kept texts; a note has no such name."""
    users = {seat.at: diff.session.head[seat.at].message for seat in diff.old if is_user_text(seat)}
    gone = {diff.old[a].at for a in diff.gone}
    names = {at: _name_of(m) for at, m in users.items()}
    if len({*filter(None, names.values())}) > 1 and any(names.get(at) for at in gone):
        return True
    kept = {named[0] for at, m in users.items() if at not in gone and (named := SPEAKER.match(m.text))}
    return any((named := SPEAKER.match(users[at].text)) and named[0] in kept for at in gone & users.keys())


def _name_of(m: Message) -> str:
    try:
        return msgspec.json.decode(m.raw, type=_Named).name
    except msgspec.DecodeError:
        return ""


def _is_thinned_out(diff: Diff) -> bool:
    """Is the last answer gone, and text of the user from before the question that it answered, which is kept? Whoever
    takes an answer back leaves what stood before it; some clients choose anew each time which messages they send."""
    gone = {diff.old[a].at: diff.old[a] for a in diff.gone}
    asked = max((n for n, seat in enumerate(diff.old) if seat.at < diff.answer and is_user_text(seat)), default=0)
    is_answer_gone = any(at >= diff.answer and diff.session.head[at].produced for at in gone)
    return is_answer_gone and asked not in diff.gone and any(is_user_text(diff.old[a]) for a in diff.gone if a < asked)


class _Named(msgspec.Struct):
    name: str = ""


def _lacks_line(diff: Diff) -> bool:
    """Is everything gone that the user said in the last turn? A note stands beside it, or after a result."""
    last = diff.last_turn
    said = {n for n in range(last, len(diff.old)) if is_user_text(diff.old[n])}
    return said <= {*diff.gone} and (last == 0 or diff.old[last - 1].item.kind != "result")
