"""Reading a question: is it one, does it look back, what is it about, and are the lexical scores decisive? Pure."""

import re
from collections.abc import Sequence

_ASKS_ELSEWHERE = (
    # German, without "wie besprochen"
    "wer|wem|wessen|welche[mnrs]?|wann|wo(?:hin|her|f\u00fcr|mit|von|zu)?|warum|wieso|weshalb|wieviele?"
    "|wie(?! (?:besprochen|gesagt|immer|vereinbart|abgemacht|versprochen|gew\u00fcnscht|\u00fcblich|sch\u00f6n)\\b)"
    # French, Spanish, without "qui plus est" and "qu\u00e9 bien"
    "|qui(?! plus)|quoi|quand|o\u00f9|pourquoi|combien|qu['\u2019]est-ce|est-ce|quels?(?= )"
    "|quelles?(?= (?:est|sont|a|ont)\\b)"
    "|qu\u00e9(?! (?:bien|bonit|va|pena|alegr))|qui\u00e9n(?:es)?|cu\u00e1l(?:es)?|cu\u00e1ndo"
    "|d\u00f3nde|c\u00f3mo|cu\u00e1nt[oa]s?|por qu\u00e9"
    # Italian, Portuguese, Dutch, Polish, Turkish: only what is no word or name of English
    "|qual[ei]?|quanto|quanti|quante|perch\u00e9|quem|quais|quantos|quando|welke?|wanneer|waar(?:om|heen)?|hoeveel"
    "|kto|kiedy|gdzie|dlaczego|nerede|nas\u0131l|ka\u00e7"
    # Russian, without "kak obychno"
    "|\u043a\u0442\u043e|\u043a\u043e\u0433\u0434\u0430|\u0433\u0434\u0435|\u043a\u0443\u0434\u0430|\u043f\u043e\u0447\u0435\u043c\u0443|\u0441\u043a\u043e\u043b\u044c\u043a\u043e"
    "|\u043a\u0430\u043a(?:\u043e\u0439|\u0430\u044f|\u043e\u0435|\u0438\u0435|"
    "(?! (?:\u043e\u0431\u044b\u0447\u043d\u043e|\u0432\u0441\u0435\u0433\u0434\u0430|\u0440\u0430\u0437)))"
)
"""Beginnings of questions in other languages, without words that begin as many statements."""
_HAVE = r"(?:is|was|were|are|did|does|do|has|have|had|can|could|should|shall|will|would)"
_MORE = r"what(?:['\u2019]?s| is) (?:more|worse|better),"
"""Continuations of a sentence that is a statement."""
_ASKS_ON = (
    r"(?:(?:and|so|but|or|ok|okay|oh|ah|hey|hi|hm+|btw|also|now|then|well|wait|sorry|thanks|cool|great|nice)\b\W+)++"
    rf"(?!{_MORE})"
    # "and how many replicas did we say", but not "so what I want is a table"
    r"(?:(?:what|which|whose|how (?:many|much|long|often|old|far|big|high))"
    rf" (?!the )(?:(?!(?:i|you|we|they|he|she|it|that|this|about) )\w+ ){{0,3}}{_HAVE}(?!\w)"
    # "and when is it due", but not "and when the tests pass"; "so is it still up"
    rf"|(?:what|who|when|where|why|how)(?:['\u2019]?s|['\u2019]?re| {_HAVE})(?!\w)|who (?!knows|cares|ever)\w+"
    r"|(?:is|was|were|are|did|does|has|had|do|have) (?:i|you|we|they|he|she)(?!\w)(?!\W*$)"  # but not "So have we"
    r"|(?:is|was|did|does|has|had) (?:it|the)(?!\w))"
)
"""The same after connecting words. Within a sentence such words may belong to a statement, too, but here the verb
precedes its subject."""
_ASKS = re.compile(
    r"[?\uff1f\u061f\u037e]|[\u0370-\u03ff\u1f00-\u1fff][\"')]?;\s*$"  # Greek asks with a semicolon
    # "what was the port", "remind me of it"
    rf"|^\W*(?!{_MORE})(?:what|which|who|whom|whose|when|where|why|how|did|do|does|was|were|is|are|has|have|can|could|remind"
    r"|recall|tell me|give me|show me|list|name|repeat)(?!\w)"
    # "whats the port again"
    rf"|^\W*(?!{_MORE})(?:what|who|where|when|how|why)s(?!\w)|^(?![\s\S]*[.!]\W*$)\W*{_ASKS_ON}"
    # "wann ist es", "Ana: who drives"
    r"|^\W*(?:\w[\w.-]*(?: \w[\w.-]*)?: \W*(?:what(?! an?\b)|which|who|whom|whose|when|where|why"
    r"|how(?! (?:lovely|nice|cool|sweet|sad|funny|great|beautiful)\b))(?!\w)"
    rf"|(?:\w[\w.-]*(?: \w[\w.-]*)?: \W*)?(?:{_ASKS_ELSEWHERE})(?!\w))"
    # in languages without spaces a question word may be anywhere, or at the end
    r"|(?<!\u6ca1)\u4ec0\u4e48|\u54ea(?!\u6015)|\u8c01|(?<!\u6ca1)\u591a\u5c11|\u600e\u4e48|[\u5417\u5462]\W*$"
    r"|(?<![\u306a\u3057\u304a\u3044])\u3044\u3064(?![\u3082\u304b\u304d\u3044])"
    r"|\u3069\u3053(?!\u3067\u3082|\u3082|\u304b)|\u8ab0(?!\u3067\u3082|\u3082|\u304b)"
    r"|\u306a\u305c|\u3044\u304f\u3089|\u307e?\u3059\u304b\W*$",
    re.I,
)
_ORDER = re.compile(
    # "Could you please write it?", but not "Could you tell me ...?"
    r"\b(?:can|could|would|will) you (?:please |just |also |now |then )*"
    r"(?!tell|remind|recall|remember|give|show|list|name|repeat|say|find|look)\w+[^.?!]{0,400}\?"
    # "Tell me a joke", "How do I say this in French?"
    r"|\b(?:tell|give|show) me (?:a|an|another|some) [^.?!]*"
    r"|\bhow do (?:you|i) (?:say|spell|write|translate) [^.?!]{0,400}\?",
    re.I,
)
"""Questions in form only: orders, and requests that the past cannot answer."""
_PAST = re.compile(
    r"\b(?:remind|recall|remember|earlier|previous(?:ly)?|again\?|already|last time|agreed|decided|the same|from before"
    r"|we (?:chose|picked|set|used|had|said|discussed|talked)|i (?:told|said|mentioned|gave|asked|wanted|chose|set)"
    r"|you (?:said|told|gave|mentioned|suggested|found)|as (?:discussed|said|before)|(?:did|was|were) (?:i|we|you)"
    r"|(?:was|were) (?:it|the|that|my|our))\b",
    re.I,
)
"""References to what was said or done before: "which one we chose", "as discussed", "was it ..."."""
_PERSONAL = re.compile(r"\b(?:my|our|ours|mine|we|us)\b|(?<!how )\b(?:did|have|had|was|am) i\b", re.I)
# Pieces of _LEAD and _ASIDE: "give me | a quick | summary of | the various | topics that | I brought up |
# throughout our conversations, ..."
_SPAN = (
    r"(?:throughout|across|during|over(?: the course of)?|in|from|through)(?: all)?(?: of)? (?:our|these|this)"
    r"(?: (?:past|previous|earlier|recent|whole|entire|last))?(?: (?:few|many|several))?"
    r" (?:conversation|chat|discussion|session|talk|exchange|dialogue)s?(?: together)?"
)
_VERB = (
    r"(?:tell|remind|show|give|get|list|name|enumerate|summari[sz]e|sum up|recap|describe|outline|provide|walk|take|run"
    r"|go over|go through|recall|remember|explain|lay out|write down|put together)(?! of\b)"
)
_SHORT = r"(?:quick|short|brief|complete|comprehensive|full|clear|detailed|concise|rough|overall|general|whole|good)"
_SUMMARY = r"(?:summary|overview|recap|rundown|timeline|chronology|outline|account|list|breakdown|description)"
_MANY = r"(?:different|various|main|key|major|important|separate)"
_PARTS = (
    r"(?:things|aspects|topics|subjects|points|steps|stages|items|ways|parts|details|milestones|events|phases|areas"
    r"|moments)"
)
_SAID = (
    r"(?:brought up|bring up|mention(?:ed)?|told you about|tell you about|talk(?:ed)? about|discuss(?:ed)?"
    r"|cover(?:ed)?|raised?|went over|go over|spoke about)"
)
_LEAD = re.compile(
    r"(?:\W*\b(?:"
    # "hey", "also", "thanks"
    r"(?:hey|hi|hello|ok|okay|so|and|also|now|then|well|just|please|pls|thanks|great|alright)\b(?=\W)"
    # "could you", "I'd like you to know", "do you remember", "remind me again of"
    r"|(?:can|could|would|will) you\b"
    r"|(?:i'd|i would|i want|i need)(?: like)?(?: you)? to (?:know|see|hear)\b|i'd like"
    r"|do you (?:still )?(?:remember|know|recall)|what do you (?:still )?(?:remember|know) (?:of|about)"
    rf"|{_VERB}(?: (?:to )?(?:me|us))?(?: (?:again|back))?(?: (?:through|of|about))?\b"
    # "a short summary of", "the order in which", "all the key points about", "that I've mentioned"
    rf"|(?:(?:a|an|the|one|some) )?(?:{_SHORT}(?:,? and|,)? )*{_SUMMARY} (?:of|on|about)\b"
    r"|(?:the )?(?:order|sequence) (?:in which|that|of)\b|in (?:what|which) order|in order,? (?=how\b)"
    rf"|(?:(?:all|each|some)(?: of)? )?(?:(?:the|my|our) )?(?:{_MANY} )*{_PARTS}"
    r" (?:of|about|around|related to|concerning|regarding|that)\b"
    rf"|(?:did |have |had )?(?:i|we)(?:'ve| have| had)?(?: also)? {_SAID}\b"
    r"))+\W*",
    re.I,
)
"""Introductions of a question, any number of them in a row."""
_ASIDE = re.compile(
    rf",?\s*\b(?:{_SPAN}\b|(?:in (?:chronological )?order|in sequence|chronologically|step by step|over time|so far"
    r"|until now|up to now|from (?:the )?(?:start|beginning) to (?:the )?(?:end|finish|now))(?=\W*$|,))",
    re.I,
)
"""Parts of a question beside its subject: "throughout our chats", "in chronological order", "so far"."""
_FORM = re.compile(
    r"(?<=\?) (?:and )?(?:please )?(?:only )?"
    r"(?:mention|list|name|give|use|include|keep|answer|respond|reply|limit|be)\b"
    r"(?=[^.?!]* (?:only|exactly|\d+|one|two|three|four|five|six|seven|eight|nine|ten|brief|short|concise|sentences?"
    r"|words?|bullets?|order|details?)\b)[^.?!]*[.?!]*$",
    re.I,
)
"""A sentence after the question about the length or form of the answer: "Mention only three"."""
_LOOSE = re.compile(r"[ ,]+(?=[?.!,])")


