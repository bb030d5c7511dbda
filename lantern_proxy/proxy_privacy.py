"""What of an exchange may be archived: the rules of `privacy:`, and a client's own `x-lantern-archive: off`."""

from collections import Counter
from fnmatch import fnmatchcase

from lantern_proxy.config_safety import PrivacyConfig
from lantern_proxy.proxy_exchange import Exchange
from lantern_proxy.redact import Redactor
from lantern_proxy.turn import Filed


class Privacy:
    """Used by the writer's thread alone, but for `found`."""

    def __init__(self, config: PrivacyConfig) -> None:
        self._config = config
        self._redactor = Redactor(config.redact, config.patterns)

    @property
    def found(self) -> Counter[str]:
        """Kind -> how often it was redacted since the start."""
        return self._redactor.found

    def archives(self, exchange: Exchange) -> bool:
        """May the text of this exchange be kept?"""
        if exchange.arrival.header("x-lantern-archive").strip().lower() == "off":
            return False
        model = exchange.request.model if exchange.request else ""
        return not (
            any(fnmatchcase(exchange.arrival.path, each) for each in self._config.skip_paths)
            or any(fnmatchcase(model, each) for each in self._config.skip_models)
        )

    def clean(self, filed: tuple[Filed, ...]) -> tuple[Filed, ...]:
        """Messages as they may be kept; those that may not be are left out."""
        if self._config.skip_roles:
            filed = tuple(each for each in filed if self._wants(each.message.role))
        return tuple(map(self._redactor.filed, filed)) if self._redactor else filed

    def _wants(self, role: str) -> bool:
        return ("system" if role == "developer" else role) not in self._config.skip_roles

    def said(self, text: str) -> str:
        """What a user said, as a request's question or a session's title may quote it."""
        if "user" in self._config.skip_roles:
            return ""
        return self._redactor.text(text) if text and self._redactor else text
