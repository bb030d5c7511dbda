"""A pydantic-ai agent with capabilities of summarization-pydantic-ai: a summary stands for all but the newest, perhaps
with a warning behind what its user says, or only the first message and the newest are left."""

import asyncio
import json
import subprocess
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_summarization.capability import LimitWarnerCapability, SlidingWindowCapability, SummarizationCapability

JOB = json.load(sys.stdin)
PROVIDER = OpenAIProvider(base_url=JOB["url"] + "/v1", api_key="sk-dummy-pydantic-2")
MODEL = OpenAIChatModel("gpt-5-mini", provider=PROVIDER)
SUMMARY = SummarizationCapability(model=MODEL, trigger=("messages", 8), keep=("messages", 3))
FORGETS = {
    "summary": [SUMMARY],
    "warner": [LimitWarnerCapability(max_context_tokens=120, warning_threshold=0.1), SUMMARY],
    "window": [SlidingWindowCapability(trigger=("messages", 8), keep=("messages", 4), keep_head=("messages", 1))],
}


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    agent = Agent(MODEL, instructions="You help a small team.", tools=[shell], capabilities=FORGETS[sys.argv[1]])
    messages, answers = [], []
    for line in JOB["lines"]:
        result = await agent.run(line, message_history=messages)
        messages = result.all_messages()
        answers.append(result.output)
    print(json.dumps(answers))


asyncio.run(main())
