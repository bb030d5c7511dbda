"""How likely are lost sentences to be asked for? A small log-linear model with weights set by hand. Pure.

What later questions ask about holds rare words and specific terms, tells of people, of what somebody did or decided,
and often answers a question; it does not address the other side. The weights come from reading chats and coding
sessions, and were chosen by hand while watching the development conversations of LoCoMo and of BEAM; which features
there are came from a logistic regression on those, whose coefficients are not used. Figures on these conversations are
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
"""Content words from which on a sentence says something, when it holds no specific term."""


class Around(NamedTuple):
    """What stands around a passage."""

    answers: bool
    """The message before it ends with a question."""
    reports: bool = False
    """The assistant says it behind results of tools: what came of them."""


def likelihood(
    said: Sequence[Line],
    weight: Callable[[str], float],
    idf: Callable[[str], float],
    around: Around,
    within: frozenset[str] = frozenset(),
) -> float:
    """> 0, on a scale of its own: how likely it is that one of these sentences of a passage is asked for.

    weight: specific term -> what it is worth (cover.term_weight); idf: index term -> rarity in [0, 1]
    within: words of what they belong to, where that goes in with them
    """
    words, keys = content(said)
    rarities = [*map(idf, words | within)]  # summed by fsum: a set has another order in every process
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
        + ANSWERS * around.answers
        + REPORTS * around.reports
        + DIGITS * digits
    )


def content(said: Sequence[Line]) -> tuple[frozenset[str], frozenset[str]]:
    """Content words and specific terms of some sentences."""
    if len(said) == 1:
        return said[0].words, frozenset(said[0].keys)
    return frozenset().union(*[line.words for line in said]), frozenset().union(*[line.keys for line in said])


def says_something(line: Line) -> bool:
    """A number, a specific term with some words, or enough content words."""
    return len(line.words) >= SAYS or (bool(line.keys) and len(line.words) > 1) or line.digits
