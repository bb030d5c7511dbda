"""Conversations that a request could as well belong to, and which of them goes on with it.

Bots say the same to many, and their users answer with a word. Where two fit it is not guessed whose request it is,
since the one must not get what the other said.
"""

from collections.abc import Collection, Iterable, Sequence

from lantern_proxy.history import SUMMARY_CHARS, Session, before_answer, is_others, items_of, spoken, system_text
from lantern_proxy.history.text import breadth
from lantern_proxy.session.known import PROBE_CHARS, Known, holder_of
from lantern_proxy.session.side import summed_up_since
from lantern_proxy.turn import Message, Request, plain

_STANDS, _ENDS = 1, 2
_FIRST = 8
"""Messages among which a summary stands."""


def rivals_of(known: Known, session: Session, others: Collection[Session], request: Request) -> list[Session]:
    """Those that hold all of what a request shows that `session` holds and that tells sessions apart: more than a word
    or two. What the user says last may be new to each of them."""
    telling = _telling(known, request.messages[: _end_of_shown(request.messages)])
    own = {name for name, holders in telling.items() if session.id in holders}
    return [s for s in others if s is not session and not s.side and all(s.id in telling[name] for name in own)]


def decided(rivals: Sequence[Session], request: Request, weak: Collection[str]) -> Session | None:
    """The one of them that is named, has its system prompt, began like this, or ends with what is shown. None: more
    than one does, or all are other people's."""
    own = [s for s in rivals if not is_others(s, request)]
    left = [s for s in own if s.family in weak] or own
    left = [s for s in left if s.system == system_text(request)] or left
    prints = {i.print for i in items_of(request.messages)}
    begun = {s.id: len(prints & s.opening) for s in left}
    left = [s for s in left if begun[s.id] == max(begun.values())]
    asked, shown = _marks(request.messages), _marks(request.messages[: _end_of_shown(request.messages)])
    fits = {s.id: _fit(s, shown, asked) for s in left}
    best = [s for s in left if fits[s.id] == max(fits.values())]
    same = len({s.keys for s in best}) == 1  # of one, and of those that say the same
    return best[0] if best and (same or not shown) else None


def is_summed_up(known: Known, session: Session, request: Request) -> bool:
    """Does the request begin with the summary that a conversation ended in, or that a side call made of it since?"""
    made = summed_up_since(known, session)
    if session.answered and not made:
        texts = (plain(i.text) for i in session.head[-1].message.items if i.kind == "text")
        made = [text for text in texts if len(text) >= SUMMARY_CHARS]
    told = [plain(m.text) for m in request.messages[:_FIRST] if m.role != "assistant"]
    return any(text in each for text in made for each in told)


def _end_of_shown(messages: Sequence[Message]) -> int:
    """Behind the last answer; 0 where nobody answered."""
    return max((at + 1 for at, m in enumerate(messages) if m.role == "assistant"), default=0)


def _telling(known: Known, messages: Sequence[Message]) -> dict[bytes | str, Collection[str]]:
    """Texts and ids of messages that some conversations hold, or their side calls, and which."""
    found: dict[bytes | str, Collection[str]] = {}
    for i in items_of(messages):
        found |= {value: _holders(known, known.by_id[value]) for value in i.ids if value in known.by_id}
        holders = known.by_answer.get(i.print, set()) | known.by_user.get(i.print, set())
        if holders and breadth(plain(i.text)) >= PROBE_CHARS:
            found[i.print] = _holders(known, holders)
    return found


def _holders(known: Known, sids: Collection[str]) -> Collection[str]:
    return {holder_of(known.sessions[sid]) for sid in sids}


def _marks(messages: Iterable[Message]) -> list[bytes]:
    """What was said, without results: their clients clear those."""
    return [m.print for m in spoken(messages) if any(i.kind != "result" for i in m.items)]


def _fit(session: Session, shown: list[bytes], asked: list[bytes]) -> int:
    """Does a session's head end with `shown`, or was it asked this very thing last; or does it stand there at all?"""
    head = _marks(e.message for e in session.head)
    before = _marks(e.message for e in before_answer(session))
    if not shown:
        return 0
    if head[-len(shown) :] == shown or before[-len(asked) :] == asked:
        return _ENDS
    begun = (at for at in range(len(head) - len(shown)) if head[at] == shown[0])
    return _STANDS if any(head[at : at + len(shown)] == shown for at in begun) else 0
