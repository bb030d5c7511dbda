"""Proxy keys: hashed, named, revocable. Each belongs to a tenant, with upstream keys that its holder never sees.

    keyring = Keyring(keys_file(config))
    secret = keyring.add("alice", tenant="alice", upstream={"any": "env:OPENAI_API_KEY"}, now=time.time())
    keyring.find(secret).tenant

The file is JSON with mode 0600 and holds SHA-256 of random 256-bit keys, which cannot be reversed. A running proxy sees
a change within a second.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from lantern_proxy.config import Config
from lantern_proxy.locked import exclusive

PREFIX = "lk_"
_LOOK_S = 1.0
_NAME = re.compile(r"(?!t_)[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SOURCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")
PROVIDERS = ("any", "openai", "anthropic")


class KeysError(OSError):
    """The keys file cannot be used, or a key cannot be made. Nobody is admitted by mistake."""


class ProxyKey(Struct, frozen=True, kw_only=True):
    """One key's record, without the key itself."""

    name: str
    sha256: str
    tenant: str
    upstream: Mapping[str, str] = {}
    """Provider (any, openai, anthropic) -> the source of its key: env:VARIABLE or file:PATH."""
    created_at: float = 0.0
    revoked_at: float = 0.0

    def secret_for(self, provider: str) -> str | None:
        """The upstream key, read now; None if none is mapped. KeysError if its source is missing."""
        source = self.upstream.get(provider) or self.upstream.get("any")
        return None if source is None else self._secret_in(source)

    def missing(self, kinds: Container[str]) -> Iterator[str]:
        """Messages for mapped sources that are missing now, so that requests are refused. kinds: env, file"""
        for source in dict.fromkeys(self.upstream.values()):
            if source.partition(":")[0] in kinds:
                try:
                    self._secret_in(source)
                except KeysError as error:
                    yield str(error)

    def _secret_in(self, source: str) -> str:
        kind, _, place = source.partition(":")
        try:
            secret = os.environ.get(place, "") if kind == "env" else Path(place).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            secret = ""
        if not secret:
            what = "environment variable" if kind == "env" else "file"
            message = f"proxy key {self.name} takes its upstream key from {what} {place}, which has none"
            raise KeysError(f"{message}; put it there, where `lantern serve` runs")
        return secret


def keys_file(config: Config) -> Path:
    """The keys file of this deployment."""
    path = config.access.keys_file
    return Path(path).expanduser() if path else Path(f"{config.archive.path}.keys")


def why_closed(config: Config) -> str:
    """Why nobody can be admitted: a proxy key is required, and there is no valid one. "" if somebody can."""
    keyring = Keyring(keys_file(config))
    if len(keyring) or not (keyring.is_used or config.access.keys == "required") or config.access.keys == "off":
        return ""
    return f"a proxy key is asked for, and {keyring.path} holds none: every request is refused; `lantern keys add NAME`"


def missing_upstream_keys(config: Config, kinds: Container[str]) -> list[str]:
    """Messages for sources of valid keys that are missing now, so that their holders are refused. kinds: env, file"""
    keys = [] if config.access.keys == "off" else Keyring(keys_file(config)).all()
    return [message for key in keys if not key.revoked_at for message in key.missing(kinds)]


