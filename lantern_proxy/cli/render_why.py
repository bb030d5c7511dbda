"""The output of `lantern why`: each restored passage with its evidence, and what was left out."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from rich.text import Text

from lantern_proxy.cli.frame import clean
from lantern_proxy.cli.render import console, counted, short, times, user_question, when

if TYPE_CHECKING:
    from lantern_proxy.archive import Why
    from lantern_proxy.turn import PassedOver, Placed, Preview, Restored

_BLOCKS = {"loss": "what the compaction lost", "question": "what the question needs"}


def why(found: "Why") -> None:
    """Print what was restored into a past request, and why."""
    out, request = console(), found.request
    head = f"request {request.id}  {when(request.at)}  {request.event}  {request.model}"
    out.print(Text(clean(head), style="bold"), soft_wrap=True)
    gone = f"  session {request.session}; {_loss(request.gone)}"
    out.print(Text(clean(gone)), soft_wrap=True)
    out.print(Text(f"  asked: {short(user_question(request.query), 300)}"), soft_wrap=True)
    cost = f"{request.chars:,} characters, {request.ms:.1f} ms in Lantern"
    out.print(Text(f"  {counted(request.restored, 'passage')} in its blocks, {cost}"))
    for reason in request.degraded:
        out.print(Text(f"  degraded: {clean(reason)}", style="yellow"))
    used = {mark.passage: mark for mark in found.marks}
    _blocks([block.restored for block in found.blocks], found.passed, used)
    if not found.blocks:
        replayed = request.restored and "; it carried those of earlier requests"
        out.print(Text(f"\nno block was added{replayed or ''}"))


def preview(found: "Preview") -> None:
    """Print what would be restored into a request."""
    out = console()
    if not found.session:
        out.print("this request fits no archived session; nothing would be restored")
        return
    seen = f"would be seen as {found.event} of session {found.session}; {_loss(found.gone)}"
    out.print(Text(clean(seen), style="bold"), soft_wrap=True)
    for note in found.notes:
        out.print(Text(f"  degraded: {clean(note)}", style="yellow"))
    _blocks(found.blocks, found.passed, {})
    if not found.blocks:
        out.print("\nit would get no block")
    for refused in found.refused:
        out.print(Text(f"  passage {refused['passage']} is kept out: {refused['why']}", style="yellow"))
        out.print(Text(f"       {short(refused['text'], 200)}"), soft_wrap=True)


def _loss(gone: int) -> str:
    if not gone:
        return "nothing was dropped since the previous request"
    return f"{counted(gone, 'message')} of it {'is' if gone == 1 else 'are'} not in the request"


def _blocks(found: Sequence["Restored"], passed: Sequence["PassedOver"], used: Mapping[int, Any]) -> None:
    """Print each block and what was left out of it; then what was left out of a block that was not made."""
    taken = {one.passage.id for restored in found for one in restored.placed}
    for kind in _BLOCKS:
        placed = [restored for restored in found if restored.kind == kind]
        left_out = [one for one in passed if one.kind == kind]
        places = _places([*(one for restored in placed for one in restored.placed), *left_out])
        for restored in placed:
            _block(restored, left_out, used, places)
        if left_out:
            _left_out(kind, left_out, places, taken, alone=not placed)


Places = Mapping[tuple[int, str], int]
"""(passage, signal) -> its rank in that signal among all shown passages, from 1."""


def _places(shown: Iterable["Placed | PassedOver"]) -> Places:
    scores: dict[str, dict[int, float]] = {}
    for one in shown:
        for signal, score in one.signals.items():
            scores.setdefault(signal, {})[one.passage.id] = score
    ranked = {signal: sorted(scored, key=scored.__getitem__, reverse=True) for signal, scored in scores.items()}
    return {(id_, signal): place for signal, ids in ranked.items() for place, id_ in enumerate(ids, start=1)}


def _block(
    restored: "Restored", left_out: Sequence["PassedOver"], used: Mapping[int, Any], places: Places
) -> None:  # fmt: skip
    """Print a block with its passages and their evidence. used: passage -> what became of it"""
    out = console()
    head = (
        f"\n{restored.kind} block: {_BLOCKS[restored.kind]}; {len(restored.placed)} of {restored.considered} passages"
    )
    out.print(Text(f"{head}, {len(restored.text):,} characters, {restored.ms:.1f} ms", style="bold cyan"))
    for placed in restored.placed:
        out.print(Text(f"  {placed.rank:>3}. {_evidence(placed, places)}; {_usage(placed)}"), soft_wrap=True)
        out.print(Text(f"       {short(placed.text, 300)}"), soft_wrap=True)
        if restored.kind == "loss" and not placed.score:
            out.print(Text("       comes with another passage, or fills the room that was left"), soft_wrap=True)
        behind = [one for one in left_out if one.reason in ("similar", "echo") and one.other == placed.passage.id]
        if behind:
            ids = ", ".join(str(one.passage.id) for one in behind)
            out.print(Text(f"       taken instead of what says much the same: passage {ids}"), soft_wrap=True)
        mark = used.get(placed.passage.id)
        if mark and (mark.used is not None or mark.verdict):
            known = {True: "used in the answer", False: "not used in the answer", None: ""}[mark.used]
            out.print(Text("       " + "; ".join(filter(None, (known, mark.verdict))), style="green"))


def _left_out(
    kind: str, passed: Sequence["PassedOver"], places: Places, taken: Set[int], *, alone: bool
) -> None:  # fmt: skip
    """taken: the passages in one of the blocks"""
    out = console()
    head = f"no {kind} block; the best that it could have held" if alone else f"left out of the {kind} block, the best"
    out.print(Text(f"\n{head}", style="bold cyan"))
    for one in passed:
        out.print(Text(f"  {one.rank:>3}. {_evidence(one, places)}"), soft_wrap=True)
        why = one.why + ("; the other block has it" if one.passage.id in taken else "")
        out.print(Text(f"       {why}", style="yellow"), soft_wrap=True)
        out.print(Text(f"       {short(one.passage.text, 160)}"), soft_wrap=True)


def _evidence(one: "Placed | PassedOver", places: Places) -> str:
    passage = one.passage
    strongest = sorted((pair for pair in one.signals.items() if pair[1]), key=lambda pair: -pair[1])
    signals = ", ".join(f"{signal} {score:.3g} #{places[passage.id, signal]}" for signal, score in strongest)
    origin = f"passage {passage.id}, turn {passage.turn}, {clean(passage.speaker)}, {when(passage.created_at)}"
    return f"{origin}: score {one.score:.3g}" + (f" ({signals})" if signals else "")


def _usage(placed: "Placed") -> str:
    passage = placed.passage
    return f"confidence {passage.confidence:.2f}, success {passage.success:.2f}, restored {times(passage.accesses)}"
