"""Kivi's agent as its terminal runs it; what it compacts is a list of the first words of each message."""

import json
import os
import sys

os.environ["KIVI_MAX_CONTEXT"] = "620"  # before it reads it
from kivi_ai.agent import repl
from kivi_ai.agent.agent import Agent
from kivi_ai.agent.context import Context
from kivi_ai.agent.messages import Conversation
from kivi_ai.agent.provider import OpenAIProvider
from kivi_ai.agent.tools import ToolRegistry, default_tools

JOB = json.load(sys.stdin)


def main():
    tools = ToolRegistry(default_tools())
    agent = Agent(OpenAIProvider(JOB["url"] + "/v1", "sk-dummy-kivi", "gpt-5-mini"), tools)
    talk, answers = Conversation(repl._build_system_prompt(tools)), []
    for line in JOB["lines"]:
        talk.add_user(line)
        talk, _ = repl._process_turn_with_autocompact(agent, talk, "instruct", Context("."))
        answers.append(talk.last_assistant_text)
    print("\n" + json.dumps(answers))


main()
