"""A restore's input, `Ask`: one request and its limits. The restore also reports in it what was skipped."""

import math
import time
from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from lantern_proxy.config import RestoreConfig
from lantern_proxy.restore.passed_over import Passed
from lantern_proxy.turn import Restored

_LOOKING = 0.6
"""Share of the time up to the deadline for finding passages; the rest is for packing them."""


def looking_s(restore: RestoreConfig) -> float:
    """Seconds that a restore may spend on finding passages. An embedder that used half of them in a restore that came
    late counts as unhealthy."""
    return _LOOKING * restore.deadline_ms / 1000


class Ask(Struct, frozen=True, kw_only=True):
    """What a restore needs to know of one request. The defaults suit callers that only search and build no block."""

    tenant: str
    project: str = ""
    session: str = ""
    present: str = ""
    """All text of the request, replayed blocks included, as present.text_of() returns it."""
    shown: frozenset[int] = frozenset()
    """Ids of the passages in replayed blocks."""
    abandoned: frozenset[str] = frozenset()
    """Keys of messages on branches that the client abandoned: what a user took back is not restored."""
    question: str = ""
    """Text of the user message that waits for an answer; "" when none does."""
    users_text: str = ""
    """What users say in the request, one line per text, as present.users_text_of() returns it. It may supersede
    archived statements."""
    summary: str = ""
    """The text that the client put in place of what was lost; "" when there is none."""
    budget_chars: int = 0
    """Most characters of the block."""
    now: float = 0.0
    """Unix seconds."""
    deadline: float = math.inf
    """time.monotonic() value; once it is past, the restore returns what it has by then."""
    degraded: list[str] = []
    """Filled by the restore, even when it returns no block: what was skipped and why ("dense:warming")."""
    passed: Passed = field(default_factory=Passed)
    """Filled by the restore, even when it returns no block: the passages that it left out."""

    def with_blocks(self, blocks: Sequence[Restored]) -> "Ask":
        """The same, for the request with these blocks in it."""
        present = "\n".join([self.present, *(" ".join(block.text.split()) for block in blocks)])
        return replace(self, present=present, shown=self.shown.union(p.passage.id for b in blocks for p in b.placed))

    def late(self) -> bool:
        """Has the deadline passed? If so, `degraded` says it, once."""
        if time.monotonic() < self.deadline:
            return False
        if "restore:deadline" not in self.degraded:
            self.degraded.append("restore:deadline")
        return True
