"""A Strands agent that summarises older messages when its window runs full, or keeps the newest."""

import json
import subprocess
import sys

from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager, SummarizingConversationManager
from strands.models.openai import OpenAIModel

JOB = json.load(sys.stdin)
FORGETS = {
    "summary": lambda: SummarizingConversationManager(
        summary_ratio=0.7, preserve_recent_messages=3, proactive_compression=True
    ),
    "window": lambda: SlidingWindowConversationManager(window_size=8),
}


@tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    arguments = {"base_url": JOB["url"] + "/v1", "api_key": "sk-dummy-strands"}
    model = OpenAIModel(client_args=arguments, model_id="gpt-5-mini", context_window_limit=128_000)
    agent = Agent(
        model=model,
        tools=[shell],
        system_prompt="You help a small team.",
        conversation_manager=FORGETS[sys.argv[1]](),
        callback_handler=None,
    )
    print(json.dumps([str(agent(line)).strip() for line in JOB["lines"]]))


main()
