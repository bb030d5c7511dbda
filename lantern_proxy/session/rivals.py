"""Conversations that a request could as well belong to, and which of them goes on with it.

Bots say the same to many, and their users answer with a word. Where two fit it is not guessed whose request it is,
since the one must not get what the other said.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import dropwhile, starmap, takewhile

from lantern_proxy.history.dress import is_asked_with
from lantern_proxy.history.forms import is_others, shows_system_of, system_text
from lantern_proxy.history.record import Entry, Session, before_answer, goes_on, items_of, spoken
from lantern_proxy.history.summaries import SUMMARY_CHARS, told_aside
from lantern_proxy.history.text import breadth, mostly_equal
from lantern_proxy.session.known import PROBE_CHARS, Known, holder_of, ids_of, is_said_once, quoted, side_of
from lantern_proxy.session.side import summed_up_since
from lantern_proxy.turn import SYSTEM, Message, Request, plain

_WORD = re.compile(r"\w+")
_STANDS, _ENDS = 1, 2
_LOOKED_AT = 32
"""Messages shown last that are compared with all that was said: enough to see whose they are."""
_ALIKE_CHARS = 6
"""Two texts of PROBE_CHARS and more that are mostly equal share so much of their fronts or of their backs."""
FIRST = 8
"""Messages among which a summary stands."""


def rivals_of(known: Known, session: Session, others: Collection[Session], request: Request) -> list[Session]:
    """Those that end with what a request shows, or hold all of it that `session` holds and that tells sessions apart:
    more than a word or two. What the user says last may be new to each of them."""
    telling = _telling(known, request.messages[: _end_of_shown(request.messages)])
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
    return [*found, *(s for s in ending if not is_others(s, request))]


def settled(known: Known, session: Session, request: Request) -> Session | None:
    """The one that goes on with a request: `session`, with all of whose head it begins, or another that ends in what is
    shown, since some clients show no more. None: it may be either."""
    end = _end_of_shown(request.messages)
    if session.side or not end:
        return session
    rivals = _ending_alike(known, session, request)
    if session.lost and is_anothers(session, request):
        return decided(known, rivals, request) if rivals else None
    return decided(known, [session, *rivals], request) if rivals else session


def _ending_alike(known: Known, session: Session, request: Request, seen: Set[str] = frozenset()) -> list[Session]:
    """Others that got the last answer of a request, and end with what it shows, but for those that were `seen`."""
    end = _end_of_shown(request.messages)
    last = request.messages[end - 1].items if end else ()
    holders = {sid for i in last for sid in known.by_answer.get(i.print, ())}
    others = [s for s in map(known.sessions.__getitem__, holders - seen - {session.id}) if s.api == session.api]
    shown, asked = shown_and_asked(request) if others else ([], [])
    return [s for s in others if ends_in(known, s, shown, asked)]


def decided(known: Known, rivals: Sequence[Session], request: Request, weak: Collection[str] = ()) -> Session | None:
    """The one of them that is named, has the request's ids, ends with what is shown or began like this, and has its
    system prompt. None: more than one does, or all are other people's."""
    own = [s for s in rivals if not is_others(s, request)]
    left = [s for s in own if s.family in weak] or own
    ids = {s.id: held_ids(known, s, request) for s in left}
    left = [s for s in left if ids[s.id] == max(ids.values())]
    shown, asked = shown_and_asked(request)
    fits = {s.id: _fit(s, *_without_summary(known, s, shown, asked)) for s in left}
    best = [s for s in left if fits[s.id] == _ENDS]
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
    """Those that have a request's very system prompt, and with them those whose prompt may be another one each time: it
    may tell the time, or hold documents, and be that of somebody else now; and those of which it holds a summary. All,
    where none has it. Where clients name people, others' are no rivals."""
    system = system_text(request)
    same = [s for s in sessions if s.system == system]
    if not same or request.person:
        return same or [*sessions]
    varies = any(len(s.system_keys) > 1 for s in same)

    def may_have(s: Session) -> bool:
        is_young = s.opening.issuperset(i.print for i in items_of(e.message for e in before_answer(s)))
        young = varies and is_young and shows_system_of(s, request)
        return s.system == system or len(s.system_keys) > 1 or young or _holds_summary(known, s, system)

    return [*filter(may_have, sessions)]


