"""An agent of Atomic Agents, whose chat history holds so many messages."""

import json
import sys

import instructor
from atomic_agents import AgentConfig, AtomicAgent, BasicChatInputSchema, BasicChatOutputSchema
from atomic_agents.context import ChatHistory
from openai import OpenAI

JOB = json.load(sys.stdin)


def main():
    client = instructor.from_openai(OpenAI(base_url=JOB["url"] + "/v1", api_key="sk-dummy-atomic"))
    config = AgentConfig(client=client, model="gpt-5-mini", history=ChatHistory(max_messages=6))
    agent = AtomicAgent[BasicChatInputSchema, BasicChatOutputSchema](config)
    print(json.dumps([agent.run(BasicChatInputSchema(chat_message=line)).chat_message for line in JOB["lines"]]))


main()
