"""An agent of JAF whose memory gives it the newest messages of the conversation."""

import asyncio
import json
import subprocess
import sys

from jaf import Agent, Message, RunConfig, RunState, create_function_tool, make_litellm_provider, run
from jaf.core.types import create_run_id, create_trace_id
from jaf.memory import InMemoryConfig, MemoryConfig, create_in_memory_provider
from pydantic import BaseModel

JOB = json.load(sys.stdin)
MESSAGES = 7


class Command(BaseModel):
    command: str


def shell(args, context):
    return subprocess.run(args.command, shell=True, capture_output=True, text=True).stdout


async def main():
    told = {"name": "shell", "description": "Runs a command.", "execute": shell, "parameters": Command}
    agent = Agent(
        name="operator", instructions=lambda state: "You help a small team.", tools=[create_function_tool(told)]
    )  # fmt: skip
    config = RunConfig(
        agent_registry={"operator": agent}, model_provider=make_litellm_provider(JOB["url"] + "/v1", "sk-dummy-jaf"),
        model_override="gpt-4o-mini", conversation_id="talk", prefer_streaming=False,
        memory=MemoryConfig(provider=create_in_memory_provider(InMemoryConfig()), max_messages=MESSAGES),
    )  # fmt: skip
    answers = []
    for line in JOB["lines"]:
        state = RunState(
            run_id=create_run_id("r"), trace_id=create_trace_id("t"), messages=[Message(role="user", content=line)],
            current_agent_name="operator", context={}, turn_count=0,
        )  # fmt: skip
        answers.append((await run(state, config)).outcome.output)
    print("\n" + json.dumps(answers))


asyncio.run(main())
