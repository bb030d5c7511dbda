"""A Griptape agent with a summary memory: the newest runs stand, what came before is summed up after each."""

import json
import logging
import sys

from griptape.configs import Defaults
from griptape.configs.drivers import DriversConfig
from griptape.drivers.prompt.openai import OpenAiChatPromptDriver
from griptape.memory.structure import SummaryConversationMemory
from griptape.structures import Agent
from griptape.tokenizers import SimpleTokenizer

JOB = json.load(sys.stdin)


def main():
    logging.disable(logging.CRITICAL)  # it logs to standard output
    driver = OpenAiChatPromptDriver(
        model="gpt-4o", base_url=JOB["url"] + "/v1", api_key="sk-dummy-griptape",
        tokenizer=SimpleTokenizer(characters_per_token=4, max_input_tokens=100_000, max_output_tokens=1_000),
    )  # fmt: skip
    Defaults.drivers_config = DriversConfig(prompt_driver=driver)
    memory = SummaryConversationMemory(prompt_driver=driver, offset=2)
    agent = Agent(prompt_driver=driver, conversation_memory=memory)
    print("\n" + json.dumps([agent.run(line).output.value for line in JOB["lines"]]))


main()
