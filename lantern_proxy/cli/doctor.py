"""`lantern doctor`: looks for everything that can be wrong on this machine, and tells the remedy.

for found in examine(file, config, offline=False, deep=False): ...
Diagnosis("bm25", "warn", "the numpy twin serves ...", "install a C compiler ...")
"""

import os
import platform
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from lantern_proxy.access_keys import KeysError, missing_upstream_keys, why_closed
from lantern_proxy.cli.health import configured_url, health, health_at, other_archive
from lantern_proxy.cli.serve import check_start
from lantern_proxy.config import Config, UpstreamConfig
from lantern_proxy.config.check import ConfigError
from lantern_proxy.turn import LATEST_S

State = Literal["ok", "warn", "bad"]
_CONNECT_S = 3.0
_NO_V1 = "it ends without /v1: where chat completions get 404, add /v1 to upstream.openai"
_CLOCK_S = 300.0
"""How far ahead of the clock the archive's newest turn may be."""

_REPORT = "a fault in Lantern: look into the proxy's log, and report it"
REMEDIES = {
    "restore:deadline": "raise restore.deadline_ms",
    "restore:warming": "wait a moment: what restores is being imported",
    "restore:opening": "wait a moment: the index of a large archive is being opened",
    "restore:behind": "wait a moment: the newest turns are not cut into passages yet",
    "restore:resting": "see restore:deadline, and the proxy's log for what failed",
    "restore:digest": "have the client leave content-md5 and content-digest out, which no block could be true to",
    "restore:refused": "if it was for the length, set restore.window_tokens, or lower restore.budget_chars",
    "restore:place": _REPORT,
    "restore:error": _REPORT,
    "session:error": _REPORT,
    "record:error": _REPORT,
    "answer:error": _REPORT,
    "answer:encoding": "none is needed: the text of the answer is archived with the client's next request",
    "answer:too_large": "none is needed: the text of the answer is archived with the client's next request",
    "request:too_large": "raise access.max_body_mb",
    "request:encoding": "have the client send its bodies as they are, or packed by gzip, deflate or zstd",
    "dense:warming": "wait half a minute after the first start",
    "dense:no-vectors": "see sqlite above",
    "dense:": "see the embedder above",
    "late:failed": "see the archive above; `lantern reindex --vectors` makes the vectors anew",
    "light:unusable": "see the reranker above, and the proxy's log",
    "rerank:": "see the reranker above, and the proxy's log",
    "archive:slow": "see disk above; where it is always slow, more hold_ms, and synchronous: normal (its default)",
    "archive:unavailable": "see the archive above, and the proxy's log",
}
"""Reason in x-lantern-degraded, or its part before the colon -> the remedy."""


class Diagnosis(Struct, frozen=True):
    """One check. warn: Lantern works, but less well. bad: it does not do its work."""

    name: str
    state: State
    detail: str
    remedy: str = ""


def _diagnosis_of(name: str, state: State, message: object) -> Diagnosis:
    """(what is wrong, the remedy, which follows the last semicolon of the message, if any)"""
    wrong, _, remedy = str(message).rpartition("; ")
    return Diagnosis(name, state, wrong or remedy, remedy if wrong else "")


