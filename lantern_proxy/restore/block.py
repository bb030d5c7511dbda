"""Renders a block: what fits into the budget of what was picked for it."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy import pack, trust
from lantern_proxy.restore.ask import Ask
from lantern_proxy.turn import BlockKind, Placed


class Picked(Struct, frozen=True):
    """What a block is made of, best first."""

    kind: BlockKind
    choices: Sequence[pack.Choice]
    totals: Mapping[int, float]
    """Passage id -> score of the passage."""
    signals: Mapping[int, Mapping[str, float]]
    """Passage id -> signal -> score of the passage in it."""
    considered: int
    """How many passages were looked at."""


def fit(picked: Picked, ask: Ask, untrusted: trust.Policy) -> tuple[str, tuple[Placed, ...]]:
    """The text of the block and the passages in it, as many of `picked` as fit into the budget; "" and () for none.

    untrusted: restore.untrusted
    """
    marked = [replace(choice, passage=trust.marked(choice.passage, untrusted)) for choice in picked.choices]
    text, kept = pack.fit(marked, ask.budget_chars, ask.session)
    for choice in picked.choices[len(kept) :]:
        ask.passed.add(choice.passage, "budget")
    placed = (
        Placed(
            passage=choice.passage,
            text=choice.text,
            rank=rank,
            score=round(picked.totals[choice.passage.id], 6),
            signals={name: round(value, 6) for name, value in picked.signals[choice.passage.id].items()},
        )
        for rank, choice in enumerate(kept, start=1)
    )
    return text, tuple(placed)
