"""Terms that a passage may be asked for by, though it does not say them; for a lexical index only (SelRoute, 4).

    enrich(["bought", "violin"]) -> ["purchas", "acquir", ..., "instrument"]

Hypernyms and topics of common nouns, synonyms and nominal forms of common verbs, from WordNet (scripts/enrichment.py).
They blur embeddings, so embeddings never see them, and mixed into the words of a passage they cost .015 MRR on LoCoMo;
as a field of their own they gain .003 there and cost .01 recall on BEAM. The product does without: docs/retrieval.md.
"""

import gzip
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files


@cache
def table() -> Mapping[str, tuple[str, ...]]:
    """Index term -> index terms; read once, in about 10 ms."""
    data = (files("lantern_proxy") / "data" / "enrichment.tsv.gz").read_bytes()
    rows = (line.split("\t") for line in gzip.decompress(data).decode().splitlines())
    return {term: tuple(found.split(" ")) for term, found in rows}


def enrich(terms: Iterable[str]) -> list[str]:
    """What `terms` may be asked for by, each once, without what is there already."""
    known, own = table(), dict.fromkeys(terms)
    return list(dict.fromkeys(found for term in own for found in known.get(term, ()) if found not in own))
