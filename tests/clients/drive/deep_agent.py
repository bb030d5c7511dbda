"""A deep agent (Python) that summarises older messages and files them away, by its own middleware or, with the argument
"compact", by one that was made after Claude Code."""

import json
import subprocess
import sys

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

JOB = json.load(sys.stdin)


@tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    model = ChatOpenAI(
        model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-deep", use_responses_api=False
    )
    limits = {"trigger": ("messages", 9), "keep": ("messages", 3)}
    if sys.argv[1:] == ["compact"]:
        from compact_middleware.config import CompactionConfig
        from compact_middleware.middleware import CompactionMiddleware

        summarise = CompactionMiddleware(model, backend=StateBackend(), config=CompactionConfig(**limits))
    else:
        summarise = SummarizationMiddleware(model=model, backend=StateBackend(), **limits)
    agent = create_deep_agent(
        model=model, tools=[shell], system_prompt="You help a small team.", middleware=[summarise],
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    thread = {"configurable": {"thread_id": "talk"}}
    said = ({"messages": [{"role": "user", "content": line}]} for line in JOB["lines"])
    print(json.dumps([agent.invoke(each, thread)["messages"][-1].text for each in said]))


main()
