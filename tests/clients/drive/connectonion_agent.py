"""A ConnectOnion agent that compacts of itself when its window is full, in the midst of a turn, too."""

import json
import os
import subprocess
import sys

JOB = json.load(sys.stdin)
os.environ |= {"CONNECTONION_BACKEND_URL": JOB["url"], "OPENONION_API_KEY": "sk-dummy-connectonion"}

from connectonion import Agent  # noqa: E402
from connectonion.useful_plugins import auto_compact  # noqa: E402


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    agent = Agent(
        "helper", model="gpt-4o-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-connectonion", tools=[shell],
        system_prompt="You help a small team.", plugins=[auto_compact], log=False, quiet=True,
    )  # fmt: skip
    print("\n" + json.dumps([agent.input(line) for line in JOB["lines"]]))


main()
