"""The sections `access` (who is let in) and `privacy` (what is kept)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Literal

from lantern_proxy.config.check import ConfigError, Matches, Section, Within

HostName = Annotated[str, Matches(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", "use a host name without scheme and port")]
Origin = Annotated[
    str, Matches(r"null|[a-z][a-z0-9+.-]*://[^\s/]*", "use scheme://host:port, as a browser sends it, without a path")
]
PatternName = Annotated[str, Matches(r"[a-z][a-z0-9-]{0,31}", "use a short name in lower case")]
Pattern = Annotated[str, Matches(r"(?s).+", "use a regular expression")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig(Section):
    """The `access:` section: who may use the proxy, and who may read the archive through it."""

    keys: Literal["auto", "required", "off"] = "auto"
    """auto: proxy keys are required as soon as there is one (`lantern keys add`), and must exist if other machines can
    reach the port. required: always. off: never, for a Lantern behind access control of your own."""
    keys_file: str = ""
    """Where `lantern keys` keeps the hashes of proxy keys. Empty: beside the archive, lantern.db.keys."""
    admin: Literal["loopback", "token"] = "loopback"
    """Who may use /lantern/...: callers on this machine, and whoever has the admin token; token: only the latter."""
    admin_token_env: Annotated[str, Matches(r"[A-Za-z_][A-Za-z0-9_]*", "use the name of an environment variable")] = (
        "LANTERN_ADMIN_TOKEN"
    )
    """Environment variable that holds the admin token; unset: there is none."""
    admin_token_file: str = ""
    """A file that holds it, as an alternative."""
    hosts: Sequence[HostName] = ()
    """Names by which browsers and admins may address this machine, besides its addresses, localhost and server.host."""
    origins: Sequence[Origin] = ()
    """Origins of web pages that may call Lantern without a credential, as browsers do before they send one, and read
    why a request was refused. Also the origin of Lantern's own page behind a proxy that sets another Host; it may
    change nothing otherwise. Other pages cannot read anything under /lantern."""
    requests_per_minute: Annotated[int, Within(0, 10_000_000)] = 0
    """Most requests a minute of one credential, also as a burst. 0: no limit; the upstream has its own."""
    max_body_mb: Annotated[int, Within(1, 100_000, "megabytes")] = 540
    """Longer bodies are answered 413. OpenAI takes files of 512 MiB, which are 537 MB, and nothing longer."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.admin == "token" and not (self.admin_token_env or self.admin_token_file):
            raise ConfigError("admin", "is token, but neither admin_token_env nor admin_token_file names one")


Detector = Literal["secrets", "cards", "emails"]
"""What `privacy.redact` can find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyConfig(Section):
    """The `privacy:` section: what is kept of a conversation, and for how long."""

    redact: Sequence[Detector] = ()
    """What is replaced by [redacted:...] before it is archived: secrets (keys, tokens, private keys; extra `privacy`),
    cards (payment cards), emails. Nothing by default: a detail that is not archived cannot be restored."""
    patterns: Mapping[PatternName, Pattern] = field(default_factory=dict)
    """Name -> regular expression of more that is replaced: {employee: "E-[0-9]{6}"}."""
    skip_paths: Sequence[str] = ()
    """Requests by path, * for anything, of which no text is archived, as with the header `x-lantern-archive: off`. With
    or without /v1 is the same."""
    skip_models: Sequence[str] = ()
    """The same by model."""
    skip_roles: Sequence[Literal["system", "user", "assistant", "tool"]] = ()
    """Messages of these roles are not archived, and never restored."""
    keep_days: Annotated[float, Within(0, 100_000, "days")] = 0.0
    """Text that was said and archived longer ago is removed, up to a hundredth of that time late. After two weeks or
    more without a removal, the clock may be wrong, and it is removed three days later. 0: nothing is removed for its
    age."""
    keep_mb: Annotated[int, Within(0, 100_000_000, "megabytes")] = 0
    """If the archive grows larger, its oldest messages are removed. 0: no limit."""
    keep_messages: Annotated[int, Within(0, 1_000_000_000)] = 0
    """Most messages of one tenant; the oldest are removed. 0: no limit."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if "secrets" in self.redact and find_spec("detect_secrets") is None:
            raise ConfigError("redact", 'has secrets, which need a package; pip install "lantern-proxy[privacy]"')
        for name, pattern in self.patterns.items():
            try:
                empty = re.compile(pattern).search("")
            except re.error as error:
                raise ConfigError(f"patterns.{name}", f"is no regular expression: {error}") from None
            if empty:
                raise ConfigError(f"patterns.{name}", "matches empty text; make it say what it looks for")
