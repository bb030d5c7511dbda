"""A scripted upstream on loopback: it answers by simple rules and keeps every request that reached it.

Where a client asks for a summary it gets a vague one; where the user wrote `RUN: command` it calls the client's shell
tool; from certain turns on it reports a full window, or refuses, until the client has compacted. It does not read
restored blocks, so that its answers are the same with and without Lantern.
"""

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from clients.dialects import ParsedRequest, Reply, parse_request, render_answer
from clients.talk import OVERFLOWS, RUN, SUMMARY, Turn, numbered

BLOCK = re.compile(r"\s*<restored_context\b.*?</restored_context>\s*", re.S)
_REMINDER = re.compile(
    r"<(system|system-reminder|environment_details|dcp-system-reminder|memory)>.*?</\1>|<<<BEGIN_(\w+)>>>.*?<<<END_\2>>>"
    r"|\[LimitWarnerProcessor\].*|\[Compact (attachment: \w+|boundary marker)\].*",
    re.S,
)
_NUMBERED = re.compile(r"<dcp-message-id>([mb]\d+)<")
"""Ends each message of a client whose model compacts by a tool, and says what it wants compacted."""
_ASKS_NOTES = re.compile(r"(?:Write the session notes|Please summari[sz]e|Consolidate these summaries)\b")
_ASKS_SUMMARY = re.compile(
    rf"summar|snapshot|checkpoint|compact|摘要|Write the new NOTES\b|^{_ASKS_NOTES.pattern}", re.I
)
_GIVEN = re.compile(rf"{re.escape(SUMMARY)} {numbered(0)[:-2]}\d+\.")
"""A summary that was given before: it asks for none."""
_BLOCKS = re.compile(r"\[Block: (\w+)\]")
"""Parts of a history of which each is to be summed up under its name."""
_RESULT = re.compile(r'<response step="\d+">.*</response>', re.S)
"""What a tool gave, of a client that writes it into words."""
_NOTED_AT = re.compile(r"Current timestamp: \d{4}-\d\d-\d\dT(\d\d:\d\d)")
"""The time at which an observer is to say that it makes its notes."""
_NOTE_CHARS = 100
_THANKS_CHARS = 20
_GO_ON = "Continue if you have next steps"
_TITLE = re.compile(r"\btitles?\b", re.I)
_SUMMARISER = re.compile(r"You are an? [\w ]*?summari[sz]er\b", re.I)
"""Opens the instructions of one who does nothing else, whatever tools there are."""
_SHELLS = (
    "exec_command",
    "shell",
    "Shell",
    "shell-bash",
    "shell_bash",
    "shell_command",
    "Bash",
    "bash",
    "run_shell_command",
    "run_commands",
    "run_command",
    "execute_command",
    "execute",
    "exec",
    "exec_shell",
    "terminal",
)
_ANSWERING = "final_answer"
"""A tool by which some agents answer."""
_TOO_LONG = json.dumps({
    "error": {
        "message": "This model's maximum context length is 8192 tokens. However, your messages have 9011 tokens.",
        "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
    }
}).encode()  # fmt: skip


@dataclass(slots=True)
class Received:
    """A request as it reached the upstream, and the answer it got."""

    tap: str
    """Number that the recording relay gave it."""
    path: str
    body: bytes
    parsed: ParsedRequest | None
    kind: str
    """main (a turn of the conversation), summary (the client asked for one), other (what it says of its own accord)."""
    answer: bytes = b""


