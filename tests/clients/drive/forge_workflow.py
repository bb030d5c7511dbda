"""A workflow of Forge's that is run once for each line, with all messages before it; what is sent of them is compacted
anew each time: `tiered` leaves out results, then words, and `window` all but the first message and the newest steps.
"""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace

from forge import (
    ContextManager,
    Message,
    MessageMeta,
    MessageRole,
    MessageType,
    OpenAICompatClient,
    SlidingWindowCompact,
    TieredCompact,
    ToolDef,
    ToolSpec,
    Workflow,
    WorkflowRunner,
)
from pydantic import BaseModel

JOB = json.load(sys.stdin)
KEPT = 3
STRATEGY = {
    "tiered": TieredCompact(KEPT, phase_thresholds=(0.3, 0.5, 0.9)),
    "window": SlidingWindowCompact(KEPT, compact_threshold=0.3),
}
BUDGET_TOKENS = 400


class Command(BaseModel):
    command: str


class Answer(BaseModel):
    answer: str


def shell(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def tool(name, description, parameters, does):
    return ToolDef(ToolSpec(name=name, description=description, parameters=parameters), does)


async def main():
    tools = {
        "shell": tool("shell", "Runs a command.", Command, shell),
        "final_answer": tool("final_answer", "Answers the user.", Answer, lambda answer: answer),
    }
    workflow = Workflow("operator", "Helps a small team.", tools, [], "final_answer", "You help a small team.")
    history = [Message(MessageRole.SYSTEM, workflow.build_system_prompt(), MessageMeta(MessageType.SYSTEM_PROMPT))]
    context = ContextManager(STRATEGY[sys.argv[1]], BUDGET_TOKENS)
    client = OpenAICompatClient("gpt-5-mini", JOB["url"] + "/v1", api_key="sk-dummy-forge")
    answers = []
    for line in JOB["lines"]:
        before = len(history)  # each run counts its steps from none; in the history they go on

        def keep(message, before=before):
            step = (message.metadata.step_index or 0) + before
            history.append(replace(message, metadata=replace(message.metadata, step_index=step)))

        runner = WorkflowRunner(client, context, on_message=keep)
        history.append(Message(MessageRole.USER, line, MessageMeta(MessageType.USER_INPUT)))
        answers.append(await runner.run(workflow, line, initial_messages=history))
    print("\n" + json.dumps(answers))


asyncio.run(main())
