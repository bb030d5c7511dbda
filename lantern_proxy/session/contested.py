"""Is a request contested: does another conversation fit it at least as well as the one that was found?

Then it is not guessed which one is meant, since one person must not get what was said to another.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import dropwhile, islice, pairwise, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from lantern_proxy.history.branches import states_of
from lantern_proxy.history.containment import Haystack
from lantern_proxy.history.forms import is_other_person
from lantern_proxy.history.record import Session, chains, goes_on, items_of, place_key, spoken
from lantern_proxy.history.shared_prefix import changed
from lantern_proxy.history.text import breadth
from lantern_proxy.session.by_words import marks_in
from lantern_proxy.session.index import (
    PROBE_CHARS,
    SessionIndex,
    ids_of,
    is_ones_own,
    main_of,
    numbers_of,
    receivers_of,
    sayer_of,
    sessions_at,
    telling_texts,
    who_said,
)
from lantern_proxy.session.overlap import (
    STANDS,
    end_of_shown,
    ends_in_exchange,
    fit_of,
    in_common,
    is_end,
    prints_of,
    run_in,
    said_in,
    said_of,
    shared_end,
    shown_and_asked,
)
from lantern_proxy.session.rivals import (
    FIRST,
    candidates,
    held_ids,
    ids_in,
    is_made_for,
    is_summed_up,
    may_end,
    under_prompt,
    without_summary,
)
from lantern_proxy.turn import Message, Request, plain

_FEW = 3
"""A window of at most this many messages, up to its last answer, may be that of a chat which ended so before an
aside."""
_COMMON = 2
"""What stands in front of so many conversations tells nobody apart."""
_EXCHANGE = 2
"""A question and its answer are so many messages."""
_ASIDES = 2
"""How many exchanges at the end of a head may have been asides: an app asks who speaks next, or for a summary."""


def calls_lead_elsewhere(index: SessionIndex, session: Session, request: Request) -> bool:
    """Do ids in the part of a request that differs from `session`, or follows its head, lead to another conversation
    more often than to `session`?

    Agents with one task make the same calls and get the same results; only the ids of the calls differ.
    """
    messages, head = request.messages, [e.message for e in session.head]
    others = [messages[at] for at in changed(head, messages)] + [*messages[len(head) :]]
    if any(_is_said_elsewhere(index, session, m) for m in messages[len(head) : end_of_shown(messages)]):
        return True
    if not any(m.ids for m in others):
        return False
    numbers = numbers_of(others)
    led = Counter(sid for i in items_of(others) for value in ids_of(i, numbers) for sid in index.by_id.get(value, ()))
    theirs = candidates(index, led, request)
    return any(led[s.id] > led[session.id] for s in theirs)


def _is_said_elsewhere(index: SessionIndex, session: Session, message: Message) -> bool:
    """Does a message hold a text of more than a word or two that only one other conversation said or heard?"""
    return any(sayer_of(index, text) not in ("", session.id) for text in telling_texts(message))


def went_on_elsewhere(index: SessionIndex, session: Session, request: Request) -> list[Session]:
    """The sessions that end in most of what a request shows last, if `session` holds a shorter run of that: it shares
    only documents, phrases, or a summary that reads the same. `session` is included if others asked all of it, too."""
    shown, _ = shown_and_asked(request)
    if (
        [m.role for m in shown[-2:]] != ["user", "assistant"]
        or session.side
        or held_ids(index, session, ids_in(request))
    ):
        return []
    own = max(run_in(state, shown) for state in states_of(session))
    if own == len(shown):
        return []
    got = candidates(index, receivers_of(index, shown[-1].items), request)
    shares = [(in_common(said_in(reversed(s.head)), reversed(shown)), s) for s in got]
    most = max((count for count, _ in shares), default=0)
    if most < 2 or most <= own:
        return []
    ending = [s for count, s in shares if count == most]
    asked = (plain(m.text) for m in shown[-most:] if m.role == "user")
    is_ones = any(sayer_of(index, text) for text in asked)
    return ending if is_ones else [*ending, session]


class _Shown(NamedTuple):
    """What a request shows up to the last answer that others may have got."""

    said: list[Message]
    """Spoken messages up to that answer."""
    asked: list[Message]
    """All spoken messages."""
    front: int
    """How many of `said` tell nobody apart, see _common_front()."""
    told: set[bytes]
    """Fingerprints of what users say in the rest of `said`."""

    def told_in(self, session: Session) -> set[bytes]:
        """Those of `told` that the session's head holds."""
        return self.told.intersection(prints_of(e.message for e in session.head))


