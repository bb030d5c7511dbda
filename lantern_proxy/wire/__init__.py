"""Protocols: bytes <-> record. Each module reads one protocol into `turn.Request` and `turn.Answer` and writes blocks back.

chat, responses, messages   read(body), read_answer(body, ...), inject(body, inserts), settle_place(request, at, place)
http                        what a request is before it is read: path, headers, encodings
headers                     what headers say of the session
sse, json                   events of a stream; the parts of a JSON body, with the place where each stands
"""

from types import ModuleType

from lantern_proxy.wire import chat

_MEMORY: dict[str, ModuleType] = {"/chat/completions": chat}
"""How a path of a memory endpoint ends, under whatever prefix -> its protocol."""


def protocol_of(path: str) -> ModuleType | None:
    """The module that reads requests for `path`; None when it only passes through."""
    return next((wire for ending, wire in _MEMORY.items() if path.endswith(ending)), None)
