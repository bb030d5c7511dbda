"""Connects to a host: tries its addresses in turn, each a quarter of a second after the last (RFC 8305)."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Any, TypeVar

from lantern_proxy.upstream.errors import ConnectError, ConnectTimeout

_AFTER_S = 0.25
_KEEPALIVE = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1), ("TCP_KEEPIDLE", socket.IPPROTO_TCP, 60),
    ("TCP_KEEPALIVE", socket.IPPROTO_TCP, 60), ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 60),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 5),
)  # fmt: skip
"""Socket options, as the providers' SDKs set them: a model may think for minutes before its first word, and routers on
the way drop connections that are silent for so long. TCP_KEEPALIVE is macOS's name for TCP_KEEPIDLE."""

UNKNOWN_AUTHORITY = "its authority may be named by SSL_CERT_FILE, a file of PEM certificates"

P = TypeVar("P", bound=asyncio.Protocol)
Address = tuple[int, int, int, str, Any]
"""As returned by getaddrinfo(): family, type, protocol, canonical name, socket address."""


def tls_context() -> ssl.SSLContext:
    """The TLS context for upstreams. It trusts the certificates of SSL_CERT_FILE or SSL_CERT_DIR, else Mozilla's.

    Raises ConnectError if those cannot be used.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if file:
            return ssl.create_default_context(cafile=file)
        if folder:
            return _context_of_folders(folder)
        import certifi

        return ssl.create_default_context(cafile=certifi.where())
    except OSError as error:  # ssl.SSLError is a subclass
        place = f"SSL_CERT_FILE is {file}" if file else f"SSL_CERT_DIR is {folder}" if folder else "certifi has a list"
        reason = f"{place}, which cannot be used ({error.strerror or error})"
        raise ConnectError(f"{reason}; name PEM certificates that this user may read, or unset the variable") from error


def _context_of_folders(folders: str) -> ssl.SSLContext:
    if not any(map(os.path.isdir, folders.split(os.pathsep))):  # OpenSSL would trust nobody, without an error
        raise NotADirectoryError("no such folder")
    return ssl.create_default_context(capath=folders)


async def connect(make: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None, within_s: float) -> P:
    """A connected protocol, its TLS handshake done. Raises ConnectTimeout or ConnectError."""
    try:
        async with asyncio.timeout(within_s):
            return await _connected(make, host, port, tls)
    except TimeoutError as error:
        raise ConnectTimeout(f"no connection to {host} within {within_s:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise ConnectError(f"{error}; {UNKNOWN_AUTHORITY}") from error
    except (OSError, ssl.SSLError, UnicodeError) as error:
        raise ConnectError(_reason(error)) from error


def _reason(error: Exception) -> str:
    """What was wrong, without the system's error numbers and addresses: the message names the host already."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        return (os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)).lower()
    return str(error) or type(error).__name__


async def _connected(make: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None) -> P:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    sock = await _connect_first([*_alternating(found)])
    try:
        _, protocol = await loop.create_connection(make, sock=sock, ssl=tls, server_hostname=host if tls else None)
    except BaseException:
        sock.close()
        raise
    return protocol


def _alternating(found: Sequence[Address]) -> list[Address]:
    """IPv6 and IPv4 addresses alternately, each in the order of the resolver."""
    first = found[0][0]
    ones, others = [a for a in found if a[0] == first], [a for a in found if a[0] != first]
    return [a for a in chain.from_iterable(zip_longest(ones, others)) if a is not None]


async def _connect_first(addresses: list[Address]) -> socket.socket:
    """The first socket that connects."""
    if len(addresses) == 1:
        return await _open(addresses[0])
    untried, running = [*addresses], set[asyncio.Task[socket.socket]]()
    error: BaseException = OSError("no address")
    try:
        while untried or running:
            if untried:
                running.add(asyncio.create_task(_open(untried.pop(0))))
            patience_s = _AFTER_S if untried else None
            done, running = await asyncio.wait(running, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is None:
                    running |= done - {task}  # two may connect at the same time
                    return task.result()
                error = task.exception() or error
        raise error
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_close_unwanted)


def _close_unwanted(task: "asyncio.Task[socket.socket]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _open(address: Address) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, level, value in _KEEPALIVE:
            with contextlib.suppress(AttributeError, OSError):
                sock.setsockopt(level, getattr(socket, name), value)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock
