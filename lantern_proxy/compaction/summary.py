"""Which message of a request holds a summary of what is gone?

Proofs are a compaction item, or text that the proxy saw generated and that now stands in another role or message. If a
loss is certain, signs are enough: parts of such a text, words that clients put in front of a summary, or a text about
the gone in the words of the gone.
"""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property

from msgspec import Struct

from lantern_proxy.compaction.diff import Diff, untimed_text
from lantern_proxy.compaction.rewrites import is_rewritten
from lantern_proxy.history.containment import Haystack, Needles, haystack_of
from lantern_proxy.history.presentation import shown_as, strings_of, unescaped
from lantern_proxy.history.record import Said, Session
from lantern_proxy.history.summaries import SUMMARY_CHARS, is_long_text, is_marked
from lantern_proxy.history.text import terms
from lantern_proxy.turn import SYSTEM, Item, Message, Request, plain

_CANDIDATES = 400
"""Most new texts that are examined, the first and the last ones: a client that shortens a history sends few."""
_MIN_TERMS, _MIN_SHARE = 6, 1 / 3
"""A text is about what is gone if it has this many terms, and this share of them stands in what is gone."""
_LOST_TEXTS, _LOST_CHARS = 400, 400
"""Most gone items whose texts are examined, and characters of each from which terms are taken."""
_RUN_CHARS, _RUN_STEP = SUMMARY_CHARS, 30
"""Length of a run of a text, and the distance between the beginnings of two runs: any stretch as long as both together
holds a whole run."""
_RUNS_CHARS, _SIDE_ANSWERS = 2_000, 4
"""Characters of a side call's answer that runs are taken from, and how many of the last answers."""
_NUMBER = re.compile(r"\d+")
_MARKED = 8
"""A client's words for a summary count in this many messages after the system prompt."""


