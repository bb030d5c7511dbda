"""An agent of Cayu in one durable session. Named by the argument: what is asked for a summary, or its newest turns."""

import asyncio
import json
import subprocess
import sys

from cayu import AgentSpec, CayuApp, Message, ResumeRequest, RunRequest, Tool, ToolEffect, ToolResult, ToolSpec
from cayu.context import CheckpointCompactionContextPolicy, ModelCompactor, RecentTurnsContextPolicy
from cayu.providers import ChatCompletionsProvider

JOB = json.load(sys.stdin)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


class Shell(Tool):
    spec = ToolSpec(name="shell", description="Runs a command.", input_schema=SCHEMA, effect=ToolEffect.NONE)

    async def run(self, ctx, args):
        return ToolResult(content=run(args["command"]))


def run(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


async def main():
    provider = ChatCompletionsProvider(base_url=JOB["url"] + "/v1", api_key="sk-dummy-cayu", allow_http=True)
    own = ModelCompactor(provider=provider, model="gpt-5-mini")
    policy = {
        "summary": CheckpointCompactionContextPolicy(compactor=own, max_user_turns=2, compact_after_messages=10),
        "turns": RecentTurnsContextPolicy(max_user_turns=3),
    }[sys.argv[1]]
    app = CayuApp(enable_logging=False)
    app.register_provider(provider, default=True)
    spec = AgentSpec(name="operator", model="gpt-5-mini", system_prompt="You help a small team to run its services.")
    app.register_agent(spec, tools=[Shell()], context_policy=policy)
    answers = []
    async with app:
        for line in JOB["lines"]:
            said = [Message.text("user", line)]
            first = RunRequest(agent_name="operator", session_id="talk", messages=said)
            stream = app.resume(ResumeRequest(session_id="talk", messages=said)) if answers else app.run(first)
            told = []
            async for event in stream:
                if event.type == "model.text.delta":
                    told.append(event.payload["delta"])
                if event.type == "tool.call.started":
                    told.clear()
            answers.append("".join(told))
    print("\n" + json.dumps(answers))


asyncio.run(main())
