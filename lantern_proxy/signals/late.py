"""Late interaction: each word of a question is matched with its best counterpart in a passage, by vectors. Pure.

MaxSim of ColBERT (Khattab and Zaharia 2020, section 3.3) over the token vectors of a plain sentence embedder, with two
changes that an untrained model needs: the words of the question are weighted by their idf, and similarities are cubed,
so that a good match outweighs many poor ones. The inner loop is native/late.c or its numpy twin; both use integers and
give the same results.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lantern_proxy.rank import Floats, Ints

try:
    from lantern_proxy._bm25 import ffi, lib
except ImportError:
    BUILT = False
else:
    BUILT = hasattr(lib, "late_by_lists")  # an older build lacks it

Tokens = npt.NDArray[np.int8]
"""(tokens, DIM): unit vectors times SCALE, rounded."""

DIM = 128
SCALE = 342.0
"""127 / (4.2 / sqrt(DIM)): of a random unit vector one number in 40,000 is clipped."""
QUESTION_SCALE = 32_767.0
"""The scale of a question's vectors, in 16 bits: rounding costs them a hundredth of what it costs passages."""
TOKENS_PER_BATCH = 1_024
"""Tokens that the numpy twin compares at once, so that their vectors stay in the cache; saves a third of the time."""
POWER = 3
CONTEXT = 0.8
"""Factor of a match in the previous message, if the passage itself has no better one."""


class QuestionTokens(Struct, frozen=True):
    """A question word by word."""

    vectors: npt.NDArray[np.float32]
    """(tokens, DIM), each of length 1."""
    words: tuple[str, ...]
    """The word that each token belongs to, as written."""


def pack(vectors: npt.NDArray[np.float32]) -> Tokens:
    """(tokens, DIM) of length 1 -> int8."""
    packed: Tokens = np.clip(np.rint(vectors * SCALE), -127, 127).astype(np.int8)
    return packed


def kernels() -> list[str]:
    """The kernels of `best_matches` on this machine, the best last."""
    return ["numpy", *ISAS[: lib.late_best_isa() + 1]] if BUILT else ["numpy"]


ISAS = ("scalar", "avx2")
"""Names of the isa values of late.h."""


def best_matches(asked: npt.NDArray[np.float32], passages: Sequence[Tokens], *, kernel: str = "") -> Floats:
    """(t, p) highest cosine of each question token with a token of the passage; 0 for a passage without tokens.

    asked: (t, DIM), each of length 1; kernel: one of `kernels()`, by default the best. All give the same result
    """
    numbers = np.rint(asked * np.float32(QUESTION_SCALE)).astype(np.int16)
    kernel = kernel or kernels()[-1]
    best = _best_in_numpy if kernel == "numpy" else _best_in_c
    return best(numbers, passages, kernel).T.astype(np.float64, order="C") / (SCALE * QUESTION_SCALE)


def _best_in_c(asked: npt.NDArray[np.int16], passages: Sequence[Tokens], kernel: str) -> npt.NDArray[np.int32]:
    """(p, t) largest inner products."""
    found = np.empty((len(passages), len(asked)), np.int32)
    words = [ffi.from_buffer("int8_t[]", tokens) for tokens in passages]
    counts = np.fromiter(map(len, passages), np.uint32, len(passages))
    lib.late_best(
        ISAS.index(kernel), len(asked), ffi.from_buffer("int16_t[]", asked), len(passages),
        ffi.new("int8_t *[]", words), ffi.from_buffer("uint32_t[]", counts), ffi.from_buffer("int32_t[]", found),
    )  # fmt: skip
    return found


def _best_in_numpy(asked: npt.NDArray[np.int16], passages: Sequence[Tokens], _: str) -> npt.NDArray[np.int32]:
    """The result of the C kernels, bit for bit: these integers are exact in float64."""
    found = np.zeros((len(asked), len(passages)))
    wanted, room = asked.astype(np.float64), max(TOKENS_PER_BATCH, max(map(len, passages), default=0))
    batch = np.empty((room, DIM))
    filled = [n for n, tokens in enumerate(passages) if len(tokens)] if len(asked) else []
    starts: list[int] = []
    size = first = 0
    for at, n in enumerate(filled):
        batch[size : size + len(passages[n])] = passages[n]
        starts.append(size)
        size += len(passages[n])
        if at + 1 == len(filled) or size + len(passages[filled[at + 1]]) > room:
            found[:, filled[first : at + 1]] = np.maximum.reduceat(wanted @ batch[:size].T, starts, axis=1)
            starts, size, first = [], 0, at + 1
    return found.T.astype(np.int32)


def in_context(matches: Floats, places: Ints, *, openness: Floats | None = None) -> Floats:
    """(t, p) `matches`, where a word may also match in the previous message, at a discount (CONTEXT).

    An answer often omits what its question named. places: (p,) as in `rank.smooth`

    openness: (p,) 0..1. If given, a match in the previous message is weighted by the openness of both messages instead:
              a long message has some match for any word, and needs none from others
    """
    if not matches.size:
        return matches
    first = int(places.min())
    best = np.zeros((len(matches), int(places.max()) - first + 2))
    at = np.arange(len(matches))[:, None] * best.shape[1] + (places - first + 1)  # flat: fastest in numpy
    discounted = CONTEXT * matches if openness is None else openness * matches
    np.maximum.at(best.reshape(-1), at.reshape(-1), discounted.reshape(-1))
    gained = np.maximum(0.0, best[:, places - first] - matches)
    return matches + (gained if openness is None else openness * gained)


def maxsim(matches: Floats, weights: Floats, *, power: int = POWER) -> Floats:
    """(p,) weighted mean of the best matches to a power, in [0, 1]. matches: (t, p); weights: (t,) >= 0, not all 0"""
    scores: Floats = weights @ np.clip(matches, 0, 1) ** power / weights.sum()
    return scores
