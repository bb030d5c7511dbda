"""What of an exchange may be archived: the rules of `privacy:`, and a client's own `x-lantern-archive: off`."""

from fnmatch import fnmatchcase

from lantern_proxy.config_safety import PrivacyConfig
from lantern_proxy.proxy_exchange import Exchange
from lantern_proxy.redact import Cleaner


class Privacy(Cleaner):
    """Used by the writer's thread alone, but for `found`."""

    def __init__(self, config: PrivacyConfig) -> None:
        super().__init__(config.redact, config.patterns, config.skip_roles)
        self._config = config

    def archives(self, exchange: Exchange) -> bool:
        """May the text of this exchange be kept?"""
        if exchange.arrival.header("x-lantern-archive").strip().lower() == "off":
            return False
        model = exchange.request.model if exchange.request else ""
        return not (
            any(fnmatchcase(exchange.arrival.path, each) for each in self._config.skip_paths)
            or any(fnmatchcase(model, each) for each in self._config.skip_models)
        )
