"""What a loss block may be made of: parts of lost passages, lines that go in together. Pure.

A *part* is a few lost sentences of one passage that go in together: all of a short message that say something, or one
of a long one. Its likelihood of being asked for (restore/salience.py) belongs in part to itself and in part to the
specific terms and words that it would bring back, by their weight.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from math import fsum
from typing import NamedTuple

from lantern_proxy.analyze import ends_asking
from lantern_proxy.pack import day, entry_of
from lantern_proxy.restore.lines import FILLER, Line, heads, is_filler, takes_back
from lantern_proxy.restore.present import Present, never
from lantern_proxy.restore.salience import Around, content, likelihood, says_something
from lantern_proxy.signals import name_before, named
from lantern_proxy.turn import Passage

GROUP_CHARS: Mapping[str, int] = {"user": 600, "assistant": 160}
"""Speaker -> characters up to which what is lost of a message goes in as one part; of a longer message, and of results
of tools, each sentence is a part of its own."""
FRAGMENT_CHARS: Mapping[str, int] = {"assistant": 200}
FRAGMENT_OTHERS, FRAGMENT_POWER = 50, 0.7
"""A part of fewer characters than this (FRAGMENT_OTHERS for other speakers) is a fragment, which says little without
what stood around it: its worth is multiplied by (its characters / these) ^ FRAGMENT_POWER."""
UNASKED = frozenset({"greeting", "printed"})
"""Sorts of sentences that a loss block has no room for."""
LOOK_EVERY = 16
"""Candidates or parts between two looks at the clock: well under a millisecond."""
AGENTS = 5
"""An agent is at work where at least one of so many passages is a result or a call of a tool."""
OWN_NAME = 0.25
"""Share of the weight of a named number ("corp 250") that only the same name with the same number brings back; the rest
is the number's own, since "corp is 250" and "250 requests" tell the same."""
ITSELF = 0.7
"""Share of a part's likelihood that no other part can bring back: people ask for each of two sentences, even where
these share their words."""
WORD_WEIGHT = 0.4
"""A content word of the highest idf, against 1 for a name and 2 for a named number."""


class Candidate(NamedTuple):
    """A passage and those of its lines that the request lacks."""

    passage: Passage
    lines: tuple[Line, ...]
    lost: tuple[int, ...]
    row: int = -1
    """Of the passage in its scope."""
    stating: tuple[int, ...] = ()
    """Lines that a later statement may replace, see superseded.stating()."""
    around: Around = Around(answers=False)
    within: frozenset[str] = frozenset()
    """Words of what the passage belongs to, if it is a short message: that goes in with it, see restore/context.py."""


class Part(NamedTuple):
    """Lines of one candidate that go in together."""

    candidate: int
    lines: tuple[int, ...]
    speaker: str
    worth: Mapping[str, float]
    """What is brought back -> what that is worth, > 0. A specific term has "=" in front, a number "#", a word nothing,
    and "@" stands for the part itself."""
    alone: float
    """What the part is worth when nothing else is chosen: the sum of `worth`."""
    opens: frozenset[str] = frozenset()
    """What costs characters only once, however many parts share it: the entry of the message, and its day."""
    rule: bool = False
    """The part lays down a rule, or is a short message: it is no echo of others that use the same words."""
    tells: bool = False
    """The part has a number or a name that the request lacks. False where an agent is at work: it names whatever it
    looks at next."""
    told: bool = False
    """A user tells it an assistant: only what one other part says alone makes it an echo."""
    wish: bool = False
    """A user says this to an agent at work. The agent's reports use the same words, so only words of users make it an
    echo."""


def opens_of(passage: Passage) -> frozenset[str]:
    """For Part.opens: the entry of a passage's message in the block, and its day."""
    return frozenset((entry_of(passage), day(passage)))


def unweighed(candidate: int, lines: Iterable[int], passage: Passage) -> Part:
    """A part without a worth of its own: lines that go in with others, or where room is left."""
    return Part(candidate, tuple(lines), passage.speaker, {}, 0.0, opens_of(passage))


