"""The Anthropic SDK for Python, Messages, streamed, a shell tool; a summary replaces all before the newest turn."""

import json
import subprocess
import sys

from anthropic import Anthropic

JOB = json.load(sys.stdin)
WISH = (
    "Our context window is nearly full. Write a summary of the conversation so far, from which the work can go on "
    "without its history. Cover, in this order: what the user wants, what was decided and why, which files and "
    "machines were looked at, what is still open, and what the next step is. Keep names and numbers as they were "
    "given, leave out greetings and everything that was settled without a trace. Answer with the summary alone, and "
    "call no tool."
)
CLIENT = Anthropic(base_url=JOB["url"], api_key="sk-ant-dummy-anthropic-python")
SYSTEM = [
    {"type": "text", "text": "You help a small team to run its services.", "cache_control": {"type": "ephemeral"}}
]
SHELL = {
    "name": "bash",
    "description": "Runs a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def ask(messages):
    with CLIENT.messages.stream(
        model="claude-sonnet-4-5", max_tokens=1000, system=SYSTEM, tools=[SHELL], messages=messages
    ) as stream:
        return stream.get_final_message()


def summarise(messages):
    message = CLIENT.messages.create(
        model="claude-sonnet-4-5", max_tokens=1000, system=SYSTEM, tools=[SHELL],
        messages=[*messages, {"role": "user", "content": WISH}],
    )  # fmt: skip
    return message.content[0].text


def results(message):
    """What the tools say to each call of `message`."""
    for block in message.content:
        if block.type == "tool_use":
            output = subprocess.run(block.input["command"], shell=True, capture_output=True, text=True).stdout
            yield {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": output}]}


def main():
    history, answers, full = [], [], False
    for line in JOB["lines"]:
        if full:
            history = [{"role": "user", "content": f"<summary>\n{summarise(history)}\n</summary>"}]
            history.append({"role": "assistant", "content": "I know where we are."})
        history.append({"role": "user", "content": [{"type": "text", "text": line}]})
        message = ask(history)
        while message.stop_reason == "tool_use":
            history.append(
                {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
            )
            history.append({"role": "user", "content": list(results(message))})
            message = ask(history)
        history.append({"role": "assistant", "content": message.content[0].text})
        answers.append(message.content[0].text)
        full = message.usage.input_tokens > 100_000
    print(json.dumps(answers))


main()
