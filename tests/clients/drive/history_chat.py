"""A chat with OpenAI's SDK whose messages go through a library that shortens them; the argument names it."""

import json
import sys

from openai import OpenAI

JOB = json.load(sys.stdin)
SYSTEM = {"role": "system", "content": "You help a small team to run its services."}


def ask(client, messages):
    return client.chat.completions.create(model="gpt-5-mini", messages=messages).choices[0].message.content


def shortener(name, summed_up):
    """(what shortens a list of messages, does the chat go on with what is left?); summed_up: text -> its summary"""
    if name == "chatcram":
        from chatcram import Compactor

        compactor = Compactor(200, lambda told: summed_up(f"Summarize this conversation:\n{told}"), keep_recent=90)
        return lambda messages: compactor.compact(messages).messages, True
    if name == "langstate":
        from langstate.compress import compress

        few = {"preserve_recent": 2, "min_turns_to_compress": 4}
        return lambda messages: compress(messages, summarizer=summed_up, **few), True
    if name == "contexttrim":
        from contexttrim.strategies import MiddleDrop

        trim, size = MiddleDrop(), lambda message: len(message["content"]) // 4 + 4
        return lambda messages: messages[:1] + trim.fit(messages[1:], 160, size)[0], False
    from roleplay_slim import CompressorConfig, compress

    return lambda messages: compress(messages, CompressorConfig(keep_recent_turns=2)), False


def main():
    client = OpenAI(base_url=JOB["url"] + "/v1", api_key="sk-dummy-history", max_retries=0)
    shorten, stays_short = shortener(sys.argv[1], lambda text: ask(client, [{"role": "user", "content": text}]))
    history, answers = [SYSTEM], []
    for line in JOB["lines"]:
        history.append({"role": "user", "content": line})
        sent = shorten([*history])
        history = [*sent] if stays_short else history
        answers.append(ask(client, sent))
        history.append({"role": "assistant", "content": answers[-1]})
    print("\n" + json.dumps(answers))


main()
