"""What would be restored into a request, without sending it: for `lantern why --dry-run` and the page."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lantern_proxy import reinforce
from lantern_proxy.compaction import whole
from lantern_proxy.follow import Compared, compared
from lantern_proxy.history.transcript import with_transcript_as_user_text
from lantern_proxy.proxy.exchange import settled
from lantern_proxy.proxy.restore import room_for
from lantern_proxy.turn import Identity, Preview, Request, Restored
from lantern_proxy.wire import protocol_of

if TYPE_CHECKING:
    from lantern_proxy.proxy import Proxy
    from lantern_proxy.restore.restorer import Restorer

_PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
_PATIENCE_S = 5.0
"""Deadline in seconds: a person waits here, not a client."""


async def preview_of(
    proxy: "Proxy", body: bytes, *, tenant: str, project: str = "", session: str = "", api: str = ""
) -> Preview:
    """What would be restored for `body`, a request as a client would send it.

    session: id of the session whose next request this is; "": it is found as for any request
    api:     chat, responses or messages; "": what the body looks like
    Raises WireError, a ValueError, if `body` is not a request.
    """
    request = _read(body, api)
    identity = Identity(ids=(("x-lantern-session", session),)) if session else Identity()
    index, found = await proxy.tenants.locate((tenant, project), request, identity, time.time())
    mine = index.sessions.get(session) if session else found.session
    making = proxy.writer.opened.restorer.want()
    if mine is None or making is None:
        return Preview(tenant=tenant)
    if not await settled(making, _PATIENCE_S):
        return Preview(tenant=tenant, session=mine.id, notes=("restore:warming",))
    if making.exception() is not None:
        return Preview(tenant=tenant, session=mine.id, notes=("restore:error",))
    beside = compared(index, mine, request, restart=found.restart)
    return await asyncio.to_thread(_choose, proxy, making.result(), request, beside, tenant, project)


def _read(body: bytes, api: str) -> Request:
    looks = "responses" if b'"input"' in body and b'"messages"' not in body else "chat"
    wire = protocol_of(_PATHS.get(api or looks, ""))
    if wire is None:
        raise ValueError(f"api is {api!r}; use chat, responses or messages")
    return with_transcript_as_user_text(wire.read(body))


def _choose(
    proxy: "Proxy", restorer: "Restorer", request: Request, beside: Compared, tenant: str, project: str
) -> Preview:  # fmt: skip
    from lantern_proxy.restore.ask import Ask
    from lantern_proxy.restore.passed_over import Passed
    from lantern_proxy.restore.present import texts_of

    settings, session, verdict = proxy.config.restore, beside.base, beside.verdict
    present, users_text = texts_of(whole(session.head, request))
    ask = Ask(
        tenant=tenant, project=project, session=session.id, abandoned=frozenset(session.abandoned), present=present,
        users_text=users_text, question=verdict.question_in(request), summary=verdict.summary_in(request),
        budget_chars=room_for(request, settings.budget_chars, settings), now=time.time(),
        deadline=time.monotonic() + _PATIENCE_S,
    )  # fmt: skip
    blocks: list[Restored] = []
    if verdict.is_loss and (loss := restorer.at_compaction(ask)) is not None:
        blocks.append(loss)
        ask = ask.with_blocks([loss])
    passed = ask.passed.told
    if ask.question and (verdict.is_loss or session.lost):
        room = room_for(request, settings.question_chars, settings)
        ask = replace(ask, budget_chars=room, summary="", passed=Passed())
        evidence = restorer.for_question(ask)
        blocks += [evidence] if evidence is not None else []
        passed += ask.passed.told
    return Preview(
        tenant=tenant, session=session.id, event=beside.event, gone=len(verdict.gone), blocks=tuple(blocks),
        refused=tuple(_refused(proxy, tenant, session.id)), passed=passed, notes=tuple(dict.fromkeys(ask.degraded)),
    )  # fmt: skip


def _refused(proxy: "Proxy", tenant: str, session: str) -> list[dict[str, Any]]:
    archive = proxy.writer.opened.archive
    marked = archive.of(tenant).marked(limit=200) if archive is not None else []
    return [
        {"passage": m.passage.id, "why": f"marked {m.passage.verdict}", "text": m.passage.text[:400]}
        for m in marked
        if m.passage.session == session and m.passage.verdict in reinforce.REFUSED
    ]
