"""An agent of tRPC-Agent that forgets by its argument: summary (after a turn), compact (before a request is sent) or
clear (old results of tools).
"""

import asyncio
import json
import subprocess
import sys

from trpc_agent_sdk.agents import LlmAgent
from trpc_agent_sdk.models import OpenAIModel
from trpc_agent_sdk.runners import Runner
from trpc_agent_sdk.sessions import InMemorySessionService
from trpc_agent_sdk.sessions.compact import (
    AdvancedAutoCompactSummarizer,
    AdvancedAutoCompactSummarizerConfig,
    AdvancedAutoCompactSummarizerFilter,
    AdvancedAutoCompactSummarizerManager,
    AutoCompactSummarizerConfig,
    DefaultSessionSummarizer,
    DefaultSessionSummarizerManager,
    MicroCompactConfig,
    SessionMemoryExtractorConfig,
    TokenContextTrackerConfig,
    set_summarizer_events_count_threshold,
)
from trpc_agent_sdk.tools import FunctionTool
from trpc_agent_sdk.types import Content, Part

JOB = json.load(sys.stdin)
HOW = sys.argv[1]
FILTERS = [] if HOW == "summary" else [AdvancedAutoCompactSummarizerFilter()]
ADDRESS = {"api_key": "sk-dummy-trpc", "base_url": JOB["url"] + "/v1"}
MODEL = OpenAIModel(model_name="gpt-5-mini", filters=FILTERS, **ADDRESS)


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


def summary():
    due = [set_summarizer_events_count_threshold(7)]
    summarizer = DefaultSessionSummarizer(MODEL, check_summarizer_functions=due, keep_recent_count=3)
    return DefaultSessionSummarizerManager(MODEL, summarizer)


def advanced(**more):
    off = {"session_memory": SessionMemoryExtractorConfig(enabled=False),
           "token_context_tracker": TokenContextTrackerConfig(enabled=False)}  # fmt: skip
    config = AdvancedAutoCompactSummarizerConfig(**off, **more)
    return AdvancedAutoCompactSummarizerManager(AdvancedAutoCompactSummarizer(config, model=MODEL))


def compact():
    sizes = {"trigger_chars": 1_600, "target_chars": 900, "blocking_chars": 9_000, "keep_recent_contents": 3}
    return advanced(auto_compact=AutoCompactSummarizerConfig(**sizes))


def clear():
    return advanced(micro_compact=MicroCompactConfig(trigger_count=1, keep_recent=1, tool_names=("shell",)))


async def main():
    agent = LlmAgent(name="helper", model=MODEL, instruction="You help a small team.", tools=[FunctionTool(shell)])
    service = InMemorySessionService(summarizer_manager=globals()[HOW]())
    runner = Runner(app_name="talk", agent=agent, session_service=service)
    answers = []
    for line in JOB["lines"]:
        said = Content(role="user", parts=[Part.from_text(text=line)])
        async for event in runner.run_async(user_id="user", session_id="talk", new_message=said):
            if event.content and not event.partial and (text := "".join(p.text or "" for p in event.content.parts)):
                answer = text
        answers.append(answer)
    print("\n" + json.dumps(answers))


asyncio.run(main())
