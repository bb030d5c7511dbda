"""An agent of PraisonAI, whose window slides when it is full."""

import json
import os
import subprocess
import sys

JOB = json.load(sys.stdin)
os.environ.update(
    OPENAI_API_KEY="sk-dummy-praisonai", OPENAI_BASE_URL=JOB["url"] + "/v1", PRAISONAI_TELEMETRY_DISABLED="true",
)  # fmt: skip

from praisonaiagents import Agent  # noqa: E402
from praisonaiagents.context.models import ContextConfig, OptimizerStrategy  # noqa: E402


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


window = ContextConfig(
    auto_compact=True, compact_threshold=0.0015, strategy=OptimizerStrategy.SLIDING_WINDOW, keep_recent_turns=1
)
agent = Agent(instructions="You help a small team.", llm="gpt-4o-mini", tools=[shell], output="silent", context=window)
print("\n" + json.dumps([str(agent.chat(line)) for line in JOB["lines"]]))
