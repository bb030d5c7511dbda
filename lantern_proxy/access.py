"""Access to the upstreams: decides whether a request is admitted, before its body is read.

    refused = access.admit(arrival, caller)      # proxied paths: proxy key, origin, limits; swaps the key upstream

For everything below /lantern see access_admin.py.

A proxy key comes in `x-lantern-key`, or where the client's SDK puts its provider's key. It is never forwarded: the
upstream gets the key that it is mapped to, or another key of the client's, or none.
"""

import hashlib
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct, field
from msgspec.structs import replace
from starlette.types import Message, Receive, Send

from lantern_proxy.access_keys import Keyring, KeysError, ProxyKey, keys_file
from lantern_proxy.config import Config
from lantern_proxy.config.check import ConfigError
from lantern_proxy.wire.http import CREDENTIALS, Arrival, Header, answer_json, failure, is_anthropics

log = logging.getLogger("lantern.access")

_CREDENTIALS = (b"authorization", b"x-api-key", b"api-key")
_NOT_ASKING = frozenset({b"x-lantern-key", *CREDENTIALS, b"transfer-encoding"})
"""Headers of a key or a body, which a browser's preflight request never has."""
_READABLE: tuple[Header, ...] = ((b"access-control-expose-headers", b"*"), (b"vary", b"origin"))
"""Headers for a page that may read an answer: it may read all of its headers (Fetch: CORS protocol)."""
_CALLERS = 10_000
"""Most callers whose rate is tracked; the least recently seen is dropped first."""
FROM_WORKER = "lantern.from_worker"
"""Key of the ASGI scope: true if another worker asks, so that this one answers only for itself."""


class Refusal(Struct, frozen=True):
    """Why a request is refused. The message never repeats a credential."""

    status: int
    kind: str
    message: str
    headers: tuple[Header, ...] = ()

    @property
    def body(self) -> dict[str, object]:
        """The JSON body of the answer."""
        return failure(self.kind, f"lantern: {self.message}")

    async def send(self, send: Send, for_page: Sequence[Header] = ()) -> None:
        await answer_json(send, self.status, self.body, [*self.headers, *for_page, (b"connection", b"close")])


