"""A pydantic-ai agent whose history processor keeps the newest messages only, from one of the user's on."""

import json
import subprocess
import sys

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

JOB = json.load(sys.stdin)
KEPT = 6


def newest(messages: list[ModelMessage]) -> list[ModelMessage]:
    kept = messages[-KEPT:]
    while kept and not any(isinstance(part, UserPromptPart) for part in kept[0].parts):
        kept = kept[1:]
    return kept


def main():
    provider = OpenAIProvider(base_url=JOB["url"] + "/v1", api_key="sk-dummy-pydantic-ai")
    model = OpenAIChatModel("gpt-5-mini", provider=provider)
    agent = Agent(
        model, instructions="You help a small team to run its services.", capabilities=[ProcessHistory(newest)]
    )

    @agent.tool_plain
    def shell(command: str) -> str:
        """Runs a command."""
        return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

    messages, answers = [], []
    for line in JOB["lines"]:
        result = agent.run_sync(line, message_history=messages)
        messages = result.all_messages()
        answers.append(result.output)
    print(json.dumps(answers))


main()
