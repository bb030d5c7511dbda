"""A pydantic-ai agent with the compactions of pydantic-ai-harness: a summary beside what its user said, a window with a
note of what it holds no more, cleared results, or those steps left out that a judge (here a function) does not want."""

import asyncio
import sys

from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness.compaction import (
    ClearToolResults,
    RelevanceCompaction,
    SlidingWindowCompaction,
    SummarizingCompaction,
)
from pydantic_talk import MODEL, talk


def judge(_messages, info):
    """No step is needed to the letter, and none matters."""
    form = info.output_tools[0]
    fields = form.parameters_json_schema["properties"]
    return ModelResponse(parts=[ToolCallPart(form.name, dict.fromkeys(fields, 0.3))])


FORGETS = {
    "summary": SummarizingCompaction(
        model=MODEL, max_messages=8, keep_messages=3, keep_user_messages=True, receipts=True
    ),
    "window": SlidingWindowCompaction(max_messages=8, keep_messages=4, receipts=True),
    "clear": ClearToolResults(max_messages=6, keep_pairs=1, clear_tool_inputs=True),
    "relevance": RelevanceCompaction(
        FunctionModel(judge), max_tokens=1_900, target_tokens=300, keep_tokens=60, truncated_result_chars=20
    ),
}

asyncio.run(talk([FORGETS[sys.argv[1]]]))
