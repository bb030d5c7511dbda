"""How likely lost sentences are to be asked for: a small log-linear model with hand-set weights. Pure.

Sentences that later questions ask about have rare words and specific terms, are about people or about what somebody did
or decided, and often answer a question; they do not address the other side. The weights come from reading chats and
coding sessions, and were chosen by hand while watching the development conversations of LoCoMo and BEAM. The set of
features came from a logistic regression on those, whose coefficients are not used. Figures on these conversations are
development figures.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lantern_proxy.restore.lines import Line

SHAPE, RARITY, RARE, SPECIFIC = 1.0, 2.0, 0.5, 1.2
ADDRESSES, PEOPLE, ANSWERS, REPORTS, DIGITS = -0.3, 0.4, 0.8, 0.7, 0.3
"""Weights of the features, in the order in which `likelihood` adds them."""
RARE_IDF = 0.6
SAYS = 3
"""From this many content words on a sentence has content without a specific term."""


class Surroundings(NamedTuple):
    """What surrounds a passage."""

    answers: bool
    """The message before it ends with a question."""
    reports: bool = False
    """The assistant reports the outcome of tool calls."""


def likelihood(
    said: Sequence[Line],
    weight: Callable[[str], float],
    idf: Callable[[str], float],
    surroundings: Surroundings,
    within: frozenset[str] = frozenset(),
) -> float:
    """> 0, on a scale of its own: how likely one of these sentences of a passage is to be asked for.

    weight: specific term -> its worth (parts.term_weight); idf: index term -> rarity in [0, 1]
    within: words of their context, if that is restored along with them
    """
    words, keys = content(said)
    rarities = [*map(idf, words | within)]  # summed by fsum: the order of a set differs between processes
    chars, shape, addresses, of_people, digits = 0, 0.0, False, False, False
    for line in said:
        size = line.end - line.start
        chars += size
        shape += line.salience * size
        addresses |= line.addresses
        of_people |= line.of_people
        digits |= line.digits
    return math.exp(
        SHAPE * math.log(max(0.01, shape / max(1, chars)))
        + RARITY * (math.fsum(rarities) / len(rarities) if rarities else 0.0)
        + RARE * math.log1p(math.fsum([each for each in rarities if each >= RARE_IDF]))
        + SPECIFIC * math.log1p(math.fsum(map(weight, keys)))
        + ADDRESSES * addresses
        + PEOPLE * of_people
        + ANSWERS * surroundings.answers
        + REPORTS * surroundings.reports
        + DIGITS * digits
    )


def content(said: Sequence[Line]) -> tuple[frozenset[str], frozenset[str]]:
    """(content words, specific terms) of some sentences."""
    if len(said) == 1:
        return said[0].words, frozenset(said[0].keys)
    return frozenset().union(*[line.words for line in said]), frozenset().union(*[line.keys for line in said])


def says_something(line: Line) -> bool:
    """Does the line have a number, a specific term with another word, or enough content words?"""
    return len(line.words) >= SAYS or (bool(line.keys) and len(line.words) > 1) or line.digits
