"""`lantern serve`: listens, prints the address, and runs uvicorn until a signal; or starts workers (cli/workers.py)."""

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, field

from lantern_proxy import trace
from lantern_proxy.access import reachable_from_elsewhere, refuse_open_access
from lantern_proxy.access_admin import admin_token
from lantern_proxy.access_keys import Keyring, keys_file, missing_upstream_keys, why_closed
from lantern_proxy.app_place import DRAINED
from lantern_proxy.cli import opening, process
from lantern_proxy.config import Config, ServerConfig
from lantern_proxy.config.check import ConfigError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import FrameType

    import uvicorn

    from lantern_proxy.app import App
    from lantern_proxy.app_place import WorkerPlace

log = logging.getLogger("lantern.serve")

_ALONE_S = 1.0
"""A worker that is stopped by a signal of its own waits so long for the parent to stop the others, too."""
_POLL_S = 0.05


def serve(config: Config, host: str | None, port: int | None, workers: int | None, *, as_json: bool) -> None:
    """Serve until SIGINT or SIGTERM. The banner is printed once connections are accepted."""
    server = config.server
    try:
        server = replace(
            server, host=server.host if host is None else host, port=server.port if port is None else port,
            workers=workers or server.workers,
        )  # fmt: skip
    except ConfigError as error:
        raise ConfigError(f"--{error.place}", error.problem) from None
    config = replace(config, server=server)
    check_start(config)
    log_to_stderr(config)
    _warn_of_rerankers(config)
    _warn_of_keys(config)
    process.raise_limits()
    listener = process.listen(server.host, server.port, "--port or LANTERN_PORT")
    config = replace(config, server=replace(server, port=listener.getsockname()[1]))  # 0 asks for any
    _refuse_own_address(config, listener.getsockname()[0])
    url = _url(config, listener)
    banner = partial(_banner, config, url, as_json=as_json)
    with process.claimed(config.archive.path, url):
        if server.workers > 1:
            from lantern_proxy.cli import workers as cli_workers

            cli_workers.supervise(config, listener, banner)
        else:
            run(config, listener, banner=banner)


def check_start(config: Config) -> None:
    """ConfigError or KeysError if serving cannot start with these settings on this machine."""
    refuse_open_access(config)
    Keyring(keys_file(config))  # of several workers each would end of it, again and again
    _check_tls(config.server)
    _check_trust(config)
    config.archive.key()
    admin_token(config)
    trace.check(config.trace)


def run(
    config: Config, listener: socket.socket, *, banner: Callable[[], None] | None = None,
    place: "WorkerPlace | None" = None, inner: socket.socket | None = None, link: "Connection | None" = None,
) -> None:  # fmt: skip
    """Serve in this process until a signal. Raises the error that kept the app from starting.

    place, inner: which worker this is, and where it listens for the others

    link:         is notified once it serves, and once it has answered its clients after a stop. Serving ends when the
                  other end sends something, and the process when that is closed
    """
    process.before_imports()

    from lantern_proxy.app import create

    app = create(config, place=place)
    settings = _settings(app, config.server)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal again once it has drained
    if banner is not None:
        banner()
    process.after_imports()
    if place is None:  # one of several opens what its own tenants ask for, not what all could
        opening.open_in_background(app)
    stop = _Stop()
    serving = _server(settings, inner, link, stop)
    process.on_hangup(lambda: serving.handle_exit(signal.SIGTERM, None))
    if link is not None:
        threading.Thread(target=stop.wait_for_parent, args=(link, serving), name="lantern-stop", daemon=True).start()
    try:
        serving.run(sockets=[listener])
    except KeyboardInterrupt:
        sys.exit(0)
    except SystemExit:
        if app.failure is not None:
            raise app.failure from None
        raise


def _settings(app: "App", server: ServerConfig) -> "uvicorn.Config":
    import uvicorn

    from lantern_proxy.app_http1 import ClientConnection

    return uvicorn.Config(
        app,
        http=ClientConnection,
        loop="uvloop" if find_spec("uvloop") else "auto",
        ws="none",  # upgrades reach the app as plain requests, which answers 426
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nothing here asks for the scheme; who calls is told by the connection alone
        server_header=False,  # the upstream's own headers pass; none are added to them
        date_header=False,
        timeout_keep_alive=620,  # longer than clients and load balancers keep theirs, which may ask as we hang up
        timeout_graceful_shutdown=round(server.drain_s),
        ssl_certfile=server.tls_cert or None,
        ssl_keyfile=server.tls_key or None,
    )


class _Stop(Struct, frozen=True):
    """What the parent process has said."""

    begun: threading.Event = field(default_factory=threading.Event)
    """All workers are to finish what their clients wait for."""
    done: threading.Event = field(default_factory=threading.Event)
    """They have, so that none needs another."""

    def wait_for_parent(self, link: "Connection", serving: "uvicorn.Server") -> None:
        for event in (self.begun, self.done):
            with suppress(EOFError, OSError):  # the parent has gone
                link.recv_bytes()
            event.set()
            if event is self.begun:
                serving.handle_exit(signal.SIGTERM, None)


def _server(
    settings: "uvicorn.Config", inner: socket.socket | None, link: "Connection | None", stop: _Stop
) -> "uvicorn.Server":
    """A server that disconnects open pages when it is stopped: their event streams would delay it.

    inner: where other workers connect, without TLS, until all have answered their clients
    """
    import asyncio

    from uvicorn.server import Server as Uvicorn
    from uvicorn.server import ServerState

    class Server(Uvicorn):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if inner is not None:
                protocol: Any = settings.http_protocol_class
                self.of_peers = ServerState()  # uvicorn hangs up on the connections in its own
                self.of_peers.tasks = self.server_state.tasks
                make = partial(protocol, config=settings, server_state=self.of_peers, app_state=self.lifespan.state)
                self.inner = await asyncio.get_running_loop().create_server(make, sock=inner, backlog=settings.backlog)
            if link is not None:
                with suppress(OSError):  # a parent that has gone meanwhile: `wait_for_parent` sees it, and ends this
                    link.send_bytes(b"serving")

        async def _wait_tasks_to_complete(self) -> None:
            await super()._wait_tasks_to_complete()
            if link is None:
                return
            with suppress(OSError):
                link.send_bytes(DRAINED)
            alone_until = time.monotonic() + _ALONE_S
            while not (stop.done.is_set() or self.force_exit):
                if not stop.begun.is_set() and time.monotonic() > alone_until:
                    break
                await asyncio.sleep(_POLL_S)
            self.inner.close()
            for connection in [*self.of_peers.connections]:
                connection.shutdown()
            await super()._wait_tasks_to_complete()  # those of other workers, if the parent has gone

        def handle_exit(self, sig: int, frame: "FrameType | None") -> None:
            live = getattr(getattr(settings.app, "state", None), "events", None)
            if live is not None:
                live.stop()
            super().handle_exit(sig, frame)

    return Server(settings)


def _check_tls(server: ServerConfig) -> None:
    """ConfigError unless certificate and key, if configured, can be used."""
    for name, file in (("server.tls_cert", server.tls_cert), ("server.tls_key", server.tls_key)):
        try:
            if file and Path(file).exists() and not Path(file).is_file():  # a pipe would be waited for
                raise OSError("it is no file")
            Path(file or os.devnull).read_bytes()
        except OSError as error:
            problem = f"is {file}, which cannot be read ({error.strerror or error}); name one that this user may read"
            raise ConfigError(name, problem) from None
    if not server.tls_cert:
        return
    import ssl

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.tls_cert, server.tls_key or None, password=lambda: "")
    except ssl.SSLError as error:
        pair = f"is {server.tls_cert}, which cannot be used with the key in {server.tls_key or 'it'} ({error.strerror})"
        problem = "use PEM files of a certificate and of its own private key, without a passphrase"
        raise ConfigError("server.tls_cert", f"{pair}; {problem}") from None


def _refuse_own_address(config: Config, address: str) -> None:
    """ConfigError if an upstream is this very server: a request would loop until no connection is left.

    address: where it listens, in one family of addresses: on :: not at 127.0.0.1
    """
    from lantern_proxy.upstream.http1 import Origin

    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    ours = {config.server.host.lower(), address, reached}
    if reached == "127.0.0.1":
        ours.add("localhost")
    upstream = config.upstream
    urls = {"upstream.openai": upstream.openai, "upstream.anthropic": upstream.anthropic}
    urls |= {f"upstream.routes[{at}].url": route.url for at, route in enumerate(upstream.routes) if route.url}
    for name, url in urls.items():
        there = Origin.of(url)
        if there.host in ours and there.port == config.server.port:
            raise ConfigError(name, f"is {url}, which is this lantern itself; name the provider's address")


