"""TunaCode's agent as its terminal asks it; the messages that it shows its model are behind a summary of older ones."""

import asyncio
import json
import sys

from tunacode.core.agents.main import process_request
from tunacode.core.compaction.controller import CompactionController
from tunacode.core.session.state import StateManager

JOB = json.load(sys.stdin)
MODEL = "openai:gpt-5-mini"


async def main():
    state = StateManager()
    session = state.session
    session.user_config["env"] |= {"OPENAI_API_KEY": "sk-dummy-tunacode", "OPENAI_BASE_URL": JOB["url"] + "/v1"}
    session.current_model = MODEL
    session.conversation.max_tokens = 260
    session._compaction_controller = CompactionController(state_manager=state, keep_recent_tokens=60, reserve_tokens=20)
    answers = []
    for line in JOB["lines"]:
        await process_request(line, MODEL, state)
        last = session.conversation.messages[-1]
        answers.append("".join(part.text for part in last.content if getattr(part, "text", None)))
    print("\n" + json.dumps(answers))


asyncio.run(main())
