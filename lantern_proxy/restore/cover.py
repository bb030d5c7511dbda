"""Which lost sentences to restore when no question is known. Pure.

The value of a set of parts (restore/parts.py) is, summed over terms, the most that one part contributes to each. That
value is monotone and submodular (facility location).
"""

import heapq
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from lantern_proxy.restore.lines import is_filler
from lantern_proxy.restore.parts import (
    EXCLUDED_SORTS,
    GROUP_CHARS,
    LOOK_EVERY,
    UNIQUE_SHARE,
    Candidate,
    Part,
    unscored_part,
)
from lantern_proxy.restore.present import never
from lantern_proxy.turn import CLIENT

ECHO = 0.35
"""A part is an echo of others when less than this share of its worth is new."""
LEAST_GAIN: Mapping[str, float] = {"assistant": 8.0, "tool": 4.0, CLIENT: 4.0}
"""Speaker -> gain up to which a part is left out: a sentence without a name, a number or a rare word adds no more."""
LEAST_CHARS = 30
"""A block with less room than this counts as full."""

Cost = Callable[[Part, AbstractSet[str]], int]
"""(part, headers already open) -> characters that it adds to the block; fewer if its headers are open already."""


class Chosen(Struct, frozen=True):
    """A part and its gain when it was selected."""

    part: Part
    gain: float


class Room:
    """The characters still free in a block, given the parts in it."""

    def __init__(self, chars: int, cost: Cost, chosen: Iterable[Chosen] = ()) -> None:
        self.chars, self._cost, self._opened = chars, cost, set[str]()
        for each in chosen:
            self._take(each.part, cost(each.part, self._opened))

    def put(self, part: Part) -> bool:
        """Add a part; False if there is no room for it."""
        chars = self._cost(part, self._opened)
        if chars > self.chars:
            return False
        self._take(part, chars)
        return True

    def _take(self, part: Part, chars: int) -> None:
        self.chars -= chars
        self._opened |= part.opens


def value(chosen: Iterable[Part]) -> float:
    """The worth of a set of parts: for every term the most that one of them contributes."""
    best: dict[str, float] = {}
    for part in chosen:
        for key, each in part.worth.items():
            best[key] = max(best.get(key, 0.0), each)
    return sum(best.values())


def marginal_gain(part: Part, best: Mapping[str, float]) -> float:
    """What a part would add to the selected ones. best: term -> the most that a selected part contributes"""
    return sum([each - had for term, each in part.worth.items() if each > (had := best.get(term, 0.0))])


def is_negligible(part: Part, gain: float) -> bool:
    """Is `gain` too small for a part of this speaker to be selected? See LEAST_GAIN."""
    return gain <= LEAST_GAIN.get(part.speaker, 0.0) and not part.has_specifics


def is_echo(part: Part, known: Container[str]) -> bool:
    """Is less than the share ECHO of a part's worth in terms that are not `known`? A rule is never an echo."""
    new = sum([each for term, each in part.worth.items() if term not in known and term[0] != "@"])
    return not part.rule and new < ECHO * part.total * (1 - UNIQUE_SHARE)


def is_echo_of_one(part: Part, chosen: Iterable[Part]) -> bool:
    """Is a part an echo of a single one of `chosen`? If its words are spread over several parts, which tell other
    things about the same people and days, it is no echo."""
    return any(is_echo(part, each.worth) for each in chosen if each.speaker == "user" or not part.said_to_agent)


