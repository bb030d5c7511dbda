"""Conversations that a request fits equally well, and which of them it continues.

Bots say the same to many, and their users answer with a word. If two conversations fit, Lantern does not guess, since
one person must not get what was said to another.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set
from itertools import dropwhile, islice, takewhile

from msgspec.structs import replace

from lantern_proxy.history.branches import states_of
from lantern_proxy.history.forms import is_other_person, shows_system_of, system_text
from lantern_proxy.history.presentation import shown_as
from lantern_proxy.history.record import Session, chains, goes_on, items_of, place_key, spoken
from lantern_proxy.history.shared_prefix import changed
from lantern_proxy.history.summaries import SUMMARY_CHARS, side_summaries
from lantern_proxy.history.text import breadth
from lantern_proxy.session.index import (
    CANDIDATES,
    PROBE_CHARS,
    Known,
    holders_of,
    holding_sessions,
    ids_of,
    is_ones_own,
    is_said_once,
    numbers_of,
    receivers_of,
    sessions_quoted,
    side_of,
)
from lantern_proxy.session.overlap import (
    ENDS,
    STANDS,
    end_of_shown,
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
from lantern_proxy.session.side_calls import summaries_since
from lantern_proxy.turn import Message, Request, plain

FIRST = 8
"""How many messages at the beginning of a request are searched for a summary."""
_FEW = 3
"""A window of at most this many messages, up to its last answer, may be that of a chat which ended so before an
aside."""
_ASIDES = 2
"""How many exchanges at the end of a head may have been asides: an app asks who speaks next, or for a summary."""


def rivals_of(known: Known, session: Session, others: Collection[Session], request: Request) -> list[Session]:
    """Sessions that end with what a request shows, or that hold everything distinctive (more than a word or two) that
    `session` holds of it. The user's last text does not count, since it may be new to each of them."""
    telling = _telling(known, request.messages[: end_of_shown(request.messages)])
    own = {name for name, holders in telling.items() if session.id in holders}
    shown, asked = shown_and_asked(request)
    found = [
        s
        for s in others
        if s is not session
        and not s.side
        and (ends_in(known, s, shown, asked) or all(s.id in telling[name] or name in s.opening for name in own))
    ]
    ending = _ending_alike(known, session, request, seen={s.id for s in others})
    return [*found, *(s for s in ending if not is_other_person(s, request))]


def settle(known: Known, session: Session, request: Request, weak: Collection[str]) -> Session | None:
    """The session that continues with a request: `session`, whose whole head the request begins with, or another one
    that ends in what is shown, since some clients show only a part. None: it may be either.

    weak: ids that may stand for many conversations, or change; they decide between sessions that say the same
    """
    end = end_of_shown(request.messages)
    if session.side or not end:
        return session
    rivals = _ending_alike(known, session, request)
    if session.lost and is_other_persons_session(session, request):
        return decide(known, rivals, request, weak)
    return decide(known, [session, *rivals], request, weak) if rivals else session


def _ending_alike(known: Known, session: Session, request: Request, seen: Set[str] = frozenset()) -> list[Session]:
    """Other sessions, not `seen`, that got the last answer of a request and end with what it shows."""
    end = end_of_shown(request.messages)
    last = request.messages[end - 1].items if end else ()
    got = receivers_of(known, last)
    others = [s for s in map(known.sessions.__getitem__, got - seen - {session.id}) if s.api == session.api]
    shown, asked = shown_and_asked(request) if others else ([], [])
    return [s for s in others if ends_in(known, s, shown, asked)]


def decide(known: Known, rivals: Sequence[Session], request: Request, weak: Collection[str] = ()) -> Session | None:
    """The one session that has a weak id, most of the request's ids, ends with what is shown or began like it, and has
    its system prompt. None if several do, or if all belong to other people."""
    own = [s for s in rivals if not is_other_person(s, request)]
    left = [s for s in own if s.family in weak] or own
    shown_ids = ids_in(request)
    ids = {s.id: held_ids(known, s, shown_ids) for s in left}
    left = [s for s in left if ids[s.id] == max(ids.values())]
    shown, asked = shown_and_asked(request)
    fits = {s.id: fit_of(s, *_without_summary(known, s, shown, asked)) for s in left}
    best = [s for s in left if fits[s.id] == ENDS]
    if best and any(_is_beginning(shown, s) for s in left if s not in best):
        return None  # its user may be back there
    summed_up = [s for s in best if is_summed_up(known, s, request)]
    if not any(s.lost for s in best) and not summed_up:  # none of their clients ever showed a part
        best = [s for s in best if _is_beginning(shown, s)] or best
    ranks = {s.id: (_begun(s, request), fits[s.id]) for s in left}
    best = summed_up or best or [s for s in left if ranks[s.id] == max(ranks.values())]
    best = under_prompt(known, best, request)
    same = len({s.keys for s in best}) == 1  # of one, and of those that say the same
    return best[0] if best and (same or not shown) else None


