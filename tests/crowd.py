"""Bots whose users all share one key: they say the same few things to many people, and show their model a part of it.

    scripts/crowd                  3,000 bots with 2 to 6 chats each
    scripts/crowd --bots 17 --story
    scripts/crowd --restarts        and each request comes to a process that has just read the archive

No id tells the chats of a bot apart, and a canned answer is no evidence. Each user says numbers that nobody else says:
a request that is taken for another user's conversation may get those back. tests/test_session_crowd.py plays some.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from chats import SYSTEM, Lab, Wire, assistant, called, parts, result, user
from possible.draw import numbers
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lantern_proxy.follow import Step

STOCK = (
    "Hi", "Hello, I need help.", "ok", "yes", "no", "done", "Thanks.", "Thanks, I will wait.", "What now?",
    "When are you open on weekdays?", "Can I talk to somebody?", "It still does not work.",
)  # fmt: skip
"""What anybody may say."""
OWN = ("My contract is {}.", "{}", "It is {}.", "The device with the number {} blinks red since this morning.",
       "I moved, and my customer number is {} since then.")  # fmt: skip
ASKED = ("Which number did I tell you first?", "What is my contract?", "Read me my numbers, please.")
CANNED = (
    "Hello! How can I help you today?", "Please tell me your number so that I can look it up for you.",
    "Tell me when you are ready.", "Great! Does the green light come on now?", "Noted.",
    "I will forward your request to a colleague, please hold on for a moment.",
    "Is there anything else that I can help you with today?", "We are open from 9 to 18, on Saturdays until noon.",
    "Please restart the device and wait until all lamps are on.", "You are welcome.", "One moment, please.",
    "Thank you for contacting us. Have a nice day!",
)  # fmt: skip
"""What the bot says to anybody."""
ECHOED = ("Thank you, I found {}.", "I have noted {} for you. What else can I do?", "{} is correct.")
FRONT = user("Until now the customer was told what our web page says about contracts and about opening hours.")
SUMMARY = "The customer asked for help. {} The bot answered, and the matter is still open."

View = Callable[[Sequence[Wire], str], list[Wire]]
"""(history, its summary) -> what is shown of it"""


def last(count: int) -> View:
    return lambda history, _: list(history[-count:])


VIEWS: dict[str, View] = {
    "whole": lambda history, _: list(history),
    **{f"last {count}": last(count) for count in (2, 3, 4, 5, 7)},
    "behind a note": lambda history, _: [FRONT, *history[-5:]] if len(history) > 5 else list(history),
    "first and last": lambda history, _: [*history[:2], *history[-4:]] if len(history) > 6 else list(history),
    "summary, last 3": lambda history, told: [user(told), *history[-3:]] if told else list(history),
    "summary, question": lambda history, told: [parts(told, history[-1]["content"])] if told else list(history),
    "one text": lambda history, _: [user("\n".join(f"{m['role']}: {m['content']}" for m in history))],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """How a bot talks, and what it shows of it."""

    number: int
    view: str
    chats: int
    turns: int
    at_once: bool
    """Its users talk at the same time, not one after the other."""
    canned: tuple[str, ...]
    own: float
    """Share of messages with a number of their user's."""
    echoed: float
    """Share of those that the answer repeats."""
    looked_up: float
    """Share of turns in which the client looks something up, in the same words for all and under one id."""
    told: float
    """Share of numbers that stand in a summary."""


def draw(number: int) -> Bot:
    """The bot of that number."""
    rng = random.Random(number)
    return Bot(
        number=number, view=rng.choice([*VIEWS]), chats=rng.randint(2, 6), turns=rng.randint(3, 9),
        at_once=rng.random() < 0.5, canned=tuple(rng.sample(CANNED, rng.randint(2, 8))),
        own=rng.choice((0.2, 0.4, 0.6)),
        echoed=rng.choice((0.0, 0.3, 0.7)), looked_up=rng.choice((0.0, 0.0, 0.2)), told=rng.choice((0.0, 0.5)),
    )  # fmt: skip


@dataclass
class Talk:
    """One user's chat."""

    history: list[Wire] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    """What this user said and nobody else."""
    summary: str = ""


@dataclass
class Found:
    """What was seen of one bot."""

    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)


