"""`lantern reindex`: rebuilds terms and lexical indexes, and computes missing vectors."""

from typing import Any

import click

from lantern_proxy import chunk, embed
from lantern_proxy.archive import Archive
from lantern_proxy.archive.full_text import analyse
from lantern_proxy.archive.snapshots import drop_snapshots
from lantern_proxy.cli.render import counting
from lantern_proxy.config import Config
from lantern_proxy.embed import Embedder, ModelError
from lantern_proxy.restore.scopes import large_scopes, make_snapshot
from lantern_proxy.restore.vectors import embed_some

_BATCH = 64
"""Passages per commit: about 2 s of work, so that stopping loses little."""


def run(archive: Archive, config: Config, *, vectors: bool, quiet: bool) -> dict[str, Any]:
    """Rebuild the full-text index, the terms of passages that an older release archived and the snapshots of large BM25
    indexes, then embed all passages without vectors.

    vectors: drop the existing vectors first, and fail if none can be computed

    Raises ModelError and ArchiveError.
    """
    analysed = _index_words(archive, quiet=quiet)
    snapshots = make_snapshots(archive, config, quiet=quiet)
    reason = _why_no_vectors(archive, config)
    if reason and vectors:
        raise ModelError(reason)
    embedded = 0 if reason else _embed_all(archive, config, vectors=vectors, quiet=quiet)
    return {
        "archive": archive.path,
        "model": archive.model,
        "analysed": analysed,
        "embedded": embedded,
        "skipped": reason,
        "snapshots": snapshots,
    }


def _index_words(archive: Archive, *, quiet: bool) -> int:
    """Number of passages with changed terms."""
    try:
        with counting("indexing words", quiet=quiet) as advance:
            archive.rebuild_fts(advance)
        with counting("reading passages", quiet=quiet) as advance:
            return analyse(archive, chunk.reanalysed, advance)
    except KeyboardInterrupt:
        message = "stopped in the middle: searches find what is indexed again; the same command goes on"
        raise click.ClickException(message) from None


def make_snapshots(archive: Archive, config: Config, *, quiet: bool) -> int:
    """Rebuild the snapshots of all large tenants or projects; their number. Raises OSError."""
    if archive.encrypted:  # nothing is kept in the clear beside it
        return 0
    drop_snapshots(archive.path)
    scopes = large_scopes(archive, config.restore.scope)
    with counting("indexing passages", sum(n for _, n in scopes), quiet=quiet or not scopes) as advance:
        return sum(make_snapshot(archive, key, advance) for key, _ in scopes)


def _why_no_vectors(archive: Archive, config: Config) -> str:
    """Why vectors cannot be computed, or ""."""
    if not archive.vectors:
        return f"{'; '.join(archive.degraded)}; pip install pysqlite3 sqlite-vec"
    if config.embed.enabled == "off":
        return "the embedder is turned off (embed.enabled)"
    return "" if embed.available() else 'the extra `dense` is not installed; pip install "lantern-proxy[dense]"'


def _embed_all(archive: Archive, config: Config, *, vectors: bool, quiet: bool) -> int:
    """Number of newly embedded passages."""
    done = 0
    with Embedder.of(config.embed) as embedder, counting("embedding passages", quiet=quiet) as advance:
        embedder.start()
        if not embedder.wait():
            raise ModelError(embedder.detail)
        if vectors:
            archive.drop_vectors()
        while (new := embed_some(archive, embedder, _BATCH)) is not None:
            done += new
            advance(new)
    return done