def _holds_summary(known: Known, session: Session, text: str) -> bool:
    """Does a text hold what a side call made of a session, or of several others, of which it tells nothing then?"""
    if side_of(known, session) is not None and _is_told(known, session.id, text):
        return True
    tells_several = known.tell_several.get(text)
    if tells_several is None:  # the same for each of hundreds that end alike
        tells_several = sum(_is_told(known, sid, text) for sid in quoted(known, [text])) > 1
        known.tell_several[text] = tells_several
    return tells_several


def _is_told(known: Known, sid: str, text: str) -> bool:
    return any(told in text for told in told_aside(known.said.get(sid, {}).items()))


def _without_summary(
    known: Known, session: Session, shown: list[Message], asked: list[Message]
) -> tuple[list[Message], list[Message]]:
    """The same without a summary of the session in front, as a client shows it that has had it made just now."""
    front = 0
    while (
        front < len(shown)
        and all(e.message.print != shown[front].print for e in session.head)
        and _holds_summary(known, session, plain(shown[front].text))
    ):
        front += 1
    return shown[front:], asked[front:]


def held_ids(known: Known, session: Session, request: Request) -> int:
    """How many of the ids in a request were seen in a session."""
    return sum(session.id in known.by_id.get(value, ()) for i in items_of(request.messages) for value in ids_of(i))


def _begun(session: Session, request: Request) -> int:
    """How many texts of the request's beginning began a session, greetings aside. One that was first seen in the middle
    did not begin with what was said before an answer."""
    said = spoken(request.messages)
    front = [*takewhile(lambda m: m.role != "assistant" and all(i.print in session.opening for i in m.items), said)]
    in_the_middle = any(i.print in session.opening for m in said[len(front) :][:1] for i in m.items)
    return 0 if in_the_middle else sum(breadth(plain(m.text)) >= PROBE_CHARS for m in front)


def _is_beginning(shown: list[Message], session: Session) -> bool:
    """Is what is shown the beginning of a conversation?"""
    return not session.lost and _in_common(_said_in(session.head), shown) == len(shown)


def ends_in(known: Known, session: Session, shown: list[Message], asked: list[Message]) -> bool:
    """Does a session end with all that a request shows, a phrase and its summary aside? See shown_and_asked()."""
    if session.side or not shown or not _may_end(session, shown, asked):
        return False
    shown, asked = _without_summary(known, session, shown, asked)
    is_telling = len(shown) > 1 or any(breadth(plain(m.text)) >= PROBE_CHARS for m in shown)
    return is_telling and _is_last(session, shown, asked)


def _may_end(session: Session, shown: list[Message], asked: list[Message]) -> bool:
    """The same by the last messages, which tell it of most: many got the same answer once."""
    said = (e for e in reversed(session.head) if _is_said(e.message))
    last = next(said, None)
    if last is not None and last.message.print == shown[-1].print:
        return True
    while last is not None and last.produced:
        last = next(said, None)
    return last is not None and last.message.print == asked[-1].print


def went_on_elsewhere(known: Known, session: Session, request: Request) -> list[Session]:
    """Those that end in most of what a request shows last, where less of that stands together in `session`: what that
    holds are documents, phrases, a summary that reads the same. With `session` where all of it was asked by others,
    too."""
    shown, _ = shown_and_asked(request)
    if [m.role for m in shown[-2:]] != ["user", "assistant"] or session.side or held_ids(known, session, request):
        return []
    own = max(_run_in(state, shown) for state in (session, *session.forks))
    if own == len(shown):
        return []
    holders = {sid for i in shown[-1].items for sid in known.by_answer.get(i.print, ())}
    got = [s for s in map(known.sessions.__getitem__, holders) if s.api == request.api and not s.side]
    shares = [(_in_common(_said_in(reversed(s.head)), reversed(shown)), s) for s in got if not is_others(s, request)]
    most = max((count for count, _ in shares), default=0)
    if most < 2 or most <= own:
        return []
    ending = [s for count, s in shares if count == most]
    asked = (plain(m.text) for m in shown[-most:] if m.role == "user")
    is_ones = any(is_said_once(known, text) for text in asked)
    return ending if is_ones else [*ending, session]


