"""Configures the process of `lantern serve` for low latency and little memory."""

import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

log = logging.getLogger("lantern.serve")

_FILES, _FEW_FILES = 65_536, 1_024
"""How many open files and connections a server requests, where each stream needs two, and below how many it warns."""
_SWITCH_S = 0.0005
"""Longest wait of a stream for a thread that cuts passages; Python's default is ten times as much."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""As in malloc.h of glibc."""


def before_imports() -> None:
    """Prepare for many imports: no garbage collection, and no modules that serving does not need. Call it first."""
    gc.disable()  # until all is imported: nothing of it is garbage
    sys.setswitchinterval(_SWITCH_S)
    with (
        _blocked_imports("numpy", "pandas"),
        contextlib.suppress(ImportError),
    ):  # imported for values that are none of ours
        import_module("sqlite_utils.db")
        import_module("sqlite_vec")
    _stub_module("uvicorn.main", "Server", "main", "run")  # its terminal brings supervisors and multiprocessing
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # httpx's terminal brings rich and pygments
    _set_malloc()


def after_imports() -> None:
    """Enable garbage collection again, except for the objects that exist now: hardly any of them is garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def raise_limits() -> None:
    """Raise the limit of open connections to what this user may have; the default is meant for a terminal. POSIX
    only."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        for wanted in (most, 10_240):  # the most that macOS gives, whatever it says
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most), hard))
                break
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        log.warning("only %d files may be open (ulimit -n): beyond %d streams connections are refused", soft, soft // 2)


def listen(host: str, port: int, port_option: str) -> socket.socket:
    """A listening socket, inherited by child processes; a one-line error if the address is not available.

    port: 0 lets the system choose one; port_option: the option that the error suggests
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # the address follows, which is told here
        ours = error.errno in (errno.EADDRINUSE, errno.EACCES)  # else this machine has no such address
        remedy = f"another with {port_option}" if ours else "an address of this machine with --host"
        raise click.ClickException(f"cannot listen on {host} port {port} ({reason.lower()}); choose {remedy}") from None
    listener.set_inheritable(True)
    return listener


def on_hangup(stop: Callable[[], object]) -> None:
    """Call `stop` when the terminal is closed (SIGHUP), unless the signal is ignored, as under nohup."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_DFL:
        signal.signal(hangup, lambda *_: stop())


@contextlib.contextmanager
def claimed(archive: Path, url: str) -> Iterator[None]:
    """Warn if another server uses this archive, too, and let later ones know of this one. POSIX only.

    url: where this server can be reached, for `served_at`

    Each server knows its own requests at once, but of another's only what it read before (proxy/tenants.py): a loss
    whose history went to the other would not be detected. Continuing is right all the same: most clients stay with one
    of them.
    """
    place = _claim_file(archive)
    try:
        import fcntl

        file = os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    except (ImportError, OSError):  # the folder may not be written: the archive says so itself
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            log.warning(
                "another lantern (process %s) serves %s, too: a conversation that reaches both is not understood; use "
                "one of them (`lantern serve --workers N` is several processes), or another --archive",
                file.readline().strip() or "unknown", archive,
            )  # fmt: skip
            yield
            return
        file.truncate()
        file.write(f"{os.getpid()}\n{url}\n")
        file.flush()
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


def served_at(archive: Path) -> str:
    """The URL that the server of this archive announced, "" if there is none. A killed server leaves it behind."""
    try:
        _, url, *_ = _claim_file(archive).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return ""
    return url


def _claim_file(archive: Path) -> Path:
    return Path(f"{archive}-serve")


@contextlib.contextmanager
def _blocked_imports(*packages: str) -> Iterator[None]:
    """Make imports of these modules fail; later ones work again."""
    hidden = [package for package in packages if package not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


def _stub_module(module: str, *names: str) -> None:
    """Replace one of a package's own modules by an empty one."""
    package = module.partition(".")[0]
    if package not in sys.modules:
        stub = sys.modules.setdefault(module, ModuleType(module))
        for name in names:
            setattr(stub, name, None)


def _set_malloc() -> None:
    """Allocate bodies of a megabyte on the heap: mapping and unmapping each costs more than reading it. glibc only."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 16 << 20)
        mallopt(_M_TRIM_THRESHOLD, 32 << 20)
        mallopt(_M_ARENA_MAX, 2)
