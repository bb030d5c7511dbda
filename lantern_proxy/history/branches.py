"""Earlier states of a session that a request may return to: before an aside, or on an abandoned branch.

An aside is recognised in hindsight. Apps have a message classified, or the next speaker chosen, over the history under
another system prompt or without the conversation's tools. That looks like a turn in another mode, until the client
continues without the answer.

A client may return to a branch and alternate between it and its replacement: a cloned chat, two versions of a question.
What was said on one branch is not part of the other.
"""

from collections.abc import Mapping, Sequence, Set
from itertools import dropwhile, islice, pairwise, takewhile

from msgspec.structs import replace

from lantern_proxy.history.forms import form_among, form_of, has_form
from lantern_proxy.history.presentation import was_asked_with
from lantern_proxy.history.record import (
    Entry,
    Session,
    alone,
    chain_of,
    goes_on,
    items_of,
    left_states,
    place_key,
    shown_prints,
    spoken,
)
from lantern_proxy.turn import SYSTEM, Message, Request, plain

_CERTAIN = 2
"""After this many answers in a form that were never shown, the next request in it counts as an aside at once. A single
one proves nothing: its user may have asked again in another mode."""
_FORMS = 8
"""Most forms kept per session, the latest ones."""
_RUN = 8
"""Most of the last messages that are looked for in each branch, all together."""
_BRANCHES = 4
"""Most branches kept per session besides the current one, the latest ones."""


def without_aside(session: Session, request: Request) -> Session:
    """The session as it was before its last request, if `request` continues as if that one had not been made."""
    before, form = session.before_form, form_of(session)
    if before is None:
        return session
    if request.delta or _shows_answer(session, before, request):
        return replace(session, before_form=None, asides={f: n for f, n in session.asides.items() if f != form})
    if has_form(form, request):
        return session
    shown = {m.print for m in request.messages}
    if not session.answered or _end_of(session, before).message.print not in shown:
        return replace(session, before_form=None)  # no answer came, or there is no telling whether it was left out
    left = {e.key: e.message.print for e in session.head if e.key not in before.keys and e.message.print not in shown}
    asides = {**session.asides, form: session.asides.get(form, 0) + 1}
    return replace(_gone_back(session, before, left), asides=dict([*asides.items()][-_FORMS:]))


def states_of(session: Session) -> Sequence[Session]:
    """The states in which a request may continue a session: the current one, its branches, the one before a possible
    aside, and, if the last request may have failed, the one after the last answer."""
    former = [session.before_form] if session.before_form else []
    if not session.answered:
        heard = [*dropwhile(lambda e: not e.produced, reversed(session.head))][::-1]
        former += [replace(session, head=tuple(heard), answered=True)] if heard else []
    return (session, *left_states(session), *former)


def before_form(session: Session, request: Request) -> Session | None:
    """The state that a later request may return to; None if there is none.

    session: without asides, as it was before `request`
    """
    if session.before_form is not None:
        return session.before_form
    if not session.answered or request.delta:
        return None
    return session if session.imported or not has_form(form_of(session), request) else None


def is_aside(session: Session, request: Request) -> bool:
    """Does the request have a form in which answers never became part of the session?"""
    before = session.before_form
    if (
        not session.asides
        or has_form(form_of(before or session), request)
        or (before and _shows_answer(session, before, request))
    ):
        return False
    certain = (form for form, times in session.asides.items() if times >= _CERTAIN)
    return form_among(certain, request) is not None


def with_branch(session: Session, before: Session) -> Session:
    """The session after it left the branch `before`, to which its client may return."""
    forks = (alone(before), *session.forks)
    return replace(session, forks=forks[:_BRANCHES])


def with_answered_branch(session: Session, before: Session, after: Session) -> Session:
    """The session with an answer to a branch it has left: `before` and `after` are that branch without and with it.

    The answer's keys and positions belong to the session.
    """
    branch = alone(after)
    forks = tuple(branch if each.chain == before.chain else each for each in session.forks)
    is_left = any(each is branch for each in forks)
    left = {e.key: e.message.print for e in after.head if is_left and e.key not in session.keys}
    return replace(
        session, keys=after.keys, position=after.position, forks=forks, last_seen_at=after.last_seen_at,
        abandoned={**session.abandoned, **left},
    )  # fmt: skip


def on_branch(session: Session, request: Request) -> Session:
    """The session in the state that the request goes on with, or of which it shows most, or that ends in the stored
    answer it names; unchanged if that is the current state. Until a loss is answered its client may take it back."""
    if request.delta:
        return _behind_stored(session, request)
    states = left_states(session)
    if not states or goes_on(session, request):
        return session
    said = spoken(request.messages)
    prints, items = {m.print for m in said if m.print}, {i.print for i in items_of(said)}
    ids = {value for m in said for i in m.items if i.kind == "ref" for value in i.ids}
    texts = [plain(m.text) for m in said if m.role == "user"]

    def is_there(e: Entry) -> bool:
        return not ids.isdisjoint(e.message.ids) or _is_among(e, prints, items)

    def shown(state: Session) -> tuple[int, int, int]:
        """Several of the last messages together first, then answers of the model: a user says "Go on." on each branch,
        and often, and a client may put a call of its own in front of each summary. The last question may have come with
        more. Results of tools do not count, since both branches may have looked up the same."""
        talk = [e for e in state.head if any(i.kind != "result" for i in e.message.items)]
        held = {e.message.print: e.produced for e in talk if is_there(e)}
        asked = next((e for e in reversed(talk) if e.message.role == "user" and not is_there(e)), None)
        told = plain(asked.message.text) if asked else ""
        is_told = any(was_asked_with(text, told) for text in texts)
        run = _longest_run(state, said)
        return run if run > 1 else 0, sum(held.values()), len(held) + is_told

    now = {e.key for e in session.head}
    own = [each for each in states if each.head and each.head[-1].key not in now and goes_on(each, request)]
    best = max(own or states, key=shown)
    if not own and shown(best) <= shown(session):
        return session
    since = dict.fromkeys(session.keys - best.keys, b"") | {e.key: e.message.print for e in session.head}
    left = {key: print for key, print in since.items() if key not in best.keys and print not in prints}
    return _returned(session, best, best, left)