def is_contested(known: Known, session: Session, request: Request, weak: Collection[str]) -> bool:
    """Does another session end in as much of what a request shows last? Then it is not guessed whose that is: content
    leads to all that hold what a bot says to many, and to those whose client looked the same thing up.

    weak: ids that may stand for many conversations
    """
    if session.side or (not session.lost and goes_on(session, request)):
        return False  # it holds no more than is shown
    messages, got = request.messages, list[Session]()
    end = len(messages)
    while end and not got:
        end -= 1
        got = _got(known, messages[end], request) if messages[end].role == "assistant" else []
    shown, asked = _said(messages[: end + 1]), _said(messages)
    got = [s for s in got if s.keys != session.keys and any(_may_end(each, shown, asked) for each in (s, *s.forks))]
    if not got:
        return False
    told = {m.print for m in shown if m.role == "user"}

    def rank(s: Session) -> tuple[bool, tuple[int, ...]]:
        """Does it end in some of that? And how well it fits, the best is the largest."""
        left, said = _without_summary(known, s, shown, asked)
        is_told = is_summed_up(known, s, request)
        lacks, ends = max(_place_in(state, left, said, is_told) for state in (s, *s.forks))
        held = len(told.intersection(_prints(e.message for e in s.head)))
        return ends, (lacks, ends, is_told, held_ids(known, s, request), s.family in weak, held)

    _, own = rank(session)
    ranks = [(s, fit) for s in got for ends, fit in [rank(s)] if ends]
    alike = [s for s, fit in ranks if fit == own]
    return any(fit > own for _, fit in ranks) or under_prompt(known, [session, *alike], request) != [session]


def _got(known: Known, answer: Message, request: Request) -> list[Session]:
    """Conversations that got an answer, in words or as a call, but for other people's."""
    named = (known.by_id.get(value, ()) for call in answer.calls for value in call.ids)
    holders = {sid for sids in (*(known.by_answer.get(i.print, ()) for i in answer.items), *named) for sid in sids}
    got = map(known.sessions.__getitem__, holders)
    return [s for s in got if s.api == request.api and not s.side and not is_others(s, request)]


def _place_in(session: Session, shown: list[Message], asked: list[Message], is_told: bool) -> tuple[int, bool]:
    """How much of what is shown a session's head does not end in or begin with, as a negative number; and does it end
    in some of it, or was it asked the very same?

    is_told: it ends in a summary, which is shown in front; the rest came before that
    """
    held = {*_prints(_said_in(session.head))} if is_told else ()
    rest = [*dropwhile(lambda m: m.print not in held, shown)] if is_told else []
    if (shown and _is_last(session, shown, asked)) or _fit(session, rest, asked) == _STANDS:
        return 0, True
    if _in_common(_said_in(session.head), shown) == len(shown):
        return 0, False  # its user is back there
    run = _shared_end(session, shown)
    return run - len(shown), run > 0


def _run_in(session: Session, shown: Sequence[Message]) -> int:
    """How many of the messages that are shown last stand together in a session's head."""
    held, sought = _prints(_said_in(reversed(session.head))), _prints(reversed(shown))
    return max(_alike_from(held, sought), default=0) if sought[0] in held else 0


def _alike_from(held: Sequence[bytes], sought: Sequence[bytes]) -> list[int]:
    """How much of `sought` stands at each place of `held`: the Z-function, in linear time."""
    joined = [*sought, b"", *held]
    runs, start, end = [0] * len(joined), 0, 0
    for at in range(1, len(joined)):
        run = min(end - at, runs[at - start]) if at < end else 0
        while at + run < len(joined) and joined[run] == joined[at + run]:
            run += 1
        if at + run > end:
            start, end = at, at + run
        runs[at] = run
    return runs[len(sought) + 1 :]


def _in_common(some: Iterable[Message], others: Iterable[Message]) -> int:
    """How many messages two have in common from the first on."""
    both = zip(some, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].print == pair[1].print, both))


