"""What clients put around a summary, and which answers may be one."""

import re
from collections.abc import Iterator

from lantern_proxy.history.record import Said
from lantern_proxy.history.text import breadth
from lantern_proxy.turn import Request

SUMMARY_CHARS = 60
"""Shortest answer that may be a summary of something, as is_long_text() counts."""

_QUESTION_CHARS, _ASKS = 300, re.compile(r"(?:[^.!?\u3002\uff1f\u061f\u037e]|[.!](?!\s))*[?\uff1f\u061f\u037e]")
"""A shorter answer that is one sentence with a question mark is a question."""

MARKER = re.compile(
    r"(?:previous|earlier in th(?:e|is)) conversation|conversation (?:history )?(?:so far|to date|before this point)"
    r"|(?:context|conversation|session|chat) summary|summary of (?:\w+ ){0,3}(?:conversation|session|chat)"
    r"|summary of (?:\w+ )?(?:previous|earlier|prior|older) "
    r"|(?:früher|zuvor|vorher) in diese[mr] (?:gespräch|unterhaltung)|vorherige[ns]? (?:gespräch|unterhaltung)"
    r"|plus tôt dans cette conversation|conversation précédente|antes en esta conversación|conversación anterior"
    r"|antes nesta conversa|conversa anterior|prima in questa conversazione|conversazione precedente"
    r"|ранее в (?:этом разговоре|этой беседе)|предыдущ\w+ (?:разговор|бесед)"
    r"|(?:以前|これまで)の会話|(?:之前|此前)的对话|이전 대화",
    re.I,
)
"""Words that clients put in front of a summary."""
MARKER_CHARS = 2_000
"""Characters at the beginning of a text in which such words are looked for."""
_NOTE = re.compile(r"[\[(<][^\n]{0,120}[\])>]")
"""A line in brackets, and nothing else: a client says there that something was left out, or how much."""
SUMMED_UP = re.compile(
    rf"{MARKER.pattern}|summar|recap|\bso far\b|compacted|condensed"
    "|zusammenfass|bisher|résum|jusqu'|resum[eio]"
    "|riassunt|finora|hasta ahora|até agora|samenvatt|tot nu toe|sammanfatt|hittills|podsumow|dotychczas|до сих пор"
    "|кратк|итог|özet|şimdiye|ملخص|总结|摘要|總結|到目前|要約|これまで|まとめ|요약|지금까지",
    re.I,
)
"""Words around a summary, and at its beginning."""


def is_long_text(text: str) -> bool:
    """Is a text long enough to be a summary? Signs of scripts without spaces count twice: they say more."""
    return len(text) >= SUMMARY_CHARS or breadth(text) >= SUMMARY_CHARS


def is_marked(text: str) -> bool:
    """Does a text open with words that clients put in front of a summary, and say more?"""
    return MARKER.search(text[:MARKER_CHARS]) is not None and not is_note(text)


def is_note(text: str) -> bool:
    """Is a text no more than a short line in brackets, which tells nothing of what was said?"""
    return _NOTE.fullmatch(text.strip()) is not None


def is_called_summary(text: str) -> bool:
    """Does a text open with words of a summary, in any of the languages of SUMMED_UP?"""
    return SUMMED_UP.search(text[:MARKER_CHARS]) is not None


def has_marker(request: Request) -> bool:
    """Does such a text stand among the first eight messages?"""
    return any(is_marked(m.text) for m in request.messages[:8])


def side_summaries(said: Said) -> Iterator[str]:
    """Answers of side calls that may be summaries. A mere question is none: clients have the user's questions
    reworded."""
    told = (text for text, who in said if who == "side" and is_long_text(text))
    return (text for text in told if not _ASKS.fullmatch(text[:_QUESTION_CHARS]))
