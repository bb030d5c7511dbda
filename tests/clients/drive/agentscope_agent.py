"""An AgentScope agent that compresses its context: the summary is a form that the model fills in by calling a tool."""

import asyncio
import json
import subprocess
import sys

from agentscope.agent import Agent, ContextConfig
from agentscope.credential import OpenAICredential
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.tool import FunctionTool, Toolkit

JOB = json.load(sys.stdin)


def shell(command: str) -> str:
    """Runs a command.

    Args:
        command (str): What to run.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    credential = OpenAICredential(base_url=JOB["url"] + "/v1", api_key="sk-dummy-agentscope")
    allowed = PermissionDecision(behavior=PermissionBehavior.ALLOW, message="for the test")
    agent = Agent(
        name="helper",
        system_prompt="You help a small team.",
        model=OpenAIChatModel(credential, "gpt-5-mini", context_size=700),
        toolkit=Toolkit([FunctionTool(shell, permission=allowed)]),
        context_config=ContextConfig(trigger_ratio=0.6, reserve_ratio=0.1),
    )
    answers = [(await agent.reply(UserMsg("user", line))).get_text_content() for line in JOB["lines"]]
    print("\n" + json.dumps(answers))


asyncio.run(main())
