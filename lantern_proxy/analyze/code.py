"""Is a text a program, or is it said? Settings (`PORT=9443`), commands, paths and errors are said. Pure.

For prose that was archived with code between it. Told line by line, since passages are cut where it suits their
length, and a fence may begin in one and end in another.
"""

import re
from collections.abc import Sequence

from lantern_proxy.analyze.facts import CALLS, Facts

_BEGINS = re.compile(
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
"""How a line of a program begins; some are known by their end."""
_OPENS = re.compile(r"<[a-z][^>]*>\s*\w")
"""A tag around what follows."""
_MOST_PROSE = 0.6
"""Share of a line's pieces that are words: from here on it is said, whatever signs stand between them."""
_SENTENCE = 5
"""Words that make one."""


def is_code(text: str, facts: Facts) -> bool:
    """Is a fence, or a line, of a program? facts: of this text"""
    if _BEGINS.match(text):
        return True
    if text.endswith("."):  # hardly a line of a program does: "For x = 2: (1, -2)." is said
        return False
    signed = facts.signs >= max(2, 0.05 * len(text)) and facts.flags & CALLS
    return bool(signed or text.endswith((";", "{", "}"))) and not facts.is_prose(_MOST_PROSE)


def code_among(lines: Sequence[str], facts: Sequence[Facts]) -> list[bool]:
    """Which of a text's lines are code: what has no sentence in it is, where most of the text is.

    The tag in front of a sentence that opens the text is around the text: `<result>The port is free now.`
    """
    found = [*map(is_code, lines, facts)]
    if found and _OPENS.match(lines[0]) and _is_sentence(facts[0]):
        found[0] = False
    coded = sum([len(line) for line, code in zip(lines, found, strict=True) if code])
    if 2 * coded < sum(map(len, lines)):
        return found
    return [code or not _is_sentence(each) for each, code in zip(facts, found, strict=True)]


def _is_sentence(facts: Facts) -> bool:
    return facts.pieces >= _SENTENCE and facts.is_prose(_MOST_PROSE)
