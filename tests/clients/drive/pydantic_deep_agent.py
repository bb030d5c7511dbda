"""A deep agent of pydantic-deep, whose context manager leaves a summary and what is asked, and nothing else."""

import asyncio
import json
import sys

from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_deep import DeepAgentDeps, LocalWorkspace, create_deep_agent

JOB = json.load(sys.stdin)


async def main() -> None:
    provider = OpenAIProvider(base_url=JOB["url"] + "/v1", api_key="sk-dummy-pydantic-deep")
    model = OpenAIChatModel("gpt-5-mini", provider=provider)
    agent = create_deep_agent(
        model, summarization_model=model, instructions="You help a small team.", include_execute=True,
        workspace=LocalWorkspace("."), web_search=False, web_fetch=False, thinking=False,
        context_manager_max_tokens=130,
    )  # fmt: skip
    messages, answers = [], []
    for line in JOB["lines"]:
        result = await agent.run(line, message_history=messages, deps=DeepAgentDeps())
        messages = result.all_messages()
        answers.append(result.output)
    print("\n" + json.dumps(answers))


asyncio.run(main())
