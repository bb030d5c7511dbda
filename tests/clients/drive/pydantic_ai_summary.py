"""A pydantic-ai agent with capabilities of summarization-pydantic-ai: a summary stands for all but the newest, perhaps
with a warning behind what its user says, or only the first message and the newest are left."""

import asyncio
import sys

from pydantic_ai_summarization.capability import LimitWarnerCapability, SlidingWindowCapability, SummarizationCapability
from pydantic_talk import MODEL, talk

SUMMARY = SummarizationCapability(model=MODEL, trigger=("messages", 8), keep=("messages", 3))
FORGETS = {
    "summary": [SUMMARY],
    "warner": [LimitWarnerCapability(max_context_tokens=120, warning_threshold=0.1), SUMMARY],
    "window": [SlidingWindowCapability(trigger=("messages", 8), keep=("messages", 4), keep_head=("messages", 1))],
}

asyncio.run(talk(FORGETS[sys.argv[1]]))