class _Evidence(Struct, frozen=True, dict=True):
    """Evidence for a summary, each kind computed when first needed. Numbers are indices of seats, as in Diff."""

    diff: Diff

    @cached_property
    def candidates(self) -> Sequence[int]:
        """New texts and results that may be a summary. A sub-agent's report is none if history precedes it."""
        diff = self.diff
        reports = self.due if any(diff.old[a].at < diff.answer for a, _ in diff.matched) else ()
        left = {*reports, *self.passed_on}
        found = [b for b in diff.fresh if diff.new[b].item.kind in ("text", "result") and b not in left]
        return found if len(found) <= _CANDIDATES else [*found[: _CANDIDATES // 2], *found[-_CANDIDATES // 2 :]]

    @cached_property
    def early(self) -> Sequence[int]:
        """The `candidates` in front of the message that waits for an answer."""
        return [b for b in self.candidates if b < self.diff.pending]

    @cached_property
    def passed_on(self) -> set[int]:
        """Seats after everything kept that hold a sub-agent's answer, word for word, in place of the session's own."""
        diff, kept = self.diff, self.diff.matched
        last = max((a for a, _ in kept), default=-1)
        if not kept or any(not diff.session.head[seat.at].produced for seat in diff.old[last + 1 :]):
            return set()
        told = {text for text, _ in self.told_aside}
        behind = range(max(b for _, b in kept) + 1, len(diff.new))
        return {b for b in behind if diff.new[b].item.role == "assistant" and plain(diff.new[b].item.text) in told}

    @cached_property
    def gap(self) -> int | None:
        """The first kept seat of what followed the last gone item: a summary of the gone stands before it. None if
        nothing of that is kept; then a summary may stand anywhere before the pending text."""
        last = max(self.diff.gone)
        return min((b for a, b in self.diff.pairs if a > last), default=None)

    @cached_property
    def at_gap(self) -> Sequence[int]:
        """The `early` seats where the gone items stood. Later texts use the same words, too."""
        return [b for b in self.early if (self.gap is None or b < self.gap) and b not in self.due]

    @cached_property
    def reworded(self) -> Sequence[int]:
        """Kept texts up to `gap` that say more than before, or something else."""
        diff = self.diff
        found = (b for a, b in diff.shown if _is_reworded(diff.old[a].item, diff.new[b].item))
        return [b for b in found if self.gap is None or b <= self.gap]

    @cached_property
    def extended(self) -> Sequence[int]:
        """Kept texts up to `gap` that hold what stood there before, and more."""
        diff = self.diff
        found = ((diff.old[a].item, b) for a, b in diff.matched if self.gap is None or b <= self.gap)
        texts = ((old, diff.new[b].item, b) for old, b in found if old.kind == "text")
        return [b for old, new, b in texts if old.print != new.print and plain(old.text) in plain(new.text)]

    @cached_property
    def due(self) -> set[int]:
        """New results of the last answer's calls. They are left out, since tools use the same words about
        everything."""
        diff = self.diff
        called = {
            value
            for a, b in diff.matched
            if diff.old[a].item.kind == "call" and diff.old[a].at >= diff.answer
            for value in diff.new[b].item.ids
        }
        results = (b for b in diff.fresh if diff.new[b].item.kind == "result")
        return {b for b in results if called.intersection(diff.new[b].item.ids)}

    @cached_property
    def told(self) -> Said:
        """(text, who) of what was said in the session, if long enough for a summary."""
        return summaries(self.diff.said)

    @cached_property
    def told_aside(self) -> Said:
        """The texts of `told` that answered a side call."""
        return [each for each in self.told if each[1] == "side"]

    @cached_property
    def sought(self) -> Needles:
        return Needles(self.told)

    @cached_property
    def sought_aside(self) -> Needles:
        return Needles(self.told_aside)

    @cached_property
    def passed(self) -> Sequence[str]:
        """Texts that the last answer passed to tools, long enough for a summary: models compact by a tool, too."""
        calls = (s.item for s in self.diff.old if s.at >= self.diff.answer and s.item.kind == "call")
        return [text for i in calls for text in map(plain, strings_of(i.text)) if is_long_text(text)]

    @cached_property
    def runs(self) -> Sequence[str]:
        """Runs of the last side calls' answers."""
        answers = [text for text, who in self.diff.said if who == "side"][-_SIDE_ANSWERS:]
        return [
            text[at : at + _RUN_CHARS]
            for text in answers
            for at in range(0, min(len(text), _RUNS_CHARS) - _RUN_CHARS + 1, _RUN_STEP)
        ]

    @cached_property
    def said_aloud(self) -> Haystack:
        """Everything said in the session, without answers of side calls."""
        return Haystack("\n".join(text for text, who in self.diff.said if who != "side"))

    @cached_property
    def lost(self) -> Haystack:
        """The texts of what is gone, without numbers: a note may count what was left out."""
        return Haystack("\n".join(_uncounted(plain(i.text)) for i in self.diff.gone_items[:_LOST_TEXTS]))

    @cached_property
    def lost_terms(self) -> set[str]:
        gone = self.diff.gone_items[:_LOST_TEXTS]
        return terms("\n".join(plain(i.text)[:_LOST_CHARS] for i in gone if i.kind in ("text", "result")))

    @cached_property
    def system_terms(self) -> set[str]:
        """Terms of the session's system prompt. Cached, since the prompt may be as long as thousands of messages."""
        return terms(self.diff.session.system)

    @cached_property
    def before(self) -> dict[int, Item]:
        """Seat of the request -> the head's item that it is, or the result that it replaces."""
        old, new = self.diff.old, self.diff.new
        results = [(a, b) for a, b in self.diff.replaced if old[a].item.kind == new[b].item.kind == "result"]
        return {b: old[a].item for a, b in (*results, *self.diff.matched)}


def summaries(said: Said) -> Said:
    """The texts of `said` that are long enough to be a summary."""
    return [each for each in said if is_long_text(each[0])]


def summary_at(diff: Diff) -> int | None:
    """Index of the message that holds a summary of the gone; None if none is found."""
    evidence = _Evidence(diff)
    found = _first(_PROOFS, evidence)
    if found is not None or (diff.pairs and is_rewritten(diff)):
        return found
    return _first(_SIGNS, evidence)


def renewed_summary(diff: Diff) -> int | None:
    """Index of a kept message that holds a summary generated since; None if there is none."""
    return _renewed(_Evidence(diff))


_Rule = Callable[[_Evidence], int | None]
"""Index of the message that a kind of evidence points to."""


def _first(rules: Iterable[_Rule], evidence: _Evidence) -> int | None:
    return next((at for rule in rules if (at := rule(evidence)) is not None), None)


# --- proofs --------------------------------------------------------------------------------------------------------


def compaction_item(request: Request, *, last: bool = False) -> int | None:
    """Index of the first message with a compaction item, or of the last one."""
    found = (at for at, m in enumerate(request.messages) if any(i.kind == "compaction" for i in m.items))
    return max(found, default=None) if last else next(found, None)


def _compaction(evidence: _Evidence) -> int | None:
    return compaction_item(evidence.diff.request)


def _generated(evidence: _Evidence) -> int | None:
    """A text that holds an answer of a side call, or, in front of the pending message, any long text of the session. A
    client may repeat the answer that stands right before, as the result of the call that it was written into."""
    early, messages = {*evidence.early}, evidence.diff.request.messages
    for b in evidence.candidates:
        at, item = evidence.diff.new[b]
        is_behind = at > 0 and messages[at - 1].role == "assistant" != item.role
        before = unescaped(messages[at - 1].text) if is_behind else ""
        if _tells(item, evidence.sought if b in early else evidence.sought_aside, before=before):
            return at
    return None


def _renewed(evidence: _Evidence) -> int | None:
    diff = evidence.diff
    for a, b in diff.matched:
        old, (at, item) = diff.old[a].item, diff.new[b]
        if old.print != item.print and _tells(item, evidence.sought_aside, before=plain(old.text)):
            return at
    return None


def _repeated(evidence: _Evidence) -> int | None:
    """A kept, unchanged text that holds what was generated since: the new summary equals the old one."""
    seats = (evidence.diff.new[b] for _, b in evidence.diff.matched)
    return next((at for at, i in seats if any(text in plain(i.text) for text in evidence.diff.anew)), None)


def _passed(evidence: _Evidence) -> int | None:
    """A text that holds what the model just passed to a tool of its client. In the pending message something must be
    asked after it, and nothing kept may precede that message: someone who edits a message still shows the others."""
    diff = evidence.diff
    is_alone = all(b >= diff.pending for _, b in diff.matched)
    end = plain(diff.request.messages[-1].text)
    asked_behind = [text for text in evidence.passed if is_alone and not end.endswith(text)]
    for b in evidence.candidates:
        at, i = diff.new[b]
        passed = evidence.passed if b < diff.pending else asked_behind
        if i.kind == "text" and any(text in plain(i.text) for text in passed):
            return at
    return None


def _put_in_front(evidence: _Evidence) -> int | None:
    """A long answer that now stands in front of messages which preceded it."""
    diff = evidence.diff
    for a, b in diff.moved:
        at, item = diff.new[b]
        is_long = item.kind == "text" and item.role == "assistant" and is_long_text(plain(item.text))
        if is_long and any(before < a and after > b for before, after in diff.pairs):
            return at
    return None


def _put_into_kept(evidence: _Evidence) -> int | None:
    """A kept text up to where the gone stood, which holds an answer now that it did not hold before."""
    diff, early = evidence.diff, {b for b in evidence.reworded if b < evidence.diff.pending}
    kept = ((diff.old[a].item, diff.new[b]) for a, b in diff.matched if b in early)
    return next((at for old, (at, i) in kept if _tells(i, evidence.sought, before=plain(old.text))), None)


# --- signs ---------------------------------------------------------------------------------------------------------


def _quoted(evidence: _Evidence) -> int | None:
    seats = (evidence.diff.new[b] for b in evidence.early)
    return next((at for at, i in seats if _holds_run(evidence, haystack_of(plain(i.text)))), None)


def _marked(evidence: _Evidence) -> int | None:
    """A text at the beginning that opens with a client's words for a summary, or to which such words were added. The
    last answer is one only if it stands there whole: formatted anew, it may be all that a window left."""
    diff = evidence.diff
    messages = diff.request.messages
    end = next((at for at, m in enumerate(messages) if m.role not in SYSTEM), 0) + _MARKED
    found = sorted({*evidence.at_gap, *evidence.reworded, *evidence.extended})
    early = (b for b in found if diff.new[b].at < end)
    return next((diff.new[b].at for b in early if is_marked(_added(evidence, b)[0])), None)


def _about_the_gone(evidence: _Evidence) -> int | None:
    """The first text about the gone, where they stood: a new one, or a kept one that was reworded. The first kept text
    after the gap may begin with it."""
    for b in sorted([*evidence.at_gap, *evidence.reworded]):
        added, before = _added(evidence, b)
        is_new = is_long_text(added) and _uncounted(added) not in evidence.lost
        if is_new and _is_about(evidence, added, terms(before)):
            return evidence.diff.new[b].at
    return None


def _added(evidence: _Evidence, b: int) -> tuple[str, str]:
    """(what the text at seat `b` adds to what stood there before, what stood there before), canonical."""
    was, text = evidence.before.get(b), plain(untimed_text(evidence.diff.new[b].item))
    before = plain(untimed_text(was)) if was else ""
    return (text.replace(before, "", 1).strip() if before else text), before


def _is_reworded(old: Item, new: Item) -> bool:
    return old.kind == "text" and old.print != new.print and plain(new.text) not in plain(old.text)


def _in_system(evidence: _Evidence) -> int | None:
    """A summary in the system prompt, or in another system message. Without proof, a separate message must stand where
    the gone stood; a message in which only numbers changed must speak of the gone."""
    session, messages = evidence.diff.session, evidence.diff.request.messages
    known = {print for print, _ in session.system_keys}
    systems = [at for at, m in enumerate(messages) if m.role in SYSTEM]
    before = haystack_of("\n".join(plain(e.message.text) for e in session.head if e.message.role in SYSTEM))
    is_rewound = evidence.diff.pairs and evidence.diff.is_rewound
    end = len(messages) if evidence.gap is None else evidence.diff.new[evidence.gap].at
    shown = {_uncounted(_beside(session, plain(e.message.text))) for e in session.head if e.message.role in SYSTEM}
    for at in systems:
        m = messages[at]
        if m.print in known:
            continue
        if _tells(m, evidence.sought, before=before):
            return at
        if _holds_run(evidence, haystack_of(unescaped(m.text))) and not _holds_run(evidence, before):
            return at
        if is_rewound or at > end:
            continue
        text = plain(m.text)
        added = _beside(session, text)
        extended = len(added) < len(text) or not session.system or at != systems[0]
        extended = extended and _uncounted(added) not in shown
        if (extended and is_long_text(added)) or _is_about(evidence, added, evidence.system_terms):
            return at
    return None


def _beside(session: Session, text: str) -> str:
    """What a system message adds to the system prompt."""
    return text.replace(session.system, "", 1).strip() if session.system else text


def _uncounted(text: str) -> str:
    """`text` without numbers: a note may count steps, or give the date."""
    return _NUMBER.sub("", text)


# --- texts ---------------------------------------------------------------------------------------------------------


def _tells(m: Message | Item, told: Needles, *, before: str | Haystack = "") -> bool:
    """Does `m` hold a text of `told` that `before` does not hold? A text that the speaker of `m` said before, word for
    word, does not count: it is only repeated."""
    text, said = unescaped(m.text), {(plain(each), m.role) for each in shown_as(m.text)}
    whole = haystack_of(text)
    return any(each[0] in whole and each[0] not in before for each in told.within(text) if each not in said)


def _holds_run(evidence: _Evidence, text: str | Haystack) -> bool:
    """Does `text` hold a stretch of a recent side call's answer, even if the client wrote into it or removed tags?

    A stretch that the session's user or model said before is a quotation.
    """
    return any(run in text and run not in evidence.said_aloud for run in evidence.runs)


def _is_about(evidence: _Evidence, text: str, before: Set[str]) -> bool:
    """Does `text` speak of the gone, in terms that are new compared with `before`?"""
    found = terms(text) - before
    return len(found) >= _MIN_TERMS and len(found & evidence.lost_terms) >= _MIN_SHARE * len(found)


_PROOFS = (_compaction, _generated, _renewed, _repeated, _passed, _put_in_front, _put_into_kept)
_SIGNS = (_quoted, _marked, _about_the_gone, _in_system)
