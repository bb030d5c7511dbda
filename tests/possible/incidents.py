"""What happens beside turns: retries, edits, branches, and calls that are not the conversation.

await INCIDENTS[name](conversation)
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

from clients.dialects import Reply

from possible.conversation import AGENT_SYSTEM, HANDED_OVER, Conversation
from possible.talk import Fact
from possible.wire import Msg

SIDE, SIDE_OR_NEW = frozenset({"side"}), frozenset({"side", "new"})
RETRY = frozenset({"retry"})


def _spoken(c: Conversation) -> list[int]:
    """Where the user speaks."""
    return [at for at, m in enumerate(c.held) if m.role == "user" and m.number]


def _may_go_back(c: Conversation) -> bool:
    return len(_spoken(c)) >= 3 and c.view is None


def _side_right(c: Conversation) -> frozenset[str]:
    """Without an id, nothing may tell whose call it is."""
    return SIDE if c.client.ids in ("header", "metadata") else SIDE_OR_NEW


# --- the same again -----------------------------------------------------------------------------------------------


async def _retry(c: Conversation, *, first: dict[str, object], then: dict[str, object], right: frozenset[str]) -> None:
    """A request that is sent again. The model may say something else."""
    reply, fact = c.reply()
    c.held.append(c.user())
    await c.send(c.held, {"turn"}, "before retry", reply=reply, **first)  # type: ignore[arg-type]
    if c.rng.random() < 0.5:
        reply = Reply(text=c.talk.message(fact))
    c.keep(await c.send(c.held, right, "retry", reply=reply, again=True, **then), fact)  # type: ignore[arg-type]


async def retry(c: Conversation) -> None:
    await _retry(c, first={}, then={}, right=RETRY)


async def retry_otherwise(c: Conversation) -> None:
    """With other settings."""
    await _retry(c, first={"more": {"user": "a"}}, then={"more": {"user": "b", "temperature": 0.3}}, right=RETRY)


async def retry_after_error(c: Conversation) -> None:
    await _retry(c, first={"status": c.rng.choice((429, 500, 503))}, then={}, right=RETRY | {"turn"})


async def retry_after_half(c: Conversation) -> None:
    """The answer broke off."""
    await _retry(c, first={"complete": False}, then={}, right=RETRY)


async def go_on(c: Conversation) -> None:
    """A short text that was said before."""
    for _ in range(2):
        await c.turn("go on", said=Msg("user", (c.words.go_on,), number=next(c.numbers)))


# --- back -----------------------------------------------------------------------------------------------------------


async def edit(c: Conversation) -> None:
    if _may_go_back(c):
        c.take_back(_spoken(c)[-1])
        await c.turn("edit", {"branch", "retry"})


async def regenerate(c: Conversation) -> None:
    if _may_go_back(c):
        at = _spoken(c)[-1]
        said = c.held[at]
        facts = {value: c.facts[value] for value, number in c.said_in.items() if number == said.number}
        c.take_back(at)
        c.facts |= facts
        c.said_in |= dict.fromkeys(facts, said.number)
        await c.turn("regenerate", {"retry", "branch"}, said=said)


async def rewind(c: Conversation) -> None:
    if _may_go_back(c):
        spoken = _spoken(c)
        c.take_back(spoken[-c.rng.randint(2, min(4, len(spoken) - 1))])
        await c.turn("rewind", {"branch"})


async def there_and_back(c: Conversation) -> None:
    """An edit, and then on with what it had replaced."""
    if _may_go_back(c):
        before = list(c.held), dict(c.facts), dict(c.said_in)
        c.take_back(_spoken(c)[-1])
        await c.turn("away", {"branch", "retry"})
        c.held, c.facts, c.said_in = before
        await c.turn("back", {"branch", "turn"})


# --- side calls -----------------------------------------------------------------------------------------------------


async def _agent(c: Conversation, prompt: str, op: str) -> None:
    history, right = [Msg("user", (prompt,))], _side_right(c)
    for _ in range(c.rng.randint(1, 3)):
        reply = Reply(tool="search", arguments=f'{{"q": "{c.rng.randrange(10**6)}"}}')
        said = await c.send_side(history, right, op, reply=reply, system=AGENT_SYSTEM, tools=("search",))
        history += [said, Msg("result", (f"row {c.rng.randrange(10**6)}: nothing here",), call=said.call)]
        right |= {"turn"} if "new" in right else set()
    found = Reply(text=f"Nothing was found in {c.rng.randrange(10**6)} files of the folder.")
    await c.send_side(history, right, op, reply=found, system=AGENT_SYSTEM, tools=("search",))


def _task(c: Conversation) -> str:
    return f"Look for every file that speaks of number {c.rng.randrange(10**6)} and list their names, one a line."


async def agent(c: Conversation) -> None:
    """Another prompt and other tools, under the same id or none."""
    await _agent(c, _task(c), "agent")


async def delegated(c: Conversation) -> None:
    """The model itself wrote the sub-agent's prompt."""
    if c.client.tools:
        c.held.append(c.user())
        task = _task(c)
        call = await c.call("task", {"prompt": task, "kind": "search"})
        await _agent(c, task, "delegated")
        c.result(call, lambda _: "The agent found nothing.")
        reply, fact = c.reply()
        c.keep(await c.send(c.held, {"turn"}, "result", reply=reply), fact)


