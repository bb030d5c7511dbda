"""An assistant of Qwen-Agent: of what is too long the oldest goes, and the oldest that is left loses its middle."""

import json
import subprocess
import sys

from qwen_agent.agents import Assistant
from qwen_agent.tools.base import BaseTool, register_tool

JOB = json.load(sys.stdin)
TOKENS = 150
"""Of the input."""


FORM = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


@register_tool("shell")
class Shell(BaseTool):
    description = "Runs a command."
    parameters = FORM

    def call(self, params, **kwargs):
        return subprocess.run(json.loads(params)["command"], shell=True, capture_output=True, text=True).stdout


def main():
    endpoint = {"model_type": "oai", "model": "gpt-5-mini", "model_server": JOB["url"] + "/v1", "api_key": "sk-dummy"}
    model = endpoint | {"generate_cfg": {"max_input_tokens": TOKENS, "use_raw_api": True}}
    assistant = Assistant(llm=model, system_message="You help a small team.", function_list=["shell"])
    messages, answers = [], []
    for line in JOB["lines"]:
        messages.append({"role": "user", "content": line})
        *_, said = assistant.run(messages=messages)
        messages += said
        answers.append(said[-1]["content"])
    print("\n" + json.dumps(answers))


main()
