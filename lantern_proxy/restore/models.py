"""Facts about models, without a call to any: windows and prices (litellm's table), token counts (tiktoken).

Neither package is imported where a request waits: litellm's table is read from its file in milliseconds, tiktoken's
encodings from the files that litellm carries or TIKTOKEN_CACHE_DIR holds, in about 0.3 s and 60 MB. Nothing is
fetched. `tables(wait=False)` and `counter(..., wait=False)` give what is there and load the rest in the background.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha1
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct

_TABLE = "model_prices_and_context_window_backup.json"
_ENCODINGS = "litellm_core_utils/tokenizers"
_ENCODING_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""Only its hash is used: it is the name of the encoding's file."""
USUAL_ENCODING = "cl100k_base"
"""For models whose own encoding tiktoken does not know, as litellm has it."""

Count = Callable[[str], int]


class Price(Struct, frozen=True):
    """US dollars a token."""

    read: float
    written: float

    def of(self, tokens_read: int, tokens_written: int) -> float:
        return self.read * tokens_read + self.written * tokens_written


class Tables(Struct, frozen=True):
    """Model, in lower case -> tokens of input that it takes; -> what they cost."""

    windows: Mapping[str, int]
    prices: Mapping[str, Price]

    def window(self, model: str) -> int:
        """0 when it is not known."""
        return next((self.windows[name] for name in _names(model) if name in self.windows), 0)

    def price(self, model: str) -> Price | None:
        return next((self.prices[name] for name in _names(model) if name in self.prices), None)


def _names(model: str) -> tuple[str, ...]:
    """A provider in front and a variant behind do not matter: "openai/gpt-4o", "gpt-4o:free"."""
    name = model.lower()
    bare = name.rpartition("/")[2]
    return name, bare, bare.partition(":")[0]


class _Loaded:
    """Values that are made once, each in the background when nobody can wait; what was made first goes beyond `most`.
    Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[str, Future[Any]] = {}
        self._lock = Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lantern-models")

    def get(self, name: str, make: Callable[[], Any], default: Any, *, wait: bool) -> Any:
        with self._lock:
            if name not in self._made:
                while len(self._made) >= self._most:
                    del self._made[next(iter(self._made))]
                self._made[name] = self._thread.submit(make)
            made = self._made[name]
        return made.result() if wait or made.done() else default


_tables, _counters = _Loaded(1), _Loaded(64)
_NOTHING = Tables({}, {})


def tables(*, wait: bool) -> Tables:
    """litellm's table; empty without litellm, and with wait=False until it is read."""
    found: Tables = _tables.get("", _read_tables, _NOTHING, wait=wait)
    return found


def counter(model: str, *, wait: bool) -> Count | None:
    """Counts the tokens of a text. None without tiktoken or its files, and with wait=False until they are read."""
    name = _names(model)[-1]  # clients may add anything around it
    found: Count | None = _counters.get(name, lambda: _read_counter(name), None, wait=wait)
    return found


class _Row(msgspec.Struct):
    """A model in litellm's table; its first row describes the others, so any field may have any type."""

    mode: Any = None
    max_input_tokens: Any = None
    max_tokens: Any = None
    input_cost_per_token: Any = None
    output_cost_per_token: Any = None


def _read_tables() -> Tables:
    folder = _litellm()
    try:
        rows = msgspec.json.decode((folder / _TABLE).read_bytes(), type=dict[str, _Row]) if folder else {}
    except (OSError, msgspec.MsgspecError):
        return _NOTHING
    windows: dict[str, int] = {}
    prices: dict[str, Price] = {}
    for name, row in rows.items():
        if row.mode not in ("chat", "responses", "completion"):
            continue
        full, tokens = name.lower(), row.max_input_tokens or row.max_tokens
        read, written = row.input_cost_per_token, row.output_cost_per_token
        if isinstance(tokens, int):
            windows[full] = tokens
            windows.setdefault(full.rpartition("/")[2], tokens)
        if isinstance(read, int | float) and isinstance(written, int | float):
            prices[full] = Price(float(read), float(written))
            prices.setdefault(full.rpartition("/")[2], prices[full])
    return Tables(windows, prices)


def _litellm() -> Path | None:
    """Where litellm lies; it is not imported, that takes seconds."""
    found = find_spec("litellm")
    return Path(next(iter(found.submodule_search_locations))) if found and found.submodule_search_locations else None


def _read_counter(model: str) -> Count | None:
    """model: its bare name"""
    if find_spec("tiktoken") is None:
        return None
    from tiktoken import get_encoding
    from tiktoken.model import encoding_name_for_model

    name = USUAL_ENCODING
    with suppress(KeyError):
        name = encoding_name_for_model(model)
    folder = _with_file(sha1(_ENCODING_URL.format(name).encode(), usedforsecurity=False).hexdigest())
    if folder is None:
        return None
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(folder))
    encoding = get_encoding(name)
    return lambda text: len(encoding.encode_ordinary(text))


def _with_file(name: str) -> Path | None:
    """The folder of encodings that holds this file: without it tiktoken would go and fetch it."""
    litellm = _litellm()
    known = os.environ.get("TIKTOKEN_CACHE_DIR")
    folders = [Path(known)] if known else [litellm / _ENCODINGS] if litellm else []
    return next((folder for folder in folders if (folder / name).is_file()), None)
