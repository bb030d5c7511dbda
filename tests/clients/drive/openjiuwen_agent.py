"""An agent of openJiuwen with one of its context processors, named by the argument.

dialogue: summaries as JSON, each in the place of a turn's calls and answer; round: a summary of all but the newest
messages, also in the middle of a turn; offload: only the beginning of a long result stays; window: the newest rounds.
"""

import asyncio
import json
import os
import subprocess
import sys

from openjiuwen.core.context_engine.processor.compressor.dialogue_compressor import DialogueCompressorConfig
from openjiuwen.core.context_engine.processor.compressor.round_level_compressor import RoundLevelCompressorConfig
from openjiuwen.core.context_engine.processor.offloader.message_offloader import MessageOffloaderConfig
from openjiuwen.core.foundation.llm import ModelClientConfig, ModelRequestConfig
from openjiuwen.core.foundation.tool import tool
from openjiuwen.core.runner import Runner
from openjiuwen.core.single_agent.agents.react_agent import ReActAgent, ReActAgentConfig
from openjiuwen.core.single_agent.schema.agent_card import AgentCard

JOB, MODE = json.load(sys.stdin), sys.argv[1]
URL, KEY = JOB["url"] + "/v1", "sk-dummy-openjiuwen"
CLIENT = ModelClientConfig(client_provider="OpenAI", api_key=KEY, api_base=URL, verify_ssl=False)
OWN = {"model": ModelRequestConfig(model_name="gpt-4o-mini"), "model_client": CLIENT}
PROCESSORS = {
    "dialogue": ("DialogueCompressor", DialogueCompressorConfig(messages_threshold=7, messages_to_keep=2, **OWN)),
    "round": (
        "RoundLevelCompressor",
        RoundLevelCompressorConfig(trigger_context_ratio=0.005, target_total_tokens=600, keep_recent_messages=2, **OWN),
    ),
    "offload": (
        "MessageOffloader",
        MessageOffloaderConfig(
            messages_threshold=6, tokens_threshold=100, large_message_threshold=20, messages_to_keep=2, trim_size=10
        ),
    ),
}
LONG = "\n".join(f"Step {n} of the command went well." for n in range(60)) if MODE in ("dialogue", "round") else ""
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


@tool(name="shell", description="Runs a command.", input_params=PARAMETERS)
def shell(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout + LONG


async def main():
    config = ReActAgentConfig().configure_model_client("OpenAI", KEY, URL, "gpt-4o-mini")
    config.configure_prompt_template([{"role": "system", "content": "You help a small team."}])
    if MODE == "window":
        config.configure_context_engine(default_window_round_num=2)
    else:
        config.configure_context_processors([PROCESSORS[MODE]])
    agent = ReActAgent(card=AgentCard(id="talk", name="talk", description="Talks.")).configure(config)
    agent.ability_manager.add(shell.card)
    Runner.resource_mgr.add_tool(shell)
    answers = []
    for line in JOB["lines"]:
        answers.append((await Runner.run_agent(agent, {"query": line, "conversation_id": "talk"}))["output"])
    print("\n" + json.dumps(answers), flush=True)
    os._exit(0)  # it leaves threads behind that never end


asyncio.run(main())
