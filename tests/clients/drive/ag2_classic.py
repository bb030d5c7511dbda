"""An agent of AG2 before 1.0, as of AutoGen 0.2, with a transform that sends the newest messages only."""

import json
import subprocess
import sys

from autogen import AssistantAgent, UserProxyAgent
from autogen.agentchat.contrib.capabilities.transform_messages import TransformMessages
from autogen.agentchat.contrib.capabilities.transforms import MessageHistoryLimiter

JOB = json.load(sys.stdin)
KEPT = 5


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    endpoint = {"model": "gpt-5-mini", "base_url": JOB["url"] + "/v1", "api_key": "sk-dummy-ag2"}
    assistant = AssistantAgent(
        "assistant", system_message="You help a small team.", llm_config={"config_list": [endpoint], "cache_seed": None}
    )
    user = UserProxyAgent(
        "user",
        human_input_mode="NEVER",
        code_execution_config=False,
        is_termination_msg=lambda message: not message.get("tool_calls"),
    )
    assistant.register_for_llm(name="shell", description="Runs a command.")(shell)
    user.register_for_execution(name="shell")(shell)
    TransformMessages(transforms=[MessageHistoryLimiter(max_messages=KEPT)], verbose=False).add_to_agent(assistant)
    answers = []
    for line in JOB["lines"]:
        chat = user.initiate_chat(assistant, message=line, clear_history=not answers, silent=True)
        answers.append(chat.chat_history[-1]["content"])
    print("\n" + json.dumps(answers))


main()
