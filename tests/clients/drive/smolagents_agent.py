"""A smolagents agent: it writes its model's calls into texts. A callback lets go of all but its newest steps."""

import json
import sys

from smolagents import OpenAIModel, ToolCallingAgent

JOB = json.load(sys.stdin)


def forget(step, agent):
    agent.memory.steps = agent.memory.steps[-5:]


def main():
    model = OpenAIModel("gpt-5-mini", api_base=JOB["url"] + "/v1", api_key="sk-dummy-smolagents")
    agent = ToolCallingAgent(tools=[], model=model, step_callbacks=[forget], verbosity_level=0, max_steps=4)
    print("\n" + json.dumps([agent.run(line, reset=False) for line in JOB["lines"]]))


main()
