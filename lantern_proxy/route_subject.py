"""What a question is about, without how it is asked. Pure; English, other languages are left as they are.

    subject("Can you list the order in which I brought up the parts of the move, in order? Name five.") -> "the move"

"Can you", "a short summary of", "across our conversations" and "name five" stand nowhere in what was said: they draw a
vector, and BM25, to whatever talks of lists and summaries.
"""

import re

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
    r"(?:hey|hi|hello|ok|okay|so|and|also|now|then|well|just|please|pls|thanks|great|alright)\b(?=\W)"
    r"|(?:can|could|would|will) you\b"
    r"|(?:i'd|i would|i want|i need)(?: like)?(?: you)? to (?:know|see|hear)\b|i'd like"
    r"|do you (?:still )?(?:remember|know|recall)|what do you (?:still )?(?:remember|know) (?:of|about)"
    rf"|{_VERB}(?: (?:to )?(?:me|us))?(?: (?:again|back))?(?: (?:through|of|about))?\b"
    rf"|(?:(?:a|an|the|one|some) )?(?:{_SHORT}(?:,? and|,)? )*{_SUMMARY} (?:of|on|about)\b"
    r"|(?:the )?(?:order|sequence) (?:in which|that|of)\b|in (?:what|which) order|in order,? (?=how\b)"
    rf"|(?:(?:all|each|some)(?: of)? )?(?:(?:the|my|our) )?(?:{_MANY} )*{_PARTS}"
    r" (?:of|about|around|related to|concerning|regarding|that)\b"
    rf"|(?:did |have |had )?(?:i|we)(?:'ve| have| had)?(?: also)? {_SAID}\b"
    r"))+\W*",
    re.I,
)
"""How a question begins, as often as it begins again."""
_ASIDE = re.compile(
    rf",?\s*\b(?:{_SPAN}\b|(?:in (?:chronological )?order|in sequence|chronologically|step by step|over time|so far"
    r"|until now|up to now|from (?:the )?(?:start|beginning) to (?:the )?(?:end|finish|now))(?=\W*$|,))",
    re.I,
)
_FORM = re.compile(
    r"(?<=\?) (?:and )?(?:please )?(?:only )?"
    r"(?:mention|list|name|give|use|include|keep|answer|respond|reply|limit|be)\b"
    r"(?=[^.?!]* (?:only|exactly|\d+|one|two|three|four|five|six|seven|eight|nine|ten|brief|short|concise|sentences?"
    r"|words?|bullets?|order|details?)\b)[^.?!]*[.?!]*$",
    re.I,
)
"""A sentence behind the question that says how long, and in what form, the answer should be."""
_LOOSE = re.compile(r"[ ,]+(?=[?.!,])")


def subject(question: str) -> str:
    """`question` without the words that ask; itself when nothing else is left."""
    about = _ASIDE.sub(" ", _FORM.sub("", " ".join(question.split())))
    lead = _LEAD.match(about)
    about = " ".join(about[lead.end() if lead else 0 :].split()).strip(" ,;:.")
    about = _LOOSE.sub("", about)
    return about if any(map(str.isalnum, about)) else question
