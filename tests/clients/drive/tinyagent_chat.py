"""A TinyAgent, which answers by a tool, and whose user has it compact: it keeps a summary and nothing else."""

import asyncio
import json
import os
import subprocess
import sys

JOB = json.load(sys.stdin)
os.environ |= {"OPENAI_API_BASE": JOB["url"] + "/v1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

import tiktoken  # noqa: E402
from litellm import encoding  # noqa: E402

tiktoken.get_encoding = tiktoken.encoding_for_model = lambda name: encoding  # others would have to be fetched

from tinyagent import TinyAgent, tool  # noqa: E402

COMPACTED_AFTER = (4, 6)


@tool(name="shell", description="Runs a command.")
def shell(command: str) -> str:
    """Runs a command.

    Args:
        command: What to run.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    agent = TinyAgent("openai/gpt-4o-mini", "sk-dummy-tinyagent", "You help a small team.")
    agent.add_tool(shell)
    answers = []
    for n, line in enumerate(JOB["lines"]):
        answers.append(str(await agent.run(line)))
        if n in COMPACTED_AFTER:
            await agent.compact()
    print("\n" + json.dumps(answers), flush=True)
    os._exit(0)  # what it opened is left open


asyncio.run(main())
