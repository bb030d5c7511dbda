"""A session of Loom's, whose later runs show what the model said and called for, and of what its user said nothing."""

import asyncio
import json
import subprocess
import sys

from loom import Agent, Model, Runtime, SessionConfig, tool

JOB = json.load(sys.stdin)


@tool(description="Runs a command.")
def shell(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    agent = Agent(
        model=Model.openai("gpt-4o-mini", api_base=JOB["url"] + "/v1", api_key="sk-dummy-loom"),
        instructions="You help a small team to run its services.", tools=[shell],
        runtime=Runtime.sdk(extensions={"provider_health_check": False}),
    )  # fmt: skip
    session = agent.session(SessionConfig(id="talk"))
    answers = [(await session.run(line)).output for line in JOB["lines"]]
    print("\n" + json.dumps(answers))


asyncio.run(main())