def is_anothers(session: Session, request: Request) -> bool:
    """Did its client name somebody else, who did not just take part in it either? Who does shows all that was said."""
    if not is_others(session, request):
        return False
    shown, _ = shown_and_asked(request)
    head = _said(e.message for e in session.head)
    return session.lost or not shown or _prints(head) != _prints(shown)


def is_passing(known: Known, session: Session, request: Request) -> bool:
    """Does a request share no more with a conversation than bots say to many: one phrase, or less than it shows of
    others, and neither its last answer, unless something else was asked before it, nor its summary?"""
    shown = [m for m in spoken(request.messages[: _end_of_shown(request.messages)]) if m.print]
    items = [i for m in shown for i in m.items]
    if any(session.id in known.by_id.get(value, ()) for i in items for value in ids_of(i)):
        return False
    if any(i.kind != "text" and session.id in _holders(known, _heard(known, i.print)) for i in items):
        return False  # a call, a compaction item: nobody says those to all
    last = next((e.message for e in reversed(session.head) if e.produced), None)
    said, asked = known.said.get(session.id, {}), _asked_last(session)
    for at, m in enumerate(shown):
        is_last = last is not None and m.print == last.print and not (at and _is_asked_anew(asked, shown[at - 1]))
        if is_last or said.get(plain(m.text)) == "side":
            return False
    if not shown or _ends_like_last(session, request):
        return False
    prints = {i.print for i in items_of(e.message for e in session.head)} | session.opening
    last_shown = shown[-_LOOKED_AT:]
    held = sum(_was_said(known, session, said, prints, m) for m in last_shown)
    return held < 2 or 2 * held <= len(last_shown)


def _ends_like_last(session: Session, request: Request) -> bool:
    """Does a request end as the last one did, or as that did before its question, which is another one now?"""
    shown, asked = shown_and_asked(request)
    before, end = _said(e.message for e in before_answer(session)), _end_of_shown(request.messages)
    is_telling = len(shown) > 1 or (end > 0 and breadth(plain(request.messages[end - 1].text)) >= PROBE_CHARS)
    if _prints(before[-len(asked) :]) == _prints(asked):
        return True
    return is_telling and _prints(before[-len(shown) - 1 : -1]) == _prints(shown)


def _asked_last(session: Session) -> Set[str] | None:
    """The words of what a user said last in a session; None: nothing."""
    asked = next((e.message for e in reversed(before_answer(session)) if e.message.role == "user"), None)
    return {*_WORD.findall(plain(asked.text).lower())} if asked and plain(asked.text) else None


def _is_asked_anew(asked: Set[str] | None, message: Message) -> bool:
    """Is it a user's, short, and without a word of what was asked last? What was spoken has none."""
    text = plain(message.text)
    is_short = message.role == "user" and len(text) < SUMMARY_CHARS
    return is_short and asked is not None and asked.isdisjoint(_WORD.findall(text.lower()))


def _was_said(known: Known, session: Session, said: Mapping[str, str], prints: Set[bytes], message: Message) -> bool:
    """Was it said in a session, also in another dress?"""
    if any(i.print in prints or session.id in _heard(known, i.print) for i in message.items):
        return True
    text = plain(message.text)
    if len(text) < PROBE_CHARS:
        return False
    if text in said:
        return True
    front, back = text[:_ALIKE_CHARS], text[-_ALIKE_CHARS:]
    begun = {start for _, start in known.sought.within(text, known.by_start)}
    return any(
        (each[:PROBE_CHARS] in begun and each in text)
        or text in each
        or ((each.startswith(front) or each.endswith(back)) and mostly_equal(each, text))
        for each in said
        if len(each) >= PROBE_CHARS
    )


def _heard(known: Known, print: bytes) -> set[str]:
    return known.by_answer.get(print, set()) | known.by_user.get(print, set())


