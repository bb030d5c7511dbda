"""A real proxy on an archive of its own, restarted at will."""

from pathlib import Path
from types import TracebackType

from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig, RestoreConfig
from lantern_proxy.proxy import Proxy


class Stage:
    """The proxy that clients talk to, without its server. No deadline ends a restore: a busy machine tells the same."""

    def __init__(self, folder: Path) -> None:
        self._config = Config(
            archive=ArchiveConfig(path=folder / "archive.db", synchronous="normal", hold_ms=10_000),
            embed=EmbedConfig(enabled="off"), restore=RestoreConfig(deadline_ms=30_000),
        )  # fmt: skip
        self.proxy = Proxy(self._config)

    def restart(self) -> None:
        self.proxy.close()
        self.proxy = Proxy(self._config)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.proxy.close()
