"""An agent of Microsoft's Agent Framework over Responses; a summary stands for the older part."""

import asyncio
import json
import subprocess
import sys

from agent_framework import Agent, CompactionProvider, InMemoryHistoryProvider, SummarizationStrategy
from agent_framework.openai import OpenAIChatClient

JOB = json.load(sys.stdin)


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    client = OpenAIChatClient(model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-framework")
    history = InMemoryHistoryProvider(skip_excluded=True)
    compaction = CompactionProvider(
        after_strategy=SummarizationStrategy(client=client, target_count=4, threshold=3),
        history_source_id=history.source_id,
    )
    agent = Agent(
        client=client, name="operator", instructions="You help a small team.", tools=[shell],
        context_providers=[history, compaction], default_options={"store": False},
    )  # fmt: skip
    session = agent.create_session()
    print(json.dumps([(await agent.run(line, session=session)).text for line in JOB["lines"]]))


asyncio.run(main())