async def handed_over(c: Conversation) -> None:
    """Another agent goes on with it, under orders and tools of its own; perhaps the first one begins the next turn."""
    if not c.client.tools:
        return
    c.held.append(c.user())
    call = await c.call("hand_over", {})
    first, c.agent = c.agent, c.rng.choice([n for n in range(len(HANDED_OVER)) if n != c.agent])
    c.result(call, lambda _: "Handed over.")
    reply, fact = c.reply()
    c.keep(await c.send(c.held, {"turn"}, "handed over", reply=reply), fact)
    if c.rng.random() < 0.5:
        c.agent = first


async def _title(c: Conversation, said: Msg, right: frozenset[str]) -> None:
    plain = Msg("user", (said.text,))
    reply = Reply(text=c.talk.filler(1)[:30])
    await c.send_side([plain], right, "title", reply=reply, system=c.words.title, tools=())


async def title_first(c: Conversation, said: Msg) -> None:
    """Asked for before the conversation begins with `said`."""
    await _title(c, said, SIDE_OR_NEW)


async def title_later(c: Conversation) -> None:
    if spoken := _spoken(c):
        await _title(c, c.held[spoken[0]], _side_right(c))


async def ideas(c: Conversation) -> None:
    """What the user may ask next: the conversation pasted into one message."""
    pasted = "\n".join(f"{m.role.upper()}: {m.text}" for m in c.shown()[-6:])
    task = f"### Task:\n{c.words.ideas}\n### Chat History:\n<chat_history>\n{pasted}\n</chat_history>"
    await c.send_side(
        [Msg("user", (task,))], SIDE, "ideas", reply=Reply(text='{"follow_ups": ["a", "b"]}'), system="", tools=()
    )


async def summary_by_hand(c: Conversation) -> None:
    """The user wishes for a summary; the client goes on as before."""
    c.held.append(Msg("user", (c.words.by_hand,), number=next(c.numbers)))
    reply = Reply(text=c.talk.summary(c.facts.values(), c.client.language))
    c.keep(await c.send(c.held, {"turn"}, "summary by hand", reply=reply))


# --- of late --------------------------------------------------------------------------------------------------------


async def updated(c: Conversation) -> None:
    """Its program is another version now, with more to say to its model."""
    c.version += 1
    await c.turn("updated")


async def two_windows(c: Conversation) -> None:
    """Two windows go on with one history by turns."""
    if _may_go_back(c):
        c.open_window()
        for at in range(5):
            if at:
                c.change_window()
            await c.turn("two windows", {"turn", "branch"})


