"""What several test modules share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """Where the compiled embedding model is kept between runs: compiling it takes half a minute."""
    return Path(os.environ.get("LANTERN_TEST_CACHE") or Path(__file__).parent.parent / ".cache" / "embed")
