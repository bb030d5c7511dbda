"""Standing instructions: rules ("Always ...", "from now on ...") and preferences that hold for everything after. Pure.

They hold until they are revoked, are seldom repeated, and are what a user misses first after a compaction. Rules in
other languages than English are in standing_languages.py; preferences are recognised in English only.
"""

import re
from typing import Literal

from lantern_proxy.analyze import folded
from lantern_proxy.analyze.standing_languages import is_rule_in_other_language, may_be_rule_in_other_language

_USE = r"use \S+(?: (?!but (?:it|i|they)\b|(?:or|i|is|are)\b)\S+){0,3},? (?:not|never|instead of|rather than)\b"
"""Orders to use one thing and not another: "use tabs, not spaces", but not "use caching, but it's not working"."""
_ANNOUNCED = (
    r"(?<!broke )(?<!break )(?<!breaks )(?<!broken )(?<!breaking )"
    r"\b(?:a|one|two|three|another|my|our|new|first|second|house|ground)"
    r"(?: (?:more|new|last|other|little|small|general|golden|ground|house))?"
)
"""Words before "rule" and "wish" where one is set, rather than mentioned or broken."""
_DO_NOT = (
    r"(?:do not|don['\u2019]t)(?: ever)? (?!(?:worry|know|think|forget|mind|get|be|feel|hesitate|want|like|have|need"
    r"|see|understand|really|you|i|give(?! (?:me|us|any)\b)|stop|let|ever|quit|miss|say|remember|recall|care|mean"
    r"|believe|love|hate|enjoy)\b)\w+"
)
"""As in "Don't add comments", but not "Don't worry"."""
_STATEMENT_OPENINGS = (
    r"(?:i|we|you|he|she|it|they|this|that|these|those|there|here|my|our|your|his|her|its|their|the|an?|some|most|all|both"
    r"|no|yes|yeah|ok|okay|well|oh|wow|hey|if|when|while|since|because|as|so|what|who|how|why|where|which|is|are|do|does"
    r"|did|can|could|would|should|will|has|have|had)"
)
"""Openings of sentences that are no orders."""
_ASIDE = (
    r"(?:do not|don['\u2019]t)(?: ever)? (?:(?:laugh|faint|panic|cry|dare|judge)\b|tell\b(?! (?:me|us)\b)"
    r"|ask(?: me)?(?=[,.!]|$))"
)
"""After a comma, as an aside: "Working title is The Otter, don't laugh", "It was 900, don't tell Ada"."""
_ORDER = (
    r"(?:use|write|cite|quote|replace|add|put|give|tell|ask|run|check|keep|make|show|mark|note|list|mention|include"
    r"|remove|leave|avoid|start|end|sign|spell|format|convert|round|translate|answer|reply|respond|explain|log|test"
    r"|commit|update|set|say|address|remind|warn)"
)
"""Verbs with which orders begin."""
_EACH = (
    r"(?:(?:whenever|wherever|(?:every|each|any) ?time|(?:in|to|with|for|under) (?:any|every)thing)"
    r" (?:you|i|we)(?!(?: (?:want|like|can|need|feel)|['\u2019]re (?:ready|free))\b)"
    r"|(?:in|with|for|under|below|after) (?:all|any|every|each)(?: of)?(?: your| my)?"
    r" (?:answers?|replies|reply|responses?|messages?|e-?mails?|letters?))\b"
)
"""As in "whenever you refer to a clause", "in anything I paste", "in all answers"."""
_RULE = re.compile(
    # at the start of a sentence, after "and", "also", "please", ...
    r"(?:^|[.!?:;\n])\W{0,4}+\b(?:(?:please|and|also|but|so|then|just)[ ,]{1,2}){0,3}"
    # "Always run the tests", but not "Always happy to help", "Always wanted to"
    r"(?:always(?! (?:here|up|happy|glad|good|great|nice|fun|a|the|so|been|had|was|is|has|thought|felt|knew|makes|feels"
    r"|gets|loves|wants|likes|looks|seems|works|takes|comes|goes|fails|reminds"
    r"|(?:want|lov|lik|enjoy|hat|dream|hop|wonder|need)ed|\w+ing)\b)"
    # "Never push to main", but not "Never mind", "Never went there", "Never again!"
    r"|never(?! (?:mind|say|give|had|been|let|met|saw|knew|know|thought|went|seen|felt|ate|got|gets|came|took|made"
    r"|heard|found|did|done|was|were|too|fails to|in my life|\w+ed)\b| again[.!])"
    # "From now on ...", "Whenever you commit ...", "Make sure to always ...", but not "Whenever you need help ..."
    r"|from (?:now|here) on|going forward|when(?:ever)? i ask"
    r"|whenever you(?!(?: (?:want|like|can|need (?:help|anything|me|us|support))|['\u2019]re (?:ready|free))"
    r"(?:[.!]|$|,? (?:just|let|feel free)\b))"
    r"|(?:every|each) ?time you|make sure (?:to |that |you )?(?:always|never|only)"
    # "Don't add comments", but not "Don't worry"
    rf"|{_DO_NOT})\b"
    # within an order: "Be brief, don't use tables", but not "It's late, don't call"
    rf"|(?:^|[.!?:;\n])\W{{0,4}}+(?!(?:(?:and|but|also|then) )?{_STATEMENT_OPENINGS}\b)[a-z]+ [^.!?:;\n]{{0,100}}, "
    rf"(?:(?:and|but|please) )?(?!{_ASIDE}){_DO_NOT}\b"
    # anywhere: "please never", "you should always", "we never", "he must never", "use tabs, not spaces"; but "we always
    # loved it" is a statement
    r"|\bplease (?:always|never|do not|don['\u2019]t)\b|\b(?:we|you) (?:should|must|have to|need to) (?:always|never)\b"
    r"|\bwe (?:always|never)\b(?! (?:love|enjoy|look forward|had|have been|met|went|saw|got|did|was|were|thought|knew"
    r"|felt|(?:want|lov|lik|enjoy|us|liv|talk|play|visit|plann|dream|seem)ed)\b)|\bmust (?:not|never)\b(?! have\b)"
    # "One rule for the letters: no jokes", "please no tables", "no exclamation marks, please", but not "please no rush"
    rf"|{_ANNOUNCED} (?:rules?|wish(?:es)?)(?: (?:for|about|on|in|of|from|to)\b(?! thumb)[^.?!:\n]{{0,36}})?:\s*\S"
    r"|\bplease,? no (?!rush|hurry|need|worries|problem)\w"
    r"|(?:^|[.!?:;,\n]|\b(?:and|but|with) )\W{0,3}no (?!rush|hurry|need|worries|problem|thanks|idea|one\b)\w"
    r"[^.?!\n]{0,60},? please(?=[.!;,]|[^\w?]*$)"
    # "should I use Redis instead of Postgres?" only asks, "can you use metric units instead of imperial?" does not
    rf"|\byou (?:please )?{_USE}|\b{_USE}(?![^.!?\n,;(]{{0,200}}\?)",
    re.I,
)
_RARE_RULE = re.compile(
    # "Use British spelling whenever you cite", "and add a source in all answers"
    rf"(?:^|[.!?:;,\n]|\b(?:and|please))\W{{0,4}}\b{_ORDER} [^.!?\n]{{0,100}}\b{_EACH}"
    # "That's a red line", "It is non-negotiable", "Could you always answer in full sentences?"
    r"|\b(?:that|this|it)(?:['\u2019]s| is| are) (?:a |an |our |my |the )?(?:red line|non-?negotiable|deal-?breaker)\b"
    r"|\b(?:can|could|would|will) you (?:always|never)\b",
    re.I,
)
"""The same in rarer forms, kept apart so that fewer texts have to be searched for them."""
_PREFERENCE = re.compile(
    r"\b(?:i|we) (?:\w+ly |always )?prefer\b|\bmy preferences?\b|\b(?:i|we)(?:['\u2019]d| would) rather\b"
    rf"|{_ANNOUNCED} preferences?\b[^.?!:\n]{{0,40}}:\s*\S",
    re.I,
)
_RULE_SIGNS = (
    "always", "never", "now on", "here on", "going forward", "i ask", "whenever you", "time you", "make sure ",
    "do not", "don'", "don\u2019", "must n", "rule", "wish", "please",
)  # fmt: skip
_INSTEAD_SIGNS = ("not", "instead of", "rather than")
_RARE_SIGNS = (
    "ever you", "ever i", "ever we", "time you", "time i", "time we", "thing you", "thing i", "thing we",
    "red line", "negotiable", "breaker", "you always", "you never",
)  # fmt: skip
_EACH_SIGNS = (" all ", " any ", " every ", " each ")
_WRITTEN_SIGNS = ("answer", "repl", "respon", "message", "mail", "letter")
"""Every rule contains one of these, or one of each: looking for them costs a hundredth of matching the patterns."""
_PREFERENCE_SIGNS = ("prefer", "rather")


