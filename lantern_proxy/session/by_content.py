"""Linking by content: the session whose head the request continues, or that most of the evidence points to."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile

from lantern_proxy.history.forms import is_other_person, shows_system_of, system_text
from lantern_proxy.history.presentation import is_same_answer, was_asked_with
from lantern_proxy.history.record import (
    Session,
    before_answer,
    chains,
    is_empty,
    items_of,
    last_asked,
    new_answer,
    place_key,
    spoken,
)
from lantern_proxy.history.text import breadth, shared_front
from lantern_proxy.session.by_words import is_told_of_several
from lantern_proxy.session.contested import went_on_elsewhere
from lantern_proxy.session.examples import are_examples
from lantern_proxy.session.index import (
    CANDIDATES,
    PROBE_CHARS,
    SessionIndex,
    holder_of,
    holders_of,
    ids_of,
    is_greeting,
    is_ones_own,
    main_of,
    numbers_of,
    sessions_at,
)
from lantern_proxy.session.overlap import shown_and_asked
from lantern_proxy.session.rivals import (
    decide,
    ends_in,
    held_ids,
    ids_in,
    is_made_for,
    is_other_persons_session,
    is_summed_up,
    rivals_of,
    under_prompt,
)
from lantern_proxy.session.stock_phrases import shares_only_stock_phrases
from lantern_proxy.session.transcript_use import is_own
from lantern_proxy.turn import SYSTEM, Item, Message, Request, plain

_WORD = re.compile(r"\w+")
_WORDS = 6
"""Two texts are versions of one answer only if they share this many words: of fewer, half may be equal by chance."""
_REPEATED = 64
"""An item that a request repeats counts at most this often."""
_ID_WEIGHT, _ANSWER_WEIGHT = 5.0, 3.0
"""Weight of an id minted by the upstream, and of an answer it produced, as evidence for a session."""
_LEAST = 1.0
"""Least total weight that links to a session: that of one text which only its user said."""
_SHORT_WEIGHT = 0.5
"""Weight of an answer of a word or two: "OK." may be an example in a prompt, or stand in any conversation. A user text
that is as short ("Go on.") counts half."""


def continued_session(index: SessionIndex, request: Request) -> Session | None:
    """The session whose head is the longest beginning of this request; of equals the one seen last."""
    found = chains(request.messages)
    for chain in reversed(found):
        holders = index.by_head.get(chain)
        if not holders:
            continue
        alive = [index.sessions[sid] for sid in holders if index.sessions[sid].api == request.api]
        alive = [s for s in alive if s.answered or (chain == found[-1] and _may_ask_again(index, s, request))]
        alive = [s for s in alive if not _is_bare_window(index, s) or s.system == system_text(request)]
        same = [s for s in alive if shows_system_of(s, request)]
        if same or alive:
            return _likeliest(index, same or alive, request)
    return None


def _is_bare_window(index: SessionIndex, session: Session) -> bool:
    """Does a head begin in the middle of a conversation and hold nothing that was said only there? Any other
    conversation may reach the same head."""
    first = next((e.message for e in session.head if e.message.role not in SYSTEM), None)
    if first is None or first.role != "assistant":
        return False
    return not any(is_ones_own(index, session, m) for m in spoken([e.message for e in session.head]))


def _likeliest(index: SessionIndex, sessions: Sequence[Session], request: Request) -> Session | None:
    """The most likely of the sessions that the request continues equally well: not a side session, same person, most of
    the request's ids, same system prompt, and of those the one seen last.

    None if the best ones do not hold the same messages: what the request no longer shows may belong to several people,
    since some apps give all of them one name.
    """
    if len(sessions) == 1:
        return sessions[0]
    ids = ids_in(request)
    ranks = {s.id: (not s.side, not is_other_person(s, request), held_ids(index, s, ids)) for s in sessions}
    best = under_prompt(index, [s for s in sessions if ranks[s.id] == max(ranks.values())], request)
    told = {frozenset(s.keys - s.abandoned.keys()) for s in best if not s.side}
    return max(best, key=lambda s: s.last_seen_at) if len(told) <= 1 else None


def continued_reformatted(index: SessionIndex, request: Request) -> Session | None:
    """The session that was asked exactly what this request begins with, and whose answer follows in another format.

    The system prompt must be the session's: a title that was requested with the user's words may be a line of the real
    answer.
    """
    found = chains(request.messages)
    asked = {chain: at for at, chain in enumerate(found[:-1]) if request.messages[at + 1].role == "assistant"}
    for chain, at in sorted(asked.items(), key=lambda pair: -pair[1]):
        holders = index.by_asked.get(chain, ())
        answer = _answer_behind(request, at) if holders else []
        alive = [s for s in map(index.sessions.__getitem__, holders) if s.api == request.api and s.answered]
        same = [s for s in alive if shows_system_of(s, request) and is_same_answer(_answer_of(s), answer)]
        if same:
            return _likeliest(index, same, request)
    return None


def sole_session_asked(index: SessionIndex, request: Request) -> Session | None:
    """The only session that was asked exactly what precedes the last answer shown, whatever that answer says, if a user
    says something new after it: its client keeps its own version of each answer.

    If the request holds only one question, the answer must be a version of the session's, since many people may ask the
    same.
    """
    at = _last_asked(request)
    if at is None:
        return None
    asked = [m for m in spoken(request.messages[: at + 1]) if m.print]
    holders = (index.sessions[sid] for sid in index.by_asked.get(chains(request.messages)[at], ()))
    mains = [s for s in holders if s.api == request.api and not s.side] or _asked_more(index, request, at)
    if len(mains) != 1 or not mains[0].answered or not shows_system_of(mains[0], request):
        return None
    if _was_asked_elsewhere(index, request, at, mains[0]):
        return None
    users = sum(m.role == "user" for m in asked)
    proven = users > 1 or _is_version(_answer_of(mains[0]), _answer_behind(request, at))
    return mains[0] if proven else None


def _was_asked_elsewhere(index: SessionIndex, request: Request, at: int, session: Session) -> bool:
    """Was another session ever asked the same at this place, and has it moved on? Its user may have gone back there,
    with other words for what followed, or to get another answer."""
    place = place_key(chains(request.messages)[at])
    return any(s.id != session.id for s in sessions_at(index, place))


def _last_asked(request: Request) -> int | None:
    """Index of the message that was answered last, if only a user speaks after that answer (the beginning of the next
    answer may follow); else None."""
    said = [at for at, m in enumerate(request.messages) if m.role not in SYSTEM]
    roles = [request.messages[at].role for at in said]
    while roles and roles[-1] == "assistant":
        roles.pop()
    end = len(roles)
    while end and roles[end - 1] == "user":
        end -= 1
    start = end
    while start and roles[start - 1] == "assistant":
        start -= 1
    if not 0 < start < end < len(roles):
        return None
    return said[start - 1] if any(plain(request.messages[at].text) for at in said[end : len(roles)]) else None


def _asked_more(index: SessionIndex, request: Request, at: int) -> list[Session]:
    """Sessions that were asked the same, apart from what their client had added to the last text, and that got the
    answer that is shown or a version of it."""
    text = plain(request.messages[at].text)
    now = [m.print for m in spoken(request.messages[:at]) if m.print]
    shown = _answer_behind(request, at)
    holders = index.by_start.get(text[:PROBE_CHARS], set()).union(*(index.by_answer.get(i.print, ()) for i in shown))
    sessions = (index.sessions[sid] for sid in holders if sid in index.sessions)
    recent = sorted((s for s in sessions if s.api == request.api), key=lambda s: s.last_seen_at)[-CANDIDATES:]
    found = []
    for s in recent:
        asked = [e.message for e in before_answer(s) if e.message.print and e.message.role not in SYSTEM]
        if not asked or asked[-1].role != "user" or [m.print for m in asked[:-1]] != now:
            continue
        made = _answer_of(s)
        if was_asked_with(text, plain(asked[-1].text)) and (is_same_answer(made, shown) or _is_version(made, shown)):
            found.append(s)
    return found


def _is_version(made: Iterable[Item], shown: Iterable[Item]) -> bool:
    """Is the shown answer a version of the one that was produced: is half of it the end of the original, or are half of
    its words in it?"""
    a, b = ("\n".join([plain(i.text) for i in items if i.kind == "text"]) for items in (made, shown))
    words, found = (set(_WORD.findall(text.lower())) for text in (a, b))
    return 2 * shared_front(a[::-1], b[::-1]) >= len(b) > 0 or 2 * len(words & found) >= len(found) >= _WORDS


def _answer_behind(request: Request, at: int) -> list[Item]:
    """The items of the answer that the request shows right after message `at`."""
    return list(items_of(takewhile(lambda m: m.role == "assistant", request.messages[at + 1 :])))


def _answer_of(session: Session) -> list[Item]:
    """The items of the session's last answer."""
    return [i for m in new_answer(session) for i in m.items]


