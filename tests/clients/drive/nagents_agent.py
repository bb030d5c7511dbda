"""An agent of nagents, which has its history summed up when it is long."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from nagents import Agent, Provider, ProviderType, SessionManager
from nagents.compaction import ModelCompaction
from nagents.events import TextDoneEvent

JOB = json.load(sys.stdin)


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    reached = {"api_key": "sk-dummy-nagents", "base_url": JOB["url"] + "/v1", "model": "gpt-4o-mini"}
    provider = Provider(ProviderType.OPENAI_COMPATIBLE, **reached, api="chat_completions", context_window=100_000)
    provider._model_verified = True  # the scripted model is in no catalog
    agent = Agent(
        provider, SessionManager(Path("talk.db")), tools=[shell], system_prompt="You help a small team.",
        compaction_strategy=ModelCompaction(message_threshold=8),
    )  # fmt: skip
    answers = []
    for line in JOB["lines"]:
        said = [e.text async for e in agent.run(line, session_id="talk") if isinstance(e, TextDoneEvent)]
        answers.append(said[-1])
    print("\n" + json.dumps(answers))


asyncio.run(main())
