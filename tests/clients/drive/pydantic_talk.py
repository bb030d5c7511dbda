"""A talk of a pydantic-ai agent with a shell: what the programs share whose agents forget by capabilities."""

import json
import subprocess
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

JOB = json.load(sys.stdin)
MODEL = OpenAIChatModel(
    "gpt-5-mini", provider=OpenAIProvider(base_url=JOB["url"] + "/v1", api_key="sk-dummy-pydantic-2")
)


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def talk(capabilities):
    agent = Agent(MODEL, instructions="You help a small team.", tools=[shell], capabilities=capabilities)
    messages, answers = [], []
    for line in JOB["lines"]:
        result = await agent.run(line, message_history=messages)
        messages = result.all_messages()
        answers.append(result.output)
    print(json.dumps(answers))
