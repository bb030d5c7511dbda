"""Cuts lost passages into parts, the units that a loss block is made of. Pure.

A *part* is a few lost sentences of one passage that are restored together: all sentences of a short message that have
content, or a single one of a long message. Its likelihood of being asked for (restore/salience.py) is divided between
the part itself and the specific terms and words that it would restore, by their weight.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from math import fsum
from typing import NamedTuple

from lantern_proxy.analyze import ends_asking
from lantern_proxy.pack import day, entry_of
from lantern_proxy.restore.headings import headings
from lantern_proxy.restore.lines import FILLER, Line, is_filler, takes_back
from lantern_proxy.restore.present import Present, never
from lantern_proxy.restore.salience import Surroundings, content, likelihood, says_something
from lantern_proxy.signals import has_speaker_names, speaker_name_end
from lantern_proxy.turn import Passage

GROUP_CHARS: Mapping[str, int] = {"user": 600, "assistant": 160}
"""Speaker -> length up to which the lost lines of a message form one part. In a longer message, and in tool results,
each sentence is a part."""
FRAGMENT_CHARS: Mapping[str, int] = {"assistant": 200}
FRAGMENT_OTHERS, FRAGMENT_POWER = 50, 0.7
"""A part shorter than FRAGMENT_CHARS (FRAGMENT_OTHERS for other speakers) is a fragment, which says little without its
context: its worth is multiplied by (its characters / that limit) ^ FRAGMENT_POWER."""
EXCLUDED_SORTS = frozenset({"greeting", "printed"})
"""Sorts of sentences that a loss block leaves out."""
LOOK_EVERY = 16
"""Candidates or parts between two checks of the deadline: well under a millisecond."""
ONE_TOOL_IN = 5
"""It is an agent's session if at least one in this many passages is a tool result or a call."""
OWN_NAME = 0.25
"""Share of the weight of a named number ("corp 250") that only the same name with the same number restores. The rest
belongs to the number alone, since "corp is 250" and "250 requests" tell the same."""
UNIQUE_SHARE = 0.7
"""Share of a part's likelihood that no other part can restore: people ask for each of two sentences even if they share
their words."""
WORD_WEIGHT = 0.4
"""Weight of a content word with the highest idf; a name has 1 and a named number 2."""


class Candidate(NamedTuple):
    """A passage and the lines of it that the request lacks."""

    passage: Passage
    lines: tuple[Line, ...]
    lost: tuple[int, ...]
    row: int = -1
    """Row of the passage in its scope."""
    stating: tuple[int, ...] = ()
    """Lines that a later statement may replace, see superseded.stating()."""
    surroundings: Surroundings = Surroundings(answers=False)
    within: frozenset[str] = frozenset()
    """Words of a short message's context, which is restored along with it, see restore/context.py."""


class Part(NamedTuple):
    """Lines of one candidate that are restored together."""

    candidate: int
    lines: tuple[int, ...]
    speaker: str
    worth: Mapping[str, float]
    """What is restored -> its worth, > 0. Keys: "=" and a specific term, "#" and a number, a plain word, or "@" for the
    part itself."""
    total: float
    """The worth of the part if nothing else is selected: the sum of `worth`."""
    opens: frozenset[str] = frozenset()
    """Headers that cost characters only once, however many parts share them: of the message, and of its day."""
    rule: bool = False
    """The part is a rule or a short message: it is never an echo of others that use the same words."""
    has_specifics: bool = False
    """The part has a number or a name that the request lacks. Always False in an agent's session, since an agent names
    everything that it looks at."""
    said_to_assistant: bool = False
    """A user says it to an assistant: it is an echo only of a single other part."""
    said_to_agent: bool = False
    """A user says it to an agent. The agent's reports repeat the words, so it is an echo only of users' words."""


def opens_of(passage: Passage) -> frozenset[str]:
    """Part.opens for a passage: the header of its message in the block, and of its day."""
    return frozenset((entry_of(passage), day(passage)))


