"""`lantern serve`: listen, say where, and run uvicorn until a signal."""

import json
import logging
import signal
import socket
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import click

from lantern_proxy.config import Config


def serve(config: Config, host: str | None, port: int | None, *, as_json: bool) -> None:
    """Serve until SIGINT or SIGTERM. The banner is printed once connections are accepted."""
    server = config.server
    server = replace(server, host=host if host is not None else server.host, port=server.port if port is None else port)
    config = replace(config, server=server)
    _log(config)
    listener = _listen(server.host, server.port)

    import uvicorn

    from lantern_proxy.app import create

    settings = uvicorn.Config(
        create(config),
        http="httptools" if find_spec("httptools") else "auto",
        loop="uvloop" if find_spec("uvloop") else "auto",
        ws="none",  # upgrades reach the app as plain requests, which answers 426
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,  # the upstream's own headers pass; none are added to them
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=round(server.drain_s),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal again once it has drained
    _banner(config, listener, as_json=as_json)
    try:
        uvicorn.Server(settings).run(sockets=[listener])
    except KeyboardInterrupt:
        sys.exit(0)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; one line when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(
            f"cannot listen on {host} port {port} ({reason.lower()}); choose another with --port or LANTERN_PORT"
        ) from None
    listener.set_inheritable(True)
    return listener


def _banner(config: Config, listener: socket.socket, *, as_json: bool) -> None:
    """Where it listens and what to paste. In the backlog a connection waits for the first moment of serving."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else shown}:{port}"
    archive = config.archive.path.absolute()
    if as_json:
        click.echo(json.dumps({"url": url, "archive": str(archive), "embedder": _embedder(config)}))
    else:
        click.echo(
            f"lantern listens on {url}\n"
            f"  archive   {archive}\n"
            f"  upstream  {config.upstream.openai}  {config.upstream.anthropic}\n"
            f"  embedder  {_embedder(config)}\n\n"
            f"  export OPENAI_BASE_URL={url}/v1\n"
            f"  export ANTHROPIC_BASE_URL={url}\n\n"
            f"`lantern status` and {url}/lantern/health tell how it is doing; Ctrl-C stops it."
        )
    sys.stdout.flush()


def _embedder(config: Config) -> str:
    from lantern_proxy import embed

    if config.embed.enabled == "off":
        return "off (embed.enabled)"
    if not embed.available():
        return 'not installed: pip install "lantern-proxy[dense]" adds the vector signal'
    compiled = embed.folder_of(config.embed.model, config.embed.cache_dir).is_dir()
    return f"{config.embed.model}, " + ("compiled" if compiled else "compiling once in the background")


def _log(config: Config) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if config.log.json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=config.log.level.upper(), handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for noisy in ("uvicorn", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING if config.log.level != "debug" else logging.DEBUG)


class JsonLines(logging.Formatter):
    """One JSON object a record: time (Unix seconds), level, name, message, and error when there is a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": round(record.created if record.created else time.time(), 3),
            "level": record.levelname.lower(),
            "name": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["error"] = self.formatException(record.exc_info)
        return json.dumps(row)
