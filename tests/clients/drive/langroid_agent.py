"""A langroid agent: what its model's window does not hold is cut short, message by message, and stays in its place."""

import json
import sys

import tiktoken

JOB = json.load(sys.stdin)
BYTES = tiktoken.Encoding(
    "bytes", pat_str="(?s:.)", mergeable_ranks={bytes([n]): n for n in range(256)}, special_tokens={}
)
tiktoken.encoding_for_model = tiktoken.get_encoding = lambda name: BYTES  # others would be fetched

import langroid as lr  # noqa: E402
from langroid.language_models import OpenAIGPTConfig  # noqa: E402
from langroid.parsing.parser import ParsingConfig, Splitter  # noqa: E402
from langroid.utils.configuration import settings  # noqa: E402


def main():
    settings.quiet, settings.cache = True, False
    model = OpenAIGPTConfig(
        chat_model="scripted", api_base=JOB["url"] + "/v1", api_key="sk-dummy-langroid", chat_context_length=940,
        max_output_tokens=60, min_output_tokens=20, stream=False, cache_config=None,
    )  # fmt: skip
    config = lr.ChatAgentConfig(
        llm=model, system_message="You help a small team.", vecdb=None, parsing=ParsingConfig(splitter=Splitter.TOKENS)
    )
    agent = lr.ChatAgent(config)
    print("\n" + json.dumps([agent.llm_response(line).content for line in JOB["lines"]]))


main()
