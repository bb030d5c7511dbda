"""A Haystack agent, streamed, that puts placeholders in the place of older tool results when its window runs full."""

import json
import subprocess
import sys
from typing import Annotated

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.hooks.compaction import CompactionHook, ToolResultPruningCompactor
from haystack.tools import tool
from haystack.utils import Secret

JOB = json.load(sys.stdin)


@tool
def shell(command: Annotated[str, "what to run"]) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    generator = OpenAIChatGenerator(
        model="gpt-5-mini", api_base_url=JOB["url"] + "/v1", api_key=Secret.from_token("sk-dummy-haystack"),
        streaming_callback=lambda chunk: None,
    )  # fmt: skip
    hook = CompactionHook(ToolResultPruningCompactor(min_tokens=10), context_window=330)
    agent = Agent(
        chat_generator=generator, tools=[shell], system_prompt="You help a small team.", hooks={"before_llm": [hook]}
    )
    messages, answers = [], []
    for line in JOB["lines"]:
        messages = agent.run(messages=[*messages, ChatMessage.from_user(line)])["messages"][1:]
        answers.append(messages[-1].text)
    print(json.dumps(answers))


main()
