"""Open Interpreter, streamed: its newest messages stand in the request, as many as its count of tokens lets in."""

import json
import os
import sys

import tiktoken

JOB = json.load(sys.stdin)
BYTES = tiktoken.Encoding(
    "bytes", pat_str="(?s:.)", mergeable_ranks={bytes([n]): n for n in range(256)}, special_tokens={}
)
tiktoken.encoding_for_model = tiktoken.get_encoding = lambda name: BYTES  # others would be fetched
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "DISABLE_TELEMETRY": "true"}

from interpreter import OpenInterpreter  # noqa: E402


def main():
    agent = OpenInterpreter(auto_run=True, offline=True, disable_telemetry=True)
    model = agent.llm
    model.model, model.api_base, model.api_key = "openai/gpt-4o-mini", JOB["url"] + "/v1", "sk-dummy-interpreter"
    model.context_window, model.max_tokens = 1_000, 100
    model.supports_functions, model.supports_vision = True, False
    agent.system_message, model.execution_instructions = "You help a small team.", ""
    said = (agent.chat(line, display=False) for line in JOB["lines"])
    print("\n" + json.dumps([messages[-1]["content"].strip() for messages in said]), flush=True)
    os._exit(0)  # its shell goes on


main()
