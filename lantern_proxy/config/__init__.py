"""YAML -> frozen dataclasses. Every key is a field here, with its default and the reason for it.

    load(Path("lantern.yaml"), os.environ) -> Config      file < environment; no file: the defaults

A wrong key, type or range is refused with the file, the place, the value and the way out:

    lantern.yaml: restore.budget_char is not a setting; did you mean budget_chars?

One routine checks everything: it goes by the fields and their types (`Within` holds a range). config.example.yaml says
the same for people; tests/test_config.py proves that it names every key with its default.
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from lantern_proxy.config.check import (
    ConfigError,
    Matches,
    Section,
    Url,
    Within,
    bare,
    convert,
    hints_of,
    secret,
)
from lantern_proxy.config.retrieval import RetrievalConfig, Signal, Weight
from lantern_proxy.config.safety import AccessConfig, PrivacyConfig

ENVIRONMENT: Mapping[str, str] = {
    "LANTERN_PORT": "server.port",
    "LANTERN_ARCHIVE": "archive.path",
    "LANTERN_OPENAI_UPSTREAM": "upstream.openai",
    "LANTERN_ANTHROPIC_UPSTREAM": "upstream.anthropic",
}
"""Environment variable -> the setting that it overrides. An empty variable counts as unset."""


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """$XDG_CACHE_HOME/lantern, else ~/.cache/lantern."""
    root = environ.get("XDG_CACHE_HOME") or ""
    return Path(root if root.startswith("/") else Path("~/.cache").expanduser()) / "lantern"


_Host = Matches(
    r"[^\s:/\[\]]+|[^\s/\[\]]*:[^\s/\[\]]*:[^\s/\[\]]*",
    "use a host name or address without scheme, port and brackets: 127.0.0.1 or ::1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(Section):
    """The `server:` section: where Lantern listens."""

    host: Annotated[str, _Host] = "127.0.0.1"
    """Loopback, since the archive holds your conversations; 0.0.0.0 serves every machine that can reach this one."""
    port: Annotated[int, Within(0, 65_535)] = 8484
    """LANTERN_PORT overrides. 0 lets the system choose a free one, which the banner shows."""
    drain_s: Annotated[float, Within(0, 3_600, "seconds")] = 10.0
    """Seconds that running answers may take to finish after a stop signal; then they are cut off and archived as
    partial."""
    workers: Annotated[int, Within(1, 64)] = 1
    """Processes that serve one archive. Each tenant is served by one of them: more help only with many tenants."""
    tls_cert: str = ""
    """A PEM file with the certificate and its chain: Lantern then speaks https only. Empty: http."""
    tls_key: str = ""
    """A PEM file with its private key, without a passphrase. Empty: it is in tls_cert."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.tls_key and not self.tls_cert:
            raise ConfigError("tls_key", "is set without server.tls_cert; name the certificate, too")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig(Section):
    """The `archive:` section: the SQLite file that keeps every turn."""

    path: Path = Path("lantern.db")
    """LANTERN_ARCHIVE overrides. Relative to the working directory; created with mode 0600."""
    synchronous: Literal["full", "normal"] = "normal"
    """An answered turn survives kill -9. full: a power cut, too, and each answer waits for the disk. normal: it is on
    disk within a tenth of a second; what a power cut took is archived again when its client resends its history."""
    hold_ms: Annotated[int, Within(0, 10_000, "milliseconds")] = 250
    """Most milliseconds the last bytes of an answer wait for their commit. Then the client gets them: fail open."""
    max_message_chars: Annotated[int, Within(1_000, 1_000_000_000, "characters")] = 2_000_000
    """A longer message is cut off here. Two million characters: two full context windows of today."""
    key_env: Annotated[str, Matches(r"|[A-Za-z_][A-Za-z0-9_]*", "use the name of an environment variable")] = ""
    """Environment variable with the key of an encrypted archive, 64 hex digits (extra `encrypted`). Empty: plain."""
    key_file: str = ""
    """A file that holds the key, as an alternative."""
    backups: Sequence[str] = ()
    """Copies of the archive, with * for anything in their names, from which `lantern forget` removes text, too."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.key_env and self.key_file:
            raise ConfigError("key_file", "is set beside archive.key_env; keep the one that holds the key")
        for named in self.backups:
            if "**" in named or not Path(named).name or "*" in str(Path(named).parent):
                raise ConfigError("backups", f"has {named!r}; name files of one folder, with * in their names")

    def key(self, environ: Mapping[str, str] = os.environ) -> str:
        """The key of the archive, read now; "" for a plain one. ConfigError if it is missing or unusable."""
        if not (self.key_env or self.key_file):
            return ""
        found, place = secret("archive.key", self.key_file, self.key_env, environ)
        if not re.fullmatch(r"\s*[0-9a-fA-F]{64}\s*", found):
            raise ConfigError(
                place,
                "holds no key of 64 hex digits; put the archive's there (for a new archive: openssl rand -hex 32)",
            )
        if find_spec("sqlcipher3") is None:
            raise ConfigError(place, 'needs SQLCipher, which is not here; pip install "lantern-proxy[encrypted]"')
        return found.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfig(Section):
    """One entry of `upstream.routes`: where requests of a model or path go instead."""

    model: str = "*"
    """The client's model, with * for anything: "claude-*". Requests that name no model match "*" only."""
    path: str = "*"
    """The client's path, with * for anything: "/azure/*"."""
    kind: Literal["openai", "anthropic", "litellm"] = "openai"
    """openai, anthropic: a server that speaks the client's protocol and gets the request unchanged. litellm: any
    provider, called through that package (extra `litellm`)."""
    url: Annotated[str, Url(optional=True)] = ""
    """Base URL, /v1 included if it has one; for litellm the provider's own when empty."""
    target: str = ""
    """litellm: its name of the model, "bedrock/anthropic.claude-sonnet-4"; empty: the client's, which may name any
    provider, which then gets the key."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """litellm: more arguments of its call, which override the client's: {api_version: ..., timeout: 60}."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.kind == "litellm" and find_spec("litellm") is None:
            raise ConfigError("kind", 'is litellm, which is not installed; pip install "lantern-proxy[litellm]"')
        if self.kind != "litellm" and not self.url:
            raise ConfigError("url", f"is empty; an upstream of kind {self.kind} needs http://host/path")
        if self.kind != "litellm" and (self.target or self.params):
            raise ConfigError(
                "target" if self.target else "params", f"is for kind litellm, not {self.kind}; leave it out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig(Section):
    """The `upstream:` section: the servers that Lantern calls. Keys are the client's own and pass through."""

    openai: Annotated[str, Url()] = "https://api.openai.com/v1"
    """For OpenAI paths, /v1 included if it has one. LANTERN_OPENAI_UPSTREAM overrides."""
    anthropic: Annotated[str, Url()] = "https://api.anthropic.com"
    """For /v1/messages*, /v1 may be left out. LANTERN_ANTHROPIC_UPSTREAM overrides."""
    connect_timeout_s: Annotated[float, Within(0.1, 600, "seconds")] = 10.0
    """Seconds to reach the upstream. Ten: a slower one is down, and the client should learn of it."""
    read_timeout_s: Annotated[float, Within(1, 86_400, "seconds")] = 3_600.0
    """Seconds between two pieces of an answer. An hour: clients decide how long to wait (for flex tiers 15 minutes)."""
    max_connections: Annotated[int, Within(1, 100_000)] = 1_000
    """Most calls to upstreams at once; further ones wait."""
    http2: bool = False
    """HTTP/1.1 has the lower latency here."""
    routes: Sequence[RouteConfig] = ()
    """Requests that go elsewhere by model or path; the first route that fits counts. None: all go to the two above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreConfig(Section):
    """The `restore:` section: what is put back, and how much of it."""

    enabled: bool = True
    """false: archive everything, restore nothing. One request: the header `x-lantern-restore: off`."""
    recipe: Literal["default", "lantern"] = "default"
    """default: two blocks, what the summary lost and what the question needs. lantern: exactly what the LANTERN paper
    does."""
    budget_chars: Annotated[int, Within(0, 1_000_000, "characters")] = 6_000
    """Most characters of the block at a compaction. 0: none. 6,000 is under 1 % of a 200k window, and the paper's.
    If a client drops or clears a little with every request, the limit for all such blocks that its request still
    holds."""
    question_chars: Annotated[int, Within(0, 1_000_000, "characters")] = 2_000
    """Most characters of a block at a later question. 0: none. Less than at a compaction: what is wanted is known."""
    window_share: Annotated[float, Within(0, 1)] = 0.03
    """Most of the model's context window that a block may take, if the window is known. 0: no such limit."""
    window_tokens: Annotated[int, Within(0, 100_000_000, "tokens")] = 0
    """The model's window. 0: as in litellm's table, if litellm is installed; else only the two limits above hold."""
    deadline_ms: Annotated[int, Within(1, 60_000, "milliseconds")] = 150
    """Milliseconds a restore may take; then the request goes with what was found so far, or unchanged."""
    admission: Annotated[float, Within(0, 1)] = 0.5
    """How good the best evidence must be before a question adds a block, 0 (always) to 1 (only if certain)."""
    scope: Literal["session", "project", "tenant"] = "session"
    """Where lost details may come from: this session, its whole project, or the whole tenant. Never another tenant."""
    untrusted: Literal["mark", "leave-out", "allow"] = "mark"
    """Tool results that read like instructions to the model: marked as not to be followed, not restored, or restored
    like any other."""
    mmr_lambda: Annotated[float, Within(0, 1)] = 0.7
    """1 packs by score alone; less also avoids repetition (MMR). The paper's value."""
    rrf_k: Annotated[int, Within(1, 10_000)] = 60
    """Reciprocal rank fusion: larger trusts the top of each ranking less. The paper's value."""
    length_power: Annotated[float, Within(0.3, 0.8)] = 0.7
    """Passages are packed by score per character to this power; larger prefers short ones."""
    weights: Mapping[Signal, Weight] = field(default_factory=dict)
    """Signal -> weight in the fusion, for those that should differ from the recipe's. 0 leaves a signal out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedConfig(Section):
    """The `embed:` section: the vector signal. Everything else works without it."""

    enabled: Literal["auto", "on", "off"] = "auto"
    """auto: if the extra `dense` is installed. on: doctor reports it if missing. off: 90 MB less memory."""
    model: Annotated[str, Matches(r"\S+", "use a model name")] = "sentence-transformers/all-MiniLM-L6-v2"
    """Small, fast on a CPU and good enough beside BM25. After a change run `lantern reindex --vectors`."""
    adapted: bool = False
    """Use Lantern's adapter for all-MiniLM-L6-v2, trained to find the message that answers a question. Rerankers
    trained with it (`lantern train reranker`) gain most, blocks do not. Other models are used as they are. After a
    change run `lantern reindex --vectors`."""
    cache_dir: Path = field(default_factory=default_cache_dir)
    """Where the compiled model is kept: $XDG_CACHE_HOME/lantern or ~/.cache/lantern by default."""
    threads: Annotated[int, Within(1, 256)] = 1
    """CPU threads of the model. One, so that streams keep the other cores."""
    late_interaction: bool = True
    """Also store a small vector of each significant word, and match questions word by word: most of what finds an
    answer in other words. It costs no model time, but 10 to 20 KB of archive for a long passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankConfig(Section):
    """The `rerank:` section: models that may reorder the candidates of a question. All off by default."""

    light: str = ""
    """Reorders the best 100 by all signals together, in some 3 ms: `shipped`, which comes with Lantern and was trained
    on made-up conversations, or a file of `lantern train reranker`. Vectors are then always used. Empty: off."""
    evidence: str = ""
    """A cross-encoder that reorders the ten best: a folder that `lantern train evidence-reranker` wrote, or its name on
    the hub. Some 40 ms per question. Empty: off."""
    model: str = ""
    """One call to a language model per restore (LANTERN-Rerank). It sends archived passages there. Empty: off."""
    model_url: Annotated[str, Url(optional=True)] = ""
    """Base URL of an OpenAI-compatible server for `model`, /v1 included."""
    model_key_env: str = "LANTERN_RERANK_KEY"
    """Environment variable that holds its key; unset: no key is sent."""
    model_timeout_ms: Annotated[int, Within(10, 60_000, "milliseconds")] = 2_000
    """Milliseconds the call may take beyond restore.deadline_ms; then the order stays as it was."""
    model_calls_per_hour: Annotated[int, Within(1, 1_000_000)] = 100
    """Most calls per hour, since each costs money; beyond them the order stays as it was."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.model and not self.model_url:
            raise ConfigError("model_url", f"is empty, but rerank.model is {self.model}; use http://host/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceConfig(Section):
    """The `reinforce:` section: how use changes the confidence in a passage (LANTERN paper)."""

    gain: Annotated[float, Within(0, 1)] = 0.15
    """Confidence a passage gains when the answer used it."""
    loss: Annotated[float, Within(0, 1)] = 0.02
    """Confidence it loses when it was restored for a question and the answer did not use it. Small, since that is weak
    evidence."""
    floor: Annotated[float, Within(0, 1)] = 0.1
    """Confidence never falls below this, so that a passage can recover."""
    minimum: Annotated[float, Within(0, 1)] = 0.1
    """Passages below this are not restored. At least `floor`; if equal, as by default, disuse excludes no passage for
    good. The paper has 0.15."""
    ema: Annotated[float, Within(0, 1)] = 0.1
    """Share of the newest observation in the success rate; 0.1 remembers about ten."""
    half_life_s: Annotated[float, Within(1, 1e12, "seconds")] = 604_800.0
    """Seconds after which confidence counts half. A week: older work has usually been replaced."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.minimum < self.floor:
            raise ConfigError(
                "minimum", f"is {self.minimum}, below reinforce.floor {self.floor}; use the floor or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantConfig(Section):
    """One entry of the `tenants:` section: credentials that share an archive."""

    keys_sha256: Sequence[
        Annotated[str, Matches(r"[0-9a-f]{64}|\*", 'use 64 hex digits: printf %s "$KEY" | sha256sum', secret=True)]
    ] = ()
    """SHA-256 of each credential, lower-case hex. Lantern stores no key, not even here. "*": all that no other tenant
    has; for one person, whose client signs in and gets a new token every few hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig(Section):
    """The `log:` section. Nothing logged holds a message or a credential."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """info is one line per restore and per fault. For other packages: warnings and errors, or errors with `error`."""
    json: bool = False
    """true: one JSON object per line, for log collectors."""


TenantName = Annotated[
    str,
    Matches(
        r"(?!t_)[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "use letters, digits, _ . -, and not t_..., which credentials have"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConfig(Section):
    """The `trace:` section. Spans hold no text of a message and no credential."""

    otlp_endpoint: Annotated[str, Url(optional=True)] = ""
    """A collector's OTLP address over HTTP, "http://127.0.0.1:4318"; needs the extra `otel`. Empty: that of
    OTEL_EXPORTER_OTLP_ENDPOINT, and without that there is no tracing."""
    service_name: Annotated[str, Matches(r"\S+", "use a name without spaces")] = "lantern"
    """The name of the service in the spans. OTEL_SERVICE_NAME overrides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Section):
    """All settings; `Config()` is what serves without a file."""

    server: ServerConfig = field(default_factory=ServerConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    upstream: UpstreamConfig = field(default_factory=UpstreamConfig)
    restore: RestoreConfig = field(default_factory=RestoreConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    embed: EmbedConfig = field(default_factory=EmbedConfig)
    rerank: RerankConfig = field(default_factory=RerankConfig)
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    tenants: Mapping[TenantName, TenantConfig] = field(default_factory=dict)
    """Name -> credentials that form one tenant. A credential that is not listed is a tenant of its own."""
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    log: LogConfig = field(default_factory=LogConfig)
    trace: TraceConfig = field(default_factory=TraceConfig)

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        owners: dict[str, str] = {}
        for name, tenant in self.tenants.items():
            for digest in tenant.keys_sha256:
                if owners.setdefault(digest, name) != name:
                    raise ConfigError(f"tenants.{name}", f"lists a key that is {owners[digest]}'s; leave it in one")

    def owners(self) -> dict[str, str]:
        """Each credential listed in `tenants:` -> the tenant that lists it, for tenant_named()."""
        return {digest: name for name, tenant in self.tenants.items() for digest in tenant.keys_sha256}


def tenant_named(owners: Mapping[str, str], credential: str) -> str:
    """The tenant that the config names for a credential, or for the first of several keys, one per line, that it names;
    "" if it names none."""
    if not owners:
        return ""
    marks = (hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest() for key in credential.split("\n"))
    return next((owners[mark] for mark in marks if mark in owners), owners.get("*", ""))


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """The settings of `path` (None: the defaults), overridden by `environ`. Raises ConfigError."""
    raw: dict[str, Any] = {}
    if path is not None:
        from lantern_proxy.config.file import read  # imports yaml, which most starts do not need

        raw = read(path)
    try:
        convert(raw, Config, "")
    except ConfigError as error:
        raise ConfigError(f"{path}:", str(error)) from None
    for variable, place in ENVIRONMENT.items():
        if value := environ.get(variable, ""):
            raw = _override(raw, place, value, variable)
    if not (raw.get("embed") or {}).get("cache_dir"):
        raw = raw | {"embed": (raw.get("embed") or {}) | {"cache_dir": default_cache_dir(environ)}}
    final: Config = convert(raw, Config, "")
    return final


def _override(raw: dict[str, Any], place: str, text: str, variable: str) -> dict[str, Any]:
    """`raw` with the setting at `place` taken from an environment variable; the error names the variable."""
    section, key = place.split(".")
    hint = hints_of(hints_of(Config)[section])[key]
    try:
        value = convert(int(text) if bare(hint) is int and re.fullmatch(r"\s*-?\d+\s*", text) else text, hint, "")
    except ConfigError as error:
        raise ConfigError(variable, f"{error.problem} (it overrides {place})") from None
    return raw | {section: (raw.get(section) or {}) | {key: value}}
