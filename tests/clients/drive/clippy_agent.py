"""Clippy's agent as its terminal runs it, with its command /compact. It counts words: its vocabulary is not there."""

import json
import sys

from clippy.agent import ClippyAgent, conversation
from clippy.executor import ActionExecutor
from clippy.permissions import PermissionManager

JOB, MODEL, COMPACT_BEFORE = json.load(sys.stdin), "gpt-5-mini", (4, 6)


class Words:
    def encode(self, text):
        return text.split()


def main():
    conversation._encoding_cache[MODEL] = Words()
    allowed = PermissionManager()
    reached = {"api_key": "sk-dummy-clippy", "base_url": JOB["url"] + "/v1", "model": MODEL}
    agent, answers = ClippyAgent(allowed, ActionExecutor(allowed), **reached), []
    for at, line in enumerate(JOB["lines"]):
        if at in COMPACT_BEFORE:
            done, why, _ = agent.compact_conversation()
            assert done, why
        answers.append(agent.run(line))
    print("\n" + json.dumps(answers))


main()
