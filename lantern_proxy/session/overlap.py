"""What a request shows of a conversation: how much of that a session holds, and where.

Some clients show all that was said, others a window of it, behind a summary or with documents in between.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, starmap, takewhile

from lantern_proxy.history.presentation import was_asked_with
from lantern_proxy.history.record import Entry, Session, before_answer
from lantern_proxy.turn import SYSTEM, Message, Request, plain

STANDS, ENDS = 1, 2
"""How well what a request shows fits a session: it stands somewhere in its head, or at its end; 0: neither."""


def shown_and_asked(request: Request) -> tuple[list[Message], list[Message]]:
    """What was said in a request up to its last answer, and all that was said in it."""
    return said_of(request.messages[: end_of_shown(request.messages)]), said_of(request.messages)


def end_of_shown(messages: Sequence[Message]) -> int:
    """Index right behind the last answer; 0 where there is none."""
    at = len(messages)
    while at and messages[at - 1].role != "assistant":
        at -= 1
    return at


def said_of(messages: Iterable[Message]) -> list[Message]:
    return [m for m in messages if is_talk(m)]


def said_in(head: Iterable[Entry]) -> Iterator[Message]:
    """What was said in a head, one by one: hundreds may be compared, and most differ soon."""
    return (e.message for e in head if is_talk(e.message))


def is_talk(message: Message) -> bool:
    """Does somebody say something in this message? System prompts and results of tools are left out: clients clear
    results."""
    return message.role not in SYSTEM and any(i.kind != "result" for i in message.items)


def prints_of(messages: Iterable[Message]) -> list[bytes]:
    return [m.print for m in messages]


def in_common(some: Iterable[Message], others: Iterable[Message]) -> int:
    """How many messages are the same in both, from the first on."""
    both = zip(some, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].print == pair[1].print, both))


def fit_of(session: Session, shown: list[Message], asked: list[Message]) -> int:
    """ENDS: a session's head ends with `shown`, or what it was asked last ends `asked`. STANDS: `shown` stands in its
    head."""
    if not shown:
        return 0
    if is_end(session, shown, asked):
        return ENDS
    marks, sought = prints_of(said_in(session.head)), prints_of(shown)
    begun = (at for at in range(len(marks) - len(sought)) if marks[at] == sought[0])
    return STANDS if any(marks[at : at + len(sought)] == sought for at in begun) else 0


def is_end(session: Session, shown: Sequence[Message], asked: Sequence[Message]) -> bool:
    """Does a session's head end with `shown`, or was it asked just what is in `asked`?

    What was asked last may have come with more than its client shows of it now, within it or in front of it. In front
    of the end may stand what the head begins with, where its client keeps that."""
    run = shared_end(session, shown)
    if run and run + in_common(shown, said_in(session.head)) >= len(shown):
        return True
    return in_common(reversed(asked), said_in(reversed(before_answer(session)))) == len(asked)


def run_in(session: Session, shown: Sequence[Message]) -> int:
    """How many of the messages that are shown last stand together in a session's head."""
    held, sought = prints_of(said_in(reversed(session.head))), prints_of(reversed(shown))
    return max(_alike_from(held, sought), default=0) if sought[0] in held else 0


def _alike_from(held: Sequence[bytes], sought: Sequence[bytes]) -> list[int]:
    """How many of `sought`, from the first on, stand at each place of `held`: the Z-function, in linear time."""
    joined = [*sought, b"", *held]
    runs, start, end = [0] * len(joined), 0, 0
    for at in range(1, len(joined)):
        run = min(end - at, runs[at - start]) if at < end else 0
        while at + run < len(joined) and joined[run] == joined[at + run]:
            run += 1
        if at + run > end:
            start, end = at, at + run
        runs[at] = run
    return runs[len(sought) + 1 :]


def shared_end(session: Session, shown: Sequence[Message]) -> int:
    """How many messages a session's head and `shown` have in common at their ends. What was asked last may have come
    with more, and documents that came with it may be left out."""
    last = next((at for at in range(len(shown) - 1, -1, -1) if shown[at].role == "user"), -1)

    def is_same(at: int, a: Message, b: Message) -> bool:
        return a.print == b.print or (at == last and a.role == b.role and was_asked_with(plain(b.text), plain(a.text)))

    def run(back: Iterable[Message]) -> int:
        both = zip(range(len(shown) - 1, -1, -1), back, reversed(shown), strict=False)
        return sum(takewhile(bool, starmap(is_same, both)))

    return max(run(said_in(reversed(session.head))), run(_without_documents(said_in(reversed(session.head)))))


def _without_documents(back: Iterator[Message]) -> Iterator[Message]:
    """The messages of `back`, the last first, without those of a user right in front of another one of a user."""
    for m in back:
        yield m
        if m.role == "user":
            yield from dropwhile(lambda each: each.role == "user", back)
