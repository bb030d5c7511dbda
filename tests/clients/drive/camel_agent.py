"""A CAMEL agent that sees the newest messages of its memory alone, or has its memory summed up."""

import json
import subprocess
import sys

from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.toolkits import FunctionTool
from camel.types import ModelPlatformType
from camel.utils import BaseTokenCounter

JOB = json.load(sys.stdin)
FORGETS = {
    "window": {"message_window_size": 7},  # the system prompt included
    "summary": {"token_limit": 200_000, "summarize_threshold": 50},
}


class Words(BaseTokenCounter):
    """Counts words: the tokenizers' tables would have to be fetched."""

    def count_tokens_from_messages(self, messages):
        return sum(len(json.dumps(message).split()) for message in messages)

    def encode(self, text):
        return list(range(len(text.split())))

    def decode(self, token_ids):
        return " ".join(map(str, token_ids))


def shell(command: str) -> str:
    """Runs a command.

    Args:
        command (str): what to run
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    model = ModelFactory.create(
        ModelPlatformType.OPENAI_COMPATIBLE_MODEL, "gpt-5-mini", url=JOB["url"] + "/v1", api_key="sk-dummy-camel",
        token_counter=Words(),
    )  # fmt: skip
    tools = [FunctionTool(shell)]
    agent = ChatAgent("You help a small team.", model=model, tools=tools, **FORGETS[sys.argv[1]])
    print(json.dumps([agent.step(line).msgs[-1].content for line in JOB["lines"]]))


main()