def is_contested(index: SessionIndex, session: Session, request: Request, weak: Collection[str]) -> bool:
    """Does another session end in as much of what a request shows last? Then it is not guessed which one is meant:
    content leads to all sessions that hold what a bot says to many, and to those whose client looked up the same.

    weak: ids that may stand for many conversations
    """
    if _is_anothers_key(index, session, request, weak):
        return True
    if not session.lost and goes_on(session, request):
        return False  # it holds no more than is shown
    if _goes_on_from_before(index, session, request):
        return True
    end, got = _got_last(index, request)
    shown = _shown_until(index, request, end)
    got = [s for s in got if s.keys != session.keys]
    is_told_here = bool(shown.told_in(session).difference(*map(shown.told_in, got)))
    is_opening = len(shown.said) > 1 and all(i.print in session.opening for m in shown.said for i in m.items)
    if shown.said and (is_opening or _is_anothers_beginning(index, session, request, end)):
        return True
    states = states_of if is_told_here or len(shown.said) > _FEW else _before_asides
    rivals = [s for s in got if any(may_end(each, shown.said, shown.asked) for each in states(s))]
    return bool(rivals) and _is_matched(index, session, rivals, states, shown, request, weak)


def _shown_until(index: SessionIndex, request: Request, end: int) -> _Shown:
    """What a request shows up to message `end`."""
    until = request.messages[: end + 1]
    said, front = said_of(until), _common_front(index, spoken(until))
    told = {m.print for m in said[front:] if m.role == "user"}
    return _Shown(said, said_of(request.messages), front, told)


def _is_matched(
    index: SessionIndex, session: Session, rivals: Sequence[Session], states: Callable[[Session], Sequence[Session]],
    shown: _Shown, request: Request, weak: Collection[str],
) -> bool:  # fmt: skip
    """Does one of `rivals` fit the request better than `session`, or as well and under its system prompt?

    states: the states of a rival that count
    """
    ids = ids_in(request)

    def rank(s: Session) -> tuple[bool, tuple[int, ...]]:
        """Does it end in some of that? And how well it fits, the best is the largest."""
        is_told = is_summed_up(index, s, request)
        views = [(*without_summary(index, s, shown.said, shown.asked), is_told)]
        if shown.front and s is not session:  # its client may put the same there by now
            views.append((shown.said[shown.front :], shown.asked[shown.front :], False))
        found = (states_of if s is session else states)(s)
        lacks, ends = max(_place_in(state, *view) for view in views for state in found)
        return ends, (lacks, ends, is_told, held_ids(index, s, ids), s.family in weak, len(shown.told_in(s)))

    _, own = rank(session)
    ranks = [(s, fit) for s in rivals for ends, fit in [rank(s)] if ends]
    alike = [s for s, fit in ranks if fit == own]
    return any(fit > own for _, fit in ranks) or under_prompt(index, [session, *alike], request) != [session]


