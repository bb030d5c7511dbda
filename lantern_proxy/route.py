"""Is it a question at all, does it look back, and is the lexical channel already sure? Pure (AgentIR's cascade)."""

import re
from collections.abc import Sequence

_ASKS = re.compile(
    r"[?\uff1f\u061f]|^\W*(?:what|which|who|whom|whose|when|where|why|how|did|do|does|was|were|is|are|has|have|can|could|remind|recall"
    r"|tell me|give me|show me|list|name|repeat)\b",
    re.I,
)
_ORDER = re.compile(
    r"\b(?:can|could|would|will) you (?:please |just |also |now |then )*"
    r"(?!tell|remind|recall|remember|give|show|list|name|repeat|say|find|look)\w+[^.?!]*\?"
    r"|\b(?:tell|give|show) me (?:a|an|another|some) [^.?!]*"
    r"|\bhow do (?:you|i) (?:say|spell|write|translate) [^.?!]*\?",
    re.I,
)
"""Questions in form only: orders, and wishes that the past cannot answer."""
_PAST = re.compile(
    r"\b(?:remind|recall|remember|earlier|previous(?:ly)?|again\?|already|last time|agreed|decided|the same|from before"
    r"|we (?:chose|picked|set|used|had|said|discussed|talked)|i (?:told|said|mentioned|gave|asked|wanted|chose|set)"
    r"|you (?:said|told|gave|mentioned|suggested|found)|as (?:discussed|said|before)|(?:did|was|were) (?:i|we|you)"
    r"|(?:was|were) (?:it|the|that|my|our))\b",
    re.I,
)
_PERSONAL = re.compile(r"\b(?:my|our|ours|mine|we|us)\b|(?<!how )\b(?:did|have|had|was|am) i\b", re.I)


def asks(question: str) -> bool:
    """Does it want to be told something? A polite order does not: "can you shorten that?"."""
    return bool(_ASKS.search(_ORDER.sub(" ", question)))


def looks_back(question: str) -> bool:
    """Does it point at something that was said or done before?"""
    return bool(_PAST.search(question))


def personal(question: str) -> bool:
    """Is it about the user's own matters, rather than the world's?"""
    return bool(_PERSONAL.search(question))


def margin(scores: Sequence[float]) -> float:
    """AgentIR's confidence: (s0 - s1) / s0 of the two best lexical scores, 0..1; 0 when there is none."""
    if not len(scores) or scores[0] <= 0:
        return 0.0
    second = scores[1] if len(scores) > 1 else 0.0
    return (scores[0] - second) / scores[0]
