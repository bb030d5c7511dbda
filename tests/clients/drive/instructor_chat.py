"""A chat with Instructor: each answer is the call of a tool and goes into the history as JSON; the newest are kept."""

import json
import sys

import instructor
from openai import OpenAI
from pydantic import BaseModel

JOB = json.load(sys.stdin)
KEPT = 7
"""Messages, the newest one of the user included."""


class Reply(BaseModel):
    """What is said to the user."""

    text: str
    sources: list[str] = []


def main():
    client = instructor.from_openai(OpenAI(base_url=JOB["url"] + "/v1", api_key="sk-dummy-instructor"))
    system = {"role": "system", "content": "You help a small team to run its services."}
    history, answers = [], []
    for line in JOB["lines"]:
        history = [*history, {"role": "user", "content": line}][-KEPT:]
        reply = client.create(model="gpt-5-mini", response_model=Reply, messages=[system, *history])
        history.append({"role": "assistant", "content": reply.model_dump_json()})
        answers.append(reply.text)
    print(json.dumps(answers))


main()
