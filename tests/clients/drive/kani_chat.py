"""A kani, which lets into each prompt the newest messages that fit."""

import asyncio
import json
import subprocess
import sys
from types import SimpleNamespace

from kani import ChatRole, Kani, ai_function
from kani.engines.openai import OpenAIEngine

JOB = json.load(sys.stdin)
WINDOW_TOKENS = 420


class Agent(Kani):
    """One tool: a shell."""

    @ai_function()
    def shell(self, command: str) -> str:
        """Runs a command."""
        return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main() -> None:
    words = SimpleNamespace(encode=lambda text, **_: text.split())  # the client's own tokenizer is a download
    engine = OpenAIEngine(
        "sk-dummy-kani", "gpt-5-mini", WINDOW_TOKENS, api_type="chat_completions", api_base=JOB["url"] + "/v1",
        tokenizer=words,
    )  # fmt: skip
    agent = Agent(engine, system_prompt="You help a small team.", desired_response_tokens=200)
    answers = []
    for line in JOB["lines"]:
        said = [m async for m in agent.full_round(line) if m.role == ChatRole.ASSISTANT]
        answers.append(said[-1].text)
    print(json.dumps(answers))


asyncio.run(main())
