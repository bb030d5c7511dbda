"""A chat with OpenAI's SDK whose messages go through a library that shortens them; the argument names it."""

import asyncio
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
    if name == "litellm":
        from litellm.utils import trim_messages

        return lambda messages: trim_messages(messages, model="gpt-4", max_tokens=170), False
    if name == "llm-context-budget":
        return in_budget(summed_up), False
    if name == "compression-prompt":
        from compression_prompt import Compressor, CompressorConfig

        few = Compressor(CompressorConfig(target_ratio=0.5, min_input_tokens=5, min_input_bytes=20))
        return lambda messages: [*messages[:1], *without_words(few, messages[1:])], False
    if name == "convopack":
        from convopack import Packer, SummaryEvict

        return Packer(
            budget=170, strategy=SummaryEvict(lambda dropped: summed_up(told(dropped)), reserve=40)
        ).pack_openai, False
    if name == "ctxfit":
        from ctxfit import SlidingWindow, fit

        window = {"strategies": [SlidingWindow(keep_turns=3, min_turns=2)], "estimator": "heuristic"}
        return lambda messages: fit(messages, total_budget=170, **window)[0], False
    if name == "rollmem":
        return rolled_up(summed_up), False
    if name == "contextclip":
        return clipped, True
    if name == "chatfit":
        return remembered, False
    if name == "nodus-context":
        return within(summed_up), True
    from roleplay_slim import CompressorConfig, compress

    return lambda messages: compress(messages, CompressorConfig(keep_recent_turns=2)), False


def in_budget(summed_up):
    """What is older than the last messages is summed up behind the system prompt, each summary with what follows."""
    from context_budget import pack_messages

    packed = {"summary": "", "summarized_count": 0}

    def summarize(before, dropped):
        told = "\n".join(f"{message['role']}: {message['content']}" for message in dropped)
        return summed_up(f"Summarize. Summary so far: {before or 'none'}\n{told}")

    def shorten(messages):
        budget = {"context_tokens": 300, "response_reserve": 20, "recent_window": 3, "summarize": summarize}
        before = {"summary": packed["summary"], "already_summarized": packed["summarized_count"]}
        found = pack_messages(messages[1:], system_blocks=[messages[0]["content"]], **budget, **before)
        packed.update(summary=found.summary, summarized_count=found.summarized_count)
        return found.messages

    return shorten


def told(messages):
    """Messages of convopack as one text, which asks for their summary."""
    said = (f"{message.role}: {' '.join(block.text for block in message.content)}" for message in messages)
    return "Summarize this conversation:\n" + "\n".join(said)


def rolled_up(summed_up):
    """What no longer fits is added to a summary, which stands behind the system prompt."""
    from rollmem import RollingMemory

    def fold(before, messages):
        said = "\n".join(f"{message.role}: {message.content}" for message in messages)
        return summed_up(f"Summarize. Summary so far: {before or 'none'}\n{said}")

    memory = RollingMemory(max_tokens=140, summarize_fn=fold, token_counter=lambda text: len(text) // 4)
    held = []

    def shorten(messages):
        for message in messages[1 + len(held) :]:
            memory.add_message(message["role"], message["content"])
            held.append(message)
        return messages[:1] + [{"role": each.role, "content": each.content} for each in memory.get_messages()]

    return shorten


def clipped(messages):
    """Where it is full, all but the last messages becomes one text, which is cut off where it is long."""
    from contextclip import ContextClipper, Message

    clipper = ContextClipper(budget_tokens=220, tail_messages=3)
    said = [Message(role=message["role"], content=message["content"]) for message in messages[1:]]
    if clipper.estimate_usage(said) > 150:
        said = asyncio.run(clipper.recover(said)).messages
    return messages[:1] + [{"role": each.role, "content": each.content} for each in said]


def remembered(messages):
    """What no longer fits becomes a list of what the user asked, which is cut where it grows too long."""
    from chatfit import ChatMemory

    memory = ChatMemory(max_tokens=170).set_system(messages[0]["content"])
    for message in messages[1:]:
        memory.add(message["role"], message["content"])
    return memory.render()


def within(summed_up):
    """Where it is full, all between its first and its last messages becomes an answer that sums it up."""
    from nodus_context import ContextBudget, ContextMessage, ContextWindow, SummarizeStrategy

    def shorten(messages):
        window = ContextWindow(ContextBudget(max_tokens=140))
        held = [ContextMessage(role=message["role"], content=message["content"]) for message in messages]
        if not all(window.add(message) for message in held):
            held = SummarizeStrategy(1, 3, summary_fn=lambda middle: summed_up(listed(middle))).compact(held)
        return [{"role": message.role, "content": message.content} for message in held]

    def listed(middle):
        return "\n".join(["Summarize this:", *(f"{message.role}: {message.content}" for message in middle)])

    return shorten


def without_words(few, messages):
    """All but the last three messages, each without the words that tell least."""
    old, recent = messages[:-3], messages[-3:]
    return [*({**message, "content": few.compress(message["content"]).compressed} for message in old), *recent]


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
