"""A LlamaIndex chat engine over a memory that summarises what does not fit its token limit."""

import json
import sys

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatSummaryMemoryBuffer
from llama_index.llms.openai_like import OpenAILike

JOB = json.load(sys.stdin)


def main():
    llm = OpenAILike(
        model="gpt-5-mini",
        api_base=JOB["url"] + "/v1",
        api_key="sk-dummy-llama-index",
        is_chat_model=True,
        context_window=128_000,
    )
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=llm, token_limit=130, tokenizer_fn=str.split)
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory, system_prompt="You help a small team.")
    print(json.dumps([str(engine.chat(line)) for line in JOB["lines"]]))


main()
