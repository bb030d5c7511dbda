"""What Lantern tells of itself, under /lantern: health, metrics, a JSON API over the archive, and a page to look at it.

Anybody who reaches the port could ask, so a request must name this machine in its Host header: a web page that
rebinds a name of its own to 127.0.0.1 does not.
"""

from importlib.metadata import version
from typing import Any

from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lantern_proxy.admin import metrics
from lantern_proxy.admin.api import api_routes, only_this_machine
from lantern_proxy.admin.events import Events
from lantern_proxy.admin.openapi import openapi
from lantern_proxy.admin.shape import any_path
from lantern_proxy.admin.ui import ui_routes
from lantern_proxy.config import Config
from lantern_proxy.doors import STRANGER


def routes(config: Config) -> list[BaseRoute]:
    """Routes below /lantern."""
    return [
        Route("/health", only_this_machine(config, health)),
        Route("/metrics", only_this_machine(config, metrics.prometheus)),
        *api_routes(config),
        Route("/api/openapi.json", only_this_machine(config, openapi(api_routes(config)))),
        *ui_routes(),
        any_path(Route("/{path:path}", nothing_here, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])),
    ]


def attach(state: State) -> None:
    """Let the live stream hear what the proxy does. Call it in the event loop, once `state.proxy` is there."""
    state.events = Events()
    state.proxy.listeners.append(state.events.heard)


async def health(request: Request) -> Response:
    """Is it serving, and what does not work? Always 200: a proxy without its archive still serves.

    Who may not look into the archive, such as a load balancer, learns the status alone.
    """
    told = await status_of(request)
    return JSONResponse({"status": told["status"]} if request.scope.get(STRANGER) else told)


async def status_of(request: Request) -> dict[str, Any]:
    """Serving state as `lantern doctor` and the pages show it."""
    return await metrics.snapshots(request) | {"version": version("lantern-proxy")}


async def nothing_here(request: Request) -> Response:
    message = (
        f"lantern has nothing at {request.url.path}; see /lantern/ui, /lantern/health, /lantern/metrics and "
        "/lantern/api/sessions"
    )
    return JSONResponse({"error": {"message": message}}, 404)


__all__ = ["any_path", "attach", "nothing_here", "routes"]
