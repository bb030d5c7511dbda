"""An agent of the OpenAI Agents SDK whose session compacts itself through POST /responses/compact."""

import asyncio
import json
import subprocess
import sys

from agents import Agent, Runner, SQLiteSession, function_tool, set_default_openai_client, set_tracing_disabled
from agents.memory import OpenAIResponsesCompactionSession
from openai import AsyncOpenAI

JOB = json.load(sys.stdin)


@function_tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=JOB["url"] + "/v1", api_key="sk-dummy-openai-agents")
    set_default_openai_client(client, use_for_tracing=False)
    agent = Agent(name="Operator", instructions="You help a small team.", model="gpt-5-mini", tools=[shell])
    session = OpenAIResponsesCompactionSession(
        "talk", SQLiteSession("talk"), client=client, model="gpt-5-mini", compaction_mode="input",
        should_trigger_compaction=lambda context: len(context["compaction_candidate_items"]) >= 8,
    )  # fmt: skip
    answers = []
    for line in JOB["lines"]:
        answers.append((await Runner.run(agent, line, session=session)).final_output)
    print(json.dumps(answers))


asyncio.run(main())
