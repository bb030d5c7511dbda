"""GET /lantern/ui: the page. Plain files, no build step, no external resources: it works without a network.

Everything that it shows was written by somebody else, so the browser is told to run only the scripts in these files.
"""

import hashlib
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lantern_proxy.admin.endpoint import error

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-cache",
}


def ui_routes() -> list[BaseRoute]:
    return [Route("/ui", page), Route("/ui/", redirect), Route("/ui/{name}", file_of_page)]


async def redirect(request: Request) -> Response:
    return RedirectResponse("../ui", 308)


async def page(request: Request) -> Response:
    return _file("index.html", request)


async def file_of_page(request: Request) -> Response:
    return _file(request.path_params["name"], request)


def _file(name: str, request: Request) -> Response:
    found = _files().get(name)
    if found is None:
        return error(f"the page has no file {name!r}", 404)
    data, tag = found
    headers = HEADERS | {"etag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=_KINDS[name.rpartition(".")[2]])


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """name -> (bytes, etag) of every file of the page."""
    found = {}
    for file in files("lantern_proxy.admin").joinpath("ui").iterdir():
        if file.name.rpartition(".")[2] in _KINDS:
            data = file.read_bytes()
            found[file.name] = data, f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    return found
