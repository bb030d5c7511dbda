"""What Lantern tells of itself, under /lantern: health, metrics, and a read-only JSON API over the archive.

Anybody who reaches the port could ask, so a request must name this machine in its Host header: a web page that
rebinds a name of its own to 127.0.0.1 does not.
"""

from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lantern_proxy.admin import metrics
from lantern_proxy.admin.api import api_routes, only_this_machine
from lantern_proxy.config import Config


def routes(config: Config) -> list[BaseRoute]:
    """Routes below /lantern."""
    return [
        Route("/health", only_this_machine(config, health)),
        Route("/metrics", only_this_machine(config, metrics.prometheus)),
        *api_routes(config),
        Route("/{path:path}", nothing_here, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]),
    ]


async def health(request: Request) -> Response:
    """Is it serving, and what does not work? Always 200: a proxy without its archive still serves."""
    return JSONResponse(status_of(request))


def status_of(request: Request) -> dict[str, Any]:
    """Serving state as `lantern doctor` and the pages show it."""
    return metrics.snapshot(request.app.state) | {"version": version("lantern-proxy")}


async def nothing_here(request: Request) -> Response:
    message = (
        f"lantern has nothing at {request.url.path}; see /lantern/health, /lantern/metrics and /lantern/api/sessions"
    )
    return JSONResponse({"error": {"message": message}}, 404)


__all__ = ["nothing_here", "routes"]
