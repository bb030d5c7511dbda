"""An agent of BPSA, a fork of smolagents. Its steps are summed up in place; what the user asked for stays as it was."""

import json
import subprocess
import sys

from smolagents import CompressionConfig, OpenAIModel, ToolCallingAgent, tool

JOB = json.load(sys.stdin)


@tool
def shell(command: str) -> str:
    """Runs a command.

    Args:
        command: The command line.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


def main():
    model = OpenAIModel("gpt-5-mini", api_base=JOB["url"] + "/v1", api_key="sk-dummy-bpsa")
    compression = CompressionConfig(keep_recent_steps=2, max_uncompressed_steps=4, min_compression_chars=0,
                                    preserve_final_answer_steps=False)  # fmt: skip
    agent = ToolCallingAgent(tools=[shell], model=model, compression_config=compression, verbosity_level=0, max_steps=5)
    print("\n" + json.dumps([agent.run(line, reset=False) for line in JOB["lines"]]))


main()
