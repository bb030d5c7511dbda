"""What does this request lack of what its session held, and how was it lost?

The request is aligned, item by item, with what the session showed last (its head). The event depends on what is gone,
what is kept, and what stands in place of the gone:

    nothing gone, or only the last turn rewritten       turn, retry, branch
    everything after some point replaced                branch, unless a summary stands there
    gone from the front or the middle, the rest kept    window, or compacted if a summary stands there
    a result or text that is short now                  cleared

Each question has a module: which items are those of the head (align.py, diff.py), what is still there in part
(cleared.py), was the history only rewritten or taken back (rewrites.py), which message holds a summary of the gone
(summary.py), where does a restored block go (placement.py). Words of clients (history/summaries.py) only break ties.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from msgspec import Struct, structs

from lantern_proxy.compaction.align import seats
from lantern_proxy.compaction.cleared import find_cleared, is_all_there
from lantern_proxy.compaction.diff import Diff, diff_of
from lantern_proxy.compaction.placement import is_prefilled_answer, may_hold_block, question
from lantern_proxy.compaction.rewrites import (
    is_echoed,
    is_edited,
    is_gone_back,
    is_improved,
    is_joined,
    is_parted,
    is_put_back,
    is_rewritten,
    is_told_again,
    is_undone,
)
from lantern_proxy.compaction.summary import compaction_item, renewed_summary, summaries, summary_at
from lantern_proxy.history.record import Entry, Said, Session, goes_on
from lantern_proxy.history.summaries import SUMMARY_CHARS, SUMMED_UP
from lantern_proxy.history.text import behind_last
from lantern_proxy.history.transcript import beginning, ending
from lantern_proxy.turn import LOSSES, SYSTEM, Event, Message, Request, plain

_CLOSING = re.compile(r"\A(?:\s*</[\w:-]{1,40}>)*\s*")
_OPENING = re.compile(r"(?:<[\w:-]{1,40}>\s*)*\Z")
"""Tags that a client puts around a summary end behind it, and begin in front of it."""
_TAGS_CHARS = 400
"""Most characters in front of a summary that are searched for opening tags."""


class Verdict(Struct, frozen=True, kw_only=True, gc=False):
    """What happened between the session's last request and this one."""

    event: Event
    kept: tuple[str | None, ...] = ()
    """For each message of the request its key in the session; None when it is new."""
    gone: tuple[str, ...] = ()
    """Keys of messages that are in the session's head and not in the request."""
    abandoned: tuple[str, ...] = ()
    """Those of `gone` that the client took back (an edit, a rewind) or that only asked for a summary; they are not
    lost."""
    anchor: int | None = None
    """Index of the message where the loss happened: the summary, the first kept user text, the cleared result."""
    summary: int | None = None
    """Index, among the messages that were compared, of the one that holds a summary; None if none was found."""
    dressed: Mapping[int, str] = {}
    """Index of a kept message that has had text put around it -> hex fingerprint of the message before that. Empty for
    a loss, where the text may be another summary, and if nothing was ever lost, since then there are no blocks."""
    asked: str = ""
    """The text that waits for an answer, if that is only a part of its message; else ""."""

    @property
    def is_loss(self) -> bool:
        return self.event in LOSSES

    def question_at(self, request: Request) -> int | None:
        """Index of the message that waits for an answer; None when none does."""
        return question(request, self.kept, is_summed_up=self.event == "compacted")

    def question_in(self, request: Request) -> str:
        """The text that waits for an answer in `request`, the one that was compared; "" when none does."""
        at = self.question_at(request)
        return self.asked or (request.messages[at].text if at is not None else "")

    def summary_in(self, request: Request) -> str:
        """The summary that stands for what was lost; "" when there is none."""
        return request.messages[self.anchor].text if self.event == "compacted" and self.anchor is not None else ""


def compare(
    session: Session, request: Request, *, said: Said = (), anew: Collection[str] = (), restart: bool = False
) -> Verdict:
    """The verdict on `request` as the next one of `session`.

    said:    what was said in the session so far
    anew:    canonical texts that a side call answered since: a new summary may read just like the one before
    restart: an id or a summary alone linked the request, so it need not keep anything of the session
    """
    if request.delta:
        return _delta(session, request)
    folded = _folded(session, request)
    if folded is None and goes_on(session, request):
        return _more(session, request)
    if folded is None and _is_begun(session, request):
        unbegun = structs.replace(request, messages=request.messages[:-1])
        verdict = compare(session, unbegun, said=said, anew=anew, restart=restart)
        return structs.replace(verdict, kept=(*verdict.kept, None))
    diff = diff_of(session, request, said, anew)
    if folded is not None and not diff.gone:
        hidden = tuple(key for key in diff.kept[:folded] if key)
        return Verdict(event="compacted", kept=diff.kept, gone=hidden, anchor=folded, summary=folded)
    event, anchor, summary, joined = _event(diff, restart)
    gone = diff.gone_keys
    abandoned = gone if event in ("turn", "retry", "branch") and not joined else ()
    if event == "window":
        abandoned = diff.taken_back
    if event == "compacted":
        abandoned = _summary_order(diff, request, summary)
    asked = _asked_beside(diff, summary) if summary is not None else ""
    return Verdict(
        event=event, kept=diff.kept, gone=gone, abandoned=abandoned, anchor=anchor, summary=summary,
        dressed=diff.dressed if session.lost and event not in LOSSES else {}, asked=asked,
    )  # fmt: skip