def under_prompt(known: Known, sessions: Sequence[Session], request: Request) -> list[Session]:
    """The sessions with exactly the request's system prompt; with them those whose prompt may vary (it may tell the
    time, or hold documents, and be somebody else's now), and those of which the prompt holds a summary. All sessions if
    none has that prompt. If the client names people, only exact matches."""
    system = system_text(request)
    same = [s for s in sessions if s.system == system]
    if not same or (request.person and all(s.person == request.person for s in same)):
        return same or [*sessions]
    varied = (s for s in reversed(known.sessions.values()) if len(s.system_keys) > 1)
    varies = any(shows_system_of(s, request) for s in islice(varied, CANDIDATES))

    def may_have(s: Session) -> bool:
        extends = s.system in system or system in s.system
        of_class = (varies or extends) and shows_system_of(s, request)
        return s.system == system or len(s.system_keys) > 1 or of_class or _holds_summary(known, s, system)

    return [*filter(may_have, sessions)]


def _holds_summary(known: Known, session: Session, text: str) -> bool:
    """Does a text hold an answer of a side call of this session, or of several others? In the latter case it tells
    nothing about whose it is."""
    if side_of(known, session) is not None and _is_told(known, session.id, text):
        return True
    tells_several = known.tell_several.get(text)
    if tells_several is None:  # the same for each of hundreds that end alike
        tells_several = sum(_is_told(known, sid, text) for sid in sessions_quoted(known, [text])) > 1
        known.tell_several[text] = tells_several
    return tells_several


def _is_told(known: Known, sid: str, text: str) -> bool:
    return any(told in text for told in side_summaries(known.said.get(sid, {}).items()))


def _without_summary(
    known: Known, session: Session, shown: list[Message], asked: list[Message]
) -> tuple[list[Message], list[Message]]:
    """`shown` and `asked` without a summary of the session at their beginning, where clients put it."""
    front = 0
    while (
        front < len(shown)
        and all(e.message.print != shown[front].print for e in session.head)
        and _holds_summary(known, session, plain(shown[front].text))
    ):
        front += 1
    return shown[front:], asked[front:]


def ids_in(request: Request) -> list[str]:
    """The keys of a request's items in by_id."""
    numbers = numbers_of(request.messages)
    return [value for i in items_of(request.messages) for value in ids_of(i, numbers)]


def held_ids(known: Known, session: Session, ids: Iterable[str]) -> int:
    """How many of the request's ids were seen in a session. ids: from ids_in()"""
    return sum(session.id in known.by_id.get(value, ()) for value in ids)


def _begun(session: Session, request: Request) -> int:
    """How many opening texts of the request, apart from short ones, began the session. 0 if the session was first seen
    in the middle: then its opening includes texts from before its first answer."""
    said = spoken(request.messages)
    front = [*takewhile(lambda m: m.role != "assistant" and all(i.print in session.opening for i in m.items), said)]
    in_the_middle = any(i.print in session.opening for m in said[len(front) :][:1] for i in m.items)
    return 0 if in_the_middle else sum(breadth(plain(m.text)) >= PROBE_CHARS for m in front)


def _is_beginning(shown: list[Message], session: Session) -> bool:
    """Is what is shown the beginning of a conversation, or all of it, though its last question came with more?"""
    if session.lost:
        return False
    is_all = shared_end(session, shown) == len(shown) == sum(1 for _ in said_in(session.head))
    return is_all or in_common(said_in(session.head), shown) == len(shown)


def ends_in(known: Known, session: Session, shown: list[Message], asked: list[Message]) -> bool:
    """Does a session end with all that a request shows, apart from a summary of it? A short phrase alone does not
    count. See shown_and_asked()."""
    if session.side or not shown or not _may_end(session, shown, asked):
        return False
    shown, asked = _without_summary(known, session, shown, asked)
    is_telling = len(shown) > 1 or any(breadth(plain(m.text)) >= PROBE_CHARS for m in shown)
    return is_telling and is_end(session, shown, asked)


def _may_end(session: Session, shown: list[Message], asked: list[Message]) -> bool:
    """A quick check for ends_in() by the last messages: many sessions got the same answer once."""
    if next((m.print for m in said_in(reversed(session.head))), None) == shown[-1].print:
        return True
    before = (e for e in reversed(session.head) if not e.produced)
    return next((m.print for m in said_in(before)), None) == asked[-1].print


