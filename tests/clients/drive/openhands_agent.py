"""An agent of the OpenHands SDK whose condenser sums up the events behind the first ones."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1", "LOG_LEVEL": "ERROR"}

from openhands.sdk import LLM, Agent, Conversation, Tool, register_tool
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.event import MessageEvent
from openhands.sdk.llm import TextContent
from openhands.sdk.tool import Action, Observation, ToolDefinition, ToolExecutor

JOB = json.load(sys.stdin)


class Command(Action):
    command: str


class Output(Observation):
    pass


class Runs(ToolExecutor[Command, Output]):
    def __call__(self, action, conversation=None):
        out = subprocess.run(action.command, shell=True, capture_output=True, text=True).stdout
        return Output.from_text(out)


class Shell(ToolDefinition[Command, Output]):
    @classmethod
    def create(cls, conv_state, **params) -> Sequence["Shell"]:
        return [cls(description="Runs a command.", action_type=Command, observation_type=Output, executor=Runs())]


register_tool("shell", Shell)


def main():
    model = LLM(model="openai/gpt-4o", base_url=JOB["url"] + "/v1", api_key="sk-dummy-openhands", usage_id="agent")
    summing = model.model_copy(update={"usage_id": "condenser"})
    condenser = LLMSummarizingCondenser(llm=summing, max_size=10, keep_first=2)
    agent = Agent(llm=model, tools=[Tool(name="shell")], condenser=condenser, include_default_tools=[])
    conversation = Conversation(agent=agent, workspace=".", visualizer=None)
    answers = []
    for line in JOB["lines"]:
        conversation.send_message(line)
        conversation.run()
        said = [each for each in conversation.state.events if isinstance(each, MessageEvent) and each.source == "agent"]
        answers.append("".join(part.text for part in said[-1].llm_message.content if isinstance(part, TextContent)))
    print("\n" + json.dumps(answers))


main()
