"""Access to everything below /lantern: who may read the archive, and who may change it."""

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from lantern_proxy.access import Refusal, host_of, is_loopback, is_own_name, own_names, parts_of
from lantern_proxy.config import Config
from lantern_proxy.config.check import ConfigError, secret

_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
"""Headers in which a proxy on this machine names the real client."""
_LEAST_TOKEN = 16
"""Least characters of an admin token; a shorter one could be guessed."""
STRANGER = "lantern.stranger"
"""Key of the ASGI scope: true if the caller may learn only that Lantern is up."""


class AdminAccess:
    """Admits callers who may read the archive to `inner` (an ASGI application).

    They are on this machine (unless access.admin is token) or have the admin token, as `Authorization: Bearer TOKEN`,
    as the password of `Basic`, or in `x-lantern-admin`. Their Host header must name this machine, which that of a page
    with a rebound name does not. Requests that change something must not come from a page of another origin.
    """

    def __init__(self, config: Config, inner: ASGIApp) -> None:
        self._config, self._inner = config, inner
        self._own = own_names(config)
        token = admin_token(config)
        self._token = hashlib.sha256(token).digest() if token else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self.refusal(scope) if scope["type"] == "http" else None
        if refused is not None and refused.status in (401, 403) and _is_health(scope) and self._is_own_name(scope):
            scope[STRANGER], refused = True, None
        if refused is not None:
            await refused.send(send)
            return
        await self._inner(scope, receive, send)

    def refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        caller = scope["client"][0] if scope.get("client") else ""
        if not self._is_own_name(scope):
            scheme = "https" if self._config.server.tls_cert else "http"
            way_out = f"{scheme}://127.0.0.1:{self._config.server.port}{scope['path']}, or name it in access.hosts"
            return Refusal(
                403, "permission_error", f"host {host_of(headers.get(b'host', b''))!r} may not ask; use {way_out}"
            )
        if not self._is_known(caller, headers):
            return self._unknown(caller, headers)
        return None if scope["method"] in ("GET", "HEAD") else self._foreign_page(headers)

    def _is_own_name(self, scope: Scope) -> bool:
        return is_own_name(host_of(dict(scope["headers"]).get(b"host", b"")), self._own)

    def _is_known(self, caller: str, headers: Mapping[bytes, bytes]) -> bool:
        if self._token and hmac.compare_digest(hashlib.sha256(_token_of(headers)).digest(), self._token):
            return True
        direct = is_loopback(caller) and not any(name in headers for name in _FORWARDED)
        return direct and self._config.access.admin == "loopback"

    def _unknown(self, caller: str, headers: Mapping[bytes, bytes]) -> Refusal:
        if self._token:
            reason = "the admin token is needed: Authorization: Bearer TOKEN"
            return Refusal(401, "authentication_error", reason, ((b"www-authenticate", b'Basic realm="lantern"'),))
        proxied = next((f" (with {name.decode()})" for name in _FORWARDED if name in headers), "")
        reason = f"{caller or 'this caller'}{proxied} may not see this: conversations are shown on this machine only"
        return Refusal(403, "permission_error", f"{reason}; set {self._config.access.admin_token_env} to let others in")

    def _foreign_page(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Why a request that changes something is refused if a page of another origin sent it."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        site = headers.get(b"sec-fetch-site", b"none")
        if origin and origin not in self._config.access.origins:
            host = headers.get(b"host", b"").decode("latin-1")
            if parts_of(origin).netloc.lower() != host.lower():
                return Refusal(
                    403, "permission_error", f"pages of {origin!r} may not change anything; name it in access.origins"
                )
        if not origin and site not in (b"none", b"same-origin"):
            return Refusal(403, "permission_error", "a page of another origin may not change anything")
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if headers.get(b"content-length", b"0") != b"0" and kind not in (b"application/json", b"application/x-ndjson"):
            return Refusal(415, "invalid_request_error", "send application/json")
        return None


def admin_token(config: Config) -> bytes:
    """The admin token; empty if there is none. ConfigError if it could be guessed."""
    access = config.access
    text, place = secret("access.admin_token", access.admin_token_file, access.admin_token_env, os.environ)
    if not text:
        if access.admin == "token" or access.admin_token_file:
            raise ConfigError(place, "holds no admin token; put one there: openssl rand -hex 32")
        return b""
    if len(text) < _LEAST_TOKEN:
        raise ConfigError(place, f"is shorter than {_LEAST_TOKEN} characters; take: openssl rand -hex 32")
    return text.encode()


def _token_of(headers: Mapping[bytes, bytes]) -> bytes:
    if b"x-lantern-admin" in headers:
        return headers[b"x-lantern-admin"]
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except ValueError:
            return b""
    return value.strip() if scheme.lower() == b"bearer" else b""


def _is_health(scope: Scope) -> bool:
    return scope["method"] in ("GET", "HEAD") and str(scope["path"]).rstrip("/") == "/lantern/health"