class Keyring:
    """The keys of one file, read again when it changes. KeysError if it cannot be read at the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """Why the file could not be read again; until it can, the keys known before stay valid."""
        self._stamp: tuple[int, int, int] | None = None
        self._looked = -_LOOK_S
        self._keys: dict[str, ProxyKey] = {}
        self._by_hash: dict[str, ProxyKey] = {}
        self._stamp = self._now_stamp()
        self._take(self._read())

    def __len__(self) -> int:
        """Number of valid keys."""
        return len(self._by_hash)

    @property
    def is_used(self) -> bool:
        """Was there ever a key? Keys are still required after the last one is revoked."""
        return bool(self._keys)

    def all(self) -> list[ProxyKey]:
        """All keys, revoked ones included, oldest first."""
        return sorted(self._keys.values(), key=lambda key: key.created_at)

    def find(self, secret: str) -> ProxyKey | None:
        """The record of the key `secret`; None if it is wrong or revoked. Takes the same time for both."""
        digest = _digest(secret)
        found = self._by_hash.get(digest)
        return found if hmac.compare_digest(found.sha256 if found else "0" * 64, digest) else None

    def refresh(self) -> None:
        """Read the file again if it has changed; checks at most once a second."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        stamp = self._now_stamp()
        if stamp == self._stamp:
            return
        try:
            self._take(self._read())
            self._stamp, self.problem = stamp, ""
        except KeysError as error:  # known keys stay valid: a half-written file must neither admit nor lock out anyone
            self.problem = str(error)

    def add(self, name: str, *, tenant: str = "", upstream: Mapping[str, str] | None = None, now: float) -> str:
        """Make a key and return it. It is not shown again."""
        if not _NAME.fullmatch(name):
            raise KeysError(f"name {name!r} cannot be used; use letters, digits, _ . -, and not t_...")
        if not _TENANT.fullmatch(tenant or name):
            raise KeysError(f"tenant {tenant!r} cannot be used; use letters, digits, _ . -")
        for provider, source in (upstream or {}).items():
            if provider not in PROVIDERS or not _SOURCE.fullmatch(source):
                raise KeysError(
                    f"upstream key {provider}={source} is not understood; use VAR, openai=VAR, anthropic=VAR"
                )
        secret = PREFIX + secrets.token_urlsafe(32)
        key = ProxyKey(
            name=name, sha256=_digest(secret), tenant=tenant or name, upstream=dict(upstream or {}), created_at=now
        )
        with self._changing():
            if name in self._keys:
                raise KeysError(
                    f"key {name} exists, and a revoked one keeps its name; take another, with --tenant "
                    f"{self._keys[name].tenant} for the same archive"
                )
            self._write([*self._keys.values(), key])
        return secret

    def revoke(self, name: str, *, now: float) -> ProxyKey:
        """Revoke a key: it is refused from now on. Its name stays taken, and its tenant's archive stays."""
        with self._changing():
            key = self._keys.get(name)
            if key is None:
                raise KeysError(f"there is no key {name}; `lantern keys list` lists them")
            key = replace(key, revoked_at=key.revoked_at or now)
            self._write([key if each.name == name else each for each in self._keys.values()])
        return key

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """The keys in the file, written back after the block; concurrent changes wait."""
        try:
            with exclusive(self.path.parent):
                self._take(self._read())
                yield
        except KeysError:
            raise
        except OSError as error:
            message = f"keys file {self.path} cannot be written ({error.strerror}); give its folder to this user"
            raise KeysError(message) from None

    def _take(self, keys: Mapping[str, ProxyKey]) -> None:
        self._keys = dict(keys)
        self._by_hash = {key.sha256: key for key in keys.values() if not key.revoked_at}

    def _now_stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            return (-1, -1, -1)
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> dict[str, ProxyKey]:
        try:
            rows = json.loads(self.path.read_text("utf-8"))["keys"]
            keys = [ProxyKey(**row) for row in rows]
        except FileNotFoundError:
            if self._keys:
                raise KeysError(f"keys file {self.path} is gone; its keys hold until a restart") from None
            return {}
        except PermissionError:
            raise KeysError(f"keys file {self.path} may not be read by this user; make it the file's owner") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = (
                f"keys file {self.path} cannot be read ({type(error).__name__}); restore it, or remove it and add keys"
            )
            raise KeysError(message) from None
        return {key.name: key for key in keys}

    def _write(self, keys: list[ProxyKey]) -> None:
        """Replace the file atomically, so that a reader sees either the old or the new one."""
        text = json.dumps({"keys": [asdict(key) for key in keys]}, indent=1) + "\n"
        beside = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}")
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                self._give_to_service(file.fileno())
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            message = f"keys file {self.path} cannot be written ({error.strerror}); give its folder to this user"
            raise KeysError(message) from None
        self._stamp = self._now_stamp()
        self._take({key.name: key for key in keys})

    def _give_to_service(self, file: int) -> None:
        """If root writes, give the file the owner of the previous file, or of the folder, so that the proxy can read
        it."""
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            before = (self.path if self.path.exists() else self.path.parent).stat()
            os.fchown(file, before.st_uid, before.st_gid)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
