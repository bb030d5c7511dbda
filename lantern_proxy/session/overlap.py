"""What a request shows of a conversation: how much of that a session holds, and where.

Some clients show everything that was said, others a window of it, after a summary or with documents in between.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, starmap, takewhile

from lantern_proxy.analyze.spoken import without_stamp
from lantern_proxy.history.presentation import was_asked_with
from lantern_proxy.history.record import Entry, Session, before_answer, shown_prints
from lantern_proxy.turn import SYSTEM, Message, Request, plain

STANDS, ENDS = 1, 2
"""How what a request shows fits a session: it stands somewhere in its head, or at its end. 0: neither."""


def shown_and_asked(request: Request) -> tuple[list[Message], list[Message]]:
    """The spoken messages of a request up to its last answer, and all its spoken messages."""
    return said_of(request.messages[: end_of_shown(request.messages)]), said_of(request.messages)


def end_of_shown(messages: Sequence[Message]) -> int:
    """Index right after the last answer; 0 if there is none."""
    at = len(messages)
    while at and messages[at - 1].role != "assistant":
        at -= 1
    return at


def said_of(messages: Iterable[Message]) -> list[Message]:
    return [m for m in messages if is_talk(m)]


def said_in(head: Iterable[Entry]) -> Iterator[Message]:
    """The spoken messages of a head, lazily: hundreds of heads may be compared, and most differ soon."""
    return (e.message for e in head if is_talk(e.message))


def is_talk(message: Message) -> bool:
    """Does somebody speak in this message? System prompts and tool results do not count, since clients clear
    results."""
    return message.role not in SYSTEM and any(i.kind != "result" for i in message.items)


def prints_of(messages: Iterable[Message]) -> list[bytes]:
    return [m.print for m in messages]


def in_common(some: Iterable[Message], others: Iterable[Message]) -> int:
    """How many messages are the same in both, counted from the first."""
    both = zip(some, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].print == pair[1].print, both))


def fit_of(session: Session, shown: list[Message], asked: list[Message]) -> int:
    """ENDS if a session's head ends with `shown`, or `asked` ends with what the head was asked last; STANDS if `shown`
    stands elsewhere in the head; else 0."""
    if not shown:
        return 0
    if is_end(session, shown, asked):
        return ENDS
    marks, sought = prints_of(said_in(session.head)), prints_of(shown)
    begun = (at for at in range(len(marks) - len(sought)) if marks[at] == sought[0])
    return STANDS if any(marks[at : at + len(sought)] == sought for at in begun) else 0


def is_end(session: Session, shown: Sequence[Message], asked: Sequence[Message]) -> bool:
    """Does a session's head end with `shown`, or was it asked exactly what is in `asked`?

    The last question may have come with more text than its client shows now. The end may follow messages from the
    beginning of the head, which some clients keep.
    """
    run = shared_end(session, shown)
    if run and run + in_common(shown, said_in(session.head)) >= len(shown):
        return True
    return in_common(reversed(asked), said_in(reversed(before_answer(session)))) == len(asked)


def run_in(session: Session, shown: Sequence[Message]) -> int:
    """How many of the last shown messages stand together in a session's head."""
    held, sought = prints_of(said_in(reversed(session.head))), prints_of(reversed(shown))
    return max(_alike_from(held, sought), default=0) if sought[0] in held else 0


def _alike_from(held: Sequence[bytes], sought: Sequence[bytes]) -> list[int]:
    """For each place of `held`, how many of `sought`, counted from the first, stand there: the Z-function, in linear
    time."""
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
    """How many messages a session's head and `shown` have in common at their ends. The last question may have come with
    more text, and documents that came with it may be missing now."""
    last = next((at for at in range(len(shown) - 1, -1, -1) if shown[at].role == "user"), -1)

    def is_same(at: int, a: Message, b: Message) -> bool:
        return a.print == b.print or (at == last and a.role == b.role and was_asked_with(plain(b.text), plain(a.text)))

    def run(back: Iterable[Message]) -> int:
        both = zip(range(len(shown) - 1, -1, -1), back, reversed(shown), strict=False)
        return sum(takewhile(bool, starmap(is_same, both)))

    return max(run(said_in(reversed(session.head))), run(_without_documents(said_in(reversed(session.head)))))


def ends_in_exchange(session: Session, shown: Sequence[Message]) -> bool:
    """Do a session's head and `shown` end in the same question and answer? Some clients leave out an answer's thoughts,
    and some write another time in front of the question with every request."""
    both = [*zip(said_in(reversed(session.head)), reversed(shown), strict=False)][:2]
    if len(both) < 2 or not is_shown_in(*both[0]):
        return False
    asked, now = both[1]
    return asked.role == now.role == "user" and without_stamp(plain(asked.text)) == without_stamp(plain(now.text))


def is_shown_in(answer: Message, message: Message) -> bool:
    """Does a message show an answer, perhaps without the thoughts in front of it?"""
    if message.role != "assistant":
        return False
    without = {print for i in answer.items for print in shown_prints(i)}
    return message.print == answer.print or any(i.print in without for i in message.items)


def _without_documents(back: Iterator[Message]) -> Iterator[Message]:
    """The messages of `back` (latest first) without a user's messages right in front of another user message."""
    for m in back:
        yield m
        if m.role == "user":
            yield from dropwhile(lambda each: each.role == "user", back)
