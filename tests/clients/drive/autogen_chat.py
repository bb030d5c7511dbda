"""An AutoGen assistant whose context keeps the first message and the last ones, and says that it skipped the rest."""

import asyncio
import json
import subprocess
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_core.model_context import HeadAndTailChatCompletionContext
from autogen_ext.models.openai import OpenAIChatCompletionClient

JOB = json.load(sys.stdin)
INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    client = OpenAIChatCompletionClient(
        model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-autogen", model_info=INFO
    )
    agent = AssistantAgent(
        "operator", model_client=client, tools=[shell], system_message="You help a small team.",
        reflect_on_tool_use=True,
        model_context=HeadAndTailChatCompletionContext(head_size=1, tail_size=5),
    )  # fmt: skip
    answers = [(await agent.run(task=line)).messages[-1].content for line in JOB["lines"]]
    print(json.dumps(answers))


asyncio.run(main())
