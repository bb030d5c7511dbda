"""An agent of the OpenAI Agents SDK over chat completions that trims its tool outputs, or takes the newest items.

With "budget" it is openai-agents-context-compaction that takes them.
"""

import asyncio
import json
import subprocess
import sys

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    SessionSettings,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.extensions import ToolOutputTrimmer
from openai import AsyncOpenAI

JOB = json.load(sys.stdin)
FORGETS = {
    "trim": lambda: RunConfig(
        call_model_input_filter=ToolOutputTrimmer(recent_turns=2, max_output_chars=90, preview_chars=20)
    ),
    "limit": lambda: RunConfig(session_settings=SessionSettings(limit=6)),
    "budget": RunConfig,
}


@function_tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def within_budget(session):
    from openai_agents_context_compaction import LocalCompactionSession

    return LocalCompactionSession(session, token_budget=180)


async def main():
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=JOB["url"] + "/v1", api_key="sk-dummy-openai-agents")
    model = OpenAIChatCompletionsModel("gpt-5-mini", client)
    agent = Agent(name="Operator", instructions="You help a small team.", model=model, tools=[shell])
    session, answers = SQLiteSession("talk"), []
    session = within_budget(session) if sys.argv[1] == "budget" else session
    for line in JOB["lines"]:
        answers.append((await Runner.run(agent, line, session=session, run_config=FORGETS[sys.argv[1]]())).final_output)
    print(json.dumps(answers))


asyncio.run(main())
