"""A Stirrup agent that sums up in the midst of a turn: it keeps its task, and not what was asked last."""

import asyncio
import json
import subprocess
import sys

from pydantic import BaseModel
from stirrup import Agent
from stirrup.clients.chat_completions_client import ChatCompletionsClient
from stirrup.core.models import Tool, ToolResult, UserMessage

JOB = json.load(sys.stdin)


class Command(BaseModel):
    command: str


class Answer(BaseModel):
    answer: str


def run(params):
    done = subprocess.run(params.command, shell=True, capture_output=True, text=True)
    return ToolResult(content=done.stdout)


def finish(params):
    return ToolResult(content=params.answer, success=True)


async def main():
    client = ChatCompletionsClient(
        "gpt-5-mini", 4_000, context_window_tokens=100_000, base_url=JOB["url"] + "/v1", api_key="sk-dummy-stirrup"
    )
    agent = Agent(
        client=client, name="helper", system_prompt="You help a small team.", max_turns=50,
        tools=[Tool(name="shell", description="Runs a command.", parameters=Command, executor=run)],
        finish_tool=Tool(name="final_answer", description="Answers.", parameters=Answer, executor=finish),
    )  # fmt: skip
    said, answers = [], []
    for line in JOB["lines"]:
        finished, history, _ = await agent.run([*said, UserMessage(content=line)])
        said = [message for message in history[-1] if message.role != "system"]
        answers.append(finished.answer)
    print("\n" + json.dumps(answers))


asyncio.run(main())
