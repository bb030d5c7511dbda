"""What type of question is it? Pure.

SelRoute's six types (McKee 2026, section 3), by rules in order of priority: the first that matches gives the type.
Without a match it is `single-session-user`, by far the most frequent one.
"""

import re
from typing import Literal, get_args

QueryType = Literal[
    "knowledge-update",
    "multi-session",
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "temporal",
]
TYPES: tuple[QueryType, ...] = get_args(QueryType)

_SAID = (
    r"said|told|gave|wrote|made|put|found|ran|came up|taught|sent|drew|built|chose|did|had"
    r"|(?!need|feed|speed|heed|seed|bleed|proceed|succeed|exceed)\w+(?<!indeed)ed"
)
_WORK = (
    r"answers?|suggestions?|recommendations?|advice|explanation|example|list|checklist|summary|plan|recipe|poem|story"
    r"|draft|code|script|review|translation|reply|response|\w+ list"
)
_SPAN = r"(?:second|minute|hour|day|night|week|weekend|month|year|decade)s?"
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"

_RULES: tuple[tuple[QueryType, str], ...] = (
    (
        "single-session-assistant",
        rf"\byou (?:have |had |just |once |also |earlier )?(?:{_SAID})\b|\bdid you\b|\byou've \w+"
        rf"|\byour (?:\w+ )?(?:{_WORK})\b",
    ),
    (
        "single-session-preference",
        r"\b(?:recommend|suggest|propose|advise)\b|\b(?:suggestions?|recommendations?)\b"
        r"|\bideas? (?:for|on|of|about)\b|\b(?:tips|advice) (?:for|on|about)\b"
        r"|\b(?:any|some) (?:\w+ )?(?:ideas?|tips|advice|inspiration)\b|\bhelp me (?:choose|pick|decide|find)\b"
        r"|\bfavou?rites?\b|\bprefer(?:s|red|ences?)?\b|\b(?:should|could) (?:i|we)\b|\blooking for\b"
        r"|\bwould (?:i|we) (?:like|enjoy|love)\b|\bwhat i (?:like|prefer)\b|\bmy taste\b|\bsuits? (?:me|us)\b"
        r"|\b(?:do|would) (?:i|we) (?:usually |normally |most )?(?:like|enjoy|love|want)\b"
        r"|\bwould be (?:a )?(?:good|nice|right|fun|best)\b|\b(?:do i|i) want you to\b",
    ),
    (
        "multi-session",
        r"\bin total\b|\btotal (?:\w+ ){0,3}(?:of|amount|number|cost|time)\b|\bthe total\b|\baltogether\b"
        r"|\boverall\b|\bsum of\b|\baverage\b|\bin common\b|\bcompared?\b|\bdifferences? between\b"
        r"|\bsummari[sz]e\b|\boverview\b|\bmore than once\b|\bmost often\b|\bacross\b|\bboth\b|\beach of\b"
        r"|\ball (?:the|of|my|our|those|these)\b|\bevery\b|\blist (?:all|the|my|our)\b"
        r"|\bhow many (?:different|times)\b|\bhow often\b",
    ),
    (
        "knowledge-update",
        r"\bcurrent(?:ly)?\b|\bnow(?:adays)?\b|\blatest\b|\bnewest\b|\bstill\b|\bthese days\b"
        r"|\bmost recent(?:ly)?\b|\bat (?:the moment|present|this point)\b|\bup[- ]to[- ]date\b|\bupdated?\b"
        r"|\brevised\b|\bas of\b|\bpresent (?:state|status)\b|\bthe new (?:\w+ ){0,2}(?:of|for)\b"
        r"|\b(?:moved|changed?|switched|raised|lowered|set|renamed) (?:\w+ ){0,4}to\b|\bhas\b.*\bchanged\b",
    ),
    (
        "temporal",
        r"\bwhen\b|\b(?:what|which) (?:time|dates?|day|week|month|year|season)\b"
        rf"|\bhow (?:long|old|soon|recently)\b|\bhow many {_SPAN}\b|\b(?:since|until|ago|order|before|after)\b"
        r"|\bearlie(?:r|st)\b|\b(?:came|come|happened|was|is|did) (?:\w+ ){0,3}first\b|\bthe first\b|\bfirst,"
        rf"|\b(?:last|next|past) (?:{_SPAN}|{_DAY}|spring|summer|autumn|fall|winter)\b|\bon {_DAY}\b|\byesterday\b",
    ),
    (
        "multi-session",
        r"\bhow many\b|\bhow much (?:\w+ ){0,3}(?:spent|spend|all)\b|^\W*(?:please )?(?:list|name)\b"
        r"|\b(?:all|each)\b|\bwhich (?:\w+ )?of (?:my|our|the)\b"
        r"|\bwhich \w+s (?:have|did|do|are|were) (?:i|we)\b",
    ),
)
_PATTERNS = tuple((name, re.compile(pattern, re.I)) for name, pattern in _RULES)


def query_type(question: str) -> QueryType:
    """The type of a question by the first rule that matches."""
    return next((name for name, pattern in _PATTERNS if pattern.search(question)), "single-session-user")
