"""GET /lantern/api/openapi.json: the OpenAPI document of the admin API, generated from its routes.

New routes are included automatically; list their query parameters in QUERY, their request body in BODY, and their
answer in schemas.ANSWERS.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lantern_proxy import __version__
from lantern_proxy.admin.schemas import ERROR, Schema, schemas
from lantern_proxy.turn import PassageKind

_TENANT = {"name": "tenant", "description": "Only of this tenant; of all by default.", "schema": {"type": "string"}}
_LIMIT = {"name": "limit", "schema": {"type": "integer", "minimum": 1, "maximum": 1_000}}
_Q = {"name": "q", "description": 'Words; "quoted words" are a phrase.', "schema": {"type": "string"}}


def _number(name: str, kind: str = "number", **more: Any) -> dict[str, Any]:
    return {"name": name, "schema": {"type": kind, "minimum": 0, **more}}


def _text(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "schema": {"type": "string"}}


_OFFSET = _number("offset", "integer")
_SINCE = _number("since") | {"description": "Unix seconds."}
_SESSION, _PROJECT = _text("session", "Only of this session."), _text("project", "Only of this project.")

QUERY: dict[str, tuple[dict[str, Any], ...]] = {
    "/api/overview": (_TENANT, _SINCE),
    "/api/sessions": (_TENANT, _LIMIT, _OFFSET, _PROJECT, _text("q", "Found in the title or the id.")),
    "/api/sessions/{session}": (_TENANT, _LIMIT),
    "/api/sessions/{session}/messages": (_TENANT, _LIMIT, _number("from", "integer"), _number("chars", "integer")),
    "/api/search": (
        _Q, _TENANT, _LIMIT, _OFFSET, _SESSION, _PROJECT, _SINCE, _number("until"),
        _text("speaker", "Who said it."),
        {"name": "kind", "schema": {"enum": ["", *get_args(PassageKind)]}},
    ),
    "/api/requests": (_TENANT, _LIMIT, _SESSION),
    "/api/marks": (_TENANT, _LIMIT),
    "/api/tenants": (),
    "/api/events": (),
}  # fmt: skip
"""Path -> query parameters of GET; by default `tenant`."""


def query_of(path: str) -> tuple[dict[str, Any], ...]:
    """The query parameters of GET on a path."""
    return QUERY.get(path, (_TENANT,))


def _object(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """A JSON object without other fields; `tenant` is always allowed."""
    known = {**properties, "tenant": _STRING}
    return {"type": "object", "properties": known, "required": list(required), "additionalProperties": False}


_STRING: dict[str, Any] = {"type": "string"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_NUMBER: dict[str, Any] = {"type": "number", "minimum": 0, "exclusiveMaximum": 1e12}
_ID: dict[str, Any] = {"type": "integer"}
_VERDICT: dict[str, Any] = {"enum": ["useful", "wrong", "outdated", ""]}

BODY: dict[str, dict[str, Any]] = {
    "/api/feedback": _object("passage", "verdict", passage=_ID, verdict=_VERDICT, request=_STRING),
    "/api/pin": _object("passage", "pinned", passage=_ID, pinned=_FLAG),
    "/api/edit": _object("passage", "text", passage=_ID, text=_STRING),
    "/api/prune": _object(older_than_s=_NUMBER, below_confidence=_NUMBER, session=_STRING, dry_run=_FLAG),
    "/api/forget": _object("session", session=_STRING, confirm=_STRING),
    "/api/why": _object(
        "request", request={"type": "object"}, session=_STRING, project=_STRING,
        api={"enum": ["chat", "responses", "messages", ""]},
    ),
}  # fmt: skip
"""Path -> JSON schema of a POST body; any object if not listed."""

_STATUSES = {
    "400": "asked for wrongly", "401": "the admin token is needed",
    "403": "not for this caller", "404": "not there", "415": "send application/json",
    "503": "the archive cannot be used",
}  # fmt: skip


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the routes below /api."""
    answered, named = schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route) and route.path.startswith("/api/"):
            path = re.sub(r":\w+}", "}", route.path)
            for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
                paths.setdefault(f"/lantern{path}", {})[method.lower()] = _operation(path, method, answered)
    about = {"title": "Lantern's admin API", "version": __version__}
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0", "info": about, "paths": paths,
        "components": {"securitySchemes": schemes, "schemas": named},
        "security": [{}, {"token": []}],
    }  # fmt: skip


def _operation(path: str, method: str, answered: Mapping[str, Schema]) -> dict[str, Any]:
    path_parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    query_parameters = [
        {"in": "query", "required": False, **each} for each in (query_of(path) if method == "GET" else ())
    ]
    media = "text/event-stream" if path.endswith("/events") else "application/json"
    answers = {
        code: {"description": text, "content": {"application/json": {"schema": ERROR}}}
        for code, text in _STATUSES.items()
    } | {"200": {"description": "what was asked for", "content": {media: {"schema": answered.get(path, {})}}}}
    operation: dict[str, Any] = {"parameters": [*path_parameters, *query_parameters], "responses": answers}
    if method not in ("GET", "DELETE"):
        schema = BODY.get(path, {"type": "object"})
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def openapi(routes: Sequence[BaseRoute]) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint that serves the OpenAPI document of `routes`."""
    cached_document = cache(partial(document, routes))

    async def endpoint(request: Request) -> Response:
        return JSONResponse(cached_document())

    return endpoint
