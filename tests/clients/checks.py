"""What must hold after a client has been played straight and through Lantern."""

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import zstandard

from clients.client import Client
from clients.play import Played
from clients.talk import DETAILS, FILES, numbered, turns
from clients.tap import Call
from clients.upstream import Received

LOSSES = frozenset({"compacted", "window", "cleared"})
MEMORY_PATHS = re.compile(r"/(chat/completions|responses|responses/compact|messages)$")
_MINTED = re.compile(r'"id": ?"((?:msg|fc)_\w+)"')
_REFERENCE = re.compile(r'"type": ?"item_reference", ?"id": ?"(\w+)"')
_CONTINUES = re.compile(r'"previous_message_id": ?"(\w+)"')
_BLOCK = re.compile(r"\n*<restored_context\b.*?</restored_context>\n*", re.S)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request through Lantern: what the client sent and got, what reached the upstream."""

    number: int
    call: Call
    sent: str
    """The client's body as text."""
    held: str
    """The same with the answers that it names by their ids alone, and with what the server holds of it."""
    received: Received
    reached: str
    """All that the upstream got, with what it holds of the conversation itself."""
    event: str
    session: str


@dataclass(slots=True)
class Verdict:
    """What was found of one client. Passed when `problems` is empty."""

    requests: int = 0
    losses: list[str] = field(default_factory=list)
    """Events of the losses that Lantern told, in order."""
    lost: int = 0
    """Details that requests lacked, summed over requests."""
    restored: int = 0
    """Of those, how many reached the upstream."""
    sessions: int = 0
    problems: list[str] = field(default_factory=list)
    skipped: str = ""
    """Why the client was not driven at all."""


def judge(client: Client, straight: Played, through: Played) -> Verdict:
    verdict = Verdict()
    exchanges = list(_exchanges(through, verdict))
    verdict.requests = len(exchanges)
    _same_answers(straight, through, verdict)
    for exchange in exchanges:
        verdict.problems += _fidelity(exchange)
    tools = _main_tools(exchanges)
    _sides(exchanges, tools, verdict)
    main = [e for e in exchanges if _is_main(e, tools) and e.call.status == 200]
    _memory(client, main, [e for e in exchanges if e.received.kind == "summary"], verdict)
    _cache(main, verdict)
    _archive(main, through, verdict)
    return verdict


def _exchanges(played: Played, verdict: Verdict) -> Iterator[Exchange]:
    minted: dict[str, str] = {}
    stored: dict[str, str] = {}
    got: dict[str, str] = {}
    for call in played.calls:
        if call.method != "POST" or not MEMORY_PATHS.search(call.path):
            continue
        received, headers = played.received.get(call.number), call.headers
        if received is None:
            verdict.problems.append(
                f"request {call.number}: {call.path} never reached the upstream, status {call.status}"
            )
            continue
        sent = decoded(call.body, call.asked.get("content-encoding", "")).decode()
        minted |= {item: received.answer.decode() for item in _MINTED.findall(received.answer.decode())}
        event, session = headers.get("x-lantern-event", "-"), headers.get("x-lantern-session", "-")
        before = [stored.get(answer, "") for answer in _CONTINUES.findall(sent)]
        held = "\n".join([*before, sent, *(minted.get(item, "") for item in _REFERENCE.findall(sent))])
        reached = "\n".join([*(got.get(answer, "") for answer in _CONTINUES.findall(sent)), received.body.decode()])
        for answer in _MINTED.findall(received.answer.decode()):
            stored[answer], got[answer] = f"{held}\n{received.answer.decode()}", reached
        yield Exchange(int(call.number), call, sent, held, received, reached, event, session)


