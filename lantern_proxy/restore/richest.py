"""Decides which passages to read first when no question is known, by an estimate from the archive's columns.

Only what a block may take is then read and split into sentences.
"""

import time
from array import array

import numpy as np

from lantern_proxy.archive import TenantArchive
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.turn import CLIENT

RICH = 3
"""Most specific terms that count; more prove no more, and code and tables are full of them."""
STEP = 5_000
"""Passages whose columns are read between two checks of the deadline: about 10 ms."""
_SPEAKERS = {"user": 1.0, "assistant": 0.4, CLIENT: 0.05}
_KINDS = {("user", "semantic"): 4.0, ("user", "procedural"): 0.3, ("assistant", "procedural"): 0.3}
"""Rules, preferences and facts stated by users are short and have few names; passages with code have many."""


def richness(speaker: str, kind: str, n_tags: int, n_chars: int) -> float:
    """Specific terms per length. User text counts most, tool output least. kind: as returned by chunk.kind"""
    worth = _SPEAKERS.get(speaker, 0.3) * _KINDS.get((speaker, kind), 1.0)
    return float(worth * (1 + min(n_tags, RICH)) / (n_chars + 40) ** 0.75)


class Richest:
    """The rows of a scope in order of richness. Grows with the scope."""

    def __init__(self) -> None:
        self._ids, self._values = array("q"), array("d")
        self._order: Ints = np.zeros(0, np.int64)
        self._ordered = (0, 0)
        """Number of passages in the scope, and of those known here, when the order was computed."""

    def order(
        self, own: TenantArchive, scope: tuple[str | None, str | None, str], ids: "array[int]", deadline: float
    ) -> Ints:
        """(n,) rows of `ids`, richest first. Passages that were pruned, or not read by the deadline, come last.

        scope: session, project (None: any) and unit, as TenantArchive.outline takes them
        """
        while ids and (not self._ids or self._ids[-1] < ids[-1]):
            found = own.shapes(*scope, self._ids[-1] if self._ids else 0, STEP)
            self._ids.extend([id_ for id_, *_ in found])
            self._values.extend([richness(speaker, kind, tags, chars) for _, speaker, kind, tags, chars in found])
            if len(found) < STEP or time.monotonic() > deadline:
                break
        if self._ordered != (len(ids), len(self._ids)):
            self._order, self._ordered = np.argsort(-self._of(ids), kind="stable"), (len(ids), len(self._ids))
        return self._order

    def _of(self, ids: "array[int]") -> Floats:
        """(n,) richness of each of `ids`; 0 if unknown."""
        wanted, known = np.array(ids, np.int64), np.array(self._ids, np.int64)
        if not len(known):
            return np.zeros(len(wanted))
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[at] == wanted, np.array(self._values)[at], 0.0)
