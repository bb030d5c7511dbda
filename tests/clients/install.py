"""Each client in a folder of its own below the cache: a venv for PyPI's, an npm prefix for npm's. Made once."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from clients.client import Client

INSTALL_S = 900
"""Most seconds one client may take to install."""
_QUIET_NPM = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


class InstallError(RuntimeError):
    """A client could not be installed; the message holds what the package manager said last."""


class NoPython(Exception):
    """No Python that the client's packages ask for was found; the message says which one is missing."""


def ensure(client: Client, cache: Path) -> Path:
    """The folder that holds `client`, installed when it is not there yet in the pinned versions."""
    folder = folder_of(client, cache)
    stamp = folder / ".installed"
    python, version = python_of(client) if client.pip else ("", "")
    wanted = "\n".join([*client.pip, *client.npm, version])
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if client.pip:
        _run([python, "-m", "venv", "--without-pip", str(folder)], client)
        own = ["--python", str(folder / "bin/python")]
        _run([sys.executable, "-m", "pip", *own, "install", "--quiet", *client.pip], client)
    own_node = [each for each in client.npm if each.startswith("node@")]  # first: what needs it is installed by it
    for packages in filter(None, (own_node, [each for each in client.npm if each not in own_node])):
        _run(["npm", "install", "--prefix", str(folder), *_QUIET_NPM, *packages], client, f"{folder}/node_modules/.bin")
    stamp.write_text(wanted)
    return folder


def python_of(client: Client) -> tuple[str, str]:
    """(a Python that the client's packages take, its version): this one, else the first that is found by its name."""
    least = client.python
    if sys.version_info[:2] >= least:
        return sys.executable, sys.version.split()[0]
    for minor in range(least[1], least[1] + 4):
        name = f"python{least[0]}.{minor}"
        asked = [name, "-c", "import sys; print(sys.version.split()[0])"]
        with suppress(OSError):
            done = subprocess.run(asked, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode == 0:  # what is on the PATH may be a shim that only knows the name
                return name, done.stdout.strip()
    wanted = ".".join(map(str, least))
    raise NoPython(f"{client.name} needs Python {wanted} or newer, and no python{wanted} runs here")


def folder_of(client: Client, cache: Path) -> Path:
    return cache / (client.shares or client.name)


def installed(client: Client, cache: Path) -> bool:
    return (folder_of(client, cache) / ".installed").is_file()


def _run(command: Sequence[str], client: Client, programs: str = "") -> None:
    path = ":".join(filter(None, (programs, os.environ["PATH"])))
    env = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PATH": path}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{client.name}: {command[0]} took more than {INSTALL_S} s; try again") from None
    except FileNotFoundError:
        raise InstallError(f"{client.name}: {command[0]} is not on the PATH; install it") from None
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise InstallError(f"{client.name} cannot be installed; is its package registry reachable?\n{said}")
