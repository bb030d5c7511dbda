"""The processes of `lantern bench proxy`: the scripted model, Lantern and the other gateways."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_PIPE = subprocess.PIPE
START_S = 90.0
"""Most seconds until a gateway listens; LiteLLM needs many."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway. headers: required with every request, in addition to the usual ones"""

    name: str
    url: str
    pid: int = 0
    headers: tuple[str, ...] = ()
    prefix: str = ""
    """Required in front of a model's name."""
    archive: Path | None = None
    """Lantern's own archive."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time and memory of a process. NaN if the system does not report it."""

    cpu_s: float
    rss_mb: float


def usage(pid: int) -> Usage:
    """Of a process and its children (Linux)."""
    try:
        fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in (pid, *_children(pid))]
    except (OSError, ValueError):
        return Usage(float("nan"), float("nan"))
    ticks = sum(int(each[11]) + int(each[12]) for each in fields)
    pages = sum(int(each[21]) for each in fields)
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


def _children(pid: int) -> list[int]:
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [grandchild for child in found for grandchild in _children(child)]


@contextmanager
def started(
    command: Sequence[str], environ: dict[str, str] | None = None, *, log: Path | None = None, read_stdout: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block. Its stdin stays open; its stdout can be read, or all output goes to `log`
    (read_stdout: only errors do)."""
    with ExitStack() as stack:
        output = stack.enter_context(log.open("w")) if log else None
        has_pipes = read_stdout or output is None
        process = subprocess.Popen(
            command, text=True, env={**os.environ, **(environ or {})}, stdin=_PIPE if has_pipes else subprocess.DEVNULL,
            stdout=_PIPE if has_pipes else output, stderr=output,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
            for end in (process.stdin, process.stdout):
                if end is not None:
                    end.close()


@contextmanager
def upstream(port: int = 0) -> Iterator[str]:
    """The scripted model: its URL."""
    command = [sys.executable, "-m", "lantern_proxy.bench.proxy_upstream", str(port)]
    with started(command) as process:
        assert process.stdout is not None
        banner = process.stdout.readline()
        if not banner:
            raise RuntimeError(f"the scripted model did not start on port {port}; is that taken?")
        yield f"http://127.0.0.1:{int(banner)}"


@contextmanager
def lantern(upstream_url: str, folder: Path, settings: str = "", *arguments: str) -> Iterator[Gateway]:
    """`lantern serve` with a new archive in `folder`. settings: more YAML. RuntimeError with its last output if it does
    not start."""
    config = folder / "lantern.yaml"
    config.write_text(settings or "{}\n", encoding="utf-8")
    environ = {
        "LANTERN_ARCHIVE": str(folder / "lantern.db"), "LANTERN_OPENAI_UPSTREAM": f"{upstream_url}/v1",
        "LANTERN_ANTHROPIC_UPSTREAM": upstream_url,
    }  # fmt: skip
    command = [sys.executable, "-m", "lantern_proxy", "serve", "--port", "0", "--json", "--config", str(config)]
    log = folder / "lantern.log"
    with started([*command, *arguments], environ, log=log, read_stdout=True) as process:
        assert process.stdout is not None
        banner = process.stdout.readline()
        if not banner:
            raise RuntimeError(f"lantern did not start; it said last: {_log_tail(log)}")
        yield Gateway("lantern", json.loads(banner)["url"], process.pid, archive=folder / "lantern.db")


def litellm(upstream_url: str, folder: Path) -> AbstractContextManager[Gateway]:
    """LiteLLM's proxy, as documented, with one wildcard model, no logging, and no key check."""
    command, port = _program("litellm", "litellm", how="pip install 'litellm[proxy]', or name it"), free_port()
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: '*'\n    litellm_params:\n"
        f"      {{model: 'openai/*', api_base: '{upstream_url}/v1', api_key: sk-bench}}\n"
        "litellm_settings: {telemetry: false, num_retries: 0, request_timeout: 600}\n",
        encoding="utf-8",
    )
    environ = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_DOCS": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # without a key it would not start
    }  # fmt: skip
    arguments = [command, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    return _listening("litellm", arguments, port, folder, environ)


def portkey(upstream_url: str, folder: Path) -> AbstractContextManager[Gateway]:
    """Portkey's gateway (npm: @portkey-ai/gateway)."""
    command = _program("portkey", "portkey-gateway", "gateway", how="name its start-server.js")
    start, port = ["node", command] if command.endswith(".js") else [command], free_port()
    headers = ("x-portkey-provider: openai", f"x-portkey-custom-host: {upstream_url}/v1")
    environ = {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"}
    return _listening("portkey", [*start, "--headless", f"--port={port}"], port, folder, environ, headers)


_NGINX = """worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;
events {{ worker_connections 2048; }}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 16m; keepalive_requests 1000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder};
  scgi_temp_path {folder};
  upstream model {{ server {model}; keepalive 512; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


def nginx(upstream_url: str, folder: Path) -> AbstractContextManager[Gateway]:
    """nginx with one worker, which forwards everything: the least that a proxy can add."""
    command, port, config = _program("nginx", "nginx"), free_port(), folder / "nginx.conf"
    model = upstream_url.removeprefix("http://")
    config.write_text(_NGINX.format(folder=folder, model=model, port=port), encoding="utf-8")
    arguments = [command, "-p", str(folder), "-c", str(config), "-e", str(folder / "nginx.log")]
    return _listening("nginx", arguments, port, folder)


def headroom(upstream_url: str, folder: Path) -> AbstractContextManager[Gateway]:
    """Headroom's proxy (PyPI: headroom-ai[proxy]) with its defaults."""
    command, port = _program("headroom", "headroom"), free_port()
    environ = {"OPENAI_TARGET_API_URL": upstream_url, "HEADROOM_TELEMETRY": "off", "HOME": str(folder)}
    arguments = [command, "proxy", "--host", "127.0.0.1", "--port", str(port), "--no-telemetry", "--no-rate-limit"]
    return _listening("headroom", arguments, port, folder, environ)


@contextmanager
def running(url: str) -> Iterator[Gateway]:
    """A gateway that somebody has started in front of the scripted model's port (--upstream-port). RuntimeError if it
    is no URL, or nothing answers."""
    if not url.startswith(("http://", "https://")):
        raise RuntimeError(f"--peer {url} is not known; use one that `--help` names, or http://host:port")
    try:
        there = urlsplit(url)
        port = there.port or (443 if there.scheme == "https" else 80)
        socket.create_connection((there.hostname or "", port), timeout=5).close()
    except (ValueError, OSError) as error:  # ValueError: a port that is no number
        raise RuntimeError(f"--peer {url} cannot be reached ({error}); start it first") from None
    yield Gateway(url, url.rstrip("/"))


def wait_for_embedder(gateway: Gateway) -> None:
    """Wait until Lantern's embedder is ready or has failed."""
    import httpx

    for _ in range(600):
        health = httpx.get(f"{gateway.url}/lantern/health", timeout=10).json()
        if health.get("embedder", {}).get("state") != "warming":
            return
        time.sleep(0.5)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _program(peer: str, *usual: str, how: str = "name it") -> str:
    """The command of a peer: the program in LANTERN_BENCH_<PEER>, else one of its `usual` names. RuntimeError."""
    variable = f"LANTERN_BENCH_{peer.upper()}"
    found = os.environ.get(variable) or next(filter(None, map(shutil.which, usual)), None)
    if not found:
        raise RuntimeError(f"{peer} is not installed; {how} in {variable}")
    return found


@contextmanager
def _listening(
    name: str, command: Sequence[str], port: int, folder: Path, environ: dict[str, str] | None = None,
    headers: tuple[str, ...] = (),
) -> Iterator[Gateway]:  # fmt: skip
    """A peer that `command` starts on `port`. RuntimeError with its last output if it does not start."""
    log = folder / f"{name}.log"
    with started(command, environ, log=log) as process:
        _wait(port, process, log)
        yield Gateway(name, f"http://127.0.0.1:{port}", process.pid, headers)


def _wait(port: int, process: "subprocess.Popen[str]", log: Path) -> None:
    """Wait until it listens. RuntimeError with its last output if it does not."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            time.sleep(1.0)
            return
        time.sleep(0.2)
    raise RuntimeError(f"{process.args!r} does not listen on port {port}; it said last: {_log_tail(log)}")


def _log_tail(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return " / ".join(lines[-4:])
