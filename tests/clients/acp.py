"""A client that speaks the Agent Client Protocol: one process for the whole conversation, JSON-RPC over its pipes."""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from clients.client import ClientError, Job, end


def converse(job: Job, command: Sequence[str], env: Mapping[str, str], *, pause_s: float = 0) -> list[str]:
    """Plays the user's lines to `command`; the final answers. pause_s: how long the user waits after each answer."""
    process = job.start(command, env)
    try:
        agent = _Agent(job, process)
        agent.call("initialize", protocolVersion=1, clientCapabilities={})
        session = agent.call("session/new", cwd=str(job.work), mcpServers=[])["sessionId"]
        answers = []
        for line in job.lines:
            agent.said.clear()
            agent.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": line}])
            answers.append("".join(agent.said).strip())
            time.sleep(pause_s)
        return answers
    finally:
        end(process)


class _Agent:
    """The other end. `said` holds the pieces of text since the last call of a tool."""

    def __init__(self, job: Job, process: "subprocess.Popen[str]") -> None:
        self._job, self._process, self._calls = job, process, 0
        self._lines: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of one call; what the agent asks or tells meanwhile is attended to."""
        self._calls += 1
        self._send(id=self._calls, method=method, params=params)
        while True:
            message = self._next()
            if "method" in message:
                self._attend(message)
            elif message.get("id") == self._calls:
                if "error" in message:
                    raise ClientError(f"{method}: {json.dumps(message['error'])[:600]}")
                result: dict[str, Any] = message["result"] or {}
                return result

    def _send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def _next(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self._job.left_s)
        except queue.Empty:
            raise ClientError("the agent did not answer in time") from None
        if not line:
            raise ClientError(f"the agent ended: {(self._job.home / 'stderr').read_text()[-600:]}")
        message: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        return message

    def _attend(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message["method"] == "session/update":
            self._hear(params["update"])
        elif message["method"] == "session/request_permission":
            allowed = next(option for option in params["options"] if option["kind"].startswith("allow"))
            outcome = {"outcome": "selected", "optionId": allowed["optionId"]}
            self._send(id=message["id"], result={"outcome": outcome})
        elif "id" in message:
            self._send(id=message["id"], error={"code": -32601, "message": "not here"})

    def _hear(self, update: dict[str, Any]) -> None:
        if update["sessionUpdate"] == "agent_message_chunk":
            self.said.append(update["content"].get("text", ""))
        elif update["sessionUpdate"].startswith("tool_call"):
            self.said.clear()
