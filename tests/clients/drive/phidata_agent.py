"""An agent of phidata: the newest runs, and in its system prompt a summary that it has made after each of them."""

import json
import os
import subprocess
import sys

from phi.agent import Agent, AgentMemory
from phi.model.openai import OpenAIChat

JOB = json.load(sys.stdin)


def shell(command: str) -> str:
    """Runs a command.

    Args:
        command (str): What to run.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    os.environ.update(OPENAI_API_KEY="sk-dummy-phidata", OPENAI_BASE_URL=JOB["url"] + "/v1")
    model = OpenAIChat(id="gpt-5-mini")
    agent = Agent(
        model=model, tools=[shell], description="You help a small team.", telemetry=False, monitoring=False,
        memory=AgentMemory(create_session_summary=True), add_history_to_messages=True, num_history_responses=2,
    )  # fmt: skip
    print(json.dumps([agent.run(line).content for line in JOB["lines"]]))


main()
