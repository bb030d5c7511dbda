"""An Agentica agent that opens a new window when its own is full, behind notes that its model writes on the old one."""

import asyncio
import json
import subprocess
import sys

from agentica import Agent, OpenAIChat
from agentica.agent.config import ToolConfig

JOB = json.load(sys.stdin)
LIMIT_TOKENS = 700


def shell(command: str) -> str:
    """Runs a command.

    Args:
        command: what to run
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    model = OpenAIChat(id="llama-4", base_url=JOB["url"] + "/v1", api_key="sk-dummy-agentica")
    agent = Agent(
        model=model, instructions="You help a small team.", tools=[shell], session_id="talk",
        add_history_to_context=True, num_history_turns=100, tool_config=ToolConfig(compact_token_limit=LIMIT_TOKENS),
    )  # fmt: skip
    print("\n" + json.dumps([(await agent.run(line)).content for line in JOB["lines"]]))


asyncio.run(main())
