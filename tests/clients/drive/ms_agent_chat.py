"""A chat with an agent of MS-Agent, which sums up all but the question when the reported size fills its window."""

import asyncio
import json
import sys

from ms_agent.agent.llm_agent import LLMAgent
from ms_agent.llm.utils import Message
from omegaconf import OmegaConf

JOB = json.load(sys.stdin)
SYSTEM = "You help a small team to run its services."
CONFIG = {
    "llm": {
        "service": "openai",
        "model": "gpt-5-mini",
        "openai_api_key": "sk-dummy-ms-agent",
        "openai_base_url": JOB["url"] + "/v1",
    },
    "generation_config": {"stream": False},
    "prompt": {"system": SYSTEM},
    "memory": {"context_compressor": {"context_limit": 128_000}},
    "max_chat_round": 9,
    "callbacks": [],
    "save_history": False,
}


async def main():
    agent = LLMAgent(OmegaConf.create(CONFIG), tag="talk")
    history, answers = [Message(role="system", content=SYSTEM)], []
    for line in JOB["lines"]:
        history = await agent.run([*history, Message(role="user", content=line)])
        answers.append(history[-1].content)
    print("\n" + json.dumps(answers))


asyncio.run(main())