def is_summed_up(known: Known, session: Session, request: Request) -> bool:
    """Does the request begin with the summary that a conversation ended in, or that a side call made of it since?"""
    made = summed_up_since(known, session)
    if session.answered and not made:
        texts = (plain(i.text) for i in session.head[-1].message.items if i.kind == "text")
        made = [text for text in texts if len(text) >= SUMMARY_CHARS]
    told = [plain(m.text) for m in request.messages[:FIRST] if m.role != "assistant"] if made else []
    return any(text in each for text in made for each in told)


def _end_of_shown(messages: Sequence[Message]) -> int:
    """Behind the last answer; 0 where nobody answered."""
    at = len(messages)
    while at and messages[at - 1].role != "assistant":
        at -= 1
    return at


def shown_and_asked(request: Request) -> tuple[list[Message], list[Message]]:
    """What was said up to the last answer, and all of it."""
    return _said(request.messages[: _end_of_shown(request.messages)]), _said(request.messages)


def _telling(known: Known, messages: Sequence[Message]) -> dict[bytes | str, Collection[str]]:
    """Texts and ids of messages that some conversations hold, or their side calls, and which."""
    found: dict[bytes | str, Collection[str]] = {}
    for i in items_of(messages):
        found |= {value: _holders(known, known.by_id[value]) for value in ids_of(i) if value in known.by_id}
        holders = _heard(known, i.print)
        if holders and breadth(plain(i.text)) >= PROBE_CHARS:
            found[i.print] = _holders(known, holders)
    return found


def _holders(known: Known, sids: Collection[str]) -> Collection[str]:
    return {holder_of(known.sessions[sid]) for sid in sids}


def _said(messages: Iterable[Message]) -> list[Message]:
    return [m for m in messages if _is_said(m)]


def _said_in(head: Iterable[Entry]) -> Iterator[Message]:
    """What was said in a head, one by one: hundreds may be compared, and most differ soon."""
    return (e.message for e in head if _is_said(e.message))


def _is_said(message: Message) -> bool:
    """Not by a system prompt, nor a result: their clients clear those."""
    return message.role not in SYSTEM and any(i.kind != "result" for i in message.items)


def _fit(session: Session, shown: list[Message], asked: list[Message]) -> int:
    """Does a session's head end with `shown`, or was it asked this very thing last; or does it stand there at all?"""
    if not shown:
        return 0
    if _is_last(session, shown, asked):
        return _ENDS
    marks, sought = _prints(_said_in(session.head)), _prints(shown)
    begun = (at for at in range(len(marks) - len(sought)) if marks[at] == sought[0])
    return _STANDS if any(marks[at : at + len(sought)] == sought for at in begun) else 0


def _is_last(session: Session, shown: Sequence[Message], asked: Sequence[Message]) -> bool:
    """The first of that. What was asked last may have come with more than its client shows of it now: within it, or in
    front of it. And in front of an end may stand what a head begins with, where its client keeps that, or a summary."""
    run = _shared_end(session, shown)
    if run and run + _in_common(shown, _said_in(session.head)) >= len(shown):
        return True
    return _in_common(reversed(asked), _said_in(reversed(before_answer(session)))) == len(asked)


def _shared_end(session: Session, shown: Sequence[Message]) -> int:
    """How many messages a head, with documents or without, and what is shown have in common at their ends; what was
    asked last may have come with more."""
    last = next((at for at in range(len(shown) - 1, -1, -1) if shown[at].role == "user"), -1)

    def is_same(at: int, a: Message, b: Message) -> bool:
        return a.print == b.print or (at == last and a.role == b.role and is_asked_with(plain(b.text), plain(a.text)))

    def run(back: Iterable[Message]) -> int:
        both = zip(range(len(shown) - 1, -1, -1), back, reversed(shown), strict=False)
        return sum(takewhile(bool, starmap(is_same, both)))

    return max(run(_said_in(reversed(session.head))), run(_without_documents(_said_in(reversed(session.head)))))


def _without_documents(back: Iterator[Message]) -> Iterator[Message]:
    """What was said, the last first, without what a user's side said right in front of what was asked last."""
    for m in back:
        yield m
        if m.role == "user":
            yield from dropwhile(lambda each: each.role == "user", back)


def _prints(messages: Iterable[Message]) -> list[bytes]:
    return [m.print for m in messages]