_DIGIT = re.compile(r"\d")
_KIND = re.compile(r"(?P<digit>\d)|(?P<sign>[_/@.=~$-])")


@lru_cache(maxsize=1 << 14)
def term_weight(term_key: str) -> float:
    """How much a lost specific term would be missed: values most, then identifiers and paths, then names."""
    shape = _KIND.search(term_key)
    if shape is None:
        return 1.0
    return (2.0 if " " in term_key else 1.6) if _DIGIT.search(term_key) else 1.5


def is_agents(some: Sequence[Passage]) -> bool:
    """Was an agent at work when these passages were said? Then many of them are results or calls of tools."""
    return len(some) <= AGENTS * sum([passage.speaker == "tool" or bool(passage.tools) for passage in some])


def among_people(some: Sequence[Passage]) -> bool:
    """Do people talk to each other in these passages? Then each has their name in front of what they say."""
    said = [each for each in some if each.speaker == "user"]
    return named([each.text[: name_before(each.text)] for each in said], [each.speaker for each in said])


def parts_of(
    candidates: Sequence[Candidate],
    present: Present,
    idf: Callable[[str], float],
    prior: Sequence[float],
    late: Callable[[], bool] = never,
    *,
    people: bool,
    unasked: Container[str] = UNASKED,
    whole: bool = True,
) -> list[Part]:
    """The parts that could go in.

    idf:     index term -> rarity in (0, 1]
    prior:   for each candidate a factor of what it is worth (confidence, pins)
    late:    asked now and then; once it says so, only the candidates that were looked at by then have parts
    people:  they talk to each other in the candidates, see among_people()
    unasked: sorts of sentences that are left out
    whole:   all that is told of short messages to an assistant goes in together
    """
    within = frozenset().union(*[candidate.within for candidate in candidates])
    weights = _Weights(present, idf, [candidate.lines[i] for candidate in candidates for i in candidate.lost], within)
    found: list[Part] = []
    agent = is_agents([candidate.passage for candidate in candidates])
    for c, candidate in enumerate(candidates):
        if c % LOOK_EVERY == LOOK_EVERY - 1 and late():
            break
        opens, speaker = opens_of(candidate.passage), candidate.passage.speaker
        told, wish = speaker == "user" and not people, speaker == "user" and agent
        for group in _groups(candidate, unasked, whole=whole and not people):
            worth = _worth_of(c, candidate, group, prior[c], weights)
            if worth:
                rule = bool(candidate.within) or any(candidate.lines[i].sort == "rule" for i in group)
                tells = not agent and any(key[0] in "=#" for key in worth)
                found.append(Part(c, group, speaker, worth, sum(worth.values()), opens, rule, tells, told, wish))
    return found


def _worth_of(
    c: int, candidate: Candidate, group: tuple[int, ...], prior: float, weights: "_Weights"
) -> dict[str, float]:
    """Part.worth of these lines of candidate number `c`; empty when they bring back nothing."""
    said = [candidate.lines[i] for i in group]
    terms, within = weights.lost_terms.__getitem__, candidate.within
    value = prior * likelihood(said, terms, weights.idf, candidate.around, within)
    value *= 1.0 if within else _wholeness(said, candidate.passage.speaker)
    brought = _worth(said, value, weights)
    if brought:
        brought[_itself(c, group)] = value * ITSELF
    return {key: brought[key] for key in sorted(brought)}


def _wholeness(said: Sequence[Line], speaker: str) -> float:
    chars = sum([line.end - line.start for line in said])
    return float(min(1.0, chars / FRAGMENT_CHARS.get(speaker, FRAGMENT_OTHERS)) ** FRAGMENT_POWER)


