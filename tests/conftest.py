"""What several test modules share."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from scripted import echo

from lantern_proxy.archive import Archive

# A busy machine is no fault of the code, and the same code is tested alike each time. HYPOTHESIS_PROFILE=explore looks
# for more: run it again and again.
settings.register_profile("lantern", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "lantern"))

# A shell lets what it starts in the background ignore Ctrl-C, and every process that a test starts would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """Where the compiled embedding model is kept between runs: compiling it takes half a minute."""
    return Path(os.environ.get("LANTERN_TEST_CACHE") or Path(__file__).parent.parent / ".cache" / "embed")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    """An empty one, without vectors; modules that need another have a fixture of their own."""
    with Archive(tmp_path / "a.db", synchronous="normal", vectors=False) as archive:
        yield archive


@pytest.fixture
def upstream(running):
    """The scripted upstream of a module's `running` (upstream, URL), as if nothing had been asked of it yet."""
    running[0].answer = echo
    running[0].got.clear()
    return running[0]


@pytest.fixture
def url(running, upstream):
    """Where a module's `running` app serves."""
    return running[1]
