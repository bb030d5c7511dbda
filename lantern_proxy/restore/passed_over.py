"""Records what a restore leaves out, and why; the best of it is kept for `lantern why`. No I/O, no clock."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from lantern_proxy.pack import Choice
from lantern_proxy.restore.cover import Chosen, is_echo, is_echo_of_one, is_negligible, marginal_gain
from lantern_proxy.restore.parts import Candidate, Part
from lantern_proxy.turn import BlockKind, Passage, PassedOver, Reason, Restored, why_not

MOST = 20
"""Most passages reported for one block."""
MOST_REFUSED = 5
"""How many of these may be passages that a rule or a person excludes, whatever their score."""
LOOK_AT = 60
"""The reason is determined for this many of a loss block's best candidates."""

_REFUSED: frozenset[Reason] = frozenset({"verdict", "untrusted", "superseded", "confidence", "left"})


class _One(Struct, eq=False):
    passage: Passage
    reason: Reason
    other: int
    value: float
    row: int
    score: float = 0.0
    signals: Mapping[str, float] = {}


class Passed:
    """Collects what one restore leaves out. The first reason given for a passage holds."""

    def __init__(self) -> None:
        self.told: tuple[PassedOver, ...] = ()
        """After finish(): the best MOST, by score."""
        self._held: dict[int, _One] = {}
        self._present = 0
        self._score: Callable[[int], float] | None = None
        self._signals: Callable[[int], Mapping[str, float]] | None = None

    def add(self, passage: Passage, reason: Reason, *, other: int = 0, value: float = 0.0, row: int = -1) -> None:
        """Record that a passage is left out. row: its row in the scope, for weigh(); -1 if it has none"""
        self._present += reason == "present" and row < 0
        if row >= 0 or reason != "present" or self._present <= MOST:
            self._held.setdefault(passage.id, _One(passage, reason, other, value, row))

    def all(self, candidates: Sequence[Candidate], reason: Reason, *, value: float = 0.0) -> None:
        """Record that all `candidates` are left out for one reason."""
        for candidate in candidates:
            self.add(candidate.passage, reason, value=value, row=candidate.row)

    def score(self, passage: Passage, signals: Mapping[str, float]) -> None:
        """Set the score of a passage without a row: the sum of its signals."""
        if passage.id in self._held:
            self._held[passage.id].score, self._held[passage.id].signals = sum(signals.values()), signals

    def weigh(self, score: Callable[[int], float], signals: Callable[[int], Mapping[str, float]]) -> None:
        """Set how a passage with a row is scored: row -> score, and row -> score in each signal."""
        self._score, self._signals = score, signals

    def finish(self, kind: BlockKind, restored: Restored | None) -> Restored | None:
        """Fill `told` with the best recorded passages that are not in `restored`; returns `restored`."""
        taken = {placed.passage.id for placed in restored.placed} if restored else set()
        held = [one for id_, one in self._held.items() if id_ not in taken]
        for one in held:
            if one.row >= 0 and self._score is not None:
                one.score = float(self._score(one.row))
        ranked = sorted(held, key=lambda one: -one.score)
        self.told = tuple(self._tell(one, kind, ranked.index(one) + 1) for one in _best(ranked))
        self._held, self._score, self._signals = {}, None, None
        return restored

    def _tell(self, one: _One, kind: BlockKind, rank: int) -> PassedOver:
        signals = self._signals(one.row) if one.row >= 0 and self._signals is not None else one.signals
        return PassedOver(
            kind=kind, passage=one.passage, reason=one.reason, other=one.other, value=round(one.value, 6), rank=rank,
            score=round(one.score, 6), signals={name: round(float(value), 6) for name, value in signals.items()},
            why=why_not(one.reason, one.other, one.value),
        )  # fmt: skip


def _best(ranked: Sequence[_One]) -> list[_One]:
    """The best MOST, in order, including some refused ones, whatever their score."""
    refused = [one for one in ranked if one.reason in _REFUSED][:MOST_REFUSED]
    others = [one for one in ranked if one not in refused][: MOST - len(refused)]
    return [one for one in ranked if one in refused or one in others]


def note_cover(
    passed: Passed, candidates: Sequence[Candidate], offered: Sequence[Part], chosen: Sequence[Chosen]
) -> None:
    """Record why a loss block's candidates were not selected: an echo of others, too little content, or no room."""
    taken = {each.part.candidate for each in chosen}
    alone: dict[int, list[Part]] = {}
    for part in offered:
        if part.candidate not in taken:
            alone.setdefault(part.candidate, []).append(part)
    worth = {c: sum(part.total for part in parts) for c, parts in alone.items()}
    by: dict[str, int] = {}
    by_users: dict[str, int] = {}
    best: dict[str, float] = {}
    for each in chosen:
        for term, value in each.part.worth.items():
            by.setdefault(term, each.part.candidate)
            if each.part.speaker == "user":
                by_users.setdefault(term, each.part.candidate)
            best[term] = max(best.get(term, 0.0), value)
    for c in sorted(worth, key=lambda c: -worth[c])[:LOOK_AT]:
        passage, other = candidates[c].passage, _said_by(alone[c], by, by_users, [each.part for each in chosen])
        if other is not None:
            passed.add(passage, "echo", other=candidates[other].passage.id)
        else:
            passed.add(
                passage,
                "filler" if all(is_negligible(part, marginal_gain(part, best)) for part in alone[c]) else "budget",
            )
        passed.score(passage, {"salience": worth[c]})
    for c, candidate in enumerate(candidates):
        if c not in taken and c not in alone:
            passed.add(candidate.passage, "filler")


def _said_by(
    parts: Sequence[Part], by: Mapping[str, int], by_users: Mapping[str, int], chosen: Sequence[Part]
) -> int | None:
    """The candidate that says most of what these parts say, if each of them is an echo; else None."""
    shares: dict[int, float] = {}
    for part in parts:
        said = by_users if part.said_to_agent else by
        if not is_echo(part, said) or (part.said_to_assistant and not is_echo_of_one(part, chosen)):
            return None
        for term, each in part.worth.items():
            if term in said:
                shares[said[term]] = shares.get(said[term], 0.0) + each
    return max(shares, key=lambda c: shares[c], default=None)


def note_greedy(
    passed: Passed,
    candidates: Sequence[Candidate],
    picked: Sequence[tuple[int, Choice]],
    displaced: Mapping[int, int],
) -> None:
    """Record which of a question block's candidates were not taken. displaced: as filled by pack.greedy()"""
    taken = {n for n, _ in picked}
    for n, candidate in enumerate(candidates):
        if n in displaced:
            passed.add(candidate.passage, "similar", other=candidates[displaced[n]].passage.id, row=candidate.row)
        elif n not in taken:
            passed.add(candidate.passage, "budget", row=candidate.row)
