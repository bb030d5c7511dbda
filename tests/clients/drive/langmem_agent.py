"""A LangGraph agent with LangMem's summarisation node, streamed: the store keeps all, the model sees a summary.

plain: without tools and without a system prompt.
"""

import json
import subprocess
import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from langgraph.prebuilt.chat_agent_executor import AgentState
from langmem.short_term import SummarizationNode

JOB = json.load(sys.stdin)
MODEL = ChatOpenAI(
    model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-langmem", use_responses_api=False, streaming=True
)
TOKENS = 170
"""What the model may see, by LangChain's estimate."""


@tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


TOOLS = [] if sys.argv[1:] == ["plain"] else [shell]


class State(AgentState):
    """The conversation, and the running summary in `context`."""

    context: dict


def main():
    node = SummarizationNode(
        model=MODEL, max_tokens=TOKENS, max_tokens_before_summary=TOKENS, max_summary_tokens=60,
        output_messages_key="llm_input_messages",
    )  # fmt: skip
    agent = create_react_agent(
        MODEL, TOOLS, pre_model_hook=node, state_schema=State, checkpointer=InMemorySaver(),
        prompt="You help a small team." if TOOLS else None,
    )  # fmt: skip
    thread = {"configurable": {"thread_id": "talk"}}
    turns = (agent.invoke({"messages": [{"role": "user", "content": line}]}, thread) for line in JOB["lines"])
    print(json.dumps([turn["messages"][-1].text for turn in turns]))


main()
