"""Exchange, which Goose was made of: a summary of what is popped from the front, or nothing for it.

It has its summary made under another system prompt, of its own messages and with its own tools.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

JOB = json.load(sys.stdin)
TOKENS = Path(importlib.util.find_spec("litellm").origin).parent / "litellm_core_utils/tokenizers"
os.environ.update(
    OPENAI_API_KEY="sk-dummy-exchange", OPENAI_HOST=JOB["url"] + "/", TIKTOKEN_CACHE_DIR=str(TOKENS),
)  # fmt: skip

from exchange import Exchange, Message  # noqa: E402
from exchange.moderators import ContextTruncate  # noqa: E402
from exchange.moderators.summarizer import ContextSummarizer  # noqa: E402
from exchange.providers.openai import OpenAiProvider  # noqa: E402
from exchange.tool import Tool  # noqa: E402

SYSTEM = "You help a small team."


def shell(command: str) -> str:
    """Runs a command.

    Args:
        command (str): The command
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


moderator = {"summary": ContextSummarizer, "truncate": ContextTruncate}[sys.argv[1]](max_tokens=2_900)
provider, tools = OpenAiProvider.from_env(), (Tool.from_function(shell),)
exchange = Exchange(provider=provider, model="gpt-5-mini", system=SYSTEM, moderator=moderator, tools=tools)
# It asks first how large its prompt is, for one request with "a" in it, which begins no conversation: left out.
moderator.last_system_prompt = SYSTEM
moderator.system_prompt_token_count = exchange.checkpoint_data.total_token_count = 2_019
answers = []
for line in JOB["lines"]:
    exchange.add(Message.user(line))
    answers.append(exchange.reply().text)
print("\n" + json.dumps(answers))
