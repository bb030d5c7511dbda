"""Token vectors of passages: what late interaction compares. Each passage's stand in one blob, int8."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlite_utils.db import Database

from lantern_proxy.archive_reads import Reads, json_ids

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Tokens = npt.NDArray[np.int8]
    """(tokens, numbers of one)"""

_ADD = """INSERT OR REPLACE INTO tokens (passage, tenant, recipe, vectors)
    SELECT id, tenant, ?, ? FROM passages WHERE tenant = ? AND id = ?"""
_READ = """SELECT t.passage, t.vectors FROM json_each(?) j
    CROSS JOIN tokens t ON t.passage = j.value AND t.tenant = ? AND t.recipe = ?"""


def add_tokens(db: Database, recipe: str, rows: "Sequence[tuple[str, int, Tokens]]") -> None:
    """Keep what was made of passages, each (tenant, passage id, vectors). Those that are gone by now are skipped."""
    db.conn.executemany(_ADD, [(recipe, vectors.tobytes(), tenant, id_) for tenant, id_, vectors in rows])


class TokenVectors(Reads):
    """The part of TenantArchive that reads token vectors."""

    def tokens(self, ids: Iterable[int], recipe: str, dim: int) -> "dict[int, Tokens]":
        """(tokens, dim) int8 of each of `ids` that has some of this recipe."""
        import numpy as np

        rows = self._rows(_READ, (json_ids(ids), self.tenant, recipe))
        return {id_: np.frombuffer(packed, np.int8).reshape(-1, dim) for id_, packed in rows}