def _may_ask_again(index: SessionIndex, session: Session, request: Request) -> bool:
    """May the words that got no answer be asked again here? They are all that tells whose they are, so while they still
    wait for one, the same words are another conversation's."""
    return not index.in_flight.get(session.id) and not is_other_person(session, request)


def best_scored(index: SessionIndex, request: Request, weak: Collection[str]) -> tuple[Session | None, bool]:
    """The session with the most evidence, and whether that is certain.

    It is certain if more than one user text is evidence for the session. (None, True): it may be several people's, so
    it must not be guessed. What a side call holds counts for its conversation, unless a sub-agent made the call.
    """
    points = _points(index, request)
    alive = [index.sessions[sid] for sid in points]
    session = _most_likely(index, alive, points, request, weak)
    if session is None:
        return None, False
    summed_up = [s for s in alive if is_summed_up(index, s, request)]
    likely = summed_up[0] if len(summed_up) == 1 else session
    if others := went_on_elsewhere(index, likely, request):
        return others[0] if len(others) == 1 else None, True
    if summed_up == [likely]:
        return likely, True
    rivals = [] if session.side else rivals_of(index, session, alive, request)
    meant = decide(index, [session, *rivals], request, weak) if rivals else session
    if meant is None or shares_only_stock_phrases(index, meant, request) or are_examples(index, meant, request):
        return None, True
    return meant, points[session.id] > _LEAST


