"""Is a text source code or natural language? Settings (`PORT=9443`), commands, paths and errors count as language.
Pure.

Finds prose that was archived with code in between. Judged line by line, since passages are cut by length, and a fence
may begin in one and end in another.
"""

import re
from collections.abc import Sequence

from lantern_proxy.analyze.facts import CALLS, Facts

_CODE_START = re.compile(
    # fences, comments, `#!/bin/sh`, tags
    r"(?:```|~~~|//|/\*|\*/|<!--|#(?= [a-z]|!)|</?[a-z][^>]*>"
    # `@cache`, `import os.path as p`, `from a import b`
    r"|@\w[\w.]*(?:\(.*)?$|import \w[\w.]*(?: as \w+)?$|from [\w.]+ import "
    # `total += price * 2`, `SELECT id`
    r"|[\w.\[\]\"']+ [-+*/|]?= (?=\S* \S|\S*[(\[{\"'])"
    r"|(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP) [\w*]"
    # `def f(x):`, `if (x) {`, `return f(x);`
    r"|(?:def|class|for|while|if|elif|else|with|function|try|except|catch|finally|switch|case)\b.*[:{]$"
    r"|(?:const|let|var|async|await|return|raise|throw|assert|print|yield)\b.*[;()])"
)
"""Beginnings of lines of code; some lines are recognised by their end."""
_OPENING_TAG = re.compile(r"<[a-z][^>]*>\s*\w")
"""A tag around what follows."""
_PROSE_SHARE = 0.6
"""Share of words among a line's pieces from which on it is language, whatever symbols it has."""
_SENTENCE_WORDS = 5
"""Least number of words in a sentence."""


def is_code(text: str, facts: Facts) -> bool:
    """Is a fence or a line source code? facts: of this text"""
    if _CODE_START.match(text):
        return True
    if text.endswith("."):  # lines of code hardly ever do: "For x = 2: (1, -2)." is prose
        return False
    has_code_symbols = facts.signs >= max(2, 0.05 * len(text)) and facts.flags & CALLS
    return bool(has_code_symbols or text.endswith((";", "{", "}"))) and not facts.is_prose(_PROSE_SHARE)


def which_are_code(lines: Sequence[str], facts: Sequence[Facts]) -> list[bool]:
    """For each line of a text: is it code? If most of the text is code, every line without a sentence is.

    A tag before the first sentence belongs to the text as a whole: `<result>The port is free now.`
    """
    found = [*map(is_code, lines, facts)]
    if found and _OPENING_TAG.match(lines[0]) and _is_sentence(facts[0]):
        found[0] = False
    code_chars = sum([len(line) for line, code in zip(lines, found, strict=True) if code])
    if 2 * code_chars < sum(map(len, lines)):
        return found
    return [code or not _is_sentence(each) for each, code in zip(facts, found, strict=True)]


def _is_sentence(facts: Facts) -> bool:
    return facts.pieces >= _SENTENCE_WORDS and facts.is_prose(_PROSE_SHARE)
