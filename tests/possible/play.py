"""Play clients that could exist through a real proxy, and judge every request.

with Stage(folder) as stage:
    played = asyncio.run(play(draw(7), stage))
    played.faults, played.counts, played.story
"""

import asyncio
import random
import traceback
from collections.abc import Iterable
from dataclasses import dataclass

from possible.client import Client
from possible.compactions import HARMLESS, SILENT, SUMMARISED, VIEWS, Case, wrapped
from possible.conversation import Conversation, Window
from possible.incidents import INCIDENTS, MORE, OF_LATE, SHOW_ALL, UNCHAINED, mid_turn, summarise, title_first
from possible.judge import LOSSES, Fault, Judge, Ledger
from possible.stage import Stage
from possible.talk import LANGUAGES, Fact
from possible.wire import Msg


@dataclass(frozen=True, slots=True)
class Played:
    """What was found of one client."""

    client: Client
    ledger: Ledger

    @property
    def kinds(self) -> frozenset[str]:
        """Of its faults."""
        return frozenset(fault.kind for fault in self.ledger.faults)


async def play(client: Client, stage: Stage, key: str = "") -> Played:
    """The client's conversations from beginning to end. key: its credential, its own by default"""
    ledger, judges, taken = Ledger(), list[Judge](), set[str]()
    conversations = []
    for name in "abc"[: 1 + client.neighbours]:
        judges.append(Judge(client, name, ledger, judges))
        conversations.append(Conversation(client, stage, key or f"key-{client.number}", judges[-1], name, taken))
    try:
        await _talk(client, stage, conversations)
    except Exception:
        ledger.faults.append(Fault("crash", "-", traceback.format_exc(limit=-4)))
    ledger.counts["conversations"] += len(judges)
    ledger.counts["kept whole"] += sum(judge.is_whole for judge in judges)
    return Played(client, ledger)


async def _talk(client: Client, stage: Stage, conversations: list[Conversation]) -> None:
    rng, main = random.Random(f"{client.number} order"), conversations[0]
    await _open(client, conversations, rng)
    for round_ in range(client.rounds):
        turns = client.turns - 1 if round_ == 0 else min(client.turns, rng.randint(2, 8))
        when = [(rng.randrange(turns), name) for name in client.incidents]
        for n in range(turns):
            await main.turn()
            for at, name in when:
                if at == n and not (client.ids == "chain" and name in UNCHAINED):
                    await {**INCIDENTS, **MORE, **OF_LATE}[name](main)
            for neighbour in conversations[1:]:
                if rng.random() < 0.6:
                    await neighbour.turn()
        await _shorten(main, stage, round_)
        main.change_style()
        if main.window and not main.view:
            for _ in range(2):
                main.change_window()
                await main.turn("other window", {"turn", "branch"})
        if conversations[1:] and rng.random() < 0.5:
            await _shorten(conversations[1], stage, round_)
            conversations[1].change_style()
    for conversation in conversations:
        await conversation.turn("last turn")


async def _open(client: Client, conversations: list[Conversation], rng: random.Random) -> None:
    """First turns: one after the other, or at once in the same words."""
    words = LANGUAGES[client.language].greeting
    said = [Msg("user", (words,), number=next(c.numbers)) if client.same_opening else c.user() for c in conversations]
    if "title_first" in client.incidents and client.ids != "chain":
        await title_first(conversations[0], said[0])
    if client.same_opening and len(conversations) > 1 and rng.random() < 0.5:
        all_sent = asyncio.Barrier(len(conversations)).wait
        pairs = zip(conversations, said, strict=True)
        await asyncio.gather(*(c.turn("first turn", {"new"}, said=m, gate=all_sent) for c, m in pairs))
        return
    for c, m in zip(conversations, said, strict=True):
        await c.turn("first turn", {"new"}, said=m)


async def _shorten(c: Conversation, stage: Stage, round_: int) -> None:
    """The client shortens its history, or rewrites it; then its user asks for some of what is gone."""
    client = c.client
    if client.style == "none" or c.view:
        return
    is_mid_turn = "mid_turn" in client.incidents and client.style in SUMMARISED and client.summarising in SHOW_ALL
    is_mid_turn &= c.has_tools
    if is_mid_turn:
        await mid_turn(c)
    before, question = (list(c.held), c.appended, dict(c.facts), dict(c.said_in)), c.user()
    right = await _rewrite(c, before[2].values(), question, client.tail)
    if client.restarts and (round_ == 0 or c.rng.random() < 0.5):
        stage.restart()
    reply, fact = c.reply()
    cut = client.style not in HARMLESS
    if "rejected" in client.incidents and client.style in SUMMARISED:
        await c.send(c.held, right, "rejected", cut=True, status=400)
        right = await _rewrite_again(c, before, question)
    c.keep(await c.send(c.held, right, f"shortened ({client.style})", reply=reply, cut=cut and not c.view), fact)
    if "undo" in client.incidents and round_ == 0 and not c.view and client.ids != "chain":
        c.held, c.appended, c.facts, c.said_in = before
        await c.turn("taken back", {"branch", "turn", "retry"})
        return
    for _ in range(c.rng.randint(1, 3)):
        if lost := c.missing():
            await c.turn("question", question=lost[-1] if is_mid_turn else c.rng.choice(lost))


async def _rewrite_again(c: Conversation, before: Window, question: Msg) -> frozenset[str]:
    """Shorten what `c` held before, now to less, since the upstream found it too long yet."""
    shown = [m.number for m in c.held]
    c.held, c.appended = list(before[0]), before[1]
    right = await _rewrite(c, before[2].values(), question, 1)
    c.judge.take_back("\n".join([c.appended, *(m.text for m in c.held)]))
    is_same = [m.number for m in c.held] == shown  # but for the summary
    return right | {"turn", "retry", "branch"} if is_same else right


async def _rewrite(c: Conversation, facts: Iterable[Fact], question: Msg, tail: int) -> frozenset[str]:
    """Shorten what `c` holds, with a question at its end. Returns the events that are right. facts: for a summary"""
    client, style = c.client, c.client.style
    case = Case(history=tuple(c.held), question=question, tail=tail, rng=c.rng)
    if style in VIEWS:
        c.view = lambda history: VIEWS[style](history, client.tail)
        c.held.append(question)
        return frozenset({"turn", "window" if style == "view_window" else "cleared"})
    if style in SUMMARISED:
        text = await summarise(c, c.talk.summary(facts, client.summary_language))
        summary = wrapped(text, client.preamble, c.words.preamble)
        case = Case(history=case.history, question=question, tail=tail, rng=c.rng, summary=summary, earlier=c.earlier)
        c.appended, c.held = SUMMARISED[style](case)
        c.start_chain_anew()
        return frozenset({"compacted"})
    c.held = [*{**SILENT, **HARMLESS}[style](case), question]
    if style in HARMLESS:
        return frozenset({"turn", *(("retry", "branch") if style == "one_text" else ())})
    exact = {"window_": {"window"}, "cleared_": {"cleared"}, "images_replaced": {"cleared"}}
    return frozenset(next((events for name, events in exact.items() if style.startswith(name)), LOSSES))
