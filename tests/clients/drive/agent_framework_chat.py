"""An agent of Microsoft's Agent Framework over chat completions, which keeps the newest or has a budget of tokens.

Within its budget it collapses results of tools, then has the older part summed up, then keeps the newest alone.
"""

import asyncio
import json
import subprocess
import sys

from agent_framework import (
    Agent,
    CharacterEstimatorTokenizer,
    CompactionProvider,
    InMemoryHistoryProvider,
    SlidingWindowStrategy,
    SummarizationStrategy,
    TokenBudgetComposedStrategy,
    ToolResultCompactionStrategy,
)
from agent_framework.openai import OpenAIChatCompletionClient

JOB = json.load(sys.stdin)
CLIENT = OpenAIChatCompletionClient(model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-framework")
FORGETS = {
    "window": lambda: SlidingWindowStrategy(keep_last_groups=4),
    "budget": lambda: TokenBudgetComposedStrategy(
        token_budget=220, tokenizer=CharacterEstimatorTokenizer(),
        strategies=[
            ToolResultCompactionStrategy(keep_last_tool_call_groups=0),
            SummarizationStrategy(client=CLIENT, target_count=3, threshold=1),
            SlidingWindowStrategy(keep_last_groups=3),
        ],
    ),
}  # fmt: skip


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    history = InMemoryHistoryProvider()
    compaction = CompactionProvider(before_strategy=FORGETS[sys.argv[1]](), history_source_id=history.source_id)
    agent = Agent(
        client=CLIENT, name="operator", instructions="You help a small team.", tools=[shell],
        context_providers=[history, compaction],
    )  # fmt: skip
    session = agent.create_session()
    print(json.dumps([(await agent.run(line, session=session)).text for line in JOB["lines"]]))


asyncio.run(main())
