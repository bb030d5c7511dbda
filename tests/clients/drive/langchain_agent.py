"""A LangChain agent that forgets in one of three ways, by its argument: summarise, clear (tool results) or trim."""

import json
import subprocess
import sys

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import trim_messages
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

JOB = json.load(sys.stdin)
MODEL = ChatOpenAI(
    model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-langchain", use_responses_api=False
)


@tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


class Trim(AgentMiddleware):
    """The newest messages only, from one of the user's on."""

    def wrap_model_call(self, request, handler):
        kept = trim_messages(request.messages, strategy="last", token_counter=len, max_tokens=7, start_on="human")
        return handler(request.override(messages=kept))


FORGETS = {
    "summarise": lambda: SummarizationMiddleware(model=MODEL, trigger=("messages", 12), keep=("messages", 4)),
    "clear": lambda: ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=220, keep=1)]),
    "trim": Trim,
}


def main():
    agent = create_agent(
        MODEL,
        tools=[shell],
        system_prompt="You help a small team to run its services.",
        middleware=[FORGETS[sys.argv[1]]()],
    )
    messages, answers = [], []
    for line in JOB["lines"]:
        messages = agent.invoke({"messages": [*messages, {"role": "user", "content": line}]})["messages"]
        answers.append(messages[-1].text)
    print(json.dumps(answers))


main()
