"""An Agno agent that has long tool results shortened by another call, before its model sees them."""

import json
import subprocess
import sys

from agno.agent import Agent
from agno.compression.manager import CompressionManager
from agno.db.sqlite import SqliteDb
from agno.models.openai import OpenAIChat

JOB = json.load(sys.stdin)


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    agent = Agent(
        model=OpenAIChat(id="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-agno"), tools=[shell],
        instructions="You help a small team.", db=SqliteDb(db_file="talk.db"), session_id="talk", telemetry=False,
        add_history_to_context=True, num_history_runs=2, compress_tool_results=True,
        compression_manager=CompressionManager(compress_tool_results_limit=1),
    )  # fmt: skip
    print("\n" + json.dumps([agent.run(line).content for line in JOB["lines"]]))


main()
