"""An agent of SpoonOS: a prompt of its own goes before each step, and its short-term memory sums up or trims."""

import asyncio
import json
import os
import subprocess
import sys
from typing import ClassVar

JOB, STRATEGY = json.load(sys.stdin), sys.argv[1]
URL, KEY = JOB["url"] + "/v1", "sk-dummy-spoon"
os.environ.update(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=URL, DEFAULT_LLM_PROVIDER="openai")

from spoon_ai.agents.toolcall import ToolCallAgent  # noqa: E402
from spoon_ai.chat import ChatBot, ShortTermMemoryConfig  # noqa: E402
from spoon_ai.tools import ToolManager  # noqa: E402
from spoon_ai.tools.base import BaseTool  # noqa: E402


def run(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True)


class Shell(BaseTool):
    name: str = "shell"
    description: str = "Runs a command."
    parameters: ClassVar[dict] = {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    }

    async def execute(self, command: str) -> str:
        return (await asyncio.to_thread(run, command)).stdout


async def main():
    memory = ShortTermMemoryConfig(max_tokens=250, strategy=STRATEGY, messages_to_keep=3)
    bot = ChatBot(
        model_name="gpt-5-mini", llm_provider="openai", api_key=KEY, base_url=URL, short_term_memory_config=memory
    )
    tools = ToolManager([Shell()])
    agent = ToolCallAgent(
        name="talk", description="Talks.", system_prompt="You help a small team.", llm=bot, available_tools=tools
    )
    answers = [str(await agent.run(line)) for line in JOB["lines"]]
    print("\n" + json.dumps(answers), flush=True)
    os._exit(0)  # it leaves threads behind that never end


asyncio.run(main())
