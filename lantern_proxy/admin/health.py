"""/lantern/health: what works and what does not. Does not need starlette: it is requested before anything else."""

import json
import time
from collections import Counter
from typing import Any

from starlette.types import Receive, Scope, Send

from lantern_proxy import __version__
from lantern_proxy.access import FROM_WORKER
from lantern_proxy.access_admin import STRANGER
from lantern_proxy.wire.http import answer_json


async def health(scope: Scope, receive: Receive, send: Send) -> None:
    """Is it serving, and what does not work? Always 200: a proxy without its archive still serves.

    A caller without access to the archive, such as a load balancer, only gets the status.
    """
    if scope["method"] not in ("GET", "HEAD"):
        message = f"/lantern/health takes GET, HEAD, not {scope['method']}"
        await answer_json(send, 405, {"error": {"message": message}}, [(b"allow", b"GET, HEAD")])
        return
    report = await status_of(scope)
    shown = {"status": report["status"]} if scope.get(STRANGER) else report
    await answer_json(send, 200, shown, bodiless=scope["method"] == "HEAD")


async def status_of(scope: Scope) -> dict[str, Any]:
    """Serving state as shown by `lantern doctor` and the pages; for several workers the totals, and each one's own
    under `workers`."""
    own, peers = snapshot(scope["app"].state), scope["app"].state.peers
    if peers is None or scope.get(FROM_WORKER):
        return own
    found = {n: json.loads(body) for n, body in (await peers.answers(scope)).items()} | {peers.number: own}
    each = [found.get(number, {"status": "down"}) for number in peers.numbers]
    sums = {
        name: dict(sum((Counter(one.get(name, {})) for one in each), Counter()))
        for name in ("events", "degraded", "faults")
    }
    status = "ok" if all(one["status"] == "ok" for one in each) else "degraded"
    return own | sums | {"status": status, "workers": each}


def snapshot(state: Any) -> dict[str, Any]:
    """The state of this process, as JSON values. state: the state of the app"""
    proxy = state.proxy
    writer, embedder = proxy.writer, proxy.embedder
    problem = writer.opened.problem
    return {
        "status": "degraded" if problem else "ok",
        "uptime_s": round(time.time() - state.started_at, 1),
        "archive": {
            "path": str(proxy.config.archive.path.absolute()),
            "ok": not problem, "problem": problem, "waiting": writer.depth,
        },
        "embedder": {
            "state": embedder.state if embedder else "off",
            "detail": embedder.detail if embedder else "not installed or turned off",
        },
        "bm25": {"kernel": proxy.kernel},
        "events": dict(proxy.tallies.events),
        "degraded": dict(proxy.tallies.degraded),
        "faults": dict(writer.opened.faults),
        "version": __version__,
    }  # fmt: skip