def calls_lead_elsewhere(known: Known, session: Session, request: Request) -> bool:
    """Do ids in the part of a request that differs from `session`, or follows its head, lead to another conversation
    more often than to `session`?

    Agents with one task make the same calls and get the same results; only the ids of the calls differ.
    """
    messages, head = request.messages, [e.message for e in session.head]
    others = [messages[at] for at in changed(head, messages)] + [*messages[len(head) :]]
    if any(_is_said_elsewhere(known, session, m) for m in messages[len(head) : end_of_shown(messages)]):
        return True
    if not any(m.ids for m in others):
        return False
    numbers = numbers_of(others)
    led = Counter(sid for i in items_of(others) for value in ids_of(i, numbers) for sid in known.by_id.get(value, ()))
    theirs = _candidates(known, led, request)
    return any(led[s.id] > led[session.id] for s in theirs)


def _is_said_elsewhere(known: Known, session: Session, message: Message) -> bool:
    """Does a message hold a text of more than a word or two that only one other conversation said or heard?"""
    said = known.said.get(session.id, {})
    texts = (plain(i.text) for i in message.items if i.kind == "text")
    return any(breadth(t) >= PROBE_CHARS and t not in said and is_said_once(known, t) for t in texts)


def went_on_elsewhere(known: Known, session: Session, request: Request) -> list[Session]:
    """The sessions that end in most of what a request shows last, if `session` holds a shorter run of that: it shares
    only documents, phrases, or a summary that reads the same. `session` is included if others asked all of it, too."""
    shown, _ = shown_and_asked(request)
    if (
        [m.role for m in shown[-2:]] != ["user", "assistant"]
        or session.side
        or held_ids(known, session, ids_in(request))
    ):
        return []
    own = max(run_in(state, shown) for state in states_of(session))
    if own == len(shown):
        return []
    got = _candidates(known, receivers_of(known, shown[-1].items), request)
    shares = [(in_common(said_in(reversed(s.head)), reversed(shown)), s) for s in got]
    most = max((count for count, _ in shares), default=0)
    if most < 2 or most <= own:
        return []
    ending = [s for count, s in shares if count == most]
    asked = (plain(m.text) for m in shown[-most:] if m.role == "user")
    is_ones = any(is_said_once(known, text) for text in asked)
    return ending if is_ones else [*ending, session]


def is_contested(known: Known, session: Session, request: Request, weak: Collection[str]) -> bool:
    """Does another session end in as much of what a request shows last? Then it is not guessed which one is meant:
    content leads to all sessions that hold what a bot says to many, and to those whose client looked up the same.

    weak: ids that may stand for many conversations
    """
    if _is_anothers_key(known, session, request, weak):
        return True
    if not session.lost and goes_on(session, request):
        return False  # it holds no more than is shown
    messages, got = request.messages, list[Session]()
    end = len(messages)
    while end and not got:
        end -= 1
        got = _got(known, messages[end], request) if messages[end].role == "assistant" else []
    shown, asked = said_of(messages[: end + 1]), said_of(messages)
    told, ids = {m.print for m in shown if m.role == "user"}, ids_in(request)

    def held_by(s: Session) -> set[bytes]:
        return told.intersection(prints_of(e.message for e in s.head))

    got = [s for s in got if s.keys != session.keys]
    is_told_here = bool(held_by(session).difference(*map(held_by, got)))
    is_opening = len(shown) > 1 and all(i.print in session.opening for m in shown for i in m.items)
    if shown and (is_opening or _is_anothers_beginning(known, session, request, end)):
        return True
    states = states_of if is_told_here or len(shown) > _FEW else _before_asides
    got = [s for s in got if any(_may_end(each, shown, asked) for each in states(s))]
    if not got:
        return False

    def rank(s: Session) -> tuple[bool, tuple[int, ...]]:
        """Does it end in some of that? And how well it fits, the best is the largest."""
        left, said = _without_summary(known, s, shown, asked)
        is_told = is_summed_up(known, s, request)
        found = (states_of if s is session else states)(s)
        lacks, ends = max(_place_in(state, left, said, is_told) for state in found)
        return ends, (lacks, ends, is_told, held_ids(known, s, ids), s.family in weak, len(held_by(s)))

    _, own = rank(session)
    ranks = [(s, fit) for s in got for ends, fit in [rank(s)] if ends]
    alike = [s for s, fit in ranks if fit == own]
    return any(fit > own for _, fit in ranks) or under_prompt(known, [session, *alike], request) != [session]


