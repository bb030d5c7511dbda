"""A Timbal agent that compacts its memory before each run: by its argument to a summary, beside which the user's words
stay in one message (summary), or to the newest turns (turns).
"""

import asyncio
import json
import os
import subprocess
import sys

from timbal import Agent
from timbal.core.memory_compaction import keep_last_n_turns, summarize

JOB = json.load(sys.stdin)
os.environ |= {"OPENAI_API_KEY": "dummy-timbal", "OPENAI_BASE_URL": JOB["url"] + "/v1"}
FORGETS = {
    "summary": lambda: summarize(threshold=6, keep_last_n=2),
    "turns": lambda: keep_last_n_turns(2),
}


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    agent = Agent(
        name="operator", model="openai/gpt-4.1-mini", system_prompt="You help a small team to run its services.",
        tools=[shell], memory_compaction=FORGETS[sys.argv[1]](), memory_compaction_ratio=0,
    )  # fmt: skip
    parent, answers = None, []
    for line in JOB["lines"]:
        ended = await agent(prompt=line, parent_id=parent).collect()
        parent = ended.run_id
        answers.append(ended.output.collect_text())
    print(json.dumps(answers))


asyncio.run(main())
