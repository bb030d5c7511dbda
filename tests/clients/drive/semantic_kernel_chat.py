"""A Semantic Kernel chat whose history summarises itself: its own messages, and the wish for it as a system message."""

import asyncio
import json
import subprocess
import sys

from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistorySummarizationReducer
from semantic_kernel.functions import kernel_function

JOB = json.load(sys.stdin)


class Shell:
    @kernel_function(name="bash", description="Runs a command.")
    def bash(self, command: str) -> str:
        return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    client = AsyncOpenAI(base_url=JOB["url"] + "/v1", api_key="sk-dummy-kernel")
    service = OpenAIChatCompletion(ai_model_id="gpt-5-mini", async_client=client)
    kernel = Kernel()
    kernel.add_plugin(Shell(), "shell")
    settings = OpenAIChatPromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto())
    history = ChatHistorySummarizationReducer(service=service, target_count=4, threshold_count=2)
    history.add_system_message("You help a small team.")
    answers = []
    for line in JOB["lines"]:
        await history.reduce()
        history.add_user_message(line)
        answer = await service.get_chat_message_content(history, settings, kernel=kernel)
        history.add_message(answer)
        answers.append(str(answer))
    print(json.dumps(answers))


asyncio.run(main())
