"""An AG2 agent, streamed, that is compacted: by a summary of older events, or with no more than the newest in view."""

import asyncio
import json
import subprocess
import sys

from ag2 import Agent
from ag2.compact import CompactTrigger, SummarizeCompact
from ag2.config import OpenAIConfig
from ag2.knowledge import MemoryKnowledgeStore
from ag2.knowledge.config import KnowledgeConfig
from ag2.policies import ConversationPolicy, SlidingWindowPolicy

JOB = json.load(sys.stdin)
CONFIG = OpenAIConfig(model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-ag2", streaming=True)


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def summarised():
    knowledge = KnowledgeConfig(
        store=MemoryKnowledgeStore(), expose_tool=False, compact=SummarizeCompact(target=4, config=CONFIG),
        compact_trigger=CompactTrigger(max_events=9),
    )  # fmt: skip
    return {"knowledge": knowledge, "assembly": [ConversationPolicy()]}


async def main():
    more = summarised() if sys.argv[1] == "summary" else {"assembly": [SlidingWindowPolicy(max_events=5)]}
    agent = Agent("operator", prompt="You help a small team.", config=CONFIG, tools=[shell], **more)
    answers, reply = [], None
    for line in JOB["lines"]:
        reply = await (reply or agent).ask(line)
        answers.append(reply.body)
    print(json.dumps(answers))


asyncio.run(main())