def examine(file: Path | None, config: Config, *, offline: bool, deep: bool) -> Iterator[Diagnosis]:
    """All findings, from the machine up to the running proxy. deep: opens the archive for writing."""
    yield Diagnosis("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield from _config(file, config)
    yield from _keys(config)
    yield _sqlite()
    yield _bm25()
    yield _embedder(config)
    yield from _rerankers(config)
    yield from _archive(config, deep=deep)
    if not offline:
        yield from _upstreams(config.upstream)
    yield from _trust()
    yield from _proxy(config)


def _config(file: Path | None, config: Config) -> Iterator[Diagnosis]:
    """Where the settings come from, and why `lantern serve` would refuse to start with them."""
    yield Diagnosis("config", "ok", str(file) if file else "defaults and environment; no --config was given")
    try:
        check_start(config)
    except (ConfigError, KeysError) as error:
        yield _diagnosis_of("serve", "bad", error)


def _keys(config: Config) -> Iterator[Diagnosis]:
    """Which keys cannot be used. Environment variables are not checked: those of `lantern serve` are unknown here."""
    with suppress(KeysError):  # a file that cannot be read is told already
        if nobody := why_closed(config):
            yield _diagnosis_of("keys", "bad", nobody)
        for some in missing_upstream_keys(config, ("file",)):
            yield _diagnosis_of("keys", "warn", some)


def _sqlite() -> Diagnosis:
    """Can the SQLite used by archive/ load sqlite-vec?"""
    from sqlite_utils import utils

    sqlite3: Any = utils.sqlite3  # type: ignore[attr-defined]  # pysqlite3 where it is installed
    library = f"SQLite {sqlite3.sqlite_version} of {sqlite3.__name__.partition('.')[0]}"
    connection = sqlite3.connect(":memory:")
    try:
        import sqlite_vec

        connection.enable_load_extension(True)
        sqlite_vec.load(connection)
        found = connection.execute("SELECT vec_version()").fetchone()[0]
    except (AttributeError, ImportError, sqlite3.Error) as error:
        wrong = f"{library} loads no extensions ({error}); everything but vectors works"
        return Diagnosis("sqlite", "warn", wrong, "pip install pysqlite3 sqlite-vec")
    finally:
        connection.close()
    return Diagnosis("sqlite", "ok", f"{library} loads sqlite-vec {found}")


def _bm25() -> Diagnosis:
    from lantern_proxy import bm25

    kernel = bm25.best_kernel()
    if kernel == "numpy":
        return Diagnosis(
            "bm25", "warn", bm25.WHY, "install a C compiler, then pip install --force-reinstall lantern-proxy"
        )
    return Diagnosis("bm25", "ok", f"C kernel {kernel}" + (f"; {bm25.WHY}" if bm25.WHY else ""))


def _embedder(config: Config) -> Diagnosis:
    from lantern_proxy import embed

    settings = config.embed
    if settings.enabled == "off":
        return Diagnosis("embedder", "ok", "turned off (embed.enabled)")
    if not embed.available():
        state: State = "bad" if settings.enabled == "on" else "ok"
        wanted = "embed.enabled is on, but the" if settings.enabled == "on" else "the"
        wrong = f"{wanted} extra `dense` is not installed; restores work without the vector signal"
        return Diagnosis("embedder", state, wrong, 'pip install "lantern-proxy[dense]"')
    cache = settings.cache_dir
    if embed.folder_of(settings.model, cache, adapted=settings.adapted).is_dir():
        return Diagnosis("embedder", "ok", f"{settings.model} is compiled, in {cache}")
    there = next(each for each in (cache, *cache.absolute().parents) if each.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        wrong = f"{settings.model} cannot be compiled into {cache}: {there} cannot be written"
        return Diagnosis("embedder", "warn", wrong, "set embed.cache_dir to a folder that can")
    return Diagnosis("embedder", "ok", f"{settings.model} is compiled at the first start, into {cache}")


def _rerankers(config: Config) -> Iterator[Diagnosis]:
    """The configured models, if any."""
    if config.rerank.light:
        yield _light(config)
    if config.rerank.evidence:
        yield _evidence(config)


def _evidence(config: Config) -> Diagnosis:
    from lantern_proxy.rerank.evidence import source_of

    named = f"rerank.evidence: {config.rerank.evidence}"
    if source := source_of(config.rerank.evidence, config.embed.cache_dir):
        return Diagnosis("reranker", "ok", f"{named} {source}")
    remedy = "name a folder that `lantern train evidence-reranker` wrote, or a model on the hub"
    return Diagnosis("reranker", "warn", f"{named} is no folder, and questions keep the usual order", remedy)


def _light(config: Config) -> Diagnosis:
    from lantern_proxy.embed import name_of
    from lantern_proxy.rerank.light import LightError
    from lantern_proxy.restore.light import open_light

    try:
        light = open_light(config.rerank.light)
    except LightError as error:
        return _diagnosis_of("reranker", "warn", f"rerank.light: {error}")
    learned = next((model.embedder for model in light.models if model.embedder), "") if light else ""
    if learned not in ("", name_of(config.embed.model, adapted=config.embed.adapted)):
        wrong = f"rerank.light: {config.rerank.light} learned from the vectors of {learned}, not from those of `embed:`"
        return Diagnosis("reranker", "warn", wrong, "set embed.model and embed.adapted as they were, or train it again")
    return Diagnosis("reranker", "ok", f"rerank.light is {config.rerank.light}")


def _archive(config: Config, *, deep: bool) -> Iterator[Diagnosis]:
    from lantern_proxy.archive import Archive, ArchiveError
    from lantern_proxy.archive.retention import leap

    path = config.archive.path
    try:
        if not path.exists():
            yield _missing_archive(path)
            return
        if not path.is_file():  # a pipe would be waited for
            yield Diagnosis("archive", "bad", f"{path} is no file", "change archive.path")
            return
        with Archive(
            path, synchronous=config.archive.synchronous, read_only=not deep, key=config.archive.key()
        ) as archive:
            yield _existing_archive(path)
            yield _clock(max((tenant.last_at for tenant in archive.tenants()), default=0.0))
            if config.privacy.keep_days and (leapt := leap(archive, now=time.time())):
                remedy = "set the clock (timedatectl); where it is right, wait, or `lantern prune --older-than`"
                yield Diagnosis("retention", "warn", str(leapt), remedy)
            for found in archive.check():
                state: State = "ok" if found.ok else "warn" if found.name in ("vectors", "mode", "disk") else "bad"
                yield Diagnosis(found.name, state, found.detail, found.remedy)
    except (ArchiveError, ConfigError) as error:  # ConfigError: its key
        yield _diagnosis_of("archive", "bad", error)
    except PermissionError as error:
        wrong = f"{error.filename or path} may not be looked at by this user"
        yield Diagnosis("archive", "bad", wrong, "run this as the user that serves, or as root")


def _clock(newest: float) -> Diagnosis:
    """Is something archived that is in the future by this clock?"""
    ahead_s = newest - time.time()
    if ahead_s < _CLOCK_S:
        return Diagnosis("clock", "ok", f"{time.strftime('%Y-%m-%d %H:%M:%S %z')}, not before what was archived last")
    if newest >= LATEST_S:
        remedy = "take its `lantern export` into a new archive, `lantern import --key-env`: they become seconds"
        return Diagnosis("clock", "warn", "the archive holds times that count no seconds; they have no date", remedy)
    wrong = f"the archive's newest turn is {ahead_s / 3_600:,.1f} hours in the future of this machine's clock"
    return Diagnosis("clock", "warn", wrong, "set the clock (timedatectl); dates and recency of passages are wrong")


def _existing_archive(path: Path) -> Diagnosis:
    """A readable archive; its log is in the same folder, so that the folder must be writable, too."""
    if unwritable := next((str(each) for each in (path.absolute(), path.absolute().parent) if not _writable(each)), ""):
        return Diagnosis("archive", "warn", f"{unwritable} cannot be written by this user", "give it to whoever serves")
    return Diagnosis("archive", "ok", str(path.absolute()))


def _missing_archive(path: Path) -> Diagnosis:
    folder = path.absolute().parent
    if not folder.is_dir():
        return Diagnosis("archive", "bad", f"{folder} is not a folder", "make it, or change archive.path")
    if not _writable(folder):
        wrong = f"there is none, and {folder} cannot be written by this user"
        return Diagnosis("archive", "bad", wrong, "give it to whoever serves, or change archive.path")
    return Diagnosis("archive", "ok", f"none at {path.absolute()} yet; `lantern serve` makes it")


def _writable(path: Path) -> bool:
    """False also on a read-only file system."""
    return os.access(path, os.W_OK)


def _upstreams(settings: UpstreamConfig) -> Iterator[Diagnosis]:
    yield _upstream("openai", settings.openai, settings)
    yield _upstream("anthropic", settings.anthropic, settings)
    for at, route in enumerate(settings.routes):
        if route.url:
            yield _upstream(f"routes[{at}].url", route.url, settings)


def _upstream(name: str, url: str, settings: UpstreamConfig) -> Diagnosis:
    """Can a connection be opened, including TLS, or one to the proxy in between? No request is sent."""
    from lantern_proxy.upstream import proxy_of, via_httpx
    from lantern_proxy.upstream.dial import UNKNOWN_AUTHORITY, tls_context
    from lantern_proxy.upstream.errors import ConnectError
    from lantern_proxy.upstream.http1 import Origin

    proxy = proxy_of(Origin.of(url))
    remedy = "correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY" if proxy else f"set upstream.{name}"
    first = f"{proxy}, the environment's proxy for {url}," if proxy else url
    try:
        if proxy:
            via_httpx.client(settings)  # what requests go through
        there = Origin.of(proxy or url)
        with socket.create_connection((there.host, there.port), timeout=_CONNECT_S) as plain:
            if there.scheme == "https":
                tls_context().wrap_socket(plain, server_hostname=there.host).close()
    except ConnectError as error:
        wrong, _, remedy = str(error).partition("; ")
        return Diagnosis(name, "warn", f"{first} cannot be used: {wrong}", remedy)
    except ssl.SSLCertVerificationError as error:
        return Diagnosis(name, "warn", f"{first} cannot be used: {error.strerror}", UNKNOWN_AUTHORITY)
    except (OSError, ValueError) as error:  # ValueError: a proxy whose port is no number
        reason = getattr(error, "strerror", None) or error
        return Diagnosis(name, "warn", f"{first} cannot be reached: {reason}", f"check the network, or {remedy}")
    return Diagnosis(name, "ok", f"{first} can be reached", _NO_V1 if name == "openai" and url.count("/") == 2 else "")


def _trust() -> Iterator[Diagnosis]:
    """Whose certificates are believed, where the environment says so."""
    from lantern_proxy.upstream.dial import tls_context
    from lantern_proxy.upstream.errors import ConnectError

    named = [f"{name} is {os.environ[name]}" for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)]
    if not named:
        return
    try:
        tls_context()
    except ConnectError as error:
        wrong, _, remedy = str(error).partition("; ")
        yield Diagnosis("certificates", "bad", wrong, remedy)
    else:
        yield Diagnosis("certificates", "ok", named[0])


def _proxy(config: Config) -> Iterator[Diagnosis]:
    report = health(config) or health_at(configured_url(config), config)
    if report is None:
        yield Diagnosis("proxy", "ok", f"none runs at port {config.server.port}; `lantern serve` starts one")
        return
    if "version" not in report:  # access.admin is `token`
        yield Diagnosis(
            "proxy", "ok", f"runs at {report['url']}: {report['status']}; it tells more with the admin token"
        )
        return
    running = f"version {report['version']} runs for {report.get('uptime_s', 0):,.0f} s at {report['url']}"
    if other := other_archive(report, config):
        remedy = "name that one with --archive, or start another `lantern serve` with this one"
        yield Diagnosis("proxy", "warn", f"{running}, but with another archive, {other}", remedy)
        return
    yield Diagnosis("proxy", "ok", f"{running}: {report['status']}")
    if (ours := _installed_version()) != report["version"]:
        yield Diagnosis("proxy", "warn", f"the installed version is {ours}", "restart the proxy")
    archive = report.get("archive") or {}
    if not archive.get("ok", True):
        why = f"; {archive['problem']}" if archive.get("problem") else ""
        yield Diagnosis("proxy", "bad", f"answers pass, but nothing is kept{why}", "see its log")
    if (embedder := report.get("embedder") or {}).get("state") == "failed":
        yield Diagnosis("embedder", "warn", f"the proxy has none: {embedder['detail']}", "mend that, restart the proxy")
    for reason, count in (report.get("degraded") or {}).items():
        if count:
            yield Diagnosis("degraded", "warn", f"{reason}: {count:,} since the start", _remedy(reason))
    for kind, count in (report.get("faults") or {}).items():
        yield Diagnosis("faults", "warn", f"{kind}: {count:,} since the start", "see the proxy's log")


def _remedy(reason: str) -> str:
    """The remedy for a reason in x-lantern-degraded; "" if unknown, as from a newer proxy."""
    return REMEDIES.get(reason) or REMEDIES.get(reason.partition(":")[0] + ":", "")


def _installed_version() -> str:
    try:
        return version("lantern-proxy")
    except PackageNotFoundError:
        return "unknown"
