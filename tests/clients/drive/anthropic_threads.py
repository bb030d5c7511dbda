"""The Anthropic SDK's tool runner on a thread that the server holds: each request says what is new; it is compacted."""

import json
import subprocess
import sys

from anthropic import Anthropic, beta_tool

JOB = json.load(sys.stdin)
CLIENT = Anthropic(base_url=JOB["url"], api_key="sk-ant-dummy-threads")


@beta_tool
def bash(command: str) -> str:
    """Runs a command.

    Args:
        command: What to run.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def main():
    thread = CLIENT.beta.messages.thread(
        model="claude-sonnet-4-5", max_tokens=1000, system="You help a small team.", tools=[bash]
    )
    answers = []
    for line in JOB["lines"]:
        thread.append({"role": "user", "content": line})
        runner = thread.tool_runner(stream=True)
        for stream in runner:
            message = stream.get_final_message()
            if message.usage.input_tokens > 100_000:
                runner.compact_before_next_turn()
            if message.stop_reason == "end_turn":
                answers.append(message.content[0].text)
    print(json.dumps(answers))


main()
