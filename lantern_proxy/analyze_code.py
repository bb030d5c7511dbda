"""Is a text a program, or is it said? Settings (`PORT=9443`), commands, paths and errors are said. Pure.

For prose that was archived with code between it. Told line by line, since passages are cut where it suits their
length, and a fence may begin in one and end in another.
"""

import re
from collections.abc import Sequence

_PROSE = re.compile(r"[(\"'*]*[^\W\d_][^\W\d_']+[.,;:!?)\"'*]*")
_SIGNS = re.compile(r"[{}\[\]();=<>]")
_CALLS = re.compile(r"\w\(|[{};=<>]")
_BEGINS = re.compile(
    r"(?:```|~~~|//|/\*|\*/|<!--|#(?= [a-z]|!)|</?[a-z][^>]*>|@\w[\w.]*(?:\(.*)?$|import \w[\w.]*(?: as \w+)?$"
    r"|from [\w.]+ import |[\w.\[\]\"']+ [-+*/|]?= (?=\S* \S|\S*[(\[{\"'])"
    r"|(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP) [\w*]"
    r"|(?:def|class|for|while|if|elif|else|with|function|try|except|catch|finally|switch|case)\b.*[:{]$"
    r"|(?:const|let|var|async|await|return|raise|throw|assert|print|yield)\b.*[;()])"
)
_MOST_PROSE = 0.6
"""Of a line's pieces: from here on signs between them do not make it code."""
_SENTENCE = 5
"""Words that make one."""


def prose(pieces: Sequence[str]) -> float:
    """Share of words among the pieces of a text, split at white space; 0 without any."""
    return sum(_PROSE.fullmatch(piece) is not None for piece in pieces) / max(1, len(pieces))


def is_prose(pieces: Sequence[str], share: float) -> bool:
    """Are at least `share` of the pieces words? Most texts need no look at their signs to tell."""
    plain = sum([len(piece) > 1 and piece.isalpha() for piece in pieces])
    return 0 < share * len(pieces) <= plain or prose(pieces) >= share


def is_code(text: str) -> bool:
    """Is a fence, or a line, of a program?"""
    if _BEGINS.match(text):
        return True
    signs = len(_SIGNS.findall(text))
    signed = signs >= max(2, 0.05 * len(text)) and _CALLS.search(text) is not None
    return (signed or text.endswith((";", "{", "}"))) and not is_prose(text.split(), _MOST_PROSE)


def code_among(lines: Sequence[str]) -> list[bool]:
    """Which of a text's lines are code: what has no sentence in it is, where most of the text is."""
    found = [is_code(line) for line in lines]
    coded = sum(len(line) for line, code in zip(lines, found, strict=True) if code)
    if 2 * coded < sum(map(len, lines)):
        return found
    return [code or not _is_sentence(line) for line, code in zip(lines, found, strict=True)]


def _is_sentence(line: str) -> bool:
    pieces = line.split()
    return len(pieces) >= _SENTENCE and is_prose(pieces, _MOST_PROSE)