def play(bot: Bot, *, restarts: bool = False) -> Found:
    """All its chats, from beginning to end. restarts: before each request"""
    rng, lab, found = random.Random(f"{bot.number} talk"), Lab(), Found()
    lab.restarts = restarts
    talks = [Talk() for _ in range(bot.chats)]
    order = [talk for talk in talks for _ in range(bot.turns)]
    if bot.at_once:
        rng.shuffle(order)
    for talk in order:
        answer = _say(bot, talk, rng)
        _summarise(bot, talk, rng)
        shown = VIEWS[bot.view](talk.history, talk.summary)
        step = lab.ask([{"role": "system", "content": SYSTEM}, *shown], tools=("run",) if bot.looked_up else ())
        _look(lab, step, shown, talk, talks, found)
        lab.answer(step, assistant(answer))
        talk.history.append(assistant(answer))
    return found


def _say(bot: Bot, talk: Talk, rng: random.Random) -> str:
    """The user says something; what the bot is going to answer."""
    if rng.random() < bot.own:
        talk.numbers.append(number := f"{rng.randrange(10**8):08d}")
        said = rng.choice(OWN).format(number)
        answer = rng.choice(ECHOED).format(number) if rng.random() < bot.echoed else rng.choice(bot.canned)
    else:
        said, answer = rng.choice(ASKED if talk.numbers and rng.random() < 0.2 else STOCK), rng.choice(bot.canned)
    talk.history.append(user(said))
    if rng.random() < bot.looked_up:
        hours = called("call_hours", "run", of="hours"), result("call_hours", "weekdays 9-18, saturdays 9-12")
        talk.history += hours if bot.view != "one text" and not bot.view.startswith("summary") else ()
    return answer


def _summarise(bot: Bot, talk: Talk, rng: random.Random) -> None:
    """The client has its summary written elsewhere, once there is something to sum up."""
    if len(talk.history) > 6 and not talk.summary:
        named = [f"The number {number} was told." for number in talk.numbers if rng.random() < bot.told]
        talk.summary = SUMMARY.format(" ".join(named))


def _look(lab: Lab, step: Step, shown: Iterable[Wire], talk: Talk, talks: Iterable[Talk], found: Found) -> None:
    """Whose numbers could this request get back?"""
    seen, held = str(shown), "\n".join(lab.texts(step.session.id))
    strangers = [n for other in talks if other is not talk for n in other.numbers if n in held and n not in seen]
    lost = [n for n in talk.numbers if n not in seen]
    kept = [n for n in lost if n in held]
    found.counts.update(
        requests=1, strangers=bool(strangers), lost=len(lost), found=len(kept), **{f"event {step.event}": 1}
    )
    what = f"{step.event} in {step.session.id} ({step.link.why}); own {len(kept)} of {len(lost)}"
    found.story.append(f"{what}{'; OF A STRANGER' if strangers else ''}: {seen}")


def total(found: Iterable[Found]) -> Counter[str]:
    """What was counted of all, and `bots` of which a request could get a stranger's number."""
    counts: Counter[str] = Counter()
    for each in found:
        counts.update(each.counts, bots=bool(each.counts["strangers"]))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/crowd", description=__doc__)
    parser.add_argument("--bots", type=numbers, default="0:3000", metavar="A:B", help="from A to before B; 0:3000")
    parser.add_argument("--restarts", action="store_true", help="restart before each request")
    parser.add_argument("--faults", action="store_true", help="name the bots of which a request met a stranger")
    parser.add_argument("--story", action="store_true", help="tell every request of every bot")
    args = parser.parse_args()
    bots = [draw(number) for number in args.bots]
    console = Console(width=100, stderr=True)
    found = [play(bot, restarts=args.restarts) for bot in track(bots, "bots", console=console, transient=True)]
    for bot, each in zip(bots, found, strict=True):
        if args.story or (args.faults and each.counts["strangers"]):
            print(f"\n{bot}")
            print(*(line for line in each.story if args.story or "STRANGER" in line), sep="\n")
    Console(width=100).print(_table(bots, found))


def _table(bots: Sequence[Bot], found: Sequence[Found]) -> Table:
    table = Table("what is shown", "bots", "requests", "a stranger's number", "of bots", "own numbers found", "share")
    for column in table.columns[1:]:
        column.justify = "right"
    rows = {name: [each for bot, each in zip(bots, found, strict=True) if bot.view == name] for name in VIEWS}
    for name, some in [*rows.items(), ("all", found)]:
        c = total(some)
        own = f"{c['found']} of {c['lost']}"
        table.add_row(name, str(len(some)), str(c["requests"]), str(c["strangers"]), str(c["bots"]), own,
                      f"{c['found'] / max(1, c['lost']):.3f}")  # fmt: skip
    return table


if __name__ == "__main__":
    main()
