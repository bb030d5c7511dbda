"""OpenHarness, a coding agent, as its own print mode runs it; it compacts when it reckons that its window is full."""

import asyncio
import json
import os
import sys

os.environ["OPENHARNESS_AUTO_COMPACT_THRESHOLD_TOKENS"] = "280"  # before it reads its settings
from openharness.engine.stream_events import AssistantTurnComplete
from openharness.ui.runtime import build_runtime, close_runtime, handle_line, start_runtime

JOB = json.load(sys.stdin)


async def nothing(*_):
    pass


async def allowed(*_):
    return True


async def main():
    said = []

    async def render(event):
        if isinstance(event, AssistantTurnComplete):
            said.append(event.message.text.strip())

    talk = await build_runtime(
        model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-openharness", api_format="openai",
        permission_prompt=allowed,
    )  # fmt: skip
    await start_runtime(talk)
    answers = []
    for line in JOB["lines"]:
        await handle_line(talk, line, print_system=nothing, render_event=render, clear_output=nothing)
        answers.append(said[-1])
    await close_runtime(talk)
    print(json.dumps(answers))


asyncio.run(main())
