import random
import re

import pytest

from lantern_proxy.analyze import starts as analyze_starts
from lantern_proxy.analyze.starts import CHARS, Starts

PIECES = (
    "the build ", "of ", "src/app.py", "_", "__init__", " ", "  ", ".", "42", "x", '{"name": "', "\n", "é", "straße ",
    "日本語の文", "ไทย", "\u00b2", "\u0660\u0661", "\u2028", "\U0001f600", "\udc80", "\u0301", "İ", "\uff0d", "Ⅷ", "ª",
)  # fmt: skip
BEGINS = re.compile(rf"(?<![^\W_])(?=(.{{{CHARS}}}))", re.S)


def drawn(chance: random.Random, pieces: int) -> str:
    return "".join(chance.choice(PIECES) for _ in range(pieces))


@pytest.mark.parametrize("native", [True, False])
def test_every_beginning_is_found_where_no_word_goes_on_and_nothing_else_is(native):
    chance, found_in_all = random.Random(7), 0
    for plain_ascii in (True, False) * 300:
        text = drawn(chance, chance.randrange(60))
        text = text.encode("ascii", "ignore").decode() if plain_ascii else text
        cut = [text[at : at + CHARS] for at in chance.choices(range(len(text) + 1), k=4)]
        others = [drawn(chance, 30)[:CHARS] for _ in range(3)]
        sought = {start for start in (*cut, *others) if len(start) == CHARS}
        among = set(chance.sample(sorted(sought), len(sought) // 2)) if chance.random() < 0.3 else sought
        starts = Starts([*sought][:2], native=native)
        for start in [*sought][2:]:
            starts.add(start)
        expected = [(m.start(), m[1]) for m in BEGINS.finditer(text) if m[1] in among]
        assert starts.within(text, among) == expected, (text, sought)
        found_in_all += len(expected)
    assert found_in_all > 300


def test_what_is_added_after_a_look_is_found_by_the_next_one_however_much_it_is():
    texts = [f"number {n:04} of what is sought" for n in range(3_000)]
    starts, among = Starts(), set[str]()
    for text in texts:
        starts.add(text[:CHARS])
        among.add(text[:CHARS])
        if len(among) % 500 == 1:
            assert starts.within(f"({text})", among) == [(1, text[:CHARS])]
    assert starts.capacity < 0
    joined = " ".join(texts)
    assert starts.within(joined, among) == [(joined.index(text), text[:CHARS]) for text in texts]


def test_few_places_are_looked_at_where_nothing_is_known():
    chance = random.Random(3)
    text = " ".join(f"{chance.getrandbits(60):x}" for _ in range(1_000))

    class Asked(set[str]):
        times = 0

        def __contains__(self, start: object) -> bool:
            Asked.times += 1
            return super().__contains__(start)

    known = Asked(f"{n:07} is what was said"[:CHARS] for n in range(2_000))
    assert not Starts(known).within(text, known)
    if analyze_starts.lib is not None:
        assert Asked.times < 100
