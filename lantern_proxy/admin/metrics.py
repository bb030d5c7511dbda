"""/lantern/metrics and the snapshot behind /lantern/health. Reads the proxy's own tallies; keeps none.

Of several workers any answers for all: samples have the label `worker`, and Prometheus sums them.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response


def snapshot(state: State) -> dict[str, Any]:
    """What serves and what does not; JSON-able."""
    proxy = state.proxy
    writer, embedder = proxy.writer, proxy.embedder
    problem = writer.problem
    return {
        "status": "degraded" if problem else "ok",
        "uptime_s": round(time.time() - state.started_at, 1),
        "archive": {
            "path": str(proxy.config.archive.path), "ok": not problem, "problem": problem, "waiting": writer.depth,
        },
        "embedder": {
            "state": embedder.state if embedder else "off",
            "detail": embedder.detail if embedder else "not installed or turned off",
        },
        "bm25": {"kernel": proxy.kernel},
        "events": dict(proxy.tallies.events),
        "degraded": dict(proxy.tallies.degraded),
        "faults": dict(writer.faults),
    }  # fmt: skip


async def snapshots(request: Request) -> dict[str, Any]:
    """The snapshot; of several workers what they sum up to, and each one's own under `workers`."""
    own, others = snapshot(request.app.state), request.app.state.others
    if others is None or request.scope.get("lantern.passed"):
        return own
    found = {n: json.loads(body) for n, body in (await others.told(request.scope)).items()} | {others.number: own}
    each = [found.get(number, {"status": "down"}) for number in others.numbers]
    sums = {
        name: dict(sum((Counter(one.get(name, {})) for one in each), Counter()))
        for name in ("events", "degraded", "faults")
    }
    status = "ok" if all(one["status"] == "ok" for one in each) else "degraded"
    return own | sums | {"status": status, "workers": each}


async def prometheus(request: Request) -> Response:
    """GET /lantern/metrics."""
    from lantern_proxy.admin import metrics_text  # prometheus_client: a server that nobody scrapes does without

    text, others = metrics_text.text(request.app.state), request.app.state.others
    if others is not None and not request.scope.get("lantern.passed"):
        found = {n: body.decode() for n, body in (await others.told(request.scope)).items()} | {others.number: text}
        text = merged(found, others.numbers)
    return Response(text, media_type=metrics_text.CONTENT_TYPE)


_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")


def merged(texts: Mapping[int, str], workers: Sequence[int]) -> str:
    """One text of several workers', each sample with its worker; and which of `workers` do not answer."""
    families: dict[str, list[str]] = {}
    for number, text in sorted(texts.items()):
        family: list[str] = []
        for line in text.splitlines():
            if line.startswith("# HELP "):
                family = families.setdefault(line.split()[2], [line])
            elif line.startswith("#"):
                family += [line] if line not in family else []
            elif sample := _SAMPLE.match(line):
                labels = ",".join([f'worker="{number}"', *filter(None, [sample["labels"]])])
                family.append(f"{sample['name']}{{{labels}}} {sample['value']}")
    families["lantern_worker_up"] += [f'lantern_worker_up{{worker="{n}"}} 0.0' for n in workers if n not in texts]
    return "\n".join([*(line for lines in families.values() for line in lines), ""])