def unscored_part(candidate: int, lines: Iterable[int], passage: Passage) -> Part:
    """A part without a worth of its own: lines that accompany others or fill remaining room."""
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


def is_agent_session(some: Sequence[Passage]) -> bool:
    """Do these passages come from an agent's session, where many are tool results or calls?"""
    return len(some) <= ONE_TOOL_IN * sum([passage.speaker == "tool" or bool(passage.tools) for passage in some])


def is_group_chat(some: Sequence[Passage]) -> bool:
    """Do these passages come from a chat between people, where user messages begin with their author's name?"""
    said = [each for each in some if each.speaker == "user"]
    return has_speaker_names(
        [each.text[: speaker_name_end(each.text)] for each in said], [each.speaker for each in said]
    )


def parts_of(
    candidates: Sequence[Candidate],
    present: Present,
    idf: Callable[[str], float],
    prior: Sequence[float],
    late: Callable[[], bool] = never,
    *,
    people: bool,
    excluded: Container[str] = EXCLUDED_SORTS,
    whole: bool = True,
) -> list[Part]:
    """The parts that could be restored.

    idf:      index term -> rarity in (0, 1]
    prior:    for each candidate a factor of its worth (confidence, pins)
    late:     called now and then; once it returns True, the remaining candidates get no parts
    people:   the candidates come from a chat between people, see is_group_chat()
    excluded: sorts of sentences that are left out
    whole:    keep all statements of a short message to an assistant together
    """
    within = frozenset().union(*[candidate.within for candidate in candidates])
    weights = _Weights(present, idf, [candidate.lines[i] for candidate in candidates for i in candidate.lost], within)
    found: list[Part] = []
    agent = is_agent_session([candidate.passage for candidate in candidates])
    for c, candidate in enumerate(candidates):
        if c % LOOK_EVERY == LOOK_EVERY - 1 and late():
            break
        opens, speaker = opens_of(candidate.passage), candidate.passage.speaker
        for group in _groups(candidate, excluded, whole=whole and not people):
            if worth := _worth_of_group(c, candidate, group, prior[c], weights):
                part = Part(
                    c, group, speaker, worth, sum(worth.values()), opens,
                    rule=bool(candidate.within) or any(candidate.lines[i].sort == "rule" for i in group),
                    has_specifics=not agent and any(key[0] in "=#" for key in worth),
                    said_to_assistant=speaker == "user" and not people,
                    said_to_agent=speaker == "user" and agent,
                )  # fmt: skip
                found.append(part)
    return found


def _worth_of_group(
    c: int, candidate: Candidate, group: tuple[int, ...], prior: float, weights: "_Weights"
) -> dict[str, float]:
    """Part.worth of these lines of candidate number `c`; empty if they restore nothing."""
    said = [candidate.lines[i] for i in group]
    terms, within = weights.lost_terms.__getitem__, candidate.within
    value = prior * likelihood(said, terms, weights.idf, candidate.surroundings, within)
    value *= 1.0 if within else _wholeness(said, candidate.passage.speaker)
    brought = _shared_out(said, value, weights)
    if brought:
        brought[_own_key(c, group)] = value * UNIQUE_SHARE
    return {key: brought[key] for key in sorted(brought)}


def _wholeness(said: Sequence[Line], speaker: str) -> float:
    """The factor of a fragment, see FRAGMENT_CHARS; 1 for anything longer."""
    chars = sum([line.end - line.start for line in said])
    return float(min(1.0, chars / FRAGMENT_CHARS.get(speaker, FRAGMENT_OTHERS)) ** FRAGMENT_POWER)