def _groups(candidate: Candidate, unasked: Container[str], *, whole: bool) -> list[tuple[int, ...]]:
    """The lost lines that say something, together when they are short.

    whole: of a short message of a user all that is told goes in with them
    """
    lines, speaker = candidate.lines, candidate.passage.speaker
    told = [i for i in candidate.lost if lines[i].sort not in unasked]
    telling = [i for i in told if lines[i].salience > FILLER or lines[i].keys]
    says = [i for i in telling if lines[i].sort == "rule" or says_something(lines[i])]
    says = telling if candidate.within else says
    if speaker == "user":
        if len(says) < len(telling):
            back = [i for i in telling if i - 1 in says and i not in says and takes_back(lines[i].flat)]
            says = sorted([*says, *back])
        if whole and says and len(candidate.passage.text) <= GROUP_CHARS["user"]:
            says = _with_the_rest(says, [i for i in told if not is_filler(lines[i], speaker)], lines)
    telling = says or telling
    alone = [(i,) for i in telling if lines[i].sort == "code"]
    said = [i for i in telling if lines[i].sort != "code"] if alone else telling
    chars = sum([lines[i].end - lines[i].start for i in said])
    if said and chars <= GROUP_CHARS.get(speaker, 0):
        return [tuple(said), *alone]
    over = {*heads(candidate.passage, lines)}
    return [*((i,) for i in said if i not in over), *alone]


def _with_the_rest(says: Sequence[int], told: Sequence[int], lines: Sequence[Line]) -> list[int]:
    """`says`, and what else is `told` in the same short message: "Ilse has mumps. She stays at home." misleads without
    its first half. Of what is asked there only what the next sentence answers: "Ilse? No, it was Jonas."."""
    found = {*says, *(i for i in told if not ends_asking(lines[i].flat))}
    return sorted(found.union(i for i in told if i + 1 in found))


def _worth(said: Sequence[Line], value: float, weights: "_Weights") -> dict[str, float]:
    """The `value` of some lines, dealt out to the specific terms, numbers and words that the request does not hold."""
    words, keys = content(said)
    full, held = weights.words, weights.held
    named: dict[str, float] = {}
    known: set[str] = set()
    for term in map(weights.terms.__getitem__, keys):
        named[term.name] = term.own
        if term.number:
            named[term.number] = max(named.get(term.number, 0.0), term.shared)
            if term.name in held:
                known.add(term.number)
    total = fsum([*map(full.__getitem__, words), *named.values()])  # the same in any order
    share = value * (1 - ITSELF) / total if total else 0.0
    worth = {word: share * full[word] for word in words - held}
    return worth | {name: share * each for name, each in named.items() if name not in held and name not in known}


def _itself(candidate: int, group: tuple[int, ...]) -> str:
    return f"@{candidate} {group[0]}"


def _number(term_key: str) -> str:
    """The number in a specific term, as "250" in "corp 250"; empty when there is none, or it has only one digit."""
    if " " not in term_key:
        return ""
    return next((word for word in term_key.split(" ") if len(word) > 1 and word.replace(".", "").isdigit()), "")


class _Term(NamedTuple):
    """A specific term as a part names it in `worth`, and the number in it, if there is one."""

    name: str
    own: float
    """What bringing back the term is worth, without the number's share."""
    number: str
    shared: float
    """What bringing back the number is worth, whatever name stands beside it."""


@lru_cache(maxsize=1 << 14)
def _term(key: str) -> _Term:
    number, weight = _number(key), term_weight(key)
    return _Term("=" + key, weight * (OWN_NAME if number else 1.0), number and "#" + number, weight * (1 - OWN_NAME))


class _Weights:
    """What the terms and words of some lines weigh, and which of them the request holds; each computed once."""

    def __init__(
        self, present: Present, idf: Callable[[str], float], lines: Sequence[Line], within: frozenset[str]
    ) -> None:
        words, keys = content(lines)
        rarities = {word: idf(word) for word in words | within}
        self.idf = rarities.__getitem__
        self.words = {word: WORD_WEIGHT * rarity for word, rarity in rarities.items()}
        held = present.specific_terms(keys)
        self.held = present.terms(words) | {"=" + key for key in held}
        """What the request holds of them: words, and terms with "=" in front."""
        self.terms = {key: _term(key) for key in keys}
        self.lost_terms = {key: 0.0 if key in held else term_weight(key) for key in keys}
        """Specific term -> its weight, 0 if the request holds it."""
