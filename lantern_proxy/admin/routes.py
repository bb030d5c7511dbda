"""The routes below /lantern."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router, request_response

from lantern_proxy.admin import metrics
from lantern_proxy.admin.api import api_routes
from lantern_proxy.admin.endpoint import error
from lantern_proxy.admin.events import Events
from lantern_proxy.admin.openapi import openapi
from lantern_proxy.admin.ui import ui_routes


def router() -> Router:
    """All routes but health. They check no credentials: access_admin.AdminAccess does, in front of them."""
    routes = [
        Route("/metrics", metrics.prometheus),
        *api_routes(),
        Route("/api/openapi.json", openapi(api_routes())),
        *ui_routes(),
    ]
    return Router(routes, redirect_slashes=False, default=request_response(not_found))


def attach(state: Any) -> None:
    """Connect the live stream with the proxy. Call it in the event loop, once `state.proxy` exists."""
    state.events = Events()
    state.proxy.listeners.append(state.events.on_request)


async def not_found(request: Request) -> Response:
    if request.scope["path"] in ("/lantern", "/lantern/") and request.method in ("GET", "HEAD"):  # what people type
        return RedirectResponse("/lantern/ui")
    message = (
        f"lantern has nothing at {request.url.path}; see /lantern/ui, /lantern/health, /lantern/metrics and "
        "/lantern/api/openapi.json"
    )
    return error(message, 404)


async def method_not_allowed(request: Request, refused: Exception) -> Response:
    """405 for an existing path that does not support the method."""
    assert isinstance(refused, HTTPException)
    assert refused.headers
    takes = ", ".join(sorted(refused.headers["Allow"].split(", ")))
    answer = error(f"{request.url.path} takes {takes}, not {request.method}; see /lantern/api/openapi.json", 405)
    answer.headers["allow"] = takes
    return answer
