"""A client that always sends its whole history, behind a gateway that compacts it; the argument names the gateway."""

import json
import os
import socket
import subprocess
import sys
import time

from openai import OpenAI

JOB = json.load(sys.stdin)
BIN = os.path.join(os.environ["CLIENT_FOLDER"], "bin")
COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [{"type": "function", "function": {"name": "shell", "description": "Runs a command.", "parameters": COMMAND}}]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def gateway(name, port):
    """(command, variables) by which the gateway listens there, and compacts soon."""
    root, url = JOB["url"], JOB["url"] + "/v1"
    if name == "cliff":
        few = ["--threshold", "350", "--keep-recent", "3", "--result-max-chars", "60"]
        return [f"{BIN}/cliff", "serve", "--port", str(port), "--openai-upstream", url, *few], {}
    if name == "ctxkeeper":
        few = ["--budget", "420", "--reply-reserve", "40", "--headroom", "20", "--notes-thinking", "unset"]
        return [f"{BIN}/ctxkeeper", "--port", str(port), "--upstream", root, *few], {}
    few = {"GUARDIAN_NUM_CTX": "600", "GUARDIAN_RESERVE_OUTPUT": "100", "GUARDIAN_KEEP_RECENT_MESSAGES": "3"}
    own = {"GUARDIAN_PORT": str(port), "GUARDIAN_UPSTREAM_URL": url, "GUARDIAN_COMPACT_THRESHOLD": "0.5"}
    return [f"{BIN}/context-guardian"], {**few, **own}


def answer(client, history):
    """The model's words, once it has called for all that it wants."""
    while True:
        request = {"model": "gpt-5-mini", "messages": history, "tools": TOOLS}
        said = client.chat.completions.create(**request).choices[0].message
        history.append(said.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        if not said.tool_calls:
            return said.content
        for call in said.tool_calls:
            given = json.loads(call.function.arguments)["command"]
            told = subprocess.run(given, shell=True, capture_output=True, text=True).stdout
            history.append({"role": "tool", "tool_call_id": call.id, "content": told})


def main():
    port = free_port()
    command, variables = gateway(sys.argv[1], port)
    started = subprocess.Popen(command, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    while started.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-dummy-gateway", max_retries=0)
    history, answers = [{"role": "system", "content": "You help a small team to run its services."}], []
    for line in JOB["lines"]:
        history.append({"role": "user", "content": line})
        answers.append(answer(client, history))
    started.terminate()
    print("\n" + json.dumps(answers))


main()