def _is_anothers_beginning(known: Known, session: Session, request: Request, end: int) -> bool:
    """Did another conversation, but not this one, begin with everything that the request shows up to message `end`? Its
    user may be back there, or a program may open all its conversations that way."""
    begun = place_key(chains(request.messages)[end])
    others = (
        s for s in known.sessions.values() if s.api == request.api and not s.side and not is_other_person(s, request)
    )
    return begun not in session.keys and any(begun in s.keys for s in others)


def _is_anothers_key(known: Known, session: Session, request: Request, weak: Collection[str]) -> bool:
    """Does the request carry the key of other conversations, while this one has another key and nothing shown is its
    own? Then keys tell conversations apart, and this one's did not change."""
    if not session.family or session.family in weak or not any(known.by_family.get(key) for key in weak):
        return False
    return not (
        held_ids(known, session, ids_in(request)) or any(is_ones_own(known, session, m) for m in request.messages)
    )


def _before_asides(session: Session) -> list[Session]:
    """The states in which a request may continue a session, and those before its last exchanges."""
    head = session.head
    ends = [at for at in range(1, len(head)) if head[at - 1].message.role == "assistant"]
    return [*states_of(session), *(replace(session, head=head[:at]) for at in ends[-_ASIDES:])]


def _got(known: Known, answer: Message, request: Request) -> list[Session]:
    """Conversations that got an answer, in words or as a call, without other people's."""
    numbers = numbers_of((answer,))
    named = (known.by_id.get(value, ()) for call in answer.calls for value in ids_of(call, numbers))
    return _candidates(known, receivers_of(known, answer.items).union(*named), request)


def _candidates(known: Known, sids: Iterable[str], request: Request) -> list[Session]:
    """The sessions among `sids` that the request may belong to: same API, no side session, not another person's."""
    found = map(known.sessions.__getitem__, sids)
    return [s for s in found if s.api == request.api and not s.side and not is_other_person(s, request)]


def _place_in(session: Session, shown: list[Message], asked: list[Message], is_told: bool) -> tuple[int, bool]:
    """(minus how many shown messages do not fit the session's end or beginning, does the session end in some of them or
    was it asked exactly the same)

    is_told: the session ends in a summary, which is shown in front; the rest came before it
    """
    held = {*prints_of(said_in(session.head))} if is_told else ()
    rest = [*dropwhile(lambda m: m.print not in held, shown)] if is_told else []
    if (shown and is_end(session, shown, asked)) or fit_of(session, rest, asked) == STANDS:
        return 0, True
    if in_common(said_in(session.head), shown) == len(shown):
        return 0, False  # its user is back there
    run = shared_end(session, shown)
    return run - len(shown), run > 0


def is_other_persons_session(session: Session, request: Request) -> bool:
    """Did its client name another person, one who did not just join the conversation? Someone who joined would show all
    of it."""
    if not is_other_person(session, request):
        return False
    shown, _ = shown_and_asked(request)
    head = said_of(e.message for e in session.head)
    return session.lost or not shown or prints_of(head) != prints_of(shown)


def is_summed_up(known: Known, session: Session, request: Request) -> bool:
    """Does the request begin with the summary in which a conversation ended, or which a side call made of it since?"""
    made = [text for text in summaries_since(known, session) if not _is_nobodys(known, text)]
    if session.answered and not made:
        texts = (text for i in session.head[-1].message.items if i.kind == "text" for text in shown_as(i.text))
        made = [text for text in map(plain, texts) if len(text) >= SUMMARY_CHARS]
    told = [plain(m.text) for m in request.messages[:FIRST] if m.role != "assistant"] if made else []
    return any(text in each for text in made for each in told)


def _is_nobodys(known: Known, text: str) -> bool:
    """Did a side call whose conversation is unknown get this text, too?"""
    mains = (known.sessions.get(sid) for sid in known.by_start.get(text[:PROBE_CHARS], ()))
    return any(s is not None and s.side and text in known.said.get(s.id, ()) for s in mains)


def _telling(known: Known, messages: Sequence[Message]) -> dict[bytes | str, Collection[str]]:
    """Distinctive texts and ids of messages -> the conversations that hold them, themselves or in side calls."""
    found: dict[bytes | str, Collection[str]] = {}
    numbers = numbers_of(messages)
    for i in items_of(messages):
        found |= {value: holders_of(known, known.by_id[value]) for value in ids_of(i, numbers) if value in known.by_id}
        holders = holding_sessions(known, i.print)
        if holders and breadth(plain(i.text)) >= PROBE_CHARS:
            found[i.print] = holders_of(known, holders)
    return found