def _summary_order(diff: Diff, request: Request, summary: int | None) -> tuple[str, ...]:
    """The key of the gone message with which the client asked for the summary. It mentions a summary, and the session's
    last answer, which followed it, makes up most of the message that holds the summary.

    An answer that is merely quoted there proves nothing: then the message before it is the user's own.
    """
    head = diff.session.head
    answer = [*takewhile(lambda entry: entry.produced, reversed(head))]
    if summary is None or not answer or len(answer) == len(head):
        return ()
    order, said = head[-len(answer) - 1], plain(request.messages[summary].text)
    told = [text for entry in answer if (text := plain(entry.message.text)) and text in said]
    if order.message.role != "user" or order.key not in diff.gone_keys or not SUMMED_UP.search(order.message.text):
        return ()
    return (order.key,) if sum(map(len, told)) >= max(SUMMARY_CHARS, len(said) // 2) else ()


def _is_begun(session: Session, request: Request) -> bool:
    """Does the request end in a prefilled answer after a new user text?

    The prefill may be the beginning of every earlier answer, too.
    """
    if not is_prefilled_answer(request.messages):
        return False
    if session.answered and session.head[-1].message.print == request.messages[-1].print:
        return False
    asked = request.messages[-2].print
    return all(e.message.print != asked for e in session.head)


def _delta(session: Session, request: Request) -> Verdict:
    """The verdict on a request that holds only what is new, so that nothing can be compared. It was compacted if it has
    a compaction item, or if the last answer brought one."""
    kept: tuple[None, ...] = (None,) * len(request.messages)
    at = compaction_item(request)
    if at is None and any(map(_is_folding, takewhile(lambda e: e.produced, reversed(session.head)))):
        gone = (e.key for e in session.head[: _folded_up_to(session.head)] if e.message.role not in SYSTEM)
        anchor = (_first_spoken(request) or 0) if kept else None
        return Verdict(event="compacted", kept=kept, gone=tuple(gone), anchor=anchor)
    return Verdict(event="turn", kept=kept) if at is None else Verdict(event="compacted", kept=kept, anchor=at)


def whole(head: Sequence[Entry], request: Request) -> Request:
    """`request` with the messages that its upstream stores: those before it, if it holds only what is new, and those
    that it refers to by id. head: that of its session"""
    messages = request.messages
    if any(i.kind == "ref" for m in messages for i in m.items):
        named = {value: e.message for e in head for value in e.message.ids}
        messages = tuple(next((named[value] for value in m.ids if value in named), m) for m in messages)
    if not request.delta:
        return request if messages is request.messages else structs.replace(request, messages=messages)
    held = tuple(e.message for e in head[_folded_up_to(head) :])
    return structs.replace(request, messages=(*held, *messages))


def _folded_up_to(head: Sequence[Entry]) -> int:
    """Index of the last compaction item that the upstream made on its own: the model sees nothing before it."""
    return max((at for at, e in enumerate(head) if _is_folding(e)), default=0)


def _is_folding(entry: Entry) -> bool:
    return entry.produced and any(i.kind == "compaction" for i in entry.message.items)


def _more(session: Session, request: Request) -> Verdict:
    """The verdict on a request that holds the whole head and adds to it. It is the same as that of _event(), without a
    comparison of every message."""
    held = [e.key if e.message.print and e.message.role not in SYSTEM else None for e in session.head]
    new = request.messages[len(held) :]
    return Verdict(event="turn" if seats(new) else "retry", kept=(*held, *(None,) * len(new)))


class _Found(NamedTuple):
    event: Event
    anchor: int | None = None
    summary: int | None = None
    joined: bool = False
    """The gone texts stand within other texts now. The client took nothing back, and may still drop them later."""


def _event(diff: Diff, restart: bool) -> _Found:
    """What happened: the first question that is answered with yes. Questions that rule out a loss come before the
    search for a summary, those that only make it unlikely come after it."""
    cleared = find_cleared(diff)
    if is_all_there(diff, cleared):
        return _all_there(diff, cleared)
    if is_told_again(diff) or is_parted(diff):
        return _Found("branch")
    if is_joined(diff):
        return _joined(diff)
    if is_echoed(diff):
        return _all_there(diff, cleared)._replace(joined=True)
    summary = summary_at(diff)
    if summary is not None:
        return _Found("compacted", summary, summary)
    if is_improved(diff) or (diff.pairs and is_rewritten(diff)):
        return _Found(diff.forward)
    if is_gone_back(diff) or is_undone(diff):
        return _Found("branch")
    if diff.is_rewound and (diff.pairs or diff.returned or is_edited(diff) or not restart):
        return _Found("retry" if diff.is_answer_gone and not diff.fresh else "branch")
    if not diff.pairs:
        return _Found("compacted", _first_spoken(diff.request))
    return _Found("window", _first_kept_user(diff))


def _all_there(diff: Diff, cleared: Sequence[tuple[int, int]]) -> _Found:
    """What happened if every message is still there, at least in part: was anything cleared, or a summary renewed?"""
    renewed = renewed_summary(diff)
    if renewed is not None:
        return _Found("compacted", renewed, renewed)
    if cleared and is_put_back(diff):
        return _Found("branch")  # what is short now lost a summary, or only begins like what stood there
    if cleared:
        return _Found("cleared", max(diff.new[b].at for _, b in cleared))
    return _Found(diff.forward)


def _joined(diff: Diff) -> _Found:
    """What happened if all gone texts stand within other texts: they were only joined. But if the session lost
    something before, and a text holds a summary made just now, that summary replaces what was restored until then."""
    anew = diff.anew if diff.session.lost else ()
    at = next((at for at, i in diff.new if any(summary in plain(i.text) for summary in anew)), None)
    return _Found(diff.forward, joined=True) if at is None else _Found("compacted", at, at)


def _asked_beside(diff: Diff, summary: int) -> str:
    """What the user asks in the message that holds a summary: what follows a summary that was seen generated, or what
    precedes it; else the last part of the message, or its last paragraph."""
    if diff.pending == len(diff.new) or diff.new[diff.pending].at != summary:
        return ""
    texts, told = [s.item.text for s in diff.new[diff.pending :] if s.item.kind == "text"], summaries(diff.said)
    for at, text in reversed([*enumerate(texts)]):
        whole = plain(text)
        found = [each for each, _ in told if each in whole]
        if found:
            behind = _CLOSING.sub("", min((behind_last(each, whole) for each in found), key=len))
            asked = [ending(text, behind) if behind else "", *texts[at + 1 :]]
            if not any(asked) and _follows_answer(diff, summary):
                front = min((whole.partition(each)[0] for each in found), key=len)
                front = front[:-_TAGS_CHARS] + _OPENING.sub("", front[-_TAGS_CHARS:])
                asked = [*texts[:at], beginning(text, front)]
            return "\n\n".join(filter(None, asked))
    front, _, behind = texts[-1].rpartition("\n\n") if texts else ("", "", "")
    return texts[-1].strip() if len(texts) > 1 else behind.strip() if front.strip() else ""


def _follows_answer(diff: Diff, at: int) -> bool:
    """Is the message before this one the session's last answer? Then this one holds something its user says."""
    last = diff.session.head[-1]
    return last.produced and not last.message.calls and at > 0 and diff.kept[at - 1] == last.key


def shown_to_model(request: Request) -> Sequence[Message]:
    """The messages that the model sees: Anthropic's servers drop everything before a compaction block."""
    at = compaction_item(request, last=True) if request.api == "messages" else None
    if at is None:
        return request.messages
    opening = takewhile(lambda m: m.role in SYSTEM, request.messages)
    return (*opening, *request.messages[at:])


def _folded(session: Session, request: Request) -> int | None:
    """Index of a compaction block that the last answer brought; None if there is none. The client still sends
    everything before it, though the model does not see that."""
    last = session.head[-1] if session.head and request.api == "messages" else None
    if last is None or not last.produced or all(i.kind != "compaction" for i in last.message.items):
        return None
    at = compaction_item(request, last=True)
    return at if at is not None and last.message.print == request.messages[at].print else None


def _first_kept_user(diff: Diff) -> int | None:
    """Index of the first kept user text at which the cached prefix ends, since what followed is gone.

    If the last user text before the gap is kept, it is the anchor itself, since what a client pins there survives the
    next cut. If an agent is at work and no user text is left, the last result is the anchor; an assistant message never
    is.
    """
    messages = diff.request.messages
    same = [(a, diff.new[b].at) for a, b in diff.pairs if diff.old[a].item.print == diff.new[b].item.print]
    kept = [(a, at) for a, at in same if may_hold_block(messages[at])]
    gap = min(diff.gone)
    cached = max((diff.new[b].at for a, b in diff.pairs if a < gap), default=-1)
    spots = [at for a, at in kept if a > gap or at == cached]
    if spots:
        return min(spots)
    spoken = _first_spoken(diff.request, max(0, cached))
    if spoken is not None:
        return spoken
    works = messages[-1].role != "assistant" and any(i.kind == "result" for i in messages[-1].items)
    return cached if cached >= 0 else (len(messages) - 1 if works else None)


def _first_spoken(request: Request, start: int = 0) -> int | None:
    return next((at for at in range(start, len(request.messages)) if may_hold_block(request.messages[at])), None)
