"""/lantern/metrics: the proxy's own counters; none are kept here.

Any of several workers answers for all: samples have the label `worker`, and Prometheus sums them.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from lantern_proxy.access import FROM_WORKER


async def prometheus(request: Request) -> Response:
    """GET /lantern/metrics."""
    from lantern_proxy.admin import metrics_text  # imports prometheus_client, only needed for a scrape

    restorer, peers = request.app.state.proxy.writer.opened.restorer.ready, request.app.state.peers
    index_bytes = await asyncio.to_thread(lambda: restorer.index_bytes) if restorer else 0
    text = metrics_text.text(request.app.state, index_bytes)
    if peers is not None and not request.scope.get(FROM_WORKER):
        found = {n: body.decode() for n, body in (await peers.answers(request.scope)).items()} | {peers.number: text}
        text = merged(found, peers.numbers)
    return Response(text, media_type=metrics_text.CONTENT_TYPE)


_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")


def merged(texts: Mapping[int, str], workers: Sequence[int]) -> str:
    """The metrics of several workers as one text, each sample labelled with its worker.

    For `workers` that did not answer lantern_worker_up is 0.
    """
    families: dict[str, list[str]] = {}
    for number, text in sorted(texts.items()):
        family: list[str] = []
        for line in text.splitlines():
            if line.startswith("# HELP "):
                family = families.setdefault(line.split()[2], [line])
            elif line.startswith("#"):
                family += [line] if line not in family else []
            elif sample := _SAMPLE.match(line):
                labels = f'worker="{number}"' + (f",{sample['labels']}" if sample["labels"] else "")
                family.append(f"{sample['name']}{{{labels}}} {sample['value']}")
    families["lantern_worker_up"] += [f'lantern_worker_up{{worker="{n}"}} 0.0' for n in workers if n not in texts]
    return "\n".join([*(line for lines in families.values() for line in lines), ""])
