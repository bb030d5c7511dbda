"""Vectors for passages that wait for theirs: of the whole text, and of each word that counts."""

from lantern_proxy.archive import Archive
from lantern_proxy.embed import Embedder


def embed_some(archive: Archive, embedder: Embedder, most: int) -> int | None:
    """Embed at most `most` passages that have no vector; how many vectors are new. None: no passage waits.

    Raises ModelError while the embedder is not ready, ArchiveError.
    """
    waiting = archive.unembedded(most)
    if not waiting:
        return None
    rows, tokens = [], []
    vectors, made = embedder.embed_passages([text for *_, text in waiting])
    for (tenant, id_, _), vector, words in zip(waiting, vectors, made, strict=True):
        for passage in archive.of(tenant).passages_by_id([id_]).values():
            rows.append((tenant, passage.session, id_, vector))
            if len(words) and passage.unit == "passage":
                tokens.append((tenant, id_, words))
    return archive.add_vectors(embedder.name, embedder.dim, rows, recipe=embedder.recipe, tokens=tokens)