def _warn_of_rerankers(config: Config) -> None:
    """Rerankers are loaded at the first question; warn about a misspelt name now."""
    light, evidence = config.rerank.light, config.rerank.evidence
    message = "rerank.%s is %s, and there is no such %s; questions keep the usual order"
    if light not in ("", "shipped") and not Path(light).expanduser().is_file():
        log.warning(message, "light", light, "file")
    if evidence and not Path(evidence).expanduser().is_dir():  # of a folder, whose weights would be read, it finds one
        from lantern_proxy.rerank.evidence import source_of

        if not source_of(evidence, config.embed.cache_dir):
            log.warning(message, "evidence", evidence, "folder")


def _warn_of_keys(config: Config) -> None:
    """Warn about keys whose requests are refused until what they are mapped to exists. The banner says if none
    works."""
    for problem in missing_upstream_keys(config, ("env", "file")):
        log.warning("%s; until then it lets nobody in", problem)


def _check_trust(config: Config) -> None:
    """ConfigError if an upstream uses TLS and a variable names certificates that do not exist."""
    routes = (route.url for route in config.upstream.routes)
    urls = (config.upstream.openai, config.upstream.anthropic, *routes)
    if not os.environ.keys() & {"SSL_CERT_FILE", "SSL_CERT_DIR"} or not any(u.startswith("https:") for u in urls):
        return
    from lantern_proxy.upstream.dial import tls_context
    from lantern_proxy.upstream.errors import ConnectError

    try:
        tls_context()
    except ConnectError as error:
        variable, problem = str(error).split(" ", 1)
        raise ConfigError(variable, problem) from None


def _url(config: Config, listener: socket.socket) -> str:
    """The URL for clients on this machine."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if config.server.tls_cert else "http"
    return f"{scheme}://{'127.0.0.1' if host in ('0.0.0.0', '::') else shown}:{port}"


def _banner(config: Config, url: str, *, as_json: bool) -> None:
    """Print the address and what to paste. A connection waits in the backlog for the first moment of serving."""
    archive = config.archive.path.absolute()
    if as_json:
        click.echo(json.dumps({"url": url, "archive": str(archive), "embedder": _embedder(config)}))
    else:
        click.echo(
            f"lantern listens on {url}{_open_to(config)}\n"
            f"  archive   {archive}\n"
            f"  upstream  {config.upstream.openai}  {config.upstream.anthropic}\n"
            f"  embedder  {_embedder(config)}\n"
            f"{_keys_warning(config)}"
            f"  page      {url}/lantern/ui\n\n"
            f"  export OPENAI_BASE_URL={url}/v1\n"
            f"  export ANTHROPIC_BASE_URL={url}\n\n"
            f"Paste the line for your client into the shell that starts it. `lantern status` shows what is archived; "
            f"Ctrl-C stops the proxy."
        )
    sys.stdout.flush()


def _open_to(config: Config) -> str:
    host = config.server.host
    return f" (server.host is {host}: other machines reach it, too)" if reachable_from_elsewhere(host) else ""


def _keys_warning(config: Config) -> str:
    """A line for the case that keys are required and nobody has one."""
    line = "  keys      none: every request is refused; `lantern keys add NAME` makes one\n"
    return line if why_closed(config) else ""


def _embedder(config: Config) -> str:
    if config.embed.enabled == "off":
        return "off (embed.enabled)"
    from lantern_proxy.compiled import available

    if not available():
        return 'not installed: pip install "lantern-proxy[dense]" adds the vector signal'
    from lantern_proxy import embed

    settings = config.embed
    compiled = embed.folder_of(settings.model, settings.cache_dir, adapted=settings.adapted).is_dir()
    return f"{settings.model}, " + ("compiled" if compiled else "compiling once in the background")


def log_to_stderr(config: Config) -> None:
    """Log Lantern's messages from the configured level on. Of other packages only warnings: some log what they send."""
    level = config.log.level.upper()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if config.log.json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level="ERROR" if level == "ERROR" else "WARNING", handlers=[handler], force=True)
    for ours in ("lantern", "lantern_proxy"):
        logging.getLogger(ours).setLevel(level)
    logging.getLogger("uvicorn.error").addFilter(_rephrase)


def _rephrase(record: logging.LogRecord) -> bool:
    """Should the record be logged? Not a failed start, since the command ends with its reason."""
    if str(record.msg).startswith("Cancel %s running task"):
        record.msg = "answers that went on for server.drain_s after the stop are cut off, and archived so far: %s"
        return record.args != (0,)
    return "startup failed" not in record.getMessage()


class JsonLines(logging.Formatter):
    """One JSON object per record: time (Unix seconds), level, name, message, and error if there is a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "name": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["error"] = self.formatException(record.exc_info)
        return json.dumps(row)
