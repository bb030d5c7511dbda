"""A session of tinyharness, as its terminal has one: what it sums up becomes a second system message."""

import asyncio
import json
import sys
from pathlib import Path

from tinyharness import AssistantText, Session, SessionOptions

JOB = json.load(sys.stdin)
CONFIG = """
provider = "lantern"
tool_calls = "native"
compaction_preserve_recent_tokens = 60
permission_mode = "bypassPermissions"

[sandbox]
enabled = false

[providers.lantern]
base_url = "{url}/v1"
models = [{{id = "gpt-5-mini", context = 150000, max_output = 8000}}]
"""


async def answer(session, line):
    told = []
    async for event in session.run(line):
        if isinstance(event, AssistantText):
            told.append(event.text)
    return "".join(told)


async def main():
    path = Path.home() / "tinyharness.toml"
    path.write_text(CONFIG.format(url=JOB["url"]))
    session = Session(SessionOptions(config_path=path, api_key="sk-dummy-tinyharness", trust_project=False))
    answers = [await answer(session, line) for line in JOB["lines"]]
    session.close()
    print("\n" + json.dumps(answers))


asyncio.run(main())
