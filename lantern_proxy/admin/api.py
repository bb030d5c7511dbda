"""GET /lantern/api/...: what is archived, as JSON. Read-only; every answer belongs to one tenant, or lists them."""

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lantern_proxy.archive import Archive, ArchiveError, TenantArchive
from lantern_proxy.config import Config

Endpoint = Callable[[Request], Awaitable[Response]]
Query = Callable[[Archive, Request], Any]


def api_routes(config: Config) -> list[BaseRoute]:
    """The routes, each open to this machine only."""
    queries: dict[str, Query] = {
        "/api/tenants": _tenants,
        "/api/sessions": _sessions,
        "/api/sessions/{session}": _session,
        "/api/search": _search,
        "/api/requests/{request}": _why,
    }
    return [Route(path, only_this_machine(config, _endpoint(query))) for path, query in queries.items()]


def only_this_machine(config: Config, endpoint: Endpoint) -> Endpoint:
    """`endpoint` for callers on this machine, who name it by an address, by localhost or by the configured host.

    Rebinding needs a name: a page at evil.example whose name now means 127.0.0.1 still sends `Host: evil.example`.
    """
    allowed = {"localhost", config.server.host}

    async def guarded(request: Request) -> Response:
        caller = request.client.host if request.client else ""
        if not is_loopback(caller):
            return _refused(f"{caller} may not ask; conversations are shown on this machine only")
        host = request.url.hostname or ""
        if host not in allowed and not _is_address(host):
            way_out = f"http://127.0.0.1:{config.server.port}{request.url.path}"
            return _refused(f"host {host!r} may not ask; use {way_out}")
        return await endpoint(request)

    return guarded


def _refused(message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, 403)


def is_loopback(host: str) -> bool:
    """Is this address one of this machine's own? An IPv4 address within IPv6 counts as itself."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _endpoint(query: Query) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        archive = request.app.state.proxy.writer.archive
        if archive is None:
            return JSONResponse({"error": {"message": request.app.state.proxy.writer.problem}}, 503)
        try:
            found = await run_in_threadpool(query, archive, request)
        except (ArchiveError, ValueError) as error:
            return JSONResponse({"error": {"message": str(error)}}, 400)
        return JSONResponse(found) if found is not None else JSONResponse({"error": {"message": "not found"}}, 404)

    return endpoint


def _mine(archive: Archive, request: Request) -> list[TenantArchive]:
    named = request.query_params.get("tenant")
    return [archive.of(named)] if named else [archive.of(tenant.id) for tenant in archive.tenants()]


def _limit(request: Request) -> int:
    return max(1, min(1_000, int(request.query_params.get("limit", "50"))))


def _tenants(archive: Archive, request: Request) -> Any:
    return [asdict(tenant) for tenant in archive.tenants()]


def _sessions(archive: Archive, request: Request) -> Any:
    return [
        asdict(row) | {"tenant": mine.tenant}
        for mine in _mine(archive, request)
        for row in mine.sessions(_limit(request))
    ]


def _session(archive: Archive, request: Request) -> Any:
    for mine in _mine(archive, request):
        row = mine.session(request.path_params["session"])
        if row is not None:
            messages = [
                {
                    "position": f.position,
                    "turn": f.turn,
                    "role": f.message.role,
                    "text": f.message.text,
                    "at": f.created_at,
                }
                for f in mine.messages(row.id)
            ]
            requests = [asdict(r) for r in mine.requests(session=row.id, limit=_limit(request))]
            return asdict(row) | {"tenant": mine.tenant, "messages": messages, "requests": requests}
    return None


def _search(archive: Archive, request: Request) -> Any:
    query, limit = request.query_params.get("q", ""), _limit(request)
    hits = [(hit, mine.tenant) for mine in _mine(archive, request) for hit in mine.search(query, limit)]
    hits.sort(key=lambda pair: -pair[0].score)
    return [asdict(hit) | {"tenant": tenant} for hit, tenant in hits[:limit]]


def _why(archive: Archive, request: Request) -> Any:
    for mine in _mine(archive, request):
        why = mine.why(request.path_params["request"])
        if why is not None:
            return asdict(why) | {"tenant": mine.tenant}
    return None
