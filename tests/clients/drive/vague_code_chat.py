"""A chat with vague-code's agent, as its terminal has one: its prompts are Chinese, and so is what opens a summary."""

import json
import os
import sys

from vague_code.agent.backend import DeepSeekBackend
from vague_code.agent.config import AgentConfig, CompressionConfig, MemoryConfig
from vague_code.agent.loop import Agent

JOB = json.load(sys.stdin)
KEPT = 2
COMPRESSION = CompressionConfig(auto_compact_threshold=0.0, auto_compact_keep_turns=KEPT)


def main():
    runs, memory = os.path.expanduser("~/runs.db"), MemoryConfig(enabled=False)
    config = AgentConfig(db_path=runs, permission_mode="auto", compression=COMPRESSION, memory=memory)
    agent = Agent(config, DeepSeekBackend(api_key="sk-dummy-vague-code", base_url=JOB["url"] + "/v1"))
    answers = []
    for line in JOB["lines"]:
        for _ in agent.chat(line, os.getcwd()):
            pass
        answers.append("".join(block.text for block in agent._chat_messages[-1].content if hasattr(block, "text")))
    print("\n" + json.dumps(answers))


main()
