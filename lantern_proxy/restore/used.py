"""Updates confidence and success of restored passages: did the answer use them?"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

from lantern_proxy import reinforce
from lantern_proxy.analyze import key as term_key
from lantern_proxy.archive import Archive
from lantern_proxy.restore.present import Present
from lantern_proxy.turn import BlockKind, Placed

REMEMBERED = 10_000
"""Restored passages whose own terms are kept until their answer arrives."""

Learnt = tuple[Mapping[int, tuple[float, float, int, float]], Mapping[int, bool]]
"""passage id -> (confidence, success, accesses, accessed_at), and passage id -> did the answer use it?"""


class Used:
    """Keeps the terms that an answer can only have from a restored passage, until the answer arrives. Thread-safe."""

    def __init__(self, archive: Archive, rates: reinforce.Rates) -> None:
        self._archive, self._rates = archive, rates
        self._own: OrderedDict[tuple[str, int], frozenset[str]] = OrderedDict()
        self._lock = Lock()

    def remember(self, tenant: str, placed: Sequence[Placed], present: Present) -> None:
        """Keep the terms that only these passages can contribute to the answer, for settle()."""
        said = {p.passage.id: {term_key(tag) for tag in p.passage.tags if tag in p.text} for p in placed}
        held = present.may_hold(frozenset().union(*said.values()))
        own = {passage_id: frozenset(term_keys - held) for passage_id, term_keys in said.items()}
        with self._lock:
            for passage_id, terms_own in own.items():
                self._own[tenant, passage_id] = terms_own
                self._own.move_to_end((tenant, passage_id))
            while len(self._own) > REMEMBERED:
                self._own.popitem(last=False)

    def settle(self, tenant: str, restored: Mapping[int, BlockKind], answer: str, now: float) -> Learnt:
        """The arguments of TenantArchive.reinforce() after the answer to a request with restored passages; `restored`
        tells in which block each one was.

        A passage of a loss block that the answer does not use loses nothing: nobody asked for it, and rules are rarely
        repeated. Call it once per block, not when the block is replayed.
        """
        said = term_key(answer)
        updates, used = {}, {}
        for passage_id, passage in self._archive.of(tenant).passages_by_id([*restored]).items():
            with self._lock:
                own = self._own.pop((tenant, passage_id), None)
            terms_own = own if own is not None else frozenset(map(term_key, passage.tags))
            used[passage_id] = reinforce.used(terms_own, said)
            confidence, success = passage.confidence, passage.success
            if used[passage_id] or restored[passage_id] == "question":
                confidence, success = reinforce.settle(confidence, success, used[passage_id], self._rates)
            updates[passage_id] = (confidence, success, passage.accesses + 1, now)
        return updates, used

    def forget(self) -> None:
        with self._lock:
            self._own.clear()
