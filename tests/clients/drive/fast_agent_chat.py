"""A fast-agent agent, which compacts by itself behind the turn that fills its window and keeps the newest turn.

The model's name, its argument, says by which protocol, and whether a summary or an item of the provider's is left.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from fast_agent import FastAgent

JOB = json.load(sys.stdin)
OPENAI = {"api_key": "sk-dummy-fastagent", "base_url": JOB["url"] + "/v1"}
CONFIG = {
    "default_model": sys.argv[1], "openai": OPENAI, "responses": OPENAI,
    "anthropic": {"api_key": "sk-ant-dummy-fastagent", "base_url": JOB["url"]},
    "compaction": {"auto": True, "keep_turns": 1},
    "logger": {"type": "none", "progress_display": False, "show_chat": False, "show_tools": False},
}  # fmt: skip
Path("fast-agent.yaml").write_text(json.dumps(CONFIG))  # JSON is YAML, too
FAST = FastAgent("talk", parse_cli_args=False, quiet=True, config_path="fast-agent.yaml")


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


@FAST.agent("helper", instruction="You help a small team to run its services.", function_tools=[shell])
async def main():
    async with FAST.run() as agents:
        answers = [await agents.send(line) for line in JOB["lines"]]
    print(json.dumps(answers))


asyncio.run(main())
