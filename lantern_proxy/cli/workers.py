"""`lantern serve --workers 4`: a parent process that starts workers, restarts those that die, and stops them.

All workers accept on one listener. Each has another one on loopback, where the others forward what belongs to it
(app_workers.py). The parent holds all of them open and accepts nothing: connections to a restarting worker wait there.
"""

import contextlib
import logging
import multiprocessing
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import click
from msgspec import Struct

from lantern_proxy.app_place import DRAINED, WorkerPlace
from lantern_proxy.cli import process as cli_process
from lantern_proxy.config import Config
from lantern_proxy.config.check import ConfigError

log = logging.getLogger("lantern.serve")

_MOST_FAILURES = 5
"""How often in a row a worker may end before it serves, until the parent gives up."""
_MOST_DELAY_S = 5.0
"""Longest delay in seconds before a worker is restarted."""
_WRITE_S = 15.0
"""Seconds after server.drain_s in which a worker writes what is pending; then it is killed."""


class _Worker(Struct):
    number: int
    inner: socket.socket
    process: SpawnProcess
    link: Connection
    """The worker writes here once it serves. It answers its clients when it is sent something, writes DRAINED, and ends
    when this end is closed."""
    failures: int
    """How often in a row it ended before it served."""


def supervise(config: Config, listener: socket.socket, banner: Callable[[], None]) -> None:
    """Serve with `server.workers` processes until SIGINT or SIGTERM."""
    inner = [socket.create_server(("127.0.0.1", 0), backlog=2048) for _ in range(config.server.workers)]
    ports, secret = tuple(each.getsockname()[1] for each in inner), secrets.token_hex(16)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts with `&`
    cli_process.on_hangup(lambda: sys.exit(0))

    def start(number: int, failures: int = 0) -> _Worker:
        context = multiprocessing.get_context("spawn")
        theirs, ours = context.Pipe()
        place = WorkerPlace(number, ports, secret)
        arguments = (config, listener, inner[number], place, theirs)
        process = context.Process(target=_run_worker, args=arguments, name=f"lantern-worker-{number}")
        process.start()
        theirs.close()
        return _Worker(number, inner[number], process, ours, failures)

    workers: list[_Worker] = []
    try:
        workers += map(start, range(config.server.workers))
        banner()
        _watch(workers, start)
    except KeyboardInterrupt:
        sys.exit(0)
    finally:
        listener.close()  # further clients are refused: nobody would accept them
        _stop_all(workers, config.server.drain_s)


def _run_worker(
    config: Config, listener: socket.socket, inner: socket.socket, place: WorkerPlace, link: Connection
) -> None:
    """A worker's whole life."""
    from lantern_proxy.cli import serve

    serve.log_to_stderr(config)
    try:
        serve.run(config, listener, place=place, inner=inner, link=link)
    except Exception as error:  # the parent starts it again, and gives up in the end
        is_known = isinstance(error, (ConfigError, OSError))
        log.error("worker %d cannot serve: %s", place.number, error, exc_info=not is_known)
        sys.exit(1)


def _watch(workers: list[_Worker], start: Callable[[int, int], _Worker]) -> None:
    """Restart every worker that ends. ClickException if one keeps failing."""
    while True:
        wait([worker.process.sentinel for worker in workers])
        for at, worker in enumerate(workers):
            if worker.process.is_alive():
                continue
            worker.process.join()
            failures = 0 if worker.link.poll() and _has_served(worker.link) else worker.failures + 1
            worker.link.close()
            how = _describe_exit(worker.process.exitcode or 0)
            if failures >= _MOST_FAILURES:
                raise click.ClickException(
                    f"worker {worker.number} {how} whenever it is started; see its message above"
                )
            log.warning("worker %d (process %d) %s; it is started again", worker.number, worker.process.pid, how)
            time.sleep(min(_MOST_DELAY_S, 0.1 * (2**failures - 1)))
            workers[at] = start(worker.number, failures)


def _has_served(link: Connection) -> bool:
    """Did a worker that has ended report that it served?"""
    try:
        return bool(link.recv_bytes())
    except EOFError:
        return False


def _await_drained(links: set[Connection], until: float) -> None:
    while links and (left_s := until - time.monotonic()) > 0:
        for link in wait(list(links), left_s):
            assert isinstance(link, Connection)
            try:
                is_drained = link.recv_bytes() == DRAINED
            except (EOFError, OSError):  # it has ended
                is_drained = True
            if is_drained:
                links.discard(link)


def _describe_exit(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _stop_all(workers: list[_Worker], drain_s: float) -> None:
    """Let all workers answer their clients, and end once all have: any may need another for that. They end, too, if the
    parent dies, since that closes its end of each pipe."""
    until = time.monotonic() + drain_s
    with contextlib.suppress(KeyboardInterrupt, SystemExit):  # a second one: enough waited
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.link.send_bytes(b"stop")
        _await_drained({worker.link for worker in workers}, until)
        for worker in workers:
            worker.link.close()
        for worker in workers:
            worker.process.join(max(0.0, until + _WRITE_S - time.monotonic()))
    for worker in workers:
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
