"""A CrewAI agent that is refused when its messages are too long, and then sums them up."""

import json
import os
import subprocess
import sys

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
os.environ |= {"CREWAI_TESTING": "true"}  # it asks its user about traces otherwise

from crewai import LLM, Agent
from crewai.tools import tool

JOB = json.load(sys.stdin)


@tool("shell")
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    agent = Agent(
        role="operator", goal="help a small team", backstory="You help a small team.", tools=[shell], verbose=False,
        llm=LLM(model="openai/gpt-4o", base_url=JOB["url"] + "/v1", api_key="sk-dummy-crewai"),
        respect_context_window=True,
    )  # fmt: skip
    messages, answers = [], []
    for line in JOB["lines"]:
        result = agent.kickoff([*messages, {"role": "user", "content": line}])
        messages = [message for message in result.messages if message["role"] != "system"]
        answers.append(result.raw)
    print("\n" + json.dumps(answers), flush=True)
    os._exit(0)  # it would print about traces after the answers


main()
