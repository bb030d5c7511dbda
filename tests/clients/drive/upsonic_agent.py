"""An agent of Upsonic: the newest runs, and behind what its user says a summary that it has made after each of them."""

import json
import os
import subprocess
import sys

JOB = json.load(sys.stdin)
os.environ["UPSONIC_TELEMETRY"] = "False"

from upsonic import Agent, Task  # noqa: E402
from upsonic.models.openai import OpenAIChatModel  # noqa: E402
from upsonic.providers.openai import OpenAIProvider  # noqa: E402
from upsonic.storage import InMemoryStorage, Memory  # noqa: E402
from upsonic.tools import tool  # noqa: E402


@tool
def shell(command: str) -> str:
    """Runs a command.

    Args:
        command: What to run.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    provider = OpenAIProvider(base_url=JOB["url"] + "/v1", api_key="sk-dummy-upsonic")
    model = OpenAIChatModel(model_name="gpt-5-mini", provider=provider)
    memory = Memory(
        storage=InMemoryStorage(), session_id="talk", user_id="ann", model=model, summary_memory=True,
        full_session_memory=True, num_last_messages=2, feed_tool_call_results=True,
    )  # fmt: skip
    agent = Agent(model=model, memory=memory, system_prompt="You help a small team.", tools=[shell], print=False)
    print("\n" + json.dumps([str(agent.do(Task(description=line))) for line in JOB["lines"]]), flush=True)
    os._exit(0)  # it leaves threads behind that never end


main()
