"""A Pipecat bot without its voices. It sums up what came before beside the talk, which goes on meanwhile."""

import asyncio
import json
import os
import subprocess
import sys

from loguru import logger
from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import LLMFullResponseEndFrame, LLMMessagesAppendFrame, LLMTextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMAssistantAggregatorParams, LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.utils.context.llm_context_summarization import LLMAutoContextSummarizationConfig, LLMContextSummaryConfig
from pipecat.workers.runner import WorkerRunner

JOB = json.load(sys.stdin)
PAUSE_S = 1


class Listener(FrameProcessor):
    """Puts each answer into a queue."""

    def __init__(self):
        super().__init__()
        self.heard, self.answers = "", asyncio.Queue()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self.heard += frame.text
        await self.push_frame(frame, direction)
        if isinstance(frame, LLMFullResponseEndFrame) and self.heard:
            self.answers.put_nowait(self.heard)
            self.heard = ""


def run(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


async def shell(params):
    await params.result_callback(run(params.arguments["command"]))


async def main():
    logger.remove()
    settings = OpenAILLMService.Settings(model="gpt-4.1-mini", system_instruction="You help a small team.")
    llm = OpenAILLMService(api_key="sk-dummy-pipecat", base_url=JOB["url"] + "/v1", settings=settings)
    llm.register_function("shell", shell)
    command = {"command": {"type": "string"}}
    form = FunctionSchema(name="shell", description="Runs a command.", properties=command, required=["command"])
    config = LLMAutoContextSummarizationConfig(
        max_context_tokens=None, max_unsummarized_messages=7,
        summary_config=LLMContextSummaryConfig(min_messages_after_summary=2),
    )  # fmt: skip
    params = LLMAssistantAggregatorParams(
        enable_auto_context_summarization=True, auto_context_summarization_config=config
    )
    context = LLMContextAggregatorPair(LLMContext(tools=ToolsSchema(standard_tools=[form])), assistant_params=params)
    listener = Listener()
    worker = PipelineWorker(
        Pipeline([context.user(), llm, listener, context.assistant()]), cancel_on_idle_timeout=False
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    answers = []
    for line in JOB["lines"]:
        await worker.queue_frame(LLMMessagesAppendFrame([{"role": "user", "content": line}], run_llm=True))
        answers.append(await listener.answers.get())
        await asyncio.sleep(PAUSE_S)  # a summary is made meanwhile
    print("\n" + json.dumps(answers), flush=True)
    running.cancel()
    os._exit(0)


asyncio.run(main())
