"""An agent of Swarms, which sums up all that was said, the line that waits for its answer included."""

import json
import os
import subprocess
import sys

JOB = json.load(sys.stdin)
os.environ |= {
    "SWARMS_TELEMETRY_ON": "False", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "WORKSPACE_DIR": os.environ["HOME"],
    "OPENAI_API_KEY": "sk-dummy-swarms", "OPENAI_API_BASE": JOB["url"] + "/v1", "OPENAI_BASE_URL": JOB["url"] + "/v1",
}  # fmt: skip

import tiktoken  # noqa: E402
from litellm import encoding  # noqa: E402

tiktoken.get_encoding = tiktoken.encoding_for_model = lambda name: encoding  # others would have to be fetched

from swarms import Agent  # noqa: E402


def shell(command: str) -> str:
    """Runs a command.

    Args:
        command (str): What to run.

    Returns:
        str: What it printed.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    agent = Agent(
        agent_name="helper", system_prompt="You help a small team.", model_name="openai/gpt-4o-mini", max_loops=2,
        tools=[shell], context_length=500, print_on=False, output_type="final", persistent_memory=False,
    )  # fmt: skip
    print("\n" + json.dumps([str(agent.run(line)) for line in JOB["lines"]]), flush=True)
    os._exit(0)  # threads of its own go on


main()