@dataclass(slots=True)
class Script:
    """The rules for one client, and what was received."""

    turns: Sequence[Turn]
    full_tokens: int
    """Size to report when the window is to look full."""
    refuses: bool = False
    """Whether a turn is refused then."""
    received: list[Received] = field(default_factory=list)
    summaries: int = 0
    """How many were asked for."""

    def app(self) -> Starlette:
        every = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=every)])

    async def answer(self, request: Request) -> Response:
        path, raw = request.url.path, await request.body()
        if request.headers.get("upgrade", "").lower() == "websocket":
            return JSONResponse({"error": {"message": "no WebSocket here"}}, 426)
        if request.method != "POST" or not path.endswith(("/chat/completions", "/responses", "/compact", "/messages")):
            return JSONResponse(_about(path))
        body = json.loads(raw)
        parsed = self._with_tools(parse_request(path, body))
        kind, reply = self.decide(parsed)
        reply = _by_tool(parsed, reply) if kind == "main" else reply
        refused = self.refuses and kind == "main" and reply.tokens == self.full_tokens
        content_type, pieces = ("application/json", [_TOO_LONG]) if refused else render_answer(parsed, body, reply)
        tap = request.headers.get("x-tap", "")
        self.received.append(Received(tap, path, raw, parsed, kind, b"".join(pieces)))
        headers = {"x-request-id": f"req_{tap}"}
        return StreamingResponse(_sent(pieces), 400 if refused else 200, headers, content_type)

    def _with_tools(self, parsed: ParsedRequest) -> ParsedRequest:
        """What goes on with a conversation that the server holds does not repeat its tools."""
        before = next((r.parsed for r in self.received if parsed.continues.encode() in r.answer), None)
        return replace(parsed, tools=before.tools) if parsed.continues and before else parsed

    def decide(self, parsed: ParsedRequest) -> tuple[str, Reply]:
        """(kind of request, what is answered)."""
        if parsed.api == "compact" or parsed.triggers:
            self.summaries += 1
            return "summary", Reply(f"{SUMMARY} {numbered(self.summaries)}", compaction="b3BhcXVl")
        texts = [(role, text) for role, text in ((r, _plain(t)) for r, t in parsed.said) if text]
        said = [(role, text) for role, text in texts if role != "system"] or [("user", text) for _, text in texts[-1:]]
        role, last = said[-1] if said else ("user", "")
        if role == "assistant":  # what is asked stands in front of what was said before, if that is no summary
            role, last = said[0] if not _GIVEN.search(said[0][1]) else ("user", "")
        turn = self._turn(said)
        full = self.summaries < sum(turn >= overflow for overflow in OVERFLOWS)
        tokens = self.full_tokens if full else 2_000
        if role == "tool" or _RESULT.fullmatch(last) or (parsed.tools and _is_interrupted(said)):
            return "main", Reply(self.turns[turn].answer if turn >= 0 else "Done.", tokens=tokens)
        spoken = max((t for t in self.turns if t.said in last), key=lambda t: last.rfind(t.said), default=None)
        if "<response>" in last:
            return _in_tags(last, spoken)
        instructions = next((text for role, text in parsed.said if role == "system"), "")
        if not parsed.tools and len(texts) > 1 and all(role == "user" for role, _ in texts):
            instructions = texts[0][1]  # what they are about stands behind them, in parts of its own
        elif parsed.tools and not _SUMMARISER.match(instructions):
            instructions = ""
        grown = spoken is not None and last == spoken.said
        if SUMMARY in instructions or self._is_of_turn(instructions, grown=grown):  # what it says asks for no summary
            instructions = ""
        is_title = _TITLE.search(instructions[:400])
        wish = "" if spoken and _is_said_behind_a_note(last, spoken.said, parsed) else _GIVEN.sub("", last)
        if spoken is None or is_title or _ASKS_SUMMARY.search(wish) or _ASKS_SUMMARY.search(instructions):
            kind, reply = self._aside(last, instructions)
            return kind, replace(reply, **_filled_in(parsed, reply.text))
        return "main", self._spoken_to(parsed, spoken, tokens)

    def _spoken_to(self, parsed: ParsedRequest, turn: Turn, tokens: int) -> Reply:
        """The answer to a line of the conversation: words, or a command when it asks for one and a shell is offered."""
        shell = next((name for name in _SHELLS if name in parsed.tools), "")
        numbers = _NUMBERED.findall("\n".join(text for _, text in parsed.said))[:-1]
        if numbers and tokens == self.full_tokens and RUN not in turn.said:
            return replace(self._compressing(numbers), tokens=tokens)
        if RUN not in turn.said or not shell:
            return replace(Reply(turn.answer, tokens=tokens), **_filled_in(parsed, turn.answer))
        arguments = _arguments(parsed.tools[shell], turn.said.partition(RUN)[2])
        return Reply(tool=shell, arguments=arguments, tokens=tokens)

    def _compressing(self, numbers: Sequence[str]) -> Reply:
        """The call by which the model itself has the messages of these numbers compacted."""
        self.summaries += 1
        earlier = "".join(f" ({number})" for number in numbers if number.startswith("b"))
        told = f"{SUMMARY} {numbered(self.summaries)}{earlier}"
        content = [{"startId": numbers[0], "endId": numbers[-1], "summary": told}]
        return Reply(tool="compress", arguments=json.dumps({"topic": "What was said", "content": content}))

    def _aside(self, last: str, instructions: str) -> tuple[str, Reply]:
        """The answer to what is no line of the conversation: a summary that holds no detail, a title, or go on."""
        if _TITLE.search(instructions[:400]):
            return "other", Reply("State of the project")
        if not _ASKS_SUMMARY.search(last + instructions):
            return "other", Reply("There is nothing to do.")
        self.summaries += 1
        summary = f"{SUMMARY} {numbered(self.summaries)}"
        if "state_snapshot" in last + instructions:
            return "summary", Reply(f"<state_snapshot><overall_goal>{summary}</overall_goal></state_snapshot>")
        if '["summary", "topics"]' in instructions:
            return "summary", Reply(json.dumps({"summary": summary, "topics": None}))
        if '"memory"' in instructions:
            return "summary", Reply(json.dumps({"memory": [{"id": "0", "text": summary, "attributed_to": "user"}]}))
        if blocks := _BLOCKS.findall(last) if '"block_id"' in last + instructions else []:
            told = [{"block_id": block, "summary": summary} for block in dict.fromkeys(blocks)]
            return "summary", Reply(json.dumps({"blocks": told}))
        if noted := _NOTED_AT.search(last):
            return "summary", Reply(f"* CRITICAL ({noted[1]}) {summary}")
        if "the word RULES" in last:
            return "summary", Reply(f"RULES\n(none)\nSTATE\n{summary}\nOPEN\n(none)")
        if "<observations>" in instructions:
            return "summary", Reply(f"<observations>\n* {summary}\n</observations>")
        if "<analysis>" in last + instructions:
            return "summary", Reply(f"<analysis>Nothing to add.</analysis>\n<summary>\n{summary}\n</summary>")
        return "summary", Reply(summary)

    def _is_of_turn(self, instructions: str, *, grown: bool) -> bool:
        """Did a turn come under these instructions? A client may leave its tools out where the window is full.

        grown: may what was said stand behind them by now?
        """
        turns = (r.parsed for r in self.received if r.parsed and r.kind == "main")
        own = (text for turn in turns for role, text in turn.said if role == "system" and text)
        return any(instructions == text or (grown and instructions.startswith(text)) for text in own)

    def _turn(self, said: Sequence[tuple[str, str]]) -> int:
        """Index of the newest turn that the request holds, -1 for none."""
        texts = [text for role, text in said if role == "user"]
        return max((i for i, turn in enumerate(self.turns) if any(turn.said in text for text in texts)), default=-1)


