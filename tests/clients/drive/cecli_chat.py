"""A session of cecli, whose user has it sum up what was said."""

import asyncio
import json
import os
import sys
from contextlib import redirect_stdout

JOB = json.load(sys.stdin)
os.environ.update(OPENAI_API_BASE=JOB["url"] + "/v1", OPENAI_API_KEY="sk-dummy-cecli")

from cecli.main import main_async  # noqa: E402

OPTIONS = [
    "--model", "openai/scripted", "--no-git", "--yes-always", "--no-check-update", "--analytics-disable",
    "--no-auto-lint", "--no-show-model-warnings", "--no-show-release-notes", "--no-pretty", "--map-tokens", "0",
    "--linear-output", "--edit-format", "ask",
]  # fmt: skip
COMPACTED_AFTER = (4, 6)


async def main() -> list[str]:
    coder = await main_async(OPTIONS, return_coder=True)
    answers = []
    for n, line in enumerate(JOB["lines"]):
        await coder.generate(line, preproc=True)  # what its terminal calls for each line
        answers.append(coder.partial_response_content)
        if n in COMPACTED_AFTER:
            await coder.generate("/compact", preproc=True)
    return answers


with redirect_stdout(sys.stderr):
    told = asyncio.run(main())
print("\n" + json.dumps(told), flush=True)
os._exit(0)
