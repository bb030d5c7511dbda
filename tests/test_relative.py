"""How scores stand to each other: C and its numpy twin, and what the columns say."""

import numpy as np
import pytest

from lantern_proxy.signals import relative
from lantern_proxy.signals.relative import COLUMNS, Positions, columns


def drawn(n: int, seed: int) -> tuple[np.ndarray, Positions]:
    """Scores of three signals with many ties, one of zeros; sessions of unlike lengths, some messages in parts."""
    random = np.random.default_rng(seed)
    scores = np.where(random.random((3, n)) < 0.5, 0.0, random.integers(1, 9, (3, n)) / 7)
    scores[2] = 0
    sessions = np.sort(random.integers(0, 1 + n // 5, n))
    places = 10 + np.cumsum(np.where(np.diff(sessions, prepend=sessions[0]) > 0, 10, random.integers(0, 2, n)))
    mixed = random.permutation(n)
    return scores, Positions(places[mixed], sessions[mixed], random.permutation(n)[: max(1, n // 3)])


@pytest.mark.skipif(not relative.BUILT, reason="there is no C here")
@pytest.mark.parametrize("n", [1, 2, 3, 8, 100, 501])
@pytest.mark.parametrize("seed", range(4))
def test_c_and_numpy_agree_bit_for_bit(n, seed):
    scores, stand = drawn(n, seed)
    assert columns(scores, stand, native=True).tolist() == columns(scores, stand, native=False).tolist()


@pytest.mark.parametrize(
    "native", [False, pytest.param(True, marks=pytest.mark.skipif(not relative.BUILT, reason="C"))]
)
def test_each_column_says_what_its_name_says(native):
    scores = np.array([[4.0, 0.0, 2.0, 2.0]])
    stand = Positions(np.array([11, 12, 13, 23]), np.array([0, 0, 0, 1]), np.array([3, 1]))
    found = dict(zip(COLUMNS, columns(scores, stand, native=native)[0].tolist(), strict=True))
    wanted = {
        "": [0.5, 0.0], "_z": [0.0, -(2**0.5)], "_rank": np.log1p([2, 3]), "_near": [2 / 4.3, 1.8 / 4.3],
        "_near_rank": np.log1p([2, 3]), "_2before": [0.0, 0.0], "_before": [0.0, 1.0], "_after": [0.0, 0.5],
        "_2after": [0.0, 0.0], "_session": [0.5, 1.0], "_session_sum": [1 / 3, 1.0], "_session_rank": np.log1p([1, 0]),
    }  # fmt: skip
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        assert found[name] == pytest.approx(values), name


@pytest.mark.parametrize(
    "native", [False, pytest.param(True, marks=pytest.mark.skipif(not relative.BUILT, reason="C"))]
)
def test_no_rows_and_no_signals_give_empty_columns(native):
    scores, stand = drawn(8, 1)
    nothing = Positions(stand.places, stand.sessions, np.zeros(0, np.int64))
    assert columns(scores, nothing, native=native).shape == (3, len(COLUMNS), 0)
