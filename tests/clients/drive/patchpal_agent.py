"""PatchPal's agent, which compacts what its window is too small for into a message of the assistant."""

import contextlib
import json
import os
import sys

JOB = json.load(sys.stdin)
os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "dummy-patchpal", "OPENAI_API_BASE": JOB["url"] + "/v1",
    "PATCHPAL_CONTEXT_LIMIT": "6500", "PATCHPAL_REQUIRE_PERMISSION": "false",
}  # fmt: skip

from patchpal.agent import create_agent  # noqa: E402


def main():
    with contextlib.redirect_stdout(sys.stderr):
        agent = create_agent("openai/gpt-4o-mini", enabled_tools=["run_shell"])
        answers = [agent.run(line) for line in JOB["lines"]]
    print("\n" + json.dumps(answers))


main()
