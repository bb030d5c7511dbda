"""How the admin API parses its parameters and serialises its answers."""

import contextlib
import math
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from lantern_proxy.archive import Archive, ArchiveError
from lantern_proxy.archive.rows import dumps

Endpoint = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


def any_path(route: Mount) -> Mount:
    """The mount, with a `path` of any characters: Starlette's ends at a line break, which a URL may contain as %0A."""
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


def of_archive(find: Callable[[Request, Archive], Awaitable[Any]]) -> Endpoint:
    """An endpoint that returns the result of `find`: 404 for None, 400 for its errors, 503 while there is no archive.

    find: raises ValueError, or an archive error, for a bad request
    """

    async def endpoint(request: Request) -> Response:
        opened = request.app.state.proxy.writer.opened
        if opened.archive is None:
            return error(opened.problem, 503)
        try:
            found = await find(request, opened.archive)
        except (ArchiveError, ValueError, OverflowError) as problem:
            return error(str(problem), 400)
        return answer(found) if found is not None else error(_absent(request), 404)

    return endpoint


def _absent(request: Request) -> str:
    """The message for a path whose target is not in the archive."""
    named = ", ".join(f"{name} {value}" for name, value in request.path_params.items())
    return f"{named or 'what was asked for'} is not in the archive"


def answer(found: Any, status: int = 200) -> Response:
    """JSON in ASCII: archived text may contain half a surrogate pair, which UTF-8 cannot encode."""
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return Response(dumps(found), status, headers, media_type="application/json")


def error(message: str, status: int) -> Response:
    return answer({"error": {"message": message}}, status)


def limit_of(request: Request) -> int:
    """How many rows at most: 50 unless the request says otherwise, never more than 1,000."""
    return int(min(1_000, number_of(request, "limit", 50, least=1)))


def number_of(request: Request, name: str, default: T, *, least: int = 0) -> float | T:
    text = request.query_params.get(name, "")
    if not text:
        return default
    with contextlib.suppress(ValueError):
        number = float(text)
        if math.isfinite(number) and number >= least:
            return number
    raise ValueError(f"{name} is {text}; use a number from {least} on")
