"""A session of mnesis that is compacted by hand, twice."""

import asyncio
import json
import os
import sys

JOB = json.load(sys.stdin)
os.environ |= {"OPENAI_API_BASE": JOB["url"] + "/v1", "OPENAI_API_KEY": "sk-dummy-mnesis"}
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from mnesis import CompactionConfig, MnesisConfig, MnesisSession  # noqa: E402

BEFORE = (4, 6)


async def main():
    config = MnesisConfig(compaction=CompactionConfig(auto=False))
    told = {"model": "openai/gpt-4o", "system_prompt": "You help a small team to run its services."}
    answers = []
    async with MnesisSession.open(**told, config=config, db_path="talk.db") as session:
        for at, line in enumerate(JOB["lines"]):
            if at in BEFORE:
                await session.compact()
            answers.append((await session.send(line)).text)
    print("\n" + json.dumps(answers))


asyncio.run(main())
