"""An agent of Inspect, which compacts what it sends in one of three ways."""

import asyncio
import json
import subprocess
import sys

from inspect_ai.model import (
    ChatMessageSystem,
    ChatMessageUser,
    CompactionEdit,
    CompactionSummary,
    CompactionTrim,
    compaction,
    execute_tools,
    get_model,
)
from inspect_ai.tool import tool

JOB = json.load(sys.stdin)
FORGETS = {
    "summary": CompactionSummary(threshold=100_000, memory=False),
    "edit": CompactionEdit(threshold=100_000, memory=False, keep_tool_uses=0),
    "trim": CompactionTrim(threshold=100_000, memory=False, preserve=0.5),
}


async def count_words(text: str) -> int:
    """The tokenizers' tables would have to be fetched."""
    return len(text.split())


def run(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


@tool
def bash():
    async def execute(command: str) -> str:
        """Runs a command.

        Args:
            command: What to run.
        """
        return run(command)

    return execute


async def main():
    model = get_model(
        "openai/gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-inspect", responses_api=False, memoize=False
    )
    model.api.count_text_tokens = count_words
    tools, answers = [bash()], []
    messages = [ChatMessageSystem(content="You help a small team.")]
    compact = compaction(FORGETS[sys.argv[1]], messages, tools, model)
    for line in JOB["lines"]:
        messages.append(ChatMessageUser(content=line))
        while True:
            shown, added = await compact.compact_input(messages)
            if added:
                messages.append(added)
            output = await model.generate(shown, tools)
            await compact.record_output(shown, output)
            messages.append(output.message)
            if not output.message.tool_calls:
                break
            messages += (await execute_tools(messages, tools))[0]
        answers.append(output.completion)
    print(json.dumps(answers))


asyncio.run(main())
