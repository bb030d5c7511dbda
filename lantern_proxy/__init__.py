"""Lantern: a drop-in proxy that gives back what your LLM client's compaction lost.

    from lantern_proxy import Lantern      # for programs without a proxy
    from lantern_proxy.bm25 import Index   # the lexical index alone

Importing this package loads nothing else; `Lantern` is loaded on first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lantern_proxy.memory import Lantern as Lantern

__version__ = "0.1.0"
__all__ = ["Lantern", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Lantern":
        from lantern_proxy.memory import Lantern

        return Lantern
    raise AttributeError(f"module 'lantern_proxy' has no attribute {name!r}")
