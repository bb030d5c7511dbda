"""An agent of tada-core, which asks its model in Chinese for a summary, under its own prompt and with its tools."""

import asyncio
import json
import subprocess
import sys

from tada_core import AgentLoop, AnthropicModelClient, ModelSpec, SessionState, build_model_client
from tada_core.contracts.tools import InMemoryToolExecutor, ToolDefinition

JOB, PROTOCOL = json.load(sys.stdin), sys.argv[1]
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def shell(said):
    return subprocess.run(json.loads(said)["command"], shell=True, capture_output=True, text=True).stdout


def model():
    if PROTOCOL == "messages":
        return AnthropicModelClient(api_key="sk-dummy-tada", model="claude-sonnet-4-5", base_url=JOB["url"])
    spec = ModelSpec(id="gpt-5-mini", provider="openai", api="openai-responses", base_url=JOB["url"] + "/v1")
    return build_model_client(spec, api_key="sk-dummy-tada", streaming=True)


async def main():
    loop, state = AgentLoop(model(), system_prompt=["You help a small team."]), SessionState()
    tools = InMemoryToolExecutor()
    tools.register(ToolDefinition("shell", "Runs a command.", SHELL), shell)
    loop.set_tool_executor(tools)
    answers = []
    for line in JOB["lines"]:
        said = ""
        async for event in loop.run_turn(state, line):
            if event.type == "error":
                raise RuntimeError(event.message)
            said += event.text if event.type == "text_delta" else ""
        answers.append(said)
    print("\n" + json.dumps(answers))


asyncio.run(main())