class AccessControl:
    """Decides on each request for an upstream. Raises KeysError if the keys file cannot be read."""

    def __init__(self, config: Config) -> None:
        self._config = config.access
        self._own = own_names(config)
        self._keyring = Keyring(keys_file(config))
        self._rate = Rate(config.access.requests_per_minute)
        self._most = config.access.max_body_mb * 1_000_000

    def admit(self, arrival: Arrival, caller: str) -> Refusal | None:
        """Why a request for an upstream is refused; None admits it. For a proxy key, sets its tenant and upstream key;
        for a page that may call without a credential, the headers that let it read our own answers.

        caller: the address of the client
        """
        headers = dict(arrival.headers)
        if b"origin" in headers and (refused := self._refuse_page(arrival, headers)):
            return refused
        if ("." in arrival.path or "%2" in arrival.path) and escapes_base(arrival.path):
            return Refusal(
                400, "invalid_request_error", "the path climbs above the upstream's base URL; take the .. out of it"
            )
        self._keyring.refresh()
        key: ProxyKey | None = None
        if self._needs_key and not _is_preflight(arrival, headers):
            key, presented = self._key_of(arrival)
            if key is None:
                return Refusal(401, "authentication_error", _NO_KEY, ((b"www-authenticate", b"Bearer"),))
            try:
                swap(arrival, key, presented)
            except KeysError as error:
                log.warning("%s; %s %s gets 502", error, arrival.method, arrival.path)
                return Refusal(502, "api_error", str(error))
        if self._rate.per_minute:
            wait_s = self._rate.wait(key.name if key else arrival.credential() or caller, time.monotonic())
            if wait_s:
                most = f"more than {self._rate.per_minute} requests a minute"
                message = f"{most}, the most that access.requests_per_minute allows; try again in {wait_s} s"
                return Refusal(429, "rate_limit_error", message, ((b"retry-after", str(wait_s).encode()),))
        if b"transfer-encoding" in headers and not _is_chunked(arrival):
            return Refusal(501, "invalid_request_error", "transfer-encoding may be chunked only")
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._most:
            return self._too_long()
        return None

    def tenant_of(self, arrival: Arrival) -> str:
        """The tenant of the request's proxy key; "" if it has none."""
        self._keyring.refresh()
        key = self._key_of(arrival)[0] if self._needs_key else None
        return key.tenant if key else ""

    def _key_of(self, arrival: Arrival) -> tuple[ProxyKey | None, str]:
        """The request's proxy key, and the text in which it came."""
        own = arrival.header("x-lantern-key")
        presented = [own] if own else arrival.credentials(_CREDENTIALS)
        found = ((self._keyring.find(each), each) for each in presented)
        return next((pair for pair in found if pair[0]), (None, ""))

    @property
    def _needs_key(self) -> bool:
        """Is a proxy key required?"""
        return self._config.keys != "off" and (self._keyring.is_used or self._config.keys == "required")

    def _refuse_page(self, arrival: Arrival, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Why a request of a web page (one with `Origin`) is refused: any page in a browser on this machine could send
        one.

        A page whose host name is not ours may have been rebound to this address; one without a credential could use a
        model that runs here, which needs none.
        """
        host, origin = host_of(headers.get(b"host", b"")), headers[b"origin"].decode("latin-1")
        if origin not in self._config.origins:
            if not is_own_name(host, self._own):
                message = f"a web page may not use host {host!r}; name it in access.hosts"
                return Refusal(403, "permission_error", message)
            if not is_own_name(parts_of(origin).hostname or "", self._own, loopback=True):
                message = f"pages of {origin!r} may not use this proxy; name it in access.origins"
                return None if arrival.credential() else Refusal(403, "permission_error", message)
        arrival.for_page = ((b"access-control-allow-origin", headers[b"origin"]), *_READABLE)
        return None

    def _too_long(self) -> Refusal:
        message = f"the body is longer than {self._config.max_body_mb} MB; see access.max_body_mb"
        return Refusal(413, "request_too_large", message)

    def measured(self, arrival: Arrival, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """The same pair, but a body of unknown length is counted as it arrives, and refused with 413 if too long."""
        if not arrival.header("transfer-encoding"):
            return receive, send
        meter = _Meter(self._most, replace(self._too_long(), headers=arrival.for_page), receive, send)
        return meter.receive, meter.send


def _is_preflight(arrival: Arrival, headers: Mapping[bytes, bytes]) -> bool:
    """Is this a browser's preflight request? It has neither key nor body (Fetch: CORS-preflight)."""
    asks = arrival.method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers
    return asks and headers.keys().isdisjoint(_NOT_ASKING) and headers.get(b"content-length", b"0") == b"0"


def _is_chunked(arrival: Arrival) -> bool:
    codings = (value.strip().lower() for name, value in arrival.headers if name == b"transfer-encoding")
    return all(coding == b"chunked" for coding in codings)


_NO_KEY = (
    "a proxy key is needed, in x-lantern-key or as the API key; `lantern keys add NAME` makes one where lantern runs"
)


def swap(arrival: Arrival, key: ProxyKey, presented: str) -> None:
    """Set the tenant, and replace the proxy key by the upstream's. KeysError if that is missing.

    presented: the proxy key, which is never forwarded; if it has no upstream key, another key of the client's is
    """
    arrival.tenant = key.tenant
    anthropic = is_anthropics(arrival.path, arrival.headers)
    secret = key.secret_for("anthropic" if anthropic else "openai")
    if secret is None:
        own = presented.encode("latin-1", "replace")
        arrival.headers = tuple(pair for pair in arrival.headers if pair[0] not in _CREDENTIALS or own not in pair[1])
        return
    place = b"x-api-key" if anthropic else b"api-key" if arrival.header("api-key") else b"authorization"
    kept = tuple(pair for pair in arrival.headers if pair[0] not in _CREDENTIALS)
    value = secret if place != b"authorization" else f"Bearer {secret}"
    arrival.headers = (*kept, (place, value.encode("latin-1", "replace")))


def escapes_base(path: str) -> bool:
    """Would a server that resolves dot segments, also percent-encoded ones, leave the base that precedes `path`?"""
    depth = 0
    for segment in path.removeprefix("/v1").replace("\\", "/").replace("%2f", "/").replace("%2F", "/").split("/"):
        plain = segment.replace("%2e", ".").replace("%2E", ".")
        depth += -1 if plain == ".." else plain not in ("", ".")
        if depth < 0:
            return True
    return False


class _Meter(Struct):
    """Counts the bytes of a body as they arrive."""

    room: int
    refusal: Refusal
    _receive: Receive
    _send: Send
    started: bool = False

    async def receive(self) -> Message:
        message = await self._receive()
        self.room -= len(message.get("body", b""))
        if self.room >= 0:
            return message
        if not self.started:
            self.started = True
            await self.refusal.send(self._send)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.room >= 0:
            self.started = True
            await self._send(message)


class Rate(Struct):
    """A token bucket per caller that holds a minute's worth and fills evenly. 0: no limit."""

    per_minute: int
    _buckets: OrderedDict[bytes, tuple[float, float]] = field(default_factory=OrderedDict)

    def wait(self, caller: str, now: float) -> int:
        """0 if `caller` may make a request now, which is then counted; else whole seconds until it may."""
        name = hashlib.blake2b(caller.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        left, since = self._buckets.pop(name, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - since) * self.per_minute / 60)
        allowed = left >= 1
        self._buckets[name] = (left - allowed, now)
        while len(self._buckets) > _CALLERS:
            self._buckets.popitem(last=False)
        return 0 if allowed else max(1, -int(-(1 - left) * 60 // self.per_minute))


def own_names(config: Config) -> frozenset[str]:
    """Names of this machine, besides its addresses."""
    return frozenset({"localhost", config.server.host.lower(), *(host.lower() for host in config.access.hosts)})


def is_own_name(host: str, own: frozenset[str], *, loopback: bool = False) -> bool:
    """Does `host` name this machine? Any address does, since rebinding needs a name; loopback: only its own ones do."""
    return host.lower() in own or (is_loopback(host) if loopback else _address(host.strip("[]")) is not None)


def host_of(value: bytes) -> str:
    """The host of a Host header, without its port."""
    return parts_of(f"//{value.decode('latin-1')}").hostname or ""


def parts_of(url: str) -> SplitResult:
    """A parsed URL. An invalid one (`http://[::1`) has no parts, and so names nobody."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def is_loopback(host: str) -> bool:
    """Is this a loopback address? An IPv4 address within IPv6 counts as itself."""
    address = _address(host)
    return address is not None and (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def reachable_from_elsewhere(host: str) -> bool:
    """Can other machines reach a server that listens on `host`?"""
    return not (is_loopback(host.strip("[]")) or host == "localhost")


def refuse_open_access(config: Config) -> None:
    """Raise ConfigError if other machines could connect and no key is required."""
    if not reachable_from_elsewhere(config.server.host):
        return
    if config.access.keys == "off":
        shared = next((name for name, tenant in config.tenants.items() if "*" in tenant.keys_sha256), "")
        if shared:
            raise ConfigError(
                f"tenants.{shared}.keys_sha256",
                f'is "*", and other machines can reach {config.server.host}: whoever comes from there would share one '
                "archive. List the credentials, or let access.keys ask for proxy keys",
            )
        return
    if not len(Keyring(keys_file(config))):
        raise ConfigError(
            "server.host",
            f"is {config.server.host}, which other machines can reach, and there is no proxy key: anybody there could "
            "use this proxy. Run `lantern keys add NAME`, or listen on 127.0.0.1; behind a door of your own set "
            "access.keys: off",
        )
