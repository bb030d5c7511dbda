"""Builds lantern_proxy._bm25 through cffi in API mode; setup.py points here. The headers are the cdef."""

import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent
HEADERS = (
    "bm25.h",
    "lexicon.h",
    "analyze.h",
    "specifics.h",
    "facts.h",
    "sentences.h",
    "bm25_fill.h",
    "trees.h",
    "held.h",
    "late.h",
    "relative.h",
    "starts.h",
)
header = "\n".join((HERE / name).read_text(encoding="utf-8") for name in HEADERS)

KERNELS = ("_kernels", "_kernels_avx2", "_kernels_avx512", "_kernels_neon")
MAIN = ("", "_documents", "_sweep", "_memory", "_terms", "_postings", "_fill", "_snapshot")
PARTS = (*MAIN, *KERNELS, "_exact", "_search", "_bounds", "_worth", "_pool", "_best")
OTHERS = (
    "analyze",
    "analyze_stem",
    "lexicon",
    "specifics",
    "facts",
    "sentences",
    "trees",
    "held",
    "late",
    "relative",
    "starts",
)
PRIVATE = (
    "bm25_index.h",
    "bm25_bounds.h",
    "bm25_atomic.h",
    "bm25_kernels.h",
    "analyze_utf8.h",
    "specifics_text.h",
    "specifics_patterns.h",
)
# Contraction into fused multiply-adds would round differently in the kernels; MSVC does not contract by default, and
# needs to be told that volatile means acquire and release (bm25_atomic.h).
OPTIONS = ["/std:c11", "/volatile:ms"] if sys.platform == "win32" else ["-std=c11", "-O3", "-ffp-contract=off"]

ffi = FFI()
ffi.cdef("\n".join(line for line in header.splitlines() if not line.startswith("#")))
ffi.set_source(
    "lantern_proxy._bm25",
    "\n".join(f'#include "{name}"' for name in HEADERS),
    sources=[*(f"native/bm25{part}.c" for part in PARTS), *(f"native/{name}.c" for name in OTHERS)],
    include_dirs=["native"],
    depends=[f"native/{name}" for name in (*HEADERS, *PRIVATE)],
    extra_compile_args=OPTIONS,
    libraries=[] if sys.platform == "win32" else ["m"],
    optional=True,  # without a C compiler the install goes on, and the numpy twin in bm25/twin.py serves
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