def _points(index: SessionIndex, request: Request) -> dict[str, float]:
    """Session id -> total evidence for it: ids, answers that it got, texts that only its user said.

    What a side call got counts only if no other session got the same.
    """
    answered, asked = defaultdict[str, float](float), defaultdict[str, float](float)
    texts, times = defaultdict[str, set[bytes]](set), Counter[bytes]()
    numbers = numbers_of(request.messages)
    for i in items_of(request.messages):
        times[i.print] += 1
        if times[i.print] > _REPEATED:
            continue
        for value in ids_of(i, numbers):
            _credit(index, answered, _theirs(index, request, index.by_id.get(value, ())), _ID_WEIGHT)
        holders = _theirs(index, request, index.by_answer.get(i.print, ()))
        users = _theirs(index, request, index.by_user.get(i.print, ()))
        if not (holders or users):
            continue
        is_short = breadth(plain(i.text)) < PROBE_CHARS
        is_ones = len(holders_of(index, holders)) == 1
        got = (index.sessions[sid] for sid in holders)
        made = [s.id for s in got if (is_ones or not s.side) and i.print not in s.opening]
        if made:
            weight = _SHORT_WEIGHT if is_short else _ANSWER_WEIGHT
            _credit(index, answered, made, weight * len(made) / len(holders))
        user = index.sessions[next(iter(users))] if len(users) == 1 else None
        if user and _is_its_users(index, user, i, is_short=is_short):
            _credit(index, asked, users, _LEAST * (_SHORT_WEIGHT if is_short else 1.0))
            if not is_short:
                texts[main_of(user)].add(i.print)
    alive = (index.sessions[sid] for sid in asked.keys() | answered.keys())
    likely = (s for s in alive if s.api == request.api)
    likely = (s for s in likely if s.id in answered or _is_asked_again(index, s, request, texts[s.id]))
    return {s.id: asked[s.id] + answered[s.id] for s in likely}


def _is_its_users(index: SessionIndex, session: Session, i: Item, *, is_short: bool) -> bool:
    """Does a text, said only by the user of this session, stand in no other session's texts? A short text must not open
    any other conversation."""
    return not is_greeting(index, [i]) if is_short else is_own(index, session, plain(i.text))


def _most_likely(
    index: SessionIndex, alive: Iterable[Session], points: Mapping[str, float], request: Request, weak: Collection[str]
) -> Session | None:
    """The session that ends in what the request shows; of several the one with the most points; of equal ones the one
    that began like the request. None if each has less than _LEAST."""
    prints = {i.print for i in items_of(request.messages)}
    shown, asked = shown_and_asked(request)

    def rank(s: Session) -> tuple[bool, float, bool, int, float, str]:
        ends = ends_in(index, s, shown, asked)
        return ends, points[s.id], s.family in weak, len(prints & s.opening), s.last_seen_at, s.id

    return max((s for s in alive if points[s.id] >= _LEAST), key=rank, default=None)