async def _cut_off(c: Conversation) -> tuple[str, str, Fact]:
    """The user stops the model, and the client keeps what it showed. Returns that, what was to come, and its detail."""
    reply, fact = c.reply()
    words = reply.text.split(" ")
    kept = " ".join(words[: len(words) // 3 + 1])
    c.held.append(c.user())
    said = await c.send(c.held, {"turn"}, "stopped", reply=reply, complete=False)
    c.keep(replace(said, texts=(kept,), item=""), fact if fact.value in kept else None)
    c.judge.take_back("\n".join(m.text for m in c.held))
    return kept, reply.text[len(kept) :], fact


async def stopped(c: Conversation) -> None:
    """The user stops the model, and says something else; perhaps the client writes that the answer was stopped."""
    if c.client.stream:
        await _cut_off(c)
        said = c.user()
        mark = c.rng.choice(((), ("[Request interrupted by user]",)))
        await c.turn("after a stop", said=replace(said, texts=(*mark, *said.texts)))


async def continued(c: Conversation) -> None:
    """The user stops the model, and lets it go on with that answer, which is one then."""
    if c.client.stream:
        kept, rest, fact = await _cut_off(c)
        right = {"turn", "retry", "branch"}
        begun, thought = c.held[-1], replace(c.held[-1], thought="")
        said = await c.send([*c.held[:-1], thought], right, "continued", reply=Reply(text=rest))
        c.held[-1] = replace(begun, texts=(kept + said.text,))
        c.facts[fact.value], c.said_in[fact.value] = fact, begun.number
        await c.turn("after it was continued", {"turn", "branch"})


async def steered(c: Conversation) -> None:
    """The user says something while a tool is at work: it follows what the tool gave."""
    if c.client.tools:
        c.held.append(c.user())
        call = await c.call("read", {"path": f"notes/{c.rng.randrange(10**6)}.txt"})
        c.result(call, lambda number: c.talk.result(c.note(number)))
        await c.turn("steered")


async def queued(c: Conversation) -> None:
    """The user says several things in a row."""
    c.held += [c.user() for _ in range(c.rng.randint(1, 2))]
    await c.turn("queued")


async def corrected(c: Conversation) -> None:
    """The user writes into the last answer what the model should have said."""
    if _may_go_back(c) and c.held[-1].role == "assistant" and not c.held[-1].call:
        number = c.held[-1].number
        c.take_back(len(c.held) - 1)
        text = c.talk.message(c.note(number))
        c.held.append(Msg("assistant", (text,), number=number))
        await c.turn("corrected", {"turn", "branch"})


async def nothing_said(c: Conversation) -> None:
    """The model says nothing: its client shows an empty answer, or takes it and what was asked back."""
    c.held.append(c.user())
    said = await c.send(c.held, {"turn"}, "nothing said", reply=Reply())
    if _may_go_back(c) and c.rng.random() < 0.5:
        c.take_back(len(c.held) - 1)
    else:
        c.keep(replace(said, item=""))
    await c.turn("after nothing", {"turn", "branch", "retry"})


async def nothing(c: Conversation) -> None:
    """An incident that play.py times by itself."""


INCIDENTS: dict[str, Callable[[Conversation], Awaitable[None]]] = {
    "retry": retry, "retry_otherwise": retry_otherwise, "retry_after_error": retry_after_error,
    "retry_after_half": retry_after_half, "go_on": go_on, "edit": edit, "regenerate": regenerate, "rewind": rewind,
    "there_and_back": there_and_back, "agent": agent, "delegated": delegated, "handed_over": handed_over,
    "title_first": nothing, "title_later": title_later, "ideas": ideas, "summary_by_hand": summary_by_hand,
    "undo": nothing,
}  # fmt: skip
MORE: dict[str, Callable[[Conversation], Awaitable[None]]] = {
    "updated": updated, "two_windows": two_windows, "rejected": nothing, "mid_turn": nothing,
}  # fmt: skip
"""What draw(more=True) adds."""
OF_LATE: dict[str, Callable[[Conversation], Awaitable[None]]] = {
    "stopped": stopped, "continued": continued, "steered": steered, "queued": queued, "corrected": corrected,
    "nothing_said": nothing_said,
}  # fmt: skip
"""What draw(more=2) adds to that."""
UNCHAINED = frozenset({**INCIDENTS, **MORE, **OF_LATE}) - {"go_on", "summary_by_hand", "updated"}
"""Those that a client which sends only what is new does not have here."""


async def mid_turn(c: Conversation) -> None:
    """A tool gives so much that the client gets a summary before it shows that to its model."""
    c.held.append(c.user())
    call = await c.call("read", {"path": f"notes/{c.rng.randrange(10**6)}.txt"})
    c.result(call, lambda number: c.talk.result(c.note(number)))


SHOW_ALL = frozenset({"instruction", "instruction_short", "instruction_without_tools", "own_system_history", "tool"})
"""Ways to get a summary in which the whole history is shown, message by message."""


# --- a call for a summary -------------------------------------------------------------------------------------------


async def summarise(c: Conversation, text: str) -> str:
    """The client gets `text` as its summary, somehow. Returns what it makes of the answers.

    Where the call has the form of a turn, nobody can tell it from a user's wish.
    """
    how, told, reply = c.client.summarising, c.words.summarise, Reply(text=text)
    back = {"branch"} if "rejected" in c.client.incidents else set[str]()  # to the whole history
    shown, loose = c.shown(), SIDE | {"turn", "retry"} | back
    long = told * -(-700 // len(told))
    transcript = "\n".join(f"{m.role.upper()}: {m.text}" for m in shown if m.text)
    if how == "instruction":
        await c.send_side([*shown, Msg("user", (long,))], loose, how, reply=reply)
    elif how == "instruction_short":
        await c.send_side([*shown, Msg("user", (told[:90],))], loose, how, reply=reply)
    elif how == "instruction_without_tools":
        await c.send_side([*shown, Msg("user", (long,))], loose, how, reply=reply, tools=())
    elif how == "instruction_part":
        at = max(at for at, m in enumerate(shown) if m.role == "user")
        shown[at] = replace(shown[at], texts=(*shown[at].texts, long))
        await c.send_side(shown, loose | {"branch"}, how, reply=reply)
    elif how == "own_system_transcript":
        await c.send_side([Msg("user", (transcript,))], SIDE, how, reply=reply, system=told, tools=())
    elif how == "own_system_history":
        known = c.has_tools and c.client.system not in ("absent", "in_user")
        history = [*shown, Msg("user", (told[:60],))]
        await c.send_side(history, SIDE if known else loose, how, reply=reply, system=told, tools=())
    elif how == "transcript":
        task = Msg("user", (f"{told}\n\n{transcript}",))
        await c.send_side([task], SIDE, how, reply=reply, system="", tools=())
    elif how == "tool":
        return await _through_tool(c, [*shown, Msg("user", (told,))], text, loose)
    elif how == "halves":
        return await _in_halves(c, transcript, text)
    return text


async def _through_tool(c: Conversation, history: list[Msg], text: str, right: frozenset[str]) -> str:
    reply = Reply(tool="summarize_task", arguments=json.dumps({"context": text}, ensure_ascii=False))
    tools = ("read", "search", "summarize_task") if c.client.tools else ("summarize_task",)
    await c.send_side(history, right, "tool", reply=reply, tools=tools)
    return text


async def _in_halves(c: Conversation, transcript: str, text: str) -> str:
    told, half, cut = c.words.summarise, len(transcript) // 2, len(text) // 2
    for part, summary in ((transcript[:half], text[:cut]), (transcript[half:], text[cut:])):
        await c.send_side([Msg("user", (part,))], SIDE, "halves", reply=Reply(text=summary), system=told, tools=())
    return f"{text[:cut]}\n\n---\n\n{text[cut:]}"
