"""Builds lantern_proxy._bm25 through cffi in API mode; setup.py points here. bm25.h is the cdef."""

import sys
from pathlib import Path

from cffi import FFI

header = Path(__file__).with_name("bm25.h").read_text(encoding="utf-8")

PARTS = ("", "_memory", "_terms", "_postings", "_kernels", "_search", "_bounds", "_best")
# Contraction into fused multiply-adds would round differently in the kernels; MSVC does not contract by default, and
# needs to be told that volatile means acquire and release (bm25_atomic.h).
OPTIONS = ["/std:c11", "/volatile:ms"] if sys.platform == "win32" else ["-std=c11", "-O3", "-ffp-contract=off"]

ffi = FFI()
ffi.cdef("\n".join(line for line in header.splitlines() if not line.startswith("#")))
ffi.set_source(
    "lantern_proxy._bm25",
    '#include "bm25.h"',
    sources=[f"native/bm25{part}.c" for part in PARTS],
    include_dirs=["native"],
    depends=["native/bm25.h", "native/bm25_index.h", "native/bm25_atomic.h"],
    extra_compile_args=OPTIONS,
    libraries=[] if sys.platform == "win32" else ["m"],
    optional=True,  # without a C compiler the install goes on, and the numpy twin in bm25.py serves
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