def _theirs(index: SessionIndex, request: Request, holders: Collection[str]) -> Collection[str]:
    """`holders` without the sessions of other people, if the client names people."""
    if not request.person:
        return holders
    return [sid for sid in holders if not is_other_persons_session(index.sessions[sid], request)]


def _is_asked_again(index: SessionIndex, session: Session, request: Request, asked: set[bytes]) -> bool:
    """Do texts of the session's user alone prove that the request is the session's, though it shows nothing of its
    model?

    Many people may ask one text: it counts only if it still waits for an answer and does not stand alone, if the
    session's answer to it follows in another format, or if the request begins like the session. Two texts count, since
    some clients keep only what their user said. None counts under another system prompt. If the session lost something,
    a summary and a question that may also be about other sessions do not count, unless its own model wrote the summary.

    asked: fingerprints of texts in the request that only this session's user said
    """
    if not asked or not shows_system_of(session, request):
        return False
    texts = {i.print: plain(i.text) for i in items_of(request.messages) if i.print in asked}
    is_made = any(is_made_for(index, session, text, request) for text in texts.values())
    if session.lost and not is_made and is_told_of_several(index, session, request, "\n".join(texts.values())):
        return False
    known_as = _parted(asked, (e.message for e in session.head))  # documents came with one message
    parts = known_as | _parted(asked.difference(*known_as), request.messages)
    most = max(parts, key=len, default=frozenset())
    if not all(part <= most for part in parts) or _begins_like(index, session, request):
        return True
    if _shows_its_answer(session, request, asked):
        return True
    if index.in_flight.get(session.id) or len(spoken(request.messages)) == 1:
        return False  # with one text another conversation may begin
    return _is_all_of(session.head[-1].message, asked)


def _shows_its_answer(session: Session, request: Request, asked: Collection[bytes]) -> bool:
    """Was one of the texts `asked` what the session was asked last, and does its answer follow in another format?"""
    last = last_asked(session)
    if last is None or not _is_all_of(last, asked):
        return False
    at = next((at for at, m in enumerate(request.messages) if m.print == last.print), None)
    return at is not None and is_same_answer(_answer_of(session), _answer_behind(request, at))


def _parted(asked: set[bytes], messages: Iterable[Message]) -> set[frozenset[bytes]]:
    """The subsets of `asked` that share a message, each once."""
    return {frozenset(held) for m in messages if (held := asked.intersection(i.print for i in m.items))}


def _is_all_of(message: Message, asked: Collection[bytes]) -> bool:
    """Does the message hold nothing but the texts `asked`? With a document beside it, the question may be another
    one."""
    return all(i.print in asked for i in message.items if not is_empty(i))


def _begins_like(index: SessionIndex, session: Session, request: Request) -> bool:
    """Is the request without its last message the beginning of the session's head, and of no other session's?"""
    said = spoken(request.messages)[:-1]
    if all(i.print in session.opening for m in said for i in m.items):
        return False  # many chats open so: a greeting, examples
    before = [m.print for m in said]
    begins = before == [m.print for m in spoken(e.message for e in session.head)][: len(before)]
    return begins and not _was_asked_elsewhere(index, request, len(request.messages) - 2, session)


def is_scanty(index: SessionIndex, request: Request, session: Session) -> bool:
    """Did the session get fewer than half of the answers that the request shows?"""
    numbers = numbers_of(request.messages)

    def holds(i: Item) -> bool:
        return session.id in index.by_answer.get(i.print, ()) or any(
            session.id in index.by_id.get(value, ()) for value in ids_of(i, numbers)
        )

    shown = [i for i in items_of(request.messages) if i.role == "assistant" and i.kind in ("text", "call", "ref")]
    return 2 * sum(map(holds, shown)) < max(1, len(shown))


def _credit(index: SessionIndex, scores: dict[str, float], holders: Collection[str], weight: float) -> None:
    """Share `weight` among the sessions that hold a thing."""
    for sid in holders:
        session = index.sessions[sid]
        main = holder_of(session)
        if main in index.sessions and not (index.sessions[main].side and not session.agent):
            scores[main] += weight / len(holders)
