"""What a restore is asked, and what it tells besides the block."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lantern_proxy.config import RestoreConfig
from lantern_proxy.restore.passed_over import Passed
from lantern_proxy.turn import Restored

_LOOKING = 0.6
"""Share of the deadline in which a restore looks for passages; the rest is for packing what it has by then."""


def looking_s(restore: RestoreConfig) -> float:
    """Seconds in which a restore looks for passages. A model that made it late is sick if it took half of them."""
    return _LOOKING * restore.deadline_ms / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a restore needs to know of one request."""

    tenant: str
    project: str
    session: str
    present: str
    """Canonical text of everything the request holds, replayed blocks included."""
    shown: frozenset[int] = frozenset()
    """Passage ids in replayed blocks."""
    left: frozenset[str] = frozenset()
    """Keys of messages of branches that the client left: what was taken back is not restored."""
    question: str = ""
    """Text of the last user message."""
    told: str = ""
    """What its users say in it, and may change what was said before: one line a text, see present.told_in."""
    summary: str = ""
    """Text that stands for what was lost, if there is any."""
    budget_chars: int
    now: float
    """Unix seconds."""
    deadline: float
    """time.monotonic() value; past it, what there is by then is returned."""
    notes: list[str] = field(default_factory=list, compare=False)
    """Filled by the restore: what was skipped and why, also when there is nothing to put back."""
    passed: Passed = field(default_factory=Passed, compare=False)
    """Filled by the restore: the passages that it left out, also when there is nothing to put back."""

    def beside(self, blocks: Sequence[Restored]) -> "Ask":
        """The same with these blocks in the request."""
        present = "\n".join([self.present, *(" ".join(block.text.split()) for block in blocks)])
        return replace(self, present=present, shown=self.shown.union(p.passage.id for b in blocks for p in b.placed))

    def late(self) -> bool:
        if time.monotonic() < self.deadline:
            return False
        if "restore:deadline" not in self.notes:
            self.notes.append("restore:deadline")
        return True
