"""The routes below /lantern."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lantern_proxy.admin import metrics
from lantern_proxy.admin.api import api_routes
from lantern_proxy.admin.events import Events
from lantern_proxy.admin.openapi import openapi
from lantern_proxy.admin.shape import any_path
from lantern_proxy.admin.ui import ui_routes


def routes() -> list[BaseRoute]:
    """All of them but health. They ask nobody who they are: doors.AdminDoor does, in front of them."""
    return [
        Route("/metrics", metrics.prometheus),
        *api_routes(),
        Route("/api/openapi.json", openapi(api_routes())),
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
