"""Of sessions that hold the same of a request the one that it goes on with: bots say the same to many, and their users
answer with a word. Whose it is when two fit is not guessed, since the one must not get what the other said."""

from collections.abc import Collection, Sequence

from lantern_proxy.history import Session, is_others, items_of, spoken, system_text
from lantern_proxy.history.text import breadth
from lantern_proxy.session.known import PROBE_CHARS, Known, main_of
from lantern_proxy.turn import Request, plain

_STANDS, _ENDS = 1, 2


def rivals_of(known: Known, session: Session, others: Collection[Session], request: Request) -> list[Session]:
    """Those that hold all of a request that `session` holds and that tells sessions apart: more than a word or two."""
    telling = _telling(known, request)
    own = {name for name, holders in telling.items() if session.id in holders}
    return [s for s in others if s is not session and not s.side and all(s.id in telling[name] for name in own)]


def decided(rivals: Sequence[Session], request: Request, weak: Collection[str]) -> Session | None:
    """The one of them that is named, has its system prompt, or ends with what is shown. None: more than one does, or
    all are other people's."""
    own = [s for s in rivals if not is_others(s, request)]
    left = [s for s in own if s.family in weak] or own
    left = [s for s in left if s.system == system_text(request)] or left
    shown = _shown(request)
    fits = {s.id: _fit(s, shown) for s in left}
    best = [s for s in left if fits[s.id] == max(fits.values())]
    same = len({s.keys for s in best}) == 1  # of one, and of those that say the same
    return best[0] if best and (same or not shown) else None


def _telling(known: Known, request: Request) -> dict[bytes | str, Collection[str]]:
    """Texts and ids of a request that some conversations hold, or their side calls, and which."""
    found: dict[bytes | str, Collection[str]] = {}
    for i in items_of(request.messages):
        found |= {value: _mains(known, known.by_id[value]) for value in i.ids if value in known.by_id}
        holders = known.by_answer.get(i.print, set()) | known.by_user.get(i.print, set())
        if holders and breadth(plain(i.text)) >= PROBE_CHARS:
            found[i.print] = _mains(known, holders)
    return found


def _mains(known: Known, holders: Collection[str]) -> Collection[str]:
    return {sid if known.sessions[sid].agent else main_of(known.sessions[sid]) for sid in holders}


def _shown(request: Request) -> list[bytes]:
    """What was said up to the last answer."""
    said = spoken(request.messages)
    end = max((at + 1 for at, m in enumerate(said) if m.role == "assistant"), default=0)
    return [m.print for m in said[:end]]


def _fit(session: Session, shown: list[bytes]) -> int:
    """Does a session's head end with `shown`, or does it stand there at all?"""
    head = [m.print for m in spoken(e.message for e in session.head)]
    begun = (at for at in reversed(range(len(head) - len(shown) + 1)) if head[at : at + 1] == shown[:1])
    last = next((at for at in begun if head[at : at + len(shown)] == shown), None)
    return 0 if last is None else _ENDS if last + len(shown) == len(head) else _STANDS