def asks(question: str) -> bool:
    """Does the text ask for information? A polite order does not: "can you shorten that?"."""
    return bool(_ASKS.search(_ORDER.sub(" ", question)))


def looks_back(question: str) -> bool:
    """Does it refer to something that was said or done before?"""
    return bool(_PAST.search(question))


def personal(question: str) -> bool:
    """Is it about the user's own matters, rather than the world's?"""
    return bool(_PERSONAL.search(question))


def margin(scores: Sequence[float]) -> float:
    """AgentIR's confidence: (s0 - s1) / s0 of the two best lexical scores, 0..1; 0 if there is none."""
    if not len(scores) or scores[0] <= 0:
        return 0.0
    second = scores[1] if len(scores) > 1 else 0.0
    return (scores[0] - second) / scores[0]


LEAD = 5
"""The best score is compared with this one, counted from 1."""


def lead(scores: Sequence[float]) -> float:
    """How far the best score is above the fifth, as a share of itself, in [0, 1]; 0 if there are fewer.

    scores: best first; that of an average passage is 0. If many passages match the words of a question equally well,
    words do not decide which one answers it. The second best says less (`margin`): it is often beside the best and
    belongs to the same answer.
    """
    if len(scores) < LEAD or scores[0] <= 0:
        return 0.0
    return min(1.0, (scores[0] - scores[LEAD - 1]) / scores[0])


def subject(question: str) -> str:
    """What a question is about, without the words that ask; the question itself if nothing else is left. English only.

    subject("Can you list the order in which I brought up the parts of the move, in order? Name five.") -> "the move"

    "Can you", "a short summary of", "across our conversations" and "name five" occur nowhere in the conversation; they
    attract vectors, and BM25, to whatever mentions lists and summaries.
    """
    about = _ASIDE.sub(" ", _FORM.sub("", " ".join(question.split())))
    lead = _LEAD.match(about)
    about = " ".join(about[lead.end() if lead else 0 :].split()).strip(" ,;:.")
    about = _LOOSE.sub("", about)
    return about if any(map(str.isalnum, about)) else question