_LIMITS = (
    "allergi", "allergy", "al\u00e9rgi", "\u00e1lergi", "anaphyla", "lactose intol", "lactose-intol",
    "laktoseintol", "gluten intol", "gluten-intol", "glutenintol", "coeliac", "celiac", "c\u00e9liac", "cel\u00edac",
    "z\u00f6liakie", "vegetari", "v\u00e9g\u00e9tari", "vegan", "diabet", "epilep", "uczulon",
    "\u0430\u043b\u043b\u0435\u0440\u0433", "\u0430\u043b\u0435\u0440\u0433", "\u8fc7\u654f", "\u904e\u654f",
    "\u30a2\u30ec\u30eb\u30ae\u30fc", "\uc54c\ub808\ub974\uae30",
)  # fmt: skip
"""Limits of somebody's health or diet, as they begin. Who forgets them does harm."""


def is_limit(text: str) -> bool:
    """Does it name an allergy or something like it: what somebody must not eat or take?"""
    return any(map(folded(text).__contains__, _LIMITS))


def is_rule(text: str) -> bool:
    """Does a sentence of the text say how something is always or never to be done?"""
    low = folded(text)
    return (
        (_may_be_english_rule(low) and _RULE.search(text) is not None)
        or (_may_be_rare_rule(low) and _RARE_RULE.search(text) is not None)
        or is_rule_in_other_language(text, low)
    )


