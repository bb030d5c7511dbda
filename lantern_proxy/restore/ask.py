"""What a restore is asked, and what it tells besides the block."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lantern_proxy.config import RestoreConfig
from lantern_proxy.restore.passed_over import Passed
from lantern_proxy.turn import Restored

_LOOKING = 0.6
"""Share of the time up to the deadline in which a restore looks for passages; the rest is for packing those."""


def looking_s(restore: RestoreConfig) -> float:
    """Seconds in which a restore looks for passages. An embedder that takes half of them when a restore is late counts
    as sick."""
    return _LOOKING * restore.deadline_ms / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a restore needs to know of one request. The defaults are for whoever only looks, and makes no block."""

    tenant: str
    project: str = ""
    session: str = ""
    present: str = ""
    """Text of everything that the request holds, replayed blocks included: as present.text_of() gives it."""
    shown: frozenset[int] = frozenset()
    """Ids of the passages in replayed blocks."""
    left: frozenset[str] = frozenset()
    """Keys of messages on branches that the client left: what was taken back is not restored."""
    question: str = ""
    """Text of the user message that waits for an answer; "" when none does."""
    users_text: str = ""
    """What users say in the request, one line a text, as present.users_text_of() gives it: it may replace what was
    said before."""
    summary: str = ""
    """The text that the client put in place of what was lost; "" when there is none."""
    budget_chars: int = 0
    """Most characters of the block."""
    now: float = 0.0
    """Unix seconds."""
    deadline: float = math.inf
    """time.monotonic() value; once it is past, the restore returns what it has by then."""
    notes: list[str] = field(default_factory=list, compare=False)
    """Filled by the restore: what was skipped and why, also when there is nothing to put back."""
    passed: Passed = field(default_factory=Passed, compare=False)
    """Filled by the restore: the passages that it left out, also when there is nothing to put back."""

    def beside(self, blocks: Sequence[Restored]) -> "Ask":
        """The same ask for a request that holds these blocks, too."""
        present = "\n".join([self.present, *(" ".join(block.text.split()) for block in blocks)])
        return replace(self, present=present, shown=self.shown.union(p.passage.id for b in blocks for p in b.placed))

    def late(self) -> bool:
        """Is the deadline past? The first time that it is, that is noted."""
        if time.monotonic() < self.deadline:
            return False
        if "restore:deadline" not in self.notes:
            self.notes.append("restore:deadline")
        return True
