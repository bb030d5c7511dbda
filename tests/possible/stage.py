"""A real proxy on an archive of its own, restarted at will."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig, RestoreConfig
from lantern_proxy.proxy import Proxy


class Stage:
    """The proxy that clients talk to, without its server. Nothing is given up for taking long: a busy machine tells
    the same."""

    def __init__(self, folder: Path, *, restarts: float = 0.0) -> None:
        """restarts: before which share of requests it is started anew"""
        self._config = Config(
            archive=ArchiveConfig(path=folder / "archive.db", synchronous="normal", hold_ms=10_000),
            embed=EmbedConfig(enabled="off"), restore=RestoreConfig(deadline_ms=30_000),
        )  # fmt: skip
        self._begin()
        self._restarts, self._rng, self._under_way = restarts, random.Random(0), 0

    @contextmanager
    def request(self) -> Iterator[Proxy]:
        """The proxy, for one request."""
        if not self._under_way and self._rng.random() < self._restarts:
            self.restart()
        self._under_way += 1
        try:
            yield self.proxy
        finally:
            self._under_way -= 1

    def restart(self) -> None:
        self.proxy.close()
        self._begin()

    def _begin(self) -> None:
        self.proxy = Proxy(self._config)
        self.proxy.tenants.own_wait_s = self.proxy.tenants.recent_wait_s = 30

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.proxy.close()