def _longest_run(state: Session, said: Sequence[Message]) -> int:
    """How many of the messages up to the last answer stand together in a state, each as its client may show it; at most
    _RUN. An aside may follow them."""
    shown = [*islice(dropwhile(lambda m: m.role != "assistant", reversed(said)), _RUN)]
    back = [e for e in reversed(state.head) if e.message.role not in SYSTEM]
    runs = (takewhile(lambda pair: _is_shown_as(*pair), zip(back[at : at + _RUN], shown, strict=False))
            for at in range(len(back)))  # fmt: skip
    return max((sum(1 for _ in run) for run in runs), default=0)


def _is_shown_as(entry: Entry, m: Message) -> bool:
    if _is_among(entry, {m.print}, {i.print for i in m.items}):
        return True
    return entry.message.role == m.role == "user" and was_asked_with(plain(m.text), plain(entry.message.text))


def _is_among(entry: Entry, prints: Set[bytes], items: Set[bytes]) -> bool:
    """Is a message, or the form in which clients show it, among these fingerprints? items: fingerprints of items"""
    if entry.message.print in prints:
        return True
    made = entry.message.items if entry.produced else ()
    return any(print in items for i in made for print in shown_prints(i))


def starts_after(session: Session, name: str) -> bool:
    """Is this the session's first answer, with later ones after it? Then other conversations begin there: after a
    manual, or instructions for all. None begins after calls, since only the caller has the results. A request that came
    with all that was said before (who speaks next?) is no later conversation, but an aside."""
    state, at = _place_of(session, name)
    begun, since = state.head[:at], state.head[at:]
    if state is not session or not begun or begun[-1].message.calls or any(e.produced for e in begun[:-1]):
        return False
    return any(e.produced for e in since) and since[0].key != place_key(chain_of(state.head[: at + 1]))


def is_on_dropped_branch(session: Session, name: str) -> bool:
    """Did the upstream store this answer at a place that no state of the session shows: on a branch that is no longer
    kept, or, if an earlier version archived it without its names, on one of several? Without branches it is the end."""
    return not _place_of(session, name)[1] and bool(session.abandoned or any(e.names for e in session.head))


def _place_of(session: Session, name: str) -> tuple[Session, int]:
    """A state of the session, and the index right after a stored answer in its head; 0 if no state has it."""
    for state in (session, *session.forks):
        for at in range(len(state.head), 0, -1):
            if name in state.head[at - 1].names:
                return state, at
    return session, 0


def _behind_stored(session: Session, request: Request) -> Session:
    """The session in the state that ends in the stored answer which the request continues."""
    name = next((value for kind, value in request.ids if kind == "previous_response_id"), "")
    state, at = _place_of(session, name)
    rest = state.head[at:]
    if not at or (state is session and not any(e.produced for e in rest)):
        return session  # what got no answer is asked again
    since = {e.key: e.message.print for e in session.head} | dict.fromkeys(session.keys - state.keys, b"")
    left = {key: print for key, print in since.items() if key not in state.keys}
    left |= {e.key: e.message.print for e in rest}
    head = state.head[:at]
    there = replace(state, head=head, chain=chain_of(head), answered=True, before_form=None) if rest else state
    return _returned(session, state, there, left)


def _returned(session: Session, branch: Session, there: Session, left: Mapping[str, bytes]) -> Session:
    """The session in the state `there` of a branch that its client returned to; the current state is a branch now."""
    forks = (alone(session), *(each for each in session.forks if each is not branch))
    return replace(_gone_back(session, there, left), asides=session.asides, forks=forks[:_BRANCHES])


def _gone_back(session: Session, state: Session, left: Mapping[str, bytes]) -> Session:
    """The session in an earlier state, with the keys and positions that it has assigned since.

    left: messages filed since that are not part of that state, with their fingerprints
    """
    return replace(
        state, keys=session.keys, position=session.position, turn=session.turn, last_seen_at=session.last_seen_at,
        abandoned={**state.abandoned, **left},
    )  # fmt: skip


def _shows_answer(session: Session, before: Session, request: Request) -> bool:
    """Does the request show an answer the session got since `before`, in any form?"""
    made = [i for e in session.head if e.produced and e.key not in before.keys for i in e.message.items]
    prints, ids = {i.print for i in made}, {value for i in made for value in i.ids}
    if any(i.print in prints or not ids.isdisjoint(i.ids) for i in items_of(request.messages)):
        return True
    asked = [e for e in session.head if not e.produced or e.key in before.keys]
    if not asked:
        return False
    held, last = {e.message.print for e in asked}, asked[-1].message.print
    behind = pairwise(spoken(request.messages))
    return any(a.print == last and b.role == "assistant" and b.print not in held for a, b in behind)


def _end_of(session: Session, before: Session) -> Entry:
    """The last message of `before`, as the client shows it by now."""
    last = before.head[-1]
    return next((e for e in reversed(session.head) if e.key == last.key), last)
