"""Which kernel BM25 uses on this machine, and why no better one. Needs no numpy."""

from typing import Literal

try:
    from lantern_proxy._bm25 import lib
except ImportError as error:
    BUILT = False
    WHY = f"the slower numpy twin serves, the C index is not there ({error}): install a C compiler, then Lantern again"
else:
    BUILT = True
    WHY = "" if lib.bm25_best_kernel() else "this CPU or the compiler lacks AVX2 and NEON; the scalar C kernel serves"

Kernel = Literal["avx512", "avx2", "neon", "scalar", "numpy"]

C_KERNELS: tuple[Kernel, ...] = ("scalar", "avx2", "neon", "avx512")
"""Names by number: bm25_kernel in bm25.h."""


def best_kernel() -> Kernel:
    """The kernel that Index() uses on this machine."""
    if not BUILT:
        return "numpy"
    return C_KERNELS[int(lib.bm25_best_kernel())]


def kernels() -> list[Kernel]:
    """The values of Index(kernel=...) that work on this machine, the best last."""
    if not BUILT:
        return ["numpy"]
    best = best_kernel()
    slower = [name for i, name in enumerate(C_KERNELS) if name != best and lib.bm25_has_kernel(i)]
    return ["numpy", *slower, best]
