"""An agent of Turnloop's as its print mode makes it, with several turns in one session.

The argument says what stands for older messages: `summary`, a text of the model's; `digest`, one that is made by rules.
"""

import asyncio
import json
import sys
from pathlib import Path

from turnloop.agent.factory import create_agent
from turnloop.agent.headless import PrintChannel
from turnloop.config import load_settings

JOB = json.load(sys.stdin)
STRATEGY = {"summary": "summarize", "digest": "truncate"}[sys.argv[1]]
SETTINGS = {
    "provider": "lantern",
    "providers": {
        "lantern": {
            "kind": "openai_compat", "model": "gpt-5-mini", "base_url": JOB["url"] + "/v1",
            "api_key": "sk-dummy-turnloop", "caps": {"max_context": 2_000, "max_output": 500},
        }
    },
    "compaction": {"full_pressure": 0.3, "keep_recent_turns": 1},
    "permission_mode": "bypass",
}  # fmt: skip


async def main():
    here = Path.cwd()
    settings = load_settings(here, SETTINGS)
    channel = PrintChannel(quiet=True, auto_approve=True)
    agent = create_agent(settings, here, channel, persist=False, compaction_strategy=STRATEGY)
    await agent.start()
    answers = [(await agent.loop.run_turn(line)).text for line in JOB["lines"]]
    await agent.aclose()
    print("\n" + json.dumps(answers))


asyncio.run(main())
