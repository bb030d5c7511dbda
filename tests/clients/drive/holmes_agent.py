"""HolmesGPT's loop of tools, which has its history summed up under its own prompt and with its tools."""

import json
import os
import sys

JOB = json.load(sys.stdin)
WINDOW = {"OVERRIDE_MAX_CONTENT_SIZE": "15000", "OVERRIDE_MAX_OUTPUT_TOKEN": "1"}
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "CONTEXT_WINDOW_COMPACTION_THRESHOLD_PCT": "2", **WINDOW}

from holmes.core.llm import DefaultLLM  # noqa: E402
from holmes.core.tool_calling_llm import ToolCallingLLM  # noqa: E402
from holmes.core.tools import ToolsetStatusEnum, YAMLTool, YAMLToolset  # noqa: E402
from holmes.core.tools_utils.tool_executor import ToolExecutor  # noqa: E402


def main():
    shell = YAMLTool(name="shell", description="Runs a command.", command="{{ command }}")
    tools = YAMLToolset(name="shell", description="A shell.", tools=[shell], enabled=True)
    tools.status = ToolsetStatusEnum.ENABLED
    llm = DefaultLLM("openai/gpt-4o", "sk-dummy-holmes", JOB["url"] + "/v1")
    agent, answers = ToolCallingLLM(ToolExecutor([tools]), 10, llm, None), []
    messages = [{"role": "system", "content": "You help a small team to run its services."}]
    for line in JOB["lines"]:
        done = agent.call([*messages, {"role": "user", "content": line}])
        messages = done.messages
        answers.append(done.result)
    print("\n" + json.dumps(answers))


main()
