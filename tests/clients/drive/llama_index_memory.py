"""A LlamaIndex function agent, streamed, with a memory that flushes the oldest messages into extracted facts."""

import asyncio
import json
import subprocess
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import FactExtractionMemoryBlock, Memory
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike

JOB = json.load(sys.stdin)


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    model = OpenAILike(
        model="gpt-5-mini", api_base=JOB["url"] + "/v1", api_key="sk-dummy-llama-index", is_chat_model=True,
        is_function_calling_model=True, context_window=100_000,
    )  # fmt: skip
    facts = FactExtractionMemoryBlock(name="facts", llm=model, max_facts=10)
    memory = Memory.from_defaults(
        token_limit=200, chat_history_token_ratio=0.6, token_flush_size=40, memory_blocks=[facts],
        tokenizer_fn=lambda text: str(text).split(),
    )  # fmt: skip
    agent = FunctionAgent(tools=[shell], llm=model, system_prompt="You help a small team.")
    context = Context(agent)
    print(json.dumps([str(await agent.run(line, ctx=context, memory=memory)) for line in JOB["lines"]]))


asyncio.run(main())
