"""Swival, a coding agent, several turns in one session; it compacts when the model refuses what is too long."""

import json
import sys

from swival import Session

JOB = json.load(sys.stdin)


def main():
    with Session(
        provider="generic", base_url=JOB["url"] + "/v1", api_key="sk-dummy-swival", model="gpt-5-mini", yolo=True,
        memory=False, history=False, continue_here=False, retries=1, no_skills=True,
    ) as session:  # fmt: skip
        print("\n" + json.dumps([session.ask(line).answer for line in JOB["lines"]]))


main()
