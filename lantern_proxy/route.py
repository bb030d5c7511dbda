"""What kind of question is it, and is the lexical channel already sure? Pure (SelRoute; AgentIR's cascade)."""

import re
from collections.abc import Sequence
from typing import Literal

QueryType = Literal["knowledge-update", "temporal", "preference", "assistant", "multi-session", "user", "none"]

_TYPES: tuple[tuple[QueryType, re.Pattern[str]], ...] = (
    ("knowledge-update", re.compile(r"\b(?:current(?:ly)?|now|latest|newest|still|these days|most recent(?:ly)?|at the moment)\b", re.I)),
    ("temporal", re.compile(r"\b(?:when|what (?:time|date|day|year|month)|how long|how many (?:days|weeks|months|years)|since|before|after|first|last|ago|order)\b", re.I)),
    ("preference", re.compile(r"\b(?:prefer\w*|favou?rite|recommend|suggest|like best|enjoy|style|convention)\b", re.I)),
    ("assistant", re.compile(r"\b(?:did you|you (?:said|told|suggested|recommended|gave|mentioned|wrote|proposed|ran)|your (?:answer|suggestion|recommendation))\b", re.I)),
    ("multi-session", re.compile(r"\b(?:how many|how often|all (?:the|of)|in total|both|each|every|list|compare|summari[sz]e|across|overall)\b", re.I)),
    ("user", re.compile(r"\b(?:i|my|me|we|our|us)\b", re.I)),
)  # fmt: skip
"""In order of priority: the first that matches names the type."""

_ASKS = re.compile(
    r"\?|^\W*(?:what|which|who|whom|whose|when|where|why|how|did|do|does|was|were|is|are|has|have|can|could|remind|recall|tell me"
    r"|give me|show me|list|name|repeat)\b",
    re.I,
)
_PAST = re.compile(
    r"\b(?:remind|recall|remember|earlier|previous(?:ly)?|before|again|already|last time|we (?:agreed|decided|chose|picked|set|used|had|said|discussed"
    r"|talked)|i (?:told|said|mentioned|gave|asked|wanted|chose|set)|you (?:said|told|gave|mentioned|suggested|found)|agreed|decided|as (?:discussed"
    r"|said|agreed|before)|the same|from (?:earlier|before)|did (?:i|we|you)|was (?:it|the|that|my|our)|were (?:the|my|our))\b",
    re.I,
)


def query_type(question: str) -> QueryType:
    """SelRoute's priority-ordered classifier, in its smallest form; "none" when no pattern fits."""
    return next((name for name, pattern in _TYPES if pattern.search(question)), "none")


def asks(question: str) -> bool:
    """Does it read as a question or a request to tell?"""
    return bool(_ASKS.search(question))


def looks_back(question: str) -> bool:
    """Does it point at something that was said or done before?"""
    return bool(_PAST.search(question))


def lexical_is_sure(scores: Sequence[float], *, tau: float = 0.5) -> bool:
    """AgentIR's cascade: (s0 - s1) / s0 >= tau, for the two best lexical scores. Then the dense channel may be skipped."""
    if not len(scores) or scores[0] <= 0:
        return False
    second = scores[1] if len(scores) > 1 else 0.0
    return (scores[0] - second) / scores[0] >= tau
