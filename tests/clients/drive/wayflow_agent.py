"""A WayFlow agent: before each call of its model, all but the newest messages are summed up where there are many."""

import json
import subprocess
import sys

from wayflowcore.agent import Agent
from wayflowcore.models import OpenAICompatibleModel
from wayflowcore.tools import tool
from wayflowcore.transforms import ConversationSummarizationTransform

JOB = json.load(sys.stdin)
MODEL = OpenAICompatibleModel(model_id="gpt-5-mini", base_url=JOB["url"], api_key="sk-dummy-wayflow")


@tool(description_mode="only_docstring")
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    summing_up = ConversationSummarizationTransform(MODEL, max_num_messages=8, min_num_messages=3)
    instruction = "You help a small team to run its services."
    agent = Agent(MODEL, tools=[shell], custom_instruction=instruction, transforms=[summing_up])
    talk, answers = agent.start_conversation(), []
    for line in JOB["lines"]:
        talk.append_user_message(line)
        talk.execute()
        answers.append(talk.get_last_message().content)
    print(json.dumps(answers))


main()