def decoded(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return body


def _same_answers(straight: Played, through: Played, verdict: Verdict) -> None:
    if straight.answers != through.answers:
        pairs = zip(straight.answers, through.answers, strict=False)
        first = next(
            (f"{a[:120]!r} straight, {b[:120]!r} through" for a, b in pairs if a != b), "another number of answers"
        )
        verdict.problems.append(f"the client told its user something else: {first}")
    if not any(through.answers):
        verdict.problems.append("the client told its user nothing")


def _fidelity(exchange: Exchange) -> Iterator[str]:
    """The request but for a block, and the answer byte for byte."""
    name, received = f"request {exchange.number}", exchange.received
    if exchange.call.ended and bytes(exchange.call.answer) != received.answer:
        yield f"{name}: the client got {len(exchange.call.answer)} bytes, the upstream sent {len(received.answer)}"
    if exchange.event == "-":
        yield f"{name}: its answer has no x-lantern-event"
    came = received.body.decode()
    if came == exchange.sent:
        return
    if "<restored_context" not in came or without_block(json.loads(came)) != without_block(json.loads(exchange.sent)):
        yield f"{name}: the upstream got another request than the client sent"
    if exchange.event == "side" or received.kind == "summary":
        yield f"{name}: a side call was added to"


def without_block(data: Any) -> Any:
    """`data` without restored blocks, and without the parts and messages that held nothing else."""
    if isinstance(data, str):
        return _BLOCK.sub("", data).strip("\n")
    if isinstance(data, list):
        return [each for each in map(without_block, data) if not _is_empty(each)]
    return {key: without_block(value) for key, value in data.items()} if isinstance(data, dict) else data


def _is_empty(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    return part.get("text") == "" or (part.get("role") == "user" and part.get("content") in ("", []))


def _offered(exchange: Exchange) -> frozenset[str]:
    parsed = exchange.received.parsed
    return frozenset(parsed.tools) if parsed else frozenset()


def _main_tools(exchanges: Sequence[Exchange]) -> frozenset[str]:
    """The tools of the conversation: those that most of its turns offer. A sub-agent offers others."""
    offers = [_offered(e) for e in exchanges if e.received.kind == "main"]
    return max(set(offers), key=offers.count, default=frozenset())


def _is_main(exchange: Exchange, tools: frozenset[str]) -> bool:
    """Part of the conversation: a turn, or what the client says of its own accord with the conversation's tools.

    A client may leave tools out where the model shall only speak of a result.
    """
    kind, offered = exchange.received.kind, _offered(exchange)
    return (kind == "main" and offered <= tools) or (kind == "other" and offered == tools != frozenset())


def _sides(exchanges: Sequence[Exchange], tools: frozenset[str], verdict: Verdict) -> None:
    for e in exchanges:
        if _is_main(e, tools) and e.event in ("side", "passthrough"):
            verdict.problems.append(f"request {e.number} belongs to the conversation and was taken for {e.event}")
        if not _is_main(e, tools) and e.event != "side":
            verdict.problems.append(
                f"request {e.number} ({e.received.kind}) is a side call and was taken for {e.event}"
            )


def _memory(client: Client, main: Sequence[Exchange], summaries: Sequence[Exchange], verdict: Verdict) -> None:
    """Every loss is told, none is invented, and what a request lacks has reached the upstream.

    summaries: calls for one, which may show what a tool gave before the conversation does
    """
    units = [*DETAILS, *(text for turn in turns(tools=client.tools) for text in (turn.said, turn.answer))]
    units += [numbered(n) for n in range(1, len(main))]
    given = [detail for detail in DETAILS if detail in "".join(FILES.values())]
    held: set[str] = set()
    before: set[str] = set()
    for e in main:
        present = {unit for unit in units if unit in e.held}
        held |= {d for s in summaries if s.number < e.number for d in given if d in s.held}
        gone, newly = held - present, before - present
        if e.event in LOSSES:
            verdict.losses.append(e.event)
        if newly and e.event not in LOSSES:
            verdict.problems.append(f"request {e.number} lost {sorted(newly)[:3]} and was taken for {e.event}")
        if not newly and e.event in LOSSES:
            verdict.problems.append(f"request {e.number} lost nothing and was taken for {e.event}")
        _restored(e, [detail for detail in DETAILS if detail in gone], verdict)
        before = present | {unit for unit in units if unit in e.received.answer.decode()}
        held |= before
    if len(verdict.losses) < client.compactions or not set(verdict.losses) <= client.losses:
        wanted = f"{client.compactions} or more of {', '.join(sorted(client.losses))}"
        verdict.problems.append(f"losses told: {', '.join(verdict.losses) or 'none'}; expected {wanted}")


def _restored(exchange: Exchange, lost: Sequence[str], verdict: Verdict) -> None:
    came = exchange.reached
    missing = [detail for detail in lost if detail not in came]
    verdict.lost += len(lost)
    verdict.restored += len(lost) - len(missing)
    if missing:
        verdict.problems.append(f"request {exchange.number} ({exchange.event}): not restored: {', '.join(missing)}")


def _cache(main: Sequence[Exchange], verdict: Verdict) -> None:
    """Of the beginning that two following requests share, the upstream must see 99 % shared: its prompt cache holds."""
    for before, after in pairwise(main):
        if after.event in ("turn", "retry"):
            sent = _shared(before.sent.encode(), after.sent.encode())
            came = _shared(before.received.body, after.received.body)
            if came < 0.99 * sent:
                verdict.problems.append(
                    f"request {after.number}: of {sent} bytes shared with the last, {came} are left"
                )


def _shared(a: bytes, b: bytes) -> int:
    """Length of the beginning that both have."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _archive(main: Sequence[Exchange], through: Played, verdict: Verdict) -> None:
    """One session for the conversation, in the headers and in the archive; nothing degraded by a fault."""
    sessions = {e.session for e in main}
    verdict.sessions = len(sessions)
    if len(sessions) != 1:
        verdict.problems.append(
            f"the conversation was split into {len(sessions)} sessions: {', '.join(sorted(sessions))}"
        )
    filed = {request["id"]: request["event"] for row in through.sessions for request in row["requests"]}
    for e in main:
        if filed.get(e.call.headers.get("x-lantern-request", "")) != e.event:
            verdict.problems.append(f"request {e.number} is not in the archive as {e.event}")
        if "error" in e.call.headers.get("x-lantern-degraded", ""):
            verdict.problems.append(f"request {e.number} degraded: {e.call.headers['x-lantern-degraded']}")
    if "Traceback" in through.log:
        verdict.problems.append(f"lantern logged a fault: {through.log[through.log.index('Traceback') :][-400:]}")
