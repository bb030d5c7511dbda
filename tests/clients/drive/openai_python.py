"""The OpenAI SDK for Python, chat completions, streamed, a shell tool; a summary replaces all but the last messages."""

import json
import subprocess
import sys

from openai import OpenAI

JOB = json.load(sys.stdin)
CLIENT = OpenAI(base_url=JOB["url"] + "/v1", api_key="sk-dummy-openai-python")
SYSTEM = {"role": "system", "content": "You help a small team to run its services. Be brief."}
SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
KEPT = 3
"""Messages that survive a compaction."""


def ask(messages):
    """The assistant's message, put together from its stream."""
    text, calls = "", {}
    stream = CLIENT.chat.completions.create(
        model="gpt-5-mini",
        messages=[SYSTEM, *messages],
        tools=[SHELL],
        stream=True,
        stream_options={"include_usage": True},
    )
    full = False
    for chunk in stream:
        full = full or bool(chunk.usage and chunk.usage.prompt_tokens > 100_000)
        delta = chunk.choices[0].delta if chunk.choices else None
        text += (delta and delta.content) or ""
        for call in (delta and delta.tool_calls) or []:
            calls.setdefault(call.index, call)
    message = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [call.model_dump(exclude={"index"}) for call in calls.values()]
    return message, full


def summarise(messages):
    talk = "\n".join(f"{m['role']}: {m.get('content') or ''}" for m in messages)
    prompt = f"Write a summary of this conversation, so that it can go on without it:\n\n{talk}"
    answer = CLIENT.chat.completions.create(model="gpt-5-mini", messages=[{"role": "user", "content": prompt}])
    return answer.choices[0].message.content


def main():
    history, answers = [], []
    for line in JOB["lines"]:
        history.append({"role": "user", "content": line})
        message, full = ask(history)
        while message.get("tool_calls"):
            history.append(message)
            for call in message["tool_calls"]:
                command = json.loads(call["function"]["arguments"])["command"]
                output = subprocess.run(command, shell=True, capture_output=True, text=True).stdout
                history.append({"role": "tool", "tool_call_id": call["id"], "content": output})
            message, full = ask(history)
        history.append(message)
        answers.append(message["content"])
        if full:
            summary = {"role": "user", "content": f"Summary of our conversation so far: {summarise(history)}"}
            history = [summary, *history[-KEPT:]]
            while history[1]["role"] == "tool":
                del history[1]
    print(json.dumps(answers))


main()
