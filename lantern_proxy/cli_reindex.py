"""`lantern reindex`: give passages the vectors that they lack."""

from typing import Any

from lantern_proxy.archive import Archive
from lantern_proxy.cli_text import counting
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder, EmbedError

_AT_ONCE = 64
"""Passages between two commits: about 2 s of work, so that stopping loses little."""


def run(archive: Archive, config: Config, *, vectors: bool, quiet: bool) -> dict[str, Any]:
    """Embed all passages that wait. vectors: forget those that are there first. Raises EmbedError, ArchiveError."""
    if not archive.vectors:
        raise EmbedError(
            f"no vectors can be kept here ({'; '.join(archive.degraded)}); pip install pysqlite3 sqlite-vec"
        )
    done = 0
    with (
        Embedder(config.embed.model, config.embed.cache_dir, config.embed.threads) as embedder,
        counting("embedding passages", quiet=quiet) as advance,
    ):
        embedder.start()
        if not embedder.wait():
            raise EmbedError(embedder.detail)
        if vectors:
            archive.drop_vectors()
        while waiting := archive.unembedded(_AT_ONCE):
            done += _embed(archive, embedder, waiting)
            advance(len(waiting))
    return {"archive": archive.path, "model": embedder.name, "embedded": done}


def _embed(archive: Archive, embedder: Embedder, waiting: list[tuple[str, int, str]]) -> int:
    """Vectors for one batch; how many of them were new."""
    rows = []
    for (tenant, id, _), vector in zip(waiting, embedder.embed([text for *_, text in waiting]), strict=True):
        for passage in archive.of(tenant).passages_by_id([id]).values():
            rows.append((tenant, passage.session, id, vector))
    return archive.add_vectors(embedder.name, embedder.dim, rows)
