"""An agentknit agent: when its window is full, its model writes notes, and then sums up all but the newest messages."""

import json
import os
import sys

os.environ["API_KEY"] = "sk-dummy-agentknit"

import agentknit

JOB = json.load(sys.stdin)


def main():
    schema = agentknit.load_specification("gpt-5-mini", JOB["url"] + "/v1")
    client = agentknit.create_client(schema)
    session = agentknit.init_session(
        schema, non_interactive=True, strict_cache_proof=False, on_event=lambda *_: None, durable=False
    )
    answers = [agentknit.run_turn(client, "gpt-5-mini", session, line).final_reply for line in JOB["lines"]]
    print(json.dumps(answers))


main()
