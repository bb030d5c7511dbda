"""A Google ADK agent over LiteLLM whose app compacts its events after every third line of the user, or shows its model
the last two of them alone (`filter`)."""

import asyncio
import json
import subprocess
import sys

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.models.lite_llm import LiteLlm
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import InMemoryRunner
from google.genai import types

JOB = json.load(sys.stdin)


def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def main():
    model = LiteLlm(model="openai/gpt-5-mini", api_base=JOB["url"] + "/v1", api_key="sk-dummy-google-adk")
    agent = LlmAgent(name="operator", model=model, instruction="You help a small team.", tools=[shell])
    compaction = EventsCompactionConfig(summarizer=LlmEventSummarizer(llm=model), compaction_interval=3, overlap_size=1)
    forgets = {"events_compaction_config": compaction}
    if sys.argv[1:] == ["filter"]:
        forgets = {"plugins": [ContextFilterPlugin(num_invocations_to_keep=2)]}
    runner = InMemoryRunner(app=App(name="talk", root_agent=agent, **forgets))
    await runner.session_service.create_session(app_name="talk", user_id="u", session_id="s")
    answers = []
    for line in JOB["lines"]:
        said = types.Content(role="user", parts=[types.Part(text=line)])
        async for event in runner.run_async(user_id="u", session_id="s", new_message=said):
            if event.is_final_response() and event.content and event.content.parts:
                answer = "".join(part.text or "" for part in event.content.parts)
        answers.append(answer)
    print(json.dumps(answers))


asyncio.run(main())
