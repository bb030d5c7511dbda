"""A pydantic-ai agent with the compactions of pydantic-ai-harness: a summary beside what its user said, a window with a
note of what it holds no more, cleared results, or those steps left out that a judge (here a function) does not want."""

import asyncio
import json
import subprocess
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_harness.compaction import (
    ClearToolResults,
    RelevanceCompaction,
    SlidingWindowCompaction,
    SummarizingCompaction,
)

JOB = json.load(sys.stdin)
PROVIDER = OpenAIProvider(base_url=JOB["url"] + "/v1", api_key="sk-dummy-harness")
MODEL = OpenAIChatModel("gpt-5-mini", provider=PROVIDER)


def judge(_messages, info):
    """No step is needed to the letter, and none matters."""
    form = info.output_tools[0]
    fields = form.parameters_json_schema["properties"]
    return ModelResponse(parts=[ToolCallPart(form.name, dict.fromkeys(fields, 0.3))])


FORGETS = {
    "summary": SummarizingCompaction(
        model=MODEL, max_messages=8, keep_messages=3, keep_user_messages=True, receipts=True
    ),
    "window": SlidingWindowCompaction(max_messages=8, keep_messages=4, receipts=True),
    "clear": ClearToolResults(max_messages=6, keep_pairs=1, clear_tool_inputs=True),
    "relevance": RelevanceCompaction(
        FunctionModel(judge), max_tokens=1_900, target_tokens=300, keep_tokens=60, truncated_result_chars=20
    ),
}


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    agent = Agent(MODEL, instructions="You help a small team.", tools=[shell], capabilities=[FORGETS[sys.argv[1]]])
    messages, answers = [], []
    for line in JOB["lines"]:
        result = await agent.run(line, message_history=messages)
        messages = result.all_messages()
        answers.append(result.output)
    print(json.dumps(answers))


asyncio.run(main())
