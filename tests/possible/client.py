"""A client that could exist, as its features tell it."""

from dataclasses import dataclass

from possible.compactions import HARMLESS
from possible.wire import Dress


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Its features, and the script of its conversation."""

    number: int
    api: str
    stream: bool
    ids: str
    system: str
    tools: bool
    language: str
    summary_language: str
    dress: Dress
    stamps: str
    thinks: bool
    images: bool
    style: str
    """How it shortens its history: a name of compactions.py, or none."""
    summarising: str
    preamble: str
    tail: int
    """Messages that it keeps."""
    turns: int
    rounds: int
    incidents: tuple[str, ...]
    neighbours: int
    """Other conversations that go on beside the one that is shortened."""
    same_opening: bool
    terse: bool
    """Its user mostly nods, in words that others use as well, and its model takes many steps."""
    restarts: bool
    """The proxy is restarted before a compaction."""
    at_once: bool = False
    """Its model calls several tools at once, and their results come in any order."""
    also: str = ""
    """How it shortens its history every other time, if not in the same way as before."""
    thinks_aloud: bool = False
    """Its model thinks in its answers, between tags, and the client leaves that out when it shows them again."""

    @property
    def never_shortens(self) -> bool:
        return self.style == "none" or self.style in HARMLESS