def _in_tags(last: str, spoken: Turn | None) -> tuple[str, Reply]:
    """The answer to a prompt that wants it as a list of tags, with what is said among them or nothing but notes."""
    if spoken is None or "<text>" not in last:
        return "other", Reply("<response>\n  <thought>There is nothing to do.</thought>\n</response>")
    thought = f"They began with {spoken.said[:9]}, and I will begin with {spoken.answer[:12]}"
    fields = {"thought": thought, "actions": "REPLY", "text": spoken.answer}
    listed = "\n".join(f"  <{name}>{text}</{name}>" for name, text in fields.items())
    return "main", Reply(f"<response>\n{listed}\n</response>")


def _is_interrupted(said: Sequence[tuple[str, str]]) -> bool:
    """Did a compaction interrupt the turn? It ends in a summary then, or in a word to go on, or of thanks, for one."""
    (before_role, before), (role, last) = [("", ""), ("", ""), *said][-2:]
    is_thanks = before_role == role == "user" and len(last) < _THANKS_CHARS
    if _ASKS_NOTES.match(last) or "<new-conversation>" in last:
        return False
    return SUMMARY in last or (SUMMARY in before and (is_thanks or last.startswith(_GO_ON)))


def _is_said_behind_a_note(last: str, said: str, parsed: ParsedRequest) -> bool:
    """Has a client put no more than a short sentence of its own in front of what the user said? It asks for nothing."""
    return bool(parsed.tools) and last.endswith(said) and len(last) - len(said) <= _NOTE_CHARS


def _filled_in(parsed: ParsedRequest, text: str) -> dict[str, str]:
    """`text` in the form that it is wanted in: JSON of one field, or the only tool that is offered and no shell. Empty
    when there is none.
    """
    if len(fields := parsed.form.get("properties", {})) == 1:
        return {"text": json.dumps(dict.fromkeys(fields, text))}
    if len(parsed.tools) != 1 or set(_SHELLS) & parsed.tools.keys():
        return {}
    ((form, schema),) = parsed.tools.items()
    first, *others = schema["properties"]
    filled = {first: text} | {name: "Nothing." for name in others if name in schema.get("required", ())}
    return {"text": "", "tool": form, "arguments": json.dumps(filled)}


def _by_tool(parsed: ParsedRequest, reply: Reply) -> Reply:
    """The words of an answer as the argument of a tool, where a client offers one to answer by."""
    answering = parsed.tools.get(_ANSWERING)
    if answering is None or not reply.text:
        return reply
    (field,) = answering["properties"]
    return replace(reply, text="", tool=_ANSWERING, arguments=json.dumps({field: reply.text}))


def _plain(text: str) -> str:
    return _REMINDER.sub("", BLOCK.sub("\n", text)).strip()


def _arguments(schema: dict[str, Any], command: str) -> str:
    """`command` under the name that the tool's schema gives it: a string, or a list where it asks for one."""
    properties = schema.get("properties", {})
    name = next((n for n in ("cmd", "command", "commands", "code") if n in properties), "command")
    takes_list = properties.get(name, {}).get("type") == "array"
    words = ["bash", "-lc", command] if name == "command" else [command]
    given: dict[str, Any] = {name: words if takes_list else command}
    for other in schema.get("required", []):
        kind, choices = properties.get(other, {}).get("type"), properties.get(other, {}).get("enum", ())
        said = "shell" if "shell" in choices else "read a file"
        given.setdefault(other, {"boolean": False, "integer": 1, "number": 1}.get(kind, said))
    return json.dumps(given)


def _about(path: str) -> dict[str, Any]:
    if path.endswith("/count_tokens"):
        return {"input_tokens": 2_000}
    return {"object": "list", "data": [], "models": [], "has_more": False}


async def _sent(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
