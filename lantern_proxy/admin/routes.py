"""The routes below /lantern.

Anybody who reaches the port could ask, so a request must name this machine in its Host header: a web page that
rebinds a name of its own to 127.0.0.1 does not.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lantern_proxy.admin import metrics
from lantern_proxy.admin.api import api_routes, only_this_machine
from lantern_proxy.admin.events import Events
from lantern_proxy.admin.health import health
from lantern_proxy.admin.openapi import openapi
from lantern_proxy.admin.shape import any_path
from lantern_proxy.admin.ui import ui_routes
from lantern_proxy.config import Config
from lantern_proxy.doors import AdminDoor


def routes(config: Config) -> list[BaseRoute]:
    """All of them, health included, to be mounted anywhere behind a door."""
    return [
        Route("/health", AdminDoor(config, health), methods=["GET"]),
        Route("/metrics", only_this_machine(config, metrics.prometheus)),
        *api_routes(config),
        Route("/api/openapi.json", only_this_machine(config, openapi(api_routes(config)))),
        *ui_routes(),
        any_path(Route("/{path:path}", nothing_here, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])),
    ]


def attach(state: Any) -> None:
    """Let the live stream hear what the proxy does. Call it in the event loop, once `state.proxy` is there."""
    state.events = Events()
    state.proxy.listeners.append(state.events.heard)


async def nothing_here(request: Request) -> Response:
    if request.scope["path"] in ("/lantern", "/lantern/") and request.method in ("GET", "HEAD"):  # what people type
        return RedirectResponse("/lantern/ui")
    message = (
        f"lantern has nothing at {request.url.path}; see /lantern/ui, /lantern/health, /lantern/metrics and "
        "/lantern/api/openapi.json"
    )
    return JSONResponse({"error": {"message": message}}, 404)