def cover(
    offered: Sequence[Part],
    cost: Cost,
    room_chars: int,
    *,
    power: float,
    shares: Mapping[str, float],
    late: Callable[[], bool] = never,
) -> list[Chosen]:
    """Select parts until `room_chars` are used, first selected first.

    power:  greedy by gain per character^power; 1 is tried as well, and the better set kept
    shares: speaker -> most characters that what it said may take; others are free
    late:   called now and then; once it returns True, the best set so far is taken

    Guarantee: with additive costs, no shares and no echoes, the value is at least (1 - 1/e) / 2 = .316 of the best that
    fits, since it is at least the better of the greedy set by gain per character and the best single part (Leskovec et
    al. 2007, "Cost-effective outbreak detection in networks", theorem 2; lazily evaluated after Minoux 1978). Shares
    and the echo rule remove parts from the choice; the bound then holds for the remaining ones.
    """
    enough = [part for part in offered if not is_negligible(part, part.total)]  # gains only fall
    sets = [_greedy(enough, cost, room_chars, power, shares, late)]
    if power != 1.0 and not late():
        sets.append(_greedy(enough, cost, room_chars, 1.0, shares, late))
    for single in sorted(offered, key=lambda part: -part.total):
        if cost(single, frozenset()) <= min(room_chars, shares.get(single.speaker, room_chars)):
            sets.append([Chosen(single, single.total)])
            break
    return max(sets, key=lambda chosen: value(each.part for each in chosen))


def complete_messages(
    chosen: Sequence[Chosen], candidates: Sequence[Candidate], cost: Cost, room_chars: int
) -> list[Chosen]:
    """`chosen`, and the rest of each short user message of which a part was selected, as far as there is room: half of
    "British spelling. Active voice." would be half of the wish, however little two words say by themselves."""
    room, taken = Room(room_chars, cost, chosen), dict[int, list[Part]]()
    for each in chosen:
        taken.setdefault(each.part.candidate, []).append(each.part)
    found = [*chosen]
    for c, some in taken.items():
        candidate, first = candidates[c], some[0]
        if first.speaker != "user" or len(candidate.passage.text) > GROUP_CHARS["user"]:
            continue
        chosen_lines = {i for part in some for i in part.lines}
        lines = candidate.lines
        rest = [
            i
            for i in candidate.lost
            if i not in chosen_lines and lines[i].sort not in EXCLUDED_SORTS and not is_filler(lines[i], first.speaker)
        ]
        part = unscored_part(c, rest, candidate.passage)
        if rest and room.put(part):
            found.append(Chosen(part, 0.0))
    return found


class _Selected:
    """The parts that are selected, and what they hold: by it, further parts are repetitions."""

    def __init__(self) -> None:
        self.chosen: list[Chosen] = []
        self.best: dict[str, float] = {}
        """Term -> the most that one of the parts contributes."""
        self._user_terms = set[str]()

    def repeats(self, part: Part) -> bool:
        """Is `part` an echo of what is selected? What a user says to an assistant must be one of a single part, too."""
        said = self._user_terms if part.said_to_agent else self.best
        if not is_echo(part, said):
            return False
        return not part.said_to_assistant or is_echo_of_one(part, (each.part for each in self.chosen))

    def add(self, part: Part, gain: float) -> None:
        self.chosen.append(Chosen(part, gain))
        for key, each in part.worth.items():
            self.best[key] = max(self.best.get(key, 0.0), each)
        if part.speaker == "user":
            self._user_terms.update(part.worth)


def _greedy(
    offered: Sequence[Part], cost: Cost, room_chars: int, power: float, shares: Mapping[str, float],
    late: Callable[[], bool],
) -> list[Chosen]:  # fmt: skip
    """Lazy greedy: since gains only fall, a part whose previous density still beats all others is the best."""
    selected, opened, left = _Selected(), set[str](), dict(shares)
    heap = [(-part.total / max(1, cost(part, part.opens)) ** power, n) for n, part in enumerate(offered)]
    heapq.heapify(heap)
    looked_at = 0
    while heap and room_chars >= LEAST_CHARS:
        looked_at += 1
        if looked_at % LOOK_EVERY == 0 and late():
            break
        _, n = heapq.heappop(heap)
        part = offered[n]
        chars = cost(part, opened)
        if chars > min(room_chars, left.get(part.speaker, room_chars)):
            continue
        gain = marginal_gain(part, selected.best)
        if is_negligible(part, gain) or selected.repeats(part):
            continue
        density = gain / max(1, chars) ** power
        if heap and density < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-density, n))
            continue
        selected.add(part, gain)
        room_chars -= chars
        opened |= part.opens
        if part.speaker in left:
            left[part.speaker] -= chars
    return selected.chosen