def is_anothers_side_call(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does a side call show as much of what only the user of another conversation said? What it answers, such as a
    summary, would be taken for this one's."""
    said = (index.by_user.get(i.print, ()) for i in items_of(request.messages))
    told = Counter(next(iter(sids)) for sids in said if len(sids) == 1)
    own = told.pop(main_of(session), 0)
    return not goes_on(session, request) and max(told.values(), default=0) >= max(own, 1)


def _goes_on_from_before(index: SessionIndex, session: Session, request: Request) -> bool:
    """Does a request go on from a place that no state of the session shows any more? Its user went back there, or has a
    copy of what was said until then; which of what came later is theirs is not known.

    That is: it ends in none of these states, and shows a text of its user that none of them shows, while more was
    said. The conversation's own summary, or the one person whom its client names, tells that no other is meant.
    """
    shown, _ = shown_and_asked(request)
    states = _before_asides(session)
    least = 1 if shown and is_ones_own(index, session, shown[-1]) else min(_EXCHANGE, len(shown))
    if not shown or any(shared_end(state, shown) >= least or ends_in_exchange(state, shown) for state in states):
        return False
    if not any(e.produced for e in session.head) or not _is_more_held(session, states, request):
        return False  # nothing was answered since, or nothing else was said
    told = (plain(i.text) for m in request.messages[:FIRST] if m.role != "assistant" for i in m.items)
    if any(is_made_for(index, session, text, request) for text in told):
        return False
    if is_summed_up(index, session, request) or (request.person and request.person == session.person):
        return False
    said = index.said.get(session.id, {})
    held = Haystack("\n".join([plain(e.message.text) for state in states for e in state.head]))
    texts = (plain(i.text) for i in items_of(shown) if i.role == "user" and i.kind == "text")
    left = (text for text in texts if text in said and text not in held)
    return any(breadth(text) >= PROBE_CHARS or sayer_of(index, text) for text in left)


def _is_more_held(session: Session, states: Sequence[Session], request: Request) -> bool:
    """Does a session hold more than what a request and these states show, and what was abandoned?"""
    shown = {place_key(chain) for chain in chains(request.messages)}
    held = {e.key for state in states for e in state.head} | {key for _, key in session.system_keys}
    return not session.keys <= shown | held | session.abandoned.keys()


def _is_anothers_beginning(index: SessionIndex, session: Session, request: Request, end: int) -> bool:
    """Did another conversation, but not this one, begin with everything that the request shows up to message `end`? Its
    user may be back there, or a program may open all its conversations that way."""
    begun = place_key(chains(request.messages)[end])
    if begun in session.keys:
        return False
    return any(s.api == request.api and not is_other_person(s, request) for s in sessions_at(index, begun))


def _is_anothers_key(index: SessionIndex, session: Session, request: Request, weak: Collection[str]) -> bool:
    """Does the request carry the key of other conversations, while this one has another key and nothing shown is its
    own? Then keys tell conversations apart, and this one's did not change."""
    if not session.family or session.family in weak or not any(index.by_family.get(key) for key in weak):
        return False
    return not (
        held_ids(index, session, ids_in(request)) or any(is_ones_own(index, session, m) for m in request.messages)
    )


def _common_front(index: SessionIndex, shown: Sequence[Message]) -> int:
    """How many messages a request begins with that clients put in front of several conversations: documents, a summary
    that tells nothing of its own. They tell nobody apart. A question that is answered next is none of them."""

    def is_common(pair: tuple[Message, Message]) -> bool:
        texts = [*telling_texts(pair[0])] if pair[0].role == "user" and pair[1].role != "assistant" else []
        return bool(texts) and all(not marks_in(text) or _is_said_often(index, text) for text in texts)

    return sum(1 for _ in takewhile(is_common, pairwise(shown)))


def _is_said_often(index: SessionIndex, text: str) -> bool:
    return sum(1 for _ in islice(who_said(index, text), _COMMON)) == _COMMON


def _before_asides(session: Session) -> list[Session]:
    """The states in which a request may continue a session, and those before its last exchanges."""
    head = session.head
    ends = [at for at in range(1, len(head)) if head[at - 1].message.role == "assistant"]
    return [*states_of(session), *(replace(session, head=head[:at]) for at in ends[-_ASIDES:])]


def _got_last(index: SessionIndex, request: Request) -> tuple[int, list[Session]]:
    """(index of the last answer that conversations got, those conversations without other people's); (0, []) if there
    is no such answer."""
    messages = request.messages
    for end in range(len(messages) - 1, -1, -1):
        if messages[end].role == "assistant" and (got := _got(index, messages[end], request)):
            return end, got
    return 0, []


def _got(index: SessionIndex, answer: Message, request: Request) -> list[Session]:
    """Conversations that got an answer, in words or as a call, without other people's."""
    numbers = numbers_of((answer,))
    named = (index.by_id.get(value, ()) for call in answer.calls for value in ids_of(call, numbers))
    return candidates(index, receivers_of(index, answer.items).union(*named), request)


def _place_in(session: Session, shown: list[Message], asked: list[Message], is_told: bool) -> tuple[int, bool]:
    """(minus how many shown messages do not fit the session's end or beginning, does the session end in some of them or
    was it asked exactly the same)

    is_told: the session ends in a summary, which is shown in front; the rest came before it
    """
    held = {*prints_of(said_in(session.head))} if is_told else ()
    rest = [*dropwhile(lambda m: m.print not in held, shown)] if is_told else []
    if is_end(session, shown, asked) or fit_of(session, rest, asked) == STANDS:
        return 0, True
    if in_common(said_in(session.head), shown) == len(shown):
        return 0, False  # its user is back there
    run = shared_end(session, shown)
    return run - len(shown), run > 0