def _groups(candidate: Candidate, excluded: Container[str], *, whole: bool) -> list[tuple[int, ...]]:
    """The lost lines with content, grouped if they are short.

    whole: in a short user message, keep all statements together
    """
    lines, speaker = candidate.lines, candidate.passage.speaker
    allowed = [i for i in candidate.lost if lines[i].sort not in excluded]
    not_filler = [i for i in allowed if lines[i].salience > FILLER or lines[i].keys]
    with_content = [i for i in not_filler if lines[i].sort == "rule" or says_something(lines[i])]
    with_content = not_filler if candidate.within else with_content
    if speaker == "user":
        if len(with_content) < len(not_filler):
            back = [
                i for i in not_filler if i - 1 in with_content and i not in with_content and takes_back(lines[i].flat)
            ]
            with_content = sorted([*with_content, *back])
        if whole and with_content and len(candidate.passage.text) <= GROUP_CHARS["user"]:
            with_content = _with_the_rest(with_content, [i for i in allowed if not is_filler(lines[i], speaker)], lines)
    not_filler = with_content or not_filler
    code_parts = [(i,) for i in not_filler if lines[i].sort == "code"]
    prose = [i for i in not_filler if lines[i].sort != "code"] if code_parts else not_filler
    chars = sum([lines[i].end - lines[i].start for i in prose])
    if prose and chars <= GROUP_CHARS.get(speaker, 0):
        rules = [i for i in prose if lines[i].sort == "rule"]
        others = [i for i in prose if lines[i].sort != "rule"]
        return [*(tuple(group) for group in (rules, others) if group), *code_parts]
    headers = {*headings(candidate.passage, lines)}
    return [*((i,) for i in prose if i not in headers), *code_parts]


def _with_the_rest(with_content: Sequence[int], allowed: Sequence[int], lines: Sequence[Line]) -> list[int]:
    """`with_content`, and the other statements of the same short message: "Ilse has mumps. She stays at home." misleads
    without its first half. Questions are included only if the next sentence answers them: "Ilse? No, it was Jonas."."""
    found = {*with_content, *(i for i in allowed if not ends_asking(lines[i].flat))}
    return sorted(found.union(i for i in allowed if i + 1 in found))


def _shared_out(said: Sequence[Line], value: float, weights: "_Weights") -> dict[str, float]:
    """The `value` of some lines, divided among the specific terms, numbers and words that the request lacks."""
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
    total = fsum([*map(full.__getitem__, words), *named.values()])  # independent of the order
    share = value * (1 - UNIQUE_SHARE) / total if total else 0.0
    worth = {word: share * full[word] for word in words - held}
    return worth | {name: share * each for name, each in named.items() if name not in held and name not in known}


def _own_key(candidate: int, group: tuple[int, ...]) -> str:
    """The key in Part.worth of the part itself."""
    return f"@{candidate} {group[0]}"


def _number(term_key: str) -> str:
    """The number in a specific term, such as "250" in "corp 250"; empty if there is none or it has a single digit."""
    if " " not in term_key:
        return ""
    return next((word for word in term_key.split(" ") if len(word) > 1 and word.replace(".", "").isdigit()), "")


class _Term(NamedTuple):
    """A specific term as a key of `worth`, and the number in it, if there is one."""

    name: str
    own: float
    """The worth of restoring the term, without the number's share."""
    number: str
    shared: float
    """The worth of restoring the number, whatever name accompanies it."""


@lru_cache(maxsize=1 << 14)
def _term(key: str) -> _Term:
    number, weight = _number(key), term_weight(key)
    return _Term("=" + key, weight * (OWN_NAME if number else 1.0), number and "#" + number, weight * (1 - OWN_NAME))


class _Weights:
    """The weights of the terms and words of some lines, and which of them the request has; each computed once."""

    def __init__(
        self, present: Present, idf: Callable[[str], float], lines: Sequence[Line], within: frozenset[str]
    ) -> None:
        words, keys = content(lines)
        rarities = {word: idf(word) for word in words | within}
        self.idf = rarities.__getitem__
        self.words = {word: WORD_WEIGHT * rarity for word, rarity in rarities.items()}
        held = present.specific_terms(keys)
        """What the request has of them: words, and terms with "=" in front."""
        self.held = present.terms(words) | {"=" + key for key in held}
        """What the request holds of them: words, and terms with "=" in front."""
        self.terms = {key: _term(key) for key in keys}
        self.lost_terms = {key: 0.0 if key in held else term_weight(key) for key in keys}
        """Specific term -> its weight, 0 if the request has it."""
