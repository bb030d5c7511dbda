"""The health report of the proxy that serves an archive, for `lantern doctor` and `lantern status`."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lantern_proxy.cli import process
from lantern_proxy.config import Config

_TIMEOUT_S = 2.0


def health(config: Config) -> dict[str, Any] | None:
    """The health report of this archive's proxy, and its `url`; None if none answers.

    It is requested where the proxy announced that it listens (`lantern serve --port`), else at the configured address.
    """
    urls = (process.served_at(config.archive.path), configured_url(config))
    return next(
        (report for url in urls if (report := health_at(url, config)) and not other_archive(report, config)), None
    )


def configured_url(config: Config) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.server.host, config.server.host)
    scheme = "https" if config.server.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{config.server.port}"


def health_at(url: str, config: Config) -> dict[str, Any] | None:
    """The health report of a proxy at `url`; None if there is none."""
    import httpx

    if not url:
        return None
    try:
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False, verify=_tls_trust(config.server.tls_cert)) as http:
            report = http.get(f"{url}/lantern/health").json()
    except (httpx.HTTPError, ValueError, OSError):
        return None
    return report | {"url": url} if isinstance(report, dict) and "status" in report else None


def other_archive(report: Mapping[str, Any], config: Config) -> str:
    """The path of a proxy's archive if it is not this one; "" also if it does not report one."""
    path = (report.get("archive") or {}).get("path") or ""
    return path if path and Path(path).resolve() != config.archive.path.resolve() else ""


def _tls_trust(cert: str) -> "ssl.SSLContext | bool":
    """Trust for a single certificate, whatever host name it was issued for. If it is not configured here, any is
    trusted: the address is one of this machine, and nothing secret is sent."""
    if not Path(cert).is_file():  # none, or a pipe, which would be waited for
        return False
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False
    return context
