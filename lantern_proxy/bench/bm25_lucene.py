"""Lucene as a peer: a JVM of its own, connected by a pipe, timed inside once it is warm."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from weakref import finalize

import numpy as np
import numpy.typing as npt

from lantern_proxy.bench.bm25_records import K1, B, Records

SOURCE = Path(__file__).with_name("LuceneSearch.java")
JARS = Path("/usr/share/java")
"""Where Debian's liblucene8-java installs them. LANTERN_LUCENE names another folder of jars."""
WARM_QUESTIONS, WARM_S, WARM_K = 500, 10.0, 100


@cache
def jars() -> tuple[Path, ...]:
    """Lucene's core and its separate analyzers; empty if one of them, or java, is missing."""
    folder = Path(os.environ.get("LANTERN_LUCENE") or JARS)
    names = ("lucene-core", "lucene-analyzers-common")
    newest = [max(folder.glob(f"{name}-[0-9]*.jar"), default=None) for name in names]
    found = tuple(jar for jar in newest if jar is not None)
    return found if len(found) == 2 and shutil.which("java") else ()


def release() -> str | None:
    """The version of the core, such as "8.7.0"; None if Lucene cannot run here."""
    found = jars()
    return found[0].stem.removeprefix("lucene-core-") if found else None


class Lucene:
    """A search over records. Its process ends with the object."""

    def __init__(self, records: Records, warm_s: float = WARM_S) -> None:
        """RuntimeError when the JVM does not start."""
        folder = tempfile.mkdtemp(prefix="lantern-lucene-")
        path = os.pathsep.join(map(str, jars()))
        flags = ["-XX:+UseSerialGC", "-Xms1g", "-Xmx4g"]
        self._process = subprocess.Popen(
            [shutil.which("java") or "java", *flags, "-cp", path, str(SOURCE), folder, str(K1), str(B)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip
        finalize(self, _stop, self._process, folder)
        self._fill(records, warm_s)

    def __call__(self, terms: Sequence[str], k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Indices of records and scores, best first."""
        _, ids, scores = self._ask(terms, k)
        return ids, scores

    def timed_us(self, terms: Sequence[str], k: int) -> float:
        """Microseconds of one search by the JVM's own clock, from building the query to reading the hits."""
        return self._ask(terms, k)[0]

    def _fill(self, records: Records, warm_s: float) -> None:
        assert self._process.stdin is not None
        draw = np.random.default_rng(2)
        try:
            for i in range(len(records)):
                self._process.stdin.write(f"add {' '.join(records.terms(i))}\n")
            for _ in range(WARM_QUESTIONS if warm_s else 0):
                places = draw.integers(0, len(records.tokens), 9)
                words = " ".join(records.words[t] for t in records.tokens[places].tolist())
                self._process.stdin.write(f"warm {WARM_K} {words}\n")
            self._process.stdin.write(f"ready {warm_s}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words are read below
        self._read()

    def _ask(self, terms: Sequence[str], k: int) -> tuple[float, npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"ask {k} {' '.join(terms)}\n")
        self._process.stdin.flush()
        took, *hits = self._read().split()
        pairs = [hit.split(":") for hit in hits]
        ids = np.array([int(place) for place, _ in pairs], np.int64)
        return int(took) / 1e3, ids, np.array([float(score) for _, score in pairs], np.float32)

    def _read(self) -> str:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            errors = self._process.stderr.read().strip().splitlines()
            raise RuntimeError(f"lucene: {errors[0] if errors else 'the JVM ended'}; leave lucene out of --engines")
        return line


def _stop(process: "subprocess.Popen[str]", folder: str) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    shutil.rmtree(folder, ignore_errors=True)
