"""Kon, a coding agent, as its headless mode runs it: when its window is full, its model sums up all that was said."""

import asyncio
import io
import json
import os
import sys

from kon.config import get_config
from kon.headless import render_run
from kon.runtime import ConversationRuntime
from kon.tools import DEFAULT_TOOLS, get_tools

JOB = json.load(sys.stdin)


async def main():
    settings = get_config()
    settings.permissions.mode = "auto"
    runtime = ConversationRuntime(
        cwd=os.getcwd(), model="gpt-5-mini", model_provider="openai", api_key="sk-dummy-kon",
        base_url=JOB["url"] + "/v1", thinking_level="none", tools=get_tools(DEFAULT_TOOLS),
    )  # fmt: skip
    runtime.initialize()
    answers = []
    for line in JOB["lines"]:
        said = io.StringIO()
        await render_run(runtime.prepare_for_run().run(line), out=said)
        answers.append(said.getvalue().strip())
    print(json.dumps(answers))


asyncio.run(main())
