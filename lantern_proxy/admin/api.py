"""/lantern/api/...: the archive as JSON. GET reads, POST changes (see api_write.py).

Every answer belongs to one tenant, or lists tenants: `tenant=` names one, otherwise all are searched, since whoever has
access here may see all of them. Errors are {"error": {"message": ...}} with 400, 404, or 503 while there is no archive.
"""

import time
from collections.abc import Callable
from typing import Any

from msgspec import to_builtins
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from lantern_proxy.admin.api_write import write_routes
from lantern_proxy.admin.endpoint import Endpoint, limit_of, number_of, of_archive
from lantern_proxy.admin.events import events
from lantern_proxy.admin.openapi import query_of
from lantern_proxy.archive import Archive, SessionRow, TenantArchive

Query = Callable[[Archive, Request], Any]


def api_routes() -> list[BaseRoute]:
    queries: dict[str, Query] = {
        "/api/tenants": _tenants,
        "/api/overview": _overview,
        "/api/sessions": _sessions,
        "/api/sessions/{session}": _of_session(_session),
        "/api/sessions/{session}/timeline": _of_session(_timeline),
        "/api/sessions/{session}/messages": _of_session(_messages),
        "/api/search": _search,
        "/api/requests": _requests,
        "/api/requests/{request}": _why,
        "/api/passages/{passage}": _passage,
        "/api/marks": _marks,
    }
    return [
        *(Route(path, _endpoint(path, query)) for path, query in queries.items()),
        Route("/api/events", events),
        *write_routes(),
    ]


def _endpoint(path: str, query: Query) -> Endpoint:
    known = {each["name"]: each["schema"].get("enum") for each in query_of(path)}

    async def find(request: Request, archive: Archive) -> Any:
        for name, value in request.query_params.items():
            if name not in known:  # a mistyped `tenant` would answer with what all have
                raise ValueError(f"{name[:80]} is not known here; use {', '.join(known) or 'none'}")
            if known[name] and value not in known[name]:
                raise ValueError(f"{name} is {value[:80]}; use {', '.join(filter(None, known[name]))}")
        return await run_in_threadpool(query, archive, request)

    return of_archive(find)


def _owners(archive: Archive, request: Request) -> list[TenantArchive]:
    named = request.query_params.get("tenant")
    return [archive.of(named)] if named else [archive.of(tenant.id) for tenant in archive.tenants()]


def _tenants(archive: Archive, request: Request) -> Any:
    return [to_builtins(tenant) for tenant in archive.tenants()]


def _overview(archive: Archive, request: Request) -> Any:
    """since: Unix seconds, by default a day ago; 0: everything."""
    now = time.time()
    since = number_of(request, "since", now - 86_400)
    return [to_builtins(owner.overview(since, now)) | {"tenant": owner.tenant} for owner in _owners(archive, request)]


def _sessions(archive: Archive, request: Request) -> Any:
    """Last seen first, with what happened in each. q: in the title or the id"""
    limit, offset = limit_of(request), int(number_of(request, "offset", 0))
    titled, project = request.query_params.get("q", ""), request.query_params.get("project")
    rows = [
        (row, owner)
        for owner in _owners(archive, request)
        for row in owner.sessions(limit + offset, project, titled=titled)
    ]
    rows.sort(key=lambda pair: -pair[0].last_seen_at)
    page = rows[offset : offset + limit]
    by_tenant = {owner.tenant: owner for _, owner in page}
    counts = {
        name: owner.counts([row.id for row, row_owner in page if row_owner is owner])
        for name, owner in by_tenant.items()
    }
    return [
        to_builtins(row) | {"tenant": owner.tenant} | to_builtins(counts[owner.tenant][row.id]) for row, owner in page
    ]


def _of_session(find: Callable[[TenantArchive, SessionRow, Request], Any]) -> Query:
    """The result of `find` for the session named in the path; None if no tenant has it."""

    def query(archive: Archive, request: Request) -> Any:
        for owner in _owners(archive, request):
            row = owner.session(request.path_params["session"])
            if row is not None:
                return find(owner, row, request)
        return None

    return query


def _session(owner: TenantArchive, row: SessionRow, request: Request) -> Any:
    messages = [
        {"position": f.position, "turn": f.turn, "role": f.message.role, "text": f.message.text, "at": f.created_at}
        for f in owner.messages(row.id)
    ]
    requests = [to_builtins(r) for r in owner.requests(session=row.id, limit=limit_of(request))]
    return to_builtins(row) | {"tenant": owner.tenant, "messages": messages, "requests": requests}


def _timeline(owner: TenantArchive, row: SessionRow, request: Request) -> Any:
    """The session without its text: each request's size, and the passages that came back."""
    counts = to_builtins(owner.counts([row.id])[row.id])
    return to_builtins(row) | counts | {"tenant": owner.tenant} | to_builtins(owner.timeline(row.id))


def _messages(owner: TenantArchive, row: SessionRow, request: Request) -> Any:
    """from: a position; chars: how much of each, 2,000 by default."""
    first, chars = int(number_of(request, "from", 0)), int(number_of(request, "chars", 2_000))
    return [to_builtins(shown) for shown in owner.shown(row.id, first, limit_of(request), chars)]


def _search(archive: Archive, request: Request) -> Any:
    """q, and what narrows it: session, speaker, kind, project, since, until (Unix seconds); limit, offset."""
    asked = request.query_params
    query, limit, offset = asked.get("q", ""), limit_of(request), int(number_of(request, "offset", 0))
    since, until = number_of(request, "since", None), number_of(request, "until", None)
    hits = [
        (hit, owner.tenant)
        for owner in _owners(archive, request)
        for hit in owner.search(
            query, limit + offset, asked.get("session") or None, speaker=asked.get("speaker") or None,
            kind=asked.get("kind") or None, project=asked.get("project") or None,
            since=since, until=until,
        )
    ]  # fmt: skip
    hits.sort(key=lambda pair: -pair[0].score)
    return [to_builtins(hit) | {"tenant": tenant} for hit, tenant in hits[offset : offset + limit]]


def _requests(archive: Archive, request: Request) -> Any:
    """The latest, newest first."""
    limit, session = limit_of(request), request.query_params.get("session") or None
    rows = [
        to_builtins(row) | {"tenant": owner.tenant}
        for owner in _owners(archive, request)
        for row in owner.requests(session=session, limit=limit)
    ]
    return sorted(rows, key=lambda row: -row["at"])[:limit]


def _why(archive: Archive, request: Request) -> Any:
    for owner in _owners(archive, request):
        why = owner.why(request.path_params["request"])
        if why is not None:
            return to_builtins(why) | {"tenant": owner.tenant}
    return None


def _passage(archive: Archive, request: Request) -> Any:
    named = request.path_params["passage"]
    if not named.isascii() or not named.isdigit():
        raise ValueError(f"passage is {named}; use its number, which /lantern/api/search gives")
    id_ = int(named)
    for owner in _owners(archive, request):
        passage = owner.passages_by_id([id_]).get(id_)
        if passage is not None:
            history = [to_builtins(edit) for edit in owner.history(id_)]
            return to_builtins(passage) | {"tenant": owner.tenant, "history": history}
    return None


def _marks(archive: Archive, request: Request) -> Any:
    """Passages that somebody judged, pinned or corrected, most recently changed first."""
    limit = limit_of(request)
    rows = [
        to_builtins(marked) | {"tenant": owner.tenant}
        for owner in _owners(archive, request)
        for marked in owner.marked(limit)
    ]
    return sorted(rows, key=lambda row: -row["changed_at"])[:limit]