def is_preference(text: str) -> bool:
    """Does it say what somebody would prefer?"""
    return _may_be_preference(folded(text)) and _PREFERENCE.search(text) is not None


def may_be_instruction(text: str) -> bool:
    """May `text` contain a rule or a preference? A fast check: False is certain, also for each piece of it."""
    low = folded(text)
    return _may_be_rule(low) or _may_be_preference(low)


def _may_be_rule(low: str) -> bool:
    return _may_be_english_rule(low) or _may_be_rare_rule(low) or may_be_rule_in_other_language(low)


def _may_be_english_rule(low: str) -> bool:
    return any(map(low.__contains__, _RULE_SIGNS)) or ("use " in low and any(map(low.__contains__, _INSTEAD_SIGNS)))


def _may_be_rare_rule(low: str) -> bool:
    contains = low.__contains__
    return any(map(contains, _RARE_SIGNS)) or (any(map(contains, _EACH_SIGNS)) and any(map(contains, _WRITTEN_SIGNS)))


def _may_be_preference(low: str) -> bool:
    return any(sign in low for sign in _PREFERENCE_SIGNS)


def instruction_kind(text: str) -> Literal["rule", "preference"] | None:
    """Which of the two the text contains; a rule comes first."""
    return "rule" if is_rule(text) else "preference" if is_preference(text) else None
