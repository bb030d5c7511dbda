"""Computes the missing vectors of passages: of the whole text, and of each word that counts.

Separate from restore/dense.py, so that a proxy that only archives can embed without loading the restore code, which
takes 4 MB.
"""

from collections.abc import Callable

from lantern_proxy.archive import Archive
from lantern_proxy.embed import Embedder


def embed_some(
    archive: Archive, embedder: Embedder, most: int, give_way: Callable[[], None] = lambda: None
) -> int | None:
    """Embed at most `most` passages without vectors; returns how many vectors are new, None if no passage waits.

    give_way: called before each passage, and may wait for more urgent work

    Raises ModelError while the embedder is not ready, and ArchiveError.
    """
    waiting = archive.unembedded(most)
    if not waiting:
        return None
    rows, tokens = [], []
    for tenant, id_, text in waiting:
        give_way()
        (vector,), (words,) = embedder.embed_passages([text])
        for passage in archive.of(tenant).passages_by_id([id_]).values():
            rows.append((tenant, passage.session, id_, vector))
            if len(words) and passage.unit == "passage":
                tokens.append((tenant, id_, words))
    return archive.add_vectors(embedder.name, embedder.dim, rows, recipe=embedder.recipe, tokens=tokens)
