"""The JSON schemas of the admin API's answers, made from the records that it returns."""

from typing import Any

import msgspec
from msgspec import Struct

from lantern_proxy.archive import Edit, Hit, Marked, PruneReport, Receipt, RequestRow, SessionRow, TenantSummary, Why
from lantern_proxy.archive.overview import Counts, Overview, Shown, Timeline
from lantern_proxy.turn import Passage, Preview

Schema = dict[str, Any]
_REF = "#/components/schemas/{name}"
_TEXT: Schema = {"type": "string"}
_TENANT = {"tenant": _TEXT}
_MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "position": {"type": "integer"}, "turn": {"type": "integer"}, "role": _TEXT, "text": _TEXT,
        "at": {"type": "number"},
    },
}  # fmt: skip


def _list_of(kind: type) -> Schema:
    return {"type": "array", "items": {"$ref": _REF.format(name=kind.__name__)}}


class Answer(Struct, frozen=True):
    """An object with the fields of `kinds`, overridden by those of `more`; or a list of them."""

    kinds: tuple[type, ...]
    listed: bool = False
    more: dict[str, Schema] = {}


_PASSAGE = Answer((Passage,))
ANSWERS = {
    "/api/tenants": Answer((TenantSummary,), listed=True),
    "/api/overview": Answer((Overview,), listed=True, more=_TENANT),
    "/api/sessions": Answer((SessionRow, Counts), listed=True, more=_TENANT),
    "/api/sessions/{session}": Answer(
        (SessionRow,),
        more=_TENANT | {"messages": {"type": "array", "items": _MESSAGE}, "requests": _list_of(RequestRow)},
    ),
    "/api/sessions/{session}/timeline": Answer((SessionRow, Counts, Timeline), more=_TENANT),
    "/api/sessions/{session}/messages": Answer((Shown,), listed=True),
    "/api/search": Answer((Hit,), listed=True, more=_TENANT),
    "/api/requests": Answer((RequestRow,), listed=True, more=_TENANT),
    "/api/requests/{request}": Answer((Why,), more=_TENANT),
    "/api/passages/{passage}": Answer((Passage,), more=_TENANT | {"history": _list_of(Edit)}),
    "/api/marks": Answer((Marked,), listed=True, more=_TENANT),
    "/api/feedback": _PASSAGE,
    "/api/pin": _PASSAGE,
    "/api/edit": _PASSAGE,
    "/api/prune": Answer((PruneReport,)),
    "/api/forget": Answer((Receipt,)),
    "/api/why": Answer((Preview,)),
}
"""Path -> its answer with status 200; unlisted paths may answer anything."""
ERROR: Schema = {
    "type": "object", "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message"], "properties": {"message": _TEXT}}},
}  # fmt: skip


def schemas() -> tuple[dict[str, Schema], dict[str, Schema]]:
    """(path -> schema of its answer, name -> schema of the types that those refer to)."""
    kinds = dict.fromkeys([kind for answer in ANSWERS.values() for kind in answer.kinds] + [Edit, RequestRow])
    _, named = msgspec.json.schema_components(kinds, ref_template=_REF)
    return {path: _schema(answer, named) for path, answer in ANSWERS.items()}, named


def _schema(answer: Answer, named: dict[str, Schema]) -> Schema:
    fields: dict[str, Schema] = {}
    for kind in answer.kinds:
        fields |= named[kind.__name__]["properties"]
    fields |= answer.more
    whole: Schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "array", "items": whole} if answer.listed else whole
