"""A session loaded from the archive into memory, after a restart."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, groupby, pairwise, takewhile

from msgspec.structs import replace

from lantern_proxy.history.forms import base_of, forms_with, system_text
from lantern_proxy.history.record import Entry, Form, Session, answers_of, before_answer, chain_of, items_of
from lantern_proxy.session.index import SessionIndex
from lantern_proxy.session.indexing import remember
from lantern_proxy.turn import SYSTEM, Filed, Head, Item, Request, message


def recall(index: SessionIndex, row: Session, filed: Sequence[Filed], head: Head, ids: Iterable[str] = ()) -> Session:
    """Load a session as the archive has it, and index it. `row` names it; the rest is derived from its messages.

    ids: what the upstream called its answers, and other names of the session

    The times of filing tell which messages the upstream produced and which opened the session: those of one request, or
    of one answer, were filed at one time. Imported messages have a time each, so there every assistant message counts
    as produced, and what preceded the first one as the opening.
    """
    names = frozenset(ids) - {row.id, row.family}
    groups = _at_once(filed)
    entries = {f.key: Entry(f.key, f.message, _is_answer(some), names=f.names) for some in groups for f in some}
    whole = _with_all(row, filed, entries, head)
    whole = replace(whole, opening=_opening(groups, head))
    if not (names or whole.system or whole.tools):
        called = frozenset(call.name for f in filed for call in f.message.calls)
        whole = replace(whole, tools=called, imported=True)
    own = {value for f in filed for value in f.message.ids}
    answers = {value for f in filed for value in f.names}  # also one that its client took for the session's id
    remember(index, whole, ids=(names - own) | answers)  # all it ever held, so that every text of it is found
    forks = tuple(_with_head(_as_left(whole, filed, entries, branch), entries, branch) for branch in head.forks)
    session = replace(_with_head(whole, entries, head), forks=forks)
    remember(index, session, asked=chain_of(before_answer(session)))
    return session


def _with_all(row: Session, filed: Sequence[Filed], entries: Mapping[str, Entry], head: Head) -> Session:
    """The session with everything it ever held as its head."""
    ordered = sorted(filed, key=lambda f: f.position)
    request = Request(api=row.api, model="", messages=tuple(f.message for f in ordered))
    held = tuple(entries.values())
    abandoned = _abandoned(entries, head)
    return replace(
        row, head=held, chain=chain_of(held), keys=frozenset(entries), system=system_text(request),
        system_keys=tuple((f.message.print, f.key) for f in filed if f.message.role in SYSTEM),
        position=max((f.position for f in filed), default=-1) + 1, turn=max((f.turn for f in filed), default=0),
        abandoned=abandoned, person=head.person,
        before=answers_of(entries[f.key] for f in ordered if f.key not in abandoned),
        lost=_lacks_some(filed, head.keys) if head.altered is None else head.lost,
    )  # fmt: skip


def _as_left(whole: Session, filed: Sequence[Filed], entries: Mapping[str, Entry], branch: Head) -> Session:
    """The session with everything it held when its client left a branch."""
    until = [f for f in filed if f.position < branch.position]
    return replace(
        whole, keys=frozenset(f.key for f in until), abandoned=_abandoned(entries, branch),
        before=answers_of(entries[f.key] for f in until if f.key not in branch.abandoned), lost=branch.lost,
        person=branch.person, position=branch.position,
    )  # fmt: skip


def _abandoned(entries: Mapping[str, Entry], head: Head) -> Mapping[str, bytes]:
    return {key: entries[key].message.print for key in head.abandoned if key in entries}


def _with_head(whole: Session, entries: Mapping[str, Entry], head: Head) -> Session:
    """The session with the head that its client shows."""
    altered = head.altered or {}
    shown = tuple(_as_shown(entries[key], altered.get(key)) for key in head.keys if key in entries)
    answered = bool(shown and shown[-1].produced)
    last = Request(api=whole.api, model="", messages=tuple(e.message for e in shown))
    system = base_of(whole, last)  # it may have been handed over since it began
    return replace(
        whole, head=shown, chain=chain_of(shown), answered=answered, recalled=head.altered is None,
        system=system, forms=forms_with(whole, Form(system, whole.tools)),
    )  # fmt: skip


def _opening(groups: Iterable[Sequence[Filed]], head: Head) -> frozenset[bytes]:
    """Fingerprints of what was said before the first answer, as filed and as its client shows it."""
    opened = list(chain.from_iterable(takewhile(lambda some: not _is_answer(some), groups)))
    altered = head.altered or {}
    as_filed = {i.print for i in items_of(f.message for f in opened)}
    return frozenset(as_filed.union(*(altered.get(f.key, ()) for f in opened)))


def _at_once(filed: Sequence[Filed]) -> list[tuple[Filed, ...]]:
    """The messages that were filed together, by request or answer, in order of position.

    Requests hardly ever end in an answer, except those that have something made of what was said, above all side calls.
    So a group that ends in one is a request if an answer follows; otherwise it was imported, as were messages without a
    time, and each of those is a group of its own. A request may seem to end in a call if its client looked something up
    again and the result was filed already.
    """
    groups = [tuple(some) for _, some in groupby(filed, key=lambda f: f.created_at)]
    found = list[tuple[Filed, ...]]()
    for some, then in pairwise([*groups, ()]):
        last = some[-1].message
        is_read = (some[0].side or bool(then and _is_answer(then))) and not _is_answer(some)
        apart = (last.role == "assistant" and not last.calls and not is_read) or not some[0].created_at
        found += [(f,) for f in some] if apart else [some]
    return found


def _is_answer(filed: Iterable[Filed]) -> bool:
    """Did an upstream produce this group? An example, a greeting or an answer from elsewhere was filed together with
    messages of others."""
    return all(f.message.role == "assistant" for f in filed)


def _lacks_some(filed: Iterable[Filed], shown: Collection[str]) -> bool:
    return any(f.key not in shown and f.message.role not in SYSTEM for f in filed)


def _as_shown(entry: Entry, prints: Sequence[bytes] | None) -> Entry:
    """The entry with the fingerprints of what its client shows for it. Of its words it has those that were filed, and
    none that its client added since."""
    if prints is None:
        return entry
    items, others = [], iter([p for p in prints if all(p != i.print for i in entry.message.items)])
    for i in entry.message.items:
        print = i.print if i.kind == "reasoning" or i.print in prints else next(others, None)
        if print is not None:
            items.append(replace(i, print=print))
    items += [Item(entry.message.role, "text", "", "", (), print) for print in others]
    shown = message(entry.message.role, items, entry.message.raw)
    return replace(entry, message=shown, altered=True)
