"""A branch of lionagi whose active view is folded before its requests grow too long."""

import asyncio
import json
import sys

JOB = json.load(sys.stdin)

import tiktoken  # noqa: E402


class Pairs:
    """Counts two letters as a token, since the encodings that are counted with would have to be fetched."""

    def encode(self, text, **_):
        return [text[i : i + 2] for i in range(0, len(text), 2)]

    def decode(self, tokens):
        return "".join(tokens)


tiktoken.get_encoding = tiktoken.encoding_for_model = lambda name: Pairs()

from lionagi import Branch, iModel  # noqa: E402
from lionagi.agent.context_fold import install_context_fold  # noqa: E402


async def main():
    model = iModel(
        provider="openai", model="gpt-4.1-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-lionagi",
        allow_local_network=True,
    )  # fmt: skip
    branch = Branch(chat_model=model, system="You help a small team.")
    install_context_fold(branch, cap=850)
    answers = [await branch.communicate(line) for line in JOB["lines"]]
    print("\n" + json.dumps(answers))


asyncio.run(main())
