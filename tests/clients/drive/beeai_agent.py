"""A BeeAI agent whose memory is a summary, made anew with every turn, in a system message of its own."""

import asyncio
import json
import sys

from beeai_framework.adapters.openai import OpenAIChatModel
from beeai_framework.agents.requirement import RequirementAgent
from beeai_framework.memory import SummarizeMemory

JOB = json.load(sys.stdin)


async def main():
    model = OpenAIChatModel(
        "gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-beeai",
        tool_choice_support={"required", "single", "none", "auto"},
    )  # fmt: skip
    agent = RequirementAgent(llm=model, tools=[], memory=SummarizeMemory(model), instructions="You help a small team.")
    answers = []
    for line in JOB["lines"]:
        out = await agent.run(line)
        answers.append(out.last_message.text)
    print("\n" + json.dumps(answers))


asyncio.run(main())
