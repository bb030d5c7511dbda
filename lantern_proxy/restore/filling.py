"""Fills the room that is left in a loss block."""

import re
from collections.abc import Callable, Sequence

from lantern_proxy.analyze import ends_asking
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.cover import LEAST_CHARS, Chosen, Room
from lantern_proxy.restore.lines import Line, is_filler, takes_back
from lantern_proxy.restore.parts import EXCLUDED_SORTS, GROUP_CHARS, Candidate, Part, is_agent_session, unscored_part
from lantern_proxy.restore.present import Present, never
from lantern_proxy.restore.salience import SAYS, content
from lantern_proxy.restore.scope import Scope
from lantern_proxy.restore.weak import echoes

NUMBER = re.compile(r"\d+(?:[.,:]\d+)+|\d\d+")


def fill_room(
    candidates: Sequence[Candidate], chosen: Sequence[Chosen], room: Room, present: Present, scope: Scope, ask: Ask
) -> list[Chosen]:
    """`chosen`, and what fills the remaining room, the newest first:

    1. what else users said,
    2. sentences of answers with a number that occurs nowhere else; of a short answer all of them,
    3. short answers that do not only repeat a message of a block.

    Greetings, agreement and mere questions are left out.
    """
    lost = [c.lines[i] for c in candidates for i in c.lost]
    held = present.specific_terms({term for line in lost for term in (*line.keys, *_numbers(line))})
    known = {number for term in held for number in NUMBER.findall(term)}
    filling = _Filling(candidates, chosen, room, known, scope, scope.rows(sorted(ask.shown)))
    filling.put("user")
    if not is_agent_session([candidate.passage for candidate in candidates]):
        filling.put("assistant", filling.has_number, ask.late)
        filling.put("assistant", filling.says_more, ask.late)
    return filling.chosen


class _Filling:
    """Fills the remaining room of a block."""

    def __init__(
        self, candidates: Sequence[Candidate], chosen: Sequence[Chosen], room: Room, known: set[str], scope: Scope,
        in_blocks: Sequence[int],
    ) -> None:  # fmt: skip
        """room:      of the block, without `chosen`
        known:     numbers in the request
        in_blocks: rows of passages in other blocks of the request
        """
        self._candidates, self._room, self._scope, self._in_blocks = candidates, room, scope, in_blocks
        self.chosen = [*chosen]
        self._begun = {each.part.candidate for each in chosen}
        self._told = {(each.part.candidate, i) for each in chosen for i in each.part.lines}
        """(candidate, line) of everything in the block."""
        self._known = known.union(*(_numbers(candidates[c].lines[i]) for c, i in self._told))
        """Numbers in the block or in the request."""
        self._newest = sorted(range(len(candidates)), key=lambda c: -candidates[c].passage.position)

    def put(
        self, speaker: str, is_new: Callable[[int, Sequence[int]], bool] | None = None, late: Callable[[], bool] = never
    ) -> None:
        """Add what `speaker` said and somebody may miss, the newest first, while there is room.

        is_new: (candidate, lines) -> do these lines say something new? Asked for short messages of which nothing is in
                the block yet; otherwise the rest goes in. Of long messages only lines with new numbers are added.
        """
        for c in self._newest:
            candidate = self._candidates[c]
            passage = candidate.passage
            if passage.speaker != speaker or passage.tools:
                continue
            if self._room.chars < LEAST_CHARS or late():
                return
            left = (i for i in candidate.lost if (c, i) not in self._told)
            rest = [i for i in left if _is_missed(candidate.lines[i], speaker)]
            if is_new and len(passage.text) > GROUP_CHARS["user"]:
                rest = [i for i in rest if self.has_number(c, (i,))]
            elif is_new and c not in self._begun and not is_new(c, rest):
                continue
            self._put(unscored_part(c, rest, passage))

    def _put(self, part: Part) -> None:
        if not part.lines or not self._room.put(part):
            return
        self.chosen.append(Chosen(part, 0.0))
        lines = self._candidates[part.candidate].lines
        self._known |= {number for i in part.lines for number in _numbers(lines[i])}
        self._told.update((part.candidate, i) for i in part.lines)

    def has_number(self, c: int, some: Sequence[int]) -> bool:
        """Does one of these lines have a number that occurs nowhere else?"""
        return any(not _numbers(self._candidates[c].lines[i]) <= self._known for i in some)

    def says_more(self, c: int, some: Sequence[int]) -> bool:
        """Do these lines have content, and not only repeat a message of a block?"""
        said = [self._candidates[c].lines[i] for i in some]
        rows = {self._candidates[each].row for each, _ in self._told}.union(self._in_blocks)
        shown = [self._scope.passages[row].words for row in rows]
        return len(content(said)[0]) >= SAYS and not all(echoes(line, shown, self._scope) for line in said)


def _numbers(line: Line) -> set[str]:
    """The digits in a line's specific terms: "55192" of "CS-55192", "88" of "88 mg", since another text may write the
    rest differently. Single digits do not count."""
    return {number for key in line.keys for number in NUMBER.findall(key)}


def _is_missed(line: Line, speaker: str) -> bool:
    """Would somebody miss this line: does it do more than greet, agree or ask?"""
    told = line.digits or bool(line.words) or speaker == "assistant"  # "No, you don't." at the head of an answer
    told = told or (" " in line.flat and takes_back(line.flat))  # "no, C"
    said = told and line.sort not in EXCLUDED_SORTS and line.sort != "code"
    return said and not is_filler(line, speaker) and not ends_asking(line.flat)
