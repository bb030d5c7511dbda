"""`lantern reindex`: make the full-text index anew, and give passages the vectors that they lack."""

from typing import Any

from lantern_proxy import embed
from lantern_proxy.archive import Archive
from lantern_proxy.cli_text import counting
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder, EmbedError

_AT_ONCE = 64
"""Passages between two commits: about 2 s of work, so that stopping loses little."""


def run(archive: Archive, config: Config, *, vectors: bool, quiet: bool) -> dict[str, Any]:
    """Rebuild the full-text index, then embed all passages that wait.

    vectors: forget the vectors that are there first, and fail rather than leave them away
    Raises EmbedError and ArchiveError.
    """
    archive.rebuild_fts()
    lacking = _lacking(archive, config)
    if lacking and vectors:
        raise EmbedError(lacking)
    embedded = 0 if lacking else _embed_all(archive, config, vectors=vectors, quiet=quiet)
    return {"archive": archive.path, "model": archive.model, "embedded": embedded, "skipped": lacking}


def _lacking(archive: Archive, config: Config) -> str:
    """Why there can be no vectors, or ""."""
    if not archive.vectors:
        return f"{'; '.join(archive.degraded)}; pip install pysqlite3 sqlite-vec"
    if config.embed.enabled == "off":
        return "the embedder is turned off (embed.enabled)"
    return "" if embed.available() else 'the extra `dense` is not installed; pip install "lantern-proxy[dense]"'


def _embed_all(archive: Archive, config: Config, *, vectors: bool, quiet: bool) -> int:
    """How many passages got a vector."""
    done = 0
    settings = config.embed
    with (
        Embedder(settings.model, settings.cache_dir, settings.threads) as embedder,
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
    return done


def _embed(archive: Archive, embedder: Embedder, waiting: list[tuple[str, int, str]]) -> int:
    """Vectors for one batch; how many of them were new."""
    rows = []
    for (tenant, id, _), vector in zip(waiting, embedder.embed([text for *_, text in waiting]), strict=True):
        for passage in archive.of(tenant).passages_by_id([id]).values():
            rows.append((tenant, passage.session, id, vector))
    return archive.add_vectors(embedder.name, embedder.dim, rows)
