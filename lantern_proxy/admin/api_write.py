"""POST /lantern/api/...: verdicts, pins, corrections, pruning, and a trial restore.

Each takes and returns JSON. Access (same origin, application/json, this machine or the admin token) was checked by
access_admin.py. Unknown ids are answered with 400 and what to do.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import to_builtins
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from lantern_proxy import chunk, reinforce
from lantern_proxy.admin.endpoint import Endpoint, of_archive
from lantern_proxy.admin.openapi import BODY
from lantern_proxy.archive import Archive, PruneReport, PruneRule, TenantArchive
from lantern_proxy.archive.forget import ForgetRule
from lantern_proxy.config import Config

Body = dict[str, Any]
Change = Callable[[Config, Archive, Body], Any]
_MAX_BODY_BYTES = 32 << 20
_TYPE_NAMES = {int: "a whole number", bool: "true or false", str: "a text", dict: "an object"}


class _BadRequest(ValueError):
    """A request body with wrong or missing fields."""


def write_routes() -> list[BaseRoute]:
    changes: dict[str, Change] = {
        "/api/feedback": _feedback,
        "/api/pin": _pin,
        "/api/edit": _edit,
        "/api/prune": _prune,
        "/api/forget": _forget,
    }
    return [
        *(Route(path, _endpoint(change), methods=["POST"]) for path, change in changes.items()),
        Route("/api/why", preview, methods=["POST"]),
    ]


def _endpoint(change: Change) -> Endpoint:
    async def find(request: Request, archive: Archive) -> Any:
        body = await _body(request)
        found = await run_in_threadpool(change, request.app.state.proxy.config, archive, body)
        if not body.get("dry_run", False) and body.get("confirm", True):
            request.app.state.events.send("change", {"what": _verb(request)})
        return found

    return of_archive(find)


def _verb(request: Request) -> str:
    return request.url.path.rsplit("/", 1)[-1]


async def _body(request: Request) -> Body:
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise _BadRequest("send application/json")
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > _MAX_BODY_BYTES:
            raise _BadRequest(f"the body is longer than {_MAX_BODY_BYTES >> 20} MB")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise _BadRequest("the body is not JSON") from None
    if not isinstance(body, dict):
        raise _BadRequest("the body is not a JSON object")
    known = BODY[f"/api/{_verb(request)}"]["properties"]
    if unknown := [name for name in body if name not in known]:
        raise _BadRequest(f"{json.dumps(unknown[0])[:80]} is not known here; use {', '.join(known)}")
    return body


def _get(body: Body, name: str, kind: type, default: Any = ...) -> Any:
    value = body.get(name, default)
    if value is ...:
        raise _BadRequest(f"{name} is missing")
    if value is not default and (not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))):
        raise _BadRequest(f"{name} is {json.dumps(value)[:80]}; use {_TYPE_NAMES[kind]}")
    return value


def _tenants(archive: Archive, body: Body) -> list[str]:
    """The tenant that the body names, else all."""
    named = _get(body, "tenant", str, "")
    return [named] if named else [tenant.id for tenant in archive.tenants()]


def _owner(archive: Archive, body: Body) -> tuple[TenantArchive, int]:
    """The archive of the tenant that has `passage`: ids are unique in an archive."""
    id_ = _get(body, "passage", int)
    for tenant in _tenants(archive, body):
        if archive.of(tenant).passages_by_id([id_]):
            return archive.of(tenant), id_
    raise _BadRequest(f"there is no passage {id_}; /lantern/api/search gives numbers")


def _feedback(config: Config, archive: Archive, body: Body) -> Any:
    """{"passage": 7, "verdict": "useful" | "wrong" | "outdated" | "", "request": "req_..."}: "" takes it back."""
    owner, id_ = _owner(archive, body)
    request, verdict = _get(body, "request", str, ""), _get(body, "verdict", str)
    settle = partial(reinforce.settle, rates=reinforce.Rates.of(config.reinforce))
    return to_builtins(owner.feedback(request, id_, verdict, now=time.time(), settle=settle))


def _pin(config: Config, archive: Archive, body: Body) -> Any:
    """{"passage": 7, "pinned": true}"""
    owner, id_ = _owner(archive, body)
    change = owner.pin if _get(body, "pinned", bool) else owner.unpin
    return to_builtins(change(id_, now=time.time()))


def _edit(config: Config, archive: Archive, body: Body) -> Any:
    """{"passage": 7, "text": "..."}: the text to be found and restored from now on."""
    owner, id_ = _owner(archive, body)
    text = _get(body, "text", str)
    passage = owner.passages_by_id([id_])[id_]
    return to_builtins(owner.edit(chunk.reword(passage, text), now=time.time()))


def _prune(config: Config, archive: Archive, body: Body) -> Any:
    """{"older_than_s": 1e7} or {"below_confidence": 0.15} or {"session": "ses_..."}, "tenant", "dry_run".

    A dry run unless "dry_run" is false, so that a mere query removes nothing.
    """
    rule = PruneRule(
        older_than_s=_number(body, "older_than_s"),
        below_confidence=_number(body, "below_confidence"),
        session=_get(body, "session", str, None),
    )
    tenants = _tenants(archive, body) if rule.session is None else [_tenant_of_session(archive, body, rule.session)]
    dry_run, now = _get(body, "dry_run", bool, True), time.time()
    total = sum((archive.of(t).prune(rule, now=now, dry_run=dry_run, wiped=False) for t in tenants), PruneReport())
    archive.wipe()
    return to_builtins(total)


def _forget(config: Config, archive: Archive, body: Body) -> Any:
    """{"session": "ses_...", "confirm": "ses_..."}: without the id as confirmation only a dry run."""
    session, confirm = _get(body, "session", str), _get(body, "confirm", str, "")
    if confirm and confirm != session:
        raise _BadRequest("confirm is not the session's id; nothing was removed")
    rule, tenant = ForgetRule(session=session), _tenant_of_session(archive, body, session)
    return to_builtins(archive.forget(tenant, rule, now=time.time(), dry_run=not confirm)) | {"marks": []}


def _tenant_of_session(archive: Archive, body: Body, session: str) -> str:
    """The tenant that has the session; a client's own name for a session may occur in several."""
    owners = [tenant for tenant in _tenants(archive, body) if archive.of(tenant).session(session) is not None]
    if not owners:
        raise _BadRequest(f"there is no session {session}; /lantern/api/sessions lists them")
    if len(owners) > 1:
        raise _BadRequest(f"{len(owners)} tenants have a session {session}; name one as tenant: {', '.join(owners)}")
    return owners[0]


def _number(body: Body, name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise _BadRequest(f"{name} is {json.dumps(value)[:80]}; use a number from 0 on")
    return float(value)


@of_archive
async def preview(request: Request, archive: Archive) -> Any:
    """{"request": {...}, "session", "tenant", "project", "api"}: what would be restored for this request body.

    Nothing is sent or archived. `tenant` may be left out when there is only one.
    """
    body = await _body(request)
    tenants = await run_in_threadpool(archive.tenants)
    tenant = _get(body, "tenant", str, "") or (tenants[0].id if len(tenants) == 1 else "")
    if not tenant:
        raise _BadRequest(f"there are {len(tenants)} tenants; name one as `tenant`")
    found = await request.app.state.proxy.preview(
        json.dumps(_get(body, "request", dict)).encode(), tenant=tenant, project=_get(body, "project", str, ""),
        session=_get(body, "session", str, ""), api=_get(body, "api", str, ""),
    )  # fmt: skip
    return to_builtins(found)
